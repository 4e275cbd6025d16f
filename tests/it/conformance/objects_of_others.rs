//! Objects are only coarsely protected by a server's permissions (S6). A stranger's object under
//! any name hides nothing, removes nothing, and delays no reader.

use async_nats::HeaderMap;
use bus::{Bus, Consumer, Outgoing};
use bytes::Bytes;
use domain::{
    digest::sha256,
    subject::{Filter, Subject},
};
use serde_json::json;
use trellis_tests::servers::NatsServer;

use super::{event, identified, message, nats, soon, text, trace};

/// A stranger who may write to the bucket, as another worker may.
struct Other {
    client: async_nats::Client,
    bucket: String,
}

impl Other {
    async fn of(server: &NatsServer, bus: &Bus, bucket: &str) -> Self {
        let client = async_nats::connect(server.url()).await.unwrap();
        Other { client, bucket: bus.namespace().stream(bucket) }
    }

    /// Writes an object's description, as its writer would.
    async fn tell(&self, name: &str, about: serde_json::Value) {
        use base64::{Engine, engine::general_purpose::URL_SAFE};
        let to = format!("$O.{}.M.{}", self.bucket, URL_SAFE.encode(name));
        let stored = self.client.request(to, about.to_string().into()).await.unwrap();
        assert!(text(&stored.payload).contains("\"seq\""), "{stored:?}");
    }

    fn about(&self, name: &str, nuid: &str, deleted: bool) -> serde_json::Value {
        json!({"name": name, "bucket": self.bucket, "nuid": nuid, "size": 5, "chunks": 5, "deleted": deleted,
            "digest": "SHA-256=AAAA", "options": {"max_chunk_size": 1}})
    }

    /// Stores a message whose payload is in this object.
    async fn store(&self, bus: &Bus, subject: &Subject, object: &str) {
        let to = bus.namespace().subject(subject);
        self.client.request_with_headers(to, naming(object), Bytes::new()).await.unwrap();
    }

    async fn send(&self, bus: &Bus, subject: &Subject, object: &str) {
        let (to, headers) = (bus.namespace().subject(subject), naming(object));
        self.client.publish_with_headers(to, headers, Bytes::new()).await.unwrap();
        self.client.flush().await.unwrap();
    }
}

fn naming(object: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Trellis-Object", object);
    headers
}

const NAME: &str = "t.x.1.result";

#[tokio::test]
async fn s6_no_role_can_roll_up_the_objects() {
    let (server, bus) = nats().await;
    for bucket in ["AGENT_OUTPUTS", "AGENT_CORE"] {
        let other = Other::of(&server, &bus, bucket).await;
        bus.put_object(NAME, Bytes::from_static(b"mine")).await.unwrap();
        for how in ["all", "sub"] {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Rollup", how);
            let to = format!("$O.{}.M.x", other.bucket);
            let said = other.client.request_with_headers(to, headers, Bytes::new()).await.unwrap();
            assert!(text(&said.payload).contains("error"), "{bucket}: {said:?}");
        }
        assert_eq!(bus.get_object(NAME).await.unwrap(), Some(Bytes::from_static(b"mine")));
    }
}

/// The reader of a reference has the hash of the content.
#[tokio::test]
async fn s6_an_object_is_found_by_its_content_among_others_with_its_name() {
    let (server, bus) = nats().await;
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    let mine = Bytes::from_static(b"mine");
    bus.put_object(NAME, mine.clone()).await.unwrap();
    other.tell(NAME, other.about(NAME, "none", true)).await;
    assert_eq!(bus.get_object(NAME).await.unwrap(), None, "the last description of the object is valid");
    assert_eq!(bus.get_content(NAME, &sha256(&mine)).await.unwrap(), Some(mine.clone()));
    other.tell(NAME, other.about(NAME, "none", false)).await;
    assert_eq!(bus.get_content(NAME, &sha256(&mine)).await.unwrap(), Some(mine));
}

/// A description of an object names its parts. If a delete trusted a forged one, it would delete
/// the parts of another object, or all.
#[tokio::test]
async fn s6_a_deleted_object_takes_no_parts_of_others_with_it() {
    let (server, bus) = nats().await;
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    let mine = Bytes::from_static(b"mine");
    bus.put_object(NAME, mine.clone()).await.unwrap();
    let parts = format!("$O.{}.C.", other.bucket);
    let context = async_nats::jetstream::new(other.client.clone());
    let stream = context.get_stream(format!("OBJ_{}", other.bucket)).await.unwrap();
    let stored = stream.get_last_raw_message_by_subject(&format!("{parts}*")).await.unwrap();
    let nuid = stored.subject.as_str().strip_prefix(&parts).unwrap().to_owned();
    for nuid in [nuid.as_str(), "*", ">"] {
        other.tell("t.evil.1.result", other.about("t.evil.1.result", nuid, false)).await;
        bus.delete_object("t.evil.1.result").await.unwrap();
        assert_eq!(bus.get_object(NAME).await.unwrap(), Some(mine.clone()), "{nuid}");
    }
}

