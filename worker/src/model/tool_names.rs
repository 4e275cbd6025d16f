//! The names of tools as providers take them: letters, digits, `_` and `-`, at most 64. Ours have dots
//! and colons. One table a request, so that no two names meet and every one finds back.

use std::collections::BTreeMap;

use super::request::{Message, ToolSpec};

const LONGEST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ToolNames {
    there: BTreeMap<String, String>,
    back: BTreeMap<String, String>,
}

impl ToolNames {
    /// Tools first, then those of earlier calls: the name of a tool does not change as a conversation
    /// goes on.
    pub(super) fn new(tools: &[ToolSpec], messages: &[Message]) -> Self {
        let mut names = ToolNames::default();
        for tool in tools {
            names.add(tool.name.as_str());
        }
        for message in messages {
            match message {
                Message::Assistant { calls, .. } => calls.iter().for_each(|call| names.add(&call.tool)),
                Message::Tool { tool, .. } => names.add(tool),
                Message::System(_) | Message::User(_) => {}
            }
        }
        names
    }

    fn add(&mut self, name: &str) {
        if self.there.contains_key(name) {
            return;
        }
        let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let plain: String = name.chars().take(LONGEST).map(allowed).collect();
        // Gemini wants a letter or `_` first.
        let plain = if plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            plain
        } else {
            format!("_{plain}")
        };
        let mut wanted = plain.chars().take(LONGEST).collect::<String>();
        for number in 2.. {
            if !self.back.contains_key(&wanted) {
                break;
            }
            let suffix = format!("_{number}");
            wanted = plain.chars().take(LONGEST - suffix.len()).collect::<String>() + &suffix;
        }
        self.there.insert(name.to_owned(), wanted.clone());
        self.back.insert(wanted, name.to_owned());
    }

    /// As the provider is told.
    pub(super) fn there<'a>(&'a self, name: &'a str) -> &'a str {
        self.there.get(name).map_or(name, String::as_str)
    }

    /// As we call it; what a model made up stays what it is.
    pub(super) fn back<'a>(&'a self, name: &'a str) -> &'a str {
        self.back.get(name).map_or(name, String::as_str)
    }
}
