//! The behaviour of a store. Each check runs on the store in memory, on the one on a disk, and on a
//! real Redis.

use std::{collections::HashMap, time::Duration};

use bus::Position;
use coordinator::store::{
    AgentVersion, Agents, COMMANDS, CommitOutcome, Correction, Durability, Error, Find, LogMark, Login,
    MarkOutcome, Member, Members, Memory, NewMark, OutboxKey, Redis, Replaces, SentOutboxes, Store, Write,
    key_patterns,
};
use disk::Disk;
use domain::{
    Timestamp, TraceId,
    subject::{Namespace, Partition},
};
use trellis_tests::{directory::Directory, servers::RedisServer};

use super::index::*;

pub(super) const PARTITIONS: u16 = 16;

/// Connects as a user with only the rights of a coordinator and of `doctor`: a command or key that
/// their list lacks fails these tests (S1).
pub(super) async fn redis(server: &RedisServer, namespace: &str) -> Store {
    let namespace: Namespace = namespace.parse().unwrap();
    let user = format!("of-{namespace}");
    let client = ::redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut made = ::redis::cmd("ACL");
    made.arg("SETUSER").arg(&user).arg(["on", ">s3cret", "resetkeys", "resetchannels", "-@all"].as_slice());
    made.arg(key_patterns(&namespace).map(|keys| format!("~{keys}")).as_slice());
    made.arg(
        COMMANDS.iter().chain(&["info", "config|get"]).map(|name| format!("+{name}")).collect::<Vec<_>>(),
    );
    made.exec_async(&mut connection).await.unwrap();
    let login = Login { user: Some(user), password: Some("s3cret".into()), ..Login::default() };
    Store::Redis(Redis::connect_as(&server.url(), &login, namespace, PARTITIONS).await.unwrap())
}

pub(super) fn store_of(disk: &Disk) -> Store {
    Store::Disk(coordinator::store::Disk::new(disk.clone(), PARTITIONS))
}

macro_rules! on_each {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(Store::Memory(Memory::new(PARTITIONS))).await; })*
        }
        mod on_disk {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let directory = Directory::fresh();
                super::$name(store_of(&directory.open())).await;
            })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let server = RedisServer::start();
                super::$name(redis(&server, "").await).await;
            })*
        }

        /// Runs all checks, each with a fresh namespace.
        pub(super) async fn every(store: impl AsyncFn(&str) -> Store) {
            $(
                println!("{}", stringify!($name));
                $name(store(stringify!($name)).await).await;
            )*
        }
    };
}

on_each![
    a_trace_that_was_never_written_is_absent,
    a_first_write_is_read_back_whole,
    a_write_on_another_version_changes_nothing,
    of_eight_writers_of_one_version_one_wins,
    a_batch_answers_in_its_order_and_each_write_stands_alone,
    large_and_foreign_text_comes_back_as_it_was,
    thousands_of_fields_and_values_are_one_write,
    tens_of_thousands_of_fields_are_read_back_whole,
    a_large_trace_that_is_changed_is_read_as_one_version,
    values_are_deleted_and_fields_stay,
    a_version_that_another_commit_made_is_another_version,
    a_write_may_replace_all_but_the_outboxes,
    timers_come_due_in_order_up_to_the_limit_until_removed,
    sent_clears_the_outbox_of_that_version_only,
    b13_a_write_can_keep_an_earlier_timer,
    sent_by_a_lost_commit_leaves_what_another_has_to_send,
    a_commit_clears_the_outboxes_it_names_and_versions_are_told,
    sent_of_a_trace_that_is_gone_removes_its_timer,
    w6_an_ended_trace_is_removed_with_all_that_is_kept_with_it,
    runs_are_newest_first_without_those_that_are_gone,
    g17_a_run_is_listed_under_the_terms_it_has_now,
    g17_pages_are_those_of_a_naive_list_while_runs_arrive,
    g17_runs_are_found_by_cost_and_time,
    g17_a_trace_that_is_replaced_or_removed_leaves_no_entry,
    g17_an_id_is_found_by_its_first_digits,
    g17_who_waits_for_a_human_is_found_at_any_age,
    the_counter_of_a_partition_grows_with_every_commit,
    a_mark_is_set_only_if_the_partition_is_as_it_was_seen,
    agents_are_replaced_and_every_change_is_a_revision,
    a_commit_with_earlier_profiles_is_refused,
    coordinators_are_alive_while_their_heartbeats_last,
    the_partition_count_is_settled_once,
    the_clock_of_the_store_is_current_and_advances,
    the_clock_is_corrected_once_a_number,
];

pub(super) fn trace(number: u128) -> TraceId {
    TraceId::from_u128((number << 64) | (number * 7919)).unwrap()
}

pub(super) fn write(trace_id: TraceId, version: u64) -> Write {
    Write {
        trace_id,
        expected: version - 1,
        stamp: None,
        version,
        replaces: Replaces::Nothing,
        fields: vec![("head".into(), Some(format!("version {version}")))],
        values: Vec::new(),
        outbox: None,
        cleared: Vec::new(),
        timer: None,
        keeps_earlier_timer: false,
        ended_at: None,
        opened_at: None,
        profiles: None,
        index: None,
    }
}

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The outbox of a version that was made once.
pub(super) fn key(version: u64) -> OutboxKey {
    OutboxKey { version, made: 7 }
}

