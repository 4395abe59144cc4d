//! HTTP/2 client (RFC 9113): several connections, several streams on each.
//!
//! Owns: connections and their replacement. Does not own: framing (the `h2` crate), and when to
//! send.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::Request;
use tokio::sync::Mutex;

use super::ending::CONNECT_FAILURE_PAUSE;
use super::streams::observer::StreamObserver;
use super::timer::Deadline;
use super::{Failure, RequestFault, TargetSession};

/// Receive windows of one stream and of one connection, in bytes. They are large, so that flow
/// control never limits the measured throughput.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 24;

/// One connection of the run, which is opened again after it fails.
pub(crate) struct ReconnectingConnection {
    session: Rc<TargetSession>,
    current: Mutex<Option<ActiveConnection>>,
    opened: Cell<u64>,
}

#[derive(Clone)]
struct ActiveConnection {
    /// Number of the connection. A stream that fails on an old connection does not discard its
    /// successor.
    generation: u64,
    sender: SendRequest<Bytes>,
}

/// Opens the connections of a run. If one cannot be opened, the first request on it tries again.
pub(crate) async fn open(session: &Rc<TargetSession>, count: usize) -> Vec<Rc<ReconnectingConnection>> {
    let mut links = Vec::with_capacity(count);
    for _ in 0..count {
        let link = ReconnectingConnection {
            session: Rc::clone(session),
            current: Mutex::new(None),
            opened: Cell::new(0),
        };
        let _ = tokio::time::timeout(Duration::from_nanos(session.timeout), link.get_or_connect()).await;
        links.push(Rc::new(link));
    }
    links
}

impl ReconnectingConnection {
    async fn get_or_connect(&self) -> Result<ActiveConnection, Failure> {
        // The lock is held while connecting, so that all streams of a lost connection share one
        // attempt.
        let mut current = self.current.lock().await;
        if let Some(live) = &*current {
            return Ok(live.clone());
        }
        let io = self.session.open().await?;
        let mut builder = client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(io).await.map_err(|error| failure(&error))?;
        // Every stream on the connection receives its error, so the result here can be dropped.
        tokio::task::spawn_local(async move { connection.await.ok() });
        self.opened.set(self.opened.get() + 1);
        let live = ActiveConnection { generation: self.opened.get(), sender };
        *current = Some(live.clone());
        Ok(live)
    }

    async fn discard(&self, generation: u64) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|live| live.generation == generation) {
            *current = None;
        }
    }

    /// Returns a sender that accepts a request now. Replaces a connection that ended while it was
    /// idle, because no request was lost on it.
    async fn ready(&self) -> Result<ActiveConnection, Failure> {
        let live = self.get_or_connect().await?;
        if let Ok(sender) = live.sender.ready().await {
            return Ok(ActiveConnection { sender, ..live });
        }
        self.discard(live.generation).await;
        let live = self.get_or_connect().await?;
        let sender = live.sender.ready().await.map_err(|error| failure(&error))?;
        Ok(ActiveConnection { sender, ..live })
    }

    async fn exchange(
        &self,
        request: Request<()>,
        connecting: &Cell<bool>,
        observed: (Option<&mut StreamObserver<'_>>, bool),
    ) -> Result<u16, Failure> {
        let ActiveConnection { generation, mut sender } = self.ready().await?;
        connecting.set(false);
        let result = send(&mut sender, request, &self.session, observed).await;
        if let Err(error) = &result
            && !error.is_reset()
        {
            self.discard(generation).await;
        }
        result.map_err(|error| failure(&error))
    }
}

async fn send(
    sender: &mut SendRequest<Bytes>,
    request: Request<()>,
    session: &TargetSession,
    (mut observer, measured): (Option<&mut StreamObserver<'_>>, bool),
) -> Result<u16, h2::Error> {
    let (response, mut content) = sender.send_request(request, session.body.is_empty())?;
    if !session.body.is_empty() {
        // `h2` queues the bytes until the flow-control window opens. They are shared, so a stream
        // costs no copy.
        content.send_data(session.body.clone(), true)?;
    }
    let response = response.await?;
    let status = response.status().as_u16();
    if session.read_phases && measured {
        let fields = response.headers().get_all("server-timing").iter();
        fields.for_each(|field| session.record_phases(field.as_bytes()));
    }
    if let Some(observer) = &mut observer {
        observer.head(status);
        observer.fields(response.headers());
    }
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let data = data?;
        session.count_received(data.len());
        if let Some(observer) = &mut observer {
            observer.content(&data);
        }
        body.flow_control().release_capacity(data.len())?;
    }
    if let Some((trailers, observer)) = body.trailers().await?.zip(observer) {
        observer.fields(&trailers);
    }
    Ok(status)
}

fn failure(error: &h2::Error) -> Failure {
    let fault = match error.get_io() {
        Some(io) => Failure::io(io).fault,
        None if error.is_library() => RequestFault::Protocol,
        None if error.is_go_away() => RequestFault::Closed,
        None if error.is_reset() => RequestFault::Reset,
        None => RequestFault::Protocol,
    };
    Failure::new(fault, error.to_string())
}

/// The worker of one slot: one stream at a time on its connection.
pub(crate) struct Worker {
    pub(crate) session: Rc<TargetSession>,
    pub(crate) link: Rc<ReconnectingConnection>,
    pub(crate) requests: Rc<[Request<()>]>,
    pub(crate) slot: usize,
    pub(crate) closed: bool,
}

impl Worker {
    pub(crate) async fn run(self) {
        let deadline = Deadline::new();
        let session = &*self.session;
        while let Some(arrival) = session.next(self.slot).await {
            let started = session.start(&arrival);
            let until = started.saturating_add(session.timeout);
            let connecting = Cell::new(true);
            let request = self.requests[arrival.variant].clone();
            let mut observer = StreamObserver::new(session, &arrival, started);
            let watch = (observer.as_mut(), arrival.measured);
            let work = self.link.exchange(request, &connecting, watch);
            let ending = deadline.run_until(&session.clock, until, work).await;
            let ending = ending.unwrap_or_else(|| {
                let not_connected =
                    || Failure::new(RequestFault::Connect, "no connection or stream within the timeout");
                Err(if connecting.get() { not_connected() } else { Failure::timeout() })
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
