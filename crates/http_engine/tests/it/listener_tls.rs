//! TLS of a listener: its certificates, versions, groups, and revoked client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::time::Timestamp;
use http_engine::test_support::files::{Folder, TestCa, certificate_params};
use http_engine::tls::policy::{TlsPolicy, TlsVersion};
use http_engine::tls::{
    self, BuiltServer, CertificateFiles, ClientAuthorities, ClientCertificates, ClientFiles,
    PresentedCertificate, TlsError, TlsWarning, TrustAnchors,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, ServerConfig, ServerConnection,
};

use crate::tls::{BOTH, NOW, shake};

/// A time at which rcgen's certificates and the lists here are valid.
const TODAY: Timestamp = Timestamp::from_secs(1_790_000_000);

struct Bench {
    folder: Folder,
    authority: TestCa,
    ca: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let (folder, authority) = (Folder::new(), TestCa::new());
        let ca = folder.write("ca.crt", &authority.pem);
        Self { folder, authority, ca }
    }

    fn issue(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.authority.files(&self.folder, file, &CertificateParams::new(names).unwrap())
    }

    fn client(&self, identity: Option<&(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
        let identity = identity.map(|(certificate, key)| CertificateFiles { certificate, key });
        tls::client_config(&TrustAnchors::from_file(&self.ca).unwrap(), identity, BOTH, NOW).unwrap().config
    }

    /// The certificate that a client receives who asks for a name, as PEM would have it.
    fn received(&self, server: &Arc<ServerConfig>, name: Option<&str>) -> Vec<u8> {
        let mut client = (*self.client(None)).clone();
        client.enable_sni = name.is_some();
        client.resumption = rustls::client::Resumption::disabled();
        let provider = client.crypto_provider().clone();
        client.dangerous().set_certificate_verifier(Arc::new(AnyName(provider)));
        let name = ServerName::try_from(name.unwrap_or("none.test").to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(server.clone()).unwrap();
        for _ in 0..8 {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut sent = &wire[..];
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut sent = &wire[..];
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        client.peer_certificates().unwrap()[0].to_vec()
    }
}

/// A listener with these certificates.
fn listener(pairs: &[&(PathBuf, PathBuf)], policy: &TlsPolicy) -> BuiltServer {
    let files: Vec<_> =
        pairs.iter().map(|(certificate, key)| CertificateFiles { certificate, key }).collect();
    tls::server_config(&files, ClientCertificates::Ignored, policy, BOTH, NOW).unwrap()
}

/// Accepts any certificate: these tests look at which one arrives.
#[derive(Debug)]
struct AnyName(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The first certificate of a PEM file.
fn der(path: &Path) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_file(path).unwrap().to_vec()
}

#[test]
fn the_server_name_chooses_exactly_then_by_wildcard_then_the_first() {
    let bench = Bench::new();
    let default = bench.issue("default", &["default.test"]);
    let wildcard = bench.issue("wildcard", &["*.shop.test"]);
    let exact = bench.issue("exact", &["one.shop.test", "Other.test"]);
    let server = listener(&[&default, &wildcard, &exact], &TlsPolicy::default()).config;
    for (name, expected) in [
        (Some("default.test"), &default),
        (Some("one.shop.test"), &exact),
        (Some("ONE.shop.test"), &exact),
        (Some("other.test"), &exact),
        (Some("two.shop.test"), &wildcard),
        (Some("a.two.shop.test"), &default),
        (Some("shop.test"), &default),
        (Some("unknown.test"), &default),
        (None, &default),
    ] {
        assert_eq!(bench.received(&server, name), der(&expected.0), "{name:?}");
    }
}

#[test]
fn a_client_receives_the_kind_of_key_that_it_can_verify() {
    let bench = Bench::new();
    let ecdsa = bench.issue("ecdsa", &["app.test"]);
    let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let rsa = certificate_params("app.test").self_signed(&key).unwrap();
    let rsa =
        (bench.folder.write("rsa.crt", &rsa.pem()), bench.folder.write("rsa.key", &key.serialize_pem()));
    let all = listener(&[&ecdsa, &rsa], &TlsPolicy::default()).config;
    assert_eq!(bench.received(&all, Some("app.test")), der(&ecdsa.0));
    // In TLS 1.2 a cipher suite names the kind of key.
    let provider = rustls::crypto::CryptoProvider {
        cipher_suites: vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    let provider = Arc::new(provider);
    let only_rsa = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName(provider)))
        .with_no_client_auth();
    let mut connection =
        ClientConnection::new(Arc::new(only_rsa), ServerName::try_from("app.test").unwrap()).unwrap();
    let mut server = ServerConnection::new(all).unwrap();
    let mut wire = Vec::new();
    connection.write_tls(&mut wire).unwrap();
    server.read_tls(&mut &wire[..]).unwrap();
    server.process_new_packets().unwrap();
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).unwrap();
    }
    connection.read_tls(&mut &wire[..]).unwrap();
    connection.process_new_packets().unwrap();
    assert_eq!(connection.peer_certificates().unwrap()[0].as_ref(), der(&rsa.0));
}

