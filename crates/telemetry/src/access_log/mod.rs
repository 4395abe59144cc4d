//! One line per request.
//!
//! Owns: what a line says ([`AccessRecord`]), its two spellings, the per-worker buffer and the thread that writes.
//! Does not own: when a request is finished, or the ticker that flushes.
//!
//! Flow: `AccessRecord → Buffer (a worker's own) → bounded channel → writer thread → file | stdout | stderr`.
//!
//! **No secret can get in.** A record has no place for header fields, tokens or a raw target: it takes the
//! canonical method, host and path, an [`Identity`] (which never holds a credential), and codes out of the
//! program text. Queries carry tokens in practice, so there is no place for them either.
//!
//! **No worker waits.** When the destination is slow the channel fills up, and buffers that find no room are
//! dropped and counted.

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

/// The protocol a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestProtocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a head of HTTP/1 too broken to say.
    Http11,
    /// HTTP/2.
    Http2,
}

impl RequestProtocol {
    /// As in a request line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }

    /// The bare version, as spans call it (OpenTelemetry `network.protocol.version`).
    pub const fn version(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
        }
    }
}

/// The canonical request a line names. All three are what was matched and authorized, never raw bytes.
#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'a> {
    /// Method, case as received.
    pub method: &'a str,
    /// Host in lower-case A-label form, without port.
    pub host: &'a str,
    /// Path, without query.
    pub path: &'a str,
}

/// Where a request was sent.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedTo<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// `host:port` or socket path.
    pub endpoint: &'a str,
    /// Nanoseconds from handing the request on, connecting included, to the end of its answer.
    pub nanos: u64,
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
    /// Whoever sent the request that the peer, a proxy, asks about.
    pub client: Option<IpAddr>,
    /// What it spoke.
    pub protocol: RequestProtocol,
    /// What it asked for; `None` when it was malformed: then nothing it said is trustworthy enough to print.
    pub target: Option<RequestTarget<'a>>,
    /// Status sent; 0: none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Code that says why it was not let through, or why its exchange broke off.
    pub reason: Option<&'static str>,
    /// Name of the matched route.
    pub route: Option<&'a str>,
    /// Who asked, when that is known.
    pub identity: Option<&'a Identity>,
    /// Where it was sent.
    pub forwarded: Option<ForwardedTo<'a>>,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// Nanoseconds from then to the last byte sent.
    pub total_nanos: u64,
    /// What the decision cache said.
    pub cache: Option<CacheUse>,
    /// The trace the request belongs to.
    pub trace: Option<TraceId>,
}
