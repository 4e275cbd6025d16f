//! Streams of server-sent events. Each ends when the server stops or the token is removed, and
//! sends comments while it is silent.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt};
use host::clock::Clock;
use tokio::time::timeout;

use crate::{call::Call, problem::ApiResult};

/// An answer that is a stream of events.
pub(crate) fn stream(call: &Call, events: impl Stream<Item = Event> + Send + 'static) -> ApiResult {
    let place = call.streams.take(&call.caller.name)?;
    let left = call
        .known
        .as_ref()
        .and_then(|known| known.until)
        .map(|until| until.millis_since(Clock::Machine.now()));
    let ends = call.ends.clone();
    // A session ends before its token does.
    let over = async move {
        match left {
            Some(millis) => {
                timeout(Duration::from_millis(millis), ends.cancelled()).await.unwrap_or_default()
            }
            None => ends.cancelled().await,
        }
    };
    let events = events.map(move |event| {
        let _held = &place;
        Ok::<Event, Infallible>(event)
    });
    let events = events.take_until(Box::pin(over));
    let heartbeat = KeepAlive::new().interval(call.limits.heartbeat).text("still here");
    // Buffering proxies would hold events back.
    Ok(([("x-accel-buffering", "no")], Sse::new(events).keep_alive(heartbeat)).into_response())
}

/// As [`stream`], for a page. It holds a run in memory, so a caller may have only a few.
pub(crate) fn of_page(call: &Call, events: impl Stream<Item = Event> + Send + 'static) -> ApiResult {
    let place = call.streams.take_few(&call.caller.name)?;
    stream(
        call,
        events.map(move |event| {
            let _held = &place;
            event
        }),
    )
}

/// True if the client asks for a stream of events.
pub(crate) fn is_wanted(call: &Call) -> bool {
    let accept = call.header(axum::http::header::ACCEPT).unwrap_or_default();
    accept.split(',').any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}
