//! The operator's listener: health, metrics, configuration.
//!
//! Owns: a small HTTP/1.1 server with five paths. Does not own: what they say; the binary hands in closures
//! ([`Admin`]). It runs on the control runtime, beside the workers: a scrape never stands in a request's way,
//! and a gateway too busy to serve still answers here.
//!
//! hyper serves it: five answers need no router, and the span exporter brings hyper in already.

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
use telemetry::metrics::{Format, Metrics};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// Connections at once; a scraper, a kubelet and a person need a handful.
const CONNECTIONS: usize = 64;
/// First byte of a head to its end; also how long a kept connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection: a client that does not read its answer is cut off.
const LIFETIME: Duration = Duration::from_mins(5);
/// After a failed accept (no descriptor left) wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Open answers may still be finished for so long once the listener is stopped.
const FAREWELL: Duration = Duration::from_secs(1);

/// Reasons why something is not as it should be, one line each; none: it is.
pub type Check = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// What the listener answers with.
pub struct Admin {
    /// Reasons to restart the process: `/livez`.
    pub live: Check,
    /// Reasons not to send requests here, such as "starting", "draining" or an issuer without keys: `/readyz`.
    pub ready: Check,
    /// What is not as it should be although requests are welcome: told with the rest of `/readyz`.
    pub notes: Check,
    /// Counted since the start: `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The configuration in use without its secrets, as text: `/debug/config`.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// How the issuers stand that are followed, as JSON: `/debug/followed`.
    pub followed: Box<dyn Fn() -> String + Send + Sync>,
}

/// Serves until `stop` is ready, then finishes answers under way (at most a second) and returns.
///
/// On a loopback address only requests whose `Host` is an address or `localhost` are answered: a web page in
/// the operator's browser that points its own name at 127.0.0.1 reads nothing.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, stop: impl Future<Output = ()>) {
    let local_only = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    let outage = Outage::of("admin listener");
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
        // over the limit: closed at once
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (admin, stopped) = (Arc::clone(&admin), stopped.clone());
        tokio::spawn(async move {
            connection(stream, admin, local_only, stopped).await;
            drop(permit);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    // all permits back: nobody is being served any more
    let everyone = room.acquire_many(u32::try_from(CONNECTIONS).unwrap_or(u32::MAX));
    let _ = tokio::time::timeout(FAREWELL, everyone).await;
}

async fn connection(
    stream: TcpStream,
    admin: Arc<Admin>,
    local_only: bool,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(|request| {
        let response = respond(&request, &admin, local_only);
        async { Ok::<_, Infallible>(response) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(100)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        // broken connections of scrapers are no news
        _ = &mut serving => return,
        () = sleep(LIFETIME) => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(FAREWELL, serving).await;
}

fn respond(request: &Request<Incoming>, admin: &Admin, local_only: bool) -> Response<Full<Bytes>> {
    if local_only && !host_is_local(request) {
        return text(StatusCode::MISDIRECTED_REQUEST, "use an address or localhost\n");
    }
    let answer: fn(&Request<Incoming>, &Admin) -> Response<Full<Bytes>> = match request.uri().path() {
        "/livez" => |_, admin| checked(&(admin.live)(), "live\n", &[]),
        "/readyz" => |_, admin| checked(&(admin.ready)(), "ready\n", &(admin.notes)()),
        "/metrics" => metrics,
        "/debug/config" => |_, admin| text(StatusCode::OK, (admin.config)()),
        "/debug/followed" => |_, admin| {
            let mut response = text(StatusCode::OK, (admin.followed)());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        },
        _ => {
            let hint = "try /livez, /readyz, /metrics, /debug/config or /debug/followed\n";
            return text(StatusCode::NOT_FOUND, hint);
        }
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    // to HEAD hyper sends the head of the same answer
    answer(request, admin)
}

fn checked(reasons: &[String], fine: &str, notes: &[String]) -> Response<Full<Bytes>> {
    // one line each, whatever a text contains
    let lines = |texts: &[String]| {
        texts.iter().map(|text| text.replace(char::is_control, " ") + "\n").collect::<String>()
    };
    match reasons {
        [] => text(StatusCode::OK, fine.to_owned() + &lines(notes)),
        reasons => text(StatusCode::SERVICE_UNAVAILABLE, lines(reasons) + &lines(notes)),
    }
}

fn metrics(request: &Request<Incoming>, admin: &Admin) -> Response<Full<Bytes>> {
    let fields: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok()).collect();
    let format = Format::negotiate((!fields.is_empty()).then(|| fields.join(",")).as_deref());
    let mut response = text(StatusCode::OK, admin.metrics.render(format));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
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

/// Whether the one `Host` is an IP address or `localhost`, with or without port.
fn host_is_local(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => names_local(host),
        _ => false,
    }
}

fn names_local(host: &str) -> bool {
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
            assert!(names_local(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
        ] {
            assert!(!names_local(host), "{host}");
        }
    }
}
