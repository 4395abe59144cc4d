//! Delivery of the audit log: to a file and to an endpoint, through failures and crashes.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::{digest, rand::SystemRandom};
use idp::audit_receivers::{AuditDestination, AuditFormat, AuditReceiver};
use idp::receivers::Bearer;
use idp::{Config, OutboundClient, PendingResponse, PostRequest, Provider};
use serde_json::Value;
use store::{Epoch, Store};

use crate::{
    server::{Server, TestClock},
    world::{self, RecordedPosts, World},
};

const ENDPOINT: &str = "https://siem.example/audit";

/// A receiver that may not answer. It records what it gets.
#[derive(Clone, Default)]
struct Siem {
    bodies: Arc<Mutex<Vec<String>>>,
    status: Arc<Mutex<u16>>,
    /// It gets a request, and the provider dies before the response.
    hangs: Arc<AtomicBool>,
}

impl OutboundClient for Siem {
    fn post(&self, post: PostRequest) -> PendingResponse {
        if post.url != ENDPOINT {
            return Box::pin(async { Ok(200) });
        }
        assert_eq!(
            post.authorization.as_ref().map(|shown| shown.as_str()),
            Some("Bearer the-secret-of-the-siem")
        );
        self.bodies.lock().unwrap().push(post.body);
        let (status, hangs) = (*self.status.lock().unwrap(), self.hangs.load(Ordering::SeqCst));
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(status)
        })
    }
}

impl Siem {
    /// All entries received so far, in their order.
    fn entries(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap();
        let entries = bodies.iter().flat_map(|body| -> Vec<Value> {
            if body.starts_with('[') {
                return serde_json::from_str(body).unwrap();
            }
            body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        });
        entries.collect()
    }

    fn numbers(&self) -> Vec<u64> {
        self.entries().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
    }
}

fn receiver(destination: AuditDestination) -> AuditReceiver {
    AuditReceiver { name: "siem".into(), destination }
}

fn endpoint(format: AuditFormat) -> AuditDestination {
    let bearer = Bearer("the-secret-of-the-siem".to_owned().into());
    AuditDestination::Endpoint { url: ENDPOINT.into(), bearer, format }
}

fn configured(issuer: &str, destination: &AuditDestination) -> Config {
    Config { audit_receivers: vec![receiver(destination.clone())], ..world::config(issuer) }
}

async fn world_with(siem: &Siem, destination: &AuditDestination) -> World {
    *siem.status.lock().unwrap() = 200;
    let config = |issuer: &str| configured(issuer, destination);
    let server = Server::of("", TestClock::new(), config, SystemRandom::new(), siem.clone()).await;
    World::populate(server, RecordedPosts::default()).await
}

