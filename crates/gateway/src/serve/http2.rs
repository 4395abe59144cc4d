//! Downstream HTTP/2 connection and its streams.
//!
//! Owns: the handshake under its deadline, accepting streams, one task per stream and the number of
//! tasks, the end of the connection (idle, draining). Does not own: framing and flow control (the
//! `h2` crate), decisions, the relay, gRPC calls ([`crate::serve::grpc`]).

mod streams;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use auth::headers::Repeats;
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_engine::field_edits::FieldEdits;
use http_engine::head::{Fields, Framing, HeadFault};
use http_engine::http_stream::{
    AddedField, BodyLength, ClientEnd, Downstream, Fill, HttpStream, HttpStreamError, NominatedFields,
    ResponseView,
};
use http_engine::http1::writing::response_framing;
use http_engine::http2::fields::{joined_cookies, read_fields};
use http_engine::http2::server_socket::ServerSocket;
use http_engine::http2::stream::Http2Body as Bodies;
use http_engine::io::Stream;
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::ParsedRequest;
use http_engine::read_body::poll_collect;
use telemetry::access_log::RequestProtocol;
use telemetry::phases::Phase;

use crate::error_page::WantsPage;
use crate::exchange_error::ExchangeError;
use crate::forward::ForwardedRequest;
use crate::forward::exchange::exchange;
use crate::grpc_reply::{self, GrpcStatus};
use crate::in_flight::{InFlightRequest, Timing};
use crate::peer::Peer;
use crate::pipeline::lookups::{LookupNeeded, Lookups};
use crate::pipeline::{Admission, ServedHere, admit};
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::refusal_reply::refusal_reply;
use crate::serve::http1::LINGER;
use crate::serve::http2::streams::{IdleState, OpenStreams, Streams};
use crate::worker::{ActiveConfig, Worker};

/// Flow-control window per stream, in bytes: how much a client may send before it was passed on.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window over all streams of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes per stream that may wait for the socket: more would only let a slow reader hold memory.
const SEND_BUFFER: usize = 128 * 1024;
/// Request body bytes to accept beyond the window after the response. So a client that reads the
/// response only after it has sent everything is not reset.
const MAX_DRAIN: usize = 64 * 1024;
/// Maximum tasks of a connection for each stream that may be open. A stream that is reset allows
/// another one at once, but its task ends only when it runs next.
const TASKS_PER_STREAM: usize = 2;
/// Minimum for the number of streams that may be reset before they have a task. A proxy that times
/// out resets all its streams at once, and exactly while this worker is busy. A larger number of
/// resets ends the connection with all its other streams, so a small limit would turn each timeout
/// into many.
const MIN_PENDING_RESETS: usize = 20;

