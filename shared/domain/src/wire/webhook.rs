//! The notices for webhooks between coordinators, and the bodies that webhooks receive.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    id::{ChildId, TraceId},
    time::Timestamp,
};

/// A notice on the subject of a webhook and a context. It refers to an outcome or a question of
/// that context. The content is read from the log when the webhook is called, so content that was
/// deleted in between is never sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum WebhookOccasion {
    Outcome,
    Question { number: u32, reminder: u32 },
}

impl WebhookOccasion {
    /// Returns a key that is unique among the notices of a context.
    pub fn key(&self) -> String {
        match self {
            WebhookOccasion::Outcome => "outcome".into(),
            WebhookOccasion::Question { number, reminder } => format!("question.{number}.{reminder}"),
        }
    }

    /// Returns the id of the message. Receivers detect repeated messages by it.
    pub fn id(&self, trace: TraceId, child: &ChildId) -> String {
        format!("{trace}.{child}.{}", self.key())
    }

    /// Returns the type in the body.
    pub fn kind(&self) -> &'static str {
        match self {
            WebhookOccasion::Outcome => "outcome",
            WebhookOccasion::Question { .. } => "question",
        }
    }
}

/// The body that a webhook receives: the outcome or the question as on the bus.
#[derive(Debug, Serialize)]
pub struct WebhookBody<'a> {
    pub r#type: &'static str,
    /// The time of the event.
    pub timestamp: Timestamp,
    pub data: &'a RawValue,
}
