//! Login names and passwords: lockout, upgrades and normalization.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use idp::{Config, Provider, passwords::Password};
use serde_json::json;
use store::login_attempts::{Attempts, RecordAttempt};

use crate::{
    server::decode_unverified,
    wire::encode,
    world::{PASSWORD, TestAuthorizationRequest, World, config},
};

#[tokio::test]
async fn the_password_grant_is_for_those_who_have_it() {
    let world = World::new().await;
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(PASSWORD));
    world.call("/token", "app", &body).await.assert_error(400, "unauthorized_client");
    let answer = world.call("/token", "legacy", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (_, claims) = decode_unverified(answer.json()["id_token"].as_str().unwrap());
    assert_eq!((&claims["sub"], &claims["amr"]), (&json!("ada-id"), &json!(["pwd"])));
    let address = body.replace("username=ada", "username=Ada%40Example.com");
    assert_eq!(world.call("/token", "legacy", &address).await.status, 200, "a verified address will do");
    for wrong in ["username=ada&password=wrong", "username=nobody&password=wrong", "username=&password=x"] {
        let answer = world.call("/token", "legacy", &format!("grant_type=password&{wrong}")).await;
        let code = if wrong.contains("=&") { "invalid_request" } else { "invalid_grant" };
        answer.assert_error(400, code);
    }
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    assert!(document["grant_types_supported"].as_array().unwrap().contains(&json!("password")));
}

#[tokio::test]
async fn an_unknown_user_and_a_wrong_password_are_one() {
    let world = World::new().await;
    let ask = |name: &'static str| {
        let body = format!("grant_type=password&username={name}&password=wrong");
        let world = &world;
        async move { world.call("/token", "legacy", &body).await.without_date() }
    };
    let (unknown, wrong) = (ask("nobody").await, ask("ada").await);
    assert_eq!(unknown, wrong);
    let before = world.server.provider.logins().pool().stats().finished;
    ask("nobody").await;
    assert_eq!(world.server.provider.logins().pool().stats().finished, before + 1, "and costs the same hash");
}

#[tokio::test]
async fn an_account_is_locked_whatever_it_is_called() {
    let world = World::new().await;
    for name in ["ada", "ADA", "ada%40example.com", "Ada", "ada"] {
        let body = format!("grant_type=password&username={name}&password=wrong");
        world.call("/token", "legacy", &body).await.assert_error(400, "invalid_grant");
    }
    let right = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    let locked = world.call("/token", "legacy", &right).await;
    locked.assert_error(429, "invalid_grant");
    assert_eq!(locked.field("retry-after"), Some("10"));
    // The page is locked too; another account is not.
    let mut browser = world.browser();
    let page = browser.get(&TestAuthorizationRequest::new("app").target()).await;
    let fields = [("username", "ada"), ("password", PASSWORD)];
    let page = browser.submit(&page.form("/login"), &fields).await;
    assert_eq!((page.status, page.field("retry-after")), (429, Some("10")));
    assert!(
        page.text().contains("Too many attempts. Please wait <bdi>10\u{a0}seconds</bdi>"),
        "{}",
        page.text()
    );
    world.server.clock.advance(Duration::from_millis(5500));
    browser.language = Some("de");
    let page = browser.submit(&page.form("/login"), &fields).await;
    assert_eq!((page.status, page.field("retry-after")), (429, Some("5")));
    assert!(page.text().contains("warten Sie <bdi>5\u{a0}Sekunden</bdi>"), "{}", page.text());
    world.server.clock.advance(Duration::from_secs(4));
    let bob = right.replace("=ada", "=bob");
    assert_eq!(world.call("/token", "legacy", &bob).await.status, 200);
    world.server.clock.advance(Duration::from_millis(500));
    assert_eq!(world.call("/token", "legacy", &right).await.status, 200, "the lock ends by itself");
}