/// Runs maintenance until the condition holds.
async fn maintain_until(provider: &Arc<Provider>, done: impl Fn() -> bool) {
    let tended = tokio::spawn(idp::maintain(provider.clone()));
    for _ in 0..1000 {
        if done() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(done(), "not in time");
    // A little longer, to see what comes besides, and the position written.
    tokio::time::sleep(Duration::from_millis(700)).await;
    tended.abort();
    let _ = tended.await;
}

async fn act(world: &World, names: &[&str]) {
    let admin = idp::admin::Admin::new(&world.server.provider, "operator:grace");
    for name in names {
        admin.add_user(serde_json::from_value(serde_json::json!({ "name": name })).unwrap()).await.unwrap();
    }
}

/// The digest of an entry as the guide describes it, from nothing but its JSON.
fn documented_digest(before: &[u8], entry: &Value) -> Vec<u8> {
    let millis = |text: &str| {
        // The clock of the test: 2026-11-21T06:40:00Z and some seconds.
        let seconds: u64 = text[17..19].parse().unwrap();
        let minutes: u64 = text[14..16].parse().unwrap();
        let fraction: u64 = text[20..23].parse().unwrap();
        assert!(text.starts_with("2026-11-21T06:"), "{text}");
        (crate::server::START + (minutes - 40) * 60 + seconds) * 1000 + fraction
    };
    let mut bytes = before.to_vec();
    bytes.extend(entry["seq"].as_u64().unwrap().to_be_bytes());
    bytes.extend(millis(entry["at"].as_str().unwrap()).to_be_bytes());
    let mut members = vec!["actor", "action", "target", "detail"];
    if entry.get("user").is_some() || entry.get("client").is_some() {
        members.extend(["user", "client"]);
    }
    for member in members {
        let text = entry[member].as_str().unwrap_or_default();
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    digest::digest(&digest::SHA256, &bytes).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[tokio::test]
async fn a_receiver_verifies_the_chain_from_what_it_gets() {
    let siem = Siem::default();
    let world = world_with(&siem, &endpoint(AuditFormat::JsonLines)).await;
    world.tokens("app", "openid").await;
    act(&world, &["cleo"]).await;
    maintain_until(&world.server.provider, || siem.entries().len() >= 4).await;
    let entries = siem.entries();
    assert_eq!(siem.numbers(), [1, 2, 3, 4]);
    let mut last = vec![0; 32];
    for entry in &entries {
        last = documented_digest(&last, entry);
        assert_eq!(entry["digest"], hex(&last), "{entry}");
    }
    assert_eq!(entries[0]["action"], "login.success");
    assert_eq!((&entries[0]["user_name"], &entries[0]["client_name"]), (&"ada".into(), &"The app".into()));
    let sample = world.server.provider.audit_samples().remove(0);
    assert_eq!((sample.lag, sample.delivered, sample.failed), (Some(0), 4, 0));
}

#[tokio::test]
async fn a_receiver_that_is_down_gets_everything_later_in_order() {
    let siem = Siem::default();
    let world = world_with(&siem, &endpoint(AuditFormat::JsonArray)).await;
    *siem.status.lock().unwrap() = 503;
    act(&world, &["cleo", "dora"]).await;
    maintain_until(&world.server.provider, || !siem.bodies.lock().unwrap().is_empty()).await;
    let tried = siem.bodies.lock().unwrap().len();
    maintain_until(&world.server.provider, || true).await;
    assert_eq!(siem.bodies.lock().unwrap().len(), tried, "there is a pause between attempts");
    act(&world, &["emma"]).await;
    let sample = world.server.provider.audit_samples().remove(0);
    assert_eq!((sample.lag, sample.delivered), (Some(2), 0));
    assert!(sample.failed > 0);
    siem.bodies.lock().unwrap().clear();
    // 413 and 400 are failures too: no entry is given up.
    for status in [413, 400] {
        *siem.status.lock().unwrap() = status;
        world.server.clock.advance(Duration::from_mins(6));
        maintain_until(&world.server.provider, || !siem.bodies.lock().unwrap().is_empty()).await;
        siem.bodies.lock().unwrap().clear();
    }
    *siem.status.lock().unwrap() = 202;
    world.server.clock.advance(Duration::from_mins(6));
    maintain_until(&world.server.provider, || siem.entries().len() >= 3).await;
    assert_eq!(siem.numbers(), [1, 2, 3]);
    act(&world, &["fay"]).await;
    maintain_until(&world.server.provider, || siem.entries().len() >= 4).await;
    assert_eq!(siem.numbers(), [1, 2, 3, 4], "and nothing twice");
}

#[tokio::test]
async fn what_was_sent_before_a_crash_is_sent_again() {
    let siem = Siem::default();
    let world = world_with(&siem, &endpoint(AuditFormat::JsonLines)).await;
    siem.hangs.store(true, Ordering::SeqCst);
    act(&world, &["cleo"]).await;
    // The receiver has the entry, but the node dies before it stores the position.
    maintain_until(&world.server.provider, || siem.entries().len() == 1).await;
    siem.hangs.store(false, Ordering::SeqCst);
    act(&world, &["dora"]).await;
    maintain_until(&world.server.provider, || true).await;
    assert_eq!(siem.numbers(), [1], "the dead node still holds the receiver");
    world.server.clock.advance(Duration::from_mins(1));
    maintain_until(&world.server.provider, || siem.entries().len() >= 3).await;
    assert_eq!(siem.numbers(), [1, 1, 2]);
}

#[tokio::test]
async fn a_file_goes_on_after_it_was_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
    let siem = Siem::default();
    let world = world_with(&siem, &AuditDestination::File(path.clone())).await;
    let numbers = |path: &std::path::Path| -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.map(|entry| entry["seq"].as_u64().unwrap()).collect()
    };
    act(&world, &["cleo", "dora"]).await;
    maintain_until(&world.server.provider, || numbers(&path).len() == 2).await;
    std::fs::rename(&path, &rotated).unwrap();
    act(&world, &["emma"]).await;
    maintain_until(&world.server.provider, || !numbers(&path).is_empty()).await;
    assert_eq!((numbers(&rotated), numbers(&path)), (vec![1, 2], vec![3]));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o007, 0, "not for all users of the machine");

    // A folder that is not there: the entries wait.
    std::fs::rename(folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.2")).unwrap();
    std::fs::create_dir(&path).unwrap();
    act(&world, &["fay"]).await;
    let failed = || world.server.provider.audit_samples()[0].failed > 0;
    maintain_until(&world.server.provider, failed).await;
    std::fs::remove_dir(&path).unwrap();
    world.server.clock.advance(Duration::from_mins(6));
    maintain_until(&world.server.provider, || path.is_file() && !numbers(&path).is_empty()).await;
    assert_eq!(numbers(&path), [4]);
}

#[tokio::test]
async fn nodes_share_the_work() {
    let url = crate::races::database(&format!("audit_{}", std::process::id()));
    let (siem, clock, mut nodes) = (Siem::default(), TestClock::new(), Vec::new());
    *siem.status.lock().unwrap() = 200;
    for _ in 0..2 {
        let store = Store::open(&url, Epoch([3; 16])).await.unwrap();
        let config = |_: &str| configured("http://127.0.0.1:9", &endpoint(AuditFormat::JsonLines));
        let folder = tempfile::tempdir().unwrap();
        let parts = (store, folder);
        nodes.push(Server::on(parts, "", clock.clone(), config, SystemRandom::new(), siem.clone()).await);
    }
    let second = nodes.pop().unwrap();
    let world = World::populate(nodes.pop().unwrap(), RecordedPosts::default()).await;
    let tended = tokio::spawn(idp::maintain(second.provider.clone()));
    let names: Vec<String> = (0..40).map(|n| format!("user-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (acting, delivering) =
        (act(&world, &names), maintain_until(&world.server.provider, || siem.entries().len() >= 40));
    tokio::join!(acting, delivering);
    tended.abort();
    assert_eq!(siem.numbers(), (1..=40).collect::<Vec<_>>(), "each once, in the order of the log");
}
