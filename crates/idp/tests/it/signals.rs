//! Security events of ended sessions and changed users, as receivers get them.

use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::token::security_event::{EventKind, ExpectedEvents, SubjectName, security_events};
use idp::receivers::{Bearer, Delivery, Receiver};
use serde_json::json;

use crate::{
    server::decode_unverified,
    verify::keys_of,
    world::{self, TestAuthorizationRequest, World},
};

const ENDPOINT: &str = "https://others.example/events";

async fn world(events: &[EventKind]) -> World {
    let receiver = Receiver {
        name: "others".into(),
        audience: "https://others.example".into(),
        events: events.to_vec(),
        delivery: Delivery::Push { endpoint: ENDPOINT.into(), bearer: Bearer("b".repeat(20).into()) },
    };
    World::with(|issuer| idp::Config { receivers: vec![receiver.clone()], ..world::config(issuer) }).await
}

/// Runs maintenance until this many events were sent, and a little longer to detect extra ones.
async fn run_until_sent(world: &World, count: usize) -> Vec<String> {
    let tended = tokio::spawn(idp::maintain(world.server.provider.clone()));
    let sent = || {
        let all = world.told.0.lock().unwrap();
        all.iter().filter(|(url, _)| url == ENDPOINT).map(|(_, body)| body.clone()).collect::<Vec<_>>()
    };
    for _ in 0..1000 {
        if sent().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    tended.abort();
    sent()
}

#[tokio::test]
async fn a_session_that_ends_is_told_as_a_receiver_would_read_it() {
    let world = world(&[EventKind::SessionRevoked]).await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    let hint = tokens["id_token"].as_str().unwrap();
    let (_, id_token) = decode_unverified(hint);
    browser.get(&format!("/logout?id_token_hint={hint}")).await;
    let sent = run_until_sent(&world, 1).await;
    assert_eq!(sent.len(), 1);
    let (header, claims) = decode_unverified(&sent[0]);
    assert_eq!(header["typ"], "secevent+jwt");
    assert_eq!(claims.get("sub"), None);
    assert_eq!(claims.get("exp"), None);
    assert_eq!(
        claims["sub_id"]["user"],
        json!({"format": "iss_sub", "iss": world.server.issuer, "sub": id_token["sub"]})
    );
    // Reads the token as a receiver does.
    let keys = keys_of(&world.server).await;
    let token = auth::token::jwt::parse(sent[0].as_bytes()).unwrap();
    let signed = token.signed(AlgorithmSet::ALL, &keys).unwrap();
    let audiences = ["https://others.example".into()];
    let expected =
        ExpectedEvents { issuer: &world.server.issuer, audiences: &audiences, clock_skew: Duration::ZERO };
    let events = security_events(signed, &expected, world.server.clock.now()).unwrap();
    let sid = id_token["sid"].as_str().unwrap();
    assert_eq!(events.events.len(), 1);
    assert_eq!(events.events[0].kind, EventKind::SessionRevoked);
    assert_eq!(events.events[0].names, [SubjectName::Session(sid)]);
}

#[tokio::test]
async fn whoever_does_not_answer_is_told_again_and_in_order() {
    let world = world(&[EventKind::SessionRevoked]).await;
    *world.told.1.lock().unwrap() = 503;
    let tokens = [world.tokens("app", "openid").await, world.tokens("app", "openid").await];
    for token in &tokens {
        let form = format!("token={}", token["access_token"].as_str().unwrap());
        assert_eq!(world.call("/revoke", "app", &form).await.status, 200);
    }
    let tried = run_until_sent(&world, 1).await;
    let (_, first) = decode_unverified(&tried[0]);
    assert!(
        tried.iter().all(|token| decode_unverified(token).1["jti"] == first["jti"]),
        "what follows waits"
    );
    // There is no immediate retry.
    assert_eq!(run_until_sent(&world, 0).await.len(), tried.len());
    *world.told.1.lock().unwrap() = 202;
    world.server.clock.advance(Duration::from_mins(6));
    let all = run_until_sent(&world, tried.len() + 2).await;
    assert_eq!(all.len(), tried.len() + 2);
    let names: Vec<_> =
        all[tried.len()..].iter().map(|token| decode_unverified(token).1["jti"].clone()).collect();
    assert_eq!(names[0], first["jti"], "the same once more");
    assert_ne!(names[1], first["jti"]);
    assert_eq!(run_until_sent(&world, 0).await.len(), all.len(), "and no more of it");
    let samples: Vec<_> = world.server.provider.delivery_samples();
    let count = |outcome| samples.iter().find(|sample| sample.outcome == outcome).map(|sample| sample.count);
    assert_eq!((count("delivered"), count("failed")), (Some(2), Some(tried.len() as u64)));
}

#[tokio::test]
async fn nobody_is_told_what_they_did_not_ask_for_nor_what_nobody_took_for_a_week() {
    let world = world(&[EventKind::CredentialChange]).await;
    let token = world.tokens("app", "openid").await;
    let form = format!("token={}", token["access_token"].as_str().unwrap());
    assert_eq!(world.call("/revoke", "app", &form).await.status, 200);
    assert_eq!(run_until_sent(&world, 0).await, [""; 0]);
    assert_eq!(world.server.provider.delivery_samples(), []);

    let world = self::world(&[EventKind::SessionRevoked]).await;
    let token = world.tokens("app", "openid").await;
    let form = format!("token={}", token["access_token"].as_str().unwrap());
    assert_eq!(world.call("/revoke", "app", &form).await.status, 200);
    world.server.clock.advance(idp::receivers::MAX_EVENT_AGE);
    assert_eq!(run_until_sent(&world, 0).await, [""; 0]);
    let samples = world.server.provider.delivery_samples();
    assert_eq!((samples[0].outcome, samples[0].count), ("given_up", 1));
}

#[tokio::test]
async fn whoever_says_that_a_token_is_no_good_is_not_told_it_again() {
    let world = world(&[EventKind::SessionRevoked]).await;
    *world.told.1.lock().unwrap() = 400;
    let token = world.tokens("app", "openid").await;
    let form = format!("token={}", token["access_token"].as_str().unwrap());
    assert_eq!(world.call("/revoke", "app", &form).await.status, 200);
    assert_eq!(run_until_sent(&world, 1).await.len(), 1);
    world.server.clock.advance(Duration::from_mins(10));
    assert_eq!(run_until_sent(&world, 0).await.len(), 1);
}
