//! The outbox: the messages that a commit still has to send. Events are stored as they are. Other
//! messages are stored by name and made from the current state when they are sent, so a message
//! that is sent again reports the newest state.

use std::{collections::HashSet, ops::Range};

use bus::Outgoing;
use bytes::Bytes;
use domain::{
    ChildId, PoolName, Timestamp,
    id::WebhookName,
    span::{Headers, SpanId},
    subject::{Home, Subject},
    wire::{DeadLetter, FailureKind, Refusal, WebhookOccasion},
};
use host::webhook::{self, Webhook};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trace::{Effect, Event, LoggedEvents, Phase, Status, Trace, effects, logged};

use crate::store::OutboxKey;

/// The suffix in the ids of event messages.
const EVENT: &str = ".event";

/// The messages that one commit has to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outbox {
    /// The version that the commit made.
    pub(crate) version: u64,
    /// When the commit was made; it distinguishes commits that made the same version.
    made: Timestamp,
    /// The time since which the outbox is due.
    pub(crate) at: Timestamp,
    events: Vec<EventMessage>,
    effects: Vec<Effect>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct EventMessage {
    child_id: ChildId,
    version: u64,
    /// The message itself, serialized once for the store and the bus.
    body: Box<RawValue>,
}

impl Outbox {
    /// Makes the outbox of events that were just applied to `trace`.
    pub(crate) fn new(trace: &mut Trace, events: Vec<Event>, at: Timestamp) -> Self {
        let effects = effects(trace, &events);
        let events = logged(trace, events, at).into_iter().map(EventMessage::from).collect();
        Outbox { version: trace.version(), made: trace.made(), at, events, effects }
    }

    /// Makes the outbox of a trace that was rebuilt from its event log. It has the messages that
    /// record the rebuild, and every message that may never have been sent: queued work, open
    /// questions, and outcomes that are not in the log.
    pub(crate) fn of_rebuilt(
        trace: &Trace,
        messages: Vec<LoggedEvents>,
        published: &HashSet<ChildId>,
        at: Timestamp,
    ) -> Self {
        let effect = |node: &trace::ContextNode| match &node.status {
            Status::Submitted { .. } | Status::Working(Phase::Queued { sent_at: Some(_), .. }) => {
                Some(Effect::Execute { child_id: node.id.clone(), attempt: node.attempt() + 1 })
            }
            Status::InputRequired { .. } => Some(Effect::Question { child_id: node.id.clone() }),
            Status::Ended(_) if !node.lifecycle.outcome_due && !published.contains(&node.id) => {
                Some(Effect::Outcome { child_id: node.id.clone() })
            }
            Status::Working(_) | Status::Paused { .. } | Status::Ended(_) => None,
        };
        let effects = trace.contexts().iter().filter_map(effect).collect();
        let events = messages.into_iter().map(EventMessage::from).collect();
        Outbox { version: trace.version(), made: trace.made(), at, events, effects }
    }

    /// Its name in the store.
    pub(crate) fn key(&self) -> OutboxKey {
        OutboxKey { version: self.version, made: self.made.millis() }
    }

    /// A version in the id of a message.
    fn numbered(&self, version: u64) -> String {
        format!("{version}-{}", self.made.millis())
    }

    /// Reads the version of an event message, and when its commit was made, from its id. With keys,
    /// a code is appended to the id (S3).
    pub(crate) fn event_by_id(id: &str) -> Option<(u64, Timestamp)> {
        let (id, code) = id.split_once(EVENT)?;
        if !(code.is_empty() || code.starts_with('.')) {
            return None;
        }
        let (_, numbered) = id.split_once('.')?;
        let (version, made) = numbered.split_once('-')?;
        Some((version.parse().ok()?, Timestamp::from_millis(made.parse().ok()?)))
    }

    /// Its events, in the form of the log.
    pub(crate) fn logged(&self) -> Result<Vec<LoggedEvents>, serde_json::Error> {
        self.events.iter().map(|event| serde_json::from_str(event.body.get())).collect()
    }

    pub(crate) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Appends the messages to be stored, made from the current state of the trace, and returns the
    /// range of the events. With `logged`, the log already has the events, and they are left out.
    pub(crate) fn messages(
        &self,
        trace: &Trace,
        home: &Home,
        webhooks: &[Webhook],
        logged: bool,
        out: &mut Vec<Outgoing>,
    ) -> Range<usize> {
        let start = out.len();
        for event in self.events.iter().filter(|_| !logged) {
            out.push(Outgoing {
                subject: Subject::Event(trace.id(), event.child_id.clone()),
                id: Some(format!("{}.{}{EVENT}", trace.id(), self.numbered(event.version))),
                headers: headers(trace, &event.child_id),
                payload: Bytes::copy_from_slice(event.body.get().as_bytes()),
                expect_last: None,
            });
        }
        let events = start..out.len();
        out.extend(self.effects.iter().flat_map(|effect| self.effect(trace, home, webhooks, effect)));
        events
    }

