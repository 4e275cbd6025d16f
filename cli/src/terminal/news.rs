//! The messages to an agent and the ladder of its budget, as text.

use domain::ladder::Rung;
use trace::{ContextNode, Trace};

use super::display::{cut, flat};

/// The characters of a message that are shown on a line.
const SHOWN: usize = 60;

/// The number of messages to a context, and how many of them it has not read. Empty without
/// messages.
pub(crate) fn counts(node: &ContextNode) -> String {
    let (told, unseen) = (node.told.len(), node.unseen());
    let messages = if told == 1 { "message" } else { "messages" };
    match (told, unseen, node.is_live()) {
        (0, ..) => String::new(),
        (_, 0, _) => format!("{told} {messages} seen"),
        (_, _, true) => format!("{unseen} of {told} {messages} not seen yet"),
        (_, _, false) => format!("{unseen} of {told} {messages} came too late"),
    }
}

/// The messages to a context and the rungs of its ladder, one line each.
pub(crate) fn describe(trace: &Trace, node: &ContextNode) -> String {
    let mut text = String::new();
    for (number, message) in (1..).zip(node.told.iter()) {
        let seen = match (number <= node.lifecycle.seen, node.is_live()) {
            (true, _) => "seen",
            (false, true) => "not seen yet",
            (false, false) => "came too late",
        };
        let by = message.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let said = cut(&flat(message.text.as_str()), SHOWN);
        text.push_str(&format!("\nmessage {number} to {}{by}, {seen}: {said}\n", node.id));
    }
    let ladder = trace.ladder(node);
    if !ladder.is_empty() {
        let rungs = (1..).zip(ladder).map(|(number, of)| rung(of, number <= node.lifecycle.rungs));
        text.push_str(&format!("\nladder of {}: {}\n", node.id, rungs.collect::<Vec<_>>().join(", ")));
    }
    text
}

fn rung(rung: &Rung, reached: bool) -> String {
    let action = match &rung.model {
        Some(model) => format!("model {model}"),
        None if rung.compact => "compact".into(),
        None => "tell".into(),
    };
    format!("{} {action}{}", rung.at, if reached { " (reached)" } else { "" })
}
