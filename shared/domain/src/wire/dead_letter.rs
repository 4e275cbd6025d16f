//! A dead letter: the record of a message that was rejected for good, with the reason. It is for
//! the operator; no decision depends on it.

use serde::{Deserialize, Serialize};

use super::Refusal;
use crate::{
    digest,
    id::{CallId, ChildId, TraceId},
};

/// The record of a rejected message, for the operator, on `agent.dead.…`.
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
    /// The size and the digest of the message, which identify it. The message itself is left out,
    /// because it may have content that readers of dead letters may not see.
    pub payload: String,
}

impl DeadLetter {
    /// Makes a dead letter from the rejected message's subject and payload. `payload` is `None` if
    /// a rejection is not about a message.
    pub fn new(subject: impl Into<String>, payload: Option<&[u8]>, refusal: Refusal) -> Self {
        let told = |payload: &[u8]| format!("({} bytes, SHA-256 {})", payload.len(), digest::sha256(payload));
        DeadLetter {
            subject: subject.into(),
            refusal,
            trace_id: None,
            child_id: None,
            call_id: None,
            payload: payload.map(told).unwrap_or_default(),
        }
    }

    /// Adds the trace and the context of the rejected message, as far as they are known.
    pub fn about(self, trace_id: Option<TraceId>, child_id: Option<ChildId>) -> Self {
        DeadLetter { trace_id, child_id, ..self }
    }
}
