//! TLS configurations, made from files.
//!
//! Owns: reading PEM, the checks that turn a wrong file into a message with a remedy instead of a handshake
//! that fails later, protocol versions, tickets, ALPN. Does not own: the configuration text, sockets, which
//! certificate means which caller.
//!
//! Everything here is a function of files and a time; a reload builds again and swaps. Verification of a
//! peer's certificate cannot be switched off: there is no such parameter.
//!
//! Flow: `Files → server_config | client_config → Arc<rustls::…Config>` and warnings for the log;
//! `ClientAuthorities` say later whether a certificate is still vouched for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::digest;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates that end sooner than this are warned of.
const EXPIRES_SOON: Duration = Duration::from_hours(7 * 24);

/// ALPN name of HTTP/1.1 (RFC 7301 section 6).
const HTTP1: &[u8] = b"http/1.1";
/// ALPN name of HTTP/2 over TLS (RFC 9113 section 3.2).
const HTTP2: &[u8] = b"h2";

/// The certificate a side presents. Both files are PEM.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The chain, end-entity certificate first.
    pub certificate: &'a Path,
    /// The private key: PKCS#8, SEC1 or PKCS#1, not encrypted.
    pub key: &'a Path,
}

/// Whether a listener asks clients for a certificate.
#[derive(Debug, Clone, Copy)]
pub enum ClientCertificates<'a> {
    /// Not asked for.
    Ignored,
    /// Asked for; a client may do without, but what it shows must chain to a CA in this file.
    Optional(&'a Path),
    /// No handshake without one that chains to a CA in this file.
    Required(&'a Path),
}

/// What a listener speaks once the handshake is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// Offer HTTP/1.1.
    pub http1: bool,
    /// Offer HTTP/2; preferred when both are offered.
    pub http2: bool,
}

impl Protocols {
    fn alpn(self) -> Vec<Vec<u8>> {
        let offered = [(self.http2, HTTP2), (self.http1, HTTP1)];
        offered.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name.to_vec()).collect()
    }
}

/// A configuration and what an administrator should hear about it.
#[derive(Debug)]
pub struct BuiltTls<T> {
    /// Ready for connections.
    pub config: Arc<T>,
    /// Usable, but not as it should be.
    pub warnings: Vec<TlsWarning>,
}

/// A listener's configuration, and who vouches for its clients.
#[derive(Debug)]
pub struct BuiltServer {
    /// Ready for connections.
    pub config: Arc<ServerConfig>,
    /// Absent when clients are not asked for a certificate.
    pub clients: Option<ClientAuthorities>,
    /// Usable, but not as it should be.
    pub warnings: Vec<TlsWarning>,
}

/// The authorities that vouch for clients. They are asked in the handshake, and again about connections that
/// stand when they have changed.
#[derive(Debug, Clone)]
pub struct ClientAuthorities {
    verifier: Arc<dyn ClientCertVerifier>,
    version: [u8; digest::SHA256_OUTPUT_LEN],
}

