//! Connecting to endpoints: TCP, Unix, TLS, HTTP/2 handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use rustls::pki_types::ServerName;
use tokio::net::UnixStream;

use crate::config::{Endpoint, Upstream, UpstreamTls};
use crate::dial::dial_addresses;
use crate::endpoint_stats::OpenConnection;
use crate::io::Stream;

/// Flow-control window per stream: how much an upstream may send before it is forwarded.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Maximum number of streams on a connection, so that the windows of all fit into the connection's.
pub(crate) const MAX_STREAMS: usize = (MAX_WINDOW / STREAM_WINDOW) as usize;
/// Flow-control window of a connection: the sum of all stream windows. So streams whose clients do
/// not read never block the others. The stream windows limit what is really buffered.
const CONNECTION_WINDOW: u32 = MAX_WINDOW / STREAM_WINDOW * STREAM_WINDOW;
/// Largest possible window (RFC 9113 §6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// Streams opened on a connection before the peer has announced its limit: the minimum that RFC
/// 9113 §6.5.2 recommends. More could be refused.
const STREAMS_UNTIL_SETTINGS: usize = 100;
/// Maximum size of the fields of an HTTP/2 response, in bytes.
const MAX_HEADER_LIST: u32 = 64 * 1024;

/// Why no connection was established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket or the TLS handshake failed.
    #[error("connecting to {endpoint}: {source}")]
    Io {
        /// The endpoint, as configured.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// The endpoint did not answer in time.
    #[error("connecting to {endpoint}: no answer within {limit:?}")]
    Timeout {
        /// The endpoint, as configured.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// No name of the upstream has an address.
    #[error("upstream {upstream} has no address: {why}")]
    NoAddress {
        /// Name of the upstream.
        upstream: Box<str>,
        /// The reason.
        why: Arc<str>,
    },
    /// All endpoints of the upstream fail their health checks, or have the weight 0, or there are none
    /// at the moment.
    #[error("no endpoint of upstream {upstream} is healthy")]
    Unhealthy {
        /// Name of the upstream.
        upstream: Box<str>,
    },
    /// The TLS peer does not support HTTP/2 (ALPN, RFC 7301).
    #[error(
        "connecting to {endpoint}: the TLS peer did not agree to HTTP/2 (ALPN); set protocol = \"http/1.1\""
    )]
    NoHttp2 {
        /// The endpoint, as configured.
        endpoint: String,
    },
    /// The HTTP/2 handshake failed (RFC 9113 section 3.4).
    #[error("connecting to {endpoint}: HTTP/2 handshake: {source}")]
    Http2 {
        /// The endpoint, as configured.
        endpoint: String,
        /// The error of the HTTP/2 library.
        source: h2::Error,
    },
}

/// Opens a stream to one of the addresses of the endpoint, TLS included, within the upstream's
/// connect timeout.
pub(crate) async fn open_stream(
    upstream: &Upstream,
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
) -> Result<Stream, ConnectError> {
    let limit = upstream.timeouts.connect;
    match tokio::time::timeout(limit, open_untimed(upstream.tls.as_ref(), endpoint, addresses)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(ConnectError::Io { endpoint: endpoint.to_string(), source }),
        Err(_) => Err(ConnectError::Timeout { endpoint: endpoint.to_string(), limit }),
    }
}

async fn open_untimed(
    tls: Option<&UpstreamTls>,
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
) -> io::Result<Stream> {
    let plain = match endpoint {
        Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
        Endpoint::Tcp { .. } => {
            let tcp = dial_addresses(addresses.to_vec()).await?;
            // A request leaves in one write; Nagle's algorithm would only delay the next one.
            tcp.set_nodelay(true)?;
            Stream::Tcp(tcp)
        }
    };
    let Some(tls) = tls else { return Ok(plain) };
    let name = match (&tls.server_name, endpoint) {
        (Some(name), _) => name.clone(),
        (None, Endpoint::Tcp { host, .. }) => ServerName::try_from(host.to_string()).map_err(|e| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{host:?} is not a valid TLS server name: {e}"),
            )
        })?,
        (None, Endpoint::Unix(_)) => {
            let hint = "TLS over a Unix socket needs tls.server_name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, hint));
        }
    };
    let connector = tokio_rustls::TlsConnector::from(tls.client.clone());
    let stream = connector.connect(name, Box::new(plain)).await?;
    Ok(Stream::ClientTls(Box::new(stream)))
}

/// Starts HTTP/2 on a new stream; the connection runs as its own task until it closes.
pub(crate) async fn handshake_http2(
    stream: Stream,
    endpoint: &Endpoint,
    open: OpenConnection,
) -> Result<SendRequest<Bytes>, ConnectError> {
    if let Stream::ClientTls(tls) = &stream
        && tls.get_ref().1.alpn_protocol() != Some(b"h2")
    {
        return Err(ConnectError::NoHttp2 { endpoint: endpoint.to_string() });
    }
    let (send, connection) = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_max_send_streams(STREAMS_UNTIL_SETTINGS)
        .handshake(stream)
        .await
        .map_err(|source| ConnectError::Http2 { endpoint: endpoint.to_string(), source })?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "upstream http/2 connection ended");
        }
        drop(open);
    });
    Ok(send)
}
