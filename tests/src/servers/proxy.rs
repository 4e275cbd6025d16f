//! A TCP proxy on the loopback whose connections can be frozen: they stay open and carry nothing, as after a firewall
//! dropped their state, while new connections work. No signal to a server has that effect.

use std::{future, net::Ipv4Addr};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

#[derive(Debug)]
pub struct Proxy {
    port: u16,
    frozen: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy before a loopback port.
    pub async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let frozen = watch::Sender::new(());
        let accepting = tokio::spawn(accept(listener, server, frozen.clone()));
        Proxy { port, frozen, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Freezes the connections that are open now.
    pub fn freeze(&self) {
        self.frozen.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, frozen: watch::Sender<()>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, server, frozen.subscribe()));
    }
}

async fn carry(mut client: TcpStream, server: u16, mut frozen: watch::Receiver<()>) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        // Both sides stay open: neither side notices.
        _ = frozen.changed() => future::pending().await,
    }
}
