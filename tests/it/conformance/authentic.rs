//! Logs that a coordinator with keys reads back (S3), on every bus: foreign messages there are
//! ignored, and do not block genuine ones.

use bus::{Bus, From, Outgoing, PublishError, StoredMessage, keys::Keys};
use domain::{
    span::Headers,
    subject::{Filter, Subject},
};
use trellis_tests::cluster::{keys, signed};

use super::{disk, event, memory, nats, trace};

const LATER: &str = "0202020202020202020202020202020202020202020202020202020202020202";

macro_rules! on_each {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $name() { super::$name(super::memory().await).await; })*
        }
        mod on_disk {
            $(#[tokio::test] async fn $name() { let (_directory, bus) = super::disk().await; super::$name(bus).await; })*
        }
        mod on_nats {
            $(#[tokio::test] async fn $name() { let (_server, bus) = super::nats().await; super::$name(bus).await; })*
        }
    };
}

on_each![
    s3_only_what_was_signed_for_its_place_is_read_from_a_log,
    s3_the_last_authentic_message_counts_whatever_is_stored_behind_it,
    s3_an_earlier_message_that_is_stored_again_does_not_count,
    s3_keys_verify_what_earlier_ones_signed,
    s3_what_is_stored_behind_removed_messages_is_not_stored_again,
    s3_what_another_key_signed_is_signed_again_in_its_order,
    s3_what_a_coordinator_with_other_keys_may_have_stored_is_told_apart,
    s3_nobody_can_take_the_id_of_a_message_before_it_is_stored,
    s3_copies_of_an_earlier_message_never_push_out_the_last,
    s3_a_copy_before_the_last_message_never_takes_its_place,
];

fn profile() -> Subject {
    Subject::Profile("writer".parse().unwrap())
}

fn message(subject: &Subject, text: &str, expect_last: Option<u64>) -> Outgoing {
    let (id, headers, payload) = (None, Headers::new(), text.to_owned().into());
    Outgoing { subject: subject.clone(), id, headers, payload, expect_last }
}

async fn put(bus: &Bus, subject: &Subject, text: &str, expect_last: Option<u64>) -> u64 {
    bus.publish(message(subject, text, expect_last)).await.unwrap().sequence
}

fn texts(all: &[StoredMessage]) -> Vec<&str> {
    all.iter().map(|stored| std::str::from_utf8(&stored.payload).unwrap()).collect()
}

/// Stores a copy of a message, with its code, on a subject.
async fn again(bus: &Bus, stored: &StoredMessage, subject: &Subject) {
    let StoredMessage { headers, payload, .. } = stored.clone();
    let copy = Outgoing { subject: subject.clone(), id: None, headers, payload, expect_last: None };
    bus.publish(copy).await.unwrap();
}

async fn s3_only_what_was_signed_for_its_place_is_read_from_a_log(bus: Bus) {
    let ours = signed(&bus);
    let (one, other) = (event(1), event(2));
    put(&ours, &one, "first", None).await;
    put(&bus, &one, "unsigned", None).await;
    let first = bus.read(&Filter::One(one.clone())).await.unwrap().remove(0);
    again(&bus, &first, &other).await;
    let changed = StoredMessage { payload: "changed".into(), ..first.clone() };
    again(&bus, &changed, &one).await;
    put(&ours, &one, "second", None).await;
    let read = async |bus: &Bus, subject: &Subject| bus.read(&Filter::One(subject.clone())).await.unwrap();
    assert_eq!(texts(&read(&ours, &one).await), ["first", "second"]);
    assert_eq!(
        texts(&read(&ours, &other).await),
        Vec::<&str>::new(),
        "a message that was signed for another context is skipped"
    );
    assert_eq!(ours.last(&Filter::EventsOf(trace(2))).await.unwrap(), None);
    assert_eq!(ours.authentic_subjects(&Filter::EventsOf(trace(2))).await.unwrap(), []);
    assert_eq!(
        texts(&read(&bus, &one).await),
        ["first", "unsigned", "changed", "second"],
        "a bus without keys reads all messages"
    );
    let mut follow = ours.follow(&[Filter::Events], From::Start).await.unwrap();
    let mut followed = Vec::new();
    for _ in 0..2 {
        followed.push(follow.next().await.unwrap());
    }
    assert_eq!(texts(&followed), ["first", "second"]);
    // A second delivery of a genuine message is accepted.
    again(&bus, &first, &one).await;
    assert_eq!(texts(&read(&ours, &one).await), ["first", "second", "first"]);
    // Messages that no coordinator reads back need no code.
    put(
        &bus,
        &Subject::History(trellis_tests::subjects::pool(), trace(1), "root".parse().unwrap()),
        "step",
        None,
    )
    .await;
    assert_eq!(ours.read(&Filter::Histories).await.unwrap().len(), 1);
}

