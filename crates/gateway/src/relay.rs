//! Relay: moves one exchange between client and upstream, request body up and response down, both
//! at once.
//!
//! Owns: the order of events (a response may begin while the request still streams; interim
//! responses pass as they come; after 101 both directions are a tunnel), the time and size limits
//! while bytes move, and the record of what happened. Does not own: the protocols of the two
//! streams, the response when an exchange fails.

mod flow;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use auth::headers::{is_per_hop, is_same_alias_class};
use auth::request::Field;
use credentials::cookies::sets_login_cookie;
use http_engine::deadline::Deadline;
use http_engine::http_stream::{
    ClientEnd, Downstream, HttpStream, HttpStreamError, ResponseView, UpstreamStream,
};
use telemetry::phases::Phase;

use crate::exchange_error::ExchangeError;
use crate::external_path::ExternalPath;
use crate::forward_filter::is_offered;
use crate::mirror_body::BodyCopies;
use crate::record::RequestRecord;
use crate::relay::flow::{Blocked, Flow, FlowState, PumpFault};
use crate::retry::RetryState;
use crate::stream_guard::{AuthorizedBy, Expiry, StreamGuard};
use crate::worker::ActiveConfig;

/// Maximum interim responses of one exchange: enough for any real use, too few to keep a client
/// busy.
const MAX_INTERIM: u32 = 16;

/// Interval of the check whether a half-closed client has disconnected. Such a client sends nothing
/// more, so no read would show it.
const HALF_CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection remembers what repeats, without another request or during one. Shorter pauses
/// are those of a client at work.
pub(crate) const MEMORY: Duration = Duration::from_secs(1);

/// Limits and settings of one exchange.
pub(crate) struct Terms {
    /// Time limit from the request sent to the response head.
    pub response_header: Duration,
    /// Time limit without a byte of the request moved, while the upstream does not accept any.
    pub upstream_stall: Duration,
    /// Time limit without a byte of the response moved, while the upstream does not send any.
    pub response_idle: Duration,
    /// Time limit without a byte moved, while the client does not accept or send any.
    pub client_stall: Duration,
    /// Time limit without a byte moved through a tunnel, in which neither side has to send.
    pub tunnel_idle: Duration,
    /// End of the whole exchange, in milliseconds since the worker's start.
    pub until: Option<u64>,
    /// Time limit from the request sent to the last byte of its response, for each attempt.
    pub attempt: Option<Duration>,
    /// Maximum bytes of a request body.
    pub body_bytes: Option<u64>,
    /// Protocols that the request offers to switch to and the route allows (`Upgrade`).
    pub offered: Option<Box<[u8]>>,
    /// When the credential that authorized the exchange expires; `None`: never, or the route keeps
    /// exchanges open beyond it.
    pub expiry: Option<Expiry>,
    /// The configuration that determines which request trailers pass: trailers are filtered like
    /// fields.
    pub running: Rc<ActiveConfig>,
    /// How paths in the response change; `None`: not at all.
    pub external_path: Option<Box<ExternalPath>>,
    /// Index of the route of the request, for the same purpose; `None`: it has no trailers.
    pub route: Option<usize>,
    /// Index among the several upstreams of the route, likewise; `None`: it has only one.
    pub entry: Option<usize>,
    /// Copies of the request's body for mirrors.
    pub copies: Option<BodyCopies>,
    /// The attempts that the request has left; `None`: it is not repeated.
    pub retry: Option<RetryState>,
}

/// Progress of an exchange; survives a change of the upstream connection before anything was sent.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    upload: Flow,
    download: Flow,
    interim: u32,
}

impl Progress {
    /// Whether the exchange can start again: no byte of the request body was taken from the client,
    /// and the client received nothing. `bodiless`: the request has no body.
    pub(crate) fn is_untouched(&self, bodiless: bool) -> bool {
        let taken = self.upload.bytes > 0 || self.upload.state != FlowState::Copy;
        (bodiless || !taken) && self.interim == 0
    }
}

/// The result of an exchange.
pub(crate) struct Relayed {
    /// Status of the response, if one was started.
    pub status: Option<u16>,
    /// Whether the connection became a tunnel.
    pub switched: bool,
    /// Why the exchange ended early, if it did.
    pub fault: Option<ExchangeError>,
}

