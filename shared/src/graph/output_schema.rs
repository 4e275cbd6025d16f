//! A JSON Schema that a result must fit.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{json::Json, limits::MAX_SCHEMA_BYTES};

/// A JSON Schema that a result must fit, compiled once. It never fetches what it refers to.
#[derive(Clone)]
pub struct OutputSchema {
    schema: Json,
    validator: Arc<jsonschema::Validator>,
}

impl OutputSchema {
    pub fn compile(schema: &Json) -> Result<Self, String> {
        let size = schema.size_bytes();
        if size > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {size} bytes, more than {} allowed", MAX_SCHEMA_BYTES));
        }
        let validator =
            jsonschema::validator_for(schema.value()).map_err(|e| format!("not a JSON Schema: {e}"))?;
        Ok(OutputSchema { schema: schema.clone(), validator: Arc::new(validator) })
    }

    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// At most so many errors of `value`, each with its path: empty, or beginning with `/`.
    pub fn mistakes(&self, value: &Json, most: usize) -> Vec<(String, String)> {
        let errors = self.validator.iter_errors(value.value()).take(most);
        errors.map(|error| (error.instance_path().to_string(), error.to_string())).collect()
    }

    /// The first few errors of `value`.
    pub fn check(&self, value: &Json) -> Result<(), String> {
        let errors: Vec<String> =
            self.validator.iter_errors(value.value()).take(3).map(|e| e.to_string()).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputSchema({:?})", self.schema)
    }
}

impl Serialize for OutputSchema {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.schema.serialize(s)
    }
}

impl<'de> Deserialize<'de> for OutputSchema {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        OutputSchema::compile(&Json::deserialize(d)?).map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for OutputSchema {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OutputSchema".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"description": "A JSON Schema."})
    }
}
