//! A TCP proxy on the loopback. Its connections can be frozen: they stay open and carry nothing, as after
//! a firewall forgot them, while new ones work. No signal to a server makes that. Or it hangs up, also on
//! some of those who connect next, as a server does that is starting again.

use std::{
    future,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fate: watch::Sender<Fate>,
    refusing: Arc<AtomicUsize>,
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
        let accepting = tokio::spawn(accept(listener, server, fate.clone(), Arc::clone(&refusing)));
        Proxy { port, fate, refusing, accepting }
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

async fn accept(listener: TcpListener, server: u16, fate: watch::Sender<Fate>, refusing: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let left = refusing.load(Ordering::SeqCst);
        if left > 0 {
            // Only this task counts it down.
            refusing.store(left - 1, Ordering::SeqCst);
        } else {
            connections.spawn(carry(client, server, fate.subscribe()));
        }
    }
}

async fn carry(mut client: TcpStream, server: u16, mut fate: watch::Receiver<Fate>) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    let told = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
        _ = fate.changed() => *fate.borrow(),
    };
    match told {
        Fate::Closed => {}
        // Both sides stay open: neither side notices.
        Fate::Frozen => future::pending().await,
    }
}
