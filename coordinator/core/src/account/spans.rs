//! The spans of a run, derived from its log: the same spans that are exported, for users without a
//! viewer. For paid calls the log contains the times of the hold and of the booking; the journals
//! add the model. Tools appear in the journals only.

use std::collections::HashMap;

use domain::{
    Amount, CallId, ChildId, Timestamp,
    id::ToolName,
    span::{Kind, Moment, Span, SpanId, Value, attribute},
    subject::Subject,
    tool,
};

use super::{Journals, ReadLog, ToolEntry};
use crate::{Event, RunOrigin, Trace};

/// The cost of a call.
const COST: &str = "gen_ai.usage.cost";
/// The number of the journal entry of a call or a tool.
const ENTRY: &str = "trellis.entry";

/// Returns the number of the journal entry of a call or a tool.
pub fn entry_of(span: &Span) -> Option<u64> {
    let (_, value) = span.attributes.iter().find(|(name, _)| name == ENTRY)?;
    if let Value::Integer(number) = value { u64::try_from(*number).ok() } else { None }
}

impl ReadLog {
    /// The spans of the run, parents before their children, even if none were exported. A live run
    /// is shown as if it ended at `now`.
    pub fn spans(&self, journals: &Journals, now: Timestamp) -> Vec<Span> {
        let mut trace = self.opening();
        let mut calls = Calls { journals, open: HashMap::new(), ended: HashMap::new(), spans: Vec::new() };
        for (place, event) in self.events() {
            trace.apply(event, place.at);
            trace.tell_all(place.at);
            calls.take(&trace, event, place.at);
        }
        let open = calls.open.iter().map(|(key, held)| calls.span(&trace, key, held, now, None));
        let mut paid: Vec<(ChildId, Span)> = open.collect();
        paid.append(&mut calls.spans);
        let mut spans: Vec<Span> =
            trace.contexts().iter().flat_map(|node| trace.spans(&node.id, now)).collect();
        let lasting = |span: &Span| (span.span_id, (span.start, span.end));
        let told: HashMap<SpanId, (Moment, Moment)> = spans.iter().map(lasting).collect();
        // An attempt after the last mark has no span.
        let above = |attempt: Option<SpanId>, child_id: &ChildId| {
            attempt.filter(|id| told.contains_key(id)).unwrap_or(SpanId::of(trace.id(), child_id.as_str()))
        };
        // A worker has its own clock, and a lost call is booked after the end of its attempt: the
        // times are clamped to the span above.
        let within = |child_id: &ChildId, mut span: Span| {
            span.parent = Some(above(span.parent, child_id));
            if let Some((start, end)) = span.parent.and_then(|parent| told.get(&parent)) {
                span.start = span.start.clamp(*start, *end);
                span.end = span.end.clamp(span.start, *end);
            }
            span
        };
        let mut booked = HashMap::new();
        for (child_id, span) in paid {
            let span = within(&child_id, span);
            if let Some(entry) = entry_of(&span) {
                booked.insert((child_id, entry), span.end);
            }
            spans.push(span);
        }
        for node in trace.contexts() {
            let tools = journals.of(&node.id).map_or(&[][..], |book| &book.tools);
            for entry in tools.iter().filter(|entry| is_done_by_worker(&entry.tool)) {
                let mut span = within(&node.id, used(&trace, &node.id, entry));
                // The answer that requested the tool is booked shortly after its entry is written.
                if let Some(asked) = booked.get(&(node.id.clone(), u64::from(entry.number.saturating_sub(1))))
                {
                    span.start = span.start.max(*asked).min(span.end);
                }
                spans.push(span);
            }
        }
        spans
    }
}

/// Tools that a child or a human answers have spans from the coordinator, across all attempts of
/// the caller.
fn is_done_by_worker(tool: &ToolName) -> bool {
    ![tool::JOURNALED_SPAWN, tool::ASK_HUMAN].contains(&tool.as_str())
}

