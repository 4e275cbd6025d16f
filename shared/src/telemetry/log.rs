//! Where lines of the log go: to standard error, without the values that this process must not show (S2). A line is written as a whole.

use std::{
    io::{Result, Write},
    sync::{PoisonError, RwLock},
};

/// Takes values out of a line.
type Hide = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// What takes out the values of each worker in this process.
static HIDDEN: RwLock<Vec<Hide>> = RwLock::new(Vec::new());

/// From now on, every line of the log goes through this first.
pub fn hide(values: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) {
    HIDDEN.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(values));
}

/// A writer for one line.
pub(super) fn stderr() -> Lines {
    Lines
}

#[derive(Debug)]
pub(super) struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        let hidden = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
        let shown = hidden.iter().fold(line.to_vec(), |shown, hide| hide(&shown));
        drop(hidden);
        std::io::stderr().lock().write_all(&shown)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        std::io::stderr().flush()
    }
}
