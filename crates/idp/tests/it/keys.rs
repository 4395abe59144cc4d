//! Key rotation as clients and resource servers see it, and keys on disk.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use auth::{
    time::Timestamp,
    token::{AlgorithmSet, TokenError},
};
use aws_lc_rs::rand::SystemRandom;
use idp::{
    KeyError, Keys,
    keys::{LEAD, RETENTION, SigningAlgorithm, ring::TransitionFault},
};
use serde_json::Value;

use crate::{
    server::{START, Server, TestClock, open},
    verify::ResourceServer,
};

const ES: SigningAlgorithm = SigningAlgorithm::Es256;
const NOW: Timestamp = Timestamp::from_secs(START);

fn kid_of(token: &str) -> String {
    open(token).0["kid"].as_str().unwrap().to_owned()
}

async fn published(server: &Server) -> Vec<String> {
    let set = server.get("/jwks").await.json();
    set["keys"].as_array().unwrap().iter().map(|k| k["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_key_set_is_public_and_cacheable() {
    let clock = TestClock::new();
    let keys = Keys::in_memory(&[ES, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa], clock.now()).unwrap();
    let server = Server::with("", clock, keys, ES, SystemRandom::new()).await;
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
    assert_eq!(algorithms, ["ES256", "RS256", "EdDSA", "ES256", "RS256", "EdDSA"]);
    let document = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(
        document["id_token_signing_alg_values_supported"],
        serde_json::json!(["ES256", "RS256", "EdDSA"])
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
    server.provider.rotate_keys(ES).unwrap();
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
    let early = server.provider.rotate_keys(ES);
    let ready = NOW.plus(LEAD);
    assert!(matches!(early, Err(KeyError::Transition(TransitionFault::TooEarly { ready: r })) if r == ready));
    assert_eq!(published(&server).await, before, "nothing changed");
    server.clock.advance(Duration::from_millis(1));
    server.provider.rotate_keys(ES).unwrap();
    let missing = server.provider.rotate_keys(SigningAlgorithm::EdDsa);
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
    server.provider.rotate_keys(ES).unwrap();
    server.clock.advance(RETENTION.checked_sub(Duration::from_millis(1)).unwrap());
    server.provider.rotate_keys(ES).unwrap();
    assert!(published(&server).await.contains(&first));
    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).unwrap();
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
    server.provider.revoke_key(&before[0]).unwrap();
    let after = published(&server).await;
    assert_eq!((after.len(), &after[0]), (2, &before[1]), "the next key took over without waiting");
    let new = server.access_token().await;
    api.refetch(&server).await;
    let now = server.clock.now();
    assert!(matches!(api.verify(&old, now), Err(TokenError::UnknownKey)));
    assert!(api.verify(&new, now).is_ok());

    // a next key can leak as well, and a retired one
    server.provider.revoke_key(&after[1]).unwrap();
    let third = published(&server).await;
    assert_eq!(third[0], after[0]);
    assert!(!third.contains(&after[1]));
    server.clock.advance(LEAD);
    server.provider.rotate_keys(ES).unwrap();
    server.provider.revoke_key(&third[0]).unwrap();
    assert!(!published(&server).await.contains(&third[0]));
    let nobody = server.provider.revoke_key(&third[0]);
    assert!(matches!(nobody, Err(KeyError::Transition(TransitionFault::NoSuchKey(_)))));
}

/// A directory that is gone after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("idp-keys-{name}-{}", std::process::id()));
        assert!(!path.exists(), "{} is left over", path.display());
        Self(path)
    }

    fn open(&self, algorithms: &[SigningAlgorithm], now: Timestamp) -> Result<Keys, KeyError> {
        Keys::open(&self.0, algorithms, now)
    }

    fn manifest(&self) -> PathBuf {
        self.0.join("ring.json")
    }

    /// Names of the files, sorted.
    fn files(&self) -> Vec<String> {
        let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // a leftover is reported by the next run
        fs::remove_dir_all(&self.0).ok();
    }
}

