//! The subjects of the bus: made and parsed here and nowhere else. Ids can't contain a dot or a wildcard,
//! so the tokens of a subject are unambiguous. A [`Namespace`] as prefix lets many deployments share
//! servers.

use std::{fmt, str::FromStr};

use crate::{
    id::{self, AgentId, ChildId, GraphName, PoolName, ScheduleName, TraceId, WebhookName},
    wire::{Control, Query, ReportTo},
};

/// The partition of a trace: asks and reports about the trace go to it. Workers send it back unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    pub const MAX_COUNT: u16 = 1024;

    pub fn new(number: u16) -> Option<Self> {
        (number < Self::MAX_COUNT).then_some(Partition(number))
    }

    /// The partitions of a deployment that has `count` of them.
    pub fn all(count: u16) -> impl Iterator<Item = Partition> {
        (0..count.min(Self::MAX_COUNT)).map(Partition)
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// From its name, as it is displayed.
    pub fn parse(name: &str) -> Option<Self> {
        let partition = Partition::new(name.strip_prefix('p')?.parse().ok()?)?;
        (partition.to_string() == name).then_some(partition)
    }

    /// The partition of a trace among `count`: the same on every machine and version.
    pub fn of(trace: TraceId, count: u16) -> Self {
        let id = trace.as_u128();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both halves are meant, and a remainder below 1024 fits"
        )]
        let mixed = ((id >> 64) as u64 ^ id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let count = u64::from(count.clamp(1, Self::MAX_COUNT));
        Partition(u16::try_from(mixed % count).expect("below 1024"))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:02}", self.0)
    }
}

/// What a query reads. Each has a subject of its own, because a server's permissions are by subject (S1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Runs, their questions and branches, and what the store has of one.
    Runs,
    Agents,
    Coordinators,
    Schedules,
    Graphs,
}

impl Topic {
    pub const ALL: [Topic; 5] =
        [Topic::Runs, Topic::Agents, Topic::Coordinators, Topic::Schedules, Topic::Graphs];

    pub fn name(self) -> &'static str {
        match self {
            Topic::Runs => "runs",
            Topic::Agents => "agents",
            Topic::Coordinators => "coordinators",
            Topic::Schedules => "schedules",
            Topic::Graphs => "graphs",
        }
    }
}

/// What only an administrator may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Request and reply: applies and deletes agent profiles.
    Apply,
    /// Request and reply: puts, deletes, pauses, resumes and runs schedules.
    Schedules,
    /// Request and reply: keeps graphs under names, and deletes them.
    Graphs,
    /// Durable, as all up to `Dispute`.
    Raise,
    Charge,
    Delete,
    Restore,
    Dispute,
    /// Request and reply: has a worker told to take no more work.
    Drain,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Apply,
        Action::Schedules,
        Action::Graphs,
        Action::Raise,
        Action::Charge,
        Action::Delete,
        Action::Restore,
        Action::Dispute,
        Action::Drain,
    ];
    /// Those that are answered.
    pub const REQUESTS: [Action; 4] = [Action::Apply, Action::Schedules, Action::Graphs, Action::Drain];
    /// Those about a run, which are stored until they are handled.
    pub const DURABLE: [Action; 5] =
        [Action::Raise, Action::Charge, Action::Delete, Action::Restore, Action::Dispute];

    pub fn name(self) -> &'static str {
        match self {
            Action::Apply => "apply",
            Action::Schedules => "schedules",
            Action::Graphs => "graphs",
            Action::Raise => "raise",
            Action::Charge => "charge",
            Action::Delete => "delete",
            Action::Restore => "restore",
            Action::Dispute => "dispute",
            Action::Drain => "drain",
        }
    }
}

/// What has a record of its own, because no event of a run tells it (S7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audited {
    /// Something was asked for on `agent.admin.<action>`.
    Asked(Action),
    /// A coordinator was started with another policy than the one before it.
    Policy,
    /// Workers of a pool claim with a policy that is new there.
    WorkerPolicy,
}

