//! Messages of `envoy/service/auth/v3/external_auth.proto`, as far as they are read or written
//! here.
//!
//! Owns: field numbers; a test reads and writes the same bytes with the types generated from
//! Envoy's own files. Texts of a check stay in the buffer that received it.

use bytes::Bytes;
use prost::Message;

/// The `CheckRequest` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) attributes: Option<AttributeContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(crate) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SocketAddress {
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) address: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(message, optional, tag = "2")]
    pub(crate) http: Option<HttpRequest>,
}

/// The `AttributeContext.HttpRequest` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpRequest {
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) method: Bytes,
    /// A map, which is a list of entries on the wire. A repeated field's values are joined by
    /// commas.
    #[prost(message, repeated, tag = "3")]
    pub(crate) headers: Vec<Entry>,
    /// Replaces `headers` when the filter is configured with `encode_raw_headers`.
    #[prost(message, optional, tag = "13")]
    pub(crate) header_map: Option<HeaderMap>,
    /// The path with the query.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) path: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) host: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub(crate) scheme: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(crate) headers: Vec<RawHeader>,
}

/// The `HeaderValue` message, as a `CheckRequest` contains it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawHeader {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) raw_value: Bytes,
}

/// The `CheckResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub(crate) http_response: Option<HttpResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) dynamic_metadata: Option<Struct>,
}

/// The `google.rpc.Status` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum HttpResponse {
    #[prost(message, tag = "2")]
    Denied(DeniedResponse),
    #[prost(message, tag = "3")]
    Ok(OkResponse),
}

/// The `DeniedHttpResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeniedResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(crate) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

/// The `OkHttpResponse` message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OkResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) headers_to_remove: Vec<String>,
    /// Fields to add to the response for the client, independent of the service's response.
    #[prost(message, repeated, tag = "6")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HeaderValue>,
    #[prost(int32, tag = "3")]
    pub(crate) append_action: i32,
}

/// Append action `APPEND_IF_EXISTS_OR_ADD`.
pub(crate) const APPEND: i32 = 0;
/// Append action `OVERWRITE_IF_EXISTS_OR_ADD`.
pub(crate) const OVERWRITE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `google.protobuf.Struct`, whose map is a list of entries on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Struct {
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
pub(crate) struct Value {
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
    pub(crate) fn of(members: impl IntoIterator<Item = (String, Value)>) -> Self {
        let fields = members.into_iter().map(|(key, value)| Member { key, value: Some(value) });
        Self { fields: fields.collect() }
    }
}

impl Value {
    pub(crate) fn text(text: &str) -> Self {
        Self { kind: Some(Kind::Text(text.to_owned())) }
    }

    pub(crate) fn list(texts: impl IntoIterator<Item = String>) -> Self {
        let values = texts.into_iter().map(|text| Self { kind: Some(Kind::Text(text)) });
        Self { kind: Some(Kind::List(ListValue { values: values.collect() })) }
    }
}
