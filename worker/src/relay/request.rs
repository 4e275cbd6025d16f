//! The request of a library, which uses the worker's own HTTP client. It is read as a whole,
//! without its address and its connection headers.

use reqwest::{
    Method,
    header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::fault::Fault;

/// The most bytes of its first line and headers.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The most bytes of its body: more than any conversation has.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The most bytes before the path in a request: the method and a space.
const MAX_BYTES_BEFORE_PATH: usize = 16;

/// The beginning of a request that names the relay's path.
#[derive(Debug)]
pub(super) struct Head {
    method: Method,
    /// The address after the relay's own path.
    rest: String,
    headers: HeaderMap,
    /// The part of the body that was read with the head.
    body: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) rest: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Reads the head of a request; `None` if it does not begin with this path.
pub(super) async fn head(stream: &mut TcpStream, path: &str) -> Option<Head> {
    let mut bytes = Vec::new();
    let head_bytes = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD_BYTES
            || !may_name(&bytes, path)
            || !matches!(stream.read_buf(&mut bytes).await, Ok(read) if read > 0)
        {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_bytes]).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let rest = target.strip_prefix(path)?.to_owned();
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value.trim()));
        if let (Ok(name), Ok(mut value)) = (name, value) {
            // Any header may contain a key.
            value.set_sensitive(true);
            headers.append(name, value);
        }
    }
    Some(Head { method, rest, headers, body: bytes.split_off(head_bytes + 4) })
}

/// Returns true if the bytes so far may belong to a request with this path. The head of other
/// requests is not read to its end.
fn may_name(bytes: &[u8], path: &str) -> bool {
    match bytes.iter().position(|byte| *byte == b' ') {
        None => bytes.len() <= MAX_BYTES_BEFORE_PATH,
        Some(space) => {
            let (named, path) = (&bytes[space + 1..], path.as_bytes());
            let known = named.len().min(path.len());
            named[..known] == path[..known]
        }
    }
}

impl Head {
    /// Reads the rest of the request.
    pub(super) async fn read(self, stream: &mut TcpStream) -> Result<Request, Fault> {
        let Head { method, rest, mut headers, mut body } = self;
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = length.unwrap_or(0);
        if length > MAX_BODY_BYTES {
            return Err(local("the request is too large"));
        }
        while body.len() < length {
            if stream.read_buf(&mut body).await.map_err(Fault::Local)? == 0 {
                return Err(local("the request broke off"));
            }
        }
        for own in [HOST, CONNECTION, CONTENT_LENGTH, ACCEPT_ENCODING] {
            headers.remove(own);
        }
        Ok(Request { method, rest, headers, body })
    }
}

fn local(why: &'static str) -> Fault {
    Fault::Local(std::io::Error::other(why))
}
