//! Collector client: the HTTP client that sends spans to the collector.
//!
//! Owns: the collector's URL and credentials, one persistent connection, classifying responses into
//! accepted, retry and refused. Does not follow redirects, so that credentials go only to the
//! configured host.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_engine::config::ServerConfig;
use http_engine::http_client::{CallError, ClientOptions, HttpClient, HttpResponse, HttpVersion};
use http_engine::outbound_proxy::OutboundProxies;
use prost::Message as _;
use rustls::pki_types::ServerName;
use tokio::runtime::Handle;

use super::otlp::ExportResponse;

/// Maximum length of a collector's response body in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// A collector: its URL and credentials.
#[derive(Clone)]
pub struct CollectorEndpoint {
    /// Host without brackets.
    host: Box<str>,
    port: u16,
    url: Uri,
    headers: HeaderMap,
    /// For `https` only.
    tls: Option<Arc<rustls::ClientConfig>>,
    proxies: OutboundProxies,
}

/// What is wrong with a collector's URL or headers. Names the faulty part, never a header's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// It is not a URL with a host.
    #[error("{0:?} is not a URL: use one like http://127.0.0.1:4318")]
    Url(Box<str>),
    /// The scheme is neither `http` nor `https`.
    #[error("{0:?} has an unsupported scheme: use http or https")]
    Scheme(Box<str>),
    /// The URL contains `@`: user name or password, or something similar.
    #[error("the collector's URL contains @: put credentials into a header instead")]
    UserInformation,
    /// The scheme is `https`, but no root certificates are configured.
    #[error("{0:?} needs TLS, but no certificate authorities are configured")]
    NoRoots(Box<str>),
    /// A header name or value that cannot be sent.
    #[error("header {0:?} of the collector cannot be sent: use another name or value")]
    Header(Box<str>),
}

/// Shows the URL without credentials; a query may contain them too.
impl fmt::Debug for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}{}", self.host, self.port, self.url.path())
    }
}

