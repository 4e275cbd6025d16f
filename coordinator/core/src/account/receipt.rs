//! The receipt of a trace (B19): each event with its context and time, how long the context waited,
//! the amounts held and booked, and sums that agree at every level. The amounts are those of the
//! ledger; models and tokens come from the journals.

use std::collections::{BTreeMap, HashMap};

use domain::{
    AgentId, Amount, CallId, ChildId, Timestamp, TraceId,
    id::ModelName,
    wire::{ContextStatus, TakenFrom, Text, Usage},
};
use serde::Serialize;

use super::{
    journals::{Journals, PaidEntry},
    ledger::{BookingReason, Ledger, Posting},
    log::{Place, ReadLog},
    waits::{Wait, Waits},
    words::{detail_in, has_first_places, kind},
};
use crate::{Body, ContextNode, Event, Trace};

/// One event on the receipt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    #[serde(flatten)]
    pub place: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// The kind of the event.
    pub what: String,
    pub detail: String,
    /// The time for which the context had waited before the event, if it waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// The booking that the event made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// A booking, with the details of its call from the journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    pub why: BookingReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub held: Amount,
    pub booked: Amount,
    /// The amount booked for the same call before, which this booking replaces.
    #[serde(skip_serializing_if = "Amount::is_nothing")]
    pub before: Amount,
}

/// One context, with its own cost and the cost of its descendants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextAccount {
    pub child_id: ChildId,
    /// The ids from the root down to it.
    pub path: Vec<ChildId>,
    pub depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The version of its agent's profile; a built-in agent has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_version: Option<u64>,
    pub status: ContextStatus,
    pub started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub attempts: u32,
    /// The context of an earlier run whose result it took over, at no cost (G15).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<TakenFrom>,
    /// The context that it undoes (G14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undoes: Option<ChildId>,
    /// The graph that it used by name, with the version (G18).
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub uses: Option<Text>,
    pub limit: Amount,
    pub own: Amount,
    /// The sum that its children and their descendants have spent.
    pub children: Amount,
    /// The sum of `own` and `children`.
    pub spent: Amount,
    pub held: Amount,
    pub estimated: Amount,
    pub disputed: Amount,
    pub wait: Wait,
}

/// The cost of the calls of one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByModel {
    pub model: ModelName,
    pub calls: u64,
    pub usage: Usage,
    pub cost: Amount,
    /// The part of `cost` that was booked for calls whose end or usage is unknown.
    pub estimated: Amount,
}

/// Costs for which no journal names a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnmodelledCost {
    pub what: &'static str,
    pub bookings: u64,
    pub cost: Amount,
    /// The part of `cost` that was booked at the holds of calls whose end is unknown.
    pub estimated: Amount,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Receipt {
    pub trace_id: TraceId,
    pub status: ContextStatus,
    /// True if the run is live, or a hold of it is open: the sums are preliminary.
    pub so_far: bool,
    /// The number of the last event.
    pub version: u64,
    pub began: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    pub total: Amount,
    pub lines: Vec<Line>,
    /// Parents before their children, in the order of the tree.
    pub contexts: Vec<ContextAccount>,
    pub models: Vec<ByModel>,
    pub other: Vec<UnmodelledCost>,
}

impl Receipt {
    /// `None` if the trace has no context.
    pub fn of(log: &ReadLog, ledger: &Ledger, journals: &Journals) -> Option<Self> {
        let trace = log.trace();
        let root = trace.root()?;
        let (lines, waits) = lines(log, ledger, journals);
        let contexts = contexts(trace, ledger, &waits);
        let (models, other) = by_model(ledger, journals);
        Some(Receipt {
            trace_id: trace.id(),
            status: root.status_word(),
            so_far: root.is_live() || root.lifecycle.outcome_due,
            version: trace.version(),
            began: root.identity.started_at,
            ended: root.end().map(|end| end.at),
            total: contexts.first().map_or(Amount::ZERO, |root| root.spent),
            lines,
            contexts,
            models,
            other,
        })
    }
}

/// The journal entries of calls, by context and call.
type Entries<'a> = HashMap<(&'a ChildId, &'a CallId), &'a PaidEntry>;

fn entries(journals: &Journals) -> Entries<'_> {
    let paid = journals.all().flat_map(|(child, book)| book.paid.iter().map(move |entry| (child, entry)));
    paid.map(|(child, entry)| ((child, &entry.call_id), entry)).collect()
}

fn entry<'a>(entries: &Entries<'a>, posting: &'a Posting) -> Option<&'a PaidEntry> {
    if posting.why == BookingReason::Charged {
        return None;
    }
    entries.get(&(&posting.child_id, posting.call_id.as_ref()?)).copied()
}

