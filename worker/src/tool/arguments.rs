//! Arguments as a tool takes them: a type, the JSON Schema made from it that a model is shown, and the
//! same schema's word on what is wrong, all at once.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::{Json, decode};

use super::Invocation;

/// Reads the arguments of a call, or tells every mistake in them.
pub(super) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    invocation: Invocation<'_>,
) -> Result<T, String> {
    let none = Value::Object(serde_json::Map::new());
    // A model that has nothing to say may say nothing at all.
    let given = if invocation.arguments.is_null() { &none } else { invocation.arguments };
    decode::value(given).map_err(|problems| wrong(invocation.tool, &problems))
}

pub(super) fn wrong(tool: &str, problems: &impl std::fmt::Display) -> String {
    format!("these are no arguments of `{tool}`:\n{problems}")
}

/// The schema of a tool's arguments, without references and without words that only we know: some
/// providers refuse both.
pub(super) fn schema<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    plain(&mut schema);
    Json::from(schema)
}

fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-check");
            // A title that is a text is the name of a type; one that is a schema is an argument.
            if fields.get("title").is_some_and(Value::is_string) {
                fields.remove("title");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
