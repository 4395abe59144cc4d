//! Access log: one line per request.
//!
//! Owns: the content of a line ([`AccessRecord`]), its two formats, the per-worker buffer and the
//! writer thread. Does not own: when a request has finished, the ticker that flushes.
//!
//! Flow: `AccessRecord → Buffer (a worker's own) → bounded channel → writer thread → file | stdout
//! | stderr`.
//!
//! **No secrets.** A record has no field for header fields, tokens or a raw target. It contains the
//! canonical method and host, the path as it is forwarded, an [`Identity`] (which never contains a credential), and
//! constant codes. Query strings often contain tokens, so a record has no field for them either.
//!
//! **Workers never wait.** When the destination is slow the channel fills up, and further buffers
//! are dropped and counted.

mod line;
mod writer;

use std::net::{IpAddr, SocketAddr};

use auth::identity::Identity;
use auth::time::Timestamp;
use http_engine::labels::Outcome;
pub use line::Style;
pub use writer::{AccessLog, AccessLogError, AccessLogOptions, AccessLogStats, Buffer, Destination};

use crate::phases::CacheUse;
use crate::trace_context::TraceId;

/// The protocol version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestProtocol {
    /// Version HTTP/1.0.
    Http10,
    /// HTTP/1.1, or an HTTP/1 head so malformed that its version is unknown.
    Http11,
    /// Version HTTP/2.
    Http2,
}

impl RequestProtocol {
    /// The form in a request line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }

    /// The version only, as in spans (OpenTelemetry `network.protocol.version`).
    pub const fn version(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
        }
    }
}

/// The request of a line. All parts are those that were matched and authorized, and that are
/// forwarded.
#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'a> {
    /// Method, case as received.
    pub method: &'a str,
    /// Host as A-labels in lower case, without port.
    pub host: &'a str,
    /// Path without query.
    pub path: &'a str,
    /// The path that the service could read instead, for which the request was refused.
    pub other_path: Option<&'a str>,
}

/// Where a request was forwarded to.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedTo<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// `host:port` or socket path.
    pub endpoint: &'a str,
    /// Nanoseconds from the start of forwarding, connecting included, to the end of the response.
    pub duration_nanos: u64,
    /// Number of further attempts after the first failed.
    pub retries: u32,
}

/// A finished request.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'a> {
    /// When its head was complete.
    pub time: Timestamp,
    /// Name of the listener.
    pub listener: &'a str,
    /// The client's address, from the connection or a PROXY header.
    pub peer: SocketAddr,
    /// Client of the original request, if the peer is a proxy that queries about it.
    pub client: Option<IpAddr>,
    /// Protocol of the request.
    pub protocol: RequestProtocol,
    /// The canonical request; `None` if it was malformed: then none of its text is safe to print.
    pub target: Option<RequestTarget<'a>>,
    /// Status code sent; 0: none.
    pub status: u16,
    /// How the request ended.
    pub outcome: Outcome,
    /// Reason code of a refusal or of an aborted exchange.
    pub reason: Option<&'static str>,
    /// Id of a request that the gateway refused; its client got it too.
    pub request_id: Option<TraceId>,
    /// What was wrong with the upstream's response or connection.
    pub upstream_fault: Option<&'a str>,
    /// Name of the matched route.
    pub route: Option<&'a str>,
    /// The authenticated caller, if known.
    pub identity: Option<&'a Identity>,
    /// Where it was forwarded to.
    pub forwarded: Option<ForwardedTo<'a>>,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// Nanoseconds from `time` to the last byte sent.
    pub total_nanos: u64,
    /// Result of the decision cache.
    pub cache_result: Option<CacheUse>,
    /// The trace of the request.
    pub trace: Option<TraceId>,
}
