//! Who is played on a tour: the provider, the cluster with its OAuth server, the authorizer, and the
//! services.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use auth::time::Timestamp;
use dataplane::harness::{Fixture, Seen, Upstream, now};
use http_engine::clock::ManualClock;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::login::provider::{SimulatedProvider, form};

/// A user of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    /// Audiences of the token; none: that of the API server.
    pub(super) audiences: Vec<String>,
}

/// Who passes an authorizer that answers over HTTP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuthorizerRules {
    /// The field of the query that counts.
    field: String,
    /// Its values with which a request passes.
    accepts: Vec<String>,
    /// The beginning of the path of each query.
    #[serde(default)]
    path: String,
    /// Fields of the answer.
    #[serde(default)]
    answers: BTreeMap<String, String>,
    /// Status of a refusal.
    refuses: u16,
    /// `location` of a refusal.
    location: Option<String>,
}

/// The API server and the OAuth server.
#[derive(Default)]
struct Cluster {
    url: String,
    tokens: BTreeMap<String, Known>,
    /// Who signs in.
    person: Known,
    allowed: Vec<BTreeMap<String, String>>,
}

impl Cluster {
    fn answer(&mut self, seen: &Seen) -> (u16, Json) {
        let path = seen.line().split(' ').nth(1).unwrap_or_default().to_owned();
        let asked: Json = serde_json::from_slice(&seen.body).unwrap_or_default();
        match &*path {
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
                let token = format!("sha256~session-{}", self.tokens.len());
                self.tokens.insert(token.clone(), self.person.clone());
                (200, json!({"access_token": token, "token_type": "Bearer", "expires_in": 86400}))
            }
            "/apis/user.openshift.io/v1/users/~" => {
                let own = seen.values("authorization");
                let token = own.first().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
                match self.tokens.get(token) {
                    None => (401, json!({"kind": "Status", "code": 401})),
                    Some(Known { user, groups, .. }) => {
                        let metadata = json!({"name": user, "uid": "7"});
                        (200, json!({"kind": "User", "metadata": metadata, "groups": groups}))
                    }
                }
            }
            "/apis/authentication.k8s.io/v1/tokenreviews" => (201, self.token_review(&asked["spec"])),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let is_allowed = self.allows(&asked["spec"]);
                (201, json!({"kind": "SubjectAccessReview", "status": {"allowed": is_allowed}}))
            }
            // Objects to watch: the account may not.
            _ => (403, json!({"kind": "Status", "code": 403})),
        }
    }

    fn token_review(&self, spec: &Json) -> Json {
        let wanted: Vec<&str> =
            spec["audiences"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let known = self.tokens.get(spec["token"].as_str().unwrap_or_default());
        let fits = |known: &&Known| {
            wanted.is_empty() || known.audiences.iter().any(|audience| wanted.contains(&&**audience))
        };
        let status = match known.filter(fits) {
            None => json!({"authenticated": false}),
            Some(Known { user, groups, .. }) => {
                let mut all = groups.clone();
                all.push("system:authenticated".into());
                json!({"authenticated": true, "user": {"username": user, "groups": all}, "audiences": wanted})
            }
        };
        json!({"kind": "TokenReview", "status": status})
    }

    fn allows(&self, spec: &Json) -> bool {
        let attributes = match &spec["nonResourceAttributes"] {
            Json::Null => &spec["resourceAttributes"],
            of_path => of_path,
        };
        self.allowed.iter().any(|rule| {
            rule.iter().all(|(key, value)| match &**key {
                "user" => spec["user"] == **value,
                "member_of" => spec["groups"].as_array().is_some_and(|all| all.iter().any(|g| *g == **value)),
                key => attributes[key] == **value,
            })
        })
    }
}

fn respond(socket: &mut TcpStream, status: u16, fields: &str, body: &str) -> bool {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{fields}content-length: {length}\r\n\r\n");
    socket.write_all(format!("{head}{body}").as_bytes()).is_ok()
}

