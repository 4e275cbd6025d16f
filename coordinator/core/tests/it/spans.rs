//! The spans of contexts (X4): their names and parents. The tree stays complete for a context that
//! is queued very often, and its stored spans stay bounded.

use std::collections::HashSet;

use domain::{
    ChildId, Usd,
    span::{Span, SpanEvent, SpanId, Value},
    wire::Verdict,
};
use serde_json::json;
use world::{World, cents, id, invariants};

fn spans(world: &World, child: &ChildId) -> Vec<Span> {
    world.trace.spans(child, world.now)
}

/// An agent that was claimed and handed back this often.
fn handed_back(times: u32) -> (World, Vec<bool>) {
    let mut world = World::exported();
    world.submit(json!({"goal": "the root's goal", "child_id": "root"})).unwrap();
    let mut told = Vec::new();
    for _ in 0..times {
        told.push(world.trace.is_told(&id("root")));
        let lease = world.claim("root");
        world.pass(1_000);
        world.report(&lease, Verdict::HandedBack).unwrap();
    }
    (world, told)
}

#[test]
fn x4_a_context_that_is_queued_very_often_gets_no_more_spans_and_leaves_no_orphans() {
    let (mut world, told) = handed_back(300);
    let kept = told.iter().filter(|told| **told).count();
    assert!((100..=256).contains(&kept), "{kept} attempts are listed");
    assert!(told.is_sorted_by_key(|told| !told), "after the limit no attempt is listed");
    let marks = world.node("root").marks.len();
    assert!(marks <= 258, "{marks} marks");

    let lease = world.claim("root");
    world.complete(&lease, "done").unwrap();
    world.rest();
    invariants::check_spans(&world.trace).unwrap();
    let ids: HashSet<SpanId> = spans(&world, &id("root")).iter().map(|span| span.span_id).collect();
    for (before, told) in told.iter().enumerate() {
        let attempt = SpanId::of(world.trace.id(), &format!("root.{}", before + 1));
        assert_eq!(
            ids.contains(&attempt),
            *told,
            "the spans of a worker for attempt {} have a parent",
            before + 1
        );
    }
}

#[test]
fn x4_the_stored_size_of_spans_does_not_grow_with_the_attempts() {
    let written = |times: u32| {
        let (mut world, _) = handed_back(times);
        world.measured();
        let lease = world.claim("root");
        let claimed = world.written();
        world.report(&lease, Verdict::HandedBack).unwrap();
        claimed + world.written()
    };
    let (tenth, hundredth, last) = (written(10), written(100), written(300));
    assert!(hundredth < tenth + 50, "{tenth} bytes, then {hundredth}");
    assert!(last <= hundredth, "{hundredth} bytes, then {last}");
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no `{name}` in {spans:#?}"))
}

#[test]
fn x4_a_graph_is_called_alike_in_all_its_runs_and_an_approval_is_no_agent() {
    let mut world = World::exported();
    let graph = json!({"name": "report", "mode": "parallel", "child_id": "report-059fd2a2e588", "agent_id": "editor", "aggregate": {}, "task_description": "Report.",
    "steps": [
        {"id": "each", "mode": "parallel", "steps": [{"id": "a", "agent_id": "writer", "task_description": "x"}]},
        {"id": "release", "approve": {"who": "me", "question": "Ship it?"}},
    ]});
    world.submit_graph(graph).unwrap();
    let all: Vec<Span> =
        world.trace.contexts().iter().flat_map(|node| world.trace.spans(&node.id, world.now)).collect();
    let workflow =
        |span: &Span| span.attributes.iter().find(|(name, _)| name == "gen_ai.workflow.name").cloned();
    for name in ["invoke_workflow report", "invoke_workflow each", "invoke_agent writer", "approve release"] {
        let span = named(&all, name);
        assert_eq!(workflow(span).map(|(_, value)| value), Some(Value::from("report")), "{name}");
    }
    let operation =
        |name: &str| named(&all, name).attributes.iter().any(|(of, _)| of == "gen_ai.operation.name");
    assert!(operation("invoke_workflow each") && !operation("approve release"));
}

#[test]
fn x4_the_span_of_a_lost_attempt_has_its_forfeited_holds_and_a_later_cost_is_booked_once() {
    let mut world = World::exported();
    world.submit(json!({"goal": "the root's goal", "child_id": "root", "max_cost_usd": 1})).unwrap();
    let first = world.claim("root");
    world.hold(&first, "1-1", cents(10)).unwrap();
    world.pass(60_000);
    let second = world.claim("root");
    world.resume(&second, &[]).unwrap();
    let forfeited = |world: &World, attempt: &str| -> Vec<Usd> {
        let attempt = SpanId::of(world.trace.id(), &format!("root.{attempt}"));
        let all = spans(world, &id("root"));
        let of = all.iter().find(|span| span.span_id == attempt).unwrap_or_else(|| panic!("{all:#?}"));
        let told = of.events.iter().filter(|event| event.name == "trellis.budget.forfeited");
        let amount = |event: &SpanEvent| {
            let amount = event.attributes.iter().find(|(name, _)| name == "trellis.budget.amount_usd");
            amount.and_then(|(_, value)| if let Value::Usd(usd) = value { Some(*usd) } else { None })
        };
        told.filter_map(amount).collect()
    };
    assert_eq!((forfeited(&world, "1"), forfeited(&world, "2")), (vec![Usd::from_cents(10)], vec![]));
    // The first worker was only slow: it reports the cost in its own span, and the forfeited amount
    // becomes zero.
    world.settle(&first, "1-1", cents(3)).unwrap();
    assert_eq!(forfeited(&world, "1"), [Usd::ZERO]);
}

#[test]
fn x4_steps_that_are_skipped_leave_room_for_the_attempts_of_their_graph() {
    let mut world = World::exported();
    let step = |number: usize| json!({"id": format!("s{number}"), "agent_id": "writer", "task_description": "x", "when": "false"});
    let steps: Vec<_> = (0..300).map(step).collect();
    world.submit_graph(json!({"name": "many", "child_id": "many", "agent_id": "editor", "task_description": "Report.", "aggregate": {}, "steps": steps})).unwrap();
    assert!(world.trace.is_told(&id("many")));
    let told = named(&spans(&world, &id("many")), "invoke_workflow many").events.len();
    assert_eq!(told, 128);
}
