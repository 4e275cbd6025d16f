//! The journal and the files of a context. The journal lists the files, but it is not trusted:
//! checksums are compared, and a browser never renders the output of an agent as a page.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use client::Client;
use domain::{
    ChildId, TraceId,
    problem::nearest,
    wire::{HistoryEntry, OutputFile},
};

use super::runs::{content, is_known, tagged};
use crate::{
    blocking::blocking,
    call::{Call, json, json_bytes},
    problem::{ApiResult, ProblemDetails},
    range::{self, RequestedRange},
};

pub(super) async fn journal(call: Call) -> ApiResult {
    let entries = call.client.journal(call.part("trace")?, &call.part("child")?).await?;
    let bytes = blocking(move || serde_json::to_vec(&entries)).await?;
    let bytes =
        bytes.map_err(|error| ProblemDetails::internal("the journal could not be written", &error))?;
    Ok(json_bytes(StatusCode::OK, bytes))
}

pub(super) async fn outputs(call: Call) -> ApiResult {
    json(StatusCode::OK, &left(&call.client, call.part("trace")?, &call.part("child")?).await?)
}

/// The files that the last result in a journal lists; none if there is no result.
pub(crate) fn outputs_of(entries: &[HistoryEntry]) -> Option<Vec<OutputFile>> {
    entries.iter().rev().find_map(|entry| Some(entry.step.as_result()?.outputs.clone()))
}

/// The files that the last result lists; a refusal if the context has not ended.
async fn left(client: &Client, trace: TraceId, child: &ChildId) -> ApiResult<Vec<OutputFile>> {
    let entries = client.journal(trace, child).await?;
    if let Some(files) = outputs_of(&entries) {
        return Ok(files);
    }
    let trace = client.replay(trace).await?;
    Err(match trace.context(child).filter(|node| !node.is_live()) {
        None => {
            let message = format!("`{child}` has not ended yet: its files are collected when it ends");
            ProblemDetails::conflict("not_ended", message)
        }
        Some(_) => {
            let message = format!(
                "the files of `{child}` were not collected\n\nhint: files are collected when an agent ends by itself, not when it is stopped"
            );
            ProblemDetails::not_found("no_outputs", message)
        }
    })
}

/// The file that the request names.
pub(crate) async fn named_file(call: &Call) -> ApiResult<OutputFile> {
    let child: ChildId = call.part("child")?;
    let path: String = call.part("path")?;
    let mut files = left(&call.client, call.part("trace")?, &child).await?;
    let Some(place) = files.iter().position(|file| file.path == path) else {
        let hint = match nearest(&path, files.iter().map(|file| file.path.as_str())) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`…/outputs` of this context lists all files".into(),
        };
        let message = format!("`{child}` left no such file\n\nhint: {hint}");
        return Err(ProblemDetails::not_found("no_file", message));
    };
    Ok(files.swap_remove(place))
}

/// One file, or a part of it.
pub(super) async fn output(call: Call) -> ApiResult {
    let file = named_file(&call).await?;
    let tag = format!("\"{}\"", file.object.sha256);
    if is_known(&call, &tag) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), &tag));
    }
    let bytes = content(&call.client, &file.object).await?;
    // With another `If-Range` tag the client has an older version of the file, so it receives the
    // whole file.
    let same = call.header(header::IF_RANGE).is_none_or(|given| given == tag);
    let asked = call.header(header::RANGE).filter(|_| same).unwrap_or_default();
    let (size, mut response) = (bytes.len(), Response::default());
    match range::wanted(asked, size) {
        RequestedRange::All => *response.body_mut() = bytes.into(),
        RequestedRange::Part(part) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            set(
                &mut response,
                header::CONTENT_RANGE,
                &format!("bytes {}-{}/{size}", part.start, part.end - 1),
            );
            *response.body_mut() = bytes.slice(part).into();
        }
        RequestedRange::Nothing => {
            let message = format!("the range begins after the end of the file, which has {size} bytes");
            return Err(ProblemDetails::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", message)
                .with_header(header::CONTENT_RANGE, &format!("bytes */{size}")));
        }
    }
    set(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set(&mut response, header::CONTENT_DISPOSITION, &disposition(&file.path));
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    // If a browser renders the file, it runs no scripts of it.
    set(&mut response, header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'");
    Ok(tagged(response, &tag))
}

fn set(response: &mut Response, name: header::HeaderName, value: &str) {
    response.headers_mut().extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
}

/// A header that saves the file under the last part of its path (RFC 6266).
fn disposition(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let plain: String =
        name.chars().map(|c| if c.is_ascii() && is_plain(c as u8) { c } else { '_' }).collect();
    let encoded: String = name
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_end_its_header() {
        let given = disposition("a/b\"; x=\r\n€.html");
        assert_eq!(
            given,
            "attachment; filename=\"b___x____.html\"; filename*=UTF-8''b%22%3B%20x%3D%0D%0A%E2%82%AC.html"
        );
    }
}
