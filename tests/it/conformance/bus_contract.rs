//! The bus: one set of tests, run in memory with a paused clock, on a disk and on a real server.

use std::{collections::BTreeSet, time::Duration};

use bus::{
    Bus, Consumer, Error, From, Head, Outgoing, PublishError, RequestError, Service, Storage, Stream,
    Topology,
};
use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{Action, Filter, Subject, Topic},
};
use trellis_tests::subjects::pool;

use super::{event, identified, message, quiet, soon, text, topology, trace};

const NOW: Duration = Duration::ZERO;
const WAIT: Duration = Duration::from_millis(600);

macro_rules! on_each {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(super::super::memory().await).await;
            })*
        }
        mod disk {
            $(#[tokio::test]
            async fn $name() {
                let (_directory, bus) = super::super::disk().await;
                super::$name(bus).await;
            })*
        }
        mod nats {
            $(#[tokio::test]
            async fn $name() {
                let (_server, bus) = super::super::nats().await;
                super::$name(bus).await;
            })*
        }
    };
}

on_each!(
    what_is_published_is_read_back_in_order,
    an_id_is_stored_once,
    a_fence_holds,
    a_subject_of_no_stream_is_refused,
    a_queue_redelivers_until_it_is_acknowledged,
    an_unacknowledged_delivery_is_redelivered_and_progress_delays_it,
    no_more_is_delivered_than_requested,
    two_readers_share_a_queue,
    queues_are_apart,
    a_cancelled_wait_loses_no_message,
    a_request_is_answered_by_one,
    gather_asks_all_subscribers,
    a_broadcast_reaches_all_subscribers,
    a_service_answers_at_all_its_subjects,
    a_log_is_followed_across_a_purge,
    subjects_are_listed,
    messages_behind_a_sequence_and_the_end_of_a_log_are_found,
    objects_are_kept,
    a_large_payload_arrives_everywhere,
    a_full_stream_says_so,
    full_objects_say_so_and_how_full_each_is_is_told,
    deliveries_are_counted_until_they_are_acknowledged,
    one_message_of_a_log_is_deleted,
    the_last_versions_of_each_profile_are_kept,
);

async fn texts(bus: &Bus, filter: &Filter) -> Vec<String> {
    bus.read(filter).await.unwrap().iter().map(|stored| text(&stored.payload)).collect()
}

async fn what_is_published_is_read_back_in_order(bus: Bus) {
    assert_eq!(bus.read(&Filter::Events).await.unwrap(), []);
    assert_eq!(bus.last(&Filter::Events).await.unwrap(), None);
    let headers: Headers = [("traceparent".to_owned(), "00-1-2-01".to_owned())].into();
    let outgoing = |n: u32| {
        let headers = headers.clone();
        Outgoing { headers, ..identified(event(u128::from(n % 3 + 1)), &n.to_string()) }
    };
    let results = bus.send((0..2500).map(outgoing).collect()).await.stored().await;
    let sequences: Vec<_> = results.into_iter().map(|result| result.unwrap().sequence).collect();
    assert_eq!(sequences, (1..=2500).collect::<Vec<_>>());
    let all: Vec<_> = (0..2500).map(|n| n.to_string()).collect();
    assert_eq!(texts(&bus, &Filter::Events).await, all);
    let of_one: Vec<_> = (0..2500).filter(|n| n % 3 == 1).map(|n: u32| n.to_string()).collect();
    assert_eq!(texts(&bus, &Filter::EventsOf(trace(2))).await, of_one);
    let last = bus.last(&Filter::EventsOf(trace(2))).await.unwrap().unwrap();
    assert_eq!((last.sequence, text(&last.payload)), (2498, "2497".into()));
    assert_eq!((last.subject, last.headers), (event(2), headers));
    assert!(last.at.millis() > 1_700_000_000_000);
    assert_eq!(texts(&bus, &Filter::Outcomes).await, Vec::<String>::new());
    assert!(bus.read(&Filter::Stops).await.is_err(), "a subject without a stream can't be read");
}

async fn an_id_is_stored_once(bus: Bus) {
    let first = bus.publish(identified(event(1), "a")).await.unwrap();
    let again = bus.publish(identified(event(1), "a")).await.unwrap();
    assert_eq!((first.sequence, first.duplicate), (1, false));
    assert_eq!((again.sequence, again.duplicate), (1, true));
    bus.publish(message(event(1), "a")).await.unwrap();
    assert_eq!(texts(&bus, &Filter::Events).await, ["a", "a"]);
}

