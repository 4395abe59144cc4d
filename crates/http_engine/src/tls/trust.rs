//! Trust anchors: which certificates a server may present.
//!
//! Owns: the certificates of a CA file or of the system. Does not own: whose CA file it is, the
//! decision about a certificate ([`super::verifier`]).
//!
//! A CA file may contain a server's own self-signed certificate, as `openssl req -x509` makes it.
//! It is accepted when a server presents exactly this certificate, which webpki alone refuses: it
//! says `CA:TRUE`. Name, dates and purpose are verified as for any other certificate.
//!
//! A server may have to show another name than the one that it is connected to by
//! ([`TrustAnchors::for_names`]). Where the authorities issue certificates for one backend alone, and
//! nobody knows its name, the name does not count ([`TrustAnchors::for_any_name`]). Issuer, dates and
//! purpose always do.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::verifier::{Names, ServerVerifier, SubjectName};
use super::{TlsError, certificates, certificates_in};

/// Certificates that the certificate of a server is verified with.
#[derive(Debug, Clone)]
pub struct TrustAnchors {
    roots: Arc<RootCertStore>,
    pinned: Arc<[PinnedCertificate]>,
    certificates: usize,
    names: Names,
}

/// A self-signed server certificate in a CA file. A server may present exactly this one.
#[derive(Debug, Clone)]
pub struct PinnedCertificate {
    der: CertificateDer<'static>,
    /// Names and addresses in the certificate, separated by commas.
    pub names: Box<str>,
    /// Whether it may also issue certificates of other servers.
    pub issues: bool,
    /// First and last second of its validity, since 1970.
    validity: (u64, u64),
    /// Whether its extended key usage, if it has one, permits servers.
    for_servers: bool,
}

impl TrustAnchors {
    /// All certificates of a CA file (PEM).
    ///
    /// # Errors
    /// [`TlsError`] when the file is unreadable or empty, or any of its certificates is unusable.
    /// Trusting only some of them would fail later, in another place.
    pub fn from_file(path: &Path) -> Result<Self, TlsError> {
        Self::of(path, certificates(path)?)
    }

    /// Certificates in PEM, from one or more texts. `name` says in messages where they are from.
    ///
    /// # Errors
    /// As [`TrustAnchors::from_file`].
    pub fn from_pem(name: &str, texts: &[Arc<[u8]>]) -> Result<Self, TlsError> {
        let name = Path::new(name);
        let certificates = texts.iter().map(|text| certificates_in(name, text));
        Self::of(name, certificates.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn of(path: &Path, certificates: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let (mut roots, mut pinned, mut count) = (RootCertStore::empty(), Vec::new(), 0);
        for certificate in certificates {
            count += 1;
            let own = PinnedCertificate::read(&certificate);
            if own.as_ref().is_none_or(|own| own.issues) {
                roots.add(certificate).map_err(|error| TlsError::BadCertificate {
                    path: path.to_owned(),
                    number: count,
                    reason: error.to_string(),
                })?;
            }
            pinned.extend(own);
        }
        let (roots, pinned, names) = (Arc::new(roots), pinned.into(), Names::Own);
        Ok(Self { roots, pinned, certificates: count, names })
    }

    /// The same certificates, for a server whose name is not known. Whoever these authorities issue a
    /// certificate for can then answer for the server: use it with authorities of that server alone.
    #[must_use]
    pub fn for_any_name(self) -> Self {
        Self { names: Names::Any, ..self }
    }

    /// The same certificates, for a server whose certificate must have one of these names. The name
    /// that it is connected to by counts only if it is one of them.
    #[must_use]
    pub fn for_names(self, names: Vec<SubjectName>) -> Self {
        Self { names: Names::OneOf(names.into()), ..self }
    }

    /// The certificate authorities among them.
    pub fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// The self-signed server certificates among them.
    pub fn pinned(&self) -> &[PinnedCertificate] {
        &self.pinned
    }

    /// Number of certificates.
    pub fn count(&self) -> usize {
        self.certificates
    }

    /// Verifies servers.
    pub(super) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
        Arc::new(ServerVerifier {
            pinned: self.pinned.clone(),
            authorities: self.roots.clone(),
            names: self.names.clone(),
            provider: provider.clone(),
        })
    }
}

/// Certificate authorities only.
impl From<RootCertStore> for TrustAnchors {
    fn from(roots: RootCertStore) -> Self {
        let (certificates, names) = (roots.len(), Names::Own);
        Self { certificates, roots: Arc::new(roots), pinned: Arc::default(), names }
    }
}

impl PinnedCertificate {
    /// Reads a certificate of a CA file. `None`: it is only a certificate authority, because
    /// another authority issued it or it names no server.
    fn read(der: &CertificateDer<'static>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = names(&certificate);
        if names.is_empty() || certificate.subject().as_raw() != certificate.issuer().as_raw() {
            return None;
        }
        let constraints = certificate.basic_constraints().ok().flatten();
        let usage = certificate.key_usage().ok().flatten();
        let purposes = certificate.extended_key_usage().ok().flatten();
        let seconds = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        let validity = certificate.validity();
        Some(Self {
            der: der.clone(),
            names: names.join(", ").into(),
            // Without these extensions a certificate is an anchor like any other.
            issues: constraints.is_none_or(|c| c.value.ca) && usage.is_none_or(|u| u.value.key_cert_sign()),
            validity: (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp())),
            for_servers: purposes.is_none_or(|purposes| purposes.value.any || purposes.value.server_auth),
        })
    }

    /// Whether a server presents this one.
    pub(super) fn is(&self, presented: &CertificateDer<'_>) -> bool {
        self.der == *presented
    }

    /// Verifies all but the name.
    pub(super) fn check(&self, now: UnixTime) -> Result<(), Error> {
        let (begin, end) = self.validity;
        let error = if now.as_secs() < begin {
            CertificateError::NotValidYet
        } else if now.as_secs() > end {
            CertificateError::Expired
        } else if !self.for_servers {
            CertificateError::InvalidPurpose
        } else {
            return Ok(());
        };
        Err(error.into())
    }
}

/// The DNS names and IP addresses of a certificate (RFC 5280 section 4.2.1.6).
pub(super) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.into_iter().flat_map(|extension| &extension.value.general_names);
    let readable = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|octets| std::net::IpAddr::from(octets).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|octets| std::net::IpAddr::from(octets).to_string()),
        },
        _ => None,
    });
    readable.collect()
}
