//! Bad input to the decoders: each mistake gives an error with its place and cause, and nothing
//! panics. Random input is tried too.

use std::fmt::Debug;

use domain::{
    AgentProfile, Problems,
    decode::{self, Format},
    graph::{self, Plan, TaskGraph},
    wire::{self, AskMessage, Cancel, Control, Cost, Input, Spawn},
};
use proptest::{prelude::*, test_runner::Config};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn refused<T: DeserializeOwned + JsonSchema + Debug + 'static>(text: &[u8]) -> String {
    match decode::json::<T>(text) {
        Ok(taken) => panic!("taken: {taken:?}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn a_corpus_of_bad_submissions_each_with_its_clear_error() {
    let deep = format!("{{\"goal\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: &[(&str, &[&str])] = &[
        ("", &["not valid JSON"]),
        ("nonsense", &["not valid JSON"]),
        ("{\"goal\": \"x\"", &["not valid JSON", "line 1"]),
        ("[]", &["it should be an object, not []"]),
        ("null", &["it should be an object, not null"]),
        ("{}", &["`goal` is missing"]),
        ("{\"goal\": 7}", &["goal: "]),
        ("{\"goal\": \"\"}", &["goal: the text is empty"]),
        ("{\"goal\": \"   \"}", &["goal: the text is empty"]),
        ("{\"goal\": \"x\", \"goal\": \"y\"}", &["duplicate field"]),
        (
            "{\"goal\": \"x\", \"max_cost\": 1}",
            &["max_cost: unknown field `max_cost`", "did you mean `max_cost_usd`?"],
        ),
        (
            "{\"goal\": \"x\", \"temperature\": 1}",
            &["unknown field `temperature`", "known fields: goal, agent_id"],
        ),
        (
            "{\"goal\": \"x\", \"max_cost_usd\": -1}",
            &["max_cost_usd: -1 is negative", "hint: dollars from 0"],
        ),
        ("{\"goal\": \"x\", \"max_cost_usd\": NaN}", &["not valid JSON"]),
        (
            "{\"goal\": \"x\", \"max_cost_usd\": \"NaN\"}",
            &["max_cost_usd: \"NaN\" is not an amount of dollars"],
        ),
        ("{\"goal\": \"x\", \"max_cost_usd\": 1e400}", &["number out of range"]),
        ("{\"goal\": \"x\", \"max_cost_usd\": 1000001}", &["more than $1,000,000"]),
        ("{\"goal\": \"x\", \"max_cost_usd\": true}", &["max_cost_usd: "]),
        ("{\"goal\": \"x\", \"max_tokens\": 1.5}", &["max_tokens: "]),
        ("{\"goal\": \"x\", \"max_tokens\": 99999999999999999999}", &["max_tokens: "]),
        ("{\"goal\": \"x\", \"max_tokens\": 1000000000001}", &["not a whole number of tokens"]),
        (
            "{\"goal\": \"x\", \"child_id\": \"../etc\"}",
            &["child_id: \"../etc\" is not a valid child_id", "hint: letters, digits"],
        ),
        ("{\"goal\": \"x\", \"child_id\": \"a/b\"}", &["'/' is not allowed"]),
        ("{\"goal\": \"x\", \"child_id\": \"a*\"}", &["'*' is not allowed"]),
        ("{\"goal\": \"x\", \"child_id\": \"a.>\"}", &["'.' is not allowed"]),
        ("{\"goal\": \"x\", \"child_id\": \"{p07}\"}", &["it starts with '{'"]),
        ("{\"goal\": \"x\", \"child_id\": \"\"}", &["it is empty"]),
        ("{\"goal\": \"x\", \"child_id\": \"a\\u0000b\"}", &["'\\0' is not allowed"]),
        (
            "{\"goal\": \"x\", \"trace_id\": \"00000000000000000000000000000000\"}",
            &["all zeros means no trace"],
        ),
        ("{\"goal\": \"x\", \"trace_id\": \"xyz\"}", &["32 lowercase hex digits"]),
        ("{\"goal\": \"x\", \"share\": [\"dialog\"]}", &["share[0]: "]),
        (
            "{\"goal\": \"x\", \"funding\": \"shard\"}",
            &["funding: \"shard\" is not one of shared, granted", "did you mean `shared`?"],
        ),
        (
            "{\"goal\": \"x\", \"limits\": {\"max_stepz\": 3}}",
            &["limits.max_stepz: unknown field", "did you mean `max_steps`?"],
        ),
        ("{\"goal\": \"x\", \"timeout_ms\": -5}", &["timeout_ms: "]),
        (&deep, &["recursion limit"]),
    ];
    for (text, says) in cases {
        let error = refused::<Spawn>(text.as_bytes());
        for fragment in *says {
            assert!(error.contains(fragment), "{:.80}\ngives {error}\nwithout {fragment}", text);
        }
    }
}

#[test]
fn every_mistake_of_a_submission_comes_in_one_answer() {
    let error = refused::<Spawn>(
        br#"{"gaol": "x", "child_id": "..", "max_cost_usd": -1, "tools": ["ok", "n t"], "limits": {"max_depht": 1}}"#,
    );
    for path in
        ["gaol: ", "child_id: ", "max_cost_usd: ", "tools[1]: ", "limits.max_depht: ", "`goal` is missing"]
    {
        assert!(error.contains(path), "{path} is not in\n{error}");
    }
}

#[test]
fn every_mistake_of_a_nested_step_has_its_path() {
    let graph = json!({"steps": [{"steps": [
        {"agent_id": "a b", "task_description": "", "for_each": {"in": "x", "max_parallell": 2}, "output_too": "y"},
    ]}]});
    let error = decode::value::<TaskGraph>(&graph).unwrap_err().to_string();
    for path in ["agent_id", "task_description", "for_each", "output_too"] {
        assert!(error.contains(&format!("steps[0].steps[0].{path}")), "{path} is not in\n{error}");
    }
    assert!(
        error.contains("did you mean `output_to`?") && error.contains("did you mean `max_parallel`?"),
        "{error}"
    );
}

#[test]
fn g2_an_error_about_a_wrong_type_names_the_right_one() {
    let wrong = |field: &str, value: Value| {
        let mut step = json!({"agent_id": "a", "task_description": "t"});
        step[field] = value;
        decode::value::<TaskGraph>(&json!({"steps": [step]})).unwrap_err().to_string()
    };
    assert_eq!(wrong("for_each", json!(3)), "steps[0].for_each: it should be a string or an object, not 3");
    assert_eq!(wrong("loop", json!(3)), "steps[0].loop: it should be an object, not 3");
    assert_eq!(wrong("when", json!(true)), "steps[0].when: it should be a string, not true");
    assert_eq!(wrong("hitl", json!("nope")), "steps[0].hitl: \"nope\" is not one of ask, fail");
}

#[test]
fn yaml_words_that_look_like_booleans_are_words() {
    let text = b"steps:\n  - {id: n, agent_id: y, task_description: yes, output_to: on}\n";
    let (definition, _) = graph::read(text, Format::Yaml).unwrap();
    assert_eq!(definition.steps[0].output_to.as_ref().unwrap().as_str(), "on");
}

#[test]
fn g2_mistakes_of_type_and_of_meaning_come_in_one_answer() {
    let text = br#"{"mode": "paralel", "steps": [
        {"id": "one", "agent_id": "a b", "task_descripton": "t", "when": "output.x > 1", "input_from": ["nothing"]},
        {"id": "one", "agent_id": "a", "task_description": "t", "tools": ["x", "n t"], "depends_on": ["two"]}
    ]}"#;
    let error = graph::read(text, Format::Json).unwrap_err().to_string();
    for expected in [
        "mode: \"paralel\" is not one of sequential, parallel",
        "steps[0].agent_id: \"a b\" is not a valid agent_id",
        "steps[0].task_descripton: unknown field",
        "steps[1].tools[1]: \"n t\" is not a valid tool",
        "steps[0].when: unknown variable `output`",
        "steps[0].input_from[0]: nothing writes `nothing`",
        "steps[1].id: duplicate id `one`",
        "steps[1].depends_on[0]: there is no step `two`",
    ] {
        assert!(error.contains(expected), "no {expected:?} in\n{error}");
    }
    assert!(!error.contains("`agent_id` is missing"), "one mistake is reported twice:\n{error}");
}

