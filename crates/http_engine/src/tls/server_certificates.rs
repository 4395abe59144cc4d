//! Certificates of a listener: which one a client receives, and their renewal.
//!
//! Owns: the choice by server name (SNI, RFC 6066 section 3), and replacing a certificate whose
//! files have changed. Does not own: when to look at the files, reloads of the configuration.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use auth::time::Timestamp;
use parking_lot::RwLock;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs as provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CertificateFiles, PresentedCertificate, TlsError, TlsWarning, certified_key, trust};

/// The certificates of a listener, at least one.
pub struct ServerCertificates {
    files: Vec<(PathBuf, PathBuf)>,
    current: RwLock<Arc<Choice>>,
}

/// How a certificate is chosen.
enum Choice {
    /// By the names in the certificates; the first is the default.
    ByCertificate(CertificateIndex),
    /// By the hosts of listeners.
    ByListener(ListenerIndex),
}

/// What became of a certificate whose files were read again.
#[derive(Debug)]
pub struct Renewal {
    /// Path of the certificate file.
    pub certificate: PathBuf,
    /// Problems of the new certificate, or why the former one stays in use.
    pub outcome: Result<Vec<TlsWarning>, TlsError>,
}

impl ServerCertificates {
    /// Reads the certificates. The first is the one for clients that name no server, or another.
    ///
    /// # Errors
    /// [`TlsError`] when a file is unreadable or wrong.
    pub fn read(
        files: &[CertificateFiles<'_>],
        now: Timestamp,
    ) -> Result<(Arc<Self>, Vec<TlsWarning>), TlsError> {
        let crypto = provider::default_provider();
        let (mut keys, mut warnings) = (Vec::new(), Vec::new());
        for (at, files) in files.iter().enumerate() {
            let (key, of_this) = certified_key(*files, &crypto, now)?;
            if at > 0 && names(&key).is_empty() {
                warnings.push(TlsWarning::NoName { path: files.certificate.to_owned() });
            }
            keys.push(Arc::new(key));
            warnings.extend(of_this);
        }
        let owned = |files: &CertificateFiles<'_>| (files.certificate.to_owned(), files.key.to_owned());
        let this = Self {
            files: files.iter().map(owned).collect(),
            current: RwLock::new(Arc::new(Choice::ByCertificate(CertificateIndex::new(keys)))),
        };
        Ok((Arc::new(this), warnings))
    }

    /// The certificates of several listeners, each with its host: an exact one, a wildcard such as
    /// `*.example.com`, or any. They are from no files, so there is nothing to renew.
    pub(super) fn of_listeners(listeners: Vec<(Option<Box<str>>, Vec<PresentedCertificate>)>) -> Arc<Self> {
        let choice = Choice::ByListener(ListenerIndex::new(listeners));
        Arc::new(Self { files: Vec::new(), current: RwLock::new(Arc::new(choice)) })
    }

    /// Reads the files again and replaces each certificate that has changed. A faulty one changes
    /// nothing, neither for itself nor for the others. Returns the changed and the faulty ones.
    pub fn renew(&self, now: Timestamp) -> Vec<Renewal> {
        let crypto = provider::default_provider();
        let Choice::ByCertificate(index) = &*self.current.read().clone() else { return Vec::new() };
        let mut keys = index.keys.clone();
        let mut renewals = Vec::new();
        for (at, (certificate, key)) in self.files.iter().enumerate() {
            let files = CertificateFiles { certificate, key };
            let outcome = match certified_key(files, &crypto, now) {
                // A certificate belongs to one key, so an equal chain means an equal pair.
                Ok((read, _)) if read.cert == keys[at].cert => continue,
                Ok((read, warnings)) => {
                    keys[at] = Arc::new(read);
                    Ok(warnings)
                }
                Err(error) => Err(error),
            };
            renewals.push(Renewal { certificate: certificate.clone(), outcome });
        }
        if renewals.iter().any(|renewal| renewal.outcome.is_ok()) {
            *self.current.write() = Arc::new(Choice::ByCertificate(CertificateIndex::new(keys)));
        }
        renewals
    }

    /// The certificate for a server name and the signatures that the client can verify.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        match &**self.current.read() {
            Choice::ByCertificate(index) => Some(index.choose(name, schemes).clone()),
            Choice::ByListener(index) => index.choose(name, schemes).cloned(),
        }
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}

