//! The tools that a server offers, as they are described to a model. Arguments are checked against the schema before
//! the server gets them.

use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use rmcp::model::JsonObject;
use serde_json::Value;
use shared::{Json, id::ToolName};

use super::secrets::ServerSecrets;
use crate::{model::ToolSpec, tool::arguments};

/// The most mistakes that are reported for one call.
const MAX_MISTAKES: usize = 20;

/// The tools a server listed last; they stay known while it starts again.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools(Arc<Mutex<Arc<Vec<Offer>>>>);

#[derive(Debug)]
pub(super) struct Offer {
    /// Its name at the server.
    pub(super) tool: String,
    pub(super) spec: ToolSpec,
    /// None if the schema is invalid: the server then finds the mistakes itself.
    validator: Option<Validator>,
}

impl Tools {
    /// Holds the lock only while it copies.
    pub(super) fn get(&self) -> Arc<Vec<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, server: &str, tools: Vec<rmcp::model::Tool>, secrets: &ServerSecrets) {
        let offers = tools.into_iter().filter_map(|tool| Offer::new(server, tool, secrets)).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(offers);
    }
}

impl Offer {
    fn new(server: &str, tool: rmcp::model::Tool, secrets: &ServerSecrets) -> Option<Self> {
        let name = match ToolName::new(&format!("{server}:{}", tool.name)) {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(server, %error, "a tool is not offered, because its name is invalid");
                return None;
            }
        };
        let schema = Value::Object(tool.input_schema.as_ref().clone());
        let validator = jsonschema::validator_for(&schema)
            .inspect_err(|error| tracing::warn!(tool = %name, %error, "the schema of a tool is invalid"))
            .ok();
        let description = tool.description.map(String::from).or(tool.title).unwrap_or_default();
        let description = secrets.redact(description);
        let spec = ToolSpec { name, description, parameters: Json::from(schema) };
        Some(Offer { tool: tool.name.into_owned(), spec, validator })
    }

    /// The arguments, or every mistake in them.
    pub(super) fn arguments(&self, given: &Value) -> Result<JsonObject, String> {
        let given = if given.is_null() { Value::Object(JsonObject::new()) } else { given.clone() };
        if let Some(validator) = &self.validator {
            let mistake = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
                "" => error.to_string(),
                path => format!("{}: {error}", path.trim_start_matches('/').replace('/', ".")),
            };
            let mistakes: Vec<String> =
                validator.iter_errors(&given).take(MAX_MISTAKES).map(mistake).collect();
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
