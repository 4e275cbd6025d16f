//! The readiness of a worker: it runs, and work reaches it. A running worker may have lost its
//! queue without noticing, so a health check asks the loop for the time since it last heard from
//! the queue.

use std::{net::SocketAddr, time::Duration};

use bus::Bus;
use telemetry::health;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// The longest silence of the queue, heartbeats included, while the worker has free slots.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// The loop's answer to a health check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// The time since the queue sent anything; zero while no slot is free.
    pub(crate) silent_for: Duration,
}

/// Answers health checks at the address. Without an address it never returns.
pub(crate) async fn serve(
    address: Option<SocketAddr>,
    bus: Bus,
    checks: mpsc::Sender<oneshot::Sender<Pulse>>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Some(address) = address else { return std::future::pending().await };
    let failed = |source| Error::Health { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let ready = move || -> futures_util::future::BoxFuture<'static, Result<String, String>> {
        Box::pin(check(bus.clone(), checks.clone()))
    };
    health::serve(listener, ready, shutdown.cancelled_owned()).await.map_err(failed)
}

async fn check(bus: Bus, checks: mpsc::Sender<oneshot::Sender<Pulse>>) -> Result<String, String> {
    let (reply, answer) = oneshot::channel();
    checks.send(reply).await.map_err(|_| "the worker takes no more work")?;
    let pulse = answer.await.map_err(|_| "the worker takes no more work")?;
    if pulse.silent_for > MAX_SILENCE {
        return Err(format!("the worker's queue has sent nothing for {} s", pulse.silent_for.as_secs()));
    }
    bus.ping().await.map(|_| String::new()).map_err(|error| error.to_string())
}
