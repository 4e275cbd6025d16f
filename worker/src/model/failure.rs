//! What became of a call that brought no answer: said no, never left, or nobody knows. In doubt nobody
//! knows: a call that may have been served may be on the bill.

use std::time::Duration;

use genai::Error as Cause;
use reqwest::{StatusCode, header};
use serde_json::Value;
use shared::text::with_causes;

use super::{provider::Route, request::Error};

/// How much of what a provider says is passed on.
const SAID: usize = 400;

/// Of a call that could not even be put together.
pub(super) fn unsent(route: &Route<'_>, cause: &Cause) -> Error {
    Error::refused(route.redact(format!("`{}` can't be asked this: {cause}", route.provider)))
}

/// Of a call that was being made.
pub(super) fn of(route: &Route<'_>, cause: Cause) -> Error {
    let provider = route.provider;
    // What the transport says comes boxed; a status the provider answered with is again the client's own.
    let (cause, transport) = if let Cause::WebStream { error, cause, .. } = cause {
        match error.downcast::<Cause>() {
            Ok(inner) => (inner.to_string(), Transport::of(&inner)),
            Err(error) => match error.downcast_ref::<reqwest::Error>() {
                Some(error) => (with_causes(error), Transport::of_http(error)),
                None => (cause, Transport::Lost),
            },
        }
    } else {
        (cause.to_string(), Transport::of(&cause))
    };
    match transport {
        Transport::Status { status, body, retry_after } => {
            let message = route.redact(format!("`{provider}` answered {status}: {}", said(&body)));
            if is_in_between(status) {
                return Error::Unknown { message };
            }
            Error::Refused { message, again: is_passing(status), retry_after }
        }
        Transport::NeverLeft => Error::Refused {
            message: route.redact(format!("`{provider}` can't be reached: {}", short(&cause))),
            again: true,
            retry_after: None,
        },
        Transport::Lost => Error::Unknown {
            message: route.redact(format!("the answer of `{provider}` was lost: {}", short(&cause))),
        },
    }
}

enum Transport {
    /// It answered, and not with a completion.
    Status {
        status: StatusCode,
        body: String,
        retry_after: Option<Duration>,
    },
    NeverLeft,
    Lost,
}

impl Transport {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the client's errors grow, and all others mean the same here"
    )]
    fn of(cause: &Cause) -> Transport {
        let body = match cause {
            Cause::HttpError { body, .. } => body,
            Cause::WebModelCall { webc_error, .. } | Cause::WebAdapterCall { webc_error, .. } => {
                match webc_error {
                    genai::webc::Error::ResponseFailedStatus { body, .. } => body,
                    genai::webc::Error::Reqwest(error) => return Transport::of_http(error),
                    _ => return Transport::Lost,
                }
            }
            _ => return Transport::Lost,
        };
        let Some(status) = cause.status() else { return Transport::Lost };
        let retry_after = cause.headers().and_then(retry_after);
        Transport::Status { status, body: body.clone(), retry_after }
    }

    fn of_http(error: &reqwest::Error) -> Transport {
        if error.is_connect() || error.is_builder() { Transport::NeverLeft } else { Transport::Lost }
    }
}

/// Whether it may be a gateway that says so, of a provider that has long been at work: out of time (408,
/// 504, 522, 524), or with an answer it could not read or pass on (502, 520, 521, 523).
fn is_in_between(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 502 | 504 | 520..=524)
}

/// Whether the same call may be answered later.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 425 | 429) || status.is_server_error()
}

/// In milliseconds as OpenAI says it, in seconds, or until a date by the clock of whoever says so.
fn retry_after(headers: &header::HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse().ok()) {
        return Some(Duration::from_millis(ms));
    }
    let after = text(header::RETRY_AFTER.as_str())?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = httpdate::parse_http_date(text(header::DATE.as_str())?).ok()?;
    Some(httpdate::parse_http_date(after).ok()?.duration_since(now).unwrap_or_default())
}

/// The sentence in an error's body, wherever the provider puts it.
fn said(body: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    // Gemini wraps the same in a list.
    let parsed = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
    let sentence = parsed.and_then(|value| {
        ["/error/message", "/error", "/message", "/detail"]
            .into_iter()
            .find_map(|path| value.pointer(path)?.as_str())
    });
    short(sentence.unwrap_or(body))
}

fn short(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(SAID) {
        line.truncate(end);
        line.push('…');
    }
    line
}
