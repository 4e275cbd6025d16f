//! Faults that only a real NATS server has: it is killed, loses a consumer, or has other settings.

use std::{cell::Cell, collections::BTreeSet, time::Duration};

use async_nats::jetstream::{self, consumer::pull, stream};
use bus::{Bus, Connect, Consumer, Error, ExistingLimits, From, Nats, Storage, Topology};
use domain::subject::{Filter, Namespace, Subject};
use futures_util::StreamExt;
use tokio::time::Instant;
use trellis_tests::servers::NatsServer;

use super::{connected, event, identified, namespace, nats, soon, text, topology};

async fn raw(server: &NatsServer) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

/// Proves that a publish is repeated until it is acknowledged, that a pull is repeated after a
/// reconnect, and that a follower resumes at its place. After the last restart only one batch is
/// left. It arrives in less time than detecting a lost pull without checking the connection would
/// take (22 s).
#[tokio::test]
async fn a_killed_server_loses_no_message() {
    const BATCH: usize = 60;
    let mut server = NatsServer::start();
    let bus = connected(&server, namespace()).await;
    bus.set_up(&topology()).await.unwrap();
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(1 << 20);
    let mut follow = bus.follow(&[Filter::Events], From::Start).await.unwrap();
    let (consumed, back_since) = (Cell::new(0), Cell::new(None));
    // Set before the last batch is sent, so that the consumers wait for no further message.
    let total = Cell::new(None);
    let missing = |seen: usize| total.get().is_none_or(|total| seen < total);
    let publishing = async {
        let mut first = 0;
        while total.get().is_none() {
            if back_since.get().is_some() {
                total.set(Some(first + BATCH));
            }
            let both =
                |n: usize| [Subject::Spawn, event(1)].map(|subject| identified(subject, &n.to_string()));
            let sent = bus.send((first..first + BATCH).flat_map(both).collect()).await;
            for result in sent.stored().await {
                result.unwrap();
            }
            first += BATCH;
        }
    };
    let killing = async {
        for _ in 0..3 {
            let flowing = consumed.get() + 5 * BATCH;
            while consumed.get() < flowing {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.kill();
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.restart();
        }
        back_since.set(Some(Instant::now()));
    };
    let consuming = async {
        let mut seen = BTreeSet::new();
        while missing(seen.len()) {
            let delivery = queue.next().await;
            delivery.ack().await;
            seen.insert(text(&delivery.payload));
            consumed.set(seen.len());
        }
    };
    let following = async {
        let (mut seen, mut last) = (BTreeSet::new(), 0);
        while missing(seen.len()) {
            let stored = follow.next().await.unwrap();
            assert!(stored.sequence > last, "messages have increasing sequence numbers");
            last = stored.sequence;
            assert!(seen.insert(text(&stored.payload)), "no id is stored twice");
        }
    };
    soon(async { tokio::join!(publishing, killing, consuming, following) }).await;
    let took = back_since.get().unwrap().elapsed();
    assert!(took < Duration::from_secs(20), "the bus needed {took:?} after the restart of the server");
}

/// Proves that a fenced message whose acknowledgement was lost is not refused because of its own
/// first copy.
#[tokio::test]
async fn a_fenced_message_sent_again_is_a_duplicate() {
    let (_server, bus) = nats().await;
    let fenced = || bus::Outgoing { expect_last: Some(0), ..identified(event(1), "a") };
    assert!(!bus.publish(fenced()).await.unwrap().duplicate);
    bus.publish(identified(event(1), "b")).await.unwrap();
    let again = bus.publish(fenced()).await.unwrap();
    assert_eq!((again.sequence, again.duplicate), (1, true));
}

#[tokio::test]
async fn a_consumer_that_is_deleted_is_made_again() {
    let (server, bus) = nats().await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(10);
    bus.publish(identified(Subject::Spawn, "a")).await.unwrap();
    soon(queue.next()).await.ack().await;
    let stream = bus.namespace().stream("AGENT_INTAKE");
    let deleting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        raw(&server).await.delete_consumer_from_stream("intake", &stream).await.unwrap();
        bus.publish(identified(Subject::Spawn, "b")).await.unwrap();
    };
    let (delivery, ()) = soon(async { tokio::join!(queue.next(), deleting) }).await;
    assert_eq!((text(&delivery.payload), delivery.delivered), ("b".into(), 1));
}

