//! The terms that submissions, agent profiles and steps of a graph have in common: who pays, what happens
//! when the budget is used up or a human is needed, and the text of a goal.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::limits::MAX_TEXT_BYTES;

/// How a child's ceiling relates to its parent's budget (B6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Funding {
    /// Uses its ancestors' budgets call by call; ceilings may overlap.
    #[default]
    Shared,
    /// Carved out of the parent at spawn and guaranteed; the unspent part returns at its end.
    Granted,
}

/// What happens to a context whose budget is used up (B8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    #[default]
    Abort,
    Pause,
}

/// What happens when an agent needs a human (G7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hitl {
    #[default]
    Ask,
    Fail,
}

/// A goal, a question or an answer: not empty, at most 64 KiB.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(Arc<str>);

impl Text {
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, String> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err("the text is empty".into());
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("the text has {} bytes, more than the {MAX_TEXT_BYTES} allowed", text.len()));
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Text::new(String::deserialize(d)?).map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "minLength": 1, "x-check": "text"})
    }
}
