//! HTTP client of the commands and of the provider, which calls clients and event receivers.
//!
//! Owns: which certificate authorities are trusted (`--ca` or the system's), and error texts for
//! people. The proxies are those of the configuration, or of the environment for a command. Does not own: connections and limits ([`http_engine::http_client`]).
//!
//! It is built on hyper, not on the gateway's own codec: `demo --check` sees what any client would
//! see.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::config::ServerConfig;
use http_engine::http_client::{CallError, ClientOptions, HttpClient, HttpResponse};
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::tls::{Protocols, TrustAnchors};
use http_engine::url::Url;
use rustls::ClientConfig;
use tokio::runtime::Handle;

pub(crate) use http_engine::http_client::HttpVersion as Version;

/// Time limit of one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
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
    proxies: OutboundProxies,
    /// Hint for a server whose certificate no trusted authority has issued.
    certificate_hint: &'static str,
}

impl Client {
    /// Creates a client that trusts the certificate authorities in a PEM file, or those of the
    /// system.
    pub(crate) fn new(ca: Option<&Path>, proxies: OutboundProxies) -> Self {
        Self {
            ca: ca.map(Into::into),
            tls: OnceLock::new(),
            proxies,
            certificate_hint: "; name the certificate authority with --ca",
        }
    }

    /// Creates a client that trusts the certificate authorities of the system and uses these
    /// proxies.
    pub(crate) fn through(proxies: OutboundProxies) -> Self {
        Self { proxies, ..Self::default() }
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
        exchange.await.map_err(|error| format!("{url}: {error}"))
    }

    async fn exchange(
        &self,
        version: Version,
        method: Method,
        url: &Url,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Reply, String> {
        let mut request = Request::builder().method(method).uri(url.to_string());
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(|error| format!("the request cannot be sent: {error}"))?;
        let tls = if url.is_https() { Some(self.tls()?) } else { None };
        let server = ServerConfig::anonymous(tls, self.proxies.clone());
        let server = ServerConfig { timeout: EXCHANGE_TIMEOUT, ..server };
        let options = ClientOptions { version, idle_connections: 0, ..ClientOptions::default() };
        let client = HttpClient::with_options(&server, options, Handle::current());
        match client.send(request).await {
            Ok(HttpResponse { status, headers, body }) => Ok(Reply { status, headers, body }),
            Err(CallError::Connect(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                Err("connection refused; is the server running?".to_owned())
            }
            Err(CallError::Connect(error)) => Err(format!("cannot connect: {error}")),
            Err(CallError::Tls(error)) => {
                Err(format!("the TLS handshake failed: {error}{}", self.certificate_hint))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// TLS configuration. It is built when it is first needed, because most uses are plain HTTP.
    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let roots = match &self.ca {
            Some(ca) => TrustAnchors::from_file(ca),
            None => http_engine::tls::system_roots().map(|(roots, _)| roots),
        };
        let protocols = Protocols { http1: true, http2: false };
        let config =
            roots.and_then(|r| http_engine::tls::client_config(&r, None, protocols, SystemClock.now().wall));
        let config = config.map_err(|error| error.to_string())?.config;
        Ok(self.tls.get_or_init(|| config).clone())
    }
}
