//! The secrets of a server: the values of its environment and its token. In every text that comes from a server or
//! describes it, they are replaced by their names, because such texts go to models, journals and logs.

use std::{fmt, sync::Arc};

use super::environment::variable;
use crate::settings::McpServer;

/// Shorter values of an environment, such as `1` or `debug`, are not secret and occur in many texts.
const MIN_SECRET_BYTES: usize = 6;

#[derive(Clone, Default)]
pub(super) struct ServerSecrets(Arc<[Secret]>);

struct Secret {
    value: String,
    /// Shown instead of the value.
    name: String,
}

impl ServerSecrets {
    pub(super) fn new(settings: &McpServer) -> Self {
        let from_worker = settings.env_from.iter().filter_map(|name| Some((name, variable(name).ok()?)));
        let from_settings = settings.env.iter().map(|(name, value)| (name, value.clone()));
        let environment =
            from_worker.chain(from_settings).filter(|(_, value)| value.len() >= MIN_SECRET_BYTES);
        let token = settings.token_env.iter().filter_map(|name| Some((name, variable(name).ok()?)));
        let mut secrets: Vec<Secret> =
            environment.chain(token).flat_map(|(name, value)| Secret::forms(name, value.trim())).collect();
        // The longest first, since one may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        ServerSecrets(secrets.into())
    }

    pub(super) fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(&secret.value) { text.replace(&secret.value, &secret.name) } else { text }
        })
    }

    /// The bytes of the longest secret: a cut text may begin with that much of one.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.value.len())
    }
}

impl Secret {
    /// The value itself, and the value as JSON escapes it.
    fn forms(name: &str, value: &str) -> Vec<Secret> {
        let quoted = serde_json::Value::from(value).to_string();
        let mut forms = vec![value.to_owned(), quoted[1..quoted.len() - 1].to_owned()];
        forms.dedup();
        forms.retain(|form| !form.is_empty());
        forms.into_iter().map(|value| Secret { value, name: format!("[{name}]") }).collect()
    }
}

impl fmt::Debug for ServerSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| &secret.name)).finish()
    }
}
