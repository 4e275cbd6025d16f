//! A log that a task of its own reads from its start, so that waiting for the next message is cancel-safe.

use bus::{From, Stored};
use domain::subject::Filter;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{Client, Error};

/// Messages read ahead: reading a log takes less time than replaying or drawing it.
const READ_AHEAD: usize = 256;

/// A log being read from its start. The reader ends with the first error.
#[derive(Debug)]
pub struct ReadAhead {
    incoming: mpsc::Receiver<Result<Stored, bus::Error>>,
    _reader: AbortOnDropHandle<()>,
}

impl Client {
    pub async fn read_ahead(&self, filters: &[Filter]) -> Result<ReadAhead, Error> {
        let mut follow = self.bus().follow(filters, From::Start).await?;
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
        Ok(ReadAhead { incoming, _reader: AbortOnDropHandle::new(reader) })
    }
}

impl ReadAhead {
    /// The next message. Cancel-safe.
    pub async fn next(&mut self) -> Result<Stored, Error> {
        Ok(self.incoming.recv().await.ok_or(Error::LogEnded)??)
    }
}
