//! Certificate authorities of clients, and revoked client certificates.
//!
//! Owns: verifying client certificates in the handshake and again later on open connections.
//! Revocation lists (CRLs, RFC 5280 section 5) are checked for the whole chain: a certificate
//! whose issuer has no list is refused, and so is every certificate of an issuer whose list has
//! expired. Does not own: which certificate identifies which caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::digest;
use outage::Outage;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::verifier::{ClientVerifier, Ending};
use super::{ClientAuthorities, TlsError, TlsWarning, contains, read};

/// The CAs for client certificates. The handshake uses them, and so do later checks: of open
/// connections when the CAs have changed or a list has expired, and of resumed sessions.
#[derive(Debug, Clone)]
pub struct ClientCas {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Whether the handshake also accepts certificates that the verifier refuses.
    admits_others: bool,
    version: [u8; digest::SHA256_OUTPUT_LEN],
    /// When the revocation lists expire.
    list_ends: Box<[Timestamp]>,
}

impl ClientCas {
    /// `optional`: a client without a certificate is accepted. Without `crls` no certificate counts
    /// as revoked.
    pub(super) fn read(
        ca: &Path,
        crls: &[PathBuf],
        optional: bool,
        provider: Arc<CryptoProvider>,
        now: Timestamp,
    ) -> Result<(Self, Vec<TlsWarning>), TlsError> {
        Self::with_roots(roots(ca, super::certificates(ca)?)?, crls, optional, provider, now)
    }

    /// Authorities in PEM, without revocation lists.
    pub(super) fn from_pem(
        clients: &ClientAuthorities<'_>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let name = Path::new(clients.name);
        let texts = clients.pem.iter().map(|text| super::certificates_in(name, text));
        let certificates = texts.collect::<Result<Vec<_>, _>>()?.concat();
        // Nothing of it depends on the time without revocation lists.
        let now = Timestamp::from_secs(0);
        let (authorities, _) =
            Self::with_roots(roots(name, certificates)?, &[], clients.admits_others, provider, now)?;
        Ok(Self { admits_others: clients.admits_others, ..authorities })
    }

    /// What the handshake uses.
    pub(super) fn handshake_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        if self.admits_others {
            Arc::new(ClientVerifier { inner: self.verifier.clone(), ending: Ending::AdmitsOthers })
        } else {
            self.verifier.clone()
        }
    }

    /// Whether a certificate that passed the handshake may be one that these authorities do not
    /// vouch for.
    pub fn admits_others(&self) -> bool {
        self.admits_others
    }

    fn with_roots(
        roots: RootCertStore,
        crls: &[PathBuf],
        optional: bool,
        provider: Arc<CryptoProvider>,
        now: Timestamp,
    ) -> Result<(Self, Vec<TlsWarning>), TlsError> {
        let mut warnings = Vec::new();
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        for root in &roots.roots {
            let constraints = root.name_constraints.as_ref().map_or(&[][..], AsRef::as_ref);
            for part in [root.subject.as_ref(), root.subject_public_key_info.as_ref(), constraints] {
                add(part);
            }
        }
        let (mut lists, mut list_ends) = (Vec::new(), Vec::new());
        for path in crls {
            for list in revocation_lists(path)? {
                let end = end_of_list(path, &list)?;
                if now >= end {
                    warnings.push(TlsWarning::RevocationListExpired { path: path.to_owned() });
                }
                list_ends.push(end);
                add(&list);
                lists.push(list);
            }
        }
        let mut version = [0; digest::SHA256_OUTPUT_LEN];
        version.copy_from_slice(hash.finish().as_ref());
        let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if optional { builder.allow_unauthenticated() } else { builder };
        let verifier = if lists.is_empty() {
            builder.build().map_err(|error| refused(&error))?
        } else {
            // An unknown status is refused unless allowed, and the whole chain is checked.
            let builder = builder.with_crls(lists).enforce_revocation_expiration();
            let inner = builder.build().map_err(|error| refused(&error))?;
            let files: Vec<_> = crls.iter().map(|path| path.display().to_string()).collect();
            let lists = Outage::new(format!("revocation list {}", files.join(", ")));
            let lists = lists.with_effect("certificates of its issuer are refused");
            Arc::new(ClientVerifier { inner, ending: Ending::ReportsLists(lists) })
        };
        Ok((Self { verifier, admits_others: false, version, list_ends: list_ends.into() }, warnings))
    }

    /// Identifies the set: two with the same version accept the same certificates.
    pub fn version(&self) -> &[u8; digest::SHA256_OUTPUT_LEN] {
        &self.version
    }

    /// Whether they accept an end-entity certificate with the intermediates it was presented with.
    pub fn accepts(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> bool {
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now.as_millis()));
        self.verifier.verify_client_cert(end_entity, intermediates, now).is_ok()
    }

    /// Until when the answer of [`Self::accepts`] holds: until a revocation list or one of these
    /// intermediates expires. The end of the end-entity certificate is not considered.
    pub fn holds_until(&self, intermediates: &[CertificateDer<'_>], now: Timestamp) -> Timestamp {
        let ends = intermediates.iter().filter_map(|certificate| {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            // A certificate is valid until the end of that second, a list until its beginning.
            Some(seconds(certificate.validity().not_after.timestamp()).plus(Duration::from_secs(1)))
        });
        ends.chain(self.list_ends.iter().copied()).filter(|end| *end > now).min().unwrap_or(Timestamp::MAX)
    }
}

fn seconds(since_epoch: i64) -> Timestamp {
    Timestamp::from_secs(u64::try_from(since_epoch).unwrap_or(0))
}

/// All certificates of the file count as authorities: clients have no names that could be pinned.
fn roots(ca: &Path, certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (at, certificate) in certificates.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| TlsError::BadCertificate {
            path: ca.to_owned(),
            number: at + 1,
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

/// The revocation lists of a file: PEM, or one in DER.
fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let content = read(path)?;
    if !contains(&content, b"-----BEGIN ") {
        return Ok(vec![CertificateRevocationListDer::from(content)]);
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(&content).collect::<Result<Vec<_>, _>>();
    let lists = lists
        .map_err(|error| TlsError::BadRevocationList { path: path.to_owned(), reason: error.to_string() })?;
    if lists.is_empty() {
        let reason = "there is no block `BEGIN X509 CRL`".to_owned();
        return Err(TlsError::BadRevocationList { path: path.to_owned(), reason });
    }
    Ok(lists)
}

/// When a list expires. Its form is checked: a list without the time of the next one would be valid
/// forever.
fn end_of_list(path: &Path, list: &CertificateRevocationListDer<'_>) -> Result<Timestamp, TlsError> {
    let bad = |reason: String| TlsError::BadRevocationList { path: path.to_owned(), reason };
    let (rest, parsed) = CertificateRevocationList::from_der(list).map_err(|_| bad("it is no CRL".into()))?;
    if !rest.is_empty() {
        return Err(bad("data follows the list".into()));
    }
    let next = parsed.next_update().ok_or_else(|| bad("it does not say when the next list is due".into()))?;
    Ok(seconds(next.timestamp()))
}
