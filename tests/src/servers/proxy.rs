//! A TCP proxy on the loopback. Its connections can be frozen: they stay open and carry nothing, as after
//! a firewall forgot them, while new ones work. No signal to a server makes that. Or it hangs up, also on
//! some of those who connect next, as a server does that is starting again. Before a Redis it can also set
//! the server's clock: it changes the answers to TIME.

use std::{
    future,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
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
    fate: watch::Sender<Fate>,
    refusing: Arc<AtomicUsize>,
    ahead: Arc<AtomicI64>,
    accepting: JoinHandle<()>,
}

/// What happens to the open connections.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Frozen,
    Closed,
}

impl Proxy {
    /// Starts a proxy before a loopback port.
    pub async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let fate = watch::Sender::new(Fate::Closed);
        let refusing = Arc::new(AtomicUsize::new(0));
        let ahead = Arc::new(AtomicI64::new(0));
        let accepting =
            tokio::spawn(accept(listener, server, fate.clone(), Arc::clone(&refusing), Arc::clone(&ahead)));
        Proxy { port, fate, refusing, ahead, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Freezes the connections that are open now.
    pub fn freeze(&self) {
        self.fate.send_replace(Fate::Frozen);
    }

    /// Closes the connections there are, and as many of the next ones.
    pub fn hang_up(&self, next: usize) {
        self.refusing.store(next, Ordering::SeqCst);
        self.fate.send_replace(Fate::Closed);
    }

    /// Sets the clock of the Redis behind it ahead by so many seconds, or behind if negative.
    pub fn set_clock(&self, ahead_seconds: i64) {
        self.ahead.store(ahead_seconds, Ordering::SeqCst);
    }

    /// How many of the next connections will still be closed.
    pub fn refusing(&self) -> usize {
        self.refusing.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: u16,
    fate: watch::Sender<Fate>,
    refusing: Arc<AtomicUsize>,
    ahead: Arc<AtomicI64>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let left = refusing.load(Ordering::SeqCst);
        if left > 0 {
            // Only this task counts it down.
            refusing.store(left - 1, Ordering::SeqCst);
        } else {
            connections.spawn(carry(client, server, fate.subscribe(), Arc::clone(&ahead)));
        }
    }
}

async fn carry(client: TcpStream, server: u16, mut fate: watch::Receiver<Fate>, ahead: Arc<AtomicI64>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    let ((mut asks, mut answered), (mut answers, mut asked)) = (client.into_split(), server.into_split());
    let told = tokio::select! {
        _ = io::copy(&mut asks, &mut asked) => return,
        _ = copy_answers(&mut answers, &mut answered, &ahead) => return,
        _ = fate.changed() => *fate.borrow(),
    };
    match told {
        Fate::Closed => {}
        // Both sides stay open: neither side notices.
        Fate::Frozen => future::pending().await,
    }
}

async fn copy_answers(
    from: &mut (impl io::AsyncRead + Unpin),
    to: &mut (impl io::AsyncWrite + Unpin),
    ahead: &AtomicI64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let ahead = ahead.load(Ordering::SeqCst);
        if ahead != 0 {
            set_times(&mut buffer[..count], ahead);
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Changes the answers to TIME among these bytes: two bulk strings, of which the first has ten digits. They are short and
/// come in one piece.
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
