//! Temporary certificates and their files.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

/// A temporary folder, removed at the end of its test.
pub struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// A new, empty folder.
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// A certificate authority that signs any request.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, as PEM.
    pub pem: String,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    /// A new authority with its own key.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Issues a certificate; returns it with its key.
    pub fn sign(&self, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes a revocation list, as PEM: serial numbers, and the year in which the next list is due.
    pub fn revocation_list(&self, revoked: &[u64], next_update: i32) -> String {
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Issues a certificate, written as PEM files `{name}.crt` and `{name}.key`.
    pub fn files(&self, folder: &Folder, name: &str, params: &CertificateParams) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.sign(params);
        (
            folder.write(&format!("{name}.crt"), &certificate.pem()),
            folder.write(&format!("{name}.key"), &key.serialize_pem()),
        )
    }
}

/// Parameters of a certificate for a DNS name.
pub fn certificate_params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}
