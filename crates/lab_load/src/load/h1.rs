//! HTTP/1.1 client (RFC 9112): one request at a time on one connection.
//!
//! A request is one write of prepared bytes; a response is usually one read.
//!
//! Owns: the exchange on a connection, and its replacement after a failure. Does not own: when to
//! send, and where a response ends ([`super::response`]).

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use lab_analysis::units::count;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::task::JoinSet;

use super::ending::CONNECT_FAILURE_PAUSE;
use super::response::{CapturedResponse, ProtocolViolation, ResponseReader, ResponseSummary};
use super::streams::observer::StreamObserver;
use super::timer::Deadline;
use super::{Exchange, Failure, Io, MAX_CONCURRENT_CONNECTS, RequestFault, TargetSession};

/// An open connection without an exchange in progress.
pub(crate) struct Connection {
    io: Io,
    reader: ResponseReader,
}

/// Opens the connections of a run, at most [`MAX_CONCURRENT_CONNECTS`] at the same time.
///
/// An entry is `None` if its connection could not be opened. The first request on that slot
/// connects again and records the failure.
pub(crate) async fn open(session: &Rc<TargetSession>, wanted: usize) -> Vec<Option<Connection>> {
    let mut connections = Vec::with_capacity(wanted);
    let mut opening = JoinSet::new();
    for _ in 0..wanted {
        if opening.len() >= MAX_CONCURRENT_CONNECTS {
            connections.extend(opening.join_next().await.and_then(Result::ok));
        }
        let session = Rc::clone(session);
        opening.spawn_local(async move {
            let timeout = std::time::Duration::from_nanos(session.timeout);
            let opened = tokio::time::timeout(timeout, Connection::open(&session)).await;
            opened.ok().and_then(Result::ok)
        });
    }
    while let Some(opened) = opening.join_next().await {
        connections.extend(opened.ok());
    }
    connections
}

impl Connection {
    pub(crate) async fn open(session: &TargetSession) -> Result<Self, Failure> {
        let io = session.open().await?;
        let reader = if session.exchange != Exchange::Request {
            ResponseReader::with_events()
        } else if session.read_phases {
            ResponseReader::with_head_capture(session.head_only)
        } else {
            ResponseReader::new(session.head_only)
        };
        Ok(Self { io, reader })
    }

    /// Creates a connection whose reader captures the head and the content of each response.
    pub(crate) fn with_capture(io: Io) -> Self {
        Self { io, reader: ResponseReader::with_capture() }
    }

    /// Like [`Connection::with_capture`], with `most` as the largest content of a response, in
    /// bytes.
    pub(crate) fn with_capture_limit(io: Io, most: usize) -> Self {
        Self { io, reader: ResponseReader::with_capture_limit(most) }
    }

    /// Takes the captured head and content of the last response.
    pub(crate) fn take_captured(&mut self) -> CapturedResponse {
        self.reader.take_captured()
    }

    /// Whether the connection can no longer be used: the peer closed it, or sent bytes without a
    /// request, while it was idle. Costs no system call as long as nothing arrived.
    pub(crate) fn is_stale(&mut self, cx: &mut Context<'_>) -> bool {
        let mut space = ReadBuf::new(self.reader.space());
        Pin::new(&mut self.io).poll_read(cx, &mut space).is_ready()
    }

    /// Sends `request` and reads its response. Reads while it writes, because a server may respond
    /// (and close) before it has read a long body. Adds the bytes that arrive to `received`.
    pub(crate) async fn exchange(
        &mut self,
        request: &[u8],
        received: &Cell<u64>,
    ) -> Result<ResponseSummary, Failure> {
        self.exchange_with(request, received, &mut |_| ()).await
    }

    /// Like [`Connection::exchange`], and calls `on_read` after each read.
    async fn exchange_with(
        &mut self,
        request: &[u8],
        received: &Cell<u64>,
        on_read: &mut dyn FnMut(&mut ResponseReader),
    ) -> Result<ResponseSummary, Failure> {
        let mut sending = Sending { rest: request, flushed: false, error: None };
        poll_fn(|cx| {
            sending.poll(&mut self.io, cx);
            self.poll_answer(&sending, received, on_read, cx)
        })
        .await
    }

