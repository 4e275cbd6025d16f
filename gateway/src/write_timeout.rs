//! A connection whose writes time out. If the client accepts no byte for a while, the write fails.
//! So a client that stops reading does not hold memory and a connection for ever.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    within: Duration,
    /// Set while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, within: Duration) -> Self {
        WriteTimeout { stream, within, waits: None }
    }

    /// The result of a write; an error if the write has waited for too long.
    fn weigh<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let within = self.within;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.weigh(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.weigh(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.weigh(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.weigh(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_dropped_and_a_slow_one_is_not() {
        let (near, mut far) = duplex(8);
        let mut patient = WriteTimeout::new(near, Duration::from_secs(30));
        let writing = tokio::spawn(async move {
            let written = patient.write_all(&[1; 64]).await;
            (patient, written)
        });
        let mut taken = [0; 8];
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            far.read_exact(&mut taken).await.unwrap();
        }
        let (mut patient, written) = writing.await.unwrap();
        written.unwrap();
        let refused = patient.write_all(&[1; 64]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }
}