#[test]
fn invalid_utf_8_and_oversize_messages_are_refused() {
    assert!(refused::<Spawn>(b"{\"goal\": \"\xff\xfe\"}").contains("not valid JSON"));
    let huge = format!("{{\"goal\": \"{}\"}}", "x".repeat(9 * 1024 * 1024));
    assert!(refused::<Spawn>(huge.as_bytes()).contains("more than the 8388608 allowed"));
    let long = format!("{{\"goal\": \"{}\"}}", "x".repeat(70_000));
    assert!(
        refused::<Spawn>(long.as_bytes())
            .contains("goal: the text has 70000 bytes, more than the 65536 allowed")
    );
}

#[test]
fn f30_a_hundred_thousand_steps_are_refused_at_once() {
    let step = json!({"agent_id": "a", "task_description": "t"});
    let graph = json!({"steps": vec![step; 100_000]});
    let graph: TaskGraph = decode::value(&graph).unwrap();
    assert!(Plan::compile(&graph).unwrap_err().to_string().contains("100000 steps are more than"));
}

#[test]
fn hostile_yaml_is_refused() {
    let bomb = (1..30).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
        format!(
            "{text}a{n}: &a{n} [*a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}]\n",
            p = n - 1
        )
    });
    let deep = format!("steps: {}x{}", "[".repeat(5000), "]".repeat(5000));
    for text in
        [bomb.as_str(), deep.as_str(), "steps: [", "\t- a", "steps: *nobody", "!!binary x", "", "---\n---\n"]
    {
        let problems = graph::read(text.as_bytes(), Format::Yaml).unwrap_err().to_string();
        assert!(!problems.is_empty());
    }
}

