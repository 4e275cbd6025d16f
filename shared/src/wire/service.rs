//! Requests beside the work itself: submissions with an answer, queries, and the state of workers.

use serde::{Deserialize, Serialize};

use super::{Acceptance, BudgetSnapshot, ContextStatus, Refusal, Tell, Text};
use crate::{
    agent::AgentProfile,
    id::{AgentId, ChildId, PoolName, TraceId, WorkerId},
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

/// On `agent.stop.<trace>`: stop running this context. The message may be lost; the answer to the next tick
/// stops the worker anyway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub trace_id: TraceId,
    pub child_id: ChildId,
}

/// A query on `agent.query`, answered by any coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The newest runs.
    Runs {
        #[serde(default = "default_limit")]
        limit: u32,
    },
    Agents,
    /// Adds these profiles, or replaces those of the same name. Running traces keep theirs.
    ApplyAgents {
        agents: Vec<AgentProfile>,
    },
    Coordinators,
    /// The runs that still need the journals of this one (W6).
    Branches {
        trace_id: TraceId,
    },
    /// A message to an agent, as on `agent.input`; answered after its commit (G13).
    Tell {
        trace_id: TraceId,
        told: Tell,
    },
}

fn default_limit() -> u32 {
    50
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryAnswer {
    Runs {
        runs: Vec<RunSummary>,
    },
    Agents {
        agents: Vec<AgentProfile>,
    },
    Applied {
        agents: Vec<AgentId>,
    },
    Coordinators {
        coordinators: Vec<WorkerId>,
        policies: Vec<Policy>,
    },
    Branches {
        branches: Vec<Branch>,
    },
    /// The message is committed under this number. An agent that makes no further call never sees it.
    Told {
        child_id: ChildId,
        number: u32,
    },
    Refused(Refusal),
}

/// What a coordinator was told about all runs of the deployment. Where coordinators were told different things, the
/// longest retention and the lowest maximum hold, whichever of them takes a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Policy {
    pub retention_ms: u64,
    /// The most that one run may cost; if absent, there is no such maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
}

impl Policy {
    /// What holds where two coordinators differ.
    pub fn and(&self, other: &Policy) -> Policy {
        Policy {
            retention_ms: self.retention_ms.max(other.retention_ms),
            max_cost_usd: self.max_cost_usd.into_iter().chain(other.max_cost_usd).min(),
        }
    }
}

/// A live run that branches from a context of another one, and has not copied its journal yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Branch {
    /// The run that branches.
    pub trace_id: TraceId,
    /// The context of the other run whose journal it needs.
    pub from: ChildId,
}

/// A summary of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSummary {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Text>,
    pub status: ContextStatus,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub budget: BudgetSnapshot,
}

/// To every worker, on `agent.worker`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCall {
    /// Each answers with its state.
    Describe,
    /// The named worker takes no more work, finishes or hands back what it has, and ends.
    Drain { worker_id: WorkerId },
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
}
