//! The answer to a request that failed: `application/problem+json`, with the code, the rule and all
//! problems of a refusal. Only this file maps codes to HTTP statuses.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bus::{PublishError, RequestError};
use domain::{Problem, Problems, TraceId, wire::Refusal};
use serde::Serialize;

/// The result of a handler and of its parts: an answer, or the problem that the client receives
/// instead.
pub(crate) type ApiResult<T = Response> = Result<T, Box<ProblemDetails>>;

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";
/// After how many seconds a client may retry what is unavailable now.
const SOON: u64 = 1;

/// The reason for a failed request (RFC 9457). `code`, `rule`, `message` and `problems` are those
/// of a refusal.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ProblemDetails {
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: String,
    status: u16,
    /// The reason, in a sentence.
    detail: String,
    /// A code that programs can match on.
    code: String,
    /// The rule in docs/rules.md, such as `B6`.
    rule: String,
    /// The reason with the hint.
    message: String,
    /// A suggestion that may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Every problem of the input, with its path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
    #[serde(skip)]
    #[schemars(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ProblemDetails {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Box<Self> {
        Self::of(status, Refusal::new(code, "P", message))
    }

    fn of(status: StatusCode, refusal: Refusal) -> Box<Self> {
        let Refusal { code, rule, message, problems } = refusal;
        let (detail, hint) = match message.split_once("\n\nhint: ") {
            Some((detail, hint)) => (detail.to_owned(), Some(hint.to_owned())),
            None => (message.clone(), None),
        };
        let title = status.canonical_reason().unwrap_or("Refused").to_owned();
        let (kind, status, headers) = ("about:blank", status.as_u16(), Vec::new());
        Box::new(ProblemDetails { kind, title, status, detail, code, rule, message, hint, problems, headers })
    }

    pub(crate) fn with_header(mut self: Box<Self>, name: HeaderName, value: &str) -> Box<Self> {
        self.headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        self
    }

    fn again_after(self: Box<Self>, seconds: u64) -> Box<Self> {
        self.with_header(header::RETRY_AFTER, &seconds.to_string())
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("the number comes from a status")
    }

    /// The detail and the hint.
    pub(crate) fn told(&self) -> (&str, Option<&str>) {
        (&self.detail, self.hint.as_deref())
    }

    pub(crate) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.headers.clone()
    }

    /// 400: the request can't be parsed. Lists every problem.
    pub(crate) fn malformed(problems: &Problems) -> Box<Self> {
        Self::of(StatusCode::BAD_REQUEST, Refusal::invalid(problems))
    }

    /// 422: the request can be parsed but is not valid. Lists every problem.
    pub(crate) fn unfit(problems: &Problems) -> Box<Self> {
        Self::of(StatusCode::UNPROCESSABLE_ENTITY, Refusal::invalid(problems))
    }

    /// One problem of the request, at a place such as `query.limit`.
    pub(crate) fn wrong(path: &str, message: impl Into<String>, hint: Option<&str>) -> Box<Self> {
        Self::malformed(&Problems::one(path, message, hint.map(Into::into)))
    }

    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn conflict(code: &str, message: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(crate) fn too_many(wait: Duration, per_second: u32) -> Box<Self> {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!(
            "too many requests: the limit is {per_second} a second (built in)\n\nhint: wait {seconds} s"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).again_after(seconds)
    }

    /// The token was removed while the request arrived, or the server stops.
    pub(crate) fn no_more() -> Box<Self> {
        let message = "the token was removed, or the server is stopping\n\nhint: the request changed nothing";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
            .with_header(header::WWW_AUTHENTICATE, "Bearer realm=\"trellis\", error=\"invalid_token\"")
    }

    /// The answer for a coordinator's refusal.
    pub(crate) fn refused(refusal: Refusal) -> Box<Self> {
        let status = status_of(&refusal.code);
        let told = Self::of(status, refusal);
        if status == StatusCode::SERVICE_UNAVAILABLE { told.again_after(SOON) } else { told }
    }

    /// A coordinator's answer that belongs to another query.
    pub(crate) fn other_answer() -> Box<Self> {
        Self::refused(Refusal::unexpected("query"))
    }

    fn no_run(trace_id: TraceId) -> Box<Self> {
        let hint = "`GET /v1/runs` lists runs, the newest first; logs expire";
        Self::not_found("no_trace", format!("there is no run {trace_id}\n\nhint: {hint}"))
    }

    /// As [`Self::refused`], for a context that the body names: it is 422, because 404 is about the
    /// path.
    pub(crate) fn refused_body(refusal: Refusal) -> Box<Self> {
        if refusal.code == "unknown_context" {
            Self::of(StatusCode::UNPROCESSABLE_ENTITY, refusal)
        } else {
            Self::refused(refusal)
        }
    }

    /// As [`Self::refused`], where all but a name was checked before: `malformed` can only mean
    /// that nothing of this name exists.
    pub(crate) fn refused_name(refusal: Refusal) -> Box<Self> {
        if refusal.code == "malformed" {
            Self::of(StatusCode::NOT_FOUND, refusal)
        } else {
            Self::refused(refusal)
        }
    }

    /// As [`Self::refused`], where `malformed` means that the request conflicts with the present
    /// state.
    pub(crate) fn refused_now(refusal: Refusal) -> Box<Self> {
        if refusal.code == "malformed" {
            Self::of(StatusCode::CONFLICT, refusal)
        } else {
            Self::refused(refusal)
        }
    }

    /// An unexpected failure. The log has the error; the client does not receive it.
    pub(crate) fn internal(what: &str, error: &dyn std::fmt::Display) -> Box<Self> {
        tracing::error!(%error, "{what}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("{what}\n\nhint: the log of the gateway has the cause"),
        )
    }

    pub(crate) fn unavailable(message: &str) -> Box<Self> {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).again_after(SOON)
    }

    fn denied(denied: &bus::Denied) -> Box<Self> {
        tracing::warn!(%denied, "the bus denied the request of a client");
        let message = "the bus denied this request of the gateway\n\nhint: the log of the gateway names the missing right; its credentials need it";
        Self::new(StatusCode::FORBIDDEN, "denied", message)
    }
}

