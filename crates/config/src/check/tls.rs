//! TLS material: certificates, keys and certificate authorities.
//!
//! The files are read here first. So they are watched, and a missing file is reported like any
//! other. [`http_engine::tls`] checks their content.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_engine::tls::{BuiltTls, CertificateFiles, Protocols, TlsError, TlsWarning, TrustAnchors};
use rustls::{ClientConfig, RootCertStore};

use super::super::fault::KeyPath;
use super::Context;
use crate::version::version;

/// Keys of a TLS client: trusted authorities and the own certificate.
pub(super) struct Client<'a> {
    pub(super) ca: Option<&'a Path>,
    /// Paths of certificate and key.
    pub(super) identity: Option<(&'a Path, &'a Path)>,
    pub(super) protocols: Protocols,
    /// Path of the table that holds the keys.
    pub(super) path: &'a KeyPath,
    pub(super) keys: KeyNames,
}

/// Names in the file for the parts of a [`Client`].
#[derive(Clone, Copy)]
pub(super) struct KeyNames {
    pub(super) ca: &'static str,
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
}

impl KeyNames {
    /// The usual names.
    pub(super) const DEFAULT: Self = Self { ca: "ca", certificate: "certificate", key: "key" };
}

/// Trusted certificates, and the content of the file that they were read from.
pub(super) struct Roots {
    pub(super) anchors: TrustAnchors,
    ca_pem: Vec<u8>,
}

impl Roots {
    /// No authorities: for a server whose certificate chain is not verified.
    pub(super) fn empty() -> Self {
        Self { anchors: RootCertStore::empty().into(), ca_pem: Vec::new() }
    }
}

/// A TLS client without an own certificate that was made for one table of the file.
pub(super) struct MadeClient {
    ca: Option<PathBuf>,
    protocols: Protocols,
    config: Arc<ClientConfig>,
    version: u64,
}

impl Context<'_> {
    /// TLS client configuration, and a digest of all files that it was made from. Clients without an
    /// own certificate that trust the same authorities have the same configuration: so an issuer and
    /// a login provider of one URL share what they fetch.
    pub(super) fn tls_client(&mut self, client: &Client<'_>) -> Option<(Arc<ClientConfig>, u64)> {
        let roots = self.roots(client)?;
        let ca = client.ca.map(Path::to_owned);
        if client.identity.is_some() {
            return self.tls_client_with_roots(&roots, client);
        }
        let is_same = |made: &&MadeClient| made.ca == ca && made.protocols == client.protocols;
        if let Some(made) = self.clients.iter().find(is_same) {
            return Some((made.config.clone(), made.version));
        }
        let (config, version) = self.tls_client_with_roots(&roots, client)?;
        self.clients.push(MadeClient { ca, protocols: client.protocols, config: config.clone(), version });
        Some((config, version))
    }

    /// What the server's certificate is verified with: the certificates in the file, or those that
    /// the system trusts.
    pub(super) fn roots(&mut self, client: &Client<'_>) -> Option<Roots> {
        let Some(ca) = client.ca else {
            return Some(Roots { anchors: self.system_roots(client.path)?, ca_pem: Vec::new() });
        };
        let path = client.path.key(client.keys.ca);
        let read = self.read(ca, &path)?;
        let anchors = TrustAnchors::from_file(&self.reader.resolve(ca));
        let anchors = anchors.map_err(|error| self.tls_fault(&path, &error)).ok()?;
        self.trusted.insert(ca.to_owned(), anchors.clone());
        Some(Roots { anchors, ca_pem: read })
    }

    /// Like [`Self::tls_client`], with authorities that were already read.
    pub(super) fn tls_client_with_roots(
        &mut self,
        roots: &Roots,
        client: &Client<'_>,
    ) -> Option<(Arc<ClientConfig>, u64)> {
        let Client { path, keys, .. } = client;
        let mut material = vec![roots.ca_pem.clone()];
        let mut resolved = None;
        if let Some((certificate, key)) = client.identity {
            let (at_certificate, at_key) = (path.key(keys.certificate), path.key(keys.key));
            let (read_certificate, read_key) =
                (self.read(certificate, &at_certificate), self.read(key, &at_key));
            material.extend([read_certificate?, read_key?]);
            resolved = Some((self.reader.resolve(certificate), self.reader.resolve(key)));
        }
        let files = resolved.as_ref().map(|(certificate, key)| CertificateFiles { certificate, key });
        match http_engine::tls::client_config(&roots.anchors, files, client.protocols, self.now) {
            Ok(BuiltTls { config, warnings }) => {
                self.tls_warnings(path, &warnings);
                Some((config, version(material.iter().map(Vec::as_slice))))
            }
            Err(error) => {
                let key = match (&resolved, error_path(&error)) {
                    (Some((_, key)), Some(file)) if file == key => keys.key,
                    _ => keys.certificate,
                };
                self.tls_fault(&path.key(key), &error);
                None
            }
        }
    }

    fn system_roots(&mut self, path: &KeyPath) -> Option<TrustAnchors> {
        match self.files.system_roots() {
            Ok((roots, warnings)) => {
                self.tls_warnings(path, &warnings);
                Some(roots)
            }
            Err(error) => {
                self.tls_fault(path, &error);
                None
            }
        }
    }

    pub(super) fn tls_fault(&mut self, path: &KeyPath, error: &TlsError) {
        let text = error.to_string();
        let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
        self.faults.add(path, message, hint);
    }

    pub(super) fn tls_warnings(&mut self, path: &KeyPath, warnings: &[TlsWarning]) {
        for warning in warnings {
            let text = warning.to_string();
            let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
            self.faults.warn(path, message, hint);
        }
    }
}

/// The file that an error concerns.
pub(super) fn error_path(error: &TlsError) -> Option<&PathBuf> {
    match error {
        TlsError::Unreadable { path, .. }
        | TlsError::NotPem { path, .. }
        | TlsError::NoCertificate { path }
        | TlsError::BadCertificate { path, .. }
        | TlsError::BadRevocationList { path, .. }
        | TlsError::NoKey { path }
        | TlsError::EncryptedKey { path }
        | TlsError::BadKey { path, .. }
        | TlsError::KeyMismatch { key: path, .. } => Some(path),
        TlsError::NoSystemRoots { .. } | TlsError::Refused(_) => None,
    }
}
