//! Streams of a downstream HTTP/2 connection: how many are open, what they remember of one another,
//! and the end of a connection without any.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use http_engine::deadline::Deadline;
use http_engine::http2::fields::FieldMemory;
use http_engine::http2::server_socket::ServerSocket;

use crate::peer::Peer;
use crate::relay::MEMORY;
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
        (streams, peer, socket): (&Streams, &Peer, &ServerSocket),
        connection: &mut Connection<ServerSocket, Bytes>,
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
                deadline.set_at(due.min(streams.remembers_until(now, peer, socket)));
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
    /// The fields of the requests before.
    pub(super) fields: FieldMemory,
    /// When the last request arrived, in milliseconds since the worker's start; `None`: nothing is
    /// remembered since.
    requested: Cell<Option<u64>>,
    pub(super) worker: Rc<Worker>,
}

impl Streams {
    /// The streams of a connection that has none.
    pub(super) fn new(worker: Rc<Worker>) -> Rc<Self> {
        let (fields, requested) = (FieldMemory::default(), Cell::new(None));
        Rc::new(Self { open: Cell::new(0), ended: Cell::new(0), fields, requested, worker })
    }

    /// Takes note of a request.
    pub(super) fn note_request(&self) {
        self.requested.set(Some(self.worker.deadlines.now_millis()));
    }

    /// Until when the last requests are remembered, in milliseconds since the worker's start;
    /// `u64::MAX`: nothing is. A connection that pauses forgets them.
    ///
    /// Whether anything is remembered now does not matter: the task of the last request may not have
    /// read its fields yet, and does not wake this one.
    fn remembers_until(&self, now: u64, peer: &Peer, socket: &ServerSocket) -> u64 {
        let Some(requested) = self.requested.get() else { return u64::MAX };
        let millis = u64::try_from(MEMORY.as_millis()).unwrap_or(u64::MAX);
        let until = requested.saturating_add(millis);
        if now < until {
            return until;
        }
        self.requested.set(None);
        self.fields.forget();
        socket.forget();
        peer.block_results.forget();
        u64::MAX
    }
}

/// Counts an open stream until dropped.
pub(super) struct OpenStreams(Rc<Streams>);

impl OpenStreams {
    pub(super) fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        Self(streams.clone())
    }

    /// The streams of the connection.
    pub(super) fn streams(&self) -> &Streams {
        &self.0
    }
}

impl Drop for OpenStreams {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.ended.set(self.0.worker.deadlines.now_millis());
    }
}
