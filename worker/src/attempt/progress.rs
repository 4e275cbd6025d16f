//! The progress of an attempt. Every tick and the report carry it.

use std::sync::{Mutex, PoisonError};

use domain::wire;

#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<wire::Progress>);

impl Progress {
    pub(crate) fn get(&self) -> wire::Progress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_step(&self) {
        self.change(|progress| progress.steps += 1);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut wire::Progress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
