//! The tools that a server offers, as they are described to a model. Arguments are checked against the schema before
//! the server gets them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{Json, id::ToolName, json_schema::JsonSchema};
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{model::ToolSpec, secret::Redactor, tool::arguments};

/// The most mistakes that are reported for one call.
const MAX_MISTAKES: usize = 20;
/// The most bytes of a tool's description, which is in every prompt; the rest is cut off.
const MAX_DESCRIPTION_BYTES: usize = 8 << 10;
/// The most bytes of a tool's schema. A tool with a larger one is not offered.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// The most bytes of the descriptions and schemas of all tools of a server, and the most values in
/// its schemas. Each value takes a few hundred bytes of memory for as long as the worker lives.
const MAX_LIST_BYTES: usize = 1 << 20;
const MAX_LIST_VALUES: usize = 1 << 15;

/// The tools in a server's last list. They stay known while the server starts again.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools(Arc<Mutex<Arc<Vec<Offer>>>>);

#[derive(Debug)]
pub(super) struct Offer {
    /// Its name at the server.
    pub(super) tool: String,
    pub(super) spec: ToolSpec,
    /// `None` if the schema is invalid: the server then finds the mistakes itself.
    wanted: Option<JsonSchema>,
}

impl Tools {
    /// The current tools. The lock is held only for the copy of the pointer.
    pub(super) fn get(&self) -> Arc<Vec<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, listing: Listing<'_>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(listing.offers);
    }
}

/// The tools that a server has listed so far. Only the offered part of each tool is stored.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    server: &'a str,
    secrets: &'a Redactor,
    offers: Vec<Offer>,
    names: BTreeSet<ToolName>,
    bytes: usize,
    values: usize,
}

impl<'a> Listing<'a> {
    pub(super) fn new(server: &'a str, secrets: &'a Redactor) -> Self {
        Listing { server, secrets, offers: Vec::new(), names: BTreeSet::new(), bytes: 0, values: 0 }
    }

    /// Adds a tool. Returns an error if all tools together are too large.
    pub(super) fn add(&mut self, tool: rmcp::model::Tool) -> Result<(), String> {
        let Some(offer) = Offer::new(self.server, tool, self.secrets) else { return Ok(()) };
        if self.names.contains(&offer.spec.name) {
            // Providers reject a request with two tools of one name.
            tracing::warn!(tool = %offer.spec.name, "a tool is listed twice; the first one is offered");
            return Ok(());
        }
        let parameters = offer.spec.parameters.value();
        self.bytes += offer.spec.description.len() + parameters.to_string().len();
        self.values += values(parameters);
        if self.bytes > MAX_LIST_BYTES || self.values > MAX_LIST_VALUES {
            return Err(format!(
                "the descriptions and schemas of its tools have together more than {} KiB, or more than {MAX_LIST_VALUES} values",
                MAX_LIST_BYTES >> 10
            ));
        }
        self.names.insert(offer.spec.name.clone());
        self.offers.push(offer);
        Ok(())
    }
}

/// The number of values in a value, itself included.
fn values(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(all) => all.iter().map(values).sum(),
        Value::Object(all) => all.values().map(values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    within + 1
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
        let description = domain::wording::cut(secrets.text(description), MAX_DESCRIPTION_BYTES);
        let spec = ToolSpec { name, description, parameters: Json::from(secrets.value(schema)) };
        Some(Offer { tool: tool.name.into_owned(), spec, wanted })
    }

    /// Returns the arguments, or every mistake in them.
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
    fn s5_a_list_of_tools_is_bounded_as_a_whole_and_names_each_once() {
        let secrets = Redactor::default();
        let tool = |name: String, schema: Value| {
            rmcp::model::Tool::new(name, "", Arc::new(schema.as_object().unwrap().clone()))
        };
        let mut listing = Listing::new("keys", &secrets);
        for title in ["first", "second"] {
            listing.add(tool("use".into(), json!({"title": title}))).unwrap();
        }
        // A tool with the name of one of the worker's own tools is offered behind the name of its
        // server.
        for name in ["fs.read", "spawn"] {
            listing.add(tool(name.into(), json!({}))).unwrap();
        }
        let offered = |offer: &Offer| offer.spec.name.to_string();
        let names: Vec<String> = listing.offers.iter().map(offered).collect();
        assert_eq!(names, ["keys:use", "keys:fs.read", "keys:spawn"]);
        assert_eq!(listing.offers[0].spec.parameters.value()["title"], "first");

        let large = |number: usize| tool(format!("t{number}"), json!({"title": "x".repeat(60 << 10)}));
        let listed: Vec<_> = (0..20).map_while(|number| listing.add(large(number)).ok()).collect();
        assert_eq!(listed.len(), 17, "1 MiB");
        let mut listing = Listing::new("keys", &secrets);
        let many = |number: usize| tool(format!("t{number}"), json!({"enum": vec![0; 10_000]}));
        let listed: Vec<_> = (0..20).map_while(|number| listing.add(many(number)).ok()).collect();
        assert_eq!(listed.len(), 3, "32,768 values");
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
