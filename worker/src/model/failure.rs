//! Classifies a failed call: refused by the provider, not sent, or of unknown end. If in doubt the end is
//! unknown, because a call that may have been served may be charged.

use std::time::Duration;

use genai::Error as Cause;
use reqwest::{StatusCode, header};
use serde_json::Value;
use shared::text::with_causes;

use super::{provider::Route, request::Error};

/// How many characters of a provider's message are passed on.
const MAX_MESSAGE_CHARS: usize = 400;

/// The error of a request that the client could not build.
pub(super) fn not_sent(route: &Route<'_>, cause: &Cause) -> Error {
    Error::refused(route.redact(format!("the request to `{}` can't be built: {cause}", route.provider)))
}

/// The error of a call that failed while it was made.
pub(super) fn from_call(route: &Route<'_>, cause: Cause) -> Error {
    let provider = route.provider;
    // Errors of the transport are boxed; inside may be the client's own error, if the provider answered with a status.
    let (cause, transport) = if let Cause::WebStream { error, cause, .. } = cause {
        match error.downcast::<Cause>() {
            Ok(inner) => (inner.to_string(), Transport::from_client(&inner)),
            Err(error) => match error.downcast_ref::<reqwest::Error>() {
                Some(error) => (with_causes(error), Transport::from_http(error)),
                None => (cause, Transport::Lost),
            },
        }
    } else {
        (cause.to_string(), Transport::from_client(&cause))
    };
    match transport {
        Transport::Status { status, body, retry_after } => {
            let message = route.redact(format!("`{provider}` answered {status}: {}", error_message(&body)));
            if may_come_from_gateway(status) {
                return Error::Unknown { message };
            }
            Error::Refused { message, retryable: is_retryable(status), retry_after }
        }
        Transport::NotSent => Error::Refused {
            message: route.redact(format!("`{provider}` can't be reached: {}", short(&cause))),
            retryable: true,
            retry_after: None,
        },
        Transport::Lost => Error::Unknown {
            message: route.redact(format!("the answer of `{provider}` was lost: {}", short(&cause))),
        },
    }
}

/// How far a call got.
enum Transport {
    /// The provider answered with an error status.
    Status {
        status: StatusCode,
        body: String,
        retry_after: Option<Duration>,
    },
    NotSent,
    /// The request may have arrived, but there was no complete answer.
    Lost,
}

impl Transport {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the client may add errors, and all others mean the same here"
    )]
    fn from_client(cause: &Cause) -> Transport {
        let body = match cause {
            Cause::HttpError { body, .. } => body,
            Cause::WebModelCall { webc_error, .. } | Cause::WebAdapterCall { webc_error, .. } => {
                match webc_error {
                    genai::webc::Error::ResponseFailedStatus { body, .. } => body,
                    genai::webc::Error::Reqwest(error) => return Transport::from_http(error),
                    _ => return Transport::Lost,
                }
            }
            _ => return Transport::Lost,
        };
        let Some(status) = cause.status() else { return Transport::Lost };
        let retry_after = cause.headers().and_then(retry_after);
        Transport::Status { status, body: body.clone(), retry_after }
    }

    fn from_http(error: &reqwest::Error) -> Transport {
        if error.is_connect() || error.is_builder() { Transport::NotSent } else { Transport::Lost }
    }
}

/// Whether the status may come from a gateway while the provider is still working: the gateway timed out (408, 504,
/// 522, 524), or could not read or pass on the answer (502, 520, 521, 523).
fn may_come_from_gateway(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 502 | 504 | 520..=524)
}

/// Whether the same call may succeed later.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 425 | 429) || status.is_server_error()
}

/// Milliseconds (OpenAI), seconds, or a date, which is compared with the date of the same answer.
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

/// The message in the body of an error, wherever the provider puts it.
fn error_message(body: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    // Gemini wraps it in a list.
    let parsed = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
    let sentence = parsed.and_then(|value| {
        ["/error/message", "/error", "/message", "/detail"]
            .into_iter()
            .find_map(|path| value.pointer(path)?.as_str())
    });
    short(sentence.unwrap_or(body))
}

/// One line of at most [`MAX_MESSAGE_CHARS`].
fn short(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_MESSAGE_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}
