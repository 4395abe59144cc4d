//! Conformance plan "Config OP".

use crate::{
    browser::Browser,
    wire,
    world::{TestAuthorizationRequest, World},
};

#[tokio::test]
async fn oidcc_discovery_endpoint_verification() {
    let world = World::new().await;
    let server = &world.server;
    let answer = server.get("/.well-known/openid-configuration").await;
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")));
    let document = answer.json();
    assert_eq!(document["issuer"], server.issuer.as_str());
    let strings = |member: &str| -> Vec<String> {
        let list = document[member].as_array().unwrap_or_else(|| panic!("no {member}"));
        list.iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    assert!(strings("response_types_supported").contains(&"code".into()));
    assert!(strings("subject_types_supported").contains(&"public".into()));
    assert!(
        strings("id_token_signing_alg_values_supported").contains(&"RS256".into()),
        "every client knows it"
    );
    assert!(strings("scopes_supported").contains(&"openid".into()));
    assert!(strings("token_endpoint_auth_methods_supported").contains(&"client_secret_basic".into()));
    assert!(strings("claims_supported").contains(&"sub".into()));
    // Every listed endpoint exists: it responds to an unsupported method.
    let endpoints = document
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.ends_with("_endpoint") || *name == "jwks_uri");
    let mut found = 0;
    for (name, url) in endpoints {
        let path = url.as_str().unwrap().strip_prefix(&server.issuer).unwrap();
        assert_eq!(wire::request(server.address, "DELETE", path).await.status, 405, "{name}");
        found += 1;
    }
    assert_eq!(found, 9);
    let jwks = server.get("/jwks").await.json();
    for key in jwks["keys"].as_array().unwrap() {
        assert!(key["kid"].is_string() && key["alg"].is_string() && key.get("d").is_none());
    }
}

/// The keys change while the server runs; clients that reload the key set continue to work.
#[tokio::test]
async fn oidcc_server_rotate_keys() {
    let world = World::new().await;
    let kid = |tokens: &serde_json::Value| {
        let (header, _) = crate::server::decode_unverified(tokens["id_token"].as_str().unwrap());
        header["kid"].as_str().unwrap().to_owned()
    };
    let before = kid(&world.tokens("app", "openid").await);
    world.server.clock.advance(idp::keys::LEAD);
    world.server.provider.rotate_keys(idp::SigningAlgorithm::Rs256).await.unwrap();
    let after = kid(&world.tokens("app", "openid").await);
    assert_ne!(before, after);
    let published = world.server.get("/jwks").await.json();
    let kids: Vec<_> =
        published["keys"].as_array().unwrap().iter().map(|k| k["kid"].as_str().unwrap()).collect();
    assert!(kids.contains(&&*before) && kids.contains(&&*after));
}

/// Every advertised response mode works.
#[tokio::test]
async fn every_response_mode_that_is_named_works() {
    let world = World::new().await;
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    for mode in document["response_modes_supported"].as_array().unwrap() {
        let mut browser = Browser::new(&world.server);
        let ask = TestAuthorizationRequest::new("app").with("response_mode", mode.as_str().unwrap());
        assert!(!world.code(&mut browser, &ask).await.is_empty(), "{mode}");
    }
}
