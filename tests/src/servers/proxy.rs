//! A TCP proxy on the loopback, for faults that a signal to a server can't cause. It can freeze its
//! connections: they stay open and carry nothing, as if a firewall forgot them, while new ones
//! work. It can cut the network, also in one direction: bytes wait until it is healed. It can close
//! connections, also some of the next ones, as a restarting server does. It can switch to another
//! server. Before a Redis it can change the answers to TIME, which sets the server's clock.

use std::{
    future,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU16, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

#[derive(Debug)]
pub struct Proxy {
    port: u16,
    told: Arc<Told>,
    accepting: JoinHandle<()>,
}

/// The current orders of a proxy.
#[derive(Debug)]
struct Told {
    server: AtomicU16,
    fate: watch::Sender<Fate>,
    cut: watch::Sender<Vec<Way>>,
    refusing: AtomicUsize,
    ahead: AtomicI64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    FromServer,
}

/// The fate of the open connections.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Frozen,
    Closed,
}

impl Proxy {
    /// Starts a proxy before a loopback port.
    pub async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("the listener is bound").port();
        let told = Arc::new(Told {
            server: server.into(),
            fate: watch::Sender::new(Fate::Closed),
            cut: watch::Sender::default(),
            refusing: AtomicUsize::default(),
            ahead: AtomicI64::default(),
        });
        let accepting = tokio::spawn(accept(listener, told.clone()));
        Proxy { port, told, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connects to the server at another port from now on.
    pub fn lead_to(&self, server: u16) {
        self.told.server.store(server, Ordering::SeqCst);
        self.hang_up(0);
    }

    /// Freezes the connections that are open now.
    pub fn freeze(&self) {
        self.told.fate.send_replace(Fate::Frozen);
    }

    /// Carries nothing in these directions until [`Proxy::heal`]. Bytes sent meanwhile arrive then.
    pub fn cut(&self, ways: &[Way]) {
        self.told.cut.send_replace(ways.to_vec());
    }

    pub fn heal(&self) {
        self.cut(&[]);
    }

    /// Closes the open connections, and as many of the next ones.
    pub fn hang_up(&self, next: usize) {
        self.told.refusing.store(next, Ordering::SeqCst);
        self.told.fate.send_replace(Fate::Closed);
    }

    /// Sets the clock of the Redis behind the proxy ahead by this many seconds, or back if
    /// negative.
    pub fn set_clock(&self, ahead_seconds: i64) {
        self.told.ahead.store(ahead_seconds, Ordering::SeqCst);
    }

    /// The number of next connections that will still be closed.
    pub fn refusing(&self) -> usize {
        self.told.refusing.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, told: Arc<Told>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let left = told.refusing.load(Ordering::SeqCst);
        if left > 0 {
            // Only this task decreases the number.
            told.refusing.store(left - 1, Ordering::SeqCst);
        } else {
            connections.spawn(carry(client, told.clone()));
        }
    }
}

async fn carry(client: TcpStream, told: Arc<Told>) {
    let mut fate = told.fate.subscribe();
    let server = told.server.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    let ((mut asks, mut answered), (mut answers, mut asked)) = (client.into_split(), server.into_split());
    let fate = tokio::select! {
        _ = copy(&mut asks, &mut asked, Way::ToServer, &told) => return,
        _ = copy(&mut answers, &mut answered, Way::FromServer, &told) => return,
        _ = fate.changed() => *fate.borrow(),
    };
    match fate {
        Fate::Closed => {}
        // Both sides stay open, so that neither side notices.
        Fate::Frozen => future::pending().await,
    }
}

async fn copy(
    from: &mut (impl io::AsyncRead + Unpin),
    to: &mut (impl io::AsyncWrite + Unpin),
    way: Way,
    told: &Told,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut cut = told.cut.subscribe();
    loop {
        let count = from.read(&mut buffer).await?;
        cut.wait_for(|cut| !cut.contains(&way)).await.map_err(io::Error::other)?;
        if count == 0 {
            return to.shutdown().await;
        }
        let ahead = told.ahead.load(Ordering::SeqCst);
        if ahead != 0 && way == Way::FromServer {
            set_times(&mut buffer[..count], ahead);
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Changes the answers to TIME in these bytes: two bulk strings, the first with ten digits. An
/// answer is short and arrives in one piece.
fn set_times(bytes: &mut [u8], ahead: i64) {
    const BEFORE: &[u8] = b"*2\r\n$10\r\n";
    for start in 0..bytes.len().saturating_sub(BEFORE.len() + 10) {
        if !bytes[start..].starts_with(BEFORE) {
            continue;
        }
        let digits = &mut bytes[start + BEFORE.len()..][..10];
        let Some(seconds) = str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok()) else {
            continue;
        };
        digits.copy_from_slice(format!("{:010}", seconds + ahead).as_bytes());
    }
}
