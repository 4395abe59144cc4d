//! The exchange with the upstream.
//!
//! Owns:
//!
//! - the second check of a request that had to wait for a connection;
//! - the one retry that every request has, when no byte was sent or the peer guarantees that it
//!   processed nothing (RFC 9113 §8.7), and carrying out the retries that the upstream allows;
//! - what a failed exchange means for its endpoint.
//!
//! Does not own: which requests are repeated ([`crate::retry`]), connections, the relay of bodies
//! ([`mod@crate::relay`]).

use std::rc::Rc;
use std::time::Duration;

use h2::Reason;
use http::{Method, Request, Uri};
use http_engine::deadline::Deadline;
use http_engine::head::Framing;
use http_engine::http_stream::{Downstream, HttpStreamError};
use http_engine::http2::stream::ClientStream;
use http_engine::upstream::connect::ConnectError;
use http_engine::upstream::pool::{ExchangeFailure, IdleConnections, Lease, LeasedLink, Pool, Selection};

use crate::exchange_error::ExchangeError;
use crate::forward::ForwardedRequest;
use crate::forward::head::ForwardedHead;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::relay::{Progress, Relayed, Terms, relay};
use crate::retry::end_attempt;
use crate::stream_guard::may_be_sent;

/// Sends a permitted request and relays its response. Returns a refusal as long as no part of the
/// upstream's response was passed on.
pub(crate) async fn exchange<D: Downstream>(
    outbound: &mut ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    let Some(_place) = outbound.pool.acquire_slot() else { return Err(Refusal::Overloaded) };
    record.mark_forwarded();
    if let Some(begin) = outbound.begin_copies.take() {
        begin();
    }
    let lease = match outbound.pool.lease_idle(&outbound.selection) {
        Some(lease) => Ok(lease),
        None => {
            let wanted = (IdleConnections::Reuse, &outbound.selection);
            wait_for_lease(&outbound.pool, wanted, &outbound.terms, record).await
        }
    };
    let result = match lease {
        Ok(lease) => exchange_over_lease(lease, outbound, down, deadline, record).await,
        Err(refusal) => Err(refusal),
    };
    record.exchanged(result.as_ref().is_ok_and(|relayed| relayed.status.is_some()));
    result
}

/// Waits for a connection, then checks again: the credential may have been revoked meanwhile.
async fn wait_for_lease(
    pool: &Rc<Pool>,
    (idle, selection): (IdleConnections, &Selection),
    terms: &Terms,
    record: &mut RequestRecord,
) -> Result<Lease, Refusal> {
    let lease = loop {
        let leased = match terms.until {
            None => pool.lease(idle, selection).await,
            Some(until) => {
                let left = Duration::from_millis(until.saturating_sub(pool.now_millis()));
                Box::pin(lease_within(left, pool, idle, selection)).await?
            }
        };
        match leased {
            Ok(lease) => break lease,
            Err(e) => {
                let failed = !matches!(e, ConnectError::Unhealthy { .. } | ConnectError::NoAddress { .. });
                let retry = terms.retry.as_ref().filter(|retry| failed && retry.takes_connect_failure());
                let Some(retry) = retry else { return Err(unreachable(&e)) };
                record.retries = retry.made();
                Box::pin(retry.pause()).await;
            }
        }
    };
    // Boxed, as connecting is: this happens once per connection.
    Box::pin(may_be_sent(record, terms.expiry.as_ref())).await.map_err(Refusal::authorization_lost)?;
    Ok(lease)
}

/// Waits for a connection for so long. If an endpoint may take longer to connect, connecting goes on
/// without the request: otherwise an endpoint that never answers would never fail.
async fn lease_within(
    left: Duration,
    pool: &Rc<Pool>,
    idle: IdleConnections,
    selection: &Selection,
) -> Result<Result<Lease, ConnectError>, Refusal> {
    if left >= pool.config.timeouts.connect {
        return tokio::time::timeout(left, pool.lease(idle, selection))
            .await
            .map_err(|_| Refusal::RequestTimeout);
    }
    let (pool, selection) = (pool.clone(), selection.clone());
    let leasing = tokio::task::spawn_local(async move { pool.lease(idle, &selection).await });
    match tokio::time::timeout(left, leasing).await {
        Ok(Ok(leased)) => Ok(leased),
        // It panicked, which is logged already.
        Ok(Err(_)) => Err(Refusal::UpstreamUnreachable),
        Err(_) => Err(Refusal::RequestTimeout),
    }
}

fn unreachable(e: &ConnectError) -> Refusal {
    tracing::debug!(error = %e, "upstream unreachable");
    match e {
        ConnectError::Unhealthy { .. } => Refusal::UpstreamUnhealthy,
        _ => Refusal::UpstreamUnreachable,
    }
}

