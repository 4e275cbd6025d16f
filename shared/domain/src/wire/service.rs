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

/// The answer to a submission: to a request on `agent.submit`, or to the `reply_to` of a published
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SubmitAnswer {
    /// The submission is committed, and an outcome will follow.
    Accepted(Acceptance),
    Refused(Refusal),
}

/// A notice on `agent.stop.<trace>`: this context has ended, so send a tick at once. Only the
/// answer to that tick stops the worker. The notice itself may be lost, and any client may have
/// sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub trace_id: TraceId,
    pub child_id: ChildId,
}

/// A query, a message that steers a run, or a request of an administrator. Any coordinator answers
/// it. Each is accepted only on its own subject: see docs/protocol.md.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// Runs, the newest first (G17).
    Runs(Box<RunsQuery>),
    /// Open questions of runs that wait for a human (G17).
    Pending(PendingQuery),
    Agents,
    /// One profile: the latest, or the requested version.
    Agent {
        agent_id: AgentId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// Adds these profiles, or replaces those of the same name. Running traces keep their profiles.
    ApplyAgents {
        agents: Vec<AgentProfile>,
    },
    /// Deletes an agent. New submissions can't name it any more; running traces keep its profile.
    DeleteAgent {
        agent_id: AgentId,
    },
    Coordinators,
    /// The runs that still need the journals of this one (W6).
    Branches {
        trace_id: TraceId,
    },
    /// The stored state of a run, for an audit (G12).
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
    /// Replaces, adds or removes steps of a graph that have not begun; answered after its commit
    /// (G13).
    Amend {
        trace_id: TraceId,
        amend: Box<Amend>,
    },
    /// Adds a schedule, or replaces the one of the same name (G16).
    PutSchedule {
        /// The definition, by the schema `schedule`. It is read separately, so that all its
        /// problems are reported at once.
        schedule: Json,
        /// Applies only if this is the current revision; 0: only if no schedule has this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<u64>,
    },
    /// Deletes a schedule, so it has no further ticks. Its runs continue.
    DeleteSchedule {
        name: ScheduleName,
    },
    PauseSchedule {
        name: ScheduleName,
    },
    /// Resumes a schedule. Ticks during the pause are not run.
    ResumeSchedule {
        name: ScheduleName,
    },
    /// Starts one run now, in addition to the timetable.
    RunSchedule {
        name: ScheduleName,
        /// An id that the sender chooses. The same id gives the same run.
        id: ChildId,
    },
    /// All schedules, by name.
    Schedules {
        /// The `next` of an earlier answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<ScheduleName>,
        /// The most schedules of one answer, up to 500.
        #[serde(default = "some")]
        limit: u32,
    },
    Schedule {
        name: ScheduleName,
    },
    /// Stores a graph under a name, as the version after the latest (G18). Running traces keep
    /// their graphs.
    PutGraph {
        name: GraphName,
        /// The definition, by the schema `graph`. It is read separately, so that all its problems
        /// are reported at once.
        graph: Json,
    },
    /// Makes the worker take no more work, and end once it has none.
    Drain(Drain),
    /// Deletes a stored graph. New submissions can't name it any more.
    DeleteGraph {
        name: GraphName,
    },
    /// All stored graphs, by name.
    Graphs {
        /// The `next` of an earlier answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<GraphName>,
        /// The most graphs of one answer, up to 500.
        #[serde(default = "some")]
        limit: u32,
    },
    /// One graph: the latest version, or the requested one.
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
        /// Continues the list, as `after` of the next query. Absent at the end of the list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<RunsCursor>,
        /// The number of runs that the query would list without its filter, if it finds none with
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unfiltered: Option<u64>,
    },
    Pending {
        questions: Vec<PendingQuestion>,
        /// As in `runs`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<RunsCursor>,
        /// The number of further questions of these runs, which would make the answer too large.
        #[serde(default, skip_serializing_if = "super::report::is_zero")]
        left_out: u32,
    },
    Agents {
        agents: Vec<AgentProfile>,
        /// The versions of applied profiles. Built-in agents have none.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        versions: BTreeMap<AgentId, u64>,
    },
    Agent(Box<AgentVersion>),
    /// Every later submission uses these profiles or newer ones.
    Applied {
        agents: Vec<AgentId>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        versions: BTreeMap<AgentId, u64>,
        /// The profiles that were already as given. They keep their version.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unchanged: Vec<AgentId>,
    },
    Deleted {
        agent_id: AgentId,
        /// The time of the deletion; the first time, if it was repeated.
        at: Timestamp,
    },
    Coordinators {
        coordinators: Vec<WorkerId>,
        policies: Vec<Policy>,
        /// The partitions of each coordinator, in the same order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<Vec<u16>>,
    },
    Branches {
        branches: Vec<Branch>,
    },
    /// Absent `state`: the store no longer has the run.
    Snapshot {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<StateDigest>,
    },
    /// The message is committed under this number. An agent without a further call never sees it.
    Told {
        child_id: ChildId,
        number: u32,
    },
    /// The answer to this question is committed.
    Answered {
        child_id: ChildId,
        question: u32,
    },
    /// The drain message was sent to the worker. A worker that does not listen misses it.
    ToldToDrain {
        worker_id: WorkerId,
    },
    /// The graph of this context continues as amended. This was amend number `revision`.
    Amended {
        child_id: ChildId,
        revision: u32,
    },
    /// The schedule is stored, paused or resumed.
    ScheduleKept {
        name: ScheduleName,
        revision: u64,
        /// Nothing changed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unchanged: bool,
        paused: bool,
        /// The next tick; absent if the schedule is paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Timestamp>,
    },
    ScheduleDeleted {
        name: ScheduleName,
        at: Timestamp,
    },
    /// The requested run is accepted, now or before.
    ScheduleRun {
        name: ScheduleName,
        trace_id: TraceId,
    },
    Schedules {
        schedules: Vec<ScheduleSummary>,
        /// Continues the list. Absent at the end of the list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<ScheduleName>,
    },
    Schedule(Box<ScheduleShown>),
    /// Every later submission without a version uses this version or a newer one.
    GraphKept {
        name: GraphName,
        version: u64,
        /// Nothing changed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unchanged: bool,
    },
    GraphDeleted {
        name: GraphName,
        /// The time of the deletion; the first time, if it was repeated.
        at: Timestamp,
    },
    Graphs {
        graphs: Vec<GraphSummary>,
        /// Continues the list. Absent at the end of the list.
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

/// One version of an agent's profile, with its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AgentVersion {
    pub agent: AgentProfile,
    /// Absent for a built-in agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// The latest version, and all earlier ones that are still stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<u64>,
}