/// A message with a payload in an object is bound to the object that its sender stored.
#[tokio::test]
async fn s6_a_message_is_bound_to_the_content_of_its_object() {
    let (server, bus) = nats().await;
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    let sent = Subject::Cancel;
    for (subject, prefix, bucket) in [(event(1), "core/", "AGENT_CORE"), (sent, "overflow/", "AGENT_OUTPUTS")]
    {
        bus.publish(Outgoing { payload: large.clone(), ..identified(subject.clone(), "a") }).await.unwrap();
        let name = bus.objects(prefix).await.unwrap().pop().unwrap_or_else(|| panic!("{subject}"));
        assert!(name.ends_with(&sha256(&large)), "{name}");
        // A stranger writes another description of it.
        let other = Other::of(&server, &bus, bucket).await;
        other.tell(&name, other.about(&name, "none", true)).await;
        let last = bus.last(&Filter::One(subject.clone())).await.unwrap().unwrap();
        assert_eq!(last.payload, large, "{subject}");
    }
    // An existing object, under a name that promises another content.
    let wrong = format!("overflow/x.{}", sha256("another"));
    bus.put_object(&wrong, Bytes::from_static(b"{}")).await.unwrap();
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    other.send(&bus, &Subject::Input, &wrong).await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(2);
    // The two are fetched at the same time.
    let mut both = [soon(queue.next()).await, soon(queue.next()).await];
    both.sort_by_key(|delivery| delivery.subject.ends_with("agent.input"));
    let [large_one, lost] = both;
    large_one.genuine().unwrap();
    large_one.ack().await;
    let refused = lost.genuine().unwrap_err().to_string();
    assert!(refused.contains("its content is not what the message names"), "{refused}");
}

/// Fetching an object with missing parts takes seconds. The next messages of the queue do not wait
/// for it.
#[tokio::test]
async fn s6_a_message_whose_object_cant_be_read_delays_no_other() {
    let (server, bus) = nats().await;
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    let name = format!("overflow/x.{}", sha256("another"));
    other.tell(&name, other.about(&name, "none", false)).await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    other.send(&bus, &Subject::Spawn, &name).await;
    bus.publish(message(Subject::Cancel, "a neighbour's")).await.unwrap();
    queue.want(2);
    let first = soon(queue.next()).await;
    assert_eq!(text(&first.payload), "a neighbour's");
    first.ack().await;
    let second = soon(queue.next()).await;
    assert!(second.subject.ends_with("agent.spawn"), "{second:?}");
    let refused = second.genuine().unwrap_err().to_string();
    assert!(refused.contains("a part of it is missing"), "{refused}");
    second.ack().await;

    let mut requests = bus.serve(&Filter::One(Subject::Submit)).await.unwrap();
    // The server has the subscription before it answers.
    bus.ping().await.unwrap();
    other.send(&bus, &Subject::Submit, &name).await;
    let neighbours = message(Subject::Submit, "a neighbour's");
    bus.broadcast(&neighbours.subject, &neighbours.headers, neighbours.payload).await.unwrap();
    assert_eq!(text(&soon(requests.next()).await.unwrap().payload), "a neighbour's");
    let lost = soon(requests.next()).await.unwrap();
    assert!(lost.payload.is_empty(), "{lost:?}");

    // A broadcast never has its payload in an object.
    let mut stops = bus.subscribe(&Filter::Stops).await.unwrap();
    bus.ping().await.unwrap();
    other.send(&bus, &Subject::Stop(trace(1)), &name).await;
    let neighbours = message(Subject::Stop(trace(2)), "a neighbour's");
    bus.broadcast(&neighbours.subject, &neighbours.headers, neighbours.payload).await.unwrap();
    assert_eq!(text(&soon(stops.next()).await.unwrap().payload), "a neighbour's");
}

