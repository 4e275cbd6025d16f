//! The reasons for which a command is refused. A refusal changes nothing. Many refusals are
//! expected answers, not mistakes: a second claim, a report of an older attempt, a hold that does
//! not fit.

use domain::{
    AgentId, CallId, ChildId, ContextKey, Dimension, PoolName, Problems, Timestamp, Usd,
    id::{ModelName, SecretName, ToolName},
    secrets,
    wire::{self, CALL_CONFLICT, EndStatus, HoldDenied, exhausted},
};
use text::set_limit::SetLimit;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("the request is invalid:\n{0}")]
    Malformed(Problems),
    #[error("there is no such run: nothing was submitted under this id, or it has expired")]
    NoTrace,
    #[error("there is no context `{0}` in this run")]
    UnknownContext(ChildId),
    #[error("`{child_id}` already exists with other content; use another child_id")]
    Conflict { child_id: ChildId },
    #[error("`{child_id}` has ended: {status}")]
    Ended { child_id: ChildId, status: EndStatus },

    #[error("depth {depth} is more than {limit}")]
    Depth { depth: u32, limit: Box<SetLimit> },
    #[error("the run has {have} contexts, and {asked} more would exceed {limit}")]
    MaxContexts { asked: u32, have: u32, limit: Box<SetLimit> },
    #[error(
        "the trace keeps {have} bytes, and {asked} more would exceed {limit}\n\nhint: put a large value for many contexts into the shared store (`input_from`), not into each goal or input (for a step with an `undo`, it is counted for each run in both cases)"
    )]
    MaxTraceBytes { asked: u64, have: u64, max: u64, limit: Box<SetLimit> },
    #[error("`{parent}` already has as many live children as {limit}")]
    MaxChildren { parent: ChildId, limit: Box<SetLimit> },
    #[error("an ancestor, `{ancestor}`, already runs agent `{agent}` with the same goal")]
    Cycle { agent: AgentId, ancestor: ChildId },
    #[error("`{parent}` may not use these tools, so its child may not: {}", list(.tools))]
    Tools { parent: ChildId, tools: Vec<ToolName> },
    #[error("`{parent}` does not have {}, so its child may not\n\nhint: a child has only secrets that its caller has; those of a run are named in `secrets` of its submission", secrets::list(.secrets))]
    Secrets { parent: ChildId, secrets: Vec<SecretName> },
    #[error("model `{model}` is not among the allowed_models of `{by}`")]
    Model { model: ModelName, by: ChildId },
    #[error("nothing is left of the {dimension} budget of `{context}`: no child may be spawned under it")]
    NothingLeft { context: ChildId, dimension: Dimension },

    #[error("the worst case of the graph does not fit its budget of {budget}: {why}")]
    DoesNotFit { budget: Usd, why: String },

    #[error("{}", .0.describe("hold"))]
    Denied(Box<HoldDenied>),
    #[error("{}", .0.describe("grant"))]
    NotGranted(Box<HoldDenied>),
    #[error("{}; more may be left after the calls in flight", .0.describe("grant"))]
    Busy(Box<HoldDenied>),
    #[error("{}: no call is made", exhausted(.context, *.dimension))]
    Halted { context: ChildId, dimension: Dimension, pause: bool },
    #[error("call `{0}` was already used with another amount or purpose")]
    CallConflict(CallId),
    #[error("there is no open hold for call `{0}`")]
    NoHold(CallId),
    #[error("the sum of a run, with what is held, can't exceed 2^23 dollars (8,388,608) or 2^53 tokens")]
    BooksFull,
    #[error("a limit can only be raised: `{child_id}` has {limit}")]
    NotARaise { child_id: ChildId, limit: domain::Amount },
    #[error("`{child_id}` can't have more than its parent `{parent}`; raise the parent's limit first")]
    RaiseParentFirst { child_id: ChildId, parent: ChildId },
    #[error("the deployment's maximum for a run, when it was submitted, was {maximum}")]
    AboveMaximum { maximum: domain::Amount },

    #[error("`{child_id}` has no disputed charge number {number}")]
    NoDispute { child_id: ChildId, number: u32 },
    #[error("the disputed charge number {number} of `{child_id}` was decided otherwise before")]
    DisputeDecided { child_id: ChildId, number: u32 },

    #[error("attempt {attempt} of `{child_id}` is not the running one; the latest attempt is {latest}")]
    Stale { child_id: ChildId, attempt: u32, latest: u32 },
    #[error("`{0}` goes back to an earlier step: this attempt may only finish its call")]
    Restored(ChildId),
    #[error("the lease token does not belong to attempt {attempt} of `{child_id}`")]
    WrongToken { child_id: ChildId, attempt: u32 },
    #[error("`{child_id}` is not run by workers of the pool `{pool}`")]
    OtherPool { child_id: ChildId, pool: PoolName },
    #[error("no worker may ask for this")]
    NotOfWorkers,
    #[error(
        "`{agent_id}` is not spawned from the pool `{pool}`\n\nhint: its profile names in `spawned_from` the pools whose agents may spawn it"
    )]
    NotSpawnedFrom { agent_id: AgentId, pool: PoolName },
    #[error("`{child_id}` is claimed until {}", .until.millis())]
    Taken { child_id: ChildId, until: Timestamp },
    #[error("`{child_id}` can't be claimed before {}", .until.millis())]
    NotYet { child_id: ChildId, until: Timestamp },
    #[error("`{child_id}` is not in the queue: it is {status}")]
    NotQueued { child_id: ChildId, status: &'static str },
    #[error("`{child_id}` has no open question number {question}")]
    NoQuestion { child_id: ChildId, question: u32 },
    #[error("a message with the id `{0}` was sent before with another text; a new message needs a new id")]
    MessageConflict(CallId),
    #[error(
        "`{child_id}` is a graph or an `approve` step and runs no agent; send the message to a step that does"
    )]
    RunsNoAgent { child_id: ChildId },
    #[error(
        "`{child_id}` has {has} messages; at most {max} messages and {max_bytes} bytes of text are allowed"
    )]
    TooManyMessages { child_id: ChildId, has: usize, max: usize, max_bytes: usize },

    #[error("`{0}` runs an agent and no graph; name the context of a graph")]
    RunsNoGraph(ChildId),
    #[error("an amend with the id `{0}` was made before with another definition; a new amend needs a new id")]
    AmendConflict(CallId),
    #[error(
        "`{child_id}` was amended meanwhile: this amend was made for revision {made_for}, and it has {revision}"
    )]
    GraphMoved { child_id: ChildId, made_for: u32, revision: u32 },
    #[error("the steps of `{0}` are done and its own agent works on their findings: they can't be amended")]
    SynthesisBegun(ChildId),
    #[error("`{0}` did not succeed, and undoes what had succeeded in it: its steps can't be amended")]
    Undoing(ChildId),
    #[error("`{child_id}` was amended {max} times, and takes no more")]
    TooManyAmends { child_id: ChildId, max: usize },

    #[error(
        "`{child_id}` may not write `{key}`; it may write its output_to and keys that begin with `{child_id}.`"
    )]
    NotWritable { child_id: ChildId, key: ContextKey },
    #[error("`{child_id}` may not read `{key}`; add the key to its input_from")]
    NotReadable { child_id: ChildId, key: ContextKey },
    #[error("{what} of {size} bytes is more than {limit}")]
    TooLarge { size: u64, what: &'static str, limit: Box<SetLimit> },

    #[error("`{target}` is still in use by {}", .referrers.join(", "))]
    Guarded { target: String, referrers: Vec<String> },
    #[error("could not determine who else uses `{target}`; force the delete if you are sure")]
    GuardUnsure { target: String },
    #[error("`{child_id}` can't be restored: {reason}")]
    NotRestorable { child_id: ChildId, reason: &'static str },
    #[error(
        "`{child_id}` can't branch from another context: only a submission can, because a child gets nothing but its goal"
    )]
    ChildBranches { child_id: ChildId },
    #[error("the run already keeps {0} cancels for contexts that don't exist yet, and takes no more")]
    TooManyTombstones(usize),
}

