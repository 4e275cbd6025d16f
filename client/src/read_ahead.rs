//! The log of a run, read from its start and decoded by a task of its own. So the wait for the next
//! message is cancel-safe, and decoding continues while the last message is replayed or drawn.

use bus::{From, StoredMessage};
use domain::{
    subject::{Filter, Subject},
    wire::Outcome,
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use trace::account::LogMessage;

use crate::{Client, Error, log_message};

/// The most messages that are read ahead. Reading a log takes less time than replaying or drawing
/// it.
const READ_AHEAD: usize = 256;

/// A message of the log of a run.
#[derive(Debug)]
pub enum RunMessage {
    Events(LogMessage),
    Outcome(Box<Outcome>),
}

impl RunMessage {
    fn decode(stored: StoredMessage) -> Result<Self, Error> {
        if let Subject::Outcome(..) = stored.subject {
            return serde_json::from_slice(&stored.payload).map(RunMessage::Outcome).map_err(Error::Outcome);
        }
        log_message(stored).map(RunMessage::Events)
    }
}

/// A log being read from its start. The reader ends with the first error.
#[derive(Debug)]
pub struct ReadAhead {
    incoming: mpsc::Receiver<Result<RunMessage, Error>>,
    _reader: AbortOnDropHandle<()>,
}

impl Client {
    /// Reads the events or outcomes of runs.
    pub async fn read_ahead(&self, filters: &[Filter]) -> Result<ReadAhead, Error> {
        let mut follow = self.bus().follow(filters, From::Start).await?;
        let (sender, incoming) = mpsc::channel(READ_AHEAD);
        let reader = tokio::spawn(async move {
            loop {
                let next = follow.next().await.map_err(Error::from);
                let next = next.and_then(RunMessage::decode);
                let failed = next.is_err();
                if sender.send(next).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(ReadAhead { incoming, _reader: AbortOnDropHandle::new(reader) })
    }
}

impl ReadAhead {
    /// The next message. Cancel-safe.
    pub async fn next(&mut self) -> Result<RunMessage, Error> {
        self.incoming.recv().await.unwrap_or(Err(Error::LogEnded))
    }
}
