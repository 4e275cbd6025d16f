//! The sandbox around a program that is an agent (I4). `unsafe` is forbidden here, so no code can
//! run between fork and exec. Instead the worker starts a helper, which is its own executable with
//! a hidden command. The helper restricts itself stage by stage, and then becomes the program:
//!
//! 1. [`outside`] creates the namespaces, and waits outside of them;
//! 2. [`init`] is the first process in them: it mounts its own `/proc`, makes everything but the
//!    workspace read-only, and kills a program that exceeds its limits; when it ends, all processes
//!    end with it;
//! 3. [`program`] gives up its rights, and becomes the program.
//!
//! A layer that this machine lacks is reported as missing. The profile decides whether the program
//! runs without it. The last stage checks that before the program runs.

mod attend;
mod cgroup;
mod environment;
mod filter;
mod handoff;
mod helper;
mod init;
mod mounts;
mod outside;
mod own_process;
mod paths;
mod program;
mod start;
mod usage;
mod watch;

use std::{os::unix::fs::DirBuilderExt, process::ExitCode, time::Duration};

use domain::{
    agent::{AgentKind, Layer},
    wire::SandboxReport,
};

pub(crate) use environment::{WorkerSecrets, plain as plain_environment};
pub use handoff::{OWN_EXECUTABLE, VARIABLE};
pub(crate) use handoff::{Policy, readable_message};
pub(crate) use helper::{Helper, LaunchedSandbox, NotStarted, Sandbox};
pub use own_process::{protect_process, runs_as_root};
pub(crate) use paths::{absolute, make_absolute_if_readable, may_read};
pub(crate) use start::{Event, MAX_LINE_BYTES, Program};

use handoff::{Error, send};

/// The longest time for a program that does nothing.
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// Logs the layers of the sandbox that this machine has, if the policy or the settings allow
/// programs.
pub async fn tell_layers(config: &crate::Config) {
    let Some(helper) = config.sandbox.clone() else { return };
    let programs = config.policy.kinds.contains(&AgentKind::Command) || !config.policy.programs.is_empty();
    if !programs && config.settings.mcp.values().all(|server| server.command.is_empty()) {
        return;
    }
    let directory = std::env::temp_dir().join(format!("trellis-layers-{}", std::process::id()));
    let found = match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {
            let sandbox = Sandbox::new(helper, &config.settings.sandbox, &config.policy.requires);
            match tokio::time::timeout(LONGEST_TRY, sandbox.layers(directory.clone())).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no program started within {} s", LONGEST_TRY.as_secs())),
            }
        }
        Err(error) => Err(error.to_string()),
    };
    let _ = std::fs::remove_dir_all(&directory);
    let name =
        |layer: Layer| serde_json::to_value(layer).ok().and_then(|name| name.as_str().map(str::to_owned));
    match found {
        Ok(SandboxReport { applied, missing }) => {
            let applied: Vec<String> = applied.iter().filter_map(|one| name(one.layer)).collect();
            let missing =
                missing.iter().filter_map(|one| Some(format!("{} ({})", name(one.layer)?, one.reason)));
            let missing: Vec<String> = missing.collect();
            let missing = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
            tracing::info!(layers = applied.join(", "), missing, "programs run in a sandbox");
        }
        Err(error) => tracing::warn!(error, "the test of the sandbox failed, so programs may fail to start"),
    }
}

/// The helper's exit code when a stage failed.
const BROKEN: u8 = 125;

/// Runs the named stage of the helper, or the first one without a name. Returns when every process
/// that it waits for has ended. Must be called while the process has a single thread.
pub fn enter(stage: Option<&str>, handoff: &str) -> ExitCode {
    let entered = serde_json::from_str(handoff).map_err(Error::from).and_then(|handoff| match stage {
        None => outside::run(handoff),
        Some("init") => init::run(handoff),
        Some("program") => program::run(handoff),
        Some(other) => Err(Error::Stage(other.to_owned())),
    });
    entered.unwrap_or_else(|error| {
        send(&error.message());
        ExitCode::from(BROKEN)
    })
}
