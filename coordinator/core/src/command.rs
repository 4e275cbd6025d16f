//! What a trace can be told to do. What a command needs from outside (fresh ids, tokens, profiles,
//! settings) comes in with it.

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
    /// The root: the trace begins.
    Submit(Box<Submit>),
    /// A running agent's child: `spawn`, `delegate` or `run_pipeline`.
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
        /// For those who add up what is spent on it: decides nothing.
        model: Option<ModelName>,
    },
    Charge(Charge),
    /// A cost that stands only in a commit that does not count.
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
    /// A check decided other than to pass (B16).
    Checked(CheckReport),
    Answer(AnswerMessage),
    /// A message to an agent.
    Tell(Tell),
    /// Other steps for a graph that runs.
    Amend(Box<Amend>),
    /// The whole trace, or one context and its descendants.
    Cancel {
        child_id: Option<ChildId>,
        reason: Option<String>,
        /// Nothing is undone (G14).
        without_undo: bool,
    },
    Delete {
        delete: Delete,
        /// The runs that still need journals of this trace; none if that is unknown.
        branches: Option<Vec<Branch>>,
    },
    Restore(Restore),
    /// Nobody served the trace for a while, so that its workers could not renew their leases: those that have
    /// expired last until then instead. Comes before a wake.
    Spare {
        until: Timestamp,
    },
    /// Writes the whole state into the log, if its last copy, or its beginning, is so old.
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
    /// Where it came from, if its spans are exported (X5).
    pub traced: Option<Box<RunOrigin>>,
    /// Of a rerun: what the earlier run has, or why it can't be run again.
    pub rerun: Option<Result<Earlier, Refusal>>,
    /// Why it can't be admitted with what is kept under the names that it uses now; the plan has stand-ins then (G18).
    pub unresolved: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spawn {
    pub lease: Lease,
    pub spec: ContextSpec,
    pub plan: Option<Arc<Plan>>,
    pub agents: NamedProfiles,
}

/// The steps of a graph as they are to be (G13).
#[derive(Debug, Clone, PartialEq)]
pub struct Amend {
    /// The context of the graph, or of a group in it; none: the root.
    pub child_id: Option<ChildId>,
    pub id: CallId,
    /// How often the graph had been amended when this was made.
    pub revision: u32,
    pub plan: Arc<Plan>,
    pub by: Option<Text>,
    pub agents: NamedProfiles,
    /// As of a submission.
    pub unresolved: Option<Refusal>,
    /// The graphs of which only the run can tell that they are what they say.
    pub unverified: Vec<UnverifiedGraph>,
}

impl Command {
    /// The revision of the directory whose profiles it has, if it has any.
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

    /// What is to be admitted with the profiles of the directory: the agents it names, and the place for their profiles.
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
