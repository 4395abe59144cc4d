//! The socket under a connection: it ends when nothing is heard for a while, or when its holder lets go.
//!
//! Owns: what is set on a socket, and when it is given up. Does not own: what is said over it.
//!
//! The AMQP engine is a task of somebody else's, and it may wait for a peer that never answers: to write into
//! a full buffer, or for a farewell. Under it, a socket that fails is the one thing it never waits for.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

/// Who has not been heard for so long is gone. Peers are asked to say something every half of it.
pub(super) const SILENCE: Duration = Duration::from_secs(4);

/// A socket that does not outlive its [`Hold`].
#[derive(Debug)]
pub(super) struct Socket {
    tcp: TcpStream,
    silence: Pin<Box<Sleep>>,
    hold: oneshot::Receiver<Infallible>,
    over: Option<io::ErrorKind>,
}

/// Ends its socket when it is dropped.
#[derive(Debug)]
pub(super) struct Hold(#[expect(dead_code, reason = "its end is the message")] oneshot::Sender<Infallible>);

impl Socket {
    pub(super) fn new(tcp: TcpStream) -> io::Result<(Self, Hold)> {
        tcp.set_nodelay(true)?;
        // Bytes that are not acknowledged end it too: the way there may be cut while the way back is not.
        #[cfg(target_os = "linux")]
        SockRef::from(&tcp).set_tcp_user_timeout(Some(SILENCE))?;
        let (holder, hold) = oneshot::channel();
        let silence = Box::pin(tokio::time::sleep(SILENCE));
        Ok((Self { tcp, silence, hold, over: None }, Hold(holder)))
    }

    /// Fails once it is over, whoever asks.
    fn alive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.over.is_none() && Pin::new(&mut self.hold).poll(cx).is_ready() {
            self.over = Some(io::ErrorKind::ConnectionAborted);
        }
        self.over.map_or(Ok(()), |kind| Err(kind.into()))
    }

    /// Waits for the end of patience.
    fn patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.silence.as_mut().poll(cx));
        self.over = Some(io::ErrorKind::TimedOut);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// Something was read.
    fn heard(&mut self) {
        self.silence.as_mut().reset(Instant::now() + SILENCE);
        // A broker that leaves Nagle's algorithm on sends the second of two small frames when the first is
        // acknowledged, which the kernel puts off for 40 ms. It forgets this wish now and then, so it is told
        // each time.
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&self.tcp).set_tcp_quickack(true);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        socket.alive(cx)?;
        // What has arrived counts, however late this process looks.
        match Pin::new(&mut socket.tcp).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                socket.heard();
                Poll::Ready(read)
            }
            Poll::Pending => socket.patience(cx).map(Err),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        socket.alive(cx)?;
        match Pin::new(&mut socket.tcp).poll_write(cx, bytes) {
            Poll::Pending => socket.patience(cx).map(Err),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}
