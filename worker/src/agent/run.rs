//! What an agent is given while it runs: who it acts as, a meter for its paid calls, and the worker's models,
//! tools and directories.

use shared::wire::{Execute, OpenHold};

use super::resources::Resources;
use crate::{attempt::Attempt, billing::meter::Meter};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) meter: &'a Meter<'a>,
    pub(crate) resources: &'a Resources,
    /// Holds of earlier attempts whose calls are not booked yet.
    pub(crate) open_holds: &'a [OpenHold],
}

impl<'a> Run<'a> {
    pub(super) fn work(&self) -> &'a Execute {
        &self.attempt.work
    }
}
