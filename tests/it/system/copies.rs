//! Runs that live longer than their messages in the event log: copies of their state keep them in
//! the log.

use std::time::Duration;

use bus::{Bus, Fill, Memory, Outgoing, Storage, Stream};
use coordinator::store::{self, Store};
use domain::{
    Timestamp, TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::{EndStatus, Question},
};
use serde_json::json;
use trace::{LoggedEvents, Status, Trace};
use trellis_tests::cluster::{Client, Cluster, eventually, name, signed};

use super::ground::{self, Ground};

const LOG_BYTES: i64 = 1 << 20;
const FILLER: u128 = 0xf111;

async fn log_of(bus: &Bus, trace: TraceId) -> Vec<(u64, LoggedEvents)> {
    let log = bus.read(&Filter::EventsOf(trace)).await.unwrap();
    log.iter().map(|stored| (stored.sequence, serde_json::from_slice(&stored.payload).unwrap())).collect()
}

/// The sequence number of the last message that begins the trace.
async fn begins_at(bus: &Bus, trace: TraceId) -> Option<u64> {
    let log = log_of(bus, trace).await;
    log.iter().rfind(|(_, logged)| logged.begins()).map(|(sequence, _)| *sequence)
}

async fn questions(bus: &Bus, trace: TraceId) -> Vec<Question> {
    let asked = bus.read(&Filter::QuestionsOf(trace)).await.unwrap();
    asked.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect()
}

/// A run that waits for a human.
async fn asking(client: &Client) -> TraceId {
    let run = json!({"goal": "which?", "agent_id": "ask", "child_id": "root"});
    let run = client.accepted(run).await.trace_id;
    eventually("the agent asks a question", async || !questions(&client.bus, run).await.is_empty()).await;
    run
}

async fn answer(client: &Client, run: TraceId) {
    let answered = json!({"child_id": "root", "question": 1, "answer": "left"});
    client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
    let outcome = client.outcome(run, &"root".parse().unwrap()).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
}

/// proves: a live trace is copied when its first messages grow old, and rebuilt from the copy
/// alone, with its question. Without copies, a loss of the store would end the run once those
/// messages are gone.
#[tokio::test(flavor = "multi_thread")]
async fn t9_a_run_that_is_older_than_its_log_is_rebuilt() {
    let bus = Bus::Memory(Memory::new(Default::default()));
    let config = |id: &str| {
        let copy_after = Duration::from_millis(300);
        coordinator::Config { copy_after, ..coordinator::Config::new(name(id)) }
    };
    let start = |id| {
        let config = config(id);
        let store = Store::Memory(store::Memory::new(config.topology.partitions));
        let worker = worker::Config::new(name("worker"));
        (Cluster::start(bus.clone(), store.clone(), vec![config], vec![worker]), store)
    };
    let (cluster, _) = start("one");
    let run = asking(&cluster.client).await;
    let first = begins_at(&bus, run).await.unwrap();
    eventually("the trace is copied several times", async || {
        log_of(&bus, run).await.iter().filter(|(_, logged)| logged.begins()).count() > 2
    })
    .await;
    cluster.stop().await;
    let begin = begins_at(&bus, run).await.unwrap();
    assert!(begin > first);
    for (sequence, logged) in log_of(&bus, run).await.into_iter().filter(|(sequence, _)| *sequence < begin) {
        bus.delete_message(&Subject::Event(run, logged.child_id), sequence).await.unwrap();
    }
    bus.purge(&Filter::QuestionsOf(run)).await.unwrap();

    let (cluster, store) = start("two");
    eventually("the question is published again", async || !questions(&bus, run).await.is_empty()).await;
    assert_eq!(cluster.client.trace(run).await.generation(), 1, "the trace was rebuilt");
    answer(&cluster.client, run).await;
    let stored = store.load(&[run]).await.unwrap().remove(0).record.unwrap();
    let stored = Trace::from_stored(run, stored.version, &stored.fields, &stored.values).unwrap();
    assert_eq!(stored, cluster.client.trace(run).await, "the log continues after the copy");
    cluster.stop().await;
}

