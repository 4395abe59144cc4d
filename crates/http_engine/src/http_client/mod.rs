//! HTTP client: requests that the process sends on its own behalf, for example to token
//! authorities, key servers and the span collector.
//!
//! Owns: one client with shared persistent connections (HTTP/2 if the server supports it), through
//! a proxy where one is configured, authentication with a secret from a file, limits of time, size
//! and number. Does not own: the content of requests, the meaning of responses, retries, which
//! proxy ([`outbound_proxy`](crate::outbound_proxy)).
//!
//! Requests over a limit fail at once; there is no hidden queue.
//!
//! Everything runs on the control runtime, because a connection outlives the request it was made
//! for and so belongs to no worker. A request is cancelled when its caller drops it.
//!
//! Redirects are not followed: their target is not configured, and must not receive a token or a
//! secret.

mod connector;
mod credential;
mod error;
mod limits;
mod tunnel;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

pub use credential::{SecretMethod, form_encoded};
pub use error::CallError;
pub use limits::Throttle;

use self::connector::Connector;
use self::credential::Credential;
use self::limits::RateLimit;
use crate::config::{ClientCredential, ServerConfig};
use crate::outbound_proxy::{OutboundProxies, Proxy};

/// How a client connects, and how much it reads. The default is for APIs.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// Time limit for name resolution and TCP. Default: the time limit of the whole exchange.
    pub connect_timeout: Option<Duration>,
    /// Maximum length of a response body in bytes. Default 1 MiB.
    pub max_body: usize,
    /// Maximum number of idle connections; 0: a connection for each request. Default 64.
    pub idle_connections: usize,
    /// Protocol version. Default [`HttpVersion::Negotiated`].
    pub version: HttpVersion,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let version = HttpVersion::Negotiated;
        Self { connect_timeout: None, max_body: 1 << 20, idle_connections: 64, version }
    }
}

/// Protocol version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/2 where a TLS server selects it (ALPN, RFC 7301), HTTP/1.1 otherwise.
    Negotiated,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, in clear text with prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// A complete response.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// A response whose body is read as it arrives.
#[derive(Debug)]
pub struct StreamedResponse {
    /// Status code of the response.
    pub status: StatusCode,
    body: Incoming,
}

impl StreamedResponse {
    /// The next data of the body; `None` at its end. There is no time limit.
    ///
    /// # Errors
    /// [`CallError::Exchange`] when the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        next_data(&mut self.body).await
    }
}

/// A client for one server, with its connections.
pub struct HttpClient {
    inner: Arc<Inner>,
    control: Handle,
}

struct Inner {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    credential: Credential,
    in_flight: Arc<Semaphore>,
    max_requests: usize,
    rate_limit: Option<RateLimit>,
    timeout: Duration,
    max_body: usize,
    proxies: OutboundProxies,
    version: HttpVersion,
}

/// What the client adds to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Additions {
    /// The configured credential and the header fields of an API request.
    Authenticated,
    /// The header fields of an API request.
    Anonymous,
    /// Nothing.
    None,
}

impl HttpClient {
    /// A client that has no connections yet.
    pub fn new(server: &ServerConfig, control: Handle) -> Self {
        Self::with_options(server, ClientOptions::default(), control)
    }

