//! HTTP client: requests that the gateway sends on its own behalf, for example to token
//! authorities.
//!
//! Owns: one client with shared persistent connections (HTTP/2 if the server supports it),
//! authentication with a secret from a file, limits of time, size and number. Does not own: the
//! content of requests, the meaning of responses, retries.
//!
//! Requests over a limit fail at once; there is no hidden queue.
//!
//! Everything runs on the control runtime, because a connection outlives the request it was made
//! for and so belongs to no worker. A request is cancelled when its caller drops it.
//!
//! Redirects are not followed: their target is not configured, and must not receive a token or a
//! secret.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use outage::Outage;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::config::{ClientCredential, ServerConfig};

/// Maximum length of a response body in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// Age after which the file of a secret is read again.
const REREAD: Duration = Duration::from_secs(10);
/// Maximum size of a file with a secret, in bytes.
const MAX_SECRET: u64 = 64 * 1024;
/// Maximum number of idle connections.
const IDLE: usize = 64;

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The limit of requests in flight is reached.
    #[error("{0} requests are under way already, which is as many as `max_requests` allows")]
    Busy(usize),
    /// The limit of requests per second is reached.
    #[error("{0} requests were begun within a second, which is as many as `max_per_second` allows")]
    Throttled(u32),
    /// The file with the gateway's credential cannot be read.
    #[error("{path}: cannot be read: {error}; check the path and that this user may read it")]
    Secret {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file with the gateway's credential contains no usable secret.
    #[error("{path}: holds no secret: {why}")]
    NoSecret {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with its content.
        why: &'static str,
    },
    /// Connecting, TLS or HTTP failed.
    #[error("no answer: {0}")]
    Exchange(String),
    /// The response did not arrive in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The response body is too large.
    #[error("the answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
}

/// A complete response.
#[derive(Debug)]
pub struct HttpAnswer {
    /// Status code of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// A response whose body is read as it arrives.
#[derive(Debug)]
pub struct StreamedAnswer {
    /// Status code of the response.
    pub status: StatusCode,
    body: Incoming,
}

impl StreamedAnswer {
    /// The next data of the body; `None` at its end. There is no time limit.
    ///
    /// # Errors
    /// [`CallError::Exchange`] when the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| CallError::Exchange(told(&error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Rate limit: a token bucket whose capacity is one second of requests.
#[derive(Debug)]
struct Pace {
    limit: u32,
    /// Tokens left, and the time of that count.
    left: Mutex<(f64, Instant)>,
}

impl Pace {
    fn new(limit: u32) -> Self {
        Self { limit, left: Mutex::new((f64::from(limit), Instant::now())) }
    }

    /// Takes a token from the bucket.
    fn take(&self) -> Result<(), CallError> {
        let (limit, now) = (f64::from(self.limit), Instant::now());
        let mut held = self.left.lock();
        let left = (held.0 + limit * now.duration_since(held.1).as_secs_f64()).min(limit);
        let enough = left >= 1.0;
        *held = (if enough { left - 1.0 } else { left }, now);
        if enough { Ok(()) } else { Err(CallError::Throttled(self.limit)) }
    }
}

/// Rate limit for log lines that clients can cause: one line per ten seconds. For unavailable
/// dependencies use an [`Outage`].
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Whether a line may be logged now.
    pub fn is_due(&self) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        let due = last.is_none_or(|last| now.duration_since(last) >= REREAD);
        if due {
            *last = Some(now);
        }
        due
    }
}

/// A client for one server, with its connections.
pub struct HttpClient {
    inner: Arc<Inner>,
    control: Handle,
}

struct Inner {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    credential: ClientCredential,
    secret: Mutex<Option<SecretInUse>>,
    /// Health of the file that the secret is read from.
    secret_file: Outage,
    places: Arc<Semaphore>,
    max_requests: usize,
    pace: Option<Pace>,
    timeout: Duration,
}

/// A secret, and when it was read.
struct SecretInUse {
    secret: Arc<Zeroizing<String>>,
    at: Instant,
}

