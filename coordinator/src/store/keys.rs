//! All keys in Redis, made here and nowhere else. Every key of a partition contains its hash tag,
//! so that one script may use them in a cluster too.

use domain::{
    TraceId,
    subject::{Namespace, Partition},
};

use super::OutboxKey;

/// The trace's version, in its hash.
pub(super) const VERSION: &str = "v";
/// The field of a trace that distinguishes commits with the same version.
pub(super) const STAMP: &str = "made";
/// The field of a trace with its entry in the index of runs.
pub(crate) const INDEX: &str = "index";
/// Prefix of an outbox's field name in the trace's hash.
const OUTBOX: char = 'x';
/// The revision of the agent profiles, in their hash: no agent id starts with a colon.
pub(super) const REVISION: &str = ":revision";

/// The field that holds an outbox.
pub(super) fn outbox(OutboxKey { version, made }: OutboxKey) -> String {
    format!("{OUTBOX}{version}-{made}")
}

/// The outbox that a field holds; none for other fields. A name that no outbox has is rejected too,
/// because an outbox could not be cleared under it.
pub(super) fn outbox_key(field: &str) -> Option<OutboxKey> {
    let name = field.strip_prefix(OUTBOX)?;
    let (version, made) = name.split_once('-')?;
    let key = OutboxKey { version: version.parse().ok()?, made: made.parse().ok()? };
    (outbox(key) == field).then_some(key)
}

/// Returns true for the field of an outbox, and for a field with an outbox's prefix that only a
/// stranger writes.
pub(super) fn is_beside(field: &str) -> bool {
    field.starts_with(OUTBOX)
}

/// Reads a version from its text. Scripts compare texts, so another text with the same value is
/// invalid.
pub(super) fn version(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

#[derive(Debug, Clone)]
pub(super) struct Keys {
    namespace: Namespace,
    partitions: u16,
}

impl Keys {
    pub(super) fn new(namespace: Namespace, partitions: u16) -> Keys {
        Keys { namespace, partitions }
    }

    pub(super) fn home(&self, trace: TraceId) -> Partition {
        Partition::of(trace, self.partitions)
    }

    pub(super) fn homes(&self) -> impl Iterator<Item = Partition> {
        Partition::all(self.partitions)
    }

    fn tagged(&self, partition: Partition, rest: &str) -> String {
        self.namespace.key(&format!("{{{partition}}}:{rest}"))
    }

    /// A hash: the version, the outboxes, and the coordinator's fields of the trace.
    pub(super) fn trace(&self, trace: TraceId) -> String {
        self.tagged(self.home(trace), &format!("trace:{trace}"))
    }

    /// A hash: the values of the trace's shared store.
    pub(super) fn context(&self, trace: TraceId) -> String {
        self.tagged(self.home(trace), &format!("context:{trace}"))
    }

    /// A sorted set: when each trace needs a wake.
    pub(super) fn timers(&self, partition: Partition) -> String {
        self.tagged(partition, "timers")
    }

    /// A sorted set: the beginning of each submitted trace.
    pub(super) fn runs(&self, partition: Partition) -> String {
        self.tagged(partition, "runs")
    }

    /// A sorted set: the beginning of each run that the index lists under a term. Scripts derive
    /// these keys from the key of the runs.
    pub(super) fn term(&self, partition: Partition, term: &str) -> String {
        self.tagged(partition, &format!("runs:{term}"))
    }

    /// A sorted set: the cost of each ended run, in nano-dollars.
    pub(super) fn costs(&self, partition: Partition) -> String {
        self.tagged(partition, "runs:cost")
    }

    /// A sorted set: the ids of all traces in the index, in their order.
    pub(super) fn ids(&self, partition: Partition) -> String {
        self.tagged(partition, "runs:ids")
    }

    /// A sorted set: since when each ended trace has been over.
    pub(super) fn ended(&self, partition: Partition) -> String {
        self.tagged(partition, "ended")
    }

    /// A set: the traces that were submitted as branches of this one.
    pub(super) fn branches(&self, trace: TraceId) -> String {
        self.tagged(self.home(trace), &format!("branches:{trace}"))
    }

    /// The number of commits in the partition.
    pub(super) fn counter(&self, partition: Partition) -> String {
        self.tagged(partition, "counter")
    }

    /// The mark: up to which position of the event log the store has the partition's commits.
    pub(super) fn mark(&self, partition: Partition) -> String {
        self.tagged(partition, "mark")
    }

    /// A hash: profiles by agent id, and their revision.
    pub(super) fn agents(&self) -> String {
        self.namespace.key("agents")
    }

    /// A hash: the version of each profile. The tag puts it into the hash slot of the profiles.
    pub(super) fn agent_versions(&self) -> String {
        format!("{{{}}}:versions", self.agents())
    }

    /// A sorted set with one member: the revision of the profiles that commits in the partition
    /// must have used.
    pub(super) fn agents_seen(&self, partition: Partition) -> String {
        self.tagged(partition, "agents")
    }

    /// A sorted set: the last heartbeat of each coordinator.
    pub(super) fn coordinators(&self) -> String {
        self.namespace.key("coordinators")
    }

    /// A hash: the corrections of the clock, by number.
    pub(super) fn clock(&self) -> String {
        self.namespace.key("clock")
    }

    /// The number of partitions of the deployment.
    pub(super) fn partitions(&self) -> String {
        self.namespace.key("partitions")
    }
}
