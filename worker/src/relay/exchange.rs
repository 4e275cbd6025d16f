//! One request of a library and the answer to it, passed on piece by piece. At most one frame of an
//! answer is in memory.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use reqwest::{
    Client, Method, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap},
};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    fault::Fault,
    frames::{Frames, Shape},
    request::{Head, Request},
};

/// The most bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The longest wait for the body of an error, whose status is known already.
const ERROR_WAIT: Duration = Duration::from_secs(5);
/// The shortest duration of a stream that a library opened to listen. A server may end it sooner,
/// and the library then opens the next one at once.
const SHORTEST_LISTENING: Duration = Duration::from_secs(1);
/// The most bytes of such an endless stream in one [`SECOND`]. After that nothing is read until the
/// second is over.
const MAX_HEARD_BYTES: usize = 4 << 20;
const SECOND: Duration = Duration::from_secs(1);
/// The capacity for a frame that is kept between two frames.
const KEPT_BYTES: usize = 64 << 10;
/// The headers of an answer that a library reads.
const PASSED_ON: [&str; 4] = ["content-type", "mcp-session-id", "www-authenticate", "retry-after"];

/// The server whose answers are passed on, and the limits for them.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) client: Client,
    /// The address to which the rest of a request's address is appended.
    pub(crate) base: String,
    /// The frames of its successful answers; `None`: by their content type.
    pub(crate) shape: Option<Shape>,
    /// True if other statuses than success are passed on; otherwise they are a fault.
    pub(crate) passes_errors: bool,
    /// The longest exchange. The limit does not apply to a stream that the library opened to
    /// listen.
    pub(crate) longest: Option<Duration>,
    pub(crate) sent: RequestSent,
}

/// True once a request has been sent on. Without a sent request there is no cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestSent(Arc<AtomicBool>);

impl RequestSent {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes on one exchange.
pub(super) async fn pass_on(local: &mut TcpStream, head: Head, upstream: &Upstream) -> Result<(), Fault> {
    let request = head.read(local).await?;
    // A library uses GET to listen for as long as it lives.
    let listens = request.method == Method::GET;
    let begun = Instant::now();
    match upstream.longest.filter(|_| !listens) {
        None => {
            let answered = answer(local, request, upstream, listens).await;
            if listens {
                sleep_until(begun + SHORTEST_LISTENING).await;
            }
            answered?;
            end(local).await
        }
        Some(longest) => {
            let answered = tokio::time::timeout(longest, answer(local, request, upstream, listens)).await;
            answered.unwrap_or(Err(Fault::Late(longest)))?;
            end(local).await
        }
    }
}

async fn answer(
    local: &mut TcpStream,
    request: Request,
    upstream: &Upstream,
    listens: bool,
) -> Result<(), Fault> {
    let Request { method, rest, headers, body } = request;
    let address = format!("{}{rest}", upstream.base);
    upstream.sent.0.store(true, Ordering::Relaxed);
    let sent = upstream.client.request(method, address).headers(headers).body(body).send();
    let mut answer = sent.await.map_err(|error| Fault::Http(error.without_url()))?;
    let (status, is_encoded) = (answer.status(), is_encoded(answer.headers()));
    if !status.is_success() && !upstream.passes_errors {
        let body = if is_encoded { String::new() } else { error_body(&mut answer).await };
        return Err(Fault::Status { status, headers: Box::new(answer.headers().clone()), body });
    }
    if is_encoded {
        return Err(Fault::Encoded);
    }
    let shape = upstream.shape.unwrap_or_else(|| shape(answer.headers()));
    let mut frames = Frames::new(shape, !listens);
    local.write_all(head(&answer).as_bytes()).await.map_err(Fault::Local)?;
    let mut kept = Vec::new();
    let (mut heard, mut over) = (0, Instant::now() + SECOND);
    loop {
        let piece = match answer.chunk().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => {
                write(local, &kept).await?;
                return Err(Fault::Broken(error.without_url()));
            }
        };
        let ended = frames.take(&piece)?.bytes;
        // A frame is passed on as a whole. A library would otherwise parse it from its beginning
        // again with each piece.
        let (whole, rest) = piece.split_at(if shape == Shape::Whole { piece.len() } else { ended });
        if !whole.is_empty() {
            kept.extend_from_slice(whole);
            write(local, &kept).await?;
            kept.clear();
            kept.shrink_to(KEPT_BYTES);
        }
        kept.extend_from_slice(rest);
        heard += piece.len();
        if listens && heard > MAX_HEARD_BYTES {
            sleep_until(over).await;
        }
        if over <= Instant::now() {
            (heard, over) = (0, Instant::now() + SECOND);
        }
    }
    write(local, &kept).await
}

/// Writes the end of a body.
async fn end(local: &mut TcpStream) -> Result<(), Fault> {
    local.write_all(b"0\r\n\r\n").await.map_err(Fault::Local)?;
    local.shutdown().await.map_err(Fault::Local)
}

/// Writes a chunk of a body.
async fn write(local: &mut TcpStream, bytes: &[u8]) -> Result<(), Fault> {
    if bytes.is_empty() {
        return Ok(());
    }
    local.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await.map_err(Fault::Local)?;
    local.write_all(bytes).await.map_err(Fault::Local)?;
    local.write_all(b"\r\n").await.map_err(Fault::Local)
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity" && !encoding.is_empty())
}

fn shape(headers: &HeaderMap) -> Shape {
    let is_stream = |kind: &[u8]| kind.to_ascii_lowercase().starts_with(b"text/event-stream");
    match headers.get(CONTENT_TYPE).is_some_and(|kind| is_stream(kind.as_bytes())) {
        true => Shape::Events,
        false => Shape::Whole,
    }
}

/// The first line and the headers. The body is chunked, so that the library notices if it breaks
/// off.
fn head(answer: &Response) -> String {
    let status = answer.status();
    let mut head = format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or("So"));
    for name in PASSED_ON {
        for value in answer.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    head.push_str("connection: close\r\ntransfer-encoding: chunked\r\n\r\n");
    head
}

/// The part of the body that fits and arrives in time.
async fn error_body(answer: &mut Response) -> String {
    let (until, mut body) = (Instant::now() + ERROR_WAIT, Vec::new());
    while body.len() < MAX_ERROR_BYTES
        && let Ok(Ok(Some(piece))) = timeout_at(until, answer.chunk()).await
    {
        body.extend_from_slice(&piece[..piece.len().min(MAX_ERROR_BYTES - body.len())]);
    }
    String::from_utf8_lossy(&body).into_owned()
}