/// Serves a connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, peer: Rc<Peer>, io: Stream) {
    let listener = peer.listener();
    let (header, idle) = (listener.timeouts.header, listener.timeouts.idle);
    let most = TASKS_PER_STREAM.saturating_mul(listener.limits.concurrent_streams as usize);
    let deadline = worker.deadlines.register();
    deadline.set(header);
    // Not among what its streams hold: it closes when this function ends.
    let socket = ServerSocket::new(io);
    let mut handshake = Box::pin(
        Builder::new()
            .max_concurrent_streams(listener.limits.concurrent_streams)
            .max_pending_accept_reset_streams(most.max(MIN_PENDING_RESETS))
            .max_header_list_size(u32::try_from(listener.limits.header_bytes).unwrap_or(u32::MAX))
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .handshake::<_, Bytes>(socket.clone()),
    );
    let ready = poll_fn(|cx| {
        let done = handshake.as_mut().poll(cx);
        if let Poll::Ready(Err(_)) = socket.poll_send(cx) {
            return Poll::Ready(None);
        }
        match done {
            Poll::Ready(done) => Poll::Ready(done.ok()),
            Poll::Pending => deadline.poll_due(cx).map(|()| None),
        }
    });
    let Some(mut connection) = ready.await else { return };
    let streams = Streams::new(worker.clone());
    let mut resting =
        IdleState { since: deadline.millis_at(Duration::ZERO), limit: header, goaway_sent: false };
    loop {
        let next = poll_fn(|cx| {
            let next = match connection.poll_accept(cx) {
                // There may be more to write than this stream's part.
                Poll::Ready(Some(Ok(stream))) => return Poll::Ready(Some(Ok(stream))),
                Poll::Ready(end) => Poll::Ready(end),
                Poll::Pending => {
                    let memory = (&*streams, &*peer, &socket);
                    resting.poll(cx, &deadline, memory, &mut connection).map(|()| None)
                }
            };
            match socket.poll_send(cx) {
                Poll::Ready(Err(error)) if next.is_pending() => {
                    tracing::debug!(%error, peer = %peer.address, "http/2 connection failed");
                    Poll::Ready(None)
                }
                _ => next,
            }
        });
        match next.await {
            Some(Ok((request, mut respond))) => {
                if !resting.goaway_sent {
                    resting.limit = idle;
                }
                streams.note_request();
                if is_reset_by_client(&mut respond) {
                    count_reset(&worker, &peer);
                    continue;
                }
                if streams.open.get() >= most {
                    tracing::debug!(peer = %peer.address, "http/2 stream refused: too many at once");
                    respond.send_reset(Reason::REFUSED_STREAM);
                    continue;
                }
                let open = OpenStreams::new(&streams);
                let stream = StreamTask { worker: worker.clone(), peer: peer.clone(), open };
                // Boxed: a task moves its future several times.
                tokio::task::spawn_local(Box::pin(stream.run(request, respond)));
            }
            Some(Err(error)) => {
                tracing::debug!(%error, peer = %peer.address, "http/2 connection failed");
                return;
            }
            None => return,
        }
    }
}

