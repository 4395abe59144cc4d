//! A plain HTTP client, for the commands that ask servers something, and for the provider that tells clients something.
//!
//! It is hyper's, not the gateway's own codec: what `demo --check` sees is what any client would see.

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

/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer.
const ANSWER: usize = 1 << 20;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Status code.
    pub(crate) status: StatusCode,
    /// Header fields.
    pub(crate) headers: HeaderMap,
    /// Content.
    pub(crate) body: Bytes,
}

/// Asks servers something.
#[derive(Default)]
pub(crate) struct Client {
    ca: Option<Box<Path>>,
    tls: OnceLock<Arc<ClientConfig>>,
    /// What to do about a server that nobody vouches for.
    remedy: &'static str,
}

impl Client {
    /// A client that trusts the authorities in a PEM file, or the system's.
    pub(crate) fn new(ca: Option<&Path>) -> Self {
        Self { ca: ca.map(Into::into), tls: OnceLock::new(), remedy: "; name the authority with --ca" }
    }

    /// Sends a request to `url` over a connection of its own.
    ///
    /// # Errors
    /// In words, with the URL.
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

    /// Made when first needed: most uses speak plain HTTP.
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
            // ends with the exchange, which reports what went wrong
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
