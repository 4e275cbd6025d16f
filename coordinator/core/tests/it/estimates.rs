//! The possible cost of a graph before it runs, and the demand that it fits its budget (G11).

use std::collections::BTreeMap;

use domain::{
    AgentId, StepPath, Usd, decode,
    graph::{
        CriticalPath, EarlierRun, Estimate, EstimateInputs, ExpectedCost, ObservedRun, Plan, StepEstimate,
        TaskGraph,
    },
};
use serde_json::{Value, json};
use trace::Refusal;
use world::{World, with};

fn graph(value: Value) -> (TaskGraph, Plan) {
    let graph: TaskGraph = decode::value(&value).unwrap_or_else(|problems| panic!("{problems}"));
    let plan = Plan::compile(&graph).unwrap_or_else(|problems| panic!("{problems}"));
    (graph, plan)
}

fn estimate(value: Value, items: Option<u32>) -> Estimate {
    let (graph, plan) = graph(value);
    // The profile of `critic` has a ceiling; other profiles have none.
    let profiles: BTreeMap<AgentId, Usd> = [("critic".parse().unwrap(), Usd::from_cents(2))].into();
    Estimate::of(&plan, &EstimateInputs { inputs: &graph.inputs, profiles: &profiles, items })
}

fn step(id: &str, more: Value) -> Value {
    with(json!({"id": id, "agent_id": "writer", "task_description": "do it"}), more)
}

fn find<'a>(steps: &'a [StepEstimate], id: &str) -> &'a StepEstimate {
    let inner = steps.iter().flat_map(|step| &step.steps);
    steps.iter().chain(inner).find(|step| step.id.as_str() == id).unwrap()
}

#[test]
fn g11_the_worst_case_counts_items_rounds_and_fallbacks_within_ceilings() {
    let value = json!({"inputs": {"topics": ["a", "b", "c"]}, "steps": [
        step("plain", json!({"max_cost_usd": 0.10, "retries": 5, "fallback": "editor"})),
        step("map", json!({"for_each": "topics", "max_cost_usd": 0.05})),
        step("draft", json!({"loop": {"max_rounds": 4}, "max_cost_usd": 0.01})),
        {"id": "pair", "max_cost_usd": 0.15, "loop": {"max_rounds": 2}, "steps": [
            step("one", json!({"max_cost_usd": 0.10})), step("two", json!({"max_cost_usd": 0.10})),
        ]},
        step("judge", json!({"agent_id": "critic", "max_cost_usd": 5})),
    ]});
    let estimate = estimate(value, None);
    let worst = |id: &str| find(&estimate.steps, id).worst;
    assert_eq!(
        worst("plain"),
        Some(Usd::from_cents(20)),
        "the step and its fallback; retries stay within the ceiling"
    );
    assert_eq!(worst("map"), Some(Usd::from_cents(15)));
    assert_eq!(worst("draft"), Some(Usd::from_cents(4)), "four rounds");
    assert_eq!(worst("pair"), Some(Usd::from_cents(30)), "two rounds, each bounded by the group's ceiling");
    assert_eq!(worst("judge"), Some(Usd::from_cents(2)), "the ceiling of the profile is smaller");
    assert_eq!(estimate.worst, Some(Usd::from_cents(71)));
    assert_eq!(estimate.needs(Usd::from_cents(8)), Some(Usd::from_cents(79)));
    assert_eq!(estimate.unbounded(), Vec::<String>::new());
}

#[test]
fn g11_steps_that_only_the_budget_bounds_are_named_and_never_free() {
    let value = json!({"aggregate": {}, "agent_id": "editor", "task_description": "join", "mode": "parallel", "steps": [
        step("list", json!({"output_to": "topics", "max_cost_usd": 0.01})),
        step("map", json!({"for_each": "topics", "max_cost_usd": 0.05})),
        {"id": "pair", "steps": [step("open", json!({}))]},
        {"id": "closed", "max_cost_usd": 0.2, "steps": [step("inner", json!({}))]},
    ]});
    let unknown = estimate(value.clone(), None);
    assert_eq!((unknown.worst, unknown.needs(Usd::ZERO)), (None, None));
    let named = unknown.unbounded();
    for what in [
        "`map` runs for each element of `topics`",
        "`open` has no max_cost_usd",
        "`editor`, which synthesises",
    ] {
        assert!(named.iter().any(|said| said.contains(what)), "{what}: {named:?}");
    }
    assert_eq!(named.len(), 3, "a group with a ceiling is bounded: {named:?}");
    assert_eq!(find(&estimate(value, Some(20)).steps, "map").worst, Some(Usd::from_cents(100)));
}