impl ClientAuthorities {
    fn of(
        roots: &Arc<RootCertStore>,
        optional: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let mut hash = digest::Context::new(&digest::SHA256);
        for root in &roots.roots {
            let constraints = root.name_constraints.as_ref().map_or(&[][..], AsRef::as_ref);
            for part in [root.subject.as_ref(), root.subject_public_key_info.as_ref(), constraints] {
                hash.update(&(part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        let mut version = [0; digest::SHA256_OUTPUT_LEN];
        version.copy_from_slice(hash.finish().as_ref());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider);
        let builder = if optional { builder.allow_unauthenticated() } else { builder };
        let verifier = builder.build().map_err(|e| TlsError::Refused(e.to_string()))?;
        Ok(Self { verifier, version })
    }

    /// Names the set: two of the same version vouch for the same certificates.
    pub fn version(&self) -> &[u8] {
        &self.version
    }

    /// Whether they vouch for an end-entity certificate, given what it was shown with.
    pub fn vouch_for(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> bool {
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now.as_millis()));
        self.verifier.verify_client_cert(end_entity, intermediates, now).is_ok()
    }
}

/// Something that works, or will not work for long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsWarning {
    /// Peers will refuse it.
    #[error("{path}: the certificate expired {days} days ago; peers refuse it until it is replaced")]
    Expired {
        /// The file.
        path: PathBuf,
        /// Whole days since.
        days: u64,
    },
    /// Peers will refuse it for a while.
    #[error("{path}: the certificate is not valid yet; check the clocks of this machine and of the issuer")]
    NotYetValid {
        /// The file.
        path: PathBuf,
    },
    /// Less than a week is left.
    #[error("{path}: the certificate expires in {days} days; renew it (the file is read again on reload)")]
    ExpiresSoon {
        /// The file.
        path: PathBuf,
        /// Whole days left.
        days: u64,
    },
    /// Part of the system's trust store was not usable.
    #[error("{count} of the system's root certificates could not be read and are not trusted: {first}")]
    RootsSkipped {
        /// How many.
        count: usize,
        /// What was wrong with the first.
        first: String,
    },
}

/// Why no configuration could be built. Each names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file could not be read.
    #[error("{path}: cannot be read: {error}; check the path and that this user may read it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is not PEM.
    #[error(
        "{path}: not a PEM file ({what}); convert DER with `openssl x509 -inform der` or `openssl pkey -inform der`"
    )]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was met.
        what: String,
    },
    /// No certificate in the file.
    #[error(
        "{path}: holds no certificate; a PEM block `BEGIN CERTIFICATE` is expected, the server's own first"
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A certificate in the file cannot be understood.
    #[error("{path}: certificate {number} cannot be used: {what}")]
    BadCertificate {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        number: usize,
        /// What is wrong.
        what: String,
    },
    /// No private key in the file.
    #[error(
        "{path}: holds no private key; `BEGIN PRIVATE KEY` (PKCS#8), `EC` or `RSA PRIVATE KEY` is expected"
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key is protected by a passphrase.
    #[error(
        "{path}: the private key is encrypted; decrypt it with `openssl pkey` and guard it by file permissions"
    )]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The key is of a kind or size that is not supported.
    #[error(
        "{path}: the private key cannot be used: {what}; RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519 is"
    )]
    BadKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Certificate and key are of different pairs.
    #[error(
        "{key}: does not belong to the first certificate in {certificate}; the chain must begin with the server's own"
    )]
    KeyMismatch {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The system has no usable root certificate.
    #[error("the system has no root certificates ({what}); install its `ca-certificates` or name a CA file")]
    NoSystemRoots {
        /// What was met.
        what: String,
    },
    /// The TLS library refused the whole.
    #[error("the TLS configuration was refused: {0}")]
    Refused(String),
}

/// TLS for a listener: versions 1.2 and 1.3, session tickets, ALPN.
///
/// Tickets are sealed with keys made here and rotated by the library: what was resumed from before a reload
/// is not afterwards. Connections that stand are not part of this: whoever keeps one asks the
/// [`ClientAuthorities`] in force about its certificate, so that an authority taken out of its file is out.
///
/// # Errors
/// When a file is unreadable or wrong; expiry only warns, as it may be a matter of clocks.
pub fn server_config(
    files: Files<'_>,
    clients: ClientCertificates<'_>,
    protocols: Protocols,
    now: Timestamp,
) -> Result<BuiltServer, TlsError> {
    let crypto = Arc::new(provider::default_provider());
    let (certified, warnings) = certified_key(files, &crypto, now)?;
    let builder = ServerConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Refused(e.to_string()))?;
    let authorities = |ca, optional| ClientAuthorities::of(&roots_from_file(ca)?, optional, crypto.clone());
    let clients = match clients {
        ClientCertificates::Ignored => None,
        ClientCertificates::Optional(ca) => Some(authorities(ca, true)?),
        ClientCertificates::Required(ca) => Some(authorities(ca, false)?),
    };
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients.verifier.clone()),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.ticketer = provider::Ticketer::new().map_err(|e| TlsError::Refused(e.to_string()))?;
    config.alpn_protocols = protocols.alpn();
    Ok(BuiltServer { config: Arc::new(config), clients, warnings })
}

