//! The event log of a run, as a list and as a stream that can be resumed at any event; and the live
//! output of its agents.

use std::collections::VecDeque;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response, sse::Event},
};
use bus::{ClientBus, Follow, From, Position, StoredMessage, Subscription};
use domain::{
    ChildId, Timestamp, TraceId, decode,
    subject::{Filter, Subject},
    wire::{Outcome, StreamPiece},
};
use futures_util::{
    FutureExt, Stream,
    future::BoxFuture,
    stream::{self, StreamExt},
};
use trace::account::kind;

use crate::{
    blocking::blocking,
    call::{Call, json_bytes},
    problem::{ApiResult, ProblemDetails},
    sse,
    types::LoggedEvent,
};

pub(super) async fn events(call: Call) -> ApiResult {
    let trace: TraceId = call.part("trace")?;
    let (wanted, from) = (EventFilter::read(&call)?, last_seen(&call)?);
    if call.client.bus().last(&Filter::EventsOf(trace)).await?.is_none() {
        return Err(client::Error::NoRun(trace).into());
    }
    if sse::is_wanted(&call) {
        followed(&call, trace, wanted, from).await
    } else {
        listed(&call, trace, wanted).await
    }
}

/// The filters for events.
#[derive(Debug)]
struct EventFilter {
    contexts: Vec<ChildId>,
    kinds: Vec<String>,
}

impl EventFilter {
    fn read(call: &Call) -> ApiResult<Self> {
        let child = |text: &str| {
            text.parse::<ChildId>()
                .map_err(|error| ProblemDetails::wrong("query.context", error.to_string(), None))
        };
        let contexts = call.all("context").map(child).collect::<ApiResult<Vec<ChildId>>>()?;
        Ok(EventFilter { contexts, kinds: call.all("type").map(Into::into).collect() })
    }

    fn takes(&self, event: &LoggedEvent) -> bool {
        let about = event.body.child_id().unwrap_or(&event.child_id);
        (self.contexts.is_empty() || self.contexts.contains(about))
            && (self.kinds.is_empty() || self.kinds.contains(&kind(&event.body)))
    }
}

/// The events of a message of the log. `last` is the time at which the previous event was decided.
fn events_of(stored: StoredMessage, last: &mut Option<Timestamp>) -> ApiResult<Vec<LoggedEvent>> {
    let message = client::log_message(stored)?;
    let commit = message.logged.commit();
    let logged = message.logged;
    let mut events = Vec::new();
    for (event, body) in (logged.version..).zip(logged.events) {
        let since_ms = last.map_or(0, |last| logged.at.millis_since(last));
        *last = Some(logged.at);
        events.push(LoggedEvent {
            sequence: message.sequence,
            message_id: message.id.clone(),
            stored_at: message.stored_at,
            event,
            at: logged.at,
            since_ms,
            child_id: logged.child_id.clone(),
            commit,
            body,
        });
    }
    Ok(events)
}

async fn listed(call: &Call, trace: TraceId, wanted: EventFilter) -> ApiResult {
    let stored = call.client.bus().read(&Filter::EventsOf(trace)).await?;
    let written = blocking(move || {
        let (mut last, mut all) = (None, Vec::new());
        for message in stored {
            all.extend(events_of(message, &mut last)?.into_iter().filter(|event| wanted.takes(event)));
        }
        serde_json::to_vec(&all)
            .map_err(|error| ProblemDetails::internal("the events could not be written", &error))
    });
    Ok(json_bytes(StatusCode::OK, written.await??))
}

/// A position in the stream of a run: after an event of a message in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The position names the log too, because sequences start again in a recreated log.
    message: Position,
    /// None: after the outcome, which is the end of the stream.
    event: Option<u64>,
}

impl Place {
    fn id(self) -> String {
        let event = self.event.map_or_else(|| END.to_owned(), |event| event.to_string());
        format!("{}-{event}", self.message)
    }

    fn parse(text: &str) -> Option<Self> {
        let (message, event) = text.rsplit_once('-')?;
        let event = if event == END { None } else { Some(event.parse().ok()?) };
        Some(Place { message: Position::parse(message)?, event })
    }
}

/// The position of the last event that the client received.
fn last_seen(call: &Call) -> ApiResult<Option<Place>> {
    let Some(id) = call.headers.get("last-event-id") else { return Ok(None) };
    let place = id.to_str().ok().and_then(Place::parse);
    place.map(Some).ok_or_else(|| {
        let hint = "send the id of the last event that you received, or leave out the header";
        ProblemDetails::wrong("header.last-event-id", "not the id of an event", Some(hint))
    })
}

/// The last part of the outcome's id, in place of the number of an event.
const END: &str = "end";

