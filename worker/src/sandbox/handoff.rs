//! What the steps of the sandbox hand to each other and report: the policy of a program, the layers applied so
//! far, and the lines the helper writes for the worker.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use shared::{
    agent::{Layer, Resources},
    wire::{AppliedLayer, MissingLayer, SandboxReport},
};

/// The program this process runs, whatever its file is called, and also after the file was renamed, removed
/// or replaced.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The environment variable of the helper that holds what it is told. Arguments can be read by every
/// user of a machine; an environment can't.
pub const VARIABLE: &str = "TRELLIS_SANDBOX";

/// What a program is to run as, and under.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) command: Vec<String>,
    pub(crate) workspace: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) reads: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) requires: BTreeSet<Layer>,
    pub(crate) resources: Resources,
    /// What the whole workspace may hold.
    pub(crate) workspace_bytes: u64,
}

/// What one step tells the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Handoff {
    pub(super) policy: Policy,
    /// Layers the operator has switched off.
    pub(super) without: BTreeSet<Layer>,
    pub(super) report: SandboxReport,
    /// Who started this step, as `/proc` numbers processes: when it goes, so does this.
    pub(super) parent: i32,
    /// Whether there is a user namespace to give up rights in.
    pub(super) mapped: bool,
}

/// What the helper says, in lines on its standard error, the first before the program runs. A program
/// that says such things later can only end itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    Ready(SandboxReport),
    /// The profile requires a layer that is not to be had.
    Refused(SandboxReport),
    Broken(String),
    /// It was ended because of this.
    Exceeded(String),
}

pub(super) const MARK: &str = "trellis-sandbox: ";

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not {0}: {1}")]
    System(&'static str, #[source] io::Error),
    /// Some machines give out user namespaces that nothing can be done in. There is no way back from one.
    #[error(
        "could not map its user into its user namespace: {0}\n\nhint: this machine restricts user namespaces (some by \
         `kernel.apparmor_restrict_unprivileged_userns`); allow them to the worker, or name \
         `pid_namespace` and `network_namespace` in `sandbox.without` of its settings"
    )]
    Unmapped(#[source] io::Error),
    #[error("could not read what it was told: {0}")]
    Policy(#[from] serde_json::Error),
    #[error("there is no step `{0}`")]
    Stage(String),
    #[error("`{program}` could not be run: {source}")]
    Program {
        program: String,
        #[source]
        source: io::Error,
    },
}

pub(super) fn say(word: &Word) {
    let line = format!("{MARK}{}\n", serde_json::to_string(word).expect("plain fields"));
    // There is nobody else to tell.
    let _ = io::stderr().write_all(line.as_bytes());
}

pub(super) fn system(doing: &'static str) -> impl Fn(nix::Error) -> Error {
    move |errno| Error::System(doing, errno.into())
}

impl Handoff {
    /// Whether a layer is to be applied; one that was switched off is told as missing.
    pub(super) fn wants(&mut self, layer: Layer) -> bool {
        let off = self.without.contains(&layer);
        if off {
            self.missing(layer, "switched off in the worker's settings".into());
        }
        !off
    }

    pub(super) fn applied(&mut self, layer: Layer, detail: String) {
        self.report.applied.push(AppliedLayer { layer, detail });
    }

    pub(super) fn missing(&mut self, layer: Layer, reason: String) {
        self.report.missing.push(MissingLayer { layer, reason });
    }

    pub(super) fn has(&self, layer: Layer) -> bool {
        self.report.applied.iter().any(|applied| applied.layer == layer)
    }

    /// The next step, as a process.
    pub(super) fn next(&self, stage: &str) -> std::process::Command {
        let mut command = std::process::Command::new(OWN_EXECUTABLE);
        command.args(["sandbox", stage]).env_clear();
        command.env(VARIABLE, serde_json::to_string(self).expect("plain fields"));
        command
    }
}
