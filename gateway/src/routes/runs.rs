//! Runs: submission, list, state, results and receipts.

use std::collections::BTreeMap;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use client::{Client, Content, RunList};
use domain::{
    ChildId, Problems, Timestamp, TraceId, decode,
    id::{LabelKey, LabelValue},
    wire::{ObjectReference, Payload, PendingQuery, Query, QueryAnswer, RunsCursor, RunsQuery, SubmitAnswer},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json, value::RawValue};
use trace::{ContextNode, Trace, account::Receipt};
use uuid::Uuid;

use crate::{
    blocking::blocking,
    call::{Call, json, json_bytes},
    parameter::MAX_NUMBER,
    problem::{ApiResult, ProblemDetails},
    types::{QuestionsPage, Run, RunsPage},
};

/// The namespace of the ids that are derived from an `Idempotency-Key`.
pub(super) const KEYS: Uuid = Uuid::from_u128(0x6b0c_4d1f_9a52_4c0e_8f57_21d3_7e64_b908);

/// An id derived from the key and the caller: equal for a repeated request, different for every
/// other caller.
pub(super) fn keyed(call: &Call, what: &str) -> ApiResult<Option<Uuid>> {
    let key = call.idempotency_key()?;
    // A name has no line breaks, so two callers can't produce the same text.
    Ok(key.map(|key| Uuid::new_v5(&KEYS, format!("{what}\n{}\n{key}", call.caller.name).as_bytes())))
}

/// The fields that identify a submission. The coordinator reads the others.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SubmissionIds {
    #[serde(deserialize_with = "given")]
    trace_id: Option<Value>,
    #[serde(deserialize_with = "given")]
    child_id: Option<Value>,
    agent_id: Option<Value>,
    name: Option<Value>,
    steps: Option<serde::de::IgnoredAny>,
    rerun: Option<serde::de::IgnoredAny>,
}

/// Distinguishes `null` from a missing field.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The message without ids that are null, which are equivalent to missing ones.
fn without_null_ids(body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body)?;
    fields.retain(|name, value| !(matches!(name.as_str(), "trace_id" | "child_id") && value.get() == "null"));
    serde_json::to_vec(&fields)
}

/// Submits a run, and answers after the commit. The message has all its ids before it is sent, so a
/// second delivery is the same run.
pub(super) async fn submit(call: Call) -> ApiResult {
    let key = keyed(&call, "run")?;
    let message = with_ids(&call.body, key)?;
    let answer = call.client.submit_json(message).await?;
    match answer {
        SubmitAnswer::Accepted(accepted) => {
            let mut response = json(StatusCode::CREATED, &accepted)?;
            if let Ok(place) = HeaderValue::try_from(format!("/v1/runs/{}", accepted.trace_id)) {
                response.headers_mut().insert(header::LOCATION, place);
            }
            Ok(response)
        }
        SubmitAnswer::Refused(refusal) => Err(ProblemDetails::refused(refusal)),
    }
}

/// The unchanged message, with the missing ids inserted before the other fields.
fn with_ids(body: &[u8], key: Option<Uuid>) -> ApiResult<Vec<u8>> {
    let malformed = |problems: Problems| ProblemDetails::malformed(&problems);
    decode::check_depth(body).map_err(malformed)?;
    let wrong = |message: String| malformed(Problems::one("", message, None));
    let named: SubmissionIds =
        serde_json::from_slice(body).map_err(|error| wrong(format!("not a JSON object: {error}")))?;
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(wrong("a submission is a JSON object".into()));
    }
    if [&named.trace_id, &named.child_id].contains(&&Some(Value::Null)) {
        return with_ids(&without_null_ids(body).map_err(|error| wrong(error.to_string()))?, key);
    }
    let mut ids = Map::new();
    if named.trace_id.is_none() {
        let id = key.unwrap_or_else(Uuid::new_v4);
        let trace = TraceId::from_u128(id.as_u128()).expect("a version is not all zeros");
        ids.insert("trace_id".into(), json!(trace));
    }
    // A rerun has the `child_id` of the run that it repeats.
    let is_rerun = named.rerun.is_some() && named.steps.is_none();
    if named.child_id.is_none() && !is_rerun {
        let (named, otherwise) =
            if named.steps.is_some() { (named.name, "graph") } else { (named.agent_id, "root") };
        let name = named.as_ref().and_then(Value::as_str).unwrap_or(otherwise);
        if let Ok(child) = ChildId::new(name) {
            ids.insert("child_id".into(), json!(child));
        }
    }
    let ids = Value::Object(ids).to_string();
    let inner = ids.trim_start_matches('{').trim_end_matches('}');
    let begins = body.iter().position(|byte| *byte == b'{').map_or(0, |place| place + 1);
    let is_alone = body[begins..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
    let comma: &[u8] = if inner.is_empty() || is_alone { b"" } else { b"," };
    Ok([&body[..begins], inner.as_bytes(), comma, &body[begins..]].concat())
}

