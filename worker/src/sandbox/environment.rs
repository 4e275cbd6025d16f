//! The environment of a program. It gets only those of the worker's variables that its profile
//! names, and never a secret of the worker.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::Path,
};

use super::handoff::VARIABLE;
use crate::settings::Settings;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that are always secret, even if the settings do not name them: keys of the usual
/// providers, and addresses and credentials of the worker's own servers.
const ALWAYS_SECRET: [&str; 15] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OLLAMA_API_KEY",
    "NATS_URL",
    "NATS_CREDS",
    "NATS_NKEY_FILE",
    "NATS_PASSWORD",
    "NATS_TOKEN",
    "REDIS_URL",
    "REDIS_PASSWORD",
    "TRELLIS_TOKEN",
    "OTEL_EXPORTER_OTLP_HEADERS",
    VARIABLE,
];

/// The variables that every program gets.
pub(crate) fn plain(workspace: &Path) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), text(workspace.as_os_str())),
        ("TMPDIR".to_owned(), text(workspace.join("tmp").as_os_str())),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ])
}

fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// The names of the worker's variables that no program gets.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSecrets(BTreeSet<String>);

/// A profile names a secret of the worker in `env_from`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`env_from` names `{0}`, which is a secret of the worker\n\nhint: remove it; the worker makes the program's model calls, so the program needs no key"
)]
pub(crate) struct SecretNamed(pub(crate) String);

impl WorkerSecrets {
    pub(crate) fn new(settings: &Settings) -> Self {
        let keys = settings.providers.values().filter_map(|provider| provider.key_env.clone());
        let servers = settings.mcp.values();
        let tokens = servers.clone().filter_map(|server| server.token_env.clone());
        let passed_to_servers = servers.flat_map(|server| server.env_from.iter().cloned());
        let secrets = settings.secrets.values().filter_map(|secret| secret.env.clone());
        let always = ALWAYS_SECRET.into_iter().map(str::to_owned);
        WorkerSecrets(keys.chain(tokens).chain(passed_to_servers).chain(secrets).chain(always).collect())
    }

    /// The whole environment of a program: the variables of its profile, and those copied from the
    /// worker's own.
    pub(crate) fn environment(
        &self,
        env_from: &[String],
        given: &BTreeMap<String, String>,
        workspace: &Path,
    ) -> Result<BTreeMap<String, String>, SecretNamed> {
        let mut env = plain(workspace);
        for name in env_from {
            if self.0.contains(name) || name.ends_with("_API_KEY") {
                return Err(SecretNamed(name.clone()));
            }
            if let Some(value) = std::env::var_os(name) {
                env.insert(name.clone(), text(&value));
            }
        }
        env.extend(given.clone());
        Ok(env)
    }
}
