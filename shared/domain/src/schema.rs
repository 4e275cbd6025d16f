//! Makes the JSON Schema of a type from the type itself, and one document with the schemas of all
//! messages.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The schema of one type.
pub fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}

/// A message of the interface: its name and its schema.
#[derive(Debug)]
pub struct Message {
    pub name: &'static str,
    alone: fn() -> Value,
    part: fn(&mut SchemaGenerator) -> Schema,
}

impl Message {
    pub fn of<T: JsonSchema>(name: &'static str) -> Self {
        Message { name, alone: of::<T>, part: SchemaGenerator::subschema_for::<T> }
    }

    /// The message's schema as a separate document.
    pub fn schema(&self) -> Value {
        (self.alone)()
    }
}

/// The schemas of all messages as one document: a property for each message, and each type once, in
/// `$defs`.
pub fn document(messages: &[Message]) -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let part = |message: &Message| (message.name.to_owned(), (message.part)(&mut generator).to_value());
    let properties: Map<String, Value> = messages.iter().map(part).collect();
    json!({
        "$schema": generator.settings().meta_schema,
        "title": "Trellis",
        "description": "Each property is a message, under its name. `$defs` has each type once.",
        "properties": properties,
        "$defs": generator.take_definitions(true),
    })
}
