//! The work of an attempt: as its claim was answered, and then with what that answer lacked.

use std::{ops::Deref, sync::OnceLock};

use domain::wire::Execute;

#[derive(Debug)]
pub(crate) struct Work {
    claimed: Execute,
    /// With the inputs and answers that were left out, if any were.
    complete: OnceLock<Execute>,
}

impl Work {
    pub(super) fn new(claimed: Execute) -> Self {
        Work { claimed, complete: OnceLock::new() }
    }

    /// Sets the work with what was left out. The first call counts.
    pub(super) fn set_complete(&self, work: Execute) {
        self.complete.get_or_init(|| work);
    }
}

impl Deref for Work {
    type Target = Execute;

    fn deref(&self) -> &Execute {
        self.complete.get().unwrap_or(&self.claimed)
    }
}
