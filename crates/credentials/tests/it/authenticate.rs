//! Authentication against real (loopback) issuers: what is fetched, when, and the meaning of a
//! failure.

use std::sync::Arc;
use std::time::Duration;

use auth::headers::IdentityHeaders;
use auth::mapping::CertificateMapping;
use auth::time::Timestamp;
use auth::token::IssuerConfig;
use auth::token::jws::{Signer, public_jwks};
use auth::token_error::TokenError;
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use credentials::authenticate::{
    Authenticator, AuthenticatorRuntime, AuthenticatorSetup, KeySetStatus, Verified,
};
use credentials::cache::{CacheSecret, Generation};
use credentials::config::{Authentication, CacheLimits, IssuerSource, KeySource};
use credentials::revocation::FollowedIssuers;
use http_engine::clock::{Clock, ManualClock, Now};
use http_engine::outbound_proxy::OutboundProxies;
use serde_json::{Value, json};
use telemetry::phases::CacheUse;

use crate::issuer::{JWKS, OAUTH, OPENID, Reply, TestIssuer, signer, token, token_with_header};

pub(crate) const MAX_STALE: Duration = Duration::from_mins(10);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct World {
    pub(crate) authenticator: Authenticator,
    pub(crate) clock: Arc<ManualClock>,
}

/// One issuer as the configuration would have it. The background refresh is out of the tests'
/// reach, so that every fetch counted was demanded.
pub(crate) fn issuer(name: &str, url: &str, keys: KeySource) -> IssuerSource {
    let config = IssuerConfig::new(name, url, vec!["gateway".into()]).unwrap();
    let refresh = Duration::from_hours(1);
    IssuerSource {
        config: Arc::new(config),
        keys,
        refresh,
        max_stale: MAX_STALE,
        tls: None,
        proxies: OutboundProxies::default(),
    }
}

pub(crate) fn authentication(issuers: Vec<IssuerSource>, version: u64) -> Authentication {
    let cache = CacheLimits {
        bytes: 1 << 20,
        ttl: Duration::from_mins(1),
        deny_ttl: Duration::from_secs(2),
        deny_entries: 64,
    };
    Authentication {
        issuers,
        authorities: Vec::new(),
        basic: None,
        certificates: None,
        cache,
        realm: "test".into(),
        version,
    }
}

pub(crate) fn with_certificates(mapping: CertificateMapping) -> World {
    World::of(&Authentication { certificates: Some(mapping), ..authentication(Vec::new(), 1) })
}

pub(crate) fn setup<'a>(
    authentication: &'a Authentication,
    headers: &'a IdentityHeaders,
) -> AuthenticatorSetup<'a> {
    AuthenticatorSetup { authentication, identity_headers: headers, assertion: None }
}

impl World {
    pub(crate) fn of(authentication: &Authentication) -> Self {
        Self::following(authentication, FollowedIssuers::default())
    }

    /// A world with followed issuers.
    pub(crate) fn following(authentication: &Authentication, follows: FollowedIssuers) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(1_000_000)));
        let surroundings = AuthenticatorRuntime {
            clock: clock.clone(),
            control: tokio::runtime::Handle::current(),
            secret: CacheSecret::new([9; 16]),
            generation: Generation::default(),
            follows,
        };
        let headers = IdentityHeaders::x_forwarded();
        Self { authenticator: Authenticator::new(setup(authentication, &headers), surroundings), clock }
    }

    /// A world after its first fetch.
    pub(crate) async fn ready(issuers: Vec<IssuerSource>) -> Self {
        let world = Self::of(&authentication(issuers, 1));
        world.authenticator.first_fetches().await;
        world
    }

    pub(crate) async fn discovering(issuer_: &TestIssuer) -> Self {
        Self::ready(vec![issuer("main", issuer_.url(), KeySource::Discovery)]).await
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(crate) fn lookup(&self, token: &[u8]) -> CredentialLookup {
        self.authenticator.lookup(token, || self.authenticator.name(token), self.now())
    }

    pub(crate) async fn ask(&self, token: &[u8]) -> Result<Arc<Verified>, Rejection> {
        self.authenticator.authenticate(token, || self.clock.now()).await.0
    }

    pub(crate) async fn subject(&self, token: &[u8]) -> Result<Box<str>, Rejection> {
        self.ask(token).await.map(|verified| verified.facts.identity.subject.clone())
    }

    pub(crate) fn status(&self) -> KeySetStatus {
        self.authenticator.key_sets().remove(0)
    }
}