#[test]
fn all_mistakes_of_a_profile_are_reported() {
    let error = refused::<AgentProfile>(br#"{"agent_id": "a", "kind": "robot", "modle": "gpt"}"#);
    assert!(error.contains("kind: ") && error.contains("did you mean `model`?"), "{error}");
}

#[test]
fn every_mistake_of_an_ask_has_its_path() {
    let error = refused::<AskMessage>(
        br#"{"trace_id": "0af7651916cd43dd8448eb211c80319c", "ask": {"hold": {"lease": {"child_id": "a", "attempt": -1, "token": "t"}, "call_id": "c", "amount": {"cost_usd": "lots"}}}}"#,
    );
    assert!(
        error.contains("ask.hold.lease.attempt") && error.contains("ask.hold.amount.cost_usd"),
        "{error}"
    );
    let error =
        refused::<AskMessage>(br#"{"trace_id": "0af7651916cd43dd8448eb211c80319c", "ask": {"hodl": {}}}"#);
    assert!(
        error.contains("not one of claim, tick, hold") && error.contains("did you mean `hold`?"),
        "{error}"
    );
}

/// B21, G13: every mistake of a ladder or a message, with its path and a hint.
#[test]
fn b21_g13_all_mistakes_of_bad_ladders_and_messages_are_reported() {
    let ladders = [
        json!([{"at": 0, "tell": true}]),
        json!([{"at": 1, "tell": true}]),
        json!([{"at": -0.5, "tell": true}, {"at": 1.5, "compact": true}]),
        json!([{"at": 0.5}]),
        json!([{"at": 0.5, "tell": false}]),
        json!([{"at": 0.5, "tell": true, "compact": true}]),
        json!([{"at": 0.9, "tell": true}, {"at": 0.8, "tell": true}, {"at": 0.8, "compact": true}]),
        json!([{"at": 0.5, "model": "cheaper"}]),
        json!([{"at": 2, "model": "cheaper", "tell": true}, {"at": 0.1}]),
        json!([{"tell": true}]),
        json!([{"at": "0.8", "tell": true}]),
        json!([{"at": 0.12345678, "tell": true}]),
        json!([{"at": 0.8, "tel": true}]),
        json!([{"at": 0.8, "model": "no such name"}]),
        json!([{"at": 0.8, "tell": "yes"}, {"at": 1e300, "compact": true}]),
        json!({"at": 0.8, "tell": true}),
        json!((1..=17).map(|n| json!({"at": f64::from(n) / 100.0, "tell": true})).collect::<Vec<_>>()),
    ];
    let mut told = String::new();
    for ladder in ladders {
        let profile = json!({"agent_id": "a", "kind": "llm", "model": "m", "on_budget": ladder});
        let profile = decode::value::<AgentProfile>(&profile).and_then(|profile| profile.check());
        let step = json!({"agent_id": "a", "task_description": "t", "on_budget": ladder});
        let graph = graph::read(json!({"steps": [step]}).to_string().as_bytes(), Format::Json).map(drop);
        let shown = if ladder.to_string().len() > 200 { "17 rungs".into() } else { ladder.to_string() };
        let said = |read: Result<(), Problems>| {
            read.map_or_else(|problems| problems.to_string(), |()| "fine".into())
        };
        told.push_str(&format!("{shown}\nprofile:\n{}\ngraph:\n{}\n\n", said(profile), said(graph)));
    }
    let group = json!({"steps": [{"on_budget": [], "steps": [{"agent_id": "a", "task_description": "t"}]}]});
    let graph = graph::read(group.to_string().as_bytes(), Format::Json).unwrap_err();
    told.push_str(&format!("a group with a ladder\n{graph}\n\n"));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let messages = [
        json!({"trace_id": trace, "told": {"id": "a", "text": ""}}),
        json!({"trace_id": trace, "told": {"id": "a.b", "text": "t", "by": " "}}),
        json!({"trace_id": trace, "told": {"text": "t", "chlid_id": "x"}}),
        json!({"trace_id": trace, "told": {"id": "a", "text": "x".repeat(70_000)}}),
        json!({"trace_id": "0", "told": "hello"}),
    ];
    for message in messages {
        let shown = message.to_string();
        let shown = if shown.len() > 200 { "70,000 characters" } else { &shown };
        let problems = decode::value::<Input>(&message).unwrap_err();
        told.push_str(&format!("{shown}\n{problems}\n\n"));
    }
    insta::assert_snapshot!(told);
}

/// G7: every mistake of an `approve` step is reported at once.
#[test]
fn g7_all_mistakes_of_bad_approve_steps_are_reported() {
    let graph = json!({"hitl": "fail", "steps": [
        {"id": "a", "agent_id": "x", "task_description": "t", "max_cost_usd": 1, "timeout_ms": 5, "hitl": "ask", "race": true,
         "approve": {"who": "me", "timeout_ms": 0, "otherwise": "approve", "choices": ["go", "Go", "deny"], "remind_every_ms": 1}},
        {"id": "b", "approve": {"who": "me", "otherwise": "deny"}},
        {"id": "c", "approve": {"who": "me"}, "steps": [{"agent_id": "x", "task_description": "t"}]}]});
    let graph: TaskGraph = decode::value(&graph).unwrap();
    let problems = Plan::compile(&graph).unwrap_err();
    let told: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    insta::assert_snapshot!(told.join("\n"));
    let unknown = refused::<TaskGraph>(
        br#"{"steps": [{"id": "a", "approve": {"question": "?", "otherwize": "fail"}}]}"#,
    );
    for says in ["steps[0].approve.otherwize: unknown field", "did you mean `otherwise`?", "`who` is missing"]
    {
        assert!(unknown.contains(says), "{unknown}");
    }
}

fn knock(bytes: &[u8]) {
    let _ = decode::json::<Spawn>(bytes);
    let _ = decode::json::<AskMessage>(bytes);
    let _ = decode::json::<wire::Result>(bytes);
    let _ = decode::json::<Cost>(bytes);
    let _ = decode::json::<Cancel>(bytes);
    let _ = decode::json::<Input>(bytes);
    let _ = decode::json::<Control>(bytes);
    let _ = decode::json::<AgentProfile>(bytes);
    let _ = graph::read(bytes, Format::Json);
    let _ = graph::read(bytes, Format::Yaml);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<domain::subject::Subject>();
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}*>./ -]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(field(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Real field names, so that random input gets past the first check.
fn field() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "goal",
        "steps",
        "mode",
        "id",
        "agent_id",
        "task_description",
        "input_from",
        "output_to",
        "depends_on",
        "when",
        "loop",
        "for_each",
        "fallback",
        "race",
        "aggregate",
        "max_rounds",
        "until",
        "in",
        "max_cost_usd",
        "limits",
        "trace_id",
        "ask",
        "hold",
        "lease",
        "child_id",
        "attempt",
        "token",
        "call_id",
        "amount",
        "cost_usd",
        "verdict",
    ])
    .prop_map(str::to_owned)
}

