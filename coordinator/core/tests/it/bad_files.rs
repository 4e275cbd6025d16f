//! Mistakes in files, each with its line (G2): forty bad graphs in JSON and YAML, and twenty bad
//! amends.

use domain::{Problems, decode::Format, graph, source_positions::Lines};
use serde_json::{Value, json};
use trace::Refusal;
use world::World;

use super::graph_flow::step;

/// Every mistake with its line; `-` for a syntax error, whose message contains the place.
fn told(problems: &Problems, text: &str, format: Format) -> String {
    let lines = Lines::of(text.as_bytes(), format);
    let one = |problem: &domain::Problem| {
        let is_syntax = problem.message.starts_with("not valid");
        let at = lines.find(&problem.path).or_else(|| lines.begin()).filter(|_| !is_syntax);
        let line = at.map_or("-".into(), |at| at.line.to_string());
        format!("{line}: {problem}\n")
    };
    problems.iter().map(one).collect()
}

const GOOD: &str = "agent_id: a, task_description: t";

fn bad_graphs() -> Vec<(String, Format)> {
    let yaml = |text: &str| (text.replace("GOOD", GOOD), Format::Yaml);
    let json =
        |text: &str| (text.replace("GOOD", r#""agent_id": "a", "task_description": "t""#), Format::Json);
    vec![
        yaml("mode: paralel\nsteps:\n  - {GOOD}\n"),
        yaml("steps: []\n"),
        yaml("stpes:\n  - {GOOD}\n"),
        yaml("steps:\n  - {GOOD}\n  - agent_id: a b\n    task_description: ''\n"),
        yaml("steps:\n  - {GOOD, id: x}\n  - {GOOD, id: y}\n  - {GOOD, id: x}\n"),
        yaml(
            "steps:\n  - id: x\n    input_from:\n      - one\n      - two\n    GOOD\n"
                .replace("GOOD", "agent_id: a\n    task_description: t")
                .as_str(),
        ),
        yaml("steps:\n  - {GOOD, depends_on: [later]}\n  - {GOOD, id: latter}\n"),
        yaml("steps:\n  - {GOOD}\n  - agent_id: a\n    task_description: t\n    when: output.x > 1\n"),
        yaml(
            "steps:\n  - agent_id: a\n    task_description: t\n    loop:\n      max_rounds: 0\n      until: 'true ||'\n",
        ),
        yaml("steps:\n  - {GOOD, output_to: x}\n  - {GOOD, output_to: x}\n"),
        yaml("inputs:\n  x: 1\nsteps:\n  - {GOOD, output_to: x}\n"),
        yaml(
            "mode: parallel\nsteps:\n  - {GOOD, id: p, depends_on: [q]}\n  - {GOOD, id: q, depends_on: [p]}\n",
        ),
        yaml("steps:\n  - id: g\n    retries: 2\n    tools: []\n    steps:\n      - {GOOD}\n"),
        yaml("steps:\n  - GOOD\n"),
        yaml("steps:\n  - {GOOD, max_cost_usd: -1}\n  - {GOOD, max_cost_usd: lots}\nmax_cost_usd: 0\n"),
        yaml("aggregate: {}\nsteps:\n  - {GOOD}\n"),
        yaml("agent_id: editor\nsteps:\n  - {GOOD}\n"),
        yaml("steps:\n  - {GOOD, for_each: list}\n"),
        yaml(
            "inputs: {list: []}\nsteps:\n  - agent_id: a\n    task_description: t\n    for_each:\n      in: list\n      max_parallel: 0\n",
        ),
        yaml("steps:\n  - {GOOD, fallback: b, loop: {max_rounds: 2}}\n"),
        yaml("steps:\n  - {GOOD, output_schema: {type: nonsense}}\n"),
        yaml(
            "input_schema:\n  required: [topic]\n  properties:\n    topic: {type: string}\n    size: {type: integer}\ninputs:\n  size: large\nsteps:\n  - {GOOD}\n",
        ),
        yaml("output:\n  text: text\n  words: nothing\nsteps:\n  - {GOOD, output_to: text}\n"),
        yaml("steps:\n  - id: ask\n    approve:\n      who: me\n      otherwise: deny\nhitl: fail\n"),
        yaml(
            "steps:\n  - id: g\n    for_each: list\n    steps:\n      - {GOOD, output_to: item}\n  - {GOOD, input_from: [item]}\ninputs: {list: [1]}\n",
        ),
        yaml("steps:\n  - {GOOD, input_from: [own], output_to: own}\n"),
        yaml("race: yes\nsteps:\n  - {GOOD}\n"),
        yaml("labels: {'bad key': x, fine: 'not fine'}\nsteps:\n  - {GOOD}\n"),
        yaml("steps:\n  - {GOOD, on_budget: [{at: 2, tell: true}]}\n"),
        yaml("timeout_ms: -5\nlimits:\n  max_stepz: 3\nsteps:\n  - {GOOD}\n"),
        yaml("steps:\n  - {GOOD\n"),
        yaml("steps: *nobody\n"),
        json(
            "{\n  \"mode\": \"parallel\",\n  \"steps\": [\n    {GOOD, \"output_too\": \"x\"},\n    {GOOD, \"hitl\": \"nope\"}\n  ]\n}\n",
        ),
        json(
            "{\"steps\": [\n  {GOOD,\n   \"when\": true},\n  7,\n  {\"steps\": [\n    {GOOD, \"id\": \"-\"}\n  ]}\n]}\n",
        ),
        json(
            "{\"steps\": [{GOOD}],\n \"child_id\": \"../etc\",\n \"trace_id\": \"xyz\",\n \"funding\": \"shard\"}",
        ),
        json(
            "{\"steps\": [\n  {GOOD, \"id\": \"a\"},\n  {\"id\": \"g\",\n   \"steps\": [{GOOD, \"id\": \"in\"}]},\n  {GOOD, \"depends_on\": [\n    \"in\"]}\n]}",
        ),
        json(
            "{\"steps\": [\n  {GOOD, \"id\": \"a\"},\n  {GOOD, \"when\":\n    \"steps.a.status == 'x' && outputs.y == 1\"}\n]}",
        ),
        json(
            "{\"steps\": [\n  {\"id\": \"g\", \"mode\": \"parallel\", \"loop\": {\"max_rounds\": 200,\n    \"until\": \"outputs.z\"}, \"steps\": [{GOOD}]}\n]}",
        ),
        json("[\n  {GOOD}\n]"),
        json("{\"steps\": [\n  {GOOD},\n]}"),
    ]
}

#[test]
fn g2_forty_bad_graphs_and_the_line_of_every_mistake() {
    let all = bad_graphs();
    assert_eq!(all.len(), 40);
    let mut shown = String::new();
    for (text, format) in all {
        let problems = graph::read(text.as_bytes(), format).expect_err(&text);
        let numbered: String = (1..).zip(text.lines()).map(|(n, line)| format!("{n:>3}| {line}\n")).collect();
        shown.push_str(&format!("{numbered}{}\n", told(&problems, &text, format)));
    }
    insta::assert_snapshot!(shown);
}

/// `a` has ended, `b` runs with its step `in1`, `c` and `d` have not begun.
fn running() -> (World, Value) {
    let mut world = World::with_graph(json!({"inputs": {"topic": "ants"}, "steps": [
        step("a", json!({"input_from": ["topic"], "output_to": "x"})),
        {"id": "b", "steps": [step("in1", json!({})), step("in2", json!({"output_to": "y"}))]},
        step("c", json!({"input_from": ["x"]})),
        step("d", json!({"input_from": ["y"]})),
    ]}));
    world.run("a", "found");
    world.claim("in1");
    let (_, _, graph) = world.trace.definition_of(&world::id("graph")).unwrap();
    (world, serde_json::to_value(graph).unwrap())
}

type Change = fn(&mut Value);

#[test]
fn g13_twenty_bad_amends_and_the_line_of_every_mistake() {
    let changes: [Change; 20] = [
        |g| drop(g["steps"].as_array_mut().unwrap().remove(0)),
        |g| g["steps"][0]["task_description"] = json!("other"),
        |g| g["steps"][0]["agent_id"] = json!("critic"),
        |g| g["steps"][1]["mode"] = json!("parallel"),
        |g| g["steps"][1]["steps"][0]["task_description"] = json!("other"),
        |g| drop(g["steps"][1]["steps"].as_array_mut().unwrap().remove(0)),
        |g| drop(g["steps"].as_array_mut().unwrap().remove(1)),
        |g| g["steps"].as_array_mut().unwrap().insert(0, step("new", json!({}))),
        |g| g["inputs"]["topic"] = json!("bees"),
        |g| g["mode"] = json!("parallel"),
        |g| g["max_cost_usd"] = json!(5),
        |g| g["on_partial_success"] = json!("continue"),
        |g| g["steps"][2]["input_from"] = json!(["nothing"]),
        |g| g["steps"][2]["depends_on"] = json!(["d"]),
        |g| g["steps"][2]["when"] = json!("outputs.x >"),
        |g| g["steps"][3]["id"] = json!("c"),
        |g| g["steps"][3]["agent_id"] = json!("nobody"),
        |g| {
            let inner = g["steps"][1]["steps"].as_array_mut().unwrap().remove(0);
            g["steps"].as_array_mut().unwrap().push(inner);
        },
        |g| {
            let moved = g["steps"].as_array_mut().unwrap().remove(0);
            g["steps"][0]["steps"].as_array_mut().unwrap().push(moved);
        },
        |g| {
            g["steps"][0]["retries"] = json!(3);
            g["steps"][1]["required"] = json!(false);
            g["steps"][2]["task_description"] = json!("");
            g["aggregate"] = json!({});
        },
    ];
    let mut shown = String::new();
    for (number, change) in (1..).zip(changes) {
        let (mut world, mut graph) = running();
        change(&mut graph);
        let text = serde_json::to_string_pretty(&graph).unwrap();
        let problems = match graph::read(text.as_bytes(), Format::Json) {
            Err(problems) => problems,
            Ok(_) => match world.amend(None, "am-1", 0, graph).unwrap_err() {
                Refusal::Malformed(problems) => problems,
                other => panic!("{number}: {other}"),
            },
        };
        let places: String = told(&problems, &text, Format::Json);
        let mut lines: Vec<String> = Vec::new();
        for told in places.lines() {
            // The text of that line, so that the snapshot shows a wrong line number.
            let line = told.split_once(": ").and_then(|(line, _)| line.parse::<usize>().ok());
            let says = line.and_then(|line| text.lines().nth(line - 1)).map_or("", str::trim);
            lines.push(if says.is_empty() { told.to_owned() } else { format!("{told}    <- {says}") });
        }
        shown.push_str(&format!("{number}\n{}\n\n", lines.join("\n")));
    }
    insta::assert_snapshot!(shown);
}
