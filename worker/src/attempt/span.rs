//! The spans of an attempt's work: holds, model calls, tools. The coordinator creates the span of
//! the attempt itself. A run that is not exported records no spans.

use std::borrow::Cow;

use domain::{
    span::{Attribute, Headers, Kind, Moment, Span, SpanEvent, SpanId, attribute},
    wording::cut,
};

use super::{Attempt, traced::headers};

/// The most bytes of a text in a span.
const MAX_CONTENT_BYTES: usize = 16 << 10;

impl Attempt {
    /// The span of the attempt: the parent of all spans beneath it.
    fn span_id(&self) -> SpanId {
        SpanId::of(self.trace_id(), &format!("{}.{}", self.child_id(), self.number()))
    }

    fn moment(&self) -> Moment {
        self.traced.now()
    }

    /// The trace context of every message this attempt sends.
    pub(crate) fn headers(&self) -> Headers {
        headers(self.traced.is_exported, self.trace_id(), self.span_id())
    }

    /// The trace context for calls that do not use the bus, if the run is exported.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let sends = self.traced.is_exported && !self.config.settings.hide_traceparent;
        sends.then(|| domain::span::traceparent(self.trace_id(), self.span_id()))
    }

    /// A text of a model, tool or user for a span, redacted and shortened.
    pub(crate) fn content(&self, text: String) -> String {
        cut(self.redactor.text(text), MAX_CONTENT_BYTES)
    }

    /// Begins the span of one piece of work. `id` distinguishes it from all other spans of the
    /// context.
    pub(crate) fn begin(&self, name: impl Into<Cow<'static, str>>, kind: Kind, id: &str) -> Doing<'_> {
        if !(self.traced.is_exported && telemetry::is_on()) {
            return Doing { attempt: self, span: None };
        }
        let ids = (
            self.trace_id(),
            SpanId::of(self.trace_id(), &format!("{}.{id}", self.child_id())),
            Some(self.span_id()),
        );
        let now = self.moment();
        let mut span = Span::new(name, kind, ids, (now, now));
        span.attributes.push(attribute("trellis.child_id", self.child_id().as_str()));
        span.attributes.push(attribute("trellis.attempt", self.number()));
        let thread = self.work.thread_id.as_ref();
        span.attributes.extend(thread.map(|thread| attribute("gen_ai.conversation.id", thread.as_str())));
        Doing { attempt: self, span: Some(Box::new(span)) }
    }
}

/// A piece of work of an attempt. Its span is emitted when it ends. If it is dropped before,
/// because the attempt was cancelled, the span is marked as cut off, which is not an error.
#[derive(Debug)]
#[must_use = "a span is emitted by `end`"]
pub(crate) struct Doing<'a> {
    attempt: &'a Attempt,
    /// `None` if the run is not exported.
    span: Option<Box<Span>>,
}

impl Doing<'_> {
    /// Adds attributes. They are computed only if there is a span.
    pub(crate) fn add(&mut self, attributes: impl FnOnce() -> Vec<Attribute>) {
        if let Some(span) = &mut self.span {
            span.attributes.extend(attributes());
        }
    }

    pub(crate) fn happened(&mut self, name: &'static str, attributes: impl FnOnce() -> Vec<Attribute>) {
        if let Some(span) = &mut self.span {
            span.events.push(SpanEvent::new(name, self.attempt.moment(), attributes()));
        }
    }

    /// Marks the work as failed; `error` is one of a few words.
    pub(crate) fn fail(&mut self, error: &'static str) {
        if let Some(span) = &mut self.span {
            span.error = Some(error.into());
        }
    }

    pub(crate) fn end(mut self) {
        self.emit();
    }

    /// Discards the span.
    pub(crate) fn forget(mut self) {
        self.span = None;
    }

    fn emit(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.end = self.attempt.moment();
            telemetry::emit(vec![*span]);
        }
    }
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        if let Some(span) = &mut self.span {
            span.attributes.push(attribute("trellis.cut_off", true));
        }
        self.emit();
    }
}
