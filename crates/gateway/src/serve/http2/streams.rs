//! Streams of a downstream HTTP/2 connection: how many are open, and the end of a connection
//! without any.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use http_engine::deadline::Deadline;
use http_engine::io::Stream;

use crate::worker::Worker;

/// Time limit for a connection to end after GOAWAY and its last stream, before it is dropped.
const GOAWAY_GRACE: Duration = Duration::from_secs(5);

/// Idle state of a connection without streams.
pub(super) struct IdleState {
    /// Start of the idle time, in milliseconds since the worker's start.
    pub(super) since: u64,
    pub(super) limit: Duration,
    /// Whether GOAWAY was sent.
    pub(super) goaway_sent: bool,
}

impl IdleState {
    /// Ready when the connection is to be dropped.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        streams: &Streams,
        connection: &mut Connection<Stream, Bytes>,
    ) -> Poll<()> {
        loop {
            let now = deadline.millis_at(Duration::ZERO);
            // Data that a stream left to be sent still needs its time, also after GOAWAY.
            let busy = streams.open.get() > 0;
            self.since = if busy { now } else { self.since.max(streams.ended.get()) };
            let millis = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
            let mut due = self.since.saturating_add(millis);
            if busy {
                deadline.mark_busy();
            } else {
                deadline.mark_idle();
            }
            if deadline.is_asked_to_close() {
                // The slot is needed now, and this connection has been idle: its last bytes had
                // their time.
                self.limit = Duration::ZERO;
                due = now;
            }
            if streams.worker.draining.get().is_some() && !self.goaway_sent {
                due = now; // finish open streams, refuse new ones
            }
            if now < due {
                // A stream's end does not wake this task. The deadline does, and then sees the
                // newer `since`.
                deadline.set_at(due);
                return deadline.poll_due(cx);
            }
            if self.goaway_sent {
                return Poll::Ready(());
            }
            connection.graceful_shutdown();
            self.goaway_sent = true;
            self.since = now;
            self.limit = if deadline.is_asked_to_close() { Duration::ZERO } else { GOAWAY_GRACE };
            if let Poll::Ready(None | Some(Err(_))) = connection.poll_accept(cx) {
                return Poll::Ready(());
            }
        }
    }
}

/// The streams of a connection.
pub(super) struct Streams {
    pub(super) open: Cell<usize>,
    /// When the last stream ended, in milliseconds since the worker's start.
    pub(super) ended: Cell<u64>,
    pub(super) worker: Rc<Worker>,
}

impl Streams {
    /// The streams of a connection that has none.
    pub(super) fn new(worker: Rc<Worker>) -> Rc<Self> {
        Rc::new(Self { open: Cell::new(0), ended: Cell::new(0), worker })
    }
}

/// Counts an open stream until dropped.
pub(super) struct OpenStreams(Rc<Streams>);

impl OpenStreams {
    pub(super) fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        Self(streams.clone())
    }
}

impl Drop for OpenStreams {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.ended.set(self.0.worker.deadlines.now_millis());
    }
}
