//! The agent profiles of a deployment.

use axum::http::StatusCode;
use domain::{
    AgentId, AgentProfile,
    wire::{Query, QueryAnswer},
};

use crate::{
    call::{Call, is_named, json},
    problem::{ApiResult, ProblemDetails},
    types::{AgentApplied, AgentDeleted, Agents},
};

pub(super) async fn list(call: Call) -> ApiResult {
    json(StatusCode::OK, &profiles(&call).await?)
}

pub(crate) async fn profiles(call: &Call) -> ApiResult<Agents> {
    let answer = call.client.query(&Query::Agents).await??;
    let QueryAnswer::Agents { agents, versions } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    Ok(Agents { agents, versions })
}

pub(super) async fn show(call: Call) -> ApiResult {
    let query = Query::Agent { agent_id: call.part("agent")?, version: call.number("version")? };
    let answer = call.client.query(&query).await?.map_err(ProblemDetails::refused_name)?;
    let QueryAnswer::Agent(found) = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &found)
}

pub(super) async fn apply(call: Call) -> ApiResult {
    let agent_id: AgentId = call.part("agent")?;
    let profile: AgentProfile = call.message().await?;
    is_named("agent_id", profile.agent_id.as_str(), agent_id.as_str())?;
    let answer = call.client.query(&Query::ApplyAgents { agents: vec![profile] }).await??;
    let QueryAnswer::Applied { versions, unchanged, .. } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    let (version, unchanged) = (versions.get(&agent_id).copied(), unchanged.contains(&agent_id));
    json(StatusCode::OK, &AgentApplied { agent_id, version, unchanged })
}

pub(super) async fn delete(call: Call) -> ApiResult {
    let agent_id: AgentId = call.part("agent")?;
    let query = Query::DeleteAgent { agent_id: agent_id.clone() };
    match call.client.query(&query).await? {
        Ok(QueryAnswer::Deleted { agent_id, at }) => json(StatusCode::OK, &AgentDeleted { agent_id, at }),
        Ok(_) => Err(ProblemDetails::other_answer()),
        Err(refusal) => {
            // An existing profile that can't be deleted is a built-in one.
            let is_there = call.client.query(&Query::Agent { agent_id, version: None }).await?;
            Err(if is_there.is_ok() {
                ProblemDetails::refused_now(refusal)
            } else {
                ProblemDetails::refused_name(refusal)
            })
        }
    }
}
