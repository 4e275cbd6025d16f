//! Requests besides the work itself: submissions with an answer, queries, and the state of workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Acceptance, Amend, AnswerMessage, BudgetSnapshot, PendingQuery, PendingQuestion, Refusal, RunSummary,
    RunsCursor, RunsQuery, ScheduleShown, ScheduleSummary, Tell,
    kept::{GraphShown, GraphSummary},
};
use crate::{
    agent::AgentProfile,
    id::{AgentId, ChildId, GraphName, PoolName, ScheduleName, TraceId, WorkerId},
    json::Json,
    money::Usd,
    time::Timestamp,
};

/// The answer to a submission: to a request on `agent.submit`, or to the `reply_to` of a published one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SubmitAnswer {
    /// It is committed, and an outcome will follow.
    Accepted(Acceptance),
    Refused(Refusal),
}

/// On `agent.stop.<trace>`: this context is over, so tick at once. The answer to the tick stops the worker, not this message: it
/// may be lost, and anybody may have sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub trace_id: TraceId,
    pub child_id: ChildId,
}

/// A query, a message that steers a run, or a request of an administrator, answered by any coordinator. Each is taken only on
/// its own subject: see docs/protocol.md.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// Runs, the newest first (G17).
    Runs(Box<RunsQuery>),
    /// Open questions of runs that wait for a human (G17).
    Pending(PendingQuery),
    Agents,
    /// One profile: the latest, or the version asked for.
    Agent {
        agent_id: AgentId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// Adds these profiles, or replaces those of the same name. Running traces keep theirs.
    ApplyAgents {
        agents: Vec<AgentProfile>,
    },
    /// New submissions can't name it any more. Running traces keep its profile.
    DeleteAgent {
        agent_id: AgentId,
    },
    Coordinators,
    /// The runs that still need the journals of this one (W6).
    Branches {
        trace_id: TraceId,
    },
    /// What the store has of a run, for an audit (G12).
    Snapshot {
        trace_id: TraceId,
    },
    /// A message to an agent, as on `agent.input`; answered after its commit (G13).
    Tell {
        trace_id: TraceId,
        told: Tell,
    },
    /// An answer to a question, as on `agent.input`; answered after its commit (G7).
    Answer {
        trace_id: TraceId,
        answered: AnswerMessage,
    },
    /// Replaces, adds or removes steps of a graph that have not begun; answered after its commit (G13).
    Amend {
        trace_id: TraceId,
        amend: Box<Amend>,
    },
    /// Adds a schedule, or replaces the one of the same name (G16).
    PutSchedule {
        /// As the schema `schedule` says. It is read apart, so that all that is wrong with it is told at once.
        schedule: Json,
        /// Only if this is its revision now; 0: only if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<u64>,
    },
    /// It has no further tick. Its runs go on.
    DeleteSchedule {
        name: ScheduleName,
    },
    PauseSchedule {
        name: ScheduleName,
    },
    /// Ticks that came meanwhile are not run.
    ResumeSchedule {
        name: ScheduleName,
    },
    /// One run now, besides those of the timetable.
    RunSchedule {
        name: ScheduleName,
        /// The sender's choice: the same id is the same run.
        id: ChildId,
    },
    /// All schedules, by name.
    Schedules {
        /// The `next` of an earlier answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<ScheduleName>,
        /// The most of one answer: at most 500.
        #[serde(default = "some")]
        limit: u32,
    },
    Schedule {
        name: ScheduleName,
    },
    /// Keeps a graph under a name, as the version after the latest (G18). Runs keep what they began with.
    PutGraph {
        name: GraphName,
        /// As the schema `graph` says. It is read apart, so that all that is wrong with it is told at once.
        graph: Json,
    },
    /// New submissions can't name it any more.
    /// Has the worker told to take no more work, and to end when it has none.
    Drain(Drain),
    DeleteGraph {
        name: GraphName,
    },
    /// All graphs that are kept, by name.
    Graphs {
        /// The `next` of an earlier answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<GraphName>,
        /// The most of one answer: at most 500.
        #[serde(default = "some")]
        limit: u32,
    },
    /// One graph: the latest version, or the one asked for.
    Graph {
        name: GraphName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
}

fn some() -> u32 {
    100
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryAnswer {
    Runs {
        runs: Vec<RunSummary>,
        /// Continues the list, as `after` of the next query; if absent, this is its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<RunsCursor>,
        /// How many runs are listed without a filter, if none is found with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unfiltered: Option<u64>,
    },
    Pending {
        questions: Vec<PendingQuestion>,
        /// As in `runs`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<RunsCursor>,
        /// How many more questions these runs have: the answer would be too large with them.
        #[serde(default, skip_serializing_if = "super::report::is_zero")]
        left_out: u32,
    },
    Agents {
        agents: Vec<AgentProfile>,
        /// The version of each that was applied; built-in ones have none.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        versions: BTreeMap<AgentId, u64>,
    },
    Agent(Box<AgentVersion>),
    /// Every submission that is sent from now on uses these profiles, or later ones.
    Applied {
        agents: Vec<AgentId>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        versions: BTreeMap<AgentId, u64>,
        /// Those that were as given before: they have the version they had.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unchanged: Vec<AgentId>,
    },
    Deleted {
        agent_id: AgentId,
        /// When it was deleted, the first time if it was deleted again.
        at: Timestamp,
    },
    Coordinators {
        coordinators: Vec<WorkerId>,
        policies: Vec<Policy>,
        /// The partitions of each of them, in the same order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<Vec<u16>>,
    },
    Branches {
        branches: Vec<Branch>,
    },
    /// None: the store no longer has it.
    Snapshot {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<StateDigest>,
    },
    /// The message is committed under this number. An agent that makes no further call never sees it.
    Told {
        child_id: ChildId,
        number: u32,
    },
    /// The answer to this question is committed.
    Answered {
        child_id: ChildId,
        question: u32,
    },
    /// The worker was told to take no more work, if it listens.
    ToldToDrain {
        worker_id: WorkerId,
    },
    /// The graph that runs in this context goes on as amended, for the `revision`-th time.
    Amended {
        child_id: ChildId,
        revision: u32,
    },
    /// The schedule is kept as it was given, paused or resumed.
    ScheduleKept {
        name: ScheduleName,
        revision: u64,
        /// It was so before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unchanged: bool,
        paused: bool,
        /// Its next tick; none if it is paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Timestamp>,
    },
    ScheduleDeleted {
        name: ScheduleName,
        at: Timestamp,
    },
    /// The run that was asked for is accepted, now or before.
    ScheduleRun {
        name: ScheduleName,
        trace_id: TraceId,
    },
    Schedules {
        schedules: Vec<ScheduleSummary>,
        /// Continues the list; if absent, this is its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<ScheduleName>,
    },
    Schedule(Box<ScheduleShown>),
    /// Every submission that is sent from now on, and names no version, uses this one or a later one.
    GraphKept {
        name: GraphName,
        version: u64,
        /// It was so before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unchanged: bool,
    },
    GraphDeleted {
        name: GraphName,
        /// When it was deleted, the first time if it was deleted again.
        at: Timestamp,
    },
    Graphs {
        graphs: Vec<GraphSummary>,
        /// Continues the list; if absent, this is its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<GraphName>,
    },
    Graph(Box<GraphShown>),
    Refused(Refusal),
}

impl QueryAnswer {
    /// Returns the refusal as an error, if this is one.
    pub fn or_refusal(self) -> Result<Self, Refusal> {
        if let QueryAnswer::Refused(refusal) = self { Err(refusal) } else { Ok(self) }
    }
}

/// One version of an agent's profile, with what is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AgentVersion {
    pub agent: AgentProfile,
    /// None: it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// The latest version, and all earlier ones that are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<u64>,
}

/// What the store has of a run. Whoever replays the run's event log up to the same version gets the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StateDigest {
    /// The number of its last event.
    pub version: u64,
    /// A digest of the whole state.
    pub digest: String,
    /// The budget of its root.
    pub budget: BudgetSnapshot,
}

