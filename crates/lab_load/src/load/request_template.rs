//! Request template: the request line, header fields, body and bearer tokens of the load.
//!
//! Everything is formatted once, before the clock starts, so that sending is one write.
//!
//! Owns: the content of requests as bytes ready to send. Does not own: connections.

use std::fmt;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TE,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::random::{Random, TokenPicker};
use super::streams::{Exchange, StreamForm, StreamSettings, frame};
use super::target::Target;

/// Upper bound of all formatted requests together, in bytes. One request per token is kept in
/// memory.
const MAX_TOTAL_BYTES: usize = 1 << 30;

/// How a token is chosen from the population.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TokenChoice {
    /// Each token in turn.
    RoundRobin,
    /// The k-th token with weight 1 / k^exponent: few users are busy, many are rare.
    Zipf(f64),
}

/// One request that is sent repeatedly.
#[derive(Clone)]
pub struct RequestTemplate {
    /// Method of the request.
    pub method: Method,
    /// Header fields except `host`, `content-length` and the `authorization` of the token.
    pub headers: HeaderMap,
    /// Content; empty for a request without a body.
    pub body: Bytes,
    /// Bearer tokens; empty for requests without a credential.
    pub tokens: Vec<String>,
    /// How a token is chosen for each request.
    pub choice: TokenChoice,
    /// Reuses the HTTP/1.1 connection for further requests.
    pub keep_alive: bool,
    /// What follows the head of the request. [`RequestTemplate::of_exchange`] has the fields that
    /// it needs.
    pub exchange: Exchange,
}

/// Why a request template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RequestTemplateError {
    /// The token contains bytes that a header field must not carry. Holds its number, from 1.
    #[error("token number {0} holds bytes that a header field cannot carry")]
    Token(usize),
    /// Number of tokens × size of a request exceeds the memory bound.
    #[error("{tokens} requests of {size} bytes would take more than {} MiB; use fewer tokens", MAX_TOTAL_BYTES >> 20)]
    Memory {
        /// Number of tokens, at least 1.
        tokens: usize,
        /// Size of one formatted request in bytes.
        size: usize,
    },
    /// A header field that the load generator writes itself.
    #[error("header `{0}` is set by the load generator and cannot be overridden")]
    Field(HeaderName),
    /// The Zipf exponent is not a number from 0 to 10.
    #[error("the Zipf exponent {0} is not a number from 0 to 10")]
    Exponent(f64),
}