impl Audited {
    pub fn all() -> impl Iterator<Item = Audited> {
        Action::ALL.into_iter().map(Audited::Asked).chain([Audited::Policy, Audited::WorkerPolicy])
    }

    pub fn name(self) -> &'static str {
        match self {
            Audited::Asked(action) => action.name(),
            Audited::Policy => "policy",
            Audited::WorkerPolicy => "worker_policy",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Durable; the sender gets no answer.
    Spawn,
    Graph,
    Cancel,
    Input,
    /// Request and reply; answered after the commit.
    Submit,
    /// Request and reply: messages, answers and amends, answered after the commit.
    Steer,
    /// Request and reply; changes nothing.
    Query(Topic),
    Admin(Action),
    /// To every worker: describe yourself.
    Worker,
    Execute(PoolName),
    /// Of the workers of a pool, about the traces of a partition.
    Ask(PoolName, Partition),
    Stop(TraceId),
    Result(PoolName, Partition, TraceId, ChildId),
    Cost(PoolName, Partition, TraceId, ChildId),
    Event(TraceId, ChildId),
    Outcome(TraceId, ChildId),
    /// To the root's caller: an agent needs a human.
    Question(TraceId, ChildId),
    /// The spans of a context that is over, for whichever coordinator exports them (X6).
    Span(TraceId, ChildId),
    /// What a webhook is to be told of, for whichever coordinator tells it (X9).
    Webhook(WebhookName, TraceId, ChildId),
    History(PoolName, TraceId, ChildId),
    /// What an agent says while it works; not stored.
    Stream(TraceId, ChildId),
    /// To every worker: the one that is named takes no more work.
    Drain,
    /// Dead letters, by the kind of their subject.
    Dead(ChildId),
    /// What administrators did that is no event of a run (S7).
    Audit(Audited),
    /// The versions of an agent's profile.
    Profile(AgentId),
    /// The revisions of a schedule (G16).
    Schedule(ScheduleName),
    /// What was decided about the ticks of a schedule.
    Ticks(ScheduleName),
    /// The versions of a graph that is kept under a name (G18).
    Kept(GraphName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Spawn => f.write_str("agent.spawn"),
            Subject::Graph => f.write_str("agent.graph"),
            Subject::Cancel => f.write_str("agent.cancel"),
            Subject::Input => f.write_str("agent.input"),
            Subject::Submit => f.write_str("agent.submit"),
            Subject::Steer => f.write_str("agent.steer"),
            Subject::Query(topic) => write!(f, "agent.query.{}", topic.name()),
            Subject::Admin(action) => write!(f, "agent.admin.{}", action.name()),
            Subject::Worker => f.write_str("agent.worker"),
            Subject::Execute(pool) => write!(f, "agent.spawn.execute.{pool}"),
            Subject::Ask(pool, partition) => write!(f, "agent.ask.{pool}.{partition}"),
            Subject::Stop(trace) => write!(f, "agent.stop.{trace}"),
            Subject::Result(pool, partition, trace, child) => {
                write!(f, "agent.result.{pool}.{partition}.{trace}.{child}")
            }
            Subject::Cost(pool, partition, trace, child) => {
                write!(f, "agent.cost.{pool}.{partition}.{trace}.{child}")
            }
            Subject::Event(trace, child) => write!(f, "agent.event.{trace}.{child}"),
            Subject::Outcome(trace, child) => write!(f, "agent.outcome.{trace}.{child}"),
            Subject::Question(trace, child) => write!(f, "agent.question.{trace}.{child}"),
            Subject::Span(trace, child) => write!(f, "agent.span.{trace}.{child}"),
            Subject::Webhook(name, trace, child) => write!(f, "agent.webhook.{name}.{trace}.{child}"),
            Subject::History(pool, trace, child) => write!(f, "agent.history.{pool}.{trace}.{child}"),
            Subject::Stream(trace, child) => write!(f, "agent.stream.{trace}.{child}"),
            Subject::Drain => f.write_str("agent.drain"),
            Subject::Dead(kind) => write!(f, "agent.dead.{kind}"),
            Subject::Audit(what) => write!(f, "agent.audit.{}", what.name()),
            Subject::Profile(agent) => write!(f, "agent.profile.{agent}"),
            Subject::Schedule(name) => write!(f, "agent.schedule.{name}"),
            Subject::Ticks(name) => write!(f, "agent.ticks.{name}"),
            Subject::Kept(name) => write!(f, "agent.kept.{name}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a subject of Trellis")]
pub struct Unknown(String);

impl FromStr for Subject {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        parse(text).ok_or_else(|| Unknown(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<Subject> {
    let tokens: Vec<&str> = text.split('.').collect();
    let partition = Partition::parse;
    Some(match tokens.as_slice() {
        ["agent", "spawn"] => Subject::Spawn,
        ["agent", "graph"] => Subject::Graph,
        ["agent", "cancel"] => Subject::Cancel,
        ["agent", "input"] => Subject::Input,
        ["agent", "submit"] => Subject::Submit,
        ["agent", "steer"] => Subject::Steer,
        ["agent", "query", topic] => Subject::Query(Topic::ALL.into_iter().find(|of| of.name() == *topic)?),
        ["agent", "admin", action] => {
            Subject::Admin(Action::ALL.into_iter().find(|of| of.name() == *action)?)
        }
        ["agent", "worker"] => Subject::Worker,
        ["agent", "spawn", "execute", pool] => Subject::Execute(pool.parse().ok()?),
        ["agent", "ask", pool, p] => Subject::Ask(pool.parse().ok()?, partition(p)?),
        ["agent", "stop", trace] => Subject::Stop(trace.parse().ok()?),
        ["agent", "result", pool, p, trace, child] => {
            let (trace, child) = (trace.parse().ok()?, child.parse().ok()?);
            Subject::Result(pool.parse().ok()?, partition(p)?, trace, child)
        }
        ["agent", "cost", pool, p, trace, child] => {
            let (trace, child) = (trace.parse().ok()?, child.parse().ok()?);
            Subject::Cost(pool.parse().ok()?, partition(p)?, trace, child)
        }
        ["agent", "event", trace, child] => Subject::Event(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "outcome", trace, child] => Subject::Outcome(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "question", trace, child] => Subject::Question(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "span", trace, child] => Subject::Span(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "webhook", name, trace, child] => {
            Subject::Webhook(name.parse().ok()?, trace.parse().ok()?, child.parse().ok()?)
        }
        ["agent", "history", pool, trace, child] => {
            Subject::History(pool.parse().ok()?, trace.parse().ok()?, child.parse().ok()?)
        }
        ["agent", "stream", trace, child] => Subject::Stream(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "drain"] => Subject::Drain,
        ["agent", "dead", kind] => Subject::Dead(kind.parse().ok()?),
        ["agent", "audit", what] => Subject::Audit(Audited::all().find(|of| of.name() == *what)?),
        ["agent", "profile", agent] => Subject::Profile(agent.parse().ok()?),
        ["agent", "schedule", name] => Subject::Schedule(name.parse().ok()?),
        ["agent", "ticks", name] => Subject::Ticks(name.parse().ok()?),
        ["agent", "kept", name] => Subject::Kept(name.parse().ok()?),
        _ => return None,
    })
}

impl Subject {
    /// The subject that a query belongs to: on any other it is refused.
    pub fn of_query(query: &Query) -> Self {
        match query {
            Query::Runs(_) | Query::Pending(_) | Query::Branches { .. } | Query::Snapshot { .. } => {
                Subject::Query(Topic::Runs)
            }
            Query::Agents | Query::Agent { .. } => Subject::Query(Topic::Agents),
            Query::Coordinators => Subject::Query(Topic::Coordinators),
            Query::Schedules { .. } | Query::Schedule { .. } => Subject::Query(Topic::Schedules),
            Query::Graphs { .. } | Query::Graph { .. } => Subject::Query(Topic::Graphs),
            Query::Tell { .. } | Query::Answer { .. } | Query::Amend { .. } => Subject::Steer,
            Query::ApplyAgents { .. } | Query::DeleteAgent { .. } => Subject::Admin(Action::Apply),
            Query::PutSchedule { .. }
            | Query::DeleteSchedule { .. }
            | Query::PauseSchedule { .. }
            | Query::ResumeSchedule { .. }
            | Query::RunSchedule { .. } => Subject::Admin(Action::Schedules),
            Query::PutGraph { .. } | Query::DeleteGraph { .. } => Subject::Admin(Action::Graphs),
            Query::Drain(_) => Subject::Admin(Action::Drain),
        }
    }

    /// The subjects that a message of an administrator about a run belongs to: one for each thing that it asks for.
    pub fn of_control(control: &Control) -> Vec<Self> {
        let Control { trace_id: _, raise, charge, delete, restore, dispute } = control;
        let asks = [
            (Action::Raise, raise.is_some()),
            (Action::Charge, charge.is_some()),
            (Action::Delete, delete.is_some()),
            (Action::Restore, restore.is_some()),
            (Action::Dispute, dispute.is_some()),
        ];
        asks.into_iter().filter(|(_, asked)| *asked).map(|(action, _)| Subject::Admin(action)).collect()
    }

    /// The kind of its messages in one word: dead letters are sorted by it.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Spawn => "spawn",
            Subject::Graph => "graph",
            Subject::Cancel => "cancel",
            Subject::Input => "input",
            Subject::Submit => "submit",
            Subject::Steer => "steer",
            Subject::Query(_) => "query",
            Subject::Admin(action) => action.name(),
            Subject::Worker => "worker",
            Subject::Execute(_) => "execute",
            Subject::Ask(..) => "ask",
            Subject::Stop(_) => "stop",
            Subject::Result(..) => "result",
            Subject::Cost(..) => "cost",
            Subject::Event(..) => "event",
            Subject::Outcome(..) => "outcome",
            Subject::Question(..) => "question",
            Subject::Span(..) => "span",
            Subject::Webhook(..) => "webhook",
            Subject::History(..) => "history",
            Subject::Stream(..) => "stream",
            Subject::Drain => "drain",
            Subject::Dead(_) => "dead",
            Subject::Audit(_) => "audit",
            Subject::Profile(_) => "profile",
            Subject::Schedule(_) => "schedule",
            Subject::Ticks(_) => "ticks",
            Subject::Kept(_) => "kept",
        }
    }
}

impl Subject {
    /// One of each, for whoever needs all of them: permissions and tests.
    pub fn one_of_each() -> Vec<Subject> {
        let trace = TraceId::from_u128(1).expect("not all zeros");
        let (child, pool) = (ChildId::whole_trace, PoolName::default_pool);
        let of_runs = |make: fn(TraceId, ChildId) -> Subject| make(trace, child());
        let mut all = vec![
            Subject::Spawn,
            Subject::Graph,
            Subject::Cancel,
            Subject::Input,
            Subject::Submit,
            Subject::Steer,
            Subject::Worker,
            Subject::Drain,
            Subject::Execute(pool()),
            Subject::Ask(pool(), Partition(0)),
            Subject::Stop(trace),
            Subject::Result(pool(), Partition(0), trace, child()),
            Subject::Cost(pool(), Partition(0), trace, child()),
            of_runs(Subject::Event),
            of_runs(Subject::Outcome),
            of_runs(Subject::Question),
            of_runs(Subject::Span),
            Subject::Webhook(WebhookName::new("one").expect("a plain name"), trace, child()),
            Subject::History(pool(), trace, child()),
            of_runs(Subject::Stream),
            Subject::Dead(child()),
            Subject::Audit(Audited::Policy),
            Subject::Profile(AgentId::default_agent()),
            Subject::Schedule(ScheduleName::new("one").expect("a plain name")),
            Subject::Ticks(ScheduleName::new("one").expect("a plain name")),
            Subject::Kept(GraphName::new("one").expect("a plain name")),
        ];
        all.extend(Topic::ALL.map(Subject::Query));
        all.extend(Action::ALL.map(Subject::Admin));
        all
    }

    /// Whether only coordinators send on it. What they send is stored where nobody else may write.
    pub fn is_of_the_core(&self) -> bool {
        match self {
            Subject::Execute(_)
            | Subject::Stop(_)
            | Subject::Drain
            | Subject::Event(..)
            | Subject::Outcome(..)
            | Subject::Question(..)
            | Subject::Span(..)
            | Subject::Webhook(..)
            | Subject::Audit(_)
            | Subject::Profile(_)
            | Subject::Schedule(_)
            | Subject::Ticks(_)
            | Subject::Kept(_) => true,
            Subject::Spawn
            | Subject::Graph
            | Subject::Cancel
            | Subject::Input
            | Subject::Submit
            | Subject::Steer
            | Subject::Query(_)
            | Subject::Admin(_)
            | Subject::Worker
            | Subject::Ask(..)
            | Subject::Result(..)
            | Subject::Cost(..)
            | Subject::History(..)
            | Subject::Stream(..)
            | Subject::Dead(_) => false,
        }
    }

    /// All subjects like it, as permissions name them: every id is a wildcard, and the pool too unless one is given.
    pub fn form(&self, pool: Option<&PoolName>) -> String {
        let pool = pool.map_or("*", PoolName::as_str);
        match self {
            Subject::Spawn
            | Subject::Graph
            | Subject::Cancel
            | Subject::Input
            | Subject::Submit
            | Subject::Steer
            | Subject::Worker
            | Subject::Drain
            | Subject::Query(_)
            | Subject::Admin(_) => self.to_string(),
            Subject::Execute(_) => format!("agent.spawn.execute.{pool}"),
            Subject::Ask(..) => format!("agent.ask.{pool}.*"),
            Subject::Result(..) => format!("agent.result.{pool}.*.*.*"),
            Subject::Cost(..) => format!("agent.cost.{pool}.*.*.*"),
            Subject::History(..) => format!("agent.history.{pool}.*.*"),
            Subject::Event(..)
            | Subject::Outcome(..)
            | Subject::Question(..)
            | Subject::Span(..)
            | Subject::Stream(..) => {
                format!("agent.{}.*.*", self.kind())
            }
            Subject::Webhook(..) => format!("agent.{}.*.*.*", self.kind()),
            Subject::Stop(_)
            | Subject::Dead(_)
            | Subject::Audit(_)
            | Subject::Profile(_)
            | Subject::Schedule(_)
            | Subject::Ticks(_)
            | Subject::Kept(_) => format!("agent.{}.*", self.kind()),
        }
    }
}

/// Several subjects at once: those of a stream, or of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Filter {
    One(Subject),
    /// Every execute subject, of any pool.
    Executes,
    /// What the workers of all pools ask about the traces of a partition.
    AsksOf(Partition),
    Results,
    Costs,
    ResultsOf(Partition),
    CostsOf(Partition),
    Events,
    EventsOf(TraceId),
    Outcomes,
    OutcomesOf(TraceId),
    Questions,
    QuestionsOf(TraceId),
    /// The spans of all contexts that are over.
    Spans,
    /// All that webhooks are to be told of, and what one is.
    Webhooks,
    WebhooksOf(WebhookName),
    Histories,
    HistoriesOf(TraceId),
    /// The journal of a context, of whichever pool.
    JournalOf(TraceId, ChildId),
    Dead,
    /// All that administrators did that is no event of a run.
    Audits,
    /// The profiles of all agents.
    Profiles,
    /// All schedules.
    Schedules,
    /// What was decided about the ticks of all schedules.
    AllTicks,
    /// All graphs that are kept under names.
    AllKept,
    /// Every stop broadcast.
    Stops,
    /// What the agents of a trace say while they work.
    StreamsOf(TraceId),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::One(subject) => subject.fmt(f),
            Filter::Executes => f.write_str("agent.spawn.execute.*"),
            Filter::AsksOf(partition) => write!(f, "agent.ask.*.{partition}"),
            Filter::Results => f.write_str("agent.result.*.*.*.*"),
            Filter::Costs => f.write_str("agent.cost.*.*.*.*"),
            Filter::ResultsOf(partition) => write!(f, "agent.result.*.{partition}.*.*"),
            Filter::CostsOf(partition) => write!(f, "agent.cost.*.{partition}.*.*"),
            Filter::Events => f.write_str("agent.event.*.*"),
            Filter::EventsOf(trace) => write!(f, "agent.event.{trace}.*"),
            Filter::Outcomes => f.write_str("agent.outcome.*.*"),
            Filter::OutcomesOf(trace) => write!(f, "agent.outcome.{trace}.*"),
            Filter::Questions => f.write_str("agent.question.*.*"),
            Filter::QuestionsOf(trace) => write!(f, "agent.question.{trace}.*"),
            Filter::Spans => f.write_str("agent.span.*.*"),
            Filter::Webhooks => f.write_str("agent.webhook.*.*.*"),
            Filter::WebhooksOf(name) => write!(f, "agent.webhook.{name}.*.*"),
            Filter::Histories => f.write_str("agent.history.*.*.*"),
            Filter::HistoriesOf(trace) => write!(f, "agent.history.*.{trace}.*"),
            Filter::JournalOf(trace, child) => write!(f, "agent.history.*.{trace}.{child}"),
            Filter::Dead => f.write_str("agent.dead.*"),
            Filter::Audits => f.write_str("agent.audit.*"),
            Filter::Profiles => f.write_str("agent.profile.*"),
            Filter::Schedules => f.write_str("agent.schedule.*"),
            Filter::AllTicks => f.write_str("agent.ticks.*"),
            Filter::AllKept => f.write_str("agent.kept.*"),
            Filter::Stops => f.write_str("agent.stop.*"),
            Filter::StreamsOf(trace) => write!(f, "agent.stream.{trace}.*"),
        }
    }
}

