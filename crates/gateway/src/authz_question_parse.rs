//! What the questions of other proxies are read as, without a socket.
//!
//! Owns: taking bytes through the very readers that serve ([`crate::ext_authz`], [`crate::forward_auth`]), so that tests compare
//! with others what is read in service and not a likeness of it. Does not own: who may ask, the decision, answers.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Field, Scheme};
use bytes::Bytes;
use http_engine::head::Framing;
use http_engine::parsed_request::ParsedRequest;

use crate::config::QuestionSource;
use crate::ext_authz::{self, CheckQuestion, grpc};
use crate::forward_auth;

/// The request that a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedQuestion {
    /// Its method.
    pub method: String,
    /// The scheme it was made with.
    pub scheme: Scheme,
    /// The host it was made for, wherever it stood.
    pub host: Option<Vec<u8>>,
    /// Path and query.
    pub target: Vec<u8>,
    /// Names and values of its fields, in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Who sent it, as the proxy says.
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

/// What is asked with this message (`CheckRequest`), by a request of at most `most` fields; `None`: it is refused.
pub fn over_grpc(message: Bytes, most: usize) -> Option<ParsedQuestion> {
    let question = CheckQuestion::decode(message).ok()?;
    let fields = question.fields(most).ok()?;
    question.inbound(&fields).ok().as_ref().map(ParsedQuestion::from)
}

/// The message in a gRPC call's body; `None`: it is refused.
pub fn grpc_message(body: &Bytes) -> Option<Bytes> {
    grpc::message(body).ok()
}

/// How long a call with this `grpc-timeout` waits before it is answered; `None`: as long as it takes.
pub fn grpc_patience(timeout: &[u8]) -> Option<std::time::Duration> {
    ext_authz::patience(grpc::timeout(timeout))
}

/// What is asked with a request over plain HTTP; `None`: it is refused.
pub fn over_http(
    asking: &QuestionSource,
    method: &str,
    host: &[u8],
    target: &[u8],
    fields: &[Field<'_>],
) -> Option<ParsedQuestion> {
    let asked = ParsedRequest {
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
        repeats: Repeats::Apart,
        client: None,
    };
    forward_auth::original(asking, &asked).ok().as_ref().map(ParsedQuestion::from)
}
