//! Reads the lines of a JSON log with a parser that rejects duplicate keys (X8).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// An object without duplicate keys.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object, A::Error> {
                let mut object = Map::new();
                while let Some((key, value)) = entries.next_entry::<String, Value>()? {
                    if object.insert(key.clone(), value).is_some() {
                        return Err(A::Error::custom(format!("the key `{key}` comes twice")));
                    }
                }
                Ok(Object(object))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The lines of a log. Panics at a line that is not an object of plain values, that has a duplicate
/// key, or that lacks a required field.
pub fn read(log: &str) -> Vec<Value> {
    let read = |line: &str| {
        let Object(line) = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let is_plain = |value: &Value| !value.is_object() && !value.is_array();
        assert!(line.values().all(is_plain), "{line:?}");
        for name in ["timestamp", "level", "target", "message"] {
            assert!(line.get(name).is_some_and(Value::is_string), "`{name}` is missing: {line:?}");
        }
        Value::Object(line)
    };
    log.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "comes twice")]
    fn a_key_that_comes_twice_is_refused() {
        read(r#"{"timestamp": "", "level": "INFO", "target": "x", "message": "a", "message": "b"}"#);
    }
}
