//! Login at `OpenShift`'s own OAuth server. The test simulates its endpoints by their public
//! description: metadata, token endpoint, `users/~`, and the deletion of one's own token.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::provider::{Browser, form, parameters};
use dataplane::harness::{Fixture, Seen, Setup, Upstream, now};

/// State of the cluster.
#[derive(Default)]
struct Cluster {
    url: String,
    tokens: BTreeSet<String>,
    groups: Vec<&'static str>,
    made: usize,
    asked_users: usize,
    deleted: Vec<String>,
    silent: bool,
    /// Whether the gateway's account may delete tokens.
    account_may: bool,
}

impl Cluster {
    fn answer(&mut self, seen: &Seen) -> (u16, serde_json::Value) {
        let line = seen.line().to_owned();
        let (method, path) = (line.split(' ').next().unwrap(), line.split(' ').nth(1).unwrap());
        let bearer = || seen.values("authorization").first().and_then(|v| v.strip_prefix("Bearer "));
        match (method, path) {
            ("GET", "/.well-known/oauth-authorization-server") => (
                200,
                json!({
                    "issuer": "https://oauth.cluster.test",
                    "authorization_endpoint": format!("{}/oauth/authorize", self.url),
                    "token_endpoint": format!("{}/oauth/token", self.url),
                }),
            ),
            ("POST", "/oauth/token") => {
                let form = form(std::str::from_utf8(&seen.body).unwrap());
                assert_eq!(form["grant_type"], "authorization_code");
                // base64 of `system%3Aserviceaccount%3Aapps%3Agateway:account-token`.
                let client = "Basic c3lzdGVtJTNBc2VydmljZWFjY291bnQlM0FhcHBzJTNBZ2F0ZXdheTphY2NvdW50LXRva2Vu";
                assert_eq!(seen.values("authorization"), [client]);
                self.made += 1;
                let token = format!("sha256~secret-{}", self.made);
                self.tokens.insert(token.clone());
                (
                    200,
                    json!({"access_token": token, "token_type": "Bearer", "expires_in": 86400, "scope": "user:info"}),
                )
            }
            ("GET", "/apis/user.openshift.io/v1/users/~") => {
                self.asked_users += 1;
                if !bearer().is_some_and(|token| self.tokens.contains(token)) {
                    return (401, json!({"kind": "Status", "code": 401}));
                }
                let metadata = json!({"name": "ada", "uid": "7", "managedFields": ["x".repeat(5000)]});
                (200, json!({"kind": "User", "metadata": metadata, "fullName": "Ada", "groups": self.groups}))
            }
            // `user:info` and `user:check-access` do not permit it.
            ("DELETE", path) if path.contains("useroauthaccesstokens") => {
                (403, json!({"kind": "Status", "code": 403}))
            }
            ("DELETE", path) if !self.account_may => {
                assert!(path.contains("/oauthaccesstokens/"));
                (403, json!({"kind": "Status", "code": 403}))
            }
            ("DELETE", path) => {
                let name =
                    path.strip_prefix("/apis/oauth.openshift.io/v1/oauthaccesstokens/").unwrap().to_owned();
                assert_eq!(bearer(), Some("account-token"), "our own account's right");
                let object = |token: &String| {
                    let secret = token.strip_prefix("sha256~").unwrap();
                    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
                    format!("sha256~{}", URL_SAFE_NO_PAD.encode(digest))
                };
                assert!(self.tokens.iter().any(|token| object(token) == name), "named by the token's digest");
                self.tokens.retain(|token| object(token) != name);
                self.deleted.push(name);
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

struct Stage {
    clock: Arc<ManualClock>,
    cluster: Arc<Mutex<Cluster>>,
    fixture: Fixture,
    _server: Upstream,
}

impl Stage {
    fn new() -> Self {
        let cluster: Arc<Mutex<Cluster>> =
            Arc::new(Mutex::new(Cluster { groups: vec!["dev"], ..Cluster::default() }));
        let played = cluster.clone();
        let server = Upstream::answering(move |seen, socket| {
            let mut cluster = played.lock().unwrap();
            if cluster.silent {
                return false;
            }
            let (status, body) = cluster.answer(seen);
            let body = body.to_string();
            let length = body.len();
            let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
            socket.write_all(text.as_bytes()).is_ok()
        });
        let url = format!("http://{}", server.address);
        cluster.lock().unwrap().url.clone_from(&url);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys"), "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=").unwrap();
        std::fs::set_permissions(dir.path().join("keys"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(dir.path().join("token"), "account-token\n").unwrap();
        let setup = Setup {
            route: "login = true\nforward_access_token = true".into(),
            more: format!(
                "[login]\norigins = [\"https://app.test\"]\nkeys_file = \"keys\"\n\
                 [[login.provider]]\nname = \"cluster\"\nkind = \"openshift\"\nurl = \"{url}\"\n\
                 client_id = \"system:serviceaccount:apps:gateway\"\nclient_secret_file = \"token\""
            ),
            ..Setup::default()
        };
        let upstream = Upstream::start();
        let text = setup.file(dir.path(), upstream.address);
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
        Self { clock, cluster, fixture, _server: server }
    }

    fn logged_in(&self) -> Browser {
        let mut browser = Browser::new(self.fixture.address, "app.test");
        let location = browser.go_to_provider("/");
        let asked = parameters(&location);
        assert_eq!(asked["client_id"], "system:serviceaccount:apps:gateway");
        assert_eq!(asked["scope"], "user:info user:check-access");
        assert!(!asked.contains_key("nonce"));
        let back = browser.visit(&format!("/oauth2/callback?code=c&state={}", asked["state"]));
        assert_eq!(back.status, 303, "{}", back.text());
        browser
    }
}

#[test]
fn a_user_of_the_cluster_logs_in() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    assert_eq!(browser.visit("/").status, 200);
    let seen = stage.fixture.upstream.only();
    assert_eq!(seen.values("x-forwarded-user"), ["ada"]);
    assert_eq!(seen.values("x-forwarded-groups"), ["dev"]);
    assert_eq!(seen.values("x-forwarded-access-token"), ["sha256~secret-1"]);
}

#[test]
fn a_token_that_was_deleted_is_refused_within_ten_seconds() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    assert_eq!(browser.visit("/").status, 200);
    stage.cluster.lock().unwrap().groups = vec!["sales"];
    stage.clock.advance(Duration::from_secs(9));
    let asked = stage.cluster.lock().unwrap().asked_users;
    stage.clock.advance(Duration::from_secs(1));
    assert_eq!(browser.visit("/").status, 403, "changed groups as well");
    assert_eq!(stage.cluster.lock().unwrap().asked_users, asked + 1);
    stage.cluster.lock().unwrap().tokens.clear();
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(browser.visit("/").status, 302);
}

#[test]
fn a_cluster_that_is_silent_lets_nobody_in() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    assert_eq!(browser.visit("/").status, 200);
    stage.cluster.lock().unwrap().silent = true;
    stage.clock.advance(Duration::from_secs(10));
    let down = browser.visit("/");
    assert_eq!(
        (down.status, down.value("retry-after")),
        (503, Some("1")),
        "its token could have been deleted"
    );
    stage.cluster.lock().unwrap().silent = false;
    assert_eq!(browser.visit("/").status, 200);
}

#[test]
fn a_session_in_a_cookie_goes_on_for_hours() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    for _ in 0..11 {
        stage.clock.advance(Duration::from_hours(1));
        assert_eq!(browser.visit("/").status, 200);
    }
    stage.clock.advance(Duration::from_hours(1));
    assert_eq!(browser.visit("/").status, 302);
}

#[test]
fn logging_out_deletes_the_token() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    let stolen = browser.clone();
    stage.cluster.lock().unwrap().account_may = true;
    assert_eq!(browser.visit("/").status, 200);
    let out = browser.visit("/oauth2/sign_out");
    assert_eq!(out.value("location"), Some("https://app.test/oauth2/signed_out"));
    assert_eq!(stage.cluster.lock().unwrap().deleted.len(), 1);
    assert!(stage.cluster.lock().unwrap().tokens.is_empty());
    assert_eq!(stolen.clone().visit("/").status, 302);
}

#[test]
fn logging_out_ends_the_session_also_where_nobody_may_delete_the_token() {
    let stage = Stage::new();
    let mut browser = stage.logged_in();
    let stolen = browser.clone();
    assert_eq!(browser.visit("/oauth2/sign_out").status, 303);
    assert!(stage.cluster.lock().unwrap().deleted.is_empty());
    assert_eq!(stolen.clone().visit("/").status, 302);
}