pub(super) async fn list(call: Call) -> ApiResult {
    let query = wanted(&call)?;
    let RunList { runs, next, unfiltered } = call.client.runs(&query).await??;
    json(StatusCode::OK, &RunsPage { runs, next, unfiltered })
}

fn millis(text: &str) -> Option<u64> {
    text.parse().ok().filter(|millis| *millis <= MAX_NUMBER)
}

/// The filters of the list. Reports every invalid one.
pub(crate) fn wanted(call: &Call) -> ApiResult<RunsQuery> {
    let mut problems = Problems::default();
    let mut query = Map::new();
    query.insert("limit".into(), json!(call.limit(RunsQuery::default().limit, 500)?));
    for name in ["after", "thread_id", "agent_id", "min_cost_usd", "max_cost_usd", "prefix"] {
        query.extend(call.all(name).next().map(|text| (name.to_owned(), json!(text))));
    }
    query.extend(
        call.one::<bool>("waiting_for_human")?.map(|waits| ("waiting_for_human".into(), json!(waits))),
    );
    for name in ["since", "until"] {
        if let Some(text) = call.all(name).next() {
            match millis(text).map(Timestamp::from_millis).or_else(|| Timestamp::parse(text)) {
                Some(at) => drop(query.insert(name.into(), json!(at))),
                None => {
                    let hint =
                        "use milliseconds since 1970, or a time such as 2026-11-01 or 2026-11-01T08:00Z";
                    problems.add(name, format!("{text:?} is not a time"), Some(hint.into()));
                }
            }
        }
    }
    let statuses: Vec<&str> = call.all("status").collect();
    if !statuses.is_empty() {
        query.insert("status".into(), json!(statuses));
    }
    let mut labels = Map::new();
    for text in call.all("label") {
        let label = text.split_once('=');
        let label =
            label.and_then(|(key, value)| Some((LabelKey::new(key).ok()?, LabelValue::new(value).ok()?)));
        match label {
            None => problems.add("label", format!("{text:?} is not KEY=VALUE"), None),
            Some((key, value)) => {
                let before = labels.insert(key.to_string(), json!(value));
                if before.is_some_and(|before| before != json!(value)) {
                    problems.add("label", format!("a run has only one value of `{key}`"), None);
                }
            }
        }
    }
    if !labels.is_empty() {
        query.insert("labels".into(), labels.into());
    }
    let read = decode::value::<RunsQuery>(&query.into());
    match read {
        Ok(query) => problems.or(query).map_err(|problems| ProblemDetails::malformed(&problems)),
        Err(more) => {
            problems.extend(more);
            Err(ProblemDetails::malformed(&problems))
        }
    }
}

pub(super) async fn questions(call: Call) -> ApiResult {
    json(StatusCode::OK, &open_questions(&call).await?)
}

/// The requested page of open questions.
pub(crate) async fn open_questions(call: &Call) -> ApiResult<QuestionsPage> {
    let query = PendingQuery { limit: call.limit(50, 100)?, after: call.one::<RunsCursor>("after")? };
    let answer = call.client.query(&Query::Pending(query)).await??;
    let QueryAnswer::Pending { questions, next, left_out } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    Ok(QuestionsPage { questions, next, left_out })
}

/// The run with its tree. Its tag identifies its last commit, so equal tags mean equal states.
pub(super) async fn show(call: Call) -> ApiResult {
    let trace = call.client.replay(call.part("trace")?).await?;
    let tag = format!("\"{}-{}\"", trace.version(), trace.made().millis());
    if is_known(&call, &tag) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), &tag));
    }
    let bytes = blocking(move || serde_json::to_vec(&run(&trace))).await?;
    let bytes = bytes.map_err(|error| ProblemDetails::internal("the run could not be written", &error))?;
    Ok(tagged(json_bytes(StatusCode::OK, bytes), &tag))
}

fn run(trace: &Trace) -> Run {
    Run {
        trace_id: trace.id(),
        version: trace.version(),
        outcome: trace.root().and_then(|root| trace.outcome(&root.id)),
        contexts: trace.contexts().iter().map(|node| trace.snapshot(node)).collect(),
        deleted: trace
            .contexts()
            .iter()
            .filter(|node| node.lifecycle.deleted)
            .map(|node| node.id.clone())
            .collect(),
    }
}

/// True if the client already has the version with this tag.
pub(crate) fn is_known(call: &Call, tag: &str) -> bool {
    let given = call.header(header::IF_NONE_MATCH).unwrap_or_default();
    given.split(',').map(str::trim).any(|given| given == "*" || given.trim_start_matches("W/") == tag)
}

pub(crate) fn tagged(mut response: Response, tag: &str) -> Response {
    response.headers_mut().extend(HeaderValue::try_from(tag).ok().map(|tag| (header::ETAG, tag)));
    response
}

/// The result of the root.
pub(super) async fn result(call: Call) -> ApiResult {
    let trace = call.client.replay(call.part("trace")?).await?;
    result_of(&call.client, trace.root()).await
}

