//! The files of a worker: its settings (models, prices, tools, workspaces), and the policy of what profiles may ask for. Used
//! by `worker`, and by the worker inside `run` and `dev`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use shared::{Problems, agent_policy::AgentPolicy, decode};

use crate::{input::file::read_value, terminal::ending::Ending};

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerConfig {
    /// The worker's settings (models and their prices, tools, workspaces): TOML, YAML or JSON.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WORKER_CONFIG")]
    config: Option<PathBuf>,
    /// What agent profiles may ask of the worker (kinds, programs, files, network, models, MCP servers): YAML, TOML or JSON.
    /// Without it, `worker` runs no programs; `run` and `dev` without servers run every profile.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WORKER_POLICY")]
    policy: Option<PathBuf>,
}

impl WorkerConfig {
    /// The checked settings, and the policy if there is one; or, if they are not valid, the ending, after the mistakes were
    /// printed.
    pub(crate) fn read(&self) -> Result<(worker::Settings, Option<AgentPolicy>), Ending> {
        let settings = match named(self.config.as_deref()) {
            Some(path) => {
                read(path, "a valid settings file of a worker", decode::value, worker::Settings::check)?
            }
            None => worker::Settings::default(),
        };
        let policy = named(self.policy.as_deref()).map(read_policy).transpose()?;
        Ok((settings, policy))
    }
}

/// An empty variable names no file.
fn named(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// A checked policy file.
pub(crate) fn read_policy(path: &Path) -> Result<AgentPolicy, Ending> {
    read(path, "a valid policy file", decode::value, AgentPolicy::check)
}

fn read<T>(
    path: &Path,
    what: &str,
    decode: impl FnOnce(&Value) -> Result<T, Problems>,
    check: impl FnOnce(&T) -> Result<(), Problems>,
) -> Result<T, Ending> {
    let read = read_value(path).and_then(|document| {
        let value = decode(&document.value);
        value.and_then(|value| check(&value).map(|()| value)).map_err(|problems| document.wrong(problems))
    });
    read.map_err(|unusable| unusable.explain_as(path, what))
}
