//! The streams and consumers that a deployment has on its server: which subjects each stream holds,
//! for how long, and which durable consumer reads it. They are compared with the server's
//! configuration at every start.

use std::{fmt, str::FromStr, time::Duration};

use domain::{
    id::{PoolName, WebhookName},
    subject::{Action, Filter, Partition, Subject},
};

use super::error::Error;

/// The streams of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    Intake,
    Execute,
    Report,
    Event,
    History,
    Dead,
    Profile,
    Schedule,
    Graph,
    Audit,
    Span,
    Webhook,
}

/// The number of versions of an agent's profile that are kept.
pub const PROFILE_VERSIONS_KEPT: i64 = 64;
/// The most bytes of all versions of all profiles.
const MAX_PROFILE_BYTES: i64 = 64 << 20;
/// The number of messages kept per subject of a schedule: its last revisions, or the last decisions
/// about its ticks. Each run has two decisions, and the last twenty ticks are shown.
const TICKS_KEPT: i64 = 44;
/// The most bytes of all schedules: ten thousand fit, with all the ticks that are kept of each.
const MAX_SCHEDULE_BYTES: i64 = 256 << 20;

/// The number of versions of a named graph that are kept (G18).
pub const GRAPH_VERSIONS_KEPT: i64 = 64;
/// The most bytes of all versions of all kept graphs.
const MAX_GRAPH_BYTES: i64 = 256 << 20;
/// The most bytes of the audit log: a hundred thousand records.
const MAX_AUDIT_BYTES: i64 = 64 << 20;
/// The most bytes of spans that wait for a collector, and their age limit. Late spans are of little
/// use.
const MAX_SPAN_BYTES: i64 = 64 << 20;
const KEEP_SPANS: Duration = Duration::from_secs(3600);
/// The most bytes of waiting webhook messages: two hundred thousand, each with the name of an
/// outcome or a question. They are kept a while longer than coordinators retry.
const MAX_WEBHOOK_BYTES: i64 = 64 << 20;
const KEEP_WEBHOOKS: Duration = Duration::from_secs(25 * 3600);
/// The number of messages that a subject may have beyond those that are kept. At the limit the
/// subject rejects new messages, so that no sender can push out the current one. Coordinators then
/// remove the surplus, all of it at once.
const MORE_PER_SUBJECT: i64 = 16;

impl Stream {
    pub const ALL: [Stream; 12] = [
        Stream::Intake,
        Stream::Execute,
        Stream::Report,
        Stream::Event,
        Stream::History,
        Stream::Dead,
        Stream::Profile,
        Stream::Schedule,
        Stream::Graph,
        Stream::Audit,
        Stream::Span,
        Stream::Webhook,
    ];

