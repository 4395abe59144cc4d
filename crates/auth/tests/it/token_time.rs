//! When a token is valid.

use std::time::Duration;

use auth::time::Timestamp;
use auth::token::{IssuerConfigError, TokenTypes};
use serde_json::{Value, json};

use crate::token_support::*;

fn at(millis: u64, claims: &Value, skew: u64) -> &'static str {
    let config = config().with_clock_skew(Duration::from_secs(skew)).unwrap();
    class_of(&verify_at(&token(claims), &config, &ISSUER_KEYS.set(), Timestamp::from_millis(millis)))
}

#[test]
fn tokens_expired_means_now_at_or_after_exp() {
    let claims = claims_with(json!({"exp": 2_000, "iat": null}));
    assert_eq!(at(1_999_999, &claims, 0), "accepted");
    assert_eq!(at(2_000_000, &claims, 0), "expired", "now == exp");
    assert_eq!(at(2_000_001, &claims, 0), "expired");
    assert_eq!(at(2_059_999, &claims, 60), "accepted");
    assert_eq!(at(2_060_000, &claims, 60), "expired", "now == exp + skew");
}

#[test]
fn tokens_not_before_is_kept() {
    let claims = claims_with(json!({"exp": 3_000, "nbf": 2_000, "iat": null}));
    assert_eq!(at(1_999_999, &claims, 0), "not_yet_valid");
    assert_eq!(at(2_000_000, &claims, 0), "accepted");
    assert_eq!(at(1_939_999, &claims, 60), "not_yet_valid");
    assert_eq!(at(1_940_000, &claims, 60), "accepted");
    let never = claims_with(json!({"exp": 1_000, "nbf": 2_000, "iat": null}));
    for millis in [999_999, 1_000_000, 1_500_000, 2_000_000] {
        assert_ne!(at(millis, &never, 0), "accepted", "{millis}");
    }
}

#[test]
fn tokens_issued_in_the_future_are_refused() {
    // Revocations of all tokens issued before a moment are compared with `iat`: a token with a
    // later `iat` would survive them.
    let claims = claims_with(json!({"exp": 3_000, "iat": 2_500}));
    assert_eq!(at(1_000_000, &claims, 0), "in_future");
    assert_eq!(at(2_498_999, &claims, 0), "in_future");
    assert_eq!(at(2_499_000, &claims, 0), "accepted", "whole seconds may be rounded up");
    assert_eq!(at(2_439_999, &claims, 60), "in_future");
    assert_eq!(at(2_440_000, &claims, 60), "accepted", "within the skew");
    let whole = claims_with(json!({"iat": 1_800_000_061}));
    for (typ, types) in [("at+jwt", TokenTypes::Rfc9068), ("JWT", TokenTypes::Jwt), ("", TokenTypes::Untyped)]
    {
        let typ = if typ.is_empty() { String::new() } else { format!(r#","typ":"{typ}""#) };
        let token = token_of(&format!(r#"{{"alg":"EdDSA","kid":"ed25519"{typ}}}"#), &whole.to_string());
        let config = config().with_clock_skew(Duration::from_mins(1)).unwrap().with_types(types);
        let error = verify_with(&token, &config).unwrap_err();
        assert_eq!(
            error.to_string(),
            "token claim `iat` is in the future; compare the issuer's clock with this host's",
            "{types:?}"
        );
    }
}

#[test]
fn tokens_facts_carry_the_validity_with_skew() {
    let config = config().with_clock_skew(Duration::from_secs(5)).unwrap();
    let claims = claims_with(json!({"exp": 2_000.5, "nbf": 1_000.25, "iat": null}));
    let facts = verify_at(&token(&claims), &config, &ISSUER_KEYS.set(), Timestamp::from_secs(1_500)).unwrap();
    assert_eq!(facts.expires, Timestamp::from_millis(2_005_500));
    assert_eq!(facts.not_before, Timestamp::from_millis(995_250));
    assert!(facts.valid_at(Timestamp::from_millis(2_005_499)) && !facts.valid_at(facts.expires));
    let without = verify(&token(&self::claims())).unwrap();
    assert_eq!(without.not_before, Timestamp::from_millis(0));
}

#[test]
fn tokens_exp_is_a_required_number() {
    assert_eq!(class(&token(&claims_with(json!({"exp": null})))), "missing_claim");
    for exp in
        [json!("1800000300"), json!("never"), json!(true), json!([1_800_000_300]), json!({}), json!("")]
    {
        assert_eq!(class(&token(&claims_with(json!({"exp": exp})))), "bad_claim", "{exp}");
    }
    let header = r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#;
    let claims = claims().to_string();
    for literal in ["null", "1800000300000", "9e99", "18446744073709551616", "253402300800"] {
        let payload = claims.replace("1800000300", literal);
        assert_eq!(class(&token_of(header, &payload)), "bad_claim", "{literal}");
    }
    for literal in ["0", "-1", "-1e300", "1e3", "-0"] {
        assert_eq!(class(&token_of(header, &claims.replace("1800000300", literal))), "expired", "{literal}");
    }
    for literal in ["1800000300.5", "1.8000003e9", "253402300799"] {
        assert_eq!(class(&token_of(header, &claims.replace("1800000300", literal))), "accepted", "{literal}");
    }
}

#[test]
fn tokens_nbf_and_iat_are_numbers() {
    let header = r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#;
    let base = claims_with(json!({"iat": null})).to_string();
    for name in ["nbf", "iat"] {
        for value in ["\"1\"", "null", "[]", "{}", "true", "1800000000000"] {
            let payload = format!(r#"{},"{name}":{value}}}"#, &base[..base.len() - 1]);
            assert_eq!(class(&token_of(header, &payload)), "bad_claim", "{name} {value}");
        }
    }
}

#[test]
fn tokens_clock_skew_is_at_most_60_seconds() {
    assert!(config().with_clock_skew(Duration::from_mins(1)).is_ok());
    let much = Duration::from_millis(60_001);
    assert_eq!(config().with_clock_skew(much).err(), Some(IssuerConfigError::ClockSkew(much)));
}
