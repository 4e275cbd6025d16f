//! The asks of a worker to the coordinator of its trace, and the answers: request and reply on
//! `agent.ask.<pool>.<p>`. A repeated ask gets the same answer.

use serde::{Deserialize, Serialize};

use super::{Adjustment, ChildSpawn, Execute, Lease, News, Part, PartName, Progress, Refusal, SeenNumbers};
use crate::{
    check::{CheckDecision, Moment},
    id::{CallId, CheckName, ChildId, ContextKey, LeaseToken, ModelName, TraceId, WorkerId},
    json::Json,
    money::{Amount, Dimension, Tokens, Usd, booked},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskMessage {
    pub trace_id: TraceId,
    pub ask: Ask,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    Claim(Claim),
    Tick(Tick),
    Hold(Hold),
    /// The call was not made, so its whole hold is released.
    Release {
        lease: Lease,
        call_id: CallId,
    },
    Settle {
        lease: Lease,
        call_id: CallId,
        amount: Amount,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelName>,
    },
    /// The call was made and its cost is unknown. Its hold is booked as spent and marked as
    /// estimated (B10).
    Forfeit {
        lease: Lease,
        call_id: CallId,
    },
    Resume(Resume),
    Spawn(Box<ChildSpawn>),
    /// Requests a part of the work that its message lacks (`left_out`).
    Part {
        lease: Lease,
        part: PartName,
    },
    Checked(CheckReport),
    ContextGet {
        lease: Lease,
        key: ContextKey,
    },
    ContextList {
        lease: Lease,
    },
    ContextSet {
        lease: Lease,
        key: ContextKey,
        value: Json,
    },
    ContextDelete {
        lease: Lease,
        key: ContextKey,
    },
}

/// Requests to run a context. The worker makes a new random token, so a repeated request is the
/// same claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub child_id: ChildId,
    pub worker_id: WorkerId,
    pub token: LeaseToken,
}

/// Reports that the attempt still runs. It extends the lease unless the attempt must stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    pub lease: Lease,
    #[serde(default)]
    pub progress: Progress,
}

/// Reserves the worst case before a paid call (B3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    pub lease: Lease,
    pub call_id: CallId,
    pub amount: Amount,
    /// True for the agent's last report, which may use its closing reserve (B7).
    #[serde(default)]
    pub closing: bool,
    /// The numbers of messages and rungs that the agent has seen. If there are newer ones, the
    /// answer is `news`, and nothing is held. Absent: the asker takes no news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenNumbers>,
}

/// Reports how the calls of earlier attempts ended, according to the journal. Open holds that it
/// does not list are booked as spent and marked as estimated (B10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub lease: Lease,
    pub settled: Vec<SettledCall>,
}

/// Reports a check decision other than to pass (B16). The journal has it already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckReport {
    pub lease: Lease,
    /// The number of the decision within its context, from 1, as in its journal. A repeated report
    /// is the same event.
    pub number: u32,
    pub check: CheckName,
    pub moment: Moment,
    pub decision: CheckDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledCall {
    pub call_id: CallId,
    pub amount: Amount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Claimed(Box<ClaimAnswer>),
    /// Another attempt has a live lease, or the context must not run yet.
    Taken {
        until: Timestamp,
        /// The time left until `until`.
        for_ms: u64,
    },
    GoOn {
        until: Timestamp,
        left: TimeLeft,
    },
    /// Stop now: the context was cancelled, has ended, or was taken over by another attempt.
    Stop {
        reason: String,
    },
    /// The ask is fulfilled, now or before.
    Done,
    Denied(HoldDenied),
    /// The hold may fit once calls in flight have returned unused money. It has a place in the
    /// queue. Ask again with the same `call_id`, or report `out_of_budget` to keep the place
    /// without a worker.
    Wait(HoldDenied),
    /// Nothing is held, because the agent must see this news before its call. Write it to the
    /// journal, then ask again (G13, B21).
    News(Box<News>),
    /// The budget is used up, so make no call (B4). With `pause`, report `out_of_budget`.
    Halt {
        context: ChildId,
        dimension: Dimension,
        pause: bool,
    },
    Spawned {
        child_id: ChildId,
        /// The terms that are lower than the spawn requested (B17).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        adjusted: Vec<Adjustment>,
    },
    /// `null` is a value; an absent key has no `value`.
    Value {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<ContextValue>,
    },
    /// In order. There may be more keys than fit into a message.
    Keys {
        keys: Vec<ContextKey>,
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: u64,
    },
    Part(Box<Part>),
    Refused(Refusal),
}