    /// Its name, without the namespace.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Intake => "AGENT_INTAKE",
            Stream::Execute => "AGENT_EXECUTE",
            Stream::Report => "AGENT_REPORT",
            Stream::Event => "AGENT_EVENT",
            Stream::History => "AGENT_HISTORY",
            Stream::Dead => "AGENT_DEAD",
            Stream::Profile => "AGENT_PROFILE",
            Stream::Schedule => "AGENT_SCHEDULE",
            Stream::Graph => "AGENT_GRAPH",
            Stream::Audit => "AGENT_AUDIT",
            Stream::Span => "AGENT_SPAN",
            Stream::Webhook => "AGENT_WEBHOOK",
        }
    }

    pub fn filters(self) -> Vec<Filter> {
        match self {
            Stream::Intake => {
                let clients = [Subject::Spawn, Subject::Graph, Subject::Cancel, Subject::Input];
                let admins = Action::DURABLE.map(Subject::Admin);
                clients.into_iter().chain(admins).map(Filter::One).collect()
            }
            Stream::Execute => vec![Filter::Executes],
            Stream::Report => vec![Filter::Results, Filter::Costs],
            Stream::Event => vec![Filter::Events, Filter::Outcomes, Filter::Questions],
            Stream::History => vec![Filter::Histories],
            Stream::Dead => vec![Filter::Dead],
            Stream::Profile => vec![Filter::Profiles],
            Stream::Schedule => vec![Filter::Schedules, Filter::AllTicks],
            Stream::Graph => vec![Filter::AllKept],
            Stream::Audit => vec![Filter::Audits],
            Stream::Span => vec![Filter::Spans],
            Stream::Webhook => vec![Filter::Webhooks],
        }
    }

    /// True if a message is removed once it is acknowledged. The other streams are logs.
    pub fn is_queue(self) -> bool {
        match self {
            Stream::Intake | Stream::Execute | Stream::Report | Stream::Span | Stream::Webhook => true,
            Stream::Event
            | Stream::History
            | Stream::Dead
            | Stream::Profile
            | Stream::Schedule
            | Stream::Graph
            | Stream::Audit => false,
        }
    }

    /// True if a full stream drops its oldest message instead of rejecting the newest. Work and
    /// money are rejected with an error; information for people must not stop the work. (A trace
    /// whose first events were dropped is still in the store, and its later events in the log.)
    pub fn drops_the_oldest(self) -> bool {
        match self {
            Stream::Event | Stream::Dead | Stream::Audit | Stream::Span | Stream::Webhook => true,
            Stream::Intake
            | Stream::Execute
            | Stream::Report
            | Stream::History
            | Stream::Profile
            | Stream::Schedule
            | Stream::Graph => false,
        }
    }

    /// The most messages that a stream may have of one subject; more are rejected. None: any
    /// number.
    pub(super) fn max_per_subject(self) -> Option<i64> {
        self.kept_per_subject().map(|kept| kept + MORE_PER_SUBJECT)
    }

    /// The number of messages of one subject that stay when the surplus is removed. None: all of
    /// them.
    pub(super) fn kept_per_subject(self) -> Option<i64> {
        match self {
            Stream::Profile => Some(PROFILE_VERSIONS_KEPT),
            Stream::Schedule => Some(TICKS_KEPT),
            Stream::Graph => Some(GRAPH_VERSIONS_KEPT),
            Stream::Intake
            | Stream::Execute
            | Stream::Report
            | Stream::Event
            | Stream::History
            | Stream::Dead
            | Stream::Audit
            | Stream::Span
            | Stream::Webhook => None,
        }
    }

    /// The stream that holds the subjects of a filter.
    pub fn of(filter: &Filter) -> Option<Stream> {
        match filter {
            Filter::Executes => Some(Stream::Execute),
            Filter::Results | Filter::Costs | Filter::ResultsOf(_) | Filter::CostsOf(_) => {
                Some(Stream::Report)
            }
            Filter::Events
            | Filter::EventsOf(_)
            | Filter::Outcomes
            | Filter::OutcomesOf(_)
            | Filter::Questions
            | Filter::QuestionsOf(_) => Some(Stream::Event),
            Filter::Audits => Some(Stream::Audit),
            Filter::Spans => Some(Stream::Span),
            Filter::Webhooks | Filter::WebhooksOf(_) => Some(Stream::Webhook),
            Filter::Histories | Filter::HistoriesOf(_) | Filter::JournalOf(..) => Some(Stream::History),
            Filter::Dead => Some(Stream::Dead),
            Filter::Profiles => Some(Stream::Profile),
            Filter::Schedules | Filter::AllTicks => Some(Stream::Schedule),
            Filter::AllKept => Some(Stream::Graph),
            Filter::AsksOf(_) | Filter::Stops | Filter::StreamsOf(_) => None,
            Filter::One(subject) => match subject {
                Subject::Spawn | Subject::Graph | Subject::Cancel | Subject::Input => Some(Stream::Intake),
                Subject::Admin(action) => match action {
                    Action::Raise | Action::Charge | Action::Delete | Action::Restore | Action::Dispute => {
                        Some(Stream::Intake)
                    }
                    Action::Apply | Action::Schedules | Action::Graphs | Action::Drain => None,
                },
                Subject::Execute(_) => Some(Stream::Execute),
                Subject::Result(..) | Subject::Cost(..) => Some(Stream::Report),
                Subject::Event(..) | Subject::Outcome(..) | Subject::Question(..) => Some(Stream::Event),
                Subject::Audit(_) => Some(Stream::Audit),
                Subject::Span(..) => Some(Stream::Span),
                Subject::Webhook(..) => Some(Stream::Webhook),
                Subject::History(..) => Some(Stream::History),
                Subject::Dead(_) => Some(Stream::Dead),
                Subject::Profile(_) => Some(Stream::Profile),
                Subject::Schedule(_) | Subject::Ticks(_) => Some(Stream::Schedule),
                Subject::Kept(_) => Some(Stream::Graph),
                Subject::Submit
                | Subject::Steer
                | Subject::Query(_)
                | Subject::Worker
                | Subject::Ask(..)
                | Subject::Stop(_)
                | Subject::Drain
                | Subject::Stream(..) => None,
            },
        }
    }
}

