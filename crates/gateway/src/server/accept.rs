//! Accept loop: takes a connection from its socket to a codec (limits, PROXY header, TLS, protocol
//! detection).

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use auth::request::Scheme;
use http_engine::config::ListenAddress;
use http_engine::http1::connection::Connection;
use http_engine::io::Stream;
use http_engine::labels::{HandshakeFailure, Protocol, Refusal};
use http_engine::listen::{AcceptedConnection, Acceptor, BACKLOG};
use http_engine::proxy_protocol::{self, ProxyOrigin, ProxyProgress};
use parking_lot::Mutex;
use telemetry::metrics::ListenerMetrics;
use telemetry::phases::nanos_between;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::{OpenCount, total_open};
use crate::block_results::BlockResults;
use crate::config::Listener;
use crate::forwarded_fields::ForwardedFields;
use crate::peer::{Certificate, Peer};
use crate::serve::http1::{LINGER, MAX_LINGER};
use crate::server::handoff::{Accepted, Command, Handoff, TASKS_PER_TURN};
use crate::worker::{ConnectionProtocol, Worker};

/// First bytes of an HTTP/2 client (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A worker with fewer connections keeps each new one: to pass it on costs more than it gains.
const MIN_SHARED: usize = 4;
/// A worker passes a new connection on when it has one more than another, and this part of its own
/// more. A request waits for those of the same worker, so the worker with the most connections has the
/// slowest requests.
const TOLERATED_PART: usize = 16;
/// Minimum idle time of a connection that may be closed for a new one. Connections in use are idle
/// for less between requests, and must not lose their place to a client that opens too many.
const MIN_IDLE: Duration = Duration::from_secs(1);
/// Pause after accept failed for a lasting reason, such as a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Dependencies of the accept loops of one worker.
pub(crate) struct Context {
    pub(crate) worker: Rc<Worker>,
    pub(crate) handoffs: Arc<[Handoff]>,
    pub(crate) acceptors: Arc<Acceptors>,
    pub(crate) connection_limit: usize,
}

/// Open connections of each listener over all workers, by its name.
#[derive(Default)]
pub(crate) struct Acceptors(Mutex<HashMap<Box<str>, OpenCount>>);

impl Acceptors {
    fn counter(&self, listener: &str) -> OpenCount {
        let mut doors = self.0.lock();
        if let Some(open) = doors.get(listener) {
            return open.clone();
        }
        // Names change with reloads; entries with a count of zero are dropped.
        doors.retain(|_, open| open.load(Ordering::Relaxed) > 0);
        doors.entry(listener.into()).or_default().clone()
    }
}

