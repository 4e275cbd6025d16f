//! What a server is given and nobody else may see: the values of its environment and its token. Whatever
//! text comes from a server, or of it, has their names in their place: it goes to models, journals, logs.

use std::{fmt, sync::Arc};

use super::environment::variable;
use crate::settings::McpServer;

/// Shorter values of an environment are `1`, `debug` and the like, and would be found in every text.
const SHORTEST: usize = 6;

#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<[Secret]>);

struct Secret {
    value: String,
    /// As it is shown in place of the value.
    name: String,
}

impl Secrets {
    pub(super) fn of(settings: &McpServer) -> Self {
        let taken = settings.env_from.iter().filter_map(|name| Some((name, variable(name).ok()?)));
        let given = settings.env.iter().map(|(name, value)| (name, value.clone()));
        let surroundings = taken.chain(given).filter(|(_, value)| value.len() >= SHORTEST);
        let token = settings.token_env.iter().filter_map(|name| Some((name, variable(name).ok()?)));
        let mut secrets: Vec<Secret> =
            surroundings.chain(token).flat_map(|(name, value)| Secret::forms(name, value.trim())).collect();
        // One may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        Secrets(secrets.into())
    }

    pub(super) fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(&secret.value) { text.replace(&secret.value, &secret.name) } else { text }
        })
    }

    /// In bytes; what was cut from a text may have been as much of one.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.value.len())
    }
}

impl Secret {
    /// As it is, and as JSON writes it.
    fn forms(name: &str, value: &str) -> Vec<Secret> {
        let quoted = serde_json::Value::from(value).to_string();
        let mut forms = vec![value.to_owned(), quoted[1..quoted.len() - 1].to_owned()];
        forms.dedup();
        forms.retain(|form| !form.is_empty());
        forms.into_iter().map(|value| Secret { value, name: format!("[{name}]") }).collect()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| &secret.name)).finish()
    }
}
