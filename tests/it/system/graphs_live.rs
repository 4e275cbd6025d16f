//! Every construct of a task graph (G1) that needs no model, run by real coordinators and workers,
//! in memory and on real servers. `coordinator/core/tests/it/graph_flow` proves the rules; this
//! proves them from the submission to the outcome.

use std::time::Duration;

use bus::From;
use domain::{
    span::Headers,
    subject::{Filter, Subject},
    wire::Outcome,
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Client, Cluster, SOON},
    servers::{NatsServer, RedisServer},
};
use world::invariants;

/// A graph and its expected outcome.
struct Case {
    name: &'static str,
    graph: Value,
    /// `status verdict`, as `completed partial`.
    ends: &'static str,
    /// `step status` of each, as `a succeeded`; with `+fallback` if the fallback answered.
    steps: &'static [&'static str],
    /// The expected outputs; other outputs are not checked.
    outputs: Value,
}

fn step(id: &str, agent: &str) -> Value {
    json!({"id": id, "agent_id": agent, "task_description": format!("do {id}")})
}

/// A step with more fields.
fn with(mut step: Value, more: Value) -> Value {
    step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    step
}

/// A step that pays for a call as the graph's inputs specify.
fn paying(number: u32) -> Value {
    with(step(&format!("s{number}"), "spend"), json!({"input_from": ["usd", "hold_usd", "ms"]}))
}

fn failing(id: &str) -> Value {
    with(step(id, "fail"), json!({"retries": 0}))
}

