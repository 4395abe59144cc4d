//! The signed assertion for upstreams.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::Algorithm;
use auth::keyset::KeySet;
use auth::mapping::{CertificateField, CertificateMapping};
use auth::token::jws::{Signer, SigningAlgorithm};
use auth::token::{IssuerConfig, jwt};
use auth::token_error::TokenError;
use aws_lc_rs::rand::SystemRandom;
use credentials::assertion::AssertionMinter;
use credentials::authenticate::Verified;
use credentials::config::AssertionConfig;
use http_engine::clock::Now;
use http_engine::test_support::files::TestCa;
use rcgen::{CertificateParams, DistinguishedName, DnType, SanType, date_time_ymd};

use crate::authenticate::{World, with_certificates};

const LIFETIME: Duration = Duration::from_mins(1);

fn config(audience: Option<&str>) -> AssertionConfig {
    AssertionConfig {
        header: "X-Postern-Assertion".into(),
        issuer: "https://gateway.example".into(),
        audience: audience.map(Into::into),
        lifetime: LIFETIME,
        signer: Arc::new(Signer::generate(SigningAlgorithm::Es256).unwrap()),
        jwks_path: "/jwks".into(),
    }
}

fn minter(audience: Option<&str>) -> AssertionMinter {
    AssertionMinter::new(&config(audience), SystemRandom::new())
}

/// A caller with every claim that an assertion has.
fn caller() -> (World, Arc<Verified>) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.distinguished_name.push(DnType::CommonName, "ada");
    params.distinguished_name.push(DnType::OrganizationName, "dev");
    params.subject_alt_names = vec![SanType::Rfc822Name("ada@example.org".try_into().unwrap())];
    let mapping = CertificateMapping::new("clients", CertificateField::SubjectDn)
        .unwrap()
        .with_user(CertificateField::SubjectCn)
        .with_groups(vec![CertificateField::SubjectO]);
    let world = with_certificates(mapping);
    let der = TestCa::new().sign(&params).0.der().clone();
    let verified = world.authenticator.certificate(&der, world.now()).unwrap();
    (world, verified)
}

/// Verifies like an upstream: only with the published key set.
fn verify(
    minter: &AssertionMinter,
    token: &str,
    audience: &str,
    now: Now,
) -> Result<auth::identity::Facts, TokenError> {
    let (keys, skipped) = KeySet::from_jwks_json(&minter.jwks()).unwrap();
    assert!(skipped.is_empty());
    let expected = IssuerConfig::new("gateway", "https://gateway.example", vec![audience.into()]).unwrap();
    jwt::parse(token.as_bytes())?.verify(&expected, &keys, now.wall)
}

#[tokio::test]
async fn an_upstream_verifies_it_with_the_published_keys() {
    let (world, caller) = caller();
    let minter = minter(None);
    let now = world.now();
    let token = caller.assertion(&minter, "billing", now).unwrap();
    assert_eq!(jwt::parse(token.as_bytes()).unwrap().algorithm(), Algorithm::Es256);
    let facts = verify(&minter, &token, "billing", now).unwrap();
    assert_eq!(&*facts.identity.subject, "O=dev,CN=ada");
    assert_eq!(facts.identity.user.as_deref(), Some("ada"));
    assert_eq!(facts.identity.groups, ["dev".into()]);
    assert_eq!(facts.expires, now.wall.plus(LIFETIME));
    assert_eq!(verify(&minter, &token, "shipping", now), Err(TokenError::WrongAudience));
    assert_eq!(verify(&minter, &token, "billing", now.plus(LIFETIME)), Err(TokenError::Expired));
    assert_eq!(verify(&self::minter(None), &token, "billing", now), Err(TokenError::UnknownKey));
}

#[tokio::test]
async fn its_claims_are_exactly_these() {
    let (world, caller) = caller();
    let token = caller.assertion(&minter(None), "billing", world.now()).unwrap();
    let payload = token.split('.').nth(1).unwrap();
    let decoded = base64url(payload);
    let claims: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&decoded).unwrap();
    let id = claims["jti"].as_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    let expected = serde_json::json!({
        "iss": "https://gateway.example", "aud": "billing", "sub": "O=dev,CN=ada", "idp": "clients",
        "iat": 1_000_000, "exp": 1_000_060, "jti": id,
        "preferred_username": "ada", "email": "ada@example.org", "groups": ["dev"],
    });
    assert_eq!(serde_json::Value::Object(claims), expected);
}

/// Unpadded base64url, written by hand: the tests need no codec otherwise.
fn base64url(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bits, mut held, mut out) = (0_u32, 0, Vec::new());
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|&l| l == letter).unwrap();
        bits = bits << 6 | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    out
}

#[tokio::test]
async fn one_statement_serves_half_its_lifetime() {
    let (world, caller) = caller();
    let minter = minter(None);
    let now = world.now();
    let first = caller.assertion(&minter, "billing", now).unwrap();
    let at = |after: Duration| caller.assertion(&minter, "billing", now.plus(after)).unwrap();
    assert!(Arc::ptr_eq(&first, &at(Duration::from_nanos(29_999_999_999))));
    let second = at(LIFETIME / 2);
    assert!(!Arc::ptr_eq(&first, &second));
    assert_ne!(first, second, "the id is new");
    assert!(Arc::ptr_eq(&second, &at(LIFETIME / 2)));
}

#[tokio::test]
async fn each_audience_and_each_key_has_its_own() {
    let (world, caller) = caller();
    let (one, two) = (minter(None), minter(None));
    let now = world.now();
    let mint = |minter: &AssertionMinter, upstream: &str| caller.assertion(minter, upstream, now).unwrap();
    let billing = mint(&one, "billing");
    assert_ne!(billing, mint(&one, "shipping"));
    assert!(Arc::ptr_eq(&billing, &mint(&one, "billing")));
    // After a reload with another key, assertions of the old one are not used.
    let replaced = mint(&two, "billing");
    assert!(verify(&two, &replaced, "billing", now).is_ok());
    // Only some audiences are kept, but each assertion is correct.
    for n in 0..20 {
        let upstream = format!("u{n}");
        assert!(verify(&one, &mint(&one, &upstream), &upstream, now).is_ok());
    }
    assert!(!Arc::ptr_eq(&billing, &mint(&one, "billing")));
}

#[tokio::test]
async fn a_fixed_audience_serves_all_upstreams() {
    let (world, caller) = caller();
    let minter = minter(Some("backends"));
    let now = world.now();
    let token = caller.assertion(&minter, "billing", now).unwrap();
    assert!(Arc::ptr_eq(&token, &caller.assertion(&minter, "shipping", now).unwrap()));
    assert!(verify(&minter, &token, "backends", now).is_ok());
}

#[tokio::test]
async fn it_never_outlives_the_credential() {
    let (world, caller) = caller();
    let minter = minter(None);
    let last = caller.facts.expires.minus(Duration::from_secs(10));
    let now = Now { wall: last, ..world.now() };
    let token = caller.assertion(&minter, "billing", now).unwrap();
    assert_eq!(verify(&minter, &token, "billing", now).unwrap().expires, caller.facts.expires);
}