async fn s3_the_last_authentic_message_counts_whatever_is_stored_behind_it(bus: Bus) {
    let ours = signed(&bus);
    let filter = Filter::One(profile());
    put(&bus, &profile(), "forged before", None).await;
    assert_eq!(ours.last(&filter).await.unwrap(), None);
    let first = put(&ours, &profile(), "first", Some(0)).await;
    put(&bus, &profile(), "forged", None).await;
    put(&bus, &profile(), "forged again", None).await;
    let last = ours.last(&filter).await.unwrap().unwrap();
    assert_eq!((last.sequence, texts(&[last])), (first, vec!["first"]));
    let second = put(&ours, &profile(), "second", Some(first)).await;
    assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["first", "second"]);
    assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, second);
    // A genuine message still causes a conflict.
    let refused = ours.publish(message(&profile(), "late", Some(first))).await;
    assert!(matches!(refused, Err(PublishError::WrongSequence)), "{refused:?}");
}

async fn s3_an_earlier_message_that_is_stored_again_does_not_count(bus: Bus) {
    let ours = signed(&bus);
    let filter = Filter::One(profile());
    let mut last = 0;
    for text in ["cheap", "dear", "cheap again"] {
        last = put(&ours, &profile(), text, Some(last)).await;
    }
    let stored = bus.read(&filter).await.unwrap();
    again(&bus, &stored[1], &profile()).await;
    assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, last);
    assert_eq!(ours.last(&Filter::Profiles).await.unwrap().unwrap().sequence, last);
    assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["cheap", "dear", "cheap again"]);
    let next = put(&ours, &profile(), "next", Some(last)).await;
    let mut follow = ours.follow(&[Filter::Profiles], From::Start).await.unwrap();
    for expected in ["cheap", "dear", "cheap again", "next"] {
        assert_eq!(texts(&[follow.next().await.unwrap()]), [expected]);
    }
    // Earlier versions may be dropped.
    for stored in &stored[..2] {
        bus.delete_message(&profile(), stored.sequence).await.unwrap();
    }
    assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, next);
    assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["cheap again", "next"]);
}

async fn s3_keys_verify_what_earlier_ones_signed(bus: Bus) {
    let text = |keys: &str| Keys::parse(keys).unwrap();
    let one = event(1);
    put(&signed(&bus), &one, "before", None).await;
    put(&bus, &one, "unsigned", None).await;
    let both = text(&format!("{LATER}\n{}", trellis_tests::cluster::KEY));
    put(&bus.clone().with_keys(both.clone()), &one, "after", None).await;
    let read = async |keys: Keys| {
        let all = bus.clone().with_keys(keys).read(&Filter::Events).await.unwrap();
        texts(&all).join(" ")
    };
    assert_eq!(read(both.clone()).await, "before after");
    assert_eq!(read(keys()).await, "before");
    assert_eq!(read(text(LATER)).await, "after");
    assert_eq!(read(both.accepting_unsigned()).await, "before unsigned after");
}

