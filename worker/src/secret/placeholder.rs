//! `{{secret:NAME}}` in the arguments of a tool. The journal and the model have the placeholder.
//! The value is inserted once, when the tool is called: a placeholder inside of a value is not
//! replaced.

use std::{collections::BTreeSet, sync::LazyLock};

use domain::{id::SecretName, wire::Execute};
use regex::Regex;
use serde_json::Value;

use super::{redactor, values::Values};

/// The beginning of a placeholder, with its name if it is complete.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*secret\s*:(?:(?<name>[A-Z][A-Z0-9_]{0,63})\}\})?").expect("a valid literal")
});

/// Returns true if any text in these arguments has the beginning of a placeholder.
pub(crate) fn is_in(arguments: &Value) -> bool {
    match arguments {
        Value::String(text) => PLACEHOLDER.is_match(text),
        Value::Array(items) => items.iter().any(is_in),
        Value::Object(fields) => {
            fields.iter().any(|(name, field)| PLACEHOLDER.is_match(name) || is_in(field))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The secrets of a context, for the call of one tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenSecrets<'a> {
    pub(crate) values: &'a Values,
    pub(crate) work: &'a Execute,
    pub(crate) tool: &'a str,
}

/// A text with the values in it, and the names of their secrets. Never shown.
pub(crate) struct FilledText {
    pub(crate) text: String,
    pub(crate) used: BTreeSet<SecretName>,
}

impl GivenSecrets<'_> {
    /// The text with values for its placeholders. The error is for the model, and then nothing may
    /// be sent.
    pub(crate) fn fill(&self, text: &str) -> Result<FilledText, String> {
        self.fill_with(text, str::to_owned)
    }

    /// Like [`GivenSecrets::fill`] for an address, with escaped values. The host must not contain a
    /// secret, since its name is resolved in clear text.
    pub(crate) fn fill_url(&self, url: &str) -> Result<FilledText, String> {
        let first = PLACEHOLDER.find(url).map_or(url.len(), |found| found.start());
        let after_scheme = url[..first].split_once("://").map(|(_, rest)| rest);
        if first < url.len() && !after_scheme.is_some_and(|rest| rest.contains(['/', '?'])) {
            return Err("a secret is allowed only in the path or the query of an address".into());
        }
        self.fill_with(url, redactor::encoded)
    }

    /// The arguments with values for the placeholders in their texts.
    pub(crate) fn fill_value(&self, arguments: &Value) -> Result<Value, String> {
        Ok(match arguments {
            Value::String(text) => Value::String(self.fill(text)?.text),
            Value::Array(items) => {
                items.iter().map(|item| self.fill_value(item)).collect::<Result<_, _>>()?
            }
            Value::Object(fields) => {
                let mut filled = serde_json::Map::new();
                for (name, field) in fields {
                    if PLACEHOLDER.is_match(name) {
                        return Err("the name of an argument can't be a secret".into());
                    }
                    filled.insert(name.clone(), self.fill_value(field)?);
                }
                Value::Object(filled)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => arguments.clone(),
        })
    }

    fn fill_with(&self, text: &str, write: impl Fn(&str) -> String) -> Result<FilledText, String> {
        let mut filled = FilledText { text: String::new(), used: BTreeSet::new() };
        let mut rest = 0;
        for found in PLACEHOLDER.captures_iter(text) {
            let whole = found.get(0).expect("the match itself");
            let name = found.name("name").and_then(|name| SecretName::new(name.as_str()).ok());
            let Some(name) = name else {
                return Err("this is not a placeholder of a secret\n\nhint: write it as {{secret:NAME}}, with a name that you were given".into());
            };
            let value = self.values.for_tool(self.work, &name, self.tool)?;
            filled.text.push_str(&text[rest..whole.start()]);
            filled.text.push_str(&write(value));
            filled.used.insert(name);
            rest = whole.end();
        }
        filled.text.push_str(&text[rest..]);
        Ok(filled)
    }
}