#[test]
fn each_certificate_is_renewed_by_itself() {
    let bench = Bench::new();
    let (one, two) = (bench.issue("one", &["one.test"]), bench.issue("two", &["two.test"]));
    let BuiltServer { config, certificates, .. } = listener(&[&one, &two], &TlsPolicy::default());
    let before = (der(&one.0), der(&two.0));
    assert!(certificates.renew(NOW).is_empty(), "nothing has changed");
    // One is replaced with a new name, the other is broken.
    bench.issue("one", &["new.test"]);
    std::fs::write(&two.1, "garbage").unwrap();
    let renewals = certificates.renew(NOW);
    assert_eq!(renewals.len(), 2);
    assert!(renewals[0].certificate == one.0 && renewals[0].outcome.is_ok(), "{renewals:?}");
    assert!(matches!(renewals[1].outcome, Err(TlsError::NoKey { .. })), "{renewals:?}");
    assert_ne!(bench.received(&config, Some("new.test")), before.0);
    assert_eq!(bench.received(&config, Some("new.test")), der(&one.0));
    assert_eq!(bench.received(&config, Some("two.test")), before.1, "the last good one stays");
    // Half of a renewal: the certificate is new, its key is not yet.
    let (first, _) = bench.authority.sign(&certificate_params("half.test"));
    std::fs::write(&one.0, first.pem()).unwrap();
    let renewals = certificates.renew(NOW);
    assert!(matches!(renewals[0].outcome, Err(TlsError::KeyMismatch { .. })), "{renewals:?}");
}

#[test]
fn a_further_certificate_without_a_name_is_warned_of() {
    let bench = Bench::new();
    let named = bench.issue("named", &["app.test"]);
    let unnamed = bench.issue("unnamed", &[]);
    assert_eq!(listener(&[&unnamed, &named], &TlsPolicy::default()).warnings, []);
    let warnings = listener(&[&named, &unnamed], &TlsPolicy::default()).warnings;
    assert_eq!(warnings, [TlsWarning::NoName { path: unnamed.0 }]);
}

