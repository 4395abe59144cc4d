//! Downstream HTTP/1 connection: serves one request after the other.
//!
//! Owns: waiting for heads under their deadlines, passing each to the pipeline, running the
//! exchange on this connection, and whether the connection continues afterwards. Does not own: the
//! grammar ([`http_engine::head`]), the decision, the relay.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use auth::headers::Repeats;
use auth::request::{Field, Scheme};
use http_engine::deadline::Deadline;
use http_engine::head::HeadFault;
use http_engine::head::{
    BlockMemory, Fields, Framing, HeadLength, HeaderBlock, RequestHead, Version, parse_target,
    parse_to_remember,
};
use http_engine::http_stream::{
    AddedField, BodyLength, ClientEnd, Downstream, Fill, HttpStream, HttpStreamError, ResponseView,
};
use http_engine::http1::connection::Connection;
use http_engine::http1::writing::{put_decimal, put_field, put_response, response_framing};
use http_engine::labels::Protocol;
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::{ParsedRequest, VIA_HTTP10};
use http_engine::read_body::poll_collect;
use telemetry::access_log::RequestProtocol;
use telemetry::phases::Phase;

use crate::error_page::WantsPage;
use crate::forward::ForwardedRequest;
use crate::forward::exchange::exchange;
use crate::forward_filter::is_version_offer;
use crate::in_flight::{InFlightRequest, Timing};
use crate::peer::Peer;
use crate::pipeline::lookups::Lookups;
use crate::pipeline::{Admission, ServedHere, admit};
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::refusal_reply::refusal_reply;
use crate::relay::MEMORY;
use crate::worker::{ActiveConfig, ConnectionProtocol, Worker};

/// Maximum bytes of a request body to read and discard so that the connection can continue after a
/// local reply.
const MAX_DRAIN: u64 = 64 * 1024;
/// Maximum bytes to read and discard after the last response, so that a reset does not destroy it.
pub(crate) const MAX_LINGER: usize = 256 * 1024;
/// How long to wait for the client to close after the last response.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Serves a connection to its end.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    peer: Rc<Peer>,
    connection: Box<Connection>,
    speaking: ConnectionProtocol,
) {
    let deadline = worker.deadlines.register();
    let blocks = BlockMemory::default();
    let mut session =
        Http1Connection { worker, peer, connection, blocks, connection_protocol: speaking, deadline };
    loop {
        match session.next().await {
            Next::Continue => {}
            Next::Close => return session.close().await,
            Next::Abort => return,
        }
    }
}

/// What to do after a request.
enum Next {
    /// Wait for the next request.
    Continue,
    /// Close the connection after what was sent.
    Close,
    /// Drop the connection at once.
    Abort,
}

/// Result of waiting for a request.
enum Awaited {
    /// A complete head.
    Head(HeadLength),
    /// The client closed its side between two requests.
    End,
    /// The connection failed, or its idle limit has passed.
    Failed,
}

struct Http1Connection {
    worker: Rc<Worker>,
    peer: Rc<Peer>,
    connection: Box<Connection>,
    /// The header block of the requests before.
    blocks: BlockMemory,
    connection_protocol: ConnectionProtocol,
    deadline: Deadline,
}

/// Facts about a head that outlive the read buffer.
#[derive(Clone, Copy)]
struct RequestFacts {
    len: usize,
    framing: Framing,
    version: Version,
    head_request: bool,
    persists: bool,
    /// Whether the client may be waiting for 100 before it sends the body.
    expects: bool,
}

impl RequestFacts {
    /// Values for a head that could not be parsed.
    const UNPARSED: Self = Self {
        len: 0,
        framing: Framing::Length(0),
        version: Version::Http11,
        head_request: false,
        persists: false,
        expects: false,
    };
}

