//! The end of a program, read from the exit status of its sandbox. The sandbox exits with the
//! program's exit code, or with 128 plus the number of the signal that ended the program. If the
//! sandbox itself is killed, its status has a signal and no code.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use nix::sys::signal::Signal;

/// The exit code of a failure that may be retried, by the convention of `sysexits.h`.
const RETRYABLE_CODE: i32 = 75;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Success,
    Code(i32),
    /// The program was ended by the signal with this number.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(0), _) => Exit::Success,
            (Some(code @ 129..=192), _) => Exit::Signal(code - 128),
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            // A process on Unix ends with a code or a signal, so this is unreachable; it is treated
            // as a failure.
            (None, None) => Exit::Code(-1),
        }
    }
}

impl Exit {
    /// Returns true if another attempt may succeed: the program exited with `RETRYABLE_CODE`, or it
    /// was killed. A signal that the program's own work caused (processor time, file size, a
    /// forbidden system call) would come again and is not retried.
    pub(super) fn is_retryable(self) -> bool {
        let own_doing = [Signal::SIGXCPU, Signal::SIGXFSZ, Signal::SIGSYS];
        match self {
            Exit::Success => false,
            Exit::Code(code) => code == RETRYABLE_CODE,
            Exit::Signal(number) => !own_doing.iter().any(|signal| *signal as i32 == number),
        }
    }

    pub(super) fn describe(self) -> String {
        match self {
            Exit::Success => "ended with exit code 0".into(),
            Exit::Code(code) => format!("ended with exit code {code}"),
            Exit::Signal(number) => {
                let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
                let perhaps = match Signal::try_from(number) {
                    Ok(Signal::SIGKILL) => "; the kernel sends it when memory runs out",
                    Ok(Signal::SIGXCPU) => "; its processor time was used up",
                    Ok(Signal::SIGXFSZ) => "; a file exceeded its size limit",
                    Ok(Signal::SIGSYS) => "; it made a system call that its sandbox forbids",
                    Ok(_) | Err(_) => "",
                };
                format!("was ended by signal {number} ({name}){perhaps}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i4_a_program_that_was_killed_is_no_success_at_any_stage_of_its_sandbox() {
        // A raw status has a code in its second byte, or a signal in its first.
        let exit = |raw| Exit::from(ExitStatus::from_raw(raw));
        assert_eq!(exit(0), Exit::Success);
        assert_eq!(exit(75 << 8), Exit::Code(75));
        assert_eq!((exit(9), exit((128 + 9) << 8)), (Exit::Signal(9), Exit::Signal(9)));
        for raw in [9, 15, (128 + 9) << 8, (128 + 11) << 8, 75 << 8] {
            assert!(exit(raw).is_retryable(), "{raw}");
        }
        for raw in [0, 1 << 8, 126 << 8, (128 + 24) << 8, (128 + 31) << 8, 255 << 8] {
            assert!(!exit(raw).is_retryable(), "{raw}");
        }
        assert!(exit(9).describe().starts_with("was ended by signal 9 (SIGKILL); "));
        assert_eq!(exit((128 + 60) << 8).describe(), "was ended by signal 60 (unknown)");
    }
}