#[tokio::test]
async fn a_silent_server_is_noticed_while_messages_are_requested() {
    let mut server = NatsServer::start();
    let bus = connected(&server, namespace()).await;
    bus.set_up(&topology()).await.unwrap();
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    server.kill();
    super::quiet(queue.next()).await;
    assert_eq!(queue.silent_for(), Duration::ZERO, "the consumer waits for no message");
    queue.want(1);
    super::quiet(queue.next()).await;
    super::quiet(queue.next()).await;
    assert!(queue.silent_for() >= Duration::from_millis(1400), "{:?}", queue.silent_for());
}

#[tokio::test]
async fn many_may_set_up_at_once_and_sizes_are_changed() {
    let (server, bus) = nats().await;
    let fresh = namespace();
    let (one, two) = (connected(&server, fresh.clone()).await, connected(&server, fresh).await);
    let topology = topology();
    let (first, second) = tokio::join!(one.set_up(&topology), two.set_up(&topology));
    assert_eq!((first, second), (Ok(()), Ok(())));
    let keep_logs = Duration::from_secs(3600);
    bus.set_up(&Topology { max_queue_bytes: 1 << 20, keep_logs, ..topology }).await.unwrap();
    let of = async |name| {
        let stream = raw(&server).await.get_stream(bus.namespace().stream(name)).await.unwrap();
        stream.cached_info().config.clone()
    };
    assert_eq!(of("AGENT_INTAKE").await.max_bytes, 1 << 20);
    assert_eq!(of("AGENT_EVENT").await.max_age, keep_logs);
}

/// A coordinator that starts with other options changes nothing of the deployment, and `provision`
/// lowers a limit only on request.
#[tokio::test]
async fn the_limits_of_existing_streams_stay_and_are_lowered_only_on_request() {
    let (server, bus) = nats().await;
    let of = async |name: &str| {
        let name = bus.namespace().stream(name);
        raw(&server).await.get_stream(name).await.unwrap().cached_info().config.clone()
    };
    let limits = async || {
        let (event, history, intake) =
            (of("AGENT_EVENT").await, of("AGENT_HISTORY").await, of("AGENT_INTAKE").await);
        (event.max_bytes, event.max_age, history.max_bytes, history.max_age, intake.max_bytes)
    };
    let before = limits().await;
    bus.publish(identified(event(1), "kept")).await.unwrap();
    let hour = Duration::from_secs(3600);
    let lower = Topology {
        max_log_bytes: 1 << 20,
        max_queue_bytes: 1 << 20,
        keep_logs: hour,
        keep_journals: hour,
        ..topology()
    };
    bus.set_up_as(&lower, ExistingLimits::Keep).await.unwrap();
    assert_eq!(limits().await, before);
    let refused = bus.set_up_as(&lower, ExistingLimits::Raise).await.unwrap_err();
    assert!(matches!(refused, Error::Lower { .. }), "{refused}");
    assert_eq!(limits().await, before);
    let more = Topology { max_queue_bytes: 2 * topology().max_queue_bytes, ..topology() };
    bus.set_up_as(&more, ExistingLimits::Raise).await.unwrap();
    assert_eq!(limits().await.4, more.max_queue_bytes);
    bus.set_up_as(&lower, ExistingLimits::Change).await.unwrap();
    assert_eq!(limits().await, (1 << 20, hour, 1 << 20, hour, 1 << 20));
}

#[tokio::test]
async fn journals_and_their_objects_are_stored_longer_than_logs() {
    let (server, bus) = nats().await;
    let day = Duration::from_secs(24 * 3600);
    let of =
        async |name: String| raw(&server).await.get_stream(name).await.unwrap().cached_info().config.clone();
    assert_eq!(of(bus.namespace().stream("AGENT_HISTORY")).await.max_age, 90 * day);
    bus.set_up(&Topology { keep_journals: 200 * day, ..topology() }).await.unwrap();
    assert_eq!(of(bus.namespace().stream("AGENT_HISTORY")).await.max_age, 200 * day);
    let bucket = bus.namespace().stream("AGENT_OUTPUTS");
    assert!(of(format!("OBJ_{bucket}")).await.max_age >= 200 * day);
}

