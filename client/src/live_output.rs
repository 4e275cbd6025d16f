//! Live output of the agents of a run (G9): pieces of answers, and the tools that the agents call.
//! It is not stored: a late subscriber misses earlier pieces and reads them in the journals.

use bus::Subscription;
use domain::{TraceId, decode, subject::Filter, wire::StreamPiece};

use crate::{Client, Error};

/// The live output of a run.
#[derive(Debug)]
pub struct LiveOutput(Subscription);

impl Client {
    pub async fn live_output(&self, trace_id: TraceId) -> Result<LiveOutput, Error> {
        Ok(LiveOutput(self.bus().subscribe(&Filter::StreamsOf(trace_id)).await?))
    }
}

impl LiveOutput {
    /// The next piece; none when the bus is closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<StreamPiece> {
        loop {
            let message = self.0.next().await?;
            if let Ok(piece) = decode::json::<StreamPiece>(&message.payload) {
                return Some(piece);
            }
        }
    }
}