fn lines(log: &ReadLog, ledger: &Ledger, journals: &Journals) -> (Vec<Line>, Waits) {
    let entries = entries(journals);
    let by_event: HashMap<u64, &Posting> = ledger
        .postings
        .iter()
        .filter(|posting| posting.why != BookingReason::Carried)
        .map(|p| (p.place.event, p))
        .collect();
    let places = Some(log.trace()).filter(|trace| has_first_places(trace));
    let mut waits = Waits::open(log);
    let carried = ledger.postings.iter().filter(|posting| posting.why == BookingReason::Carried);
    let mut lines: Vec<Line> = carried.map(carried_line).collect();
    for (place, event) in log.events() {
        let waited_ms = waits.add(event, place.at).filter(|waited| *waited > 0);
        let posting = by_event.get(&place.event).copied();
        if posting.is_none() && !event.facts().on_receipt && waited_ms.is_none() {
            continue;
        }
        let cost = posting.map(|posting| {
            let entry = entry(&entries, posting);
            Cost {
                why: posting.why,
                call_id: posting.call_id.clone(),
                model: entry.and_then(|entry| entry.model.clone()),
                usage: entry.and_then(|entry| entry.usage),
                held: posting.held,
                booked: posting.booked,
                before: posting.before,
            }
        });
        let detail = if cost.is_some() { String::new() } else { said(places, event) };
        lines.push(Line {
            place,
            child_id: event.child_id().cloned(),
            what: kind(event),
            detail,
            waited_ms,
            cost,
        });
    }
    (lines, waits)
}

/// The line for the amount that a context had spent before the log begins.
fn carried_line(posting: &Posting) -> Line {
    Line {
        place: posting.place.clone(),
        child_id: Some(posting.child_id.clone()),
        what: "carried".into(),
        detail: String::new(),
        waited_ms: None,
        cost: Some(Cost {
            why: posting.why,
            call_id: None,
            model: None,
            usage: None,
            held: posting.held,
            booked: posting.booked,
            before: posting.before,
        }),
    }
}

/// The detail of an event. Goals, texts and results are left out.
fn said(places: Option<&Trace>, event: &Event) -> String {
    if let Event::Admitted(admitted) = event {
        let agent = match (admitted.body, &admitted.spec.agent_id) {
            (Body::Approval, _) => "a question to a human".to_owned(),
            (Body::Agent | Body::Graph { .. }, Some(agent)) => format!("agent {agent}"),
            (Body::Agent | Body::Graph { .. }, None) => "a graph".to_owned(),
        };
        let parent = admitted.parent_id.as_ref().map_or(String::new(), |parent| format!(" under {parent}"));
        match &admitted.taken {
            Some(from) => format!("{agent}{parent}, taken from {}/{}", from.trace_id, from.child_id),
            None => format!("{agent}{parent}, at most {}", admitted.ceiling.cost_usd),
        }
    } else if let Event::RerunBegun { rerun } = event {
        format!("of {}", rerun.trace_id)
    } else if let Event::Claimed { attempt, worker_id, .. } = event {
        format!("attempt {attempt} by {worker_id}")
    } else if let Event::Ended(ended) = event {
        let status = serde_json::to_value(ended.status).ok();
        let status = status.as_ref().and_then(|status| status.as_str()).unwrap_or_default().to_owned();
        ended.reason.as_ref().map_or(status.clone(), |reason| format!("{status}: {reason}"))
    } else if let Event::Told { number, by, .. } = event {
        let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        format!("message {number}{by}")
    } else if let Event::Answered { number, .. } = event {
        format!("question {number}")
    } else if let Event::InputRequired { number, .. } = event {
        format!("question {number}")
    } else if let Event::Amended { id, by, .. } = event {
        by.as_ref().map_or(id.to_string(), |by| format!("{id} by {by}"))
    } else if let Event::SynthesisBegun { .. } = event {
        String::new()
    } else {
        detail_in(places, event)
    }
}

/// Every context with its sums: its own cost from the ledger, and the cost of its children.
fn contexts(trace: &Trace, ledger: &Ledger, waits: &Waits) -> Vec<ContextAccount> {
    let mut spent: HashMap<&ChildId, (Amount, Amount)> = HashMap::new();
    // Children are admitted after their parents.
    for node in trace.contexts().iter().rev() {
        let children = node.children.iter().map(|child| spent[&trace.node(*child).id].1);
        let beneath = children.fold(Amount::ZERO, plus);
        spent.insert(&node.id, (beneath, plus(ledger.own(&node.id), beneath)));
    }
    let mut accounts = Vec::with_capacity(trace.contexts().len());
    let mut open: Vec<(&ContextNode, Vec<ChildId>)> =
        trace.root().map(|root| (root, Vec::new())).into_iter().collect();
    while let Some((node, above)) = open.pop() {
        let mut path = above;
        path.push(node.id.clone());
        let (children, sum) = spent[&node.id];
        let budget = node.budget.snapshot();
        let profile_version =
            node.spec.agent_id.as_ref().and_then(|id| trace.agent_versions.get(id).copied());
        open.extend(node.children.iter().rev().map(|child| (trace.node(*child), path.clone())));
        accounts.push(ContextAccount {
            child_id: node.id.clone(),
            path,
            depth: node.identity.depth,
            agent_id: node.spec.agent_id.clone(),
            profile_version,
            status: node.status_word(),
            started_at: node.identity.started_at,
            ended_at: node.end().map(|end| end.at),
            attempts: node.attempt(),
            taken_from: node.identity.taken.clone(),
            undoes: node.identity.undoes.map(|of| trace.node(of).id.clone()),
            uses: trace.used_as(node),
            limit: budget.limit,
            own: ledger.own(&node.id),
            children,
            spent: sum,
            held: budget.held,
            estimated: budget.estimated,
            disputed: budget.disputed,
            wait: waits.of(&node.id),
        });
    }
    accounts
}

