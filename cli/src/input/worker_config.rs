//! The files of a worker: its settings (models, prices, tools, workspaces), and the policy that
//! bounds profiles. Used by `worker`, and by the worker inside `run` and `dev`.

use std::path::{Path, PathBuf};

use domain::{Problems, agent_policy::AgentPolicy, decode};
use serde_json::Value;

use crate::{
    cluster::local_directory,
    input::file::read_value,
    terminal::{ending::Ending, output},
};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerConfig {
    /// The worker's settings: models with prices, tools, workspaces.
    ///
    /// TOML, YAML or JSON.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WORKER_CONFIG", value_parser = local_directory::file())]
    config: Option<PathBuf>,
    /// The policy of agent profiles.
    ///
    /// It lists the kinds, programs, files, networks, models and MCP servers that a profile may use, as YAML, TOML or JSON. Without it,
    /// `worker` runs no programs; `run` and `dev` without servers run every profile.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WORKER_POLICY", value_parser = local_directory::file())]
    policy: Option<PathBuf>,
    /// A directory with a file for each key and secret.
    ///
    /// A file has the name of its variable: OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, and any other in `key_env`, `token_env` or
    /// `env` of the settings. The files are read once. A variable, or NAME_FILE, overrides its file. Only this user should have the
    /// permission to read them.
    #[arg(long, hide_short_help = true, value_name = "DIR", env = "TRELLIS_SECRETS_DIR", value_parser = local_directory::file())]
    secrets_dir: Option<PathBuf>,
}

impl WorkerConfig {
    /// The options that configure the worker of this command.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let options =
            [("--config", &self.config), ("--policy", &self.policy), ("--secrets-dir", &self.secrets_dir)];
        let given = options.into_iter().filter(|(_, file)| named(file.as_deref()).is_some());
        given.map(|(option, _)| option).collect()
    }

    /// True if the policy was named for this command, not for all commands by a variable.
    pub(crate) fn names_policy(&self) -> bool {
        let of_all = std::env::var_os("TRELLIS_WORKER_POLICY").filter(|file| !file.is_empty());
        named(self.policy.as_deref()).is_some_and(|file| Some(file.as_os_str()) != of_all.as_deref())
    }

    /// Reads and checks the settings, and the policy if there is one. If they are invalid, prints
    /// the mistakes and returns the ending. Call it before reading stdin: if the environment
    /// contains keys, the process starts again without them.
    pub(crate) fn read(&self) -> Result<(worker::Settings, Option<AgentPolicy>), Ending> {
        let settings = match named(self.config.as_deref()) {
            Some(path) => {
                read(path, "a valid settings file of a worker", decode::value, worker::Settings::check)?
            }
            None => worker::Settings::default(),
        };
        let policy = named(self.policy.as_deref()).map(read_policy).transpose()?;
        hide_keys(&settings);
        if let Some(directory) = named(self.secrets_dir.as_deref()) {
            read_secrets(directory)?;
        }
        Ok((settings, policy))
    }
}

/// Removes keys and passwords from the environment of this process.
pub(crate) fn hide_keys(settings: &worker::Settings) {
    if let Err(error) = worker::hide_keys(settings) {
        output::note(&format!("warning: the keys of this process stay in its environment: {error}"));
    }
}

fn read_secrets(directory: &Path) -> Result<(), Ending> {
    match worker::read_secrets(directory) {
        Ok(doubts) => {
            for doubt in doubts {
                output::note(&format!("warning: {doubt}"));
            }
            Ok(())
        }
        Err(wrong) => {
            output::error(&format!(
                "the directory of secrets is invalid\n\n{}\n\nhint: it needs a file for each secret, readable by this user, with \
                the name of its variable, such as OPENAI_API_KEY",
                wrong.join("\n")
            ));
            Err(Ending::Unreadable)
        }
    }
}

/// The path of a file. An empty variable names no file.
fn named(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Reads and checks a policy file.
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
