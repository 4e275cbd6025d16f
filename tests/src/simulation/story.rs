//! The story of a simulation in plain words, one line per event: when, who, what.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The longest text of a line, in characters. Longer texts are cut.
const MAX_TEXT: usize = 240;

#[derive(Debug, Clone)]
pub struct Story {
    began: Instant,
    lines: Arc<Mutex<Vec<Line>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: Duration,
    pub who: String,
    pub what: String,
}

impl Story {
    pub(crate) fn new() -> Self {
        Story { began: Instant::now(), lines: Arc::default() }
    }

    pub(super) fn note(&self, who: &str, what: impl Into<String>) {
        self.add(self.began.elapsed(), who, what.into());
    }

    pub(super) fn add(&self, at: Duration, who: &str, what: String) {
        let what = match what.char_indices().nth(MAX_TEXT) {
            Some((end, _)) => format!("{}…", &what[..end]),
            None => what,
        };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(Line { at, who: who.into(), what });
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The lines in the order of time. Lines with the same time stay in the order in which they
    /// were added.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.sort_by_key(|line| line.at);
        lines
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = format!("{}.{:03}", self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{seconds:>9}s  {:<14} {}", self.who, self.what)
    }
}
