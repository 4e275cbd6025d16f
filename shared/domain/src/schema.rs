//! The JSON Schema of a type, made from the type itself.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The schema of one type.
pub fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}
