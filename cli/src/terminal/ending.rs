//! The ending of a command, and its exit code.

use std::process::ExitCode;

use domain::wire::EndStatus;

/// The exit code of wrong usage, which the argument parser uses too.
pub(crate) const WRONG_USAGE: u8 = 2;

/// The help text of every command whose exit code is the outcome.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 completed (wholly or in part), 1 failed or aborted, 2 wrong usage or \
                                     a file that can't be read, 3 refused (also by a server's permissions), 4 cancelled or timed out, 5 cannot connect, 130 left before it ended.";

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
            Ending::Refused => 3,
            Ending::Cancelled => 4,
            Ending::Unreachable => 5,
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
