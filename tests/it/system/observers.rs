//! Observers of a trace: they get all events in one read of the event log (X3), and events and live
//! output as they happen (G9).

use bus::From;
use domain::{
    Amount, Usd,
    subject::Filter,
    wire::{Said, StreamPiece},
};
use serde_json::json;
use trace::LoggedEvents;
use trellis_tests::{
    cluster::{Cluster, SOON},
    processes::fresh_trace,
};

#[tokio::test(flavor = "multi_thread")]
async fn x3_one_read_of_the_log_shows_every_start_with_its_parent_time_and_cost() {
    let cluster = Cluster::embedded();
    let inputs = json!({"depth": 2, "width": 2, "leaf": "spend", "usd": 0.01});
    let outcome = cluster.client.run(json!({"goal": "grow", "agent_id": "tree", "inputs": inputs})).await;
    let trace = cluster.client.trace(outcome.trace_id).await;
    assert_eq!(trace.contexts().len(), 1 + 2 + 4);
    let mut own = Amount::ZERO;
    for node in trace.contexts() {
        let end = node.end().expect("the log has the end of the context");
        assert!(node.identity.started_at <= end.at, "{node:#?}");
        if let Some(parent) = node.parent.map(|parent| trace.node(parent)) {
            assert!(
                parent.identity.started_at <= node.identity.started_at,
                "{} began before its parent",
                node.id
            );
        }
        let leaf = node.children.is_empty();
        assert_eq!(node.budget.own.cost_usd, Usd::from_cents(u64::from(leaf)), "{}", node.id);
        own = own.checked_add(node.budget.own).unwrap();
    }
    let root = trace.root().unwrap();
    assert_eq!((own, own.cost_usd), (root.budget.spent, Usd::from_cents(4)));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_an_observer_gets_live_output_and_events_from_the_start() {
    let cluster = Cluster::embedded();
    let script = json!([
        {"say": "Let me look.", "call": [{"tool": "fs.list", "arguments": {}}]},
        {"say": "Nothing there."},
    ]);
    let agent = json!({"agent_id": "looker", "kind": "llm", "model": "scripted", "tools": ["fs.list"], "script": script});
    cluster.client.apply(json!([agent])).await;
    let trace_id = fresh_trace();
    let mut words = cluster.client.bus.subscribe(&Filter::StreamsOf(trace_id)).await.unwrap();
    let outcome =
        cluster.client.run(json!({"goal": "look", "agent_id": "looker", "trace_id": trace_id})).await;

    let mut heard = Vec::new();
    while heard.len() < 3 {
        let message = tokio::time::timeout(SOON, words.next()).await.unwrap().expect("a piece");
        let piece: StreamPiece = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!((piece.trace_id, piece.child_id.clone()), (trace_id, outcome.context.child_id.clone()));
        heard.push(piece.said);
    }
    let text = |said: &str| Said::Text(said.into());
    assert_eq!(heard, [text("Let me look."), Said::Tool { tool: "fs.list".into() }, text("Nothing there.")]);

    // A late observer gets every event from the first.
    let mut log = cluster.client.bus.follow(&[Filter::EventsOf(trace_id)], From::Start).await.unwrap();
    let stored = tokio::time::timeout(SOON, log.next()).await.unwrap().unwrap();
    let first: LoggedEvents = serde_json::from_slice(&stored.payload).unwrap();
    assert_eq!(first.version, 1);
    cluster.stop().await;
}