fn cases() -> Vec<Case> {
    let case = |name, graph, ends, steps, outputs| Case { name, graph, ends, steps, outputs };
    let a = || with(step("a", "echo"), json!({"output_to": "a"}));
    vec![
        case(
            "sequential",
            json!({"steps": [a(), with(step("b", "echo"), json!({"output_to": "b"}))]}),
            "completed succeeded",
            &["a succeeded", "b succeeded"],
            json!({"a": "do a", "b": "do b"}),
        ),
        case(
            "parallel, with data and order between them",
            json!({"mode": "parallel", "steps": [
                with(step("last", "echo"), json!({"depends_on": ["b"]})),
                with(step("b", "echo"), json!({"input_from": ["a"], "output_to": "b"})),
                a(),
            ]}),
            "completed succeeded",
            &["last succeeded", "b succeeded", "a succeeded"],
            json!({"a": "do a", "b": "do b"}),
        ),
        case(
            "ten calls at once that hold more than there is, and cost less",
            json!({"mode": "parallel", "max_cost_usd": 0.2,
                "inputs": {"usd": "0.0093", "hold_usd": "0.0372", "ms": 100},
                "steps": (0..10).map(paying).collect::<Vec<_>>()}),
            "completed succeeded",
            &[
                "s0 succeeded",
                "s1 succeeded",
                "s2 succeeded",
                "s3 succeeded",
                "s4 succeeded",
                "s5 succeeded",
                "s6 succeeded",
                "s7 succeeded",
                "s8 succeeded",
                "s9 succeeded",
            ],
            json!({}),
        ),
        case(
            "when",
            json!({"inputs": {"n": 3}, "steps": [
                with(step("yes", "echo"), json!({"when": "outputs.n > 2"})),
                with(step("no", "echo"), json!({"when": "outputs.n > 5", "output_to": "no"})),
                with(step("rich", "echo"), json!({"when": "budget.remaining_usd > 100.0"})),
            ]}),
            "completed succeeded",
            &["yes succeeded", "no skipped", "rich skipped"],
            json!({"no": null}),
        ),
        case(
            "for_each",
            json!({"inputs": {"items": [1, 2, 3]}, "steps": [
                with(step("map", "echo"), json!({"for_each": {"in": "items", "max_parallel": 2}, "output_to": "all"})),
            ]}),
            "completed succeeded",
            &["map succeeded"],
            json!({"all": ["do map", "do map", "do map"]}),
        ),
        case(
            "race: the loser is cancelled",
            json!({"inputs": {"ms": 600_000}, "steps": [{"id": "first", "race": true, "output_to": "won", "steps": [
                step("quick", "echo"),
                with(step("slow", "sleep"), json!({"input_from": ["ms"]})),
            ]}]}),
            "completed succeeded",
            &["first succeeded", "quick succeeded", "slow cancelled"],
            json!({"won": "do quick"}),
        ),
        case(
            "loop until",
            json!({"steps": [
                with(step("polish", "echo"), json!({"loop": {"max_rounds": 3, "until": "has(outputs.p)"}, "output_to": "p"})),
            ]}),
            "completed succeeded",
            &["polish succeeded"],
            json!({"p": "do polish"}),
        ),
        case(
            "fallback",
            json!({"steps": [with(failing("main"), json!({"fallback": "echo", "output_to": "x"}))]}),
            "completed succeeded",
            &["main succeeded+fallback"],
            json!({"x": "do main"}),
        ),
        case(
            "output_schema",
            json!({"steps": [with(step("n", "echo"), json!({"output_schema": {"type": "number"}, "retries": 0}))]}),
            "failed failed",
            &["n failed"],
            json!({}),
        ),
        case(
            "aggregate",
            json!({"agent_id": "echo", "task_description": "Put it together", "aggregate": {}, "mode": "parallel",
                "steps": [step("one", "echo"), step("two", "echo")]}),
            "completed succeeded",
            &["one succeeded", "two succeeded"],
            json!({}),
        ),
        case(
            "nested groups",
            json!({"steps": [{"id": "outer", "mode": "parallel", "output_to": "o", "steps": [
                {"id": "inner", "steps": [a()]}, step("b", "echo"),
            ]}]}),
            "completed succeeded",
            &["outer succeeded", "inner succeeded", "a succeeded", "b succeeded"],
            json!({"o": {"b": "do b", "inner": {"a": "do a"}}}),
        ),
        case(
            "retries",
            json!({"inputs": {"times": 1}, "steps": [with(step("flaky", "fail"), json!({"retries": 2, "input_from": ["times"], "output_to": "x"}))]}),
            "completed succeeded",
            &["flaky succeeded"],
            json!({"x": "do flaky"}),
        ),
        case(
            "timeout",
            json!({"inputs": {"ms": 600_000}, "steps": [with(step("slow", "sleep"), json!({"timeout_ms": 300, "input_from": ["ms"]}))]}),
            "failed failed",
            &["slow timed_out"],
            json!({}),
        ),
        case(
            "granted budgets",
            json!({"max_cost_usd": 0.05, "mode": "parallel", "inputs": {"usd": 0.02}, "steps": [
                with(step("a", "spend"), json!({"funding": "granted", "max_cost_usd": 0.02, "input_from": ["usd"]})),
                with(step("b", "spend"), json!({"funding": "granted", "max_cost_usd": 0.01, "input_from": ["usd"], "required": false})),
            ]}),
            "completed succeeded",
            &["a succeeded", "b failed"],
            json!({}),
        ),
        case(
            "fail",
            json!({"steps": [failing("bad"), step("never", "echo")]}),
            "failed failed",
            &["bad failed", "never skipped"],
            json!({}),
        ),
        case(
            "continue",
            json!({"on_partial_success": "continue", "mode": "parallel", "steps": [
                with(failing("bad"), json!({"output_to": "x"})), a(), with(step("needs", "echo"), json!({"input_from": ["x"]})),
            ]}),
            "completed partial",
            &["bad failed", "a succeeded", "needs skipped"],
            json!({"a": "do a"}),
        ),
        case(
            "best_effort",
            json!({"on_partial_success": "best_effort", "mode": "parallel", "steps": [
                with(failing("bad"), json!({"output_to": "x"})), with(step("needs", "echo"), json!({"input_from": ["x"]})),
            ]}),
            "completed succeeded",
            &["bad failed", "needs succeeded"],
            json!({}),
        ),
        case(
            "hitl: fail",
            json!({"steps": [with(step("who", "ask"), json!({"hitl": "fail", "retries": 0}))]}),
            "failed failed",
            &["who failed"],
            json!({}),
        ),
    ]
}

/// The steps of a graph and of its inner groups, as `id status`: each group has a separate outcome.
async fn steps_of(client: &Client, outcome: &Outcome) -> Vec<String> {
    let stored = client.bus.read(&Filter::OutcomesOf(outcome.trace_id)).await.unwrap();
    let mut found = Vec::new();
    for stored in stored {
        let outcome: Value = serde_json::from_slice(&stored.payload).unwrap();
        for step in outcome["graph"]["steps"].as_array().into_iter().flatten() {
            let mark = if step["fallback"] == true { "+fallback" } else { "" };
            found.push(format!(
                "{} {}{mark}",
                step["id"].as_str().unwrap(),
                step["status"].as_str().unwrap()
            ));
        }
    }
    found
}

