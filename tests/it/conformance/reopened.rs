//! Data that a bus and a store in a directory acknowledged is there after reopening, and a
//! directory can't be opened twice.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use bus::{Bus, Consumer, Outgoing, PublishReceipt, Stream, Topology};
use bytes::Bytes;
use coordinator::store::{
    AgentVersion, CommitOutcome, Correction, Find, MarkOutcome, NewMark, OutboxKey, Record, SentOutboxes,
    Store, Write,
};
use disk::{Change, Disk, Error, Key, Kind, Rows};
use domain::{
    span::Headers,
    subject::{Filter, Partition, Subject},
};
use trellis_tests::directory::Directory;

use super::{
    bus_in, bus_of, event, identified, message, quiet, soon,
    store::{PARTITIONS, at, store_of, trace as run, write},
    text, topology, trace,
};

#[tokio::test]
async fn streams_and_their_ids_fences_and_sequences_are_there_again() {
    let (directory, other) = (Directory::fresh(), Directory::fresh());
    let bus = bus_in(&directory).await;
    let headers: Headers = [("traceparent".to_owned(), "00-1-2-01".to_owned())].into();
    for number in 1..=20 {
        let outgoing = identified(event(number % 3 + 1), &number.to_string());
        bus.publish(Outgoing { headers: headers.clone(), ..outgoing }).await.unwrap();
    }
    bus.publish(message(event(1), &"x".repeat(300_000))).await.unwrap();
    bus.delete_message(&event(1), 3).await.unwrap();
    bus.purge(&Filter::EventsOf(trace(3))).await.unwrap();
    let (all, subjects) = (bus.read(&Filter::Events).await, bus.subjects(&Filter::Events).await);
    let (end, fill) = (bus.end(&Filter::Events).await.unwrap(), bus.fill().await.unwrap());
    drop(bus);

    let bus = bus_in(&directory).await;
    assert_eq!(bus.read(&Filter::Events).await, all);
    assert_eq!(bus.subjects(&Filter::Events).await, subjects);
    assert_eq!(bus.end(&Filter::Events).await, Ok(end));
    assert_eq!(bus.fill().await, Ok(fill), "the sizes are the same after the directory is opened again");
    let again = bus.publish(identified(event(2), "4")).await;
    assert_eq!(again, Ok(PublishReceipt { sequence: 4, duplicate: true }));
    let fenced = |last| Outgoing { expect_last: Some(last), ..message(event(2), "fenced") };
    assert!(bus.publish(fenced(4)).await.is_err());
    assert_eq!(bus.publish(fenced(19)).await, Ok(PublishReceipt { sequence: 22, duplicate: false }));
    assert_ne!(bus_in(&other).await.end(&Filter::Events).await.unwrap().log, end.log);
}

#[tokio::test]
async fn unacknowledged_deliveries_are_repeated() {
    let directory = Directory::fresh();
    let bus = bus_in(&directory).await;
    bus.send((0..5).map(|n| message(Subject::Spawn, &n.to_string())).collect()).await.stored().await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(4);
    let mut deliveries = Vec::new();
    for _ in 0..4 {
        deliveries.push(soon(queue.next()).await);
    }
    deliveries[0].ack().await;
    deliveries[2].terminate().await;
    deliveries[3].nak(Duration::from_secs(3600)).await;
    drop((deliveries, queue, bus));

    let bus = bus_in(&directory).await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(10);
    for expected in ["1", "3", "4"] {
        let delivery = soon(queue.next()).await;
        assert_eq!((text(&delivery.payload).as_str(), delivery.delivered), (expected, 1));
    }
    quiet(queue.next()).await;
}

#[tokio::test]
async fn objects_are_there_again_and_their_size() {
    let directory = Directory::fresh();
    let bus = bus_in(&directory).await;
    let large: Bytes = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
    bus.put_object("a/large", Bytes::from(vec![1; 1 << 20])).await.unwrap();
    bus.put_object("a/large", large.clone()).await.unwrap();
    bus.put_object("a/empty", Bytes::new()).await.unwrap();
    bus.put_object("b", Bytes::from_static(b"gone")).await.unwrap();
    bus.delete_object("b").await.unwrap();
    let fill = bus.fill().await.unwrap();
    drop(bus);

    let bus = bus_in(&directory).await;
    assert_eq!(bus.get_object("a/large").await, Ok(Some(large)));
    assert_eq!(bus.get_object("a/empty").await, Ok(Some(Bytes::new())));
    assert_eq!(bus.get_object("b").await, Ok(None));
    assert_eq!(bus.objects("").await.unwrap(), ["a/empty", "a/large"]);
    assert_eq!(bus.fill().await, Ok(fill));
}

