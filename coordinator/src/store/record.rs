//! The values that go into the store and come out of it, the same for all stores.

use std::{
    collections::{BTreeMap, HashMap},
    error, fmt,
    str::FromStr,
};

use bus::Position;
use domain::{Timestamp, TraceId, WorkerId, id, subject::Partition};

/// How many runs of one partition the index keeps, the newest. The index is a list for users; no
/// decision depends on it.
pub(super) const RUNS_KEPT: usize = 10_000;

/// A coordinator, with a text for the other coordinators.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    pub id: WorkerId,
    pub says: String,
}

/// Coordinators with a heartbeat in the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Coordinators with a recent heartbeat, sorted.
    pub alive: Vec<Member>,
    /// Coordinators that ended without leaving, or whose heartbeats do not arrive.
    pub silent: Vec<Member>,
}

/// A coordinator that ended without leaving is remembered for this time.
pub(super) const SILENT_MS: u64 = 3_600_000;

/// The stored form: the id has no space.
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

/// The version that is reported for data under a trace's name that can't be read as a trace.
/// Coordinators never write this version.
pub const UNREADABLE: u64 = u64::MAX;

/// The stored data that a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// Only the fields and values that the write names.
    Nothing,
    /// All fields and values, but not the outboxes.
    AllButOutboxes,
    /// All data, because it can't be read as a trace.
    Everything,
}

/// One change of one trace. It happens only if the trace still has the version `expected` and the
/// stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub trace_id: TraceId,
    /// 0: the trace must not exist. [`UNREADABLE`]: the stored data must not be a readable trace.
    pub expected: u64,
    /// The text that the field `made` must have, if known. In a store that lost writes, another
    /// commit may have made the version.
    pub stamp: Option<String>,
    /// The version that the trace gets.
    pub version: u64,
    /// The stored fields and values that the write replaces.
    pub replaces: Replaces,
    /// Fields of the trace; none deletes a field. The names `v`, `index` and `x…` are reserved for
    /// the store.
    pub fields: Vec<(String, Option<String>)>,
    /// Values of the shared store; none deletes a value.
    pub values: Vec<(String, Option<String>)>,
    /// The messages to send, stored until they are cleared.
    pub outbox: Option<(OutboxKey, String)>,
    /// Outboxes that were sent.
    pub cleared: Vec<OutboxKey>,
    /// When the trace needs a wake; none removes its timer.
    pub timer: Option<Timestamp>,
    /// An earlier timer in the store stays, unless `timer` is none. Set by a coordinator that does
    /// not own the partition (B13).
    pub keeps_earlier_timer: bool,
    /// Since when the trace is over, if it is. It is then listed as ended, until it is removed.
    pub ended_at: Option<Timestamp>,
    /// Set at the first write of a submitted trace: adds the trace to the list of runs.
    pub opened_at: Option<Timestamp>,
    /// The revision of the agent profiles that the decision used, if it used any.
    pub profiles: Option<u64>,
    /// The new entry in the index of runs: when the run began, its cost in nano-dollars (or `-`),
    /// and its terms, separated by spaces. Stored as the field `index`. None: unchanged.
    pub index: Option<String>,
}

/// The timer after a write with this timer.
pub(super) fn timer_after(
    before: Option<Timestamp>,
    timer: Option<Timestamp>,
    keeps_earlier: bool,
) -> Option<Timestamp> {
    timer.map(|at| before.filter(|before| keeps_earlier && *before < at).unwrap_or(at))
}

/// A query for runs in the index (G17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Find {
    /// Groups of terms: a run must have a term of each group.
    pub terms: Vec<Vec<String>>,
    /// The lowest and the highest cost in nano-dollars. A run whose cost is not in the index
    /// matches too.
    pub cost: Option<(u64, u64)>,
    /// The run began at this time or later.
    pub since: Timestamp,
    /// The run began before this time; none: no limit.
    pub until: Option<Timestamp>,
    /// Only runs after this place, in the order of the result.
    pub after: Option<(Timestamp, TraceId)>,
    /// Also finds a run that is no longer among the newest: a run that waits for a human is found
    /// even if many are newer. Only with terms.
    pub any_age: bool,
    pub limit: usize,
}

