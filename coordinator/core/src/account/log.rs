//! The log of a trace as read from the bus: every message with its sequence and id, in the order of
//! the valid chain, and all faults found in it.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
};

use domain::{Timestamp, TraceId};
use serde::Serialize;

use super::finding::{Check, Finding};
use crate::{
    Commit, Event, LoggedEvents, Rest, Trace,
    chain::{Chain, CommitGroup, CommitId, chain},
};

/// A message of the event log, as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct LogMessage {
    pub sequence: u64,
    pub id: Option<String>,
    pub stored_at: Timestamp,
    pub logged: LoggedEvents,
}

/// The place of an event in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The number of the event in its trace.
    pub event: u64,
    /// The sequence of its message in the stream.
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The time of the decision.
    pub at: Timestamp,
}

/// A log that was read completely.
#[derive(Debug)]
pub struct ReadLog {
    trace: Trace,
    /// The commits of the valid chain, in order.
    commits: Vec<CommitGroup>,
    /// The sequence and the id of each message, by its commit and the number of its first event.
    messages: HashMap<(CommitId, u64), (u64, Option<String>)>,
    pub rest: Rest,
    pub findings: Vec<Finding>,
    /// Unusual facts that are not faults.
    pub notes: Vec<String>,
}

impl ReadLog {
    /// Puts the messages of a log into order, and replays those of the valid chain.
    pub fn new(trace_id: TraceId, log: Vec<LogMessage>) -> Self {
        let mut places = Places::default();
        let logged = log.into_iter().map(|message| places.take(message)).collect::<Vec<_>>();
        let Places { messages, mut findings, mut notes } = places;
        let present = present(&logged);
        let Chain { mut commits, rest, beside, .. } = chain(logged, None);
        let (trace, whole) = replayed(trace_id, &commits);
        if let Some(told) = commits.get(whole) {
            let Commit { first, last, .. } = told.commit;
            let what = format!("events {first} to {last} contradict earlier events");
            findings.push(Finding::new(Check::Log, what));
            commits.truncate(whole);
        }
        findings.extend(commits.iter().flat_map(holes));
        let superseded: usize = beside.iter().map(Vec::len).sum();
        if superseded > 0 {
            notes.push(format!("{superseded} commits of the log are not valid: the store lost them, and later commits replaced them"));
        }
        match rest {
            Rest::Gap(first) => findings.push(Finding::new(
                Check::Log,
                format!("events {} to {} are missing", trace.version() + 1, first.saturating_sub(1)),
            )),
            Rest::Unfinished if trace.root().is_some_and(|root| !root.is_live()) => notes.push(
                "the log has the last commit only in part: it is not valid, and no client has seen it".into(),
            ),
            Rest::Unfinished | Rest::Nothing => {}
        }
        let missing = before_the_first(&present, &commits);
        match (missing, trace.generation()) {
            (Some((from, to)), 0) => findings.push(Finding::new(
                Check::Log,
                format!("events {from} to {to} are missing, before a copy of the whole state"),
            )),
            (Some((from, to)), _) => {
                notes.push(format!("events {from} to {to} are missing; the run was rebuilt since"));
            }
            (None, _) => {}
        }
        ReadLog { trace, commits, messages, rest, findings, notes }
    }

    /// The trace after the whole valid chain.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The number of the first event that is replayed; more than 1 if the log begins with a copy.
    pub fn first(&self) -> u64 {
        self.commits.first().map_or(0, |told| told.commit.first)
    }

    /// The trace with which the log begins: a copy if the beginning was dropped, otherwise an empty
    /// trace.
    pub(super) fn opening(&self) -> Trace {
        let mut opening = Trace::new(self.trace.id());
        if let Some(first) = self.commits.first().filter(|told| told.commit.first > 1) {
            opening.replay(first);
        }
        opening
    }

    /// The place of the copy with which the log begins.
    pub(super) fn opening_place(&self) -> Option<Place> {
        let first = self.commits.first().filter(|told| told.commit.first > 1)?;
        let logged = first.messages().last()?;
        let (sequence, message_id) = self.messages.get(&(first.commit.into(), logged.version)).cloned()?;
        Some(Place { event: first.commit.last, sequence, message_id, at: logged.at })
    }

    /// The events of the valid chain, in order, each with its place. If the log begins with a copy,
    /// the commit of that copy is left out: its events are part of the copy.
    pub fn events(&self) -> impl Iterator<Item = (Place, &Event)> {
        let begins_with_copy = self.commits.first().is_some_and(|told| told.commit.first > 1);
        let commits = self.commits.iter().skip(usize::from(begins_with_copy));
        commits.flat_map(move |told| {
            let id = CommitId::from(told.commit);
            told.messages().flat_map(move |logged| {
                let found = self.messages.get(&(id, logged.version)).cloned();
                let (sequence, message_id) = found.unwrap_or_default();
                (logged.version..).zip(&logged.events).map(move |(event, of)| {
                    (Place { event, sequence, message_id: message_id.clone(), at: logged.at }, of)
                })
            })
        })
    }