/// Runs one exchange to its end and updates `record`.
pub(crate) async fn relay<D: Downstream, U: UpstreamStream>(
    down: &mut D,
    up: &mut U,
    deadline: &Deadline,
    terms: &Terms,
    progress: &mut Progress,
    record: &mut RequestRecord,
) -> Relayed {
    let stay = StreamGuard::begin(record.revocable(), record.session(), terms.expiry.as_ref(), deadline);
    let mut relay = Relay {
        down,
        up,
        deadline,
        terms,
        progress,
        record,
        moved_at: deadline.millis_at(Duration::ZERO),
        // The tick after this time wakes the task.
        watched_from: if D::IS_WATCHED_LATER { deadline.millis_at(Duration::from_millis(1)) } else { 0 },
        attempt_until: terms.attempt.map_or(u64::MAX, |limit| deadline.millis_at(limit)),
        remembers_until: deadline.millis_at(MEMORY),
        guard: stay,
        head_due: true,
        half_closed_check_at: None,
        status: None,
        switched: false,
    };
    let end = poll_fn(|cx| relay.poll(cx)).await;
    deadline.clear();
    Relayed { status: relay.status, switched: relay.switched, fault: end.err() }
}

struct Relay<'a, D, U> {
    down: &'a mut D,
    up: &'a mut U,
    deadline: &'a Deadline,
    terms: &'a Terms,
    progress: &'a mut Progress,
    record: &'a mut RequestRecord,
    /// When the last byte moved, in milliseconds since the worker's start.
    moved_at: u64,
    /// When to begin to look for the end of the client, likewise, if the response has not begun by then.
    watched_from: u64,
    /// End of this attempt, likewise.
    attempt_until: u64,
    /// When the connections forget what they remember of requests and responses before, likewise.
    remembers_until: u64,
    /// Checks whether the credential is still valid.
    guard: StreamGuard,
    /// Whether the response head had not arrived when this poll began.
    head_due: bool,
    /// Set when the client ended its side before the response head arrived: it waits for the
    /// response and sends nothing more. The value is the time of the next check whether it has
    /// disconnected, in milliseconds since the worker's start.
    half_closed_check_at: Option<u64>,
    status: Option<u16>,
    switched: bool,
}

/// Records the transferred bytes even if the gateway stops during the exchange.
impl<D, U> Drop for Relay<'_, D, U> {
    fn drop(&mut self) {
        let (up, down) = (self.progress.upload.bytes, self.progress.download.bytes);
        self.record.transferred(self.status.unwrap_or(0), up, down);
    }
}