async fn a_fence_holds(bus: Bus) {
    let fenced = |text: &str, last| Outgoing { expect_last: Some(last), ..identified(event(1), text) };
    let chain = bus.send(vec![fenced("a", 0), fenced("b", 1), fenced("c", 2)]).await.stored().await;
    assert!(chain.iter().all(Result::is_ok), "{chain:?}");
    assert_eq!(bus.publish(fenced("d", 1)).await, Err(PublishError::WrongSequence));
    assert_eq!(bus.publish(fenced("e", 0)).await, Err(PublishError::WrongSequence));
    let again = bus.publish(fenced("b", 1)).await.unwrap();
    assert!(again.duplicate, "the id is known, although the message is no longer the last");
    bus.publish(message(event(2), "x")).await.unwrap();
    assert_eq!(bus.publish(fenced("f", 3)).await.unwrap().sequence, 5, "each subject has its own fence");
}

async fn a_subject_of_no_stream_is_refused(bus: Bus) {
    let refused = bus.publish(message(Subject::Submit, "x")).await;
    assert!(matches!(refused, Err(PublishError::Other(_))), "{refused:?}");
}

async fn a_queue_redelivers_until_it_is_acknowledged(bus: Bus) {
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(10);
    bus.publish(message(Subject::Spawn, "a")).await.unwrap();
    let first = soon(queue.next()).await;
    assert_eq!((text(&first.payload), first.delivered, first.sequence), ("a".into(), 1, 1));
    assert_eq!(bus.namespace().parse(&first.subject), Ok(Subject::Spawn));
    let began = tokio::time::Instant::now();
    first.nak(WAIT).await;
    let second = soon(queue.next()).await;
    assert!(began.elapsed() >= WAIT);
    assert_eq!((second.sequence, second.delivered, second.at), (first.sequence, 2, first.at));
    second.nak(NOW).await;
    let third = soon(queue.next()).await;
    assert_eq!(third.delivered, 3);
    third.terminate().await;
    bus.publish(message(Subject::Cancel, "b")).await.unwrap();
    let other = soon(queue.next()).await;
    assert_eq!(text(&other.payload), "b");
    other.ack().await;
    quiet(queue.next()).await;
    for subject in [Subject::Spawn, Subject::Cancel] {
        assert_eq!(bus.read(&Filter::One(subject)).await.unwrap(), [], "acknowledged messages are removed");
    }
}

