//! Security event tokens: reading one never panics, an accepted one stays accepted, and its
//! contents are complete.
//!
//! The first byte selects what follows:
//!
//! - `t`: a token.
//! - `s`: a header and a payload separated by a line feed, which the harness signs, so that the
//!   checks behind the signature are reached.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::jwt;
use auth::token::security_event::{EventKind, ExpectedEvents, SubjectName, security_events};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const SKEW: Duration = Duration::from_secs(30);

static PAIR: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed of 32 bytes"));

static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let x = URL_SAFE_NO_PAD.encode(PAIR.public_key());
    let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}"}}]}}"#);
    KeySet::from_jwks_json(set.as_bytes()).expect("a key set").0
});

fn check(token: &[u8]) {
    let Ok(unverified) = jwt::parse(token) else { return };
    let Ok(signed) = unverified.signed(AlgorithmSet::ALL, &KEYS) else { return };
    let audiences = ["a".into()];
    let expected = ExpectedEvents { issuer: "i", audiences: &audiences, clock_skew: SKEW };
    let Ok(told) = security_events(signed, &expected, NOW) else { return };
    assert_eq!(security_events(signed, &expected, NOW).as_ref(), Ok(&told), "the second reading differs");
    assert!(!told.jti.is_empty() && told.issued <= NOW.plus(SKEW) && !told.events.is_empty());
    for event in &told.events {
        assert!(event.occurred_at <= NOW.plus(SKEW));
        let has_subject =
            !matches!(event.kind, EventKind::Verification | EventKind::StreamUpdated | EventKind::Other);
        assert_eq!(has_subject, !event.names.is_empty(), "subjects present exactly if the event has one");
        assert!(event.state.is_none() || event.kind == EventKind::Verification);
        for name in &event.names {
            let texts = match *name {
                SubjectName::User(issuer, text) => [issuer.unwrap_or("-"), text],
                SubjectName::Token(one, other) | SubjectName::Consent(one, other) => [one, other],
                SubjectName::Session(text) | SubjectName::Email(text) | SubjectName::Opaque(text) => {
                    [text, "-"]
                }
            };
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(char::is_control)));
        }
    }
    let other = ExpectedEvents { issuer: "j", ..expected };
    assert!(security_events(signed, &other, NOW).is_err(), "accepted for another issuer");
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((b't', token)) => check(token),
        Some((b's', texts)) => {
            let mut texts = texts.splitn(2, |b| *b == b'\n');
            let (header, payload) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
            let signature = URL_SAFE_NO_PAD.encode(PAIR.sign(signed.as_bytes()));
            check(format!("{signed}.{signature}").as_bytes());
        }
        _ => {}
    }
});
