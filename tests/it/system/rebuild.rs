//! Traces that only the event log has: coordinators rebuild them, and they go on.

use coordinator::{store, trace::Logged};
use serde_json::json;
use shared::{
    ChildId, TraceId,
    bus::{Bus, Headers, Memory, Outgoing, Stored},
    subject::{Filter, Subject},
    wire::EndStatus,
};
use trellis_tests::cluster::{Cluster, SOON, name};

fn config() -> coordinator::Config {
    let mut config = coordinator::Config::new(name("coordinator"));
    // A worker whose trace was cut back is gone: its lease has to pass.
    config.settings.lease_ms = 2_000;
    config
}

fn memory() -> Bus {
    Bus::Memory(Memory::new(Default::default()))
}

fn start(bus: Bus) -> Cluster {
    let config = config();
    let store = store::Store::Memory(store::Memory::new(config.topology.partitions));
    Cluster::start(bus, store, vec![config], vec![worker::Config::new(name("worker"))])
}

async fn log_of(bus: &Bus, trace: TraceId) -> Vec<Stored> {
    bus.read(&Filter::EventsOf(trace)).await.unwrap()
}

/// Stores an event of one trace as the same event of another.
async fn copy(bus: &Bus, stored: &Stored, from: TraceId, to: TraceId) {
    let Subject::Event(_, child_id) = &stored.subject else { panic!("{:?}", stored.subject) };
    let text =
        String::from_utf8(stored.payload.to_vec()).unwrap().replace(&from.to_string(), &to.to_string());
    let subject = Subject::Event(to, child_id.clone());
    let (id, headers, payload) = (None, Headers::new(), text.into());
    bus.publish(Outgoing { subject, id, headers, payload, expect_last: None }).await.unwrap();
}

/// proves: an unfinished commit is not applied. With it, a parent waits for ever for a child that has ended.
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
    let read = |stored: &Stored| serde_json::from_slice::<Logged>(&stored.payload).unwrap();
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
