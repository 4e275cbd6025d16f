//! Schedules (G16).

use axum::http::{HeaderValue, StatusCode, header};
use domain::{
    ChildId, Json, ScheduleName,
    wire::{Query, QueryAnswer, Refusal},
};
use uuid::Uuid;

use super::runs::keyed;
use crate::{
    call::{Call, is_named, json},
    problem::{ApiResult, ProblemDetails},
    types::{ScheduleDeleted, ScheduleKept, ScheduleRun, SchedulesPage},
};

pub(super) async fn list(call: Call) -> ApiResult {
    json(StatusCode::OK, &page(&call).await?)
}

/// The requested page of schedules.
pub(crate) async fn page(call: &Call) -> ApiResult<SchedulesPage> {
    let query = Query::Schedules { after: call.one("after")?, limit: call.limit(100, 500)? };
    let answer = call.client.query(&query).await??;
    let QueryAnswer::Schedules { schedules, next } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    Ok(SchedulesPage { schedules, next })
}

pub(super) async fn show(call: Call) -> ApiResult {
    let query = Query::Schedule { name: call.part("schedule")? };
    let answer = call.client.query(&query).await?.map_err(ProblemDetails::refused_name)?;
    let QueryAnswer::Schedule(shown) = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &shown)
}

pub(super) async fn put(call: Call) -> ApiResult {
    let name: ScheduleName = call.part("schedule")?;
    let revision = call.number("revision")?;
    let schedule: Json = call.message().await?;
    let named = schedule.value().get("name").and_then(serde_json::Value::as_str);
    // Only the name is checked here. The coordinator reports all other problems together.
    if let Some(named) = named {
        is_named("name", named, name.as_str())?;
    }
    let asked = call.client.query(&Query::PutSchedule { schedule, revision }).await?;
    kept(asked.map_err(|refusal| {
        let moved = refusal.problems.iter().any(|problem| problem.path == "revision");
        if moved { ProblemDetails::refused_now(refusal) } else { ProblemDetails::refused(refusal) }
    })?)
}

fn kept(answer: QueryAnswer) -> ApiResult {
    let answer = answer;
    let QueryAnswer::ScheduleKept { name, revision, unchanged, paused, next } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &ScheduleKept { name, revision, unchanged, paused, next })
}

pub(super) async fn delete(call: Call) -> ApiResult {
    let answer = named(&call, |name| Query::DeleteSchedule { name }).await?;
    let QueryAnswer::ScheduleDeleted { name, at } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &ScheduleDeleted { name, at })
}

pub(super) async fn pause(call: Call) -> ApiResult {
    kept(named(&call, |name| Query::PauseSchedule { name }).await?)
}

pub(super) async fn resume(call: Call) -> ApiResult {
    kept(named(&call, |name| Query::ResumeSchedule { name }).await?)
}

pub(super) async fn run(call: Call) -> ApiResult {
    let id = keyed(&call, "schedule")?.unwrap_or_else(Uuid::new_v4);
    let id = ChildId::new(&id.simple().to_string())
        .map_err(|error| ProblemDetails::internal("no id could be made", &error))?;
    let answer = named(&call, |name| Query::RunSchedule { name, id }).await?;
    let QueryAnswer::ScheduleRun { name, trace_id } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    let mut response = json(StatusCode::CREATED, &ScheduleRun { name, trace_id })?;
    let place = HeaderValue::try_from(format!("/v1/runs/{trace_id}")).ok();
    response.headers_mut().extend(place.map(|place| (header::LOCATION, place)));
    Ok(response)
}

/// The answer to a query that contains only the name of a schedule.
async fn named(call: &Call, query: impl FnOnce(ScheduleName) -> Query) -> ApiResult<QueryAnswer> {
    let query = query(call.part("schedule")?);
    let refused = |refusal: Refusal| ProblemDetails::refused_name(refusal);
    call.client.query(&query).await?.map_err(refused)
}
