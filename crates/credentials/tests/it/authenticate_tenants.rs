//! Issuers of many tenants.

use std::sync::Arc;

use auth::token::{IssuerConfig, TENANT, Tenants};
use auth::token_error::TokenError;
use credentials::config::KeySource;
use serde_json::json;

use crate::authenticate::{World, invalid, issuer};
use crate::issuer::{JWKS, OPENID, Reply, TestIssuer, signer, token};

/// Microsoft Entra ID publishes one document and one key set for all tenants.
#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_of_many_tenants_is_discovered_as_common() {
    let key = signer();
    let idp = TestIssuer::start().await;
    let pattern = format!("{}/{TENANT}/v2.0", idp.url());
    let metadata = json!({ "issuer": pattern, "jwks_uri": format!("{}{JWKS}", idp.url()) });
    idp.serve(&format!("/common/v2.0{OPENID}"), Reply::json(&metadata));
    idp.publish(&[&key]);
    let mut many = issuer("entra", &pattern, KeySource::Discovery);
    let config = IssuerConfig::new("entra", &pattern, vec!["gateway".into()]).unwrap();
    many.config = Arc::new(config.with_tenants(Tenants::Listed(vec!["a".into()])));
    // An entry for a tenant of its own comes first, wherever it stands.
    let own = format!("{}/own/v2.0", idp.url());
    let metadata = json!({ "issuer": own, "jwks_uri": format!("{}{JWKS}", idp.url()) });
    idp.serve(&format!("/own/v2.0{OPENID}"), Reply::json(&metadata));
    let world = World::ready(vec![many, issuer("own", &own, KeySource::Discovery)]).await;
    let of = |tenant: &str, tid: &str| {
        token(&key, &format!("{}/{tenant}/v2.0", idp.url()), "u1", &json!({ "tid": tid }))
    };
    let issuer_of =
        async |token: Vec<u8>| world.ask(&token).await.map(|verified| verified.facts.identity.issuer.clone());
    assert_eq!(issuer_of(of("a", "a")).await.as_deref(), Ok("entra"));
    assert_eq!(issuer_of(of("own", "own")).await.as_deref(), Ok("own"));
    assert_eq!(issuer_of(of("b", "b")).await, Err(invalid(TokenError::WrongIssuer)));
    assert!(issuer_of(of("a", "own")).await.is_err());
    assert!(world.authenticator.claims(&of("a", "a")) && !world.authenticator.claims(&of("b", "b")));
}
