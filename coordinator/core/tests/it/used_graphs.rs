//! A graph as a step (G1, G2): its keys and step ids are separate, and it runs as a group does.

use domain::{
    decode,
    graph::{CriticalPath, Estimate, EstimateInputs, Plan},
    wire::{GraphVerdict, StepReport},
};
use serde_json::{Value, json};
use trace::{Refusal, Trace};
use world::{World, cents, id, with};

use super::graph_flow::{expect, queued, step, verdict};

/// Drafts a text about a topic, then improves it.
fn inner(more: Value) -> Value {
    let schema = json!({
        "required": ["topic"], "additionalProperties": false,
        "properties": {"topic": {"type": "string"}, "tone": {"default": "dry"}, "notes": {}},
    });
    with(
        json!({
            "name": "essay", "input_schema": schema, "output": "text",
            "steps": [
                step("draft", json!({"input_from": ["topic", "tone"], "output_to": "raw"})),
                step("edit", json!({"input_from": ["raw"], "output_to": "text"})),
            ],
        }),
        more,
    )
}

/// Two uses of one graph, whose keys and ids also exist in the outer graph, and a step that reads
/// both.
fn twice() -> Value {
    json!({"inputs": {"raw": "ants", "topic": "bees"}, "mode": "parallel", "steps": [
        {"id": "one", "graph": inner(json!({})), "with": {"topic": "raw"}, "output_to": "first"},
        {"id": "two", "graph": inner(json!({})), "with": {"topic": {"value": "wasps"}, "tone": "topic"}, "output_to": "text"},
        step("draft", json!({"input_from": ["first", "text"]})),
    ]})
}

fn inputs(world: &World, child: &str) -> Value {
    serde_json::to_value(&world.work(&id(child)).unwrap().inputs).unwrap()
}

fn refused(graph: Value) -> String {
    match World::new().submit_graph(graph).unwrap_err() {
        Refusal::Malformed(problems) => problems.to_string(),
        other => panic!("{other}"),
    }
}

/// The stored trace and the replayed log both equal the trace.
fn check(world: &World) {
    world.check_replay();
    let changes = {
        let mut copy = world.trace.clone();
        copy.mark_all_changed();
        copy.take_changes()
    };
    let some = |(name, text): (String, Option<String>)| Some((name, text?));
    let fields = changes.fields.into_iter().filter_map(some).collect();
    let values = changes.values.into_iter().filter_map(some).collect();
    let stored = Trace::from_stored(world.trace.id(), world.trace.version(), &fields, &values).unwrap();
    assert!(stored == world.trace, "the stored trace differs");
}

fn reports(world: &World) -> Vec<StepReport> {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().steps
}

#[test]
fn g1_two_uses_of_one_graph_have_keys_and_ids_of_their_own() {
    let mut world = World::with_graph(twice());
    assert_eq!(queued(&world), ["one-draft", "two-draft"]);
    assert_eq!(inputs(&world, "one-draft"), json!({"topic": "ants", "tone": "dry"}));
    assert_eq!(inputs(&world, "two-draft"), json!({"topic": "wasps", "tone": "bees"}));
    world.run("one-draft", "about ants");
    world.run("two-draft", "about wasps");
    assert_eq!(inputs(&world, "one-edit"), json!({"raw": "about ants"}));
    assert_eq!(inputs(&world, "two-edit"), json!({"raw": "about wasps"}));
    check(&world);
    world.run("two-edit", "Wasps.");
    world.run("one-edit", "Ants.");
    assert_eq!(inputs(&world, "draft"), json!({"first": "Ants.", "text": "Wasps."}));
    world.run("draft", "done");
    expect(&world, "graph", &[("one", "succeeded"), ("two", "succeeded"), ("draft", "succeeded")]);
    let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
    let outputs = serde_json::to_value(&outcome.outputs).unwrap();
    assert_eq!(outputs, json!({"first": "Ants.", "text": "Wasps."}), "an inner key is not an output");
    assert_eq!(outcome.steps[0].result, Some(json!("Ants.").into()));
    let inner: Vec<&str> = outcome.steps[0].steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(inner, ["draft", "edit"]);
    check(&world);
    world.rest();
}

