//! Client certificates as a credential.

use std::time::Duration;

use auth::identity::CredentialKind;
use auth::mapping::{CertificateField, CertificateMapping};
use auth::time::Timestamp;
use credentials::authenticate::CertificateError;
use http_engine::clock::Now;
use http_engine::test_support::files::TestCa;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, SanType, date_time_ymd};
use rustls::pki_types::CertificateDer;

use crate::authenticate::{World, authentication, with_certificates};

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = date_time_ymd(1970, 1, 1);
    change(&mut params);
    TestCa::new().sign(&params).0.der().clone()
}

fn mapping(subject: CertificateField) -> CertificateMapping {
    CertificateMapping::new("clients", subject).unwrap()
}

fn field(subject: CertificateField, der: &CertificateDer<'_>) -> Result<String, CertificateError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let world = with_certificates(mapping(subject));
        let verified = world.authenticator.certificate(der, world.now())?;
        Ok(verified.facts.identity.subject.to_string())
    })
}

#[tokio::test]
async fn names_become_an_identity_and_header_fields() {
    let der = certificate(|params| {
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.distinguished_name.push(DnType::OrganizationName, "engineering");
        params.subject_alt_names = vec![
            SanType::URI("spiffe://cluster/ns/a/sa/ada".try_into().unwrap()),
            SanType::Rfc822Name("ada@example.org".try_into().unwrap()),
            SanType::DnsName("Ada.Example".try_into().unwrap()),
        ];
    });
    let mapping = mapping(CertificateField::SanUri)
        .with_user(CertificateField::SubjectCn)
        .with_groups(vec![CertificateField::SubjectO])
        .with_kept(vec![CertificateField::SanDns]);
    let world = with_certificates(mapping);
    let verified = world.authenticator.certificate(&der, world.now()).unwrap();
    let identity = &verified.facts.identity;
    assert_eq!((identity.kind, &*identity.issuer), (CredentialKind::Certificate, "clients"));
    assert_eq!(&*identity.subject, "spiffe://cluster/ns/a/sa/ada");
    assert_eq!(identity.user.as_deref(), Some("ada"));
    assert_eq!(identity.email.as_deref(), Some("ada@example.org"));
    assert_eq!(identity.groups, ["engineering".into()]);
    assert_eq!(identity.claim("san_dns"), ["ada.example".into()], "DNS names have one spelling");
    assert_eq!(verified.issuer, None);
    let block = str::from_utf8(&verified.http1_block).unwrap();
    assert!(block.contains("X-Forwarded-Email: ada@example.org\r\n"), "{block}");
}

#[tokio::test]
async fn the_certificates_own_dates_bound_the_facts() {
    let der = certificate(|params| {
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2030, 2, 1);
    });
    let world = with_certificates(mapping(CertificateField::SubjectCn));
    let (begin, end) = (Timestamp::from_secs(1_893_456_000), Timestamp::from_secs(1_896_134_400));
    let at =
        |wall| world.authenticator.certificate(&der, Now { wall, ..world.now() }).map(|v| v.facts.clone());
    let facts = at(begin).unwrap();
    assert_eq!((facts.not_before, facts.expires), (begin, end));
    let millisecond = Duration::from_millis(1);
    assert!(at(end.minus(millisecond)).is_ok());
    assert_eq!(at(end), Err(CertificateError::NotValidNow), "expired means now >= the end");
    assert_eq!(at(begin.minus(millisecond)), Err(CertificateError::NotValidNow));
}

#[tokio::test]
async fn certificates_are_no_credential_unless_configured() {
    let world = World::of(&authentication(Vec::new(), 1));
    let der = certificate(|params| params.distinguished_name.push(DnType::CommonName, "ada"));
    let refused = world.authenticator.certificate(&der, world.now()).unwrap_err();
    assert_eq!(refused, CertificateError::NotConfigured);
}

#[test]
fn a_name_cannot_spell_another_component() {
    let der = certificate(|params| {
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::OrganizationName, "a,O=admins+CN=root");
        params.distinguished_name.push(DnType::CommonName, " #x\\\"<>;=y ");
    });
    let dn = field(CertificateField::SubjectDn, &der).unwrap();
    assert_eq!(dn, "CN=\\ #x\\\\\\\"\\<\\>\\;=y\\ ,O=a\\,O=admins\\+CN=root,C=DE");
}

#[test]
fn an_attribute_without_a_short_name_is_spelt_by_number_and_encoding() {
    let der = certificate(|params| {
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 5]), "42");
        params.distinguished_name.push(DnType::CommonName, "a");
    });
    assert_eq!(field(CertificateField::SubjectDn, &der).unwrap(), "CN=a,2.5.4.5=#0c023432");
}

#[test]
fn what_cannot_be_read_or_is_missing_refuses_the_certificate() {
    let der = certificate(|params| {
        params.distinguished_name.push(DnType::CommonName, DnValue::BmpString("ada".try_into().unwrap()));
    });
    let refused = field(CertificateField::SubjectCn, &der).unwrap_err();
    assert_eq!(refused, CertificateError::UnreadableName("subject"));

    let der = certificate(|params| params.distinguished_name.push(DnType::CommonName, "ada"));
    let missing = field(CertificateField::SanUri, &der).unwrap_err();
    assert_eq!(
        (missing.code(), &*missing.to_string()),
        ("certificate_mapping", "the client certificate's claim `san_uri` is missing")
    );
    let control = certificate(|params| params.distinguished_name.push(DnType::CommonName, "a\r\nx: y"));
    assert_eq!(field(CertificateField::SubjectCn, &control).unwrap_err().code(), "certificate_mapping");
    let two = certificate(|params| {
        params.subject_alt_names =
            ["a.example", "b.example"].map(|name| SanType::DnsName(name.try_into().unwrap())).into();
    });
    assert_eq!(field(CertificateField::SanDns, &two).unwrap_err().code(), "certificate_mapping");

    for spoilt in [&b""[..], b"\x30\x00", &der[..der.len() - 1], &[&der[..], b"\0"].concat()] {
        let spoilt = CertificateDer::from(spoilt.to_vec());
        assert_eq!(field(CertificateField::SubjectCn, &spoilt).unwrap_err(), CertificateError::Unparsable);
    }
}
