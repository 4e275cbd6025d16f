//! Formats a journal entry for people: on one line, or in full.

use serde_json::json;

use domain::{
    ChildId,
    id::ToolName,
    ladder::RungAction,
    wire::{
        CheckedStep, CompactionKind, HistoryStep, ModelStep, Payload, PromptMessage, PromptRole, ToolOutput,
        ToolStep, Verdict,
    },
    wording::count,
};

/// A journal entry on one line.
#[derive(Debug, Default)]
pub struct Line {
    pub what: &'static str,
    /// The model, the tool, the worker or another source.
    pub who: String,
    pub tokens: String,
    pub cost: String,
    pub said: String,
}

pub fn line(step: &HistoryStep) -> Line {
    match step {
        HistoryStep::Began { worker_id } => {
            Line { what: "began", who: worker_id.to_string(), ..Line::default() }
        }
        HistoryStep::Model(step) => Line {
            what: if step.summary_of.is_some() { "summary" } else { "model" },
            who: step.model.to_string(),
            tokens: step.cost.amount.tokens.to_string(),
            cost: format!("{}{}", step.cost.amount.cost_usd, if step.cost.estimated { "?" } else { "" }),
            said: said(step),
        },
        HistoryStep::Lost(lost) => Line {
            what: "lost",
            who: lost.model.as_ref().map_or_else(|| lost.call_id.to_string(), ToString::to_string),
            tokens: lost.amount.tokens.to_string(),
            cost: format!("{}?", lost.amount.cost_usd),
            said: lost.cause.clone(),
        },
        HistoryStep::Tool(step) => {
            let error = if step.is_error { "error: " } else { "" };
            let said = step.note.as_deref().unwrap_or_else(|| shown(&step.output));
            Line {
                what: "tool",
                who: step.tool.to_string(),
                said: format!("{error}{said}"),
                ..Line::default()
            }
        }
        HistoryStep::Told(told) => {
            let number = told.number.map_or_else(String::new, |number| format!("message {number}"));
            let by = told.by.as_ref().map(|by| format!("{by}: ")).unwrap_or_default();
            Line { what: "told", who: number, said: format!("{by}{}", told.text), ..Line::default() }
        }
        HistoryStep::Rung(rung) => {
            let does = match &rung.action {
                RungAction::Tell => "reports the remaining budget".into(),
                RungAction::Model(model) => format!("continues with {model}"),
                RungAction::Compact => "compacts its window".into(),
            };
            let said = format!("{does}; left: {} and {} tokens", rung.left_usd, rung.left_tokens);
            Line {
                what: "budget",
                who: format!("rung {}: {}", rung.number, rung.at),
                said,
                ..Line::default()
            }
        }
        HistoryStep::Checked(step) => {
            Line { what: "check", who: step.check.to_string(), said: decided(step), ..Line::default() }
        }
        HistoryStep::Restored { number, to } => {
            Line { what: "restored", said: format!("restore {number}: back to step {to}"), ..Line::default() }
        }
        HistoryStep::Branched { from, copies } => {
            let steps = count(*copies, "step");
            let said = format!("{steps} of {}/{}@{}", from.trace_id, from.child_id, from.step);
            Line { what: "branched", said, ..Line::default() }
        }
        HistoryStep::Received { files } => {
            let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            Line { what: "files", said: format!("received {}", paths.join(", ")), ..Line::default() }
        }
        HistoryStep::Compacted { from, to, how } => {
            let said = match how {
                CompactionKind::References => {
                    format!("tool outputs of steps {from}–{to} are shown as references")
                }
                CompactionKind::Dropped => format!("steps {from}–{to} are no longer shown to the model"),
            };
            Line { what: "window", said, ..Line::default() }
        }
        HistoryStep::Result(step) => {
            let (who, said) = verdict(&step.verdict);
            let files = if step.outputs.is_empty() {
                String::new()
            } else {
                format!("{}; ", count(step.outputs.len(), "file"))
            };
            Line { what: "result", who: who.into(), said: format!("{files}{said}"), ..Line::default() }
        }
    }
}

fn said(step: &ModelStep) -> String {
    let calls: Vec<String> = step.tool_calls.iter().map(|call| format!("→ {}", call.tool)).collect();
    let text = step.text.as_deref().unwrap_or_default();
    let text = match step.summary_of {
        Some(to) => format!("steps 1–{to} were summarised: {text}"),
        None => text.to_owned(),
    };
    [text, calls.join(" ")].join(" ").trim().to_owned()
}

