//! A request head in the one form that both codecs, and proxies that ask about a request, bring it in.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Field, RawRequest, Scheme};

use crate::http1::head::Framing;

/// A request head as a codec parsed it.
#[derive(Clone, Copy)]
pub(crate) struct Inbound<'a> {
    pub(crate) method: &'a str,
    /// `:authority`, or the authority of an absolute-form target.
    pub(crate) authority: Option<&'a [u8]>,
    /// The one `Host` field.
    pub(crate) host: Option<&'a [u8]>,
    /// Path and query.
    pub(crate) target: &'a [u8],
    pub(crate) fields: &'a [Field<'a>],
    pub(crate) framing: Framing,
    /// The head said how long the body is, even if that is 0.
    pub(crate) has_length: bool,
    /// Protocol to switch to (`Upgrade`), when the connection asks for it.
    pub(crate) upgrade: Option<&'a [u8]>,
    /// A `Connection` field nominates fields beyond the standard ones.
    pub(crate) nominates: bool,
    /// For `Via` (RFC 9110 §7.6.3): the protocol the request came in on.
    pub(crate) via: &'static str,
    /// The scheme it was made with.
    pub(crate) scheme: Scheme,
    /// It is what somebody asks about, not the asking itself.
    pub(crate) is_original: bool,
    /// How fields of one name are there that the client sent several times.
    pub(crate) repeats: Repeats,
    /// Whoever sent it, when that is not the peer: as a proxy that asks about it says, for the log.
    pub(crate) client: Option<IpAddr>,
}

impl<'a> Inbound<'a> {
    /// What names the request, to be read in its one canonical form.
    pub(crate) fn raw(&self) -> RawRequest<'a> {
        let Self { method, scheme, authority, host, target, .. } = *self;
        RawRequest { method, scheme, authority, host, target }
    }
}
