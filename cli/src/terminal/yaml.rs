//! Writes a JSON value as YAML, one entry per line. The value that a YAML parser reads is the same.

use serde_json::Value;

/// Blanks per level.
const INDENT: usize = 2;
/// Words that a parser of YAML 1.1 or 1.2 reads as something other than text.
const RESERVED: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// A value as a whole document.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, indent: usize, text: &mut String) {
    let blanks = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                text.push_str(&format!("{blanks}{}:", string(name)));
                if is_block(field) {
                    text.push('\n');
                    write(field, indent + INDENT, text);
                } else {
                    text.push_str(&format!(" {}\n", scalar(field)));
                }
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for element in elements {
                // The dash takes the place of the first blanks of the element.
                let mut inner = String::new();
                write(element, indent + INDENT, &mut inner);
                text.push_str(&format!("{blanks}- {}", &inner[indent + INDENT..]));
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => text.push_str(&format!("{blanks}{}\n", scalar(value))),
    }
}

fn is_block(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|elements| !elements.is_empty())
}

/// A value on one line: JSON, which is YAML too, but plain words without quotes.
fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), string)
}

fn string(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./ ".contains(c);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(plain)
        && !text.ends_with(' ')
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    // JSON leaves these characters as they are; in YAML they may not occur, or end a line.
    let escaped = |c: char| ('\u{7f}'..='\u{9f}').contains(&c) || "\u{2028}\u{2029}\u{feff}".contains(c);
    quoted.chars().fold(String::new(), |mut all, c| {
        match escaped(c) {
            true => all.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => all.push(c),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::document;

    #[test]
    fn a_value_is_the_same_in_yaml() {
        let texts = ["", " a", "a ", "yes", "Null", "1", "1e3", "0x1f", "- a", "a: b", "a #b", "é\n\"x\"\t"];
        let odd = ["\u{85}\u{2028}\u{feff}", "~", "2026-11-01", "0af7", "%", "@last", "'", "plain words.txt"];
        let texts: Vec<&str> = texts.into_iter().chain(odd).collect();
        for value in [
            json!(null),
            json!([]),
            json!({}),
            json!("a"),
            json!([[], {}, [[1, 2.5], [-3]], {"a": [{"b": {"c": []}}, {"d": null}]}]),
            json!({"yes": true, "1": 0.000_000_1, "a b": 18_446_744_073_709_551_615_u64, "": {"": ""}}),
            json!(texts),
        ] {
            let yaml = document(&value);
            let read: serde_json::Value =
                serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
            assert_eq!(read, value, "{yaml}");
        }
    }
}
