//! A connection whose other end takes nothing for a while fails: an answer that nobody reads would be kept for ever.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// How long the other end may take nothing of what is written.
const STALL_MAX: Duration = Duration::from_secs(30);

/// A connection with that bound.
#[derive(Debug)]
pub(crate) struct Unstalled {
    stream: TcpStream,
    /// Since nothing was taken.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    /// This connection, with the bound.
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    /// What writing came to, or that the other end has taken too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn a_reader_who_takes_nothing_ends_the_connection() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let _reads_nothing = reader.unwrap();
        let mut writer = Unstalled::new(accepted.unwrap().0);
        // From here on time passes by itself as soon as everybody waits.
        tokio::time::pause();
        let writing = writer.write_all(&[0; 64 * 1024 * 1024]);
        let written = timeout(2 * STALL_MAX, writing).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