/// Whether the client reset a stream before it was processed. Then the stream gets no task, which
/// others need, and no decision.
fn is_reset_by_client(respond: &mut SendResponse<Bytes>) -> bool {
    respond.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Counts and logs a stream that its client gave up.
fn count_reset(worker: &Rc<Worker>, peer: &Rc<Peer>) {
    let mut under_way = InFlightRequest::begin(worker, peer, RequestProtocol::Http2, Timing::Off);
    under_way.parts().1.failed(&ExchangeError::ClientGone);
    under_way.complete();
}

pub(super) struct StreamTask {
    pub(super) worker: Rc<Worker>,
    pub(super) peer: Rc<Peer>,
    open: OpenStreams,
}

impl StreamTask {
    /// The streams of the connection.
    fn streams(&self) -> &Streams {
        self.open.streams()
    }

    async fn run(self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let timed = self.peer.sees_timing || self.worker.times_phases();
        let mut under_way =
            InFlightRequest::begin(&self.worker, &self.peer, RequestProtocol::Http2, Timing::when(timed));
        let (running, record) = under_way.parts();
        let mut client = if let Some(call) = self.grpc_method(&request) {
            // Boxed, so that not every stream's future is as large as a call's.
            Box::pin(self.call(call, request, respond, running, record)).await
        } else {
            self.request(request, respond, running, record).await
        };
        under_way.complete();
        self.drain(&mut client.bodies).await;
    }

    async fn request(
        &self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) -> Client {
        let (head, body) = request.into_parts();
        let framing = framing(&head, &body);
        let mut client = Client {
            respond,
            bodies: Bodies::new(None, Some(body)),
            responded: false,
            head_request: head.method == http::Method::HEAD,
            is_grpc: grpc_reply::is_call(&self.peer, &head),
        };
        let mut lookups = Lookups::default();
        loop {
            match self.admit(&head, framing, running, &lookups, record) {
                Admission::Forward(mut outbound) => {
                    drop(head);
                    self.forward(&mut outbound, &mut client, running, record).await;
                    return client;
                }
                Admission::PermitCheck(voucher) => {
                    send_local_reply(&voucher.answer(), &mut client, running, record);
                    return client;
                }
                Admission::Answer(answer) => {
                    send_local_reply(&answer, &mut client, running, record);
                    return client;
                }
                Admission::Serve(served) => {
                    let answer = match self.body_for(&served, &mut client).await {
                        Ok(body) => Box::pin(served.answer(body)).await,
                        Err(refusal) => refusal_reply(&refusal, &self.worker, running, record),
                    };
                    record.end(Phase::Authenticate);
                    send_local_reply(&answer, &mut client, running, record);
                    return client;
                }
                Admission::Wait(needed) => {
                    let phase = needed.phase();
                    let answer = self.wait(needed, &mut lookups, &mut client, running).await;
                    record.end(phase);
                    if answer.is_none() {
                        record.failed(&ExchangeError::ClientGone);
                        return client;
                    }
                }
            }
        }
    }

    /// Reads the body of a request that the gateway answers itself, if it is needed.
    async fn body_for(&self, served: &ServedHere, client: &mut Client) -> Result<Vec<u8>, Refusal> {
        let Some(most) = served.wants_body() else { return Ok(Vec::new()) };
        let deadline = self.worker.deadlines.register();
        deadline.set(self.peer.listener().timeouts.header);
        let mut body = Vec::new();
        poll_fn(|cx| match poll_collect(&mut client.bodies, cx, &mut body, most) {
            Poll::Ready(read) => Poll::Ready(read.map_err(Refusal::from)),
            Poll::Pending => deadline.poll_due(cx).map(|()| Err(Refusal::ClientStalled)),
        })
        .await?;
        Ok(body)
    }

    /// Runs a lookup; `None` when the client reset the stream meanwhile. Another stream has taken
    /// its place by then, and waiting on would only hold a head and a token in memory.
    async fn wait(
        &self,
        needed: LookupNeeded,
        lookups: &mut Lookups,
        client: &mut Client,
        running: &Rc<ActiveConfig>,
    ) -> Option<()> {
        let mut answer = pin!(lookups.run(needed, &self.worker, running));
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(())),
            Poll::Pending => client.poll_client_end(cx).map(|_| None),
        })
        .await
    }

    fn admit(
        &self,
        head: &Parts,
        framing: Framing,
        running: &Rc<ActiveConfig>,
        lookups: &Lookups,
        record: &mut RequestRecord,
    ) -> Admission {
        let refuse = |fault, record: &mut RequestRecord| {
            Admission::Answer(Box::new(refusal_reply(&Refusal::Head(fault), &self.worker, running, record)))
        };
        let limits = &self.peer.listener().limits;
        // Only here is a raw `#` not refused: `http` has cut the target there, so it is not
        // visible. The rest is both decided and forwarded, so the request is never read in two
        // ways.
        let target = head.uri.path_and_query().map_or("", |p| p.as_str());
        if target.len() > limits.target_bytes {
            return refuse(HeadFault::TargetTooLong, record);
        }
        let memory = &self.streams().fields;
        let known = memory.find(&head.headers);
        let cookies;
        let mut fields = Fields::new();
        let repeated = known.as_ref().and_then(|block| Some((block.read(&mut fields)?, block.id())));
        let (facts, block) = match repeated {
            Some((facts, id)) => {
                self.peer.block_results.begin(id);
                (facts, Some(id))
            }
            None => {
                fields.clear();
                cookies = joined_cookies(&head.headers);
                match read_fields(&head.headers, cookies.as_deref(), limits.header_fields, &mut fields) {
                    Ok(facts) => {
                        // A request that has waited was counted before.
                        if !lookups.has_waited() && memory.miss(&head.headers, cookies.as_deref(), facts) {
                            self.peer.block_results.forget();
                        }
                        (facts, None)
                    }
                    Err(fault) => return refuse(fault, record),
                }
            }
        };
        if facts.accepts_html {
            record.wants_page = WantsPage::read(&fields);
        }
        let inbound = ParsedRequest {
            method: head.method.as_str(),
            authority: head.uri.authority().map(|a| a.as_str().as_bytes()),
            host: facts.host(&fields),
            target: target.as_bytes(),
            fields: &fields,
            framing,
            has_length: facts.has_length,
            upgrade: None,
            nominates: false,
            via: "2.0 postern",
            scheme: self.peer.scheme,
            is_original: false,
            repeats: Repeats::Separate,
            block,
            client: None,
        };
        admit(&self.worker, running, &self.peer, &inbound, lookups, record)
    }

    async fn forward(
        &self,
        outbound: &mut ForwardedRequest,
        client: &mut Client,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) {
        let deadline = self.worker.deadlines.register();
        match exchange(outbound, client, &deadline, record).await {
            Err(refusal) => {
                let answer = refusal_reply(&refusal, &self.worker, running, record);
                send_local_reply(&answer, client, running, record);
            }
            Ok(relayed) => {
                if let Some(fault) = relayed.fault {
                    record.failed(&fault);
                    client.reset();
                }
            }
        }
    }

    /// Waits a short time for the end of a request whose response is complete. Some clients end
    /// their request in a separate frame even when they announced its length, and treat a reset
    /// before that as a failure.
    ///
    /// A stream that is dropped while its client still sends is reset with `NO_ERROR` (RFC 9113
    /// §8.1), after the response was sent. A reset here would remove the response from the
    /// connection's queue.
    async fn drain(&self, bodies: &mut Bodies) {
        if bodies.recv.as_ref().is_none_or(RecvStream::is_end_stream) {
            return;
        }
        let deadline = self.worker.deadlines.register();
        deadline.set(LINGER);
        let mut budget = MAX_DRAIN;
        poll_fn(|cx| match poll_drain(bodies, cx, &mut budget) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => deadline.poll_due(cx),
        })
        .await;
    }
}