fn authorizer(rules: AuthorizerRules) -> Upstream {
    Upstream::answering(move |seen, socket| {
        let is_there = seen.line().split(' ').nth(1).unwrap_or_default().starts_with(&*rules.path);
        let passes = seen.values(&rules.field).iter().any(|value| rules.accepts.iter().any(|a| a == value));
        let fields: String =
            rules.answers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let location = rules.location.iter().map(|to| format!("location: {to}\r\n")).collect::<String>();
        match (is_there, passes) {
            (false, _) => respond(socket, 404, "", ""),
            (true, true) => respond(socket, 200, &fields, ""),
            (true, false) => respond(socket, rules.refuses, &location, ""),
        }
    })
}

/// A configuration that is served, and everybody whom it needs.
pub(super) struct Played {
    pub(super) provider: SimulatedProvider,
    pub(super) fixture: Fixture,
    /// The issuer that is the played provider too.
    pub(super) own_issuer: String,
    /// Path and provider of the login.
    pub(super) login_path: String,
    pub(super) login_provider: String,
    cluster: Arc<Mutex<Cluster>>,
    /// Services by the name of their upstream.
    services: BTreeMap<String, Upstream>,
    _servers: Vec<Upstream>,
}

impl Played {
    /// Serves a configuration at an address of the test, with files of the translation's folder and of
    /// the tour.
    pub(super) fn new(
        mut file: Table,
        (folder, files): (&Path, &BTreeMap<String, String>),
        rules: Option<&AuthorizerRules>,
    ) -> Self {
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let played = cluster.clone();
        let server = Upstream::answering(move |seen, socket| {
            let (status, body) = played.lock().unwrap().answer(seen);
            respond(socket, status, "content-type: application/json\r\n", &body.to_string())
        });
        let url = format!("http://{}", server.address);
        cluster.lock().unwrap().url.clone_from(&url);
        let mut servers = vec![server];
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let dir = tempfile::tempdir().unwrap();
        copy(folder, dir.path());
        let login_path = login(&mut file, &provider, &url);
        let login_provider = file.get("login").map(|login| login["provider"][0]["name"].clone());
        let asked = authorizers(&file);
        let mut services = BTreeMap::new();
        for upstream in tables(file.get_mut("upstream")) {
            let name = upstream["name"].as_str().unwrap().to_owned();
            upstream.retain(|key, _| key == "name" || key == "timeouts");
            let server = match rules {
                Some(rules) if asked.contains(&name) => authorizer(rules.clone()),
                _ => Upstream::start(),
            };
            upstream.insert("endpoints".into(), vec![format!("http://{}", server.address)].into());
            if asked.contains(&name) {
                servers.push(server);
            } else {
                services.insert(name, server);
            }
        }
        kubernetes(&mut file, &url);
        let mut own_issuer = String::new();
        for issuer in tables(file.get_mut("issuer")) {
            if login_provider.as_ref() == issuer.get("name") {
                own_issuer = issuer["issuer"].as_str().unwrap().to_owned();
                issuer.insert("issuer".into(), provider.url.clone().into());
            }
            issuer.retain(|key, _| key != "jwks_uri" && key != "ca");
            issuer.insert("jwks_file".into(), "jwks.json".into());
        }
        if let Some(passwords) = file.get_mut("basic_auth").and_then(Value::as_table_mut) {
            let path = passwords["file"].as_str().unwrap();
            write(dir.path(), "users.htpasswd", &files[path]);
            passwords.insert("file".into(), "users.htpasswd".into());
        }
        file.remove("client_certificates");
        listener(&mut file);
        let text = toml::to_string(&file).unwrap();
        let fixture = Fixture::keeping(dir, Upstream::start(), &text, clock, None);
        let login_provider = login_provider.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            provider,
            fixture,
            own_issuer,
            login_path,
            login_provider,
            cluster,
            services,
            _servers: servers,
        }
    }

    /// Says what the cluster allows.
    pub(super) fn allow(&self, allowed: Vec<BTreeMap<String, String>>) {
        self.cluster.lock().unwrap().allowed = allowed;
    }

    /// Tells the cluster whose a token is.
    pub(super) fn know(&self, token: String, known: Known) {
        self.cluster.lock().unwrap().tokens.insert(token, known);
    }

    /// Tells the cluster who signs in next.
    pub(super) fn person(&self, known: Known) {
        self.cluster.lock().unwrap().person = known;
    }

    /// Tells the provider who signs in next.
    pub(super) fn appear(&self, claims: &Json) {
        let mut state = self.provider.state();
        state.subject = claims["sub"].as_str().unwrap().to_owned();
        state.groups = claims["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .map(str::to_owned)
            .collect();
        state.claims = claims.clone();
        state.callback = format!("https://app.test{}/callback", self.login_path);
    }

    /// The number of requests at each service.
    pub(super) fn reached(&self) -> BTreeMap<String, usize> {
        self.services.iter().map(|(name, server)| (name.clone(), server.seen().len())).collect()
    }

    /// The requests that services got since.
    pub(super) fn since(&self, before: &BTreeMap<String, usize>) -> Vec<(String, Seen)> {
        let later = |(name, server): (&String, &Upstream)| {
            server.seen().into_iter().skip(before[name]).map(|seen| (name.clone(), seen)).collect::<Vec<_>>()
        };
        self.services.iter().flat_map(later).collect()
    }
}

