//! Checks `[listener.tls]`: certificates, versions, and how client certificates are verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_engine::tls::policy::{PolicyFault, TlsPolicy, TlsVersion};
use http_engine::tls::{
    BuiltServer, CertificateFiles, ClientCas, ClientCertificates, ClientFiles, Protocols, ServerCertificates,
    TlsError,
};
use rustls::{NamedGroup, ServerConfig};

use super::super::fault::KeyPath;
use super::super::raw::{self, ClientCertificateDemand as Demand, KeyExchangeGroup as Group};
use super::Context;
use super::tls::error_path;

/// What TLS of a listener is made from.
pub(super) struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    /// The certificates that `config` presents.
    pub(super) certificates: Arc<ServerCertificates>,
    /// Authorities for client certificates. `None`: none is requested.
    pub(super) clients: Option<ClientCas>,
}

/// A certificate and its key, with the paths of the keys that name them.
struct Pair<'r> {
    certificate: &'r Path,
    key: &'r Path,
    at: KeyPath,
}

impl Context<'_> {
    /// TLS of a listener. `None` when a fault was noted.
    pub(super) fn tls_server(
        &mut self,
        tls: &raw::ListenerTls,
        protocols: Protocols,
        path: &KeyPath,
    ) -> Option<ServerTls> {
        let (pairs, policy) = (self.pairs(tls, path), self.tls_policy(tls, path));
        let (pairs, policy) = (pairs?, policy?);
        let mut complete = true;
        for Pair { certificate, key, at } in &pairs {
            complete &= self.read(certificate, &at.key("certificate")).is_some();
            complete &= self.read(key, &at.key("key")).is_some();
        }
        let (mut ca, mut crls) = (None, Vec::new());
        if let (Some(file), Demand::Optional | Demand::Required) = (&tls.client_ca, tls.client_certificates) {
            complete &= self.read(file, &path.key("client_ca")).is_some();
            ca = Some(self.reader.resolve(file));
            for (index, file) in tls.client_crl.iter().enumerate() {
                complete &= self.read(file, &path.key("client_crl").index(index)).is_some();
                crls.push(self.reader.resolve(file));
            }
        }
        if !complete {
            return None;
        }
        let clients = ca.as_ref().map(|ca| ClientFiles { ca, crls: &crls });
        let clients = match (clients, tls.client_certificates) {
            (Some(files), Demand::Optional) => ClientCertificates::Optional(files),
            (Some(files), Demand::Required) => ClientCertificates::Required(files),
            _ => ClientCertificates::Ignored,
        };
        let resolved: Vec<_> = pairs
            .iter()
            .map(|pair| (self.reader.resolve(pair.certificate), self.reader.resolve(pair.key)))
            .collect();
        let files: Vec<_> =
            resolved.iter().map(|(certificate, key)| CertificateFiles { certificate, key }).collect();
        match http_engine::tls::server_config(&files, clients, &policy, protocols, self.now) {
            Ok(BuiltServer { config, certificates, clients, warnings }) => {
                self.tls_warnings(path, &warnings);
                Some(ServerTls { config, certificates, clients })
            }
            Err(error) => {
                let at = key_of(&error, (&pairs, &resolved), (ca.as_ref(), &crls), path);
                self.tls_fault(&at, &error);
                None
            }
        }
    }

    /// The certificates with their keys. `None` when a fault was noted.
    fn pairs<'r>(&mut self, tls: &'r raw::ListenerTls, path: &KeyPath) -> Option<Vec<Pair<'r>>> {
        let mut missing = |given: &str, missing: &str, hint: &str| {
            self.faults.add(&path.key(given), format!("missing key `{missing}`"), hint);
            None
        };
        match (&tls.certificate, &tls.key, tls.certificates.as_slice()) {
            (Some(certificate), Some(key), []) => Some(vec![Pair { certificate, key, at: path.clone() }]),
            (None, None, [_, ..]) => {
                let pairs = tls.certificates.iter().enumerate();
                let pairs = pairs.map(|(index, pair)| Pair {
                    certificate: &pair.certificate,
                    key: &pair.key,
                    at: path.key("certificates").index(index),
                });
                Some(pairs.collect())
            }
            (None, None, []) => {
                let hint = "name a PEM file with the certificate, and one with its `key`";
                self.faults.add(path, "missing key `certificate`", hint);
                None
            }
            (Some(_), None, []) => missing("certificate", "key", "a certificate needs its private key"),
            (None, Some(_), []) => missing("key", "certificate", "a private key needs its certificate"),
            (_, _, [_, ..]) => {
                let message = "both one certificate and several are named";
                let hint = "write all of them into `certificates`, the default first";
                self.faults.add(&path.key("certificates"), message, hint);
                None
            }
        }
    }

    /// Versions, cipher suites and groups. `None` when a fault was noted.
    /// What TLS a listener offers. `None` when a fault was noted.
    pub(super) fn tls_policy(&mut self, tls: &raw::ListenerTls, path: &KeyPath) -> Option<TlsPolicy> {
        let min_version = match (tls.profile, tls.min_version) {
            (raw::TlsProfile::Modern, Some(raw::TlsVersion::Tls12)) => {
                let message = "the profile \"modern\" has no TLS 1.2";
                self.faults.add(
                    &path.key("min_version"),
                    message,
                    "remove it, or write `profile = \"intermediate\"`",
                );
                return None;
            }
            (raw::TlsProfile::Modern, _) | (_, Some(raw::TlsVersion::Tls13)) => TlsVersion::Tls13,
            (raw::TlsProfile::Intermediate, Some(raw::TlsVersion::Tls12) | None) => TlsVersion::Tls12,
        };
        let policy = TlsPolicy {
            min_version,
            cipher_suites: tls.cipher_suites.iter().copied().map(cipher_suite).collect(),
            groups: tls.groups.iter().copied().map(group).collect(),
        };
        let (key, message, hint) = match policy.check() {
            Ok(()) => return Some(policy),
            Err(PolicyFault::NoCipherSuite(version)) => (
                "cipher_suites",
                format!("there is no cipher suite for {version}"),
                "add one (TLS 1.3 has those without `_WITH_`), or change `min_version`",
            ),
            Err(PolicyFault::NoGroup(version)) => (
                "groups",
                format!("there is no group for {version}"),
                "add \"x25519\" or \"secp256r1\" (those with MLKEM are for TLS 1.3), or change `min_version`",
            ),
        };
        self.faults.add(&path.key(key), message, hint);
        None
    }
}