/// The status of a refusal. An unknown code is 422: the request was understood and can't be done.
fn status_of(code: &str) -> StatusCode {
    match code {
        "no_trace" | "unknown_context" | "no_question" | "no_dispute" => StatusCode::NOT_FOUND,
        "conflict" | "ended" | "message_conflict" | "amend_conflict" | "graph_moved" | "synthesis_begun"
        | "undoing" | "guarded" | "guard_unsure" | "not_restorable" | "overlap" | "dispute_decided"
        | "call_conflict" | "runs_no_agent" | "runs_no_graph" | "not_a_raise" | "raise_parent_first" => {
            StatusCode::CONFLICT
        }
        "denied" => StatusCode::FORBIDDEN,
        "unavailable" | "storage_full" => StatusCode::SERVICE_UNAVAILABLE,
        "not_authentic" | "unexpected_answer" => StatusCode::BAD_GATEWAY,
        "internal" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl From<RequestError> for Box<ProblemDetails> {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NoResponders => {
                ProblemDetails::unavailable("no coordinator listens\n\nhint: start one in the same namespace")
            }
            RequestError::TimedOut => ProblemDetails::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timeout",
                "no coordinator answered in time\n\nhint: the request may have been done; send it again",
            ),
            RequestError::Denied(denied) => ProblemDetails::denied(&denied),
            RequestError::Other(reason) => {
                tracing::warn!(%reason, "a request could not be sent");
                ProblemDetails::unavailable(
                    "the bus can't be reached\n\nhint: `trellis doctor` checks each server",
                )
            }
        }
    }
}

impl From<PublishError> for Box<ProblemDetails> {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Denied(denied) => ProblemDetails::denied(&denied),
            PublishError::Unacknowledged => ProblemDetails::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timeout",
                "the bus did not confirm in time that it stored the message\n\nhint: the message may be stored; send it again",
            ),
            PublishError::WrongSequence | PublishError::Full(_) | PublishError::Other(_) => {
                tracing::warn!(%error, "a message could not be stored");
                ProblemDetails::unavailable(
                    "the bus can't store the message at the moment\n\nhint: `trellis doctor` checks each server",
                )
            }
        }
    }
}

impl From<bus::Error> for Box<ProblemDetails> {
    fn from(error: bus::Error) -> Self {
        if let bus::Error::Denied(denied) = error {
            return ProblemDetails::denied(&denied);
        }
        tracing::warn!(%error, "the bus could not be read");
        ProblemDetails::unavailable(
            "the bus can't be read at the moment\n\nhint: `trellis doctor` checks each server",
        )
    }
}

impl From<Refusal> for Box<ProblemDetails> {
    fn from(refusal: Refusal) -> Self {
        ProblemDetails::refused(refusal)
    }
}