impl FromStr for Filter {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        if let Ok(subject) = text.parse() {
            return Ok(Filter::One(subject));
        }
        several(text).ok_or_else(|| Unknown(text.chars().take(200).collect()))
    }
}

fn several(text: &str) -> Option<Filter> {
    let tokens: Vec<&str> = text.split('.').collect();
    Some(match tokens.as_slice() {
        ["agent", "spawn", "execute", "*"] => Filter::Executes,
        ["agent", "ask", "*", partition] => Filter::AsksOf(Partition::parse(partition)?),
        ["agent", "result", "*", "*", "*", "*"] => Filter::Results,
        ["agent", "cost", "*", "*", "*", "*"] => Filter::Costs,
        ["agent", "result", "*", partition, "*", "*"] => Filter::ResultsOf(Partition::parse(partition)?),
        ["agent", "cost", "*", partition, "*", "*"] => Filter::CostsOf(Partition::parse(partition)?),
        ["agent", "event", "*", "*"] => Filter::Events,
        ["agent", "event", trace, "*"] => Filter::EventsOf(trace.parse().ok()?),
        ["agent", "outcome", "*", "*"] => Filter::Outcomes,
        ["agent", "outcome", trace, "*"] => Filter::OutcomesOf(trace.parse().ok()?),
        ["agent", "question", "*", "*"] => Filter::Questions,
        ["agent", "question", trace, "*"] => Filter::QuestionsOf(trace.parse().ok()?),
        ["agent", "span", "*", "*"] => Filter::Spans,
        ["agent", "webhook", "*", "*", "*"] => Filter::Webhooks,
        ["agent", "webhook", name, "*", "*"] => Filter::WebhooksOf(name.parse().ok()?),
        ["agent", "history", "*", "*", "*"] => Filter::Histories,
        ["agent", "history", "*", trace, "*"] => Filter::HistoriesOf(trace.parse().ok()?),
        ["agent", "history", "*", trace, child] => {
            Filter::JournalOf(trace.parse().ok()?, child.parse().ok()?)
        }
        ["agent", "dead", "*"] => Filter::Dead,
        ["agent", "audit", "*"] => Filter::Audits,
        ["agent", "profile", "*"] => Filter::Profiles,
        ["agent", "schedule", "*"] => Filter::Schedules,
        ["agent", "ticks", "*"] => Filter::AllTicks,
        ["agent", "kept", "*"] => Filter::AllKept,
        ["agent", "stop", "*"] => Filter::Stops,
        ["agent", "stream", trace, "*"] => Filter::StreamsOf(trace.parse().ok()?),
        _ => return None,
    })
}

