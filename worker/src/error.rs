//! The errors with which a worker can't start or continue.

use domain::{Problems, WorkerId};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("worker `{worker}` could not {doing}")]
    Bus {
        worker: WorkerId,
        doing: &'static str,
        #[source]
        source: bus::Error,
    },
    #[error("could not answer health checks on {address}")]
    Health {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the worker's settings are invalid: {0}")]
    Settings(Problems),
    /// The connection has ended and is not reopened: no delivery, stop or call will arrive.
    #[error("the bus was closed")]
    Closed,
}
