//! Credential: how the process authenticates to a server, with a secret from a file.
//!
//! Owns: reading the file, again after [`SECRET_MAX_AGE`] and after a 401, and adding the
//! credential to a request. Does not own: which file (configuration), the connection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use outage::Outage;
use parking_lot::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::CallError;
use crate::config::ClientCredential;

/// Age after which the file of a secret is read again.
const SECRET_MAX_AGE: Duration = Duration::from_secs(10);
/// Maximum size of a file with a secret, in bytes.
const MAX_SECRET: u64 = 64 * 1024;

/// The configured credential, with the secret last read.
pub(super) struct Credential {
    configured: ClientCredential,
    secret: Mutex<Option<CachedSecret>>,
    /// How a [`ClientCredential::Discovered`] is sent.
    method: AtomicSecretMethod,
    /// Health of the file that the secret is read from.
    file: Outage,
}

/// Where a client's secret is sent (RFC 6749 section 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretMethod {
    /// In the `Authorization` field.
    Basic,
    /// In the form.
    Post,
}

/// A [`SecretMethod`] that can change.
#[derive(Default)]
struct AtomicSecretMethod {
    is_post: AtomicBool,
}

impl AtomicSecretMethod {
    fn get(&self) -> SecretMethod {
        if self.is_post.load(Relaxed) { SecretMethod::Post } else { SecretMethod::Basic }
    }

    fn set(&self, method: SecretMethod) {
        self.is_post.store(method == SecretMethod::Post, Relaxed);
    }
}

/// A secret, and when it was read.
struct CachedSecret {
    secret: Arc<Zeroizing<String>>,
    at: Instant,
}

impl Credential {
    pub(super) fn new(configured: ClientCredential) -> Self {
        let file = format!("secret file {}", secret_path(&configured).display());
        let file = Outage::new(file).with_effect("the last secret stays in use");
        Self { configured, secret: Mutex::default(), method: AtomicSecretMethod::default(), file }
    }

    /// Sends a [`ClientCredential::Discovered`] in this way from now on.
    pub(super) fn set_method(&self, method: SecretMethod) {
        self.method.set(method);
    }

    pub(super) fn configured(&self) -> &ClientCredential {
        &self.configured
    }

    /// Has the next request read the file again.
    pub(super) fn forget(&self) {
        *self.secret.lock() = None;
    }

    /// The secret; `None`: no credential is configured.
    pub(super) async fn secret(&self) -> Result<Option<Arc<Zeroizing<String>>>, CallError> {
        match &self.configured {
            ClientCredential::None => Ok(None),
            credential => self.read(secret_path(credential)).await.map(Some),
        }
    }

    /// Adds the credential to a request that has none of its own.
    pub(super) async fn add_to(&self, request: &mut Request<Bytes>) -> Result<(), CallError> {
        if request.headers().contains_key(AUTHORIZATION) {
            return Ok(());
        }
        let Some(secret) = self.secret().await? else { return Ok(()) };
        let (id, method) = match &self.configured {
            ClientCredential::None => return Ok(()),
            ClientCredential::Basic { id, .. } => (Some(id), SecretMethod::Basic),
            ClientCredential::Post { id, .. } => (Some(id), SecretMethod::Post),
            ClientCredential::Discovered { id, .. } => (Some(id), self.method.get()),
            ClientCredential::Bearer { .. } => (None, SecretMethod::Basic),
        };
        let value = match (id, method) {
            (Some(id), SecretMethod::Basic) => {
                let pair = Zeroizing::new(format!("{}:{}", *form_encoded(id), *form_encoded(&secret)));
                Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())))
            }
            (Some(id), SecretMethod::Post) => {
                let mut form = BytesMut::from(&**request.body());
                for part in ["&client_id=", &form_encoded(id), "&client_secret=", &form_encoded(&secret)] {
                    form.extend_from_slice(part.as_bytes());
                }
                *request.body_mut() = form.freeze();
                return Ok(());
            }
            (None, _) => Zeroizing::new(format!("Bearer {}", **secret)),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| CallError::NoSecret {
            path: secret_path(&self.configured).to_owned(),
            why: "it contains characters that are not allowed in a header field",
        })?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(())
    }

    /// The secret in a file, without surrounding white space; read again after [`SECRET_MAX_AGE`].
    /// While the file cannot be read, the last secret stays in use.
    async fn read(&self, path: &Path) -> Result<Arc<Zeroizing<String>>, CallError> {
        let held =
            self.secret.lock().as_ref().map(|held| (held.secret.clone(), held.at.elapsed() < SECRET_MAX_AGE));
        if let Some((secret, true)) = held {
            return Ok(secret);
        }
        let read = read(path).await;
        self.file.record(&read);
        let secret = match (read, held) {
            (Ok(secret), _) => Arc::new(secret),
            // Kept for as long again: the file is not read for each request.
            (Err(_), Some((last, _))) => last,
            (Err(error), None) => return Err(error),
        };
        *self.secret.lock() = Some(CachedSecret { secret: secret.clone(), at: Instant::now() });
        Ok(secret)
    }
}

fn secret_path(credential: &ClientCredential) -> &Path {
    match credential {
        ClientCredential::None => Path::new(""),
        ClientCredential::Basic { secret, .. }
        | ClientCredential::Post { secret, .. }
        | ClientCredential::Discovered { secret, .. } => secret,
        ClientCredential::Bearer { token } => token,
    }
}

async fn read(path: &Path) -> Result<Zeroizing<String>, CallError> {
    let unreadable = |error| CallError::Secret { path: path.to_owned(), error };
    let none = |why| CallError::NoSecret { path: path.to_owned(), why };
    let size = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
    if size > MAX_SECRET {
        return Err(none("the file is larger than 64 KiB"));
    }
    let text = Zeroizing::new(tokio::fs::read_to_string(path).await.map_err(unreadable)?);
    let secret = text.trim();
    if secret.is_empty() {
        return Err(none("the file is empty"));
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
