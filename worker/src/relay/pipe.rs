//! The output of a program that writes lines (S5). A line that is too long, or has too many values,
//! ends the pipe. Above the rate limit nothing is read, so the program waits.

use std::{
    future::Future,
    io::{Error, Result},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{Instant, Sleep},
};

use super::{
    fault::LastFault,
    frames::{Frames, Shape},
};

/// The most lines in one [`SECOND`]. After that nothing is read until the second is over.
const MAX_LINES: usize = 1000;
/// The most bytes in one [`SECOND`]. Parsing them as JSON takes less time than that.
const MAX_BYTES: usize = 16 << 20;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Pipe<R> {
    output: R,
    frames: Frames,
    lines: usize,
    bytes: usize,
    over: Pin<Box<Sleep>>,
    last: LastFault,
}

impl<R> Pipe<R> {
    pub(crate) fn new(output: R, last: LastFault) -> Self {
        let over = Box::pin(tokio::time::sleep(SECOND));
        Pipe { output, frames: Frames::new(Shape::Lines, false), lines: 0, bytes: 0, over, last }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Pipe<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let pipe = self.get_mut();
        if pipe.bytes > 0 && pipe.over.as_mut().poll(cx).is_ready() {
            (pipe.lines, pipe.bytes) = (0, 0);
        }
        if pipe.lines >= MAX_LINES || pipe.bytes >= MAX_BYTES {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut pipe.output).poll_read(cx, buffer))?;
        let lines = pipe.frames.take(&buffer.filled()[before..]);
        let lines = lines.map(|ended| ended.frames).map_err(|too_much| {
            pipe.last.set(&too_much.into());
            buffer.set_filled(before);
            Error::other(too_much)
        })?;
        if pipe.bytes == 0 {
            pipe.over.as_mut().reset(Instant::now() + SECOND);
        }
        pipe.lines += lines;
        pipe.bytes += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}
