//! One request as its handler receives it: the caller, and the parsed path, query and body.

use std::{fmt::Display, str::FromStr, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use bus::role::{hearers, senders};
use bytes::{Bytes, BytesMut};
use client::Client;
use domain::{Problems, decode, problem::nearest, subject::Subject};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    config::{Caller, Limits, Playground, TraceUrl},
    live_runs::LiveRuns,
    parameter::{MAX_KEY_BYTES, MAX_NUMBER, Parameter},
    problem::{ApiResult, ProblemDetails},
    session::Sessions,
    streams::Streams,
    token::TokenHolder,
};

/// Larger bodies are parsed on the pool for blocking calls, smaller ones in place.
const LARGE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Call {
    /// A client of the cluster that sends in the name of the caller.
    pub(crate) client: Client,
    pub(crate) caller: Caller,
    pub(crate) limits: Limits,
    pub(crate) headers: HeaderMap,
    pub(crate) path: Vec<(String, String)>,
    /// The path of the request, for links to places on the same page, and the relative way from
    /// there to the root of the server.
    pub(crate) here: String,
    pub(crate) base: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// All open streams.
    pub(crate) streams: Arc<Streams>,
    pub(crate) sessions: Arc<Sessions>,
    /// The runs and lists that pages show.
    pub(crate) watched: Arc<LiveRuns>,
    /// The viewer of traces that pages link to.
    pub(crate) trace_url: Option<TraceUrl>,
    pub(crate) playground: Option<Playground>,
    /// The holder of the token or session of the request; none on an open route.
    pub(crate) known: Option<TokenHolder>,
    /// Cancelled when the server stops or the token is removed; ends a stream.
    pub(crate) ends: CancellationToken,
}

impl Call {
    /// The address of the element `id` on the requested page.
    pub(crate) fn place(&self, id: &str) -> String {
        let query: String =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{query}#{id}", self.here)
    }

    /// True if the caller may send this message. The page does not offer the others.
    pub(crate) fn may_send(&self, subject: &Subject) -> bool {
        senders(subject).iter().any(|kind| self.caller.kinds.contains(kind))
    }

    /// True if the caller may read the stored messages of this subject.
    pub(crate) fn may_hear(&self, subject: &Subject) -> bool {
        hearers(subject).iter().any(|kind| self.caller.kinds.contains(kind))
    }

    /// A named part of the path, parsed.
    pub(crate) fn part<T: FromStr<Err: Display>>(&self, name: &str) -> ApiResult<T> {
        let text = self.path.iter().find(|(of, _)| of == name).map_or("", |(_, text)| text.as_str());
        text.parse()
            .map_err(|error: T::Err| ProblemDetails::wrong(&format!("path.{name}"), error.to_string(), None))
    }

    /// All values of a query parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(of, _)| of == name).map(|(_, text)| text.as_str())
    }

    /// The value of a query parameter, parsed; none if absent.
    pub(crate) fn one<T: FromStr<Err: Display>>(&self, name: &str) -> ApiResult<Option<T>> {
        let Some(text) = self.all(name).next() else { return Ok(None) };
        let parsed = text.parse().map_err(|error: T::Err| {
            ProblemDetails::wrong(&format!("query.{name}"), format!("{text:?} can't be read: {error}"), None)
        })?;
        Ok(Some(parsed))
    }

    /// The query parameter `limit`, between 1 and `most`.
    pub(crate) fn limit(&self, default: u32, most: u32) -> ApiResult<u32> {
        let limit = self.one("limit")?.unwrap_or(default);
        if (1..=most).contains(&limit) {
            return Ok(limit);
        }
        Err(ProblemDetails::wrong("query.limit", format!("{limit} is not between 1 and {most}"), None))
    }

    /// A whole number that JSON can represent exactly.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<u64>> {
        let number = self.one(name)?;
        if number.is_some_and(|number| number > MAX_NUMBER) {
            let message = format!("the number is larger than {MAX_NUMBER}");
            return Err(ProblemDetails::wrong(&format!("query.{name}"), message, None));
        }
        Ok(number)
    }

    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The `Idempotency-Key`, by which a repeated request is recognised.
    pub(crate) fn idempotency_key(&self) -> ApiResult<Option<&str>> {
        let Some(given) = self.headers.get("idempotency-key") else { return Ok(None) };
        match given.to_str() {
            Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Ok(Some(key)),
            Ok(_) | Err(_) => {
                let message = format!("the key must have 1 to {MAX_KEY_BYTES} ASCII characters");
                Err(ProblemDetails::wrong("header.idempotency-key", message, None))
            }
        }
    }

    /// The body, parsed and checked as a message.
    pub(crate) async fn message<T>(&self) -> ApiResult<T>
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let body = self.body.clone();
        let read = move || decode::from_outside::<T>(&body);
        let read = if self.body.len() > LARGE_BYTES { blocking(read).await? } else { read() };
        read.map_err(|problems| {
            // A body that is not JSON is reported with another status than JSON of the wrong form.
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&self.body).is_ok();
            if is_json { ProblemDetails::unfit(&problems) } else { ProblemDetails::malformed(&problems) }
        })
    }

    /// As [`Call::message`], with the default for an empty body.
    pub(crate) async fn message_or_default<T>(&self) -> ApiResult<T>
    where
        T: DeserializeOwned + JsonSchema + Default + Send + 'static,
    {
        if self.body.is_empty() { Ok(T::default()) } else { self.message().await }
    }
}