#[test]
fn g2_mistakes_within_and_around_a_graph_as_a_step_come_in_one_answer() {
    let told = refused(json!({"inputs": {"here": 1, "two.raw": 1}, "steps": [
        {"id": "one", "retries": 2, "input_from": ["here"], "with": {"topik": "here", "tone": "nowhere"},
         "graph": inner(json!({"labels": {"a": "b"}, "output": "nothing", "steps": [
            step("draft", json!({"input_from": ["here"], "depends_on": ["last"], "when": "steps.last.status == 'failed'"})),
            step("draft", json!({"output_to": "topic"}))]}))},
        {"id": "two", "graph": inner(json!({"inputs": {"tone": 1}})), "with": {"topic": {"value": 7}}, "use": "x.yaml"},
        step("last", json!({"input_from": ["raw"], "depends_on": ["edit"], "with": {"a": "b"}})),
    ]}));
    for expected in [
        "steps[0].retries: a step that uses a graph can't have `retries`",
        "steps[0].input_from: a step that uses a graph can't have `input_from`",
        "steps[0].with.topik: the graph has no such input\n  hint: did you mean `topic`?",
        "steps[0].with.tone: nothing writes `nowhere`",
        "steps[0].with: `topic` is missing",
        "steps[0].graph.labels: `labels` belongs to a submission",
        "steps[0].graph.output: nothing writes `nothing`",
        "steps[0].graph.steps[0].input_from[0]: nothing writes `here`",
        "steps[0].graph.steps[0].depends_on[0]: there is no step `last`",
        "steps[0].graph.steps[0].when: there is no step `last`",
        "steps[0].graph.steps[1].id: duplicate id `draft`",
        "steps[0].graph.steps[1].output_to: `topic` is an input of the graph",
        "steps[1].with.topic: it should be a string, not 7",
        "steps[1].use: it has a `graph` too",
        "steps[2].input_from[0]: nothing writes `raw`",
        "steps[2].depends_on[0]: there is no step `edit`",
        "steps[2].with: only a step that uses a graph gives it inputs",
        "inputs.two.raw: it would be a key of the graph that `two` uses",
    ] {
        assert!(told.contains(expected), "{expected} is not in\n{told}");
    }
    let deep = (0..9).fold(
        inner(json!({})),
        |graph, _| json!({"steps": [{"graph": graph, "with": {"topic": {"value": "x"}}}]}),
    );
    let told = refused(deep);
    assert!(told.contains("nest deeper than 8"), "{told}");
}

#[test]
fn g1_inputs_that_do_not_fit_fail_the_step_before_anything_of_it_runs() {
    let graph = json!({"on_partial_success": "continue", "steps": [
        step("a", json!({"output_to": "found"})),
        {"id": "b", "graph": inner(json!({})), "with": {"topic": "found"}},
    ]});
    let mut world = World::with_graph(graph);
    world.run("a", json!({"not": "a text"}));
    expect(&world, "graph", &[("a", "succeeded"), ("b", "failed")]);
    let reason = reports(&world)[1].reason.clone().unwrap();
    assert!(reason.contains("inputs.topic: it should be a string"), "{reason}");
    assert!(world.trace.context(&id("b")).is_none());
    world.rest();
    // A missing input skips the step; under best effort it is null.
    let graph = |policy: &str| {
        json!({"on_partial_success": policy, "mode": "parallel", "steps": [
            step("a", json!({"output_to": "found"})), step("c", json!({})),
            {"id": "b", "graph": inner(json!({"input_schema": {"properties": {"topic": {}, "tone": {"default": "dry"}, "notes": {}}}})), "with": {"topic": "found"}},
        ]})
    };
    for (policy, status) in [("continue", "skipped"), ("best_effort", "running")] {
        let mut world = World::with_graph(graph(policy));
        world.break_it("a");
        let statuses = super::graph_flow::statuses(&world, "graph");
        assert_eq!(statuses[2].1, status);
    }
}

#[test]
fn g1_the_result_of_a_graph_as_a_step_fits_its_output_schema_or_the_step_fails() {
    let graph = json!({"steps": [
        {"id": "b", "graph": inner(json!({"output_schema": {"type": "integer"}})), "with": {"topic": {"value": "x"}}, "output_to": "n",
         "fallback": {"agent_id": "critic", "task_description": "try"}},
        step("after", json!({"input_from": ["n"]})),
    ]});
    let mut world = World::with_graph(graph.clone());
    world.run("b-draft", "x");
    world.run("b-edit", 7);
    assert_eq!(inputs(&world, "after"), json!({"n": 7}));
    let mut world = World::with_graph(graph);
    world.run("b-draft", "x");
    world.run("b-edit", "seven");
    assert_eq!(queued(&world), ["b-fallback"]);
    world.run("b-fallback", 8);
    assert_eq!(inputs(&world, "after"), json!({"n": 8}));
    world.run("after", "done");
    world.rest();
}

