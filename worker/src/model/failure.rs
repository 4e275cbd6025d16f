//! Classifies a failed call: refused by the provider, not sent, or of unknown end. In doubt the end
//! is unknown, because a call that may have been served may be charged.

use std::time::Duration;

use domain::wording::with_causes;
use genai::Error as Cause;
use reqwest::{StatusCode, header};
use serde_json::Value;

use super::{provider::Route, request::Error};
use crate::relay::Fault;

/// The most characters of a provider's message that are passed on.
const MAX_MESSAGE_CHARS: usize = 400;

/// The error of a request that the client could not build.
pub(super) fn not_sent(route: &Route<'_>, cause: &Cause) -> Error {
    Error::refused(route.redact(format!("the request to `{}` can't be built: {cause}", route.provider)))
}

/// The error of a call without a connection to a provider.
pub(super) fn no_relay(route: &Route<'_>, error: &std::io::Error) -> Error {
    let message = format!("no connection to `{}` can be made: {error}", route.provider);
    Error::Refused { message, retryable: true, retry_after: None }
}

/// The error of an answer that the client can't read.
pub(super) fn from_call(route: &Route<'_>, cause: &Cause) -> Error {
    // Errors of the transport are boxed.
    if let Cause::WebStream { error, cause, .. } = cause {
        let transport = error.downcast_ref::<reqwest::Error>().map(|error| with_causes(error));
        return lost(route, transport.as_ref().unwrap_or(cause));
    }
    lost(route, &cause.to_string())
}

/// The error of a call whose answer was not passed on, or only in part.
pub(super) fn from_fault(route: &Route<'_>, fault: &Fault) -> Error {
    let provider = route.provider;
    match fault {
        Fault::Status { status, headers, body } => {
            let message = route.redact(format!("`{provider}` answered {status}: {}", error_message(body)));
            if may_come_from_gateway(*status) {
                return Error::Unknown { message };
            }
            Error::Refused { message, retryable: is_retryable(*status), retry_after: retry_after(headers) }
        }
        Fault::Http(error) if error.is_connect() || error.is_builder() => Error::Refused {
            message: route.redact(format!("`{provider}` can't be reached: {}", short(&innermost(error)))),
            retryable: true,
            retry_after: None,
        },
        Fault::Http(error) | Fault::Broken(error) => lost(route, &with_causes(error)),
        Fault::Encoded | Fault::TooMuch(_) | Fault::Late(_) | Fault::Local(_) => {
            Error::Unknown { message: format!("the answer of `{provider}` was not read: {fault}") }
        }
    }
}

/// The innermost cause, such as `Connection refused (os error 111)`, and its address. The layers in
/// between add no information.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match error.url().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?))) {
        Some((host, port)) => format!("{cause}, at {host}:{port}"),
        None => cause.to_string(),
    }
}

fn lost(route: &Route<'_>, cause: &str) -> Error {
    let message = format!("the answer of `{}` was lost: {}", route.provider, short(cause));
    Error::Unknown { message: route.redact(message) }
}

/// Returns true if the status may come from a gateway while the provider is still working: the
/// gateway timed out (408, 504, 522, 524), or could not read or pass on the answer (502, 520, 521,
/// 523).
fn may_come_from_gateway(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 502 | 504 | 520..=524)
}

/// Returns true if the same call may succeed later.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 425 | 429) || status.is_server_error()
}

/// The pause before a retry: milliseconds (OpenAI), seconds, or a date, which is compared with the
/// date of the same answer.
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

/// The message in the body of an error, in any of the known places.
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
