//! Live output of the agents of a run (G9): pieces of answers, and the tools they call. It is not stored: a late
//! subscriber misses what came before, and finds it in `trellis history`.

use bus::{Bus, Subscription};
use domain::{TraceId, decode, subject::Filter, wire::StreamPiece};

use crate::cluster::connect::unreachable;

/// The live output of a run, if it is wanted.
pub(crate) enum Stream {
    Off,
    On(Subscription),
}

impl Stream {
    pub(crate) async fn listen(bus: &Bus, trace_id: TraceId, wanted: bool) -> anyhow::Result<Self> {
        if !wanted {
            return Ok(Stream::Off);
        }
        let heard = bus.subscribe(&Filter::StreamsOf(trace_id)).await.map_err(|error| unreachable(&error))?;
        Ok(Stream::On(heard))
    }

    /// The next piece; never, if it is off. Cancel-safe.
    pub(crate) async fn next(&mut self) -> StreamPiece {
        let Stream::On(heard) = self else { return std::future::pending().await };
        loop {
            let Some(message) = heard.next().await else { return std::future::pending().await };
            if let Ok(piece) = decode::json::<StreamPiece>(&message.payload) {
                return piece;
            }
        }
    }
}