async fn log_fill(bus: &Bus) -> Fill {
    let fills = bus.fill().await.unwrap();
    fills.into_iter().find(|fill| fill.storage == Storage::Stream(Stream::Event)).unwrap()
}

/// Stores an event of another trace.
async fn fill(bus: &Bus, at: Timestamp) {
    let trace_id = TraceId::from_u128(FILLER).unwrap();
    let event = json!({"type": "tombstoned", "child_id": null, "reason": "x".repeat(8 << 10)});
    let commit = json!({"first": 1, "last": 1, "made": at});
    let logged = json!({"trace_id": trace_id, "child_id": "root", "version": 1, "commit": commit, "at": at, "events": [event]});
    let payload = serde_json::to_vec(&logged).unwrap().into();
    let subject = Subject::Event(trace_id, "root".parse().unwrap());
    let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
    signed(bus).publish(message).await.unwrap();
}

/// proves: before a full log drops the beginning of a live trace, the log has a copy. An ended run
/// is not copied.
async fn t9_a_full_log_keeps_a_beginning_of_what_lives(ground: Ground) {
    let mut config = ground::config();
    config.topology.max_log_bytes = LOG_BYTES;
    let cluster = ground.start(config);
    let (client, bus) = (&cluster.client, &ground.bus);
    let ended = client.run(json!({"goal": "hello"})).await.trace_id;
    let run = asking(client).await;
    let first = begins_at(bus, run).await.unwrap();
    let now = async || ground.store.time().await.unwrap().read;
    while log_fill(bus).await.percent() < 80 {
        fill(bus, now().await).await;
    }
    eventually("the trace is copied", async || begins_at(bus, run).await.is_some_and(|at| at > first)).await;
    while log_fill(bus).await.first <= first {
        fill(bus, now().await).await;
    }
    let trace: Trace = client.trace(run).await;
    assert!(trace.root().is_some_and(|root| matches!(root.status, Status::InputRequired { .. })));
    assert_eq!(begins_at(bus, ended).await, None, "no run needs the ended one");
    answer(client, run).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t9_a_full_log_keeps_the_beginning_of_live_runs_in_memory() {
    t9_a_full_log_keeps_a_beginning_of_what_lives(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t9_a_full_log_keeps_the_beginning_of_live_runs_on_servers() {
    t9_a_full_log_keeps_a_beginning_of_what_lives(Ground::on_servers().await).await;
}

/// proves: a log that is too small for all live runs does not fill itself with copies for ever.
#[tokio::test(flavor = "multi_thread")]
async fn t9_a_log_that_is_too_small_for_its_live_runs_comes_to_rest() {
    let ground = Ground::in_memory();
    let mut config = ground::config();
    config.topology.max_log_bytes = LOG_BYTES;
    let cluster = ground.start(config);
    let (client, bus) = (&cluster.client, &ground.bus);
    for _ in 0..24 {
        let large = "x".repeat(60_000);
        client.accepted(json!({"goal": "which?", "agent_id": "ask", "inputs": {"a": large}})).await;
    }
    let copied = async || {
        let log = bus.read(&Filter::Events).await.unwrap();
        let read = |payload: &[u8]| serde_json::from_slice::<LoggedEvents>(payload).unwrap();
        let copies = log.iter().filter(|stored| stored.sequence > 24 && read(&stored.payload).begins());
        copies.map(|stored| stored.sequence).max()
    };
    eventually("the traces are copied", async || copied().await.is_some()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = log_fill(bus).await.last;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(log_fill(bus).await.last, before, "the log grows without a reason");
    cluster.stop().await;
}

/// proves: a run continues from the store if its log can't be read.
#[tokio::test(flavor = "multi_thread")]
async fn t9_a_run_goes_on_from_the_store_if_its_log_cannot_be_read() {
    let ground = Ground::in_memory();
    let cluster = ground.start(ground::config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    let subject = Subject::Event(run, "root".parse().unwrap());
    let (payload, headers) = ("not an event".into(), Headers::new());
    let message = Outgoing { subject, id: None, headers, payload, expect_last: None };
    signed(&ground.bus).publish(message).await.unwrap();
    let cluster = ground.start(coordinator::Config { id: name("another"), ..ground::config() });
    answer(&cluster.client, run).await;
    cluster.stop().await;
}
