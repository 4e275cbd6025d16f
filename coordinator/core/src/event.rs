//! The events of a trace. An event is a fact: applying it never fails and never decides. The
//! ordered list of events is the trace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    AgentProfile, Amount, CallId, ChildId, ContextKey, Dimension, Json, Limits, ThreadId, Timestamp, Tokens,
    Usd, WorkerId,
    check::{CheckDecision, Moment},
    graph::{GroupIndex, Plan, StepIndex},
    id::{CheckName, ModelName, ToolName},
    ladder::Fraction,
    limits::Settings,
    money::booked,
    wire::{
        Adjustment, Asker, Decision, DisputedCost, EndStatus, Failure, Form, Hitl, OnExhausted, Payload,
        Progress, Sender, StepStatus, TakenFrom, Text,
    },
};
use serde::{Deserialize, Serialize};

use super::{ContextSpec, KeptResult, Rerun, RunOrigin, StepPlace, TokenHash, budget::GrantedDimensions};

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Opened {
        settings: Box<Settings>,
        /// The origin of the run, if its spans are exported (X5).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traced: Option<Box<RunOrigin>>,
    },
    /// The store lost the trace, or its latest events, and the trace was rebuilt from its log.
    Rebuilt {
        /// The number of rebuilds so far.
        generation: u32,
    },
    /// A part of a copy of the whole state. A rebuild does not need the log before a copy.
    Copied(Box<CopyPart>),
    AgentAdded {
        agent: Box<AgentProfile>,
        /// The version of the profile; a built-in agent has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    PlanAdded {
        plan: Arc<Plan>,
    },
    /// The run takes over the succeeded steps of an earlier run (G15).
    RerunBegun {
        rerun: Box<Rerun>,
    },
    /// A result of the earlier run. It is taken if its step would read the same values again.
    ResultKept {
        place: StepPlace,
        kept: Box<KeptResult>,
    },
    /// A graph continues with another plan. A step with the same id is the same step; steps that
    /// have begun are unchanged in the plan (G13).
    Amended {
        /// The context of the whole graph.
        child_id: ChildId,
        id: CallId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
        plan: Arc<Plan>,
    },
    /// A cancel arrived before the context that it cancels.
    Tombstoned {
        child_id: Option<ChildId>,
        reason: String,
    },
    Admitted(Box<ContextAdmitted>),
    WindowClamped {
        child_id: ChildId,
        parent_id: ChildId,
        parent_tokens: Tokens,
        child_tokens: Tokens,
    },

    Claimed {
        child_id: ChildId,
        attempt: u32,
        token: TokenHash,
        worker_id: WorkerId,
        until: Timestamp,
    },
    /// A tick with progress. A tick without progress only extends the lease, in memory (`lease`).
    Ticked {
        child_id: ChildId,
        until: Timestamp,
        progress: Progress,
    },
    Progressed {
        child_id: ChildId,
        progress: Progress,
    },
    /// A decision of a check other than a pass (B16).
    Checked {
        child_id: ChildId,
        /// The number of the decision within its context.
        number: u32,
        check: CheckName,
        moment: Moment,
        decision: CheckDecision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    AttemptLost {
        child_id: ChildId,
        attempt: u32,
    },
    Requeued {
        child_id: ChildId,
        why: Requeue,
        not_before: Timestamp,
    },
    /// The work is sent again: its delay has passed, or no worker claimed it.
    Redispatched {
        child_id: ChildId,
    },
    Waiting {
        child_id: ChildId,
        children: Vec<ChildId>,
        hand_over: bool,
    },
    InputRequired {
        child_id: ChildId,
        number: u32,
        question: Text,
        path: Vec<ChildId>,
        /// The form of a valid answer, and what happens without an answer. Absent: any text is
        /// valid, without a time limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<Box<Form>>,
    },
    /// The question is asked again.
    Reminded {
        child_id: ChildId,
        number: u32,
        reminder: u32,
    },
    Answered {
        child_id: ChildId,
        number: u32,
        answer: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
        /// True if the answer is the question's default, because none arrived in time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        default: bool,
    },
    /// A message to the agent, which it sees before its next model call.
    Told {
        child_id: ChildId,
        number: u32,
        id: CallId,
        text: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
    },
    /// The agent makes a call that includes all messages up to this one.
    MessagesSeen {
        child_id: ChildId,
        number: u32,
    },
    Paused {
        child_id: ChildId,
        reason: String,
        /// The context keeps its place in the line of holds, and continues when its turn comes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_line: bool,
    },
    Ended(Box<ContextEnded>),
    /// The graph undoes its succeeded steps, and ends like this afterwards (G14).
    UndoingBegun(Box<ContextEnded>),
    /// The undo of a context can't be started.
    UndoRefused {
        /// The graph.
        child_id: ChildId,
        undoes: ChildId,
        reason: String,
    },
    /// The context has ended and no hold of it is open: its outcome is final (B20).
    Closed {
        child_id: ChildId,
    },
    Deleted {
        child_id: ChildId,
        /// The administrator who requested it (S7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Asker>,
    },
    /// The next attempt continues from an earlier step of the journal (W5).
    Restored {
        child_id: ChildId,
        number: u32,
        to: u32,
        /// The administrator who requested it (S7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Asker>,
    },

    Held {
        child_id: ChildId,
        call_id: CallId,
        attempt: u32,
        amount: Amount,
    },
    /// The hold fits once calls in flight have ended: it waits in the line.
    HoldQueued {
        child_id: ChildId,
        call_id: CallId,
        attempt: u32,
        amount: Amount,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        closing: bool,
    },
    /// The hold no longer waits: it can never fit, or its turn had come and no worker claimed the
    /// context in time.
    PlaceLost {
        child_id: ChildId,
        call_id: CallId,
    },
    Settled {
        child_id: ChildId,
        call_id: CallId,
        amount: Amount,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelName>,
    },
    Released {
        child_id: ChildId,
        call_id: CallId,
    },
    /// The end of the call is unknown: the hold is booked as spent and marked as estimated.
    Forfeited {
        child_id: ChildId,
        call_id: CallId,
    },
    /// A call that only lost commits contain: its hold is booked as spent and marked as estimated.
    Estimated {
        child_id: ChildId,
        call_id: CallId,
        attempt: u32,
        amount: Amount,
    },
    /// The real cost of a call that was booked as an estimate, or released.
    Corrected {
        child_id: ChildId,
        call_id: CallId,
        amount: Amount,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelName>,
    },
    Charged {
        child_id: ChildId,
        key: CallId,
        amount: Amount,
        /// The administrator who requested it (S7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Asker>,
    },
    /// A cost without a hold, or the part of a cost for which too little was left: it is not booked
    /// (B18).
    Disputed {
        child_id: ChildId,
        amount: Amount,
        of: DisputedCost,
        sent_by: Sender,
    },
    DisputeDecided {
        child_id: ChildId,
        number: u32,
        decision: Decision,
        /// The administrator who requested it (S7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Asker>,
    },
    Exhausted {
        child_id: ChildId,
        dimension: Dimension,
    },
    /// A correction returned money to an exhausted budget of a context with `on_exhausted: pause`.
    Replenished {
        child_id: ChildId,
    },
    Raised {
        child_id: ChildId,
        limit: Amount,
        /// The administrator who requested it (S7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Asker>,
    },
    /// The budget has reached a rung of its ladder, which applies from here on (B21).
    RungReached {
        child_id: ChildId,
        /// Its place in the ladder, from 1.
        rung: u32,
        at: Fraction,
        #[serde(deserialize_with = "booked::usd")]
        left_usd: Usd,
        #[serde(deserialize_with = "booked::tokens")]
        left_tokens: Tokens,
    },

    ValueSet {
        key: ContextKey,
        value: Json,
        writer: Option<ChildId>,
    },
    ValueDeleted {
        key: ContextKey,
    },
    StoreCleared,

    /// A `when` or `until` was evaluated; `saw` has the values that it read.
    ConditionAsked {
        child_id: ChildId,
        step: StepIndex,
        question: String,
        answer: Result<bool, String>,
        saw: Json,
    },
    /// A `for_each` has read its list.
    ItemsTaken {
        child_id: ChildId,
        step: StepIndex,
        items: Json,
    },
    /// An item could not be started; the other items continue.
    ItemRefused {
        child_id: ChildId,
        step: StepIndex,
        item: u32,
        reason: String,
    },
    /// The context has a result of the earlier run. Its admission and its end are in the same
    /// commit (G15).
    KeptTaken {
        child_id: ChildId,
        place: StepPlace,
    },
    /// The items of a step would read other values than in the earlier run: none of their results
    /// is taken.
    KeptDropped {
        child_id: ChildId,
        place: StepPlace,
    },
    /// The step continues: its next round, or its fallback, is started next.
    StepContinues {
        child_id: ChildId,
        step: StepIndex,
        next: Ran,
    },
    StepEnded {
        child_id: ChildId,
        step: StepIndex,
        status: StepStatus,
        reason: Option<String>,
        partial: bool,
    },
    /// Every step that has not begun is skipped.
    StepsSkipped {
        child_id: ChildId,
        reason: String,
    },
    /// `aggregate` stops waiting: steps that are not done are missing.
    GatheringEnded {
        child_id: ChildId,
    },
    /// The steps are done; the graph's own agent begins the synthesis.
    SynthesisBegun {
        child_id: ChildId,
        /// The bounds that its profile lowers (B17).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lowered: Option<Box<LoweredBounds>>,
    },
}