#[test]
fn a_policy_limits_versions_suites_and_groups() {
    let bench = Bench::new();
    let pair = bench.issue("server", &["localhost"]);
    // Tickets of one policy must not meet another.
    let fresh = |mut client: ClientConfig| {
        client.resumption = rustls::client::Resumption::disabled();
        Arc::new(client)
    };
    let client = fresh((*bench.client(None)).clone());
    let only = |policy: &TlsPolicy| listener(&[&pair], policy).config;
    let modern = only(&TlsPolicy { min_version: TlsVersion::Tls13, ..TlsPolicy::default() });
    let (_, server) = shake(&client, &modern).unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let old = ClientConfig::builder_with_provider(client.crypto_provider().clone())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(TrustAnchors::from_file(&bench.ca).unwrap().roots().clone())
        .with_no_client_auth();
    let old = fresh(old);
    assert!(shake(&old, &modern).is_err());
    assert!(shake(&old, &only(&TlsPolicy::default())).is_ok());

    let suites = [
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    let chacha = only(&TlsPolicy { cipher_suites: suites.to_vec(), ..TlsPolicy::default() });
    for (client, expected) in [(&client, suites[0]), (&old, suites[1])] {
        let (_, server) = shake(client, &chacha).unwrap();
        assert_eq!(server.negotiated_cipher_suite().unwrap().suite(), expected);
    }
    let groups = vec![NamedGroup::secp384r1];
    let curve = only(&TlsPolicy { groups, ..TlsPolicy::default() });
    for client in [&client, &old] {
        let (_, server) = shake(client, &curve).unwrap();
        assert_eq!(server.negotiated_key_exchange_group().unwrap().name(), NamedGroup::secp384r1);
    }
    let post_quantum = TlsPolicy {
        min_version: TlsVersion::Tls13,
        groups: vec![NamedGroup::X25519MLKEM768],
        ..TlsPolicy::default()
    };
    let (_, server) = shake(&client, &only(&post_quantum)).unwrap();
    assert_eq!(server.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
}

/// A client certificate with a serial number.
fn caller(bench: &Bench, file: &str, serial: u64) -> (PathBuf, PathBuf) {
    let mut params = certificate_params("caller");
    params.serial_number = Some(serial.into());
    bench.authority.files(&bench.folder, file, &params)
}

fn with_lists(bench: &Bench, lists: &[PathBuf]) -> Result<BuiltServer, TlsError> {
    let (certificate, key) = bench.issue("server", &["localhost"]);
    let clients = ClientCertificates::Required(ClientFiles { ca: &bench.ca, crls: lists });
    let files = CertificateFiles { certificate: &certificate, key: &key };
    tls::server_config(&[files], clients, &TlsPolicy::default(), BOTH, TODAY)
}

#[test]
fn revoked_client_certificates_are_refused_also_later() {
    let bench = Bench::new();
    let (good, revoked) = (caller(&bench, "good", 7), caller(&bench, "revoked", 8));
    let list = bench.folder.write("ca.crl", &bench.authority.revocation_list(&[8], 2060));
    let built = with_lists(&bench, std::slice::from_ref(&list)).unwrap();
    assert_eq!(built.warnings, []);
    assert!(shake(&bench.client(Some(&good)), &built.config).is_ok());
    let refused = shake(&bench.client(Some(&revoked)), &built.config).unwrap_err();
    assert_eq!(refused, rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked));
    // An open connection is checked again with a newer list.
    let (before, revoked) = (built.clients.unwrap(), der(&revoked.0).into());
    let good = der(&good.0).into();
    assert!(before.accepts(&good, &[], TODAY) && !before.accepts(&revoked, &[], TODAY));
    bench.folder.write("ca.crl", &bench.authority.revocation_list(&[7, 8], 2060));
    let after = with_lists(&bench, &[list]).unwrap().clients.unwrap();
    assert_ne!(before.version(), after.version());
    assert!(!after.accepts(&good, &[], TODAY));
}

#[test]
fn an_expired_list_and_a_missing_one_deny() {
    let bench = Bench::new();
    let good = caller(&bench, "good", 7);
    let expired = bench.folder.write("old.crl", &bench.authority.revocation_list(&[], 2025));
    let built = with_lists(&bench, std::slice::from_ref(&expired)).unwrap();
    assert_eq!(built.warnings, [TlsWarning::RevocationListExpired { path: expired }]);
    let refused = shake(&bench.client(Some(&good)), &built.config).unwrap_err();
    assert!(refused.to_string().contains("revocation list"), "{refused}");
    // The list of another authority says nothing about this one.
    let other = bench.folder.write("other.crl", &TestCa::new().revocation_list(&[], 2060));
    let built = with_lists(&bench, &[other]).unwrap();
    assert!(shake(&bench.client(Some(&good)), &built.config).is_err());
    assert!(!built.clients.unwrap().accepts(&der(&good.0).into(), &[], TODAY));
}

#[test]
fn lists_are_pem_or_der_and_whatever_else_is_refused() {
    use rustls::pki_types::pem::PemObject as _;
    let bench = Bench::new();
    let pem = bench.authority.revocation_list(&[8], 2060);
    let der = rustls::pki_types::CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap();
    let path = bench.folder.path("ca.der");
    std::fs::write(&path, &der).unwrap();
    let built = with_lists(&bench, &[path]).unwrap();
    assert!(shake(&bench.client(Some(&caller(&bench, "revoked", 8))), &built.config).is_err());
    for (name, content) in [("empty.crl", ""), ("words.crl", "no list"), ("ca.crl", &*bench.authority.pem)] {
        let path = bench.folder.write(name, content);
        let refused = with_lists(&bench, &[path]).unwrap_err();
        assert!(matches!(refused, TlsError::BadRevocationList { .. }), "{name}: {refused}");
        assert!(refused.to_string().contains(name));
    }
    assert!(matches!(with_lists(&bench, &[bench.folder.path("no.crl")]), Err(TlsError::Unreadable { .. })));
}

/// A certificate of a Secret, read from what `issue` wrote.
fn presented((certificate, key): &(PathBuf, PathBuf)) -> PresentedCertificate {
    let (certificate, key) = (std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap());
    PresentedCertificate::from_pem("team/secret", &certificate, &key, TODAY).unwrap()
}

#[test]
fn a_client_gets_the_certificate_of_the_most_specific_listener() {
    let bench = Bench::new();
    let issued = ["exact", "wild", "deep", "any"].map(|file| bench.issue(file, &[&format!("{file}.test")]));
    let listener = |host: Option<&str>, at: usize| (host.map(Box::from), vec![presented(&issued[at])]);
    let of = |listeners| tls::listeners_config(listeners, None, &TlsPolicy::default(), BOTH).unwrap().config;
    let hosts = vec![
        listener(Some("*.example.com"), 1),
        listener(Some("A.example.com"), 0),
        listener(Some("*.b.example.com"), 2),
        listener(Some("a.example.com"), 3),
    ];
    let certificate = |at: usize| &*issued[at].0;
    let server = of(hosts);
    for (name, at) in [
        ("a.example.com", 0),
        ("x.example.com", 1),
        ("x.y.example.com", 1),
        ("b.example.com", 1),
        ("x.b.example.com", 2),
    ] {
        assert_eq!(bench.received(&server, Some(name)), der(certificate(at)), "{name}");
    }
    let server = of(vec![listener(Some("*.example.com"), 1), listener(None, 3)]);
    assert_eq!(bench.received(&server, Some("example.com")), der(certificate(3)));
    assert_eq!(bench.received(&server, None), der(certificate(3)));
}

#[test]
fn a_client_that_asks_for_a_host_of_no_listener_gets_no_certificate() {
    let bench = Bench::new();
    let issued = bench.issue("a", &["localhost"]);
    let for_host = |host: &str| {
        let listener = (Some(host.into()), vec![presented(&issued)]);
        tls::listeners_config(vec![listener], None, &TlsPolicy::default(), BOTH).unwrap()
    };
    let built = for_host("localhost");
    assert!(shake(&bench.client(None), &built.config).is_ok());
    assert!(built.certificates.renew(TODAY).is_empty(), "it is from no file");
    assert!(shake(&bench.client(None), &for_host("other.example.com").config).is_err());
}

#[test]
fn listeners_ask_for_client_certificates_of_authorities_in_memory() {
    let bench = Bench::new();
    let server_files = bench.issue("server", &["localhost"]);
    let client_files = bench.issue("client", &["client"]);
    let pem: [Arc<[u8]>; 1] = [std::fs::read(&bench.ca).unwrap().into()];
    let stranger = Bench::new();
    let foreign_files = stranger.issue("client", &["client"]);
    let with = |admits_others| {
        let clients = ClientAuthorities { name: "team/ca", pem: &pem, admits_others };
        let listeners = vec![(None, vec![presented(&server_files)])];
        tls::listeners_config(listeners, Some(clients), &TlsPolicy::default(), BOTH).unwrap()
    };
    for (admits_others, identity, passes) in [
        (false, Some(&client_files), true),
        (false, Some(&foreign_files), false),
        (false, None, false),
        (true, Some(&client_files), true),
        (true, Some(&foreign_files), true),
        (true, None, true),
    ] {
        let built = with(admits_others);
        let clients = built.clients.expect("authorities");
        assert_eq!(clients.admits_others(), admits_others);
        let done = shake(&bench.client(identity), &built.config);
        assert_eq!(done.is_ok(), passes, "{admits_others} {identity:?}");
        if let Some((certificate, _)) = identity {
            // Whoever uses the certificate learns that it is a stranger's.
            let text = std::fs::read(certificate).unwrap();
            let leaf = CertificateDer::from_pem_slice(&text).unwrap();
            assert_eq!(clients.accepts(&leaf, &[], TODAY), *identity.unwrap() == client_files);
        }
    }
}

#[test]
fn a_faulty_pair_in_memory_names_the_secret() {
    let bench = Bench::new();
    let (first, second) = (bench.issue("first", &["a"]), bench.issue("second", &["b"]));
    let read = |path: &PathBuf| std::fs::read(path).unwrap();
    let fault = |chain: &[u8], key: &[u8]| {
        PresentedCertificate::from_pem("team/secret", chain, key, TODAY).err().expect("a fault").to_string()
    };
    let mismatch = fault(&read(&first.0), &read(&second.1));
    assert!(mismatch.starts_with("team/secret/tls.key: does not match"), "{mismatch}");
    let none = fault(b"nothing", &read(&first.1));
    assert!(none.starts_with("team/secret/tls.crt: no certificate found"), "{none}");
}
