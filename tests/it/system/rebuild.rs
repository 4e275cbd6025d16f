//! Traces that only the event log has: coordinators rebuild them, and the runs continue.

use std::time::Duration;

use bus::{Bus, Memory, Outgoing, StoredMessage};
use coordinator::store::{self, Store};
use domain::{
    ChildId, Timestamp, TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trace::{LoggedEvents, Replay, Status, Trace};
use trellis_tests::cluster::{Cluster, SOON, eventually, name, signed};

fn config() -> coordinator::Config {
    let mut config = coordinator::Config::new(name("coordinator"));
    // The worker of a trace that was cut back is gone, so its lease has to expire.
    config.settings.lease_ms = 2_000;
    config
}

fn memory() -> Bus {
    Bus::Memory(Memory::new(Default::default()))
}

fn empty_store() -> Store {
    Store::Memory(store::Memory::new(config().topology.partitions))
}

fn start(bus: Bus) -> Cluster {
    start_with(config(), bus, empty_store())
}

fn start_with(config: coordinator::Config, bus: Bus, store: Store) -> Cluster {
    Cluster::start(bus, store, vec![config], vec![worker::Config::new(name("worker"))])
}

async fn log_of(bus: &Bus, trace: TraceId) -> Vec<StoredMessage> {
    bus.read(&Filter::EventsOf(trace)).await.unwrap()
}

/// Stores an event of one trace as the same event of another.
async fn copy(bus: &Bus, stored: &StoredMessage, from: TraceId, to: TraceId) {
    let Subject::Event(_, child_id) = &stored.subject else { panic!("{:?}", stored.subject) };
    let text =
        String::from_utf8(stored.payload.to_vec()).unwrap().replace(&from.to_string(), &to.to_string());
    let subject = Subject::Event(to, child_id.clone());
    let (id, headers, payload) = (None, Headers::new(), text.into());
    signed(bus).publish(Outgoing { subject, id, headers, payload, expect_last: None }).await.unwrap();
}

/// proves: an unfinished commit is not applied. If it were, a parent would wait for ever for an
/// ended child.
#[tokio::test(flavor = "multi_thread")]
async fn f18_a_store_wiped_while_the_log_ends_at_any_message() {
    let cluster = start(memory());
    let graph = json!({"child_id": "root", "mode": "parallel", "inputs": {"items": [1, 2, 3]}, "steps": [
        {"id": "each", "agent_id": "echo", "task_description": "t", "for_each": "items", "output_to": "all"},
        {"id": "grow", "agent_id": "tree", "task_description": "t"},
        {"id": "last", "agent_id": "spend", "task_description": "t", "input_from": ["all"]},
    ]});
    let run = cluster.client.run(graph).await.trace_id;
    let log = log_of(&cluster.client.bus, run).await;
    cluster.stop().await;
    let read = |stored: &StoredMessage| serde_json::from_slice::<LoggedEvents>(&stored.payload).unwrap();
    let first = read(&log[0]).commit().last;
    let begun = log.iter().position(|stored| read(stored).last_version() == first).unwrap() + 1;
    assert!(log.len() > begun + 20, "{} messages", log.len());

    let bus = memory();
    bus.set_up(&config().topology).await.unwrap();
    let ids: Vec<TraceId> = (begun..log.len()).map(|n| TraceId::from_u128(n as u128 + 1).unwrap()).collect();
    for (length, id) in (begun..).zip(&ids) {
        for stored in &log[..length] {
            copy(&bus, stored, run, *id).await;
        }
    }
    let cluster = start(bus);
    let root = ChildId::new("root").unwrap();
    for id in ids {
        let outcome = cluster.client.outcome(id, &root).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    }
    tokio::time::timeout(SOON, cluster.stop()).await.unwrap();
}

/// proves: an ended and expired run is not rebuilt from its log, which has a longer retention. A
/// live run that is only in the log shows that the log was read.
#[tokio::test(flavor = "multi_thread")]
async fn f18_an_expired_run_does_not_come_back_with_a_restart() {
    let (bus, store) = (memory(), empty_store());
    let config = || coordinator::Config { retention: Duration::from_millis(1), shards: 1, ..config() };
    let cluster = start_with(config(), bus.clone(), store.clone());
    let expired = cluster.client.run(json!({"goal": "hello"})).await.trace_id;
    let asking = json!({"goal": "which?", "agent_id": "ask", "child_id": "root"});
    let asking = cluster.client.accepted(asking).await.trace_id;
    eventually("the agent asks a question", async || {
        let trace = cluster.client.trace(asking).await;
        trace.root().is_some_and(|root| matches!(root.status, Status::InputRequired { .. }))
    })
    .await;
    let there = async |id: TraceId| store.versions(&[id]).await.unwrap()[0] > 0;
    eventually("the run expires", async || !there(expired).await).await;
    cluster.stop().await;

    let live = TraceId::from_u128(u128::MAX).unwrap();
    for stored in log_of(&bus, asking).await {
        copy(&bus, &stored, asking, live).await;
    }
    let cluster = start_with(config(), bus, store.clone());
    eventually("the coordinators have read the log", async || there(live).await).await;
    // After the shard's next turn all of that is done.
    cluster.client.run(json!({"goal": "hello"})).await;
    let rebuilt = async |id: TraceId| cluster.client.trace(id).await.generation() > 0;
    assert!(!rebuilt(expired).await, "the expired run was rebuilt");
    assert!(rebuilt(live).await && !rebuilt(asking).await);
    cluster.stop().await;
}

/// proves: a run continues from before a permanent gap in its log. Messages after the gap are
/// ignored.
#[tokio::test(flavor = "multi_thread")]
async fn f18_a_run_with_a_gap_in_its_log_goes_on_from_before_it() {
    let cluster = start(memory());
    let asking = json!({"goal": "which?", "agent_id": "ask", "child_id": "root"});
    let run = cluster.client.accepted(asking).await.trace_id;
    let root = ChildId::new("root").unwrap();
    let asks = async |cluster: &Cluster| {
        eventually("the agent asks a question", async || {
            let log = log_of(&cluster.client.bus, run).await;
            let log = log.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect();
            let trace = Replay::all(Trace::new(run), log).0;
            trace.root().is_some_and(|root| matches!(root.status, Status::InputRequired { .. }))
        })
        .await;
    };
    asks(&cluster).await;
    let log = log_of(&cluster.client.bus, run).await;
    cluster.stop().await;

    // No process can still be about to send messages that were lost a minute ago.
    let (bus, minute) = (memory(), 60_000);
    bus.set_up(&config().topology).await.unwrap();
    let claimed = |stored: &StoredMessage| String::from_utf8_lossy(&stored.payload).contains("\"claimed\"");
    assert!(log.iter().any(claimed) && !claimed(log.last().unwrap()), "the claim is not a separate message");
    for stored in log.iter().filter(|stored| !claimed(stored)) {
        let mut logged: LoggedEvents = serde_json::from_slice(&stored.payload).unwrap();
        logged.at = Timestamp::from_millis(logged.at.millis() - minute);
        let payload = serde_json::to_vec(&logged).unwrap().into();
        let message = Outgoing {
            subject: stored.subject.clone(),
            id: None,
            headers: Headers::new(),
            payload,
            expect_last: None,
        };
        signed(&bus).publish(message).await.unwrap();
    }
    let cluster = start(bus);
    asks(&cluster).await;
    let answer = json!({"trace_id": run, "answered": {"child_id": "root", "question": 1, "answer": "this"}});
    cluster.client.publish(Subject::Input, &answer).await;
    let outcome = cluster.client.outcome(run, &root).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2), "{outcome:#?}");
    assert_eq!(cluster.client.trace(run).await.generation(), 1);
    tokio::time::timeout(SOON, cluster.stop()).await.unwrap();
}
