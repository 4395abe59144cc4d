//! Parsed request: a request head in one form, whether it comes from either codec or from a proxy's
//! authorization query.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Canonical, Field, KnownHost, Malformed, RawRequest, Scheme};

use crate::head::{BlockId, Framing};

/// A request head as a codec parsed it.
#[derive(Clone, Copy)]
pub struct ParsedRequest<'a> {
    /// Method as received (RFC 9110 section 9).
    pub method: &'a str,
    /// `:authority`, or the authority of an absolute-form target.
    pub authority: Option<&'a [u8]>,
    /// Value of the `Host` field.
    pub host: Option<&'a [u8]>,
    /// Path and query.
    pub target: &'a [u8],
    /// All fields, in the order received.
    pub fields: &'a [Field<'a>],
    /// Framing of the body.
    pub framing: Framing,
    /// Whether the head states the length of the body, even if it is 0.
    pub has_length: bool,
    /// The protocol in `Upgrade`, if `Connection` contains `upgrade`.
    pub upgrade: Option<&'a [u8]>,
    /// Whether `Connection` nominates fields beyond the standard ones.
    pub nominates: bool,
    /// Protocol of the request for `Via` (RFC 9110 §7.6.3).
    pub via: &'static str,
    /// Scheme of the request.
    pub scheme: Scheme,
    /// Whether this is the original request that an authorization query describes, not the query
    /// itself.
    pub is_original: bool,
    /// The form of fields that the client sent several times.
    pub repeats: Repeats,
    /// Identifies the fields among the requests of the connection, where they are those of an earlier
    /// one: what followed from them then follows now.
    pub block: Option<BlockId>,
    /// The client's address as stated by a proxy that sends an authorization query, for the log.
    /// `None`: the client is the peer.
    pub client: Option<IpAddr>,
}

/// [`ParsedRequest::via`] of a request over HTTP/1.0.
pub const VIA_HTTP10: &str = "1.0 postern";

impl<'a> ParsedRequest<'a> {
    /// The canonical form of the request. Only HTTP/1.0 has requests without a host (RFC 9112
    /// §3.2), and no query of another proxy is about one: it may be the proxy that left the host
    /// out.
    ///
    /// # Errors
    /// As [`Canonical::parse`].
    #[inline]
    pub fn canonical(&self) -> Result<Canonical<'a>, Malformed> {
        if self.via == VIA_HTTP10 && !self.is_original {
            Canonical::parse_with_optional_host(&self.raw())
        } else {
            Canonical::parse(&self.raw())
        }
    }

    /// [`ParsedRequest::canonical`] for a request with the same `Host` field as an earlier one.
    ///
    /// # Errors
    /// As [`Canonical::parse`].
    #[inline]
    pub fn canonical_with_known_host(&self, known: &'a KnownHost) -> Result<Canonical<'a>, Malformed> {
        Canonical::parse_with_known_host(&self.raw(), known)
    }

    /// The parts that identify the request, for conversion to its canonical form.
    pub fn raw(&self) -> RawRequest<'a> {
        let Self { method, scheme, authority, host, target, .. } = *self;
        RawRequest { method, scheme, authority, host, target }
    }
}
