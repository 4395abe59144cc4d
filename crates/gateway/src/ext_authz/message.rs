//! Messages of `envoy/service/auth/v3/external_auth.proto`, as far as they are read or written
//! here.
//!
//! Owns: field numbers; a test reads and writes the same bytes with the types generated from
//! Envoy's own files. Texts of a check stay in the buffer that received it.

use bytes::Bytes;
use prost::Message;

/// The `CheckRequest` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<AttributeContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) address: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

/// The `AttributeContext.HttpRequest` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRequest {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) method: Bytes,
    /// A map, which is a list of entries on the wire. A repeated field's values are joined by
    /// commas.
    #[prost(message, repeated, tag = "3")]
    pub(super) headers: Vec<Entry>,
    /// Replaces `headers` when the filter is configured with `encode_raw_headers`.
    #[prost(message, optional, tag = "13")]
    pub(super) header_map: Option<HeaderMap>,
    /// The path with the query.
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) path: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) host: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub(super) scheme: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<RawHeader>,
}

/// The `HeaderValue` message, as a `CheckRequest` contains it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawHeader {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) raw_value: Bytes,
}

/// The `CheckResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub(super) http_response: Option<HttpResponse>,
    #[prost(message, optional, tag = "4")]
    pub(super) dynamic_metadata: Option<Struct>,
}

/// The `google.rpc.Status` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum HttpResponse {
    #[prost(message, tag = "2")]
    Denied(DeniedResponse),
    #[prost(message, tag = "3")]
    Ok(OkResponse),
}

/// The `DeniedHttpResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeniedResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// The `OkHttpResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OkResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    /// Fields to add to the response for the client, independent of the service's response.
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderValueOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

/// Append action `APPEND_IF_EXISTS_OR_ADD`.
pub(super) const APPEND: i32 = 0;
/// Append action `OVERWRITE_IF_EXISTS_OR_ADD`.
pub(super) const OVERWRITE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `google.protobuf.Struct`, whose map is a list of entries on the wire.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Struct {
    #[prost(message, repeated, tag = "1")]
    fields: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
struct Member {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

/// The `google.protobuf.Value` message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(oneof = "Kind", tags = "3, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "6")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
struct ListValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

impl Struct {
    pub(super) fn of(members: impl IntoIterator<Item = (String, Value)>) -> Self {
        let fields = members.into_iter().map(|(key, value)| Member { key, value: Some(value) });
        Self { fields: fields.collect() }
    }
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self { kind: Some(Kind::Text(text.to_owned())) }
    }

    pub(super) fn list(texts: impl IntoIterator<Item = String>) -> Self {
        let values = texts.into_iter().map(|text| Self { kind: Some(Kind::Text(text)) });
        Self { kind: Some(Kind::List(ListValue { values: values.collect() })) }
    }
}
