//! Admin listener: serves health, metrics and the configuration to operators.
//!
//! Owns: a small HTTP/1.1 server with five paths. Does not own: the content; the binary passes
//! closures ([`Admin`]).
//!
//! It runs on the control runtime, apart from the workers, and a gateway that is too busy to serve
//! requests still answers here. A scrape has a thread of its own with the lowest priority, because a
//! large cluster has megabytes of metrics: it delays neither a request nor other work of the control
//! thread, such as a login.
//!
//! hyper serves it: five paths need no router, and the span exporter already depends on hyper.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use outage::Outage;
use telemetry::metrics::{Exposition, Metrics};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::sleep;

/// Maximum number of open connections; a scraper, a kubelet and a person need a handful.
const CONNECTIONS: usize = 64;
/// Time limit from the first byte of a head to its end; also the idle limit of a kept-alive
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection: a client that does not read its response is disconnected.
const LIFETIME: Duration = Duration::from_mins(5);
/// Pause after a failed accept (no descriptor left) before the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for open responses to finish once the listener is stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Returns the reasons why a check fails, one line each. Empty: the check passes.
pub type Check = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Content of the admin listener.
pub struct Admin {
    /// `/livez`: reasons to restart the process.
    pub live: Check,
    /// `/readyz`: reasons not to send requests here, such as "starting", "draining" or an issuer
    /// without keys.
    pub ready: Check,
    /// Degraded dependencies of a gateway that still serves requests: appended to `/readyz`.
    pub notes: Check,
    /// `/metrics`: counters since the start of the process.
    pub metrics: Arc<Metrics>,
    /// `/debug/config`: the configuration in use without its secrets, as text.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// `/debug/revocation`: the state of all issuers whose revocation log is followed, as JSON.
    pub followed_issuers: Box<dyn Fn() -> String + Send + Sync>,
}

/// Serves until `stop` is ready, then finishes open responses (at most a second) and returns.
///
/// On a loopback address it answers only requests whose `Host` is an IP address or `localhost`.
/// This stops DNS rebinding: a web page in the operator's browser that points its own name at
/// 127.0.0.1 reads nothing.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, stop: impl Future<Output = ()>) {
    let local_only = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // One scrape at a time: those of several scrapers take no more than one core.
    let scrapes = Arc::new(Semaphore::new(1));
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    let outage = Outage::new("admin listener");
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => {
                outage.succeeded();
                stream
            }
            Err(error) => {
                outage.failed(error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Over the limit: close at once.
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (stopped, service) =
            (stopped.clone(), Service { admin: admin.clone(), scrapes: scrapes.clone(), local_only });
        tokio::spawn(async move {
            connection(stream, service, stopped).await;
            drop(permit);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    // All permits are back: no connection is being served any more.
    let everyone = room.acquire_many(u32::try_from(CONNECTIONS).unwrap_or(u32::MAX));
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, everyone).await;
}

/// What answers the requests of a connection.
struct Service {
    admin: Arc<Admin>,
    scrapes: Arc<Semaphore>,
    local_only: bool,
}

async fn connection(stream: TcpStream, service: Service, mut stopped: watch::Receiver<bool>) {
    let service = service_fn(|request| {
        let answer = respond(&request, &service.admin, service.local_only);
        let (metrics, scrapes) = (service.admin.metrics.clone(), service.scrapes.clone());
        async move {
            Ok::<_, Infallible>(match answer {
                Answer::Ready(response) => response,
                Answer::Metrics(exposition) => scrape(metrics, &scrapes, exposition).await,
            })
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(100)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        // Scrapers often break connections; this is not worth a log line.
        _ = &mut serving => return,
        () = sleep(LIFETIME) => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, serving).await;
}

/// The answer to a request.
enum Answer {
    Ready(Response<Full<Bytes>>),
    /// The metrics, which take time to write.
    Metrics(Exposition),
}

impl Answer {
    fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::Ready(text(status, body))
    }
}

fn respond(request: &Request<Incoming>, admin: &Admin, local_only: bool) -> Answer {
    if local_only && !host_is_local(request) {
        return Answer::text(StatusCode::MISDIRECTED_REQUEST, "use an address or localhost\n");
    }
    let answer: fn(&Request<Incoming>, &Admin) -> Answer = match request.uri().path() {
        "/livez" => |_, admin| Answer::Ready(check_response(&(admin.live)(), "live\n", &[])),
        "/readyz" => |_, admin| Answer::Ready(check_response(&(admin.ready)(), "ready\n", &(admin.notes)())),
        "/metrics" => |request, _| Answer::Metrics(accepted_exposition(request)),
        "/debug/config" => |_, admin| Answer::text(StatusCode::OK, (admin.config)()),
        "/debug/revocation" => |_, admin| {
            let mut response = text(StatusCode::OK, (admin.followed_issuers)());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Answer::Ready(response)
        },
        _ => {
            let hint = "try /livez, /readyz, /metrics, /debug/config or /debug/revocation\n";
            return Answer::text(StatusCode::NOT_FOUND, hint);
        }
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Answer::Ready(response);
    }
    // For HEAD, hyper sends the head of the same response.
    answer(request, admin)
}

fn check_response(reasons: &[String], fine: &str, notes: &[String]) -> Response<Full<Bytes>> {
    // One line each, even if a text contains control characters.
    let lines = |texts: &[String]| {
        texts.iter().map(|text| text.replace(char::is_control, " ") + "\n").collect::<String>()
    };
    match reasons {
        [] => text(StatusCode::OK, fine.to_owned() + &lines(notes)),
        reasons => text(StatusCode::SERVICE_UNAVAILABLE, lines(reasons) + &lines(notes)),
    }
}

/// The format of metrics that a request prefers.
fn accepted_exposition(request: &Request<Incoming>) -> Exposition {
    let fields: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok()).collect();
    Exposition::negotiate((!fields.is_empty()).then(|| fields.join(",")).as_deref())
}

/// The metrics, written on a thread of their own.
async fn scrape(metrics: Arc<Metrics>, scrapes: &Semaphore, exposition: Exposition) -> Response<Full<Bytes>> {
    let unavailable = |why: &'static str| text(StatusCode::SERVICE_UNAVAILABLE, why);
    let Ok(_turn) = scrapes.acquire().await else { return unavailable("the listener stops\n") };
    let (sender, written) = oneshot::channel();
    // A scraper that is gone needs no metrics.
    let write = move || drop(sender.send(metrics.expose(exposition)));
    if std::thread::Builder::new().name("scrape".into()).spawn(write).is_err() {
        return unavailable("no thread can be started for the metrics\n");
    }
    let Ok(body) = written.await else { return unavailable("the metrics could not be written\n") };
    let mut response = text(StatusCode::OK, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(exposition.content_type()));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether the only `Host` field is an IP address or `localhost`, with or without a port.
fn host_is_local(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => is_local_host(host),
        _ => false,
    }
}

fn is_local_host(host: &str) -> bool {
    let is_address = host.parse::<SocketAddr>().is_ok()
        || host.parse::<IpAddr>().is_ok()
        || host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .is_some_and(|h| h.parse::<IpAddr>().is_ok());
    let name = match host.split_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    is_address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_no_web_page_can_have() {
        for host in ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "[::1]", "localhost", "LocalHost:80"] {
            assert!(is_local_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
        ] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
