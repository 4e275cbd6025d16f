//! The names of tools as providers accept them: letters, digits, `_` and `-`, at most 64. The names
//! of Trellis have dots and colons. Each request has a table, so that no two tools get the same
//! name and every name can be mapped back.

use std::collections::BTreeMap;

use super::request::{Message, ToolSpec};

const MAX_NAME_LENGTH: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ToolNames {
    to_provider: BTreeMap<String, String>,
    from_provider: BTreeMap<String, String>,
}

impl ToolNames {
    /// Adds the offered tools first, then the tools of earlier calls, so that the name of a tool
    /// stays the same during a conversation.
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
        if self.to_provider.contains_key(name) {
            return;
        }
        let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let plain: String = name.chars().take(MAX_NAME_LENGTH).map(allowed).collect();
        // Gemini requires a letter or `_` first.
        let plain = if plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            plain
        } else {
            format!("_{plain}")
        };
        let mut wanted = plain.chars().take(MAX_NAME_LENGTH).collect::<String>();
        for number in 2.. {
            if !self.from_provider.contains_key(&wanted) {
                break;
            }
            let suffix = format!("_{number}");
            wanted = plain.chars().take(MAX_NAME_LENGTH - suffix.len()).collect::<String>() + &suffix;
        }
        self.to_provider.insert(name.to_owned(), wanted.clone());
        self.from_provider.insert(wanted, name.to_owned());
    }

    /// The name for the provider.
    pub(super) fn provider_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.to_provider.get(name).map_or(name, String::as_str)
    }

    /// The name in Trellis. A name that the model invented is returned unchanged.
    pub(super) fn our_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.from_provider.get(name).map_or(name, String::as_str)
    }
}