/// Rejects a body whose name differs from the name in the path.
pub(crate) fn is_named(field: &str, named: &str, path: &str) -> ApiResult<()> {
    if named == path {
        return Ok(());
    }
    let message = format!("the body and the path have different names\n\nhint: set `{field}` to `{path}`");
    Err(ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, "other_name", message))
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> ApiResult {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| ProblemDetails::internal("the answer could not be written", &error))?;
    Ok(json_bytes(status, bytes))
}

pub(crate) fn json_bytes(status: StatusCode, bytes: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], bytes.into()).into_response()
}

/// The query parameters. Rejects unknown ones, and a repeated one that is not a list.
pub(crate) fn parameters(query: Option<&str>, known: &[Parameter]) -> ApiResult<Vec<(String, String)>> {
    let mut given: Vec<(String, String)> = Vec::new();
    let mut problems = Problems::default();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned() {
        match known.iter().find(|parameter| parameter.name == name) {
            None => {
                let names = known.iter().map(|parameter| parameter.name);
                problems.add_with(format!("query.{name}"), "unknown parameter", || {
                    Some(match nearest(&name, names.clone()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None if known.is_empty() => "this path has no parameters".into(),
                        None => format!("known parameters: {}", names.collect::<Vec<_>>().join(", ")),
                    })
                });
            }
            Some(parameter) if !parameter.many && given.iter().any(|(of, _)| *of == name) => {
                problems.add(format!("query.{name}"), "the parameter is given twice", None);
            }
            Some(_) => given.push((name, value)),
        }
    }
    problems.or(given).map_err(|problems| ProblemDetails::malformed(&problems))
}

/// The body of a request, within the limits. Rejects one that is not declared as JSON.
pub(crate) async fn body(
    headers: &HeaderMap,
    body: Body,
    required: bool,
    limits: &Limits,
) -> ApiResult<Bytes> {
    let body = whole(headers, body, limits).await?;
    if is_json(headers) || (body.is_empty() && !required) {
        return Ok(body);
    }
    let message = "the body must be JSON\n\nhint: send `Content-Type: application/json`";
    Err(ProblemDetails::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message)
        .with_header(header::ACCEPT, "application/json"))
}

/// The body of a request of any type, within the limits of size and time.
pub(crate) async fn whole(headers: &HeaderMap, body: Body, limits: &Limits) -> ApiResult<Bytes> {
    let most = limits.body_bytes;
    let too_large = || {
        let message = format!("the body has more than {most} bytes\n\nhint: put large values into objects");
        ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            .with_header(header::CONNECTION, "close")
    };
    let told =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > most as u64) {
        return Err(too_large());
    }
    let collected = timeout(limits.body_within, async {
        let (mut stream, mut all) = (body.into_data_stream(), BytesMut::new());
        while let Some(part) = stream.next().await {
            let part = part.map_err(|_| {
                ProblemDetails::new(
                    StatusCode::BAD_REQUEST,
                    "body",
                    "the connection closed in the middle of the body",
                )
            })?;
            if all.len() + part.len() > most {
                return Err(too_large());
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    });
    collected.await.unwrap_or_else(|_| {
        let seconds = limits.body_within.as_secs();
        let message = format!("the body did not arrive within {seconds} s");
        Err(ProblemDetails::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message)
            .with_header(header::CONNECTION, "close"))
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
