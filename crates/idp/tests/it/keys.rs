//! Key rotation from the view of clients and resource servers, and keys in the store.

use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::time::Timestamp;
use auth::token_error::TokenError;
use aws_lc_rs::rand::SystemRandom;
use idp::{
    KeyError, Keys, Secrets,
    keys::{KeyAccess, LEAD, RETENTION, SigningAlgorithm, ring::TransitionFault},
};
use store::{Epoch, Store};

use crate::{
    server::{START, Server, TestClock, decode_unverified},
    verify::ResourceServer,
};

const ES: SigningAlgorithm = SigningAlgorithm::Es256;
const NOW: Timestamp = Timestamp::from_secs(START);

fn kid_of(token: &str) -> String {
    decode_unverified(token).0["kid"].as_str().unwrap().to_owned()
}

/// Published ES256 keys: the active one, the next one, retired ones.
async fn published(server: &Server) -> Vec<String> {
    let set = server.get("/jwks").await.json();
    let keys = set["keys"].as_array().unwrap().iter().filter(|k| k["alg"] == "ES256");
    keys.map(|k| k["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_key_set_is_public_and_cacheable() {
    let server = Server::with("", TestClock::new(), SigningAlgorithm::EdDsa, SystemRandom::new()).await;
    let answer = server.get("/jwks").await;
    assert_eq!(answer.field("cache-control"), Some("public, max-age=300"));
    let set = answer.json();
    let keys = set["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 6, "active and next of each");
    for key in keys {
        assert_eq!((key["use"].as_str(), key["kid"].as_str().map(str::len)), (Some("sig"), Some(43)));
        for private in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
            assert_eq!(key.get(private), None);
        }
    }
    let algorithms: Vec<_> = keys.iter().map(|k| k["alg"].as_str().unwrap()).collect();
    assert_eq!(algorithms, ["EdDSA", "RS256", "ES256", "EdDSA", "RS256", "ES256"]);
    let document = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(
        document["id_token_signing_alg_values_supported"],
        serde_json::json!(["EdDSA", "RS256", "ES256"])
    );
}

#[tokio::test]
async fn rotation_keeps_old_tokens_and_surprises_nobody() {
    let server = Server::start().await;
    let api = ResourceServer::of(&server, AlgorithmSet::ALL).await;
    let old = server.access_token().await;
    let before = published(&server).await;
    assert_eq!((before.len(), &before[0]), (2, &kid_of(&old)));

    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).await.unwrap();
    let new = server.access_token().await;
    assert_eq!(kid_of(&new), before[1], "the key published before signs now");
    let after = published(&server).await;
    assert_eq!((&after[0], &after[2]), (&before[1], &before[0]));
    assert!(!before.contains(&after[1]), "and the one to come is new");

    let at = Timestamp::from_secs(START + 1);
    assert!(api.verify(&new, server.clock.now()).is_ok(), "with keys fetched before the rotation");
    assert!(api.verify(&old, at).is_ok());
    let fresh = ResourceServer::of(&server, AlgorithmSet::ALL).await;
    assert!(fresh.verify(&old, at).is_ok() && fresh.verify(&new, server.clock.now()).is_ok());
}

#[tokio::test]
async fn a_key_too_young_does_not_sign() {
    let server = Server::start().await;
    let before = published(&server).await;
    server.clock.advance(LEAD.checked_sub(Duration::from_millis(1)).unwrap());
    let early = server.provider.rotate_keys(ES).await;
    let ready = NOW.plus(LEAD);
    assert!(matches!(early, Err(KeyError::Transition(TransitionFault::TooEarly { ready: r })) if r == ready));
    assert_eq!(published(&server).await, before, "nothing changed");
    server.clock.advance(Duration::from_millis(1));
    server.provider.rotate_keys(ES).await.unwrap();
    let missing = server.provider.rotate_keys(SigningAlgorithm::EdDsa).await;
    assert!(matches!(
        missing,
        Err(KeyError::Transition(TransitionFault::NoSuchAlgorithm(SigningAlgorithm::EdDsa)))
    ));
}

#[tokio::test]
async fn a_retired_key_goes_when_its_tokens_are_gone() {
    let server = Server::start().await;
    let first = published(&server).await[0].clone();
    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).await.unwrap();
    server.clock.advance(RETENTION.checked_sub(Duration::from_millis(1)).unwrap());
    server.provider.rotate_keys(ES).await.unwrap();
    assert!(published(&server).await.contains(&first));
    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).await.unwrap();
    let left = published(&server).await;
    assert!(!left.contains(&first));
    assert_eq!(left.len(), 4, "active, next, two retired");
}

#[tokio::test]
async fn a_leaked_key_goes_at_once() {
    let server = Server::start().await;
    let mut api = ResourceServer::of(&server, AlgorithmSet::ALL).await;
    let old = server.access_token().await;
    let before = published(&server).await;
    server.provider.revoke_key(&before[0]).await.unwrap();
    let after = published(&server).await;
    assert_eq!((after.len(), &after[0]), (2, &before[1]), "the next key took over without waiting");
    let new = server.access_token().await;
    api.refetch(&server).await;
    let now = server.clock.now();
    assert!(matches!(api.verify(&old, now), Err(TokenError::UnknownKey)));
    assert!(api.verify(&new, now).is_ok());

    // A next key or a retired key can leak too.
    server.provider.revoke_key(&after[1]).await.unwrap();
    let third = published(&server).await;
    assert_eq!(third[0], after[0]);
    assert!(!third.contains(&after[1]));
    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).await.unwrap();
    server.provider.revoke_key(&third[0]).await.unwrap();
    assert!(!published(&server).await.contains(&third[0]));
    let nobody = server.provider.revoke_key(&third[0]).await;
    assert!(matches!(nobody, Err(KeyError::Transition(TransitionFault::NoSuchKey(_)))));
}