impl<D: Downstream, U: UpstreamStream> Relay<'_, D, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        let before = (
            self.progress.upload.bytes,
            self.progress.upload.state,
            self.progress.download.bytes,
            self.status,
        );
        self.head_due = self.status.is_none();
        let step = self.poll_step(cx);
        if step.is_ready() {
            return step;
        }
        if before
            != (
                self.progress.upload.bytes,
                self.progress.upload.state,
                self.progress.download.bytes,
                self.status,
            )
        {
            self.moved_at = self.deadline.millis_at(Duration::ZERO);
        }
        // The authorization at the start does not hold for the whole exchange: check again.
        let (record, terms) = (&self.record, self.terms);
        let rests_on = || AuthorizedBy {
            revocable: record.revocable().cloned().collect(),
            session: record.session().cloned(),
            expiry: terms.expiry.clone(),
        };
        let may_stay = self.guard.poll(cx, self.deadline, rests_on);
        may_stay.map_err(ExchangeError::AuthorizationLost)?;
        self.check_half_closed()?;
        if self.deadline.millis_at(Duration::ZERO) >= self.remembers_until {
            self.remembers_until = u64::MAX;
            self.down.forget();
            self.up.forget();
        }
        self.poll_deadline(cx)
    }

    /// Checks, when due, whether a half-closed client has disconnected. This also runs while the
    /// exchange waits for something else: a check that is due and not made would count as a missed
    /// deadline.
    fn check_half_closed(&mut self) -> Result<(), ExchangeError> {
        if self.half_closed_check_at.is_none_or(|look_at| self.deadline.millis_at(Duration::ZERO) < look_at) {
            return Ok(());
        }
        if self.down.is_broken() {
            return Err(ExchangeError::ClientGone);
        }
        self.half_closed_check_at = Some(self.deadline.millis_at(HALF_CLOSED_CHECK_INTERVAL));
        Ok(())
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        if matches!(self.progress.upload.state, FlowState::Copy | FlowState::Flush) {
            let (running, removed) = (&self.terms.running, Cell::new(0));
            let record = &*self.record;
            let passes = |name: &str| {
                removed.set(removed.get() + u32::from(running.config.strip.strips(name)));
                request_trailer_passes(running, (self.terms.route, self.terms.entry), record, name)
            };
            let max = self.terms.body_bytes.filter(|_| !self.switched).unwrap_or(u64::MAX);
            let sink = (&mut *self.up, self.terms.copies.as_ref());
            let step = self.progress.upload.poll(cx, self.down.stream(), sink, max, &passes);
            self.record.headers_removed += removed.get();
            match step {
                Poll::Ready(Err(PumpFault::Source(e))) => return Poll::Ready(Err(client_fault(e))),
                // The upstream may have responded before it stopped reading: the response decides.
                Poll::Ready(Err(PumpFault::Sink(e))) => {
                    if self.status.is_some() {
                        self.progress.upload.state = FlowState::Broken;
                    } else {
                        return self.poll_early_response(cx, e);
                    }
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        if self.status.is_none() {
            match self.poll_response(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => return self.poll_abandoned(cx),
            }
            if self.switched && self.progress.upload.state != FlowState::Copy {
                self.progress.upload.state = FlowState::Copy;
                return self.poll_step(cx);
            }
        }
        let sink = (self.down.stream(), None);
        match self.progress.download.poll(cx, self.up, sink, u64::MAX, &response_trailer_passes) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(PumpFault::Source(e))) => Poll::Ready(Err(upstream_fault(e))),
            Poll::Ready(Err(PumpFault::Sink(_))) => Poll::Ready(Err(ExchangeError::ClientGone)),
            // A tunnel whose client has disconnected ends; closing the connection informs the
            // upstream.
            Poll::Pending if self.switched && self.progress.upload.state == FlowState::Done => {
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.switched || self.progress.download.blocked == Blocked::Sink => {
                Poll::Pending
            }
            Poll::Pending => self.poll_abandoned(cx),
        }
    }

    /// Checks whether the client still waits, while only the upstream is awaited. A client that
    /// still sends its body shows a disconnect by that.
    fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        // An interim response that met a full socket still has to be flushed.
        if self.progress.interim > 0 && self.down.stream().poll_flush(cx).ready_and(|r| r.is_err()) {
            return Poll::Ready(Err(ExchangeError::ClientGone));
        }
        if self.progress.upload.state != FlowState::Done
            || self.half_closed_check_at.is_some()
            || self.watch_due().is_some()
        {
            return Poll::Pending;
        }
        match ready!(self.down.poll_client_end(cx)) {
            // After its request a client may close its sending side and continue to read. If it has
            // disconnected instead, a reset in response to a write shows that, or the upstream
            // times out. An end seen together with the response head came before it.
            ClientEnd::Finished if self.head_due => {
                self.half_closed_check_at = Some(self.deadline.millis_at(HALF_CLOSED_CHECK_INTERVAL));
                Poll::Pending
            }
            ClientEnd::Finished | ClientEnd::Broken => Poll::Ready(Err(ExchangeError::ClientGone)),
        }
    }

    /// When the client begins to be watched, in milliseconds since the worker's start; `None`: it is.
    /// With the head of the response it always is: an end that is seen together with it came before.
    fn watch_due(&self) -> Option<u64> {
        let is_early = self.status.is_none() && self.deadline.millis_at(Duration::ZERO) < self.watched_from;
        is_early.then_some(self.watched_from)
    }

    /// Reads response heads: passes interim ones on; the final one starts the download.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        loop {
            let (down, record) = (&mut *self.down, &mut *self.record);
            let offered = self.terms.offered.as_deref();
            let logs_in = self.terms.running.login.is_some();
            // The client must not see parts of two responses.
            let retry = self.terms.retry.as_ref().filter(|_| self.progress.interim == 0);
            let shown = ready!(self.up.poll_response(cx, |response| {
                let sent = match response.status {
                    101 if !offered.is_some_and(|offered| is_offered(offered, response.fields)) => {
                        return Err(ExchangeError::UpstreamProtocol(HttpStreamError::Protocol(
                            "101 to a protocol that was not offered",
                        )));
                    }
                    100 | 102..=199 => down.send_interim(response),
                    status if retry.is_some_and(|retry| retry.takes_status(status)) => {
                        return Err(ExchangeError::RetriedStatus);
                    }
                    _ => {
                        record.end(Phase::Upstream);
                        let logs_in = logs_in && response.fields.iter().any(sets_login_cookie);
                        let own = record.own_fields();
                        let external = self.terms.external_path.as_deref();
                        if record.response_edits.is_none() && external.is_none() && !logs_in {
                            down.send_head(response, &own)
                        } else {
                            let passes = |field: &&Field<'_>| !logs_in || !sets_login_cookie(field);
                            // Lives as long as the fields that borrow it.
                            let changed: Vec<_> = response
                                .fields
                                .iter()
                                .map(|field| external.and_then(|external| external.rewrite(field)))
                                .collect();
                            let fields = response.fields.iter().zip(&changed).map(|(field, changed)| Field {
                                value: changed.as_deref().unwrap_or(field.value),
                                ..*field
                            });
                            let fields = fields.filter(|field| passes(&field));
                            let edited = match &record.response_edits {
                                Some(edits) => edits.apply(fields),
                                None => fields.collect(),
                            };
                            let edited = ResponseView { fields: &edited, forwarded: None, ..*response };
                            down.send_head(&edited, &own)
                        }
                    }
                };
                sent.map(|()| response.status).map_err(|e| match e {
                    // Not the client's fault: the head does not fit into the client's protocol.
                    HttpStreamError::Head(_) | HttpStreamError::Protocol(_) => {
                        ExchangeError::UpstreamProtocol(e)
                    }
                    _ => ExchangeError::ClientGone,
                })
            }));
            let status = match shown {
                Ok(Ok(status)) => status,
                Ok(Err(fault)) => return Poll::Ready(Err(fault)),
                Err(e) => return Poll::Ready(Err(upstream_fault(e))),
            };
            if matches!(status, 100 | 102..=199) {
                self.progress.interim += 1;
                if self.progress.interim > MAX_INTERIM {
                    let e = HttpStreamError::Protocol("too many interim responses");
                    return Poll::Ready(Err(ExchangeError::UpstreamProtocol(e)));
                }
                if self.down.stream().poll_flush(cx).ready_and(|r| r.is_err()) {
                    return Poll::Ready(Err(ExchangeError::ClientGone));
                }
                continue;
            }
            self.status = Some(status);
            if status == 101 {
                self.switched = true;
                self.up.switch_protocol();
                self.down.stream().switch_protocol();
            }
            return Poll::Ready(Ok(()));
        }
    }

    /// The upstream stopped reading the request: pass on a response that it sent before, if any.
    fn poll_early_response(
        &mut self,
        cx: &mut Context<'_>,
        e: HttpStreamError,
    ) -> Poll<Result<(), ExchangeError>> {
        match self.poll_response(cx) {
            Poll::Ready(Ok(())) => {
                self.progress.upload.state = FlowState::Broken;
                self.poll_step(cx)
            }
            Poll::Ready(Err(fault)) => Poll::Ready(Err(fault)),
            Poll::Pending => Poll::Ready(Err(upstream_fault(e))),
        }
    }

    /// Time limit for the head of the response to this attempt.
    fn response_header(&self) -> Duration {
        let attempt = self.terms.retry.as_ref().and_then(RetryState::per_try_timeout);
        attempt.map_or(self.terms.response_header, |attempt| attempt.min(self.terms.response_header))
    }

    /// Determines which limit applies now, and fails if it has passed.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let (limit, client) = if self.switched {
            (self.terms.tunnel_idle, false)
        } else if self.status.is_some() {
            let client = self.progress.download.blocked == Blocked::Sink;
            (if client { self.terms.client_stall } else { self.terms.response_idle }, client)
        } else {
            match (self.progress.upload.state, self.progress.upload.blocked) {
                (FlowState::Copy, Blocked::Source) => (self.terms.client_stall, true),
                (FlowState::Copy | FlowState::Flush, _) => (self.terms.upstream_stall, false),
                _ => (self.response_header(), false),
            }
        };
        let stall = self.moved_at.saturating_add(millis(limit));
        let request = if self.switched { u64::MAX } else { self.terms.until.unwrap_or(u64::MAX) };
        let attempt = if self.switched { u64::MAX } else { self.attempt_until };
        let until = request.min(attempt);
        // A due check is no failure: it only wakes the task.
        let look_at = self.guard.next_check().min(self.half_closed_check_at.unwrap_or(u64::MAX));
        let look_at = look_at.min(self.watch_due().unwrap_or(u64::MAX)).min(self.remembers_until);
        self.deadline.set_at(stall.min(until).min(look_at));
        ready!(self.deadline.poll_due(cx));
        if self.switched {
            return Poll::Ready(Ok(())); // an idle tunnel is closed; this is no failure
        }
        Poll::Ready(Err(match (until <= stall, client) {
            // A slow client says nothing about the endpoint.
            (true, false) if attempt < request => ExchangeError::UpstreamTimeout,
            (true, _) => ExchangeError::RequestTimeout,
            (false, true) => ExchangeError::ClientStalled,
            (false, false) => ExchangeError::UpstreamTimeout,
        }))
    }
}

