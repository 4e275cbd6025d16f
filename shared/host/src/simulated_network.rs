//! What lies between a process and its servers. The bus and the store in memory have nothing there, unless they
//! are given a [`Link`]: a simulation's network, on which messages are late, lost, doubled or out of order.

use std::{fmt, time::Duration};

use tokio::sync::mpsc;

/// The network of one process.
pub trait Link: fmt::Debug + Send + Sync {
    /// Carries something, and calls `arrive` when it is there: later, never, or twice.
    fn carry(&self, what: Crossing<'_>, arrive: Arrive);
}

/// What happens on arrival. It must not block.
pub type Arrive = Box<dyn Fn() + Send + Sync>;

/// What is carried, and in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing<'a> {
    /// To the bus: a message, a request, an answer or an acknowledgement on this subject.
    ToBus(&'a str),
    /// From the bus: that a message is stored, an answer, or what was read.
    FromBus(&'a str),
    /// To the store, and from it: what is asked of it.
    ToStore(&'a str),
    FromStore(&'a str),
}

/// One round trip: `act` happens on the other side, and its answer comes back. None if it does not come in time; whether
/// `act` has happened, or still will, is then unknown.
pub async fn round_trip<T: Send + 'static>(
    link: &std::sync::Arc<dyn Link>,
    (there, back): (Crossing<'_>, Crossing<'static>),
    timeout: Duration,
    act: impl Fn() -> T + Send + Sync + 'static,
) -> Option<T> {
    let (sender, mut answer) = mpsc::channel(1);
    // Kept, so that a loss is noticed by the timeout alone.
    let (returning, _open) = (link.clone(), sender.clone());
    let arrive = move || {
        let (sender, answer) = (sender.clone(), std::sync::Mutex::new(Some(act())));
        let deliver = move || {
            let answer = answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            // Whoever asked may have given up, or has an answer already.
            answer.map(|answer| sender.try_send(answer).ok());
        };
        returning.carry(back, Box::new(deliver));
    };
    link.carry(there, Box::new(arrive));
    tokio::time::timeout(timeout, answer.recv()).await.ok().flatten()
}
