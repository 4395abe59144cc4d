//! User names and passwords: what is compared, and what is cached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use auth::headers::IdentityHeaders;
use auth::identity::CredentialKind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use credentials::config::{Authentication, BasicAuth};
use credentials::htpasswd::Htpasswd;
use telemetry::phases::CacheUse;

use crate::authenticate::{SECOND, World, authentication, setup};

/// The password of the first is `U*U`, that of the second `abc`.
const UU: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
const ABC: &str = "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";

fn with_users(file: &str) -> Authentication {
    let basic = BasicAuth {
        name: "basic".into(),
        realm: "test".into(),
        users: Htpasswd::parse(file.as_bytes()).unwrap(),
        groups: HashMap::from([("ada".into(), vec!["ops".into()])]),
    };
    Authentication { basic: Some(Arc::new(basic)), ..authentication(Vec::new(), 1) }
}

fn encoded(user: &str, password: &str) -> Vec<u8> {
    STANDARD.encode(format!("{user}:{password}")).into_bytes()
}

/// The outcome of a comparison: the user, or the rejection; and how the cache contributed.
async fn compare(world: &World, user: &str, password: &str) -> (Result<String, Rejection>, CacheUse) {
    let encoded = encoded(user, password);
    let (outcome, cache) = world.authenticator.authenticate_basic(&encoded, || world.now()).await;
    (outcome.map(|verified| verified.facts.identity.subject.to_string()), cache)
}

fn cached(world: &World, user: &str, password: &str) -> &'static str {
    match world.authenticator.lookup_basic(&encoded(user, password), world.now()) {
        CredentialLookup::Hit(_) => "right",
        CredentialLookup::Denied(Rejection::WrongPassword) => "wrong",
        CredentialLookup::Denied(_) => "denied",
        CredentialLookup::Unknown => "unknown",
    }
}

#[tokio::test]
async fn a_right_password_is_compared_once_in_its_time_to_live() {
    let world = World::of(&with_users(&format!("ada:{UU}\n")));
    assert_eq!(cached(&world, "ada", "U*U"), "unknown");
    assert_eq!(compare(&world, "ada", "U*U").await, (Ok("ada".into()), CacheUse::Miss));
    assert_eq!(cached(&world, "ada", "U*U"), "right");
    assert_eq!(compare(&world, "ada", "U*U").await, (Ok("ada".into()), CacheUse::Hit));
    let CredentialLookup::Hit(verified) =
        world.authenticator.lookup_basic(&encoded("ada", "U*U"), world.now())
    else {
        panic!("not cached")
    };
    let identity = &verified.facts.identity;
    assert_eq!((identity.kind, &*identity.issuer), (CredentialKind::Basic, "basic"));
    assert_eq!((identity.user.as_deref(), &*identity.groups), (Some("ada"), &["ops".into()][..]));
    world.clock.advance(Duration::from_mins(2));
    assert_eq!(cached(&world, "ada", "U*U"), "unknown");
}

#[tokio::test]
async fn a_wrong_password_is_compared_once_and_denied_for_a_moment() {
    let world = World::of(&with_users(&format!("ada:{UU}\n")));
    for (user, password) in [("ada", "u*u"), ("nobody", "U*U"), ("nobody", "")] {
        assert_eq!(compare(&world, user, password).await, (Err(Rejection::WrongPassword), CacheUse::Miss));
        assert_eq!(cached(&world, user, password), "wrong");
        assert_eq!(compare(&world, user, password).await.1, CacheUse::Denied, "{user}");
    }
    assert_eq!(cached(&world, "ada", "U*U"), "unknown", "another password is another credential");
    world.clock.advance(3 * SECOND);
    assert_eq!(cached(&world, "nobody", "U*U"), "unknown");
}

#[tokio::test]
async fn a_password_is_of_one_user() {
    let world = World::of(&with_users(&format!("ada:{UU}\ngrace:{ABC}\na:{UU}\n")));
    assert_eq!(compare(&world, "ada", "U*U").await.0, Ok("ada".into()));
    assert_eq!(compare(&world, "grace", "U*U").await.0, Err(Rejection::WrongPassword));
    assert_eq!(compare(&world, "grace", "abc").await.0, Ok("grace".into()));
    assert_eq!(cached(&world, "a", "U*U"), "unknown", "the same hash of another user");
}

#[tokio::test]
async fn another_entry_has_no_cached_facts() {
    let world = World::of(&with_users(&format!("ada:{UU}\n")));
    assert_eq!(compare(&world, "ada", "U*U").await.0, Ok("ada".into()));
    let headers = IdentityHeaders::x_forwarded();
    let known = |file: &str| {
        let authentication = with_users(file);
        let next = world.authenticator.rebuild(setup(&authentication, &headers));
        matches!(next.lookup_basic(&encoded("ada", "U*U"), world.now()), CredentialLookup::Hit(_))
    };
    assert!(known(&format!("ada:{UU}\n")), "an unchanged entry keeps its facts");
    assert!(known(&format!("grace:{ABC}\nada:{UU}\n")), "also beside a new one");
    assert!(!known(&format!("ada:{ABC}\n")));
    assert!(!known(&format!("grace:{UU}\n")));
    let none = authentication(Vec::new(), 1);
    let next = world.authenticator.rebuild(setup(&none, &headers));
    let found = next.lookup_basic(&encoded("ada", "U*U"), world.now());
    assert!(matches!(found, CredentialLookup::Denied(Rejection::WrongPassword)));
}

#[tokio::test]
async fn a_file_without_users_admits_nobody() {
    let world = World::of(&with_users("# nobody\n"));
    assert_eq!(compare(&world, "", "").await.0, Err(Rejection::WrongPassword));
    assert_eq!(compare(&world, "ada", "").await.0, Err(Rejection::WrongPassword));
}

#[tokio::test]
async fn simultaneous_requests_share_one_comparison() {
    let world = World::of(&with_users(&format!("ada:{UU}\n")));
    let ask = || compare(&world, "ada", "U*U");
    let all = tokio::join!(ask(), ask(), ask(), ask());
    let uses = [all.0.1, all.1.1, all.2.1, all.3.1];
    assert_eq!(uses.iter().filter(|cache| **cache == CacheUse::Miss).count(), 1, "{uses:?}");
}
