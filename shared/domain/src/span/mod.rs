//! A finished span. It carries ids, counts and amounts. Texts of people, agents and providers are
//! included only if `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` allows it.

mod attribute;
mod caller;

pub use attribute::{Attribute, Value, attribute};
pub use caller::{Caller, Headers, SpanId, caller, headers, traceparent};

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use self::attribute::bytes;
use crate::{id::TraceId, time::Timestamp};

/// A moment, in nanoseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    pub fn nanos(self) -> u64 {
        self.0
    }

    pub fn plus(self, passed: Duration) -> Self {
        Moment(self.0.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Moment(at.millis().saturating_mul(1_000_000))
    }
}

/// The role of the process in the span's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Internal,
    /// The process made a request.
    Client,
    /// The process took a message from a queue.
    Consumer,
}

/// An event at a moment of a span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SpanEvent {
    pub name: Cow<'static, str>,
    pub at: Moment,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "attribute")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub attributes: Vec<Attribute>,
}

impl SpanEvent {
    pub fn new(name: &'static str, at: impl Into<Moment>, attributes: Vec<Attribute>) -> Self {
        SpanEvent { name: Cow::Borrowed(name), at: at.into(), attributes }
    }
}

/// A related span of another trace, or of another part of this trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Link {
    pub trace_id: TraceId,
    pub span_id: SpanId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Span {
    pub name: Cow<'static, str>,
    pub trace_id: TraceId,
    pub span_id: SpanId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    pub start: Moment,
    pub end: Moment,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "attribute")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub attributes: Vec<Attribute>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// The kind of failure, as one of a few words: the status of the span and its `error.type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'static, str>>,
}

impl Span {
    /// Returns roughly the size of the exported span.
    pub fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| event.name.len() + bytes(&event.attributes) + 16);
        100 + self.name.len() + bytes(&self.attributes) + events.sum::<usize>() + 40 * self.links.len()
    }

    /// Makes a span without attributes, events, links or an error.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        (trace_id, span_id, parent): (TraceId, SpanId, Option<SpanId>),
        (start, end): (impl Into<Moment>, impl Into<Moment>),
    ) -> Self {
        let start = start.into();
        Span {
            name: name.into(),
            trace_id,
            span_id,
            parent,
            start,
            end: end.into().max(start),
            kind,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }
}
