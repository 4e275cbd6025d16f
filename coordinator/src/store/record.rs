//! What goes into the store and what comes out of it: plain values, the same for all stores.

use std::{
    collections::{BTreeMap, HashMap},
    error, fmt,
    str::FromStr,
};

use bus::Position;
use domain::{Timestamp, TraceId, WorkerId, id, subject::Partition};

/// How many runs of one partition its index keeps, the newest. The index is a list for people; nothing
/// depends on it.
pub(super) const RUNS_KEPT: usize = 10_000;

/// A coordinator that is alive, with a text of its own for the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    pub id: WorkerId,
    pub says: String,
}

/// Coordinators that beat in the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Those that count, sorted.
    pub alive: Vec<Member>,
    /// Those that ended without saying so, or can't be heard.
    pub silent: Vec<Member>,
}

/// How long a coordinator that ended without saying so is remembered.
pub(super) const SILENT_MS: u64 = 3_600_000;

/// As it is stored: the id has no space.
impl fmt::Display for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.id, self.says)
    }
}

impl FromStr for Member {
    type Err = id::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, says) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Member { id: id.parse()?, says: says.to_owned() })
    }
}

/// The version of what is stored under the name of a trace and can't be read as one. Coordinators write no such version.
pub const UNREADABLE: u64 = u64::MAX;

/// What a write replaces of what was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// Only what it names.
    Nothing,
    /// All fields and values, outboxes apart.
    AllButOutboxes,
    /// All of it, because it can't be read as a trace.
    Everything,
}

/// One change of one trace. It happens only if the trace still has the version `expected`, and the stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub trace_id: TraceId,
    /// 0: the trace must not exist. [`UNREADABLE`]: what is there must not be one.
    pub expected: u64,
    /// The text that the field `made` must have, if this is known. A store that lost writes may have the
    /// version by another commit.
    pub stamp: Option<String>,
    /// The version it gets.
    pub version: u64,
    /// What of the fields and values that were there is replaced.
    pub replaces: Replaces,
    /// Fields of the trace; none deletes. The names `v` and `x…` are the store's own.
    pub fields: Vec<(String, Option<String>)>,
    /// Values of the shared store; none deletes.
    pub values: Vec<(String, Option<String>)>,
    /// What it has to send, kept until it is cleared.
    pub outbox: Option<(OutboxKey, String)>,
    /// Outboxes that were sent.
    pub cleared: Vec<OutboxKey>,
    /// When the trace needs a wake; none removes its timer.
    pub timer: Option<Timestamp>,
    /// Set for an ended trace: since when. It is then listed among the ended ones, until it is removed.
    pub ended_at: Option<Timestamp>,
    /// Set at the first write of a submitted trace: lists it among the runs.
    pub opened_at: Option<Timestamp>,
    /// The revision of the agent profiles that it was decided with, if it names any.
    pub profiles: Option<u64>,
    /// Where the index of runs has it from now on: when it began, its cost in nano-dollars (or `-`), its terms, with spaces
    /// between. Kept as its field `index`. None: as before.
    pub index: Option<String>,
}

/// Which runs are looked for in the index (G17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Find {
    /// A run has a term of each group.
    pub terms: Vec<Vec<String>>,
    /// Its cost in nano-dollars, from and to. A run whose cost the index does not have is found too.
    pub cost: Option<(u64, u64)>,
    /// It began then or later.
    pub since: Timestamp,
    /// It began before then; none: whenever.
    pub until: Option<Timestamp>,
    /// Only those behind this place.
    pub after: Option<(Timestamp, TraceId)>,
    /// It need not be among the newest runs: a run that waits for a human is found however many are newer. Only with terms.
    pub any_age: bool,
    pub limit: usize,
}

impl Find {
    /// The newest runs.
    pub fn newest(limit: usize) -> Find {
        let since = Timestamp::default();
        Find { terms: Vec::new(), cost: None, since, until: None, after: None, any_age: false, limit }
    }

    /// The latest time that a run may have begun at.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let before = self.until.map(|until| until.minus_millis(1));
        before.into_iter().chain(self.after.map(|(at, _)| at)).min()
    }
}

/// The entries of a run in the index: when it began, its cost, its terms.
pub(super) struct IndexEntry<'t> {
    pub(super) at: Timestamp,
    pub(super) cost: Option<u64>,
    pub(super) terms: Vec<&'t str>,
}

impl<'t> IndexEntry<'t> {
    pub(super) fn read(text: &'t str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let at = Timestamp::from_millis(words.next()?.parse().ok()?);
        Some(IndexEntry { at, cost: words.next()?.parse().ok(), terms: words.collect() })
    }
}

/// The result of a write. The counter is that of its partition, which every commit raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    Done {
        counter: u64,
    },
    /// The trace has another version: 0 if it does not exist.
    Conflict {
        version: u64,
        counter: u64,
    },
    /// The agent profiles have this revision, later than the one the write was decided with.
    Outdated {
        revision: u64,
        counter: u64,
    },
}

