//! A JSON value that Trellis carries without reading it: an input, a result, a value of the shared
//! store. It is cheap to clone.

use std::{fmt, io, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Json(#[schemars(with = "Value")] Arc<Value>);

impl Json {
    pub fn null() -> Self {
        Self::from(Value::Null)
    }

    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Returns the elements if the value is a list.
    pub fn elements(&self) -> Option<&[Value]> {
        self.0.as_array().map(Vec::as_slice)
    }

    /// Returns the value's size as compact JSON.
    pub fn size_bytes(&self) -> u64 {
        size_bytes(&*self.0)
    }

    /// Returns the text of a string, or any other value as compact JSON. Findings are shown this
    /// way.
    pub fn to_text(&self) -> String {
        match &*self.0 {
            Value::String(text) => text.clone(),
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        }
    }
}

/// Returns the size of a message as compact JSON.
pub fn size_bytes(message: &impl Serialize) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, message).expect("a value with string keys, written to a counter");
    count.0
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(Arc::new(value))
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::from(Value::from(text))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_size_is_that_of_its_compact_text() {
        let value = serde_json::json!({"a": [1, null, "x"], "b": {"c": 0.5}});
        assert_eq!(Json::from(value.clone()).size_bytes(), value.to_string().len() as u64);
    }
}
