//! What servers that others run answer comes through here before a library reads it (S5). Such libraries buffer an error's body, a
//! frame without an end or a compressed bomb as a whole. Here nothing is decompressed, no redirect is followed, and frames, bodies
//! and the values in them are counted. A library is given an address on loopback, from which its request is sent on.

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

/// How many exchanges a relay has under way at once. A server of tools has one stream of its own and one exchange a call.
const MAX_EXCHANGES: usize = 64;

/// An address on loopback for the requests of one library.
#[derive(Debug)]
pub(crate) struct Relay {
    callers: Callers,
    upstream: Upstream,
}

/// A client for a library, which reaches nothing but a relay, and so needs no authorities.
pub(crate) fn local_client() -> ClientBuilder {
    plain_client().tls_certs_only([]).no_proxy().pool_max_idle_per_host(0)
}

impl Relay {
    pub(crate) async fn open(upstream: Upstream) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let path = format!("/{:032x}/", Random::System.bits());
        Ok(Relay { callers: Callers::new(listener, path), upstream })
    }

    /// The address that the library is given in place of the server's.
    pub(crate) fn address(&self) -> std::io::Result<String> {
        Ok(format!("http://{}{}", self.callers.local_address()?, self.callers.path()))
    }

    /// Passes on one exchange. A connection that does not know the path is not answered, and delays nothing.
    pub(crate) async fn pass_on(&mut self) -> Result<(), Fault> {
        let Caller { mut stream, head } = self.callers.next().await;
        exchange::pass_on(&mut stream, head, &self.upstream).await
    }

    /// Passes on every exchange until it is dropped. A fault ends its exchange only.
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
                // The library must not see the end before the fault is known: the stream is dropped after it.
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
