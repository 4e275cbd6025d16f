//! The relay: HTTP answers of foreign servers pass through it before a library reads them (S5).
//! Libraries buffer the body of an error, an endless frame or a decompression bomb as a whole. The
//! relay decompresses nothing, follows no redirect, and bounds frames, bodies and the values in
//! them. The library gets an address on loopback, and the relay sends its requests on.

mod callers;
mod exchange;
mod fault;
mod frames;
mod pipe;
mod request;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use host::{internet::plain_client, random::Random};
use reqwest::ClientBuilder;
use tokio::{net::TcpListener, task::JoinSet};

use callers::{Caller, Callers};
pub(crate) use exchange::{RequestSent, Upstream};
pub(crate) use fault::{Fault, LastFault};
pub(crate) use frames::{MAX_FRAME_BYTES, Shape};
pub(crate) use pipe::Pipe;

/// The most exchanges of a relay at the same time. A tool server has one stream of its own, and one
/// exchange per call.
const MAX_EXCHANGES: usize = 64;

/// An address on loopback for the requests of one library.
#[derive(Debug)]
pub(crate) struct Relay {
    callers: Callers,
    upstream: Upstream,
}

/// A client for a library. It reaches only a relay, so it needs no certificate authorities.
pub(crate) fn local_client() -> ClientBuilder {
    plain_client().tls_certs_only([]).no_proxy().pool_max_idle_per_host(0)
}

impl Relay {
    pub(crate) async fn open(upstream: Upstream) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let path = format!("/{:032x}/", Random::System.bits());
        Ok(Relay { callers: Callers::new(listener, path), upstream })
    }

    /// The address for the library, in place of the server's.
    pub(crate) fn address(&self) -> std::io::Result<String> {
        Ok(format!("http://{}{}", self.callers.local_address()?, self.callers.path()))
    }

    /// Passes on one exchange. A connection that does not name the path gets no answer and causes
    /// no delay.
    pub(crate) async fn pass_on(&mut self) -> Result<(), Fault> {
        let Caller { mut stream, head } = self.callers.next().await;
        exchange::pass_on(&mut stream, head, &self.upstream).await
    }

    /// Passes on every exchange until the future is dropped. A fault ends only its own exchange.
    pub(crate) async fn serve(mut self, last: LastFault) {
        let mut exchanges = JoinSet::new();
        loop {
            let Caller { mut stream, head } = self.callers.next().await;
            while exchanges.len() >= MAX_EXCHANGES {
                exchanges.join_next().await;
            }
            while exchanges.try_join_next().is_some() {}
            let (upstream, last) = (self.upstream.clone(), last.clone());
            exchanges.spawn(async move {
                // The stream is dropped after the fault is recorded, so that the library sees the
                // end after that.
                let passed = exchange::pass_on(&mut stream, head, &upstream).await;
                if let Err(fault) = passed
                    && !matches!(fault, Fault::Local(_))
                {
                    last.set(&fault);
                }
            });
        }
    }
}
