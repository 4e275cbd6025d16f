//! A digest of a trace: two traces are equal if and only if their digests are. The audit compares
//! the store with the log by it.

use domain::digest::SequenceDigest;

use super::{super::Trace, HEAD, json};

impl Trace {
    /// A digest of all stored parts of the trace, in 32 digits. It depends neither on the form in
    /// which the trace is stored nor on the fields that were written last.
    pub fn digest(&self) -> String {
        let mut whole = self.without_renewals();
        whole.mark_all_changed();
        let changes = whole.take_changes();
        let mut texts: Vec<(String, String)> = Vec::new();
        let fields = changes.fields.into_iter().filter(|(name, _)| name != HEAD);
        texts.extend(fields.filter_map(|(name, text)| Some((name, text?))));
        let values = changes.values.into_iter();
        texts.extend(values.filter_map(|(name, text)| Some((format!("value {name}"), text?))));
        texts.push(("settings".into(), json(&self.settings)));
        texts.push(("cancelled_before".into(), json(&self.cancelled_before)));
        texts.push(("generation".into(), json(&self.generation)));
        texts.sort();
        let mut digest = SequenceDigest::default();
        for (name, text) in &texts {
            digest.add(name);
            digest.add(text);
        }
        digest.short()
    }
}
