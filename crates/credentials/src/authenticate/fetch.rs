//! Fetch: a small HTTP client for key documents, off the request path.
//!
//! Owns: one GET over a fresh connection, within bounds. Does not own: the document's meaning, when
//! to fetch.
//!
//! It follows no redirect, sends no credential, and reads at most [`Bounds::bytes`]. The server is
//! trusted for its keys, but not to behave well.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, USER_AGENT,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use http_engine::dial::dial;
use http_engine::url::Url;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Limits of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Time limit for name resolution, connecting and the TLS handshake.
    pub connect: Duration,
    /// Time limit for the whole fetch.
    pub overall: Duration,
    /// Maximum bytes of the response body.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), overall: Duration::from_secs(5), bytes: 256 * 1024 }
    }
}

/// Why a document could not be fetched. Each message names the URL and what to check.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Name resolution or TCP failed.
    #[error("{url}: cannot connect: {error}; is it running, and may this host reach it?")]
    Connect {
        /// The requested URL.
        url: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The TLS handshake failed.
    #[error(
        "{url}: TLS handshake failed: {error}; does its certificate chain to the CA configured for this issuer?"
    )]
    Tls {
        /// The requested URL.
        url: String,
        /// Error of the TLS library.
        error: std::io::Error,
    },
    /// The connection or the response did not complete in time.
    #[error("{url}: no answer within {after:?}")]
    Timeout {
        /// The requested URL.
        url: String,
        /// The time limit that was reached.
        after: Duration,
    },
    /// The server answered with a redirect.
    #[error(
        "{url}: answered {status} towards {location:?}; redirects are not followed, configure the final URL"
    )]
    Redirect {
        /// The requested URL.
        url: String,
        /// The status of the response.
        status: StatusCode,
        /// The `Location` of the response, shortened.
        location: String,
    },
    /// The status is neither 200 nor a redirect.
    #[error("{url}: answered {status}; expected 200")]
    Status {
        /// The requested URL.
        url: String,
        /// The status of the response.
        status: StatusCode,
    },
    /// The response is not a JSON document.
    #[error(
        "{url}: answered {found}, not a JSON document; is there a login page or another service at this URL?"
    )]
    NotJson {
        /// The requested URL.
        url: String,
        /// Content type or coding of the response, shortened.
        found: String,
    },
    /// The body is longer than allowed.
    #[error("{url}: the document is larger than {limit} bytes")]
    TooLarge {
        /// The requested URL.
        url: String,
        /// The size limit in bytes.
        limit: usize,
    },
    /// The URL does not form a valid request.
    #[error("{url}: cannot be asked for: {error}")]
    Request {
        /// The requested URL.
        url: String,
        /// Error of the HTTP library.
        error: http::Error,
    },
    /// The peer violated HTTP/1.1 or broke the connection.
    #[error("{url}: the answer broke off or is not HTTP/1.1: {error}")]
    Http {
        /// The requested URL.
        url: String,
        /// Error of the HTTP library.
        error: hyper::Error,
    },
}

/// Fetches a JSON document with GET.
///
/// # Errors
/// See [`FetchError`]; nothing is retried here.
pub(super) async fn get(
    url: &Url,
    tls: Option<&Arc<ClientConfig>>,
    bounds: Bounds,
) -> Result<Bytes, FetchError> {
    let exchange = async {
        let connected = tokio::time::timeout(bounds.connect, connect(url, tls));
        match connected.await.map_err(|_| timeout(url, bounds.connect))?? {
            Stream::Plain(stream) => exchange(url, stream, bounds).await,
            Stream::Tls(stream) => exchange(url, stream, bounds).await,
        }
    };
    tokio::time::timeout(bounds.overall, exchange).await.map_err(|_| timeout(url, bounds.overall))?
}

fn timeout(url: &Url, after: Duration) -> FetchError {
    FetchError::Timeout { url: url.to_string(), after }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn connect(url: &Url, tls: Option<&Arc<ClientConfig>>) -> Result<Stream, FetchError> {
    let stream =
        dial(url.endpoint()).await.map_err(|error| FetchError::Connect { url: url.to_string(), error })?;
    if !url.is_https() {
        return Ok(Stream::Plain(stream));
    }
    let refused = |error| FetchError::Tls { url: url.to_string(), error };
    let no = |what: &str| refused(std::io::Error::other(what.to_owned()));
    let tls = tls.ok_or_else(|| no("no trusted CA is known"))?;
    let name = url.server_name().ok_or_else(|| no("its host cannot be in any certificate"))?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(refused)?;
    Ok(Stream::Tls(Box::new(stream)))
}

/// Drives the connection and the request in one task: dropping this future drops the connection.
async fn exchange<S>(url: &Url, stream: S, bounds: Bounds) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error| FetchError::Http { url: url.to_string(), error };
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(100)
        .max_buf_size(64 * 1024)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = Request::get(url.target())
        .header(HOST, url.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "postern")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchError::Request { url: url.to_string(), error })?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        check(url, &response, bounds)?;
        read(url, response.into_body(), bounds).await
    };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection ends first when the peer closes right after its response, or fails.
        _ = connection => answer.await,
    }
}