/// Formats a check's decision: the moment, the call, the decision and the reason.
fn decided(step: &CheckedStep) -> String {
    let (moment, decision) = (step.moment.as_str(), step.decision.as_str());
    let place = step.place.as_ref().map_or_else(String::new, |place| format!(" {place}"));
    let reason = step.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{moment}{place}: {decision}{reason}")
}

fn shown(output: &ToolOutput) -> &str {
    match output {
        ToolOutput::Inline(text) => text,
        ToolOutput::Offloaded { preview, .. } => preview,
    }
}

fn verdict(verdict: &Verdict) -> (&'static str, String) {
    let payload = |payload: &Payload| match payload {
        Payload::Inline(value) => value.to_text(),
        Payload::Reference(object) => format!("{} bytes in {}", object.size_bytes, object.object),
    };
    match verdict {
        Verdict::Completed(result) => ("completed", payload(result)),
        Verdict::LastReport(report) => ("last report", payload(report)),
        Verdict::Failed(failure) => ("failed", failure.message.clone()),
        Verdict::Halted { check, reason } => ("halted", format!("{check}: {reason}")),
        Verdict::Waiting { children, hand_over: true } => {
            let to: Vec<&str> = children.iter().map(ChildId::as_str).collect();
            ("handed over", format!("to {}", to.join(", ")))
        }
        Verdict::Waiting { hand_over: false, .. } => ("waiting", String::new()),
        Verdict::InputRequired { question, .. } => ("input required", question.to_string()),
        Verdict::OutOfBudget => ("out of budget", String::new()),
        Verdict::HandedBack => ("handed back", String::new()),
    }
}

/// Formats an entry in full: its parts, each with a name.
pub fn parts(step: &HistoryStep) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    let mut add = |name: &str, value: &str| parts.push((name.to_owned(), value.to_owned()));
    match step {
        HistoryStep::Model(step) => {
            let usage = step.usage.map(|usage| format!("{:#}", json!(usage)));
            add("model", step.model.as_str());
            add(
                "cost",
                &format!(
                    "{} for {} tokens, by {}",
                    step.cost.amount.cost_usd, step.cost.amount.tokens, step.cost.prices
                ),
            );
            usage.iter().for_each(|usage| add("usage", usage));
            for PromptMessage { role, text, size_bytes } in
                step.prompt.iter().flat_map(|prompt| &prompt.messages)
            {
                let role = match role {
                    PromptRole::System => "system",
                    PromptRole::User => "user",
                };
                let cut = if text.len() as u64 == *size_bytes {
                    String::new()
                } else {
                    format!(", the beginning of {size_bytes} bytes")
                };
                add(&format!("prompt, {role}{cut}"), text);
            }
            if let Some(tools) =
                step.prompt.as_ref().map(|prompt| &prompt.tools).filter(|tools| !tools.is_empty())
            {
                let tools: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
                add("offered tools", &tools.join(", "));
            }
            step.text.iter().for_each(|said| add("said", said));
            for call in &step.tool_calls {
                add(&format!("calls {}", call.tool), &format!("{:#}", call.arguments.value()));
            }
            step.checks.iter().for_each(|check| add(&format!("check {}", check.check), &decided(check)));
        }
        HistoryStep::Tool(step) => {
            let ToolStep { tool, output, is_error, note, checks, .. } = &**step;
            add(if *is_error { "failed tool" } else { "tool" }, tool.as_str());
            note.iter().for_each(|note| add("note", note));
            add("output", shown(output));
            checks.iter().for_each(|check| add(&format!("check {}", check.check), &decided(check)));
        }
        HistoryStep::Told(told) => {
            told.by.iter().for_each(|by| add("sender", by.as_str()));
            add("message", told.text.as_str());
        }
        step @ (HistoryStep::Began { .. }
        | HistoryStep::Received { .. }
        | HistoryStep::Rung(_)
        | HistoryStep::Lost(_)
        | HistoryStep::Checked(_)
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Compacted { .. }
        | HistoryStep::Result(_)) => add("entry", &format!("{:#}", json!(step))),
    }
    parts
}
