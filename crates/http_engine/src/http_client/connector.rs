//! Connections of the HTTP client: TCP by [`dial`], a proxy where one is configured, and TLS above.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::{ClientOptions, HttpVersion, tunnel};
use crate::config::ServerConfig;
use crate::dial::dial;
use crate::io::Stream;
use crate::outbound_proxy::{OutboundProxies, Proxy};

/// Connects to the host of a URL.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// Time limit for name resolution, TCP and a proxy.
    timeout: Duration,
    /// How long sent data may stay unacknowledged.
    unacknowledged: Duration,
    proxies: OutboundProxies,
    forwarding: Forwarding,
}

/// How requests for `http` URLs pass a proxy. Those for `https` URLs pass through a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forwarding {
    /// The proxy receives them, with the target in absolute form (RFC 9112 section 3.2.2).
    AbsoluteForm,
    /// Through a tunnel too: a proxy reads only HTTP/1.
    Tunnel,
}

/// A connection to a server or to a proxy.
pub(super) struct ClientStream {
    stream: Stream,
    /// Whether the other end is a proxy that receives targets in absolute form.
    absolute_form: bool,
}

/// A connector for `http` and `https`.
pub(super) fn https(server: &ServerConfig, options: ClientOptions) -> HttpsConnector<Connector> {
    let mut tls = server.tls.as_deref().map_or_else(no_tls, Clone::clone);
    // The connector sets ALPN itself.
    tls.alpn_protocols.clear();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let http2_only = options.version == HttpVersion::Http2;
    let tcp = Connector {
        timeout: options.connect_timeout.unwrap_or(server.timeout),
        unacknowledged: server.timeout,
        proxies: server.proxies.clone(),
        forwarding: if http2_only { Forwarding::Tunnel } else { Forwarding::AbsoluteForm },
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
    type Response = TokioIo<ClientStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(TokioIo::new(this.connect(&uri).await?)) })
    }
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> io::Result<ClientStream> {
        let proxy = self.proxies.for_uri(uri);
        let connected = async {
            match proxy {
                Some(proxy) => self.through(proxy, uri).await,
                None => Ok(ClientStream { stream: self.dial(endpoint(uri)).await?, absolute_form: false }),
            }
        };
        let connected = tokio::time::timeout(self.timeout, connected).await;
        connected.unwrap_or_else(|_| {
            let through = proxy.map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default();
            let message = format!("no connection within {:?}{through}", self.timeout);
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }

    async fn through(&self, proxy: &Proxy, uri: &Uri) -> io::Result<ClientStream> {
        let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("the proxy {proxy}: {error}"));
        let mut stream = self.dial(proxy.endpoint()).await.map_err(|error| failed(&error))?;
        if let Some(tls) = proxy.tls() {
            let name = ServerName::try_from(proxy.endpoint().0.to_owned()).map_err(|error| failed(&error))?;
            let connector = TlsConnector::from(tls.clone());
            let encrypted =
                connector.connect(name, Box::new(stream)).await.map_err(|error| failed(&error))?;
            stream = Stream::ClientTls(Box::new(encrypted));
        }
        if uri.scheme_str() != Some("https") && self.forwarding == Forwarding::AbsoluteForm {
            return Ok(ClientStream { stream, absolute_form: true });
        }
        let (host, port) = endpoint(uri);
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let target = format!("{open}{host}{close}:{port}");
        match tunnel::open(stream, &target, proxy.authorization()).await {
            Ok(stream) => Ok(ClientStream { stream, absolute_form: false }),
            Err(error) => {
                Err(io::Error::other(format!("the proxy {proxy}, connecting to {target}: {error}")))
            }
        }
    }

    async fn dial(&self, to: (&str, u16)) -> io::Result<Stream> {
        let stream = dial(to).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // Unacknowledged data shows that the connection is dead. Without this limit the next
        // request would wait on it for minutes.
        socket.set_tcp_user_timeout(Some(self.unacknowledged))?;
        Ok(Stream::Tcp(stream))
    }
}

/// Host without brackets, and port.
fn endpoint(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (host, uri.port_u16().unwrap_or(default))
}

impl Connection for ClientStream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.absolute_form)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