/// The key whose file an error concerns.
fn key_of(
    error: &TlsError,
    (pairs, resolved): (&[Pair<'_>], &[(PathBuf, PathBuf)]),
    (ca, crls): (Option<&PathBuf>, &[PathBuf]),
    path: &KeyPath,
) -> KeyPath {
    let Some(file) = error_path(error) else { return path.clone() };
    // One file may be named for both.
    match (error, crls.iter().position(|crl| crl == file)) {
        (TlsError::BadRevocationList { .. }, Some(index)) => return path.key("client_crl").index(index),
        _ if Some(file) == ca => return path.key("client_ca"),
        (_, Some(index)) => return path.key("client_crl").index(index),
        _ => {}
    }
    for (pair, (certificate, key)) in pairs.iter().zip(resolved) {
        if file == key {
            return pair.at.key("key");
        }
        if file == certificate {
            return pair.at.key("certificate");
        }
    }
    path.clone()
}

fn cipher_suite(suite: raw::CipherSuite) -> rustls::CipherSuite {
    use raw::CipherSuite as Raw;
    use rustls::CipherSuite as Suite;
    match suite {
        Raw::Aes256Gcm => Suite::TLS13_AES_256_GCM_SHA384,
        Raw::Aes128Gcm => Suite::TLS13_AES_128_GCM_SHA256,
        Raw::ChaCha20 => Suite::TLS13_CHACHA20_POLY1305_SHA256,
        Raw::EcdheEcdsaAes256Gcm => Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        Raw::EcdheEcdsaAes128Gcm => Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Raw::EcdheEcdsaChaCha20 => Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        Raw::EcdheRsaAes256Gcm => Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Raw::EcdheRsaAes128Gcm => Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Raw::EcdheRsaChaCha20 => Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    }
}

fn group(group: Group) -> NamedGroup {
    match group {
        Group::X25519MLKEM768 => NamedGroup::X25519MLKEM768,
        Group::SecP256r1MLKEM768 => NamedGroup::secp256r1MLKEM768,
        Group::X25519 => NamedGroup::X25519,
        Group::Secp256r1 => NamedGroup::secp256r1,
        Group::Secp384r1 => NamedGroup::secp384r1,
        Group::MLKEM768 => NamedGroup::MLKEM768,
        Group::MLKEM1024 => NamedGroup::MLKEM1024,
    }
}
