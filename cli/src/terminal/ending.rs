//! The ending of a command, and its exit code.

use std::process::ExitCode;

use domain::wire::EndStatus;

/// The exit code of wrong usage, which the argument parser uses too.
pub(crate) const WRONG_USAGE: u8 = 2;
/// The exit code of a refusal.
pub(crate) const REFUSED: u8 = 3;
/// The exit code of a server that could not be reached.
pub(crate) const UNREACHABLE: u8 = 5;

/// The help text of every command whose exit code is the outcome.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 completed (wholly or in part), 1 failed or aborted, 2 wrong usage or an unreadable file, 3 refused (also for a missing \
     permission), 4 cancelled or timed out, 5 cannot connect, 130 left before the end.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Failed,
    Unreadable,
    Refused,
    Cancelled,
    Unreachable,
    /// The user left, and the run continues.
    Left,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ExitCode::from(match ending {
            Ending::Completed => 0,
            Ending::Failed => 1,
            Ending::Unreadable => WRONG_USAGE,
            Ending::Refused => REFUSED,
            Ending::Cancelled => 4,
            Ending::Unreachable => UNREACHABLE,
            Ending::Left => 130,
        })
    }
}

impl From<EndStatus> for Ending {
    fn from(status: EndStatus) -> Self {
        match status {
            EndStatus::Completed => Ending::Completed,
            EndStatus::Cancelled | EndStatus::TimedOut => Ending::Cancelled,
            EndStatus::Rejected => Ending::Refused,
            EndStatus::Failed | EndStatus::Aborted => Ending::Failed,
        }
    }
}