/// The prefix of every subject, stream and key of one deployment; most have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Namespace(Option<PoolName>);

impl Namespace {
    /// The subject's name on the server.
    pub fn subject(&self, subject: &Subject) -> String {
        self.prefixed(subject)
    }

    pub fn filter(&self, filter: &Filter) -> String {
        self.prefixed(filter)
    }

    /// [`Subject::form`] on the server.
    pub fn form(&self, subject: &Subject, pool: Option<&PoolName>) -> String {
        self.prefixed(&subject.form(pool))
    }

    fn prefixed(&self, subject: &impl fmt::Display) -> String {
        match &self.0 {
            None => subject.to_string(),
            Some(name) => format!("{name}.{subject}"),
        }
    }

    /// Parses a subject's name on the server.
    pub fn parse(&self, text: &str) -> Result<Subject, Unknown> {
        let unknown = || Unknown(text.chars().take(200).collect());
        match &self.0 {
            None => text.parse(),
            Some(name) => {
                let rest = text.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
                rest.ok_or_else(unknown)?.parse()
            }
        }
    }

    /// The name of a stream, bucket, durable consumer or service.
    pub fn stream(&self, name: &str) -> String {
        match &self.0 {
            None => name.to_owned(),
            Some(namespace) => format!("{namespace}_{name}"),
        }
    }

