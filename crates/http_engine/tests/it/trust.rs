//! Certificates that verify servers: self-signed certificates of servers in a CA file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use http_engine::test_support::files::{Folder, TestCa, certificate_params};
use http_engine::tls::policy::TlsPolicy;
use http_engine::tls::{self, CertificateFiles, ClientCertificates, SubjectName, TrustAnchors};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use rustls::{CertificateError, Error};

use crate::tls::{BOTH, NOW, shake};

/// A self-signed certificate as `openssl req -x509` makes it: `CA:TRUE`, without key usage.
fn openssl(folder: &Folder, file: &str, name: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.path(&format!("{file}.crt")), folder.path(&format!("{file}.key")));
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "30", "-subj", "/CN=upstream", "-addext", &format!("subjectAltName=DNS:{name}")])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl is not installed: run dev/setup test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (certificate, key)
}

/// A self-signed certificate of this test's own making.
fn self_signed(folder: &Folder, file: &str, params: &CertificateParams) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (
        folder.write(&format!("{file}.crt"), &certificate.pem()),
        folder.write(&format!("{file}.key"), &key.serialize_pem()),
    )
}

/// A handshake with the server `localhost`, which presents this certificate.
fn presented(pair: &(PathBuf, PathBuf), ca: &Path) -> Result<(), Error> {
    presented_to(pair, &TrustAnchors::from_file(ca).unwrap())
}

/// The same with a client that trusts these certificates.
fn presented_to((certificate, key): &(PathBuf, PathBuf), trusted: &TrustAnchors) -> Result<(), Error> {
    let files = CertificateFiles { certificate, key };
    let policy = TlsPolicy::default();
    let server =
        tls::server_config(&[files], ClientCertificates::Ignored, &policy, BOTH, NOW).unwrap().config;
    let client = tls::client_config(trusted, None, BOTH, NOW).unwrap().config;
    for versions in [vec![&rustls::version::TLS12], vec![&rustls::version::TLS13]] {
        // The same verifier for each version.
        let mut client = (*client).clone();
        let mut only = rustls::ServerConfig::builder_with_provider(server.crypto_provider().clone())
            .with_protocol_versions(&versions)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(server.cert_resolver.clone());
        only.alpn_protocols.clone_from(&server.alpn_protocols);
        client.resumption = rustls::client::Resumption::disabled();
        shake(&Arc::new(client), &Arc::new(only))?;
    }
    Ok(())
}

#[test]
fn a_self_signed_certificate_of_openssl_is_accepted_for_exactly_itself() {
    let folder = Folder::new();
    let upstream = openssl(&folder, "upstream", "localhost");
    assert_eq!(presented(&upstream, &upstream.0), Ok(()));
    // The same subject and name, but another key.
    let other = openssl(&folder, "other", "localhost");
    assert!(presented(&other, &upstream.0).is_err());
    let anchors = TrustAnchors::from_file(&upstream.0).unwrap();
    assert_eq!((anchors.count(), anchors.pinned().len()), (1, 1));
    assert_eq!(&*anchors.pinned()[0].names, "localhost");
}

