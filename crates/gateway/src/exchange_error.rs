//! Exchange error: why an exchange with an upstream failed, with the client's response and the log
//! entry for each case.
//!
//! Does not own: when an exchange fails ([`crate::relay`]), what it means for the endpoint
//! ([`crate::forward`]).

use credentials::revocation::CutReason;
use http_engine::http_stream::HttpStreamError;
use http_engine::labels::Outcome;

use crate::refusal::Refusal;

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The client's connection or stream failed or was closed.
    ClientGone,
    /// The client's request body is malformed.
    ClientBody(HttpStreamError),
    /// The client did not send (or accept) a byte in time.
    ClientStalled,
    /// The request body grew over the limit.
    BodyTooLarge,
    /// The upstream's connection failed or closed before a response.
    UpstreamClosed(HttpStreamError),
    /// The upstream sent a response that cannot be framed, or that was not requested.
    UpstreamProtocol(HttpStreamError),
    /// The upstream answered with a status for which the request is sent again.
    RetriedStatus,
    /// The upstream did not answer, or stopped moving bytes, in time.
    UpstreamTimeout,
    /// The whole exchange took longer than its route allows.
    RequestTimeout,
    /// The credential that authorized the exchange became invalid, or its validity cannot be
    /// determined.
    AuthorizationLost(CutReason),
}

impl ExchangeError {
    /// The client's response; `None`: the client is gone.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::ClientGone => None,
            Self::ClientBody(_) => Some(Refusal::Body),
            Self::ClientStalled => Some(Refusal::ClientStalled),
            Self::BodyTooLarge => Some(Refusal::BodyTooLarge),
            Self::RequestTimeout => Some(Refusal::RequestTimeout),
            Self::UpstreamClosed(_) => Some(Refusal::UpstreamClosed),
            Self::UpstreamProtocol(_) => Some(Refusal::UpstreamProtocol),
            Self::UpstreamTimeout => Some(Refusal::UpstreamTimeout),
            Self::RetriedStatus => Some(Refusal::UpstreamUnreachable),
            Self::AuthorizationLost(why) => Some(Refusal::authorization_lost(*why)),
        }
    }

    /// Outcome and reason for the log, once the response has begun or the client is gone.
    pub(crate) fn outcome_and_reason(&self) -> (Outcome, &'static str) {
        match self {
            Self::ClientGone => (Outcome::ClientAborted, "client_gone"),
            Self::ClientBody(_) => (Outcome::Malformed, "malformed_body"),
            Self::ClientStalled => (Outcome::Timeout, "client_stalled"),
            Self::BodyTooLarge => (Outcome::TooLarge, "body_too_large"),
            Self::UpstreamClosed(_) => (Outcome::UpstreamError, "upstream_closed"),
            Self::UpstreamProtocol(_) => (Outcome::UpstreamError, "upstream_protocol"),
            Self::UpstreamTimeout => (Outcome::Timeout, "upstream_timeout"),
            Self::RetriedStatus => (Outcome::UpstreamError, "upstream_unreachable"),
            Self::RequestTimeout => (Outcome::Timeout, "request_timeout"),
            Self::AuthorizationLost(CutReason::Revoked) => (Outcome::Unauthenticated, "revoked"),
            Self::AuthorizationLost(CutReason::Unknown) => {
                (Outcome::AuthUnavailable, "authority_unavailable")
            }
            Self::AuthorizationLost(CutReason::Expired) => (Outcome::Unauthenticated, "expired"),
        }
    }
}
