//! TLS from files: which files are accepted, the errors for the others, and the resulting
//! handshakes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::time::Timestamp;
use http_engine::test_support::files::{Folder, TestCa, certificate_params};
use http_engine::tls::policy::TlsPolicy;
use http_engine::tls::{
    self, CertificateFiles, ClientCertificates, ClientFiles, Protocols, TlsError, TlsWarning, TrustAnchors,
};
use rcgen::{KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
    ServerConnection,
};

pub(crate) const BOTH: Protocols = Protocols { http1: true, http2: true };
const HTTP1: Protocols = Protocols { http1: true, http2: false };
/// Before the end of rcgen's default validity.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Bench {
    folder: Folder,
    authority: TestCa,
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let (folder, authority) = (Folder::new(), TestCa::new());
        let ca = folder.write("ca.crt", &authority.pem);
        let (certificate, key) = authority.files(&folder, "server", &certificate_params("localhost"));
        Self { folder, authority, ca, certificate, key }
    }

    fn files(&self) -> CertificateFiles<'_> {
        CertificateFiles { certificate: &self.certificate, key: &self.key }
    }

    fn server(&self, clients: ClientCertificates<'_>, protocols: Protocols) -> Arc<ServerConfig> {
        tls::server_config(&[self.files()], clients, &TlsPolicy::default(), protocols, NOW).unwrap().config
    }

    fn client(&self, identity: Option<CertificateFiles<'_>>, protocols: Protocols) -> Arc<ClientConfig> {
        tls::client_config(&TrustAnchors::from_file(&self.ca).unwrap(), identity, protocols, NOW)
            .unwrap()
            .config
    }
}

fn refused(certificate: &Path, key: &Path) -> TlsError {
    let files = CertificateFiles { certificate, key };
    tls::server_config(&[files], ClientCertificates::Ignored, &TlsPolicy::default(), BOTH, NOW).unwrap_err()
}

/// Runs a handshake in memory.
pub(crate) fn shake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut client = ClientConnection::new(client.clone(), "localhost".try_into().unwrap())?;
    let mut server = ServerConnection::new(server.clone())?;
    let mut wire = Vec::new();
    // Continues after the handshake, for tickets and late alerts.
    for _ in 0..8 {
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut sent = &wire[..];
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets()?;
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut sent = &wire[..];
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets()?;
        }
        wire.clear();
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

#[test]
fn http2_is_preferred_and_only_what_is_on_is_offered() {
    let bench = Bench::new();
    let both = bench.server(ClientCertificates::Ignored, BOTH);
    let (_, server) = shake(&bench.client(None, BOTH), &both).unwrap();
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
    let (_, server) = shake(&bench.client(None, HTTP1), &both).unwrap();
    assert_eq!(server.alpn_protocol(), Some(&b"http/1.1"[..]));
    let only1 = bench.server(ClientCertificates::Ignored, HTTP1);
    let (client, _) = shake(&bench.client(None, BOTH), &only1).unwrap();
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
    let only2 = bench.server(ClientCertificates::Ignored, Protocols { http1: false, http2: true });
    assert!(shake(&bench.client(None, HTTP1), &only2).is_err());
    // A client without ALPN is served by the protocol it starts to use.
    let silent = bench.client(None, Protocols { http1: false, http2: false });
    let (_, server) = shake(&silent, &both).unwrap();
    assert_eq!(server.alpn_protocol(), None);
}

