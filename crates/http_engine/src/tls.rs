//! TLS configurations, built from files.
//!
//! Owns: reading PEM files, protocol versions, cipher suites and groups ([`policy`]), session
//! tickets, ALPN. The certificates of a listener ([`ServerCertificates`]), the certificates that are
//! trusted ([`TrustAnchors`], [`ClientCas`]). Its checks turn a wrong file into a message with a
//! remedy, instead of a later handshake failure. Does not own: configuration text, sockets, which
//! certificate identifies which caller.
//!
//! Everything here is a function of files and the current time; a reload builds again and replaces.
//! Verification of peer certificates cannot be switched off: there is no such parameter. Only the name
//! in them may be another one, or without meaning ([`TrustAnchors::for_names`],
//! [`TrustAnchors::for_any_name`]).
//!
//! Flow: `Files → server_config | client_config → Arc<rustls::…Config>` and warnings for the log.
//! [`ClientCas`] later decide whether a certificate is still accepted.

mod client_cas;
pub mod policy;
mod server_certificates;
mod trust;
mod verifier;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

pub use client_cas::ClientCas;
pub use server_certificates::{Renewal, ServerCertificates};
pub use trust::{PinnedCertificate, TrustAnchors};
pub use verifier::SubjectName;

use policy::TlsPolicy;

/// Certificates that expire within this time cause a warning.
const EXPIRES_SOON: Duration = Duration::from_hours(7 * 24);

/// ALPN name of HTTP/1.1 (RFC 7301 section 6).
const HTTP1: &[u8] = b"http/1.1";
/// ALPN name of HTTP/2 over TLS (RFC 9113 section 3.2).
const HTTP2: &[u8] = b"h2";

/// The certificate that a side presents. Both files are PEM.
#[derive(Debug, Clone, Copy)]
pub struct CertificateFiles<'a> {
    /// The certificate chain, end-entity certificate first.
    pub certificate: &'a Path,
    /// The private key: PKCS#8, SEC1 or PKCS#1, not encrypted.
    pub key: &'a Path,
}

/// Whether a listener requests client certificates.
#[derive(Debug, Clone, Copy)]
pub enum ClientCertificates<'a> {
    /// None is requested.
    Ignored,
    /// Requested but optional. A presented certificate must be accepted by these files.
    Optional(ClientFiles<'a>),
    /// Required: the handshake fails without a certificate that these files accept.
    Required(ClientFiles<'a>),
}

/// Files that client certificates are verified with.
#[derive(Debug, Clone, Copy)]
pub struct ClientFiles<'a> {
    /// Certificate authorities (PEM) that a certificate must chain to.
    pub ca: &'a Path,
    /// Revocation lists (PEM or DER) of all authorities in the chain. Empty: none is checked.
    pub crls: &'a [PathBuf],
}

impl<'a> ClientFiles<'a> {
    /// Authorities without revocation lists.
    pub fn without_lists(ca: &'a Path) -> Self {
        Self { ca, crls: &[] }
    }
}

/// Protocols that a listener offers by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// Offer HTTP/1.1.
    pub http1: bool,
    /// Offer HTTP/2; preferred if both are offered.
    pub http2: bool,
}

impl Protocols {
    fn alpn(self) -> Vec<Vec<u8>> {
        let offered = [(self.http2, HTTP2), (self.http1, HTTP1)];
        offered.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name.to_vec()).collect()
    }
}

/// A configuration, with warnings for the administrator.
#[derive(Debug)]
pub struct BuiltTls<T> {
    /// The configuration, ready for connections.
    pub config: Arc<T>,
    /// Problems that do not prevent its use.
    pub warnings: Vec<TlsWarning>,
}

/// A listener's configuration, and the CAs of its clients.
#[derive(Debug)]
pub struct BuiltServer {
    /// The configuration, ready for connections.
    pub config: Arc<ServerConfig>,
    /// The certificates that `config` presents.
    pub certificates: Arc<ServerCertificates>,
    /// CAs for client certificates; `None`: no certificate is requested.
    pub clients: Option<ClientCas>,
    /// Problems that do not prevent its use.
    pub warnings: Vec<TlsWarning>,
}

