//! The mechanism of a registry, for records of two subjects: numbers in a sequence without gaps,
//! and sizes in any order.

use std::sync::Arc;

use bus::{Bus, Memory as MemoryBus};
use domain::ScheduleName;
use host::simulated_network::{Arrive, Crossing, Link};

use super::{
    memory::{MAX_BYTES, Memory},
    *,
};

#[derive(Debug, Clone, Default)]
struct Numbers {
    numbers: Vec<u64>,
    sizes: Vec<u64>,
}

fn number(stored: &StoredMessage) -> u64 {
    std::str::from_utf8(&stored.payload).unwrap().parse().unwrap()
}

fn is_counting(subject: &Subject) -> bool {
    matches!(subject, Subject::Schedule(_))
}

impl Record for Numbers {
    type Key = ScheduleName;

    const LOG: &'static str = "the log of numbers";
    const ALL: &'static [Filter] = &[Filter::Schedules, Filter::AllTicks];

    fn title(key: &ScheduleName) -> String {
        format!("the numbers of `{key}`")
    }

    fn subjects(key: &ScheduleName) -> Vec<Subject> {
        vec![counting(key), sizing(key)]
    }

    fn key(subject: &Subject) -> Option<ScheduleName> {
        if let Subject::Schedule(key) | Subject::Ticks(key) = subject { Some(key.clone()) } else { None }
    }

    fn add(&mut self, stored: &StoredMessage) {
        let list = if is_counting(&stored.subject) { &mut self.numbers } else { &mut self.sizes };
        list.push(number(stored));
    }

    fn is_next(&self, stored: &StoredMessage) -> bool {
        let expected = self.numbers.last().map_or(1, |last| last + 1);
        !is_counting(&stored.subject) || number(stored) == expected
    }

    fn bytes(&self) -> usize {
        self.sizes.iter().map(|size| usize::try_from(*size).unwrap()).sum()
    }
}

fn key(name: &str) -> ScheduleName {
    name.parse().unwrap()
}

fn counting(key: &ScheduleName) -> Subject {
    Subject::Schedule(key.clone())
}

fn sizing(key: &ScheduleName) -> Subject {
    Subject::Ticks(key.clone())
}

fn bus() -> MemoryBus {
    MemoryBus::new(Default::default())
}

fn registry(bus: &MemoryBus) -> Registry<Numbers> {
    Registry::new(Bus::Memory(bus.clone()))
}

/// Appends the next number to a record as it was read.
async fn append(to: &Registry<Numbers>, known: &Known<Numbers>) -> Result<Appended<Numbers>, Error> {
    let next = known.numbers.last().map_or(1, |last| last + 1);
    to.append(&key("a"), known, counting(&key("a")), next.to_string().into_bytes()).await
}

async fn append_next(to: &Registry<Numbers>) -> Arc<Known<Numbers>> {
    let known = to.one(&key("a")).await.unwrap();
    match append(to, &known).await.unwrap() {
        Appended::Done(known) => known,
        Appended::Behind => panic!("no other process writes"),
    }
}

#[tokio::test]
async fn of_two_writers_that_read_the_same_version_one_appends() {
    let bus = bus();
    let (one, other) = (registry(&bus), registry(&bus));
    append_next(&one).await;
    let (first, second) = (one.one(&key("a")).await.unwrap(), other.one(&key("a")).await.unwrap());
    assert!(matches!(append(&one, &first).await, Ok(Appended::Done(_))));
    assert!(matches!(append(&other, &second).await, Ok(Appended::Behind)));
    assert_eq!(other.one(&key("a")).await.unwrap().numbers, [1, 2]);
    assert_eq!(append_next(&other).await.numbers, [1, 2, 3]);
    assert_eq!(one.one(&key("a")).await.unwrap().numbers, [1, 2, 3]);
}

/// A reader whose copy lacks more than the last message reads the whole record.
#[tokio::test]
async fn no_reader_misses_a_message() {
    let bus = bus();
    let (reader, writer) = (registry(&bus), registry(&bus));
    append_next(&writer).await;
    assert_eq!(reader.one(&key("a")).await.unwrap().numbers, [1]);
    for _ in 2..=4 {
        append_next(&writer).await;
    }
    assert_eq!(reader.one(&key("a")).await.unwrap().numbers, [1, 2, 3, 4]);
    assert_eq!(
        registry(&bus).one(&key("a")).await.unwrap().numbers,
        [1, 2, 3, 4],
        "the registry reads the log without a copy"
    );
    assert_eq!(reader.latest(&key("a")).await.unwrap().numbers, [4]);
    assert_eq!(reader.keys().await.unwrap(), [key("a")].into());
    let all = reader.all().await.unwrap();
    assert_eq!(all.values().map(|known| known.numbers.clone()).collect::<Vec<_>>(), [[1, 2, 3, 4]]);
}

#[tokio::test]
async fn a_copy_is_used_until_the_log_grows() {
    let bus = bus();
    let registry = registry(&bus);
    append_next(&registry).await;
    let first = registry.one(&key("a")).await.unwrap();
    assert!(Arc::ptr_eq(&first, &registry.one(&key("a")).await.unwrap()));
    append_next(&registry).await;
    assert_eq!(registry.one(&key("a")).await.unwrap().numbers, [1, 2]);
}

#[tokio::test]
async fn a_log_without_its_messages_is_read_anew() {
    let bus = bus();
    let (one, other) = (registry(&bus), registry(&bus));
    append_next(&one).await;
    append_next(&one).await;
    assert_eq!(other.one(&key("a")).await.unwrap().numbers, [1, 2]);
    one.remove_all_but(&counting(&key("a")), 0).await.unwrap();
    // The log ends where it ended; a message of another record moves its end.
    one.append(&key("b"), &Known::default(), sizing(&key("b")), b"1".to_vec()).await.unwrap();
    assert_eq!(other.one(&key("a")).await.unwrap().numbers, [0; 0]);
    assert_eq!(append_next(&other).await.numbers, [1]);
}

