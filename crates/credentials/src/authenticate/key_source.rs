//! Key source: where an issuer's keys come from (discovery, a URL, a file).
//!
//! Owns: finding the metadata and the key set document, and deciding whether to trust them (OpenID
//! Connect Discovery 1.0 section 4, RFC 8414 section 3). Does not own: when, how often, what happens
//! on failure; the meaning of other members of the metadata.
//!
//! Flow: `Discovery: metadata → issuer equal? jwks_uri safe? → document → KeySet`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::json::{Document, JsonError, Value};
use auth::keyset::{KeySet, KeySetError, MAX_KEY_SET_BYTES, SkippedKey};
use auth::time::Timestamp;
use auth::token::TENANT;
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::tls::{self, TlsError};
use http_engine::url::{Url, UrlFault};
use rustls::ClientConfig;
use tokio::io::AsyncReadExt as _;
use tokio::sync::OnceCell;

use super::fetch::{self, Bounds, FetchError};
use crate::config::KeySource;

/// Why a source gave no keys.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A document could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An address from the configuration or the metadata is unusable.
    #[error("{purpose}: {fault}")]
    Url {
        /// What the address is for.
        purpose: &'static str,
        /// What is wrong with the address.
        fault: UrlFault,
    },
    /// The address is plain `http` although the issuer is not.
    #[error("{url}: keys of an https issuer are not fetched over http; configure an https URL")]
    Unprotected {
        /// The unprotected address.
        url: String,
    },
    /// The metadata is of another issuer (OpenID Connect Discovery 1.0 section 4.3, RFC 8414
    /// section 3.3).
    #[error(
        "{url}: describes the issuer {found:?}, not {expected:?}; configure the issuer exactly as it calls itself"
    )]
    OtherIssuer {
        /// The URL of the metadata.
        url: String,
        /// The configured issuer.
        expected: Box<str>,
        /// The issuer in the metadata, shortened.
        found: String,
    },
    /// The metadata is not valid JSON.
    #[error("{url}: is {fault}")]
    Metadata {
        /// The URL of the metadata.
        url: String,
        /// What is wrong with the JSON.
        fault: JsonError,
    },
    /// The metadata lacks a member.
    #[error("{url}: has no string {member:?}; is it the metadata of an OpenID provider or OAuth server?")]
    Member {
        /// The URL of the metadata.
        url: String,
        /// The missing member.
        member: &'static str,
    },
    /// The key set is not valid.
    #[error("{at}: {fault}")]
    KeySet {
        /// URL or path of the key set.
        at: String,
        /// What is wrong with it.
        fault: KeySetError,
    },
    /// The key set is valid but useless: none of its keys can be used, or it is a file without any.
    #[error("{at}: contains no usable key{}", first(.skipped))]
    NoUsableKey {
        /// URL or path of the key set.
        at: String,
        /// The skipped keys with their reasons.
        skipped: Vec<SkippedKey>,
    },
    /// The file cannot be read.
    #[error("{path}: cannot be read: {error}; check the path and that this user may read it")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The system's trust store cannot be used.
    #[error(transparent)]
    Roots(#[from] TlsError),
}

fn first(skipped: &[SkippedKey]) -> String {
    skipped.first().map(|key| format!("; {key}")).unwrap_or_default()
}

/// A key set document as it was fetched.
pub(super) struct DiscoveredKeys {
    /// The bytes of the document.
    pub document: Vec<u8>,
    /// URL or path, for messages.
    pub at: String,
}

/// What an issuer publishes about itself. Its `issuer` is the expected one.
pub struct IssuerMetadata {
    text: bytes::Bytes,
    /// The document.
    pub document: Document,
}

