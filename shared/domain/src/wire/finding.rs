//! Finding runs (G17): the query, and the summary of a run. An index finds candidates;
//! `RunsQuery::matches` decides.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{BudgetSnapshot, ContextStatus, Question, Text};
use crate::{
    id::{AgentId, ChildId, ModelName, ThreadId, TraceId},
    labels::Labels,
    money::{Usd, booked},
    time::Timestamp,
};

/// A query for runs that match all given fields. `{}` returns the newest runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunsQuery {
    /// The most runs of one answer, up to 500.
    #[serde(default = "default_limit")]
    pub limit: u32,
    /// The `next` of an earlier answer: continues after its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RunsCursor>,
    /// The run has all of these labels.
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The status of its root is one of these. Empty: any status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<ContextStatus>,
    /// The agent of its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// True if a context of the run waits for a human: for an answer, or for a larger budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for_human: Option<bool>,
    /// The run has spent at least this amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cost_usd: Option<Usd>,
    /// The run has spent at most this amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// The run was submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The run was submitted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The run's id begins with these hex digits: at least 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<TracePrefix>,
}

impl Default for RunsQuery {
    fn default() -> Self {
        RunsQuery {
            limit: default_limit(),
            after: None,
            labels: Labels::default(),
            thread_id: None,
            status: Vec::new(),
            agent_id: None,
            waiting_for_human: None,
            min_cost_usd: None,
            max_cost_usd: None,
            since: None,
            until: None,
            prefix: None,
        }
    }
}

impl RunsQuery {
    /// Returns true if the query excludes any runs.
    pub fn is_filter(&self) -> bool {
        let all = RunsQuery { limit: self.limit, after: self.after, ..RunsQuery::default() };
        *self != all
    }

    /// Returns true if a run matches, on any page.
    pub fn matches(&self, run: &RunSummary) -> bool {
        let spent = run.budget.spent.cost_usd;
        self.labels.iter().all(|(key, value)| run.labels.get(key) == Some(value))
            && self.thread_id.as_ref().is_none_or(|thread| run.thread_id.as_ref() == Some(thread))
            && (self.status.is_empty() || self.status.contains(&run.status))
            && self.agent_id.as_ref().is_none_or(|agent| run.agent_id.as_ref() == Some(agent))
            && self.waiting_for_human.is_none_or(|waits| run.waiting_for_human == waits)
            && self.min_cost_usd.is_none_or(|least| spent >= least)
            && self.max_cost_usd.is_none_or(|most| spent <= most)
            && self.since.is_none_or(|since| run.started_at >= since)
            && self.until.is_none_or(|until| run.started_at < until)
            && self.prefix.as_ref().is_none_or(|prefix| prefix.begins(run.trace_id))
    }
}

fn default_limit() -> u32 {
    50
}

/// A summary of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSummary {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    pub status: ContextStatus,
    /// The number of its contexts that have asked a human and have no answer yet (G7).
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub questions: u32,
    /// A context of the run waits for a human: for an answer, or for a larger budget.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting_for_human: bool,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub budget: BudgetSnapshot,
    /// The agents that spent the money. The amounts add up to everything that was spent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent_by: Vec<Spender>,
}

/// The own costs of one agent's contexts with one model. A run lists at most twelve; if there are
/// more, the last is the sum of all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spender {
    /// Absent: the cost belongs to no agent, such as a charge on a graph, or is the sum of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Absent: the cost is an estimate, a charge, without a model, or the sum of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// True for the sum of all that are not listed separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    #[serde(deserialize_with = "booked::usd")]
    pub cost_usd: Usd,
}

/// A query for open questions of runs that wait for a human, the newest run first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PendingQuery {
    /// The most runs in one answer, up to 100.
    #[serde(default = "default_limit")]
    pub limit: u32,
    /// As in a query for runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RunsCursor>,
}

/// A question without an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PendingQuestion {
    #[serde(flatten)]
    pub question: Question,
    /// The time of the question.
    pub asked_at: Timestamp,
    /// The time since the question, by the coordinators' clock.
    pub age_ms: u64,
}

/// A place in the list of runs, after this run: `<milliseconds>-<trace_id>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunsCursor {
    pub started_at: Timestamp,
    pub trace_id: TraceId,
}

impl fmt::Display for RunsCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.started_at.millis(), self.trace_id)
    }
}

impl FromStr for RunsCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a place in the list of runs: use the `next` of an answer");
        let (millis, trace_id) = text.split_once('-').ok_or_else(wrong)?;
        let started_at = Timestamp::from_millis(millis.parse().map_err(|_| wrong())?);
        Ok(RunsCursor { started_at, trace_id: trace_id.parse().map_err(|_| wrong())? })
    }
}

/// The first hex digits of a trace id: 4 to 32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePrefix(String);

impl TracePrefix {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn begins(&self, trace_id: TraceId) -> bool {
        trace_id.to_string().starts_with(&self.0)
    }
}

impl fmt::Display for TracePrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for TracePrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lowercase_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if !(4..=32).contains(&text.len()) || !text.bytes().all(lowercase_hex) {
            return Err(format!("{text:?} does not begin a trace id: give 4 to 32 lowercase hex digits"));
        }
        Ok(TracePrefix(text.to_owned()))
    }
}

macro_rules! as_text {
    ($name:ident, $pattern:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

as_text!(RunsCursor, "^[0-9]{1,16}-[0-9a-f]{32}$");
as_text!(TracePrefix, "^[0-9a-f]{4,32}$");