impl HttpClient {
    /// A client that has no connections yet.
    pub fn new(server: &ServerConfig, control: Handle) -> Self {
        let mut tls = server.tls.as_deref().map_or_else(no_tls, Clone::clone);
        // The connector sets ALPN itself.
        tls.alpn_protocols.clear();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(server.timeout));
        // A watch may be idle for long; HTTP/2 has its own pings.
        tcp.set_keepalive(Some(Duration::from_secs(20)));
        // Unacknowledged data shows that the connection is dead. Without this limit the next
        // request would wait on it for minutes.
        tcp.set_tcp_user_timeout(Some(server.timeout));
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_mins(1))
            .pool_max_idle_per_host(IDLE)
            .http1_max_headers(100)
            .http2_max_header_list_size(32 * 1024)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(server.timeout)
            .build(connector.wrap_connector(tcp));
        let inner = Inner {
            client,
            credential: server.credential.clone(),
            secret: Mutex::default(),
            secret_file: secret_file(&server.credential),
            places: Arc::new(Semaphore::new(server.max_requests)),
            max_requests: server.max_requests,
            pace: server.max_per_second.map(Pace::new),
            timeout: server.timeout,
        };
        Self { inner: Arc::new(inner), control }
    }

    /// How the gateway authenticates to the server.
    pub fn credential(&self) -> &ClientCredential {
        &self.inner.credential
    }

    /// Sends a request with the configured credential. A request with its own `Authorization` keeps
    /// it. With `Post` credentials the body must be a form, and they are appended to it.
    ///
    /// # Errors
    /// [`CallError`] when there is no complete response. Every status code counts as a response.
    pub async fn ask(&self, request: Request<Bytes>) -> Result<HttpAnswer, CallError> {
        self.send(request, true).await
    }

    /// The secret of the configured credential; `None`: there is none.
    ///
    /// # Errors
    /// [`CallError`] when its file cannot be read.
    pub async fn own_secret(&self) -> Result<Option<Arc<Zeroizing<String>>>, CallError> {
        match &self.inner.credential {
            ClientCredential::None => Ok(None),
            credential => self.inner.secret(secret_path(credential)).await.map(Some),
        }
    }

    /// Sends a request without the configured credential, for public resources and requests with
    /// their own credential. A client certificate is still used.
    ///
    /// # Errors
    /// As [`HttpClient::ask`].
    pub async fn ask_as_nobody(&self, request: Request<Bytes>) -> Result<HttpAnswer, CallError> {
        self.send(request, false).await
    }

    async fn send(&self, request: Request<Bytes>, as_us: bool) -> Result<HttpAnswer, CallError> {
        let inner = self.inner.clone();
        let asking = self.control.spawn(async move { inner.ask(request, as_us).await });
        match GivenUpOnDrop(asking).wait().await {
            Ok(answer) => answer,
            // The task panicked, or the runtime is shutting down.
            Err(_) => Err(CallError::Exchange("the gateway stops".to_owned())),
        }
    }

    /// Sends a request whose response is a stream, such as a watch. The time limit applies to the
    /// response head only, and the request does not count as in flight. Must be called on the
    /// control runtime.
    ///
    /// # Errors
    /// [`CallError`] when there is no response head. Every status code counts as a response.
    pub async fn stream(&self, request: Request<Bytes>) -> Result<StreamedAnswer, CallError> {
        let timeout = self.inner.timeout;
        let (head, body) = tokio::time::timeout(timeout, self.inner.begin(request, true))
            .await
            .map_err(|_| CallError::Timeout(timeout))??
            .into_parts();
        Ok(StreamedAnswer { status: head.status, body })
    }
}

/// A TLS configuration that trusts no server: without TLS configured no `https` request is made.
fn no_tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

struct GivenUpOnDrop<T>(JoinHandle<T>);

impl<T> GivenUpOnDrop<T> {
    async fn wait(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for GivenUpOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Inner {
    async fn ask(&self, request: Request<Bytes>, as_us: bool) -> Result<HttpAnswer, CallError> {
        let _place = self.places.try_acquire().map_err(|_| CallError::Busy(self.max_requests))?;
        self.pace.as_ref().map_or(Ok(()), Pace::take)?;
        let exchange = async {
            let (head, body) = self.begin(request, as_us).await?.into_parts();
            Ok(HttpAnswer { status: head.status, headers: head.headers, body: whole(body).await? })
        };
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| CallError::Timeout(self.timeout))?
    }

    /// Sends the request and waits for the response head.
    async fn begin(&self, request: Request<Bytes>, as_us: bool) -> Result<Response<Incoming>, CallError> {
        let request = self.prepared(request, as_us).await?;
        let response = self.client.request(request).await.map_err(|error| exchange_error(&error))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // The secret may have been rotated: the next request reads it again.
            *self.secret.lock() = None;
        }
        Ok(response)
    }