    fn effect(&self, trace: &Trace, home: &Home, webhooks: &[Webhook], effect: &Effect) -> Vec<Outgoing> {
        let message = |child_id: &ChildId, subject: Subject, kind: String, payload: Vec<u8>| Outgoing {
            subject,
            id: Some(format!("{}.{child_id}.{kind}", trace.id())),
            headers: headers(trace, child_id),
            payload: payload.into(),
            expect_last: None,
        };
        let notices = |child_id: &ChildId, of: WebhookOccasion| {
            let Some(root) = trace.root().filter(|_| !webhooks.is_empty()) else { return Vec::new() };
            let told = webhook::told(webhooks, &of, root.id == *child_id, &root.spec.labels);
            let notice = |name: &WebhookName| {
                let kind = format!("{}.{name}.webhook", of.key());
                let subject = Subject::Webhook(name.clone(), trace.id(), child_id.clone());
                message(child_id, subject, kind, json(&of))
            };
            told.map(notice).collect()
        };
        match effect {
            Effect::Execute { child_id, attempt } => {
                let offer = trace.offer(child_id, home).filter(|(_, offer)| offer.attempt == *attempt);
                let Some((pool, offer)) = offer else { return Vec::new() };
                let kind = format!("{attempt}.{}.execute", self.numbered(self.version));
                let mut execute = message(child_id, Subject::Execute(pool), kind, json(&offer));
                // Without its context's span, a worker's spans would have no parent.
                if !trace.is_told(child_id) {
                    execute.headers = Headers::default();
                }
                vec![execute]
            }
            Effect::Question { child_id } => {
                let Some(question) = trace.question(child_id) else { return Vec::new() };
                // The id names the commit: a question that was lost and asked again is a new
                // message.
                let kind = format!("{}.{}.question", question.number, self.numbered(self.version));
                let subject = Subject::Question(trace.id(), child_id.clone());
                let mut messages = vec![message(child_id, subject, kind, json(&question))];
                let of = WebhookOccasion::Question { number: question.number, reminder: question.reminder };
                messages.extend(notices(child_id, of));
                messages
            }
            Effect::Outcome { child_id } => {
                let Some(outcome) = trace.outcome(child_id) else { return Vec::new() };
                let subject = Subject::Outcome(trace.id(), child_id.clone());
                let mut messages = vec![message(child_id, subject, "outcome".into(), json(&outcome))];
                if trace.is_traced() {
                    let spans = trace.spans(child_id, self.made);
                    let subject = Subject::Span(trace.id(), child_id.clone());
                    messages.push(message(child_id, subject, "span".into(), json(&spans)));
                }
                messages.extend(notices(child_id, WebhookOccasion::Outcome));
                let error = outcome.context.error.filter(|error| error.kind == FailureKind::WorkerLost);
                messages.extend(error.map(|error| {
                    let kind = ChildId::new("execute").expect("a valid literal");
                    let subject = home.namespace.subject(&Subject::Execute(PoolName::default_pool()));
                    let dead_letter = DeadLetter::new(subject, None, Refusal::worker_lost(error.message))
                        .about(Some(trace.id()), Some(child_id.clone()));
                    message(child_id, Subject::Dead(kind), "dead".into(), json(&dead_letter))
                }));
                messages
            }
            // These effects are not stored as messages: a stop is broadcast, a removal is carried
            // out. See `Outbox::effects`.
            Effect::Stop { .. } | Effect::Remove { .. } => Vec::new(),
        }
    }
}

impl From<LoggedEvents> for EventMessage {
    fn from(logged: LoggedEvents) -> Self {
        EventMessage {
            body: serde_json::value::to_raw_value(&logged).expect("events have string keys only"),
            child_id: logged.child_id,
            version: logged.version,
        }
    }
}

/// The headers that name the context's span, for messages of a run that is exported.
fn headers(trace: &Trace, child_id: &ChildId) -> Headers {
    if !trace.is_traced() {
        return Headers::default();
    }
    domain::span::headers(trace.id(), SpanId::of(trace.id(), child_id.as_str()))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("messages have string keys only")
}
