//! The data that the stages of the sandbox pass on: the policy of a program, the layers applied so
//! far, and the messages of the helper to the worker.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::PathBuf,
};

use domain::{
    agent::{Layer, Resources},
    wire::{AppliedLayer, MissingLayer, SandboxReport},
};
use serde::{Deserialize, Serialize};

/// The executable of this process. The path works for any file name, and after the file was
/// renamed, removed or replaced.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The environment variable with the helper's handoff. Every user of a machine can read the
/// arguments of all processes, but not the environment of other users' processes.
pub const VARIABLE: &str = "TRELLIS_SANDBOX";

/// The program to run, and its limits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) command: Vec<String>,
    pub(crate) workspace: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) reads: Vec<PathBuf>,
    /// Directories besides the workspace that it may change.
    pub(crate) writes: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) requires: BTreeSet<Layer>,
    pub(crate) resources: Resources,
    /// The address space of each process: some runtimes reserve much more memory than they use.
    pub(crate) address_space_bytes: u64,
    /// The most bytes of the whole workspace.
    pub(crate) workspace_bytes: u64,
}

/// The data that one stage of the sandbox passes to the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Handoff {
    pub(super) policy: Policy,
    /// The cgroup of the program, or the reason why it has none.
    pub(super) cgroup: Result<PathBuf, String>,
    /// Layers the operator has switched off.
    pub(super) without: BTreeSet<Layer>,
    /// Layers that this machine lacks, with the reasons.
    pub(super) unable: BTreeMap<Layer, String>,
    pub(super) report: SandboxReport,
    /// The process that started this stage, by its number in `/proc`. When it ends, this stage ends.
    pub(super) parent: i32,
    /// True if the stage runs in a user namespace, whose rights the program must give up.
    pub(super) mapped: bool,
    /// True if the worker is root, by its number outside of all namespaces.
    pub(super) runs_as_root: bool,
    /// True if it runs in a pid namespace with its own `/proc`, even if other parts of that layer
    /// are missing.
    pub(super) own_proc: bool,
}

/// The messages of the helper, each as a line on its standard error. The first one comes before the
/// program runs. A program that writes such a line later harms only itself: at worst its own
/// context fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HelperMessage {
    /// The layers are applied, and the program starts.
    Ready(SandboxReport),
    /// The profile requires a layer that this machine does not have.
    Refused(SandboxReport),
    /// The program has not run: a layer can't be created here, which shows only after the
    /// namespaces exist. The worker starts it again without that layer, which is then reported as
    /// missing.
    Unable(Layer, String),
    /// A stage failed, for this reason.
    Broken(String),
    /// A stage failed for lack of something that the machine will have again.
    Passing(String),
    /// The program was killed because it exceeded this limit.
    Exceeded(String),
}

/// The beginning of every message of the helper.
const MESSAGE_PREFIX: &str = "trellis-sandbox: ";

impl HelperMessage {
    /// Reads a line, if it is a message.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line.strip_prefix(MESSAGE_PREFIX.as_bytes())?).ok()
    }
}

/// A line of standard error for users: a message of the helper as plain text, any other line
/// unchanged.
pub(crate) fn readable_message(line: &str) -> String {
    match HelperMessage::parse(line.as_bytes()) {
        Some(
            HelperMessage::Broken(why)
            | HelperMessage::Passing(why)
            | HelperMessage::Exceeded(why)
            | HelperMessage::Unable(_, why),
        ) => why,
        Some(HelperMessage::Ready(_) | HelperMessage::Refused(_)) | None => line.to_owned(),
    }
}

