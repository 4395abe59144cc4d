//! Connections of the HTTP client: TCP by [`dial`], and TLS above it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tower_service::Service;

use super::{ClientOptions, HttpVersion};
use crate::config::ServerConfig;
use crate::dial::dial;

/// Connects to the host of a URL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connector {
    /// Time limit for name resolution and TCP.
    timeout: Duration,
    /// How long sent data may stay unacknowledged.
    unacknowledged: Duration,
}

/// A connector for `http` and `https`.
pub(super) fn https(server: &ServerConfig, options: ClientOptions) -> HttpsConnector<Connector> {
    let mut tls = server.tls.as_deref().map_or_else(no_tls, Clone::clone);
    // The connector sets ALPN itself.
    tls.alpn_protocols.clear();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let tcp = Connector {
        timeout: options.connect_timeout.unwrap_or(server.timeout),
        unacknowledged: server.timeout,
    };
    match options.version {
        HttpVersion::Negotiated => builder.enable_all_versions().wrap_connector(tcp),
        HttpVersion::Http1 => builder.enable_http1().wrap_connector(tcp),
        HttpVersion::Http2 => builder.enable_http2().wrap_connector(tcp),
    }
}

/// A TLS configuration that trusts no server: without TLS configured no `https` request is made.
fn no_tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.connect(uri))
    }
}

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<TcpStream>> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let dialed = dial((host, uri.port_u16().unwrap_or(default)));
        let stream = tokio::time::timeout(self.timeout, dialed).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {:?}", self.timeout))
        })??;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // A watch may be idle for long; HTTP/2 has its own pings.
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_secs(20)))?;
        // Unacknowledged data shows that the connection is dead. Without this limit the next
        // request would wait on it for minutes.
        socket.set_tcp_user_timeout(Some(self.unacknowledged))?;
        Ok(TokioIo::new(stream))
    }
}