pub(crate) fn invalid(error: TokenError) -> Rejection {
    Rejection::Invalid(error)
}

fn retry_after(outcome: Result<Arc<Verified>, Rejection>) -> Duration {
    match outcome {
        Err(Rejection::Unavailable { issuer, retry_after }) => {
            assert_eq!(&*issuer, "main");
            assert!(retry_after >= SECOND);
            retry_after
        }
        other => panic!("expected unavailable, found {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_verified_once_and_then_known() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let extra = json!({ "preferred_username": "ada", "groups": ["admins", "dev"] });
    let token = token(&key, idp.url(), "u1", &extra);
    assert!(matches!(world.lookup(&token), CredentialLookup::Unknown));
    let (verified, cache) = world.authenticator.authenticate(&token, || world.now()).await;
    let verified = verified.unwrap();
    assert_eq!(cache, CacheUse::Miss);
    assert_eq!((&*verified.facts.identity.subject, &*verified.facts.identity.issuer), ("u1", "main"));
    assert_eq!(verified.issuer, Some(0));
    let block =
        "X-Forwarded-User: ada\r\nX-Forwarded-Groups: admins,dev\r\nX-Forwarded-Preferred-Username: ada\r\n";
    assert_eq!(str::from_utf8(&verified.http1_block), Ok(block));
    let lines = verified.upstream_fields.iter();
    let lines = lines.flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"]);
    assert_eq!(lines.collect::<Vec<_>>().concat(), block.as_bytes());
    let CredentialLookup::Hit(found) = world.lookup(&token) else { panic!("not cached") };
    assert!(Arc::ptr_eq(&found, &verified));
    let (_, cache) = world.authenticator.authenticate(&token, || world.now()).await;
    assert_eq!(cache, CacheUse::Hit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_denied_and_the_denial_remembered() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let expired = token(&key, idp.url(), "u1", &json!({ "exp": 1_000_000 }));
    assert_eq!(world.subject(&expired).await, Err(invalid(TokenError::Expired)));
    let CredentialLookup::Denied(why) = world.lookup(&expired) else { panic!("not remembered") };
    assert_eq!((why.code(), why), ("expired", invalid(TokenError::Expired)));
    world.clock.advance(2 * SECOND);
    assert!(matches!(world.lookup(&expired), CredentialLookup::Unknown));
    let huge = vec![b'a'; 16 * 1024 + 1];
    assert!(matches!(
        world.lookup(&huge),
        CredentialLookup::Denied(Rejection::Invalid(TokenError::TooLarge))
    ));
    assert_eq!(world.subject(&huge).await, Err(invalid(TokenError::TooLarge)));
    assert_eq!(world.subject(b"opaque").await, Err(invalid(TokenError::NotJwt)));
    let foreign = token(&key, "https://elsewhere.example", "u1", &json!({}));
    assert_eq!(world.subject(&foreign).await, Err(invalid(TokenError::WrongIssuer)));
    // None of them caused a fetch.
    assert_eq!(idp.hits(JWKS), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_token_is_refused_from_exp_on() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let token = token(&key, idp.url(), "u1", &json!({ "exp": 1_000_010 }));
    world.ask(&token).await.unwrap();
    world.clock.advance(Duration::from_millis(9_999));
    assert!(matches!(world.lookup(&token), CredentialLookup::Hit(_)));
    world.clock.advance(Duration::from_millis(1));
    assert!(matches!(world.lookup(&token), CredentialLookup::Unknown));
    assert_eq!(world.subject(&token).await, Err(invalid(TokenError::Expired)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_of_one_token_verify_it_once() {
    let key = signer();
    let idp = TestIssuer::start().await;
    idp.discoverable();
    idp.publish(&[&key]);
    idp.hold();
    let url = idp.url().to_owned();
    let world = Arc::new(World::of(&authentication(vec![issuer("main", &url, KeySource::Discovery)], 1)));
    let token: Arc<[u8]> = token(&key, &url, "u1", &json!({})).into();
    // They arrive before the first key set: none is rejected for that.
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let (world, token) = (world.clone(), token.clone());
            tokio::spawn(async move { world.authenticator.authenticate(&token, || world.now()).await })
        })
        .collect();
    idp.reached(OPENID, 1).await;
    idp.release();
    let mut misses = 0;
    for asked in asked {
        let (verified, cache) = asked.await.unwrap();
        assert_eq!(&*verified.unwrap().facts.identity.subject, "u1");
        misses += usize::from(cache == CacheUse::Miss);
    }
    assert_eq!((misses, idp.hits(OPENID), idp.hits(JWKS)), (1, 1, 1));
}

/// security.md, Tokens: unknown kid → at most one refetch per 10 s, coalesced.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_kid_refetches_at_most_once_per_10_s_and_coalesced() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = Arc::new(World::discovering(&idp).await);
    world.clock.advance(10 * SECOND);
    idp.hold();
    let flood = || {
        let asked: Vec<_> = (0..100)
            .map(|n| {
                // Each has its own key: neither the cache nor another request's ticket helps.
                let token = token(&signer(), idp.url(), &format!("u{n}"), &json!({}));
                let world = world.clone();
                tokio::spawn(async move { world.subject(&token).await })
            })
            .collect();
        async move {
            for asked in asked {
                assert_eq!(asked.await.unwrap(), Err(invalid(TokenError::UnknownKey)));
            }
        }
    };
    let waiting = flood();
    idp.reached(OPENID, 2).await;
    idp.release();
    waiting.await;
    assert_eq!(idp.hits(JWKS), 2, "one refetch for all");
    flood().await;
    world.clock.advance(Duration::from_millis(9_999));
    flood().await;
    assert_eq!(idp.hits(JWKS), 2, "none within 10 s");
    world.clock.advance(Duration::from_millis(1));
    flood().await;
    assert_eq!(idp.hits(JWKS), 3, "and one after");
    assert_eq!(world.authenticator.cache_usage().denials, 0, "an unknown key is not remembered");
    assert_eq!(world.status().failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_is_found_by_its_unknown_kid() {
    let (old, new) = (signer(), signer());
    let idp = TestIssuer::with_keys(&[&old]).await;
    let world = World::discovering(&idp).await;
    world.ask(&token(&old, idp.url(), "before", &json!({}))).await.unwrap();
    idp.publish(&[&old, &new]);
    world.clock.advance(10 * SECOND);
    let subject = world.subject(&token(&new, idp.url(), "after", &json!({}))).await;
    assert_eq!(subject.as_deref(), Ok("after"));
    assert_eq!(idp.hits(JWKS), 2);
    assert_eq!(world.subject(&token(&old, idp.url(), "still", &json!({}))).await.as_deref(), Ok("still"));
    assert_eq!((world.status().keys, world.status().fetched), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_proven_by_a_withdrawn_key_are_forgotten() {
    let (old, new) = (signer(), signer());
    let idp = TestIssuer::with_keys(&[&old]).await;
    let world = World::discovering(&idp).await;
    let before = token(&old, idp.url(), "before", &json!({}));
    world.ask(&before).await.unwrap();
    assert!(matches!(world.lookup(&before), CredentialLookup::Hit(_)));
    idp.publish(&[&new]);
    world.clock.advance(10 * SECOND);
    world.ask(&token(&new, idp.url(), "after", &json!({}))).await.unwrap();
    assert!(matches!(world.lookup(&before), CredentialLookup::Unknown));
    assert_eq!(world.subject(&before).await, Err(invalid(TokenError::UnknownKey)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_set_that_did_not_change_flushes_nothing() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let known = token(&key, idp.url(), "u1", &json!({}));
    world.ask(&known).await.unwrap();
    world.clock.advance(10 * SECOND);
    let foreign = token(&signer(), idp.url(), "u2", &json!({}));
    assert_eq!(world.subject(&foreign).await, Err(invalid(TokenError::UnknownKey)));
    assert_eq!(idp.hits(JWKS), 2);
    assert!(matches!(world.lookup(&known), CredentialLookup::Hit(_)));
}

/// security.md, Failure and configuration: auth dependency down → 503; the last good set only
/// within its limit.
#[tokio::test(flavor = "multi_thread")]
async fn last_good_key_set_is_kept_within_its_limit_then_503() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    idp.set_gone(true);
    world.clock.advance(Duration::from_millis(599_999));
    let cached = token(&key, idp.url(), "u1", &json!({}));
    assert_eq!(world.subject(&cached).await.as_deref(), Ok("u1"), "within the limit");
    assert!(world.status().usable);
    world.clock.advance(Duration::from_millis(1));
    // A fact cached a millisecond ago ends with the set that proved it.
    assert!(matches!(world.lookup(&cached), CredentialLookup::Unknown));
    retry_after(world.ask(&cached).await);
    retry_after(world.ask(&token(&key, idp.url(), "u2", &json!({}))).await);
    let status = world.status();
    assert_eq!((status.usable, status.age, status.keys), (false, Some(MAX_STALE), 1));
    assert!(status.failed > 0 && status.last_error.is_some());
    assert_eq!(world.authenticator.cache_usage().denials, 0, "an error is never cached");
    idp.set_gone(false);
    idp.reached(JWKS, 2).await;
    assert_eq!(world.subject(&cached).await.as_deref(), Ok("u1"), "back by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_dependency_down_is_unavailable_and_recovers_without_being_asked() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    idp.serve(OPENID, Reply::status(500));
    let world = World::discovering(&idp).await;
    let token = token(&key, idp.url(), "u1", &json!({}));
    retry_after(world.ask(&token).await);
    assert!(matches!(world.lookup(&token), CredentialLookup::Unknown), "an error is never cached");
    let status = world.status();
    assert_eq!((status.usable, status.age), (false, None));
    let error = status.last_error.unwrap();
    assert!(error.contains(OPENID) && error.contains("500"), "{error}");
    // Discovery recovers after a failed attempt.
    idp.discoverable();
    idp.reached(JWKS, 1).await;
    assert_eq!(world.subject(&token).await.as_deref(), Ok("u1"));
    assert!(world.status().usable && world.status().last_error.is_none());
    assert_eq!(idp.hits(OAUTH), 0, "a provider that is ill is not asked differently");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_that_cannot_be_asked_for_is_unavailable_not_invalid() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    idp.set_gone(true);
    world.clock.advance(10 * SECOND);
    let token = token(&signer(), idp.url(), "u1", &json!({}));
    retry_after(world.ask(&token).await);
    // Within the 10 s there is no further fetch, and the result stays the same.
    retry_after(world.ask(&token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_of_another_issuer_is_refused() {
    let key = signer();
    for slip in ["/", "x"] {
        let idp = TestIssuer::with_keys(&[&key]).await;
        let other = format!("{}{slip}", idp.url());
        idp.serve(
            OPENID,
            Reply::json(&json!({ "issuer": other, "jwks_uri": format!("{}{JWKS}", idp.url()) })),
        );
        let world = World::discovering(&idp).await;
        retry_after(world.ask(&token(&key, idp.url(), "u1", &json!({}))).await);
        assert_eq!((idp.hits(JWKS), idp.hits(OAUTH)), (0, 0), "its keys are not even fetched");
        let error = world.status().last_error.unwrap();
        assert!(error.contains(&other) && error.contains("exactly"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_falls_back_to_rfc_8414_when_there_is_no_openid_document() {
    let key = signer();
    let idp = TestIssuer::start().await;
    idp.publish(&[&key]);
    let url = format!("{}/realms/x/", idp.url());
    let metadata = json!({ "issuer": url, "jwks_uri": format!("{}{JWKS}", idp.url()) });
    idp.serve(&format!("{OAUTH}/realms/x"), Reply::json(&metadata));
    let world = World::ready(vec![issuer("main", &url, KeySource::Discovery)]).await;
    assert_eq!(world.subject(&token(&key, &url, "u1", &json!({}))).await.as_deref(), Ok("u1"));
    assert_eq!(idp.hits(&format!("/realms/x{OPENID}")), 1);
}

/// security.md, Tokens: `jwk jku x5u x5c` are ignored and never fetched.
#[tokio::test(flavor = "multi_thread")]
async fn jku_and_x5u_are_never_fetched() {
    let (key, attacker) = (signer(), signer());
    let idp = TestIssuer::with_keys(&[&key]).await;
    let trap = TestIssuer::with_keys(&[&attacker]).await;
    let world = World::discovering(&idp).await;
    world.clock.advance(10 * SECOND);
    let (jwks, jwk) = (format!("{}{JWKS}", trap.url()), attacker.public_jwk().to_string());
    let header = [("typ", "JWT"), ("jku", &jwks), ("x5u", &jwks), ("jwk", &jwk), ("x5c", &jwk)];
    let forged = token_with_header(&attacker, &header, idp.url(), "root", &json!({}));
    assert_eq!(world.subject(&forged).await, Err(invalid(TokenError::UnknownKey)));
    assert_eq!(idp.hits(JWKS), 2, "the issuer itself was asked");
    assert_eq!(trap.connections(), 0);
    // A valid token may carry them; they change nothing.
    let genuine = token_with_header(&key, &header, idp.url(), "u1", &json!({}));
    assert_eq!(world.subject(&genuine).await.as_deref(), Ok("u1"));
    assert_eq!(trap.connections(), 0);
}

/// The key set of `signer` under another key's `kid`.
fn under_kid_of(signer: &Signer, other: &Signer) -> Value {
    let mut jwk = signer.public_jwk();
    jwk["kid"] = other.kid().into();
    json!({ "keys": [jwk] })
}

/// security.md, Tokens: `iss` exact, two issuers' keys never mix.
#[tokio::test(flavor = "multi_thread")]
async fn two_issuers_keys_never_mix() {
    let (key_a, key_b) = (signer(), signer());
    let (a, b) = (TestIssuer::with_keys(&[&key_a]).await, TestIssuer::with_keys(&[&key_b]).await);
    let world = World::ready(vec![
        issuer("a", a.url(), KeySource::Discovery),
        issuer("b", b.url(), KeySource::Discovery),
    ])
    .await;
    assert_eq!(world.subject(&token(&key_a, a.url(), "u", &json!({}))).await.as_deref(), Ok("u"));
    assert_eq!(world.ask(&token(&key_b, b.url(), "u", &json!({}))).await.unwrap().issuer, Some(1));
    // B's key, known under its kid, signs for A.
    let crossed = token(&key_b, a.url(), "u", &json!({}));
    assert_eq!(world.subject(&crossed).await, Err(invalid(TokenError::UnknownKey)));
    // And the same when both use one kid.
    b.serve(JWKS, Reply::json(&under_kid_of(&key_b, &key_a)));
    let world = World::ready(vec![
        issuer("a", a.url(), KeySource::Discovery),
        issuer("b", b.url(), KeySource::Discovery),
    ])
    .await;
    let for_b = token(&key_a, b.url(), "u", &json!({}));
    assert_eq!(world.subject(&for_b).await, Err(invalid(TokenError::BadSignature)));
    // Only an exact match counts.
    for slip in [format!("{}/", a.url()), a.url().to_uppercase(), a.url().replace("http", "https")] {
        let slipped = token(&key_a, &slip, "u", &json!({}));
        assert_eq!(world.subject(&slipped).await, Err(invalid(TokenError::WrongIssuer)), "{slip}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_address_needs_no_discovery() {
    let key = signer();
    let idp = TestIssuer::start().await;
    idp.publish(&[&key]);
    let keys = KeySource::Uri(format!("{}{JWKS}", idp.url()).into());
    let world = World::ready(vec![issuer("main", idp.url(), keys)]).await;
    assert_eq!(world.subject(&token(&key, idp.url(), "u1", &json!({}))).await.as_deref(), Ok("u1"));
    assert_eq!(idp.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_is_read_again_when_it_changes() {
    let (old, new) = (signer(), signer());
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("jwks-{}.json", std::process::id()));
    // As in a rotation of a mounted file: never half a document.
    let publish = |document: &str| {
        let next = path.with_extension("next");
        std::fs::write(&next, document).unwrap();
        std::fs::rename(&next, &path).unwrap();
    };
    publish(&public_jwks([&old]).to_string());
    let world = World::ready(vec![issuer("main", "my-issuer", KeySource::File(path.clone()))]).await;
    assert_eq!(world.subject(&token(&old, "my-issuer", "u1", &json!({}))).await.as_deref(), Ok("u1"));
    publish(&public_jwks([&new]).to_string());
    world.clock.advance(2 * SECOND);
    assert_eq!(world.subject(&token(&new, "my-issuer", "u2", &json!({}))).await.as_deref(), Ok("u2"));
    // If the file is malformed, empty or missing, the last valid set is kept.
    publish("{");
    world.clock.advance(2 * SECOND);
    retry_after(world.ask(&token(&old, "my-issuer", "u3", &json!({}))).await);
    assert!(world.status().last_error.unwrap().contains("jwks-"));
    publish(r#"{"keys":[]}"#);
    world.clock.advance(2 * SECOND);
    retry_after(world.ask(&token(&old, "my-issuer", "u3", &json!({}))).await);
    assert!(world.status().last_error.unwrap().contains("no usable key"));
    std::fs::remove_file(&path).unwrap();
    world.clock.advance(2 * SECOND);
    retry_after(world.ask(&token(&old, "my-issuer", "u4", &json!({}))).await);
    assert_eq!(world.subject(&token(&new, "my-issuer", "u5", &json!({}))).await.as_deref(), Ok("u5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_set_without_a_usable_key_does_not_replace_a_good_one() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    idp.serve(JWKS, Reply::json(&json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] })));
    world.clock.advance(10 * SECOND);
    retry_after(world.ask(&token(&signer(), idp.url(), "u1", &json!({}))).await);
    assert_eq!(world.subject(&token(&key, idp.url(), "u2", &json!({}))).await.as_deref(), Ok("u2"));
    let error = world.status().last_error.unwrap();
    assert!(error.contains("no usable key") && error.contains("symmetric"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_publishes_no_key_has_withdrawn_them_all() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let world = World::discovering(&idp).await;
    let known = token(&key, idp.url(), "u1", &json!({}));
    assert_eq!(world.subject(&known).await.as_deref(), Ok("u1"));
    idp.serve(JWKS, Reply::json(&json!({ "keys": [] })));
    world.clock.advance(10 * SECOND);
    // With an unknown key: the store fetches to see whether there is a newer set.
    let unknown = world.subject(&token(&signer(), idp.url(), "u2", &json!({}))).await;
    assert_eq!(unknown, Err(invalid(TokenError::UnknownKey)));
    assert_eq!(world.subject(&known).await, Err(invalid(TokenError::UnknownKey)), "nor is it in the cache");
    let status = world.status();
    assert_eq!((status.usable, status.keys, status.last_error), (true, 0, None));
    idp.publish(&[&key]);
    world.clock.advance(10 * SECOND);
    assert_eq!(world.subject(&known).await.as_deref(), Ok("u1"), "it has one again");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_refreshed_in_the_background() {
    let key = signer();
    let idp = TestIssuer::with_keys(&[&key]).await;
    let often = IssuerSource {
        refresh: Duration::from_millis(20),
        ..issuer("main", idp.url(), KeySource::Discovery)
    };
    let world = World::ready(vec![often]).await;
    idp.reached(JWKS, 3).await;
    assert!(world.status().fetched >= 2);
    // The task ends with its authenticator and releases everything it holds.
    let World { authenticator, clock } = world;
    drop(authenticator);
    let released = async {
        while Arc::strong_count(&clock) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), released).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_future_of_a_miss_stays_small() {
    let world = World::of(&authentication(Vec::new(), 1));
    let future = world.authenticator.authenticate(b"token", || world.now());
    // It is part of every connection's future.
    let size = size_of_val(&future);
    assert!(size <= 512, "{size} bytes");
}
