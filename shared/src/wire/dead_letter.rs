//! A dead letter: a message that was refused for good, kept for the operator with the reason. It is
//! information only; nothing is decided by it.

use serde::{Deserialize, Serialize};

use super::Refusal;
use crate::{
    digest,
    id::{CallId, ChildId, TraceId},
    text,
};

/// How much of a refused message is kept. Escaped as JSON, it still fits a server's payload limit.
const KEPT_BYTES: usize = 64 * 1024;

/// A message that was refused, kept for the operator on `agent.dead.…`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DeadLetter {
    pub subject: String,
    pub refusal: Refusal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The message itself as text; bytes that are not UTF-8 are replaced.
    pub payload: String,
}

impl DeadLetter {
    /// `subject` and `payload` are those of the refused message.
    pub fn new(subject: impl Into<String>, payload: &[u8], refusal: Refusal) -> Self {
        // A byte more than is kept, so that a cut is marked.
        let kept = &payload[..payload.len().min(KEPT_BYTES + 1)];
        DeadLetter {
            subject: subject.into(),
            refusal,
            trace_id: None,
            child_id: None,
            call_id: None,
            payload: text::cut(String::from_utf8_lossy(kept).into_owned(), KEPT_BYTES),
        }
    }

    /// Without the message itself, which may hold what not everybody who reads dead letters may see: its size and digest tell which it was.
    pub fn without_content(self, payload: &[u8]) -> Self {
        let (bytes, digest) = (payload.len(), digest::sha256(payload));
        DeadLetter { payload: format!("({bytes} bytes, SHA-256 {digest})"), ..self }
    }

    /// Names the trace and the context that the refused message is about, where they are known.
    pub fn about(self, trace_id: Option<TraceId>, child_id: Option<ChildId>) -> Self {
        DeadLetter { trace_id, child_id, ..self }
    }
}