/// The errors of a stage of the sandbox.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not {0}: {1}")]
    System(&'static str, #[source] io::Error),
    /// Some machines create user namespaces but allow nothing inside. A process can't leave such a
    /// namespace again.
    #[error(
        "could not map the user into the user namespace: {0}\n\nhint: this machine restricts user namespaces (some by \
         `kernel.apparmor_restrict_unprivileged_userns`); allow them for the worker, or list \
         `pid_namespace` and `network_namespace` in `sandbox.without` of its settings"
    )]
    Unmapped(#[source] io::Error),
    #[error("could not read the policy of the program: {0}")]
    Policy(#[from] serde_json::Error),
    #[error("unknown stage `{0}` of the sandbox")]
    Stage(String),
    #[error("`{program}` could not be run: {source}{}", how_to_run(.source))]
    Program {
        program: String,
        #[source]
        source: io::Error,
    },
}

/// A hint for a program that could not be run.
fn how_to_run(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::NotFound {
        "\n\nhint: install it on the worker, in a directory of its PATH, or write its whole path and list that in `reads` of the profile"
    } else if source.kind() == io::ErrorKind::PermissionDenied {
        "\n\nhint: list its directory in `reads` of the profile, and let the worker's user run it"
    } else {
        ""
    }
}

impl Error {
    /// The message that reports this error.
    pub(super) fn message(&self) -> HelperMessage {
        match self {
            Error::System(_, source) | Error::Unmapped(source) | Error::Program { source, .. }
                if source.raw_os_error().is_some_and(|code| passes(nix::Error::from_raw(code))) =>
            {
                HelperMessage::Passing(self.to_string())
            }
            Error::System(..)
            | Error::Unmapped(_)
            | Error::Policy(_)
            | Error::Stage(_)
            | Error::Program { .. } => HelperMessage::Broken(self.to_string()),
        }
    }
}

/// Writes one message to standard error.
pub(super) fn send(message: &HelperMessage) {
    let line = format!("{MESSAGE_PREFIX}{}\n", serde_json::to_string(message).expect("plain fields"));
    // If this fails, there is no other channel for the report.
    let _ = io::stderr().write_all(line.as_bytes());
}

pub(super) fn system(doing: &'static str) -> impl Fn(nix::Error) -> Error {
    move |errno| Error::System(doing, errno.into())
}

/// Returns true if an error is temporary: the machine lacks a resource at this moment. Such an
/// error does not show which features the machine has.
pub(super) fn passes(errno: nix::Error) -> bool {
    matches!(
        errno,
        nix::Error::EAGAIN
            | nix::Error::ENOMEM
            | nix::Error::EINTR
            | nix::Error::EMFILE
            | nix::Error::ENFILE
            | nix::Error::EBUSY
    )
}

impl Handoff {
    /// Returns true if a layer should be applied. A layer that the operator switched off is
    /// reported as missing.
    pub(super) fn wants(&mut self, layer: Layer) -> bool {
        let why_not = match self.unable.get(&layer) {
            _ if self.without.contains(&layer) => Some("switched off in the worker's settings".to_owned()),
            unable => unable.cloned(),
        };
        let wants = why_not.is_none();
        if let Some(reason) = why_not {
            self.missing(layer, reason);
        }
        wants
    }

    pub(super) fn applied(&mut self, layer: Layer, detail: String) {
        self.report.applied.push(AppliedLayer { layer, detail });
    }

    pub(super) fn missing(&mut self, layer: Layer, reason: String) {
        self.report.missing.push(MissingLayer { layer, reason });
    }

    /// The command that runs the next stage.
    pub(super) fn next(&self, stage: &str) -> std::process::Command {
        let mut command = std::process::Command::new(OWN_EXECUTABLE);
        command.args(["sandbox", stage]).env_clear();
        command.env(VARIABLE, serde_json::to_string(self).expect("plain fields"));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_an_error_that_passes_says_nothing_about_the_machine() {
        for (errno, does) in [
            (nix::Error::EAGAIN, true),
            (nix::Error::ENOMEM, true),
            (nix::Error::ENFILE, true),
            (nix::Error::EPERM, false),
            (nix::Error::ENOSYS, false),
            (nix::Error::EINVAL, false),
        ] {
            let message = system("make its namespaces")(errno).message();
            assert_eq!(matches!(message, HelperMessage::Passing(_)), does, "{errno}");
            assert_eq!(matches!(message, HelperMessage::Broken(_)), !does, "{errno}");
        }
    }
}
