//! The client credentials grant and its tokens.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use auth::algorithm::AlgorithmSet;
use auth::token_error::TokenError;
use idp::{Entropy, EntropyFailed, keys::SigningAlgorithm};
use serde_json::json;

use crate::{
    server::{API, SECRET, START, Server, TestClock, decode_unverified},
    verify::ResourceServer,
    wire::{basic, encode},
};

#[tokio::test]
async fn the_answer_is_that_of_rfc_6749_5_1() {
    let server = Server::start().await;
    let answer = server.token("&scope=audit+orders%3Awrite").await;
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")));
    assert_eq!((answer.field("cache-control"), answer.field("pragma")), (Some("no-store"), Some("no-cache")));
    let mut body = answer.json();
    let token = body["access_token"].take();
    let expected = json!({"access_token": null, "token_type": "Bearer", "expires_in": 300, "scope": "audit orders:write"});
    assert_eq!(body, expected);

    let (header, mut claims) = decode_unverified(token.as_str().unwrap());
    let kid = server.provider.keys().ring().active(SigningAlgorithm::Es256).unwrap().kid().to_owned();
    assert_eq!(header, json!({"typ": "at+jwt", "alg": "ES256", "kid": kid}));
    let jti = claims["jti"].take();
    assert_eq!(jti.as_str().map(str::len), Some(22), "128 bits in base64url");
    let expected = json!({
        "iss": server.issuer, "sub": "orders", "aud": API, "client_id": "orders",
        "iat": START, "exp": START + 300, "jti": null,
        "scope": "audit orders:write", "groups": ["robots", "orders"], "read_at": 0,
    });
    assert_eq!(claims, expected);
}

#[tokio::test]
async fn a_client_without_defaults_gets_neither_scope_nor_groups() {
    let server = Server::start().await;
    let body = server.token_of("plain", SECRET, "").await.json();
    assert_eq!((body["expires_in"].as_u64(), body.get("scope")), (Some(60), None), "its own lifetime");
    let (_, claims) = decode_unverified(body["access_token"].as_str().unwrap());
    assert_eq!((claims.get("scope"), claims.get("groups")), (None, None));
    assert_eq!(claims["exp"].as_u64(), Some(START + 60));
}

#[tokio::test]
async fn scopes_are_limited_to_the_clients() {
    let server = Server::start().await;
    for (ask, granted) in [
        ("", "orders:read"),
        ("&scope=", "orders:read"),
        ("&scope=audit", "audit"),
        ("&scope=audit+audit+orders%3Aread", "audit orders:read"),
    ] {
        let answer = server.token(ask).await;
        assert_eq!(answer.json()["scope"].as_str(), Some(granted), "{ask}");
    }
    for ask in [
        "&scope=admin",
        "&scope=audit+admin",
        "&scope=Audit",
        "&scope=audit++orders%3Aread",
        "&scope=+audit",
        "&scope=audit+",
        "&scope=%22",
        "&scope=audit%09orders%3Aread",
        "&scope=%C3%A9",
    ] {
        server.token(ask).await.assert_error(400, "invalid_scope");
    }
}

#[tokio::test]
async fn targets_are_limited_to_the_clients() {
    let server = Server::start().await;
    let api = encode(API);
    for (ask, audience) in [
        (String::new(), json!(API)),
        ("&resource=".to_owned(), json!(API)),
        (format!("&resource={api}"), json!(API)),
        (format!("&resource={api}&resource={api}&audience={api}"), json!(API)),
        ("&resource=urn%3Aexample%3Abilling".to_owned(), json!("urn:example:billing")),
        ("&audience=reports".to_owned(), json!("reports")),
        (format!("&audience=reports&resource={api}"), json!([API, "reports"])),
    ] {
        let answer = server.token(&ask).await;
        assert_eq!(answer.status, 200, "{ask}");
        assert_eq!(
            decode_unverified(answer.json()["access_token"].as_str().unwrap()).1["aud"],
            audience,
            "{ask}"
        );
    }
    for ask in [
        "&resource=https%3A%2F%2Fother.example.com".to_owned(),
        format!("&resource={api}%2F"),
        format!("&resource={api}&resource=https%3A%2F%2Fother.example.com"),
        format!("&resource={api}%23fragment"),
        "&resource=reports".to_owned(),
        "&resource=%2Frelative".to_owned(),
        "&audience=nobody".to_owned(),
        "&audience=re+ports".to_owned(),
    ] {
        server.token(&ask).await.assert_error(400, "invalid_target");
    }
}

