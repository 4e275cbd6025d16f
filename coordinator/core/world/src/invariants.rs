//! Checks the invariants of budgets and traces. It computes every sum again from the contexts,
//! without using the sums that the trace keeps.

use std::collections::HashMap;

use domain::{
    Amount, Timestamp, Tokens, Usd,
    span::{Span, SpanId},
    wire::{Decision, Dispute, StepStatus},
};
use trace::{CallState, ContextNode, Event, Phase, RunPhase, Status, Trace};

/// b1, b2, b3, and the counters that a trace keeps, including its bytes (L).
pub fn check(trace: &Trace) -> Result<(), String> {
    let known: u64 = trace.spent_by().iter().map(|one| one.cost_usd.nanos()).sum();
    let spent = trace.root().map_or(0, |root| root.budget.spent.cost_usd.nanos());
    ensure(known == spent, || format!("{spent} nanodollars were spent, and contexts are known for {known}"))?;
    for node in trace.contexts() {
        check_context(trace, node).map_err(|what| format!("{} of {}: {what}", node.id, trace.id()))?;
    }
    // Counting a large trace takes long: it is checked at every eighth version, and a trace of
    // megabytes at every sixty-fourth.
    let every = match trace.content_bytes() {
        2_000_000.. => 64,
        200_000.. => 8,
        _ if trace.contexts().len() > 50 => 8,
        _ => 1,
    };
    if !trace.version().is_multiple_of(every) {
        return Ok(());
    }
    let (counted, there) = (trace.content_bytes(), trace.recounted_bytes());
    ensure(counted == there, || format!("L: {} stores {there} bytes and has counted {counted}", trace.id()))
}

fn check_context(trace: &Trace, node: &ContextNode) -> Result<(), String> {
    let budget = &node.budget;
    let add = |a: Amount, b: Amount| a.checked_add(b).expect("sums stay in range");
    let used = add(budget.spent, budget.held);
    let allowed = add(budget.ceilings.limit, budget.uncovered);
    ensure(used.exceeds(allowed).is_none(), || format!("b1: spent + held = {used}, allowed {allowed}"))?;

    let calls = node.calls.kept();
    let open = calls.values().filter(|call| call.state == CallState::Held);
    let own_held = open.clone().fold(Amount::ZERO, |sum, call| add(sum, call.held));
    let parent_hold = |child: &ContextNode| child.budget.parent_hold(child.is_live());
    let children: Vec<&ContextNode> = node.children.iter().map(|child| trace.node(*child)).collect();
    let own_held = add(own_held, budget.reserved);
    let held = children.iter().fold(own_held, |sum, child| add(sum, parent_hold(child)));
    ensure(budget.held == held, || format!("b2: held {}, its holds and grants are {held}", budget.held))?;
    let carved = children
        .iter()
        .fold(budget.reserved, |sum, child| add(sum, child.budget.granted_parent_hold(child.is_live())));
    ensure(budget.carved == carved, || format!("b2: carved {}, the grants are {carved}", budget.carved))?;
    let listed: Vec<_> = node.calls.open().collect();
    ensure(listed.iter().all(|(_, call)| call.state == CallState::Held), || "a closed call is open".into())?;
    ensure(listed.len() == open.count(), || "the open calls are off".into())?;

    let own = calls.values().fold(node.calls.folded_amount(), |sum, call| match call.state {
        CallState::Settled(amount) => add(sum, amount),
        CallState::Forfeited => add(sum, call.held),
        CallState::Held | CallState::Released => sum,
    });
    let own = node.charges.values().fold(own, |sum, amount| add(sum, *amount));
    let accepted = |dispute: &&Dispute| dispute.decision == Some(Decision::Accepted);
    let own = node.disputes.iter().filter(accepted).fold(own, |sum, dispute| add(sum, dispute.amount));
    ensure(budget.own == own, || format!("b3: own {}, its calls cost {own}", budget.own))?;
    let spent = children.iter().fold(own, |sum, child| add(sum, child.budget.spent));
    ensure(budget.spent == spent, || format!("b3: spent {}, own and children's are {spent}", budget.spent))?;
    let forfeited = calls.values().filter(|call| call.state == CallState::Forfeited);
    let estimated = forfeited.fold(Amount::ZERO, |sum, call| add(sum, call.held));
    let estimated = children.iter().fold(estimated, |sum, child| add(sum, child.budget.estimated));
    ensure(budget.estimated == estimated, || {
        format!("b3: estimated {}, forfeits {estimated}", budget.estimated)
    })?;

    let open = node.disputes.iter().filter(|dispute| dispute.decision.is_none());
    let disputed = open.fold(Amount::ZERO, |sum, dispute| add(sum, dispute.amount));
    let disputed = children.iter().fold(disputed, |sum, child| add(sum, child.budget.disputed));
    ensure(budget.disputed == disputed, || {
        format!("B18: disputed {}, its disputes are {disputed}", budget.disputed)
    })?;

    ensure(node.lifecycle.seen as usize <= node.told.len(), || {
        "G13: it has seen messages that were never sent".into()
    })?;
    ensure(node.lifecycle.rungs as usize <= trace.ladder(node).len(), || {
        "B21: there is no such rung".into()
    })?;

    let parked = match &node.status {
        Status::InputRequired { .. } => 1,
        Status::Paused { .. } => u32::from(node.lifecycle.waiting.is_empty()),
        Status::Submitted { .. } | Status::Working(_) | Status::Ended(_) => 0,
    };
    let parked = children.iter().fold(parked, |sum, child| sum + child.lifecycle.waiting_for_humans);
    ensure(node.lifecycle.waiting_for_humans == parked, || {
        format!("{} wait for humans here and beneath, counted {}", parked, node.lifecycle.waiting_for_humans)
    })?;
    let questions =
        children.iter().fold(u32::from(node.asks()), |sum, child| sum + child.lifecycle.questions);
    ensure(node.lifecycle.questions == questions, || {
        format!("G7: {questions} have asked here and beneath, counted {}", node.lifecycle.questions)
    })?;
    let final_now = !node.is_live() && budget.held.is_zero() && node.undoing == 0;
    ensure(!(final_now && node.lifecycle.outcome_due), || {
        "B20: nothing is held, and its outcome is due".into()
    })?;
    let live = children.iter().filter(|child| child.is_live()).count();
    ensure(node.live_children as usize == live, || "live_children is off".into())?;
    let goes_on = |child: &&&ContextNode| child.is_live() && !child.is_undoing();
    let orphans = children.iter().filter(goes_on).count();
    ensure(node.is_live() || orphans == 0, || "t1: it has ended, a child of it has not".into())?;
    check_undo(trace, node, &children)?;
    let above = node.parent.map(|parent| trace.node(parent).budget.ceilings.limit);
    ensure(above.is_none_or(|above| budget.ceilings.limit.exceeds(above).is_none()), || {
        "its ceiling is above its parent's".into()
    })?;
    check_graph(trace, node)
}