fn client_fault(e: HttpStreamError) -> ExchangeError {
    match e {
        HttpStreamError::TooLarge => ExchangeError::BodyTooLarge,
        HttpStreamError::Io(_)
        | HttpStreamError::Truncated
        | HttpStreamError::Closed
        | HttpStreamError::Http2(_) => ExchangeError::ClientGone,
        HttpStreamError::Head(_) | HttpStreamError::Chunk(_) | HttpStreamError::Protocol(_) => {
            ExchangeError::ClientBody(e)
        }
    }
}

fn upstream_fault(e: HttpStreamError) -> ExchangeError {
    match e {
        HttpStreamError::Io(_)
        | HttpStreamError::Truncated
        | HttpStreamError::Closed
        | HttpStreamError::Http2(_) => ExchangeError::UpstreamClosed(e),
        HttpStreamError::Head(_)
        | HttpStreamError::Chunk(_)
        | HttpStreamError::Protocol(_)
        | HttpStreamError::TooLarge => ExchangeError::UpstreamProtocol(e),
    }
}

trait PollExt<T> {
    fn ready_and(self, f: impl FnOnce(T) -> bool) -> bool;
}

impl<T> PollExt<T> for Poll<T> {
    fn ready_and(self, f: impl FnOnce(T) -> bool) -> bool {
        match self {
            Poll::Ready(v) => f(v),
            Poll::Pending => false,
        }
    }
}

/// Whether a request trailer passes: a header field of its name would, and no decision depends on
/// it. Framing, identity and routing were decided from the head (RFC 9110 §6.5.1).
fn request_trailer_passes(
    running: &ActiveConfig,
    (route, entry): (Option<usize>, Option<usize>),
    record: &RequestRecord,
    name: &str,
) -> bool {
    const NEVER: [&str; 4] = ["host", "authorization", "cookie", "expect"];
    let headers = route.and_then(|route| running.config.route(route).request_headers_of(entry));
    !is_per_hop(name)
        && !running.config.strip.strips(name)
        && !NEVER.iter().any(|never| never.eq_ignore_ascii_case(name))
        && !running.config.routing.reads(name)
        && !headers.is_some_and(|headers| headers.removes(name))
        && !record
            .authorizer_answers()
            .flat_map(|answer| &answer.replaced)
            .any(|replaced| is_same_alias_class(replaced, name))
}

/// A response trailer must not affect framing or routing (RFC 9110 §6.5.1).
fn response_trailer_passes(name: &str) -> bool {
    http_engine::http_stream::is_forwarded(name) && !is_per_hop(name)
}