#[tokio::test]
async fn a_name_that_nobody_has_is_locked_like_one_that_somebody_has() {
    let world = World::new().await;
    let mut heard = Vec::new();
    for names in [["ada", "ADA", "Ada"], ["nobody", "Nobody", "NOBODY"]] {
        let answers = [0, 1, 2, 0, 1, 2, 0].map(|at: usize| {
            let body = format!("grant_type=password&username={}&password=wrong", names[at]);
            let world = &world;
            async move { world.call("/token", "legacy", &body).await.without_date() }
        });
        let mut said = Vec::new();
        for answer in answers {
            said.push(answer.await);
        }
        heard.push(said);
    }
    assert_eq!(heard[0], heard[1]);
    assert_eq!(heard[1].last().unwrap().0, 429);
}

#[tokio::test]
async fn a_guess_that_was_right_is_too_late_when_others_have_locked_the_account() {
    const OTHERS: u64 = 50;
    let world = World::new().await;
    let (provider, now) = (&world.server.provider, world.server.clock.now());
    let before = submitted_jobs(provider);
    let hash = |provider: Arc<Provider>| async move {
        let other = Password::new("something to do".into()).unwrap();
        provider.logins().pool().verify(other, None).await.unwrap();
    };
    // All threads are busy, so the guess passes the first lockout check and waits.
    let busy: Vec<_> = (0..OTHERS).map(|_| tokio::spawn(hash(provider.clone()))).collect();
    until_asked(provider, before + OTHERS).await;
    let body = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    let guess = world.call("/token", "legacy", &body);
    let lock = async {
        until_asked(provider, before + OTHERS + 1).await;
        let locked_until = now.plus(Duration::from_secs(10));
        let to =
            Attempts { failures: 5, first_at: now, last_at: now, locked_until, expires_at: locked_until };
        let record = RecordAttempt { subject: "account ada-id".into(), previous: None, next: to };
        assert!(provider.store().write(record).await.unwrap());
    };
    let (answer, ()) = tokio::join!(guess, lock);
    answer.assert_error(429, "invalid_grant");
    for one in busy {
        one.await.unwrap();
    }
}

/// Number of passwords that were passed to the threads.
fn submitted_jobs(provider: &Provider) -> u64 {
    let numbers = provider.logins().pool().stats();
    (numbers.queued + numbers.running) as u64 + numbers.finished
}

async fn until_asked(provider: &Provider, times: u64) {
    let all = async {
        while submitted_jobs(provider) < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), all).await.expect("it is asked");
}

#[tokio::test]
async fn an_old_hash_is_upgraded_at_login() {
    let world = World::new().await;
    let stored = |world: &World| {
        let store = world.server.provider.store().clone();
        async move { store.user_by_login("ada").await.unwrap().unwrap().1.unwrap().phc }
    };
    let before = stored(&world).await;
    assert!(before.contains("m=7168,t=5"), "{before}");
    // The same users under a configuration with more expensive hashes.
    let stronger =
        World::with(|issuer| Config { passwords: idp::PasswordConfig::default(), ..config(issuer) }).await;
    let weak = before.clone();
    let from = stored_row(&stronger).await;
    let change = store::users::UpgradePassword { user_id: "ada-id".into(), from, to_phc: weak.clone() };
    assert!(stronger.server.provider.store().write(change).await.unwrap());
    let body = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    assert_eq!(stronger.call("/token", "legacy", &body).await.status, 200);
    let after = stored(&stronger).await;
    assert!(after.contains("m=19456,t=2"), "{after}");
    assert_eq!(stronger.call("/token", "legacy", &body).await.status, 200, "and still opens");
}

async fn stored_row(world: &World) -> store::users::StoredPassword {
    world.server.provider.store().user_by_login("ada").await.unwrap().unwrap().1.unwrap()
}