async fn followed(call: &Call, trace: TraceId, wanted: EventFilter, from: Option<Place>) -> ApiResult {
    let end = call.client.bus().end(&Filter::EventsOf(trace)).await?;
    // A position in a log that no longer exists is ignored: the stream starts from the beginning.
    let from = from.filter(|place| place.message.is_in(end));
    if from.is_some_and(|place| place.event.is_none()) {
        // The client has the whole stream. On 204 a browser stops reconnecting.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let start = from.map_or(From::Start, |place| From::Sequence(place.message.sequence));
    let filters = [Filter::EventsOf(trace), Filter::OutcomesOf(trace)];
    let follow = call.client.bus().follow(&filters, start).await?;
    let (log, waiting) = (end.log, VecDeque::new());
    let reader = Reader { follow, wanted, from, log, last: None, waiting, ended: false };
    sse::stream(call, reader.stream())
}

/// Follows the log of a run and sends the events that the client lacks.
#[derive(Debug)]
struct Reader {
    follow: Follow,
    wanted: EventFilter,
    /// The position of the last event that the client has.
    from: Option<Place>,
    log: u64,
    last: Option<Timestamp>,
    waiting: VecDeque<Event>,
    ended: bool,
}

impl Reader {
    fn stream(self) -> impl Stream<Item = Event> + Send {
        stream::unfold(self, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if let Err(problem) = self.read().await {
                self.ended = true;
                return Some(failed(&problem));
            }
        }
    }

    async fn read(&mut self) -> ApiResult<()> {
        let stored = self.follow.next().await?;
        let message = Position { log: self.log, sequence: stored.sequence };
        if let Subject::Outcome(..) = stored.subject {
            // The root's outcome is stored after all events of the run, so it ends the stream.
            if is_of_the_root(&stored)? {
                let id = Place { message, event: None }.id();
                let text = String::from_utf8_lossy(&stored.payload).replace(['\r', '\n'], " ");
                self.waiting.push_back(Event::default().event("outcome").id(id).data(text));
                self.ended = true;
            }
            return Ok(());
        }
        let seen = self.from.filter(|place| place.message == message).and_then(|place| place.event);
        for event in events_of(stored, &mut self.last)? {
            if seen.is_none_or(|seen| event.event > seen) && self.wanted.takes(&event) {
                let id = Place { message, event: Some(event.event) }.id();
                let data = serde_json::to_string(&event)
                    .map_err(|error| ProblemDetails::internal("an event could not be written", &error))?;
                self.waiting.push_back(Event::default().event("event").id(id).data(data));
            }
        }
        Ok(())
    }
}

/// The last event of a failed stream: the client may resume after the last id that it received.
fn failed(problem: &ProblemDetails) -> Event {
    Event::default().event("error").data(serde_json::to_string(problem).unwrap_or_default())
}

fn is_of_the_root(stored: &StoredMessage) -> ApiResult<bool> {
    let outcome: Outcome = serde_json::from_slice(&stored.payload)
        .map_err(|error| ProblemDetails::internal("an outcome can't be read", &error))?;
    Ok(outcome.context.parent_id.is_none())
}

/// Streams the live output of a run's agents (G9). It is not stored: a client that connects late
/// finds earlier output in the journals.
pub(super) async fn words(call: Call) -> ApiResult {
    let trace: TraceId = call.part("trace")?;
    // Subscribes before the check, so that no output is lost in between.
    let heard = call.client.bus().subscribe(&Filter::StreamsOf(trace)).await?;
    if call.client.bus().last(&Filter::EventsOf(trace)).await?.is_none() {
        return Err(client::Error::NoRun(trace).into());
    }
    let listener = Listener { heard, end: outcome(call.client.bus().clone(), trace).boxed(), ended: false };
    let response: Response = sse::stream(&call, listener.stream())?;
    Ok(response)
}

struct Listener {
    heard: Subscription,
    end: BoxFuture<'static, Event>,
    ended: bool,
}

impl Listener {
    fn stream(self) -> impl Stream<Item = Event> + Send {
        stream::unfold(self, |mut listener| async move {
            let event = listener.next().await?;
            Some((event, listener))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Event> {
        while !self.ended {
            tokio::select! {
                // Output that arrived before the end is sent before the end.
                biased;
                message = self.heard.next() => {
                    let message = message?;
                    let piece = decode::json::<StreamPiece>(&message.payload).ok();
                    if let Some(data) = piece.and_then(|piece| serde_json::to_string(&piece).ok()) {
                        return Some(Event::default().event("words").data(data));
                    }
                }
                event = &mut self.end => {
                    self.ended = true;
                    return Some(event);
                }
            }
        }
        None
    }
}

/// Waits for the outcome of the run.
async fn outcome(bus: ClientBus, trace: TraceId) -> Event {
    let found = async {
        let mut follow = bus.follow(&[Filter::OutcomesOf(trace)], From::Start).await?;
        loop {
            let stored = follow.next().await?;
            if is_of_the_root(&stored)? {
                let text = String::from_utf8_lossy(&stored.payload).replace(['\r', '\n'], " ");
                return ApiResult::Ok(Event::default().event("outcome").data(text));
            }
        }
    };
    found.await.unwrap_or_else(|problem| failed(&problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_event_is_read_back() {
        for (sequence, event) in [(1, Some(1)), (77, Some(12_345)), (9, None)] {
            let place = Place { message: Position { log: 1_700_000_000_000, sequence }, event };
            assert_eq!(Place::parse(&place.id()), Some(place));
        }
        for bad in ["", "1", "1-2", "1-2-", "a-b-c", "1-2-3-4x", "-1-2-3"] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
