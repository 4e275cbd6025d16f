//! `fs.read`, `fs.write` and `fs.list`: files of the workspace. The workspace decides which paths
//! are allowed (I3, I4). This file makes the text for the agent.

use schemars::JsonSchema;
use serde::Deserialize;

use domain::{limits::Limits, wording::cut};

use super::{
    arguments,
    call::{Invocation, Output},
};
use crate::files::{
    restore,
    tool_output::{self, PASSAGE_BYTES},
    workspace::{DirectoryEntry, Extent},
};

pub(crate) const READ: &str = tool_output::READ_TOOL;
pub(super) const READ_DESCRIPTION: &str = "Reads a text file of your workspace. For a long file, give the first line and the number of lines to \
     read.";
pub(crate) const WRITE: &str = restore::WRITE_TOOL;
pub(super) const WRITE_DESCRIPTION: &str = "Writes a text file of your workspace, and replaces an existing one. Put files that should be kept \
     under outputs/; history/ can't be written.";
pub(super) const LIST: &str = domain::tool::FS_LIST;
pub(super) const LIST_DESCRIPTION: &str = "Lists a directory of your workspace, with sizes in bytes.";

/// The largest file that is read.
const MAX_READ_BYTES: u64 = 8 << 20;
/// The largest file that may be written in one call.
const MAX_WRITE_BYTES: usize = 8 << 20;
/// The most entries of a directory that are listed.
const MAX_LISTED: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// Such as `outputs/report.md`.
    path: String,
    /// The first line to show, counted from 1.
    #[serde(default)]
    first_line: Option<usize>,
    /// The number of lines to show; all if absent.
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
    /// Such as `outputs`; the root of the workspace if absent.
    #[serde(default)]
    path: Option<String>,
}

pub(super) fn read(invocation: Invocation<'_>) -> Output {
    let ReadArguments { path, first_line, lines } = arguments::read(invocation)?;
    let bytes = invocation.workspace.read(&path, MAX_READ_BYTES).map_err(|error| error.to_string())?;
    let has = bytes.len();
    let text = String::from_utf8(bytes).map_err(|_| format!("`{path}` is not text; it has {has} bytes"))?;
    if first_line.is_none() && lines.is_none() {
        return Ok(text);
    }
    let first = first_line.unwrap_or(1).max(1);
    let shown = passage(&text, first, lines.unwrap_or(usize::MAX));
    shown
        .ok_or_else(|| format!("`{path}` has {} lines; line {first} is beyond its end", text.lines().count()))
}

/// Whole lines from line `first` on, as many as a passage may have, and a last line with their
/// numbers. A first line that is too long is cut.
fn passage(text: &str, first: usize, lines: usize) -> Option<String> {
    let mut shown = String::new();
    let mut last = first - 1;
    for line in text.lines().skip(first - 1).take(lines) {
        if last < first {
            shown = cut(line.to_owned(), PASSAGE_BYTES);
        } else if shown.len() + 1 + line.len() > PASSAGE_BYTES {
            break;
        } else {
            shown.push('\n');
            shown.push_str(line);
        }
        last += 1;
    }
    let all = text.lines().count();
    (last >= first).then(|| format!("{shown}\n[lines {first} to {last} of {all}]"))
}

pub(super) async fn write(invocation: Invocation<'_>) -> Output {
    let WriteArguments { path, content } = arguments::read(invocation)?;
    let Invocation { attempt, workspace, .. } = invocation;
    if content.len() > MAX_WRITE_BYTES {
        return Err(format!("the text has {} bytes, more than the {MAX_WRITE_BYTES} allowed", content.len()));
    }
    within_limits(workspace.extent_with(&path, content.len() as u64), &attempt.work.limits)?;
    attempt.lease.live().await;
    workspace.write(&path, content.as_bytes()).map_err(|error| error.to_string())?;
    let extent = workspace.extent();
    attempt.progress.change(|progress| {
        progress.output_files = extent.files;
        progress.output_size_bytes = extent.bytes;
    });
    Ok(format!("wrote {} bytes to `{path}`", content.len()))
}

/// Rejects a file with which the outputs would exceed a limit, since that would cost the agent its
/// result at the end (L).
fn within_limits(extent: Extent, limits: &Limits) -> Result<(), String> {
    let (files, max_files) = (extent.files, limits.max_output_files);
    if files > max_files {
        return Err(format!(
            "max_output_files: this would be file {files} in outputs/, and {max_files} are allowed\n\n\
             hint: write into a file that is there, or outside outputs/, where files are not kept"
        ));
    }
    let (bytes, max_bytes) = (extent.bytes, limits.max_output_size_bytes);
    if bytes > max_bytes {
        return Err(format!(
            "max_output_size_bytes: with this, outputs/ would have {bytes} bytes, and {max_bytes} are allowed\n\n\
             hint: write less, or replace a file that is there by a shorter one"
        ));
    }
    Ok(())
}

pub(super) fn list(invocation: Invocation<'_>) -> Output {
    let ListArguments { path } = arguments::read(invocation)?;
    let path = path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
    let entries = invocation.workspace.list(path).map_err(|error| error.to_string())?;
    if entries.is_empty() {
        return Ok(format!("`{path}` is empty"));
    }
    let mut lines: Vec<String> = entries.iter().take(MAX_LISTED).map(line).collect();
    if entries.len() > MAX_LISTED {
        lines.push(format!("[and {} more]", entries.len() - MAX_LISTED));
    }
    Ok(lines.join("\n"))
}

fn line(DirectoryEntry { path, size_bytes, is_directory }: &DirectoryEntry) -> String {
    if *is_directory { format!("{path}/") } else { format!("{path}  {size_bytes} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w4_a_passage_says_which_lines_it_shows_however_long_they_are() {
        let text: String = (1..=2000).map(|number| format!("this is line {number} of a file\n")).collect();
        let shown = passage(&text, 11, usize::MAX).unwrap();
        let (body, below) = shown.rsplit_once('\n').unwrap();
        let last = 10 + body.lines().count();
        assert!(body.len() <= PASSAGE_BYTES && body.ends_with(&format!("line {last} of a file")), "{below}");
        assert_eq!(below, format!("[lines 11 to {last} of 2000]"));
        assert!(passage(&text, last + 1, 1).unwrap().starts_with(&format!("this is line {} ", last + 1)));
        let long = passage(&"x".repeat(100_000), 1, 5).unwrap();
        assert!(long.len() < PASSAGE_BYTES + 100 && long.ends_with("…\n[lines 1 to 1 of 1]"));
        assert_eq!(passage("one", 2, 1), None);
        assert_eq!(passage("\n\nthree", 1, 2).unwrap(), "\n\n[lines 1 to 2 of 3]");
    }
}