async fn check(client: &Client, case: &Case) {
    let outcome: Outcome = client.run(case.graph.clone()).await;
    let told = serde_json::to_value(&outcome).unwrap();
    let ends = format!("{} {}", told["status"].as_str().unwrap(), told["graph"]["verdict"].as_str().unwrap());
    assert_eq!(ends, case.ends, "{}: {told:#}", case.name);
    let steps = steps_of(client, &outcome).await;
    for wanted in case.steps {
        assert!(
            steps.iter().any(|step| step == wanted),
            "{}: no `{wanted}` in {steps:?}\n{told:#}",
            case.name
        );
    }
    for (key, value) in case.outputs.as_object().unwrap() {
        assert_eq!(&told["outputs"][key], value, "{}: {told:#}", case.name);
    }
    let trace = client.trace(outcome.trace_id).await;
    invariants::check_at_rest(&trace).unwrap_or_else(|error| panic!("{}: {error}", case.name));
}

/// G7: the question reaches observers, and the answer reaches the step.
async fn a_human_is_asked(client: &Client) {
    let graph = json!({"steps": [with(step("who", "ask"), json!({"output_to": "who"}))]});
    let accepted = client.accepted(graph).await;
    let mut questions =
        client.bus.follow(&[Filter::QuestionsOf(accepted.trace_id)], From::Start).await.unwrap();
    let question = tokio::time::timeout(SOON, questions.next()).await.expect("a question").unwrap();
    let question: Value = serde_json::from_slice(&question.payload).unwrap();
    assert_eq!(question["path"], json!(["root", "who"]));
    let answered = json!({"child_id": "who", "question": question["number"], "answer": "Ada"});
    client.publish(Subject::Input, &json!({"trace_id": accepted.trace_id, "answered": answered})).await;
    let outcome = client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert_eq!(serde_json::to_value(&outcome.outputs).unwrap()["who"], "Ada");
}

/// G8: a running step is stopped, and a waiting step never begins.
async fn a_running_graph_is_cancelled(client: &Client) {
    let slow = with(step("slow", "sleep"), json!({"input_from": ["ms"]}));
    let graph = json!({"inputs": {"ms": 600_000}, "steps": [slow, step("never", "echo")]});
    let accepted = client.accepted(graph).await;
    let slow = "slow".parse().unwrap();
    let runs = async {
        while client.trace(accepted.trace_id).await.context(&slow).is_none_or(|node| node.attempt() == 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, runs).await.expect("the step runs");
    client.publish(Subject::Cancel, &json!({"trace_id": accepted.trace_id, "reason": "enough"})).await;
    let outcome = client.outcome(accepted.trace_id, &accepted.child_id).await;
    let told = serde_json::to_value(&outcome).unwrap();
    assert_eq!((&told["status"], &told["reason"]), (&json!("cancelled"), &json!("enough")), "{told:#}");
    assert_eq!(steps_of(client, &outcome).await, ["slow cancelled", "never skipped"]);
    // The worker is free again long before the sleep would be over.
    let free = async {
        loop {
            let asked =
                client.bus.request(&Subject::Worker, &Headers::new(), "\"describe\"".into(), SOON).await;
            let state: Value = serde_json::from_slice(&asked.unwrap()).unwrap();
            if state["running"] == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, free).await.expect("the sleep was cut off");
}

async fn try_all(cluster: Cluster) {
    for case in cases() {
        check(&cluster.client, &case).await;
    }
    a_human_is_asked(&cluster.client).await;
    a_running_graph_is_cancelled(&cluster.client).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_every_construct_of_a_graph_in_memory() {
    try_all(Cluster::embedded()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_every_construct_of_a_graph_on_real_servers() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    try_all(Cluster::on(&nats, &redis).await).await;
}

/// Two calls of 20 s on a budget with room for one hold. The second waits in its worker's slot for
/// 10 s, parks, and is made when the first has returned its rest. It does not park if its ask comes
/// 10 s after the first.
#[tokio::test(flavor = "multi_thread")]
async fn b8_a_call_that_waits_for_long_gives_up_its_slot_and_is_made_when_its_turn_comes() {
    let cluster = Cluster::embedded();
    let inputs = json!({"usd": "0.01", "hold_usd": "0.12", "ms": 20_000});
    let steps: Vec<Value> = (0..2).map(paying).collect();
    let graph = json!({"mode": "parallel", "max_cost_usd": 0.2, "inputs": inputs, "steps": steps});
    let outcome = cluster.client.run(graph).await;
    assert_eq!(outcome.context.budget.spent.cost_usd, domain::Usd::from_cents(2), "{outcome:#?}");
    let trace = cluster.client.trace(outcome.trace_id).await;
    let mut attempts: Vec<u32> = trace.contexts().iter().skip(1).map(|node| node.attempt()).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2], "one context parked");
    cluster.stop().await;
}
