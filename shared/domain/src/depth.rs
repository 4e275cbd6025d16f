//! Bounds on how deep JSON may nest. The parser reads 128 levels. Events, copies of a trace and
//! journal entries add a few levels around the values of a message. Values are bounded where they
//! come in, so that everything made from them can be read again.

use serde_json::Value;

/// The most levels of a message from outside. Events and copies add fewer than [`MAX_ADDED`] levels
/// around its values.
pub const MAX_MESSAGE_DEPTH: usize = 64;
/// The most levels of a value that an agent makes. It leaves room for the levels of a message
/// around it.
pub const MAX_VALUE_DEPTH: usize = 48;
/// The most levels that Trellis adds around a value.
pub const MAX_ADDED: usize = 16;
/// The most segments of a path in an error message.
const SHOWN_SEGMENTS: usize = 4;

/// Returns the path at which JSON text first nests deeper than `max`. For text that is not JSON the
/// answer has no meaning; the parser rejects such text.
pub fn too_deep(text: &[u8], max: usize) -> Option<String> {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                let end = end_of_string(text, at);
                if let Some(Level::Object { key, wants_key: wants_key @ true }) = levels.last_mut() {
                    (*key, *wants_key) = ((at + 1, end), false);
                }
                at = end;
            }
            b'{' => levels.push(Level::Object { key: (0, 0), wants_key: true }),
            b'[' => levels.push(Level::Array { index: 0 }),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Object { wants_key, .. }) => *wants_key = true,
                Some(Level::Array { index }) => *index += 1,
                None => {}
            },
            _ => {}
        }
        if levels.len() > max {
            return Some(path(text, &levels));
        }
        at += 1;
    }
    None
}

/// Returns true if a value nests deeper than `max`.
pub fn is_deeper(value: &Value, max: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if max == 0 => true,
        Value::Array(elements) => elements.iter().any(|element| is_deeper(element, max - 1)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, max - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// An object or list that is open at the current byte.
enum Level {
    /// `key` is the place of the object's last key in the text.
    Object {
        key: (usize, usize),
        wants_key: bool,
    },
    Array {
        index: usize,
    },
}

/// Returns the place of the quote that ends the string, or the end of the text. The string begins
/// at `begin`.
fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn path(text: &[u8], levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels.iter().take(SHOWN_SEGMENTS) {
        match level {
            Level::Object { key: (begin, end), .. } => {
                let key = text.get(*begin..*end).map(String::from_utf8_lossy).unwrap_or_default();
                if !path.is_empty() {
                    path.push('.');
                }
                path.extend(key.chars().take(64));
            }
            Level::Array { index } => path.push_str(&format!("[{index}]")),
        }
    }
    path.push('…');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn l_depth_is_counted_exactly_and_brackets_in_strings_are_text() {
        for levels in [1, 63, 64] {
            assert_eq!(too_deep(nested(levels).as_bytes(), 64), None, "{levels}");
        }
        assert_eq!(too_deep(nested(65).as_bytes(), 64).as_deref(), Some("[0][0][0][0]…"));
        let text = format!(r#"{{"a": "{}\"[[[", "b": [{}]}}"#, "[{".repeat(100), "1,".repeat(100) + "1");
        assert_eq!(too_deep(text.as_bytes(), 2), None);
        assert_eq!(too_deep(br#"{"\"": {"b": [1, [2]]}}"#, 3).as_deref(), Some(r#"\".b[1][0]…"#));
        for broken in [&b"\"\\"[..], b"]]]}}}", b"{\"a", b"\xff\xff[", b""] {
            assert_eq!(too_deep(broken, 1), None);
        }
    }

    #[test]
    fn l_a_value_and_its_text_have_the_same_depth() {
        for levels in [1_usize, 2, 48, 49] {
            let value: Value = serde_json::from_str(&nested(levels)).unwrap();
            assert_eq!(is_deeper(&value, 48), levels > 48);
            assert_eq!(too_deep(nested(levels).as_bytes(), 48).is_some(), levels > 48);
        }
        assert!(!is_deeper(&Value::from("x"), 0));
    }
}