    /// The lowest and the highest sequence of the messages.
    pub fn sequences(&self) -> Option<(u64, u64)> {
        let all = self.messages.values().map(|(sequence, _)| *sequence);
        Some((all.clone().min()?, all.max()?))
    }

    pub fn message_count(&self) -> usize {
        self.messages.len()
    }
}

/// Separates the places of messages from their contents.
#[derive(Default)]
struct Places {
    messages: HashMap<(CommitId, u64), (u64, Option<String>)>,
    findings: Vec<Finding>,
    notes: Vec<String>,
}

impl Places {
    fn take(&mut self, LogMessage { sequence, id, logged, .. }: LogMessage) -> LoggedEvents {
        let commit = CommitId::from(logged.commit());
        if let Some((version, made)) = id.as_deref().and_then(named)
            && (version != logged.version || made != commit.made.millis())
        {
            let what = format!(
                "the message has event {} in its content, but event {version} in its id",
                logged.version
            );
            self.findings.push(Finding { sequence: Some(sequence), ..Finding::new(Check::Log, what) });
        }
        let place = (commit, logged.version);
        match self.messages.get(&place) {
            None => drop(self.messages.insert(place, (sequence, id))),
            // The message was sent again after the server had forgotten its id: it is used once.
            Some((first, known)) if id.is_some() && *known == id => {
                self.notes
                    .push(format!("message {sequence} is message {first}, sent again: it is read once"));
            }
            // A delete writes a message again without its content, and then removes the first one.
            Some((first, known)) if is_bare(known.as_deref()) || is_bare(id.as_deref()) => {
                self.notes.push(format!("message {sequence} is message {first} without its content"));
            }
            Some((first, _)) => {
                let what = format!("event {} is in the log twice: also in message {first}", logged.version);
                self.findings.push(Finding { sequence: Some(sequence), ..Finding::new(Check::Log, what) });
            }
        }
        logged
    }
}

/// The version and the time in the id of an event message; `None` for an id of another form.
fn named(id: &str) -> Option<(u64, u64)> {
    let (_, numbered) = id.strip_suffix(".event")?.split_once('.')?;
    let (version, made) = numbered.split_once('-')?;
    Some((version.parse().ok()?, made.parse().ok()?))
}

fn is_bare(id: Option<&str>) -> bool {
    id.is_some_and(|id| id.ends_with(".bare"))
}

/// For each complete commit, its last event with its first. The earliest commit is included even if
/// a part of it was dropped.
fn present(log: &[LoggedEvents]) -> BTreeMap<u64, u64> {
    let mut commits: BTreeMap<CommitId, (u64, u64)> = BTreeMap::new();
    for logged in log {
        let commit = logged.commit();
        let (_, events) = commits.entry(commit.into()).or_insert((commit.first, 0));
        *events += logged.events.len() as u64;
    }
    let lowest = commits.keys().next().copied();
    let there =
        commits.into_iter().filter(|(id, (first, events))| Some(*id) == lowest || id.last < first + events);
    there.map(|(id, (first, _))| (id.last, first)).collect()
}

/// The trace after these commits, and the number of commits that could be replayed: the events of a
/// manipulated log may contradict each other.
fn replayed(trace_id: TraceId, commits: &[CommitGroup]) -> (Trace, usize) {
    let mut trace = Trace::new(trace_id);
    for (place, told) in commits.iter().enumerate() {
        if catch_unwind(AssertUnwindSafe(|| trace.replay(told))).is_err() {
            return (replayed(trace_id, &commits[..place]).0, place);
        }
    }
    (trace, commits.len())
}

/// Messages of a commit that overlap, or that leave a gap.
fn holes(told: &CommitGroup) -> Vec<Finding> {
    let mut next = told.commit.first;
    let mut found = Vec::new();
    for logged in told.messages() {
        if logged.version != next {
            let what = format!("after event {} comes event {}", next.saturating_sub(1), logged.version);
            found.push(Finding::new(Check::Log, what));
        }
        next = logged.last_version() + 1;
    }
    found
}

/// The events missing before the copy with which the replay begins, if earlier events exist. Such a
/// gap is a fault, because the log only drops its oldest messages.
fn before_the_first(present: &BTreeMap<u64, u64>, counts: &[CommitGroup]) -> Option<(u64, u64)> {
    let mut from = counts.first().map(|told| told.commit.first).filter(|first| *first > 1)?;
    let lowest = *present.values().min()?;
    while from > lowest {
        match present.get(&(from - 1)) {
            Some(first) => from = *first,
            None => {
                let (last, _) = present.range(..from).next_back()?;
                return Some((last + 1, from - 1));
            }
        }
    }
    None
}