impl Http1Connection {
    async fn next(&mut self) -> Next {
        let limits = &self.peer.listener().limits;
        let head = match self.head(limits.header_bytes, limits.header_fields).await {
            Ok(Awaited::Head(n)) => n,
            // Closing TLS properly shows a client that still reads that the response is complete.
            Ok(Awaited::End) if self.peer.scheme == Scheme::Https => return Next::Close,
            Ok(Awaited::End | Awaited::Failed) => return Next::Abort,
            Err(refusal) => return Box::pin(self.refuse_head(refusal)).await,
        };
        // Apart, so that a connection without a request holds no memory for one.
        Box::pin(self.serve_request(head)).await
    }

    /// Serves the request with this head.
    async fn serve_request(&mut self, head: HeadLength) -> Next {
        let timed = self.peer.sees_timing || self.worker.times_phases();
        let mut under_way =
            InFlightRequest::begin(&self.worker, &self.peer, RequestProtocol::Http11, Timing::when(timed));
        let (running, record) = under_way.parts();
        let next = self.request(head, running, record).await;
        under_way.complete();
        next
    }

    /// Waits for a complete head.
    async fn head(&mut self, max_bytes: usize, max_fields: usize) -> Result<Awaited, Refusal> {
        let timeouts = &self.peer.listener().timeouts;
        let rested = self.deadline.millis_at(timeouts.idle);
        let paused = self.deadline.millis_at(MEMORY);
        let mut complete_by = None;
        let (worker, connection, deadline) = (&self.worker, &mut self.connection, &self.deadline);
        let (peer, blocks) = (&self.peer, &mut self.blocks);
        if blocks.begin() {
            peer.block_results.forget();
        }
        let head = poll_fn(|cx| {
            match connection.poll_head(cx, (max_bytes, max_fields), blocks.block()) {
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(Awaited::End)),
                Poll::Ready(Ok(Some(head))) => return Poll::Ready(Ok(Awaited::Head(head))),
                Poll::Ready(Err(HttpStreamError::Head(fault))) => {
                    return Poll::Ready(Err(Refusal::Head(fault)));
                }
                // The client is gone: no response is possible.
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(Awaited::Failed)),
                Poll::Pending => {}
            }
            if connection.unread().is_empty() {
                connection.release_buffers();
                deadline.mark_idle();
                let closed = worker.draining.get().map_or(rested, |until| until.min(rested));
                // A connection that pauses has no memory of its requests.
                if blocks.block().is_some() && paused < closed {
                    deadline.set_at(paused);
                    if deadline.poll_due(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if deadline.is_asked_to_close() {
                        return Poll::Ready(Ok(Awaited::Failed));
                    }
                    blocks.forget();
                    peer.block_results.forget();
                }
                deadline.set_at(closed);
                deadline.poll_due(cx).map(|()| Ok(Awaited::Failed))
            } else {
                deadline.mark_busy();
                let due = *complete_by.get_or_insert_with(|| deadline.millis_at(timeouts.header));
                deadline.set_at(due);
                deadline.poll_due(cx).map(|()| Err(Refusal::HeadTimeout))
            }
        })
        .await;
        self.deadline.clear();
        head
    }

    /// Refuses a head that could not be parsed; nothing after it can be framed.
    async fn refuse_head(&mut self, refusal: Refusal) -> Next {
        let mut under_way =
            InFlightRequest::begin(&self.worker, &self.peer, RequestProtocol::Http11, Timing::Off);
        let (running, record) = under_way.parts();
        let answer = refusal_reply(&refusal, &self.worker, running, record);
        self.connection.discard_unread();
        let next = self.answer(&answer, RequestFacts::UNPARSED, record).await;
        under_way.complete();
        next
    }

    async fn request(
        &mut self,
        head: HeadLength,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) -> Next {
        let mut lookups = Lookups::default();
        loop {
            let (admission, facts) = self.admit(head, running, &lookups, record);
            match admission {
                Admission::Forward(mut outbound) => {
                    self.connection.begin_body(head.bytes, facts.framing);
                    return self.forward(&mut outbound, facts, running, record).await;
                }
                Admission::PermitCheck(voucher) => {
                    self.connection.begin_body(head.bytes, facts.framing);
                    return self.answer(&voucher.answer(), facts, record).await;
                }
                Admission::Answer(answer) => {
                    if facts.len > 0 {
                        self.connection.begin_body(head.bytes, facts.framing);
                    } else {
                        self.connection.discard_unread();
                    }
                    return self.answer(&answer, facts, record).await;
                }
                Admission::Serve(served) => {
                    self.connection.begin_body(head.bytes, facts.framing);
                    let answer = match self.body_for(&served, &facts).await {
                        Ok(body) => Box::pin(served.answer(body)).await,
                        Err(refusal) => refusal_reply(&refusal, &self.worker, running, record),
                    };
                    record.end(Phase::Authenticate);
                    return self.answer(&answer, facts, record).await;
                }
                Admission::Wait(needed) => {
                    let phase = needed.phase();
                    lookups.run(needed, &self.worker, running).await;
                    record.end(phase);
                }
            }
        }
    }

    /// Reads the body of a request that the gateway answers itself, if it is needed.
    async fn body_for(&mut self, served: &ServedHere, facts: &RequestFacts) -> Result<Vec<u8>, Refusal> {
        let Some(most) = served.wants_body() else { return Ok(Vec::new()) };
        if facts.expects && !self.connection.is_body_read() {
            self.connection.write_buffer().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.deadline.set(self.peer.listener().timeouts.header);
        let mut body = Vec::new();
        let read = self.before_deadline(|connection, cx| {
            if let Poll::Ready(Err(_)) = connection.poll_flush_io(cx) {
                return Poll::Ready(Err(Refusal::Body));
            }
            poll_collect(connection, cx, &mut body, most).map_err(Refusal::from)
        });
        let read = read.await.unwrap_or(Err(Refusal::ClientStalled));
        self.deadline.clear();
        read.map(|()| body)
    }

    /// Parses the head at the front of the buffer and runs the pipeline. Everything borrows from
    /// the buffer and lives on the stack: only the result leaves this function.
    fn admit(
        &self,
        head: HeadLength,
        running: &Rc<ActiveConfig>,
        lookups: &Lookups,
        record: &mut RequestRecord,
    ) -> (Admission, RequestFacts) {
        let bytes = &self.connection.unread()[..head.bytes];
        let mut facts = RequestFacts::UNPARSED;
        let refuse = |fault, record: &mut RequestRecord| {
            Admission::Answer(Box::new(refusal_reply(&Refusal::Head(fault), &self.worker, running, record)))
        };
        let mut fields = Fields::new();
        let target_bytes = self.peer.listener().limits.target_bytes;
        let known = self.blocks.block();
        let (parsed, block) = match head.parse_repeated(bytes, known, target_bytes, &mut fields) {
            Some(parsed) => {
                self.blocks.hit();
                let block = known.map(HeaderBlock::id);
                if let Some(block) = block {
                    self.peer.block_results.begin(block);
                }
                (parsed, block)
            }
            None => {
                fields.clear();
                match parse_to_remember(bytes, target_bytes, &mut fields) {
                    Ok((parsed, facts)) => {
                        // A request that has waited was counted before.
                        if !lookups.has_waited() {
                            self.blocks.miss(bytes, &fields, facts);
                        }
                        (parsed, None)
                    }
                    Err(fault) => return (refuse(fault, record), facts),
                }
            }
        };
        facts = RequestFacts {
            len: head.bytes,
            framing: parsed.framing,
            version: parsed.version,
            head_request: parsed.method == "HEAD",
            persists: parsed.connection.persists(parsed.version),
            expects: parsed.connection.expect_continue,
        };
        if parsed.connection.accepts_html {
            record.wants_page = WantsPage::read(&fields);
        }
        if parsed.version == Version::Http10 {
            record.protocol = RequestProtocol::Http10;
        }
        let Some((authority, target)) = parse_target(parsed.target, self.peer.scheme) else {
            return (refuse(HeadFault::FirstLine, record), RequestFacts { len: 0, ..facts });
        };
        let inbound =
            ParsedRequest { block, ..parsed_request(&parsed, &fields, authority, target, self.peer.scheme) };
        (admit(&self.worker, running, &self.peer, &inbound, lookups, record), facts)
    }

    async fn forward(
        &mut self,
        outbound: &mut ForwardedRequest,
        facts: RequestFacts,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) -> Next {
        let mut client = Client {
            worker: &self.worker,
            peer: &self.peer,
            blocks: &mut self.blocks,
            connection: &mut self.connection,
            speaking: &mut self.connection_protocol,
            version: facts.version,
            head_request: facts.head_request,
            close: !facts.persists,
        };
        let result = exchange(outbound, &mut client, &self.deadline, record).await;
        let close = client.close;
        let relayed = match result {
            Ok(relayed) => relayed,
            Err(refusal) => {
                let answer = refusal_reply(&refusal, &self.worker, running, record);
                return self.answer(&answer, facts, record).await;
            }
        };
        match relayed.fault {
            Some(fault) => {
                record.failed(&fault);
                // If no byte of the response was sent yet, a refusal can replace it.
                if let Some(refusal) = fault.refusal()
                    && self.connection.discard_unsent()
                {
                    let answer = refusal_reply(&refusal, &self.worker, running, record);
                    return self.answer(&answer, RequestFacts { persists: false, ..facts }, record).await;
                }
                // The reset prevents that the client takes a truncated response for a complete one.
                self.connection.reset_on_close();
                Next::Abort
            }
            None if close || relayed.switched || !self.connection.is_body_read() => Next::Close,
            None => {
                self.connection.next_message();
                Next::Continue
            }
        }
    }

    /// Sends a local reply, and drains the rest of the request if it is short.
    async fn answer(&mut self, answer: &LocalReply, facts: RequestFacts, record: &mut RequestRecord) -> Next {
        record.local_reply(answer, facts.head_request);
        let draining = self.worker.draining.get().is_some();
        let small = match facts.framing {
            Framing::Length(n) => n <= MAX_DRAIN,
            Framing::Chunked => true,
            Framing::UntilClose => false,
        };
        // A client that waited for 100 may now omit its body: the next bytes could be a body or a
        // request.
        let drains = self.connection.is_body_read() || (small && !facts.expects);
        let mut keep = facts.persists && !answer.close && !draining && drains;
        let connection = match (keep, facts.version) {
            (false, _) => Some("close"),
            (true, Version::Http10) => Some("keep-alive"),
            (true, Version::Http11) => None,
        };
        let out = self.connection.write_buffer();
        let edits = record.response_edits.as_deref();
        answer.put_http1(out, facts.head_request, connection, record.renewed_cookie(), edits);
        self.deadline.set(self.peer.listener().timeouts.stall);
        let sent = self.before_deadline(Connection::poll_flush_io).await;
        if !matches!(sent, Some(Ok(()))) {
            return Next::Abort;
        }
        if keep {
            let mut budget = MAX_DRAIN;
            self.deadline.set(LINGER);
            keep = matches!(self.before_deadline(|c, cx| poll_drain(c, cx, &mut budget)).await, Some(true));
        }
        self.deadline.clear();
        if keep {
            self.connection.next_message();
            Next::Continue
        } else {
            Next::Close
        }
    }

    /// Polls until ready or until the deadline has passed (`None`).
    async fn before_deadline<T>(
        &mut self,
        mut poll: impl FnMut(&mut Connection, &mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let (connection, deadline) = (&mut self.connection, &self.deadline);
        poll_fn(|cx| match poll(connection, cx) {
            Poll::Ready(v) => Poll::Ready(Some(v)),
            Poll::Pending => deadline.poll_due(cx).map(|()| None),
        })
        .await
    }

    /// Closes so that the client receives the complete last response: shuts our side down first,
    /// then reads and discards what the client still sends (RFC 9112 §9.6).
    async fn close(mut self) {
        self.deadline.set(LINGER);
        let mut budget = MAX_LINGER;
        if matches!(self.before_deadline(Connection::poll_shutdown).await, Some(Ok(()))) {
            let _ = self.before_deadline(|c, cx| c.poll_discard(cx, &mut budget)).await;
        }
    }
}

fn parsed_request<'a>(
    head: &RequestHead<'a>,
    fields: &'a [Field<'a>],
    authority: Option<&'a [u8]>,
    target: &'a [u8],
    scheme: Scheme,
) -> ParsedRequest<'a> {
    let connection = &head.connection;
    ParsedRequest {
        method: head.method,
        authority,
        host: connection.host,
        target,
        fields,
        framing: head.framing,
        has_length: head.has_length,
        upgrade: connection.protocol.filter(|protocol| {
            connection.upgrade && head.version == Version::Http11 && !is_version_offer(protocol)
        }),
        nominates: connection.nominates,
        via: if head.version == Version::Http11 { "1.1 postern" } else { VIA_HTTP10 },
        scheme,
        is_original: false,
        repeats: Repeats::Separate,
        block: None,
        client: None,
    }
}