#[test]
fn g1_a_graph_runs_for_each_element_and_its_values_go_with_the_item() {
    let graph = json!({"inputs": {"topics": ["ants", "bees"]}, "steps": [
        {"id": "map", "for_each": {"in": "topics", "max_parallel": 1}, "graph": inner(json!({})),
         "with": {"topic": "item", "notes": "index"}, "output_to": "texts"},
        step("after", json!({"input_from": ["texts"]})),
    ]});
    let mut world = World::with_graph(graph);
    assert_eq!(queued(&world), ["map-draft-1"]);
    assert_eq!(inputs(&world, "map-draft-1"), json!({"topic": "ants", "tone": "dry"}));
    world.run("map-draft-1", "a");
    check(&world);
    world.run("map-edit-1", "A");
    let keys = |world: &World| world.trace.values().keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(keys(&world), ["map-2.notes", "map-2.tone", "map-2.topic", "topics"]);
    world.run("map-draft-2", "b");
    world.run("map-edit-2", "B");
    assert_eq!(inputs(&world, "after"), json!({"texts": ["A", "B"]}));
    world.run("after", "done");
    world.rest();
}

#[test]
fn g1_a_graph_in_a_loop_gets_what_the_round_before_gave() {
    let graph = json!({"inputs": {"seed": "x"}, "steps": [
        {"id": "again", "graph": inner(json!({"input_schema": {"properties": {"topic": {}, "tone": {"default": "dry"}, "notes": {}}}})), "with": {"topic": "best", "notes": "seed"}, "output_to": "best",
         "loop": {"max_rounds": 3, "until": "outputs.best == 'good'"}},
    ]});
    let mut world = World::with_graph(graph);
    assert_eq!(inputs(&world, "again-draft"), json!({"topic": null, "tone": "dry"}));
    world.run("again-draft", "a");
    world.run("again-edit", "better");
    let second = queued(&world)[0].clone();
    assert_eq!(inputs(&world, &second)["topic"], "better");
    let values: Vec<_> =
        world.trace.values().keys().filter(|key| key.as_str().starts_with("again-r1.")).collect();
    assert!(values.is_empty(), "values of an ended round remain: {values:?}");
    world.run(&second, "b");
    let edit = queued(&world)[0].clone();
    world.run(&edit, "good");
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["best"], "good");
    world.rest();
    // The outer graph does not see its inner steps.
    let told =
        refused(json!({"steps": [{"id": "g", "graph": inner(json!({})), "with": {"topic": {"value": "x"}},
        "loop": {"max_rounds": 2, "until": "steps.edit.status == 'succeeded' || outputs.raw == 1"}}]}));
    assert!(told.contains("there is no step `edit`") && told.contains("nothing writes `raw`"), "{told}");
}

#[test]
fn g1_races_humans_conditions_and_graphs_within_a_graph_as_a_step() {
    let innermost = inner(json!({"race": true, "output": null, "steps": [
        step("x", json!({"input_from": ["topic"]})), step("y", json!({}))]}));
    let mut innermost = innermost;
    innermost.as_object_mut().unwrap().remove("output");
    let middle = json!({"inputs": {"name": "none"}, "output": {"won": "won", "said": "said"}, "steps": [
        {"id": "race", "graph": innermost, "with": {"topic": "name"}, "output_to": "won"},
        {"id": "ask", "approve": {"who": "me"}, "output_to": "said", "when": "steps.race.status == 'succeeded'"},
        step("never", json!({"when": "outputs.said == 'no'"})),
    ]});
    let graph = json!({"inputs": {"ants": "ants"}, "steps": [
        step("race", json!({})),
        {"id": "deep", "graph": middle, "with": {"name": "ants"}, "when": "steps.race.status == 'succeeded'", "output_to": "all", "depends_on": ["race"]},
        step("last", json!({"input_from": ["all"]})),
    ]});
    let mut world = World::with_graph(graph);
    world.run("race", "ok");
    assert_eq!(queued(&world), ["deep-race-x", "deep-race-y"]);
    assert_eq!(inputs(&world, "deep-race-x"), json!({"topic": "ants"}));
    world.run("deep-race-y", "why");
    check(&world);
    world.answer_by("deep-ask", "approve", "me").unwrap();
    assert_eq!(inputs(&world, "last"), json!({"all": {"won": "why", "said": "approve"}}));
    world.run("last", "done");
    world.rest();
}

