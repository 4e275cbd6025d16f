//! The inputs of a running agent: its attempt, a meter for its paid calls, and the worker's models,
//! tools and directories.

use domain::wire::{Execute, OpenHold};

use super::resources::Resources;
use crate::{attempt::Attempt, billing::meter::Meter, check::Outside};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) meter: &'a Meter<'a>,
    pub(crate) resources: &'a Resources,
    /// Holds of earlier attempts whose calls are not booked yet.
    pub(crate) open_holds: &'a [OpenHold],
}

impl<'a> Run<'a> {
    /// The parts of the worker that its checks use (B16).
    pub(super) fn outside(&self) -> Outside<'a> {
        Outside {
            toolbox: &self.resources.toolbox,
            sandbox: self.resources.sandbox.as_ref(),
            secrets: &self.resources.own_variables,
            directory: self.resources.workspaces(),
        }
    }

    pub(super) fn work(&self) -> &'a Execute {
        &self.attempt.work
    }
}
