//! The page's style and script. Their addresses contain a digest of their content, so that a
//! browser caches them until they change.

use std::sync::LazyLock;

use axum::{http::header, response::IntoResponse};
use domain::digest;

use crate::{
    call::Call,
    problem::{ApiResult, ProblemDetails},
};

pub(super) const STYLE: &str = include_str!("page.css");
/// One script from two files; the second one draws the timeline.
pub(super) const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("timeline.js"));

/// The digest of both files, which is part of their addresses.
pub(super) static VERSION: LazyLock<String> =
    LazyLock::new(|| digest::sha256([STYLE, SCRIPT].concat())[..16].to_owned());

pub(super) async fn get(call: Call) -> ApiResult {
    let (kind, content) = match call.part::<String>("name")?.as_str() {
        "page.css" => ("text/css; charset=utf-8", STYLE),
        "page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return Err(ProblemDetails::not_found("no_route", "there is no such file")),
    };
    let kept = "public, max-age=31536000, immutable";
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, kept)], content).into_response())
}
