//! What an agent says while it works, for whoever listens now (G9). Pieces are gathered for a moment and
//! sent together; nothing waits for them, and nothing is lost with them: what is finished is in the
//! journal.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use shared::{
    subject::Subject,
    telemetry,
    wire::{Said, StreamPiece},
};

use crate::agent::Run;

/// How long pieces are gathered: as often as a reader's eye needs.
const GATHER: Duration = Duration::from_millis(100);

/// A call is not held up for listeners.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Voice<'a> {
    run: &'a Run<'a>,
    /// The entry of the journal this will be part of.
    number: u32,
    text: Mutex<String>,
}

impl<'a> Voice<'a> {
    pub(crate) fn new(run: &'a Run<'a>, number: u32) -> Self {
        Voice { run, number, text: Mutex::default() }
    }

    /// A piece of an answer.
    pub(crate) fn hear(&self, piece: &str) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(piece);
    }

    /// Says what has been heard, while something is done that makes it.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(GATHER) => self.say_heard().await,
            }
        }
    }

    /// Says what has been heard and not said yet.
    pub(crate) async fn say_heard(&self) {
        let text = std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner));
        if !text.is_empty() {
            self.say(Said::Text(text)).await;
        }
    }

    pub(crate) async fn say(&self, said: Said) {
        let work = self.run.work;
        let piece = StreamPiece {
            trace_id: work.trace_id,
            child_id: work.child_id.clone(),
            attempt: self.run.attempt(),
            number: self.number,
            said,
        };
        let subject = Subject::Stream(work.trace_id, work.child_id.clone());
        let headers = telemetry::headers(work.trace_id, self.run.span);
        let payload = serde_json::to_vec(&piece).expect("a message has string keys").into();
        let saying = self.run.bus.broadcast(&subject, &headers, payload);
        match tokio::time::timeout(PATIENCE, saying).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a piece went unheard"),
            Err(_) => tracing::debug!("a piece went unheard: nobody takes it"),
        }
    }
}
