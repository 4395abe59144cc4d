//! Authentication across reloads: what is kept, what is fetched or proven again.

use std::sync::Arc;

use auth::headers::IdentityHeaders;
use auth::token::jws::public_jwks;
use auth::token_error::TokenError;
use credentials::authenticate::Authenticator;
use credentials::authenticate::outcome::CredentialLookup;
use credentials::config::{IssuerSource, KeySource};
use serde_json::json;

use crate::authenticate::{MAX_STALE, SECOND, World, authentication, invalid, issuer, setup};
use crate::issuer::{JWKS, Reply, TestIssuer, signer, token};

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_what_it_did_not_change() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let known = token(&key, idp.url(), "u1", &json!({}));
    let verified = world.ask(&known).await.unwrap();
    let issuers = || vec![issuer("main", idp.url(), KeySource::Discovery)];
    let headers = IdentityHeaders::x_forwarded();
    let found = |authenticator: &Authenticator| match authenticator.lookup(
        &known,
        || authenticator.name(&known),
        world.now(),
    ) {
        CredentialLookup::Hit(found) => Some(found),
        _ => None,
    };

    let same = world.authenticator.rebuild(setup(&authentication(issuers(), 1), &headers));
    assert!(Arc::ptr_eq(&found(&same).unwrap(), &verified));
    let newer = same.rebuild(setup(&authentication(issuers(), 2), &headers));
    assert!(found(&newer).is_none(), "facts of another version are not found");
    let again = newer.authenticate(&known, || world.now()).await.0.unwrap();
    assert!(!Arc::ptr_eq(&again, &verified));
    assert!(found(&world.authenticator).is_some(), "the old one serves its requests to the end");
    assert_eq!(idp.connections(), 2, "and no key was fetched for all that");

    let other_headers = IdentityHeaders::x_auth_request();
    let rendered = same.rebuild(setup(&authentication(issuers(), 1), &other_headers));
    assert!(found(&rendered).is_none(), "what was rendered otherwise is not found");
    let verified = rendered.authenticate(&known, || world.now()).await.0.unwrap();
    assert!(verified.http1_block.starts_with(b"X-Auth-Request-User: u1\r\n"));
    assert_eq!(idp.connections(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_moves_the_keys_fetches_them_anew() {
    let (old, new) = (signer(), signer());
    let idp = TestIssuer::with_keys(&[&old]).await;
    let world = World::discovering(&idp).await;
    idp.serve("/moved", Reply::json(&public_jwks([&new])));
    let moved = issuer("main", idp.url(), KeySource::Uri(format!("{}/moved", idp.url()).into()));
    let headers = IdentityHeaders::x_forwarded();
    let moved = world.authenticator.rebuild(setup(&authentication(vec![moved], 2), &headers));
    let ask = async |token: Vec<u8>| moved.authenticate(&token, || world.now()).await.0.map(drop);
    assert_eq!(ask(token(&new, idp.url(), "u1", &json!({}))).await, Ok(()));
    let withdrawn = ask(token(&old, idp.url(), "u1", &json!({}))).await;
    assert_eq!(withdrawn, Err(invalid(TokenError::UnknownKey)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_another_schedule_takes_the_last_good_set_over() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    idp.set_gone(true);
    let longer = IssuerSource { max_stale: 2 * MAX_STALE, ..issuer("main", idp.url(), KeySource::Discovery) };
    let headers = IdentityHeaders::x_forwarded();
    let rebuilt = world.authenticator.rebuild(setup(&authentication(vec![longer], 1), &headers));
    let token = token(&key, idp.url(), "u1", &json!({}));
    assert!(rebuilt.authenticate(&token, || world.now()).await.0.is_ok());
    assert_eq!(rebuilt.key_sets()[0].fetched, 1, "its record goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_in_quick_succession_do_not_ask_each_time() {
    let (key, unknown) = (signer(), signer());
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let headers = IdentityHeaders::x_forwarded();
    let reload = |before: &Authenticator, n: u32| {
        // Some setting of the fetches differs, as with a client configuration read again.
        let max_stale = MAX_STALE + SECOND * n;
        let changed = IssuerSource { max_stale, ..issuer("main", idp.url(), KeySource::Discovery) };
        before.rebuild(setup(&authentication(vec![changed], 1), &headers))
    };
    let mut current = reload(&world.authenticator, 1);
    for n in 2..100 {
        current = reload(&current, n);
    }
    let foreign = token(&unknown, idp.url(), "u1", &json!({}));
    let asked = current.authenticate(&foreign, || world.now()).await.0.map(drop);
    assert_eq!(asked, Err(invalid(TokenError::UnknownKey)));
    assert_eq!(idp.hits(JWKS), 1);
    // But when the time has come, the latest one fetches.
    world.clock.advance(10 * SECOND);
    let later = reload(&current, 100);
    idp.reached(JWKS, 2).await;
    let asked = later.authenticate(&foreign, || world.now()).await.0.map(drop);
    assert_eq!(asked, Err(invalid(TokenError::UnknownKey)));
    assert_eq!(idp.hits(JWKS), 2);
}
