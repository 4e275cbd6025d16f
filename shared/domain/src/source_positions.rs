//! The line and column of every path in a text, such as `steps[2].when`, so that a mistake in a
//! file is shown where it is. Positions are computed only when there is a mistake. If a text can't
//! be read to its end, the positions before the failure are returned.

use std::collections::HashMap;

use granit_parser::{Event, Parser};

use crate::decode::Format;

/// A line and a column, both counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePlace {
    pub line: usize,
    pub column: usize,
}

/// The places of all paths in a text.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    places: HashMap<String, LinePlace>,
}

impl Lines {
    pub fn of(text: &[u8], format: Format) -> Self {
        let text = String::from_utf8_lossy(text);
        match format {
            Format::Json => of_json(&text),
            Format::Yaml => of_yaml(&text),
        }
    }

    /// Adds a path. If the path has a place already, the first one stays.
    pub fn put(&mut self, path: String, at: LinePlace) {
        self.places.entry(path).or_insert(at);
    }

    /// Returns the beginning of the whole text.
    pub fn begin(&self) -> Option<LinePlace> {
        self.places.get("").copied()
    }

    /// Returns the place of a path, or of the nearest enclosing part that the text has. Returns
    /// `None` for the whole text.
    pub fn find(&self, mut path: &str) -> Option<LinePlace> {
        while !path.is_empty() {
            if let Some(place) = self.places.get(path) {
                return Some(*place);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
        None
    }
}

/// Joins a path and the name of a field within it. [`element`] does the same for a list.
pub fn field(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

pub fn element(above: &str, index: usize) -> String {
    format!("{above}[{index}]")
}

/// An object or list that is open while a text is read.
enum Open {
    /// `key` is the path of the next value; `None` if a key comes next.
    Fields {
        at: String,
        key: Option<String>,
    },
    Elements {
        at: String,
        next: usize,
    },
}

impl Open {
    /// Returns the path of the value that begins here, or `None` if it is a key.
    fn value(&mut self) -> Option<String> {
        match self {
            Open::Fields { key, .. } => key.take(),
            Open::Elements { at, next } => {
                *next += 1;
                Some(element(at, *next - 1))
            }
        }
    }
}

fn of_yaml(text: &str) -> Lines {
    let mut lines = Lines::default();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let at = LinePlace { line: span.start.line(), column: span.start.col() + 1 };
        // The path of the node that begins here, or `None` for a key.
        let mut begins = || open.last_mut().map_or(Some(String::new()), Open::value);
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows with its crate")]
        match event {
            Event::MappingStart(..) => {
                let path = begins().unwrap_or_default();
                lines.put(path.clone(), at);
                open.push(Open::Fields { at: path, key: None });
            }
            Event::SequenceStart(..) => {
                let path = begins().unwrap_or_default();
                lines.put(path.clone(), at);
                open.push(Open::Elements { at: path, next: 0 });
            }
            Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
            Event::Scalar(text, ..) => match begins() {
                Some(path) => lines.put(path, at),
                None => {
                    if let Some(Open::Fields { at: above, key }) = open.last_mut() {
                        let path = field(above, &text);
                        lines.put(path.clone(), at);
                        *key = Some(path);
                    }
                }
            },
            Event::Alias(_) => drop(begins()),
            _ => {}
        }
    }
    lines
}

fn of_json(text: &str) -> Lines {
    let mut lines = Lines::default();
    let mut open: Vec<Open> = Vec::new();
    let (mut line, mut line_begins, mut at) = (1, 0, 0);
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at).copied() {
        let place = |from: usize| {
            let before = text.get(line_begins..from).unwrap_or_default();
            LinePlace { line, column: before.chars().count() + 1 }
        };
        let from = at;
        match byte {
            b'\n' => (line, line_begins) = (line + 1, at + 1),
            b' ' | b'\t' | b'\r' | b',' | b':' => {}
            b'}' | b']' => drop(open.pop()),
            b'{' | b'[' => {
                let path = open.last_mut().map_or(Some(String::new()), Open::value).unwrap_or_default();
                lines.put(path.clone(), place(from));
                open.push(match byte {
                    b'{' => Open::Fields { at: path, key: None },
                    _ => Open::Elements { at: path, next: 0 },
                });
            }
            _ => {
                at = if byte == b'"' { end_of_string(bytes, from) } else { end_of_word(bytes, from) };
                let token = text.get(from..=at).unwrap_or_default();
                let words: String = serde_json::from_str(token).unwrap_or_else(|_| token.to_owned());
                match open.last_mut().map_or(Some(String::new()), Open::value) {
                    Some(path) => lines.put(path, place(from)),
                    None => {
                        if let Some(Open::Fields { at: above, key }) = open.last_mut() {
                            let path = field(above, &words);
                            lines.put(path.clone(), place(from));
                            *key = Some(path);
                        }
                    }
                }
            }
        }
        at += 1;
    }
    lines
}

/// Returns the place of the quote that ends the string, or of the text's last byte. The string
/// begins at `begin`.
fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len().saturating_sub(1).max(begin)
}

/// Returns the place of the last byte of a number or a word.
fn end_of_word(text: &[u8], begin: usize) -> usize {
    let rest = &text[begin + 1..];
    let length = rest.iter().position(|byte| b" \t\r\n,:]}[{\"".contains(byte)).unwrap_or(rest.len());
    begin + length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, format: Format, path: &str) -> Option<(usize, usize)> {
        Lines::of(text.as_bytes(), format).find(path).map(|at| (at.line, at.column))
    }

    #[test]
    fn g2_the_place_of_a_path_is_that_of_its_key_or_element_or_of_its_parent() {
        let json = "{\n\t\"mode\": \"parallel\",\n  \"steps\": [\n    {\"id\": \"ä\", \"when\": \"a\\\"b{[\"},\n    7, null,\n    [true]\n  ]\n}\n";
        let yaml = "mode: parallel\nsteps: # all\n  - id: one\n    when: |\n      true\n  - {id: two, when: 'x'}\n  - *a\n  - - 1\n    - 2\n";
        for (text, format, path, expected) in [
            (json, Format::Json, "mode", Some((2, 2))),
            (json, Format::Json, "steps", Some((3, 3))),
            (json, Format::Json, "steps[0].when", Some((4, 17))),
            (json, Format::Json, "steps[0].until.x", Some((4, 5))),
            (json, Format::Json, "steps[2]", Some((5, 8))),
            (json, Format::Json, "steps[3][0]", Some((6, 6))),
            (json, Format::Json, "steps[0].agent_id", Some((4, 5))),
            (json, Format::Json, "steps[9].agent_id", Some((3, 3))),
            (json, Format::Json, "nothing", None),
            (json, Format::Json, "", None),
            (yaml, Format::Yaml, "steps[0].when", Some((4, 5))),
            (yaml, Format::Yaml, "steps[1].when", Some((6, 15))),
            (yaml, Format::Yaml, "steps[1]", Some((6, 5))),
            (yaml, Format::Yaml, "mode", Some((1, 1))),
        ] {
            assert_eq!(line(text, format, path), expected, "{path} in {text}");
        }
        for broken in ["", "\"", "\"\\", "{\"a", "{\"a\":", "]]}", "[1", "\u{1F600}"] {
            line(broken, Format::Json, "a.b[0]");
            line(broken, Format::Yaml, "a.b[0]");
        }
    }
}
