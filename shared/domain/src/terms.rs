//! Terms that submissions, agent profiles and steps of a graph share: which budget pays, the
//! reaction when the budget is used up or the agent needs a human, and the text of a goal.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{json::Json, limits::MAX_TEXT_BYTES};

/// How a child's ceiling relates to its parent's budget (B6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Funding {
    /// The child spends from its ancestors' budgets call by call; ceilings may overlap.
    #[default]
    Shared,
    /// The ceiling is carved out of the parent's budget at spawn and is guaranteed. The unspent
    /// part returns when the child ends.
    Granted,
}

/// The reaction when a context's budget is used up (B8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    #[default]
    Abort,
    Pause,
}

/// The reaction when an agent needs a human (G7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hitl {
    #[default]
    Ask,
    Fail,
}

/// A ceiling, a limit or a list that is smaller than requested (B17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Adjustment {
    /// The name of the term, such as `max_cost_usd`, `max_steps` or `tools`.
    pub what: String,
    pub asked: Json,
    pub got: Json,
    pub by: LoweredBy,
}

/// The source of the lowest bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoweredBy {
    Profile,
    Parent,
    Deployment,
}

impl Adjustment {
    pub fn new(what: &str, asked: impl Serialize, got: impl Serialize, by: LoweredBy) -> Self {
        let value = |value: Result<serde_json::Value, _>| {
            Json::from(value.expect("numbers and names are valid JSON"))
        };
        let (asked, got) = (serde_json::to_value(asked), serde_json::to_value(got));
        Adjustment { what: what.into(), asked: value(asked), got: value(got), by }
    }
}

impl fmt::Display for Adjustment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            LoweredBy::Profile => "its agent's profile",
            LoweredBy::Parent => "its parent",
            LoweredBy::Deployment => "the deployment",
        };
        write!(f, "{} is {:?}, not {:?}: {by} allows no more", self.what, self.got, self.asked)
    }
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
