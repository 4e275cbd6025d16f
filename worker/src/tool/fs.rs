//! Files of the workspace. Where they may be is the workspace's business (I4); what may be written there,
//! and what an agent is shown, is decided here.

use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Invocation, Said, arguments};
use crate::workspace::Listed;

/// The largest file of which lines are shown.
const LARGEST: u64 = 8 << 20;
/// The largest file that may be written in one call.
const LARGEST_WRITE: usize = 8 << 20;
/// As many entries of a directory as are listed.
const LISTED: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// Such as `outputs/report.md`.
    path: String,
    /// The first line to show, counted from 1.
    #[serde(default)]
    first_line: Option<usize>,
    /// How many lines to show; all if absent.
    #[serde(default)]
    lines: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// Such as `outputs/report.md`; directories are made as needed.
    path: String,
    /// The whole text of the file.
    content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    /// Such as `outputs`; the workspace itself if absent.
    #[serde(default)]
    path: Option<String>,
}

pub(super) fn read(invocation: Invocation<'_>) -> Said {
    let ReadArguments { path, first_line, lines } = arguments::read(invocation)?;
    let bytes = invocation.workspace.read(&path, LARGEST).map_err(|error| told(&error))?;
    let has = bytes.len();
    let text = String::from_utf8(bytes).map_err(|_| format!("`{path}` is not a text; it has {has} bytes"))?;
    if first_line.is_none() && lines.is_none() {
        return Ok(text);
    }
    let first = first_line.unwrap_or(1).max(1);
    let all = text.lines().count();
    let shown: Vec<&str> = text.lines().skip(first - 1).take(lines.unwrap_or(usize::MAX)).collect();
    if shown.is_empty() {
        return Err(format!("`{path}` has {all} lines: there is none from line {first} on"));
    }
    let last = first + shown.len() - 1;
    Ok(format!("{}\n[lines {first} to {last} of {all}]", shown.join("\n")))
}

pub(super) async fn write(invocation: Invocation<'_>) -> Said {
    let WriteArguments { path, content } = arguments::read(invocation)?;
    let Invocation { run, workspace, .. } = invocation;
    let place = plain(&path)?;
    if place.first() == Some(&"history") {
        return Err(
            "history/ is the record of what was done and can't be written\n\nhint: write to outputs/".into(),
        );
    }
    if content.len() > LARGEST_WRITE {
        return Err(format!("the text has {} bytes, more than the {LARGEST_WRITE} allowed", content.len()));
    }
    run.keeper.live().await;
    workspace.write(&path, content.as_bytes()).map_err(|error| told(&error))?;
    if place.first() == Some(&"outputs") {
        let extent = workspace.extent();
        run.counters.change(|progress| {
            progress.output_files = extent.files;
            progress.output_size_bytes = extent.bytes;
        });
    }
    Ok(format!("wrote {} bytes to `{path}`", content.len()))
}

pub(super) fn list(invocation: Invocation<'_>) -> Said {
    let ListArguments { path } = arguments::read(invocation)?;
    let path = path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
    let entries = invocation.workspace.list(path).map_err(|error| told(&error))?;
    if entries.is_empty() {
        return Ok(format!("`{path}` is empty"));
    }
    let mut lines: Vec<String> = entries.iter().take(LISTED).map(line).collect();
    if entries.len() > LISTED {
        lines.push(format!("[and {} more]", entries.len() - LISTED));
    }
    Ok(lines.join("\n"))
}

fn line(Listed { path, size_bytes, is_directory }: &Listed) -> String {
    if *is_directory { format!("{path}/") } else { format!("{path}  {size_bytes} bytes") }
}

/// The steps of a path that only goes down. The workspace keeps every path beneath it; this is so that
/// no other spelling of `history/` gets past the look at its first step.
fn plain(path: &str) -> Result<Vec<&str>, String> {
    let mut steps = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(step) => steps.push(step.to_str().unwrap_or_default()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!(
                    "`{path}` is not a path of the workspace\n\nhint: name it from the workspace down, such as \
                     `outputs/report.md`"
                ));
            }
        }
    }
    Ok(steps)
}

/// An error with its cause: an agent sees no log.
fn told(error: &crate::workspace::Error) -> String {
    error.to_string()
}