/// A message may name any object. Removing the message removes only its own object.
#[tokio::test]
async fn s6_a_message_that_is_removed_takes_no_object_of_others_along() {
    let (server, bus) = nats().await;
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    let victims = [event(1), Subject::Cancel];
    for subject in &victims {
        bus.publish(Outgoing { payload: large.clone(), ..identified(subject.clone(), "a") }).await.unwrap();
    }
    let names = [bus.objects("core/").await.unwrap(), bus.objects("overflow/").await.unwrap()].concat();
    assert_eq!(names.len(), 2, "{names:?}");
    let evil = Subject::History(trellis_tests::subjects::pool(), trace(9), "x".parse().unwrap());
    let own = Outgoing { payload: large.clone(), ..identified(evil.clone(), "own") };
    bus.publish(own).await.unwrap();
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    for name in &names {
        other.store(&bus, &evil, name).await;
        other.store(&bus, &evil, name).await;
    }
    let stored = bus.read(&Filter::One(evil.clone())).await.unwrap();
    bus.delete_message(&evil, stored[1].sequence).await.unwrap();
    bus.purge(&Filter::One(evil)).await.unwrap();
    for subject in victims {
        assert_eq!(bus.last(&Filter::One(subject)).await.unwrap().unwrap().payload, large);
    }
    let left = [bus.objects("core/").await.unwrap(), bus.objects("overflow/").await.unwrap()].concat();
    assert_eq!(left, names, "the bus removed its own object");
}

/// A payload above the largest message size is never read, even if such an object exists.
#[tokio::test]
async fn s6_a_payload_larger_than_a_message_is_not_read() {
    let (server, bus) = nats().await;
    let large = Bytes::from(vec![b'x'; domain::limits::MAX_MESSAGE_BYTES + 1]);
    let name = format!("overflow/x.{}", sha256(&large));
    bus.put_object(&name, large.clone()).await.unwrap();
    assert_eq!(bus.get_object(&name).await.unwrap().map(|bytes| bytes.len()), Some(large.len()));
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(2);
    other.send(&bus, &Subject::Input, &name).await;
    let refused = soon(queue.next()).await.genuine().unwrap_err().to_string();
    assert!(refused.contains("8388608"), "{refused}");
}

/// Many unreadable payloads: the search for their parts does not use up places that others need.
#[tokio::test]
async fn s6_many_objects_that_cant_be_read_delay_no_other() {
    let (server, bus) = nats().await;
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    for subject in [event(1), Subject::Cancel] {
        bus.publish(Outgoing { payload: large.clone(), ..identified(subject, "a") }).await.unwrap();
    }
    let other = Other::of(&server, &bus, "AGENT_OUTPUTS").await;
    let name = format!("overflow/x.{}", sha256("another"));
    other.tell(&name, other.about(&name, "none", false)).await;
    let evil = |number: u32| {
        Subject::History(trellis_tests::subjects::pool(), trace(9), format!("x{number}").parse().unwrap())
    };
    for number in 0..64 {
        other.store(&bus, &evil(number), &name).await;
    }
    let mut readers = tokio::task::JoinSet::new();
    for number in 0..64 {
        let (bus, one) = (bus.clone(), Filter::One(evil(number)));
        readers.spawn(async move { bus.last(&one).await });
    }
    for subject in [event(1), Subject::Cancel] {
        assert_eq!(bus.last(&Filter::One(subject)).await.unwrap().unwrap().payload, large);
    }
    assert!(readers.try_join_next().is_none(), "the readers still look for the parts");
    while let Some(read) = readers.join_next().await {
        assert!(read.unwrap().unwrap().unwrap().payload.is_empty());
    }
}

/// A copy of a message names the same object, which exists as long as a message names it (S3).
#[tokio::test]
async fn s3_a_copy_that_is_removed_does_not_take_the_object_along() {
    let (server, bus) = nats().await;
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    let (subject, all) = (event(1), Filter::One(event(1)));
    bus.publish(Outgoing { payload: large.clone(), ..identified(subject.clone(), "a") }).await.unwrap();
    let [name] = bus.objects("core/").await.unwrap().try_into().unwrap();
    let other = Other::of(&server, &bus, "AGENT_CORE").await;
    other.store(&bus, &subject, &name).await;
    let [authentic, copy] = bus.read(&all).await.unwrap().try_into().unwrap();
    bus.delete_message(&subject, copy.sequence).await.unwrap();
    assert_eq!(bus.last(&all).await.unwrap().unwrap().payload, large);
    bus.delete_message(&subject, authentic.sequence).await.unwrap();
    assert_eq!(bus.objects("core/").await.unwrap(), [""; 0], "the last delete removes the object");
}
