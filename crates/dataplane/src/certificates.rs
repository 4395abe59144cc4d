//! Certificate authorities of the tests, and TLS clients.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::PATIENCE;

/// A certificate authority and its certificates, as files.
pub struct Authority {
    params: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    /// Creates an authority.
    pub fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        Self { params: rcgen::CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> String {
        self.params.pem()
    }

    /// Its certificate.
    pub fn der(&self) -> CertificateDer<'static> {
        self.params.der().clone()
    }

    /// Issues a certificate for these names.
    pub fn issue(&self, names: &[&str], common_name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        self.sign(rcgen::CertificateParams::new(names).unwrap(), common_name)
    }

    /// Issues a certificate that expires at `end`, in seconds since the epoch.
    pub fn issue_until(&self, end: u64, common_name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(end);
        self.sign(params, common_name)
    }

    /// Issues a certificate with a serial number.
    pub fn issue_numbered(&self, serial: u64, common_name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(serial.into());
        self.sign(params, common_name)
    }

    /// A revocation list, as PEM, with these serial numbers. The next one is due in `next_update`, a
    /// year.
    pub fn revocation_list(&self, revoked: &[u64], next_update: i32) -> String {
        let years = u64::try_from(next_update - 1970).unwrap();
        self.revocation_list_until(revoked, years * 365 * 86_400)
    }

    /// The same; the next one is due at `end`, in seconds since the epoch.
    pub fn revocation_list_until(&self, revoked: &[u64], end: u64) -> String {
        let revoked_certs = revoked.iter().map(|serial| rcgen::RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(end),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.params).unwrap().pem().unwrap()
    }

    fn sign(&self, mut params: rcgen::CertificateParams, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.params).unwrap(), key)
    }
}

impl Authority {
    /// Connects to a server whose certificate this authority issued.
    pub fn connect(
        &self,
        address: SocketAddr,
        alpn: &[&[u8]],
        identity: Option<(&rcgen::Certificate, &rcgen::KeyPair)>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        connect_with(address, self.client(alpn, identity))
    }

    /// A client of servers whose certificates this authority issued. It resumes sessions.
    pub fn client(
        &self,
        alpn: &[&[u8]],
        identity: Option<(&rcgen::Certificate, &rcgen::KeyPair)>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match identity {
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![certificate.der().clone()],
                    PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}

/// Connects to `app.test` at this address.
pub fn connect_with(
    address: SocketAddr,
    client: Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let connection = ClientConnection::new(client, ServerName::try_from("app.test").unwrap()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(connection, socket)
}
