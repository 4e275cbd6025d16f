//! Rebuilds the prompt of one model call from the journal of its context: the beginning of the
//! prompt, and the additions of the entries before the call that still applied.

use domain::{
    wire::{CompactionKind, HistoryEntry, HistoryStep, PromptRole, ToolOutput},
    wording::count,
};

const USER: &str = "user";

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The speaker, or the kind of the part.
    pub what: String,
    /// The number of the entry that the part comes from.
    pub entry: u32,
    pub size_bytes: u64,
    /// The text. Of a long text, only the beginning.
    pub text: String,
    /// The form in which the model got the part, if not in full.
    pub shown_as: Option<&'static str>,
}

impl Part {
    fn of(what: impl Into<String>, entry: &HistoryEntry, text: &str) -> Self {
        let size_bytes = text.len() as u64;
        Part { what: what.into(), entry: entry.number, size_bytes, text: text.to_owned(), shown_as: None }
    }
}

/// Returns the parts of the prompt of an entry's call, in order. Returns `None` if the entry is not
/// a model call, or if the journal does not have the beginning of its prompt.
pub fn parts(entries: &[HistoryEntry], number: u32) -> Option<Vec<Part>> {
    let place = entries.iter().position(|entry| entry.number == number)?;
    let step = entries[place].step.as_model()?;
    let begins = |entry: &&HistoryEntry| entry.step.as_model().is_some_and(|step| step.prompt.is_some());
    let first = entries[..=place].iter().rev().find(begins)?;
    let mut parts = beginning(first);
    if step.asked.is_none() {
        parts.extend(dialog(&entries[..place]));
    } else if first.number != number {
        // A program sends its own messages, and other ones in every call. The journal stores only
        // the first.
        parts.retain(|part| part.what != USER);
        let shown_as = Some("not stored");
        parts.push(Part { shown_as, ..Part::of("request of the program", &entries[place], "") });
    }
    Some(parts)
}

/// Returns the parts before the first answer.
fn beginning(entry: &HistoryEntry) -> Vec<Part> {
    let prompt = entry.step.as_model().and_then(|step| step.prompt.as_deref());
    let messages = prompt.into_iter().flat_map(|prompt| &prompt.messages).map(|message| {
        let what = match message.role {
            PromptRole::System => "system",
            PromptRole::User => USER,
        };
        let is_cut = message.text.len() as u64 != message.size_bytes;
        let shown_as = is_cut.then_some("only the beginning is stored");
        Part { size_bytes: message.size_bytes, shown_as, ..Part::of(what, entry, &message.text) }
    });
    let mut parts: Vec<Part> = messages.collect();
    if let Some(prompt) = prompt.filter(|prompt| !prompt.tools.is_empty()) {
        let tools: Vec<&str> = prompt.tools.iter().map(|tool| tool.as_str()).collect();
        parts.push(Part::of(count(tools.len(), "tool"), entry, &tools.join("\n")));
    }
    parts
}

