//! Reads the answer of a gateway line by line, on the client's side.

use bytes::{Buf, BytesMut};

use super::call::{Failure, Line};

/// The longest line. An entry of a log is smaller.
const MAX_LINE_BYTES: usize = 64 << 20;

/// An answer that is being received.
#[derive(Debug)]
pub(super) struct Lines {
    answer: reqwest::Response,
    read: BytesMut,
    /// The length of the part of `read` that was already searched for a line end.
    searched: usize,
    /// The number of bytes received.
    bytes: usize,
}

impl Lines {
    pub(super) fn new(answer: reqwest::Response) -> Self {
        Lines { answer, read: BytesMut::new(), searched: 0, bytes: 0 }
    }

    /// The number of bytes received so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next line; none once the answer is complete. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            let line = self.line().await?;
            if line == Line::Done {
                return Ok(None);
            } else if let Line::Failed(failure) = line {
                return Err(failure);
            } else if line != Line::Alive {
                return Ok(Some(line));
            }
        }
    }

    async fn line(&mut self) -> Result<Line, Failure> {
        loop {
            if let Some(end) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(self.searched + end);
                self.read.advance(1);
                self.searched = 0;
                return serde_json::from_slice(&line).map_err(|_| {
                    Failure::Other("the server's answer can't be read: it may be of another version".into())
                });
            }
            self.searched = self.read.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(Failure::Other("the server's answer has a line without an end".into()));
            }
            match self.answer.chunk().await.map_err(|error| unreached(&error))? {
                Some(more) => {
                    self.bytes += more.len();
                    self.read.extend_from_slice(&more);
                }
                None => return Err(Failure::CutOff("its answer was cut off".into())),
            }
        }
    }
}

impl Failure {
    /// True if only the connection failed, so that the same call may succeed at once.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match self {
            Failure::Unreached(_) | Failure::CutOff(_) | Failure::TimedOut => true,
            Failure::NoResponders
            | Failure::WrongSequence
            | Failure::Full(_)
            | Failure::Unacknowledged
            | Failure::Denied { .. }
            | Failure::TooLarge { .. }
            | Failure::Refused(_)
            | Failure::Other(_) => false,
        }
    }
}

/// The reason why no answer was received.
pub(super) fn unreached(error: &reqwest::Error) -> Failure {
    if error.is_timeout() && !error.is_connect() {
        return Failure::TimedOut;
    }
    // The cause without the address, which the caller adds to the message.
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let why = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    if error.is_connect() { Failure::Unreached(why) } else { Failure::CutOff(why) }
}