async fn an_unacknowledged_delivery_is_redelivered_and_progress_delays_it(bus: Bus) {
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(10);
    bus.publish(message(Subject::Spawn, "a")).await.unwrap();
    let began = tokio::time::Instant::now();
    let first = soon(queue.next()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.progress().await;
    let second = soon(queue.next()).await;
    let after = began.elapsed();
    assert!(after > Duration::from_millis(7800), "a redelivery in spite of the progress message: {after:?}");
    assert_eq!((second.delivered, second.sequence), (2, first.sequence));
    first.ack().await;
    quiet(queue.next()).await;
    assert_eq!(
        bus.last(&Filter::One(Subject::Spawn)).await.unwrap(),
        None,
        "a late acknowledgement is accepted"
    );
}

async fn no_more_is_delivered_than_requested(bus: Bus) {
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    bus.send((0..20).map(|n| message(Subject::Spawn, &n.to_string())).collect()).await.stored().await;
    quiet(queue.next()).await;
    let mut seen = 0;
    for more in [1, 3, 2, 5] {
        queue.want(more);
        for _ in 0..more {
            let delivery = soon(queue.next()).await;
            assert_eq!(text(&delivery.payload), seen.to_string());
            delivery.ack().await;
            seen += 1;
        }
        quiet(queue.next()).await;
    }
}

async fn two_readers_share_a_queue(bus: Bus) {
    let pool: Consumer = Consumer::Execute("default".parse().unwrap());
    let (mut one, mut two) = (bus.consume(&pool).await.unwrap(), bus.consume(&pool).await.unwrap());
    one.want(5);
    two.want(5);
    let work = Subject::Execute("default".parse().unwrap());
    bus.send((0..10).map(|n| message(work.clone(), &n.to_string())).collect()).await.stored().await;
    let mut seen = BTreeSet::new();
    for queue in [&mut one, &mut two] {
        for _ in 0..5 {
            let delivery = soon(queue.next()).await;
            delivery.ack().await;
            seen.insert(text(&delivery.payload));
        }
    }
    assert_eq!(seen.len(), 10, "each message was delivered to one consumer");
}

async fn queues_are_apart(bus: Bus) {
    let partition = domain::subject::Partition::new;
    let mut zero = bus.consume(&Consumer::Report(partition(0).unwrap())).await.unwrap();
    let mut one = bus.consume(&Consumer::Report(partition(1).unwrap())).await.unwrap();
    zero.want(10);
    one.want(10);
    let child = || "root".parse().unwrap();
    bus.publish(message(Subject::Result(pool(), partition(1).unwrap(), trace(1), child()), "r"))
        .await
        .unwrap();
    bus.publish(message(Subject::Cost(pool(), partition(1).unwrap(), trace(1), child()), "c")).await.unwrap();
    let (first, second) = (soon(one.next()).await, soon(one.next()).await);
    assert_eq!((text(&first.payload), text(&second.payload)), ("r".into(), "c".into()));
    first.ack().await;
    second.ack().await;
    quiet(zero.next()).await;
}

async fn a_cancelled_wait_loses_no_message(bus: Bus) {
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(200);
    let publishing = async {
        for n in 0..200 {
            bus.publish(message(Subject::Spawn, &n.to_string())).await.unwrap();
        }
    };
    let mut seen = Vec::new();
    let taking = async {
        while seen.len() < 200 {
            let short = Duration::from_micros(300);
            if let Ok(delivery) = tokio::time::timeout(short, queue.next()).await {
                delivery.ack().await;
                seen.push(text(&delivery.payload));
            }
        }
    };
    soon(async { tokio::join!(publishing, taking) }).await;
    assert_eq!(seen, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
}

async fn a_request_is_answered_by_one(bus: Bus) {
    let none = Headers::new();
    let subject = Subject::Query(Topic::Runs);
    let ask = |timeout| bus.request(&subject, &none, Bytes::from_static(b"?"), timeout);
    assert_eq!(ask(WAIT).await, Err(RequestError::NoResponders));
    let filter = Filter::One(subject.clone());
    let mut servers = [bus.serve(&filter).await.unwrap(), bus.serve(&filter).await.unwrap()];
    assert_eq!(ask(WAIT).await, Err(RequestError::TimedOut));
    let [one, two] = &mut servers;
    let stale = async {
        tokio::select! { message = one.next() => message, message = two.next() => message }
    };
    assert!(soon(stale).await.unwrap().reply_to.is_some());
    let (answer, ()) = soon(async {
        tokio::join!(ask(super::SOON), async {
            let message = tokio::select! { message = one.next() => message, message = two.next() => message };
            let to = message.unwrap().reply_to.unwrap();
            bus.reply(&to, Bytes::from_static(b"!")).await.unwrap();
        })
    })
    .await;
    assert_eq!(answer, Ok(Bytes::from_static(b"!")));
    bus.reply("_INBOX.nobody", Bytes::new()).await.unwrap();
    drop(servers);
}

async fn gather_asks_all_subscribers(bus: Bus) {
    let ask = || bus.gather(&Subject::Worker, Bytes::from_static(b"who"), WAIT);
    assert_eq!(ask().await.unwrap(), Vec::<Bytes>::new());
    let filter = Filter::One(Subject::Worker);
    let (mut one, mut two) = (bus.subscribe(&filter).await.unwrap(), bus.subscribe(&filter).await.unwrap());
    let answers = async {
        for (listener, name) in [(&mut one, "one"), (&mut two, "two")] {
            let to = listener.next().await.unwrap().reply_to.unwrap();
            bus.reply(&to, Bytes::from_static(name.as_bytes())).await.unwrap();
        }
    };
    let (gathered, ()) = tokio::join!(ask(), answers);
    let gathered: BTreeSet<_> = gathered.unwrap().iter().map(text).collect();
    assert_eq!(gathered, ["one".to_owned(), "two".to_owned()].into());
}

async fn a_broadcast_reaches_all_subscribers(bus: Bus) {
    let mut all = bus.subscribe(&Filter::Stops).await.unwrap();
    let mut one = bus.subscribe(&Filter::One(Subject::Stop(trace(1)))).await.unwrap();
    for number in [2, 1] {
        let subject = Subject::Stop(trace(number));
        bus.broadcast(&subject, &Headers::new(), Bytes::from_static(b"stop")).await.unwrap();
    }
    assert_eq!(soon(all.next()).await.unwrap().subject, Subject::Stop(trace(2)));
    assert_eq!(soon(all.next()).await.unwrap().subject, Subject::Stop(trace(1)));
    let heard = soon(one.next()).await.unwrap();
    assert_eq!((heard.subject, heard.reply_to), (Subject::Stop(trace(1)), None));
}

async fn a_service_answers_at_all_its_subjects(bus: Bus) {
    // Two of the subjects end in the same word.
    let subjects = [Subject::Submit, Subject::Query(Topic::Schedules), Subject::Admin(Action::Schedules)];
    let service =
        Service { name: "trellis", version: "0.1.0", description: "answers", subjects: subjects.to_vec() };
    let (mut one, two) = (bus.offer(&service).await.unwrap(), bus.offer(&service).await.unwrap());
    drop(two);
    for subject in subjects {
        let headers: Headers = [("traceparent".to_owned(), "00-1-2-01".to_owned())].into();
        let ask = bus.request(&subject, &headers, Bytes::from_static(b"?"), super::SOON);
        let answer = async {
            let message = one.next().await.unwrap();
            assert_eq!((&message.subject, &message.headers), (&subject, &headers));
            bus.reply(&message.reply_to.unwrap(), Bytes::from_static(b"!")).await.unwrap();
        };
        let (answered, ()) = soon(async { tokio::join!(ask, answer) }).await;
        assert_eq!(answered, Ok(Bytes::from_static(b"!")));
    }
}

async fn a_log_is_followed_across_a_purge(bus: Bus) {
    let publish = async |number, text| bus.publish(message(event(number), text)).await.unwrap();
    publish(1, "a").await;
    publish(2, "b").await;
    publish(1, "c").await;
    let filters = [Filter::EventsOf(trace(1)), Filter::OutcomesOf(trace(1))];
    let mut start = bus.follow(&filters, From::Start).await.unwrap();
    let mut third = bus.follow(&[Filter::Events], From::Sequence(3)).await.unwrap();
    let mut now = bus.follow(&[Filter::Events], From::Now).await.unwrap();
    assert_eq!(text(&soon(start.next()).await.unwrap().payload), "a");
    assert_eq!(text(&soon(start.next()).await.unwrap().payload), "c");
    bus.purge(&Filter::EventsOf(trace(1))).await.unwrap();
    assert_eq!(texts(&bus, &Filter::Events).await, ["b"]);
    let outcome = Subject::Outcome(trace(1), "root".parse().unwrap());
    bus.publish(message(outcome.clone(), "d")).await.unwrap();
    publish(1, "e").await;
    let followed = soon(start.next()).await.unwrap();
    assert_eq!((followed.subject, text(&followed.payload), followed.sequence), (outcome, "d".into(), 4));
    assert_eq!(text(&soon(start.next()).await.unwrap().payload), "e");
    assert_eq!(text(&soon(now.next()).await.unwrap().payload), "e", "an earlier message was delivered");
    let next = text(&soon(third.next()).await.unwrap().payload);
    assert!(
        next == "c" || next == "e",
        "neither the purged message, which may be in flight, nor the next one: {next}"
    );
    assert!(bus.follow(&[], From::Start).await.is_err());
    assert!(bus.follow(&[Filter::Events, Filter::Dead], From::Start).await.is_err());
}

async fn subjects_are_listed(bus: Bus) {
    for number in [1, 2, 1] {
        bus.publish(message(event(number), "x")).await.unwrap();
    }
    assert_eq!(bus.subjects(&Filter::Events).await.unwrap(), [event(1), event(2)]);
    assert_eq!(bus.subjects(&Filter::EventsOf(trace(2))).await.unwrap(), [event(2)]);
    assert_eq!(bus.subjects(&Filter::Outcomes).await.unwrap(), []);
}

async fn messages_behind_a_sequence_and_the_end_of_a_log_are_found(bus: Bus) {
    let start = bus.end(&Filter::Events).await.unwrap();
    assert_eq!(start.sequence, 0);
    let since = async |filter: Filter, sequence| {
        let mut found = Vec::new();
        let mut add = |head: Head| found.push((head.subject, head.sequence, head.id));
        soon(bus.each_since(&filter, sequence, &mut add)).await.unwrap();
        found
    };
    assert_eq!(since(Filter::Events, 0).await, []);
    for number in [1, 2, 3, 1] {
        let id = Some(format!("the {number}")).filter(|_| number > 1);
        bus.publish(Outgoing { id, ..message(event(number), "x") }).await.unwrap();
    }
    let outcome = Subject::Outcome(trace(3), "root".parse().unwrap());
    bus.publish(message(outcome.clone(), &"x".repeat(3 << 20))).await.unwrap();
    let of = |number: u128, sequence| {
        (event(number), sequence, Some(format!("the {number}")).filter(|_| number > 1))
    };
    assert_eq!(since(Filter::Events, 0).await, [of(1, 1), of(2, 2), of(3, 3), of(1, 4)]);
    assert_eq!(since(Filter::Events, 2).await, [of(3, 3), of(1, 4)]);
    assert_eq!(since(Filter::Events, 4).await, []);
    assert_eq!(since(Filter::Events, 100).await, []);
    assert_eq!(since(Filter::Outcomes, 2).await, [(outcome, 5, None)]);
    let end = bus.end(&Filter::Events).await.unwrap();
    assert_eq!((end.log, end.sequence), (start.log, 5), "the end of the log of a run's events");
    assert!(start.is_in(end) && !end.is_in(start));
    // Removed messages are not found, and the end of the log stays.
    bus.purge(&Filter::EventsOf(trace(1))).await.unwrap();
    assert_eq!(since(Filter::Events, 0).await, [of(2, 2), of(3, 3)]);
    assert_eq!(bus.end(&Filter::Events).await.unwrap(), end);
    assert!(
        bus.each_since(&Filter::Stops, 0, &mut drop).await.is_err() && bus.end(&Filter::Stops).await.is_err()
    );
}

async fn objects_are_kept(bus: Bus) {
    let large = Bytes::from(vec![7; 3 << 20]);
    assert_eq!(bus.get_object("a/b").await.unwrap(), None);
    bus.put_object("a/b", Bytes::from_static(b"old")).await.unwrap();
    bus.put_object("a/b", large.clone()).await.unwrap();
    assert_eq!(bus.get_object("a/b").await.unwrap(), Some(large));
    bus.delete_object("a/b").await.unwrap();
    bus.delete_object("a/b").await.unwrap();
    bus.delete_object("never").await.unwrap();
    assert_eq!(bus.get_object("a/b").await.unwrap(), None);
    assert_eq!(bus.objects("").await.unwrap(), [""; 0]);
    for name in ["t.x.1.result", "t.x.2.outputs/ü/b", "t.x.2.outputs/a", "t.x", "t.xy.1.result", "s.x.1"] {
        bus.put_object(name, Bytes::from_static(b"1")).await.unwrap();
    }
    assert_eq!(bus.objects("t.x.").await.unwrap(), ["t.x.1.result", "t.x.2.outputs/a", "t.x.2.outputs/ü/b"]);
    bus.delete_object("t.x.2.outputs/a").await.unwrap();
    assert_eq!(bus.objects("t.x.2").await.unwrap(), ["t.x.2.outputs/ü/b"]);
    assert_eq!(bus.objects("").await.unwrap().len(), 5);
    assert_eq!(bus.objects("u").await.unwrap(), [""; 0]);
    bus.ping().await.unwrap();
}

async fn a_large_payload_arrives_everywhere(bus: Bus) {
    let payload = Bytes::from(vec![b'x'; 3 << 20]);
    let large = |subject| Outgoing { payload: payload.clone(), ..identified(subject, "large") };
    bus.publish(large(event(1))).await.unwrap();
    bus.publish(large(Subject::Spawn)).await.unwrap();
    assert_eq!(bus.read(&Filter::Events).await.unwrap()[0].payload, payload);
    let last = bus.last(&Filter::Events).await.unwrap().unwrap();
    assert!(last.payload == payload && last.headers.is_empty());
    let mut follow = bus.follow(&[Filter::Events], From::Start).await.unwrap();
    assert_eq!(soon(follow.next()).await.unwrap().payload, payload);
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(1);
    assert_eq!(soon(queue.next()).await.payload, payload);
}

async fn full_objects_say_so_and_how_full_each_is_is_told(bus: Bus) {
    let sizes = Topology { max_journal_bytes: Some(1 << 20), max_object_bytes: Some(2 << 20), ..topology() };
    bus.set_up(&sizes).await.unwrap();
    let megabyte = Bytes::from(vec![7; 1 << 20]);
    bus.put_object("t.x.1", megabyte.clone()).await.unwrap();
    bus.publish(message(event(1), &"x".repeat(1000))).await.unwrap();
    let fills = bus.fill().await.unwrap();
    let of = |wanted: Storage| *fills.iter().find(|fill| fill.storage == wanted).unwrap();
    let [events, journals] = [Stream::Event, Stream::History].map(|stream| of(Storage::Stream(stream)));
    assert!(events.bytes > 1000 && events.max_bytes == Some(16 << 20) && events.percent() == 0, "{events:?}");
    assert_eq!((journals.bytes, journals.max_bytes), (0, Some(1 << 20)));
    let objects = of(Storage::Objects);
    assert!(objects.max_bytes == Some(2 << 20) && (50..60).contains(&objects.percent()), "{objects:?}");
    assert_eq!(fills.len(), Stream::ALL.len() + Storage::BUCKETS.len());
    let full = bus.put_object("t.x.2", Bytes::from(vec![7; 3 << 19])).await;
    assert!(matches!(full, Err(Error::Failed { .. })), "{full:?}");
}

async fn one_message_of_a_log_is_deleted(bus: Bus) {
    for text in ["a", "b", "c"] {
        bus.publish(message(event(1), text)).await.unwrap();
    }
    bus.delete_message(&event(1), 2).await.unwrap();
    bus.delete_message(&event(1), 2).await.unwrap();
    assert_eq!(texts(&bus, &Filter::Events).await, ["a", "c"]);
}

async fn the_last_versions_of_each_profile_are_kept(bus: Bus) {
    let of = |agent: &str| Subject::Profile(agent.parse().unwrap());
    bus.publish(message(of("other"), "kept")).await.unwrap();
    for version in 1..=90 {
        bus.publish(message(of("a"), &version.to_string())).await.unwrap();
    }
    let there = texts(&bus, &Filter::One(of("a"))).await;
    let kept: Vec<String> = (27..=90).map(|version| version.to_string()).collect();
    assert!(there.ends_with(&kept) && there.len() <= kept.len() + 16, "{there:?}");
    assert_eq!(texts(&bus, &Filter::One(of("other"))).await, ["kept"]);
    assert_eq!(bus.last(&Filter::Profiles).await.unwrap().unwrap().sequence, 91);
}

async fn deliveries_are_counted_until_they_are_acknowledged(bus: Bus) {
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    bus.send(vec![message(Subject::Spawn, "x"); 3]).await.stored().await;
    assert_eq!(bus.unacknowledged(&Consumer::Intake).await.unwrap(), 0);
    queue.want(2);
    let first = soon(queue.next()).await;
    soon(queue.next()).await.nak(Duration::from_secs(60)).await;
    assert_eq!(bus.unacknowledged(&Consumer::Intake).await.unwrap(), 2);
    first.ack().await;
    let began = tokio::time::Instant::now();
    while bus.unacknowledged(&Consumer::Intake).await.unwrap() != 1 {
        assert!(began.elapsed() < super::SOON, "an acknowledged message is still counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_full_stream_says_so(bus: Bus) {
    bus.set_up(&Topology { max_queue_bytes: 3000, ..topology() }).await.unwrap();
    let kilobyte = "x".repeat(1000);
    let results = bus.send(vec![message(Subject::Spawn, &kilobyte); 4]).await.stored().await;
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert!(matches!(results[3], Err(PublishError::Full(_))), "{results:?}");
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(1);
    soon(queue.next()).await.ack().await;
    let began = tokio::time::Instant::now();
    while bus.publish(message(Subject::Spawn, &kilobyte)).await.is_err() {
        assert!(began.elapsed() < super::SOON, "the stream has room, but rejects a message");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
