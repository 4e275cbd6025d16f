//! The files that agents have left: a list for a run, and the text of one file.

use std::{collections::BTreeMap, time::Duration};

use bus::{FirstWriters, From};
use client::Client;
use domain::{
    ChildId, TraceId,
    subject::{Filter, Subject},
    wire::OutputFile,
    wording::{count, size},
};
use maud::{Markup, html};
use tokio::time::{Instant, timeout_at};

use super::{answer, run, shell::Here};
use crate::{
    call::Call,
    problem::{ApiResult, ProblemDetails},
    routes::{content, named_file},
};

/// Longer files can only be downloaded.
const SHOWN_BYTES: u64 = 256 << 10;
/// The most time for reading the journals of a run.
const WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn list(call: Call) -> ApiResult {
    let trace_id = call.part("trace")?;
    let run = call.watched.run(trace_id).await?;
    let files = left(&call.client, trace_id).await?;
    run.show(move |trace| {
        let root = client::root(trace)?;
        let number = files.values().map(Vec::len).sum::<usize>();
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, run::View::Files))
            @if files.is_empty() {
                section class="empty" {
                    p { "No agent has left a file yet. Files that an agent writes to " code { "outputs/" } " are collected when it ends." }
                }
            } @else {
                p class="hint" { (count(number, "file")) " of " (count(files.len(), "agent")) }
                @for (child, files) in &files {
                    section {
                        h2 { a href={ "runs/" (trace_id) "/contexts/" (child) } { (child) } }
                        (of_context(trace_id, child, files))
                    }
                }
            }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    })
    .await
}

/// The files of every context, as listed by its last result.
async fn left(client: &Client, trace_id: TraceId) -> ApiResult<BTreeMap<ChildId, Vec<OutputFile>>> {
    let filter = Filter::HistoriesOf(trace_id);
    let mut files = BTreeMap::new();
    let Some(last) = client.bus().last(&filter).await? else { return Ok(files) };
    let mut entries = client.bus().follow(&[filter], From::Start).await?;
    let mut writers = FirstWriters::default();
    let late = || {
        ProblemDetails::unavailable("the journals of the run can't be read at the moment\n\nhint: try again")
    };
    let until = Instant::now() + WITHIN;
    loop {
        let stored = timeout_at(until, entries.next()).await.map_err(|_| late())??;
        // Reads only the entries of the pool that wrote a context's journal first. The context is
        // taken from the subject, because the bus restricts each pool to its own subjects.
        if writers.takes(&stored.subject)
            && let Ok(entry) = client::entry(&stored.payload)
            && let Some(result) = entry.step.as_result()
            && let Subject::History(_, _, child) = &stored.subject
        {
            files.insert(child.clone(), result.outputs.clone());
        }
        if stored.sequence >= last.sequence {
            files.retain(|_, files| !files.is_empty());
            return Ok(files);
        }
    }
}

/// The files of one context.
pub(super) fn of_context(trace_id: TraceId, child: &ChildId, files: &[OutputFile]) -> Markup {
    html! {
        ul class="files" {
            @for file in files {
                @let path = address(&file.path);
                li {
                    @if file.object.size_bytes <= SHOWN_BYTES {
                        a href={ "runs/" (trace_id) "/contexts/" (child) "/files/" (path) } { (file.path) }
                    } @else {
                        (file.path)
                    }
                    " " span class="kind" { (size(file.object.size_bytes)) } " "
                    a href={ "v1/runs/" (trace_id) "/contexts/" (child) "/outputs/" (path) } download {
                        "Save" span class="unseen" { " " (file.path) }
                    }
                }
            }
        }
    }
}

/// The page with the text of a file.
pub(super) async fn show(call: Call) -> ApiResult {
    let (trace_id, child): (TraceId, ChildId) = (call.part("trace")?, call.part("child")?);
    let file = named_file(&call).await?;
    let is_short = file.object.size_bytes <= SHOWN_BYTES;
    let bytes = if is_short { content(&call.client, &file.object).await? } else { Default::default() };
    let text = std::str::from_utf8(&bytes).ok().filter(|text| is_short && !text.contains('\0'));
    let body = html! {
        nav class="way" aria-label="Breadcrumbs" {
            a href={ "runs/" (trace_id) "/files" } { "Files" } " › " a href={ "runs/" (trace_id) "/contexts/" (child) } { (child) }
        }
        h1 { (file.path) }
        p class="actions" {
            span class="kind" { (size(file.object.size_bytes)) }
            a href={ "v1/runs/" (trace_id) "/contexts/" (child) "/outputs/" (address(&file.path)) } download { "Save" }
        }
        @match text {
            Some(text) => pre tabindex="0" { (text) },
            None => p { "This file is not shown: it is not text, or too long." },
        }
    };
    answer::page(&call, &file.path, Here::Runs, &body)
}

/// A path, escaped for an address.
fn address(path: &str) -> String {
    path.split('/')
        .map(|part| form_urlencoded::byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20"))
        .collect::<Vec<_>>()
        .join("/")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_path_stays_one_in_an_address() {
        assert_eq!(super::address("a b/c?d#e/<f>"), "a%20b/c%3Fd%23e/%3Cf%3E");
    }
}