impl fmt::Debug for ServerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificates").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Certificates by the names in them.
struct CertificateIndex {
    keys: Vec<Arc<CertifiedKey>>,
    /// Positions in `keys`, by name in lower case.
    exact: HashMap<Box<str>, Vec<usize>>,
    /// The same for wildcards, by what follows `*.`.
    wildcards: HashMap<Box<str>, Vec<usize>>,
}

impl CertificateIndex {
    fn new(keys: Vec<Arc<CertifiedKey>>) -> Self {
        let (mut exact, mut wildcards) =
            (HashMap::<Box<str>, Vec<usize>>::new(), HashMap::<Box<str>, Vec<usize>>::new());
        for (at, key) in keys.iter().enumerate() {
            for name in names(key) {
                let name = name.to_ascii_lowercase();
                match name.strip_prefix("*.") {
                    Some(parent) => wildcards.entry(parent.into()).or_default().push(at),
                    None => exact.entry(name.into()).or_default().push(at),
                }
            }
        }
        Self { keys, exact, wildcards }
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let name = name.map(str::to_ascii_lowercase);
        let named = name.as_deref().and_then(|name| {
            let parent = || Some(name.split_once('.')?.1);
            self.exact.get(name).or_else(|| self.wildcards.get(parent()?))
        });
        let candidates = named.map_or(&[0][..], Vec::as_slice);
        // Of several kinds of keys for one name, one that the client can verify.
        let verifiable = |at: &&usize| self.keys[**at].key.choose_scheme(schemes).is_some();
        let at = candidates.iter().find(verifiable).unwrap_or(&candidates[0]);
        &self.keys[*at]
    }
}

/// Certificates of listeners by their hosts.
#[derive(Default)]
struct ListenerIndex {
    exact: HashMap<Box<str>, CertificateIndex>,
    /// By what follows the `*`, with its dot.
    wildcards: HashMap<Box<str>, CertificateIndex>,
    any: Option<CertificateIndex>,
}

impl ListenerIndex {
    /// Of two listeners with the same host the first counts.
    fn new(listeners: Vec<(Option<Box<str>>, Vec<PresentedCertificate>)>) -> Self {
        let mut index = Self::default();
        for (host, keys) in listeners.into_iter().filter(|(_, keys)| !keys.is_empty()) {
            let keys = CertificateIndex::new(keys.into_iter().map(|key| key.0).collect());
            let host = host.map(|host| host.to_ascii_lowercase());
            match host.as_deref().map(|host| (host.strip_prefix('*'), host)) {
                None => _ = index.any.get_or_insert(keys),
                Some((Some(suffix), _)) => _ = index.wildcards.entry(suffix.into()).or_insert(keys),
                Some((None, host)) => _ = index.exact.entry(host.into()).or_insert(keys),
            }
        }
        index
    }

    /// The certificate of the most specific listener for a name.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase);
        let named = name.as_deref().and_then(|name| {
            // From the longest suffix to the shortest; at least one label is before it.
            let dots = name.match_indices('.').map(|(at, _)| at).filter(|at| *at > 0);
            let mut suffixes = dots.filter_map(|at| self.wildcards.get(&name[at..]));
            self.exact.get(name).or_else(|| suffixes.next())
        });
        Some(named.or(self.any.as_ref())?.choose(name.as_deref(), schemes))
    }
}

/// The names in a certificate. None for one that cannot be read: then it is only the default.
fn names(key: &CertifiedKey) -> Vec<String> {
    let parsed = key.cert.first().and_then(|first| X509Certificate::from_der(first).ok());
    parsed.map_or_else(Vec::new, |(_, certificate)| trust::names(&certificate))
}
