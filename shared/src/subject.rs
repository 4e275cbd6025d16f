//! The subjects of the bus: made and parsed here and nowhere else. Ids can't contain a dot or a wildcard,
//! so the tokens of a subject are unambiguous. A [`Namespace`] as prefix lets many deployments share
//! servers.

use std::{fmt, str::FromStr};

use crate::{
    id::{self, AgentId, ChildId, PoolName, TraceId},
    wire::ReportTo,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Durable; the sender gets no answer.
    Spawn,
    Graph,
    Cancel,
    Input,
    Control,
    /// Request and reply; answered after the commit.
    Submit,
    /// Request and reply: runs, agents.
    Query,
    /// To every worker: describe yourself, or drain.
    Worker,
    Execute(PoolName),
    Ask(Partition),
    Stop(TraceId),
    Result(Partition, TraceId, ChildId),
    Cost(Partition, TraceId, ChildId),
    Event(TraceId, ChildId),
    Outcome(TraceId, ChildId),
    /// To the root's caller: an agent needs a human.
    Question(TraceId, ChildId),
    History(TraceId, ChildId),
    /// What an agent says while it works; not stored.
    Stream(TraceId, ChildId),
    /// Dead letters, by the kind of their subject.
    Dead(ChildId),
    /// The versions of an agent's profile.
    Profile(AgentId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Spawn => f.write_str("agent.spawn"),
            Subject::Graph => f.write_str("agent.graph"),
            Subject::Cancel => f.write_str("agent.cancel"),
            Subject::Input => f.write_str("agent.input"),
            Subject::Control => f.write_str("agent.control"),
            Subject::Submit => f.write_str("agent.submit"),
            Subject::Query => f.write_str("agent.query"),
            Subject::Worker => f.write_str("agent.worker"),
            Subject::Execute(pool) => write!(f, "agent.spawn.execute.{pool}"),
            Subject::Ask(partition) => write!(f, "agent.ask.{partition}"),
            Subject::Stop(trace) => write!(f, "agent.stop.{trace}"),
            Subject::Result(partition, trace, child) => write!(f, "agent.result.{partition}.{trace}.{child}"),
            Subject::Cost(partition, trace, child) => write!(f, "agent.cost.{partition}.{trace}.{child}"),
            Subject::Event(trace, child) => write!(f, "agent.event.{trace}.{child}"),
            Subject::Outcome(trace, child) => write!(f, "agent.outcome.{trace}.{child}"),
            Subject::Question(trace, child) => write!(f, "agent.question.{trace}.{child}"),
            Subject::History(trace, child) => write!(f, "agent.history.{trace}.{child}"),
            Subject::Stream(trace, child) => write!(f, "agent.stream.{trace}.{child}"),
            Subject::Dead(kind) => write!(f, "agent.dead.{kind}"),
            Subject::Profile(agent) => write!(f, "agent.profile.{agent}"),
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
    let partition = |token: &str| {
        let partition = Partition::new(token.strip_prefix('p')?.parse().ok()?)?;
        (partition.to_string() == token).then_some(partition)
    };
    Some(match tokens.as_slice() {
        ["agent", "spawn"] => Subject::Spawn,
        ["agent", "graph"] => Subject::Graph,
        ["agent", "cancel"] => Subject::Cancel,
        ["agent", "input"] => Subject::Input,
        ["agent", "control"] => Subject::Control,
        ["agent", "submit"] => Subject::Submit,
        ["agent", "query"] => Subject::Query,
        ["agent", "worker"] => Subject::Worker,
        ["agent", "spawn", "execute", pool] => Subject::Execute(pool.parse().ok()?),
        ["agent", "ask", p] => Subject::Ask(partition(p)?),
        ["agent", "stop", trace] => Subject::Stop(trace.parse().ok()?),
        ["agent", "result", p, trace, child] => {
            Subject::Result(partition(p)?, trace.parse().ok()?, child.parse().ok()?)
        }
        ["agent", "cost", p, trace, child] => {
            Subject::Cost(partition(p)?, trace.parse().ok()?, child.parse().ok()?)
        }
        ["agent", "event", trace, child] => Subject::Event(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "outcome", trace, child] => Subject::Outcome(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "question", trace, child] => Subject::Question(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "history", trace, child] => Subject::History(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "stream", trace, child] => Subject::Stream(trace.parse().ok()?, child.parse().ok()?),
        ["agent", "dead", kind] => Subject::Dead(kind.parse().ok()?),
        ["agent", "profile", agent] => Subject::Profile(agent.parse().ok()?),
        _ => return None,
    })
}

impl Subject {
    /// The kind of its messages in one word: dead letters are sorted by it.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Spawn => "spawn",
            Subject::Graph => "graph",
            Subject::Cancel => "cancel",
            Subject::Input => "input",
            Subject::Control => "control",
            Subject::Submit => "submit",
            Subject::Query => "query",
            Subject::Worker => "worker",
            Subject::Execute(_) => "execute",
            Subject::Ask(_) => "ask",
            Subject::Stop(_) => "stop",
            Subject::Result(..) => "result",
            Subject::Cost(..) => "cost",
            Subject::Event(..) => "event",
            Subject::Outcome(..) => "outcome",
            Subject::Question(..) => "question",
            Subject::History(..) => "history",
            Subject::Stream(..) => "stream",
            Subject::Dead(_) => "dead",
            Subject::Profile(_) => "profile",
        }
    }
}