impl From<client::Error> for Box<ProblemDetails> {
    fn from(error: client::Error) -> Self {
        let internal = ProblemDetails::internal;
        match error {
            client::Error::Request { source, .. } => source.into(),
            client::Error::Publish(error) => error.into(),
            client::Error::Bus(error) => error.into(),
            client::Error::Answer { kind, .. } => ProblemDetails::refused(Refusal::unexpected(kind)),
            client::Error::OtherAnswer(_) => ProblemDetails::other_answer(),
            client::Error::NoRun(trace_id) => ProblemDetails::no_run(trace_id),
            client::Error::Expired(trace_id) => {
                let message = format!("the beginning of the event log of {trace_id} has expired");
                ProblemDetails::not_found("expired", message)
            }
            client::Error::NotBegun(trace_id) => {
                let message = format!("{trace_id} was cancelled before any context began");
                ProblemDetails::not_found("not_begun", message)
            }
            client::Error::NoJournal(missing) => {
                let (child, trace, hint) = (&missing.child_id, missing.trace_id, missing.hint());
                let message = format!("`{child}` of the run {trace} has no journal\n\nhint: {hint}");
                ProblemDetails::not_found("no_journal", message)
            }
            client::Error::NotAuthentic { .. } => {
                ProblemDetails::refused(Refusal::new("not_authentic", "S3", error.to_string()))
            }
            client::Error::Message(error) => internal("the message could not be written", &error),
            client::Error::Event(error) => {
                internal("the log has an event that this version of the gateway does not know", &error)
            }
            client::Error::Entry(problems) => {
                internal("the journal has an entry that this version of the gateway can't read", &problems)
            }
            client::Error::Outcome(error) => internal("an outcome can't be read", &error),
            client::Error::Interrupted(error) => internal("the answer could not be made", &error),
            client::Error::LogEnded => ProblemDetails::unavailable(&error.to_string()),
        }
    }
}

impl IntoResponse for Box<ProblemDetails> {
    fn into_response(self) -> Response {
        let bytes = serde_json::to_vec(&*self).expect("texts and numbers");
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.extend(self.headers);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_its_problems_and_its_hint() {
        let problems = Problems::one("goal", "the text is empty", Some("say what to do".into()));
        let told = serde_json::to_value(&*ProblemDetails::malformed(&problems)).unwrap();
        assert_eq!((&told["status"], &told["title"]), (&400.into(), &"Bad Request".into()));
        assert_eq!(told["problems"][0]["path"], "goal");
        assert_eq!(told["problems"][0]["hint"], "say what to do");
        let told = ProblemDetails::refused(Refusal::unavailable()).into_response();
        assert_eq!(told.status(), 503);
        assert_eq!(told.headers()["retry-after"], "1");
        assert_eq!(told.headers()["content-type"], PROBLEM_JSON);
        let told = ProblemDetails::not_found("no_trace", "there is none\n\nhint: look");
        assert_eq!((told.detail.as_str(), told.hint.as_deref()), ("there is none", Some("look")));
    }

    #[test]
    fn a_failure_of_the_bus_has_its_own_status() {
        let denied = bus::Denied { action: bus::Action::Publish, subject: "x".into() };
        let asked = |error: RequestError| Box::<ProblemDetails>::from(error).into_response();
        assert_eq!(asked(RequestError::NoResponders).headers()["retry-after"], "1");
        for (error, status) in [
            (RequestError::NoResponders, 503),
            (RequestError::TimedOut, 504),
            (RequestError::Denied(denied.clone()), 403),
            (RequestError::Other("x".into()), 503),
        ] {
            assert_eq!(asked(error).status(), status);
        }
        let stored = |error: PublishError| Box::<ProblemDetails>::from(error).status;
        assert_eq!(stored(PublishError::Unacknowledged), 504);
        assert_eq!(stored(PublishError::Full("x".into())), 503);
        assert_eq!(stored(PublishError::Denied(denied.clone())), 403);
        let read = |error: bus::Error| Box::<ProblemDetails>::from(error).status;
        assert_eq!(read(bus::Error::Denied(denied)), 403);
        let failed = bus::Error::Failed { doing: "reading".into(), reason: "secret".into() };
        let told = Box::<ProblemDetails>::from(failed);
        assert!(told.status == 503 && !told.message.contains("secret"), "the log has the reason");
    }

    #[test]
    fn a_refusal_has_the_status_of_its_code() {
        for (code, status) in [
            ("no_trace", 404),
            ("unknown_context", 404),
            ("conflict", 409),
            ("ended", 409),
            ("guarded", 409),
            ("denied", 403),
            ("unavailable", 503),
            ("storage_full", 503),
            ("internal", 500),
            ("not_authentic", 502),
            ("malformed", 422),
            ("above_maximum", 422),
            ("one that is new", 422),
        ] {
            assert_eq!(ProblemDetails::refused(Refusal::new(code, "P", "x")).status, status, "{code}");
        }
    }
}
