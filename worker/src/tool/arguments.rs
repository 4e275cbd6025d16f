//! The arguments of a tool: read into a type, with every mistake reported at once. The JSON Schema
//! for the model is made from the same type.

use domain::{Json, decode};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::Invocation;

/// Reads the arguments of a call, or reports every mistake in them.
pub(super) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    invocation: Invocation<'_>,
) -> Result<T, String> {
    let none = Value::Object(serde_json::Map::new());
    // A model that passes no arguments may send null.
    let given = if invocation.arguments.is_null() { &none } else { invocation.arguments };
    decode::value(given).map_err(|problems| invalid(invocation.tool, &problems))
}

pub(super) fn invalid(tool: &str, problems: &impl std::fmt::Display) -> String {
    format!("the arguments of `{tool}` are invalid:\n{problems}")
}

/// The schema of a tool's arguments, without references and without keywords of Trellis: some
/// providers reject both.
pub(super) fn schema<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    strip(&mut schema);
    Json::from(schema)
}

/// Removes keywords that some providers reject.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-check");
            // A title that is a string is the name of a type. A title that is a schema belongs to
            // an argument.
            if fields.get("title").is_some_and(Value::is_string) {
                fields.remove("title");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