/// The bookings by model, where a journal names one; the others by kind. Together they are the
/// total.
fn by_model(ledger: &Ledger, journals: &Journals) -> (Vec<ByModel>, Vec<UnmodelledCost>) {
    let entries = entries(journals);
    let mut models: BTreeMap<&ModelName, ByModel> = BTreeMap::new();
    let mut other: BTreeMap<&'static str, UnmodelledCost> = BTreeMap::new();
    for (child_id, sheet) in &ledger.sheets {
        for (call_id, call) in sheet.calls.iter().filter(|(_, call)| !call.booked.is_zero()) {
            if sheet.is_carried && !entries.contains_key(&(child_id, call_id)) {
                continue;
            }
            let entry = entries.get(&(child_id, call_id)).copied();
            let Some((model, entry)) = entry.and_then(|entry| Some((entry.model.as_ref()?, entry))) else {
                let what = match call.is_estimated {
                    _ if call_id.as_str().starts_with("external-") => "reported by programs",
                    true => "booked at their holds, because the ends of the calls are unknown",
                    false => "calls without a journal entry",
                };
                let known = add(&mut other, what, call.booked);
                if call.is_estimated {
                    known.estimated = plus(known.estimated, call.booked);
                }
                continue;
            };
            let known = models.entry(model).or_insert_with(|| ByModel {
                model: model.clone(),
                calls: 0,
                usage: Usage::default(),
                cost: Amount::ZERO,
                estimated: Amount::ZERO,
            });
            known.calls += 1;
            known.cost = plus(known.cost, call.booked);
            match entry.usage.filter(|_| !call.is_estimated) {
                Some(usage) => known.usage = sum(known.usage, usage),
                None => known.estimated = plus(known.estimated, call.booked),
            }
        }
    }
    for posting in &ledger.postings {
        match posting.why {
            BookingReason::Charged => {
                add(&mut other, "external charges", posting.booked);
            }
            BookingReason::Accepted => {
                add(&mut other, "disputed charges that were accepted", posting.booked);
            }
            BookingReason::Carried
            | BookingReason::Settled
            | BookingReason::Estimated
            | BookingReason::Corrected => {}
        }
    }
    carried(ledger, &entries, &mut other);
    (models.into_values().collect(), other.into_values().collect())
}

/// Adds the amounts spent before the log begins, apart from calls that a journal still names.
fn carried(ledger: &Ledger, entries: &Entries<'_>, other: &mut BTreeMap<&'static str, UnmodelledCost>) {
    let mut charged: HashMap<&ChildId, Amount> = HashMap::new();
    let later = ledger
        .postings
        .iter()
        .filter(|posting| matches!(posting.why, BookingReason::Charged | BookingReason::Accepted));
    for posting in later {
        let sum = charged.entry(&posting.child_id).or_insert(Amount::ZERO);
        *sum = plus(*sum, posting.booked);
    }
    for (child_id, sheet) in ledger.sheets.iter().filter(|(_, sheet)| sheet.is_carried) {
        let named = sheet.calls.iter().filter(|(id, _)| entries.contains_key(&(child_id, *id)));
        let named = named.fold(Amount::ZERO, |sum, (_, call)| plus(sum, call.booked));
        let later = charged.get(child_id).copied().unwrap_or(Amount::ZERO);
        let rest = sheet.own.saturating_sub(named).saturating_sub(later);
        if !rest.is_zero() {
            add(other, "before the log begins, or without a journal entry", rest);
        }
    }
}

fn add<'o>(
    other: &'o mut BTreeMap<&'static str, UnmodelledCost>,
    what: &'static str,
    amount: Amount,
) -> &'o mut UnmodelledCost {
    let none = UnmodelledCost { what, bookings: 0, cost: Amount::ZERO, estimated: Amount::ZERO };
    let known = other.entry(what).or_insert(none);
    known.bookings += 1;
    known.cost = plus(known.cost, amount);
    known
}

fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        cached_tokens: a.cached_tokens.saturating_add(b.cached_tokens),
        cache_write_tokens: a.cache_write_tokens.saturating_add(b.cache_write_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        reasoning_tokens: a.reasoning_tokens.saturating_add(b.reasoning_tokens),
    }
}

fn plus(a: Amount, b: Amount) -> Amount {
    a.checked_add(b).expect("a part of what is booked")
}