async fn exchange_over_lease<D: Downstream>(
    lease: Lease,
    outbound: &mut ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    // Recorded now: an exchange that is cut never reaches `settle`.
    record.sent_to(lease.label());
    let ForwardedRequest { pool, head, framing, head_request, terms, selection, .. } = outbound;
    let exchange = Exchange { pool, selection, deadline, terms, record };
    match head {
        ForwardedHead::Http1 { bytes, host_at } => {
            let again = exchange.terms.retry.is_some().then(|| bytes.clone());
            let (host_at, framing, head_request) = (*host_at, *framing, *head_request);
            let plan = Http1Plan { head: std::mem::take(bytes), again, host_at, framing, head_request };
            over_http1(lease, plan, down, exchange).await
        }
        ForwardedHead::Http2 { request, own_host } => {
            let plan = Http2Plan { request, own_host: *own_host, end: *framing == Framing::Length(0) };
            over_http2(lease, plan, down, exchange).await
        }
    }
}

struct Http1Plan {
    head: Vec<u8>,
    /// The head without the endpoint's `Host`, for further attempts.
    again: Option<Vec<u8>>,
    host_at: Option<usize>,
    framing: Framing,
    head_request: bool,
}

struct Http2Plan<'r> {
    request: &'r Request<()>,
    own_host: bool,
    end: bool,
}

impl Http2Plan<'_> {
    /// Opens a stream with the request, for the endpoint of the lease.
    fn begin(&self, lease: &mut Lease) -> Result<Result<ClientStream, h2::Error>, Refusal> {
        let mut request = Request::clone(self.request);
        if self.own_host {
            let mut uri = std::mem::take(request.uri_mut()).into_parts();
            uri.authority = Some(lease.host().parse().map_err(|_| Refusal::UpstreamUnreachable)?);
            *request.uri_mut() = Uri::from_parts(uri).map_err(|_| Refusal::UpstreamUnreachable)?;
        }
        let LeasedLink::Http2(stream) = &mut lease.link else { return Err(Refusal::UpstreamUnreachable) };
        let head_request = request.method() == Method::HEAD;
        let opened = stream.send.send_request(request, self.end);
        Ok(opened
            .map(|(response, body)| ClientStream::new(response, (!self.end).then_some(body), head_request)))
    }
}

fn host_line(lease: &Lease) -> String {
    format!("host: {}\r\n", lease.host())
}

/// An exchange on its upstream connection: where further attempts go, its deadline, limits and
/// record.
struct Exchange<'e> {
    pool: &'e Rc<Pool>,
    selection: &'e mut Selection,
    deadline: &'e Deadline,
    terms: &'e Terms,
    record: &'e mut RequestRecord,
}

async fn over_http1<D: Downstream>(
    mut lease: Lease,
    mut plan: Http1Plan,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { pool, selection, deadline, terms, record } = exchange;
    if let Some(at) = plan.host_at {
        plan.head.splice(at..at, host_line(&lease).bytes());
    }
    let Some(connection) = lease.http1() else { return Err(Refusal::UpstreamUnreachable) };
    connection.put_head(plan.head);
    connection.frame_body(plan.framing);
    connection.head_request = plan.head_request;
    let mut progress = Progress::default();
    loop {
        let Some(connection) = lease.http1() else { return Err(Refusal::UpstreamUnreachable) };
        let relayed = relay(down, connection, deadline, terms, &mut progress, record).await;
        let stale =
            matches!(relayed.fault, Some(ExchangeError::UpstreamClosed(_))) && relayed.status.is_none();
        if stale && lease.reused && lease.http1().is_some_and(|c| !c.sent()) {
            // The peer closed an idle connection. No byte was sent, so this is not a repetition.
            lease.retried();
            let wanted = (IdleConnections::Avoid, &*selection);
            let mut fresh = wait_for_lease(pool, wanted, terms, record).await?;
            if let (Some(new), Some(old)) = (fresh.http1(), lease.http1())
                && new.take_unsent_from(old)
            {
                if let Some(at) = plan.host_at {
                    // The `Host` of the previous endpoint is wrong for this one.
                    let (old, host) = (at..at + host_line(&lease).len(), host_line(&fresh));
                    if let Some(new) = fresh.http1() {
                        new.write_buffer().splice(old, host.bytes());
                    }
                }
                lease = fresh;
                continue;
            }
        }
        if let Some(again) = &plan.again
            && let Some(fault) = repeatable(&relayed, &progress, terms)
        {
            lease = next_attempt(lease, fault, (pool, selection), terms, record).await?;
            progress = Progress::default();
            let mut head = again.clone();
            if let Some(at) = plan.host_at {
                head.splice(at..at, host_line(&lease).bytes());
            }
            let Some(connection) = lease.http1() else { return Err(Refusal::UpstreamUnreachable) };
            connection.put_head(head);
            connection.frame_body(plan.framing);
            connection.head_request = plan.head_request;
            continue;
        }
        return settle(lease, relayed, record);
    }
}