/// G14: the reserve of a graph equals the reserves of its running steps and of all succeeded runs
/// in it that are not undone yet. Only undos run in an undoing graph.
fn check_undo(trace: &Trace, node: &ContextNode, children: &[&ContextNode]) -> Result<(), String> {
    let undoing = children.iter().fold(u32::from(node.is_undoing()), |sum, child| sum + child.undoing);
    ensure(node.undoing == undoing, || {
        format!("G14: {undoing} undo here and beneath, not {}", node.undoing)
    })?;
    let odd =
        |child: &&&ContextNode| child.is_live() && !child.is_undoing() && child.identity.undoes.is_none();
    ensure(!node.is_undoing() || !children.iter().any(|child| odd(&child)), || {
        "G14: it undoes, and a step of it runs".into()
    })?;
    let undoes = node.identity.undoes.map(|of| trace.node(of));
    ensure(undoes.is_none_or(|of| of.undo.as_ref().is_some_and(|undo| undo.by.is_some())), || {
        "G14: it undoes what does not know it".into()
    })?;
    let reserved = if node.is_live() { reserved(trace, node) } else { Amount::ZERO };
    ensure(node.budget.reserved == reserved, || {
        format!("G14: it holds {} for undos, and they need {reserved}", node.budget.reserved)
    })
}

/// The amount that the undos of the steps in a graph, and in its ended groups, need.
fn reserved(trace: &Trace, graph: &ContextNode) -> Amount {
    let steps =
        graph.children.iter().map(|child| trace.node(*child)).filter(|child| child.identity.step.is_some());
    steps.fold(Amount::ZERO, |sum, step| {
        let add = |a: Amount, b: Amount| a.checked_add(b).expect("sums stay in range");
        let open = step.undo.as_ref().filter(|undo| undo.by.is_none() && undo.refused.is_none());
        let sum = add(sum, open.map_or(Amount::ZERO, |undo| undo.reserve));
        let own = step.end().is_some_and(|end| end.without_undo);
        if step.is_live() || own || step.graph.is_none() { sum } else { add(sum, reserved(trace, step)) }
    })
}