/// W6: purging also deletes the payload objects of the purged messages.
#[tokio::test]
async fn w6_a_purge_deletes_large_payloads() {
    let (_server, bus) = nats().await;
    let large = || bytes::Bytes::from(vec![b'x'; 3 << 20]);
    for (number, id) in [(1, "a"), (1, "b"), (2, "c")] {
        let message = bus::Outgoing { payload: large(), ..identified(event(number), id) };
        bus.publish(message).await.unwrap();
    }
    assert_eq!(bus.objects("core/").await.unwrap().len(), 3);
    bus.purge(&domain::subject::Filter::One(event(1))).await.unwrap();
    assert_eq!(bus.objects("core/").await.unwrap().len(), 1);
}

/// A large request leaves no object behind, and neither does a deleted message. Objects of answers
/// have a bucket of their own, which the server soon clears: a caller with many requests does not
/// fill storage that runs need (S6).
#[tokio::test]
async fn w6_s6_large_requests_answers_and_deleted_messages_leave_no_objects() {
    let (server, bus) = nats().await;
    let large = || bytes::Bytes::from(vec![b'x'; 3 << 20]);
    let mut requests = bus.serve(&Filter::One(Subject::Submit)).await.unwrap();
    let answering = async {
        let request = requests.next().await.unwrap();
        assert_eq!(request.payload, large());
        bus.reply(&request.reply_to.unwrap(), large()).await.unwrap();
    };
    let headers = Default::default();
    let asking = bus.request(&Subject::Submit, &headers, large(), trellis_tests::cluster::SOON);
    let ((), answer) = tokio::join!(answering, asking);
    assert_eq!(answer.unwrap(), large());
    let answers = bus.objects("").await.unwrap();
    assert!(answers.len() == 1 && answers[0].starts_with("answer/"), "{answers:?}");
    let fills = bus.fill().await.unwrap();
    let of = |storage| fills.iter().find(|fill| fill.storage == storage).unwrap();
    assert!(of(Storage::Answers).bytes > 3 << 20 && of(Storage::Core).bytes == 0, "{fills:?}");
    assert!(!Storage::Answers.is_kept_for_runs());
    let bucket = format!("OBJ_{}", bus.namespace().stream("AGENT_ANSWERS"));
    let config = raw(&server).await.get_stream(bucket).await.unwrap().cached_info().config.clone();
    assert_eq!((config.max_age, config.discard), (Duration::from_secs(60), stream::DiscardPolicy::Old));
    let sent = bus.publish(bus::Outgoing { payload: large(), ..identified(event(1), "a") }).await;
    assert_eq!(bus.objects("core/").await.unwrap().len(), 1);
    bus.delete_message(&event(1), sent.unwrap().sequence).await.unwrap();
    assert_eq!(bus.objects("core/").await.unwrap(), [""; 0]);
    assert_eq!(bus.objects("overflow/").await.unwrap(), [""; 0]);
}

/// W6: finding the objects of one context costs the same among one other run and among a thousand.
/// The server sends all answers to an inbox, so a listener there counts them.
///
/// proves: the index of objects. Without it the server sends a message for each object of the
/// bucket.
#[tokio::test]
async fn w6_the_objects_of_a_context_are_found_without_looking_at_others() {
    let server = NatsServer::start();
    let bus = connected(&server, namespace()).await;
    bus.set_up(&topology()).await.unwrap();
    let put = async |name: String| bus.put_object(&name, bytes::Bytes::from_static(b"x")).await.unwrap();
    for name in ["t.x.1.result", "t.x.1.outputs/a", "t.y.1.result", "other-0.x.1.result"] {
        put(name.into()).await;
    }
    let listener = async_nats::connect(server.url()).await.unwrap();
    let mut answers = listener.subscribe("_INBOX.>").await.unwrap();
    // When our own message arrives, the server has the subscription.
    listener.publish("_INBOX.begin", "".into()).await.unwrap();
    soon(answers.next()).await.unwrap();
    let mut cost = async || {
        assert_eq!(bus.objects("t.x.").await.unwrap(), ["t.x.1.outputs/a", "t.x.1.result"]);
        assert_eq!(bus.objects("t.").await.unwrap().len(), 3);
        // Messages before the answer to the ping came before our own message.
        bus.ping().await.unwrap();
        listener.publish("_INBOX.end", "".into()).await.unwrap();
        let (mut messages, mut bytes) = (0, 0);
        loop {
            let answer = soon(answers.next()).await.unwrap();
            if answer.subject.as_str() == "_INBOX.end" {
                return (messages, bytes);
            }
            if !text(&answer.payload).contains("account_info_response") {
                (messages, bytes) = (messages + 1, bytes + answer.payload.len());
            }
        }
    };
    let (before, _) = cost().await;
    for number in 1..=1000 {
        put(format!("other-{number}.x.1.result")).await;
    }
    cost().await;
    let (messages, bytes) = cost().await;
    assert_eq!(messages, before, "the number of answers does not depend on the number of runs");
    assert!(bytes < 16 << 10, "{bytes} bytes");
    bus.delete_object("t.x.1.result").await.unwrap();
    assert_eq!(bus.objects("t.x.").await.unwrap(), ["t.x.1.outputs/a"]);
}

