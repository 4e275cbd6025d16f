//! The journal of a context, on `agent.history.<pool>.<trace>.<child>`: every model answer and tool
//! call, in order. Each entry is a checkpoint (W5). An entry is appended only directly after the
//! last one that its writer has seen. So a worker that lost its context can't add to the journal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ObjectReference, PersonMessage, ReachedRung, Verdict};
use crate::{
    check::{CheckDecision, Moment},
    id::{CallId, CheckName, ChildId, ModelName, ToolName, TraceId, WorkerId},
    json::Json,
    money::Amount,
    time::Timestamp,
    usage::Usage,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryEntry {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The place in the journal, from 1.
    pub number: u32,
    /// The attempt that wrote it.
    pub attempt: u32,
    pub at: Timestamp,
    pub step: HistoryStep,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryStep {
    /// A later attempt took over. From here on, entries of earlier attempts are rejected.
    Began { worker_id: WorkerId },
    /// A model answered.
    Model(Box<ModelStep>),
    /// A paid call whose end is unknown (B10).
    Lost(Box<LostStep>),
    /// A tool was called and answered, or failed.
    Tool(Box<ToolStep>),
    /// The entries after `to` and before this one are ignored (W5). The restores of a context are
    /// numbered from 1. Each is written once, by any attempt.
    Restored { number: u32, to: u32 },
    /// A branch: the model, tool, message, received and compacted entries of another context up to
    /// `from.step` follow as `copies` copies (W5). The other context paid for them.
    Branched { from: Checkpoint, copies: u32 },
    /// The files that the caller handed over, as copied for this context (G10). They are in its
    /// `outputs/`.
    Received { files: Vec<OutputFile> },
    /// A message to the agent. The agent sees it from here on (G13).
    Told(Box<PersonMessage>),
    /// The budget has reached a rung, which applies from here on (B21).
    Rung(Box<ReachedRung>),
    /// A check decided about a call before the call was made (B16), and the call itself has no
    /// entry.
    Checked(Box<CheckedStep>),
    /// The window was full, so it no longer shows all of the entries `from` to `to` (W7). The
    /// journal keeps them. A summary of entries is a model's answer with [`ModelStep::summary_of`].
    Compacted { from: u32, to: u32, how: CompactionKind },
    /// The end of the agent's work, with its verdict.
    Result(Box<ResultStep>),
}

/// The replacement for compacted entries in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionKind {
    /// Tool outputs become references: the tool, the size, and the place where they can be read
    /// again.
    References,
    /// Entries are left out, and a line mentions it.
    Dropped,
}

impl HistoryStep {
    pub fn as_model(&self) -> Option<&ModelStep> {
        if let HistoryStep::Model(step) = self { Some(step) } else { None }
    }

    pub fn as_result(&self) -> Option<&ResultStep> {
        if let HistoryStep::Result(step) = self { Some(step) } else { None }
    }

    /// Returns the paid call of this entry and its cost (B19).
    pub fn paid_call(&self) -> Option<(&CallId, Amount)> {
        match self {
            HistoryStep::Model(step) => Some((&step.call_id, step.cost.amount)),
            HistoryStep::Lost(lost) => Some((&lost.call_id, lost.amount)),
            HistoryStep::Began { .. }
            | HistoryStep::Tool(_)
            | HistoryStep::Told(_)
            | HistoryStep::Received { .. }
            | HistoryStep::Rung(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Checked(_)
            | HistoryStep::Compacted { .. }
            | HistoryStep::Result(_) => None,
        }
    }

    /// Returns the decisions of checks in this entry (B16).
    pub fn checks(&self) -> &[CheckedStep] {
        match self {
            HistoryStep::Model(step) => &step.checks,
            HistoryStep::Tool(step) => &step.checks,
            HistoryStep::Checked(step) => std::slice::from_ref(&**step),
            HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Received { .. }
            | HistoryStep::Told(_)
            | HistoryStep::Rung(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Compacted { .. }
            | HistoryStep::Result(_) => &[],
        }
    }

    /// Returns true if a branch copies the entry: a model's or tool's answer, a message to the
    /// agent, files that it got, or a compaction of its window. All other entries are bookkeeping.
    pub fn is_work(&self) -> bool {
        match self {
            HistoryStep::Model(_)
            | HistoryStep::Tool(_)
            | HistoryStep::Received { .. }
            | HistoryStep::Told(_)
            | HistoryStep::Compacted { .. } => true,
            HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Rung(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Checked(_)
            | HistoryStep::Result(_) => false,
        }
    }
}

/// Returns true if the journal of a branch has all its copies.
pub fn has_all_copies<'a>(journal: impl IntoIterator<Item = &'a HistoryStep>) -> bool {
    let (mut copies, mut work) = (None, 0_u32);
    for step in journal {
        work += u32::from(step.is_work());
        if let HistoryStep::Branched { copies: all, .. } = step {
            copies = copies.or(Some(*all));
        }
    }
    copies.is_some_and(|copies| work >= copies)
}

/// Distinguishes a context's own entries from the copies at the beginning of a branch (W5), which
/// another context paid for. Other entries can be between the copies: an attempt that took over
/// while they were written adds one.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// The number of copies that are still to come.
    left: u32,
}

impl Copies {
    /// Returns true if the next entry is a copy.
    pub fn is_copy(&mut self, step: &HistoryStep) -> bool {
        if let HistoryStep::Branched { copies, .. } = step {
            self.left = *copies;
            return false;
        }
        let is_copy = self.left > 0 && step.is_work();
        self.left -= u32::from(is_copy);
        is_copy
    }
}

/// A place in the journal of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The number of the last entry that is included.
    pub step: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelStep {
    pub call_id: CallId,
    /// The model that answered: the agent's own, or its fallback.
    pub model: ModelName,
    pub cost: CallCost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// A digest of everything that was sent. If the next call begins with the same content, the
    /// worker knows from this entry how many tokens that beginning has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The beginning of the sent messages, if no earlier entry has the same beginning. A program
    /// may send other messages in every call. For a program, the first call has it, and then each
    /// call with another system message or other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Box<Prompt>>,
    /// The number of retries of calls in the context so far.
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The token limit of the answer. It is lower than usual if the budget is too small (B5).
    pub max_tokens: u32,
    /// The answer reached its token limit.
    #[serde(default)]
    pub cut_off: bool,
    /// The answer is the agent's last report, paid from the closing reserve (B7).
    #[serde(default)]
    pub closing: bool,
    /// Identifies the request of a program. The same request in a later attempt gets this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The decisions of checks about this call and about the tool calls it requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedStep>,
    /// Set if this is not an answer of the agent but a summary of the entries up to this number.
    /// The window shows the summary instead of them (W7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_of: Option<u32>,
    /// The tools that the answer calls although they were not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unoffered: Vec<String>,
}

/// The messages that a model got before the first answer of the conversation, as they were sent.
/// The journal has the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Prompt {
    pub messages: Vec<PromptMessage>,
    /// The tools that were offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PromptMessage {
    pub role: PromptRole,
    /// The text. Of a long text, only the beginning.
    pub text: String,
    /// The bytes of the whole text.
    pub size_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptRole {
    System,
    User,
}

impl ModelStep {
    /// Returns the check that denied this answer, or halted the context because of it. The tool
    /// calls of such an answer are not stored.
    pub fn denied(&self) -> Option<&CheckedStep> {
        self.checks.iter().find(|step| step.denies_answer())
    }
}

/// The decision of one check about one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckedStep {
    pub check: CheckName,
    pub moment: Moment,
    pub decision: CheckDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The call; the same value in every attempt. Absent for the call of the entry itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// A human was asked. Each such decision uses one answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// The new texts of messages that the check changed, by a digest of the old text. The change
    /// applies to every later call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<String, String>,
    /// Digests of message texts that a program or an MCP tool has judged. Later calls send these
    /// texts, or their changed forms, without judging them again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub judged: BTreeSet<String>,
}

impl CheckedStep {
    /// Returns true if the answer of this decision must not be used.
    pub fn denies_answer(&self) -> bool {
        self.moment == Moment::AfterCall && matches!(self.decision, CheckDecision::Deny | CheckDecision::Halt)
    }
}

/// A call that was made without an answer. It is booked at its hold. If its real cost arrives
/// later, the budget is corrected, and this entry stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LostStep {
    pub call_id: CallId,
    /// `None` if an earlier attempt lost the call: only its hold is known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The call's hold.
    pub amount: Amount,
    /// The cause of the loss, as far as it is known.
    pub cause: String,
}