#[test]
fn g8_a_cancel_and_b_a_ceiling_reach_into_a_graph_as_a_step() {
    let graph = json!({"max_cost_usd": 1, "steps": [
        {"id": "g", "graph": inner(json!({"max_cost_usd": 0.2, "closing_reserve_usd": 0.05, "limits": {"max_steps": 7}})), "max_cost_usd": 0.5,
         "with": {"topic": {"value": "x"}}},
    ]});
    let mut world = World::with_graph(graph);
    assert_eq!(
        world.node("g").budget.ceilings.limit.cost_usd,
        cents(20).cost_usd,
        "the smaller ceiling applies"
    );
    assert_eq!(world.work(&id("g-draft")).unwrap().limits.max_steps, 7);
    let lease = world.claim("g-draft");
    assert!(world.hold(&lease, "c1", cents(16)).is_err(), "the steps can't use the reserve");
    world.cancel(Some("g")).unwrap();
    assert_eq!((world.status("g-draft").as_str(), world.status("graph").as_str()), ("cancelled", "failed"));
    world.rest();
}

#[test]
fn g15_a_rerun_takes_the_steps_of_a_graph_as_a_step_and_from_names_them() {
    let mut world = World::with_graph(twice());
    world.run("one-draft", "about ants");
    world.run("one-edit", "Ants.");
    world.run("two-draft", "about wasps");
    world.break_it("two-edit");
    let mut again = world.rerun(json!({})).unwrap();
    assert_eq!(queued(&again), ["two-edit"]);
    assert_eq!(inputs(&again, "two-edit"), json!({"raw": "about wasps"}));
    check(&again);
    again.run("two-edit", "Wasps.");
    assert_eq!(inputs(&again, "draft"), json!({"first": "Ants.", "text": "Wasps."}));
    again.run("draft", "done");
    again.rest();
    let mut from = again.rerun(json!({"rerun": {"from": ["one/edit"]}})).unwrap();
    assert_eq!(queued(&from), ["one-draft"], "the whole graph was taken, without its steps");
    from.run("one-draft", "x");
    let mut from = world.rerun(json!({"rerun": {"from": ["one/edit"]}})).unwrap();
    assert_eq!(queued(&from), ["one-edit", "two-edit"]);
    assert_eq!(inputs(&from, "one-edit"), json!({"raw": "about ants"}));
    from.run("one-edit", "ANTS");
    from.run("two-edit", "W");
    assert_eq!(inputs(&from, "draft"), json!({"first": "ANTS", "text": "W"}));
    // Another input value: the graph that reads it runs again, and the other one stays.
    let other = world.rerun(json!({"inputs": {"raw": "flies"}})).unwrap();
    assert_eq!(queued(&other), ["one-draft", "two-edit"]);
    assert_eq!(inputs(&other, "one-draft")["topic"], "flies");
    let unknown = world.rerun(json!({"rerun": {"from": ["one/edti", "edit"]}})).err().unwrap().to_string();
    assert!(unknown.contains("did you mean `one/edit`?") && unknown.contains("no step `edit`"), "{unknown}");
}