/// Commits one write and returns its result.
pub(super) async fn commit(store: &Store, write: Write) -> CommitOutcome {
    store.commit(&[write]).await.unwrap().pop().unwrap()
}

pub(super) async fn version(store: &Store, trace: TraceId) -> Option<u64> {
    let loaded = store.load(&[trace]).await.unwrap().pop().unwrap();
    loaded.record.map(|record| record.version)
}

fn everywhere() -> Vec<Partition> {
    Partition::all(PARTITIONS).collect()
}

async fn a_trace_that_was_never_written_is_absent(store: Store) {
    let loaded = store.load(&[trace(1), trace(2)]).await.unwrap();
    assert!(loaded.iter().all(|loaded| loaded.record.is_none() && loaded.counter == 0), "{loaded:?}");
    assert_eq!(store.load(&[]).await.unwrap(), []);
    assert_eq!(store.commit(&[]).await.unwrap(), []);
    store.sent(&[]).await.unwrap();
    assert_eq!(store.fields(&[trace(1)], &["head"]).await.unwrap(), [HashMap::new()]);
    assert_eq!(store.due(&[], at(1), 10).await.unwrap(), []);
    store.ping().await.unwrap();
}

async fn a_first_write_is_read_back_whole(store: Store) {
    let first = Write {
        values: vec![("plan".into(), Some("go".into())), ("none".into(), None)],
        outbox: Some((key(1), "to send".into())),
        ..write(trace(1), 1)
    };
    assert_eq!(commit(&store, first).await, CommitOutcome::Done { counter: 1 });
    let record = store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.version, 1);
    assert_eq!(record.fields, HashMap::from([("head".into(), "version 1".into())]));
    assert_eq!(record.values, HashMap::from([("plan".into(), "go".into())]));
    assert_eq!(record.outbox.values().collect::<Vec<_>>(), ["to send"]);
    let head = HashMap::from([("head".into(), "version 1".into())]);
    let asked = store.fields(&[trace(2), trace(1)], &["none", "head"]).await.unwrap();
    assert_eq!(asked, [HashMap::new(), head]);
}

async fn a_write_on_another_version_changes_nothing(store: Store) {
    let id = trace(1);
    assert_eq!(commit(&store, write(id, 2)).await, CommitOutcome::Conflict { version: 0, counter: 0 });
    commit(&store, Write { timer: Some(at(5)), outbox: Some((key(1), "kept".into())), ..write(id, 1) }).await;
    for expected in [0, 2, 11] {
        let stale = Write {
            fields: vec![("head".into(), Some("wrong".into())), ("new".into(), Some("wrong".into()))],
            values: vec![("value".into(), Some("wrong".into()))],
            opened_at: Some(at(1)),
            ended_at: Some(at(1)),
            ..write(id, expected + 1)
        };
        assert_eq!(commit(&store, stale).await, CommitOutcome::Conflict { version: 1, counter: 1 });
    }
    let record = store.load(&[id]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.fields, HashMap::from([("head".into(), "version 1".into())]));
    assert_eq!((record.values.len(), record.outbox.get(&key(1)).map(String::as_str)), (0, Some("kept")));
    assert_eq!(store.due(&everywhere(), at(5), 9).await.unwrap(), [id]);
    assert_eq!(store.find(&Find::newest(9)).await.unwrap(), []);
    assert_eq!(store.ended(&everywhere(), at(9), 9).await.unwrap(), []);
}

async fn of_eight_writers_of_one_version_one_wins(store: Store) {
    const VERSIONS: u64 = 50;
    let writer = |name: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut won = 0;
            loop {
                let next = version(&store, trace(1)).await.unwrap_or(0) + 1;
                if next > VERSIONS {
                    return won;
                }
                let fields = vec![(format!("{next}"), Some(format!("{name}")))];
                match commit(&store, Write { fields, ..write(trace(1), next) }).await {
                    CommitOutcome::Done { .. } => won += 1,
                    CommitOutcome::Conflict { version, .. } => assert!(version >= next),
                    outdated @ CommitOutcome::Outdated { .. } => panic!("it names no profiles: {outdated:?}"),
                }
            }
        })
    };
    let writers: Vec<_> = (0..8).map(writer).collect();
    let mut won = 0;
    for writer in writers {
        won += writer.await.unwrap();
    }
    assert_eq!(won, VERSIONS, "the number of wins equals the number of versions");
    let loaded = store.load(&[trace(1)]).await.unwrap().pop().unwrap();
    assert_eq!((loaded.counter, loaded.record.unwrap().fields.len() as u64), (VERSIONS, VERSIONS));
}

