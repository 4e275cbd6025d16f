//! The journal entries that a window no longer shows (W7), and the text that it shows instead. Tool
//! outputs become references. The oldest exchanges become a summary, or a line that names them. All
//! of this follows from the journal alone, which still has every entry.

use domain::wire::{CompactionKind, ToolOutput, ToolStep};

#[derive(Debug, Default)]
pub(super) struct CompactedEntries {
    /// Tool outputs of entries up to this number are references.
    references_to: u32,
    /// The last summary, and the last entry that it covers.
    summary: Option<(u32, String)>,
    /// The entries that were dropped since that summary.
    dropped: Option<(u32, u32)>,
}

impl CompactedEntries {
    pub(super) fn add(&mut self, from: u32, to: u32, how: CompactionKind) {
        match how {
            CompactionKind::References => self.references_to = self.references_to.max(to),
            CompactionKind::Dropped => {
                let from = self.dropped.map_or(from, |(first, _)| first.min(from));
                self.dropped = Some((from, to));
            }
        }
    }

    /// Adds a summary of the entries up to `to`, which includes earlier summaries. With an empty
    /// summary the entries are dropped.
    pub(super) fn summarise(&mut self, to: u32, text: Option<&str>) {
        match text.map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => {
                self.summary = Some((to, text.to_owned()));
                self.dropped = None;
            }
            None => self.add(self.summary.as_ref().map_or(1, |(to, _)| to + 1), to, CompactionKind::Dropped),
        }
    }

    /// Returns true if the exchange that begins with this entry is not shown.
    pub(super) fn is_hidden(&self, first: u32) -> bool {
        self.is_dropped(first) || self.summary.as_ref().is_some_and(|(to, _)| first <= *to)
    }

    pub(super) fn is_dropped(&self, first: u32) -> bool {
        self.dropped.is_some_and(|(from, to)| (from..=to).contains(&first))
    }

    /// Returns true if the tool output in this entry is shown as a reference.
    pub(super) fn is_reference(&self, number: u32) -> bool {
        number <= self.references_to
    }

    /// The prompt's text about the exchanges that are not shown; `dropped` of them were dropped.
    pub(super) fn notice(&self, dropped: usize, reads_files: bool) -> Option<String> {
        let whole = if reads_files {
            "; `fs.read` shows them whole in history/, such as history/step_001.json"
        } else {
            ""
        };
        let summary = self.summary.as_ref().map(|(to, text)| {
            format!("[Your steps 1 to {to} are summarised here, because your window is full{whole}]\n{text}")
        });
        let dropped = self.dropped.map(|(from, to)| {
            let count = if dropped > 0 {
                format!(", {dropped} answers of yours with their tool outputs,")
            } else {
                String::new()
            };
            format!(
                "[Your steps {from} to {to}{count} are no longer shown, because your window is full{whole}]"
            )
        });
        let parts: Vec<String> = summary.into_iter().chain(dropped).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }
}

/// The text in place of a tool output that is no longer shown: its tool, its size, and its path.
pub(super) fn reference(number: u32, step: &ToolStep, reads_files: bool) -> String {
    let (size_bytes, path) = match &step.output {
        ToolOutput::Inline(text) => (text.len() as u64, format!("history/step_{number:03}.json")),
        ToolOutput::Offloaded { path, object, .. } => (object.size_bytes, path.clone()),
    };
    let what = if step.is_error { "error" } else { "output" };
    let again = if reads_files { format!("; `fs.read` shows `{path}`") } else { String::new() };
    format!("[{what} of `{}`, {size_bytes} bytes, no longer shown{again}]", step.tool)
}
