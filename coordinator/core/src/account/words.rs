//! Events described in words, one line each.

use domain::{Amount, Timestamp, wire::Asker};
use serde_json::{Map, Value};

use crate::{ContextNode, Event, Trace};

/// The name of an event, as in the log.
pub fn kind(event: &Event) -> String {
    let fields = fields(event);
    fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Like `detail`, with the ids of steps instead of their places, if `trace` is given.
pub(super) fn detail_in(trace: Option<&Trace>, event: &Event) -> String {
    let group = trace.and_then(|trace| trace.plan_of(trace.context(event.child_id()?)?));
    let id = |place: u64| Some(group?.steps.get(usize::try_from(place).ok()?)?.id.to_string());
    told(event, id)
}

/// Returns true if the steps of all its graphs are at their original places: an amend moves them.
pub(super) fn has_first_places(trace: &Trace) -> bool {
    let is_amended = |node: &ContextNode| node.graph.as_ref().is_some_and(|run| !run.amends.is_empty());
    !trace.contexts().iter().any(is_amended)
}

/// The fields of an event, without its name and its context: `attempt 1, call_id 1-1, amount $0.02
/// and 30 tokens`.
pub fn detail(event: &Event) -> String {
    told(event, |_| None)
}

fn told(event: &Event, step: impl Fn(u64) -> Option<String>) -> String {
    if let Event::Copied(copied) = event {
        return format!("part {} of {}", copied.part, copied.parts);
    }
    let fields = fields(event).into_iter();
    let said = fields.filter(|(name, value)| name != "type" && name != "child_id" && !is_empty(value));
    let word = |(name, value): (String, Value)| {
        if value == Value::Bool(true) {
            return name;
        }
        let id = if name == "step" { value.as_u64().and_then(&step) } else { None };
        format!("{} {}", label(event, &name), id.unwrap_or_else(|| shown(&name, value)))
    };
    said.map(word).collect::<Vec<_>>().join(", ")
}

/// The name of a field for people. The log has the hash of a lease's token, never the token.
fn label<'n>(event: &Event, name: &'n str) -> &'n str {
    if matches!(event, Event::Claimed { .. }) && name == "token" { "token_hash" } else { name }
}

fn fields(event: &Event) -> Map<String, Value> {
    match serde_json::to_value(event) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        // A field that is false is left out.
        Value::Bool(is_so) => !is_so,
        Value::Number(_) => false,
    }
}

/// The fields that are times.
const TIMES: [&str; 3] = ["until", "not_before", "deadline"];

fn shown(name: &str, value: Value) -> String {
    if let Some(millis) = value.as_u64().filter(|_| TIMES.contains(&name)) {
        return Timestamp::from_millis(millis).to_string();
    }
    if let Value::String(text) = value {
        return text;
    }
    if name == "by"
        && let Ok(by) = serde_json::from_value::<Asker>(value.clone())
    {
        return by.to_string();
    }
    if value.get("cost_usd").is_some()
        && let Ok(amount) = serde_json::from_value::<Amount>(value.clone())
    {
        return amount.to_string();
    }
    value.to_string()
}