/// proves: a subject whose messages were all removed and that begins again (the ticks of a
/// recreated schedule) is followed; an earlier message that is stored again is still ignored.
async fn s3_what_is_stored_behind_removed_messages_is_not_stored_again(bus: Bus) {
    let ours = signed(&bus);
    let ticks = Subject::Ticks("nightly".parse().unwrap());
    let filter = Filter::One(ticks.clone());
    let mut follow = ours.follow(&[Filter::AllTicks], From::Start).await.unwrap();
    let mut last = 0;
    for text in ["one", "two"] {
        last = put(&ours, &ticks, text, Some(last)).await;
        assert_eq!(texts(&[follow.next().await.unwrap()]), [text]);
    }
    let stored = bus.read(&filter).await.unwrap();
    ours.purge(&filter).await.unwrap();
    let first = put(&ours, &ticks, "anew", Some(0)).await;
    assert_eq!(texts(&[follow.next().await.unwrap()]), ["anew"]);
    again(&bus, &stored[0], &ticks).await;
    put(&ours, &ticks, "next", Some(first)).await;
    assert_eq!(texts(&[follow.next().await.unwrap()]), ["next"]);
}

async fn s3_what_another_key_signed_is_signed_again_in_its_order(bus: Bus) {
    let ours = signed(&bus);
    let (mut last, kept) = (0, Subject::Kept("facts".parse().unwrap()));
    for text in ["one", "two"] {
        last = put(&ours, &kept, text, Some(last)).await;
    }
    put(&ours, &profile(), "earlier", Some(0)).await;
    let earlier = ours.last(&Filter::One(profile())).await.unwrap().unwrap().sequence;
    put(&ours, &profile(), "latest", Some(earlier)).await;
    let both =
        bus.clone().with_keys(Keys::parse(&format!("{LATER}\n{}", trellis_tests::cluster::KEY)).unwrap());
    put(&both, &kept, "three", Some(last)).await;
    assert_eq!(both.sign_again(&kept, true).await.unwrap(), 3);
    assert_eq!(both.sign_again(&profile(), false).await.unwrap(), 1);
    assert_eq!(both.sign_again(&kept, true).await.unwrap(), 0, "a second signing stores nothing");
    assert_eq!(both.sign_again(&profile(), false).await.unwrap(), 0);
    let later = bus.clone().with_keys(Keys::parse(LATER).unwrap());
    let read = async |subject: &Subject| later.read(&Filter::One(subject.clone())).await.unwrap();
    assert_eq!(texts(&read(&kept).await), ["one", "two", "three"]);
    assert_eq!(texts(&read(&profile()).await), ["latest"]);
    assert_eq!(bus.read(&Filter::AllKept).await.unwrap().len(), 3, "no message is stored twice");
}

async fn s3_what_a_coordinator_with_other_keys_may_have_stored_is_told_apart(bus: Bus) {
    let (ours, one) = (signed(&bus), event(1));
    put(&ours, &one, "ours", None).await;
    let unsigned = put(&bus, &one, "unsigned", None).await;
    let other = put(&bus.clone().with_keys(Keys::parse(LATER).unwrap()), &one, "other", None).await;
    let ours_stored = bus.read(&Filter::Events).await.unwrap().remove(0);
    again(&bus, &StoredMessage { payload: "forged".into(), ..ours_stored }, &one).await;
    let (read, foreign) = ours.read_judged(&Filter::Events).await.unwrap();
    assert_eq!((texts(&read), foreign), (vec!["ours"], vec![unsigned, other]));
    let refused = ours.read_refused(&Filter::Events).await.unwrap();
    assert_eq!(texts(&refused), ["unsigned", "other", "forged"]);
}

/// proves: a stranger's message with the id of a future message does not block that message; the
/// future message is still stored only once.
async fn s3_nobody_can_take_the_id_of_a_message_before_it_is_stored(bus: Bus) {
    let (ours, one) = (signed(&bus), event(1));
    let with_id = |text: &str| Outgoing { id: Some("root.outcome".into()), ..message(&one, text, None) };
    bus.publish(with_id("forged")).await.unwrap();
    assert!(!ours.publish(with_id("ours")).await.unwrap().duplicate);
    assert!(ours.publish(with_id("ours, once more")).await.unwrap().duplicate);
    assert_eq!(texts(&ours.read(&Filter::Events).await.unwrap()), ["ours"]);
}