    /// A Redis key.
    pub fn key(&self, key: &str) -> String {
        match &self.0 {
            None => format!("trellis:{key}"),
            Some(name) => format!("{name}:trellis:{key}"),
        }
    }
}

impl FromStr for Namespace {
    type Err = id::Error;

    fn from_str(text: &str) -> Result<Self, id::Error> {
        if text.is_empty() {
            return Ok(Namespace(None));
        }
        PoolName::new(text).map(|name| Namespace(Some(name))).map_err(|error| error.about("namespace"))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("", PoolName::as_str))
    }
}

/// Whether a subject is the server's own, or one of Trellis in any namespace: replies are never sent there,
/// because the sender of a request chooses where its reply goes.
pub fn is_reserved(text: &str) -> bool {
    text.starts_with('$') || text.split('.').take(2).any(|token| token == "agent")
}

/// The namespace and partition of a trace: what a worker needs in order to ask and report about it.
#[derive(Debug, Clone)]
pub struct Home {
    pub namespace: Namespace,
    pub partition: Partition,
}

impl Home {
    /// Where the workers of a pool ask about it.
    pub fn ask(&self, pool: &PoolName) -> String {
        self.namespace.subject(&Subject::Ask(pool.clone(), self.partition))
    }

    pub fn report_to(&self, pool: &PoolName, trace: TraceId, child: &ChildId) -> ReportTo {
        let subject = |subject| self.namespace.subject(&subject);
        ReportTo {
            ask: self.ask(pool),
            result: subject(Subject::Result(pool.clone(), self.partition, trace, child.clone())),
            cost: subject(Subject::Cost(pool.clone(), self.partition, trace, child.clone())),
            history: subject(Subject::History(pool.clone(), trace, child.clone())),
            stream: subject(Subject::Stream(trace, child.clone())),
            stop: subject(Subject::Stop(trace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_parsed_back_to_itself() {
        let trace: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
        let child: ChildId = "researcher-1".parse().unwrap();
        let home = Partition::of(trace, 64);
        let pool: PoolName = "gpu".parse().unwrap();
        let topics = Topic::ALL.map(Subject::Query);
        let actions = Action::ALL.map(Subject::Admin);
        let others = [
            Subject::Spawn,
            Subject::Graph,
            Subject::Cancel,
            Subject::Input,
            Subject::Submit,
            Subject::Steer,
            Subject::Worker,
            Subject::Execute(pool.clone()),
            Subject::Ask(pool.clone(), home),
            Subject::Stop(trace),
            Subject::Result(pool.clone(), home, trace, child.clone()),
            Subject::Cost(pool.clone(), home, trace, child.clone()),
            Subject::Event(trace, child.clone()),
            Subject::Outcome(trace, child.clone()),
            Subject::Question(trace, child.clone()),
            Subject::History(pool, trace, child.clone()),
            Subject::Stream(trace, child.clone()),
            Subject::Dead(child),
            Subject::Profile("researcher".parse().unwrap()),
            Subject::Schedule("nightly".parse().unwrap()),
            Subject::Ticks("nightly".parse().unwrap()),
            Subject::Kept("facts".parse().unwrap()),
        ];
        let audits = Audited::all().map(Subject::Audit);
        for subject in others.into_iter().chain(topics).chain(actions).chain(audits) {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
    }

    #[test]
    fn a_namespace_stands_before_everything_and_others_are_not_ours() {
        let ours: Namespace = "team-a".parse().unwrap();
        assert_eq!(ours.subject(&Subject::Spawn), "team-a.agent.spawn");
        assert_eq!(ours.parse("team-a.agent.spawn"), Ok(Subject::Spawn));
        assert!(ours.parse("agent.spawn").is_err());
        assert!(ours.parse("team-ab.agent.spawn").is_err());
        assert_eq!(
            (ours.stream("AGENT_DEAD"), ours.key("x")),
            ("team-a_AGENT_DEAD".into(), "team-a:trellis:x".into())
        );
        let none = Namespace::default();
        assert_eq!(
            (none.subject(&Subject::Spawn), none.key("x")),
            ("agent.spawn".into(), "trellis:x".into())
        );
        assert!("a.b".parse::<Namespace>().is_err());
    }

    #[test]
    fn what_is_not_a_subject_is_refused() {
        let bad = [
            "",
            "agent",
            "agent.spawn.",
            "agent.spawn.execute.*",
            "agent.query",
            "agent.query.money",
            "agent.admin.runs",
            "agent.ask.p07",
            "agent.ask.gpu.7",
            "agent.ask.gpu.p7",
            "agent.ask.gpu.p9999",
        ];
        for text in bad {
            assert!(text.parse::<Subject>().is_err(), "{text}");
        }
        assert!("agent.event.0af7651916cd43dd8448eb211c80319c.a.b".parse::<Subject>().is_err());
    }

    #[test]
    fn partitions_spread_and_never_move() {
        let traces = (1..=6400u128).map(|n| TraceId::from_u128((n << 64) | (n * 7919)).unwrap());
        let mut counts = [0; 64];
        traces.for_each(|trace| counts[usize::from(Partition::of(trace, 64).0)] += 1);
        assert!(counts.iter().all(|count| (40..=180).contains(count)), "{counts:?}");
        let fixed = TraceId::from_u128(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c).unwrap();
        assert_eq!(Partition::of(fixed, 64).to_string(), "p32", "a trace's home is the same for ever");
    }
}
