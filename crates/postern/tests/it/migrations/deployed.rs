//! Translated configurations with a login: served, with a cluster and a provider that the test plays.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use auth::time::Timestamp;
use dataplane::harness::{Fixture, Seen, Upstream, now};
use http_engine::clock::ManualClock;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::login::provider::{Browser, SimulatedProvider, form, parameters};

/// The host of the browsers: the played provider knows it.
pub(super) const HOST: &str = "app.test";
/// The user of the service account.
pub(super) const ACCOUNT: &str = "system:serviceaccount:team-a:pipeline";

/// The API server and the OAuth server.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) url: String,
    /// Valid tokens of people.
    pub(super) tokens: BTreeSet<String>,
    /// The valid token of the service account.
    pub(super) account_token: String,
    /// Who signs in.
    pub(super) person: &'static str,
    /// Tokens that were reviewed.
    pub(super) reviewed: Vec<String>,
}

impl Cluster {
    fn answer(&mut self, seen: &Seen) -> (u16, Json) {
        let line = seen.line().to_owned();
        let path = line.split(' ').nth(1).unwrap();
        match path {
            "/.well-known/oauth-authorization-server" => (
                200,
                json!({
                    "issuer": "https://oauth.cluster.test",
                    "authorization_endpoint": format!("{}/oauth/authorize", self.url),
                    "token_endpoint": format!("{}/oauth/token", self.url),
                }),
            ),
            "/oauth/token" => {
                assert_eq!(
                    form(std::str::from_utf8(&seen.body).unwrap())["grant_type"],
                    "authorization_code"
                );
                let token = format!("sha256~of-ada-{}", self.tokens.len());
                self.tokens.insert(token.clone());
                (200, json!({"access_token": token, "token_type": "Bearer", "expires_in": 86400}))
            }
            "/apis/user.openshift.io/v1/users/~" => {
                let own = seen.values("authorization");
                let token = own.first().and_then(|value| value.strip_prefix("Bearer "));
                if !token.is_some_and(|token| self.tokens.contains(token)) {
                    return (401, json!({"kind": "Status", "code": 401}));
                }
                (
                    200,
                    json!({"kind": "User", "metadata": {"name": self.person, "uid": "7"}, "groups": ["dev"]}),
                )
            }
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                let asked: Json = serde_json::from_slice(&seen.body).unwrap();
                let token = asked["spec"]["token"].as_str().unwrap().to_owned();
                let is_account = token == self.account_token;
                let name = if is_account { ACCOUNT } else { self.person };
                let user = json!({"username": name, "groups": ["system:authenticated"]});
                let is_known = is_account || self.tokens.contains(&token);
                let status = json!({"authenticated": is_known, "user": user});
                self.reviewed.push(token);
                (201, json!({"kind": "TokenReview", "status": status}))
            }
            // Ada may do everything that is reviewed.
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let asked: Json = serde_json::from_slice(&seen.body).unwrap();
                let status = json!({"allowed": asked["spec"]["user"] == "ada"});
                (201, json!({"kind": "SubjectAccessReview", "status": status}))
            }
            // Objects to watch: the account may not.
            _ => (403, json!({"kind": "Status", "code": 403})),
        }
    }
}

/// A translated configuration that serves.
pub(super) struct Deployed {
    pub(super) cluster: Arc<Mutex<Cluster>>,
    pub(super) provider: SimulatedProvider,
    pub(super) fixture: Fixture,
    _server: Upstream,
}

/// Files of another machine, by the keys that name them.
const FILES: [(&str, &str); 3] = [
    ("login.keys", "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ="),
    ("client.secret", "secret\n"),
    ("token", "account-token\n"),
];

impl Deployed {
    /// Serves a configuration at an address of the test and for browsers at [`HOST`], without the files
    /// of another machine.
    pub(super) fn new(configuration: &str) -> Self {
        let cluster = Arc::new(Mutex::new(Cluster { person: "ada", ..Cluster::default() }));
        let played = cluster.clone();
        let server = Upstream::answering(move |seen, socket| {
            let (status, body) = played.lock().unwrap().answer(seen);
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
            socket.write_all(format!("{head}{body}").as_bytes()).is_ok()
        });
        let url = format!("http://{}", server.address);
        cluster.lock().unwrap().url.clone_from(&url);
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in FILES {
            std::fs::write(dir.path().join(name), text).unwrap();
            std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let upstream = Upstream::start();
        let mut file: Table = configuration.parse().unwrap();
        let own = "[server]\nworkers = 1\n[admin]\nenabled = false\n[access_log]\nformat = \"off\"\n\
                   [[listener]]\nname = \"test\"\naddress = \"127.0.0.1:0\"\n";
        file.extend(own.parse::<Table>().unwrap());
        file["login"]["origins"] = vec![format!("https://{HOST}")].into();
        let login = file["login"]["provider"][0].as_table_mut().unwrap();
        login.remove("ca");
        let is_openshift = login.get("kind").and_then(Value::as_str) == Some("openshift");
        let provider_url = if is_openshift { url.clone() } else { provider.url.clone() };
        login.insert("url".into(), provider_url.into());
        login.insert("client_secret_file".into(), "client.secret".into());
        if !is_openshift {
            // The played provider knows this client.
            login.insert("client_id".into(), "gateway".into());
        }
        for issuer in tables(file.get_mut("issuer")) {
            issuer.insert("issuer".into(), provider.url.clone().into());
            issuer.insert("audiences".into(), vec!["gateway"].into());
        }
        for upstream_table in tables(file.get_mut("upstream")) {
            upstream_table.insert("endpoints".into(), vec![format!("http://{}", upstream.address)].into());
            upstream_table.remove("tls");
        }
        let mut kubernetes = file.remove("kubernetes");
        let mut asking = tables(file.get_mut("token_authority"));
        asking.extend(kubernetes.as_mut().and_then(Value::as_table_mut));
        for table in asking {
            table.insert("url".into(), url.clone().into());
            table.remove("ca");
            if table.get("kind").and_then(Value::as_str) != Some("openshift-user") {
                table.insert("token_file".into(), "token".into());
            }
        }
        file.extend(kubernetes.map(|table| ("kubernetes".to_owned(), table)));
        let text = toml::to_string(&file).unwrap();
        let fixture = Fixture::keeping(dir, upstream, &text, clock, None);
        Self { cluster, provider, fixture, _server: server }
    }

    pub(super) fn browser(&self) -> Browser {
        Browser::new(self.fixture.address, HOST)
    }

    /// A browser of someone who has signed in: of the provider's person, or of the cluster's.
    pub(super) fn signed_in(&self, path: &str, page: &str) -> Browser {
        let mut browser = self.browser();
        let location = browser.go_to_provider(page);
        let (code, state) = if location.starts_with(&self.provider.url) {
            self.provider.approve(&location)
        } else {
            ("c".to_owned(), parameters(&location)["state"].clone())
        };
        let back = browser.visit(&format!("{path}/callback?code={code}&state={state}"));
        assert_eq!(back.status, 303, "{}", back.text());
        browser
    }

    /// The status of a program's request.
    pub(super) fn status(&self, request: &str, fields: &str) -> u16 {
        let (method, path) = request.split_once(' ').unwrap();
        self.browser().send(method, path, &format!("Content-Length: 0\r\n{fields}"), "").status
    }
}

/// The tables of an array.
fn tables(array: Option<&mut Value>) -> Vec<&mut Table> {
    let array = array.and_then(Value::as_array_mut).into_iter().flatten();
    array.filter_map(Value::as_table_mut).collect()
}
