//! Whether a worker is ready: not that it runs, but that work would reach it. A worker can be alive
//! and deaf; so the loop itself is asked when its queue last gave a sign.

use std::{net::SocketAddr, time::Duration};

use shared::{bus::Bus, health};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// How long a queue with room for more may give no sign.
const SILENCE: Duration = Duration::from_secs(30);

/// What the loop says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// How long its queue has given no sign; nothing while it has no room for more.
    pub(crate) silent_for: Duration,
}

/// Answers health checks, if an address is given; otherwise never ends.
pub(crate) async fn serve(
    address: Option<SocketAddr>,
    bus: Bus,
    asks: mpsc::Sender<oneshot::Sender<Pulse>>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Some(address) = address else { return std::future::pending().await };
    let failed = |source| Error::Health { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let ready = move || -> futures_util::future::BoxFuture<'static, Result<(), String>> {
        Box::pin(check(bus.clone(), asks.clone()))
    };
    health::serve(listener, ready, shutdown.cancelled_owned()).await.map_err(failed)
}

async fn check(bus: Bus, asks: mpsc::Sender<oneshot::Sender<Pulse>>) -> Result<(), String> {
    let (reply, answer) = oneshot::channel();
    asks.send(reply).await.map_err(|_| "it takes no more work")?;
    let pulse = answer.await.map_err(|_| "it takes no more work")?;
    if pulse.silent_for > SILENCE {
        return Err(format!("its queue has been silent for {} s", pulse.silent_for.as_secs()));
    }
    bus.ping().await.map(drop).map_err(|error| error.to_string())
}
