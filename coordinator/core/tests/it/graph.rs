//! Compiling a graph (G): valid definitions, and all mistakes of an invalid one at once.

use domain::{
    decode::{self, Format},
    graph::{Body, Mode, Plan, TaskGraph, read},
};
use serde_json::{Value, json};
use world::with;

fn compile(graph: &Value) -> Result<Plan, String> {
    let graph: TaskGraph = decode::value(graph).map_err(|problems| problems.to_string())?;
    Plan::compile(&graph).map_err(|problems| problems.to_string())
}

/// `{"agent_id": "a", "task_description": "t"}` with further fields.
fn step(more: Value) -> Value {
    world::with(json!({"agent_id": "a", "task_description": "t"}), more)
}

/// The dependencies of each step of the top group, by id.
fn waits(plan: &Plan) -> Vec<(String, Vec<String>)> {
    let steps = &plan.group(0).steps;
    let name = |index: &u32| steps[*index as usize].id.to_string();
    steps.iter().map(|step| (step.id.to_string(), step.waits_for.iter().map(name).collect())).collect()
}

fn owned(expected: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    expected.iter().map(|(id, waits)| ((*id).into(), waits.iter().map(|w| (*w).into()).collect())).collect()
}

#[test]
fn g1_the_seeds_own_graph_compiles() {
    let plan = compile(&json!({
        "mode": "sequential",
        "steps": [
            {"agent_id": "research-agent", "task_description": "…", "output_to": "research"},
            {"agent_id": "writer-agent", "task_description": "…", "input_from": ["research"]},
        ],
    }))
    .unwrap();
    assert_eq!(waits(&plan), owned(&[("research-agent", &[]), ("writer-agent", &["research-agent"])]));
}

#[test]
fn g1_yaml_and_json_are_the_same_graph() {
    let yaml = "
mode: parallel
steps:
  - {id: one, agent_id: a, task_description: t, output_to: x, max_cost_usd: 0.5}
  - id: two
    agent_id: a
    task_description: t
    input_from: [x]
    when: outputs.x.score > 0.5
    loop: {max_rounds: 3}
";
    let json = json!({"mode": "parallel", "steps": [
        {"id": "one", "agent_id": "a", "task_description": "t", "output_to": "x", "max_cost_usd": "0.5"},
        {"id": "two", "agent_id": "a", "task_description": "t", "input_from": ["x"],
         "when": "outputs.x.score > 0.5", "loop": {"max_rounds": 3}},
    ]});
    let (definition, _) = read(yaml.as_bytes(), Format::Yaml).unwrap();
    assert_eq!(definition, decode::value::<TaskGraph>(&json).unwrap());
}

#[test]
fn g1_steps_without_an_id_are_named_after_what_runs() {
    let plan = compile(&json!({"mode": "parallel", "steps": [
        {"agent_id": "researcher", "task_description": "1"},
        {"agent_id": "researcher", "task_description": "2"},
        {"id": "researcher-3", "agent_id": "researcher", "task_description": "3"},
        {"agent_id": "researcher", "task_description": "4"},
        {"agent_id": "writer", "task_description": "5"},
        {"steps": [step(json!({"id": "inner"}))]},
    ]}))
    .unwrap();
    let names: Vec<_> = plan.group(0).steps.iter().map(|s| s.id.to_string()).collect();
    assert_eq!(names, ["researcher-1", "researcher-2", "researcher-3", "researcher-4", "writer", "group"]);
}

#[test]
fn g2_input_from_is_a_dependency_across_groups_too() {
    let plan = compile(&json!({"mode": "parallel", "inputs": {"topic": "ants"}, "steps": [
        step(json!({"id": "last", "input_from": ["b", "topic"]})),
        {"id": "g", "mode": "parallel", "steps": [
            step(json!({"id": "one", "output_to": "a", "input_from": ["z"]})),
            step(json!({"id": "two", "output_to": "b", "input_from": ["a"]})),
        ]},
        step(json!({"id": "first", "output_to": "z"})),
        step(json!({"id": "free"})),
        step(json!({"id": "after", "depends_on": ["free"]})),
        step(json!({"id": "asks", "when": "has(outputs.z) && steps.free.status == 'succeeded'"})),
    ]}))
    .unwrap();
    let expected: &[(&str, &[&str])] = &[
        ("last", &["g"]),
        ("g", &["first"]),
        ("first", &[]),
        ("free", &[]),
        ("after", &["free"]),
        ("asks", &["first", "free"]),
    ];
    assert_eq!(waits(&plan), owned(expected));
    let Body::Group(inner) = plan.group(0).steps[1].body else { panic!("a group") };
    assert_eq!(plan.group(inner).steps[1].waits_for, [0]);
    assert_eq!(plan.step_count(), 8);
}

#[test]
fn g2_sequential_steps_wait_for_the_one_before() {
    let plan = compile(
        &json!({"steps": [step(json!({"id": "a"})), step(json!({"id": "b"})), step(json!({"id": "c"}))]}),
    )
    .unwrap();
    assert_eq!(plan.group(0).mode, Mode::Sequential);
    assert_eq!(waits(&plan), owned(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]));
}

