//! What a webhook is to be told of, between coordinators, and what it is told.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    id::{ChildId, TraceId},
    time::Timestamp,
};

/// On the subject of a webhook and a context: names an outcome or a question of that context. What it says is read from the log when the
/// webhook is told, so that nothing is told of what was deleted meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum WebhookOccasion {
    Outcome,
    Question { number: u32, reminder: u32 },
}

impl WebhookOccasion {
    /// Which of its context's it is.
    pub fn key(&self) -> String {
        match self {
            WebhookOccasion::Outcome => "outcome".into(),
            WebhookOccasion::Question { number, reminder } => format!("question.{number}.{reminder}"),
        }
    }

    /// The id of the message, by which a receiver knows that it has it already.
    pub fn id(&self, trace: TraceId, child: &ChildId) -> String {
        format!("{trace}.{child}.{}", self.key())
    }

    /// The type that a receiver is told.
    pub fn kind(&self) -> &'static str {
        match self {
            WebhookOccasion::Outcome => "outcome",
            WebhookOccasion::Question { .. } => "question",
        }
    }
}

/// The body that a webhook receives: the outcome or the question as it is on the bus.
#[derive(Debug, Serialize)]
pub struct WebhookBody<'a> {
    pub r#type: &'static str,
    /// When it happened.
    pub timestamp: Timestamp,
    pub data: &'a RawValue,
}
