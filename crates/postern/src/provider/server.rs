//! HTTP server of the provider.
//!
//! Owns: accepting connections, TLS, limits of connections and heads, the caller's address, ordered
//! shutdown. Does not own: the responses ([`idp::router`]), request bodies and their limits (the
//! endpoints of `idp` read them).
//!
//! A connection keeps the TLS configuration that it started with. Each request uses the provider
//! that is live when it arrives.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode};
use http_engine::forwarded::{find_client, x_forwarded_for};
use http_engine::listen::{ListenOptions, bind_advice};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idp::{Caller, paths};
use ipnet::IpNet;
use outage::Outage;
use parking_lot::RwLock;
use telemetry::metrics::ProviderStats;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::{Activity, CHECK_INTERVAL, ConnectionVerdict, WatchedStream};
use crate::exit::Failure;

/// Largest number of open connections. Further ones are closed.
const MAX_CONNECTIONS: usize = 10_000;
/// Size limit of a request head, in bytes.
const MAX_HEAD_BYTES: u32 = 32 << 10;
/// Largest number of fields in a head.
const MAX_FIELDS: usize = 100;
/// Largest number of concurrent requests on an HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to close after it was asked to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What answers requests now. A reload replaces it as a whole.
pub(super) struct Live {
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) trusted_proxies: Vec<IpNet>,
    /// Path of the issuer. The endpoints are below it.
    pub(super) path: Box<str>,
    pub(super) stats: Arc<ProviderStats>,
}

/// Shutdown signal of the server, for responses that would otherwise not end. Every request carries
/// one.
#[derive(Clone)]
pub(super) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Waits until the server stops.
    pub(super) async fn stopped(&mut self) {
        // An error means that the sender is dropped, and so is the server.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Binds the address. Call it within a runtime.
pub(super) fn bind(address: SocketAddr, listen: &ListenOptions) -> Result<TcpListener, Failure> {
    listen.bind_tcp(address).and_then(TcpListener::from_std).map_err(|error| {
        let hint = bind_advice(address, &error);
        Failure::new(format!(
            "the provider cannot listen on {address}: {error}; {hint}; change it with `provider.address`"
        ))
    })
}

/// Serves until it is stopped, then waits for requests in flight. Returns true when all connections
/// have ended.
pub(super) async fn serve(
    listener: TcpListener,
    live: Arc<RwLock<Arc<Live>>>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let outage = Outage::new("provider listener");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => {
                outage.succeeded();
                accepted
            }
            // The client closed the connection while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                outage.failed(error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropping the stream closes it at once.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (live, stop) = (live.clone(), stop.clone());
        tokio::spawn(async move {
            connection(stream, peer, live, stop).await;
            drop(place);
        });
    }
    drop(listener);
    #[expect(clippy::cast_possible_truncation, reason = "ten thousand")]
    let all = places.acquire_many(MAX_CONNECTIONS as u32).await;
    all.is_ok()
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    stop: watch::Receiver<bool>,
) {
    // This can fail when the peer has already disconnected. Then the next read fails too.
    let _ = stream.set_nodelay(true);
    let tls = live.read().tls.clone();
    let Some(tls) = tls else { return exchange_over(stream, peer, live, stop).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => exchange_over(stream, peer, live, stop).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
    }
}

async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    mut stop: watch::Receiver<bool>,
) {
    let activity = Activity::new();
    let stream = TokioIo::new(WatchedStream::new(stream, activity.clone()));
    let watched = activity.clone();
    let ends = ShutdownSignal(stop.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends.clone());
        answer(request, peer, live.clone(), watched.clone())
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // `Activity` limits the time of heads.
    let http1 = MAX_HEAD_BYTES as usize;
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(MAX_FIELDS)
        .max_buf_size(http1);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        // A proxy that gives up slow requests resets all of them at once. Its other requests must
        // not end with them.
        .max_pending_accept_reset_streams(2 * MAX_STREAMS as usize);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut closing = None::<Instant>;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "connection to the provider failed");
                }
                return;
            }
            () = sleep(CHECK_INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop), if closing.is_none() => {
                connection.as_mut().graceful_shutdown();
                // Requests in flight have the drain timeout.
                closing = Some(Instant::now());
                continue;
            }
        }
        match (activity.verdict(), closing) {
            (ConnectionVerdict::Cut, _) => return,
            (ConnectionVerdict::Close, None) => {
                connection.as_mut().graceful_shutdown();
                closing = Some(Instant::now());
            }
            (ConnectionVerdict::Close, Some(since)) if since.elapsed() > CLOSE_TIMEOUT => return,
            (ConnectionVerdict::Keep, _) | (ConnectionVerdict::Close, Some(_)) => {}
        }
    }
}

async fn answer(
    mut request: Request<Incoming>,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    activity: Activity,
) -> Result<Response<Body>, Infallible> {
    let (active_request, began) = (activity.request_started(), Instant::now());
    let live = live.read().clone();
    let endpoint = endpoint(request.uri().path(), &live.path);
    // HTTP/2 has no limit of its own for the number of fields.
    if request.headers().len() > MAX_FIELDS {
        let refused = refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        live.stats.count_response(endpoint, refused.status().as_u16(), began.elapsed());
        return Ok(refused);
    }
    let forwarded = request.headers().get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
    let client = find_client(peer.ip(), x_forwarded_for(forwarded), &live.trusted_proxies).last_known;
    // A proxy that hides its client stands for it: its attempts to log in are limited together.
    request.extensions_mut().insert(Caller(client));
    let result = TowerToHyperService::new(live.router.clone()).call(request).await;
    drop(active_request);
    if let Ok(response) = &result {
        live.stats.count_response(endpoint, response.status().as_u16(), began.elapsed());
    }
    result
}

/// Name of an endpoint in metrics.
fn endpoint(path: &str, issuer: &str) -> &'static str {
    // RFC 8414 section 3.1 inserts the well-known string before the issuer's path.
    if path.starts_with("/.well-known/") {
        return "discovery";
    }
    match path.strip_prefix(issuer).unwrap_or_default() {
        paths::AUTHORIZE => "authorize",
        paths::TOKEN => "token",
        paths::JWKS => "jwks",
        paths::USERINFO => "userinfo",
        paths::INTROSPECT => "introspect",
        paths::REVOKE => "revoke",
        paths::END_SESSION | idp::paths::LOGOUT_DECISION => "logout",
        paths::PUSHED_REQUEST => "par",
        paths::DEVICE_AUTHORIZATION => "device_authorization",
        paths::DEVICE | idp::paths::DEVICE_DECISION => "device",
        paths::LOGIN => "login",
        paths::CONSENT => "consent",
        path if path.starts_with(paths::ACCOUNT) => "account",
        path if path.starts_with("/revocation/") => "revocation",
        path if path.starts_with("/.well-known/") => "discovery",
        _ => "(none)",
    }
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
