//! Authorization checks of other proxies, parsed without a socket.
//!
//! Owns: passing bytes to the parsers that serve ([`crate::ext_authz`], [`crate::forward_auth`]),
//! so that tests compare those very parsers with other implementations. Does not own: who may send
//! checks, the decision, responses.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Field, Scheme};
use bytes::Bytes;
use http_engine::head::Framing;
use http_engine::parsed_request::ParsedRequest;

use crate::config::QuestionSource;
use crate::envoy_authz::grpc;
use crate::ext_authz::{self, CheckQuestion};
use crate::forward_auth;

/// The original request that a check is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedQuestion {
    /// The method of the original request.
    pub method: String,
    /// The scheme of the original request.
    pub scheme: Scheme,
    /// The host of the original request, from whichever field carried it.
    pub host: Option<Vec<u8>>,
    /// Path and query.
    pub target: Vec<u8>,
    /// Names and values of the header fields, in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The client's address as the proxy reports it.
    pub client: Option<IpAddr>,
}

impl From<&ParsedRequest<'_>> for ParsedQuestion {
    fn from(inbound: &ParsedRequest<'_>) -> Self {
        let owned = |field: &Field<'_>| (field.name.to_owned(), field.value.to_vec());
        Self {
            method: inbound.method.to_owned(),
            scheme: inbound.scheme,
            host: inbound.authority.or(inbound.host).map(<[u8]>::to_vec),
            target: inbound.target.to_vec(),
            fields: inbound.fields.iter().map(owned).collect(),
            client: inbound.client,
        }
    }
}

/// Parses a `CheckRequest` about a request with at most `most` fields; `None`: it is refused.
pub fn over_grpc(message: Bytes, most: usize) -> Option<ParsedQuestion> {
    let question = CheckQuestion::decode(message).ok()?;
    let fields = question.fields(most).ok()?;
    question.original_request(&fields).ok().as_ref().map(ParsedQuestion::from)
}

/// Extracts the message from a gRPC call's body; `None`: it is refused.
pub fn grpc_message(body: &Bytes) -> Option<Bytes> {
    grpc::message(body).ok()
}

/// How long a call with this `grpc-timeout` may wait for its answer; `None`: without limit.
pub fn grpc_wait_limit(timeout: &[u8]) -> Option<std::time::Duration> {
    ext_authz::wait_limit(grpc::timeout(timeout))
}

/// Parses a check over plain HTTP; `None`: it is refused.
pub fn over_http(
    source: &QuestionSource,
    method: &str,
    host: &[u8],
    target: &[u8],
    fields: &[Field<'_>],
) -> Option<ParsedQuestion> {
    let check = ParsedRequest {
        method,
        scheme: Scheme::Http,
        authority: None,
        host: Some(host),
        target,
        fields,
        framing: Framing::Length(0),
        has_length: false,
        upgrade: None,
        nominates: false,
        via: "1.1 postern",
        is_original: false,
        repeats: Repeats::Separate,
        block: None,
        client: None,
    };
    forward_auth::original(source, None, &check).ok().as_ref().map(ParsedQuestion::from)
}
