//! Copies of a trace in its event log. The log drops its oldest messages, by age or for lack of room. So that a trace can
//! be rebuilt and watched however long it lives, its whole state is written into the log again now and then: whoever
//! finds no beginning of the log begins with a copy.
//!
//! A copy is made of the fields that the store has too. It changes nothing but the time of the last copy, so that a
//! reader that has everything before it passes it over.

use std::collections::HashMap;

use shared::{Json, Timestamp, TraceId};

use super::{Copied, Event, Logged, Trace};

/// The bytes of fields in one part. One larger field is a part of its own.
const PART_BYTES: usize = 256 * 1024;

impl Trace {
    /// When it is to be copied, if the last copy, or its beginning, may be so old. One that has ended is not copied.
    pub fn copy_due(&self, after_ms: u64) -> Option<Timestamp> {
        let root = self.root().filter(|root| root.is_live())?;
        Some(self.copied_at.unwrap_or(root.started_at).plus_millis(after_ms))
    }

    /// The trace after a commit with a copy, from that alone; none if it has no copy, or none that can be read.
    pub(super) fn from_copy<'a>(
        id: TraceId,
        messages: impl Iterator<Item = &'a Logged> + Clone,
    ) -> Option<Trace> {
        let events = || {
            let of = |message: &'a Logged| {
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
            let text = |(name, value): (&String, &Json)| (name.clone(), value.value().to_string());
            fields.extend(part.fields.iter().map(text));
            values.extend(part.values.iter().map(text));
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

/// The whole state, if the last copy, or the beginning, is from before this time.
pub(super) fn copy(trace: &Trace, before: Timestamp) -> Vec<Event> {
    if trace.copy_due(0).is_none_or(|last| last >= before) {
        return Vec::new();
    }
    let mut whole = trace.without_renewals();
    whole.mark_all_changed();
    let changes = whole.take_changes();
    let mut packed = Parts::default();
    for (name, text) in changes.fields {
        packed.room_for(&name, text.as_ref()).fields.extend(entry(name, text));
    }
    for (name, text) in changes.values {
        packed.room_for(&name, text.as_ref()).values.extend(entry(name, text));
    }
    let parts = u32::try_from(packed.parts.len()).unwrap_or(u32::MAX);
    let numbered = (1..).zip(packed.parts);
    numbered.map(|(part, of)| Event::Copied(Box::new(Copied { part, parts, ..of }))).collect()
}

fn entry(name: String, text: Option<String>) -> Option<(String, Json)> {
    text.map(|text| (name, serde_json::from_str(&text).expect("fields are JSON")))
}

#[derive(Default)]
struct Parts {
    parts: Vec<Copied>,
    /// The bytes of the last.
    bytes: usize,
}

impl Parts {
    /// The part that an entry belongs into.
    fn room_for(&mut self, name: &str, text: Option<&String>) -> &mut Copied {
        let size = name.len() + text.map_or(0, String::len);
        self.bytes += size;
        if self.parts.is_empty() || self.bytes > PART_BYTES {
            self.bytes = size;
            self.parts.push(Copied::default());
        }
        self.parts.last_mut().expect("there is one")
    }
}