/// proves: a stranger who may only publish can't revive an earlier message by storing many copies
/// until the last one is dropped. This holds for reading all, for reading the last, and for
/// following. A subject full of copies or of unsigned messages still accepts the next message, and
/// keeps the last genuine ones.
async fn s3_copies_of_an_earlier_message_never_push_out_the_last(bus: Bus) {
    let ours = signed(&bus);
    for subject in [
        Subject::Schedule("nightly".parse().unwrap()),
        Subject::Ticks("nightly".parse().unwrap()),
        Subject::Kept("facts".parse().unwrap()),
        profile(),
    ] {
        let filter = Filter::One(subject.clone());
        let mut follow = ours.follow(std::slice::from_ref(&filter), From::Start).await.unwrap();
        let first = put(&ours, &subject, "runs", Some(0)).await;
        let last = put(&ours, &subject, "deleted", Some(first)).await;
        let StoredMessage { headers, payload, .. } = bus.read(&filter).await.unwrap().remove(0);
        let copy = || Outgoing {
            subject: subject.clone(),
            id: None,
            headers: headers.clone(),
            payload: payload.clone(),
            expect_last: None,
        };
        let fill = async |message: &dyn Fn() -> Outgoing| {
            let mut stored = 0;
            for _ in 0..100 {
                // A publisher without keys makes no room.
                let sent = bus.send(vec![message()]).await.stored().await.remove(0);
                stored += usize::from(sent.is_ok());
            }
            assert!((20..100).contains(&stored), "{subject}: {stored}");
        };
        fill(&copy).await;
        assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["runs", "deleted"], "{subject}");
        assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, last, "{subject}");
        let next = put(&ours, &subject, "next", Some(last)).await;
        for expected in ["runs", "deleted", "next"] {
            assert_eq!(texts(&[follow.next().await.unwrap()]), [expected], "{subject}");
        }
        fill(&|| message(&subject, "unsigned", None)).await;
        let mut last = put(&ours, &subject, "after", Some(next)).await;
        assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["runs", "deleted", "next", "after"]);
        for number in 0..100 {
            last = put(&ours, &subject, &number.to_string(), Some(last)).await;
        }
        let kept = ours.read(&filter).await.unwrap();
        assert!((44..=80).contains(&kept.len()), "{subject}: {}", kept.len());
        assert_eq!(texts(&kept)[kept.len() - 44..], (56..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

/// proves: a copy of an earlier message, stored before the last one, does not become the last one
/// when its original and the messages in between are removed. The same holds for a message that was
/// signed for a deleted log.
async fn s3_a_copy_before_the_last_message_never_takes_its_place(bus: Bus) {
    let ours = signed(&bus);
    let schedule = Subject::Schedule("nightly".parse().unwrap());
    let filter = Filter::One(schedule.clone());
    let first = put(&ours, &schedule, "runs", Some(0)).await;
    let second = put(&ours, &schedule, "runs often", Some(first)).await;
    let stored = bus.read(&filter).await.unwrap();
    again(&bus, &stored[0], &schedule).await;
    let last = put(&ours, &schedule, "deleted", Some(second)).await;
    for removed in [first, second] {
        ours.delete_message(&schedule, removed).await.unwrap();
    }
    assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, last);
    assert_eq!(texts(&ours.read(&filter).await.unwrap()), ["runs", "deleted"]);
    again(&bus, &stored[1], &schedule).await;
    assert_eq!(ours.last(&filter).await.unwrap().unwrap().sequence, last);
    let other = Subject::Schedule("other".parse().unwrap());
    let late = message(&other, "late", Some(1_000));
    assert!(matches!(ours.publish(late).await, Err(PublishError::WrongSequence)));
    ours.publish_behind_removed(message(&other, "late", Some(1_000))).await.unwrap();
    assert_eq!(ours.read(&Filter::One(other)).await.unwrap(), []);
}

/// proves: a message that names an unreadable object does not stop the reader; the object is not
/// fetched, because the message is unsigned. Large signed messages are read with their original
/// payload, and not with another one.
#[tokio::test]
async fn s3_an_object_is_fetched_only_for_a_message_that_was_signed_with_it() {
    let (server, bus) = nats().await;
    let (ours, one) = (signed(&bus), event(1));
    let large = "x".repeat(2 << 20);
    put(&ours, &one, &large, None).await;
    put(&ours, &one, "small", None).await;
    let objects = bus.objects("core/").await.unwrap();
    assert_eq!(objects.len(), 1);
    // An object whose description claims an impossible size.
    let client = async_nats::connect(server.url()).await.unwrap();
    let stream = async_nats::jetstream::new(client.clone());
    let name = "overflow/forged";
    bus.put_object(name, "forged".into()).await.unwrap();
    let (described, mut about) = described_at(&client, name).await;
    about["size"] = serde_json::json!(1_u64 << 40);
    stream.publish(described.clone(), about.to_string().into()).await.unwrap().await.unwrap();
    assert!(bus.get_object(name).await.is_err(), "the object can't be read");
    for code in ["", "00000000:00000000000000000000000000000000"] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Trellis-Object", name);
        headers.insert("Trellis-Digest", "00");
        if !code.is_empty() {
            headers.insert("Trellis-Mac", code);
        }
        let sent = stream.publish_with_headers(bus.namespace().subject(&one), headers, "".into()).await;
        sent.unwrap().await.unwrap();
    }
    let unchecked = bus.read(&Filter::Events).await.unwrap();
    let bytes = |read: &[StoredMessage]| read.iter().map(|stored| stored.payload.len()).collect::<Vec<_>>();
    assert_eq!(bytes(&unchecked), [2 << 20, 5, 0, 0], "a bus without keys accepts all messages");
    let mut asked = client.subscribe("$JS.API.STREAM.MSG.GET.>").await.unwrap();
    client.flush().await.unwrap();
    let read = ours.read(&Filter::Events).await.unwrap();
    assert_eq!(bytes(&read), [2 << 20, 5]);
    // Every request to the server so far comes before this one.
    client.publish("$JS.API.STREAM.MSG.GET.end", "".into()).await.unwrap();
    let mut fetched = 0;
    while let Some(request) = futures_util::StreamExt::next(&mut asked).await
        && !request.subject.ends_with(".end")
    {
        let request = String::from_utf8_lossy(&request.payload).into_owned();
        assert!(!request.contains(&described), "an unsigned object was fetched");
        // Other tests use the same server.
        fetched += usize::from(request.contains(&format!("$O.{}.", bus.namespace().stream("AGENT_CORE"))));
    }
    assert_eq!(fetched, 1, "only the signed object is fetched");
    let mut follow = ours.follow(&[Filter::Events], From::Start).await.unwrap();
    for bytes in [2 << 20, 5] {
        assert_eq!(follow.next().await.unwrap().payload.len(), bytes);
    }
    assert_eq!(ours.last(&Filter::Events).await.unwrap().unwrap().payload, "small");
    // Another object replaces a genuine one.
    bus.put_object(&objects[0], "another".into()).await.unwrap();
    assert_eq!(texts(&ours.read(&Filter::Events).await.unwrap()), ["small"]);
}

/// The subject of an object's description, and the description.
async fn described_at(client: &async_nats::Client, name: &str) -> (String, serde_json::Value) {
    let stream = async_nats::jetstream::new(client.clone());
    let mut names = stream.stream_names();
    let mut found = Vec::new();
    while let Some(stream) = futures_util::TryStreamExt::try_next(&mut names).await.unwrap() {
        found.extend(stream.strip_prefix("OBJ_").map(ToOwned::to_owned));
    }
    let encoded = base64(name);
    for bucket in found {
        let subject = format!("$O.{bucket}.M.{encoded}");
        let held = stream.get_stream(format!("OBJ_{bucket}")).await.unwrap();
        if let Ok(found) = held.get_last_raw_message_by_subject(&subject).await {
            return (subject, serde_json::from_slice(&found.payload).unwrap());
        }
    }
    panic!("no bucket has {name}")
}

/// The encoding of object names that the client library uses.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits =
            (0..3).fold(0_u32, |bits, at| (bits << 8) | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            encoded.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    encoded
}
