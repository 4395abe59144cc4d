//! Client authentication by key, by secret, and of public clients.

use auth::token::jws::Signer;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use idp::{ClientConfig, GrantType, SigningAlgorithm};
use serde_json::{Value, json};

use crate::{
    wire::{FORM, basic, encode},
    world::{SECRET, TestAuthorizationRequest, World, config, redemption},
};

#[tokio::test]
async fn private_key_jwt_proves_a_client_once() {
    let key = Signer::generate(SigningAlgorithm::Es256).unwrap();
    let other = Signer::generate(SigningAlgorithm::Es256).unwrap();
    let jwks = json!({ "keys": [key.public_jwk()] });
    let world = World::with(move |issuer| {
        let mut config = config(issuer);
        config.clients.push(ClientConfig {
            id: "keyed".into(),
            keys: Some(jwks.clone()),
            grants: vec![GrantType::ClientCredentials],
            audiences: vec!["https://api.example.com".into()],
            ..ClientConfig::default()
        });
        config
    })
    .await;
    let now = world.server.clock.now().as_secs();
    let issuer = world.server.issuer.clone();
    let good = json!({ "iss": "keyed", "sub": "keyed", "aud": issuer, "exp": now + 60, "jti": "1" });
    let ask = |signer: &Signer, claims: &Value| {
        let assertion = signer.sign(&[("typ", "JWT")], claims).unwrap();
        let body = format!(
            "grant_type=client_credentials&client_assertion_type={}&client_assertion={assertion}",
            encode("urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
        );
        let world = &world;
        async move { world.call_with("/token", &[], &body).await }
    };
    let answer = ask(&key, &good).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    ask(&key, &good).await.assert_error(401, "invalid_client");
    let fraction = |offset: f64| json!(now as f64 + offset);
    for (name, value) in [
        ("exp", fraction(60.0)),
        ("exp", fraction(59.5)),
        ("exp", fraction(-29.5)),
        ("nbf", fraction(-0.25)),
        ("nbf", fraction(29.5)),
    ] {
        let mut claims = good.clone();
        claims["jti"] = json!(format!("{name}{value}"));
        claims[name] = value.clone();
        let answer = ask(&key, &claims).await;
        assert_eq!(answer.status, 200, "{name} {value}: {}", answer.text());
        ask(&key, &claims).await.assert_error(401, "invalid_client");
    }
    for (name, value) in [
        ("jti", Value::Null),
        ("jti", json!("")),
        ("aud", json!("https://somebody.example")),
        ("aud", json!([])),
        ("exp", json!(now - 31)),
        ("exp", json!(now + 7200)),
        ("exp", json!("soon")),
        ("exp", fraction(-30.001)),
        ("exp", fraction(3600.5)),
        ("nbf", json!(now + 600)),
        ("nbf", fraction(30.001)),
        ("sub", json!("app")),
        ("iss", json!("app")),
    ] {
        let mut claims = good.clone();
        claims["jti"] = json!(format!("{name}{value}"));
        claims[name] = value.clone();
        let answer = ask(&key, &claims).await;
        assert_eq!(answer.status, 401, "{name} {value}");
    }
    let mut fresh = good.clone();
    fresh["jti"] = json!("fresh");
    ask(&other, &fresh).await.assert_error(401, "invalid_client");
    fresh["aud"] = json!([format!("{issuer}/token")]);
    assert_eq!(ask(&key, &fresh).await.status, 200, "the endpoint's address will do");
    // A key cannot authenticate a client that has a secret.
    let forged = json!({ "iss": "app", "sub": "app", "aud": issuer, "exp": now + 60, "jti": "f" });
    ask(&key, &forged).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn what_no_client_can_be_called_is_nobody_on_both_databases() {
    let world = World::new().await;
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let token =
        format!("{}.{}.AA", part(json!({ "alg": "ES256" })), part(json!({ "iss": "\u{0}", "sub": "\u{0}" })));
    let kind = encode("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let body = format!("grant_type=client_credentials&client_assertion_type={kind}&client_assertion={token}");
    world.call_with("/token", &[], &body).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn a_client_with_a_secret_is_nobody_without_it() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    let body = redemption(&code) + "&client_id=app";
    world
        .call_with("/token", &[("Content-Type", FORM)][..0], &body)
        .await
        .assert_error(401, "invalid_client");
    let wrong = basic("app", &format!("{SECRET}x"));
    world
        .call_with("/token", &[("Authorization", &wrong)], &redemption(&code))
        .await
        .assert_error(401, "invalid_client");
    let public = basic("native", "anything");
    world
        .call_with("/token", &[("Authorization", &public)], "grant_type=refresh_token")
        .await
        .assert_error(401, "invalid_client");
}

/// Some libraries send the id of a public client as Basic credentials with an empty secret.
#[tokio::test]
async fn an_empty_secret_is_none() {
    let world = World::new().await;
    let refused = |client: &'static str| {
        let authorization = basic(client, "");
        let world = &world;
        async move {
            let body = "grant_type=refresh_token&refresh_token=nonsense";
            world.call_with("/token", &[("Authorization", &authorization)], body).await
        }
    };
    refused("native").await.assert_error(400, "invalid_grant");
    refused("tv").await.assert_error(400, "invalid_grant");
    refused("app").await.assert_error(401, "invalid_client");
}