    /// The same with other options.
    pub fn with_options(server: &ServerConfig, options: ClientOptions, control: Handle) -> Self {
        let connector = connector::https(server, options);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_mins(1))
            .pool_max_idle_per_host(options.idle_connections)
            .http1_max_headers(100)
            .http1_max_buf_size(64 * 1024)
            .http2_only(options.version == HttpVersion::Http2)
            .http2_max_header_list_size(32 * 1024)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(server.timeout)
            .build(connector);
        let inner = Inner {
            client,
            credential: Credential::new(server.credential.clone()),
            in_flight: Arc::new(Semaphore::new(server.max_requests)),
            max_requests: server.max_requests,
            rate_limit: server.max_per_second.map(RateLimit::new),
            timeout: server.timeout,
            max_body: options.max_body,
            proxies: server.proxies.clone(),
            version: options.version,
        };
        Self { inner: Arc::new(inner), control }
    }

    /// How the process authenticates to the server.
    pub fn credential(&self) -> &ClientCredential {
        self.inner.credential.configured()
    }

    /// Sends the secret of a [`ClientCredential::Discovered`] in this way from now on.
    pub fn set_secret_method(&self, method: SecretMethod) {
        self.inner.credential.set_method(method);
    }

    /// The secret of the configured credential; `None`: there is none.
    ///
    /// # Errors
    /// [`CallError`] when its file cannot be read.
    pub async fn client_secret(&self) -> Result<Option<Arc<Zeroizing<String>>>, CallError> {
        self.inner.credential.secret().await
    }

    /// Sends an API request with the configured credential. A request with its own `Authorization`
    /// keeps it. With `Post` credentials the body must be a form, and they are appended to it.
    ///
    /// # Errors
    /// [`CallError`] when there is no complete response. Every status code counts as a response.
    pub async fn ask(&self, request: Request<Bytes>) -> Result<HttpResponse, CallError> {
        self.spawn(request, Additions::Authenticated).await
    }

    /// Sends an API request without the configured credential, for public resources and requests
    /// with their own credential. A client certificate is still used.
    ///
    /// # Errors
    /// As [`HttpClient::ask`].
    pub async fn ask_anonymously(&self, request: Request<Bytes>) -> Result<HttpResponse, CallError> {
        self.spawn(request, Additions::Anonymous).await
    }

    /// Sends a request as it is: without credential and without header fields of the client's own.
    ///
    /// # Errors
    /// As [`HttpClient::ask`].
    pub async fn send(&self, request: Request<Bytes>) -> Result<HttpResponse, CallError> {
        self.spawn(request, Additions::None).await
    }

    async fn spawn(&self, request: Request<Bytes>, additions: Additions) -> Result<HttpResponse, CallError> {
        let inner = self.inner.clone();
        let task = self.control.spawn(async move { inner.execute(request, additions).await });
        match AbortOnDrop(task).wait().await {
            Ok(answer) => answer,
            // The task panicked, or the runtime is shutting down.
            Err(_) => Err(CallError::Exchange("the process is shutting down".to_owned())),
        }
    }

    /// Sends an authenticated request whose response is a stream, such as a watch. The time limit
    /// applies to the response head only, and the request does not count as in flight. Must be
    /// called on the control runtime.
    ///
    /// # Errors
    /// [`CallError`] when there is no response head. Every status code counts as a response.
    pub async fn stream(&self, request: Request<Bytes>) -> Result<StreamedResponse, CallError> {
        let timeout = self.inner.timeout;
        let (head, body) = tokio::time::timeout(timeout, self.inner.begin(request, Additions::Authenticated))
            .await
            .map_err(|_| CallError::Timeout(timeout))??
            .into_parts();
        Ok(StreamedResponse { status: head.status, body })
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn wait(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Inner {
    async fn execute(
        &self,
        request: Request<Bytes>,
        additions: Additions,
    ) -> Result<HttpResponse, CallError> {
        let _place = self.in_flight.try_acquire().map_err(|_| CallError::Busy(self.max_requests))?;
        self.rate_limit.as_ref().map_or(Ok(()), RateLimit::take)?;
        let exchange = async {
            let (head, body) = self.begin(request, additions).await?.into_parts();
            Ok(HttpResponse {
                status: head.status,
                headers: head.headers,
                body: self.read_secret_file(body).await?,
            })
        };
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| CallError::Timeout(self.timeout))?
    }

    /// Sends the request and waits for the response head.
    async fn begin(
        &self,
        mut request: Request<Bytes>,
        additions: Additions,
    ) -> Result<Response<Incoming>, CallError> {
        if additions != Additions::None {
            request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("postern"));
        }
        if additions == Additions::Authenticated {
            self.credential.add_to(&mut request).await?;
        }
        let proxy = self.forwarding_proxy(request.uri()).cloned();
        if let Some(value) = proxy.as_ref().and_then(Proxy::authorization) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        let request = request.map(Full::new);
        let response = self.client.request(request).await.map_err(|error| CallError::from_client(&error))?;
        if let Some(proxy) = proxy
            && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        {
            return Err(CallError::ProxyCredentials(proxy.to_string()));
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            // The secret may have been rotated: the next request reads it again.
            self.credential.forget();
        }
        Ok(response)
    }

    /// The proxy that receives a request itself. A tunnel is opened by the connector.
    fn forwarding_proxy(&self, uri: &Uri) -> Option<&Proxy> {
        let forwarded = uri.scheme_str() == Some("http") && self.version != HttpVersion::Http2;
        if forwarded { self.proxies.for_uri(uri) } else { None }
    }

    async fn read_secret_file(&self, mut body: Incoming) -> Result<Bytes, CallError> {
        let mut whole = BytesMut::new();
        while let Some(data) = next_data(&mut body).await? {
            if whole.len() + data.len() > self.max_body {
                return Err(CallError::TooLarge(self.max_body));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

/// The next data of a body, without its trailer fields.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, CallError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallError::Exchange(error::with_sources(&error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}
