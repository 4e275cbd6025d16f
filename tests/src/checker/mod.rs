//! The checker of a cluster, run after every test that uses one. It waits until the runs are at
//! rest, then reads their event logs, outcomes, dead letters and stored state, and compares them
//! with each other. None of these sources is trusted.

mod bill;
mod journal;
mod log;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bus::StoredMessage;
use coordinator::store::{Record, Store};
use domain::{
    ChildId, Timestamp, TraceId,
    subject::{Filter, Subject},
    wire::{DeadLetter, HistoryEntry, HistoryStep},
};
use tokio::time::Instant;
use trace::{Event, LoggedEvents, Replay, Rest, Trace, in_order};

pub use bill::{against_bill, within};
pub use journal::assert_journals_are_complete;

use world::invariants;

use crate::cluster::Client;

/// t8: after the faults are healed, all runs end within two leases, a backoff and 30 s. Runs may
/// still have work to do, and the machine may be busy, so this time is longer and only bounds a
/// hang.
const REST: Duration = crate::cluster::SOON;
/// The number of traces checked in one batch.
const AT_ONCE: usize = 200;

/// Checks the runs, and panics with all violations.
pub async fn check(client: &Client, store: &Store, runs: &[TraceId]) {
    let versions = |traces: &[Trace]| -> Vec<u64> { traces.iter().map(Trace::version).collect() };
    loop {
        let stored = at_rest(client, store, runs).await;
        let before = versions(&stored);
        let wrong = violations(client, stored).await;
        // A late cost may have been booked while the logs were read, so a violation is reported
        // only if no version changed.
        if wrong.is_empty() || versions(&at_rest(client, store, runs).await) == before {
            let all = runs.len();
            assert!(wrong.is_empty(), "{} of {all} runs are wrong:\n{}", wrong.len(), wrong.join("\n"));
            return;
        }
    }
}

/// The runs at rest, and for each other run the reason why it is not.
pub async fn look(store: &Store, runs: &[TraceId]) -> (Vec<Trace>, Vec<String>) {
    let (mut resting, mut moving) = (Vec::new(), Vec::new());
    let loaded = match store.load(runs).await {
        Ok(loaded) => loaded,
        Err(error) => return (resting, vec![format!("the store can't be read: {error:?}")]),
    };
    for (id, loaded) in runs.iter().zip(loaded) {
        match loaded.record.map(|record| rests(*id, &record)) {
            Some(Ok(trace)) => resting.push(trace),
            Some(Err(why)) => moving.push(format!("{id} {why}")),
            None => moving.push(format!("{id} is not in the store")),
        }
    }
    (resting, moving)
}

/// The violations in runs at rest.
pub async fn violations(client: &Client, stored: Vec<Trace>) -> Vec<String> {
    let dead = dead_letters(client).await;
    let mut wrong = Vec::new();
    for trace in stored {
        let id = trace.id();
        if let Err(what) = check_one(client, trace, dead.get(&id)).await {
            wrong.push(format!("{id}: {what}"));
        }
    }
    wrong
}