/// The cost of one call, and the price table used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallCost {
    pub amount: Amount,
    /// The provider reported no usage, so the cost is the hold.
    #[serde(default)]
    pub estimated: bool,
    /// The price table and its version.
    pub prices: String,
}

/// A tool call that a model requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The model's id for this call.
    pub id: String,
    /// The name as the model wrote it. A tool of that name may not exist.
    pub tool: String,
    pub arguments: Json,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolStep {
    /// The `id` of the call that it answers.
    pub id: String,
    /// The tool; `agent:spawn` for all tools that start a child (I2).
    pub tool: ToolName,
    pub output: ToolOutput,
    #[serde(default)]
    pub is_error: bool,
    /// A description of the action, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The decisions of checks about the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedStep>,
}

impl ToolStep {
    /// Returns true if the tool was called and a check then denied its output.
    pub fn output_denied(&self) -> bool {
        let denied = |step: &CheckedStep| {
            step.moment == Moment::AfterTool
                && matches!(step.decision, CheckDecision::Deny | CheckDecision::Halt)
        };
        self.checks.iter().any(denied)
    }
}

/// The output of a tool; a large one is stored as an object, and the window gets a preview (W4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutput {
    Inline(String),
    Offloaded {
        /// The path in the workspace.
        path: String,
        preview: String,
        object: ObjectReference,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultStep {
    pub verdict: Verdict,
    /// The files that it left in `outputs/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputFile>,
    /// The sandbox layers of a program, and those that were not available (I4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// The path below `outputs/`.
    pub path: String,
    pub object: ObjectReference,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxReport {
    pub applied: Vec<AppliedLayer>,
    pub missing: Vec<MissingLayer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppliedLayer {
    pub layer: crate::sandbox::Layer,
    /// The extent of the layer: an ABI version, or the limits.
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingLayer {
    pub layer: crate::sandbox::Layer,
    pub reason: String,
}

/// The output of a working agent, on `agent.stream.<trace>.<child>`. It is not stored; finished
/// steps are in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamPiece {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    pub attempt: u32,
    /// The number of the journal entry that this piece will be part of.
    pub number: u32,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A piece of a model's answer.
    Text(String),
    /// The call is retried, so the text so far is invalid.
    Again { why: String },
    /// A tool is being called.
    Tool { tool: String },
    /// A message from a program.
    Progress { message: String },
}