/// The span of a tool, from the previous entry to the tool's own.
fn used(trace: &Trace, child_id: &ChildId, entry: &ToolEntry) -> Span {
    let ToolEntry { number, attempt, tool, since, at, is_error } = entry;
    let id = SpanId::of(trace.id(), &format!("{child_id}.{attempt}.{number}.tool"));
    let above = SpanId::of(trace.id(), &format!("{child_id}.{attempt}"));
    let name = format!("execute_tool {tool}");
    let mut span = Span::new(name, Kind::Internal, (trace.id(), id, Some(above)), (*since, *at));
    span.attributes.push(attribute("trellis.child_id", child_id.as_str()));
    span.attributes.push(attribute("gen_ai.operation.name", "execute_tool"));
    span.attributes.push(attribute("gen_ai.tool.name", tool.as_str()));
    span.attributes.push(attribute(ENTRY, *number));
    span.error = is_error.then(|| "tool_error".into());
    span
}

impl Trace {
    /// Stores marks from here on, as if the spans of the run were exported.
    fn tell_all(&mut self, now: Timestamp) {
        if self.version() > 0 && !self.is_traced() {
            let subject = Subject::Submit.to_string();
            self.traced = Some(Box::new(RunOrigin { received_at: now, subject, parent: None, link: None }));
        }
    }
}

/// The paid calls, collected from their events.
struct Calls<'a> {
    journals: &'a Journals,
    open: HashMap<(ChildId, CallId), Held>,
    /// The index in `spans` of each call that was booked.
    ended: HashMap<(ChildId, CallId), usize>,
    spans: Vec<(ChildId, Span)>,
}

struct Held {
    at: Timestamp,
    attempt: u32,
    amount: Amount,
}

impl Calls<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a call begins and ends with few of the events")]
    fn take(&mut self, trace: &Trace, event: &Event, at: Timestamp) {
        let (child_id, call_id, cost) = match event {
            Event::Held { child_id, call_id, attempt, amount } => {
                let held = Held { at, attempt: *attempt, amount: *amount };
                self.open.insert((child_id.clone(), call_id.clone()), held);
                return;
            }
            Event::Settled { child_id, call_id, amount, .. } => (child_id, call_id, Some(*amount)),
            Event::Corrected { child_id, call_id, amount, .. } => (child_id, call_id, Some(*amount)),
            Event::Released { child_id, call_id } => (child_id, call_id, Some(Amount::ZERO)),
            Event::Forfeited { child_id, call_id } => (child_id, call_id, None),
            _ => return,
        };
        let key = (child_id.clone(), call_id.clone());
        if let Some(held) = self.open.remove(&key) {
            let cost = cost.unwrap_or(held.amount);
            let span = self.span(trace, &key, &held, at, Some(cost));
            self.ended.insert(key, self.spans.len());
            self.spans.push(span);
        } else if let (Some(place), Some(cost)) = (self.ended.get(&key), cost) {
            // The call was forfeited, and its real cost has become known.
            let (_, span) = &mut self.spans[*place];
            span.attributes.retain(|(name, _)| name != COST);
            span.attributes.push(attribute(COST, cost.cost_usd));
        }
    }

    /// The span of a call from the hold to the booking; without a cost the call is still open.
    fn span(
        &self,
        trace: &Trace,
        (child_id, call_id): &(ChildId, CallId),
        held: &Held,
        end: Timestamp,
        cost: Option<Amount>,
    ) -> (ChildId, Span) {
        let book = self.journals.of(child_id);
        let entry = book.and_then(|book| book.paid.iter().find(|entry| entry.call_id == *call_id));
        let name = match entry.and_then(|entry| entry.model.as_ref()) {
            // The name equals that of the exported span: without the provider.
            Some(model) => {
                let model = model.as_str();
                format!("chat {}", model.split_once('/').map_or(model, |(_, of_provider)| of_provider))
            }
            None => format!("call {call_id}"),
        };
        let id = SpanId::of(trace.id(), &format!("{child_id}.{call_id}.chat"));
        let attempt = SpanId::of(trace.id(), &format!("{child_id}.{}", held.attempt));
        let mut span = Span::new(name, Kind::Client, (trace.id(), id, Some(attempt)), (held.at, end));
        span.attributes.push(attribute("trellis.child_id", child_id.as_str()));
        span.attributes.push(attribute("trellis.call_id", call_id.as_str()));
        span.attributes.extend(entry.map(|entry| attribute(ENTRY, entry.number)));
        span.attributes.extend(cost.map(|cost| attribute(COST, cost.cost_usd)));
        (child_id.clone(), span)
    }
}
