//! Copies of a trace in its event log. The log drops its oldest messages, by age or for lack of
//! room. A trace must remain possible to rebuild and to watch however long it lives, so its whole
//! state is written into the log again from time to time. A reader of a log without a beginning
//! begins with a copy.
//!
//! A copy consists of the same fields as in the store, as text, because deeply nested values could
//! exceed the depth limit of a reader. It changes only the time of the last copy, so a reader that
//! already has everything before it skips it. Costs in commits outside the valid chain
//! (`lost_costs`) are known only as far back as the copy with which a chain begins.

use std::collections::{BTreeMap, HashMap};

use domain::{Timestamp, TraceId};

use super::{CopyPart, Event, LoggedEvents, Trace};

/// The bytes of text in one part: below the limit of a message even after the text is escaped in
/// JSON.
const PART_BYTES: usize = 256 * 1024;
/// Traces that began together are copied at different times, spread over this fraction of the
/// interval.
const SPREAD: u64 = 10;

impl Trace {
    /// The time of the next copy: `after_ms`, minus a spread, after the last copy or the beginning.
    /// A trace that ends after it was copied is copied once more at its end: its log then begins
    /// with a copy, and is kept from then on.
    pub fn copy_due(&self, after_ms: u64) -> Option<Timestamp> {
        let root = self.root().filter(|root| !root.lifecycle.deleted)?;
        let spread = self.id.as_u128() % u128::from((after_ms / SPREAD).max(1));
        let after_ms = after_ms.saturating_sub(u64::try_from(spread).unwrap_or_default());
        match root.end().filter(|_| root.undoing == 0) {
            None => Some(self.copied_at.unwrap_or(root.identity.started_at).plus_millis(after_ms)),
            Some(end) => self.copied_at.filter(|at| *at < end.at).map(|_| end.at),
        }
    }

    /// The trace after a commit with a copy, built from the copy alone; `None` if the commit has no
    /// copy, or none that can be read.
    pub(super) fn from_copy<'a>(
        id: TraceId,
        messages: impl Iterator<Item = &'a LoggedEvents> + Clone,
    ) -> Option<Trace> {
        let events = || {
            let of = |message: &'a LoggedEvents| {
                (message.version..).zip(&message.events).map(|(version, event)| (version, event, message.at))
            };
            messages.clone().flat_map(of)
        };
        let last = |(_, event, _): &(u64, &Event, Timestamp)| {
            if let Event::Copied(copied) = event { copied.is_last() } else { false }
        };
        let (version, Event::Copied(end), at) = events().filter(last).last()? else { return None };
        let first = (version + 1).checked_sub(u64::from(end.parts))?;
        let (mut fields, mut values) = (HashMap::new(), HashMap::new());
        for (number, event, _) in events().filter(|(number, ..)| (first..=version).contains(number)) {
            let Event::Copied(part) = event else { return None };
            (u64::from(part.part) == number - first + 1).then_some(())?;
            join(&mut fields, &part.fields);
            join(&mut values, &part.values);
        }
        let mut trace = Trace::from_stored(id, version, &fields, &values).ok()?;
        trace.root()?;
        trace.copied_at = Some(at);
        for (_, event, at) in events().filter(|(number, ..)| *number > version) {
            trace.apply(event, at);
        }
        Some(trace)
    }
}

fn join(texts: &mut HashMap<String, String>, part: &BTreeMap<String, String>) {
    for (name, text) in part {
        texts.entry(name.clone()).or_default().push_str(text);
    }
}

/// Copies the whole state, if a copy is due.
pub(super) fn copy(trace: &Trace, after_ms: u64, now: Timestamp) -> Vec<Event> {
    if trace.copy_due(after_ms).is_none_or(|due| due > now) {
        return Vec::new();
    }
    let mut whole = trace.without_renewals();
    whole.mark_all_changed();
    let changes = whole.take_changes();
    let mut packed = Parts::default();
    for (name, text) in changes.fields {
        packed.add(&name, text.as_deref().unwrap_or_default(), |part| &mut part.fields);
    }
    for (name, text) in changes.values {
        packed.add(&name, text.as_deref().unwrap_or_default(), |part| &mut part.values);
    }
    let parts = u32::try_from(packed.parts.len()).unwrap_or(u32::MAX);
    let numbered = (1..).zip(packed.parts);
    numbered.map(|(part, of)| Event::Copied(Box::new(CopyPart { part, parts, ..of }))).collect()
}

#[derive(Default)]
struct Parts {
    parts: Vec<CopyPart>,
    /// The bytes for which the last part has room.
    room: usize,
}

impl Parts {
    /// Adds a text to the last part, and the rest that does not fit to further parts.
    fn add(
        &mut self,
        name: &str,
        mut text: &str,
        of: impl Fn(&mut CopyPart) -> &mut BTreeMap<String, String>,
    ) {
        while !text.is_empty() {
            if self.room <= name.len() + text.len().min(PART_BYTES / 2) {
                self.parts.push(CopyPart::default());
                self.room = PART_BYTES;
            }
            let fits = text.floor_char_boundary(self.room.saturating_sub(name.len()));
            let (now, later) = text.split_at(fits);
            let part = self.parts.last_mut().expect("one was added if there was none");
            of(part).insert(name.to_owned(), now.to_owned());
            self.room = self.room.saturating_sub(name.len() + now.len());
            text = later;
        }
    }
}
