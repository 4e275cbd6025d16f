//! The connections to a relay. Every process of the machine can reach its port, so a connection is
//! accepted only after it has named the relay's path. Until then it delays no other connection,
//! takes only a few bytes, and has little time.

use std::{collections::VecDeque, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::request::{self, Head};

/// The time in which a request must name the path. A library sends it at once.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// The most connections that have not named it yet. One more replaces the oldest.
const MAX_WAITING: usize = 256;
/// The pause when no connection can be accepted, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection of the library, with the head of its request.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) stream: TcpStream,
    pub(super) head: Head,
}

#[derive(Debug)]
pub(super) struct Callers {
    listener: TcpListener,
    /// The beginning of every path. Only the library knows it.
    path: Arc<str>,
    waiting: JoinSet<Option<Caller>>,
    /// The connections that wait, oldest first.
    order: VecDeque<AbortHandle>,
}

impl Callers {
    pub(super) fn new(listener: TcpListener, path: String) -> Self {
        Callers { listener, path: path.into(), waiting: JoinSet::new(), order: VecDeque::new() }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the next connection that names the path. All others are closed without an answer.
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Caller {
        loop {
            tokio::select! {
                biased;
                Some(heard) = self.waiting.join_next() => {
                    if let Ok(Some(caller)) = heard {
                        return caller;
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.hear(stream),
                    Err(_) => sleep(PAUSE).await,
                },
            }
        }
    }

    fn hear(&mut self, mut stream: TcpStream) {
        self.order.retain(|waiting| !waiting.is_finished());
        if self.order.len() >= MAX_WAITING
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        let path = self.path.clone();
        self.order.push_back(self.waiting.spawn(async move {
            let head = timeout(HEAD_WAIT, request::head(&mut stream, &path)).await.ok()??;
            Some(Caller { stream, head })
        }));
    }
}