#[test]
fn g2_all_errors_at_once_each_with_its_path_and_a_hint() {
    let errors = compile(&json!({"mode": "parallel", "steps": [
        step(json!({"id": "one", "input_from": ["reserch"], "max_cost_usd": 0})),
        step(json!({"id": "one", "output_to": "research"})),
        {"id": "two", "agent_id": "a"},
        step(json!({"id": "three", "depends_on": ["tow"], "when": "outptus.research > 1"})),
        step(json!({"id": "four", "output_to": "research", "loop": {"max_rounds": 0}})),
        {"id": "five", "steps": [step(json!({"id": "six", "mode": "parallel"}))], "tools": [], "retries": 2},
        step(json!({"id": "seven", "output_schema": {"type": "nonsense"}})),
        step(json!({"id": "eight", "depends_on": ["six"]})),
    ], "aggregate": {}}))
    .unwrap_err();
    for expected in [
        "steps[0].input_from[0]: nothing writes `reserch`\n  hint: did you mean `research`?",
        "steps[0].max_cost_usd: a ceiling must be more than zero",
        "steps[1].id: duplicate id `one`\n  hint: steps[0] already has this id",
        "steps[2].task_description: `task_description` is missing",
        "steps[3].depends_on[0]: there is no step `tow`\n  hint: did you mean `two`?",
        "steps[3].when: unknown variable `outptus`\n  hint: did you mean `outputs`?",
        "steps[4].output_to: `research` is written by two steps",
        "steps[4].loop.max_rounds: a loop has 1 to 100 rounds",
        "steps[5].tools: a group can't have `tools`",
        "steps[5].retries: a group can't have `retries`",
        "steps[5].steps[0].mode: `mode` belongs to a group",
        "steps[6].output_schema: not a JSON Schema",
        "steps[7].depends_on[0]: `six` lies inside another group\n  hint: depend on its group `five` instead",
        "agent_id: `aggregate` needs an `agent_id`",
    ] {
        assert!(errors.contains(expected), "no {expected:?} in\n{errors}");
    }
}

#[test]
fn g2_cycles_are_refused_with_the_way_around() {
    let cases = [
        json!({"mode": "parallel", "steps": [
            step(json!({"id": "a", "input_from": ["z"], "output_to": "x"})),
            step(json!({"id": "b", "input_from": ["x"], "output_to": "y"})),
            step(json!({"id": "c", "input_from": ["y"], "output_to": "z"})),
        ]}),
        json!({"steps": [step(json!({"id": "a", "depends_on": ["b"]})), step(json!({"id": "b"}))]}),
        json!({"mode": "parallel", "steps": [
            {"id": "g", "steps": [step(json!({"id": "in", "input_from": ["out"], "output_to": "x"}))]},
            step(json!({"id": "h", "input_from": ["x"], "output_to": "out"})),
        ]}),
    ];
    for case in cases {
        let errors = compile(&case).unwrap_err();
        assert!(errors.contains("the steps wait for each other: ") && errors.contains(" → "), "{errors}");
    }
    let three = compile(&json!({"mode": "parallel", "steps": [
        step(json!({"id": "a", "depends_on": ["b"]})),
        step(json!({"id": "b", "depends_on": ["c"]})),
        step(json!({"id": "c", "depends_on": ["a"]})),
    ]}));
    assert!(three.unwrap_err().contains("a → b → c → a"), "the cycle in the direction of the waits");
    let own = compile(&json!({"steps": [step(json!({"input_from": ["x"], "output_to": "x"}))]})).unwrap_err();
    assert!(own.contains("it reads `x`, which it writes itself"), "{own}");
    let own = compile(&json!({"steps": [step(json!({"id": "a", "depends_on": ["a"]}))]})).unwrap_err();
    assert!(own.contains("it waits for itself"), "{own}");
}

#[test]
fn g1_in_a_loop_what_comes_later_is_read_from_the_round_before() {
    let author_and_critic = |extra: Value| {
        json!({"steps": [world::with(json!({"id": "g", "steps": [
            step(json!({"id": "author", "input_from": ["review"], "output_to": "draft"})),
            step(json!({"id": "critic", "input_from": ["draft"], "output_to": "review"})),
        ]}), extra)]})
    };
    compile(&author_and_critic(json!({"loop": {"max_rounds": 3, "until": "outputs.review.good"}}))).unwrap();
    assert!(compile(&author_and_critic(json!({}))).unwrap_err().contains("wait for each other"));
    compile(
        &json!({"steps": [step(json!({"input_from": ["x"], "output_to": "x", "loop": {"max_rounds": 2}}))]}),
    )
    .unwrap();
}