/// The agent profiles: texts that the store does not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agents {
    /// Raised by every change.
    pub revision: u64,
    /// By agent id.
    pub profiles: BTreeMap<String, String>,
    /// The version of each agent's profile, deleted ones too.
    pub versions: BTreeMap<String, u64>,
}

/// A version of an agent's profile. It replaces earlier versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentVersion {
    pub agent_id: String,
    pub version: u64,
    /// None: the agent is deleted.
    pub profile: Option<String>,
    /// It replaces the same version too: its text was signed again.
    pub again: bool,
}

/// What a partition has apart from its traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMark {
    pub counter: u64,
    /// Every commit of the partition whose messages the event log has up to here is in the store.
    pub position: Option<Position>,
    /// Names the process that serves the store, from its start to its end: what it acknowledged, it still has. Empty if the
    /// server does not say.
    pub run: String,
}

/// A mark to be set, if the partition is as it was seen: its counter has not gone back, its mark is the same, and so is the
/// process that serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMark {
    pub partition: Partition,
    pub seen: LogMark,
    pub position: Position,
}

/// The result of setting a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkOutcome {
    Done,
    /// The partition is not as it was seen, but like this.
    Differs(LogMark),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub version: u64,
    pub fields: HashMap<String, String>,
    pub values: HashMap<String, String>,
    /// Outboxes that are not known to be sent.
    pub outbox: BTreeMap<OutboxKey, String>,
}

/// Names the outbox of a commit. A store that lost writes gets another commit with the same version: `made`
/// tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxKey {
    pub version: u64,
    pub made: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedRecord {
    pub record: Option<Record>,
    /// What is there can't be read as a trace, which only a stranger can have written: why. Then there is no record.
    pub damaged: Option<String>,
    /// The counter of its partition, read before the record.
    pub counter: u64,
}

/// Outboxes that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentOutboxes {
    pub trace_id: TraceId,
    pub outboxes: Vec<OutboxKey>,
    /// Sets the timer if the trace still has this version, and the stamp; none leaves it alone.
    pub version: Option<u64>,
    /// As in a write.
    pub stamp: Option<String>,
    pub timer: Option<Timestamp>,
    /// If the timer is set, clears all outboxes. A store that lost writes has some again that were cleared.
    pub all: bool,
}

/// The store's clock as it was read, and its correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreTime {
    pub read: Timestamp,
    pub correction: Correction,
}

/// How far the store's clock is ahead of the time that decisions are made at (behind, if negative). The coordinators agree
/// on it by its number: the first of a number is kept, and the highest number counts. Number 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Correction {
    pub number: u64,
    pub ahead_ms: i64,
}

impl StoreTime {
    /// The time that decisions are made at.
    pub fn corrected(&self) -> Timestamp {
        let millis = self.correction.ahead_ms.unsigned_abs();
        match self.correction.ahead_ms {
            0.. => self.read.minus_millis(millis),
            _ => self.read.plus_millis(millis),
        }
    }
}

/// How the server persists what it has acknowledged. None where it does not say, or there is no server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durability {
    pub version: Option<String>,
    pub appendonly: Option<String>,
    pub appendfsync: Option<String>,
    pub maxmemory_policy: Option<String>,
}

/// The permissions of Redis' user `default`. Redis replays its append-only file as that user, and drops each transaction, and each
/// script with several writes, that the user may not run. Every commit is such a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultUser {
    /// It has all commands and all keys.
    Unrestricted,
    Restricted,
    /// The connected user may not read the permissions: an earlier build wrote the ACL file.
    Hidden,
}

impl DefaultUser {
    /// The loss that follows, for an operator.
    pub fn problem(self) -> Option<&'static str> {
        match self {
            DefaultUser::Unrestricted => None,
            DefaultUser::Restricted => Some(
                "a restart of Redis loses every commit: Redis replays its append-only file as the user `default`, which lacks permissions",
            ),
            DefaultUser::Hidden => Some(
                "a restart of Redis may lose every commit: an earlier build wrote the ACL file, because this user may not run `ACL GETUSER`, \
                 and such files have a user `default` without the permissions to replay the append-only file",
            ),
        }
    }
}

/// Why the store could not do as asked. Never holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not connect to Redis at {address}")]
    Connect {
        /// Hosts and ports only.
        address: String,
        #[source]
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// No answer, or an error (out of memory, read only, loading). After a write its outcome is unknown.
    #[error("could not {doing}")]
    Unavailable {
        doing: &'static str,
        #[source]
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// A large trace is read in pieces.
    #[error("could not load trace {trace_id}: it changed each time while it was read")]
    MovedOn { trace_id: TraceId },
    #[error("could not {doing}: unexpected answer from Redis: {found}")]
    Corrupt { doing: &'static str, found: String },
    #[error(
        "--partitions is {asked}, and this deployment has {found} partitions, which can't be changed\n\nhint: give --partitions {found} to \
         every coordinator and to `trellis provision`, or use another --namespace"
    )]
    Mismatch { found: u16, asked: u16 },
    #[error("the Redis address is invalid: {reason}")]
    Address { reason: String },
}
