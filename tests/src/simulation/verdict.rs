//! The checks of a simulation that has come to rest: the invariants of docs/rules.md, the
//! provider's bill, and that no call was denied although the budget would have paid it.

use bus::StoredMessage;
use domain::{
    Amount, Usd,
    subject::Filter,
    wire::{DeadLetter, EndStatus, FailureKind, Outcome},
};
use trace::{Budget, ContextNode, Event, LoggedEvents, Status, Trace};

use super::{
    extra::{Extra, Extras},
    people::People,
    processes::Ground,
    work::Run,
};
use crate::{checker, cluster::Client};

/// All mistakes in runs at rest.
pub(super) async fn wrong(
    ground: &Ground,
    people: &People,
    runs: &[Run],
    traces: Vec<Trace>,
    extras: &Extras,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (run, trace) in runs.iter().zip(&traces) {
        wrong.extend(bill(ground, run, trace));
        if extras.has(Extra::NobodyStarves) && !was_corrected(people, run).await {
            wrong.extend(starved(run, trace));
        }
        if extras.has(Extra::SkewedClocks) {
            wrong.extend(short_of_time(run, trace));
        }
        if extras.has(Extra::QueuedTimeouts) {
            wrong.extend(timed_out_in_the_queue(run, trace));
        }
        if extras.has(Extra::FinalOutcomes) {
            wrong.extend(open_outcomes(people.client(), run).await);
        }
    }
    wrong.extend(checker::violations(people.client(), traces).await);
    wrong
}

/// The mistakes in the books of a run, compared with the provider's bill if the run has one.
fn bill(ground: &Ground, run: &Run, trace: &Trace) -> Vec<String> {
    let wrong = match &run.model {
        Some(model) => {
            let billed = Usd::from_nanos(ground.provider.billed(model));
            checker::against_bill(trace, billed, run.cap, run.charged)
        }
        None => checker::within(trace, run.cap),
    };
    wrong.into_iter().map(|what| format!("{}: {what}", run.trace_id)).collect()
}

/// Item 3: contexts that are paused or failed for lack of budget, although a call of this run would
/// fit all budgets above them and nothing is held.
fn starved(run: &Run, trace: &Trace) -> Vec<String> {
    // A grant to another context may have ruled the call out, and was returned since.
    if trace.contexts().iter().any(|node| node.budget.ceilings.granted.cost) {
        return Vec::new();
    }
    let for_budget = |status: &Status| match status {
        Status::Paused { .. } => true,
        Status::Ended(end) => {
            end.details.error.as_ref().is_some_and(|error| error.kind == FailureKind::Budget)
        }
        Status::Submitted { .. } | Status::Working(_) | Status::InputRequired { .. } => false,
    };
    let room = |budget: &Budget| {
        let used = budget.spent.cost_usd.nanos() + run.largest_hold.nanos();
        budget.held == Amount::ZERO && used <= budget.ceilings.limit.cost_usd.nanos()
    };
    let suffices = |node: &ContextNode| path(trace, node).all(|node| room(&node.budget));
    let agents = trace.contexts().iter().filter(|node| node.graph.is_none());
    let starved = agents.filter(|node| for_budget(&node.status) && suffices(node));
    starved
        .map(|node| format!("{}: {} was denied a call that its budget allows", run.trace_id, node.id))
        .collect()
}

/// True if an estimate was corrected. Until then, the higher estimate may have ruled out a call
/// that fits today.
async fn was_corrected(people: &People, run: &Run) -> bool {
    let log = people.client().bus.read(&Filter::EventsOf(run.trace_id)).await.expect("in memory");
    let events = |stored: &StoredMessage| {
        serde_json::from_slice::<LoggedEvents>(&stored.payload).expect("a message of the log").events
    };
    log.iter().flat_map(events).any(|event| matches!(event, Event::Corrected { .. }))
}

/// As [`starved`], for runs that are not at rest. Runs with a hold that keeps its place in the
/// queue are skipped, because other holds wait for it.
pub(super) async fn starved_now(people: &People, runs: &[Run]) -> Vec<String> {
    let mut all = Vec::new();
    for run in runs {
        let keeps = |node: &ContextNode| node.lifecycle.waiting.iter().any(|hold| hold.kept_until.is_some());
        let stored = people.stored(run.trace_id).await.filter(|trace| !trace.contexts().iter().any(keeps));
        all.extend(stored.iter().flat_map(|trace| starved(run, trace)));
    }
    all
}

