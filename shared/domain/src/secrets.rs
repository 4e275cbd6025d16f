//! The secrets that a context may use (S8). This module has their names only; the values stay on
//! workers.

use std::{borrow::Cow, collections::BTreeSet, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::id::SecretName;

/// The most secrets of one context.
pub const MAX_SECRETS: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Secrets(BTreeSet<SecretName>);

impl Secrets {
    pub fn new(names: impl IntoIterator<Item = SecretName>) -> Result<Self, String> {
        let mut all = BTreeSet::new();
        for name in names {
            if let Some(name) = all.replace(name) {
                return Err(format!("the secret `{name}` is named twice"));
            }
        }
        match all.len() {
            0..=MAX_SECRETS => Ok(Secrets(all)),
            count => Err(format!("a context has at most {MAX_SECRETS} secrets, and these are {count}")),
        }
    }

    /// Returns the secrets that `allowed` does not contain.
    pub fn outside(&self, allowed: &Secrets) -> Vec<SecretName> {
        self.0.difference(&allowed.0).cloned().collect()
    }
}

/// For `skip_serializing_if`: leaves an empty list out.
pub fn is_none(secrets: &Secrets) -> bool {
    secrets.is_empty()
}

/// Lists names of secrets for a sentence: "`A`, `B`".
pub fn list(names: &[SecretName]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Deref for Secrets {
    type Target = BTreeSet<SecretName>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Vec::deserialize(d).and_then(|names| Self::new(names).map_err(de::Error::custom))
    }
}

impl schemars::JsonSchema for Secrets {
    fn schema_name() -> Cow<'static, str> {
        "Secrets".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "array",
            "maxItems": MAX_SECRETS,
            "uniqueItems": true,
            "items": SecretName::json_schema(generator),
        })
    }
}