#[tokio::test]
async fn earlier_messages_are_removed() {
    let registry = registry(&bus());
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(append_next(&registry).await.last(&counting(&key("a"))));
    }
    let stored = async || {
        let stored = registry.stored(&counting(&key("a"))).await.unwrap();
        stored.iter().map(number).collect::<Vec<_>>()
    };
    registry.remove_before(&counting(&key("a")), places[1]).await.unwrap();
    assert_eq!(stored().await, [2, 3, 4, 5]);
    registry.remove_all_but(&counting(&key("a")), 2).await.unwrap();
    assert_eq!(stored().await, [4, 5]);
}

#[tokio::test]
async fn a_follower_has_a_copy_of_each_record() {
    let bus = bus();
    let (follower, writer) = (registry(&bus), registry(&bus));
    append_next(&writer).await;
    let following = tokio::spawn(follower.clone().follow());
    follower.caught_up().await.unwrap();
    assert_eq!(follower.copy(&key("a")).unwrap().numbers, [1]);
    append_next(&writer).await;
    writer.append(&key("b"), &Known::default(), sizing(&key("b")), b"7".to_vec()).await.unwrap();
    follower.caught_up().await.unwrap();
    let all = follower.copies(|all| {
        all.values().map(|known| (known.numbers.clone(), known.sizes.clone())).collect::<Vec<_>>()
    });
    assert_eq!(all, [(vec![1, 2], vec![]), (vec![], vec![7])]);
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_can_not_catch_up_is_behind() {
    let bus = bus();
    append_next(&registry(&bus)).await;
    let error = registry(&bus).caught_up().await.unwrap_err();
    assert_eq!(error.to_string(), "the log of numbers has newer entries than this coordinator has read");
}

/// Loses what one side sends.
#[derive(Debug)]
enum Lossy {
    Acknowledgements,
    Messages,
}

impl Link for Lossy {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        let is_lost = match self {
            Lossy::Acknowledgements => what == Crossing::FromBus("stored"),
            Lossy::Messages => {
                let lost = counting(&key("a")).to_string();
                matches!(what, Crossing::ToBus(subject) if subject.ends_with(&lost))
            }
        };
        if !is_lost {
            arrive();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_acknowledgement_is_no_lost_message() {
    let bus = bus();
    let unheard = registry(&bus.behind(Arc::new(Lossy::Acknowledgements)));
    assert_eq!(append_next(&unheard).await.numbers, [1]);
    assert_eq!(append_next(&unheard).await.numbers, [1, 2], "no version is stored twice");
    assert_eq!(registry(&bus).one(&key("a")).await.unwrap().numbers, [1, 2]);

    let mute = registry(&bus.behind(Arc::new(Lossy::Messages)));
    let known = registry(&bus).one(&key("a")).await.unwrap();
    let Err(error) = append(&mute, &known).await else { panic!("the version was stored") };
    assert_eq!(error.to_string(), "the numbers of `a` could not be written to the log");
    assert!(!error.is_full());
    assert_eq!(registry(&bus).one(&key("a")).await.unwrap().numbers, [1, 2]);
}

fn stored(subject: Subject, sequence: u64, number: u64) -> StoredMessage {
    StoredMessage {
        subject,
        id: None,
        headers: Default::default(),
        payload: number.to_string().into(),
        sequence,
        at: Default::default(),
    }
}

#[test]
fn a_copy_is_never_replaced_by_an_earlier_one() {
    let mut memory = Memory::<Numbers>::default();
    let (a, subject) = (key("a"), counting(&key("a")));
    let first = memory.take(&a, &stored(subject.clone(), 1, 1));
    memory.take(&a, &stored(subject.clone(), 5, 2));
    memory.replace(&a, Some(&first), &first);
    assert_eq!(memory.get(&a).unwrap().numbers, [1, 2]);
    memory.take(&a, &stored(subject.clone(), 1, 1));
    assert_eq!(memory.get(&a).unwrap().numbers, [1, 2], "a repeated message changes nothing");
    memory.take(&a, &stored(subject, 9, 4));
    assert!(memory.get(&a).is_none(), "a copy that lacks a message is dropped");
}

/// A log that was made anew begins with the first sequence again.
#[test]
fn a_copy_of_another_log_is_dropped() {
    let mut memory = Memory::<Numbers>::default();
    let (a, subject) = (key("a"), counting(&key("a")));
    memory.take(&a, &stored(subject.clone(), 7, 1));
    let known = memory.take_last(&a, &stored(subject.clone(), 3, 1));
    assert_eq!((known.numbers.as_slice(), known.last(&subject)), ([1].as_slice(), 3));
    assert_eq!(
        memory.take_last(&a, &stored(subject.clone(), 3, 1)).numbers,
        [1],
        "the same message again changes nothing"
    );
}

#[test]
fn copies_are_dropped_beyond_their_bound() {
    let mut memory = Memory::<Numbers>::default();
    let half = MAX_BYTES as u64 / 2;
    for (sequence, name) in [(1, "a"), (2, "b")] {
        memory.take(&key(name), &stored(sizing(&key(name)), sequence, half));
    }
    assert!(memory.get(&key("a")).is_some() && memory.get(&key("b")).is_some());
    memory.take(&key("c"), &stored(sizing(&key("c")), 3, 1));
    assert!(memory.get(&key("a")).is_none() && memory.get(&key("b")).is_none());
    assert!(memory.get(&key("c")).is_some());
}