/// TLS towards a server: its certificate must chain to `roots`; `identity` is shown when it asks.
///
/// # Errors
/// When a file of `identity` is unreadable or wrong.
pub fn client_config(
    roots: Arc<RootCertStore>,
    identity: Option<Files<'_>>,
    protocols: Protocols,
    now: Timestamp,
) -> Result<BuiltTls<ClientConfig>, TlsError> {
    let crypto = Arc::new(provider::default_provider());
    let builder = ClientConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Refused(e.to_string()))?
        .with_root_certificates(roots);
    let (mut config, warnings) = match identity {
        None => (builder.with_no_client_auth(), Vec::new()),
        Some(files) => {
            let (certified, warnings) = certified_key(files, &crypto, now)?;
            (builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))), warnings)
        }
    };
    config.alpn_protocols = protocols.alpn();
    Ok(BuiltTls { config: Arc::new(config), warnings })
}

/// The trust store of the operating system, read anew on each call.
///
/// # Errors
/// When nothing in it is usable. Single unusable certificates are skipped and warned of.
pub fn system_roots() -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(found.certs);
    let first = found.errors.first().map(ToString::to_string);
    if roots.is_empty() {
        return Err(TlsError::NoSystemRoots { what: first.unwrap_or_else(|| "none found".to_owned()) });
    }
    let count = unusable + found.errors.len();
    let first = first.unwrap_or_else(|| "not a valid certificate".to_owned());
    let warnings = if count == 0 { Vec::new() } else { vec![TlsWarning::RootsSkipped { count, first }] };
    Ok((Arc::new(roots), warnings))
}

/// The certificates of a CA file (PEM, one or more), each of them trusted.
///
/// # Errors
/// When the file is unreadable or empty, or one of its certificates is unusable: silently trusting fewer
/// than were named would fail later and elsewhere.
pub fn roots_from_file(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for (i, certificate) in certificates(path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|e| TlsError::BadCertificate {
            path: path.to_owned(),
            number: i + 1,
            what: e.to_string(),
        })?;
    }
    Ok(Arc::new(roots))
}

fn certified_key(
    files: Files<'_>,
    provider: &CryptoProvider,
    now: Timestamp,
) -> Result<(CertifiedKey, Vec<TlsWarning>), TlsError> {
    let chain = certificates(files.certificate)?;
    let warnings = validity(files.certificate, &chain, now)?;
    let key = provider
        .key_provider
        .load_private_key(private_key(files.key)?)
        .map_err(|e| TlsError::BadKey { path: files.key.to_owned(), what: e.to_string() })?;
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
            what: e.to_string(),
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Unreadable { path: path.to_owned(), error })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|e| TlsError::NotPem { path: path.to_owned(), what: e.to_string() })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let path = path.to_owned();
        match error {
            // The marker is part of the format (RFC 7468 section 11), its block no key we could name.
            pem::Error::NoItemsFound if find(&text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") => {
                TlsError::EncryptedKey { path }
            }
            pem::Error::NoItemsFound => TlsError::NoKey { path },
            // The library's message may quote the line it stumbled over: not for a key file.
            _ => TlsError::NotPem { path, what: "broken PEM block".to_owned() },
        }
    })
}

fn find(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

/// Warns of the dates of the end-entity certificate.
fn validity(path: &Path, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Vec<TlsWarning>, TlsError> {
    let bad = |what: String| TlsError::BadCertificate { path: path.to_owned(), number: 1, what };
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