impl IssuerMetadata {
    /// Whether both were published as the same text.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The result of one fetch.
pub(super) struct Fetched {
    /// The metadata, if the source has any and they are valid.
    pub metadata: Option<IssuerMetadata>,
    /// The key set document, or why there is none.
    pub keys: Result<DiscoveredKeys, SourceError>,
}

/// A key source with everything needed to fetch from it.
pub struct KeyOrigin {
    issuer: Box<str>,
    keys: KeySource,
    tls: Option<Arc<ClientConfig>>,
    proxies: OutboundProxies,
    bounds: Bounds,
}

/// Checks the addresses of a key source, without fetching.
///
/// # Errors
/// When an address is malformed, or plain `http` for an `https` issuer.
pub fn check(issuer: &str, keys: &KeySource) -> Result<(), SourceError> {
    match keys {
        KeySource::Discovery => metadata_urls(issuer).map(drop),
        KeySource::Uri(uri) => key_url("key set address", uri, issuer).map(drop),
        KeySource::File(_) => Ok(()),
    }
}

/// Reads a JWKS file (RFC 7517 section 5) once, blocking: for start-up and `check`.
///
/// # Errors
/// When the file is unreadable, is not a key set, or has no usable key.
pub fn read_file(path: &Path) -> Result<(KeySet, Vec<SkippedKey>), SourceError> {
    let document = std::fs::read(path).map_err(|error| SourceError::File { path: path.to_owned(), error })?;
    let discovered = DiscoveredKeys { document, at: path.display().to_string() };
    let (set, skipped) = read(&discovered)?;
    if set.is_empty() { Err(no_usable_key(&discovered, skipped)) } else { Ok((set, skipped)) }
}

fn read(discovered: &DiscoveredKeys) -> Result<(KeySet, Vec<SkippedKey>), SourceError> {
    KeySet::from_jwks_json(&discovered.document)
        .map_err(|fault| SourceError::KeySet { at: discovered.at.clone(), fault })
}

fn no_usable_key(discovered: &DiscoveredKeys, skipped: Vec<SkippedKey>) -> SourceError {
    SourceError::NoUsableKey { at: discovered.at.clone(), skipped }
}

impl KeyOrigin {
    /// The source of the keys of `issuer`; `tls` is for fetching, `None` means the system's trust
    /// store. `proxies` are those between the process and the issuer.
    pub fn new(
        issuer: &str,
        keys: KeySource,
        tls: Option<Arc<ClientConfig>>,
        proxies: OutboundProxies,
    ) -> Self {
        let bounds = Bounds { bytes: MAX_KEY_SET_BYTES, ..Bounds::default() };
        Self { issuer: issuer.into(), keys, tls, proxies, bounds }
    }

    /// Whether both have the same issuer and source.
    pub(super) fn has_same_origin(&self, other: &Self) -> bool {
        self.issuer == other.issuer && self.keys == other.keys
    }

    /// Whether both have the same issuer and source, trust the same CAs and use the same proxies.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_tls = match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        self.has_same_origin(other) && same_tls && self.proxies == other.proxies
    }

    /// The usable keys of a document from this source. An issuer that publishes an empty set has
    /// withdrawn all its keys. A file without a key is a mistake, and so is a set without any
    /// usable key: then the last valid set stays in use.
    pub(super) fn keys_of(
        &self,
        discovered: &DiscoveredKeys,
    ) -> Result<(KeySet, Vec<SkippedKey>), SourceError> {
        let (set, skipped) = read(discovered)?;
        let withdrawn = skipped.is_empty() && !self.is_file();
        if set.is_empty() && !withdrawn {
            Err(no_usable_key(discovered, skipped))
        } else {
            Ok((set, skipped))
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.keys, KeySource::File(_))
    }

    /// Whether the keys are fetched unencrypted from another machine.
    pub(super) fn is_exposed(&self) -> bool {
        let address: &str = match &self.keys {
            KeySource::Discovery => &self.issuer,
            KeySource::Uri(uri) => uri,
            KeySource::File(_) => return false,
        };
        Url::parse(address).is_ok_and(|url| !url.is_https() && !url.is_loopback())
    }

