//! The work of an attempt: as the answer to its claim has it, and later with the parts that were
//! left out.

use std::{ops::Deref, sync::OnceLock};

use domain::wire::Execute;

#[derive(Debug)]
pub(crate) struct Work {
    claimed: Execute,
    /// The work with the inputs and answers that were left out, if any were.
    complete: OnceLock<Execute>,
}

impl Work {
    pub(super) fn new(claimed: Execute) -> Self {
        Work { claimed, complete: OnceLock::new() }
    }

    /// Sets the complete work. Only the first call has an effect.
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
