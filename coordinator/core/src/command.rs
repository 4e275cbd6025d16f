//! The commands of a trace. Everything that a command needs from outside (fresh ids, tokens,
//! profiles, settings) is part of it.

use std::{collections::BTreeSet, sync::Arc};

use domain::{
    AgentId, Amount, CallId, ChildId, ContextKey, Json, Timestamp,
    graph::{Plan, UnverifiedGraph},
    id::ModelName,
    limits::Settings,
    wire::{
        AnswerMessage, Branch, Charge, CheckReport, Claim, DecideDispute, Delete, Hold, Lease, Raise, Report,
        Restore, Resume, Tell, Text, Tick,
    },
};

use super::{
    ContextSpec, Earlier, LostCost, NamedProfiles, Refusal, RunOrigin,
    named::{agents_of, agents_of_plan},
};

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Creates the root: the trace begins.
    Submit(Box<Submit>),
    /// Creates a child of a running agent: `spawn`, `delegate` or `run_pipeline`.
    Spawn(Box<Spawn>),
    Claim(Claim),
    Tick(Tick),
    Report(Box<Report>),
    Resume(Resume),
    Hold(Hold),
    Release {
        lease: Lease,
        call_id: CallId,
    },
    /// The call was made, and its cost is unknown.
    Forfeit {
        lease: Lease,
        call_id: CallId,
    },
    Settle {
        lease: Lease,
        call_id: CallId,
        amount: Amount,
        /// Used only for statistics of spending; it decides nothing.
        model: Option<ModelName>,
    },
    Charge(Charge),
    /// Books a cost that appears only in a commit outside the valid chain.
    BookLost(LostCost),
    Raise(Raise),
    DecideDispute(DecideDispute),
    SetValue {
        lease: Lease,
        key: ContextKey,
        value: Json,
    },
    DeleteValue {
        lease: Lease,
        key: ContextKey,
    },
    /// Reports a decision of a check other than a pass (B16).
    Checked(CheckReport),
    Answer(AnswerMessage),
    /// Sends a message to an agent.
    Tell(Tell),
    /// Replaces the steps of a running graph.
    Amend(Box<Amend>),
    /// Cancels the whole trace, or one context and its descendants.
    Cancel {
        child_id: Option<ChildId>,
        reason: Option<String>,
        /// Ends the context without undoing its steps (G14).
        without_undo: bool,
    },
    Delete {
        delete: Delete,
        /// The runs that still need journals of this trace; `None` if they are unknown.
        branches: Option<Vec<Branch>>,
    },
    Restore(Restore),
    /// No coordinator served the trace for a while, so its workers could not renew their leases:
    /// expired leases are extended to this time. It is sent before a wake.
    Spare {
        until: Timestamp,
    },
    /// Writes the whole state into the log, if its last copy, or its beginning, is older than this.
    Copy {
        after_ms: u64,
    },
    /// Time has passed: handles every due timer.
    Wake,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    pub spec: ContextSpec,
    pub plan: Option<Arc<Plan>>,
    pub agents: NamedProfiles,
    pub settings: Settings,
    /// The origin of the run, if its spans are exported (X5).
    pub traced: Option<Box<RunOrigin>>,
    /// For a rerun: the results of the earlier run, or the refusal to run it again.
    pub rerun: Option<Result<Earlier, Refusal>>,
    /// Set if a graph that it uses by name can't be read now; the plan then has a stand-in for it
    /// (G18).
    pub unresolved: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spawn {
    pub lease: Lease,
    pub spec: ContextSpec,
    pub plan: Option<Arc<Plan>>,
    pub agents: NamedProfiles,
}

/// The new steps of a graph (G13).
#[derive(Debug, Clone, PartialEq)]
pub struct Amend {
    /// The context of the graph, or of a group in it; `None` for the root.
    pub child_id: Option<ChildId>,
    pub id: CallId,
    /// How many amends the graph had when this one was made.
    pub revision: u32,
    pub plan: Arc<Plan>,
    pub by: Option<Text>,
    pub agents: NamedProfiles,
    /// See `unresolved` of [`Submit`].
    pub unresolved: Option<Refusal>,
    /// Graphs that name a version which is no longer stored: only a run that contains this version
    /// can verify them.
    pub unverified: Vec<UnverifiedGraph>,
}

impl Command {
    /// The revision of the directory of its profiles, if it has profiles.
    pub fn profiles(&self) -> Option<u64> {
        if let Command::Submit(submit) = self {
            submit.agents.revision
        } else if let Command::Spawn(spawn) = self {
            spawn.agents.revision
        } else if let Command::Amend(amend) = self {
            amend.agents.revision
        } else {
            None
        }
    }

    /// For a command that admits contexts: the agents that it names, and the place for their
    /// profiles.
    pub fn named(&mut self) -> Option<(BTreeSet<AgentId>, &mut NamedProfiles)> {
        let (spec, plan, agents) = if let Command::Submit(submit) = self {
            (&submit.spec, &submit.plan, &mut submit.agents)
        } else if let Command::Spawn(spawn) = self {
            (&spawn.spec, &spawn.plan, &mut spawn.agents)
        } else if let Command::Amend(amend) = self {
            return Some((agents_of_plan(&amend.plan), &mut amend.agents));
        } else {
            return None;
        };
        Some((agents_of(spec, plan.as_deref()), agents))
    }
}