/// Item 5: agents that failed because no time was left, before any deadline of theirs or of their
/// ancestors.
fn short_of_time(run: &Run, trace: &Trace) -> Vec<String> {
    let hurried = |node: &&ContextNode| {
        let Some(end) = node.end() else { return false };
        let says = end
            .details
            .error
            .as_ref()
            .is_some_and(|error| error.message.starts_with("timeout_ms: no time is left"));
        says && path(trace, node).filter_map(|node| node.lifecycle.deadline).all(|deadline| end.at < deadline)
    };
    let hurried = trace.contexts().iter().filter(|node| node.graph.is_none()).filter(hurried);
    hurried.map(|node| format!("{}: {} had time left", run.trace_id, node.id)).collect()
}

/// Item 7: contexts that timed out before their first attempt, although none of their ancestors
/// did.
fn timed_out_in_the_queue(run: &Run, trace: &Trace) -> Vec<String> {
    let timed_out =
        |node: &ContextNode| matches!(&node.status, Status::Ended(end) if end.status == EndStatus::TimedOut);
    let never_ran = |node: &&ContextNode| {
        node.graph.is_none()
            && node.attempt() == 0
            && path(trace, node).filter(|node| timed_out(node)).count() == 1
    };
    let never_ran = trace.contexts().iter().filter(|node| timed_out(node)).filter(never_ran);
    never_ran.map(|node| format!("{}: {} timed out in the queue", run.trace_id, node.id)).collect()
}

/// Item 12: outcomes that still hold something.
pub(crate) async fn open_outcomes(client: &Client, run: &Run) -> Vec<String> {
    let told = client.bus.read(&Filter::OutcomesOf(run.trace_id)).await.expect("the outcomes can be read");
    let outcomes = told.iter().map(|stored| {
        let outcome: Outcome = serde_json::from_slice(&stored.payload).expect("an outcome");
        outcome.context
    });
    let open = outcomes.filter(|outcome| outcome.budget.held != Amount::ZERO);
    open.map(|outcome| {
        format!("{}: b20: the outcome of {} holds {}", run.trace_id, outcome.child_id, outcome.budget.held)
    })
    .collect()
}

/// A context and its ancestors.
fn path<'a>(trace: &'a Trace, from: &'a ContextNode) -> impl Iterator<Item = &'a ContextNode> {
    std::iter::successors(Some(from), |node| node.parent.map(|up| trace.node(up)))
}

/// Adds the events of a run to the story.
pub(super) async fn tell(ground: &Ground, people: &People, run: &Run) {
    let log = people.client().bus.read(&Filter::EventsOf(run.trace_id)).await.expect("in memory");
    for StoredMessage { payload, .. } in log {
        let logged: LoggedEvents = serde_json::from_slice(&payload).expect("a message of the log");
        let at = std::time::Duration::from_millis(logged.at.millis_since(ground.began_at));
        let short = run.trace_id.to_string();
        for (version, event) in (logged.version..).zip(&logged.events) {
            let who = format!("run {}", &short[..6]);
            ground.story.add(at, &who, format!("{version} {}: {}", logged.child_id, words(event)));
        }
    }
}

/// Adds the dead letters to the story.
pub(super) async fn tell_dead_letters(ground: &Ground, people: &People) {
    for stored in people.client().bus.read(&Filter::Dead).await.expect("in memory") {
        let letter: DeadLetter = serde_json::from_slice(&stored.payload).expect("a dead letter");
        let at = std::time::Duration::from_millis(stored.at.millis_since(ground.began_at));
        let refusal = letter.refusal;
        let what = format!("{} of {:?}: {}", letter.subject, letter.trace_id, refusal.to_text());
        ground.story.add(at, "dead letter", what);
    }
}

/// The event without its braces and quotes.
fn words(event: &Event) -> String {
    let text = serde_json::to_string(event).expect("an event has string keys");
    text.trim_start_matches("{\"type\":").replace(['{', '}', '"'], "").replace(',', ", ")
}
