//! AMQP socket: fails when nothing is read for a while, or when its owner drops it.
//!
//! Owns: the options of a socket, when it was last read from, and when it is given up. Does not own:
//! the protocol on it.
//!
//! The AMQP engine is a task of the library, and it may wait for a peer that never answers: while
//! it writes into a full buffer, or for the peer's close. It never waits on a socket that has
//! failed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep};

/// Time without data after which the peer counts as gone. The peer is asked to send something every
/// half of it.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// A socket that does not outlive its [`SocketGuard`].
#[derive(Debug)]
pub(super) struct Socket {
    tcp: TcpStream,
    silence: Pin<Box<Sleep>>,
    last_read: watch::Sender<Instant>,
    owner: oneshot::Receiver<Infallible>,
    ended: Option<io::ErrorKind>,
}

/// Ends its socket when it is dropped.
#[derive(Debug)]
pub(super) struct SocketGuard {
    #[expect(dead_code, reason = "its end is the message")]
    owner: oneshot::Sender<Infallible>,
    /// When the socket was last read from.
    pub(super) last_read: watch::Receiver<Instant>,
}

impl Socket {
    pub(super) fn new(tcp: TcpStream) -> io::Result<(Self, SocketGuard)> {
        tcp.set_nodelay(true)?;
        // Unacknowledged bytes end it too: the network may be cut in one direction only.
        #[cfg(target_os = "linux")]
        SockRef::from(&tcp).set_tcp_user_timeout(Some(IDLE_TIMEOUT))?;
        let (guarded, owner) = oneshot::channel();
        let (last_read, readers) = watch::channel(Instant::now());
        let silence = Box::pin(tokio::time::sleep(IDLE_TIMEOUT));
        let guard = SocketGuard { owner: guarded, last_read: readers };
        Ok((Self { tcp, silence, last_read, owner, ended: None }, guard))
    }

    /// Fails once the socket has ended.
    fn poll_alive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ended.is_none() && Pin::new(&mut self.owner).poll(cx).is_ready() {
            self.ended = Some(io::ErrorKind::ConnectionAborted);
        }
        self.ended.map_or(Ok(()), |kind| Err(kind.into()))
    }

    /// Waits for the end of the time limit.
    fn poll_idle_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.silence.as_mut().poll(cx));
        self.ended = Some(io::ErrorKind::TimedOut);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// Notes that something was read.
    fn data_read(&mut self) {
        let now = Instant::now();
        self.silence.as_mut().reset(now + IDLE_TIMEOUT);
        self.last_read.send_replace(now);
        // A broker that leaves Nagle's algorithm on sends the second of two small frames when the
        // first is acknowledged. The kernel delays that by 40 ms. The kernel resets this option now
        // and then, so it is set each time.
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
        socket.poll_alive(cx)?;
        // Data that has arrived counts, however late this process reads it.
        match Pin::new(&mut socket.tcp).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                socket.data_read();
                Poll::Ready(read)
            }
            Poll::Pending => socket.poll_idle_timeout(cx).map(Err),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        socket.poll_alive(cx)?;
        match Pin::new(&mut socket.tcp).poll_write(cx, bytes) {
            Poll::Pending => socket.poll_idle_timeout(cx).map(Err),
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
