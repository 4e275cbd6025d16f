//! Actions on existing runs: `cancel`, `raise`, `charge`, `restore`, `delete`, `tell`, `answer`. A
//! published message is answered once it is stored. A command that the core would reject in the
//! present state of the run is rejected at once.

use axum::http::StatusCode;
use domain::{
    CallId, ChildId, TraceId,
    subject::Subject,
    wire::{self, Charge, Control, Query, QueryAnswer, Raise, Referrers, Text},
};
use host::clock::Clock;
use trace::{Command, Trace};
use uuid::Uuid;

use super::runs::keyed;
use crate::{
    blocking::blocking,
    call::{Call, json},
    problem::{ApiResult, ProblemDetails},
    types,
};

/// Decides the command on a replay of the run, so that the client receives a rejection at once. The
/// run may change in between, so the coordinator decides again.
async fn rehearse(trace: Trace, command: Command) -> ApiResult<Trace> {
    let decided = blocking(move || {
        let decided = trace::decide(&trace, command, Clock::Machine.now()).map(drop);
        decided.map(|()| trace).map_err(|refusal| refusal.to_wire())
    });
    decided.await?.map_err(ProblemDetails::refused_body)
}

fn stored() -> ApiResult {
    json(StatusCode::ACCEPTED, &types::Stored { stored: true })
}

/// Also cancels a run that begins later (G8).
pub(super) async fn cancel(call: Call) -> ApiResult {
    let trace_id: TraceId = call.part("trace")?;
    let types::Cancel { child_id, reason, without_undo } = call.message_or_default().await?;
    let known = call.client.find(trace_id).await?.unwrap_or_else(|| Trace::new(trace_id));
    let command = Command::Cancel {
        child_id: child_id.clone(),
        reason: reason.as_ref().map(ToString::to_string),
        without_undo,
    };
    let known = rehearse(known, command).await?;
    let node = child_id.as_ref().map_or_else(|| known.root(), |child| known.context(child));
    // `without_undo` may still stop an undo that is running after the end.
    let undoes = without_undo && known.root().is_some_and(|root| root.undoing > 0);
    if let Some((node, end)) = node.and_then(|node| Some((node, node.end()?))).filter(|_| !undoes) {
        let message = format!("`{}` has ended: {}", node.id, end.status);
        return Err(ProblemDetails::conflict("ended", message));
    }
    let cancel = wire::Cancel { trace_id, child_id, reason, without_undo };
    call.client.publish(Subject::Cancel, &cancel).await?;
    stored()
}

pub(super) async fn raise(call: Call) -> ApiResult {
    let trace_id = call.part("trace")?;
    let raise: Raise = call.message().await?;
    let known = call.client.replay(trace_id).await?;
    rehearse(known, Command::Raise(raise.clone())).await?;
    call.client.control(&Control { raise: Some(raise), ..Control::of(trace_id) }).await?;
    stored()
}

pub(super) async fn charge(call: Call) -> ApiResult {
    let trace_id = call.part("trace")?;
    let mut charge: Charge = call.message().await?;
    let known = call.client.replay(trace_id).await?;
    rehearse(known, Command::Charge(charge.clone())).await?;
    charge.by = charge.by.or_else(|| by(&call));
    call.client.control(&Control { charge: Some(charge), ..Control::of(trace_id) }).await?;
    stored()
}

pub(super) async fn restore(call: Call) -> ApiResult {
    let trace_id = call.part("trace")?;
    let types::Restore { child_id, to, number } = call.message().await?;
    let known = call.client.replay(trace_id).await?;
    let done = known.context(&child_id).map_or(0, |node| node.restores.len());
    let done = u32::try_from(done).unwrap_or(u32::MAX);
    let number = number.unwrap_or(done.saturating_add(1));
    let restore = wire::Restore { child_id: child_id.clone(), number, to };
    rehearse(known, Command::Restore(restore.clone())).await?;
    if number > done {
        let entries = call.client.journal(trace_id, &child_id).await?;
        let last = entries.last().map_or(0, |entry| entry.number);
        if to >= last {
            let message =
                format!("the journal of `{child_id}` has only {last} steps\n\nhint: name an earlier step");
            return Err(ProblemDetails::conflict("not_restorable", message));
        }
    }
    call.client.control(&Control { restore: Some(restore), ..Control::of(trace_id) }).await?;
    stored()
}

pub(super) async fn delete(call: Call) -> ApiResult {
    let trace_id: TraceId = call.part("trace")?;
    let types::Delete { child_id, force } = call.message_or_default().await?;
    let known = call.client.replay(trace_id).await?;
    let delete = wire::Delete { child_id, force, outside: Referrers::Known(Vec::new()) };
    let branches = match call.client.query(&Query::Branches { trace_id }).await? {
        Ok(QueryAnswer::Branches { branches }) => Some(branches),
        Err(_) => None,
        Ok(_) => return Err(ProblemDetails::other_answer()),
    };
    rehearse(known, Command::Delete { delete: delete.clone(), branches }).await?;
    call.client.control(&Control { delete: Some(delete), ..Control::of(trace_id) }).await?;
    stored()
}

/// The name of the caller, as text for the record.
fn by(call: &Call) -> Option<Text> {
    Text::new(call.caller.name.as_str()).ok()
}

pub(super) async fn tell(call: Call) -> ApiResult {
    let (trace_id, child_id) = (call.part("trace")?, call.part::<ChildId>("child")?);
    let types::Tell { text, id, by: said } = call.message().await?;
    let id = match id {
        Some(id) => id,
        None => {
            let id = keyed(&call, "tell")?.unwrap_or_else(Uuid::now_v7);
            CallId::new(&id.simple().to_string())
                .map_err(|error| ProblemDetails::internal("no id could be made", &error))?
        }
    };
    let told = wire::Tell { child_id: Some(child_id), id, text, by: said.or_else(|| by(&call)) };
    let answer = call.client.query(&Query::Tell { trace_id, told }).await??;
    let QueryAnswer::Told { child_id, number } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &types::Told { child_id, number })
}

pub(super) async fn answer(call: Call) -> ApiResult {
    let (trace_id, child_id) = (call.part("trace")?, call.part("child")?);
    let question: u32 = call.part("number")?;
    let types::Answer { answer, by: said } = call.message().await?;
    let answered = wire::AnswerMessage { child_id, question, answer, by: said.or_else(|| by(&call)) };
    let answer = call.client.query(&Query::Answer { trace_id, answered }).await??;
    let QueryAnswer::Answered { child_id, question } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::OK, &types::Answered { child_id, question })
}