    /// Fetches the documents once.
    pub(super) async fn fetch(&self) -> Fetched {
        let tls = OnceCell::new_with(self.tls.clone());
        let url = match &self.keys {
            KeySource::Discovery => {
                return match self.discover(&tls).await {
                    Ok((url, metadata)) => {
                        let keys = match self.jwks_uri(&url, &metadata) {
                            Ok(url) => self.key_set(&url, &tls).await,
                            Err(error) => Err(error),
                        };
                        Fetched { metadata: Some(metadata), keys }
                    }
                    Err(error) => Fetched { metadata: None, keys: Err(error) },
                };
            }
            KeySource::Uri(uri) => key_url("key set address", uri, &self.issuer),
            KeySource::File(path) => {
                return Fetched { metadata: None, keys: read_bounded(path).await };
            }
        };
        let keys = match url {
            Ok(url) => self.key_set(&url, &tls).await,
            Err(error) => Err(error),
        };
        Fetched { metadata: None, keys }
    }

    async fn key_set(
        &self,
        url: &Url,
        tls: &OnceCell<Arc<ClientConfig>>,
    ) -> Result<DiscoveredKeys, SourceError> {
        let document = self.get(url, tls).await?.to_vec();
        Ok(DiscoveredKeys { document, at: url.to_string() })
    }

    /// `tls` is the configured one, or the system's trust store, which is read on first use.
    async fn get(&self, url: &Url, tls: &OnceCell<Arc<ClientConfig>>) -> Result<bytes::Bytes, SourceError> {
        let tls = if url.is_https() { Some(tls.get_or_try_init(system_tls).await?) } else { None };
        Ok(fetch::get(url, tls, &self.proxies, self.bounds).await?)
    }

    /// Fetches the provider's metadata, and says from where.
    async fn discover(
        &self,
        tls: &OnceCell<Arc<ClientConfig>>,
    ) -> Result<(Url, IssuerMetadata), SourceError> {
        let [openid, oauth] = metadata_urls(&self.issuer)?;
        let (url, text) = match self.get(&openid, tls).await {
            // Only a client error such as 404 leads to the second address: a failing provider must
            // not be asked differently.
            Err(SourceError::Fetch(FetchError::Status { status, .. })) if status.is_client_error() => {
                let document = self.get(&oauth, tls).await?;
                (oauth, document)
            }
            other => (openid, other?),
        };
        let document = Document::parse(text.to_vec())
            .map_err(|fault| SourceError::Metadata { url: url.to_string(), fault })?;
        let found = member(&document, &url, "issuer")?;
        if found != &*self.issuer {
            let found = found.chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(SourceError::OtherIssuer {
                url: url.to_string(),
                expected: self.issuer.clone(),
                found,
            });
        }
        Ok((url, IssuerMetadata { text, document }))
    }

    /// The key set's address in metadata that come from `url`.
    fn jwks_uri(&self, url: &Url, metadata: &IssuerMetadata) -> Result<Url, SourceError> {
        let uri = member(&metadata.document, url, "jwks_uri")?;
        key_url("jwks_uri of the issuer's metadata", uri, &self.issuer)
    }
}

/// A text in metadata that come from `url`.
fn member<'d>(document: &'d Document, url: &Url, member: &'static str) -> Result<&'d str, SourceError> {
    let value = document.root().get(member).and_then(Value::as_str);
    value.ok_or_else(|| SourceError::Member { url: url.to_string(), member })
}

