//! The provider's HTTP server.
//!
//! Owns: accepting, TLS, the bounds on connections and heads, telling who calls, ending in order.
//! Does not own: what is answered ([`idp::router`]), bodies and their bounds (`idp`'s endpoints read them).
//!
//! A connection keeps the TLS it began with; each request is answered by whatever is live when it comes.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode};
use http_engine::listen::{self, Claim};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idp::{Caller, discovery};
use ipnet::IpNet;
use outage::Outage;
use parking_lot::RwLock;
use telemetry::metrics::ProviderStats;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::{Activity, ConnectionVerdict, LOOK, Watched};
use super::forwarded::caller;
use crate::exit::Failure;

/// Connections at once; further ones are closed.
const CONNECTIONS: usize = 10_000;
/// Largest head of a request.
const HEAD: u32 = 32 << 10;
/// Most fields of a head.
const FIELDS: usize = 100;
/// Requests at once on a connection of HTTP/2.
const STREAMS: u32 = 128;
/// A TLS handshake may take this long.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection that was told to end may take this long.
const CLOSING: Duration = Duration::from_secs(10);
/// After a failed accept (no descriptor left) wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What requests are answered by now.
pub(super) struct Live {
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) trusted_proxies: Vec<IpNet>,
    /// The issuer's path, which endpoints are below.
    pub(super) path: Box<str>,
    pub(super) stats: Arc<ProviderStats>,
}

/// Whether the server ends: for answers that otherwise would not. Every request carries one.
#[derive(Clone)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until it does.
    pub(super) async fn told(&mut self) {
        // Whoever would tell is gone: so is the server.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Binds the address. Call it within a runtime.
pub(super) fn bind(address: SocketAddr, claim: Claim) -> Result<TcpListener, Failure> {
    listen::tcp(address, claim).and_then(TcpListener::from_std).map_err(|error| {
        let hint = listen::remedy(address, &error);
        Failure::new(format!(
            "the provider cannot listen on {address}: {error}; {hint}; `provider.address` moves it"
        ))
    })
}

/// Serves until told to stop, then lets requests under way finish. True when there is nothing left.
pub(super) async fn serve(
    listener: TcpListener,
    live: Arc<RwLock<Arc<Live>>>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let outage = Outage::of("provider listener");
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
            // the client gave up while it waited
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                outage.failed(error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // dropped: closed at once
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (live, stop) = (live.clone(), stop.clone());
        tokio::spawn(async move {
            connection(stream, peer, live, stop).await;
            drop(place);
        });
    }
    drop(listener);
    #[expect(clippy::cast_possible_truncation, reason = "ten thousand")]
    let all = places.acquire_many(CONNECTIONS as u32).await;
    all.is_ok()
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    stop: watch::Receiver<bool>,
) {
    // it can fail when the peer is gone already, which shows soon enough
    let _ = stream.set_nodelay(true);
    let tls = live.read().tls.clone();
    let Some(tls) = tls else { return talk(stream, peer, live, stop).await };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => talk(stream, peer, live, stop).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake with the provider failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake with the provider took too long"),
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    mut stop: watch::Receiver<bool>,
) {
    let activity = Activity::new();
    let stream = TokioIo::new(Watched::new(stream, activity.clone()));
    let watched = activity.clone();
    let ends = Stop(stop.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends.clone());
        answer(request, peer, live.clone(), watched.clone())
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // heads are timed by `Activity`
    let http1 = HEAD as usize;
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(FIELDS)
        .max_buf_size(http1);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD)
        // A proxy that gives up what takes too long resets all of it at once, and whatever else it asks is not to end with it.
        .max_pending_accept_reset_streams(2 * STREAMS as usize);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut closing = None::<Instant>;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "a connection to the provider broke off");
                }
                return;
            }
            () = sleep(LOOK) => {}
            _ = stop.wait_for(|stop| *stop), if closing.is_none() => {
                connection.as_mut().graceful_shutdown();
                // requests under way have the drain timeout
                closing = Some(Instant::now());
                continue;
            }
        }
        match (activity.judge(), closing) {
            (ConnectionVerdict::Cut, _) => return,
            (ConnectionVerdict::Close, None) => {
                connection.as_mut().graceful_shutdown();
                closing = Some(Instant::now());
            }
            (ConnectionVerdict::Close, Some(since)) if since.elapsed() > CLOSING => return,
            (ConnectionVerdict::GoOn, _) | (ConnectionVerdict::Close, Some(_)) => {}
        }
    }
}

async fn answer(
    mut request: Request<Incoming>,
    peer: SocketAddr,
    live: Arc<RwLock<Arc<Live>>>,
    activity: Activity,
) -> Result<Response<Body>, Infallible> {
    let (asked, began) = (activity.asked(), Instant::now());
    let live = live.read().clone();
    let endpoint = endpoint(request.uri().path(), &live.path);
    // HTTP/2 has no bound of its own on the number of fields
    if request.headers().len() > FIELDS {
        let refused = refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        live.stats.answered(endpoint, refused.status().as_u16(), began.elapsed());
        return Ok(refused);
    }
    let caller = Caller(caller(peer.ip(), request.headers(), &live.trusted_proxies));
    request.extensions_mut().insert(caller);
    let answered = TowerToHyperService::new(live.router.clone()).call(request).await;
    drop(asked);
    if let Ok(response) = &answered {
        live.stats.answered(endpoint, response.status().as_u16(), began.elapsed());
    }
    answered
}

/// What metrics call a path.
fn endpoint(path: &str, issuer: &str) -> &'static str {
    // RFC 8414 section 3.1 puts its word before the issuer's path
    if path.starts_with("/.well-known/") {
        return "discovery";
    }
    match path.strip_prefix(issuer).unwrap_or_default() {
        discovery::AUTHORIZE => "authorize",
        discovery::TOKEN => "token",
        discovery::JWKS => "jwks",
        discovery::USERINFO => "userinfo",
        discovery::INTROSPECT => "introspect",
        discovery::REVOKE => "revoke",
        discovery::END_SESSION | discovery::LOGOUT_DECISION => "logout",
        discovery::PUSHED_REQUEST => "par",
        discovery::DEVICE_AUTHORIZATION => "device_authorization",
        discovery::DEVICE | discovery::DEVICE_DECISION => "device",
        discovery::LOGIN => "login",
        discovery::CONSENT => "consent",
        path if path.starts_with(discovery::ACCOUNT) => "account",
        path if path.starts_with("/coherence/") => "coherence",
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
