//! What a trace can be told to do. What a command needs from outside (fresh ids, tokens, profiles,
//! settings) comes in with it.

use std::sync::Arc;

use shared::{
    AgentProfile, Amount, CallId, ChildId, ContextKey, Json, Timestamp,
    graph::Plan,
    limits::Settings,
    wire::{
        Answered, Branch, Charge, Checked, Claim, DecideDispute, Delete, Hold, Lease, Raise, Report, Restore,
        Resume, Tick,
    },
};

use super::{LostCost, Order};

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
    Checked(Checked),
    Answer(Answered),
    /// The whole trace, or one context and its descendants.
    Cancel {
        child_id: Option<ChildId>,
        reason: Option<String>,
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
    pub order: Order,
    pub plan: Option<Arc<Plan>>,
    /// The profiles the order or its plan names, as far as the directory has them.
    pub agents: Vec<AgentProfile>,
    pub settings: Settings,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spawn {
    pub lease: Lease,
    pub order: Order,
    pub plan: Option<Arc<Plan>>,
    pub agents: Vec<AgentProfile>,
}