async fn a_batch_answers_in_its_order_and_each_write_stands_alone(store: Store) {
    commit(&store, write(trace(7), 1)).await;
    // Many partitions, one conflict among them, and one trace twice.
    let mut writes: Vec<Write> = (1..=60).map(|number| write(trace(number), 1)).collect();
    writes.push(write(trace(3), 2));
    let answers = store.commit(&writes).await.unwrap();
    for (write, answer) in writes.iter().zip(&answers) {
        let conflict = matches!(answer, CommitOutcome::Conflict { version: 1, .. });
        assert_eq!(conflict, write.trace_id == trace(7), "{answer:?}");
    }
    let ids: Vec<TraceId> = (1..=61).rev().map(trace).collect();
    let loaded = store.load(&ids).await.unwrap();
    let versions: Vec<_> = loaded.iter().map(|loaded| loaded.record.as_ref().map(|r| r.version)).collect();
    let expected: Vec<_> = ids
        .iter()
        .map(|id| if *id == trace(61) { None } else { Some(1 + u64::from(*id == trace(3))) })
        .collect();
    assert_eq!(versions, expected);
}

async fn large_and_foreign_text_comes_back_as_it_was(store: Store) {
    let large = "x".repeat(1 << 20);
    let texts = ["", "ключ 鍵 🔑", "a\0b\r\nc\"'{}\\", "1e15", large.as_str()];
    let fields =
        texts.iter().enumerate().map(|(n, text)| (format!("поле {n}"), Some((*text).to_owned()))).collect();
    let values =
        texts.iter().enumerate().map(|(n, text)| (format!("{n}"), Some((*text).to_owned()))).collect();
    let outbox = Some((key(1), large.clone()));
    commit(&store, Write { fields, values, outbox, ..write(trace(1), 1) }).await;
    let record = store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    for (number, text) in texts.iter().enumerate() {
        assert!(record.fields[&format!("поле {number}")] == *text, "field {number}");
        assert!(record.values[&format!("{number}")] == *text, "value {number}");
    }
    assert!(record.outbox[&key(1)] == large);
    commit(&store, Write { outbox: Some((key(2), String::new())), ..write(trace(1), 2) }).await;
    let record = store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.outbox[&key(2)], "", "an empty outbox is stored");
}

async fn thousands_of_fields_and_values_are_one_write(store: Store) {
    let fields: Vec<_> = (0..12_001).map(|n| (format!("f{n}"), Some(format!("{n}")))).collect();
    let less: Vec<_> = (0..8_999).map(|n| (format!("f{n}"), None)).collect();
    let values: Vec<_> = (0..9_001).map(|n| (format!("v{n}"), Some(format!("{n}")))).collect();
    let gone: Vec<_> = (0..8_999).map(|n| (format!("v{n}"), None)).collect();
    commit(&store, Write { fields: fields.clone(), values, ..write(trace(1), 1) }).await;
    let loaded = async || store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    let all: HashMap<_, _> = fields.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    assert!(loaded().await.fields == all);
    commit(&store, Write { fields: less, values: gone, ..write(trace(1), 2) }).await;
    let record = loaded().await;
    assert_eq!((record.fields.len(), record.values.len()), (12_001 - 8_999, 2));
}

/// One large trace among small ones, and one with large values. Redis returns it in pieces.
async fn tens_of_thousands_of_fields_are_read_back_whole(store: Store) {
    let some = |count: u32, text: &str| -> Vec<_> {
        (0..count).map(|n| (format!("f{n}"), Some(format!("{n} {text}")))).collect()
    };
    let is = |record: &HashMap<String, String>, changes: Vec<(String, Option<String>)>| {
        *record == changes.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    };
    let large = |id| Write {
        fields: some(30_000, &"x".repeat(200)),
        values: some(3_000, "y"),
        outbox: Some((key(1), "to send".into())),
        ..write(id, 1)
    };
    let megabytes = Write { values: some(2_500, &"z".repeat(4_000)), ..write(trace(4), 1) };
    store.commit(&[write(trace(1), 1), large(trace(2)), write(trace(3), 1), megabytes]).await.unwrap();
    let loaded = store.load(&[4, 1, 2, 3].map(trace)).await.unwrap();
    let records: Vec<_> = loaded.into_iter().map(|loaded| loaded.record.unwrap()).collect();
    assert!(is(&records[0].values, some(2_500, &"z".repeat(4_000))) && records[0].fields.len() == 1);
    for small in [&records[1], &records[3]] {
        assert_eq!((small.fields.len(), small.values.len(), small.version), (1, 0, 1));
    }
    assert!(
        is(&records[2].fields, some(30_000, &"x".repeat(200))) && is(&records[2].values, some(3_000, "y"))
    );
    assert_eq!((records[2].version, records[2].outbox.get(&key(1)).unwrap().as_str()), (1, "to send"));
}

