//! The exchange with the upstream.
//!
//! Owns:
//!
//! - the second check of a request that had to wait for a connection;
//! - the one retry, when no byte was sent or the peer guarantees that it processed nothing
//!   (RFC 9113 §8.7);
//! - what a failed exchange means for its endpoint.
//!
//! Does not own: connections, the relay of bodies ([`mod@crate::relay`]).

use std::rc::Rc;

use h2::Reason;
use http::{Method, Request, Uri};
use http_engine::deadline::Deadline;
use http_engine::head::Framing;
use http_engine::http_stream::{Downstream, HttpStreamError};
use http_engine::http2::stream::ClientStream;
use http_engine::upstream::connect::ConnectError;
use http_engine::upstream::pool::{ExchangeFailure, IdleConnections, Lease, LeasedLink, Pool, RequestSlot};

use crate::exchange_error::ExchangeError;
use crate::forward::ForwardedRequest;
use crate::forward::head::ForwardedHead;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::relay::{Progress, Relayed, Terms, relay};
use crate::stream_guard::may_be_sent;

/// Sends a permitted request and relays its response. Returns a refusal as long as no part of the
/// upstream's response was passed on.
pub(crate) async fn exchange<D: Downstream>(
    outbound: ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    let Some(place) = outbound.pool.acquire_slot() else { return Err(Refusal::Overloaded) };
    record.mark_forwarded();
    let lease = match outbound.pool.lease_idle() {
        Some(lease) => Ok(lease),
        None => wait_for_lease(&outbound.pool, IdleConnections::Reuse, &outbound.terms, record).await,
    };
    let result = match lease {
        Ok(lease) => exchange_over_lease(lease, place, outbound, down, deadline, record).await,
        Err(refusal) => Err(refusal),
    };
    record.exchanged(result.as_ref().is_ok_and(|relayed| relayed.status.is_some()));
    result
}

/// Waits for a connection, then checks again: the credential may have been revoked meanwhile.
async fn wait_for_lease(
    pool: &Rc<Pool>,
    idle: IdleConnections,
    terms: &Terms,
    record: &RequestRecord,
) -> Result<Lease, Refusal> {
    let lease = pool.lease(idle).await.map_err(|e| unreachable(&e))?;
    // Boxed, as connecting is: this happens once per connection.
    Box::pin(may_be_sent(record, terms.expiry.as_ref())).await.map_err(Refusal::authorization_lost)?;
    Ok(lease)
}

fn unreachable(e: &ConnectError) -> Refusal {
    tracing::debug!(error = %e, "upstream unreachable");
    Refusal::UpstreamUnreachable
}

async fn exchange_over_lease<D: Downstream>(
    lease: Lease,
    _place: RequestSlot,
    outbound: ForwardedRequest,
    down: &mut D,
    deadline: &Deadline,
    record: &mut RequestRecord,
) -> Result<Relayed, Refusal> {
    // Recorded now: an exchange that is cut never reaches `settle`.
    record.endpoint = Some(lease.endpoint);
    let exchange = Exchange { deadline, terms: &outbound.terms, record };
    match outbound.head {
        ForwardedHead::Http1 { bytes, host_at } => {
            let (framing, head_request) = (outbound.framing, outbound.head_request);
            let plan = Http1Plan { head: bytes, host_at, framing, head_request };
            over_http1(lease, outbound.pool, plan, down, exchange).await
        }
        ForwardedHead::Http2 { request, own_host } => {
            let plan = Http2Plan { request, own_host, end: outbound.framing == Framing::Length(0) };
            over_http2(lease, outbound.pool, plan, down, exchange).await
        }
    }
}

struct Http1Plan {
    head: Vec<u8>,
    host_at: Option<usize>,
    framing: Framing,
    head_request: bool,
}

struct Http2Plan {
    request: Box<Request<()>>,
    own_host: bool,
    end: bool,
}

impl Http2Plan {
    /// Opens a stream with the request, for the endpoint of the lease.
    fn begin(&self, lease: &mut Lease) -> Result<Result<ClientStream, h2::Error>, Refusal> {
        let mut request = Request::clone(&self.request);
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

/// An exchange on its upstream connection: its deadline, limits and record.
struct Exchange<'e> {
    deadline: &'e Deadline,
    terms: &'e Terms,
    record: &'e mut RequestRecord,
}

async fn over_http1<D: Downstream>(
    mut lease: Lease,
    pool: Rc<Pool>,
    mut plan: Http1Plan,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { deadline, terms, record } = exchange;
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
            let mut fresh = wait_for_lease(&pool, IdleConnections::Avoid, terms, record).await?;
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
        return settle(lease, relayed, record);
    }
}

async fn over_http2<D: Downstream>(
    mut lease: Lease,
    pool: Rc<Pool>,
    plan: Http2Plan,
    down: &mut D,
    exchange: Exchange<'_>,
) -> Result<Relayed, Refusal> {
    let Exchange { deadline, terms, record } = exchange;
    let mut retry = true;
    loop {
        match plan.begin(&mut lease)? {
            Ok(mut up) => {
                let mut progress = Progress::default();
                let relayed = relay(down, &mut up, deadline, terms, &mut progress, record).await;
                let anew = relayed.status.is_none() && progress.is_untouched(plan.end);
                if !(anew && is_unprocessed(relayed.fault.as_ref()) && std::mem::take(&mut retry)) {
                    return settle(lease, relayed, record);
                }
                tracing::debug!(fault = ?relayed.fault, "upstream http/2 request was not processed");
                lease.retried();
                lease = wait_for_lease(&pool, IdleConnections::Avoid, terms, record).await?;
            }
            // The connection was going away (GOAWAY) before the stream was opened: nothing was
            // sent.
            Err(error) if lease.reused && std::mem::take(&mut retry) => {
                tracing::debug!(%error, "upstream http/2 connection went away");
                lease.retried();
                lease = wait_for_lease(&pool, IdleConnections::Avoid, terms, record).await?;
            }
            Err(error) => {
                tracing::debug!(endpoint = %lease.endpoint(), %error, "upstream http/2 request failed");
                lease.fail(ExchangeFailure::Broken, &error);
                return Err(Refusal::UpstreamClosed);
            }
        }
    }
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
    record.endpoint = Some(lease.endpoint);
    let Some(fault) = &relayed.fault else {
        lease.release();
        return Ok(relayed);
    };
    match fault {
        ExchangeError::UpstreamClosed(error) | ExchangeError::UpstreamProtocol(error) => {
            tracing::debug!(endpoint = %lease.endpoint(), %error, "upstream exchange failed");
            lease.fail(ExchangeFailure::Broken, error);
        }
        // Event streams are idle by design, and their clients accept that: it says nothing about
        // the endpoint.
        ExchangeError::UpstreamTimeout if relayed.status.is_some() => lease.stalled(),
        ExchangeError::UpstreamTimeout => lease.fail(ExchangeFailure::TimedOut, &"no response in time"),
        ExchangeError::ClientBody(error) => tracing::debug!(%error, "request body refused"),
        ExchangeError::ClientGone
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