#[test]
fn g2_over_wide_and_over_deep_graphs_are_refused() {
    let wide: Vec<Value> = (0..60_000).map(|_| step(json!({}))).collect();
    let errors = compile(&json!({"steps": wide})).unwrap_err();
    assert!(errors.starts_with("steps: 60000 steps are more than the 50000 allowed"), "{errors}");
    let nested = |depth: usize| (0..depth).fold(step(json!({})), |inner, _| json!({"steps": [inner]}));
    assert!(compile(&json!({"steps": [nested(8)]})).is_ok());
    assert!(compile(&json!({"steps": [nested(9)]})).unwrap_err().contains("groups nest deeper than 8"));
}

#[test]
fn g1_a_plan_is_stored_as_its_definition() {
    let plan = compile(&json!({"steps": [step(json!({"id": "a", "when": "budget.remaining_usd > 0.1", "required": false}))]})).unwrap();
    let stored = serde_json::to_value(&plan).unwrap();
    assert_eq!(stored["steps"][0]["required"], false);
    let read: Plan = serde_json::from_value(stored).unwrap();
    assert_eq!(read, plan);
}

/// Keys that the items of a `for_each` group write are not visible outside the group.
#[test]
fn g2_the_keys_of_items_are_kept_apart() {
    let long = "k".repeat(100);
    let mapped =
        |more: Value, steps: Value| with(json!({"id": "map", "for_each": "list", "steps": steps}), more);
    let write = |key: &str| step(json!({"id": "write", "output_to": key}));
    let graph = |steps: Value| json!({"mode": "parallel", "inputs": {"list": []}, "steps": steps});
    let cases = [
        (
            "the list may be read, and what the others write",
            graph(json!([
                mapped(
                    json!({"output_to": "all"}),
                    json!([step(json!({"input_from": ["item", "outside", "list"]}))])
                ),
                step(json!({"id": "before", "output_to": "outside"})),
                step(json!({"id": "after", "input_from": ["all"]})),
            ])),
        ),
        (
            "read from outside",
            graph(json!([
                mapped(json!({"output_to": "all"}), json!([write("text")])),
                step(json!({"id": "after", "input_from": ["text"], "when": "has(outputs.text)"})),
            ])),
        ),
        (
            "read from outside, and there is no list",
            graph(json!([
                mapped(json!({}), json!([write("text")])),
                step(json!({"id": "after", "input_from": ["text"]})),
            ])),
        ),
        (
            "read by a condition of a loop around it",
            graph(json!([
                {"id": "loop", "loop": {"max_rounds": 2, "until": "size(outputs.text) > 1"},
                 "steps": [mapped(json!({}), json!([write("text")]))]},
            ])),
        ),
        ("written over", graph(json!([mapped(json!({}), json!([write("item")]))]))),
        ("too long", graph(json!([mapped(json!({}), json!([write(&long)]))]))),
        (
            "written from outside",
            graph(json!([
                mapped(json!({}), json!([write("text")])),
                step(json!({"id": "sly", "output_to": "map-1.text"})),
            ])),
        ),
        (
            "of two items",
            graph(json!([mapped(
                json!({}),
                json!([step(json!({"id": "in", "for_each": "item", "input_from": ["item"]}))])
            ),])),
        ),
        (
            "no item here",
            graph(json!([
                mapped(json!({}), json!([step(json!({"id": "in"}))])),
                step(json!({"id": "out", "input_from": ["item"]})),
            ])),
        ),
        (
            "of the previous round",
            graph(json!([
                {"id": "loop", "loop": {"max_rounds": 2}, "steps": [mapped(json!({}), json!([
                    step(json!({"id": "in", "input_from": ["later"]})), step(json!({"id": "then", "output_to": "later"})),
                ]))]},
            ])),
        ),
        (
            "what a group can't have, and a bound of nothing",
            graph(json!([mapped(
                json!({"for_each": {"in": "lits", "max_parallel": 0}, "loop": {"max_rounds": 2}, "input_from": ["list"]}),
                json!([write("text")]),
            )])),
        ),
    ];
    let told = cases.map(|(what, graph)| {
        format!("{what}\n{}\n", compile(&graph).map_or_else(|errors| errors, |_| "fine".into()))
    });
    insta::assert_snapshot!(told.join("\n"));
}

/// proves: a condition that can't yield a boolean is refused with its path, also in groups and
/// graphs.
#[test]
fn g2_a_condition_that_is_never_a_boolean_is_refused() {
    let graph = json!({"steps": [
        {"id": "a", "agent_id": "x", "task_description": "t", "when": "5"},
        {"id": "b", "loop": {"max_rounds": 2, "until": "steps.c.status"},
         "steps": [{"id": "c", "agent_id": "x", "task_description": "t"}]},
        {"id": "d", "graph": {"steps": [{"agent_id": "x", "task_description": "t", "when": "'yes'"}]}}]});
    let definition: TaskGraph = serde_json::from_value(graph).unwrap();
    let problems = Plan::compile(&definition).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["steps[0].when", "steps[1].loop.until", "steps[2].graph.steps[0].when"], "{problems}");
}