/// A database that several nodes share.
struct Shared {
    _folder: tempfile::TempDir,
    store: Store,
    secrets: Secrets,
}

impl Shared {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = store::sqlite_url(&folder.path().join("provider.db"));
        let store = Store::open(&url, Epoch([7; 16])).await.unwrap();
        Self { _folder: folder, store, secrets: Secrets::new(&[1; 32]) }
    }

    fn place(&self) -> KeyAccess<'_> {
        KeyAccess { store: &self.store, secrets: &self.secrets, entropy: &*RANDOM }
    }

    async fn open(&self, algorithms: &[SigningAlgorithm], now: Timestamp) -> Result<Keys, KeyError> {
        Keys::open(self.place(), algorithms, now).await
    }
}

static RANDOM: std::sync::LazyLock<SystemRandom> = std::sync::LazyLock::new(SystemRandom::new);

#[tokio::test]
async fn keys_outlive_the_process() {
    let shared = Shared::new().await;
    let algorithms = [ES, SigningAlgorithm::EdDsa];
    let before = shared.open(&algorithms, NOW).await.unwrap().ring();
    let second = shared.open(&algorithms, NOW.plus(LEAD)).await.unwrap();
    assert_eq!(second.ring(), before);
    second.rotate(shared.place(), ES, NOW.plus(LEAD)).await.unwrap();
    let third = shared.open(&algorithms, NOW.plus(LEAD)).await.unwrap();
    assert_eq!((third.ring(), third.jwks()), (second.ring(), second.jwks()));
    assert_eq!(third.ring().retired().collect::<Vec<_>>(), [before.active(ES).unwrap().kid()]);
    for algorithm in algorithms {
        assert!(third.sign(algorithm, "at+jwt", &serde_json::json!({})).is_ok());
    }
}

#[tokio::test]
async fn nodes_that_start_together_have_the_same_keys() {
    let shared = std::sync::Arc::new(Shared::new().await);
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let shared = shared.clone();
            tokio::spawn(async move { shared.open(&[ES], NOW).await.unwrap().jwks() })
        })
        .collect();
    let mut sets = Vec::new();
    for start in starts {
        sets.push(start.await.unwrap());
    }
    assert!(sets.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_rotation_of_one_node_is_every_nodes() {
    let shared = Shared::new().await;
    let (a, b) = (shared.open(&[ES], NOW).await.unwrap(), shared.open(&[ES], NOW).await.unwrap());
    let (due, period) = (NOW.plus(LEAD), Duration::from_mins(1));
    a.rotate_due(shared.place(), period, due).await.unwrap();
    b.rotate_due(shared.place(), period, due).await.unwrap();
    assert_eq!((a.ring(), a.ring().retired().count()), (b.ring(), 1), "rotated once");
    a.revoke(shared.place(), a.ring().active(ES).unwrap().kid(), due).await.unwrap();
    assert_ne!(a.ring(), b.ring());
    b.refresh(shared.place()).await.unwrap();
    assert_eq!(a.ring(), b.ring());
    let told = shared.store.events(0, 10).await.unwrap();
    assert_eq!(told.iter().map(|e| &*e.reason).collect::<Vec<_>>(), ["signing key revoked"]);
}

#[tokio::test]
async fn a_change_with_the_version_of_one_that_was_lost_is_read() {
    let (lost, shared) = (Shared::new().await, Shared::new().await);
    let (a, b) = (lost.open(&[ES], NOW).await.unwrap(), shared.open(&[ES], NOW).await.unwrap());
    assert_ne!(a.ring(), b.ring());
    // As after a failover to a database that never got the change of `a`.
    a.refresh(shared.place()).await.unwrap();
    assert_eq!((a.ring(), a.jwks()), (b.ring(), b.jwks()));
}

#[tokio::test]
async fn a_thief_of_the_database_has_no_key() {
    let shared = Shared::new().await;
    shared.open(&[ES], NOW).await.unwrap();
    let content = shared.store.key_ring().await.unwrap().unwrap().content;
    assert!(!content.windows(7).any(|w| w == b"PRIVATE"));
    let other = Secrets::new(&[2; 32]);
    let place = KeyAccess { secrets: &other, ..shared.place() };
    let refused = Keys::open(place, &[ES], NOW).await.unwrap_err();
    assert!(matches!(refused, KeyError::Sealed), "never a new key in its place");
    assert!(refused.to_string().contains("secret"), "{refused}");
}

#[tokio::test]
async fn algorithms_follow_the_configuration() {
    let shared = Shared::new().await;
    let first = shared.open(&[ES], NOW).await.unwrap().ring();
    let both = shared.open(&[SigningAlgorithm::EdDsa, ES, ES], NOW).await.unwrap();
    assert_eq!(both.ring().algorithms().collect::<Vec<_>>(), [SigningAlgorithm::EdDsa, ES]);
    assert_eq!(both.ring().active(ES).unwrap().kid(), first.active(ES).unwrap().kid());
    let other = shared.open(&[SigningAlgorithm::EdDsa], NOW).await.unwrap();
    let old = first.active(ES).unwrap().kid();
    assert_eq!(other.ring().retired().collect::<Vec<_>>(), [old], "its tokens are still out there");
    assert!(!other.ring().jwks().contains(first.next(ES).unwrap().kid()));
    assert!(matches!(shared.open(&[], NOW).await, Err(KeyError::NoAlgorithm)));
    let late = shared.open(&[SigningAlgorithm::EdDsa], NOW.plus(RETENTION)).await.unwrap();
    assert_eq!(late.ring().retired().count(), 0);
}
