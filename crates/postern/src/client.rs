//! HTTP client for commands that query servers, and for the provider's notifications to clients.
//!
//! It uses hyper, not the gateway's own codec. So `demo --check` sees what any client would see.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::tls::Protocols;
use http_engine::url::Url;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time limit of one exchange.
const DEADLINE: Duration = Duration::from_secs(10);
/// Size limit of a response body, in bytes.
const ANSWER: usize = 1 << 20;

/// HTTP version of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1 (RFC 9112).
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// A response with its complete body.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Status code of the response.
    pub(crate) status: StatusCode,
    /// Header fields of the response.
    pub(crate) headers: HeaderMap,
    /// Body of the response.
    pub(crate) body: Bytes,
}

/// HTTP client that opens a connection for each request.
#[derive(Default)]
pub(crate) struct Client {
    ca: Option<Box<Path>>,
    tls: OnceLock<Arc<ClientConfig>>,
    /// Hint for a server whose certificate no trusted authority has issued.
    remedy: &'static str,
}

impl Client {
    /// Creates a client that trusts the certificate authorities in a PEM file, or those of the
    /// system.
    pub(crate) fn new(ca: Option<&Path>) -> Self {
        Self { ca: ca.map(Into::into), tls: OnceLock::new(), remedy: "; name the authority with --ca" }
    }

    /// Sends a request to `url` over a new connection.
    ///
    /// # Errors
    /// A message that contains the URL.
    pub(crate) async fn send(
        &self,
        version: Version,
        method: Method,
        url: &Url,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply, String> {
        let exchange = self.exchange(version, method, url, fields, body.into());
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(reply) => reply.map_err(|error| format!("{url}: {error}")),
            Err(_) => Err(format!("{url}: no answer within {} s", DEADLINE.as_secs())),
        }
    }

    async fn exchange(
        &self,
        version: Version,
        method: Method,
        url: &Url,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Reply, String> {
        let (host, port) = url.endpoint();
        let stream = TcpStream::connect((host, port)).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "nobody listens there; is the server running?".to_owned()
            }
            _ => format!("cannot connect: {error}"),
        })?;
        let target = if version == Version::Http2 { url.to_string() } else { url.target().to_owned() };
        let mut request = Request::builder().method(method).uri(target);
        if version == Version::Http1 {
            request = request.header("host", url.authority());
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| format!("the request cannot be sent: {error}"))?;
        if !url.is_https() {
            return talk(version, stream, request).await;
        }
        let name = url.server_name().ok_or("the host cannot be in a certificate")?;
        let tls = TlsConnector::from(self.tls()?).connect(name, stream).await;
        let tls = tls.map_err(|error| format!("the TLS handshake failed: {error}{}", self.remedy))?;
        talk(version, tls, request).await
    }

    /// TLS configuration. It is built when it is first needed, because most uses are plain HTTP.
    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let roots = match &self.ca {
            Some(ca) => http_engine::tls::roots_from_file(ca),
            None => http_engine::tls::system_roots().map(|(roots, _)| roots),
        };
        let protocols = Protocols { http1: true, http2: false };
        let config =
            roots.and_then(|r| http_engine::tls::client_config(r, None, protocols, SystemClock.now().wall));
        let config = config.map_err(|error| error.to_string())?.config;
        Ok(self.tls.get_or_init(|| config).clone())
    }
}

async fn talk(
    version: Version,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Reply, String> {
    let broken = |error: hyper::Error| format!("the exchange broke off: {error}");
    let io = TokioIo::new(stream);
    let response = match version {
        Version::Http1 => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
            // The task ends with the exchange, which reports any error.
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(broken)?
        }
        Version::Http2 => {
            let executor = TokioExecutor::new();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(executor, io).await.map_err(broken)?;
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(broken)?
        }
    };
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER)
        .collect()
        .await
        .map_err(|error| format!("the answer broke off: {error}"))?;
    Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
}