fn send_local_reply(
    answer: &LocalReply,
    client: &mut Client,
    running: &ActiveConfig,
    record: &mut RequestRecord,
) {
    record.local_reply(answer, client.head_request);
    client.is_grpc &= record.route.is_some_and(|route| grpc_reply::applies_to(running.config.route(route)));
    // Fails when the client is gone; the log records the intended response.
    let _ = client.answer(answer, record.renewed_cookie(), record.response_edits.as_deref());
}

/// Reads a body and discards it, until its end or an error.
///
/// After the budget, the client's window is not opened again. The client can then send no more, but
/// gets no reset before it has read the response: some clients, such as curl 7.88, lose a response
/// that comes together with a reset.
fn poll_drain(bodies: &mut Bodies, cx: &mut Context<'_>, budget: &mut usize) -> Poll<()> {
    while let Ok(Fill::Data(data)) = std::task::ready!(bodies.poll_fill(cx)) {
        let n = data.len();
        match budget.checked_sub(n) {
            Some(left) => {
                *budget = left;
                bodies.consume(n);
            }
            None => {
                *budget = 0;
                bodies.discard_chunk();
            }
        }
    }
    Poll::Ready(())
}

/// How the body ends, for the codec of the upstream. The `h2` crate enforces `content-length`.
fn framing(head: &Parts, body: &RecvStream) -> Framing {
    if body.is_end_stream() {
        return Framing::Length(0);
    }
    let length = head.headers.get(http::header::CONTENT_LENGTH);
    length
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok())
        .map_or(Framing::Chunked, Framing::Length)
}

/// The client's side of an exchange over HTTP/2.
pub(super) struct Client {
    pub(super) respond: SendResponse<Bytes>,
    pub(super) bodies: Bodies,
    /// Whether the final head was sent.
    pub(super) responded: bool,
    pub(super) head_request: bool,
    /// Whether a refusal is sent as a gRPC status.
    pub(super) is_grpc: bool,
}

