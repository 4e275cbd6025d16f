//! A JSON Schema that a result must match.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{json::Json, json_schema::JsonSchema};

/// A JSON Schema that a result must match, compiled once.
#[derive(Clone)]
pub struct OutputSchema {
    schema: Json,
    /// The compiled schema, or the reason why it does not compile. Decoding a message never fails
    /// for that reason; `usable` is called afterwards.
    compiled: Result<Arc<JsonSchema>, Arc<str>>,
}

impl OutputSchema {
    pub fn compile(schema: &Json) -> Result<Self, String> {
        let compiled = JsonSchema::compile(schema.value())?;
        Ok(OutputSchema { schema: schema.clone(), compiled: Ok(Arc::new(compiled)) })
    }

    /// Reads the schema of a message. If it does not compile, `usable` returns the reason, and all
    /// values fail the check.
    fn decoded(schema: &Json) -> Self {
        Self::compile(schema)
            .unwrap_or_else(|why| OutputSchema { schema: schema.clone(), compiled: Err(why.into()) })
    }

    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// Returns the reason why it does not compile as an error.
    pub fn usable(&self) -> Result<(), String> {
        self.compiled.as_ref().map(drop).map_err(ToString::to_string)
    }

    /// Returns the compiled schema, or the message for all values if there is none.
    pub(super) fn compiled(&self) -> Result<&JsonSchema, String> {
        self.compiled.as_deref().map_err(|why| format!("its schema can't be used: {why}"))
    }

    /// Returns at most `most` errors of `value`, each with its path: empty, or beginning with `/`.
    pub fn mistakes(&self, value: &Json, most: usize) -> Vec<(String, String)> {
        match self.compiled() {
            Ok(compiled) => compiled.mistakes(value.value(), most),
            Err(why) => vec![(String::new(), why)],
        }
    }

    /// Checks `value`, and returns its first few errors in one text.
    pub fn check(&self, value: &Json) -> Result<(), String> {
        let errors: Vec<String> = self.mistakes(value, 3).into_iter().map(|(_, error)| error).collect();
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
        Json::deserialize(d).map(|schema| OutputSchema::decoded(&schema))
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