#[tokio::test]
async fn unknown_grants_are_unsupported() {
    let server = Server::start().await;
    let authorization = basic("orders", SECRET);
    let fields = [("Authorization", authorization.as_str())];
    for grant in [
        "implicit",
        "Client_Credentials",
        "client_credentials%20",
        "client_credentialsx",
        "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer",
    ] {
        server
            .post(&fields, &format!("grant_type={grant}"))
            .await
            .assert_error(400, "unsupported_grant_type");
    }
    for body in ["", "grant_type=", "grant_type", "scope=audit"] {
        server.post(&fields, body).await.assert_error(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_token_of_each_algorithm_verifies() {
    for algorithm in [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
        let clock = TestClock::new();
        let random = aws_lc_rs::rand::SystemRandom::new();
        let server = Server::with("", clock, algorithm, random).await;
        let only = [algorithm.algorithm()].into_iter().collect::<AlgorithmSet>();
        let api = ResourceServer::of(&server, only).await;
        let token = server.token("&scope=audit").await.json()["access_token"].as_str().unwrap().to_owned();
        let facts = api.verify(&token, server.clock.now()).unwrap();
        assert_eq!(facts.identity.subject.as_ref(), "orders");
        assert_eq!(facts.identity.client.as_deref(), Some("orders"));
        assert_eq!(facts.identity.groups, ["robots".into(), "orders".into()]);
        assert_eq!(facts.identity.scopes, ["audit".into()]);
        assert_eq!(facts.expires.as_secs(), START + 300);

        let other = ResourceServer::for_audience(&server, only, "reports").await;
        assert!(other.verify(&token, server.clock.now()).is_err(), "not meant for it");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{head}.{flipped}{}", &signature[1..]);
        assert!(api.verify(&forged, server.clock.now()).is_err(), "signed by nobody");
    }
}

#[tokio::test]
async fn a_token_ends_when_it_says() {
    let server = Server::start().await;
    let api = ResourceServer::of(&server, AlgorithmSet::ALL).await;
    let token = server.access_token().await;
    server.clock.advance(Duration::from_millis(299_999));
    assert!(api.verify(&token, server.clock.now()).is_ok());
    server.clock.advance(Duration::from_millis(1));
    assert!(
        matches!(api.verify(&token, server.clock.now()), Err(TokenError::Expired)),
        "expired means now >= exp"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tokens_at_once_are_a_hundred_tokens() {
    let server = Arc::new(Server::start().await);
    let requests: Vec<_> = (0..100)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.access_token().await })
        })
        .collect();
    let mut ids = HashSet::new();
    for request in requests {
        let (_, claims) = decode_unverified(&request.await.unwrap());
        assert!(ids.insert(claims["jti"].as_str().unwrap().to_owned()), "a jti came twice");
    }
    assert_eq!(ids.len(), 100);
}

/// A random source that fails from some time on.
struct FailingEntropy(Arc<AtomicBool>);

impl Entropy for FailingEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed> {
        if self.0.load(Ordering::SeqCst) {
            return Err(EntropyFailed);
        }
        Entropy::fill(&aws_lc_rs::rand::SystemRandom::new(), out)
    }
}

#[tokio::test]
async fn without_randomness_there_is_no_token() {
    let dry = Arc::new(AtomicBool::new(false));
    let server =
        Server::with("", TestClock::new(), SigningAlgorithm::Es256, FailingEntropy(Arc::clone(&dry))).await;
    assert_eq!(server.token("").await.status, 200);
    dry.store(true, Ordering::SeqCst);
    server.token("").await.assert_error(500, "server_error");
}
