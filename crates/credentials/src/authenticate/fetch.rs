//! Fetch: gets a key document, off the request path.
//!
//! Owns: one GET over a new connection within [`Bounds`], and the check that the response is a JSON
//! document. Does not own: the HTTP client, the document's meaning, when to fetch.
//!
//! The request carries no credential. The server is trusted for its keys, but not to behave well.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_engine::config::ServerConfig;
use http_engine::http_client::{CallError, ClientOptions, HttpClient, HttpResponse, HttpVersion};
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::url::Url;
use rustls::ClientConfig;
use tokio::runtime::Handle;

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
        error: String,
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
    #[error("{url}: not a valid request: {error}")]
    Request {
        /// The requested URL.
        url: String,
        /// Error of the HTTP library.
        error: http::Error,
    },
    /// The peer violated HTTP/1.1 or broke the connection.
    #[error("{url}: the response was cut off or is not HTTP/1.1: {error}")]
    Http {
        /// The requested URL.
        url: String,
        /// Error of the HTTP library.
        error: String,
    },
}

impl FetchError {
    fn of_call(url: &Url, error: CallError) -> Self {
        let url = url.to_string();
        match error {
            CallError::Connect(error) => Self::Connect { url, error },
            CallError::Tls(error) => Self::Tls { url, error },
            CallError::Timeout(after) => Self::Timeout { url, after },
            CallError::TooLarge(limit) => Self::TooLarge { url, limit },
            CallError::Exchange(error) => Self::Http { url, error },
            // Without a limit of requests, and without a credential.
            CallError::Busy(_)
            | CallError::Throttled(_)
            | CallError::ProxyCredentials(_)
            | CallError::Secret { .. }
            | CallError::NoSecret { .. } => Self::Http { url, error: error.to_string() },
        }
    }
}

/// Fetches a JSON document with GET.
///
/// # Errors
/// See [`FetchError`]; nothing is retried here.
pub(super) async fn get(
    url: &Url,
    tls: Option<&Arc<ClientConfig>>,
    proxies: &OutboundProxies,
    bounds: Bounds,
) -> Result<Bytes, FetchError> {
    let server = ServerConfig::anonymous(tls.cloned(), proxies.clone());
    let server = ServerConfig { timeout: bounds.overall, ..server };
    let options = ClientOptions {
        connect_timeout: Some(bounds.connect),
        max_body: bounds.bytes,
        idle_connections: 0,
        version: HttpVersion::Http1,
    };
    let request = Request::get(url.to_string())
        .header(HOST, url.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "postern")
        .header(CONNECTION, "close")
        .body(Bytes::new())
        .map_err(|error| FetchError::Request { url: url.to_string(), error })?;
    let client = HttpClient::with_options(&server, options, Handle::current());
    let answer = client.send(request).await.map_err(|error| FetchError::of_call(url, error))?;
    check(url, &answer)?;
    Ok(answer.body)
}

fn check(url: &Url, answer: &HttpResponse) -> Result<(), FetchError> {
    let (status, headers) = (answer.status, &answer.headers);
    if status.is_redirection() {
        let location = sanitized_field(headers, &LOCATION);
        return Err(FetchError::Redirect { url: url.to_string(), status, location });
    }
    if status != StatusCode::OK {
        return Err(FetchError::Status { url: url.to_string(), status });
    }
    for name in [&CONTENT_ENCODING, &CONTENT_TYPE] {
        let value = sanitized_field(headers, name).to_ascii_lowercase();
        let plausible = if name == CONTENT_ENCODING {
            value.is_empty() || value == "identity"
        } else {
            // Many providers send key sets with a wrong type; an HTML page is the error to detect.
            !value.contains("html") && !value.starts_with("image/") && !value.starts_with("multipart/")
        };
        if !plausible {
            return Err(FetchError::NotJson { url: url.to_string(), found: value });
        }
    }
    Ok(())
}

/// A field's value, sanitized for a message.
fn sanitized_field(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let value = headers.get(name).map_or(&b""[..], http::HeaderValue::as_bytes);
    String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).take(200).collect()
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
        let direct = OutboundProxies::default();
        tokio::join!(get(&url, None, &direct, bounds), serve)
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
        let error = get(&url, None, &OutboundProxies::default(), bounds).await.unwrap_err();
        assert!(matches!(error, FetchError::Timeout { .. }) && error.to_string().contains("50ms"), "{error}");
    }

    #[tokio::test]
    async fn nobody_there_is_told_with_the_url() {
        let url = "http://127.0.0.1:1/keys";
        let error =
            get(&Url::parse(url).unwrap(), None, &OutboundProxies::default(), BOUNDS).await.unwrap_err();
        assert!(matches!(error, FetchError::Connect { .. }) && error.to_string().starts_with(url), "{error}");
    }
}
