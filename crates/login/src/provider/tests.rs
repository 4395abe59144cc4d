//! Tests of the parent module.

use super::*;
use auth::algorithm::Algorithm;
use auth::token_error::TokenError;

#[test]
fn a_question_joins_what_the_address_has() {
    let url = Url::parse("https://id.example/auth?tenant=1").unwrap();
    let joined = with_query(&url, &[("state", "a b&c"), ("redirect_uri", "https://app.example/x")]);
    assert_eq!(
        joined,
        "https://id.example/auth?tenant=1&state=a+b%26c&redirect_uri=https%3A%2F%2Fapp.example%2Fx"
    );
}

#[test]
fn the_time_of_the_log_is_asked_for_beside_other_claims() {
    for (configured, expected) in [
        (None, Some(r#"{"id_token":{"read_at":null}}"#)),
        (Some("{}"), Some(r#"{"id_token":{"read_at":null}}"#)),
        (Some(r#"{"id_token":null}"#), Some(r#"{"id_token":{"read_at":null}}"#)),
        (
            Some(r#"{"id_token":{"acr":{"essential":true}},"userinfo":{"name":null}}"#),
            Some(r#"{"id_token":{"acr":{"essential":true},"read_at":null},"userinfo":{"name":null}}"#),
        ),
        (Some(r#"{"id_token":7}"#), None),
        (Some("nonsense"), None),
    ] {
        assert_eq!(with_read_at(configured).as_deref(), expected, "{configured:?}");
    }
}

#[test]
fn what_ends_a_session_is_certain() {
    assert!(ProviderFault::Refused("invalid_grant".into()).is_final());
    assert!(ProviderFault::Token(TokenError::BadSignature).is_final());
    for error in ["invalid_client", "unauthorized_client", "server_error", "temporarily_unavailable"] {
        let fault = ProviderFault::Refused(error.into());
        assert!(!fault.is_final() && !fault.is_refusal_of_user(), "{error}");
    }
    assert!(ProviderFault::Refused("access_denied".into()).is_refusal_of_user());
    assert!(!ProviderFault::Keys.is_final());
    assert!(ProviderFault::UnexpectedAlgorithm(Algorithm::Es256).is_final());
    assert!(!invalid_answer("x", "y").is_final());
}

#[test]
fn a_token_s_object_is_named_by_its_digest() {
    // printf secret | sha256sum | xxd -r -p | base64url
    assert_eq!(openshift_name("sha256~secret"), "sha256~K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols");
}

#[test]
fn of_a_user_only_the_user_is_kept() {
    let user = r#"{"kind":"User","metadata":{"name":"ada","uid":"7","managedFields":[1]},"groups":["dev"],"identities":["x"]}"#;
    let lean: serde_json::Value = serde_json::from_str(&trimmed_user(user)).unwrap();
    assert_eq!(lean["metadata"]["name"], "ada");
    assert_eq!(lean["groups"][0], "dev");
    assert!(lean.get("identities").is_none() && lean["metadata"].get("managedFields").is_none());
}