#[test]
fn g13_an_amend_reaches_steps_within_a_graph_as_a_step_that_have_not_begun() {
    let mut world = World::with_graph(twice());
    world.run("one-draft", "about ants");
    world.claim("one-edit");
    let definition =
        |world: &World| serde_json::to_value(world.trace.definition_of(&id("graph")).unwrap().2).unwrap();
    let mut graph = definition(&world);
    assert_eq!(graph["steps"][0]["graph"]["steps"][0]["id"], "draft");
    // `two/edit` and `draft` have not begun; `one/edit` has.
    graph["steps"][1]["graph"]["steps"][1]["task_description"] = json!("Sting.");
    graph["steps"][2]["task_description"] = json!("Compare.");
    world.amend(None, "am-1", 0, graph.clone()).unwrap();
    check(&world);
    let refused = |world: &mut World, graph: Value| match world.amend(None, "am-2", 1, graph).unwrap_err() {
        Refusal::Malformed(problems) => problems.to_string(),
        other => panic!("{other}"),
    };
    let mut wrong = graph.clone();
    wrong["steps"][0]["graph"]["steps"][1]["task_description"] = json!("other");
    let told = refused(&mut world, wrong);
    assert!(
        told.contains("steps[0].graph.steps[1]: `one/edit` has begun and can't change: `task_description`"),
        "{told}"
    );
    let mut wrong = graph.clone();
    wrong["steps"][0]["with"]["tone"] = json!("topic");
    wrong["steps"][1]["graph"]["output"] = json!("raw");
    let told = refused(&mut world, wrong);
    assert!(
        told.contains("steps[0]: `one` runs and can't change: `with`")
            && told.contains("steps[1]: `two` runs and can't change: `graph`"),
        "{told}"
    );
    world.run("two-draft", "about wasps");
    assert_eq!(world.work(&id("two-edit")).unwrap().goal.as_str(), "Sting.");
    world.run("two-edit", "W");
    let lease = world.lease(&id("one-edit"));
    world.complete(&lease, "A").unwrap();
    assert_eq!(world.work(&id("draft")).unwrap().goal.as_str(), "Compare.");
    world.run("draft", "done");
    check(&world);
    world.rest();
}

#[test]
fn g10_an_agent_runs_a_graph_that_uses_a_graph() {
    let mut world = World::with_root(json!({}));
    let lease = world.claim("root");
    let graph = json!({"inputs": {"raw": "ants"}, "steps": [
        {"id": "one", "graph": inner(json!({})), "with": {"topic": "raw"}, "output_to": "first"}], "output": "first"});
    world.spawn_graph(&lease, graph).unwrap();
    assert_eq!(inputs(&world, "one-draft")["topic"], "ants");
    world.run("one-draft", "x");
    world.run("one-edit", "Ants.");
    let outcome = serde_json::to_value(world.trace.outcome(&id("pipeline")).unwrap()).unwrap();
    assert_eq!(outcome["result"], "Ants.");
    let left: Vec<_> = world.trace.values().keys().filter(|key| key.as_str().starts_with("one.")).collect();
    assert!(left.is_empty(), "{left:?}");
    check(&world);
}

#[test]
fn g11_a_plan_knows_the_steps_of_graphs_by_their_paths() {
    let graph = json!({"inputs": {"list": [1, 2, 3]}, "steps": [
        {"id": "one", "with": {"all": "list"}, "max_cost_usd": 5, "graph": {"input_schema": {"properties": {"all": {}}}, "max_cost_usd": 2, "steps": [
            step("each", json!({"for_each": "all", "max_cost_usd": 0.1}))]}},
        {"id": "two", "with": {"all": {"value": [1]}}, "graph": {"steps": [step("each", json!({"for_each": "all", "max_cost_usd": 0.1}))]}},
    ]});
    let definition = decode::value(&graph).unwrap();
    let plan = Plan::compile(&definition).unwrap();
    let inputs = definition.filled_inputs();
    let known = EstimateInputs { inputs: &inputs, profiles: &Default::default(), items: None };
    let estimate = Estimate::of(&plan, &known);
    let worst: Vec<_> = estimate.steps.iter().map(|step| step.worst.unwrap().to_string()).collect();
    assert_eq!(worst, ["$0.30", "$0.10"]);
    let path = CriticalPath::of(&plan, &Default::default()).steps;
    let path: Vec<String> = path.iter().map(ToString::to_string).collect();
    assert_eq!(path, ["one", "one/each", "two", "two/each"]);
}

#[test]
fn w6_nothing_is_left_of_a_graph_as_a_step_that_is_deleted() {
    let graph = json!({"steps": [{"id": "one", "with": {"topic": {"value": "secret"}}, "graph": inner(json!({
        "inputs": {"notes": "secret"}, "task_description": "secret", "agent_id": "editor", "aggregate": {}}))}]});
    let mut graph = graph;
    graph["steps"][0]["graph"].as_object_mut().unwrap().remove("output");
    graph["steps"][0]["graph"]["steps"][0]["task_description"] = json!("secret");
    let plan = Plan::compile(&decode::value(&graph).unwrap()).unwrap();
    let left = plan.without_content();
    let text = serde_json::to_string(&left.definition()).unwrap();
    assert!(!text.contains("secret") && left.step_count() == 3, "{text}");
}