/// Every version has its number in all fields and values, and an outbox of its own.
async fn a_large_trace_that_is_changed_is_read_as_one_version(store: Store) {
    const ROUNDS: usize = 12;
    let id = trace(1);
    let number = |version: u64, count: u32| -> Vec<_> {
        (0..count).map(|n| (format!("f{n}"), Some(version.to_string()))).collect()
    };
    let numbered = move |version: u64| Write {
        fields: number(version, 5_000),
        values: number(version, 2_500),
        outbox: Some((key(version), version.to_string())),
        cleared: vec![key(version - 1)],
        ..write(id, version)
    };
    commit(&store, numbered(1)).await;
    let (seen, mut loads) = tokio::sync::watch::channel(0);
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            let mut version = 1;
            for _ in 0..ROUNDS {
                for _ in 0..4 {
                    version += 1;
                    let committed = commit(&store, numbered(version)).await;
                    assert!(matches!(committed, CommitOutcome::Done { .. }), "{committed:?}");
                }
                // A reader gets a chance while no write is under way.
                loads.wait_for(|seen| *seen == version).await.unwrap();
            }
        }
    });
    while !writer.is_finished() {
        match store.load(&[id]).await {
            Ok(mut loaded) => {
                let record = loaded.remove(0).record.unwrap();
                let version = record.version.to_string();
                assert_eq!((record.fields.len(), record.values.len()), (5_000, 2_500));
                let others =
                    record.fields.values().chain(record.values.values()).filter(|text| **text != version);
                assert_eq!(others.count(), 0, "values of other versions than {version} exist");
                assert_eq!(record.outbox.into_keys().collect::<Vec<_>>(), [key(record.version)]);
                seen.send_replace(record.version);
            }
            Err(Error::MovedOn { trace_id }) => assert_eq!(trace_id, id),
            Err(error) => panic!("{error:?}"),
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

async fn values_are_deleted_and_fields_stay(store: Store) {
    let value = |name: &str, text: Option<&str>| (name.to_owned(), text.map(str::to_owned));
    let first = vec![value("a", Some("1")), value("b", Some("2"))];
    commit(&store, Write { values: first, ..write(trace(1), 1) }).await;
    let second = vec![value("a", None), value("b", Some("3"))];
    commit(&store, Write { values: second, fields: Vec::new(), ..write(trace(1), 2) }).await;
    let record = store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.values, HashMap::from([("b".into(), "3".into())]));
    assert_eq!(record.fields["head"], "version 1");
    commit(&store, Write { values: vec![value("b", None)], ..write(trace(1), 3) }).await;
    assert_eq!(store.load(&[trace(1)]).await.unwrap()[0].record.as_ref().unwrap().values.len(), 0);
}

async fn a_write_may_replace_all_but_the_outboxes(store: Store) {
    let all = |fields: &[&str]| fields.iter().map(|name| ((*name).to_owned(), Some("1".into()))).collect();
    let first = Write {
        fields: all(&["a", "b"]),
        values: all(&["c", "d"]),
        outbox: Some((key(1), "to send".into())),
        ended_at: Some(at(1)),
        ..write(trace(1), 1)
    };
    commit(&store, first).await;
    let second = Write {
        replaces: Replaces::AllButOutboxes,
        fields: all(&["b"]),
        values: all(&["d"]),
        ..write(trace(1), 2)
    };
    commit(&store, second).await;
    let record = store.load(&[trace(1)]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.fields.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(record.values.keys().collect::<Vec<_>>(), ["d"]);
    assert_eq!(record.outbox.keys().collect::<Vec<_>>(), [&key(1)], "the unsent outbox remains");
    assert_eq!(store.ended(&everywhere(), at(9), 9).await.unwrap(), [], "the trace is live again");
}

async fn a_version_that_another_commit_made_is_another_version(store: Store) {
    let made = |at: &str| ("made".to_owned(), Some(at.to_owned()));
    commit(&store, Write { fields: vec![made("17")], ..write(trace(1), 1) }).await;
    let next = |stamp: &str| Write { stamp: Some(stamp.into()), ..write(trace(1), 2) };
    assert!(matches!(commit(&store, next("16")).await, CommitOutcome::Conflict { version: 1, .. }));
    assert!(matches!(commit(&store, next("17")).await, CommitOutcome::Done { .. }));
}

async fn timers_come_due_in_order_up_to_the_limit_until_removed(store: Store) {
    // Five traces of one partition, and one of another.
    let home = Partition::of(trace(1), PARTITIONS);
    let (here, there): (Vec<TraceId>, Vec<TraceId>) =
        (1..500).map(trace).partition(|id| Partition::of(*id, PARTITIONS) == home);
    let ids = &here[..5];
    for (id, due_at) in ids.iter().zip([50, 30, 10, 40, 20]) {
        commit(&store, Write { timer: Some(at(due_at)), ..write(*id, 1) }).await;
    }
    commit(&store, Write { timer: Some(at(1)), ..write(there[0], 1) }).await;
    let due = async |now: u64, limit: usize| store.due(&[home], at(now), limit).await.unwrap();
    assert_eq!(due(9, 10).await, []);
    assert_eq!(due(30, 10).await, [ids[2], ids[4], ids[1]]);
    assert_eq!(due(99, 2).await, [ids[2], ids[4]]);
    commit(&store, Write { timer: Some(at(60)), ..write(ids[2], 2) }).await;
    commit(&store, Write { timer: None, ..write(ids[4], 2) }).await;
    assert_eq!(due(99, 10).await, [ids[1], ids[3], ids[0], ids[2]]);
    assert_eq!(store.due(&everywhere(), at(30), 10).await.unwrap().len(), 2);
}

fn sent(trace_id: TraceId, outboxes: &[u64], version: Option<u64>, timer: Option<Timestamp>) -> SentOutboxes {
    let outboxes = outboxes.iter().map(|version| key(*version)).collect();
    SentOutboxes { trace_id, outboxes, version, stamp: None, timer, keeps_earlier_timer: false, all: false }
}

async fn sent_clears_the_outbox_of_that_version_only(store: Store) {
    let id = trace(1);
    for version in 1..=3 {
        let outbox = Some((key(version), version.to_string()));
        commit(&store, Write { outbox, timer: Some(at(5)), ..write(id, version) }).await;
    }
    let outboxes = async || {
        let record = store.load(&[id]).await.unwrap().pop().unwrap().record.unwrap();
        record.outbox.into_keys().map(|key| key.version).collect::<Vec<_>>()
    };
    store.sent(&[sent(id, &[1], Some(1), None)]).await.unwrap();
    assert_eq!(outboxes().await, [2, 3], "newer versions have their own outboxes");
    assert_eq!(
        store.due(&everywhere(), at(9), 9).await.unwrap(),
        [id],
        "the timer is that of the newer versions"
    );
    store.sent(&[sent(id, &[2], None, None)]).await.unwrap();
    assert_eq!(outboxes().await, [3]);
    assert_eq!(store.due(&everywhere(), at(9), 9).await.unwrap(), [id]);
    store.sent(&[sent(id, &[3], Some(3), Some(at(80)))]).await.unwrap();
    assert_eq!((outboxes().await, version(&store, id).await), (vec![], Some(3)));
    assert_eq!(store.due(&everywhere(), at(79), 9).await.unwrap(), []);
    assert_eq!(store.due(&everywhere(), at(80), 9).await.unwrap(), [id]);
    let both = [sent(trace(9), &[1], Some(3), Some(at(1))), sent(id, &[], Some(3), None)];
    store.sent(&both).await.unwrap();
    assert_eq!(store.due(&everywhere(), at(99), 9).await.unwrap(), []);
}

/// Only the owner of a partition knows which leases were renewed, so a write of another coordinator
/// never delays a wake.
async fn b13_a_write_can_keep_an_earlier_timer(store: Store) {
    let id = trace(1);
    let due_at = async || {
        let mut times = 0..100;
        let is_due = async |time| store.due(&everywhere(), at(time), 9).await.unwrap() == [id];
        loop {
            match times.next() {
                Some(time) if is_due(time).await => return Some(time),
                Some(_) => {}
                None => return None,
            }
        }
    };
    let keeps =
        |timer: Option<Timestamp>, version| Write { timer, keeps_earlier_timer: true, ..write(id, version) };
    commit(&store, keeps(Some(at(50)), 1)).await;
    assert_eq!(due_at().await, Some(50), "there was no timer");
    commit(&store, keeps(Some(at(70)), 2)).await;
    assert_eq!(due_at().await, Some(50));
    commit(&store, keeps(Some(at(40)), 3)).await;
    assert_eq!(due_at().await, Some(40));
    let later =
        |keeps_earlier_timer| SentOutboxes { keeps_earlier_timer, ..sent(id, &[], Some(3), Some(at(60))) };
    store.sent(&[later(true)]).await.unwrap();
    assert_eq!(due_at().await, Some(40));
    store.sent(&[later(false)]).await.unwrap();
    assert_eq!(due_at().await, Some(60));
    commit(&store, keeps(None, 4)).await;
    assert_eq!(due_at().await, None, "a run that is over has no timer");
}

/// The store lost version 1, and another coordinator made it again. The first coordinator has sent
/// its own outbox.
async fn sent_by_a_lost_commit_leaves_what_another_has_to_send(store: Store) {
    let id = trace(1);
    let made = |made: u64| OutboxKey { version: 1, made };
    let fields = vec![("made".into(), Some("8".into()))];
    let outbox = Some((made(8), "second".into()));
    commit(&store, Write { fields, outbox, timer: Some(at(5)), ..write(id, 1) }).await;
    let stored = async || {
        let record = store.load(&[id]).await.unwrap().pop().unwrap().record.unwrap();
        (record.outbox.into_keys().collect::<Vec<_>>(), store.due(&everywhere(), at(9), 9).await.unwrap())
    };
    let all = |stamp: &str, outbox: OutboxKey| SentOutboxes {
        outboxes: vec![outbox],
        stamp: Some(stamp.into()),
        all: true,
        ..sent(id, &[], Some(1), None)
    };
    store.sent(&[all("7", made(7))]).await.unwrap();
    assert_eq!(stored().await, (vec![made(8)], vec![id]));
    // The coordinator that made the valid commit clears all outboxes, including one that reappeared
    // in the store.
    store.sent(&[all("8", made(0))]).await.unwrap();
    assert_eq!(stored().await, (vec![], vec![]));
    let outboxes: Vec<OutboxKey> = vec![made(0), made(9)];
    for (version, outbox) in (2..).zip(&outboxes) {
        commit(&store, Write { outbox: Some((*outbox, "x".into())), ..write(id, version) }).await;
    }
    assert_eq!(stored().await.0, outboxes);
}

async fn a_commit_clears_the_outboxes_it_names_and_versions_are_told(store: Store) {
    let id = trace(1);
    commit(&store, Write { outbox: Some((key(1), "one".into())), ..write(id, 1) }).await;
    let counter = store.counters(&[Partition::of(id, PARTITIONS)]).await.unwrap()[0];
    commit(&store, Write { outbox: Some((key(2), "two".into())), cleared: vec![key(1)], ..write(id, 2) })
        .await;
    let record = store.load(&[id]).await.unwrap().pop().unwrap().record.unwrap();
    assert_eq!(record.outbox.into_iter().collect::<Vec<_>>(), [(key(2), "two".to_owned())]);
    assert_eq!(store.versions(&[trace(7), id]).await.unwrap(), [0, 2]);
    assert_eq!(store.counters(&[Partition::of(id, PARTITIONS)]).await.unwrap()[0], counter + 1);
}

async fn sent_of_a_trace_that_is_gone_removes_its_timer(store: Store) {
    let id = trace(1);
    store.sent(&[sent(id, &[], Some(0), Some(at(5)))]).await.unwrap();
    assert_eq!(store.due(&everywhere(), at(9), 9).await.unwrap(), [id]);
    store.sent(&[sent(id, &[], Some(0), None)]).await.unwrap();
    assert_eq!(store.due(&everywhere(), at(9), 9).await.unwrap(), []);
}

/// W6: an ended trace is listed until it is removed, and a change since then prevents the removal.
async fn w6_an_ended_trace_is_removed_with_all_that_is_kept_with_it(store: Store) {
    let ended = |id, since| Write {
        values: vec![("value".into(), Some("x".into()))],
        timer: Some(at(5)),
        opened_at: Some(at(1)),
        ended_at: Some(at(since)),
        ..write(id, 1)
    };
    let [one, other, live] = [trace(1), trace(2), trace(3)];
    store
        .commit(&[ended(one, 10), ended(other, 20), Write { ended_at: None, ..ended(live, 0) }])
        .await
        .unwrap();
    store.add_branches(one, &[other, live]).await.unwrap();
    store.add_branches(one, &[live]).await.unwrap();
    assert_eq!(store.branches(one).await.unwrap(), [other, live]);
    let over = async |until| {
        let mut over = store.ended(&everywhere(), at(until), 9).await.unwrap();
        over.sort_unstable();
        over
    };
    assert_eq!((over(9).await, over(10).await, over(99).await), (vec![], vec![one], vec![one, other]));
    store.put_off(one, at(50)).await.unwrap();
    store.put_off(live, at(50)).await.unwrap();
    assert_eq!((over(49).await, over(50).await), (vec![other], vec![one, other]));
    // The trace is live again.
    commit(&store, write(other, 2)).await;
    assert_eq!(over(99).await, [one]);
    assert!(!store.remove(other, 1).await.unwrap() && version(&store, other).await == Some(2));
    assert!(!store.remove(one, 1).await.unwrap(), "the trace still has an unsent outbox");
    store.sent(&[sent(one, &[], Some(1), None)]).await.unwrap();
    for version in [1, 0] {
        assert!(store.remove(one, version).await.unwrap(), "a second remove also succeeds");
        assert!(over(99).await.is_empty() && store.branches(one).await.unwrap().is_empty());
        assert!(!store.due(&everywhere(), at(9), 9).await.unwrap().contains(&one));
        assert!(store.find(&Find::newest(9)).await.unwrap().iter().all(|(id, _)| *id != one));
        assert!(store.load(&[one]).await.unwrap()[0].record.is_none());
    }
    let again = commit(&store, write(one, 1)).await;
    assert!(matches!(again, CommitOutcome::Done { .. }), "the id can be used again");
    let values = store.load(&[one]).await.unwrap().pop().unwrap().record.unwrap().values;
    assert_eq!(values.len(), 0, "its values were removed too");
}

async fn runs_are_newest_first_without_those_that_are_gone(store: Store) {
    for number in 1..=20 {
        let opened_at = (number != 13).then(|| at(1000 + u64::try_from(number % 10).unwrap()));
        commit(&store, Write { opened_at, ..write(trace(number), 1) }).await;
    }
    assert!(store.remove(trace(19), 1).await.unwrap());
    let runs = store.find(&Find::newest(4)).await.unwrap();
    assert_eq!(runs, [9, 18, 8, 17].map(|n| (trace(n), at(1000 + u64::try_from(n % 10).unwrap()))));
    let all = store.find(&Find::newest(100)).await.unwrap();
    assert_eq!(all.len(), 18);
    assert!(all.windows(2).all(|two| two[0].1 >= two[1].1));
    assert_eq!(store.find(&Find::newest(0)).await.unwrap(), []);
}

async fn the_counter_of_a_partition_grows_with_every_commit(store: Store) {
    let id = trace(1);
    for expected in 1..=5 {
        assert_eq!(commit(&store, write(id, expected)).await, CommitOutcome::Done { counter: expected });
    }
    assert_eq!(commit(&store, write(id, 3)).await, CommitOutcome::Conflict { version: 5, counter: 5 });
    assert_eq!(store.load(&[id]).await.unwrap()[0].counter, 5);
    let mut others = (2..100).map(trace);
    let home = Partition::of(id, PARTITIONS);
    let neighbour = others.clone().find(|other| Partition::of(*other, PARTITIONS) == home).unwrap();
    let stranger = others.find(|other| Partition::of(*other, PARTITIONS) != home).unwrap();
    let loaded = store.load(&[neighbour, stranger]).await.unwrap();
    assert_eq!((loaded[0].counter, loaded[1].counter), (5, 0));
}

async fn a_mark_is_set_only_if_the_partition_is_as_it_was_seen(store: Store) {
    let id = trace(1);
    let home = Partition::of(id, PARTITIONS);
    let other = everywhere().into_iter().find(|partition| *partition != home).unwrap();
    commit(&store, write(id, 1)).await;
    let found = store.log_marks(&[other, home]).await.unwrap();
    assert_eq!(
        found.iter().map(|mark| (mark.counter, mark.position)).collect::<Vec<_>>(),
        [(0, None), (1, None)]
    );
    assert!(found.iter().all(|mark| !mark.run.is_empty()), "{found:?}");
    assert_eq!(
        (store.log_marks(&[]).await.unwrap(), store.set_log_marks(&[]).await.unwrap()),
        (vec![], vec![])
    );

    let at = |sequence| Position { log: 1_700_000_000_000, sequence };
    let set = async |seen: &LogMark, sequence| {
        let mark = NewMark { partition: home, seen: seen.clone(), position: at(sequence) };
        store.set_log_marks(&[mark]).await.unwrap().pop().unwrap()
    };
    let seen = found[1].clone();
    // The counter is lower; another process serves the store; the mark was never set.
    let wrong = [
        LogMark { counter: 2, ..seen.clone() },
        LogMark { run: "another".into(), ..seen.clone() },
        LogMark { position: Some(at(1)), ..seen.clone() },
    ];
    for wrong in wrong {
        assert_eq!(set(&wrong, 7).await, MarkOutcome::Differs(seen.clone()), "{wrong:?}");
    }
    // A higher counter is accepted.
    commit(&store, write(id, 2)).await;
    assert_eq!(set(&seen, 7).await, MarkOutcome::Done);
    let now = LogMark { counter: 2, position: Some(at(7)), ..seen.clone() };
    assert_eq!(set(&seen, 8).await, MarkOutcome::Differs(now.clone()), "another mark was set meanwhile");
    assert_eq!(store.log_marks(&[home, other]).await.unwrap(), [now.clone(), found[0].clone()]);
    // A recreated log has lower positions.
    assert_eq!(set(&now, 3).await, MarkOutcome::Done);
    assert_eq!(store.log_marks(&[home]).await.unwrap()[0].position, Some(at(3)));
    assert_eq!(commit(&store, write(id, 3)).await, CommitOutcome::Done { counter: 3 });
}

pub(super) fn agent(id: &str, version: u64, profile: Option<&str>) -> AgentVersion {
    AgentVersion { agent_id: id.into(), version, profile: profile.map(ToOwned::to_owned), again: false }
}

async fn agents_are_replaced_and_every_change_is_a_revision(store: Store) {
    assert_eq!(store.agents().await.unwrap(), Agents::default());
    assert_eq!(store.agents_revision().await.unwrap(), 0);
    let apply = async |agents: &[AgentVersion], at_least| store.apply_agents(agents, at_least).await.unwrap();
    assert_eq!(apply(&[agent("a", 1, Some("1")), agent("b", 1, Some("2"))], 0).await, 1);
    assert_eq!(apply(&[agent("b", 2, Some("3"))], 0).await, 2);
    for same in [agent("b", 2, Some("other")), agent("b", 1, None)] {
        assert_eq!(apply(&[same], 0).await, 2, "only later versions change the index");
    }
    assert_eq!(apply(&[], 0).await, 2);
    assert_eq!(apply(&[agent("a", 3, None)], 0).await, 3);
    let now = Agents {
        revision: 3,
        profiles: [("b".into(), "3".into())].into(),
        versions: [("a".into(), 3), ("b".into(), 2)].into(),
    };
    assert_eq!(store.agents().await.unwrap(), now);
    assert_eq!(apply(&[], 10).await, 10, "no revision may come twice");
    assert_eq!(apply(&[agent("a", 4, Some("4"))], 5).await, 11);
    assert_eq!(store.agents_revision().await.unwrap(), 11);
}

async fn a_commit_with_earlier_profiles_is_refused(store: Store) {
    let with = |version, profiles| Write { profiles, ..write(trace(1), version) };
    assert_eq!(commit(&store, with(1, Some(0))).await, CommitOutcome::Done { counter: 1 });
    store.apply_agents(&[agent("a", 1, Some("1"))], 0).await.unwrap();
    let outdated = CommitOutcome::Outdated { revision: 1, counter: 1 };
    assert_eq!(commit(&store, with(2, Some(0))).await, outdated);
    assert_eq!(commit(&store, with(9, Some(0))).await, CommitOutcome::Conflict { version: 1, counter: 1 });
    assert_eq!(
        commit(&store, with(2, None)).await,
        CommitOutcome::Done { counter: 2 },
        "it names no profiles"
    );
    assert_eq!(commit(&store, with(3, Some(1))).await, CommitOutcome::Done { counter: 3 });
    assert_eq!(
        commit(&store, with(4, Some(7))).await,
        CommitOutcome::Done { counter: 4 },
        "the store lost some"
    );
    assert_eq!(store.load(&[trace(1)]).await.unwrap()[0].record.as_ref().unwrap().version, 4);
}

async fn coordinators_are_alive_while_their_heartbeats_last(store: Store) {
    let [a, b, c] = ["a-1 says this", "b-1", "c-1 "].map(|text| text.parse::<Member>().unwrap());
    assert_eq!((a.id.as_str(), a.says.as_str(), b.says.as_str()), ("a-1", "says this", ""));
    let beat = async |who: &Member, ttl_ms: u64| {
        let Members { alive, silent } = store.heartbeat(who, ttl_ms).await.unwrap();
        [alive, silent]
            .map(|some| some.iter().map(|member| member.id.to_string()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(beat(&b, 60_000).await, ["b-1", ""]);
    assert_eq!(beat(&a, 60_000).await, ["a-1 b-1", ""]);
    store.leave(&b).await.unwrap();
    store.leave(&b).await.unwrap();
    assert_eq!(beat(&c, 60_000).await, ["a-1 c-1", ""]);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(beat(&c, 30).await, ["c-1", "a-1"], "the other coordinator has sent no heartbeat for 30 ms");
    assert_eq!(beat(&c, 60_000).await, ["a-1 c-1", ""], "a reader with a longer limit still sees it");
}

async fn the_partition_count_is_settled_once(store: Store) {
    store.settle_partitions(64).await.unwrap();
    store.settle_partitions(64).await.unwrap();
    let error = store.settle_partitions(32).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { found: 64, asked: 32 }), "{error:?}");
    assert!(
        error.to_string().contains("--partitions is 32, and this deployment has 64 partitions"),
        "{error}"
    );
}

async fn the_clock_of_the_store_is_current_and_advances(store: Store) {
    let before = store.time().await.unwrap().read;
    assert!(before > at(1_700_000_000_000), "{before:?}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let passed = store.time().await.unwrap().read.millis_since(before);
    assert!((15..600_000).contains(&passed), "{passed}");
}

/// f28: the first correction under a number is stored, and the correction with the highest number
/// applies.
async fn the_clock_is_corrected_once_a_number(store: Store) {
    let correction = |number, ahead_ms| Correction { number, ahead_ms };
    assert_eq!(store.time().await.unwrap().correction, correction(0, 0));
    for number in 1..30 {
        store.correct_time(correction(number, 7_200_000)).await.unwrap();
        store.correct_time(correction(number, -5)).await.unwrap();
        let time = store.time().await.unwrap();
        assert_eq!(time.correction, correction(number, 7_200_000));
        assert_eq!(time.read.millis_since(time.corrected()), 7_200_000);
    }
    store.correct_time(correction(30, -5)).await.unwrap();
    let time = store.time().await.unwrap();
    assert_eq!((time.correction.ahead_ms, time.corrected().millis_since(time.read)), (-5, 5));
}

#[tokio::test]
async fn durability_is_what_the_server_says() {
    let server = RedisServer::start();
    let durability = redis(&server, "").await.durability().await.unwrap();
    assert!(durability.version.clone().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{durability:?}");
    let expected = Durability {
        version: durability.version.clone(),
        appendonly: Some("yes".into()),
        appendfsync: Some("always".into()),
        maxmemory_policy: Some("noeviction".into()),
    };
    assert_eq!(durability, expected);
    assert_eq!(Store::Memory(Memory::new(1)).durability().await.unwrap(), Durability::default());
}

#[tokio::test]
async fn two_namespaces_on_one_server_do_not_see_each_other() {
    let server = RedisServer::start();
    let (one, other) = (redis(&server, "team-a").await, redis(&server, "team-b").await);
    commit(&one, Write { timer: Some(at(1)), opened_at: Some(at(1)), ..write(trace(1), 1) }).await;
    one.apply_agents(&[agent("a", 1, Some("1"))], 0).await.unwrap();
    one.settle_partitions(4).await.unwrap();
    one.heartbeat(&"c-1".parse().unwrap(), 60_000).await.unwrap();
    let loaded = other.load(&[trace(1)]).await.unwrap();
    assert!(loaded[0].record.is_none() && loaded[0].counter == 0, "{loaded:?}");
    assert_eq!(other.due(&everywhere(), at(9), 9).await.unwrap(), []);
    assert_eq!(other.find(&Find::newest(9)).await.unwrap(), []);
    assert_eq!(other.agents().await.unwrap(), Agents::default());
    other.settle_partitions(8).await.unwrap();
    assert_eq!(other.heartbeat(&"c-2".parse().unwrap(), 60_000).await.unwrap().alive.len(), 1);
}
