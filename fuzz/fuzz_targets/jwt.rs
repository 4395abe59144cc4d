//! Tokens: parsing and verification never panic, and an accepted token stays accepted.
//!
//! The first byte selects what follows:
//!
//! - `t`: a token.
//! - `s`: a header and a payload separated by a line feed, which the harness signs, so that the
//!   checks behind the signature are reached.
//! - `k`: a key set.
#![no_main]

use std::sync::LazyLock;

use auth::credential::bearer;
use auth::keyset::KeySet;
use auth::request::Field;
use auth::time::Timestamp;
use auth::token::{IssuerConfig, TokenTypes, jwt};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

static PAIR: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed of 32 bytes"));

static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let x = URL_SAFE_NO_PAD.encode(PAIR.public_key());
    let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}"}}]}}"#);
    KeySet::from_jwks_json(set.as_bytes()).expect("a key set").0
});

static CONFIGS: LazyLock<[IssuerConfig; 3]> = LazyLock::new(|| {
    [TokenTypes::Rfc9068, TokenTypes::Jwt, TokenTypes::Untyped].map(|types| {
        let mut config = IssuerConfig::new("main", "i", vec!["a".into()]).expect("a valid issuer");
        let mut mapping = config.mapping().clone();
        mapping.groups.push("realm_access.roles".parse().expect("a path"));
        mapping.keep.push("/x/y".parse().expect("a path"));
        config = config.with_mapping(mapping);
        config.with_types(types)
    })
});

/// Verifies that a configuration that accepts the token accepts it again, with the same facts.
fn check(token: &[u8], keys: &KeySet) {
    let Ok(unverified) = jwt::parse(token) else { return };
    for config in &*CONFIGS {
        let Ok(facts) = unverified.verify(config, keys, NOW) else { continue };
        let again = jwt::parse(token).expect("parsed before").verify(config, keys, NOW);
        assert_eq!(again.as_ref(), Ok(&facts));
        assert!(facts.valid_at(NOW));
        assert!(unverified.verify(config, keys, facts.expires).is_err(), "expired");
        assert!(unverified.verify(config, &KeySet::default(), NOW).is_err(), "no key");
        let value = [b"Bearer ", token].concat();
        let presented = bearer(&[Field { name: "Authorization", value: &value }], None);
        let presented = presented.expect("one credential").expect("a bearer token");
        assert_eq!(presented.checked(), Ok(token));
        let identity = &facts.identity;
        let lists =
            identity.groups.iter().chain(&identity.scopes).chain(identity.claims.iter().flat_map(|c| &c.1));
        let single =
            identity.user.iter().chain(&identity.email).chain(&identity.client).chain([&identity.subject]);
        for text in lists.chain(single) {
            assert!(!text.is_empty() && text.trim().len() == text.len() && !text.contains(char::is_control));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((b't', token)) => check(token, &KEYS),
        Some((b's', texts)) => {
            let mut texts = texts.splitn(2, |b| *b == b'\n');
            let (header, payload) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
            let signature = URL_SAFE_NO_PAD.encode(PAIR.sign(signed.as_bytes()));
            check(format!("{signed}.{signature}").as_bytes(), &KEYS);
        }
        Some((b'k', set)) => {
            if let Ok((keys, _)) = KeySet::from_jwks_json(set) {
                let token = format!("eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJpIn0.{}", "A".repeat(86));
                check(token.as_bytes(), &keys);
            }
        }
        _ => {}
    }
});