    /// Adds the default header fields, and the credential if `as_us`.
    async fn prepared(
        &self,
        request: Request<Bytes>,
        as_us: bool,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let (mut head, mut body) = request.into_parts();
        head.headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        head.headers.insert(USER_AGENT, HeaderValue::from_static("postern"));
        if as_us && !head.headers.contains_key(AUTHORIZATION) {
            let authorization = match &self.credential {
                ClientCredential::None => None,
                ClientCredential::Basic { id, secret } => {
                    let secret = self.secret(secret).await?;
                    let pair = Zeroizing::new(format!("{}:{}", *form_encoded(id), *form_encoded(&secret)));
                    Some((
                        Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))),
                        secret_path(&self.credential),
                    ))
                }
                ClientCredential::Post { id, secret } => {
                    let secret = self.secret(secret).await?;
                    let mut form = BytesMut::from(&*body);
                    for part in ["&client_id=", &form_encoded(id), "&client_secret=", &form_encoded(&secret)]
                    {
                        form.extend_from_slice(part.as_bytes());
                    }
                    body = form.freeze();
                    None
                }
                ClientCredential::Bearer { token } => {
                    let token = self.secret(token).await?;
                    Some((Zeroizing::new(format!("Bearer {}", **token)), secret_path(&self.credential)))
                }
            };
            if let Some((value, path)) = authorization {
                let mut value = HeaderValue::from_str(&value).map_err(|_| CallError::NoSecret {
                    path: path.to_owned(),
                    why: "it has characters that no header may have",
                })?;
                value.set_sensitive(true);
                head.headers.insert(AUTHORIZATION, value);
            }
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }

    /// The secret in a file, without surrounding white space; read again after [`REREAD`]. While
    /// the file cannot be read, the last secret stays in use.
    async fn secret(&self, path: &Path) -> Result<Arc<Zeroizing<String>>, CallError> {
        let held = self.secret.lock().as_ref().map(|held| (held.secret.clone(), held.at.elapsed() < REREAD));
        if let Some((secret, true)) = held {
            return Ok(secret);
        }
        let read = read(path).await;
        self.secret_file.note(&read);
        match read {
            Ok(secret) => {
                let secret = Arc::new(secret);
                *self.secret.lock() = Some(SecretInUse { secret: secret.clone(), at: Instant::now() });
                Ok(secret)
            }
            Err(error) => match held {
                Some((last, _)) => {
                    // Do not read the file again for each request.
                    *self.secret.lock() = Some(SecretInUse { secret: last.clone(), at: Instant::now() });
                    Ok(last)
                }
                None => Err(error),
            },
        }
    }
}

fn secret_file(credential: &ClientCredential) -> Outage {
    Outage::of(format!("secret file {}", secret_path(credential).display()))
        .with_effect("the last secret stays in use")
}

fn secret_path(credential: &ClientCredential) -> &Path {
    match credential {
        ClientCredential::None => Path::new(""),
        ClientCredential::Basic { secret, .. } | ClientCredential::Post { secret, .. } => secret,
        ClientCredential::Bearer { token } => token,
    }
}

async fn read(path: &Path) -> Result<Zeroizing<String>, CallError> {
    let unreadable = |error| CallError::Secret { path: path.to_owned(), error };
    let none = |why| CallError::NoSecret { path: path.to_owned(), why };
    let size = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
    if size > MAX_SECRET {
        return Err(none("it is larger than 64 KiB"));
    }
    let text = Zeroizing::new(tokio::fs::read_to_string(path).await.map_err(unreadable)?);
    let secret = text.trim();
    if secret.is_empty() {
        return Err(none("it is empty"));
    }
    Ok(Zeroizing::new(secret.to_owned()))
}

/// Form encoding of client id and secret (RFC 6749 appendix B): a secret may contain a colon.
pub fn form_encoded(text: &str) -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Zeroizing::new(String::with_capacity(text.len() * 3));
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._*".contains(&byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

async fn whole(mut body: Incoming) -> Result<Bytes, CallError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallError::Exchange(told(&error)))?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > MAX_ANSWER {
                return Err(CallError::TooLarge);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

fn exchange_error(error: &legacy::Error) -> CallError {
    CallError::Exchange(told(error))
}

/// The error with all its sources: the outermost alone is only "client error".
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_room_for_so_many() {
        let pace = Pace::new(10);
        let taken = |pace: &Pace| (0..25).filter(|_| pace.take().is_ok()).count();
        assert_eq!(taken(&pace), 10);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(taken(&pace), 3);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(taken(&pace), 10, "what was not used is not saved up");
        assert!(matches!(pace.take(), Err(CallError::Throttled(10))));
    }
}
