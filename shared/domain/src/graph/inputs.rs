//! Checks the inputs of a graph against its `input_schema`. Each mistake has its path and a hint.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::OutputSchema;
use crate::{decode, id::ContextKey, json::Json, problem::Problems};

/// Adds the problems of the inputs. `lent` are keys whose values the graph gets when it runs, so
/// they are not missing.
pub(super) fn check(
    schema: &OutputSchema,
    inputs: &BTreeMap<ContextKey, Json>,
    lent: &[ContextKey],
    problems: &mut Problems,
) {
    for found in findings(schema, inputs, lent) {
        problems.add(under_inputs(&found.path), found.message, found.hint);
    }
}

pub(super) fn findings(
    schema: &OutputSchema,
    inputs: &BTreeMap<ContextKey, Json>,
    lent: &[ContextKey],
) -> Vec<decode::Finding> {
    let fields: Map<String, Value> =
        inputs.iter().map(|(key, value)| (key.to_string(), value.value().clone())).collect();
    let is_lent = |name: &str| lent.iter().any(|key| key.as_str() == name);
    let mut found = schema.findings(&Value::Object(fields));
    found.retain(|found| !(found.path.is_empty() && found.missing.as_deref().is_some_and(is_lent)));
    found
}

fn under_inputs(path: &str) -> String {
    let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
    format!("inputs{dot}{path}")
}

impl OutputSchema {
    /// Returns all problems of a value with this schema.
    fn findings(&self, value: &Value) -> Vec<decode::Finding> {
        match self.compiled() {
            Ok(compiled) => decode::findings_of_theirs(self.schema().value(), compiled, value),
            Err(why) => vec![decode::Finding::of_all(why)],
        }
    }
}
