//! Errors of the HTTP client: why a request got no response.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy;

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The limit of requests in flight is reached.
    #[error("{0} requests in flight, the limit of `max_requests`")]
    Busy(usize),
    /// The limit of requests per second is reached.
    #[error("{0} requests within a second, the limit of `max_per_second`")]
    Throttled(u32),
    /// The file with the process's credential cannot be read.
    #[error("{path}: cannot be read: {error}; check the path and that this user may read it")]
    Secret {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file with the process's credential contains no usable secret.
    #[error("{path}: no usable secret: {why}")]
    NoSecret {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with its content.
        why: &'static str,
    },
    /// Name resolution, TCP or the proxy failed.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The proxy wants credentials, or other ones.
    #[error("the proxy {0} requires credentials (407); write them into the proxy's URL")]
    ProxyCredentials(String),
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// The server broke the connection or the protocol.
    #[error("request failed: {0}")]
    Exchange(String),
    /// The response did not arrive in time.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The response body is larger than this number of bytes.
    #[error("response larger than {0} bytes")]
    TooLarge(usize),
}

impl CallError {
    /// Tells connecting, TLS and the exchange apart.
    pub(super) fn from_client(error: &legacy::Error) -> Self {
        if !error.is_connect() {
            return Self::Exchange(with_sources(error));
        }
        let mut source = error.source();
        while let Some(inner) = source {
            if let Some(tls) = tls_error(inner) {
                return Self::Tls(tls.to_string());
            }
            if let Some(io) = inner.downcast_ref::<io::Error>() {
                return Self::Connect(io::Error::new(io.kind(), io.to_string()));
            }
            source = inner.source();
        }
        Self::Connect(io::Error::other(with_sources(error)))
    }
}

/// The TLS library's error. It is wrapped in I/O errors, whose `source` passes over what they wrap.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls);
    }
    tls_error(error.downcast_ref::<io::Error>()?.get_ref()?)
}

/// The error with all its sources: the outermost alone is only "client error".
pub(super) fn with_sources(error: &dyn Error) -> String {
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
