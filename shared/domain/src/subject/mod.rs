//! The subjects of the bus. Only this folder makes and parses them. Ids can't contain a dot or a
//! wildcard, so the tokens of a subject are unambiguous. A [`Namespace`] as prefix lets many
//! deployments share servers. A new subject is a row of the table below; the bus's topology has its
//! stream, and the bus's roles have its permissions.

use std::{fmt, str::FromStr};

mod filter;
mod namespace;
mod partition;
mod token;
mod words;

pub use filter::Filter;
pub use namespace::{Home, Namespace, is_reserved};
pub use partition::Partition;
use token::{Token, subjects, tokens_after};
pub use words::{Action, Audited, Topic};

use crate::{
    id::{AgentId, ChildId, GraphName, PoolName, ScheduleName, TraceId, WebhookName},
    wire::{Control, Query},
};

subjects! {
    /// Durable; the sender gets no answer. `Graph`, `Cancel` and `Input` work the same way.
    Spawn = "agent.spawn", "spawn", others;
    Graph = "agent.graph", "graph", others;
    Cancel = "agent.cancel", "cancel", others;
    Input = "agent.input", "input", others;
    /// Request and reply; answered after the commit.
    Submit = "agent.submit", "submit", others;
    /// Request and reply, answered after the commit: messages to agents, answers to questions, and
    /// amends.
    Steer = "agent.steer", "steer", others;
    /// Request and reply. A query changes nothing.
    Query(topic: Topic) = "agent.query", "query", others;
    Admin(action: Action) = "agent.admin", "admin", others;
    /// A request to every worker for a description of itself.
    Worker = "agent.worker", "worker", others;
    Execute(pool: PoolName) = "agent.spawn.execute", "execute", coordinators;
    /// A worker's ask, from a pool, about the traces of a partition.
    Ask(pool: PoolName, partition: Partition) = "agent.ask", "ask", others;
    Stop(trace: TraceId) = "agent.stop", "stop", coordinators;
    Result(pool: PoolName, partition: Partition, trace: TraceId, child: ChildId) = "agent.result", "result", others;
    Cost(pool: PoolName, partition: Partition, trace: TraceId, child: ChildId) = "agent.cost", "cost", others;
    Event(trace: TraceId, child: ChildId) = "agent.event", "event", coordinators;
    Outcome(trace: TraceId, child: ChildId) = "agent.outcome", "outcome", coordinators;
    /// A notice to the root's caller that an agent needs a human.
    Question(trace: TraceId, child: ChildId) = "agent.question", "question", coordinators;
    /// The spans of a context that has ended, for the coordinator that exports them (X6).
    Span(trace: TraceId, child: ChildId) = "agent.span", "span", coordinators;
    /// A notice for a webhook, for the coordinator that sends it (X9).
    Webhook(name: WebhookName, trace: TraceId, child: ChildId) = "agent.webhook", "webhook", coordinators;
    History(pool: PoolName, trace: TraceId, child: ChildId) = "agent.history", "history", others;
    /// The text of a working agent; not stored.
    Stream(trace: TraceId, child: ChildId) = "agent.stream", "stream", others;
    /// A message to every worker. The worker that it names takes no more work.
    Drain = "agent.drain", "drain", coordinators;
    /// Dead letters, by the kind of their original subject.
    Dead(kind: ChildId) = "agent.dead", "dead", others;
    /// Records of administrators' actions that are not events of a run (S7).
    Audit(record: Audited) = "agent.audit", "audit", coordinators;
    /// The versions of an agent's profile.
    Profile(agent: AgentId) = "agent.profile", "profile", coordinators;
    /// The revisions of a schedule (G16).
    Schedule(name: ScheduleName) = "agent.schedule", "schedule", coordinators;
    /// The decisions about the ticks of a schedule.
    Ticks(name: ScheduleName) = "agent.ticks", "ticks", coordinators;
    /// The versions of a graph that is stored under a name (G18).
    Kept(name: GraphName) = "agent.kept", "kept", coordinators;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a subject of Trellis")]
pub struct UnknownSubject(String);

impl UnknownSubject {
    fn new(text: &str) -> Self {
        UnknownSubject(text.chars().take(200).collect())
    }
}

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        Subject::parse(text).ok_or_else(|| UnknownSubject::new(text))
    }
}

impl Subject {
    /// Returns the subject of a query. A query on another subject is rejected.
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

    /// Returns the subjects of an administrator's message about a run: one for each action that it
    /// requests.
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

    /// The kind of the subject's messages in one word. Dead letters are sorted by it. Each action
    /// of administrators is a kind.
    pub fn kind(&self) -> &'static str {
        if let Subject::Admin(action) = self { action.name() } else { self.kind_of_messages() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_parsed_back_to_itself() {
        let audits = Audited::all().map(Subject::Audit);
        for subject in Subject::one_of_each().into_iter().chain(audits) {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
    }

    #[test]
    fn permissions_name_the_pool_and_no_ids() {
        let pool: PoolName = "gpu".parse().unwrap();
        let child: ChildId = "researcher-1".parse().unwrap();
        let trace = TraceId::from_u128(7).unwrap();
        let result = Subject::Result(pool.clone(), Partition::of(trace, 64), trace, child.clone());
        assert_eq!(result.form(Some(&pool)), "agent.result.gpu.*.*.*");
        assert_eq!(result.form(None), "agent.result.*.*.*.*");
        assert_eq!(Subject::Event(trace, child).form(Some(&pool)), "agent.event.*.*");
        assert_eq!(Subject::Query(Topic::Runs).form(None), "agent.query.runs");
        assert_eq!(Subject::Admin(Action::Raise).form(None), "agent.admin.raise");
        assert_eq!(Subject::Execute(pool.clone()).form(Some(&pool)), "agent.spawn.execute.gpu");
        assert_eq!(Subject::Audit(Audited::WorkerPolicy).form(None), "agent.audit.*");
    }

    #[test]
    fn a_text_that_is_not_a_subject_is_refused() {
        let bad = [
            "",
            "agent",
            "agent.spawn.",
            "agent.spawner",
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
}