#[test]
fn g11_a_submission_may_demand_that_its_worst_case_fits() {
    let fits = |usd: f64, more: Value| {
        let steps =
            json!([step("one", json!({"max_cost_usd": 0.3})), step("two", json!({"max_cost_usd": 0.2}))]);
        let graph =
            with(json!({"child_id": "g", "must_fit": true, "max_cost_usd": usd, "steps": steps}), more);
        let mut world = World::new();
        world.submit_graph(graph).map(|events| (events, world))
    };
    let (_, mut world) = fits(0.5, json!({})).unwrap();
    // The same submission again is accepted, with or without the demand: it was met.
    let again = |demands: bool| {
        let steps =
            json!([step("one", json!({"max_cost_usd": 0.3})), step("two", json!({"max_cost_usd": 0.2}))]);
        json!({"child_id": "g", "must_fit": demands, "max_cost_usd": 0.5, "steps": steps})
    };
    assert_eq!(world.submit_graph(again(true)).unwrap(), []);
    assert_eq!(world.submit_graph(again(false)).unwrap(), []);
    world.check_replay();
    let why = |refused: Result<_, Refusal>| match refused.map(|_: (Vec<_>, World)| ()) {
        Err(refusal @ Refusal::DoesNotFit { .. }) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let said = why(fits(0.49, json!({})));
    assert_eq!(
        said,
        "the worst case of the graph does not fit its budget of $0.49: its steps may cost $0.50"
    );
    let said = why(fits(0.5, json!({"closing_reserve_usd": 0.01})));
    assert!(said.contains("the closing reserve of $0.01 may cost $0.51"), "{said}");
    let open = json!({"steps": [step("one", json!({}))]});
    assert!(why(fits(9.0, open)).contains("`one` has no max_cost_usd"));
}

#[test]
fn g11_a_graph_within_an_agent_must_fit_the_remaining_budget_there() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.pay(&root, "1-1", world::cents(60)).unwrap();
    let graph = |child: &str, usd: f64| json!({"child_id": child, "must_fit": true, "steps": [step("one", json!({"max_cost_usd": usd}))]});
    let refused = world.spawn_graph(&root, graph("g", 0.41)).unwrap_err();
    assert!(refused.to_string().contains("its budget of $0.40: its steps may cost $0.41"), "{refused}");
    assert_eq!(refused.code(), ("does_not_fit", "G11"));
    world.spawn_graph(&root, graph("h", 0.40)).unwrap();
    world.check_replay();
}

#[test]
fn g11_the_critical_path_is_by_time_if_all_is_known_else_by_steps() {
    let value = json!({"mode": "parallel", "steps": [
        step("slow", json!({"output_to": "a"})),
        step("fast", json!({"output_to": "b"})),
        step("next", json!({"input_from": ["b"], "output_to": "c"})),
        step("last", json!({"input_from": ["a", "c"]})),
    ]});
    let (_, plan) = graph(value);
    let id = |name: &str| name.parse::<StepPath>().unwrap();
    let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect::<Vec<_>>();
    let by_steps = CriticalPath::of(&plan, &BTreeMap::new());
    assert_eq!((by_steps.steps, by_steps.expected_ms), (ids(&["fast", "next", "last"]), None));
    let observed = |cents: u64, took_ms: u64| ObservedRun { cost: Usd::from_cents(cents), took_ms };
    let run = |slow_ms: u64, cents: u64| EarlierRun {
        whole: observed(cents, slow_ms),
        steps: [("slow", slow_ms), ("fast", 10), ("next", 20), ("last", 5)]
            .map(|(name, ms)| (id(name), observed(cents, ms)))
            .into(),
    };
    let expected = ExpectedCost::of_steps(&[run(100, 1), run(300, 4)]);
    let slow = expected[&id("slow")];
    assert_eq!((slow.runs, slow.least, slow.most), (2, Usd::from_cents(1), Usd::from_cents(4)));
    assert_eq!((slow.mean, slow.mean_ms), (Usd::from_nanos(25_000_000), 200));
    let times: BTreeMap<_, _> = expected.iter().map(|(step, of)| (step.clone(), of.mean_ms)).collect();
    let by_time = CriticalPath::of(&plan, &times);
    assert_eq!((by_time.steps, by_time.expected_ms), (ids(&["slow", "last"]), Some(205)));
    assert_eq!(ExpectedCost::of([]), None);
}