fn kids(keys: &Keys) -> Vec<String> {
    let set: Value = serde_json::from_slice(&keys.jwks()).unwrap();
    set["keys"].as_array().unwrap().iter().map(|k| k["kid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn keys_outlive_the_process() {
    let scratch = Scratch::new("outlive");
    let algorithms = [ES, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa];
    let first = scratch.open(&algorithms, NOW).unwrap();
    let before = first.ring();
    drop(first);
    let second = scratch.open(&algorithms, NOW.plus(LEAD)).unwrap();
    assert_eq!(second.ring(), before);
    second.rotate(ES, NOW.plus(LEAD)).unwrap();
    let (after, set) = (second.ring(), second.jwks());
    drop(second);
    let third = scratch.open(&algorithms, NOW.plus(LEAD)).unwrap();
    assert_eq!((third.ring(), third.jwks()), (after, set));
    assert_eq!(third.ring().retired().collect::<Vec<_>>(), [before.active(ES).unwrap().kid()]);
    for algorithm in algorithms {
        assert!(third.sign(algorithm, "at+jwt", &serde_json::json!({})).is_ok());
    }
}

#[test]
fn the_disk_has_private_keys_for_its_owner_only() {
    let scratch = Scratch::new("modes");
    let keys = scratch.open(&[ES], NOW).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&scratch.0), 0o700);
    for name in scratch.files() {
        assert_eq!(mode(&scratch.0.join(&name)), 0o600, "{name}");
    }
    let ring = keys.ring();
    let file = |kid: &str| format!("key-{kid}.pem");
    let (active, next) = (ring.active(ES).unwrap().kid(), ring.next(ES).unwrap().kid());
    let mut expected = vec![file(active), file(next), "lock".into(), "ring.json".into()];
    expected.sort();
    assert_eq!(scratch.files(), expected);
    let pem = fs::read_to_string(scratch.0.join(file(active))).unwrap();
    assert!(
        pem.starts_with("-----BEGIN PRIVATE KEY-----\n") && pem.ends_with("\n-----END PRIVATE KEY-----\n")
    );

    // after rotation nobody can sign with the old key any more, not even with the disk in hand
    keys.rotate(ES, NOW.plus(LEAD)).unwrap();
    assert!(!scratch.files().contains(&file(active)));
    assert!(!fs::read_to_string(scratch.manifest()).unwrap().contains("\"d\""));
}

#[test]
fn what_others_can_read_is_refused() {
    let scratch = Scratch::new("open");
    drop(scratch.open(&[ES], NOW).unwrap());
    let key = scratch.files().into_iter().find(|n| n.starts_with("key-")).unwrap();
    for (path, mode, repaired) in [
        (scratch.0.join(key), 0o640, 0o600),
        (scratch.manifest(), 0o604, 0o600),
        (scratch.0.clone(), 0o750, 0o700),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = scratch.open(&[ES], NOW).unwrap_err();
        assert!(
            matches!(&refused, KeyError::Permissions { path: p, mode: m, .. } if *p == path && *m == mode),
            "{refused}"
        );
        assert!(refused.to_string().contains(&format!("chmod {repaired:04o}")), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(repaired)).unwrap();
    }
    assert!(scratch.open(&[ES], NOW).is_ok());
}

#[test]
fn one_process_at_a_time() {
    let scratch = Scratch::new("lock");
    let first = scratch.open(&[ES], NOW).unwrap();
    assert!(matches!(scratch.open(&[ES], NOW), Err(KeyError::InUse(_))));
    drop(first);
    assert!(scratch.open(&[ES], NOW).is_ok());
}

