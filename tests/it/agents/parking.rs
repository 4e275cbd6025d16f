//! Agents that wait for a child or a human use no slot, and later continue at the same place.

use domain::subject::{Filter, Subject};
use serde_json::{Value, json};
use trellis_tests::{
    processes::{Processes, Shape},
    servers::{ModelServer, Prompt},
};

use super::{agent, call, check_bill, cluster, finished, frugal, say};

/// Three levels with one slot: each waits for the next and uses no slot meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn p_waiting_for_a_child_holds_no_slot() {
    let model = ModelServer::start(|prompt: &Prompt| {
        let depth = prompt.task().matches("deeper").count();
        match (prompt.turn(), depth) {
            (0, 0..3) => {
                let goal = format!("{} deeper", prompt.task());
                call("spawn", json!({"goal": goal, "agent_id": "digger"}))
            }
            (0, _) => say("the bottom"),
            _ => say(&format!("beneath me: {}", prompt.last())),
        }
    })
    .await;
    let settings = model.settings();
    let cluster = Processes::start_as(|| Shape { slots: 1, worker: settings, ..Shape::new(1, 1) }).await;
    cluster.apply(json!([agent("digger")])).await;
    let run = cluster.begin(json!({"goal": "dig", "agent_id": "digger"})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "beneath me: beneath me: beneath me: the bottom", "{outcome:#}");
    assert_eq!(trace.contexts().len(), 4);
    assert_eq!(model.bill().len(), 7, "each turn is paid once");
    check_bill(&model, &[&trace], 0);
    // I2: the parent's journal has one step for the child.
    let filter = Filter::One(Subject::History(trellis_tests::subjects::pool(), run, "root".parse().unwrap()));
    let entries = cluster.client.bus.read(&filter).await.unwrap();
    let entries: Vec<Value> =
        entries.iter().map(|entry| serde_json::from_slice(&entry.payload).unwrap()).collect();
    let spawns: Vec<&Value> =
        entries.iter().filter(|entry| entry["step"]["tool"]["tool"] == "agent:spawn").collect();
    assert_eq!(spawns.len(), 1, "{entries:#?}");
    let note = spawns[0]["step"]["tool"]["note"].as_str().unwrap();
    assert!(note.starts_with("Spawned ") && note.ends_with("with goal: dig deeper..."), "{note}");
}

/// An agent that asks a human parks. All workers may end meanwhile; the answer resumes it on
/// another worker.
#[tokio::test(flavor = "multi_thread")]
async fn g7_an_agent_that_asks_a_human_is_parked_and_resumed_on_another_worker() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("ask_human", json!({"question": "Which colour?"})),
        1 => call("ask_human", json!({"question": "How dark?"})),
        _ => say(&format!("{} it is", prompt.last())),
    })
    .await;
    let mut cluster = cluster(2, &model, json!([agent("painter")])).await;
    cluster.stop("w2").await;
    let run = cluster.begin(json!({"goal": "paint", "agent_id": "painter"})).await;
    for (number, (question, answer)) in
        [("Which colour?", "blue"), ("How dark?", "midnight blue")].iter().enumerate()
    {
        cluster
            .until(run, "asking", |trace| {
                trace.root().is_some_and(|root| {
                    root.answers.len() == number && format!("{:?}", root.status).contains(question)
                })
            })
            .await;
        let (ends, begins) = if number == 0 { ("w1", "w2") } else { ("w2", "w1") };
        cluster.stop(ends).await;
        cluster.run(begins);
        let answered = json!({"child_id": "root", "question": number + 1, "answer": answer});
        cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
    }
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "midnight blue it is", "{outcome:#}");
    assert_eq!(outcome["attempts"], 3);
    assert_eq!(model.bill().len(), 3);
    check_bill(&model, &[&trace], 0);
}

/// A parent that hands over has ended: the child's result becomes its result, and its model is not
/// called again.
#[tokio::test(flavor = "multi_thread")]
async fn g10_delegate_makes_the_childs_result_its_own() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.task().as_str() {
        "boss" => call("delegate", json!({"goal": "worker bee", "agent_id": "bee"})),
        _ => say("honey"),
    })
    .await;
    let cluster = cluster(1, &model, json!([agent("boss"), agent("bee")])).await;
    let run = cluster.begin(json!({"goal": "boss", "agent_id": "boss"})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "honey", "{outcome:#}");
    assert_eq!(model.bill().len(), 2);
    check_bill(&model, &[&trace], 0);
}

/// A hung call is cut off at the context's deadline, and its hold, the whole budget, is booked.
/// Several runs, so that either the worker's clock or the coordinator's timer comes first; all end
/// for the same reason.
#[tokio::test(flavor = "multi_thread")]
async fn l_a_hung_call_is_cut_off_at_the_deadline_and_never_ends_otherwise() {
    let gate = trellis_tests::servers::Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |_: &Prompt| trellis_tests::servers::Reply {
        gate: Some(at.clone()),
        ..say("too late")
    })
    .await;
    let cluster = cluster(1, &model, json!([frugal("stuck")])).await;
    let mut runs = Vec::new();
    for n in 0..12_u64 {
        let terms = json!({"goal": format!("{n}"), "agent_id": "stuck", "timeout_ms": 2_000 + n * 37,
            "max_cost_usd": 0.006, "limits": {"max_retries_total": n % 3}});
        runs.push(cluster.begin(terms).await);
    }
    for run in runs {
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!(outcome["status"], "timed_out", "{outcome:#}");
        let budget = &trace.root().unwrap().budget;
        assert!(!budget.estimated.is_zero(), "{budget:?}");
    }
    gate.open();
}
