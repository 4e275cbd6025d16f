//! Undos on real servers (G14): the prompts in the log of the model server, their cost, and
//! `runs cancel`.

use std::process::Command;

use serde_json::{Value, json};
use trace::{ContextNode, Trace};
use trellis_tests::{
    processes::{Processes, binary},
    servers::{Gate, ModelServer, Prompt, Reply},
};

use crate::agents;

/// A model that answers with its task. Tasks with a gate wait there.
pub(crate) async fn model(gates: Vec<(&'static str, Gate)>) -> ModelServer {
    ModelServer::start(move |prompt| {
        let task = prompt.task();
        let gate = gates.iter().find(|(gated, _)| *gated == task).map(|(_, gate)| gate.clone());
        // The payment is refused, and no retry changes that.
        let status = (task == "book pay").then_some(400);
        Reply { gate, status, ..agents::say(&format!("done: {task}")) }
    })
    .await
}

/// One agent that books, and one that cancels.
pub(crate) fn profiles() -> Value {
    let agent = |name| json!({"agent_id": name, "kind": "llm", "model": "test/model", "tools": []});
    json!([agent("booker"), agent("canceller")])
}

/// Steps in sequence, each with an undo: each needs the one before it.
pub(crate) fn trip(names: &[&str]) -> Value {
    let step = |name: &&str| {
        let cancels = json!({"agent_id": "canceller", "task_description": format!("cancel {name}"), "max_cost_usd": 0.2});
        json!({"id": name, "agent_id": "booker", "task_description": format!("book {name}"), "undo": cancels})
    };
    let steps: Vec<Value> = names.iter().map(step).collect();
    json!({"mode": "sequential", "max_cost_usd": 2, "steps": steps})
}

/// All prompts of the model, in their order.
pub(crate) fn asked(model: &ModelServer) -> Vec<String> {
    model.prompts().into_iter().map(|body| Prompt { body }.task()).collect()
}

/// The contexts that undo, in the order in which they were begun.
pub(crate) fn undos(trace: &Trace) -> Vec<String> {
    let undoes = |node: &&ContextNode| node.identity.undoes.is_some();
    trace.contexts().iter().filter(undoes).map(|node| node.id.to_string()).collect()
}

fn undo_statuses(outcome: &Value) -> Vec<Option<&str>> {
    let steps = outcome["graph"]["steps"].as_array().unwrap().iter();
    steps.map(|step| step["undo"]["status"].as_str()).collect()
}

/// The output and the exit code of a command in a cluster.
fn trellis(cluster: &Processes, arguments: &[&str]) -> String {
    let nats = cluster.nats.url();
    let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Asserts that the spending is within the ceiling, and that nothing is held.
fn check_money(trace: &Trace) {
    for node in trace.contexts() {
        let budget = &node.budget;
        assert!(budget.held.is_zero() && budget.reserved.is_zero(), "{}: {budget:?}", node.id);
        assert!(budget.spent.exceeds(budget.ceilings.limit).is_none(), "{}: {budget:?}", node.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_the_model_is_asked_for_each_undo_once_and_the_latest_first() {
    let model = model(Vec::new()).await;
    let cluster = agents::cluster(2, &model, profiles()).await;
    let run = cluster.begin(trip(&["flight", "hotel", "pay"])).await;
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "failed", "{outcome:#}");
    assert_eq!(
        asked(&model),
        ["book flight", "book hotel", "book pay", "cancel hotel", "cancel flight"],
        "{outcome:#}"
    );
    assert_eq!(undos(&trace), ["hotel-undo", "flight-undo"]);
    assert_eq!(undo_statuses(&outcome), [Some("undone"), Some("undone"), None]);
    assert_eq!(outcome["graph"]["undone"], json!(["flight", "hotel"]));
    assert!(outcome["graph"]["undo_failed"].is_null(), "{outcome:#}");
    // Each undo receives the result that it undoes.
    let prompts = model.prompts();
    for (place, result) in [(3, "done: book hotel"), (4, "done: book flight")] {
        assert!(prompts[place]["messages"].to_string().contains(result), "{:#}", prompts[place]);
    }
    agents::check_bill(&model, &[&trace], 0);
    check_money(&trace);
    assert_eq!(outcome["graph"]["steps"][0]["undo"]["cost_usd"], json!(0.00014), "{outcome:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_runs_cancel_undoes_what_had_succeeded_and_without_undo_does_not() {
    let (booking, cancelling) = (Gate::default(), Gate::default());
    let gates = vec![("book car", booking.clone()), ("cancel hotel", cancelling.clone())];
    let model = model(gates).await;
    let cluster = agents::cluster(2, &model, profiles()).await;
    let names = ["flight", "hotel", "car"];
    let booked = ["book flight", "book hotel", "book car"];

    // Nothing is undone.
    let run = cluster.begin(trip(&names)).await;
    booking.reached().await;
    let said = trellis(&cluster, &["runs", "cancel", &run.to_string(), "--without-undo"]);
    assert!(said.contains(": the run is cancelled\n") && said.ends_with("exit Some(0)"), "{said}");
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "cancelled", "{outcome:#}");
    assert_eq!(undo_statuses(&outcome), [Some("dropped"), Some("dropped"), None]);
    check_money(&trace);
    assert_eq!(asked(&model), booked);

    // The undo of the succeeded steps begins, and a second cancel ends it too.
    let run = cluster.begin(trip(&names)).await;
    booking.reached().await;
    let said = trellis(&cluster, &["runs", "cancel", &run.to_string()]);
    assert!(said.contains(": the run is cancelled, and undoes its succeeded steps\n"), "{said}");
    cancelling.reached().await;
    let said = trellis(&cluster, &["runs", "cancel", &run.to_string(), "--without-undo"]);
    assert!(said.contains("its remaining undos are dropped\n"), "{said}");
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "cancelled", "{outcome:#}");
    assert_eq!(undos(&trace), ["hotel-undo"]);
    assert_eq!(undo_statuses(&outcome), [Some("dropped"), Some("failed"), None]);
    check_money(&trace);
    assert_eq!(asked(&model)[3..], [&booked[..], &["cancel hotel"]].concat());

    // All succeeded steps are undone.
    let run = cluster.begin(trip(&names)).await;
    booking.reached().await;
    // A second cancel changes nothing.
    for _ in 0..2 {
        let said = trellis(&cluster, &["runs", "cancel", &run.to_string()]);
        assert!(said.contains("undoes its succeeded steps\n") && said.ends_with("exit Some(0)"), "{said}");
    }
    cancelling.reached().await;
    cancelling.open();
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "cancelled", "{outcome:#}");
    assert_eq!(undos(&trace), ["hotel-undo", "flight-undo"]);
    assert_eq!(undo_statuses(&outcome), [Some("undone"), Some("undone"), None]);
    check_money(&trace);
    assert_eq!(asked(&model)[7..], [&booked[..], &["cancel hotel", "cancel flight"]].concat());
    booking.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_runs_cancel_reports_a_running_undo_and_no_rerun_begins_before_its_end() {
    let (booking, cancelling) = (Gate::default(), Gate::default());
    let gates = vec![("book car", booking.clone()), ("cancel flight", cancelling.clone())];
    let model = model(gates).await;
    let cluster = agents::cluster(2, &model, profiles()).await;
    let steps = trip(&["flight", "pay"])["steps"].take();
    let group = json!({"id": "trip", "on_partial_success": "fail", "mode": "sequential", "steps": steps});
    let mut graph = trip(&["car"]);
    graph["mode"] = json!("parallel");
    graph["on_partial_success"] = json!("continue");
    graph["steps"].as_array_mut().unwrap().insert(0, group);
    let run = cluster.begin(graph).await;
    booking.reached().await;
    cancelling.reached().await;
    let said = trellis(&cluster, &["runs", "cancel", &run.to_string()]);
    assert!(said.contains(": the run is cancelled, and a group in it still undoes"), "{said}");
    let said = trellis(&cluster, &["runs", "rerun", &run.to_string()]);
    assert!(said.contains("is still undoing") && !said.ends_with("exit Some(0)"), "{said}");
    cancelling.open();
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "cancelled", "{outcome:#}");
    assert_eq!(undos(&trace), ["flight-undo"]);
    check_money(&trace);
    booking.open();
}