/// Several subjects at once: those of a stream, or of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Filter {
    One(Subject),
    /// Every execute subject, of any pool.
    Executes,
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
    Histories,
    HistoriesOf(TraceId),
    Dead,
    /// The profiles of all agents.
    Profiles,
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
            Filter::Results => f.write_str("agent.result.*.*.*"),
            Filter::Costs => f.write_str("agent.cost.*.*.*"),
            Filter::ResultsOf(partition) => write!(f, "agent.result.{partition}.*.*"),
            Filter::CostsOf(partition) => write!(f, "agent.cost.{partition}.*.*"),
            Filter::Events => f.write_str("agent.event.*.*"),
            Filter::EventsOf(trace) => write!(f, "agent.event.{trace}.*"),
            Filter::Outcomes => f.write_str("agent.outcome.*.*"),
            Filter::OutcomesOf(trace) => write!(f, "agent.outcome.{trace}.*"),
            Filter::Questions => f.write_str("agent.question.*.*"),
            Filter::QuestionsOf(trace) => write!(f, "agent.question.{trace}.*"),
            Filter::Histories => f.write_str("agent.history.*.*"),
            Filter::HistoriesOf(trace) => write!(f, "agent.history.{trace}.*"),
            Filter::Dead => f.write_str("agent.dead.*"),
            Filter::Profiles => f.write_str("agent.profile.*"),
            Filter::Stops => f.write_str("agent.stop.*"),
            Filter::StreamsOf(trace) => write!(f, "agent.stream.{trace}.*"),
        }
    }
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
        Ok(Namespace(if text.is_empty() { None } else { Some(PoolName::new(text)?) }))
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
    /// Where to ask about it.
    pub fn ask(&self) -> String {
        self.namespace.subject(&Subject::Ask(self.partition))
    }

    pub fn report_to(&self, trace: TraceId, child: &ChildId) -> ReportTo {
        let subject = |subject| self.namespace.subject(&subject);
        ReportTo {
            ask: self.ask(),
            result: subject(Subject::Result(self.partition, trace, child.clone())),
            cost: subject(Subject::Cost(self.partition, trace, child.clone())),
            history: subject(Subject::History(trace, child.clone())),
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
        let all = [
            Subject::Spawn,
            Subject::Graph,
            Subject::Cancel,
            Subject::Input,
            Subject::Control,
            Subject::Submit,
            Subject::Query,
            Subject::Worker,
            Subject::Execute("gpu".parse().unwrap()),
            Subject::Ask(home),
            Subject::Stop(trace),
            Subject::Result(home, trace, child.clone()),
            Subject::Cost(home, trace, child.clone()),
            Subject::Event(trace, child.clone()),
            Subject::Outcome(trace, child.clone()),
            Subject::Question(trace, child.clone()),
            Subject::History(trace, child.clone()),
            Subject::Stream(trace, child.clone()),
            Subject::Dead(child),
            Subject::Profile("researcher".parse().unwrap()),
        ];
        for subject in all {
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
            "agent.ask.7",
            "agent.ask.p7",
            "agent.ask.p9999",
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