/// The result of a context.
pub(super) async fn context_result(call: Call) -> ApiResult {
    let child: ChildId = call.part("child")?;
    let trace = call.client.replay(call.part("trace")?).await?;
    result_of(&call.client, Some(context(&trace, &child)?)).await
}

pub(crate) fn context<'a>(trace: &'a Trace, child: &ChildId) -> ApiResult<&'a ContextNode> {
    trace.context(child).ok_or_else(|| {
        let message = format!(
            "there is no context `{child}` in this run\n\nhint: `GET /v1/runs/{}` lists them",
            trace.id()
        );
        ProblemDetails::not_found("unknown_context", message)
    })
}

async fn result_of(client: &Client, node: Option<&ContextNode>) -> ApiResult {
    let Some((node, end)) = node.and_then(|node| Some((node, node.end()?))) else {
        let message = "the context has not ended\n\nhint: the event stream ends with the outcome";
        return Err(ProblemDetails::conflict("not_ended", message));
    };
    match &end.details.result {
        _ if node.lifecycle.deleted => {
            Err(ProblemDetails::not_found("deleted", format!("the result of `{}` was deleted", node.id)))
        }
        Some(Payload::Inline(value)) => json(StatusCode::OK, value),
        Some(Payload::Reference(reference)) => {
            Ok(json_bytes(StatusCode::OK, content(client, reference).await?))
        }
        None => {
            let why = end.why().map_or_else(String::new, |why| format!(": {why}"));
            let message = format!("`{}` ended as {} and has no result{why}", node.id, end.status);
            Err(ProblemDetails::not_found("no_result", message))
        }
    }
}

/// The content of an object. An expired or altered object is a refusal.
pub(crate) async fn content(client: &Client, reference: &ObjectReference) -> ApiResult<bytes::Bytes> {
    match client.content(reference).await? {
        Content::Stored(bytes) => Ok(bytes),
        Content::Expired => Err(ProblemDetails::not_found(
            "expired",
            "the content is no longer stored\n\nhint: stored objects expire",
        )),
        Content::Altered => {
            let message = "the stored content was altered: its checksum differs";
            Err(ProblemDetails::new(StatusCode::BAD_GATEWAY, "not_authentic", message))
        }
    }
}

/// The cost of the run, line by line.
pub(super) async fn receipt(call: Call) -> ApiResult {
    let trace_id: TraceId = call.part("trace")?;
    let (log, ledger, journals) = call.client.account(trace_id).await?;
    let made = blocking(move || {
        let receipt = Receipt::of(&log, &ledger, &journals)?;
        Some(serde_json::to_vec(&json!({"receipt": receipt, "whole": log.findings.is_empty()})))
    });
    match made.await? {
        Some(bytes) => Ok(json_bytes(
            StatusCode::OK,
            bytes.map_err(|error| ProblemDetails::internal("the receipt could not be written", &error))?,
        )),
        None => {
            let message = format!("the event log of {trace_id} has no context, so there is no receipt");
            Err(ProblemDetails::not_found("expired", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_gets_the_ids_that_it_lacks_and_is_otherwise_as_it_came() {
        let key = Uuid::new_v5(&KEYS, b"x");
        let given = |body: &str| String::from_utf8(with_ids(body.as_bytes(), Some(key)).unwrap()).unwrap();
        let trace = TraceId::from_u128(key.as_u128()).unwrap();
        let read = |body: &str| serde_json::from_str::<Value>(&given(body)).unwrap();
        assert_eq!(read(r#"{"goal": "x"}"#), json!({"goal": "x", "trace_id": trace, "child_id": "root"}));
        assert_eq!(read("{ }"), json!({"trace_id": trace, "child_id": "root"}));
        let null = r#"{"trace_id": null, "goal": "x", "child_id": null, "max_cost_usd": 0.10}"#;
        assert!(given(null).contains("0.10") && !given(null).contains("null"), "{}", given(null));
        assert_eq!(read(null)["trace_id"], json!(trace));
        assert_eq!(read(r#"{"goal": "x", "agent_id": "echo"}"#)["child_id"], "echo");
        assert_eq!(read(r#"{"steps": [], "name": "facts"}"#)["child_id"], "facts");
        assert_eq!(read(r#"{"rerun": {}}"#), json!({"rerun": {}, "trace_id": trace}));
        let whole = r#" {"trace_id":"a","child_id":"b","goal":"x","max_cost_usd":0.10}"#;
        assert_eq!(given(whole), whole);
        for bad in
            ["", "[]", "3", "{", "nonsense", "\"x\"", "{\"goal\": \"x\", \"trace_id\": 1, \"trace_id\": 2}"]
        {
            assert!(with_ids(bad.as_bytes(), None).is_err(), "{bad}");
        }
        assert!(with_ids("[".repeat(100_000).as_bytes(), None).is_err());
    }
}