/// The tables of an array.
fn tables(array: Option<&mut Value>) -> Vec<&mut Table> {
    let array = array.and_then(Value::as_array_mut).into_iter().flatten();
    array.filter_map(Value::as_table_mut).collect()
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Copies what was written beside the configuration, and adds the secrets that the provider knows.
fn copy(folder: &Path, to: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    write(to, "client.secret", "secret\n");
    write(to, "token", "account-token\n");
}

/// Lets people sign in at the played provider, or at the cluster. Returns the path of the login.
fn login(file: &mut Table, provider: &SimulatedProvider, cluster: &str) -> String {
    let Some(login) = file.get_mut("login").and_then(Value::as_table_mut) else { return String::new() };
    login.insert("origins".into(), vec!["https://app.test"].into());
    let path = login.get("path").and_then(Value::as_str).unwrap_or("/oauth2").to_owned();
    for table in tables(login.get_mut("provider")) {
        table.remove("ca");
        let is_openshift = table.get("kind").and_then(Value::as_str) == Some("openshift");
        table.insert("url".into(), if is_openshift { cluster } else { &*provider.url }.into());
        table.insert("client_secret_file".into(), "client.secret".into());
        if !is_openshift {
            // The played provider knows this client.
            table.insert("client_id".into(), "gateway".into());
        }
    }
    path
}

/// Names of the upstreams that authorizers are.
fn authorizers(file: &Table) -> Vec<String> {
    let all = file.get("authorizer").and_then(Value::as_array).into_iter().flatten();
    all.map(|authorizer| authorizer["upstream"].as_str().unwrap().to_owned()).collect()
}

/// Lets the played cluster review tokens and access.
fn kubernetes(file: &mut Table, url: &str) {
    let mut kubernetes = file.remove("kubernetes");
    let mut asking = tables(file.get_mut("token_authority"));
    asking.extend(kubernetes.as_mut().and_then(Value::as_table_mut));
    for table in asking {
        table.insert("url".into(), url.into());
        table.remove("ca");
        if table.get("kind").and_then(Value::as_str) != Some("openshift-user") {
            table.insert("token_file".into(), "token".into());
        }
    }
    file.extend(kubernetes.map(|table| ("kubernetes".to_owned(), table)));
}

/// Replaces the listeners. Trusted proxies stay.
fn listener(file: &mut Table) {
    let proxies = tables(file.get_mut("listener")).into_iter().find_map(|own| own.remove("trusted_proxies"));
    let own = "[server]\nworkers = 1\n[admin]\nenabled = false\n[access_log]\nformat = \"off\"\n\
               [[listener]]\nname = \"test\"\naddress = \"127.0.0.1:0\"\n";
    file.extend(own.parse::<Table>().unwrap());
    if let Some(proxies) = proxies {
        tables(file.get_mut("listener"))[0].insert("trusted_proxies".into(), proxies);
    }
}
