//! The target of `use` on a step: a file, or a graph that a cluster stores (G18).

use crate::id::GraphName;

/// The endings of file names.
const FILE_ENDINGS: [&str; 4] = [".yaml", ".yml", ".json", ".toml"];

/// The target of `use`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A text with a `/`, or with the ending of a file name.
    File,
    /// A graph that a cluster stores. Without a version, the latest.
    Kept(GraphName, Option<u64>),
    Neither,
}

impl Reference {
    pub fn new(text: &str) -> Self {
        if text.contains(['/', '\\']) || FILE_ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            return Reference::File;
        }
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        // A number has one notation: `2`, not `02`.
        let number = |text: &str| text.parse().ok().filter(|n: &u64| *n > 0 && n.to_string() == text);
        match (GraphName::new(name), version.map(number)) {
            (Ok(name), None) => Reference::Kept(name, None),
            (Ok(name), Some(Some(version))) => Reference::Kept(name, Some(version)),
            (Ok(_) | Err(_), _) => Reference::Neither,
        }
    }
}

/// Returns the message and hint for a text that is neither.
pub(super) fn neither(text: &str) -> (String, String) {
    let message = format!("{text:?} is neither a file nor the name of a graph");
    let hint = "a file has a `/` or ends in .yaml, .yml, .json or .toml; a graph that a cluster keeps is named as `facts`, \
                or with its version as `facts@2`";
    (message, hint.into())
}

pub(super) const NOT_READ_HERE: (&str, &str) =
    ("a file is not read here", "`trellis` puts the graph of the file in its place: send that as `graph`");

pub(super) const TWO_GRAPHS: (&str, &str) = ("it has a `graph` too", "leave one of them out");
