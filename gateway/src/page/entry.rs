//! One journal entry in full: the model's prompt part by part, its answer, or the whole output of a
//! tool.

use domain::{
    ChildId,
    wire::{HistoryEntry, HistoryStep, ToolOutput},
    wording::{count, size},
};
use maud::{Markup, html};
use text::{
    human_time, journal_text,
    prompt_text::{self, Part},
};
use trace::{ContextNode, Trace};

use super::{answer, context, row, shell::Here};
use crate::{
    call::Call,
    problem::{ApiResult, ProblemDetails},
    routes::{content, context as one_of},
};

/// Longer outputs can only be downloaded.
const SHOWN_BYTES: u64 = 256 << 10;

pub(super) async fn show(call: Call) -> ApiResult {
    let (trace_id, child): (_, ChildId) = (call.part("trace")?, call.part("child")?);
    let number: u32 = call.part("number")?;
    let run = call.watched.run(trace_id).await?;
    let entries = call.client.journal(trace_id, &child).await?;
    let Some(place) = entries.iter().position(|entry| entry.number == number) else {
        let message =
            format!("the journal of `{child}` has no entry {number}: it has {} of them", entries.len());
        return Err(ProblemDetails::not_found("no_entry", message));
    };
    let output = output(&call, &entries[place]).await?;
    run.show(move |trace| {
        let node = one_of(trace, &child)?;
        let entry = &entries[place];
        let began = entries.first().map_or(entry.at, |first| first.at);
        let body = html! {
            (context::way_to(trace, node))
            h1 { "Entry " (number) " of " (child) }
            (facts(trace, entry, place.checked_sub(1).map_or(began, |before| entries[before].at)))
            @if let Some(parts) = prompt_text::parts(&entries, number) { (prompt(node, entry, &parts)) }
            section aria-label="The entry" {
                @if let Some(arguments) = arguments(&entries, place) { h2 { "called with" } pre { (arguments) } }
                @for (name, value) in journal_text::parts(&entry.step) {
                    @if !is_told_above(&name) && (name != "output" || output.is_none()) { h2 { (name) } pre { (value) } }
                }
                @if let Some(output) = &output { h2 { "Output, " (size(output.size_bytes)) } pre tabindex="0" { (output.text) } }
            }
            nav class="pages" aria-label="Entries" {
                @if number > 1 { a href=(address(node, trace, number - 1)) { "Entry " (number - 1) } }
                @if place + 1 < entries.len() { a href=(address(node, trace, number + 1)) { "Entry " (number + 1) } }
            }
        };
        answer::page(&call, &format!("{child}, entry {number}"), Here::Runs, &body)
    })
    .await
}

/// True for parts that the facts or the prompt already show.
fn is_told_above(name: &str) -> bool {
    ["model", "tool", "cost", "usage", "offered tools"].contains(&name) || name.starts_with("prompt, ")
}

/// The arguments of a tool call, from the model answer that made the call.
fn arguments(entries: &[HistoryEntry], place: usize) -> Option<String> {
    let HistoryStep::Tool(step) = &entries[place].step else { return None };
    let answers = entries[..place].iter().rev().filter_map(|entry| entry.step.as_model());
    let call = answers.flat_map(|answer| &answer.tool_calls).find(|call| call.id == step.id)?;
    Some(format!("{:#}", call.arguments.value()))
}

/// The address of an entry's page.
pub(super) fn address(node: &ContextNode, trace: &Trace, number: u32) -> String {
    format!("runs/{}/contexts/{}/entries/{number}", trace.id(), node.id)
}

/// The whole output of a tool, of which the model received a preview.
struct Output {
    size_bytes: u64,
    text: String,
}

async fn output(call: &Call, entry: &HistoryEntry) -> ApiResult<Option<Output>> {
    let HistoryStep::Tool(step) = &entry.step else { return Ok(None) };
    let ToolOutput::Offloaded { object, preview, .. } = &step.output else { return Ok(None) };
    let size_bytes = object.size_bytes;
    let text = match size_bytes <= SHOWN_BYTES {
        true => String::from_utf8_lossy(&content(&call.client, object).await?).into_owned(),
        false => format!("{preview}\n\n(the model received this part; the whole output is too long to show)"),
    };
    Ok(Some(Output { size_bytes, text }))
}

fn facts(trace: &Trace, entry: &HistoryEntry, before: domain::Timestamp) -> Markup {
    let line = journal_text::line(&entry.step);
    let usage = entry.step.as_model().and_then(|step| step.usage);
    html! {
        dl class="facts" {
            dt { "What" } dd { (line.what) " " (line.who) }
            dt { "When" } dd { (entry.at) ", " (human_time::lasts(entry.at.millis_since(before))) " after the previous entry, in attempt " (entry.attempt) }
            @if !line.cost.is_empty() {
                dt { "Cost" }
                dd { (line.cost) @if let Some(held) = context::held(trace, entry) { " of " (held) " held" } }
            }
            @if let Some(usage) = usage {
                dt { "Tokens" }
                dd {
                    (usage.input_tokens) " in" @if usage.cached_tokens > 0 { ", " (usage.cached_tokens) " of them cached" }
                    ", " (usage.output_tokens) " out" @if usage.reasoning_tokens > 0 { ", " (usage.reasoning_tokens) " of them for reasoning" }
                }
            }
        }
    }
}

/// The prompt of a call, in the order in which the model received it.
fn prompt(node: &ContextNode, entry: &HistoryEntry, parts: &[Part]) -> Markup {
    let tokens = entry.step.as_model().and_then(|step| step.usage).map(|usage| usage.input_tokens);
    let bytes = parts.iter().map(|part| part.size_bytes).sum();
    html! {
        section class="prompt" {
            h2 { "The model's prompt" }
            p class="hint" {
                (count(parts.len(), "part")) ", " (size(bytes))
                @if let Some(tokens) = tokens { ", counted by the provider as " (tokens) " tokens" }
                ". Rebuilt from the journal of " (node.id) "; notices about its budget between the entries are not stored."
            }
            ol {
                @for part in parts {
                    li {
                        details {
                            summary {
                                (part.what) " " span class="kind" { (size(part.size_bytes)) @if part.entry != entry.number { ", entry " (part.entry) } @if let Some(shown) = part.shown_as { ", " (shown) } }
                                " " span class="of" { (row::short(&part.text, 100)) }
                            }
                            pre { (part.text) }
                        }
                    }
                }
            }
        }
    }
}
