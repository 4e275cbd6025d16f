//! What the agents of a run say while they work (G9): pieces of answers, the tools they call. Heard, not
//! read back: what was said before is in `trellis history`.

use shared::{
    TraceId,
    bus::{Bus, Subscription},
    decode,
    subject::Filter,
    wire::{Said, StreamPiece},
};

use crate::{cluster::connect::unreachable, terminal::tree};

/// Which of a run's words are wanted.
pub(crate) enum Words {
    Unheard,
    Heard(Subscription),
}

impl Words {
    pub(crate) async fn listen(bus: &Bus, trace_id: TraceId, wanted: bool) -> anyhow::Result<Self> {
        if !wanted {
            return Ok(Words::Unheard);
        }
        let heard = bus.subscribe(&Filter::StreamsOf(trace_id)).await.map_err(|error| unreachable(&error))?;
        Ok(Words::Heard(heard))
    }

    /// The next line of it. Safe to be dropped and called again.
    pub(crate) async fn next(&mut self) -> String {
        let Words::Heard(heard) = self else { return std::future::pending().await };
        loop {
            let Some(message) = heard.next().await else { return std::future::pending().await };
            if let Ok(piece) = decode::json::<StreamPiece>(&message.payload) {
                return line(&piece);
            }
        }
    }
}

fn line(piece: &StreamPiece) -> String {
    let said = match &piece.said {
        Said::Text(text) => tree::flat(text),
        Said::Again { why } => format!("(once more: {})", tree::flat(why)),
        Said::Tool { tool } => format!("→ {}", tree::flat(tool)),
        Said::Progress { message } => tree::flat(message),
    };
    format!("{}> {said}", piece.child_id)
}