#[test]
fn the_name_must_match_a_pinned_certificate_too() {
    let folder = Folder::new();
    let elsewhere = openssl(&folder, "elsewhere", "upstream.example");
    let refused = presented(&elsewhere, &elsewhere.0).unwrap_err();
    let Error::InvalidCertificate(error) = refused else { panic!("{refused:?}") };
    assert!(
        matches!(error, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        "{error:?}"
    );
}

#[test]
fn without_a_name_issuer_dates_and_purpose_still_count() {
    let (folder, authority, other) = (Folder::new(), TestCa::new(), TestCa::new());
    let ca = folder.write("ca.crt", &authority.pem);
    let any_name = TrustAnchors::from_file(&ca).unwrap().for_any_name();
    let params = || certificate_params("some.pod");
    let issued = authority.files(&folder, "issued", &params());
    assert!(presented(&issued, &ca).is_err(), "it is not for localhost");
    assert_eq!(presented_to(&issued, &any_name), Ok(()));
    let refused = |authority: &TestCa, file: &str, params: &CertificateParams| {
        presented_to(&authority.files(&folder, file, params), &any_name).unwrap_err()
    };
    let strange = refused(&other, "strange", &params());
    assert!(matches!(strange, Error::InvalidCertificate(_)), "{strange:?}");
    let mut old = params();
    old.not_after = date_time_ymd(2020, 1, 1);
    let old = refused(&authority, "old", &old);
    assert!(matches!(old, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{old:?}");
    let mut client = params();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = refused(&authority, "client", &client);
    assert!(matches!(client, Error::InvalidCertificate(_)), "{client:?}");
    // A self-signed certificate is accepted for itself.
    let own = openssl(&folder, "own", "some.pod");
    let pinned = TrustAnchors::from_file(&own.0).unwrap().for_any_name();
    assert_eq!(presented_to(&own, &pinned), Ok(()));
    assert!(presented_to(&openssl(&folder, "same", "some.pod"), &pinned).is_err());
}

#[test]
fn one_of_several_names_is_enough_and_the_own_one_is_not() {
    let (folder, authority) = (Folder::new(), TestCa::new());
    let ca = folder.write("ca.crt", &authority.pem);
    let host = |name: &str| SubjectName::host(name).unwrap();
    let accepts = |presented: &(PathBuf, PathBuf), names: &[SubjectName]| {
        let trusted = TrustAnchors::from_file(&ca).unwrap().for_names(names.to_vec());
        match presented_to(presented, &trusted) {
            Ok(()) => true,
            Err(Error::InvalidCertificate(CertificateError::NotValidForName)) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    let with = |file: &str, names: &[SanType]| {
        let mut params = certificate_params("localhost");
        params.subject_alt_names = names.to_vec();
        authority.files(&folder, file, &params)
    };
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let uri = "spiffe://cluster.test/ns/team/sa/app";
    let both = with("both", &[dns("App.Team.test"), SanType::URI(uri.try_into().unwrap())]);
    for (names, expected) in [
        (vec![host("app.team.test")], true),
        (vec![host("other.test"), host("APP.team.test")], true),
        (vec![host("*.team.test")], true),
        (vec![host("*.test")], false),
        (vec![host("team.test")], false),
        (vec![host("localhost")], false),
        (vec![SubjectName::uri(uri)], true),
        (vec![host("other.test"), SubjectName::uri(uri)], true),
        (vec![SubjectName::uri("spiffe://cluster.test/ns/team/sa/App")], false),
        (vec![SubjectName::uri("spiffe://cluster.test/ns/team/sa/ap")], false),
        (vec![SubjectName::uri("app.team.test")], false),
        (vec![], false),
    ] {
        assert_eq!(accepts(&both, &names), expected, "{names:?}");
    }
    let wild = with("wild", &[dns("*.team.test")]);
    for (name, expected) in
        [("*.team.test", true), ("a.team.test", true), ("a.b.team.test", false), ("*.a.team.test", false)]
    {
        assert_eq!(accepts(&wild, &[host(name)]), expected, "{name}");
    }
    assert!(!accepts(&authority.files(&folder, "own", &certificate_params("localhost")), &[host("a.test")]));
    for text in ["", "*", "*.", "a b", "10.0.0.1", "*.*.test"] {
        assert_eq!(SubjectName::host(text), None, "{text}");
    }
}

#[test]
fn names_do_not_replace_the_authority() {
    let (folder, authority, other) = (Folder::new(), TestCa::new(), TestCa::new());
    let ca = folder.write("ca.crt", &authority.pem);
    let name = || vec![SubjectName::host("app.test").unwrap()];
    let foreign = other.files(&folder, "foreign", &certificate_params("app.test"));
    let refused = presented_to(&foreign, &TrustAnchors::from_file(&ca).unwrap().for_names(name()));
    assert!(
        !matches!(refused, Ok(()) | Err(Error::InvalidCertificate(CertificateError::NotValidForName))),
        "{refused:?}"
    );
    // A pinned certificate needs one of the names too.
    let own = openssl(&folder, "own", "app.test");
    let pinned = || TrustAnchors::from_file(&own.0).unwrap();
    assert_eq!(presented_to(&own, &pinned().for_names(name())), Ok(()));
    let others = vec![SubjectName::host("other.test").unwrap()];
    assert!(presented_to(&own, &pinned().for_names(others)).is_err());
}

#[test]
fn dates_and_purpose_of_a_pinned_certificate_count() {
    let folder = Folder::new();
    let mut params = certificate_params("localhost");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(presented(&self_signed(&folder, "good", &params), &folder.path("good.crt")), Ok(()));
    let refused = |params: &CertificateParams, file: &str| {
        let files = self_signed(&folder, file, params);
        presented(&files, &files.0).unwrap_err()
    };
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = params.clone();
        change(&mut params);
        params
    };
    let old = with(|params| params.not_after = date_time_ymd(2020, 1, 1));
    assert_eq!(refused(&old, "old"), Error::InvalidCertificate(CertificateError::Expired));
    let early = with(|params| params.not_before = date_time_ymd(2090, 1, 1));
    assert_eq!(refused(&early, "early"), Error::InvalidCertificate(CertificateError::NotValidYet));
    let client = with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    assert_eq!(refused(&client, "client"), Error::InvalidCertificate(CertificateError::InvalidPurpose));
}

#[test]
fn a_pinned_certificate_that_is_no_authority_issues_nothing() {
    let folder = Folder::new();
    let mut leaf = certificate_params("localhost");
    leaf.is_ca = IsCa::ExplicitNoCa;
    let key = KeyPair::generate().unwrap();
    let certificate = folder.write("leaf.crt", &leaf.self_signed(&key).unwrap().pem());
    let own = (certificate.clone(), folder.write("leaf.key", &key.serialize_pem()));
    assert_eq!(presented(&own, &certificate), Ok(()));
    assert!(!TrustAnchors::from_file(&certificate).unwrap().pinned()[0].issues);
    let issued_key = KeyPair::generate().unwrap();
    let issued = certificate_params("localhost").signed_by(&issued_key, &Issuer::new(leaf, key)).unwrap();
    let issued =
        (folder.write("issued.crt", &issued.pem()), folder.write("issued.key", &issued_key.serialize_pem()));
    assert!(presented(&issued, &certificate).is_err());
}

#[test]
fn an_authority_with_a_name_still_issues() {
    // As kubeadm makes its authority: with the DNS name `kubernetes`.
    let (folder, key) = (Folder::new(), KeyPair::generate().unwrap());
    let mut params = certificate_params("kubernetes");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca = folder.write("ca.crt", &params.self_signed(&key).unwrap().pem());
    let server_key = KeyPair::generate().unwrap();
    let server = certificate_params("localhost").signed_by(&server_key, &Issuer::new(params, key)).unwrap();
    let server =
        (folder.write("server.crt", &server.pem()), folder.write("server.key", &server_key.serialize_pem()));
    assert_eq!(presented(&server, &ca), Ok(()));
    assert!(TrustAnchors::from_file(&ca).unwrap().pinned()[0].issues);
}

#[test]
fn a_file_may_have_both_kinds() {
    let (folder, authority) = (Folder::new(), TestCa::new());
    let pinned = openssl(&folder, "upstream", "localhost");
    let issued = authority.files(&folder, "issued", &certificate_params("localhost"));
    let both = format!("{}{}", authority.pem, std::fs::read_to_string(&pinned.0).unwrap());
    let both = folder.write("both.pem", &both);
    assert_eq!((presented(&pinned, &both), presented(&issued, &both)), (Ok(()), Ok(())));
    assert!(presented(&openssl(&folder, "other", "localhost"), &both).is_err());
    let anchors = TrustAnchors::from_file(&both).unwrap();
    assert_eq!((anchors.count(), anchors.pinned().len()), (2, 1));
}