fn list(tools: &[ToolName]) -> String {
    tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(", ")
}

impl Refusal {
    /// Turns the refusal of a call's hold into the refusal of a hold for a child.
    pub(super) fn of_grant(self) -> Self {
        if let Refusal::Denied(denied) = self { Refusal::NotGranted(denied) } else { self }
    }

    /// A code that programs can match, and the id of the rule.
    pub fn code(&self) -> (&'static str, &'static str) {
        match self {
            Refusal::Malformed(_) => ("malformed", "P"),
            Refusal::NoTrace => ("no_trace", "P"),
            Refusal::UnknownContext(_) => ("unknown_context", "P"),
            Refusal::Conflict { .. } => ("conflict", "P"),
            Refusal::Ended { .. } => ("ended", "P"),
            Refusal::Depth { .. } => ("depth", "L"),
            Refusal::MaxContexts { .. } => ("max_contexts", "L"),
            Refusal::MaxTraceBytes { .. } => ("max_trace_bytes", "L"),
            Refusal::MaxChildren { .. } => ("max_children", "L"),
            Refusal::Cycle { .. } => ("cycle", "P"),
            Refusal::Tools { .. } => ("tools", "I5"),
            Refusal::Secrets { .. } => ("secrets", "S8"),
            Refusal::Model { .. } => ("model", "P"),
            Refusal::NothingLeft { .. } => ("budget", "B6"),
            Refusal::DoesNotFit { .. } => ("does_not_fit", "G11"),
            Refusal::Denied(_) | Refusal::NotGranted(_) => ("budget_denied", "B5"),
            Refusal::Busy(_) => ("budget_busy", "B5"),
            Refusal::Halted { .. } => ("halt", "B4"),
            Refusal::CallConflict(_) => (CALL_CONFLICT, "B9"),
            Refusal::NoHold(_) => ("no_hold", "B3"),
            Refusal::BooksFull => ("books_full", "B2"),
            Refusal::NotARaise { .. } => ("not_a_raise", "B8"),
            Refusal::RaiseParentFirst { .. } => ("raise_parent_first", "B8"),
            Refusal::AboveMaximum { .. } => ("above_maximum", "B17"),
            Refusal::NoDispute { .. } => ("no_dispute", "B18"),
            Refusal::DisputeDecided { .. } => ("dispute_decided", "B18"),
            Refusal::Stale { .. } => ("stale", "t5"),
            Refusal::Restored(_) => ("restored", "W5"),
            Refusal::WrongToken { .. } => ("wrong_token", "t5"),
            Refusal::OtherPool { .. } => ("other_pool", "S6"),
            Refusal::NotSpawnedFrom { .. } => ("not_spawned_from", "S6"),
            Refusal::NotOfWorkers => ("not_of_workers", "S6"),
            Refusal::Taken { .. } => ("taken", "t3"),
            Refusal::NotYet { .. } => ("not_yet", "t3"),
            Refusal::NotQueued { .. } => ("not_queued", "t3"),
            Refusal::NoQuestion { .. } => ("no_question", "G7"),
            Refusal::MessageConflict(_) => ("message_conflict", "G13"),
            Refusal::RunsNoAgent { .. } => ("runs_no_agent", "G13"),
            Refusal::TooManyMessages { .. } => ("too_many_messages", "G13"),
            Refusal::RunsNoGraph(_) => ("runs_no_graph", "G13"),
            Refusal::AmendConflict(_) => ("amend_conflict", "G13"),
            Refusal::GraphMoved { .. } => ("graph_moved", "G13"),
            Refusal::SynthesisBegun(_) => ("synthesis_begun", "G13"),
            Refusal::Undoing(_) => ("undoing", "G14"),
            Refusal::TooManyAmends { .. } => ("too_many_amends", "G13"),
            Refusal::NotWritable { .. } => ("not_writable", "C"),
            Refusal::NotReadable { .. } => ("not_readable", "C"),
            Refusal::TooLarge { .. } => ("too_large", "L"),
            Refusal::Guarded { .. } => ("guarded", "W6"),
            Refusal::GuardUnsure { .. } => ("guard_unsure", "W6"),
            Refusal::NotRestorable { .. } => ("not_restorable", "W5"),
            Refusal::ChildBranches { .. } => ("child_branches", "W5"),
            Refusal::TooManyTombstones(_) => ("too_many_cancels", "G8"),
        }
    }

    /// Returns true if the refusal only means that a message arrived twice, late or after the end.
    pub fn is_expected(&self) -> bool {
        matches!(self, Refusal::Stale { .. } | Refusal::Restored(_) | Refusal::Ended { .. })
    }

    /// The refusal in the form for its recipient.
    pub fn to_wire(&self) -> wire::Refusal {
        let (code, rule) = self.code();
        if let Refusal::Malformed(problems) = self {
            return wire::Refusal::invalid(problems);
        }
        wire::Refusal::new(code, rule, self.to_string())
    }
}