/// A part of a copy: fields of the stored trace, and values of its shared store, each as JSON text.
/// A large text continues in the next part, under the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CopyPart {
    /// The number of the part, from 1. The parts of a copy follow each other in one commit.
    pub part: u32,
    pub parts: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

impl CopyPart {
    pub(super) fn is_last(&self) -> bool {
        self.part == self.parts
    }

    /// The part without its content, for a deleted trace. No rebuild can begin with it.
    pub(super) fn without_content(&self) -> Self {
        CopyPart { part: self.part, parts: self.parts, ..CopyPart::default() }
    }
}

/// The bounds of a graph's own agent, which apply when the graph's steps are done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoweredBounds {
    /// The most that its own calls may cost.
    pub own: Amount,
    pub limits: Arc<Limits>,
    /// The time from the start of its attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
}

/// A context was created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContextAdmitted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ChildId>,
    #[serde(rename = "order")]
    pub spec: Arc<ContextSpec>,
    pub body: Body,
    /// The step that it runs, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepOf>,
    /// The context of an earlier run whose result this one has (G15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenFrom>,
    /// The amount held for its undo (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Amount>,
    /// The context that it undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<ChildId>,
    pub depth: u32,
    pub ceiling: Amount,
    #[serde(default, skip_serializing_if = "is_default")]
    pub granted: GrantedDimensions,
    #[serde(default, skip_serializing_if = "is_default")]
    pub closing_reserve_usd: Usd,
    /// Absent: its parent's limits; for a root, those of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Arc<Limits>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    /// The deadline set at admission, for a graph or a submission that requests one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Its own timeout, from the start of its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_exhausted: OnExhausted,
    #[serde(default, skip_serializing_if = "is_default")]
    pub hitl: Hitl,
    /// The graph whose keys it reads and writes, if that is not the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ChildId>,
    /// Inherited unchanged from the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The dimensions in which its ceiling is its parent's: a raise of the parent raises it too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: GrantedDimensions,
    /// The limits and amounts that are lower than requested in the spec (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Agent,
    /// A graph or one of its groups: the plan, and the group in it.
    Graph {
        plan: u32,
        group: GroupIndex,
    },
    /// An `approve` step: it waits for a human (G7).
    Approval,
}

/// The step of its parent that a context runs, and its role in that step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepOf {
    pub step: StepIndex,
    pub ran: Ran,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    Itself,
    Item(u32),
    Round(u32),
    Fallback,
}

/// The reason why a context is in the queue again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// An attempt failed and is retried: it uses a retry.
    Retry,
    /// Its worker was lost; `attempt_lost` counts the retry.
    Lost,
    HandedBack,
    ChildrenEnded,
    Answered,
    Raised,
    /// Its turn in the line of holds has come, or more money is left than when it paused.
    Room,
    Synthesis,
    Restored,
}

/// The end of a context: the first such event is final.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContextEnded {
    pub child_id: ChildId,
    pub status: EndStatus,
    pub result: Option<Payload>,
    pub error: Option<Failure>,
    pub reason: Option<String>,
    /// Its succeeded steps are not undone (G14).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_undo: bool,
}