#[tokio::test]
async fn ids_and_logs_expire_even_without_a_running_process() {
    let directory = Directory::fresh();
    let short = Duration::from_millis(1500);
    let brief = Topology { duplicate_window: short, keep_logs: short, ..topology() };
    let bus = bus_in(&directory).await;
    bus.set_up(&brief).await.unwrap();
    bus.publish(identified(event(1), "a")).await.unwrap();
    bus.publish(identified(Subject::Spawn, "work")).await.unwrap();
    let began = tokio::time::Instant::now();
    drop(bus);
    let bus = bus_in(&directory).await;
    bus.set_up(&brief).await.unwrap();
    if began.elapsed() < short / 2 {
        assert!(bus.publish(identified(Subject::Spawn, "work")).await.unwrap().duplicate);
    }
    tokio::time::sleep_until(began + short).await;
    // Read before any write: expired messages are invisible, although no write has dropped them
    // yet.
    assert_eq!(bus.read(&Filter::Events).await, Ok(Vec::new()));
    assert_eq!(bus.subjects(&Filter::Events).await, Ok(Vec::new()));
    assert_eq!(bus.last(&Filter::Events).await, Ok(None));
    assert!(!bus.publish(identified(Subject::Spawn, "work")).await.unwrap().duplicate);
    assert_eq!(
        bus.read(&Filter::One(Subject::Spawn)).await.unwrap().len(),
        2,
        "messages of a queue do not expire"
    );
    bus.set_up(&brief).await.unwrap();
    let events = bus.fill().await.unwrap();
    let events = events.iter().find(|fill| fill.storage == bus::Storage::Stream(Stream::Event)).unwrap();
    assert_eq!(
        (events.bytes, events.first, events.last),
        (0, 2, 1),
        "the message is dropped, and its sequence number is not used again"
    );
}

#[tokio::test]
async fn objects_expire_with_what_names_them() {
    let (_directory, bus) = super::disk().await;
    let short = Duration::from_millis(300);
    bus.set_up(&Topology { keep_logs: short, keep_journals: short, ..topology() }).await.unwrap();
    bus.put_object("old", Bytes::from_static(b"1234")).await.unwrap();
    bus.put_object("replaced", Bytes::from_static(b"12345")).await.unwrap();
    tokio::time::sleep(2 * short).await;
    bus.put_object("replaced", Bytes::from_static(b"123")).await.unwrap();
    assert_eq!(bus.objects("").await.unwrap(), ["replaced"]);
    let fill = bus.fill().await.unwrap();
    let objects = fill.iter().find(|fill| fill.storage == bus::Storage::Objects).unwrap();
    assert_eq!(objects.bytes, 3);
    assert_eq!(bus.get_object("replaced").await, Ok(Some(Bytes::from_static(b"123"))));
}

#[tokio::test]
async fn one_run_is_followed_in_a_log_that_others_fill() {
    let (_directory, bus) = super::disk().await;
    let many = (0..2_000).map(|n| message(event(n % 50 + 10), "x"));
    let ours = [message(event(1), "first")].into_iter().chain(many).chain([message(event(1), "last")]);
    bus.send(ours.collect()).await.stored().await;
    let filters = [Filter::EventsOf(trace(1)), Filter::OutcomesOf(trace(1))];
    let mut follow = bus.follow(&filters, bus::From::Start).await.unwrap();
    let mut none = bus.follow(&[Filter::EventsOf(trace(2))], bus::From::Start).await.unwrap();
    for (expected, sequence) in [("first", 1), ("last", 2002)] {
        let stored = soon(follow.next()).await.unwrap();
        assert_eq!((text(&stored.payload).as_str(), stored.sequence), (expected, sequence));
    }
    let (later, stored) = tokio::join!(soon(none.next()), bus.publish(message(event(2), "later")));
    assert_eq!((later.unwrap().sequence, stored.unwrap().sequence), (2003, 2003));
}