#[test]
fn g11_the_worst_case_is_computed_from_the_profiles_of_the_run() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "writer", "max_cost_usd": 0.5}));
    world.submit(json!({"goal": "g", "child_id": "root", "agent_id": "writer"})).unwrap();
    let root = world.claim("root");
    // This profile was applied after submission; the run keeps its earlier copy.
    world.agent(json!({"agent_id": "writer", "max_cost_usd": 0.05}));
    let steps = json!([step("one", json!({})), step("two", json!({}))]);
    let graph =
        json!({"child_id": "g", "must_fit": true, "max_cost_usd": 0.1, "mode": "parallel", "steps": steps});
    let refused = world.spawn_graph(&root, graph);
    assert!(matches!(refused, Err(Refusal::DoesNotFit { .. })), "{refused:?}");
}

#[test]
fn g11_g2_no_agent_overwrites_an_input_of_its_graph() {
    let mut world = World::new();
    let steps = json!([
        step("w", json!({"max_cost_usd": 0.1})),
        step("each", json!({"for_each": "w.list", "max_cost_usd": 0.1})),
    ]);
    world
        .submit_graph(json!({"child_id": "root", "must_fit": true, "max_cost_usd": 0.2,
            "inputs": {"w.list": [1]}, "steps": steps}))
        .unwrap();
    let lease = world.claim("w");
    let value = domain::Json::from(json!([1, 2, 3]));
    let set = trace::Command::SetValue { lease: lease.clone(), key: "w.list".parse().unwrap(), value };
    assert!(matches!(world.handle(set), Err(Refusal::NotWritable { .. })));
    world.complete(&lease, "x").unwrap();
    assert_eq!(world.queued().len(), 1, "{:?}", world.queued());
}

#[test]
fn g11_a_human_costs_nothing_and_the_synthesis_costs_what_its_profile_allows() {
    let synthesis =
        json!({"aggregate": {}, "agent_id": "critic", "task_description": "join", "mode": "parallel"});
    let steps = json!([step("one", json!({"max_cost_usd": 0.1})), {"id": "ok", "approve": {"who": "w"}}]);
    let estimate = estimate(with(synthesis, json!({"steps": steps})), None);
    assert_eq!(find(&estimate.steps, "ok").worst, Some(Usd::ZERO));
    assert_eq!(estimate.worst, Some(Usd::from_cents(12)));
}

#[test]
fn g11_the_element_of_an_item_is_no_input_of_the_graph() {
    let inner = step("each", json!({"for_each": "item", "max_cost_usd": 0.1}));
    let value = json!({"inputs": {"rows": [[1], [2]], "item": [1, 2, 3]}, "steps": [
        {"id": "row", "for_each": "rows", "steps": [inner]}]});
    assert_eq!(find(&estimate(value, None).steps, "each").runs, None);
}

#[test]
fn g11_times_that_are_known_of_some_steps_only_decide_no_path() {
    let (_, plan) = graph(json!({"steps": [step("a", json!({})), step("b", json!({}))]}));
    let path = |known: &[(&str, u64)]| {
        let times = known.iter().map(|(id, ms)| (id.parse().unwrap(), *ms)).collect();
        CriticalPath::of(&plan, &times).expected_ms
    };
    assert_eq!((path(&[("a", 5)]), path(&[("a", 5), ("b", 7)])), (None, Some(12)));
}

#[test]
fn g11_the_worst_case_must_fit_the_remaining_budget_by_the_ceilings_of_profiles() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "writer", "max_cost_usd": 0.5}));
    world.submit(json!({"goal": "g", "child_id": "root", "max_cost_usd": 2})).unwrap();
    let root = world.claim("root");
    let steps = json!([step("one", json!({})), step("two", json!({}))]);
    let graph = |name: &str| json!({"child_id": name, "must_fit": true, "max_cost_usd": 1, "mode": "parallel", "steps": steps});
    world.spawn_graph(&root, graph("fits")).unwrap();
    world.cancel(Some("fits")).unwrap();
    world.pay(&root, "1-1", world::cents(101)).unwrap();
    let refused = world.spawn_graph(&root, graph("too-much"));
    assert!(matches!(refused, Err(Refusal::DoesNotFit { .. })), "{refused:?}");
}