#[test]
fn a_damaged_directory_is_refused() {
    let scratch = Scratch::new("damaged");
    drop(scratch.open(&[ES, SigningAlgorithm::EdDsa], NOW).unwrap());
    let good = fs::read_to_string(scratch.manifest()).unwrap();
    let json: Value = serde_json::from_str(&good).unwrap();
    let without = |at: usize| {
        let mut json = json.clone();
        json["keys"].as_array_mut().unwrap().remove(at);
        json.to_string()
    };
    let mut twice = json.clone();
    let again = twice["keys"][0].clone();
    twice["keys"].as_array_mut().unwrap().push(again);
    for bad in [
        String::new(),
        "{}".to_owned(),
        good.replace("\"version\": 1", "\"version\": 2"),
        good.replace("\"version\": 1", "\"version\": 1, \"more\": 1"),
        good.replacen("active", "idle", 1),
        good.replacen("ES256", "HS256", 1),
        good.replacen("ES256", "EdDSA", 1),
        good.replacen(json["keys"][0]["kid"].as_str().unwrap(), "../../key", 1),
        without(0),
        without(1),
        twice.to_string(),
    ] {
        fs::write(scratch.manifest(), &bad).unwrap();
        let refused = scratch.open(&[ES, SigningAlgorithm::EdDsa], NOW);
        assert!(
            matches!(refused, Err(KeyError::Manifest { .. } | KeyError::KeyFile { .. })),
            "{refused:?} for {bad}"
        );
    }
    fs::write(scratch.manifest(), &good).unwrap();

    // a key file with another key in it, a broken one, none
    let file = |at: usize| scratch.0.join(format!("key-{}.pem", json["keys"][at]["kid"].as_str().unwrap()));
    let pem = fs::read(file(0)).unwrap();
    for bad in [
        fs::read(file(1)).unwrap(),
        fs::read(file(2)).unwrap(),
        pem[..pem.len() / 2].to_vec(),
        [pem.clone(), pem.clone()].concat(),
    ] {
        fs::write(file(0), &bad).unwrap();
        let refused = scratch.open(&[ES, SigningAlgorithm::EdDsa], NOW);
        assert!(matches!(refused, Err(KeyError::KeyFile { .. })), "{refused:?}");
    }
    fs::remove_file(file(0)).unwrap();
    assert!(
        matches!(scratch.open(&[ES, SigningAlgorithm::EdDsa], NOW), Err(KeyError::Io { .. })),
        "never a new key in its place"
    );
}

#[test]
fn what_a_crash_left_is_swept() {
    let scratch = Scratch::new("crash");
    let keys = scratch.open(&[ES], NOW).unwrap();
    let (ring, files) = (keys.ring(), scratch.files());
    drop(keys);
    // killed between the new key file and the manifest; and inside a write
    let orphan = format!("key-{}.pem", "A".repeat(43));
    let write = |name: &str| {
        let path = scratch.0.join(name);
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&orphan);
    write("ring.json.postern-tmp");
    write("notes.txt");
    let keys = scratch.open(&[ES], NOW).unwrap();
    assert_eq!(keys.ring(), ring);
    let mut expected = files;
    expected.push("notes.txt".into());
    expected.sort();
    assert_eq!(scratch.files(), expected, "what is not ours stays");
}

#[test]
fn a_change_that_cannot_be_kept_does_not_happen() {
    let scratch = Scratch::new("full");
    let keys = scratch.open(&[ES], NOW).unwrap();
    let (ring, set) = (keys.ring(), keys.jwks());
    // the manifest cannot be replaced: a directory stands where it is written aside
    let obstacle = scratch.0.join("ring.json.postern-tmp");
    fs::create_dir(&obstacle).unwrap();
    assert!(matches!(keys.rotate(ES, NOW.plus(LEAD)), Err(KeyError::Io { .. })));
    assert_eq!((keys.ring(), keys.jwks()), (ring.clone(), set));
    fs::remove_dir(&obstacle).unwrap();
    drop(keys);
    let again = scratch.open(&[ES], NOW.plus(LEAD)).unwrap();
    assert_eq!(again.ring(), ring);
    again.rotate(ES, NOW.plus(LEAD)).unwrap();
}

#[test]
fn algorithms_follow_the_configuration() {
    let scratch = Scratch::new("algorithms");
    let first = scratch.open(&[ES], NOW).unwrap().ring();
    let both = scratch.open(&[SigningAlgorithm::EdDsa, ES, ES], NOW).unwrap();
    assert_eq!(both.algorithms(), [SigningAlgorithm::EdDsa, ES]);
    assert_eq!(both.ring().active(ES).unwrap().kid(), first.active(ES).unwrap().kid());
    drop(both);
    let other = scratch.open(&[SigningAlgorithm::EdDsa], NOW).unwrap();
    assert_eq!(other.algorithms(), [SigningAlgorithm::EdDsa]);
    let old = first.active(ES).unwrap().kid().to_owned();
    assert_eq!(other.ring().retired().collect::<Vec<_>>(), [old.as_str()], "its tokens are still out there");
    assert!(kids(&other).contains(&old) && !kids(&other).contains(&first.next(ES).unwrap().kid().to_owned()));
    drop(other);
    assert!(matches!(scratch.open(&[], NOW), Err(KeyError::NoAlgorithm)));
    let late = scratch.open(&[SigningAlgorithm::EdDsa], NOW.plus(RETENTION)).unwrap();
    assert_eq!(late.ring().retired().count(), 0);
}