/// Omits tokens and header values, because they are secrets.
impl fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shape = f.debug_struct("RequestTemplate");
        shape
            .field("method", &self.method)
            .field("body", &self.body.len())
            .field("tokens", &self.tokens.len());
        shape.field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl RequestTemplate {
    /// Creates a `GET` without tokens on kept-alive connections.
    pub fn get() -> Self {
        Self {
            method: Method::GET,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            tokens: Vec::new(),
            choice: TokenChoice::RoundRobin,
            keep_alive: true,
            exchange: Exchange::Request,
        }
    }

    /// Creates the request that begins this exchange. `seed` is that of the run.
    pub fn of_exchange(exchange: Exchange, seed: u64) -> Self {
        let mut template = Self::get();
        let headers = &mut template.headers;
        match &exchange {
            Exchange::Request | Exchange::Stream(StreamSettings { form: StreamForm::Lines, .. }) => {}
            Exchange::Stream(StreamSettings { form: StreamForm::ServerSentEvents, .. }) => {
                headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            }
            Exchange::Stream(StreamSettings { form: StreamForm::Grpc, .. }) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert(TE, HeaderValue::from_static("trailers"));
                template.method = Method::POST;
                // One empty message: a flag and a length of 0.
                template.body = Bytes::from_static(&[0; 5]);
            }
            // All handshakes of a run have one key: it protects from caches, which the lab has none
            // of.
            Exchange::WebSocket(_) => {
                let key = frame::key(&mut Random::new(seed));
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).expect("base64 is ASCII"));
            }
        }
        Self { exchange, ..template }
    }

    /// Value of `Sec-WebSocket-Accept` that accepts the handshake of a WebSocket; empty without one.
    pub(crate) fn websocket_accept(&self) -> String {
        let key = self.headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
        key.map(frame::accept).unwrap_or_default()
    }

    /// Whether the response has no content, whatever its header fields say (RFC 9110 §9.3.2).
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    pub(crate) fn pick(&self, random: Random) -> TokenPicker {
        let count = self.tokens.len().max(1);
        match self.choice {
            TokenChoice::RoundRobin => TokenPicker::round_robin(count),
            TokenChoice::Zipf(exponent) => TokenPicker::zipf(count, exponent, random),
        }
    }

    /// Checks what the types do not guarantee: sizes, token bytes, and header fields that the
    /// caller must not set.
    pub(crate) fn check(&self, target: &Target) -> Result<(), RequestTemplateError> {
        for name in [HOST, CONTENT_LENGTH, http::header::TRANSFER_ENCODING, http::header::CONNECTION] {
            if self.headers.contains_key(&name) {
                return Err(RequestTemplateError::Field(name));
            }
        }
        if let TokenChoice::Zipf(exponent) = self.choice
            && !(0.0..=10.0).contains(&exponent)
        {
            return Err(RequestTemplateError::Exponent(exponent));
        }
        for (index, token) in self.tokens.iter().enumerate() {
            HeaderValue::from_str(token).map_err(|_| RequestTemplateError::Token(index + 1))?;
        }
        let longest = self.tokens.iter().map(String::len).max().unwrap_or(0);
        let size = longest + self.head(target, None).len() + self.body.len();
        let tokens = self.tokens.len().max(1);
        if size.saturating_mul(tokens) > MAX_TOTAL_BYTES {
            Err(RequestTemplateError::Memory { tokens, size })
        } else {
            Ok(())
        }
    }

    /// The requests as HTTP/1.1 bytes (RFC 9112), one per token.
    pub(crate) fn http1(&self, target: &Target) -> Vec<Box<[u8]>> {
        self.variants(|token| {
            let mut bytes = self.head(target, token);
            bytes.extend_from_slice(&self.body);
            bytes.into_boxed_slice()
        })
    }

    /// The requests as HTTP/2 heads (RFC 9113), one per token.
    pub(crate) fn http2(&self, target: &Target) -> Vec<Request<()>> {
        let scheme = if target.is_tls() { "https" } else { "http" };
        let uri: Uri =
            format!("{scheme}://{}{}", target.authority, target.path).parse().expect("parts of a parsed URL");
        self.variants(|token| {
            let mut request = Request::new(());
            *request.method_mut() = self.method.clone();
            *request.uri_mut() = uri.clone();
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().clone_from(&self.headers);
            if let Some(token) = token {
                let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("tokens were checked");
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            if self.has_content() {
                request.headers_mut().insert(CONTENT_LENGTH, self.body.len().into());
            }
            request
        })
    }

    fn variants<T>(&self, build: impl Fn(Option<&str>) -> T) -> Vec<T> {
        if self.tokens.is_empty() {
            return vec![build(None)];
        }
        self.tokens.iter().map(|token| build(Some(token))).collect()
    }

    /// Whether a `content-length` is sent. Methods that carry content send one even for an empty
    /// body (RFC 9110 §8.6).
    fn has_content(&self) -> bool {
        !self.body.is_empty() || matches!(self.method, Method::POST | Method::PUT | Method::PATCH)
    }

    pub(crate) fn head(&self, target: &Target, token: Option<&str>) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", self.method, target.path, target.authority)
            .into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if let Some(token) = token {
            head.extend_from_slice(format!("authorization: Bearer {token}\r\n").as_bytes());
        }
        if self.has_content() {
            head.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        if let Exchange::WebSocket(_) = self.exchange {
            head.extend_from_slice(b"connection: Upgrade\r\n");
        } else if !self.keep_alive {
            head.extend_from_slice(b"connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::target::Protocol;

    fn target() -> Target {
        Target::new("http://127.0.0.1:80/x?y", Protocol::Http1, None, None, None).unwrap()
    }

    #[test]
    fn formats_one_request_per_token() {
        let mut flow = RequestTemplate::get();
        flow.tokens = vec!["one".to_owned(), "two".to_owned()];
        flow.headers.insert("accept", HeaderValue::from_static("*/*"));
        let requests = flow.http1(&target());
        assert_eq!(
            std::str::from_utf8(&requests[1]).unwrap(),
            "GET /x?y HTTP/1.1\r\nhost: 127.0.0.1:80\r\naccept: */*\r\nauthorization: Bearer two\r\n\r\n"
        );
        assert_eq!(requests.len(), 2);
        assert_eq!(flow.http2(&target())[0].headers()["authorization"], "Bearer one");
    }

    #[test]
    fn states_the_length_of_content_even_when_empty() {
        let mut flow = RequestTemplate { method: Method::POST, ..RequestTemplate::get() };
        assert!(flow.http1(&target())[0].ends_with(b"content-length: 0\r\n\r\n"));
        flow.body = Bytes::from_static(b"abc");
        assert!(flow.http1(&target())[0].ends_with(b"content-length: 3\r\n\r\nabc"));
        assert_eq!(flow.http2(&target())[0].headers()["content-length"], "3");
        assert!(!RequestTemplate::get().http2(&target())[0].headers().contains_key("content-length"));
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let mut flow = RequestTemplate { tokens: vec!["sesame".to_owned()], ..RequestTemplate::get() };
        flow.headers.insert("cookie", HeaderValue::from_static("sesame"));
        assert!(!format!("{flow:?}").contains("sesame"));
    }

    #[test]
    fn refuses_what_would_break_the_request() {
        let refuse = |change: fn(&mut RequestTemplate)| {
            let mut flow = RequestTemplate::get();
            change(&mut flow);
            flow.check(&target()).unwrap_err()
        };
        assert!(matches!(
            refuse(|flow| flow.tokens = vec!["a\r\nb: c".to_owned()]),
            RequestTemplateError::Token(1)
        ));
        assert!(matches!(
            refuse(|flow| drop(flow.headers.insert(HOST, HeaderValue::from_static("x")))),
            RequestTemplateError::Field(HOST)
        ));
        assert!(matches!(
            refuse(|flow| flow.choice = TokenChoice::Zipf(f64::NAN)),
            RequestTemplateError::Exponent(_)
        ));
        assert!(matches!(
            refuse(|flow| {
                flow.tokens = vec![String::new(); 2048];
                flow.body = Bytes::from(vec![0; 1 << 20]);
            }),
            RequestTemplateError::Memory { tokens: 2048, .. }
        ));
    }
}