/// A hash of a text as typed, as older versions made it.
fn hashed_as_typed(text: &str) -> String {
    let parameters = idp::passwords::Parameters::KEYCLOAK;
    let (salt, mut digest) = (vec![7_u8; 16], vec![0_u8; 32]);
    let params = argon2::Params::new(
        parameters.memory_kib(),
        parameters.iterations(),
        parameters.parallelism(),
        Some(digest.len()),
    )
    .unwrap();
    argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
        .hash_password_into(text.as_bytes(), &salt, &mut digest)
        .unwrap();
    let [salt, digest] = [&salt, &digest].map(|bytes| STANDARD_NO_PAD.encode(bytes));
    let (m, t, p) = (parameters.memory_kib(), parameters.iterations(), parameters.parallelism());
    format!("$argon2id$v=19$m={m},t={t},p={p}${salt}${digest}")
}

#[tokio::test]
async fn a_password_opens_however_it_is_typed_and_one_of_before_as_it_was_typed() {
    const COMPOSED: &str = "caf\u{e9} cr\u{e8}me und \u{fc}bermut";
    const APART: &str = "cafe\u{301} cre\u{300}me und u\u{308}bermut";
    let world = World::new().await;
    let from = stored_row(&world).await;
    let to_phc = hashed_as_typed(APART);
    let change = store::users::UpgradePassword { user_id: "ada-id".into(), from, to_phc: to_phc.clone() };
    assert!(world.server.provider.store().write(change).await.unwrap());
    let ask = |text: &'static str| {
        let body = format!("grant_type=password&username=ada&password={}", encode(text));
        let world = &world;
        async move { world.call("/token", "legacy", &body).await.status }
    };
    assert_eq!(ask(COMPOSED).await, 400, "what it was made of is not known");
    assert_eq!(ask(APART).await, 200, "as it was typed");
    assert_ne!(stored_row(&world).await.phc, to_phc, "and it is made anew");
    for text in [COMPOSED, APART] {
        assert_eq!(ask(text).await, 200, "{text:?}");
    }
    assert_eq!(ask("cafe creme und ubermut").await, 400);
}

#[tokio::test]
async fn another_spelling_of_a_name_is_no_other_try() {
    const WIDE: [&str; 2] = ["\u{ff41}\u{ff44}\u{ff41}", "\u{ff41}\u{ff44}\u{ff42}"];
    let world = World::new().await;
    for (name, wide) in ["ada", "adb"].into_iter().zip(WIDE) {
        for spelling in [wide, name, &name.to_uppercase(), wide, &format!(" {name}")] {
            let body = format!("grant_type=password&username={}&password=wrong", encode(spelling));
            world.call("/token", "legacy", &body).await.assert_error(400, "invalid_grant");
        }
        for spelling in [wide, name] {
            let body = format!("grant_type=password&username={}&password=wrong", encode(spelling));
            world.call("/token", "legacy", &body).await.assert_error(429, "invalid_grant");
        }
    }
    world.server.clock.advance(Duration::from_secs(10));
    let body = format!("grant_type=password&username={}&password={}", encode(WIDE[0]), encode(PASSWORD));
    assert_eq!(world.call("/token", "legacy", &body).await.status, 200, "and it is her name");
}

#[tokio::test]
async fn a_full_password_pool_says_when_to_come_back() {
    let world = World::with(|issuer| Config {
        passwords: idp::PasswordConfig {
            threads: Some(1),
            queue: Some(1),
            parameters: idp::passwords::Parameters::OWASP,
            ..idp::PasswordConfig::default()
        },
        ..config(issuer)
    })
    .await;
    let world = std::sync::Arc::new(world);
    let body = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    let requests: Vec<_> = (0..20)
        .map(|_| {
            let (world, body) = (world.clone(), body.clone());
            tokio::spawn(async move { world.call("/token", "legacy", &body).await })
        })
        .collect();
    let mut statuses = Vec::new();
    for request in requests {
        let answer = request.await.unwrap();
        if answer.status == 503 {
            answer.assert_error(503, "temporarily_unavailable");
            assert_eq!(answer.field("retry-after"), Some("2"));
        }
        statuses.push(answer.status);
    }
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    assert!(statuses.iter().all(|s| matches!(s, 200 | 503)), "{statuses:?}");
}