/// Accepts on one listener until aborted, or until its queue is empty while draining. No error ends
/// the loop: clients that disconnect before they are accepted, and a lack of descriptors, are
/// normal.
pub(crate) async fn accept(context: Rc<Context>, address: ListenAddress, socket: Acceptor) {
    // Never due: this deadline only wakes the task when the worker begins to drain.
    let wake = context.worker.deadlines.register();
    let mut in_turn = 0;
    loop {
        let next = poll_fn(|cx| match socket.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending if context.worker.draining.get().is_some() => Poll::Ready(None),
            Poll::Pending => wake.poll_due(cx).map(|()| None),
        });
        match next.await {
            None => return drain_queue(&context, &address, socket).await,
            Some(Ok((stream, peer))) => {
                accepted(&context, &address, stream, peer);
                in_turn = (in_turn + 1) % TASKS_PER_TURN;
                if in_turn == 0 {
                    tokio::task::yield_now().await;
                }
            }
            Some(Err(error)) => {
                if let Some((_, counts)) = listener(&context.worker, &address) {
                    counts.accept_failed(&context.worker.metrics);
                }
                if !is_of_one_client(&error) {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Accepts the connections that are queued already, because the kernel has established them; then
/// closes the socket. This queries the system directly, because the runtime may not know of the
/// last ones yet.
async fn drain_queue(context: &Rc<Context>, address: &ListenAddress, socket: Acceptor) {
    let Ok(socket) = socket.into_listening() else { return };
    // Not more than the queue could hold at first: under load new ones come as fast as these are
    // taken.
    for _ in 0..BACKLOG {
        match socket.accept() {
            Ok((socket, peer)) => adopt(context, Accepted { socket, peer, listener: address.clone() }),
            Err(error) if is_of_one_client(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Whether the error concerns only one client, so that the next accept may succeed at once.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::ConnectionAborted | E::ConnectionReset | E::ConnectionRefused | E::Interrupted)
}

/// The listener configured at an address now, and its counters.
fn listener(worker: &Worker, address: &ListenAddress) -> Option<(Arc<Listener>, Arc<ListenerMetrics>)> {
    let listener = worker.active_config().config.listeners.at(address)?.clone();
    let counts = listener.metrics.clone();
    let counts = counts.unwrap_or_else(|| worker.metrics.metrics().listener(&listener.name));
    Some((listener, counts))
}

fn accepted(context: &Rc<Context>, address: &ListenAddress, stream: Stream, peer: SocketAddr) {
    let Some(other) = less_loaded_worker(context) else { return begin(context, address, stream, peer) };
    // This fails only for a socket that the system has closed; then there is no client to serve
    // either.
    let Ok(socket) = AcceptedConnection::from_stream(stream) else { return };
    let accepted = Accepted { socket, peer, listener: address.clone() };
    if let Err(Command::Adopt(accepted)) = context.handoffs[other].send(Command::Adopt(accepted)) {
        adopt(context, accepted);
    }
}

/// Takes over a connection from another worker.
pub(crate) fn adopt(context: &Rc<Context>, accepted: Accepted) {
    if let Ok(stream) = accepted.socket.into_stream() {
        begin(context, &accepted.listener, stream, accepted.peer);
    }
}

/// Finds a worker with clearly fewer connections than this one. None while draining: that worker
/// may be about to end.
fn less_loaded_worker(context: &Context) -> Option<usize> {
    let own = context.worker.open.load(Ordering::Relaxed);
    if own < MIN_SHARED || context.worker.draining.get().is_some() {
        return None;
    }
    let open = |at: &usize| context.handoffs[*at].open.load(Ordering::Relaxed);
    let least = (0..context.handoffs.len()).min_by_key(open)?;
    (open(&least) + 1 + own / TOLERATED_PART < own).then_some(least)
}

fn begin(context: &Rc<Context>, address: &ListenAddress, stream: Stream, peer: SocketAddr) {
    let worker = &context.worker;
    let Some((listener, counts)) = listener(worker, address) else { return };
    let open = OpenConnection::new(worker.clone(), context.acceptors.counter(&listener.name));
    let here = open.listener_count.load(Ordering::Relaxed);
    let full = total_open(&context.handoffs) > context.connection_limit && !frees_slot(worker, &counts);
    if full || here > listener.limits.connections {
        counts.refused(&worker.metrics, Refusal::Limit);
        return;
    }
    counts.accepted(&worker.metrics);
    tokio::task::spawn_local(async move {
        let accept_nanos = Cell::default();
        let worker = open.worker.clone();
        let socket = Incoming { worker, listener, counts, peer, relayed_tls: false, accept_nanos };
        socket.serve(stream).await;
        drop(open);
    });
}

/// Whether an idle connection gives its slot to a new one. A few are told to close at a time, so
/// that the walk over all of them is rare.
fn frees_slot(worker: &Worker, counts: &ListenerMetrics) -> bool {
    let room = match worker.freed_slots.get() {
        0 => {
            let closing = worker.deadlines.close_idle(TASKS_PER_TURN, MIN_IDLE);
            counts.closed_for_room(&worker.metrics, closing);
            closing
        }
        room => room,
    };
    worker.freed_slots.set(room.saturating_sub(1));
    room > 0
}

/// Counts an open connection until dropped.
struct OpenConnection {
    worker: Rc<Worker>,
    listener_count: OpenCount,
}

impl OpenConnection {
    fn new(worker: Rc<Worker>, door: OpenCount) -> Self {
        worker.open.fetch_add(1, Ordering::Relaxed);
        door.fetch_add(1, Ordering::Relaxed);
        Self { worker, listener_count: door }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.worker.open.fetch_sub(1, Ordering::Relaxed);
        self.listener_count.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Incoming {
    worker: Rc<Worker>,
    listener: Arc<Listener>,
    counts: Arc<ListenerMetrics>,
    peer: SocketAddr,
    /// Whether the client uses TLS to the proxy that relays the connection.
    relayed_tls: bool,
    /// Duration of the PROXY header and the handshake, if there was either.
    accept_nanos: Cell<Option<u64>>,
}

/// What a client said of itself in the TLS handshake; nothing without TLS.
#[derive(Default)]
struct Handshake {
    certificate: Option<Box<Certificate>>,
    /// The host that it asked for, in lower case; empty: it named none. `None`: without TLS.
    server_name: Option<Box<str>>,
}

/// A connection that is ready for its first request.
struct Opened {
    worker: Rc<Worker>,
    peer: Rc<Peer>,
    counted: ConnectionProtocol,
    protocol: DetectedProtocol,
}

/// The protocol of a connection, after detection.
enum DetectedProtocol {
    Http1(Box<Connection>),
    Http2(Stream),
}

impl Incoming {
    fn listener(&self) -> &Listener {
        &self.listener
    }

    async fn serve(self, stream: Stream) {
        // Apart, so that the memory of what happens once is free afterwards.
        let Some(opened) = Box::pin(self.open(stream)).await else { return };
        let Opened { worker, peer, counted, protocol } = opened;
        match protocol {
            DetectedProtocol::Http1(connection) => {
                crate::serve::http1::serve(worker, peer, connection, counted).await;
            }
            DetectedProtocol::Http2(stream) => {
                Box::pin(crate::serve::http2::serve(worker, peer, stream)).await;
                drop(counted);
            }
        }
    }

    /// Everything before the first request: PROXY header, TLS, protocol. `None`: it has failed, and is
    /// counted.
    async fn open(mut self, stream: Stream) -> Option<Opened> {
        // A response is one write; waiting to combine it with more would only delay it.
        if matches!(&stream, Stream::Tcp(tcp) if tcp.set_nodelay(true).is_err()) {
            return None;
        }
        let listener = self.listener();
        let limit = listener.timeouts.handshake;
        let measured = listener.tls.is_some() || !listener.proxy_protocol.is_empty();
        let began = measured.then(|| self.worker.clock.monotonic());
        let Ok(Some(stream)) = tokio::time::timeout(limit, self.read_proxy_header(stream)).await else {
            self.counts.refused(&self.worker.metrics, Refusal::ProxyProtocol);
            return None;
        };
        let (protocol, handshake) = self.negotiate(stream, limit, began).await?;
        let label = match &protocol {
            DetectedProtocol::Http1(_) => Protocol::Http1,
            DetectedProtocol::Http2(_) => Protocol::Http2,
        };
        let worker = self.worker.clone();
        let counted = ConnectionProtocol::new(&worker, self.counts.clone(), label);
        Some(Opened { worker, peer: Rc::new(self.into_peer(handshake)), counted, protocol })
    }

    fn into_peer(self, Handshake { certificate, server_name }: Handshake) -> Peer {
        let tls = self.relayed_tls || self.listener().tls.is_some();
        let scheme = if tls { Scheme::Https } else { Scheme::Http };
        let address = self.peer.ip().to_canonical();
        let may_report =
            self.listener().trusted_proxies.as_ref().is_some_and(|trusted| trusted.contains(&address));
        let timing = self.worker.active_config().config.server_timing.clone();
        let sees_timing = timing.iter().any(|net| net.contains(&address)) || may_report && !timing.is_empty();
        Peer {
            block_results: BlockResults::default(),
            address: self.peer,
            scheme,
            certificate,
            opened_for: server_name.filter(|_| self.listener.socket.is_some() && !may_report),
            forwarded: ForwardedFields::direct(address, scheme),
            may_report,
            sees_timing,
            accept_nanos: self.accept_nanos,
            listener: self.listener,
        }
    }

    /// Reads the PROXY header from peers that must send one; it is not accepted from others.
    async fn read_proxy_header(&mut self, mut stream: Stream) -> Option<Stream> {
        let ip = self.peer.ip().to_canonical();
        if !self.listener().proxy_protocol.iter().any(|net| net.contains(&ip)) {
            return Some(stream);
        }
        let mut held = Vec::new();
        loop {
            match proxy_protocol::parse(&held) {
                Ok(ProxyProgress::NeedMore) => {
                    let mut chunk = [0; 512];
                    let n = stream.read(&mut chunk).await.ok()?;
                    if n == 0 {
                        return None;
                    }
                    held.extend_from_slice(&chunk[..n]);
                }
                Ok(ProxyProgress::Done(header)) => {
                    if let ProxyOrigin::Relayed { source, .. } = header.origin {
                        self.peer = source;
                    }
                    self.relayed_tls = header.tls;
                    return Some(stream.replay(held.split_off(header.consumed)));
                }
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "proxy header refused");
                    return None;
                }
            }
        }
    }

    /// TLS handshake and protocol selection; without TLS, protocol detection.
    async fn negotiate(
        &self,
        stream: Stream,
        limit: Duration,
        began: Option<Instant>,
    ) -> Option<(DetectedProtocol, Handshake)> {
        let Some(tls) = &self.listener().tls else {
            self.setup_done(began);
            return Some((self.detect_protocol(stream).await?, Handshake::default()));
        };
        let handshake = TlsAcceptor::from(tls.server.clone()).accept(Box::new(stream)).into_fallible();
        let stream = match tokio::time::timeout(limit, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, stream))) => {
                self.counts.handshake_failed(&self.worker.metrics, handshake_failure(&error));
                tracing::debug!(peer = %self.peer, %error, "tls handshake failed");
                let _ = tokio::time::timeout(LINGER, linger_after_alert(stream)).await;
                return None;
            }
            Err(_) => {
                self.counts.handshake_failed(&self.worker.metrics, HandshakeFailure::Timeout);
                return None;
            }
        };
        self.setup_done(began);
        let (_, session) = stream.get_ref();
        let certificate = match (session.peer_certificates(), &tls.client_authorities) {
            (Some(chain), Some(authorities)) => {
                let now = self.worker.clock.now();
                Certificate::new(chain, authorities, session.handshake_kind(), now).map(Box::new)
            }
            _ => None,
        };
        let server_name = session.server_name().map(str::to_ascii_lowercase).unwrap_or_default();
        let handshake = Handshake { certificate, server_name: Some(server_name.into()) };
        let http2 = session.alpn_protocol() == Some(b"h2");
        let stream = Stream::ServerTls(Box::new(stream));
        let spoken = if http2 {
            DetectedProtocol::Http2(stream)
        } else if self.listener().http1 {
            DetectedProtocol::Http1(Box::new(Connection::new(stream, &[])))
        } else {
            self.counts.refused(&self.worker.metrics, Refusal::Protocol);
            return None;
        };
        Some((spoken, handshake))
    }

    /// Ends the measured setup of the connection.
    fn setup_done(&self, began: Option<Instant>) {
        self.accept_nanos.set(began.map(|began| nanos_between(began, self.worker.clock.monotonic())));
    }

    /// Plain text: HTTP/2 when its preface comes first (prior knowledge, RFC 9113 §3.3), else
    /// HTTP/1.
    async fn detect_protocol(&self, stream: Stream) -> Option<DetectedProtocol> {
        let mut connection = Box::new(Connection::new(stream, &[]));
        if !self.listener().http2 {
            return Some(DetectedProtocol::Http1(connection));
        }
        let deadline = self.worker.deadlines.register();
        let rests_until = deadline.millis_at(self.listener().timeouts.idle);
        let mut begun = false;
        loop {
            let held = connection.unread();
            let compared = held.len().min(PREFACE.len());
            if held[..compared] != PREFACE[..compared] {
                if self.listener().http1 {
                    return Some(DetectedProtocol::Http1(connection));
                }
                self.counts.refused(&self.worker.metrics, Refusal::Protocol);
                return None;
            }
            if compared == PREFACE.len() {
                return Some(DetectedProtocol::Http2(connection.into_stream()));
            }
            if compared > 0 && !std::mem::replace(&mut begun, true) {
                deadline.mark_busy();
                deadline.set(self.listener().timeouts.header);
            }
            let read = poll_fn(|cx| match connection.poll_read(cx, PREFACE.len()) {
                Poll::Ready(read) => Poll::Ready(read.ok()),
                Poll::Pending => {
                    connection.release_buffers();
                    if !begun {
                        deadline.mark_idle();
                        let draining = self.worker.draining.get();
                        deadline.set_at(draining.map_or(rests_until, |until| until.min(rests_until)));
                    }
                    deadline.poll_due(cx).map(|()| None)
                }
            });
            if !matches!(read.await, Some(n) if n > 0) {
                return None;
            }
        }
    }
}

/// Lets the peer read the alert that ended its handshake. A TLS 1.3 client sends its request before
/// it reads the alert. Closing a socket with unread bytes causes a reset, and the reset would
/// overtake the alert.
async fn linger_after_alert(mut stream: Box<Stream>) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut chunk, mut left) = ([0; 1024], MAX_LINGER);
    while left > 0 {
        match stream.read(&mut chunk).await? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}

fn handshake_failure(error: &io::Error) -> HandshakeFailure {
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            HandshakeFailure::Certificate
        }
        Some(_) => HandshakeFailure::Protocol,
        None => HandshakeFailure::Disconnected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_is_small_from_its_beginning() {
        let size = future_size(Incoming::serve);
        assert!(size <= 1024, "the future of a connection takes {size} bytes");
    }
}