fn check_graph(trace: &Trace, node: &ContextNode) -> Result<(), String> {
    let Some(run) = &node.graph else { return Ok(()) };
    let open = |status| matches!(status, StepStatus::Pending | StepStatus::Running);
    let unfinished = run.steps.iter().filter(|step| open(step.status)).count();
    ensure(run.progress.unfinished as usize == unfinished, || {
        format!("unfinished is {}, steps not ended are {unfinished}", run.progress.unfinished)
    })?;
    ensure(node.is_live() || unfinished == 0, || "the graph has ended, a step of it has not".into())?;
    let startable = |step: &trace::StepRun| match (&step.items, step.status) {
        (_, StepStatus::Pending) => true,
        (Some(items), StepStatus::Running) => items.started < items.total,
        (None, StepStatus::Running) => step.next.is_some(),
        _ => false,
    };
    ensure(run.ready().all(|step| startable(&run.steps[step as usize])), || {
        "ready holds what can't start".into()
    })?;
    let is_live = |context: &trace::ContextIndex| trace.node(*context).is_live();
    for (number, step) in (0u32..).zip(run.steps.iter()).filter(|_| node.is_live()) {
        let moves = step.contexts.iter().any(is_live) || run.ready().any(|ready| ready == number);
        ensure(step.status != StepStatus::Running || moves, || {
            format!("step {number} runs, and nothing moves it")
        })?;
        ensure(step.next.is_none() || run.ready().any(|ready| ready == number), || {
            format!("step {number} is not in the queue")
        })?;
    }
    if matches!(node.status, Status::Paused { .. }) && run.progress.phase == RunPhase::Steps {
        let mut chain =
            std::iter::successors(Some(node), |node| node.parent.map(|parent| trace.node(parent)));
        let nothing = |left: Amount| left.cost_usd == Usd::ZERO || left.tokens == Tokens::ZERO;
        let starved = chain.any(|node| {
            let calls_in_flight = node.budget.held != node.budget.carved;
            node.lifecycle.exhausted.is_some() || calls_in_flight || nothing(node.budget.left_for_children())
        });
        ensure(starved, || "the graph is paused, but no context needs a larger budget".into())?;
    }
    let ready = run.steps.iter().filter(|step| step.ready.is_some()).count();
    ensure(ready == run.ready().count(), || "steps and their queue differ".into())?;
    let waits =
        node.live_children > 0 || node.undoing > 1 || !matches!(node.status, Status::Working(Phase::Steps));
    ensure(waits, || "a graph that is live, runs nothing and waits for nothing is stuck".into())
}

/// b4: when every context has ended and every timer has run, no hold is open.
pub fn check_at_rest(trace: &Trace) -> Result<(), String> {
    check(trace)?;
    for node in trace.contexts() {
        ensure(!node.is_live(), || format!("t1: {} is live at rest", node.id))?;
        ensure(node.budget.held == Amount::ZERO, || format!("b4: {} holds {}", node.id, node.budget.held))?;
    }
    check_spans(trace)?;
    ensure(trace.next_timer().is_none(), || "a timer is left".into())
}

/// X4: the spans of all contexts form one tree: every id is unique, every parent exists, and no
/// span lies outside the tree.
pub fn check_spans(trace: &Trace) -> Result<(), String> {
    let of = |node: &ContextNode| trace.spans(&node.id, Timestamp::from_millis(u64::MAX / 2_000_000));
    let spans: Vec<Span> = trace.contexts().iter().flat_map(of).collect();
    let by_id: HashMap<SpanId, &Span> = spans.iter().map(|span| (span.span_id, span)).collect();
    ensure(by_id.len() == spans.len(), || {
        let mut seen = HashMap::new();
        let twice = spans.iter().find(|span| seen.insert(span.span_id, &span.name).is_some());
        format!("X4: two spans have one id: {twice:?}")
    })?;
    for span in &spans {
        let Some(parent) = span.parent else { continue };
        let Some(parent) = by_id.get(&parent) else {
            return Err(format!("X4: the parent of {span:?} is missing"));
        };
        ensure(parent.start <= span.start && span.end <= parent.end, || {
            format!("X4: {span:?} lies outside of {parent:?}")
        })?;
    }
    Ok(())
}

/// t9: replaying the events gives the identical trace, and so does reading it from its stored form.
pub fn check_replay(trace: &Trace, log: &[(Timestamp, Event)]) -> Result<(), String> {
    let trace = &trace.without_renewals();
    let mut again = Trace::new(trace.id());
    let (mut fields, mut values) = (HashMap::new(), HashMap::new());
    let put = |stored: &mut HashMap<String, String>, changes: Vec<(String, Option<String>)>| {
        for (name, text) in changes {
            match text {
                Some(text) => stored.insert(name, text),
                None => stored.remove(&name),
            };
        }
    };
    for (at, event) in log {
        let text = serde_json::to_string(event).map_err(|e| format!("t9: {e} on {event:?}"))?;
        let read: Event = serde_json::from_str(&text).map_err(|e| format!("t9: {e} on {text}"))?;
        ensure(read == *event, || format!("t9: {text} reads back as {read:?}"))?;
        again.apply(&read, *at);
        let changes = again.take_changes();
        put(&mut fields, changes.fields);
        put(&mut values, changes.values);
    }
    ensure(again == *trace, || "t9: replaying the events gives another trace".into())?;
    let read = Trace::from_stored(trace.id(), trace.version(), &fields, &values);
    let read = read.map_err(|error| format!("t9: {error}"))?;
    ensure(read == *trace, || "t9: what is stored reads back as another trace".into())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