/// A deleted object leaves nothing in the bucket, not even a deletion marker.
#[tokio::test]
async fn w6_a_deleted_object_leaves_nothing_behind() {
    let (server, bus) = nats().await;
    for name in ["t.x.1.result", "overflow/1"] {
        bus.put_object(name, bytes::Bytes::from(vec![7; 1 << 20])).await.unwrap();
        bus.delete_object(name).await.unwrap();
    }
    let bucket = format!("OBJ_{}", bus.namespace().stream("AGENT_OUTPUTS"));
    let mut stream = raw(&server).await.get_stream(bucket).await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 0);
}

async fn mismatch(bus: &Bus) -> String {
    match bus.set_up(&topology()).await {
        Err(Error::Mismatch { what, name, difference }) => format!("{what} {name}: {difference}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stream_or_consumer_with_other_settings_is_named() {
    let server = NatsServer::shared();
    let context = raw(&server).await;
    let bus = connected(&server, namespace()).await;
    let name = bus.namespace().stream("AGENT_DEAD");
    let other = |subjects: &str, discard| stream::Config {
        name: name.clone(),
        subjects: vec![format!("{}.{subjects}", bus.namespace())],
        discard,
        ..Default::default()
    };
    context.create_stream(other("agent.other", stream::DiscardPolicy::New)).await.unwrap();
    let said = mismatch(&bus).await;
    assert!(said.contains("AGENT_DEAD: `subjects`") && said.contains("agent.other"), "{said}");
    context.delete_stream(&name).await.unwrap();
    context.create_stream(other("agent.dead.*", stream::DiscardPolicy::New)).await.unwrap();
    let said = mismatch(&bus).await;
    assert!(said.contains("`discard` should be Old and is New"), "{said}");
    context.delete_stream(&name).await.unwrap();
    bus.set_up(&topology()).await.unwrap();
    let intake = bus.namespace().stream("AGENT_INTAKE");
    context.delete_consumer_from_stream("intake", &intake).await.unwrap();
    let durable = pull::Config {
        durable_name: Some("intake".into()),
        ack_wait: Duration::from_secs(99),
        ..Default::default()
    };
    context.create_consumer_on_stream(durable, &intake).await.unwrap();
    let said = mismatch(&bus).await;
    assert!(said.starts_with("consumer") && said.contains("`filter_subjects`"), "{said}");
}

#[tokio::test]
async fn a_dead_port_is_an_error_at_once() {
    // No server listens on this port, and no connection is made from it.
    let url = "nats://me:s3cret@127.0.0.1:1".to_owned();
    let to = Connect::new(url, Namespace::default(), "x");
    let error = soon(Nats::connect(&to)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn an_address_may_contain_a_login() {
    let cases = [
        ("authorization { user: me, password: \"p@ss\" }", "me:p%40ss@", "me:wrong@"),
        ("authorization { token: t0ken }", "t0ken@", "wrong@"),
    ];
    for (settings, right, wrong) in cases {
        let server = NatsServer::start_with("", settings);
        let url = |who: &str| format!("nats://{who}127.0.0.1:{}", server.port());
        let to = |who: &str| Connect::new(url(who), Namespace::default(), "x");
        Bus::Nats(Nats::connect(&to(right)).await.unwrap()).ping().await.unwrap();
        assert!(matches!(Nats::connect(&to(wrong)).await, Err(Error::Connect { .. })));
    }
}