#[test]
fn tls_1_2_and_1_3_are_spoken_and_sessions_resumed() {
    let bench = Bench::new();
    let server = bench.server(ClientCertificates::Ignored, BOTH);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    for (version, expected) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(TrustAnchors::from_file(&bench.ca).unwrap().roots().clone())
            .with_no_client_auth();
        let client = Arc::new(client);
        let (first, _) = shake(&client, &server).unwrap();
        assert_eq!(first.protocol_version(), Some(expected));
        assert_eq!(first.handshake_kind(), Some(HandshakeKind::Full));
        let (second, _) = shake(&client, &server).unwrap();
        assert_eq!(second.handshake_kind(), Some(HandshakeKind::Resumed), "{expected:?}");
        // Tickets are invalid after their configuration was replaced.
        let (third, _) = shake(&client, &bench.server(ClientCertificates::Ignored, BOTH)).unwrap();
        assert_eq!(third.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn key_exchange_is_post_quantum_where_both_can() {
    let bench = Bench::new();
    let (client, _) =
        shake(&bench.client(None, BOTH), &bench.server(ClientCertificates::Ignored, BOTH)).unwrap();
    let group = client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn client_certificates_are_ignored_optional_or_required() {
    let bench = Bench::new();
    let (certificate, key) = bench.authority.files(&bench.folder, "client", &certificate_params("caller"));
    let known = bench.client(Some(CertificateFiles { certificate: &certificate, key: &key }), BOTH);
    let (certificate, key) = TestCa::new().files(&bench.folder, "stranger", &certificate_params("caller"));
    let stranger = bench.client(Some(CertificateFiles { certificate: &certificate, key: &key }), BOTH);
    let nobody = bench.client(None, BOTH);
    let shown = |client, mode| {
        let (_, server) = shake(client, &bench.server(mode, BOTH)).ok()?;
        Some(server.peer_certificates().map_or(0, <[_]>::len))
    };
    let files = ClientFiles::without_lists(&bench.ca);
    let (optional, required) = (ClientCertificates::Optional(files), ClientCertificates::Required(files));
    assert_eq!(shown(&known, ClientCertificates::Ignored), Some(0));
    assert_eq!(shown(&stranger, ClientCertificates::Ignored), Some(0));
    assert_eq!((shown(&known, optional), shown(&known, required)), (Some(1), Some(1)));
    assert_eq!((shown(&nobody, optional), shown(&nobody, required)), (Some(0), None));
    // A presented certificate must be genuine, even if none is required.
    assert_eq!((shown(&stranger, optional), shown(&stranger, required)), (None, None));
}

#[test]
fn a_server_that_does_not_chain_to_the_given_ca_is_refused() {
    let (bench, other) = (Bench::new(), Bench::new());
    let server = bench.server(ClientCertificates::Ignored, BOTH);
    assert!(shake(&other.client(None, BOTH), &server).is_err());
    let nothing = tls::client_config(&RootCertStore::empty().into(), None, BOTH, NOW).unwrap().config;
    assert!(shake(&nothing, &server).is_err());
}

#[test]
fn each_fault_names_its_file_and_a_remedy() {
    let bench = Bench::new();
    let names = |fault: &TlsError, file: &str, remedy: &str| {
        let text = fault.to_string();
        assert!(text.contains(file) && text.contains(remedy), "{text}");
        assert!(!text.contains("PRIVATE KEY-----"), "{text}");
    };

    let fault = refused(&bench.folder.path("absent.crt"), &bench.key);
    assert!(matches!(fault, TlsError::Unreadable { .. }));
    names(&fault, "absent.crt", "check the path");
    let fault = refused(&bench.certificate, &bench.folder.path("absent.key"));
    names(&fault, "absent.key", "check the path");

    let (_, other_key) = bench.authority.files(&bench.folder, "other", &certificate_params("localhost"));
    let fault = refused(&bench.certificate, &other_key);
    assert!(matches!(fault, TlsError::KeyMismatch { .. }));
    names(&fault, "other.key", "server.crt");

    let fault = refused(&bench.key, &bench.key);
    assert!(matches!(fault, TlsError::NoCertificate { .. }), "{fault}");
    names(&fault, "server.key", "BEGIN CERTIFICATE");
    let fault = refused(&bench.certificate, &bench.certificate);
    assert!(matches!(fault, TlsError::NoKey { .. }), "{fault}");
    names(&fault, "server.crt", "PKCS#8");

    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let fault = refused(&bench.certificate, &bench.folder.write("locked.key", encrypted));
    assert!(matches!(fault, TlsError::EncryptedKey { .. }));
    names(&fault, "locked.key", "openssl pkey");

    let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let fault = refused(&bench.certificate, &bench.folder.write("garbage.key", garbage));
    assert!(matches!(fault, TlsError::BadKey { .. }), "{fault}");
    names(&fault, "garbage.key", "2048 bits");
    let open = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n";
    let fault = refused(&bench.certificate, &bench.folder.write("open.key", open));
    assert!(matches!(fault, TlsError::NotPem { .. }), "{fault}");
    assert!(!fault.to_string().contains("c2VjcmV0"), "a key file is not quoted: {fault}");

    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let garbage = bench.folder.write("garbage.crt", garbage);
    let fault = refused(&garbage, &bench.key);
    assert!(matches!(fault, TlsError::BadCertificate { number: 1, .. }), "{fault}");
    names(&fault, "garbage.crt", "certificate 1");
    let broken =
        bench.folder.write("broken.crt", "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n");
    assert!(matches!(refused(&broken, &bench.key), TlsError::NotPem { .. }));
}

#[test]
fn an_unusable_ca_refuses_to_start() {
    let bench = Bench::new();
    assert!(matches!(
        TrustAnchors::from_file(&bench.folder.path("no.pem")),
        Err(TlsError::Unreadable { .. })
    ));
    assert!(matches!(
        TrustAnchors::from_file(&bench.folder.write("empty.pem", "")),
        Err(TlsError::NoCertificate { .. })
    ));
    // One valid and one invalid certificate must be refused.
    let mixed =
        format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", bench.authority.pem);
    let mixed = bench.folder.write("mixed.pem", &mixed);
    assert!(matches!(TrustAnchors::from_file(&mixed), Err(TlsError::BadCertificate { number: 2, .. })));
    let outcome = {
        let clients = ClientCertificates::Optional(ClientFiles::without_lists(&mixed));
        tls::server_config(&[bench.files()], clients, &TlsPolicy::default(), BOTH, NOW)
    };
    assert!(matches!(outcome, Err(TlsError::BadCertificate { .. })));
    let both = format!("{}{}", bench.authority.pem, TestCa::new().pem);
    assert_eq!(TrustAnchors::from_file(&bench.folder.write("two.pem", &both)).unwrap().count(), 2);
}

#[test]
fn dates_are_warned_of() {
    let bench = Bench::new();
    let mut params = certificate_params("localhost");
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2030, 2, 1);
    let (certificate, key) = bench.authority.files(&bench.folder, "dated", &params);
    let warnings = |now: Timestamp| {
        let files = CertificateFiles { certificate: &certificate, key: &key };
        tls::server_config(&[files], ClientCertificates::Ignored, &TlsPolicy::default(), BOTH, now)
            .unwrap()
            .warnings
    };
    let path = certificate.clone();
    let (begin, end) = (Timestamp::from_secs(1_893_456_000), Timestamp::from_secs(1_896_134_400));
    let day = std::time::Duration::from_hours(24);
    assert_eq!(warnings(begin), []);
    assert_eq!(warnings(begin.minus(day)), [TlsWarning::NotYetValid { path: path.clone() }]);
    assert_eq!(warnings(end.minus(day * 7)), []);
    assert_eq!(warnings(end.minus(day * 2)), [TlsWarning::ExpiresSoon { path: path.clone(), days: 2 }]);
    assert_eq!(warnings(end), [TlsWarning::Expired { path: path.clone(), days: 0 }]);
    let late = warnings(end.plus(day * 3));
    assert_eq!(late, [TlsWarning::Expired { path, days: 3 }]);
    assert!(late[0].to_string().contains("dated.crt") && late[0].to_string().contains("3 days ago"));
}

#[test]
fn keys_of_each_common_kind_are_read() {
    let bench = Bench::new();
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = certificate_params("localhost").self_signed(&key).unwrap();
        let certificate = bench.folder.write("kind.crt", &certificate.pem());
        let key = bench.folder.write("kind.key", &key.serialize_pem());
        let files = CertificateFiles { certificate: &certificate, key: &key };
        let built =
            tls::server_config(&[files], ClientCertificates::Ignored, &TlsPolicy::default(), BOTH, NOW);
        assert!(built.is_ok(), "{algorithm:?}: {:?}", built.err());
    }
}