async fn over_http2<D: Downstream>(
    mut lease: Lease,
    plan: Http2Plan<'_>,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { pool, selection, deadline, terms, record } = exchange;
    let mut retry = true;
    loop {
        match plan.begin(&mut lease)? {
            Ok(mut up) => {
                let mut progress = Progress::default();
                let relayed = relay(down, &mut up, deadline, terms, &mut progress, record).await;
                if let Some(fault) = repeatable(&relayed, &progress, terms) {
                    lease = next_attempt(lease, fault, (pool, selection), terms, record).await?;
                    continue;
                }
                let anew = relayed.status.is_none() && progress.is_untouched(plan.end);
                if !(anew && is_unprocessed(relayed.fault.as_ref()) && std::mem::take(&mut retry)) {
                    return settle(lease, relayed, record);
                }
                tracing::debug!(fault = ?relayed.fault, "upstream http/2 request was not processed");
                lease.retried();
                let wanted = (IdleConnections::Avoid, &*selection);
                lease = wait_for_lease(pool, wanted, terms, record).await?;
            }
            // The connection was going away (GOAWAY) before the stream was opened: nothing was
            // sent.
            Err(error) if lease.reused && std::mem::take(&mut retry) => {
                tracing::debug!(%error, "upstream http/2 connection went away");
                lease.retried();
                let wanted = (IdleConnections::Avoid, &*selection);
                lease = wait_for_lease(pool, wanted, terms, record).await?;
            }
            Err(error) => {
                tracing::debug!(endpoint = &**lease.label(), %error, "upstream http/2 request failed");
                lease.fail(ExchangeFailure::Broken, &error);
                return Err(Refusal::UpstreamClosed);
            }
        }
    }
}

/// The failure of an exchange after which the request is sent again. The client has received
/// nothing of it, and the retry was taken from the budget.
fn repeatable<'r>(relayed: &'r Relayed, progress: &Progress, terms: &Terms) -> Option<&'r ExchangeError> {
    let retry = terms.retry.as_ref()?;
    let fault = relayed.fault.as_ref()?;
    let unseen = relayed.status.is_none() && progress.is_untouched(true);
    (unseen && retry.takes_failure(fault)).then_some(fault)
}

/// Ends a failed attempt, and waits for a connection for the next one.
async fn next_attempt(
    lease: Lease,
    fault: &ExchangeError,
    (pool, selection): (&Rc<Pool>, &mut Selection),
    terms: &Terms,
    record: &mut RequestRecord,
) -> Result<Lease, Refusal> {
    end_attempt(lease, fault, selection);
    if let Some(retry) = &terms.retry {
        record.retries = retry.made();
        Box::pin(retry.pause_without_other(selection)).await;
    }
    let lease = Box::pin(wait_for_lease(pool, (IdleConnections::Reuse, selection), terms, record)).await?;
    record.sent_to(lease.label());
    Ok(lease)
}

/// Whether the upstream guarantees that it did not process the request (RFC 9113 §8.7). Either it
/// refused the stream, or it went away and announced a last stream below this one; a stream fails
/// of GOAWAY in no other way. A GOAWAY with an error does not count: the request itself may be the
/// reason.
fn is_unprocessed(fault: Option<&ExchangeError>) -> bool {
    let Some(ExchangeError::UpstreamClosed(HttpStreamError::Http2(e))) = fault else { return false };
    e.is_remote()
        && (e.is_reset() && e.reason() == Some(Reason::REFUSED_STREAM)
            || e.is_go_away() && e.reason() == Some(Reason::NO_ERROR))
}

/// Reports the result of an exchange to the endpoint, and returns a refusal when the client has no
/// response yet.
fn settle(lease: Lease, relayed: Relayed, record: &mut RequestRecord) -> Result<Relayed, Refusal> {
    record.sent_to(lease.label());
    let Some(fault) = &relayed.fault else {
        lease.release();
        return Ok(relayed);
    };
    match fault {
        ExchangeError::UpstreamClosed(error) | ExchangeError::UpstreamProtocol(error) => {
            tracing::debug!(endpoint = &**lease.label(), %error, "upstream exchange failed");
            if record.text.is_some() {
                record.rare_mut().upstream_fault = Some(error.to_string().into());
            }
            lease.fail(ExchangeFailure::Broken, error);
        }
        // Event streams are idle by design, and their clients accept that: it says nothing about
        // the endpoint.
        ExchangeError::UpstreamTimeout if relayed.status.is_some() => lease.stalled(),
        ExchangeError::UpstreamTimeout => lease.fail(ExchangeFailure::TimedOut, &"no response in time"),
        ExchangeError::ClientBody(error) => tracing::debug!(%error, "request body refused"),
        ExchangeError::ClientGone
        | ExchangeError::RetriedStatus
        | ExchangeError::ClientStalled
        | ExchangeError::BodyTooLarge
        | ExchangeError::RequestTimeout
        | ExchangeError::AuthorizationLost(_) => {}
    }
    match fault.refusal() {
        Some(refusal) if relayed.status.is_none() => Err(refusal),
        _ => Ok(relayed),
    }
}
