//! Writes log lines to standard error, each as a whole, and without the values that this process
//! must not show (S2). A JSON line is one object without duplicate keys. The ids of its subject are
//! at the top level (X8).

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    borrow::Cow,
    error::Error,
    fmt,
    io::{IsTerminal, Result, Write},
    sync::{PoisonError, RwLock},
};

use domain::{
    id::{ChildId, TraceId},
    span::SpanId,
    wording::with_causes,
};
use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::{format::Writer, time::FormatTime},
    layer::Context,
    registry::LookupSpan,
};

/// The keys that every line has. A field with one of these names gets a `_`.
const OF_EVERY_LINE: [&str; 4] = ["timestamp", "level", "target", MESSAGE];
/// The name of the field with the event's text.
const MESSAGE: &str = "message";

/// Removes values from a line.
type Hide = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// The functions that remove the values of each worker in this process.
static HIDDEN: RwLock<Vec<Hide>> = RwLock::new(Vec::new());

/// Applies a function to every later line of the log.
pub fn hide(values: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) {
    HIDDEN.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(values));
}

/// The field `span_id` of a line: the span of an attempt, or of its context.
pub fn span_of(trace_id: TraceId, child_id: &ChildId, attempt: Option<u32>) -> String {
    String::from(match attempt {
        Some(attempt) => SpanId::of(trace_id, &format!("{child_id}.{attempt}")),
        None => SpanId::of(trace_id, child_id.as_str()),
    })
}

/// Writes output of the process that is not a log event, as a line of a JSON log.
pub fn json_line(level: Level, text: &str) {
    write(&Fields(beginning(level, "trellis", text.into())));
}

/// A layer that writes every line to standard error, as text or as JSON.
pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(json: bool) -> Box<dyn Layer<S> + Send + Sync> {
    if json {
        return JsonLines.boxed();
    }
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt::layer().with_writer(|| Lines).with_ansi(colours).boxed()
}

/// Logs every panic from now on. The message of a panic may contain content of runs, so it is
/// logged at debug level only; its place is logged as an error.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a panic: this is a bug of Trellis");
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::debug!(said = panic.payload_as_str(), backtrace, "what the panic says");
    }));
}

#[derive(Debug)]
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        let hidden = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
        let shown = hidden.iter().fold(line.to_vec(), |shown, hide| hide(&shown));
        drop(hidden);
        std::io::stderr().lock().write_all(&shown)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        std::io::stderr().flush()
    }
}

/// Writes each event as a JSON object: the fields of the event, and those of the surrounding spans
/// that the event lacks.
struct JsonLines;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JsonLines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().replace(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut said = Fields::default();
        event.record(&mut said);
        let text = said.take(MESSAGE).unwrap_or_default();
        let metadata = event.metadata();
        let mut line = Fields(beginning(*metadata.level(), metadata.target(), text));
        line.add(&said);
        // From the innermost span outwards.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.add(fields);
            }
        }
        write(&line);
    }
}

/// The first fields of every line.
fn beginning(level: Level, target: &str, text: Value) -> Vec<(Cow<'static, str>, Value)> {
    let mut now = String::new();
    // Writing to a string does not fail.
    tracing_subscriber::fmt::time().format_time(&mut Writer::new(&mut now)).ok();
    let values = [now.into(), level.as_str().into(), target.into(), text];
    OF_EVERY_LINE.map(Cow::Borrowed).into_iter().zip(values).collect()
}

/// A write error is ignored: there is no other place to report it.
fn write(line: &Fields) {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    Lines.write_all(&bytes).ok();
}

/// Names and values in order, each name once.
#[derive(Debug, Default)]
struct Fields(Vec<(Cow<'static, str>, Value)>);

impl Fields {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Adds the fields whose names are not present yet.
    fn add(&mut self, others: &Fields) {
        for (name, value) in &others.0 {
            if OF_EVERY_LINE.contains(&name.as_ref()) {
                let other: Cow<'static, str> = format!("{name}_").into();
                if !self.has(&other) {
                    self.0.push((other, value.clone()));
                }
            } else if !self.has(name) {
                self.0.push((name.clone(), value.clone()));
            }
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        match self.0.iter_mut().find(|(known, _)| known == field.name()) {
            Some((_, known)) => *known = value,
            None => self.0.push((Cow::Borrowed(field.name()), value)),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field, with_causes(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(of: &[(&'static str, Value)]) -> Fields {
        Fields(of.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).collect())
    }

    #[test]
    fn x8_a_line_has_no_key_twice_and_the_fields_of_the_event_win() {
        let mut line = Fields(beginning(Level::INFO, "trellis", "it happened".into()));
        line.0[0].1 = "now".into();
        line.add(&fields(&[("child_id", json!("b")), ("level", json!(7)), ("attempt", json!(2))]));
        line.add(&fields(&[("child_id", json!("a")), ("level", json!(8)), ("worker_id", json!("w1"))]));
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"timestamp":"now","level":"INFO","target":"trellis","message":"it happened","child_id":"b","level_":7,"attempt":2,"worker_id":"w1"}"#
        );
    }

    #[test]
    fn x1_the_span_of_a_line_is_that_of_its_attempt_or_context() {
        let trace_id: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
        let child_id: ChildId = "root".parse().unwrap();
        let context = String::from(SpanId::of(trace_id, "root"));
        let attempt = String::from(SpanId::of(trace_id, "root.2"));
        assert_eq!(span_of(trace_id, &child_id, None), context);
        assert_eq!(span_of(trace_id, &child_id, Some(2)), attempt);
    }
}