/// Waits until all runs have ended with nothing left to send or wait for, and returns their stored
/// traces.
async fn at_rest(client: &Client, store: &Store, runs: &[TraceId]) -> Vec<Trace> {
    let deadline = Instant::now() + REST;
    let mut traces = Vec::with_capacity(runs.len());
    for runs in runs.chunks(AT_ONCE) {
        loop {
            let (resting, moving) = look(store, runs).await;
            if moving.is_empty() {
                traces.extend(resting);
                break;
            }
            if Instant::now() > deadline {
                let letters = client.bus.read(&Filter::Dead).await.unwrap_or_default();
                let text = |stored: &StoredMessage| String::from_utf8_lossy(&stored.payload).into_owned();
                let dead: Vec<String> = letters.iter().take(10).map(text).collect();
                panic!("t8: not at rest: {}\ndead letters: {}", moving.join("\n"), dead.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    traces
}

fn rests(id: TraceId, record: &Record) -> Result<Trace, String> {
    let trace = Trace::from_stored(id, record.version, &record.fields, &record.values);
    let trace = trace.map_err(|error| format!("can't be read: {error}"))?;
    let live: Vec<String> = trace
        .contexts()
        .iter()
        .filter(|node| node.is_live())
        .map(|node| format!("{} is {:?} in attempt {}", node.id, node.status, node.attempt()))
        .collect();
    match (trace.root(), live.first(), trace.next_timer(), record.outbox.is_empty()) {
        (None, ..) => Err("was never opened".into()),
        (_, Some(_), ..) => Err(format!("lives: {}", live.join(", "))),
        (_, _, Some(timer), _) => Err(format!("has a timer at {timer:?}")),
        (_, _, _, false) => {
            let unsent: Vec<u64> = record.outbox.keys().map(|key| key.version).collect();
            Err(format!("is at version {}, with the outboxes of {unsent:?}", record.version))
        }
        (Some(_), None, None, true) => Ok(trace),
    }
}

async fn check_one(client: &Client, stored: Trace, dead: Option<&Vec<String>>) -> Result<(), String> {
    let log = read_log(client, stored.id()).await?;
    let mut replay = Replay::new(Trace::new(stored.id()));
    for (number, logged) in log.iter().enumerate() {
        replay.add(logged.clone()).expect("the log can be replayed");
        let replayed = replay.trace();
        // Events of one decision have the same time. The state after each decision was visible
        // outside, so it is checked. Large traces are checked only at rest.
        let together = log.get(number + 1).is_some_and(|next| next.at == logged.at);
        if !together && replayed.contexts().len() <= 32 {
            invariants::check(replayed)
                .map_err(|what| format!("at version {}: {what}", replayed.version()))?;
        }
    }
    let (replayed, rest) = Replay::all(Trace::new(stored.id()), log.clone());
    ensure(rest == Rest::Nothing, || format!("t9: the log has {rest:?}"))?;
    ensure(*replay.trace() == replayed, || "t9: the log gives two traces".into())?;
    ensure(replayed == stored, || {
        let [log, store] = [&replayed, &stored].map(|trace| format!("{trace:?}"));
        let same = log.bytes().zip(store.bytes()).take_while(|(a, b)| a == b).count();
        let from = |text: &str| text.chars().skip(same.saturating_sub(60)).take(200).collect::<String>();
        let versions = (replayed.version(), stored.version());
        format!(
            "t9: the log gives another trace than the store {versions:?}:\n{}\n{}",
            from(&log),
            from(&store)
        )
    })?;
    invariants::check_at_rest(&replayed)?;
    // A log may begin with a copy of the state after a gap. Its earlier events are missing, so
    // their order can't be checked.
    if log.first().is_some_and(|first| first.version == 1) {
        log::check(&log)?;
    }
    outcomes(client, &replayed).await?;
    messages(client, &replayed).await?;
    journal::unaccounted(client, &replayed).await?;
    let twice =
        dead.and_then(|dead| dead.iter().find(|one| dead.iter().filter(|other| other == one).count() > 1));
    ensure(twice.is_none(), || format!("t2: two dead letters say {twice:?}"))
}

/// G13: the journal of every agent contains each message once and in order, including the messages
/// that the agent has seen.
async fn messages(client: &Client, trace: &Trace) -> Result<(), String> {
    for node in trace.contexts().iter().filter(|node| !node.told.is_empty() && !node.lifecycle.deleted) {
        let journal = client.journal(trace.id(), &node.id).await;
        let number = |entry: &HistoryEntry| match &entry.step {
            HistoryStep::Told(told) => told.number,
            HistoryStep::Began { .. }
            | HistoryStep::Model(_)
            | HistoryStep::Lost(_)
            | HistoryStep::Tool(_)
            | HistoryStep::Received { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Rung(_)
            | HistoryStep::Checked(_)
            | HistoryStep::Compacted { .. }
            | HistoryStep::Result(_) => None,
        };
        let numbers: Vec<u32> = journal.iter().filter_map(number).collect();
        let in_order = (1..).zip(&numbers).all(|(expected, number)| expected == *number);
        let sent = numbers.len() <= node.told.len() && node.lifecycle.seen as usize <= numbers.len();
        ensure(in_order && sent, || {
            format!(
                "G13: {} got {}, saw {}, and its journal has {numbers:?}",
                node.id,
                node.told.len(),
                node.lifecycle.seen
            )
        })?;
    }
    Ok(())
}

/// The valid messages, sorted by version. A message may be stored twice if both copies are equal.
async fn read_log(client: &Client, id: TraceId) -> Result<Vec<LoggedEvents>, String> {
    let read = |stored: &StoredMessage| serde_json::from_slice::<LoggedEvents>(&stored.payload);
    let stored = client.bus.read(&Filter::EventsOf(id)).await.map_err(|error| error.to_string())?;
    let messages =
        stored.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let mut seen: HashMap<(u64, Timestamp), &LoggedEvents> = HashMap::new();
    for logged in &messages {
        let first = seen.entry((logged.version, logged.commit().made)).or_insert(logged);
        ensure(*first == logged, || {
            format!("t9: version {} is logged with different events", logged.version)
        })?;
    }
    Ok(in_order(messages))
}

/// t2: each context has one outcome, which may be stored in equal copies.
async fn outcomes(client: &Client, trace: &Trace) -> Result<(), String> {
    let mut told: HashMap<ChildId, bytes::Bytes> = HashMap::new();
    for stored in client.bus.read(&Filter::OutcomesOf(trace.id())).await.map_err(|error| error.to_string())? {
        let Subject::Outcome(_, child_id) = stored.subject else { continue };
        if let Some(first) = told.get(&child_id) {
            ensure(*first == stored.payload, || {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!("t2: two outcomes of {child_id}:\n{}\n{}", text(first), text(&stored.payload))
            })?;
        }
        told.insert(child_id, stored.payload);
    }
    let untold = trace.contexts().iter().find(|node| !told.contains_key(&node.id));
    ensure(untold.is_none(), || format!("t2: no outcome of {:?}", untold.map(|node| &node.id)))?;
    // A context that was lost together with its commits has an outcome too.
    let log = client.bus.read(&Filter::EventsOf(trace.id())).await.map_err(|error| error.to_string())?;
    let messages =
        log.iter().filter_map(|stored| serde_json::from_slice::<LoggedEvents>(&stored.payload).ok());
    let mut known: HashSet<ChildId> = trace.contexts().iter().map(|node| node.id.clone()).collect();
    for event in messages.flat_map(|logged| logged.events) {
        if let Event::Admitted(admitted) = event {
            known.insert(admitted.spec.child_id.clone());
        }
    }
    let unknown = told.keys().find(|id| !known.contains(*id));
    ensure(unknown.is_none(), || format!("t2: an outcome of {unknown:?}, which does not exist"))
}

/// The dead letters of each trace, without the fields in which two copies of one letter differ.
async fn dead_letters(client: &Client) -> HashMap<TraceId, Vec<String>> {
    let mut found: HashMap<TraceId, Vec<String>> = HashMap::new();
    for stored in client.bus.read(&Filter::Dead).await.expect("the letters can be read") {
        let letter: DeadLetter = serde_json::from_slice(&stored.payload).expect("a dead letter");
        // A message that a client published twice is refused twice.
        let by_client = letter.subject.contains("agent.admin.");
        if let Some(trace_id) = letter.trace_id.filter(|_| !by_client) {
            found.entry(trace_id).or_default().push(format!("{letter:?}"));
        }
    }
    found
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
