//! Ending of a request: a status, or why there is none.
//!
//! Owns: the classes of failures, and their names.

use std::time::Duration;

use serde::Serialize;

/// Pause of a closed loop after a failed connection. Without it, a server that refuses connections
/// would turn the loop into a flood of attempts.
pub(crate) const CONNECT_FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Why a request has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFault {
    /// No connection: refused, unreachable, no free port or descriptor, or not established within
    /// the timeout.
    Connect,
    /// The TLS handshake failed, or the server did not agree to HTTP/2.
    Tls,
    /// No complete response within the timeout.
    Timeout,
    /// The peer reset the connection or the stream.
    Reset,
    /// The peer closed the connection before the response was complete.
    Closed,
    /// The response breaks the protocol.
    Protocol,
    /// A gRPC call ended with an error status.
    GrpcStatus,
    /// The request was due but never sent: no connection became free within the timeout.
    Unsent,
}

impl RequestFault {
    /// Whether a closed loop pauses after it.
    pub(crate) fn wants_pause(self) -> bool {
        matches!(self, Self::Connect | Self::Tls)
    }

    /// Name of the fault in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::GrpcStatus => "grpc-status",
            Self::Unsent => "unsent",
        }
    }
}

/// Result of a request: the status of its response, or the fault.
pub(crate) type Ending = Result<u16, RequestFault>;