/// The metadata URLs of an issuer. OpenID's path is appended to the issuer, RFC 8414's is inserted
/// between host and path.
pub fn metadata_urls(issuer: &str) -> Result<[Url; 2], SourceError> {
    let bad = |fault| SourceError::Url { purpose: "issuer", fault };
    // Microsoft publishes the metadata of all tenants as those of the tenant `common`.
    let issuer = &issuer.replace(TENANT, "common");
    let base = Url::parse(issuer).map_err(bad)?;
    if base.target().contains('?') {
        // RFC 8414 section 2 allows no query component.
        return Err(bad(UrlFault::Syntax(issuer.chars().take(200).collect())));
    }
    let scheme = if base.is_https() { "https" } else { "http" };
    let (host, path) = (base.authority(), base.target().trim_end_matches('/'));
    let openid = format!("{scheme}://{host}{path}/.well-known/openid-configuration");
    let oauth = format!("{scheme}://{host}/.well-known/oauth-authorization-server{path}");
    Ok([Url::parse(&openid).map_err(bad)?, Url::parse(&oauth).map_err(bad)?])
}

/// Parses a key set's address, which must be as well protected as the issuer's own.
pub fn key_url(purpose: &'static str, text: &str, issuer: &str) -> Result<Url, SourceError> {
    let url = Url::parse(text).map_err(|fault| SourceError::Url { purpose, fault })?;
    let development = Url::parse(issuer).is_ok_and(|issuer| !issuer.is_https());
    if !url.is_https() && !development {
        return Err(SourceError::Unprotected { url: url.to_string() });
    }
    Ok(url)
}

/// Reads the system's trust store again, so that a changed CA needs no restart.
async fn system_tls() -> Result<Arc<ClientConfig>, SourceError> {
    let built = tokio::task::spawn_blocking(|| {
        let (roots, _) = tls::system_roots()?;
        let protocols = tls::Protocols { http1: true, http2: false };
        // Without a client identity there is no certificate whose dates could be checked.
        tls::client_config(&roots, None, protocols, Timestamp::MAX)
    });
    match built.await {
        Ok(built) => Ok(built?.config),
        Err(_) => {
            Err(TlsError::Refused("reading the system's trust store was interrupted".to_owned()).into())
        }
    }
}

async fn read_bounded(path: &Path) -> Result<DiscoveredKeys, SourceError> {
    let unreadable = |error| SourceError::File { path: path.to_owned(), error };
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let mut document = Vec::new();
    // One byte more than allowed distinguishes "too large" from "just fits".
    file.take(MAX_KEY_SET_BYTES as u64 + 1).read_to_end(&mut document).await.map_err(unreadable)?;
    Ok(DiscoveredKeys { document, at: path.display().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(issuer: &str) -> [String; 2] {
        metadata_urls(issuer).unwrap().map(|url| url.to_string())
    }

    #[test]
    fn metadata_addresses_append_and_insert() {
        assert_eq!(
            urls("https://idp.example"),
            [
                "https://idp.example/.well-known/openid-configuration",
                "https://idp.example/.well-known/oauth-authorization-server"
            ]
        );
        for issuer in ["https://idp.example:8443/realms/x", "https://idp.example:8443/realms/x/"] {
            assert_eq!(
                urls(issuer),
                [
                    "https://idp.example:8443/realms/x/.well-known/openid-configuration",
                    "https://idp.example:8443/.well-known/oauth-authorization-server/realms/x"
                ]
            );
        }
        assert!(metadata_urls("https://idp.example/?tenant=1").is_err());
        assert!(metadata_urls("idp.example").is_err());
    }

    #[test]
    fn an_https_issuers_keys_are_never_fetched_over_http() {
        let uri = |uri: &str| KeySource::Uri(uri.into());
        assert!(check("https://idp.example", &uri("https://keys.example/jwks")).is_ok());
        let refused = check("https://idp.example", &uri("http://idp.example/jwks")).unwrap_err();
        assert!(matches!(refused, SourceError::Unprotected { .. }), "{refused}");
        assert!(check("http://127.0.0.1:1", &uri("http://127.0.0.1:1/jwks")).is_ok());
        // An issuer that is not a URL does not permit plain http either.
        assert!(check("my-issuer", &uri("http://idp.example/jwks")).is_err());
        assert!(check("my-issuer", &uri("https://idp.example/jwks")).is_ok());
        assert!(check("my-issuer", &KeySource::Discovery).is_err());
    }
}