#[tokio::test]
async fn acknowledged_writes_are_there_after_a_restart() {
    let directory = Directory::fresh();
    let store = store_of(&directory.open());
    let outbox = OutboxKey { version: 1, made: 7 };
    let first = Write {
        fields: vec![("head".into(), Some("ü".into())), ("made".into(), Some("7".into()))],
        values: vec![("key".into(), Some("{}".into()))],
        outbox: Some((outbox, "to send".into())),
        timer: Some(at(50)),
        opened_at: Some(at(10)),
        index: Some("10 99 status:working agent:a".into()),
        ..write(run(1), 1)
    };
    let ended = Write { ended_at: Some(at(20)), opened_at: Some(at(11)), ..write(run(2), 1) };
    let committed = store.commit(&[first, ended]).await.unwrap();
    assert!(
        committed.iter().all(|committed| matches!(committed, CommitOutcome::Done { .. })),
        "{committed:?}"
    );
    let version = AgentVersion { agent_id: "a".into(), version: 3, profile: Some("p".into()), again: false };
    store.apply_agents(&[version], 5).await.unwrap();
    store.settle_partitions(PARTITIONS).await.unwrap();
    store.correct_time(Correction { number: 2, ahead_ms: -9 }).await.unwrap();
    store.add_branches(run(1), &[run(3), run(2)]).await.unwrap();
    let homes: Vec<Partition> = Partition::all(PARTITIONS).collect();
    let seen = store.log_marks(&homes[..1]).await.unwrap().remove(0);
    let position = bus::Position { log: 5, sequence: 6 };
    let mark = NewMark { partition: homes[0], seen: seen.clone(), position };
    assert_eq!(store.set_log_marks(std::slice::from_ref(&mark)).await.unwrap(), [MarkOutcome::Done]);
    let before = all(&store, &homes).await;
    drop(store);

    let store = store_of(&directory.open());
    assert_eq!(all(&store, &homes).await, before);
    let Some(Record { version: 1, fields, values, outbox: kept }) = load(&store, 1).await else { panic!() };
    assert_eq!((fields["head"].as_str(), values["key"].as_str()), ("ü", "{}"));
    assert_eq!(kept, [(outbox, "to send".to_owned())].into());
    assert_eq!(store.due(&homes, at(50), 9).await.unwrap(), [run(1)]);
    assert_eq!(store.ended(&homes, at(20), 9).await.unwrap(), [run(2)]);
    let found = store.find(&Find { cost: Some((99, 99)), ..Find::newest(9) }).await.unwrap();
    assert_eq!(found, [(run(2), at(11)), (run(1), at(10))], "one of them has no cost yet");
    assert!(store.settle_partitions(PARTITIONS + 1).await.is_err());
    // Another process serves the store: a mark set from an earlier observation is refused.
    let marked = store.set_log_marks(&[mark]).await.unwrap();
    assert!(matches!(&marked[..], [MarkOutcome::Differs(found)] if found.run != seen.run), "{marked:?}");
    let sent = SentOutboxes {
        trace_id: run(1),
        outboxes: vec![outbox],
        version: Some(1),
        stamp: Some("7".into()),
        timer: None,
        keeps_earlier_timer: false,
        all: false,
    };
    store.sent(&[sent]).await.unwrap();
    assert!(store.remove(run(1), 1).await.unwrap() && load(&store, 1).await.is_none());
    drop(store);
    let store = store_of(&directory.open());
    assert_eq!((load(&store, 1).await, store.branches(run(1)).await.unwrap()), (None, Vec::new()));
    assert_eq!(store.run_count().await.unwrap(), 1);
}

async fn load(store: &Store, number: u128) -> Option<Record> {
    store.load(&[run(number)]).await.unwrap().remove(0).record
}

/// Everything readable in a store, without the id of its process.
async fn all(store: &Store, homes: &[Partition]) -> String {
    let positions: Vec<_> = store.log_marks(homes).await.unwrap().iter().map(|mark| mark.position).collect();
    let traces = [run(1), run(2), run(3)];
    let mut loaded = store.load(&traces).await.unwrap();
    let records: Vec<_> = loaded.iter_mut().map(|loaded| loaded.record.take()).collect();
    let fields = records.into_iter().flatten().map(|Record { version, fields, values, outbox }| {
        let sorted = |map: std::collections::HashMap<String, String>| {
            map.into_iter().collect::<std::collections::BTreeMap<_, _>>()
        };
        (version, sorted(fields), sorted(values), outbox)
    });
    format!(
        "{:?} {loaded:?} {:?} {:?} {:?} {:?} {positions:?} {:?} {:?} {:?}",
        fields.collect::<Vec<_>>(),
        store.find(&Find::newest(9)).await.unwrap(),
        store.with_prefix("", 9).await.unwrap(),
        store.counters(homes).await.unwrap(),
        store.agents().await.unwrap(),
        store.branches(run(1)).await.unwrap(),
        store.time().await.unwrap().correction,
        store.versions(&traces).await.unwrap(),
    )
}

