//! A request head in the one form that both codecs, and proxies that ask about a request, bring it in.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Field, RawRequest, Scheme};

use crate::head::Framing;

/// A request head as a codec parsed it.
#[derive(Clone, Copy)]
pub struct ParsedRequest<'a> {
    /// Method (RFC 9110 section 9), as sent.
    pub method: &'a str,
    /// `:authority`, or the authority of an absolute-form target.
    pub authority: Option<&'a [u8]>,
    /// The one `Host` field.
    pub host: Option<&'a [u8]>,
    /// Path and query.
    pub target: &'a [u8],
    /// All fields, in the order in which they came.
    pub fields: &'a [Field<'a>],
    /// How the body is delimited.
    pub framing: Framing,
    /// The head said how long the body is, even if that is 0.
    pub has_length: bool,
    /// Protocol to switch to (`Upgrade`), when the connection asks for it.
    pub upgrade: Option<&'a [u8]>,
    /// A `Connection` field nominates fields beyond the standard ones.
    pub nominates: bool,
    /// For `Via` (RFC 9110 §7.6.3): the protocol the request came in on.
    pub via: &'static str,
    /// The scheme it was made with.
    pub scheme: Scheme,
    /// It is what somebody asks about, not the asking itself.
    pub is_original: bool,
    /// How fields of one name are there that the client sent several times.
    pub repeats: Repeats,
    /// Whoever sent it, when that is not the peer: as a proxy that asks about it says, for the log.
    pub client: Option<IpAddr>,
}

impl<'a> ParsedRequest<'a> {
    /// What names the request, to be read in its one canonical form.
    pub fn raw(&self) -> RawRequest<'a> {
        let Self { method, scheme, authority, host, target, .. } = *self;
        RawRequest { method, scheme, authority, host, target }
    }
}
