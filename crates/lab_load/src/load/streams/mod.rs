//! Streams: exchanges that last and consist of many events, and WebSockets.
//!
//! Owns: what such an exchange asks for ([`Exchange`]), how events are found in its bytes
//! ([`parser`]), and when they came ([`observer`], [`recorder`]). Does not own: connections, which
//! are those of single requests ([`super::h1`], [`super::h2`]) except for WebSockets
//! ([`websocket`]), and when exchanges start ([`super::dispatcher`]).
//!
//! A stream is one request of the schedule. It occupies its slot until its last byte.

pub(crate) mod frame;
pub(crate) mod observer;
mod parser;
pub(crate) mod websocket;

use std::time::Duration;

use lab_analysis::record::{LoadShape, StreamKind};

/// What follows the head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exchange {
    /// A response, of which only the end counts.
    Request,
    /// A response of many events.
    Stream(StreamSettings),
    /// A WebSocket (RFC 6455).
    WebSocket(WebSocketSettings),
}

/// A response of many events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// Form of the events.
    pub form: StreamForm,
    /// Time between two events from which it counts as a stall.
    pub stall: Duration,
    /// Number of events that a complete stream has; `None` if it may have any from 1.
    pub events: Option<u64>,
}

/// Form of the events of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamForm {
    /// Server-sent events (`text/event-stream`).
    ServerSentEvents,
    /// Lines, such as newline-delimited JSON.
    Lines,
    /// Messages of a server-streaming gRPC method. Needs HTTP/2.
    Grpc,
}

/// A WebSocket that sends messages at a rate and expects each of them back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// Messages that are sent before the WebSocket is closed; at least 1.
    pub messages: u32,
    /// Time between two messages.
    pub every: Duration,
    /// Content of a message in bytes; a little more if its number needs it.
    pub size: usize,
    /// Time between two messages of the server, and round trip, from which it counts as a stall.
    pub stall: Duration,
}

impl WebSocketSettings {
    /// Time for which the WebSocket is open at least.
    pub fn length(&self) -> Duration {
        self.every.saturating_mul(self.messages.saturating_sub(1))
    }
}

impl Exchange {
    /// Form of the events and threshold of a stall; `None` for a plain request.
    pub(crate) fn kind(&self) -> Option<(StreamKind, Duration)> {
        match self {
            Self::Request => None,
            Self::Stream(StreamSettings { form, stall, .. }) => {
                let kind = match form {
                    StreamForm::ServerSentEvents => StreamKind::Sse,
                    StreamForm::Lines => StreamKind::Lines,
                    StreamForm::Grpc => StreamKind::Grpc,
                };
                Some((kind, *stall))
            }
            Self::WebSocket(settings) => Some((StreamKind::Websocket, settings.stall)),
        }
    }

    /// Name of the exchange as a unit of work of a load.
    pub fn unit(&self) -> &'static str {
        self.kind().map_or(LoadShape::REQUEST, |(kind, _)| kind.unit())
    }

    /// Whether the exchange is a gRPC call.
    pub fn is_grpc(&self) -> bool {
        matches!(self, Self::Stream(StreamSettings { form: StreamForm::Grpc, .. }))
    }
}
