//! The form of an open question to a human, and its times (G7).

use domain::{
    Timestamp,
    graph::{Form, MAX_REMINDERS},
};
use serde::{Deserialize, Serialize};

use super::event::is_default;

/// The details of an open question besides its text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionDetails {
    pub form: Form,
    pub at: Timestamp,
    /// How many times it was asked again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reminders: u32,
}

impl QuestionDetails {
    pub fn answer_by(&self) -> Option<Timestamp> {
        self.form.timeout_ms.map(|ms| self.at.plus_millis(ms))
    }

    /// The time at which it is asked again, or its wait ends.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let every = self.form.remind_every_ms.filter(|_| self.reminders < MAX_REMINDERS);
        let again = every.map(|ms| self.at.plus_millis(ms.saturating_mul(u64::from(self.reminders) + 1)));
        self.answer_by().into_iter().chain(again).min()
    }
}
