//! The bus over HTTP, for the `trellis` command: one call per request, checked against the table of
//! roles and answered as lines of JSON.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bus::{
    Bus,
    http::{Answer, Call, Failure, Line, NAMESPACE, answer},
    role,
};
use bytes::Bytes;
use domain::{span::Headers, wire::BY_HEADER};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::{
    call::{self},
    config::Limits,
    problem::{ApiResult, ProblemDetails},
    streams::{Place, Streams},
    token::TokenHolder,
};

/// The headers that a caller may set: those of its trace. All others are removed, because on NATS
/// the server sets the sender's identity and a caller must not forge it.
const CARRIED: [&str; 2] = ["traceparent", "tracestate"];

/// The bytes that a call adds around its payload.
const ENVELOPE_BYTES: usize = 64 << 10;

pub(crate) async fn carry(bus: Bus, limits: Limits, streams: Arc<Streams>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(known) = parts.extensions.remove::<TokenHolder>() else {
        return ProblemDetails::internal("a call has no caller", &"the token check did not run")
            .into_response();
    };
    let own = bus.namespace().to_string();
    if parts.headers.get(NAMESPACE).is_some_and(|meant| meant.as_bytes() != own.as_bytes()) {
        let message = format!("this server serves the namespace `{own}`, and the request names another one");
        return failed(Failure::Refused(message));
    }
    // In base64, a payload is a third longer.
    let limits = Limits { body_bytes: limits.body_bytes / 3 * 4 + ENVELOPE_BYTES, ..limits };
    let body = match call::body(&parts.headers, body, true, &limits).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    carried(&bus, &known, &streams, &body).await.unwrap_or_else(IntoResponse::into_response)
}

async fn carried(bus: &Bus, known: &TokenHolder, streams: &Arc<Streams>, body: &Bytes) -> ApiResult {
    if known.ends.is_cancelled() {
        return Err(ProblemDetails::no_more());
    }
    let call: Call = serde_json::from_slice(body)
        .map_err(|error| ProblemDetails::wrong("body", format!("invalid call: {error}"), None))?;
    if let Err(denied) = role::may_call(&known.caller.kinds, &call) {
        return Ok(failed(denied.into()));
    }
    // The client may read the answer slowly, so every call takes a place among the streams.
    let place = streams.take(&known.caller.name)?;
    Ok(match answer(bus, with_own_headers(call, known)).await {
        Ok(lines) => lines_of(lines, place, known.ends.clone()),
        Err(failure) => failed(failure),
    })
}

/// Removes the headers that a caller may not set, and names the caller in [`BY_HEADER`]. Only the
/// owner may set that header itself: without tokens, or with the server's own, the command names
/// its user.
fn with_own_headers(mut call: Call, known: &TokenHolder) -> Call {
    let own = |headers: &mut Headers| {
        let by = headers.remove(BY_HEADER);
        headers.retain(|name, _| CARRIED.contains(&name.as_str()));
        let by = if known.is_owner() { by } else { Some(known.caller.name.clone()) };
        headers.extend(by.map(|by| (BY_HEADER.to_owned(), by)));
    };
    if let Call::Request { headers, .. } | Call::Publish { headers, .. } = &mut call {
        own(headers);
    }
    call
}

/// The answer for a call that failed as a whole. The status matches the failure, for clients that
/// don't read the body.
fn failed(failure: Failure) -> Response {
    let status = match &failure {
        Failure::Denied { .. } => StatusCode::FORBIDDEN,
        Failure::WrongSequence => StatusCode::CONFLICT,
        Failure::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Failure::TimedOut | Failure::Unacknowledged => StatusCode::GATEWAY_TIMEOUT,
        Failure::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Failure::NoResponders
        | Failure::Full(_)
        | Failure::Unreached(_)
        | Failure::CutOff(_)
        | Failure::Other(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, [CONTENT], line(&Line::Failed(failure))).into_response()
}

const CONTENT: (header::HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));

/// Sends the lines as they arrive. If the token ends or the server stops, the answer is cut off,
/// and the caller treats it as failed.
fn lines_of(lines: Answer, place: Place, ends: CancellationToken) -> Response {
    let bytes = lines.map(move |next| {
        let _held = &place;
        Ok::<_, std::convert::Infallible>(line(&next))
    });
    let body = Body::from_stream(bytes.take_until(ends.cancelled_owned()));
    ([CONTENT], body).into_response()
}

fn line(line: &Line) -> Bytes {
    let mut bytes = serde_json::to_vec(line).expect("texts and numbers");
    bytes.push(b'\n');
    bytes.into()
}
