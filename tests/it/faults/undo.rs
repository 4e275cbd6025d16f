//! Coordinators and workers that are killed while a graph undoes its steps (G14).

use serde_json::{Value, json};
use trellis_tests::{
    processes::{Processes, Shape},
    servers::{Gate, ModelServer},
};

use crate::{
    agents,
    system::undo::{asked, profiles, trip, undos},
};

const STEPS: [&str; 4] = ["flight", "hotel", "car", "pay"];
const UNDOS: [&str; 3] = ["car-undo", "hotel-undo", "flight-undo"];

/// The tasks that the model receives if nothing is lost.
const ASKED: [&str; 7] =
    ["book flight", "book hotel", "book car", "book pay", "cancel car", "cancel hotel", "cancel flight"];

/// A lease and a hold that outlast missing coordinators: no second attempt.
async fn patient(model: &ModelServer) -> Processes {
    let settings = json!({"lease_ms": 60_000, "hold_grace_ms": 120_000});
    let shape = || Shape { settings, worker: model.settings(), ..Shape::new(1, 1) };
    let cluster = Processes::start_as(shape).await;
    cluster.apply(profiles()).await;
    cluster
}

fn undo_attempts(outcome: &Value) -> Vec<Option<u64>> {
    let steps = outcome["graph"]["steps"].as_array().unwrap().iter();
    steps.map(|step| step["undo"]["attempts"].as_u64()).collect()
}

/// A coordinator aborts at `point` when its first message is the failure of the last step, and
/// later when it is the end of an undo.
async fn undone_by_one_that_dies(point: &str) {
    let (paying, cancelling) = (Gate::default(), Gate::default());
    let gates = vec![("book pay", paying.clone()), ("cancel hotel", cancelling.clone())];
    let model = crate::system::undo::model(gates).await;
    let mut cluster = patient(&model).await;
    let run = cluster.begin(trip(&STEPS)).await;
    for gate in [paying, cancelling] {
        gate.reached().await;
        cluster.kill("c1");
        gate.open();
        cluster.run_with("c1", &["--crash-at", point]);
        cluster.gone("c1").await;
        cluster.run("c1");
    }
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "failed", "{point}: {outcome:#}");
    assert_eq!(undos(&trace), UNDOS, "{point}");
    assert_eq!(asked(&model), ASKED, "{point}");
    assert_eq!(outcome["graph"]["undone"], json!(["flight", "hotel", "car"]), "{point}: {outcome:#}");
    agents::check_bill(&model, &[&trace], 0);
}

/// proves: an uncommitted decision to undo is made again.
#[tokio::test(flavor = "multi_thread")]
async fn g14_a_coordinator_dies_before_the_commit_of_an_undo() {
    undone_by_one_that_dies("decided").await;
}

/// proves: a committed undo is started once, although no message about it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn g14_a_coordinator_dies_before_it_sends_an_undo() {
    undone_by_one_that_dies("committed").await;
    undone_by_one_that_dies("committed:2").await;
}

/// proves: a redelivery of the message that caused the undos changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn g14_a_coordinator_dies_unacknowledged_after_it_sent_an_undo() {
    undone_by_one_that_dies("sent").await;
}

/// proves: an undo whose worker is lost is attempted again in its own context, paid from its hold;
/// all others run.
#[tokio::test(flavor = "multi_thread")]
async fn g14_a_worker_dies_in_an_undo() {
    let cancelling = Gate::default();
    let model = crate::system::undo::model(vec![("cancel hotel", cancelling.clone())]).await;
    let mut cluster = agents::cluster(1, &model, profiles()).await;
    let run = cluster.begin(trip(&STEPS)).await;
    cancelling.reached().await;
    cluster.kill("w1");
    cluster.run("w1");
    cancelling.reached().await;
    cancelling.open();
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], "failed", "{outcome:#}");
    assert_eq!(undos(&trace), UNDOS, "one context each");
    assert_eq!(undo_attempts(&outcome), [Some(1), Some(2), Some(1), None], "{outcome:#}");
    // The call of the killed worker may have had an effect; it is made again all the same.
    assert_eq!(asked(&model), [&ASKED[..6], &ASKED[5..]].concat());
    assert_eq!(outcome["graph"]["undone"], json!(["flight", "hotel", "car"]), "{outcome:#}");
    agents::check_bill(&model, &[&trace], 140_000);
}
