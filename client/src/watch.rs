//! A run while it runs: its log is replayed from the start, message by message. Messages may arrive
//! out of order or twice; a commit is shown once all of it has arrived.

use std::time::Duration;

use domain::{
    TraceId,
    subject::Filter,
    wire::{Outcome, Question},
};
use tokio::time::{Instant, timeout_at};
use trace::{Replay, Superseded, Trace};

use crate::{Client, Error, ReadAhead, RunMessage};

/// The wait for the rest of the log after the outcome has arrived. After it, the outcome is shown
/// without the rest.
const LAG: Duration = Duration::from_secs(2);

/// A run being watched until the outcome of its root.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    replay: Replay,
    /// True if the log must be read from the start again, because the run was rebuilt from fewer
    /// events than were shown.
    again: bool,
    /// The root's outcome, once it has arrived.
    outcome: Option<Outcome>,
    /// The time when the outcome arrived. Since then only the rest of the log is missing.
    known_since: Option<Instant>,
    log: ReadAhead,
}

impl Client {
    /// Watches a run from its start; the run may begin later.
    pub async fn watch(&self, trace_id: TraceId) -> Result<Watch, Error> {
        Ok(Watch {
            client: self.clone(),
            replay: Replay::new(Trace::new(trace_id)),
            again: false,
            outcome: None,
            known_since: None,
            log: self.events_and_outcomes(trace_id).await?,
        })
    }

    async fn events_and_outcomes(&self, trace_id: TraceId) -> Result<ReadAhead, Error> {
        self.read_ahead(&[Filter::EventsOf(trace_id), Filter::OutcomesOf(trace_id)]).await
    }
}

impl Watch {
    pub fn trace(&self) -> &Trace {
        self.replay.trace()
    }

    /// Processes the next message. Cancel-safe.
    pub async fn next(&mut self) -> Result<(), Error> {
        if self.again {
            self.log = self.client.events_and_outcomes(self.trace().id()).await?;
            self.replay.restart();
            self.again = false;
        }
        let message = match self.known_since {
            Some(since) => match timeout_at(since + LAG, self.log.next()).await {
                Ok(message) => message?,
                Err(_) => return Ok(()),
            },
            None => self.log.next().await?,
        };
        match message {
            RunMessage::Events(message) => self.again = self.replay.add(message.logged) == Err(Superseded),
            RunMessage::Outcome(outcome) if outcome.context.parent_id.is_none() => {
                self.outcome = Some(*outcome);
                self.known_since.get_or_insert_with(Instant::now);
            }
            RunMessage::Outcome(_) => {}
        }
        Ok(())
    }

    /// The root's outcome, once the log is replayed up to it or is late.
    pub fn outcome(&self) -> Option<&Outcome> {
        let replayed = self.trace().root().is_some_and(|root| !root.is_live());
        let late = self.known_since.is_some_and(|since| since.elapsed() >= LAG);
        self.outcome.as_ref().filter(|_| replayed || late)
    }

    /// The open questions, oldest context first.
    pub fn questions(&self) -> Vec<Question> {
        questions(self.trace())
    }
}

/// The open questions of a run.
pub fn questions(trace: &Trace) -> Vec<Question> {
    trace.contexts().iter().filter_map(|node| trace.question(&node.id)).collect()
}
