//! The tools that a server offers, as they are described to a model. Arguments are checked against the schema before
//! the server gets them.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::JsonObject;
use serde_json::Value;
use shared::{Json, id::ToolName, json_schema::JsonSchema};

use crate::{model::ToolSpec, secret::Redactor, tool::arguments};

/// The most mistakes that are reported for one call.
const MAX_MISTAKES: usize = 20;
/// The most bytes of a tool's description, which every prompt has; the rest is cut off.
const MAX_DESCRIPTION_BYTES: usize = 8 << 10;
/// The most bytes of its schema. A tool with a larger one is not offered.
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// The tools a server listed last; they stay known while it starts again.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools(Arc<Mutex<Arc<Vec<Offer>>>>);

#[derive(Debug)]
pub(super) struct Offer {
    /// Its name at the server.
    pub(super) tool: String,
    pub(super) spec: ToolSpec,
    /// None if the schema is invalid: the server then finds the mistakes itself.
    wanted: Option<JsonSchema>,
}

impl Tools {
    /// Holds the lock only while it copies.
    pub(super) fn get(&self) -> Arc<Vec<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, server: &str, tools: Vec<rmcp::model::Tool>, secrets: &Redactor) {
        let offers = tools.into_iter().filter_map(|tool| Offer::new(server, tool, secrets)).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(offers);
    }
}

impl Offer {
    fn new(server: &str, tool: rmcp::model::Tool, secrets: &Redactor) -> Option<Self> {
        let name = match ToolName::new(&format!("{server}:{}", tool.name)) {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(server, "a tool is not offered, because its name is invalid");
                tracing::debug!(%error, "which");
                return None;
            }
        };
        let schema = Value::Object(tool.input_schema.as_ref().clone());
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            tracing::warn!(tool = %name, bytes = size, "a tool is not offered, because its schema is too large");
            return None;
        }
        let wanted = JsonSchema::compile(&schema)
            .inspect_err(|error| {
                tracing::warn!(tool = %name, "the schema of a tool is invalid");
                tracing::debug!(error, "why");
            })
            .ok();
        let description = tool.description.map(String::from).or(tool.title).unwrap_or_default();
        let description = shared::text::cut(secrets.text(description), MAX_DESCRIPTION_BYTES);
        let spec = ToolSpec { name, description, parameters: Json::from(secrets.value(schema)) };
        Some(Offer { tool: tool.name.into_owned(), spec, wanted })
    }

    /// The arguments, or every mistake in them.
    pub(super) fn arguments(&self, given: &Value) -> Result<JsonObject, String> {
        let given = if given.is_null() { Value::Object(JsonObject::new()) } else { given.clone() };
        if let Some(wanted) = &self.wanted {
            let mistake = |(path, error): (String, String)| match path.as_str() {
                "" => error,
                path => format!("{}: {error}", path.trim_start_matches('/').replace('/', ".")),
            };
            let mistakes: Vec<String> =
                wanted.mistakes(&given, MAX_MISTAKES).into_iter().map(mistake).collect();
            if !mistakes.is_empty() {
                return Err(arguments::invalid(self.spec.name.as_str(), &mistakes.join("\n")));
            }
        }
        match given {
            Value::Object(arguments) => Ok(arguments),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(arguments::invalid(self.spec.name.as_str(), &"an object is needed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer(schema: Value, secrets: &Redactor) -> Offer {
        let schema = schema.as_object().unwrap().clone();
        Offer::new("keys", rmcp::model::Tool::new("use", "uses it", Arc::new(schema)), secrets).unwrap()
    }

    #[test]
    fn s8_the_schema_of_a_tool_has_no_secret() {
        let secrets = Redactor::new([("A_KEY", "hunter2hunter2")]);
        let offer = offer(json!({"properties": {"token": {"default": "hunter2hunter2"}}}), &secrets);
        assert_eq!(offer.spec.parameters.value(), &json!({"properties": {"token": {"default": "[A_KEY]"}}}));
    }

    #[test]
    fn l_arguments_are_checked_in_bounded_time() {
        let twice = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let offer = offer(json!({"additionalProperties": twice}), &Redactor::default());
        let deep = (0..40).fold(json!({}), |inner, _| json!({"a": inner}));
        assert!(offer.arguments(&deep).unwrap_err().contains("too many steps"));
        assert_eq!(offer.arguments(&json!({"a": {}})).map(Value::Object), Ok(json!({"a": {}})));
    }
}