impl Find {
    /// The newest runs.
    pub fn newest(limit: usize) -> Find {
        let since = Timestamp::default();
        Find { terms: Vec::new(), cost: None, since, until: None, after: None, any_age: false, limit }
    }

    /// The latest time at which a run may have begun.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let before = self.until.map(|until| until.minus_millis(1));
        before.into_iter().chain(self.after.map(|(at, _)| at)).min()
    }
}

/// The index entry of a run: when it began, its cost, its terms.
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

/// The result of a write. The counter is that of its partition; every commit raises it.
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
    /// The agent profiles have this revision, which is later than the revision that the decision
    /// used.
    Outdated {
        revision: u64,
        counter: u64,
    },
}

/// The agent profiles, as texts that the store does not read.
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
    /// It replaces an equal version too: its text was signed again.
    pub again: bool,
}

/// The counter and the mark of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMark {
    pub counter: u64,
    /// The store has every commit of the partition whose messages are in the event log up to this
    /// position.
    pub position: Option<Position>,
    /// Identifies the server process, from its start to its end: the process still has all that it
    /// acknowledged. Empty if the server does not report an identity.
    pub run: String,
}

/// A mark to set, if the partition is still as it was seen: its counter has not gone back, and its
/// mark and its server process are the same.
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
    /// The partition has this state instead of the seen one.
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

/// Names the outbox of a commit. A store that lost writes gets another commit with the same
/// version; `made` distinguishes the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxKey {
    pub version: u64,
    pub made: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedRecord {
    pub record: Option<Record>,
    /// The reason that the stored data can't be read as a trace. Only a stranger can have written
    /// such data; `record` is then none.
    pub damaged: Option<String>,
    /// The counter of its partition, read before the record.
    pub counter: u64,
}

/// Outboxes that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentOutboxes {
    pub trace_id: TraceId,
    pub outboxes: Vec<OutboxKey>,
    /// The timer is set if the trace still has this version and the stamp; none leaves the timer
    /// unchanged.
    pub version: Option<u64>,
    /// As in a [`Write`].
    pub stamp: Option<String>,
    pub timer: Option<Timestamp>,
    /// As in a [`Write`].
    pub keeps_earlier_timer: bool,
    /// With the timer, all outboxes are cleared too. A store that lost writes may again have some
    /// that were cleared.
    pub all: bool,
}

/// The store's clock as it was read, and its correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreTime {
    pub read: Timestamp,
    pub correction: Correction,
}

/// By how much the store's clock is ahead of the time at which decisions are made (behind, if
/// negative). The coordinators agree on a correction by its number: the first of a number is kept,
/// and the highest number is valid. Number 0 means no correction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Correction {
    pub number: u64,
    pub ahead_ms: i64,
}

impl StoreTime {
    /// The time at which decisions are made.
    pub fn corrected(&self) -> Timestamp {
        let millis = self.correction.ahead_ms.unsigned_abs();
        match self.correction.ahead_ms {
            0.. => self.read.minus_millis(millis),
            _ => self.read.plus_millis(millis),
        }
    }
}

/// How the server persists acknowledged writes. None where the server does not report a setting, or
/// there is no server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durability {
    pub version: Option<String>,
    pub appendonly: Option<String>,
    pub appendfsync: Option<String>,
    pub maxmemory_policy: Option<String>,
}

/// The permissions of Redis' user `default`. Redis replays its append-only file as that user, and
/// drops each transaction, and each script with several writes, for which the user lacks
/// permissions. Every commit is such a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultUser {
    /// It has all commands and all keys.
    Unrestricted,
    Restricted,
    /// The connected user may not read the permissions: an earlier build wrote the ACL file.
    Hidden,
}

impl DefaultUser {
    /// The resulting loss, for an operator.
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

/// The reason that a call of the store failed. Never contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not connect to Redis at {address}")]
    Connect {
        /// Hosts and ports only.
        address: String,
        #[source]
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// No answer, or an error (out of memory, read only, loading). After a write its outcome is
    /// unknown.
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