/// A problem that does not prevent the use of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsWarning {
    /// The certificate has expired; peers refuse it.
    #[error("{path}: the certificate expired {days} days ago; peers refuse it until it is replaced")]
    Expired {
        /// Path of the certificate file.
        path: PathBuf,
        /// Whole days since the expiry.
        days: u64,
    },
    /// The certificate is not valid yet; peers refuse it for now.
    #[error("{path}: the certificate is not valid yet; check the clocks of this machine and of the issuer")]
    NotYetValid {
        /// Path of the certificate file.
        path: PathBuf,
    },
    /// The certificate expires within a week.
    #[error("{path}: the certificate expires in {days} days; renew it (the file is read again on reload)")]
    ExpiresSoon {
        /// Path of the certificate file.
        path: PathBuf,
        /// Whole days until the expiry.
        days: u64,
    },
    /// The certificate names no server, so no client can ask for it.
    #[error(
        "{path}: the certificate names no server, so no client receives it; only the first one needs no name"
    )]
    NoName {
        /// Path of the certificate file.
        path: PathBuf,
    },
    /// A revocation list has expired; certificates of its issuer are refused.
    #[error("{path}: the revocation list has expired, so certificates of its issuer are refused; replace it")]
    RevocationListExpired {
        /// Path of the file.
        path: PathBuf,
    },
    /// Some certificates of the system's trust store are unusable.
    #[error("{count} of the system's root certificates could not be read and are not trusted: {first}")]
    RootsSkipped {
        /// Number of unusable certificates.
        count: usize,
        /// The error of the first of them.
        first: String,
    },
}

/// Why no configuration could be built. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file could not be read.
    #[error("{path}: cannot be read: {error}; check the path and that this user may read it")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is not PEM.
    #[error(
        "{path}: not a PEM file ({reason}); convert DER with `openssl x509 -inform der` or `openssl pkey -inform der`"
    )]
    NotPem {
        /// Path of the file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The file contains no certificate.
    #[error("{path}: no certificate found; expected a PEM block `BEGIN CERTIFICATE`, the server's own first")]
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
    },
    /// A certificate in the file is invalid.
    #[error("{path}: certificate {number} cannot be used: {reason}")]
    BadCertificate {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The file contains no private key.
    #[error("{path}: no private key found; expected `BEGIN PRIVATE KEY` (PKCS#8), `EC` or `RSA PRIVATE KEY`")]
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// The private key is encrypted with a passphrase.
    #[error(
        "{path}: the private key is encrypted; decrypt it with `openssl pkey` and protect the file by its permissions"
    )]
    EncryptedKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// The kind or size of the key is not supported.
    #[error(
        "{path}: unsupported private key: {reason}; use RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519"
    )]
    BadKey {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and private key do not match.
    #[error(
        "{key}: does not match the first certificate in {certificate}; the chain must begin with the server's own"
    )]
    KeyMismatch {
        /// Path of the certificate file.
        certificate: PathBuf,
        /// Path of the key file.
        key: PathBuf,
    },
    /// A revocation list is unusable.
    #[error("{path}: not a revocation list: {reason}; expected PEM (`BEGIN X509 CRL`) or DER")]
    BadRevocationList {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system has no usable root certificate.
    #[error(
        "the system has no root certificates ({reason}); install its `ca-certificates` or name a CA file"
    )]
    NoSystemRoots {
        /// The first error, or that there are none.
        reason: String,
    },
    /// The TLS library rejected the configuration.
    #[error("the TLS library rejected the configuration: {0}")]
    Refused(String),
}

/// TLS configuration of a listener: session tickets, ALPN, and the versions, cipher suites and
/// groups of `policy`. Of `certificates`, each client receives the one for its server name; the first
/// is the default.
///
/// Ticket keys are created here and rotated by the library, so sessions from before a reload cannot
/// be resumed after it. Open connections are not affected. Their owner re-checks the client
/// certificate with the current [`ClientCas`], so that removing a CA takes effect on them
/// as well.
///
/// # Errors
/// [`TlsError`] when a file is unreadable or wrong. Expiry only causes a warning, because a clock
/// may be wrong.
pub fn server_config(
    certificates: &[CertificateFiles<'_>],
    clients: ClientCertificates<'_>,
    policy: &TlsPolicy,
    protocols: Protocols,
    now: Timestamp,
) -> Result<BuiltServer, TlsError> {
    let crypto = Arc::new(policy.provider());
    let (certificates, mut warnings) = ServerCertificates::read(certificates, now)?;
    let authorities = |files: ClientFiles<'_>, optional| {
        ClientCas::read(files.ca, files.crls, optional, crypto.clone(), now).map(Some)
    };
    let clients = match clients {
        ClientCertificates::Ignored => None,
        ClientCertificates::Optional(files) => authorities(files, true)?,
        ClientCertificates::Required(files) => authorities(files, false)?,
    };
    let (clients, of_clients) = clients.unzip();
    warnings.extend(of_clients.into_iter().flatten());
    let config = server_config_with(&certificates, clients.as_ref(), policy, protocols, crypto)?;
    Ok(BuiltServer { config, certificates, clients, warnings })
}

