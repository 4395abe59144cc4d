//! Concurrency: single use holds under many concurrent requests, on one node and on two.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use idp::Config;
use store::{Epoch, Store};

use crate::{
    server::{Server, TestClock},
    wire::encode,
    world::{CALLBACK, RecordedPosts, TestAuthorizationRequest, World, config},
};

const ATTEMPTS: usize = 1_000;

/// Nodes of one provider: one on a file, two on PostgreSQL.
async fn nodes(name: &str) -> Vec<Vec<World>> {
    vec![vec![World::new().await], cluster(name, 2).await]
}

/// The PostgreSQL server on which tests may create databases.
#[expect(clippy::disallowed_methods, reason = "tests are told of servers by the environment")]
fn postgres() -> String {
    let url = std::env::var("POSTERN_TEST_POSTGRES");
    url.expect("POSTERN_TEST_POSTGRES is not set: run dev/with-postgres cargo test -p idp")
}

/// Nodes on one database, with one common issuer.
async fn cluster(name: &str, count: usize) -> Vec<World> {
    let url = database(&format!("{name}_{}", std::process::id()));
    let clock = TestClock::new();
    let issuer = "http://127.0.0.1:9";
    let mut nodes = Vec::new();
    for _ in 0..count {
        let store = Store::open(&url, Epoch([3; 16])).await.unwrap();
        let of = |_: &str| -> Config { config(issuer) };
        let folder = tempfile::tempdir().unwrap();
        let server =
            Server::on((store, folder), "", clock.clone(), of, SystemRandom::new(), RecordedPosts::default())
                .await;
        nodes.push(server);
    }
    let mut worlds = Vec::new();
    for (at, server) in nodes.into_iter().enumerate() {
        if at == 0 {
            worlds.push(World::populate(server, RecordedPosts::default()).await);
        } else {
            let ada = worlds[0].ada.clone();
            worlds.push(World { server, told: RecordedPosts::default(), ada });
        }
    }
    worlds
}

/// Creates a database on the server of the tests.
pub(crate) fn database(name: &str) -> String {
    let url = postgres();
    let (server, _) = url.rsplit_once('/').unwrap();
    let output = std::process::Command::new("psql")
        .args([&url, "-c", &format!("CREATE DATABASE {name}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{server}/{name}")
}

/// Sends the same request to all nodes in turn, concurrently; returns the statuses.
async fn storm(nodes: &Arc<Vec<World>>, client: &'static str, body: String) -> Vec<(u16, serde_json::Value)> {
    let requests: Vec<_> = (0..ATTEMPTS)
        .map(|n| {
            let (nodes, body) = (nodes.clone(), body.clone());
            tokio::spawn(async move {
                loop {
                    let answer = nodes[n % nodes.len()].call("/token", client, &body).await;
                    // On a busy machine some requests get no database connection in time. They are
                    // refused with 503 before any redemption, so they try again.
                    if answer.status != 503 {
                        return (answer.status, answer.json());
                    }
                    answer.assert_error(503, "temporarily_unavailable");
                }
            })
        })
        .collect();
    let mut answers = Vec::with_capacity(ATTEMPTS);
    for request in requests {
        answers.push(request.await.unwrap());
    }
    answers
}

/// Exactly one request succeeds, and the later ones revoke its tokens.
async fn once(nodes: &Arc<Vec<World>>, client: &'static str, body: String) {
    let answers = storm(nodes, client, body).await;
    let won: Vec<_> = answers.iter().filter(|(status, _)| *status == 200).collect();
    assert_eq!(won.len(), 1, "{:?}", answers.iter().map(|(s, _)| s).collect::<Vec<_>>());
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 200) {
        assert_eq!((*status, answer["error"].as_str()), (400, Some("invalid_grant")));
    }
    let (_, tokens) = won[0];
    for node in nodes.iter() {
        assert!(!node.is_active(tokens["access_token"].as_str().unwrap()).await, "the family is revoked");
    }
    let next =
        format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap());
    nodes[0].call("/token", client, &next).await.assert_error(400, "invalid_grant");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_code_redeemed_a_thousand_times_at_once() {
    for nodes in nodes("redeemed").await {
        let nodes = Arc::new(nodes);
        for client in ["app", "opaque"] {
            let code = nodes[0].code(&mut nodes[0].browser(), &TestAuthorizationRequest::new(client)).await;
            let body = format!("grant_type=authorization_code&code={code}&redirect_uri={}", encode(CALLBACK));
            once(&nodes, client, body).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refresh_token_redeemed_a_thousand_times_at_once() {
    for nodes in nodes("refreshed").await {
        let nodes = Arc::new(nodes);
        for client in ["app", "opaque"] {
            let tokens = nodes[0].tokens(client, "openid offline_access").await;
            let token = tokens["refresh_token"].as_str().unwrap();
            once(&nodes, client, format!("grant_type=refresh_token&refresh_token={token}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_sign_with_the_same_keys_and_share_sessions() {
    let nodes = cluster("shared", 4).await;
    let tokens = nodes[0].tokens("opaque", "openid").await;
    let token = tokens["access_token"].as_str().unwrap();
    assert!(nodes[1].is_active(token).await);
    nodes[1].call("/revoke", "opaque", &format!("token={token}")).await;
    for node in &nodes {
        assert!(!node.is_active(token).await);
    }
    let (a, b) = (nodes[0].server.get("/jwks").await, nodes[3].server.get("/jwks").await);
    assert_eq!(a.json(), b.json());
    let mut browser = nodes[0].browser();
    nodes[0].code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    browser.server = &nodes[2].server;
    assert!(browser.get("/account").await.text().contains("Your account"), "logged in on every node");
}
