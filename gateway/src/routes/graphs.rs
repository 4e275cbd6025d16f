//! Graphs that are stored under names (G18).

use axum::http::StatusCode;
use domain::{
    Json,
    wire::{Query, QueryAnswer},
};

use crate::{
    call::{Call, json},
    problem::{ApiResult, ProblemDetails},
    types::{GraphDeleted, GraphKept, GraphsPage},
};

pub(super) async fn list(call: Call) -> ApiResult {
    let query = Query::Graphs { after: call.one("after")?, limit: call.limit(100, 500)? };
    let answer = call.client.query(&query).await??;
    let QueryAnswer::Graphs { graphs, next } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &GraphsPage { graphs, next })
}

pub(super) async fn show(call: Call) -> ApiResult {
    let query = Query::Graph { name: call.part("graph")?, version: call.number("version")? };
    let answer = call.client.query(&query).await?.map_err(ProblemDetails::refused_name)?;
    let QueryAnswer::Graph(shown) = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &shown)
}

pub(super) async fn put(call: Call) -> ApiResult {
    let graph: Json = call.message().await?;
    let answer = call.client.query(&Query::PutGraph { name: call.part("graph")?, graph }).await??;
    let QueryAnswer::GraphKept { name, version, unchanged } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &GraphKept { name, version, unchanged })
}

pub(super) async fn delete(call: Call) -> ApiResult {
    let query = Query::DeleteGraph { name: call.part("graph")? };
    let answer = call.client.query(&query).await?.map_err(ProblemDetails::refused_name)?;
    let QueryAnswer::GraphDeleted { name, at } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &GraphDeleted { name, at })
}
