//! Graphs whose inputs and results have types (G1, G2): `input_schema`, `output` and
//! `output_schema`.

use domain::{
    decode::{self, Format},
    graph::{self, Plan, TaskGraph},
};
use serde_json::{Value, json};
use trace::Refusal;
use world::{World, id, with};

use super::graph_flow::{expect, queued, step};

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["topic", "sizes"],
        "properties": {
            "topic": {"type": "string", "minLength": 3},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "tone": {"enum": ["dry", "warm"], "default": "dry"},
            "note": {"type": "string"},
        },
    })
}

fn typed(more: Value) -> Value {
    with(
        json!({
            "input_schema": schema(), "inputs": {"topic": "ants", "sizes": [1, 2]},
            "steps": [
                step("a", json!({"input_from": ["topic", "tone"], "output_to": "text"})),
                step("b", json!({"input_from": ["sizes", "text"], "output_to": "words"})),
            ],
        }),
        more,
    )
}

fn mistakes(refusal: Refusal) -> String {
    match refusal {
        Refusal::Malformed(problems) => problems.to_string(),
        other => panic!("{other}"),
    }
}

fn outcome(world: &World, child: &str) -> Value {
    serde_json::to_value(world.trace.outcome(&id(child)).unwrap()).unwrap()
}

#[test]
fn g2_inputs_that_do_not_fit_are_refused_with_every_mistake_and_its_path() {
    let inputs = json!({"topic": "x", "sizes": [1, "two", 3, null], "tone": "drY", "ton": 1});
    let refusal = World::new().submit_graph(typed(json!({"inputs": inputs}))).unwrap_err();
    let told = mistakes(refusal);
    for expected in [
        "inputs.topic: \"x\" is shorter than 3 characters",
        "inputs.sizes[1]: it should be an integer, not \"two\"",
        "inputs.sizes[3]: it should be an integer, not null",
        "inputs.tone: \"drY\" is not one of dry, warm\n  hint: did you mean `dry`?",
        "inputs.ton: unknown field `ton`\n  hint: did you mean `tone`?",
    ] {
        assert!(told.contains(expected), "{expected} is not in\n{told}");
    }
    let told = mistakes(World::new().submit_graph(typed(json!({"inputs": {}}))).unwrap_err());
    assert!(
        told.contains("inputs: `topic` is missing") && told.contains("inputs: `sizes` is missing"),
        "{told}"
    );
    let mut world = World::new();
    world.submit_graph(typed(json!({}))).unwrap();
    // An equal submission is accepted again; with another input it is a conflict.
    assert!(world.submit_graph(typed(json!({}))).unwrap().is_empty());
    let other = typed(json!({"inputs": {"topic": "bees", "sizes": []}}));
    assert!(matches!(world.submit_graph(other), Err(Refusal::Conflict { .. })));
}

#[test]
fn g2_mistakes_of_schemas_inputs_and_steps_come_in_one_answer() {
    let graph = typed(json!({
        "inputs": {"topic": 7, "sizes": []}, "output_schema": {"type": "nonsense"},
        "output": {"all": "text", "none": "nothing"},
        "steps": [step("a", json!({"input_from": ["topik"], "output_to": "text"}))],
    }));
    let told = mistakes(World::new().submit_graph(graph).unwrap_err());
    for expected in [
        "inputs.topic: it should be a string, not 7",
        "output_schema: not a JSON Schema",
        "output.none: nothing writes `nothing`",
        "steps[0].input_from[0]: nothing writes `topik`\n  hint: did you mean `topic`?",
    ] {
        assert!(told.contains(expected), "{expected} is not in\n{told}");
    }
    let bad = typed(
        json!({"input_schema": {"properties": 3}, "aggregate": {}, "agent_id": "editor", "output": "text"}),
    );
    let told = mistakes(World::new().submit_graph(bad).unwrap_err());
    assert!(
        told.contains("input_schema: not a JSON Schema")
            && told.contains("output: the result of this graph is the synthesis"),
        "{told}"
    );
    let writes_an_input = typed(json!({"steps": [step("a", json!({"output_to": "note"}))]}));
    let told = mistakes(World::new().submit_graph(writes_an_input).unwrap_err());
    assert!(told.contains("`note` is an input of the graph"), "{told}");
}

#[test]
fn g2_an_input_that_is_not_given_has_its_default_or_is_missing() {
    let graph = typed(json!({"on_partial_success": "continue", "steps": [
        step("a", json!({"input_from": ["topic", "tone"], "output_to": "text"})),
        step("b", json!({"input_from": ["note"], "required": false})),
        step("c", json!({"when": "has(outputs.note) || outputs.tone == 'dry'"})),
    ]}));
    let mut world = World::with_graph(graph);
    let inputs = serde_json::to_value(&world.work(&id("a")).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"topic": "ants", "tone": "dry"}));
    world.run("a", "text");
    assert_eq!(queued(&world), ["c"]);
    world.run("c", "done");
    expect(&world, "graph", &[("a", "succeeded"), ("b", "skipped"), ("c", "succeeded")]);
    world.rest();
}

