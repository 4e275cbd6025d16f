//! The deployment itself: workers, coordinators, dead letters, sign-in codes, and the health of the
//! gateway.

use std::time::Duration;

use axum::{http::StatusCode, response::IntoResponse};
use bus::{
    ClientBus, From, StoredMessage,
    role::{Kind, senders},
};
use client::{RetryRefusal, StoredLetter};
use domain::{
    ChildId, WorkerId,
    problem::nearest,
    subject::Filter,
    wire::{Drain, Query, QueryAnswer},
};
use tokio::time::timeout;

use crate::{
    blocking::blocking,
    call::{Call, json, json_bytes},
    problem::{ApiResult, ProblemDetails},
    types::{Coordinators, KeptLetter, LettersPage, SentAgain, SignInCode, ToldToDrain},
};

/// A bus that does not answer within this time is not ready.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn workers(call: Call) -> ApiResult {
    json(StatusCode::OK, &call.client.workers().await?)
}

pub(super) async fn drain(call: Call) -> ApiResult {
    let worker_id: WorkerId = call.part("worker")?;
    let known = call.client.workers().await?;
    if !known.iter().any(|worker| worker.worker_id == worker_id) {
        let hint = match nearest(worker_id.as_str(), known.iter().map(|worker| worker.worker_id.as_str())) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`GET /v1/workers` lists the workers that answer".into(),
        };
        let message = format!("no worker `{worker_id}` answers\n\nhint: {hint}");
        return Err(ProblemDetails::not_found("no_worker", message));
    }
    let answer = call.client.query(&Query::Drain(Drain { worker_id })).await??;
    let QueryAnswer::ToldToDrain { worker_id } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    json(StatusCode::ACCEPTED, &ToldToDrain { worker_id })
}

pub(super) async fn coordinators(call: Call) -> ApiResult {
    json(StatusCode::OK, &coordinators_now(&call).await?)
}

pub(crate) async fn coordinators_now(call: &Call) -> ApiResult<Coordinators> {
    let answer = call.client.query(&Query::Coordinators).await??;
    let QueryAnswer::Coordinators { coordinators, policies, partitions } = answer else {
        return Err(ProblemDetails::other_answer());
    };
    Ok(Coordinators { coordinators, policies, partitions })
}

impl std::convert::From<StoredLetter> for KeptLetter {
    fn from(StoredLetter { stored, kind, letter }: StoredLetter) -> Self {
        KeptLetter { kind, sequence: stored.sequence, stored_at: stored.at, letter }
    }
}

pub(super) async fn letters(call: Call) -> ApiResult {
    let page = dead_letters(&call).await?;
    let bytes = blocking(move || serde_json::to_vec(&page)).await?;
    let bytes =
        bytes.map_err(|error| ProblemDetails::internal("the letters could not be written", &error))?;
    Ok(json_bytes(StatusCode::OK, bytes))
}

/// The requested page of dead letters.
pub(crate) async fn dead_letters(call: &Call) -> ApiResult<LettersPage> {
    let limit = call.limit(100, 500)? as usize;
    let before = call.number("before")?.unwrap_or(u64::MAX);
    let filter = StoredLetter::filter(call.one::<ChildId>("kind")?);
    let stored = call.client.bus().read(&filter).await?;
    let page = blocking(move || {
        let earlier = stored.into_iter().rev().filter(|stored| stored.sequence < before);
        let letters = earlier.filter_map(StoredLetter::read).map(KeptLetter::from);
        let mut letters: Vec<KeptLetter> = letters.take(limit + 1).collect();
        let more = letters.len() > limit;
        letters.truncate(limit);
        let next = letters.last().filter(|_| more).map(|last| last.sequence);
        LettersPage { letters, next }
    });
    page.await
}

/// The stored letter that the request names.
async fn named_letter(call: &Call) -> ApiResult<StoredLetter> {
    let (kind, sequence) = (call.part::<ChildId>("kind")?, call.part::<u64>("sequence")?);
    let none = || {
        let message =
            "this dead letter does not exist\n\nhint: `GET /v1/dead` lists dead letters; they expire";
        ProblemDetails::not_found("no_letter", message)
    };
    let filter = StoredLetter::filter(Some(kind));
    let last = call.client.bus().last(&filter).await?.ok_or_else(none)?;
    // A read from after the last letter would wait for the next one.
    if !(1..=last.sequence).contains(&sequence) {
        return Err(none());
    }
    let stored = first_from(call.client.bus(), filter, sequence).await?.ok_or_else(none)?;
    StoredLetter::read(stored).filter(|found| found.stored.sequence == sequence).ok_or_else(none)
}

