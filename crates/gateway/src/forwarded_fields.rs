//! Forwarded fields: what an upstream is told about where a request comes from (`X-Forwarded-For`,
//! `X-Forwarded-Proto` and their like).
//!
//! Owns: the fields and their form in HTTP/1. Does not own: what a proxy in front reports
//! ([`crate::trusted_proxy`]).

use std::net::IpAddr;

use auth::request::Scheme;
use http_engine::http1::writing::put_field;

/// The forwarding fields that an upstream receives.
pub(crate) struct ForwardedFields {
    /// Name and value of each, besides `X-Forwarded-Host`.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The same as lines of an HTTP/1 head.
    pub(crate) http1: Vec<u8>,
    /// Address of the client; `None`: a trusted proxy hides it.
    pub(crate) client: Option<IpAddr>,
    /// The value of `X-Forwarded-Host`; `None`: the host of the request.
    pub(crate) host: Option<String>,
}

impl ForwardedFields {
    /// The fields for requests that come from the client itself, at this address.
    pub(crate) fn direct(address: IpAddr, scheme: Scheme) -> Self {
        Self::new(
            vec![("x-forwarded-for", address.to_string()), ("x-forwarded-proto", scheme.as_str().to_owned())],
            Some(address),
            None,
        )
    }

    /// The fields of a request that a trusted proxy passed on.
    pub(crate) fn new(
        fields: Vec<(&'static str, String)>,
        client: Option<IpAddr>,
        host: Option<String>,
    ) -> Self {
        let mut http1 = Vec::new();
        for (name, value) in &fields {
            put_field(&mut http1, name, value.as_bytes());
        }
        Self { fields, http1, client, host }
    }
}
