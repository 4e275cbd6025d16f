//! The secrets of this worker by name: the rules for each, and its value if it is known.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use domain::{id::SecretName, wire::Execute};

use super::{directory, file, redactor::Redactor, source};
use crate::settings::{Secret, Settings};

#[derive(Debug, Default)]
pub(crate) struct Values {
    all: BTreeMap<SecretName, DeclaredSecret>,
    redactor: Redactor,
}

#[derive(Debug)]
struct DeclaredSecret {
    settings: Secret,
    /// The value, or the reason why it is missing.
    value: Result<SecretValue, String>,
}

/// The value of a secret. It is neither shown nor serialised.
#[derive(Clone)]
struct SecretValue(Arc<str>);

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a secret)")
    }
}

impl Values {
    /// Reads all secrets. A missing one does not stop the worker: its name is logged, and contexts
    /// that need it are refused. `files` contain the credentials of the worker's connections.
    pub(crate) fn read(settings: &Settings, files: &[(String, PathBuf)]) -> Self {
        let declared = |(name, settings): (&SecretName, &Secret)| {
            let value = source::read(settings).map(|value| SecretValue(value.into()));
            if let Err(why) = &value {
                tracing::warn!(secret = %name, why, "a secret is missing; agents that name it are refused");
            }
            if settings.agents.is_empty() {
                tracing::warn!(secret = %name, "no agent may have this secret: its `agents` is empty");
            }
            (name.clone(), DeclaredSecret { settings: settings.clone(), value })
        };
        let all: BTreeMap<SecretName, DeclaredSecret> = settings.secrets.iter().map(declared).collect();
        let values = all.iter().filter_map(|(name, of)| Some((name.as_str(), &*of.value.as_ref().ok()?.0)));
        // No agent gets the worker's own keys, but they are redacted like all others.
        let own = settings.key_variables().into_iter().filter_map(|name| {
            let value = source::variable(name).ok()?;
            Some((name.to_owned(), value))
        });
        let own = own.chain(directory::all()).map(|(name, value)| (name, value.trim().to_owned()));
        let own = own.filter(|(_, value)| file::is_recognised(value));
        let own: Vec<(String, String)> = own.chain(source::of_connections(files)).collect();
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let redactor = Redactor::new(values.chain(own));
        Values { all, redactor }
    }

    /// The redactor for all secrets, in texts of any context.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The names and values of all secrets, for the redactor of a tool server: it may get any of
    /// them.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        let pair = |(name, of): (&SecretName, &DeclaredSecret)| {
            Some((name.to_string(), of.value.as_ref().ok()?.0.to_string()))
        };
        self.all.iter().filter_map(pair)
    }

    /// The reasons why this worker does not run a context that names these secrets; `None` if it
    /// may run it.
    pub(crate) fn refusal(&self, work: &Execute) -> Option<String> {
        let agent = work.agent.agent_id.as_str();
        let why = |name: &SecretName| match self.all.get(name) {
            None => Some(format!("`{name}`: the settings of this worker have no such secret")),
            Some(DeclaredSecret { value: Err(why), .. }) => Some(format!("`{name}`: {why}")),
            Some(of) if !of.settings.agents.iter().any(|pattern| fits(pattern, agent)) => {
                Some(format!("`{name}`: the settings of this worker don't list `{agent}` in its `agents`"))
            }
            Some(_) => None,
        };
        let reasons: Vec<String> = work.secrets.iter().filter_map(why).collect();
        (!reasons.is_empty()).then(|| {
            format!(
                "`{agent}` can't have the secrets that it names:\n{}\n\nhint: set them in `secrets` of the worker's settings, for \
                 every worker of its pool, and start it again",
                reasons.join("\n")
            )
        })
    }

    /// The variables for a program: those of its context's secrets that programs may have.
    pub(crate) fn environment(&self, work: &Execute) -> Vec<(String, String)> {
        let for_programs = |name: &SecretName| {
            let of = self.all.get(name).filter(|of| of.settings.programs)?;
            Some((name.to_string(), of.value.as_ref().ok()?.0.to_string()))
        };
        work.secrets.iter().filter_map(for_programs).collect()
    }

    /// The value for a tool, or the reason why the tool may not have it.
    pub(super) fn for_tool(&self, work: &Execute, name: &SecretName, tool: &str) -> Result<&str, String> {
        if !work.secrets.contains(name) {
            let given: Vec<SecretName> = work.secrets.iter().cloned().collect();
            let hint = match given.as_slice() {
                [] => "you have no secrets".into(),
                given => format!("your secrets are {}", domain::secrets::list(given)),
            };
            return Err(format!("you were not given the secret `{name}`\n\nhint: {hint}"));
        }
        let of = self.all.get(name).ok_or_else(|| format!("this worker has no secret `{name}`"))?;
        if !of.settings.tools.iter().any(|pattern| fits(pattern, tool)) {
            let hint = match of.settings.tools.as_slice() {
                [] => "no tool may have it".into(),
                tools => format!("it is for {}", tools.join(", ")),
            };
            return Err(format!("`{tool}` may not have the secret `{name}`\n\nhint: {hint}"));
        }
        of.value.as_ref().map(|value| &*value.0).map_err(Clone::clone)
    }

    /// The prompt's text about the secrets that a context may use, where and how; `None` without
    /// secrets.
    pub(crate) fn describe(&self, work: &Execute) -> Option<String> {
        let one = |name: &SecretName| {
            let settings = &self.all.get(name)?.settings;
            let hosts = match settings.hosts.as_slice() {
                [] => String::new(),
                hosts => format!(" to {}", hosts.join(", ")),
            };
            let tool = |tool: &String| match tool.as_str() {
                domain::tool::HTTP_GET => format!("`{tool}`{hosts}"),
                _ => format!("`{tool}`"),
            };
            let tools: Vec<String> = settings.tools.iter().map(tool).collect();
            let tools = if tools.is_empty() { "no tool".into() } else { tools.join(", ") };
            Some(format!("`{name}` (for {tools})"))
        };
        let all: Vec<String> = work.secrets.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| {
            format!(
                "Your secrets: {}. You never see their values. Where a tool needs one, write {{{{secret:NAME}}}} in its \
                 arguments, and the value is put in when the tool is called.",
                all.join("; ")
            )
        })
    }
}

/// Returns true if a name equals the pattern, or begins with the part before its `*`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}
