//! Answers of a gateway without an end: a followed log, and a subscription to broadcasts.

use std::time::Duration;

use domain::subject::Filter;
use tokio::time::{Instant, sleep};

use super::{
    answer::Lines,
    call::{AsText, Call, Failure, Line},
    client::Http,
};
use crate::{
    error::Error,
    message::{From, Message, Position, StoredMessage},
    stream,
};

/// The time for which an unreachable server is retried.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

/// A followed log. After a lost connection it connects again and continues after the last message
/// that was read.
#[derive(Debug)]
pub struct Follow {
    http: Http,
    filters: Vec<Filter>,
    /// The log, and the sequence of the last message that was read.
    read: Position,
    lines: Option<Lines>,
    /// The time since which the server is unreachable.
    gone: Option<Instant>,
}

impl Http {
    pub(in super::super) async fn follow(
        &self,
        filters: &[Filter],
        from: From,
    ) -> Result<stream::Follow, Error> {
        let Some(first) = filters.first() else {
            let reason = "no filter given".into();
            return Err(Error::Failed { doing: "following a log".into(), reason });
        };
        let end = self.end(first).await?;
        let sequence = match from {
            From::Start => 0,
            From::Sequence(sequence) => sequence.saturating_sub(1),
            From::Now => end.sequence,
        };
        let read = Position { log: end.log, sequence };
        let mut follow =
            Follow { http: self.clone(), filters: filters.to_vec(), read, lines: None, gone: None };
        // Connect now, so that a missing permission is reported at once.
        follow.connect().await.map_err(|failure| failure.while_doing("following a log", &self.url))?;
        Ok(stream::Follow::Http(Box::new(follow)))
    }

    pub(in super::super) async fn subscribe(&self, filter: &Filter) -> Result<stream::Subscription, Error> {
        let call = Call::Subscribe { filter: filter.clone() };
        let lines = self.call(&call).await.map_err(|failure| failure.while_doing("listening", &self.url))?;
        let subscription = Subscription { http: self.clone(), call, lines: Some(lines), gone: None };
        Ok(stream::Subscription::Http(Box::new(subscription)))
    }
}

impl Follow {
    async fn connect(&mut self) -> Result<(), Failure> {
        let filters = self.filters.iter().cloned().map(AsText).collect();
        self.lines = Some(
            self.http.call(&Call::Follow { filters, from: self.read.sequence.saturating_add(1) }).await?,
        );
        Ok(())
    }

    /// The next message. Cancel-safe.
    pub(in super::super) async fn next(&mut self) -> Result<StoredMessage, Error> {
        loop {
            let failure = match self.try_next().await {
                Ok(stored) => {
                    self.gone = None;
                    self.read.sequence = stored.sequence;
                    return Ok(stored);
                }
                Err(failure) => failure,
            };
            // A connection that received data ends the series of failed attempts.
            if self.lines.take().is_some_and(|lines| lines.bytes() > 0) {
                self.gone = None;
            }
            let gone = *self.gone.get_or_insert_with(Instant::now);
            if !failure.is_of_the_connection() || gone.elapsed() > PATIENCE {
                return Err(failure.while_doing("following a log", &self.http.url));
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_next(&mut self) -> Result<StoredMessage, Failure> {
        if self.lines.is_none() {
            // A restarted server may have a new log, whose sequences have another meaning.
            let end = self.http.end(&self.filters[0]).await;
            let end = end.map_err(|error| {
                let why = error.to_string();
                if let Error::Unreached { .. } = error {
                    Failure::Unreached(why)
                } else {
                    Failure::Other(why)
                }
            })?;
            if end.log != self.read.log {
                return Err(Failure::Other("its log was recreated meanwhile".into()));
            }
            self.connect().await?;
        }
        let Some(lines) = &mut self.lines else { return Err(Failure::Unreached("no connection".into())) };
        match lines.next().await? {
            Some(line) => line
                .stored()
                .ok_or_else(|| Failure::Other("the server's answer does not fit the call".into())),
            None => Err(Failure::Unreached("it has ended".into())),
        }
    }
}

/// A subscription to broadcasts. Broadcasts during a lost connection are missed.
#[derive(Debug)]
pub struct Subscription {
    http: Http,
    call: Call,
    lines: Option<Lines>,
    gone: Option<Instant>,
}

impl Subscription {
    /// The next message; none if the server stays unreachable. Cancel-safe.
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        loop {
            match self.try_next().await {
                Ok(Some(message)) => {
                    self.gone = None;
                    return Some(message);
                }
                Ok(None) => {}
                Err(failure) if !failure.is_of_the_connection() => return None,
                Err(_) => {}
            }
            if self.lines.take().is_some_and(|lines| lines.bytes() > 0) {
                self.gone = None;
            }
            if self.gone.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return None;
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_next(&mut self) -> Result<Option<Message>, Failure> {
        if self.lines.is_none() {
            self.lines = Some(self.http.call(&self.call).await?);
        }
        match &mut self.lines {
            Some(lines) => Ok(lines.next().await?.and_then(Line::heard)),
            None => Ok(None),
        }
    }
}
