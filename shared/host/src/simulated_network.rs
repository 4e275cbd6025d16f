//! The simulated network between a process and its servers. The bus and the store in memory deliver
//! directly, unless they have a [`Link`]: then messages may be late, lost, doubled or out of order.

use std::{fmt, time::Duration};

use tokio::sync::mpsc;

/// The network of one process.
pub trait Link: fmt::Debug + Send + Sync {
    /// Transports a message, and calls `arrive` on arrival: later, never, or twice.
    fn carry(&self, what: Crossing<'_>, arrive: Arrive);
}

/// The action on arrival. It must not block.
pub type Arrive = Box<dyn Fn() + Send + Sync>;

/// The direction of a crossing, with the subject or the name of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing<'a> {
    /// To the bus: a message, a request, an answer or an acknowledgement on this subject.
    ToBus(&'a str),
    /// From the bus: an acknowledgement of storing, an answer, or a result of a read.
    FromBus(&'a str),
    /// To the store, and from it: the name of the operation.
    ToStore(&'a str),
    FromStore(&'a str),
}

/// Makes one round trip: `act` runs on the other side, and its answer returns. None if the answer
/// is late; then `act` may have run, may still run, or may never run.
pub async fn round_trip<T: Send + 'static>(
    link: &std::sync::Arc<dyn Link>,
    (there, back): (Crossing<'_>, Crossing<'static>),
    timeout: Duration,
    act: impl Fn() -> T + Send + Sync + 'static,
) -> Option<T> {
    let (sender, mut answer) = mpsc::channel(1);
    // Stored until the end, so that only the timeout reports a loss.
    let (returning, _open) = (link.clone(), sender.clone());
    let arrive = move || {
        let (sender, answer) = (sender.clone(), std::sync::Mutex::new(Some(act())));
        let deliver = move || {
            let answer = answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            // The caller may have given up, or may already have an answer.
            answer.map(|answer| sender.try_send(answer).ok());
        };
        returning.carry(back, Box::new(deliver));
    };
    link.carry(there, Box::new(arrive));
    tokio::time::timeout(timeout, answer.recv()).await.ok().flatten()
}