impl Client {
    fn answer(
        &mut self,
        answer: &LocalReply,
        cookie: Option<&str>,
        edits: Option<&FieldEdits>,
    ) -> Result<(), HttpStreamError> {
        if self.is_grpc
            && let Some(status) = grpc_reply::status(answer)
        {
            return self.answer_call(&status, answer.sent_fields(cookie, edits));
        }
        let mut response = Response::new(());
        *response.status_mut() =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in answer.sent_fields(cookie, edits) {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
            {
                response.headers_mut().append(name, value);
            }
        }
        if !matches!(answer.status, 204 | 304) {
            response.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from(answer.body.len()));
        }
        let end = self.head_request || answer.body.is_empty();
        let mut send = self.respond.send_response(response, end)?;
        if !end {
            send.send_data(Bytes::copy_from_slice(&answer.body), true)?;
        }
        Ok(())
    }

    /// Refuses a gRPC call: a response that has only trailers.
    fn answer_call<'f>(
        &mut self,
        status: &GrpcStatus,
        fields: impl Iterator<Item = (&'f str, &'f str)>,
    ) -> Result<(), HttpStreamError> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(status.code)));
        if let Ok(message) = HeaderValue::from_str(&status.message) {
            headers.insert("grpc-message", message);
        }
        for (name, value) in fields.filter(|(name, _)| grpc_reply::passes(name)) {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
            {
                headers.append(name, value);
            }
        }
        self.respond.send_response(response, true)?;
        Ok(())
    }

    /// Resets the stream, so that the client does not take a truncated response for a complete one.
    fn reset(&mut self) {
        match &mut self.bodies.send {
            Some(send) => send.send_reset(Reason::INTERNAL_ERROR),
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }
}

/// Converts a response head for the `h2` crate.
fn response_head(view: &ResponseView<'_>) -> Result<Response<()>, HttpStreamError> {
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(view.status).map_err(|_| HttpStreamError::Protocol("status out of range"))?;
    let headers = response.headers_mut();
    for field in NominatedFields::from_fields(view.fields).forwarded(view.fields) {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| HttpStreamError::Head(HeadFault::FieldLine))?;
        let value =
            HeaderValue::from_bytes(field.value).map_err(|_| HttpStreamError::Head(HeadFault::FieldLine))?;
        headers.append(name, value);
    }
    Ok(response)
}

impl Downstream for Client {
    type Leg = Bodies;

    fn stream(&mut self) -> &mut Bodies {
        &mut self.bodies
    }

    fn send_interim(&mut self, response: &ResponseView<'_>) -> Result<(), HttpStreamError> {
        Ok(self.respond.send_informational(response_head(response)?)?)
    }

    fn send_head(&mut self, response: &ResponseView<'_>, own: &[AddedField]) -> Result<(), HttpStreamError> {
        let mut head = response_head(response)?;
        for (name, value) in own {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                head.headers_mut().append(*name, value);
            }
        }
        let framing = response_framing(response.status, response.body, self.head_request, Framing::Chunked);
        if let BodyLength::Known(n) = response.body
            && !matches!(response.status, 204 | 304)
        {
            head.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from(n));
        }
        let end = framing == Framing::Length(0);
        let send = self.respond.send_response(head, end)?;
        self.bodies.send = (!end).then_some(send);
        self.responded = true;
        Ok(())
    }

    fn poll_client_end(&mut self, cx: &mut Context<'_>) -> Poll<ClientEnd> {
        // The end of the request's body is no sign of a disconnect: each request ends with it.
        let reset = match &mut self.bodies.send {
            Some(send) => send.poll_reset(cx),
            None if self.responded => return Poll::Pending,
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| ClientEnd::Broken)
    }

    fn is_broken(&self) -> bool {
        // A stream is never half-closed unnoticed: its reset always arrives.
        false
    }
}