/// The stored state of a run. Replaying the run's event log up to the same version gives the same
/// digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StateDigest {
    /// The number of the last event.
    pub version: u64,
    /// A digest of the whole state.
    pub digest: String,
    /// The budget of its root.
    pub budget: BudgetSnapshot,
}

/// A version of an agent's profile, on `agent.profile.<agent_id>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProfileVersion {
    /// Counted from 1. The latest version applies.
    pub version: u64,
    /// `None`: the agent was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<AgentProfile>,
}

/// The settings of a coordinator for all runs of the deployment. If coordinators differ, the
/// longest retention and the lowest maximum apply to every run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "DeploymentPolicy")]
pub struct Policy {
    pub retention_ms: u64,
    /// The most that one run may cost. Absent: no such maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// The ids of the keys of its logs (S3). The first one is the key that it signs with. Empty: it
    /// has none.
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

/// A run that needs stored data of another run's context. It is a live branch that has not copied
/// the journal yet, or a rerun that took over a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Branch {
    /// The run that branches.
    pub trace_id: TraceId,
    /// The context of the other run whose journal it needs.
    pub from: ChildId,
    /// True for a rerun whose results refer to objects of that context (G15).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// A request to every worker, on `agent.worker`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkerCall {
    /// Each worker answers with its state.
    Describe,
}

/// A message to every worker, on `agent.drain`. The worker with this id takes no more work,
/// finishes or hands back the work it has, and ends.
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
    /// The difference of its time of day from the coordinators', if it is large. Negative if the
    /// worker's is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// The profiles that it may run, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// Identifies the worker's policy: equal policies have equal digests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy_digest: String,
    /// The number of spans that no collector accepted.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub spans_dropped: u64,
    /// The names of the MCP servers in its settings. Absent if its version does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<String>>,
}