#[test]
fn g1_the_result_of_a_graph_is_what_output_names() {
    for (output, expected) in [
        (json!("words"), json!(7)),
        (
            json!({"count": "words", "of": "text", "on": "topic"}),
            json!({"count": 7, "of": "long", "on": "ants"}),
        ),
    ] {
        let mut world = World::with_graph(typed(json!({"output": output})));
        world.run("a", "long");
        world.run("b", 7);
        assert_eq!(outcome(&world, "graph")["result"], expected);
        world.rest();
    }
    // An output that was not written is null.
    let graph =
        typed(json!({"on_partial_success": "continue", "output": {"text": "text", "words": "words"}}));
    let mut world = World::with_graph(graph);
    world.run("a", "long");
    world.break_it("b");
    assert_eq!(outcome(&world, "graph")["result"], json!({"text": "long", "words": null}));
    // A key that is written once per item has no single value.
    let items = json!({"id": "map", "for_each": "sizes", "steps": [step("i", json!({"output_to": "each"}))]});
    let told =
        mistakes(World::new().submit_graph(typed(json!({"steps": [items], "output": "each"}))).unwrap_err());
    assert!(told.contains("output: `each` is written once for each item of `map`"), "{told}");
}

#[test]
fn g1_a_result_that_does_not_fit_the_output_schema_of_its_graph_fails_it() {
    let types = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    let graph = || typed(json!({"output": {"count": "words"}, "output_schema": types}));
    let mut world = World::with_graph(graph());
    world.run("a", "long");
    world.run("b", 7);
    assert_eq!(
        (outcome(&world, "graph")["status"].clone(), outcome(&world, "graph")["result"].clone()),
        (json!("completed"), json!({"count": 7}))
    );
    let mut world = World::with_graph(graph());
    world.run("a", "long");
    world.run("b", "seven");
    let ended = outcome(&world, "graph");
    assert_eq!((&ended["status"], &ended["error"]["kind"]), (&json!("failed"), &json!("output_schema")));
    assert!(
        ended["error"]["message"].as_str().unwrap().contains("the result of the graph does not fit"),
        "{ended}"
    );
    assert_eq!(ended["graph"]["verdict"], "failed");
    world.rest();
    // Without `output` the result is the results of the steps; for a race, the winner's.
    let by_step = json!({"required": ["a", "b"], "properties": {"b": {"type": "integer"}}});
    let mut world = World::with_graph(typed(json!({"output_schema": by_step})));
    world.run("a", "long");
    world.run("b", 7);
    assert_eq!(outcome(&world, "graph")["result"], json!({"a": "long", "b": 7}));
    let race = typed(
        json!({"race": true, "output_schema": {"type": "integer"}, "steps": [step("a", json!({})), step("b", json!({}))]}),
    );
    for (won, status) in [(json!(7), "completed"), (json!("seven"), "failed")] {
        let mut world = World::with_graph(race.clone());
        world.run("b", won);
        assert_eq!(outcome(&world, "graph")["status"], status);
        world.rest();
    }
}

#[test]
fn g6_a_synthesis_that_does_not_fit_is_tried_again() {
    let graph = typed(json!({"aggregate": {}, "agent_id": "editor", "output_schema": {"type": "integer"}}));
    let mut world = World::with_graph(graph);
    world.run("a", "long");
    world.run("b", "longer");
    let work = world.work(&id("graph")).unwrap();
    assert_eq!(work.output_schema, Some(json!({"type": "integer"}).into()), "the worker receives the schema");
    let lease = world.claim("graph");
    world.complete(&lease, "seven").unwrap();
    assert!(world.node("graph").is_live(), "another attempt follows");
    world.pass(60_000);
    world.run("graph", 7);
    assert_eq!(outcome(&world, "graph")["result"], 7);
    world.rest();
}

#[test]
fn g15_other_inputs_of_a_rerun_are_checked_too() {
    let mut world = World::with_graph(typed(json!({})));
    world.run("a", "long");
    world.break_it("b");
    let refused = |inputs: Value| mistakes(world.rerun(json!({"inputs": inputs})).err().unwrap());
    assert!(refused(json!({"topic": 7})).contains("inputs.topic: it should be a string, not 7"));
    assert!(refused(json!({"topik": "bees"})).contains("did you mean `topic`?"));
    // An input that was missing before, and one that had its default before.
    let again = world.rerun(json!({"inputs": {"note": "new", "tone": "warm"}})).unwrap();
    assert_eq!(queued(&again), ["a"]);
    assert_eq!(queued(&world.rerun(json!({})).unwrap()), ["b"]);
}

#[test]
fn g10_keys_that_an_agent_lends_its_graph_are_not_missing() {
    let graph = typed(json!({"inputs": {"sizes": [1]}})).to_string();
    let read = |given: bool| {
        graph::read_within(graph.as_bytes(), Format::Json, |key| given && key.as_str() == "topic")
    };
    let told = read(false).unwrap_err().to_string();
    assert!(told.contains("inputs: `topic` is missing"), "{told}");
    let mut lent: TaskGraph = decode::value(&typed(json!({"inputs": {"sizes": [1]}}))).unwrap();
    lent.input_from.push("topic".parse().unwrap());
    Plan::compile(&lent).unwrap();
}

#[test]
fn w6_nothing_of_the_inputs_or_the_schemas_is_left_of_a_deleted_plan() {
    let graph = typed(json!({
        "input_schema": with(schema(), json!({"description": "secret"})), "inputs": {"topic": "secret", "sizes": []},
        "output_schema": {"description": "secret"},
        "steps": [step("a", json!({"input_from": ["topic", "tone", "note"], "task_description": "secret"}))],
    }));
    let plan = Plan::compile(&decode::value(&graph).unwrap()).unwrap();
    let left = serde_json::to_string(&plan.without_content().definition()).unwrap();
    assert!(!left.contains("secret") && plan.without_content().step_count() == 1, "{left}");
}
