//! HTTP engine: sockets and HTTP, without authentication or authorization.
//!
//! Owns:
//!
//! - Listeners, TLS and the PROXY protocol: [`listen`], [`inherited_sockets`], [`tls`], [`proxy_protocol`], [`dial`].
//! - HTTP/1 and HTTP/2 in both roles ([`head`], [`chunked`], [`http1`], [`http2`]) as one kind of
//!   stream ([`http_stream`]).
//! - Changes of response fields: [`field_edits`].
//! - The client behind proxies: [`forwarded`].
//! - The pool of upstream connections: [`upstream`].
//! - The client for the process's own requests: [`http_client`], and its proxies:
//!   [`outbound_proxy`].
//! - The coarse clock and the deadlines of a worker: [`clock`], [`deadline`].
//!
//! Does not own: authentication and authorization (`credentials`, `gateway`), metrics (`telemetry`;
//! [`upstream`] takes a trait for its own counts).

pub mod buffer;
pub mod chunked;
pub mod clock;
pub mod config;
pub mod deadline;
pub mod dial;
pub mod endpoint_stats;
pub mod field_edits;
pub mod forwarded;
pub mod head;
pub mod http1;
pub mod http2;
pub mod http_client;
pub mod http_stream;
pub mod inherited_sockets;
pub mod io;
pub mod labels;
pub mod listen;
pub mod local_reply;
pub mod outbound_proxy;
pub mod parsed_request;
pub mod proxy_protocol;
pub mod read_body;
#[cfg(feature = "test_support")]
pub mod test_support;
pub mod tls;
pub mod upstream;
pub mod url;