/// A version of an agent's profile, on `agent.profile.<agent_id>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProfileVersion {
    /// From 1 on. The latest counts.
    pub version: u64,
    /// None: the agent was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<AgentProfile>,
}

/// What a coordinator was told about all runs of the deployment. Where coordinators were told different things, the
/// longest retention and the lowest maximum hold, whichever of them takes a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "DeploymentPolicy")]
pub struct Policy {
    pub retention_ms: u64,
    /// The most that one run may cost; if absent, there is no such maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// The ids of the keys of its logs (S3), that of the one that it signs with first; empty: it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_keys: Vec<String>,
}

impl Policy {
    /// Combines the settings of two coordinators.
    pub fn and(&self, other: &Policy) -> Policy {
        Policy {
            retention_ms: self.retention_ms.max(other.retention_ms),
            max_cost_usd: self.max_cost_usd.into_iter().chain(other.max_cost_usd).min(),
            log_keys: self.log_keys.clone(),
        }
    }

    /// Returns true if one of two coordinators does not know the key that the other signs with, or
    /// only one of them has a key. During a rotation they may sign with different keys, as long as
    /// each knows both.
    pub fn keys_are_apart(&self, other: &Policy) -> bool {
        let knows = |one: &Policy, other: &Policy| {
            other.log_keys.first().map_or(one.log_keys.is_empty(), |key| one.log_keys.contains(key))
        };
        !knows(self, other) || !knows(other, self)
    }
}

/// A run that needs what a context of another one has stored: a live one that branches from it, and has not copied its
/// journal yet, or one that took over its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Branch {
    /// The run that branches.
    pub trace_id: TraceId,
    /// The context of the other run whose journal it needs.
    pub from: ChildId,
    /// It is a rerun, and its results refer to objects of that context (G15).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// To every worker, on `agent.worker`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkerCall {
    /// Each answers with its state.
    Describe,
}

/// To every worker, on `agent.drain`: the named one takes no more work, finishes or hands back what it has, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub worker_id: WorkerId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorkerState {
    pub worker_id: WorkerId,
    pub pool: PoolName,
    pub slots: u32,
    pub running: u32,
    pub draining: bool,
    pub version: String,
    pub started_at: Timestamp,
    /// How far its time of day is ahead of the coordinators' (behind, if negative), if that was found to be much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// What profiles it runs, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// By which its policy is told from others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy_digest: String,
    /// Spans that no collector took.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub spans_dropped: u64,
    /// The names of the MCP servers in its settings. None: it is of a version that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<String>>,
}
