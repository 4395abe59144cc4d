//! I/O stream: one type for all sockets of the data plane.
//!
//! Owns: TCP, Unix and TLS (either role) in one enum, so that codecs are compiled once and pooled
//! connections have one type. Bytes read before the protocol was known are returned first. Does not
//! own: buffering, deadlines, protocols.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::unconstrained;

/// A connected byte stream.
pub enum Stream {
    /// A plain TCP connection.
    Tcp(TcpStream),
    /// A Unix socket connection.
    Unix(UnixStream),
    /// TLS in the server role: a client connected to the gateway.
    ServerTls(Box<tokio_rustls::server::TlsStream<Box<Stream>>>),
    /// TLS in the client role: the gateway connected to a server.
    ClientTls(Box<tokio_rustls::client::TlsStream<Box<Stream>>>),
    /// Bytes that were read to detect the protocol, followed by the stream.
    Replayed(Box<Replayed>),
    /// No stream: it was taken out.
    Closed,
}

/// A stream whose first bytes were read ahead.
pub struct Replayed {
    read_ahead: Vec<u8>,
    consumed: usize,
    inner: Stream,
}

impl Stream {
    /// Puts `ahead` in front of the unread data.
    #[must_use]
    pub fn replay(self, ahead: Vec<u8>) -> Self {
        if ahead.is_empty() {
            self
        } else {
            Self::Replayed(Box::new(Replayed { read_ahead: ahead, consumed: 0, inner: self }))
        }
    }

    /// Reads into `buf`; 0 is the end of the stream.
    pub(crate) fn poll_read_slice(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        match Pin::new(self).poll_read(cx, &mut buf) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(buf.filled().len())),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Makes the close a TCP reset, so that the peer knows that it has not received everything.
    pub(crate) fn reset_on_close(&mut self) {
        match self {
            // Fails only on a closed socket.
            Self::Tcp(s) => drop(socket2::SockRef::from(&*s).set_linger(Some(std::time::Duration::ZERO))),
            Self::ServerTls(s) => s.get_mut().0.reset_on_close(),
            Self::Replayed(r) => r.inner.reset_on_close(),
            Self::Unix(_) | Self::ClientTls(_) | Self::Closed => {}
        }
    }

    /// Whether the peer has reset the connection, detected without reading. Reports a reset only
    /// once.
    pub(crate) fn is_reset(&self) -> bool {
        match self {
            Self::Tcp(s) => !matches!(s.take_error(), Ok(None)),
            Self::Unix(s) => !matches!(s.take_error(), Ok(None)),
            Self::ServerTls(s) => s.get_ref().0.is_reset(),
            Self::ClientTls(s) => s.get_ref().0.is_reset(),
            Self::Replayed(r) => r.inner.is_reset(),
            Self::Closed => true,
        }
    }

    /// Whether a pooled connection is still usable: it is open and has no data to read. A peer that
    /// sends data without a request cannot be trusted with the next one.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        // This reads only if the system has reported something.
        match self {
            Self::Tcp(s) => return is_quiet(&s.try_read(&mut byte)),
            Self::Unix(s) => return is_quiet(&s.try_read(&mut byte)),
            Self::ServerTls(_) | Self::ClientTls(_) | Self::Replayed(_) | Self::Closed => {}
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // In a task that has used up its cooperative budget every socket would appear pending.
        let read = unconstrained(poll_fn(|cx| self.poll_read_slice(cx, &mut byte)));
        std::pin::pin!(read).poll(&mut cx).is_pending()
    }
}

/// Whether a read found nothing: neither data, nor the end, nor a fault.
fn is_quiet(read: &io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

macro_rules! each {
    ($self:expr, $s:ident => $body:expr) => {
        match $self {
            Stream::Tcp($s) => $body,
            Stream::Unix($s) => $body,
            Stream::ServerTls($s) => $body,
            Stream::ClientTls($s) => $body,
            Stream::Replayed(r) => {
                let $s = &mut r.inner;
                $body
            }
            Stream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Self::Replayed(r) = this
            && r.consumed < r.read_ahead.len()
        {
            let n = buf.remaining().min(r.read_ahead.len() - r.consumed);
            buf.put_slice(&r.read_ahead[r.consumed..r.consumed + n]);
            r.consumed += n;
            if r.consumed == r.read_ahead.len() {
                r.read_ahead = Vec::new();
                r.consumed = 0;
            }
            return Poll::Ready(Ok(()));
        }
        each!(this, s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), s => Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(s) => s.is_write_vectored(),
            Self::Unix(s) => s.is_write_vectored(),
            Self::ServerTls(s) => s.is_write_vectored(),
            Self::ClientTls(s) => s.is_write_vectored(),
            Self::Replayed(r) => r.inner.is_write_vectored(),
            Self::Closed => false,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), s => Pin::new(s).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_connection_with_bytes_to_read_is_not_quiet_even_to_a_task_whose_turn_is_over() {
        let (mut peer, noisy) = UnixStream::pair().unwrap();
        peer.write_all(b"x").await.unwrap();
        noisy.readable().await.unwrap();
        let (mut busy, other) = UnixStream::pair().unwrap();
        busy.write_all(&[0; 1024]).await.unwrap();
        other.readable().await.unwrap();
        let (mut noisy, mut other) = (Stream::Unix(noisy), Stream::Unix(other));
        let quiet = poll_fn(|cx| {
            while other.poll_read_slice(cx, &mut [0]).is_ready() {}
            Poll::Ready(noisy.is_reusable())
        });
        assert!(!quiet.await);
    }
}
