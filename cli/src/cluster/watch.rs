//! A trace while it runs: its log is replayed from the start, message by message. Messages of one commit may come out
//! of order or twice; a message that is too early is kept until its predecessor is here.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use coordinator::trace::{Logged, Trace};
use shared::{
    TraceId,
    bus::{self, Bus, From, Stored},
    subject::{Filter, Subject},
    wire::{Outcome, Question},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::{client::logged, connect::unreachable};

/// Messages read ahead: a log is replayed faster than it is drawn.
const READ_AHEAD: usize = 256;
/// How long to wait for the rest of the log once the outcome is known; then the outcome is shown without it.
const LAG: Duration = Duration::from_secs(2);

pub(crate) struct Watch {
    pub(crate) trace: Trace,
    /// The root's outcome, once it is known.
    outcome: Option<Outcome>,
    /// When the outcome came; since then only the rest of the log is missing.
    known_since: Option<Instant>,
    /// Messages that came before their predecessors, by version.
    early: BTreeMap<u64, Logged>,
    incoming: mpsc::Receiver<Result<Stored, bus::Error>>,
    _reader: AbortOnDropHandle<()>,
}

impl Watch {
    pub(crate) async fn begin(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Self> {
        let filters = [Filter::EventsOf(trace_id), Filter::OutcomesOf(trace_id)];
        let mut follow = bus.follow(&filters, From::Start).await.map_err(|error| unreachable(&error))?;
        let (sender, incoming) = mpsc::channel(READ_AHEAD);
        // A task of its own, so that waiting for the next message is cancel-safe.
        let reader = tokio::spawn(async move {
            loop {
                let next = follow.next().await;
                let failed = next.is_err();
                if sender.send(next).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Watch {
            trace: Trace::new(trace_id),
            outcome: None,
            known_since: None,
            early: BTreeMap::new(),
            incoming,
            _reader: AbortOnDropHandle::new(reader),
        })
    }

    /// Takes in the next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> anyhow::Result<()> {
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
        let logged = logged(&stored.payload)?;
        if !self.trace.replay(&logged) {
            self.early.insert(logged.version, logged);
        }
        while let Some(entry) = self.early.first_entry()
            && self.trace.replay(entry.get())
        {
            entry.remove();
        }
        Ok(())
    }

    /// The root's outcome, once the log is replayed up to it or is late.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        let replayed = self.trace.root().is_some_and(|root| !root.is_live());
        let late = self.known_since.is_some_and(|since| since.elapsed() >= LAG);
        self.outcome.as_ref().filter(|_| replayed || late)
    }

    /// Waits for the outcome.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<&Outcome> {
        while self.outcome().is_none() {
            self.next().await?;
        }
        self.outcome().context("the outcome is missing")
    }

    /// The open questions, oldest context first.
    pub(crate) fn questions(&self) -> Vec<Question> {
        questions(&self.trace)
    }
}

/// The open questions of a trace.
pub(crate) fn questions(trace: &Trace) -> Vec<Question> {
    trace.contexts().iter().filter_map(|node| trace.question(&node.id)).collect()
}
