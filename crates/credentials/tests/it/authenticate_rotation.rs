//! Keys that are replaced without a new `kid`: detected by tokens that no longer fit, which are
//! never accepted for that.

use std::sync::Arc;
use std::time::Duration;

use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use auth::token_error::TokenError;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use serde_json::{Value, json};

use crate::authenticate::{SECOND, World, invalid};
use crate::issuer::{JWKS, OPENID, Reply, TestIssuer, signer, token};

/// Publishes keys without a `kid`.
fn publish_nameless(idp: &TestIssuer, keys: &[&Signer]) {
    let mut set = public_jwks(keys.iter().copied());
    for key in set["keys"].as_array_mut().unwrap() {
        key.as_object_mut().unwrap().remove("kid");
    }
    idp.serve(JWKS, Reply::json(&set));
}

/// A token whose header names no key.
fn nameless(key: &Signer, idp: &TestIssuer, subject: &str) -> Vec<u8> {
    let claims = json!({ "iss": idp.url(), "sub": subject, "aud": "gateway", "exp": 2_000_000 });
    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(json!({ "typ": "JWT", "alg": "ES256" })), encode(claims));
    let pkcs8 = key.to_pkcs8_der().unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref()).unwrap();
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
}

async fn nameless_world(key: &Signer) -> (TestIssuer, World) {
    let idp = TestIssuer::start().await;
    idp.discoverable();
    publish_nameless(&idp, &[key]);
    let world = World::discovering(&idp).await;
    (idp, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_without_kid_is_found_by_its_signature() {
    let (old, new) = (signer(), signer());
    let (idp, world) = nameless_world(&old).await;
    assert_eq!(world.subject(&nameless(&old, &idp, "before")).await.as_deref(), Ok("before"));
    publish_nameless(&idp, &[&new]);
    world.clock.advance(10 * SECOND);
    assert_eq!(world.subject(&nameless(&new, &idp, "after")).await.as_deref(), Ok("after"));
    assert_eq!(idp.hits(JWKS), 2);
    // The withdrawn key is rejected, even for cached tokens.
    let before = world.subject(&nameless(&old, &idp, "before")).await;
    assert_eq!(before, Err(invalid(TokenError::BadSignature)));
}

/// Front ends of one issuer may publish different orders, and any client can cause a fetch from
/// each of them.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_key_that_is_withdrawn_flushes_anything() {
    let (one, other, next) = (signer(), signer(), signer());
    let idp = TestIssuer::with_keys(&[&one, &other]).await;
    let world = World::discovering(&idp).await;
    let known = token(&one, idp.url(), "u1", &json!({}));
    world.ask(&known).await.unwrap();
    let mut hits = 1;
    for (keys, kept) in [
        (&[&other, &one][..], true),
        (&[&one, &next, &other][..], true),
        (&[&next, &other, &one][..], true),
        (&[&one, &next][..], false),
    ] {
        idp.publish(keys);
        world.clock.advance(10 * SECOND);
        let stranger = token(&signer(), idp.url(), "u2", &json!({}));
        assert_eq!(world.subject(&stranger).await, Err(invalid(TokenError::UnknownKey)));
        hits += 1;
        assert_eq!((idp.hits(JWKS), world.status().keys), (hits, keys.len()));
        assert_eq!(matches!(world.lookup(&known), CredentialLookup::Hit(_)), kept, "{hits}");
    }
    assert_eq!(world.subject(&known).await.as_deref(), Ok("u1"), "its key is there still");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kid_whose_key_changed_its_algorithm_is_fetched_again() {
    let (old, new) = (Signer::generate(SigningAlgorithm::EdDsa).unwrap(), signer());
    let mut jwk = old.public_jwk();
    jwk["kid"] = new.kid().into();
    let idp = TestIssuer::start().await;
    idp.discoverable();
    idp.serve(JWKS, Reply::json(&json!({ "keys": [jwk] })));
    let world = World::discovering(&idp).await;
    let token = token(&new, idp.url(), "u1", &json!({}));
    world.clock.advance(10 * SECOND);
    assert_eq!(world.subject(&token).await, Err(invalid(TokenError::KeyMismatch)), "still the old set");
    assert_eq!(idp.hits(JWKS), 2);
    idp.publish(&[&new]);
    world.clock.advance(10 * SECOND);
    assert_eq!(world.subject(&token).await.as_deref(), Ok("u1"));
    assert_eq!(idp.hits(JWKS), 3);
}

/// security.md, Tokens: at most one refetch per 10 s, coalesced.
#[tokio::test(flavor = "multi_thread")]
async fn forged_tokens_without_kid_refetch_at_most_once_per_10_s_and_change_nothing() {
    let key = signer();
    let (idp, world) = nameless_world(&key).await;
    let world = Arc::new(world);
    let known = nameless(&key, &idp, "u1");
    world.ask(&known).await.unwrap();
    world.clock.advance(10 * SECOND);
    idp.hold();
    let flood = || {
        let asked: Vec<_> = (0..30)
            .map(|n| {
                let forged = nameless(&signer(), &idp, &format!("u{n}"));
                let world = world.clone();
                tokio::spawn(async move { world.subject(&forged).await })
            })
            .collect();
        async move {
            for asked in asked {
                assert_eq!(asked.await.unwrap(), Err(invalid(TokenError::BadSignature)));
            }
        }
    };
    let waiting = flood();
    idp.reached(OPENID, 2).await;
    // A known caller, or one with a valid token, does not wait with them.
    assert!(matches!(world.lookup(&known), CredentialLookup::Hit(_)));
    assert_eq!(world.subject(&nameless(&key, &idp, "u2")).await.as_deref(), Ok("u2"));
    idp.release();
    waiting.await;
    assert_eq!(idp.hits(JWKS), 2, "one refetch for all");
    flood().await;
    world.clock.advance(Duration::from_millis(9_999));
    flood().await;
    assert_eq!(idp.hits(JWKS), 2, "none within 10 s");
    assert!(matches!(world.lookup(&known), CredentialLookup::Hit(_)), "nothing was flushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_signature_of_a_named_key_makes_nobody_fetch() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    world.clock.advance(10 * SECOND);
    let good = String::from_utf8(token(&key, idp.url(), "u1", &json!({}))).unwrap();
    let other = String::from_utf8(token(&key, idp.url(), "u2", &json!({}))).unwrap();
    let (signed, _) = good.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{signature}");
    assert_eq!(world.subject(forged.as_bytes()).await, Err(invalid(TokenError::BadSignature)));
    assert_eq!(idp.hits(JWKS), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_signature_is_a_refusal_also_while_keys_cannot_be_fetched() {
    let key = signer();
    let (idp, world) = nameless_world(&key).await;
    idp.set_gone(true);
    world.clock.advance(10 * SECOND);
    // The current set may still be used, to reject as well as to accept.
    let forged = nameless(&signer(), &idp, "u1");
    assert_eq!(world.subject(&forged).await, Err(invalid(TokenError::BadSignature)));
    assert_eq!(world.subject(&nameless(&key, &idp, "u2")).await.as_deref(), Ok("u2"));
    // After its time limit it proves nothing any more.
    world.clock.advance(crate::authenticate::MAX_STALE);
    let outcome = world.subject(&nameless(&signer(), &idp, "u3")).await;
    assert!(matches!(outcome, Err(Rejection::Unavailable { .. })), "{outcome:?}");
}