/// The one stream that holds the subjects of all these filters.
pub(super) fn stream_of_all(filters: &[Filter]) -> Result<Stream, Error> {
    let refused = |reason: String| Error::Failed { doing: "finding the streams".into(), reason };
    let mut streams = filters
        .iter()
        .map(|filter| Stream::of(filter).ok_or_else(|| refused(format!("`{filter}` is not stored"))));
    let first = streams.next().ok_or_else(|| refused("no filter given".into()))??;
    for stream in streams {
        if stream? != first {
            return Err(refused("the filters belong to different streams".into()));
        }
    }
    Ok(first)
}

/// The durable consumers, each of which reads a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Consumer {
    /// All coordinators share it.
    Intake,
    /// All workers of a pool share it.
    Execute(PoolName),
    /// The partition's owner reads it.
    Report(Partition),
    /// All coordinators that export spans share it.
    Span,
    /// All coordinators that have this webhook share it.
    Webhook(WebhookName),
}

impl Consumer {
    pub fn stream(&self) -> Stream {
        match self {
            Consumer::Intake => Stream::Intake,
            Consumer::Execute(_) => Stream::Execute,
            Consumer::Report(_) => Stream::Report,
            Consumer::Span => Stream::Span,
            Consumer::Webhook(_) => Stream::Webhook,
        }
    }

    /// Its durable name, without the namespace, which is part of the stream's name.
    pub fn name(&self) -> String {
        match self {
            Consumer::Intake => "intake".into(),
            Consumer::Execute(pool) => format!("execute_{pool}"),
            Consumer::Report(partition) => format!("report_{partition}"),
            Consumer::Span => "span".into(),
            Consumer::Webhook(name) => format!("webhook_{name}"),
        }
    }

    pub fn filters(&self) -> Vec<Filter> {
        match self {
            Consumer::Intake | Consumer::Span => self.stream().filters(),
            Consumer::Webhook(name) => vec![Filter::WebhooksOf(name.clone())],
            Consumer::Execute(pool) => vec![Filter::One(Subject::Execute(pool.clone()))],
            Consumer::Report(partition) => vec![Filter::ResultsOf(*partition), Filter::CostsOf(*partition)],
        }
    }

    /// The time after which an unacknowledged delivery is delivered again.
    pub fn ack_wait(&self) -> Duration {
        match self {
            Consumer::Intake | Consumer::Report(_) => Duration::from_secs(5),
            Consumer::Execute(_) => Duration::from_secs(10),
            Consumer::Span | Consumer::Webhook(_) => Duration::from_secs(30),
        }
    }

    /// The most unacknowledged deliveries at once, over all readers. With JetStream's default of
    /// 1,000, job 1,001 would wait without notice.
    pub fn max_ack_pending(&self) -> i64 {
        match self {
            Consumer::Intake | Consumer::Report(_) | Consumer::Span => 20_000,
            Consumer::Execute(_) => 100_000,
            // Few deliveries are in progress at once. Rejected webhook calls also wait here for
            // their retry.
            Consumer::Webhook(_) => 10_000,
        }
    }
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a queue of Trellis")]
pub struct UnknownConsumer(String);

impl FromStr for Consumer {
    type Err = UnknownConsumer;

    fn from_str(name: &str) -> Result<Self, UnknownConsumer> {
        let found = match name.split_once('_') {
            None if name == Consumer::Intake.name() => Some(Consumer::Intake),
            None if name == Consumer::Span.name() => Some(Consumer::Span),
            Some(("execute", pool)) => pool.parse().ok().map(Consumer::Execute),
            Some(("webhook", name)) => name.parse().ok().map(Consumer::Webhook),
            Some(("report", partition)) => Partition::parse(partition).map(Consumer::Report),
            Some(_) | None => None,
        };
        found.ok_or_else(|| UnknownConsumer(name.chars().take(200).collect()))
    }
}

/// How setting up handles the limits of a stream that exists: its size, its age limit and its
/// replicas. They belong to the deployment. A coordinator with other options would delete messages
/// or replicas of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingLimits {
    /// They stay.
    Keep,
    /// They are raised. A lower limit is refused.
    Raise,
    /// They are changed to the given ones, also to lower ones.
    Change,
}