/// The same for certificates and authorities that were read already.
fn server_config_with(
    certificates: &Arc<ServerCertificates>,
    clients: Option<&ClientCas>,
    policy: &TlsPolicy,
    protocols: Protocols,
    crypto: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&policy.versions())
        .map_err(|e| TlsError::Refused(e.to_string()))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients.handshake_verifier()),
    };
    let mut config = builder.with_cert_resolver(certificates.clone());
    config.ticketer = provider::Ticketer::new().map_err(|e| TlsError::Refused(e.to_string()))?;
    config.alpn_protocols = protocols.alpn();
    Ok(Arc::new(config))
}

/// A certificate with its key, ready to be presented.
pub struct PresentedCertificate(Arc<CertifiedKey>);

impl PresentedCertificate {
    /// Reads a chain and its private key in PEM. `name` says in messages where they are from.
    ///
    /// # Errors
    /// [`TlsError`] when one of them is wrong, or they do not belong together.
    pub fn from_pem(name: &str, chain: &[u8], key: &[u8], now: Timestamp) -> Result<Self, TlsError> {
        let name = Path::new(name);
        let (certificate, key_name) = (name.join("tls.crt"), name.join("tls.key"));
        let names = CertificateFiles { certificate: &certificate, key: &key_name };
        let crypto = provider::default_provider();
        let (key, _) = certified_key_of(names, (chain, key), &crypto, now)?;
        Ok(Self(Arc::new(key)))
    }
}

/// Authorities of client certificates in PEM.
#[derive(Debug, Clone)]
pub struct ClientAuthorities<'a> {
    /// Where they are from, in messages.
    pub name: &'a str,
    /// The certificates, one text for each source.
    pub pem: &'a [Arc<[u8]>],
    /// Whether a client without a certificate, or with one that these authorities do not vouch for,
    /// is accepted. It then counts as one without a certificate.
    pub admits_others: bool,
}

/// TLS configuration of a socket with several listeners, each with its host and certificates. A
/// client that asks for a host of no listener gets none: the handshake fails.
///
/// # Errors
/// [`TlsError`] when an authority cannot be read.
pub fn listeners_config(
    listeners: Vec<(Option<Box<str>>, Vec<PresentedCertificate>)>,
    clients: Option<ClientAuthorities<'_>>,
    policy: &TlsPolicy,
    protocols: Protocols,
) -> Result<BuiltServer, TlsError> {
    let crypto = Arc::new(policy.provider());
    let certificates = ServerCertificates::of_listeners(listeners);
    let clients = clients.map(|clients| ClientCas::from_pem(&clients, crypto.clone())).transpose()?;
    let config = server_config_with(&certificates, clients.as_ref(), policy, protocols, crypto)?;
    Ok(BuiltServer { config, certificates, clients, warnings: Vec::new() })
}

/// TLS configuration for connecting to a server. The server's certificate must be one of `trusted`,
/// or issued by one of them; `identity` is presented on request.
///
/// # Errors
/// [`TlsError`] when a file of `identity` is unreadable or wrong.
pub fn client_config(
    trusted: &TrustAnchors,
    identity: Option<CertificateFiles<'_>>,
    protocols: Protocols,
    now: Timestamp,
) -> Result<BuiltTls<ClientConfig>, TlsError> {
    let crypto = provider::default_provider();
    let identity = identity.map(|files| certified_key(files, &crypto, now)).transpose()?;
    let (identity, warnings) = identity.unzip();
    let identity = identity.map(|key| PresentedCertificate(Arc::new(key)));
    let config = client_config_with(trusted, identity, protocols)?;
    Ok(BuiltTls { config, warnings: warnings.unwrap_or_default() })
}

/// The same with a certificate that was read already.
///
/// # Errors
/// [`TlsError::Refused`] when the TLS library rejects the configuration.
pub fn client_config_with(
    trusted: &TrustAnchors,
    identity: Option<PresentedCertificate>,
    protocols: Protocols,
) -> Result<Arc<ClientConfig>, TlsError> {
    let crypto = Arc::new(provider::default_provider());
    let builder = ClientConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Refused(e.to_string()))?
        // The name says so for verifiers that accept too much: this one verifies as webpki does, and
        // accepts certificates of the file besides.
        .dangerous()
        .with_custom_certificate_verifier(trusted.verifier(&crypto));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(PresentedCertificate(key)) => {
            let always = SingleCertAndKey::from(Arc::unwrap_or_clone(key));
            builder.with_client_cert_resolver(Arc::new(always))
        }
    };
    config.alpn_protocols = protocols.alpn();
    Ok(Arc::new(config))
}