/// Returns the additions of entries to the conversation, as far as they are still shown.
fn dialog(entries: &[HistoryEntry]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for entry in entries {
        match &entry.step {
            HistoryStep::Model(step) => match step.summary_of {
                Some(to) => {
                    parts.retain(|part| part.entry > to);
                    let summary = format!("summary of the entries up to {to}");
                    parts.insert(0, Part::of(summary, entry, step.text.as_deref().unwrap_or_default()));
                }
                None if step.denied().is_some() => {}
                None => {
                    parts.extend(step.text.as_deref().map(|text| Part::of("assistant", entry, text)));
                    for call in &step.tool_calls {
                        let what = format!("assistant calls {}", call.tool);
                        parts.push(Part::of(what, entry, &call.arguments.to_text()));
                    }
                }
            },
            HistoryStep::Tool(step) => {
                let what = format!("tool {}", step.tool);
                parts.push(match &step.output {
                    ToolOutput::Inline(text) => Part::of(what, entry, text),
                    ToolOutput::Offloaded { preview, object, .. } => {
                        let shown_as = Some("shown as a preview with a reference to the rest");
                        Part { size_bytes: object.size_bytes, shown_as, ..Part::of(what, entry, preview) }
                    }
                });
            }
            HistoryStep::Told(told) => parts.push(Part::of("message", entry, told.text.as_str())),
            HistoryStep::Restored { to, .. } => parts.retain(|part| part.entry <= *to),
            HistoryStep::Compacted { from, to, how: CompactionKind::Dropped } => {
                parts.retain(|part| part.entry < *from || part.entry > *to);
                let gone = format!("entries {from}–{to} are no longer shown");
                parts.insert(0, Part::of("note", entry, &gone));
            }
            HistoryStep::Compacted { from, to, how: CompactionKind::References } => {
                let within =
                    |part: &&mut Part| part.what.starts_with("tool ") && (*from..=*to).contains(&part.entry);
                parts.iter_mut().filter(within).for_each(|part| part.shown_as = Some("shown as a reference"));
            }
            HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Branched { .. }
            | HistoryStep::Received { .. }
            | HistoryStep::Rung(_)
            | HistoryStep::Checked(_)
            | HistoryStep::Result(_) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn journal(steps: &[Value]) -> Vec<HistoryEntry> {
        let entry = |(place, step): (usize, &Value)| {
            let entry = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "c", "number": place + 1,
                "attempt": 1, "at": 0, "step": step});
            serde_json::from_value(entry).unwrap()
        };
        steps.iter().enumerate().map(entry).collect()
    }

    fn says(text: &str, more: Value) -> Value {
        let mut step = json!({"call_id": "m", "model": "local/m", "cost": {"amount": {"cost_usd": "0", "tokens": 3}, "prices": "p"},
            "text": text, "max_tokens": 9});
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"model": step})
    }

    fn told(entries: &[HistoryEntry], number: u32) -> Vec<String> {
        let tell =
            |part: Part| format!("{} {}: {}", part.entry, part.what, part.shown_as.unwrap_or(&part.text));
        parts(entries, number).unwrap().into_iter().map(tell).collect()
    }

    #[test]
    fn w7_a_prompt_is_rebuilt_after_compactions_and_restores() {
        let begins = json!({"prompt": {"messages": [{"role": "system", "text": "You write.", "size_bytes": 10},
            {"role": "user", "text": "Your task", "size_bytes": 900}], "tools": ["fs.read"]}});
        let call = json!({"tool_calls": [{"id": "1", "tool": "fs.read", "arguments": {"path": "a"}}]});
        let tool = json!({"tool": {"id": "1", "tool": "fs.read", "output": {"inline": "long"}}});
        let mut entries = journal(&[
            json!({"began": {"worker_id": "w"}}),
            says("First.", {
                let mut both = begins.clone();
                both.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
                both
            }),
            tool,
            says("Second.", json!({})),
            json!({"compacted": {"from": 2, "to": 3, "how": "references"}}),
            says("Third.", json!({})),
            json!({"restored": {"number": 1, "to": 4}}),
            says("Third again.", json!({})),
            says("In short.", json!({"summary_of": 4})),
            says("Fourth.", json!({})),
        ]);
        assert_eq!(parts(&entries, 1), None, "the entry is not a model call");
        let start = ["2 system: You write.", "2 user: only the beginning is stored", "2 1 tool: fs.read"];
        assert_eq!(told(&entries, 2), start);
        let with =
            |more: &[&str]| -> Vec<String> { start.iter().chain(more).map(ToString::to_string).collect() };
        let calls = "2 assistant calls fs.read: {\"path\":\"a\"}";
        assert_eq!(told(&entries, 4), with(&["2 assistant: First.", calls, "3 tool fs.read: long"]));
        let seen =
            ["2 assistant: First.", calls, "3 tool fs.read: shown as a reference", "4 assistant: Second."];
        assert_eq!(told(&entries, 6), with(&seen));
        assert_eq!(told(&entries, 8), with(&seen), "a removed message is not shown");
        assert_eq!(
            told(&entries, 10),
            with(&["9 summary of the entries up to 4: In short.", "8 assistant: Third again."])
        );
        let program = |asked: &str| says("Yes.", json!({"asked": asked}));
        let mut first = program("1");
        first["model"].as_object_mut().unwrap().extend(begins.as_object().unwrap().clone());
        let asked = journal(&[first, program("2")]);
        assert_eq!(
            told(&asked, 1),
            ["1 system: You write.", "1 user: only the beginning is stored", "1 1 tool: fs.read"]
        );
        assert_eq!(
            told(&asked, 2),
            ["1 system: You write.", "1 1 tool: fs.read", "2 request of the program: not stored"]
        );
        entries.remove(1);
        assert_eq!(parts(&entries, 4), None, "the beginning of the prompt is unknown");
    }
}