/// The first message from `sequence` on. None if none arrives in time: another client may drop it,
/// and all later ones, during the search.
async fn first_from(
    bus: &ClientBus,
    filter: Filter,
    sequence: u64,
) -> Result<Option<StoredMessage>, bus::Error> {
    let mut messages = bus.follow(&[filter], From::Sequence(sequence)).await?;
    timeout(ANSWER_WITHIN, messages.next()).await.ok().transpose()
}

pub(super) async fn one_letter(call: Call) -> ApiResult {
    json(StatusCode::OK, &KeptLetter::from(named_letter(&call).await?))
}

/// Sends the message of a letter again. The request's body is the message.
pub(super) async fn retry_letter(call: Call) -> ApiResult {
    let found = named_letter(&call).await?;
    let StoredLetter { stored, kind, letter } = &found;
    let (by, sequence) = (&call.caller.name, stored.sequence);
    let retried = call.client.retry_letter(&found, call.body.to_vec(), |subject| call.may_send(subject));
    match retried.await? {
        Ok(()) => {
            tracing::info!(%by, %kind, sequence, subject = letter.subject, "a dead letter was sent again");
            json(StatusCode::ACCEPTED, &SentAgain { subject: letter.subject.clone() })
        }
        Err(RetryRefusal::NotAllowed(subject)) => {
            let kinds: Vec<&str> = senders(&subject).iter().copied().map(Kind::name).collect();
            let message = format!(
                "`{by}` may not send on `{subject}`: it needs the role {}\n\nhint: use a token with this role; messages that only workers send can't be sent \
                 again over HTTP",
                kinds.join(" or ")
            );
            Err(ProblemDetails::new(StatusCode::FORBIDDEN, "denied", message))
        }
        Err(why @ RetryRefusal::NoQueue(_)) => {
            let message = format!("the message can't be sent again: {why}");
            Err(ProblemDetails::conflict("not_queued", message))
        }
        Err(other @ RetryRefusal::OtherMessage(_)) => {
            let message = format!(
                "{other}\n\nhint: send the original message, byte by byte; to send a changed message, submit it as a new one"
            );
            Err(ProblemDetails::conflict("conflict", message))
        }
    }
}

pub(super) async fn drop_letter(call: Call) -> ApiResult {
    let StoredLetter { stored, kind, .. } = named_letter(&call).await?;
    call.client.drop_letter(&stored).await?;
    tracing::info!(by = %call.caller.name, %kind, stored.sequence, "a dead letter was dropped");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A code that signs the caller in to the page, once.
pub(super) async fn sign_in_code(call: Call) -> ApiResult {
    // A server without tokens needs no code. Its only caller has no digest.
    let known = call.known.clone().filter(|known| !known.digest().is_empty());
    if known.as_ref().is_some_and(|known| known.until.is_some()) {
        let message = "a session can't make a sign-in code\n\nhint: use a token";
        return Err(ProblemDetails::new(StatusCode::FORBIDDEN, "denied", message));
    }
    let code = known.map(|known| call.sessions.code_for(known));
    json(StatusCode::CREATED, &SignInCode { host: code.as_ref().and(call.sessions.host.clone()), code })
}

pub(super) async fn health(_: Call) -> ApiResult {
    Ok("ok\n".into_response())
}

pub(super) async fn readiness(call: Call) -> ApiResult {
    match timeout(ANSWER_WITHIN, call.client.bus().ping()).await {
        Ok(Ok(_)) => Ok("ready\n".into_response()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(bus::RequestError::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use bus::{Bus, Memory};
    use domain::subject::Subject;

    use super::*;

    /// proves: a request for a letter is answered, even if another client drops the letter in
    /// between.
    #[tokio::test(start_paused = true)]
    async fn a_letter_that_is_dropped_while_it_is_looked_for_is_not_waited_for() {
        let bus = ClientBus::from(Bus::Memory(Memory::new(Default::default())));
        let filter = Filter::One(Subject::Dead("cancel".parse().unwrap()));
        let found = first_from(&bus, filter, 1);
        assert!(timeout(2 * ANSWER_WITHIN, found).await.expect("the request is answered").unwrap().is_none());
    }
}