/// The trust store of the operating system, read anew on each call.
///
/// # Errors
/// [`TlsError::NoSystemRoots`] when it has no usable certificate. Single unusable certificates are
/// skipped with a warning.
pub fn system_roots() -> Result<(TrustAnchors, Vec<TlsWarning>), TlsError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(loaded.certs);
    let first = loaded.errors.first().map(ToString::to_string);
    if roots.is_empty() {
        return Err(TlsError::NoSystemRoots { reason: first.unwrap_or_else(|| "none found".to_owned()) });
    }
    let count = unusable + loaded.errors.len();
    let first = first.unwrap_or_else(|| "not a valid certificate".to_owned());
    let warnings = if count == 0 { Vec::new() } else { vec![TlsWarning::RootsSkipped { count, first }] };
    Ok((roots.into(), warnings))
}

fn certified_key(
    files: CertificateFiles<'_>,
    provider: &CryptoProvider,
    now: Timestamp,
) -> Result<(CertifiedKey, Vec<TlsWarning>), TlsError> {
    let (chain, key) = (read(files.certificate)?, zeroize::Zeroizing::new(read(files.key)?));
    certified_key_of(files, (&chain, &key), provider, now)
}

/// A certificate with its key, both in PEM. The files only name them in messages.
fn certified_key_of(
    files: CertificateFiles<'_>,
    (chain, key): (&[u8], &[u8]),
    provider: &CryptoProvider,
    now: Timestamp,
) -> Result<(CertifiedKey, Vec<TlsWarning>), TlsError> {
    let chain = certificates_in(files.certificate, chain)?;
    let warnings = validity_warnings(files.certificate, &chain, now)?;
    let key = provider
        .key_provider
        .load_private_key(private_key_in(files.key, key)?)
        .map_err(|e| TlsError::BadKey { path: files.key.to_owned(), reason: e.to_string() })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) => Ok((certified, warnings)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::KeyMismatch {
            certificate: files.certificate.to_owned(),
            key: files.key.to_owned(),
        }),
        Err(e) => Err(TlsError::BadCertificate {
            path: files.certificate.to_owned(),
            number: 1,
            reason: e.to_string(),
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Unreadable { path: path.to_owned(), error })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates_in(path, &read(path)?)
}

/// The certificates of a text in PEM. The path only names it in messages.
fn certificates_in(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|e| TlsError::NotPem { path: path.to_owned(), reason: e.to_string() })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

fn private_key_in(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let path = path.to_owned();
        match error {
            // The marker is part of the format (RFC 7468 section 11), but the PEM parser does not
            // know this kind of key.
            pem::Error::NoItemsFound if contains(text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") => {
                TlsError::EncryptedKey { path }
            }
            pem::Error::NoItemsFound => TlsError::NoKey { path },
            // The library's message may quote a line of the file, which must not happen with a key.
            _ => TlsError::NotPem { path, reason: "broken PEM block".to_owned() },
        }
    })
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

/// Warnings about the validity dates of the end-entity certificate.
fn validity_warnings(
    path: &Path,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<Vec<TlsWarning>, TlsError> {
    let bad = |reason: String| TlsError::BadCertificate { path: path.to_owned(), number: 1, reason };
    let Some(first) = chain.first() else { return Err(TlsError::NoCertificate { path: path.to_owned() }) };
    let (_, certificate) = X509Certificate::from_der(first).map_err(|e| bad(e.to_string()))?;
    let at = |seconds: i64| Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0));
    let (begin, end) =
        (at(certificate.validity().not_before.timestamp()), at(certificate.validity().not_after.timestamp()));
    let days = |d: Duration| d.as_secs() / (24 * 3600);
    let path = path.to_owned();
    Ok(if now >= end {
        vec![TlsWarning::Expired { path, days: days(now.since(end)) }]
    } else if now < begin {
        vec![TlsWarning::NotYetValid { path }]
    } else if end.since(now) < EXPIRES_SOON {
        vec![TlsWarning::ExpiresSoon { path, days: days(end.since(now)) }]
    } else {
        Vec::new()
    })
}
