//! Connection timeouts of the provider: slow request heads and idle connections.
//!
//! Owns: the time limits that hyper does not have. Its limit for heads also ends idle connections.
//! Does not own: the protocol (hyper).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Time limit from the first byte of a head to its end.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may stay open without requests and traffic.
const IDLE: Duration = Duration::from_mins(1);
/// Time between two checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What to do with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionVerdict {
    /// Nothing: no limit is exceeded.
    Keep,
    /// Close it gracefully: it has been idle for too long.
    Close,
    /// Close it at once: a head is not complete in time.
    Cut,
}

/// Activity of a connection. Clones share their state.
#[derive(Clone)]
pub(super) struct Activity(Arc<Mutex<State>>);

struct State {
    /// Number of requests that are being answered.
    in_flight: usize,
    /// When a byte was last transferred, or a request ended.
    last_activity: Instant,
    /// When the first byte of an incomplete head arrived.
    head_started: Option<Instant>,
    /// Whether the connection uses HTTP/2. Its frames also arrive without a request, and hyper
    /// limits the size of heads. So only the idle limit applies.
    http2: bool,
    begun: bool,
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State {
            in_flight: 0,
            last_activity: Instant::now(),
            head_started: None,
            http2: false,
            begun: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Notes that a request's head is complete. The request ends when the returned value is
    /// dropped.
    pub(super) fn request_started(&self) -> RequestInFlight {
        let mut state = self.0.lock();
        state.in_flight += 1;
        state.head_started = None;
        RequestInFlight(self.clone())
    }

    pub(super) fn verdict(&self) -> ConnectionVerdict {
        let state = self.0.lock();
        if state.in_flight > 0 {
            return ConnectionVerdict::Keep;
        }
        match state.head_started {
            Some(head) if head.elapsed() > HEAD => ConnectionVerdict::Cut,
            _ if state.last_activity.elapsed() > IDLE => ConnectionVerdict::Close,
            _ => ConnectionVerdict::Keep,
        }
    }

    fn read(&self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.last_activity = Instant::now();
        if !mem::replace(&mut state.begun, true) {
            state.http2 = bytes.starts_with(b"PRI");
        }
        if state.in_flight == 0 && !state.http2 && state.head_started.is_none() {
            state.head_started = Some(state.last_activity);
        }
    }

    fn wrote(&self) {
        self.0.lock().last_activity = Instant::now();
    }
}

/// A request in flight.
pub(super) struct RequestInFlight(Activity);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.in_flight -= 1;
        state.last_activity = Instant::now();
    }
}

/// A stream that records the bytes it transfers.
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Activity,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, activity: Activity) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.read(&buf.filled()[before..]);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.activity.wrote();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.activity.wrote();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn heads_are_cut_and_rest_is_closed() {
        let activity = Activity::new();
        tokio::time::advance(IDLE + CHECK_INTERVAL).await;
        assert_eq!(activity.verdict(), ConnectionVerdict::Close, "nothing came");
        activity.read(b"GET / HT");
        tokio::time::advance(HEAD).await;
        activity.read(b"TP/1.1\r\n");
        assert_eq!(activity.verdict(), ConnectionVerdict::Keep);
        tokio::time::advance(CHECK_INTERVAL * 2).await;
        assert_eq!(activity.verdict(), ConnectionVerdict::Cut, "drop by drop");
        let request = activity.request_started();
        tokio::time::advance(IDLE * 2).await;
        assert_eq!(activity.verdict(), ConnectionVerdict::Keep, "a request is under way");
        drop(request);
        assert_eq!(activity.verdict(), ConnectionVerdict::Keep);
        tokio::time::advance(IDLE + CHECK_INTERVAL).await;
        assert_eq!(activity.verdict(), ConnectionVerdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_are_no_head() {
        let activity = Activity::new();
        activity.read(b"PRI * HTTP/2.0\r\n");
        tokio::time::advance(HEAD + CHECK_INTERVAL).await;
        activity.read(b"frame");
        assert_eq!(activity.verdict(), ConnectionVerdict::Keep);
        tokio::time::advance(IDLE + CHECK_INTERVAL).await;
        assert_eq!(activity.verdict(), ConnectionVerdict::Close);
    }
}
