//! The gateway's side: makes a call on a bus and returns its answer line by line. It does not check
//! permissions; `role::may_call` does.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use domain::subject::Filter;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::timeout;

use super::call::{AsText, Base64Bytes, Call, Failure, Line};
use crate::{
    error::PublishError,
    handle::Bus,
    message::{From, Outgoing},
    stream::{Follow, Subscription},
};

/// The longest wait that a caller may ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The interval between lines while there is no data.
const ALIVE: Duration = Duration::from_secs(15);
/// The most filters of one followed log.
const MAX_FILTERS: usize = 16;
/// The most bytes of an object in one line.
const PART_BYTES: usize = 256 << 10;

/// An answer that is being produced.
pub type Answer = Pin<Box<dyn Stream<Item = Line> + Send>>;

/// Makes a call. A failure at the start is returned as an error; a later failure ends the answer
/// with [`Line::Failed`].
pub async fn answer(bus: &Bus, call: Call) -> Result<Answer, Failure> {
    let wait = |ms: u64| Duration::from_millis(ms).min(MAX_WAIT);
    Ok(match call {
        Call::Request { subject, headers, payload, timeout_ms } => {
            let answer = bus.request(&subject, &headers, payload.0, wait(timeout_ms)).await?;
            whole([Line::Bytes(Base64Bytes(answer))])
        }
        Call::Gather { subject, payload, wait_ms } => {
            let answers = bus.gather(&subject, payload.0, wait(wait_ms)).await?;
            whole(answers.into_iter().map(|answer| Line::Bytes(Base64Bytes(answer))))
        }
        Call::Publish { subject, id, headers, payload, expect_last } => {
            let outgoing = Outgoing { subject, id, headers, payload: payload.0, expect_last };
            // `send` instead of `publish`: only coordinators make room in a full subject.
            let mut stored = bus.send(vec![outgoing]).await.stored().await;
            let published = stored.pop().unwrap_or(Err(PublishError::Unacknowledged))?;
            whole([Line::Published { sequence: published.sequence, duplicate: published.duplicate }])
        }
        Call::Read { filter } => whole(bus.read(&filter).await?.into_iter().map(Line::from)),
        Call::Last { filter } => whole(bus.last(&filter).await?.map(Line::from)),
        Call::Subjects { filter } => {
            let subjects = bus.subjects(&filter).await?;
            whole(subjects.into_iter().map(|subject| Line::Subject(AsText(subject))))
        }
        Call::End { filter } => whole([Line::from(bus.end(&filter).await?)]),
        Call::Follow { filters, from } => {
            if filters.len() > MAX_FILTERS {
                return Err(Failure::Refused(format!("more than {MAX_FILTERS} filters")));
            }
            let filters: Vec<Filter> = filters.into_iter().map(|named| named.0).collect();
            following(bus.follow(&filters, From::Sequence(from.max(1))).await?)
        }
        Call::Subscribe { filter } => listening(bus.subscribe(&filter).await?),
        Call::DeleteMessage { subject, sequence } => {
            bus.delete_message(&subject, sequence).await?;
            whole([])
        }
        Call::Object { name, sha256 } => {
            let object = match sha256 {
                Some(sha256) => bus.get_content(&name, &sha256).await?,
                None => bus.get_object(&name).await?,
            };
            whole(object.into_iter().flat_map(parts))
        }
        Call::Backlog { consumer } => whole([Line::from(bus.backlog(&consumer).await?)]),
        Call::Fill => whole(bus.fill().await?.into_iter().map(Line::from)),
        Call::Ping => {
            bus.ping().await?;
            whole([])
        }
    })
}

/// An answer that ends.
fn whole<I>(lines: I) -> Answer
where
    I: IntoIterator<Item = Line>,
    I::IntoIter: Send + 'static,
{
    Box::pin(stream::iter(lines.into_iter().chain([Line::Done])))
}

/// The lines of an object. An empty object has one empty line.
fn parts(object: Bytes) -> impl Iterator<Item = Line> + Send {
    let count = object.len().div_ceil(PART_BYTES).max(1);
    (0..count).map(move |part| {
        let start = part * PART_BYTES;
        Line::Bytes(Base64Bytes(object.slice(start..object.len().min(start + PART_BYTES))))
    })
}

fn following(follow: Follow) -> Answer {
    alive(stream::unfold(Some(follow), |follow| async {
        let mut follow = follow?;
        match follow.next().await {
            Ok(stored) => Some((Line::from(stored), Some(follow))),
            Err(error) => Some((Line::Failed(error.into()), None)),
        }
    }))
}

fn listening(subscription: Subscription) -> Answer {
    alive(stream::unfold(Some(subscription), |subscription| async {
        let mut subscription = subscription?;
        match subscription.next().await {
            Some(message) => Some((Line::from(message), Some(subscription))),
            None => Some((Line::Done, None)),
        }
    }))
}

/// Adds a [`Line::Alive`] whenever `lines` has had no line for a while. The wait for the next line
/// continues.
fn alive(lines: impl Stream<Item = Line> + Send + 'static) -> Answer {
    let lines: Answer = Box::pin(lines);
    Box::pin(stream::unfold(lines, |mut lines| async {
        match timeout(ALIVE, lines.next()).await {
            Ok(line) => Some((line?, lines)),
            Err(_) => Some((Line::Alive, lines)),
        }
    }))
}