#[tokio::test]
async fn the_newest_runs_of_a_partition_are_listed() {
    let directory = Directory::fresh();
    let store = Store::Disk(coordinator::store::Disk::new(directory.open(), 1));
    let opened = |number: u128| {
        let at = at(u64::try_from(number).unwrap());
        Write { opened_at: Some(at), ..write(run(number), 1) }
    };
    for thousand in 0..10 {
        let writes: Vec<_> = (1..=1_003).map(|number| opened(thousand * 1_003 + number)).collect();
        store.commit(&writes).await.unwrap();
    }
    assert_eq!(store.run_count().await.unwrap(), 10_000);
    let all = store.find(&Find::newest(20_000)).await.unwrap();
    assert_eq!((all.len(), all[0].0, all[9_999].0), (10_000, run(10_030), run(31)));
}

#[tokio::test]
async fn others_may_not_read_a_directory() {
    let directory = Directory::fresh();
    let _disk = directory.open();
    let mode = std::fs::metadata(directory.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn a_second_opener_is_refused_by_the_number_of_the_first() {
    let directory = Directory::fresh();
    let first = directory.open();
    let pid = std::process::id().to_string();
    let refused = Disk::open(directory.path()).unwrap_err();
    assert_eq!(refused, Error::InUse { directory: directory.path().display().to_string(), pid: pid.clone() });
    assert!(refused.to_string().contains(&format!("in use by process {pid}")), "{refused}");
    let (bus, store) = (bus_of(&first).await, store_of(&first));
    drop(first);
    assert!(Disk::open(directory.path()).is_err(), "the bus and the store lock the directory");
    drop((bus, store));
    Disk::open(directory.path()).unwrap();
}

#[tokio::test]
async fn a_directory_has_one_namespace() {
    let directory = Directory::fresh();
    drop(bus_in(&directory).await);
    let refused = bus::Disk::open(&directory.open(), "team-a".parse().unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("namespace"));
    drop(Bus::Disk(bus::Disk::open(&directory.open(), Default::default()).await.unwrap()));
}

/// proves: a directory in another form is refused with both forms and a hint (N9).
#[tokio::test]
async fn n9_a_directory_in_another_form_is_refused() {
    let directory = Directory::fresh();
    drop(bus_in(&directory).await);
    for (form, wrote, hint) in
        [(1, "an earlier version", "`--data`"), (3, "a later version", "with that version")]
    {
        let disk = directory.open();
        let identity = Key::value().number(form).bytes().to_vec();
        disk.write(move |rows: &mut Change<'_>| rows.put(&Key::new(Kind::Identity).rest(b"bus"), &identity))
            .await
            .unwrap();
        let refused = bus::Disk::open(&disk, Default::default()).await.unwrap_err().to_string();
        let says = [wrote, hint, &format!("form {form}"), "reads form 2"];
        assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    }
}

#[tokio::test]
async fn changes_that_wait_are_committed_together_or_not_at_all() {
    let directory = Directory::fresh();
    let disk = directory.open();
    let key = |name: &str| Key::new(Kind::Setting).rest(name.as_bytes());
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let hold = move |_: &mut Change<'_>| {
        begins.send(()).ok();
        Ok(gate.recv())
    };
    let first = disk.submit(hold, |_| ()).await;
    begun.await.unwrap();
    let put = async |name: &str, refused: Option<Error>| {
        let key = key(name);
        let change = move |rows: &mut Change<'_>| {
            rows.put(&key, b"1")?;
            refused.map_or(Ok(()), Err)
        };
        disk.submit(change, |_| ()).await
    };
    let why = Error::Failed { reason: "on purpose".into() };
    let together = [put("a", None).await, put("b", Some(why.clone())).await, put("c", None).await];
    go.send(()).unwrap();
    first.done().await.unwrap().unwrap();
    for waiting in together {
        assert_eq!(waiting.done().await, Err(why.clone()));
    }
    let there = |name: &str| disk.read(|rows| rows.has(&key(name))).unwrap();
    assert_eq!(["a", "b", "c"].map(there), [false; 3]);
    put("a", None).await.done().await.unwrap();
    assert_eq!(["a", "b", "c"].map(there), [true, false, false], "the next write is tried again");
}