/// A graph with real field names and random values, so that it reaches the compiler.
fn wild_graph() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let leaf = (name(), name(), name(), name(), 0u8..12, any::<bool>()).prop_map(
        |(id, input, output, depends, kind, named)| {
            let mut step = json!({"agent_id": "x", "task_description": "t", "output_to": output});
            if named {
                step["id"] = json!(id);
            }
            match kind {
                0..3 => step["input_from"] = json!([input]),
                3 => step["depends_on"] = json!([depends]),
                4 => step["for_each"] = json!(input),
                5 => step["loop"] = json!({"max_rounds": 2, "until": format!("outputs.{input} == 1")}),
                6 => {
                    step["when"] =
                        json!(format!("has(outputs.{input}) && steps.{depends}.status == 'failed'"))
                }
                7 => step["fallback"] = json!("y"),
                _ => {}
            }
            step
        },
    );
    let step = leaf.prop_recursive(4, 24, 4, |inner| {
        (prop::collection::vec(inner, 1..4), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(steps, race, parallel, repeat)| {
            let mut group = json!({"steps": steps, "race": race, "mode": if parallel { "parallel" } else { "sequential" }});
            if repeat {
                group["loop"] = json!({"max_rounds": 3});
            }
            group
        })
    });
    (prop::collection::vec(step, 1..6), any::<bool>()).prop_map(
        |(steps, parallel)| json!({"steps": steps, "mode": if parallel { "parallel" } else { "sequential" }}),
    )
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn f23_random_bytes_never_panic_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        knock(&bytes);
    }

    #[test]
    fn f23_random_json_never_panics_a_decoder(value in any_json()) {
        knock(value.to_string().as_bytes());
    }

    /// A graph that compiles has no cycle.
    #[test]
    fn g2_random_graphs_compile_or_are_refused_with_reasons(graph in wild_graph()) {
        let graph: TaskGraph = decode::value(&graph).unwrap();
        if let Ok(plan) = Plan::compile(&graph) {
            for group in plan.groups() {
                let mut done = vec![false; group.steps.len()];
                // The steps can run in some order: repeatedly take the steps whose dependencies are
                // done.
                for _ in 0..group.steps.len() {
                    let ready = (0..group.steps.len()).find(|s| !done[*s] && group.steps[*s].waits_for.iter().all(|w| done[*w as usize]));
                    prop_assert!(ready.is_some(), "a cycle was not found");
                    done[ready.unwrap()] = true;
                }
            }
            let mut ids: Vec<_> = plan.groups().iter().flat_map(|group| &group.steps).map(|step| step.id.clone()).collect();
            ids.sort();
            let count = ids.len();
            ids.dedup();
            prop_assert_eq!(ids.len(), count);
            prop_assert_eq!(&serde_json::from_value::<Plan>(serde_json::to_value(&plan).unwrap()).unwrap(), &plan);
        }
    }

    #[test]
    fn b2_dollars_survive_a_round_trip(nanos in 0..=1_000_000_000_000_000u64) {
        let amount = domain::Usd::from_nanos(nanos);
        let text = serde_json::to_string(&amount).unwrap();
        prop_assert_eq!(serde_json::from_str::<domain::Usd>(&text).unwrap(), amount);
        let decimal = amount.to_string();
        prop_assert_eq!(decimal[1..].parse::<domain::Usd>().unwrap(), amount);
    }
}