impl CollectorEndpoint {
    /// `url`: base URL at which the collector accepts OTLP over HTTP; `/v1/traces` is appended
    /// unless present. `headers`: sent with each request; their values are secret. `tls`: used for
    /// `https`.
    ///
    /// # Errors
    /// [`EndpointFault`] when the URL or a header is invalid.
    pub fn new(
        url: &str,
        headers: &[(String, String)],
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Self, EndpointFault> {
        // before any error shows the URL: it may contain a password
        if url.contains('@') {
            return Err(EndpointFault::UserInformation);
        }
        // a query may contain a key
        let shown = url.split('?').next().unwrap_or_default();
        let bad = || EndpointFault::Url(shown.into());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(EndpointFault::Scheme(shown.into())),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let tls = match (secure, tls) {
            (false, _) => None,
            (true, Some(config)) => Some(config),
            (true, None) => return Err(EndpointFault::NoRoots(shown.into())),
        };
        if tls.is_some() && ServerName::try_from(host).is_err() {
            return Err(bad()); // no certificate can contain it
        }
        let base = uri.path().trim_end_matches('/').trim_end_matches("/v1/traces");
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let scheme = if secure { "https" } else { "http" };
        let url: Uri = format!("{scheme}://{authority}{base}/v1/traces{query}").parse().map_err(|_| bad())?;
        let mut fields = HeaderMap::new();
        fields.insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        fields.insert(USER_AGENT, HeaderValue::from_static(concat!("postern/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in headers {
            let (name, value) = header(name, value)?;
            fields.insert(name, value);
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Self { host: host.into(), port, url, headers: fields, tls, proxies: OutboundProxies::default() })
    }

    /// The same, through proxies.
    #[must_use]
    pub fn through(self, proxies: OutboundProxies) -> Self {
        Self { proxies, ..self }
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), EndpointFault> {
    let fault = || EndpointFault::Header(name.into());
    let name: HeaderName = name.parse().map_err(|_| fault())?;
    if [HOST, CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name) {
        return Err(fault());
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| fault())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Result of sending a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CollectorAnswer {
    /// The collector accepted the batch, except for the rejected spans.
    Accepted {
        /// Number of spans that the collector rejected.
        rejected: u64,
    },
    /// The collector asks to retry later, after this time if it gave one.
    RetryLater(Option<Duration>),
    /// The collector refused the batch; a retry is pointless.
    Refused(StatusCode),
}

/// Client of one collector, with at most one connection.
pub(super) struct Client {
    endpoint: CollectorEndpoint,
    timeout: Duration,
    /// Made with the first batch, on the runtime that sends it.
    http: Option<HttpClient>,
}

impl Client {
    pub(super) fn new(endpoint: CollectorEndpoint, timeout: Duration) -> Self {
        Self { endpoint, timeout, http: None }
    }

    /// Posts one encoded `ExportTraceServiceRequest`.
    ///
    /// # Errors
    /// [`CallError`] when there is no complete response within the time limit.
    pub(super) async fn post(&mut self, body: Bytes) -> Result<CollectorAnswer, CallError> {
        let Self { endpoint, timeout, http } = self;
        let client = http.get_or_insert_with(|| {
            let server = ServerConfig::anonymous(endpoint.tls.clone(), endpoint.proxies.clone());
            let options = ClientOptions {
                max_body: MAX_RESPONSE_BYTES,
                idle_connections: 1,
                version: HttpVersion::Http1,
                ..ClientOptions::default()
            };
            HttpClient::with_options(
                &ServerConfig { timeout: *timeout, ..server },
                options,
                Handle::current(),
            )
        });
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.url.clone();
        *request.headers_mut() = endpoint.headers.clone();
        Ok(interpret(&client.send(request).await?))
    }
}

/// Interprets a response (OTLP/HTTP): 200 with an optional partial success; 429, 502, 503 and 504
/// may be retried.
fn interpret(answer: &HttpResponse) -> CollectorAnswer {
    let retry_after = answer.headers.get(RETRY_AFTER);
    let later = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    match answer.status {
        StatusCode::OK => {
            // a 200 response that is not valid protobuf still means that the spans were accepted
            let response = ExportResponse::decode(answer.body.clone()).unwrap_or_default();
            let rejected = response.partial_success.map_or(0, |partial| partial.rejected_spans);
            CollectorAnswer::Accepted { rejected: u64::try_from(rejected).unwrap_or(0) }
        }
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => CollectorAnswer::RetryLater(later.map(Duration::from_secs)),
        other => CollectorAnswer::Refused(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<[String; 2], EndpointFault> {
        let endpoint = CollectorEndpoint::new(url, &[], None)?;
        Ok([format!("{endpoint:?}"), endpoint.url.path_and_query().unwrap().to_string()])
    }

    #[test]
    fn urls_of_collectors() {
        for (url, shown, target) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces", "/v1/traces"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/traces", "/v1/traces"),
            ("http://otel/api/?key=secret", "http://otel:80/api/v1/traces", "/api/v1/traces?key=secret"),
            ("http://otel/v1/traces", "http://otel:80/v1/traces", "/v1/traces"),
        ] {
            assert_eq!(endpoint(url).unwrap(), [shown, target], "{url}");
        }
    }

    #[test]
    fn faults_of_collectors() {
        for url in ["", "/v1/traces", "http://", "http://a b"] {
            assert_eq!(endpoint(url), Err(EndpointFault::Url(url.into())), "{url}");
        }
        assert_eq!(endpoint("ftp://a"), Err(EndpointFault::Scheme("ftp://a".into())));
        assert_eq!(endpoint("https://a?key=secret"), Err(EndpointFault::NoRoots("https://a".into())));
        for url in ["http://user:secret@a/", "http:/user:secret@a", "user:secret@a"] {
            assert_eq!(endpoint(url), Err(EndpointFault::UserInformation));
        }
        for (name, value) in [("a b", "x"), ("x", "a\nb"), ("Host", "x"), ("content-length", "1")] {
            let headers = [(name.to_owned(), value.to_owned())];
            assert_eq!(
                CollectorEndpoint::new("http://a", &headers, None).unwrap_err(),
                EndpointFault::Header(name.into()),
                "{name}"
            );
        }
    }

    #[test]
    fn credentials_are_not_printed() {
        let headers = [("authorization".to_owned(), "Bearer s3cret".to_owned())];
        let endpoint = CollectorEndpoint::new("http://a", &headers, None).unwrap();
        assert!(!format!("{endpoint:?}").contains("s3cret"));
    }
}