fn check(url: &Url, response: &Response<Incoming>, bounds: Bounds) -> Result<(), FetchError> {
    let status = response.status();
    let headers = response.headers();
    if status.is_redirection() {
        let location = shown(headers, &LOCATION);
        return Err(FetchError::Redirect { url: url.to_string(), status, location });
    }
    if status != StatusCode::OK {
        return Err(FetchError::Status { url: url.to_string(), status });
    }
    let length =
        headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if length.is_some_and(|length| length > bounds.bytes as u64) {
        return Err(FetchError::TooLarge { url: url.to_string(), limit: bounds.bytes });
    }
    for name in [&CONTENT_ENCODING, &CONTENT_TYPE] {
        let value = shown(headers, name).to_ascii_lowercase();
        let plausible = if name == CONTENT_ENCODING {
            value.is_empty() || value == "identity"
        } else {
            // Many providers label their key sets incorrectly; only an HTML page or the like is the
            // mistake to detect.
            !value.contains("html") && !value.starts_with("image/") && !value.starts_with("multipart/")
        };
        if !plausible {
            return Err(FetchError::NotJson { url: url.to_string(), found: value });
        }
    }
    Ok(())
}

/// A field's value, sanitized for a message.
fn shown(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let value = headers.get(name).map_or(&b""[..], http::HeaderValue::as_bytes);
    String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).take(200).collect()
}

async fn read(url: &Url, mut body: Incoming, bounds: Bounds) -> Result<Bytes, FetchError> {
    let mut document = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| FetchError::Http { url: url.to_string(), error })?;
        if let Ok(data) = frame.into_data() {
            if document.len() + data.len() > bounds.bytes {
                return Err(FetchError::TooLarge { url: url.to_string(), limit: bounds.bytes });
            }
            document.extend_from_slice(&data);
        }
    }
    Ok(document.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const BOUNDS: Bounds =
        Bounds { connect: Duration::from_secs(10), overall: Duration::from_secs(10), bytes: 1000 };

    /// Sends `answer` to the first request and returns that request.
    async fn exchange_with(answer: &[u8], bounds: Bounds) -> (Result<Bytes, FetchError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/keys?v=1", listener.local_addr().unwrap())).unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        tokio::join!(get(&url, None, bounds), serve)
    }

    async fn refused(answer: &str) -> FetchError {
        exchange_with(answer.as_bytes(), BOUNDS).await.0.unwrap_err()
    }

    #[tokio::test]
    async fn a_document_is_asked_for_without_credentials_and_read() {
        let answers = [
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n{}",
        ];
        for answer in answers {
            let (document, request) = exchange_with(answer.as_bytes(), BOUNDS).await;
            assert_eq!(document.unwrap(), "{}");
            let mut lines: Vec<_> = request.trim_end().lines().collect();
            assert_eq!(lines.remove(0), "GET /keys?v=1 HTTP/1.1");
            let names: Vec<_> = lines.iter().filter_map(|line| line.split(':').next()).collect();
            assert_eq!(names, ["host", "accept", "user-agent", "connection"]);
        }
    }

    #[tokio::test]
    async fn redirects_are_not_followed() {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let location = format!("http://{}/", target.local_addr().unwrap());
        for status in [301, 302, 303, 307, 308] {
            let answer = format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            let error = refused(&answer).await;
            assert!(matches!(error, FetchError::Redirect { .. }), "{error}");
            assert!(error.to_string().contains(&location));
        }
        let target = target.into_std().unwrap();
        assert_eq!(target.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn only_200_with_a_plausible_type_counts() {
        for status in [201, 204, 400, 401, 404, 500, 503] {
            let error = refused(&format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n")).await;
            assert!(matches!(error, FetchError::Status { status: s, .. } if s == status), "{error}");
        }
        for field in
            ["content-type: text/html; charset=utf-8", "content-encoding: gzip", "content-type: Image/PNG"]
        {
            let error = refused(&format!("HTTP/1.1 200 X\r\n{field}\r\ncontent-length: 2\r\n\r\n{{}}")).await;
            assert!(matches!(error, FetchError::NotJson { .. }), "{field}: {error}");
        }
    }

    #[tokio::test]
    async fn a_document_is_read_to_its_bound_and_no_further() {
        let of = |length: usize| {
            format!("HTTP/1.1 200 X\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length))
        };
        assert_eq!(exchange_with(of(1000).as_bytes(), BOUNDS).await.0.unwrap().len(), 1000);
        assert!(matches!(refused(&of(1001)).await, FetchError::TooLarge { limit: 1000, .. }));
        let endless = format!("HTTP/1.1 200 X\r\n\r\n{}", "x".repeat(1001));
        assert!(matches!(refused(&endless).await, FetchError::TooLarge { .. }));
        let fields = "x: y\r\n".repeat(101);
        assert!(matches!(
            refused(&format!("HTTP/1.1 200 X\r\n{fields}\r\n{{}}")).await,
            FetchError::Http { .. }
        ));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_no_document() {
        for answer in ["", "HTTP/1.1 200", "SSH-2.0-x\r\n", "HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{}"] {
            assert!(matches!(refused(answer).await, FetchError::Http { .. }), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn silence_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        // The kernel accepts for the listener, but no process answers.
        let bounds = Bounds { overall: Duration::from_millis(50), ..BOUNDS };
        let error = get(&url, None, bounds).await.unwrap_err();
        assert!(matches!(error, FetchError::Timeout { .. }) && error.to_string().contains("50ms"), "{error}");
    }

    #[tokio::test]
    async fn nobody_there_is_told_with_the_url() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        drop(listener);
        let error = get(&Url::parse(&url).unwrap(), None, BOUNDS).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Connect { .. }) && error.to_string().starts_with(&url),
            "{error}"
        );
    }
}
