//! OTLP messages that carry spans (`opentelemetry/proto` v1, stable).
//!
//! Owns: the wire format of the messages that are sent, and of the collector's response. Field
//! numbers are those of `collector/trace/v1/trace_service.proto` and the files it references; a
//! test decodes the output with the project's generated types. The OpenTelemetry SDK is not used.
//! It would add a second span model, a second queue that does not count drops, and settings read
//! from the environment.

use prost::Message;

/// The message `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

/// The message `InstrumentationScope`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[expect(clippy::struct_field_names, reason = "names as in the schema")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(enumeration = "Kind", tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_unix_nanos: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_unix_nanos: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(super) flags: u32,
}

/// The enum `Span.SpanKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    Unspecified = 0,
    Server = 2,
    Client = 3,
}

/// `Span.flags`: bit 8 means that bit 9 is set correctly, bit 9 that the parent is remote.
pub(super) const REMOTE_KNOWN: u32 = 0x100;
pub(super) const REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(fixed64, tag = "1")]
    pub(super) unix_nanos: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(enumeration = "Code", tag = "3")]
    pub(super) code: i32,
}

/// The enum `Status.StatusCode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Code {
    Unset = 0,
    Error = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

impl KeyValue {
    pub(super) fn text(key: &str, value: impl Into<String>) -> Self {
        Self::new(key, Value::Text(value.into()))
    }

    pub(super) fn integer(key: &str, value: u64) -> Self {
        Self::new(key, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn new(key: &str, value: Value) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

/// The message `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// The message `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}
