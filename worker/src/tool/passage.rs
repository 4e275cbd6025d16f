//! Parts of a large value: the target of a JSON pointer, and a range of its text.

use domain::{ContextKey, Json};
use serde_json::Value;

use super::call::Output;
use crate::files::tool_output::PASSAGE_BYTES;

/// The part of a value that a JSON pointer names.
pub(super) fn part(value: &Json, key: &ContextKey, pointer: &str) -> Result<Json, String> {
    if let Some(part) = value.value().pointer(pointer) {
        return Ok(Json::from(part.clone()));
    }
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(format!(
            "`{pointer}` is not a JSON pointer\n\nhint: it begins with a slash, as in `/rows/3`"
        ));
    }
    let mut nearest = pointer;
    while value.value().pointer(nearest).is_none() {
        nearest = nearest.rsplit_once('/').map_or("", |(above, _)| above);
    }
    let has = match value.value().pointer(nearest).unwrap_or(&Value::Null) {
        Value::Array(items) => format!("a list of {} elements", items.len()),
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().take(20).map(String::as_str).collect();
            format!("an object with the fields {}", names.join(", "))
        }
        Value::String(_) => "a text".into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => "a single value".into(),
    };
    let at = if nearest.is_empty() { "the value".to_owned() } else { format!("`{nearest}`") };
    Err(format!("`{key}` has no `{pointer}`\n\nhint: {at} is {has}"))
}

/// Bytes of a text, or of the JSON of another value, and a last line with their numbers.
pub(super) fn cut_out(value: &Value, offset: usize, length: usize) -> Output {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    if offset >= text.len() && offset > 0 {
        return Err(format!("it has {} bytes; offset {offset} is beyond its end", text.len()));
    }
    let start = text.floor_char_boundary(offset);
    let end = text.floor_char_boundary(start.saturating_add(length.clamp(4, PASSAGE_BYTES)));
    let next =
        if end < text.len() { format!("; the next passage is at offset {end}") } else { String::new() };
    Ok(format!("{}\n[bytes {start} to {end} of {}{next}]", &text[start..end], text.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w8_passages_one_after_another_are_the_whole_text_however_it_is_cut() {
        let text = "aüñ€𝄞".repeat(3000);
        for length in [4, 7, 1000, 16_384, usize::MAX] {
            let (mut offset, mut whole) = (0, String::new());
            while offset < text.len() {
                let shown = cut_out(&json!(text), offset, length).unwrap();
                let (body, below) = shown.rsplit_once('\n').unwrap();
                assert!(body.len() <= PASSAGE_BYTES, "{below}");
                whole.push_str(body);
                offset += body.len();
            }
            assert!(whole == text, "{length}");
        }
        assert_eq!(cut_out(&json!("abcdef"), 2, 4).unwrap(), "cdef\n[bytes 2 to 6 of 6]");
        assert_eq!(
            cut_out(&json!([1, 2, 3]), 0, 4).unwrap(),
            "[1,2\n[bytes 0 to 4 of 7; the next passage is at offset 4]"
        );
        assert!(cut_out(&json!("abc"), 3, 1).unwrap_err().contains("has 3 bytes"));
        assert_eq!(cut_out(&json!(""), 0, 10).unwrap(), "\n[bytes 0 to 0 of 0]");
    }

    #[test]
    fn w8_a_pointer_names_a_part_or_the_error_says_what_there_is() {
        let value = Json::from(json!({"rows": [{"a": 1}, {"a": "x"}], "title": "t"}));
        let key: ContextKey = "data".parse().unwrap();
        assert_eq!(part(&value, &key, "/rows/1/a").unwrap(), Json::from("x"));
        assert_eq!(part(&value, &key, "").unwrap(), value);
        let why = part(&value, &key, "/rows/7/a").unwrap_err();
        assert!(
            why.contains("`data` has no `/rows/7/a`") && why.contains("`/rows` is a list of 2 elements"),
            "{why}"
        );
        let why = part(&value, &key, "/row").unwrap_err();
        assert!(why.contains("an object with the fields rows, title"), "{why}");
        assert!(part(&value, &key, "rows").unwrap_err().contains("begins with a slash"));
    }
}