/// The limits that a deployment chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The number of partitions that traces are spread over. Fixed for the life of a deployment.
    pub partitions: u16,
    pub replicas: usize,
    /// The most bytes of a queue. A publish beyond that is rejected with an error.
    pub max_queue_bytes: i64,
    /// The most bytes of a log.
    pub max_log_bytes: i64,
    /// The most bytes of all journals; none: the same as a log.
    pub max_journal_bytes: Option<i64>,
    /// The most bytes of all objects; none: the same as a log.
    pub max_object_bytes: Option<i64>,
    /// The age limit of logs: the time for which a trace can be rebuilt, watched and read back.
    pub keep_logs: Duration,
    /// The age limit of journal entries: the longest time that an agent can wait for a human and
    /// still continue.
    pub keep_journals: Duration,
    /// The time for which the server remembers message ids.
    pub duplicate_window: Duration,
    /// The pools whose queues are created at the start. Queues of other pools are created with
    /// their first work.
    pub pools: Vec<PoolName>,
}

impl Topology {
    /// The subjects of a stream. For reports these are the subjects of existing partitions only. A
    /// report to a missing partition has no reader and would stay in the queue for ever, so the
    /// server rejects it at once.
    pub fn filters(&self, stream: Stream) -> Vec<Filter> {
        if stream != Stream::Report {
            return stream.filters();
        }
        let of = |partition| [Filter::ResultsOf(partition), Filter::CostsOf(partition)];
        Partition::all(self.partitions).flat_map(of).collect()
    }

    /// The age limit of a stream's messages. Zero: a message stays until it is acknowledged, or
    /// until newer messages of its subject replace it.
    pub(super) fn max_age(&self, stream: Stream) -> Duration {
        match stream {
            Stream::Intake
            | Stream::Execute
            | Stream::Report
            | Stream::Profile
            | Stream::Schedule
            | Stream::Graph => Duration::ZERO,
            Stream::Event | Stream::Dead | Stream::Audit => self.keep_logs,
            Stream::Span => KEEP_SPANS,
            Stream::Webhook => KEEP_WEBHOOKS,
            Stream::History => self.keep_journals,
        }
    }

    /// The most bytes of a stream.
    pub(super) fn max_bytes(&self, stream: Stream) -> i64 {
        match stream {
            Stream::Intake | Stream::Execute | Stream::Report => self.max_queue_bytes,
            Stream::Event | Stream::Dead => self.max_log_bytes,
            Stream::History => self.max_journal_bytes.unwrap_or(self.max_log_bytes),
            Stream::Profile => self.max_log_bytes.min(MAX_PROFILE_BYTES),
            Stream::Schedule => self.max_log_bytes.min(MAX_SCHEDULE_BYTES),
            Stream::Graph => self.max_log_bytes.min(MAX_GRAPH_BYTES),
            Stream::Audit => self.max_log_bytes.min(MAX_AUDIT_BYTES),
            Stream::Span => self.max_queue_bytes.min(MAX_SPAN_BYTES),
            Stream::Webhook => self.max_queue_bytes.min(MAX_WEBHOOK_BYTES),
        }
    }

    /// Returns true if a stream of this deployment stores the messages of a subject.
    pub(super) fn holds(&self, subject: &Subject) -> bool {
        if let Subject::Result(_, partition, ..) | Subject::Cost(_, partition, ..) = subject {
            return partition.number() < self.partitions;
        }
        Stream::of(&Filter::One(subject.clone())).is_some()
    }
}

impl Default for Topology {
    fn default() -> Self {
        Topology {
            partitions: 16,
            replicas: 1,
            max_queue_bytes: 1 << 30,
            max_log_bytes: 2 << 30,
            max_journal_bytes: None,
            max_object_bytes: None,
            keep_logs: Duration::from_secs(7 * 24 * 3600),
            keep_journals: Duration::from_secs(90 * 24 * 3600),
            duplicate_window: Duration::from_secs(120),
            pools: vec![PoolName::default_pool()],
        }
    }
}
