//! A trace while it runs: its log is replayed from the start, message by message. Messages may come out of order or
//! twice; a commit is shown once all of it is here.

use std::time::Duration;

use anyhow::Context;
use bus::{Bus, From, Stored};
use domain::{
    TraceId,
    subject::{Filter, Subject},
    wire::{Outcome, Question},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use trace::{Replay, Superseded, Trace};

use crate::cluster::{client::logged, connect::unreachable};

/// Messages read ahead: a log is replayed faster than it is drawn.
const READ_AHEAD: usize = 256;
/// How long to wait for the rest of the log once the outcome is known; then the outcome is shown without it.
const LAG: Duration = Duration::from_secs(2);

pub(crate) struct Watch {
    bus: Bus,
    replay: Replay,
    /// The log is to be read from the start again, because the trace was rebuilt from less than was shown.
    again: bool,
    /// The root's outcome, once it is known.
    outcome: Option<Outcome>,
    /// When the outcome came; since then only the rest of the log is missing.
    known_since: Option<Instant>,
    incoming: mpsc::Receiver<Result<Stored, bus::Error>>,
    _reader: AbortOnDropHandle<()>,
}

type Reader = (mpsc::Receiver<Result<Stored, bus::Error>>, AbortOnDropHandle<()>);

/// Reads the log of a trace from its start, in a task of its own, so that waiting for the next message is
/// cancel-safe.
async fn read(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Reader> {
    let filters = [Filter::EventsOf(trace_id), Filter::OutcomesOf(trace_id)];
    let mut follow = bus.follow(&filters, From::Start).await.map_err(|error| unreachable(&error))?;
    let (sender, incoming) = mpsc::channel(READ_AHEAD);
    let reader = tokio::spawn(async move {
        loop {
            let next = follow.next().await;
            let failed = next.is_err();
            if sender.send(next).await.is_err() || failed {
                return;
            }
        }
    });
    Ok((incoming, AbortOnDropHandle::new(reader)))
}

impl Watch {
    pub(crate) async fn begin(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Self> {
        let (incoming, reader) = read(bus, trace_id).await?;
        let replay = Replay::new(Trace::new(trace_id));
        let bus = bus.clone();
        Ok(Watch { bus, replay, again: false, outcome: None, known_since: None, incoming, _reader: reader })
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.replay.trace()
    }

    /// Takes in the next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> anyhow::Result<()> {
        if self.again {
            (self.incoming, self._reader) = read(&self.bus, self.trace().id()).await?;
            self.replay.restart();
            self.again = false;
        }
        let received = match self.known_since {
            Some(since) => match timeout_at(since + LAG, self.incoming.recv()).await {
                Ok(received) => received,
                Err(_) => return Ok(()),
            },
            None => self.incoming.recv().await,
        };
        let stored = received.context("the event log ended")?.map_err(|error| unreachable(&error))?;
        if let Subject::Outcome(..) = stored.subject {
            let outcome: Outcome =
                serde_json::from_slice(&stored.payload).context("could not read an outcome")?;
            if outcome.context.parent_id.is_none() {
                self.outcome = Some(outcome);
                self.known_since.get_or_insert_with(Instant::now);
            }
            return Ok(());
        }
        if let Err(Superseded) = self.replay.add(logged(&stored.payload)?) {
            self.again = true;
        }
        Ok(())
    }

    /// The root's outcome, once the log is replayed up to it or is late.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        let replayed = self.trace().root().is_some_and(|root| !root.is_live());
        let late = self.known_since.is_some_and(|since| since.elapsed() >= LAG);
        self.outcome.as_ref().filter(|_| replayed || late)
    }

    /// The open questions, oldest context first.
    pub(crate) fn questions(&self) -> Vec<Question> {
        questions(self.trace())
    }
}

/// The open questions of a trace.
pub(crate) fn questions(trace: &Trace) -> Vec<Question> {
    trace.contexts().iter().filter_map(|node| trace.question(&node.id)).collect()
}
