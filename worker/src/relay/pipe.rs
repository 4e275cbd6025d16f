//! The output of a program that speaks in lines (S5): a line that is too long, or has too many values, ends the pipe, and lines and
//! bytes that come faster than anybody speaks wait in the program.

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

/// The most lines of one [`SECOND`]. Then nothing is read until it is over.
const MAX_LINES: usize = 1000;
/// The most bytes of it, likewise: to read them as JSON takes a part of it.
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
        let lines = lines.map(|ended| ended.frames).map_err(|much| {
            pipe.last.set(&much.into());
            buffer.set_filled(before);
            Error::other(much)
        })?;
        if pipe.bytes == 0 {
            pipe.over.as_mut().reset(Instant::now() + SECOND);
        }
        pipe.lines += lines;
        pipe.bytes += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}
