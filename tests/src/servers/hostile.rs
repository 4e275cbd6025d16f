//! A malicious HTTP server: it reads a request and writes the bytes that the test chooses, slowly
//! if the test asks for that.

use std::{fmt, net::Ipv4Addr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The answer to a request. The server writes `first`, then `again` until that fails, with a
/// pause after each.
#[derive(Debug, Clone, Default)]
pub struct Attack {
    pub first: Vec<u8>,
    pub again: Vec<u8>,
    pub pause: Duration,
}

impl Attack {
    pub fn once(first: impl Into<Vec<u8>>) -> Self {
        Attack { first: first.into(), ..Attack::default() }
    }

    pub fn endless(first: &str, again: &str) -> Self {
        Attack { first: first.into(), again: again.into(), pause: Duration::ZERO }
    }

    pub fn drip(first: &str, again: &str) -> Self {
        Attack { pause: Duration::from_millis(20), ..Attack::endless(first, again) }
    }
}

pub struct HostileServer {
    port: u16,
    accepting: JoinHandle<()>,
}

impl HostileServer {
    /// Starts a server that answers each request (head and body) with the attack of `decide`.
    pub async fn start(decide: impl Fn(&str) -> Attack + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("the listener is bound").port();
        let decide = Arc::new(decide);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let decide = decide.clone();
                tokio::spawn(async move { serve(stream, &*decide).await });
            }
        });
        HostileServer { port, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

async fn serve(mut stream: TcpStream, decide: &(dyn Fn(&str) -> Attack + Send + Sync)) {
    let Some(request) = read(&mut stream).await else { return };
    let Attack { first, again, pause } = decide(&request);
    let _ = stream.write_all(&first).await;
    while !again.is_empty() && stream.write_all(&again).await.is_ok() {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    let _ = stream.shutdown().await;
}

/// Reads the head of a request, and a body of the length in `content-length`.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl fmt::Debug for HostileServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostileServer").field("port", &self.port).finish_non_exhaustive()
    }
}