/// Reads a request body to its end and discards it; false when it exceeds the budget or is
/// malformed.
fn poll_drain(connection: &mut Connection, cx: &mut Context<'_>, budget: &mut u64) -> Poll<bool> {
    loop {
        let n = match ready!(connection.poll_fill(cx)) {
            Ok(Fill::End(_)) => return Poll::Ready(true),
            Ok(Fill::Data(data)) => data.len(),
            Err(_) => return Poll::Ready(false),
        };
        connection.consume(n);
        match budget.checked_sub(n as u64) {
            Some(left) => *budget = left,
            None => return Poll::Ready(false),
        }
    }
}

/// The client's side of an exchange over HTTP/1.
struct Client<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    blocks: &'a mut BlockMemory,
    connection: &'a mut Connection,
    speaking: &'a mut ConnectionProtocol,
    version: Version,
    head_request: bool,
    /// Whether the connection closes after this response.
    close: bool,
}

impl Downstream for Client<'_> {
    type Leg = Connection;
    const IS_WATCHED_LATER: bool = true;

    fn stream(&mut self) -> &mut Connection {
        self.connection
    }

    fn send_interim(&mut self, response: &ResponseView<'_>) -> Result<(), HttpStreamError> {
        // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
        if self.version == Version::Http11 {
            let out = self.connection.write_buffer();
            put_response(out, response);
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn send_head(&mut self, response: &ResponseView<'_>, own: &[AddedField]) -> Result<(), HttpStreamError> {
        let status = response.status;
        // Chunks came with HTTP/1.1 (RFC 9112 §7.1).
        let unknown = if self.version == Version::Http11 { Framing::Chunked } else { Framing::UntilClose };
        let framing = response_framing(status, response.body, self.head_request, unknown);
        self.close |= framing == Framing::UntilClose || self.worker.draining.get().is_some();
        self.connection.begin_message();
        let out = self.connection.write_buffer();
        put_response(out, response);
        for (name, value) in own {
            put_field(out, name, value);
        }
        match (framing, response.body) {
            (Framing::Chunked, _) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            (Framing::Length(_), BodyLength::Known(n)) if !matches!(status, 100..=199 | 204 | 304) => {
                out.extend_from_slice(b"content-length: ");
                put_decimal(out, n);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        if status == 101 {
            self.speaking.switch(Protocol::Tunnel);
            out.extend_from_slice(b"connection: upgrade\r\n");
            for field in response.fields.iter().filter(|f| f.name.eq_ignore_ascii_case("upgrade")) {
                put_field(out, "upgrade", field.value);
            }
        } else if self.close {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
        self.connection.frame_body(framing);
        Ok(())
    }

    fn forget(&mut self) {
        self.blocks.forget();
        self.peer.block_results.forget();
    }

    fn poll_client_end(&mut self, cx: &mut Context<'_>) -> Poll<ClientEnd> {
        self.connection.poll_closed(cx)
    }

    fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_size<A, B, C, D, F: Future>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_is_small_while_it_rests() {
        // There may be ten thousand idle connections, each with this future: buffers are shared,
        // the future is not.
        let size = future_size(serve);
        assert!(size <= 1024, "the future of a connection takes {size} bytes");
    }
}