impl Answer {
    /// Returns the reason why `ask` was not fulfilled. An answer of another ask becomes a refusal:
    /// the coordinator uses another version of the protocol.
    pub fn into_refusal(self, ask: &str) -> Refusal {
        match self {
            Answer::Refused(refusal) => refusal,
            Answer::Denied(denied) => Refusal::new(
                "budget_denied",
                "B5",
                denied.describe(if ask == "spawn" { "grant" } else { "hold" }),
            ),
            Answer::Wait(denied) => {
                Refusal::new("budget_busy", "B5", format!("{}; ask again", denied.describe("hold")))
            }
            Answer::Halt { context, dimension, .. } => {
                Refusal::new("halt", "B4", exhausted(&context, dimension))
            }
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Done
            | Answer::News(_)
            | Answer::Spawned { .. }
            | Answer::Value { .. }
            | Answer::Keys { .. }
            | Answer::Part(_) => Refusal::unexpected(ask),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The message about a budget that is used up.
pub fn exhausted(context: &ChildId, dimension: Dimension) -> String {
    format!("the {dimension} budget of `{context}` is used up")
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimAnswer {
    pub lease: Lease,
    pub lease_until: Timestamp,
    pub left: TimeLeft,
    /// The current work, which may be newer than the delivery.
    pub work: Execute,
    /// Holds of earlier attempts that are still open. Report their ends with `resume`.
    pub open_holds: Vec<OpenHold>,
}

/// The time that an attempt has left, as of this answer. A worker counts it down by a clock that
/// includes suspended time, because its time of day may differ from the coordinator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeLeft {
    /// The coordinator's time.
    pub now: Timestamp,
    /// The time until the lease expires.
    pub lease_ms: u64,
    /// The time until the deadline of the context. Absent if it has no deadline, or if the deadline
    /// is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenHold {
    pub call_id: CallId,
    pub attempt: u32,
    pub amount: Amount,
}

/// The reason why a hold does not fit: the context that denies it, the dimension, and the amounts
/// left there (B5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldDenied {
    pub context: ChildId,
    pub dimension: Dimension,
    pub asked: Amount,
    pub limit: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub spent: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub held: Amount,
    pub left_usd: Usd,
    pub left_tokens: Tokens,
    /// The context may wait for more budget. If no cheaper call is possible, report `out_of_budget`
    /// (B8).
    #[serde(default)]
    pub pause: bool,
}

impl HoldDenied {
    /// Describes why a hold or a grant (`what`) does not fit, with all amounts.
    pub fn describe(&self, what: &str) -> String {
        let HoldDenied { context, asked, limit, spent, held, left_usd, left_tokens, .. } = self;
        match self.dimension {
            Dimension::Cost => format!(
                "a {what} of {} was denied by the cost budget of `{context}`: limit {}, spent {}, held {}, left \
                 {left_usd}",
                asked.cost_usd, limit.cost_usd, spent.cost_usd, held.cost_usd
            ),
            Dimension::Tokens => format!(
                "a {what} of {} tokens was denied by the token budget of `{context}`: limit {}, spent {}, held \
                 {}, left {left_tokens}",
                asked.tokens, limit.tokens, spent.tokens, held.tokens
            ),
        }
    }
}

/// A value of the shared store, and its writer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextValue {
    pub value: Json,
    /// The context that wrote it. Absent for an input of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<ChildId>,
    pub version: u32,
    pub size_bytes: u64,
}