    fn poll_answer(
        &mut self,
        sending: &Sending<'_>,
        received: &Cell<u64>,
        on_read: &mut dyn FnMut(&mut ResponseReader),
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseSummary, Failure>> {
        loop {
            let mut space = ReadBuf::new(self.reader.space());
            let result = match Pin::new(&mut self.io).poll_read(cx, &mut space) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            };
            let read = space.filled().len();
            if let Err(error) = result {
                return Poll::Ready(Err(Failure::io(sending.error.as_ref().unwrap_or(&error))));
            }
            if read == 0 {
                return Poll::Ready(self.reader.on_close().ok_or_else(|| self.closed_failure(sending)));
            }
            received.set(received.get() + count(read));
            let filled = self.reader.filled(read);
            on_read(&mut self.reader);
            match filled {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    let reusable = answer.reusable && sending.rest.is_empty();
                    return Poll::Ready(Ok(ResponseSummary { reusable, ..answer }));
                }
                Err(ProtocolViolation(why)) => {
                    return Poll::Ready(Err(Failure::new(RequestFault::Protocol, why)));
                }
            }
        }
    }

    fn closed_failure(&self, sending: &Sending<'_>) -> Failure {
        match &sending.error {
            Some(error) => Failure::io(error),
            None if self.reader.has_started() => {
                Failure::new(RequestFault::Closed, "connection closed inside the response")
            }
            None => Failure::new(RequestFault::Closed, "connection closed before the response"),
        }
    }
}

/// The part of a request that is not sent yet.
struct Sending<'a> {
    rest: &'a [u8],
    flushed: bool,
    /// The error that ended sending. The response is still read: it may contain the reason.
    error: Option<io::Error>,
}

impl Sending<'_> {
    fn poll(&mut self, io: &mut Io, cx: &mut Context<'_>) {
        while !self.rest.is_empty() && self.error.is_none() {
            match Pin::new(&mut *io).poll_write(cx, self.rest) {
                Poll::Pending => return,
                Poll::Ready(Ok(written)) => self.rest = &self.rest[written..],
                Poll::Ready(Err(error)) => self.error = Some(error),
            }
        }
        if !self.flushed && self.error.is_none() {
            match Pin::new(io).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => self.error = Some(error),
            }
        }
    }
}

/// The worker of one slot: sends the assigned requests on the slot's connection.
pub(crate) struct Worker {
    pub(crate) session: Rc<TargetSession>,
    pub(crate) requests: Rc<[Box<[u8]>]>,
    pub(crate) slot: usize,
    pub(crate) closed: bool,
}

impl Worker {
    pub(crate) async fn run(self, mut connection: Option<Connection>) {
        let deadline = Deadline::new();
        let session = &*self.session;
        while let Some(arrival) = session.next(self.slot).await {
            let started = session.start(&arrival);
            let until = started.saturating_add(session.timeout);
            let mut connecting = true;
            let request = &self.requests[arrival.variant];
            let mut observer = StreamObserver::new(session, &arrival, started);
            let watch = (observer.as_mut(), arrival.measured);
            let work = exchange(session, &mut connection, &mut connecting, request, watch);
            let ending = deadline.run_until(&session.clock, until, work).await;
            let ending = ending.unwrap_or_else(|| {
                // Late bytes of this exchange must not be read as the next response, so the
                // connection is dropped.
                connection = None;
                Err(if connecting {
                    Failure::new(RequestFault::Connect, "no connection within the timeout")
                } else {
                    Failure::timeout()
                })
            });
            let ending = match observer {
                Some(observer) => observer.finish(ending),
                None => ending,
            };
            let pause = self.closed && ending.as_ref().is_err_and(|failure| failure.fault.wants_pause());
            session.end(&arrival, started, ending);
            if pause {
                tokio::time::sleep(CONNECT_FAILURE_PAUSE).await;
            }
        }
    }
}

async fn exchange(
    session: &TargetSession,
    slot: &mut Option<Connection>,
    connecting: &mut bool,
    request: &[u8],
    (observer, measured): (Option<&mut StreamObserver<'_>>, bool),
) -> Result<u16, Failure> {
    if let Some(idle) = slot
        && poll_fn(|cx| Poll::Ready(idle.is_stale(cx))).await
    {
        *slot = None;
    }
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => Connection::open(session).await?,
    };
    *connecting = false;
    let phases = session.read_phases && measured;
    let answer = if let Some(observer) = observer {
        let mut on_read = |reader: &mut ResponseReader| {
            let status = reader.status();
            let captured = reader.take_captured();
            if !captured.head.is_empty() {
                observer.head(status);
                if phases {
                    session.record_phases_of_head(&captured.head);
                }
            }
            observer.content(&captured.content);
        };
        connection.exchange_with(request, &session.received, &mut on_read).await?
    } else {
        let answer = connection.exchange(request, &session.received).await?;
        if phases {
            session.record_phases_of_head(&connection.take_captured().head);
        }
        answer
    };
    if answer.reusable && session.keep_alive {
        *slot = Some(connection);
    }
    Ok(answer.status)
}
