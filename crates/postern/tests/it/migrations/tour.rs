//! Tours: settings of a program as people have them, and requests with the statuses that the program
//! gives. Each file of the folder `tours` is one.
//!
//! The settings are translated by `postern migrate`, and what it writes is served, with a provider, a
//! cluster and an authorizer that the test plays ([`super::played`]). A step of a tour is a line:
//!
//! ```text
//! CALLER METHOD [HOST]/PATH STATUS  field=value  <field=value  service=NAME
//! ```
//!
//! Fields are those that the service gets; with `<`, those of the answer. `-` stands for no field, a
//! value that ends with `*` for its beginning. `service` is the upstream that gets the request.
//! Callers are those of the file; `nobody` is a program without a credential, `browser` a browser.
//! Behind `#` is what the program answers instead, where the documents say that Postern differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dataplane::harness::{Response, now};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toml::Table;

use super::played::{AuthorizerRules, Known, Played};
use crate::login::provider::{Browser, parameters};
use crate::support::{output_text, postern, repository, sources};

/// The host of the browsers: the played provider knows it.
const HOST: &str = "app.test";
/// Issuer of the tokens of service accounts.
const CLUSTER: &str = "https://kubernetes.default.svc.cluster.local";

/// Kinds of settings, and the words of the command that translates them.
const FORMATS: [(&str, &str); 11] = [
    ("oauth2-proxy cfg", "oauth2-proxy"),
    ("oauth2-proxy flags", "oauth2-proxy"),
    ("oauth2-proxy alpha", "oauth2-proxy"),
    ("oauth2-proxy container", "oauth2-proxy"),
    ("kube-auth-proxy", "kube-auth-proxy"),
    ("oauth-proxy", "oauth-proxy"),
    ("kube-rbac-proxy", "kube-rbac-proxy"),
    ("kube-rbac-proxy of Open Data Hub", "kube-rbac-proxy"),
    ("envoy ext_authz", "envoy"),
    ("envoy jwt_authn", "envoy"),
    ("istio", "istio"),
];

/// A file of the folder.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tour {
    format: String,
    /// Arguments, one a line.
    #[serde(default)]
    arguments: String,
    /// Manifests, or a bootstrap.
    manifest: Option<String>,
    /// The same in a file of the repository.
    manifest_file: Option<String>,
    /// Files that the settings name, by their paths.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// What an operator writes into the configuration, as the report says: texts and their replacements.
    #[serde(default)]
    written: BTreeMap<String, String>,
    #[serde(default)]
    callers: BTreeMap<String, Caller>,
    /// What the cluster allows: the user, and the attributes that a review has at least.
    #[serde(default)]
    allowed: Vec<BTreeMap<String, String>>,
    authorizer: Option<AuthorizerRules>,
    steps: String,
}

/// Who sends requests.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Caller {
    /// Claims of a person, or a user of the cluster, who signs in with a browser.
    signs_in: Option<Table>,
    /// Claims of a JWT.
    jwt: Option<Table>,
    /// Seconds from now until the JWT expires.
    expires_in: Option<i64>,
    /// A user of the cluster. Its token is `token`, or a JWT of the cluster.
    user: Option<String>,
    groups: Vec<String>,
    /// Audiences of its token.
    audiences: Vec<String>,
    token: Option<String>,
    /// A name and a password.
    basic: Option<String>,
    /// Further fields.
    fields: BTreeMap<String, String>,
}

/// A tour that is under way.
struct Guide<'t> {
    tour: &'t Tour,
    played: Played,
    /// Tokens by the caller.
    tokens: BTreeMap<String, String>,
    browsers: BTreeMap<String, Browser>,
}

/// A line of a tour.
struct Step<'t> {
    caller: &'t str,
    method: &'t str,
    host: &'t str,
    path: &'t str,
    status: u16,
    fields: Vec<(&'t str, &'t str)>,
}

impl<'t> Step<'t> {
    fn read(line: &'t str) -> Self {
        let mut rest = line;
        let mut word = || {
            rest = rest.trim_start();
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            word
        };
        let (caller, method, target, status) = (word(), word(), word(), word());
        let (host, path) = target.split_at(target.find('/').unwrap_or_else(|| panic!("no path: {line}")));
        let fields = rest.split("  ").map(str::trim).filter(|field| !field.is_empty());
        let fields = fields.map(|field| field.split_once('=').unwrap_or_else(|| panic!("{field}: {line}")));
        let status = status.parse().unwrap_or_else(|_| panic!("no status: {line}"));
        Self { caller, method, host, path, status, fields: fields.collect() }
    }
}

impl Tour {
    /// What `postern migrate` writes.
    fn translated(&self) -> tempfile::TempDir {
        let (_, program) = FORMATS.iter().find(|(format, _)| *format == self.format).expect("a format");
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| -> String {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let mut words = vec!["migrate".to_owned(), (*program).to_owned()];
        let of_file = || self.manifest_file.as_ref().map(|name| repository().join(name));
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        if let Some(manifest) = self.manifest.clone().or_else(|| of_file().map(text)) {
            let path = write("manifest.yaml", &manifest);
            words.extend(if *program == "envoy" { vec![path] } else { vec!["--manifest".into(), path] });
        }
        for (at, (path, text)) in self.files.iter().enumerate() {
            words.extend(["--file".into(), format!("{path}={}", write(&format!("file-{at}"), text))]);
        }
        words.extend(["--out".into(), folder.path().join("out").to_str().unwrap().to_owned()]);
        if !self.arguments.is_empty() {
            words.push("--".into());
            words.extend(self.arguments.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()));
        }
        let done = postern(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(done.status.success(), "{}", output_text(&done));
        folder
    }

    /// The configuration, with what an operator writes.
    fn configuration(&self, folder: &tempfile::TempDir) -> Table {
        let mut text = std::fs::read_to_string(folder.path().join("out/postern.toml")).unwrap();
        for (from, to) in &self.written {
            assert!(text.contains(from), "the configuration has no {from:?}:\n{text}");
            text = text.replace(from, to);
        }
        text.parse().unwrap()
    }

    fn begin(&self) -> Guide<'_> {
        let folder = self.translated();
        let file = self.configuration(&folder);
        let played = Played::new(file, (&folder.path().join("out"), &self.files), self.authorizer.as_ref());
        let mut guide = Guide { tour: self, played, tokens: BTreeMap::new(), browsers: BTreeMap::new() };
        guide.played.allow(self.allowed.clone());
        for (name, caller) in &self.callers {
            guide.introduce(name, caller);
        }
        guide
    }
}

impl Guide<'_> {
    /// Makes the token of a caller, and tells the cluster whose it is.
    fn introduce(&mut self, name: &str, caller: &Caller) {
        let Some(token) = self.new_token(caller) else { return };
        if let Some(user) = &caller.user {
            let known = Known {
                user: user.clone(),
                groups: caller.groups.clone(),
                audiences: caller.audiences.clone(),
            };
            self.played.know(token.clone(), known);
        }
        self.tokens.insert(name.to_owned(), token);
    }

    fn new_token(&self, caller: &Caller) -> Option<String> {
        if let Some(token) = &caller.token {
            return Some(token.clone());
        }
        let mut claims = match (&caller.jwt, &caller.user) {
            (Some(claims), _) => serde_json::to_value(claims).unwrap(),
            (None, Some(user)) => json!({"iss": CLUSTER, "sub": user, "aud": caller.audiences}),
            (None, None) => return None,
        };
        if claims["iss"] == *self.played.own_issuer {
            claims["iss"] = self.played.provider.url.clone().into();
        }
        let expires = now().saturating_add_signed(caller.expires_in.unwrap_or(600));
        let mut whole = json!({"sub": "somebody", "iat": now() - 700, "exp": expires});
        whole.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        Some(self.played.fixture.issuer.signer.sign(&[("typ", "JWT")], &whole).unwrap())
    }

    /// A browser in which a person has signed in.
    fn sign_in(&self, claims: &Table) -> Browser {
        let mut browser = Browser::new(self.played.fixture.address, HOST);
        let (path, name) = (&self.played.login_path, &self.played.login_provider);
        let started = browser.visit(&format!("{path}/start?provider={name}&rd=/"));
        assert_eq!(started.status, 302, "{}", started.text());
        let location = started.value("location").unwrap().to_owned();
        let claims: Json = serde_json::to_value(claims).unwrap();
        let (code, state) = if location.starts_with(&self.played.provider.url) {
            self.played.appear(&claims);
            self.played.provider.approve(&location)
        } else {
            let groups = claims["groups"].as_array().into_iter().flatten();
            let groups = groups.map(|group| group.as_str().unwrap().to_owned()).collect();
            let user = claims["name"].as_str().unwrap().to_owned();
            self.played.person(Known { user, groups, audiences: Vec::new() });
            ("c".to_owned(), parameters(&location)["state"].clone())
        };
        let back = browser.visit(&format!("{path}/callback?code={code}&state={state}"));
        assert_eq!(back.status, 303, "{}", back.text());
        browser
    }

    fn send(&mut self, step: &Step<'_>) -> Response {
        let nobody = Caller::default();
        let caller = match step.caller {
            "nobody" | "browser" => &nobody,
            name => self.tour.callers.get(name).unwrap_or_else(|| panic!("no caller {name}")),
        };
        // An identity that the client claims.
        let mut lines = String::from("X-Auth-Request-User: root\r\n");
        if let Some(token) = self.tokens.get(step.caller) {
            let _ = write!(lines, "Authorization: Bearer {token}\r\n");
        }
        if let Some(basic) = &caller.basic {
            let encoded = STANDARD.encode(basic);
            let _ = write!(lines, "Authorization: Basic {encoded}\r\n");
        }
        for (name, value) in &caller.fields {
            let _ = write!(lines, "{name}: {value}\r\n");
        }
        if step.caller == "browser" {
            lines.push_str("Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\n");
        } else {
            lines.push_str("Content-Length: 0\r\n");
        }
        let host: &'static str = match step.host {
            "" => HOST,
            host => String::leak(host.to_owned()),
        };
        let Some(claims) = &caller.signs_in else {
            return Browser::new(self.played.fixture.address, host).send(step.method, step.path, &lines, "");
        };
        let mut browser = match self.browsers.remove(step.caller) {
            Some(browser) => browser,
            None => self.sign_in(claims),
        };
        let response = browser.send(step.method, step.path, &lines, "");
        self.browsers.insert(step.caller.to_owned(), browser);
        response
    }

    /// Takes a step. Returns what is different.
    fn take(&mut self, line: &str) -> Vec<String> {
        let step = Step::read(line);
        let before = self.played.reached();
        let response = self.send(&step);
        if response.status != step.status {
            return vec![format!(
                "{}: {}",
                response.status,
                response.head.lines().next().unwrap_or_default()
            )];
        }
        let seen = self.played.since(&before);
        let mut faults = Vec::new();
        if seen.iter().any(|(_, seen)| seen.values("x-auth-request-user").contains(&"root")) {
            faults.push("the service gets what the client claims".to_owned());
        }
        for (name, expected) in &step.fields {
            let found = match name.strip_prefix('<') {
                Some(name) => response.value(name).map(str::to_owned),
                None if *name == "service" => seen.last().map(|(service, _)| service.clone()),
                None if *name == "path" => {
                    seen.last().map(|(_, seen)| seen.line().split(' ').nth(1).unwrap_or_default().to_owned())
                }
                None if seen.is_empty() => {
                    faults.push(format!("{name}: no service gets the request"));
                    continue;
                }
                None => seen.last().and_then(|(_, seen)| seen.values(name).first().map(|v| (*v).to_owned())),
            };
            let fits = match (*expected, &found) {
                ("-", found) => found.is_none(),
                (expected, Some(found)) => match expected.strip_suffix('*') {
                    Some(beginning) => found.starts_with(beginning),
                    None => found == expected,
                },
                (_, None) => false,
            };
            if !fits {
                faults.push(format!("{name} is {found:?}"));
            }
        }
        faults
    }
}

/// Takes the tours of these formats. Returns the number of each.
fn take(is_meant: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut faults = Vec::new();
    let folder = sources().join("migrations/tours");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let tour: Tour = toml::from_str(&text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert!(FORMATS.iter().any(|(format, _)| *format == tour.format), "{name}: {}", tour.format);
        if !is_meant(&tour.format) {
            continue;
        }
        eprintln!("{name}");
        let mut guide = tour.begin();
        let steps = tour.steps.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let steps: Vec<&str> = steps.filter(|line| !line.is_empty()).collect();
        assert!(steps.len() > 3, "{name}: that is no tour");
        for step in steps {
            faults.extend(guide.take(step).into_iter().map(|fault| format!("{name}: {step}\n      {fault}")));
        }
        *counts.entry(tour.format.clone()).or_default() += 1;
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    counts
}

/// Takes the tours of a program, of which each format has at least four.
fn take_all(program: &str) {
    let formats = || FORMATS.iter().filter(|(_, known)| *known == program).map(|(format, _)| *format);
    let counts = take(|format| formats().any(|own| own == format));
    for format in formats() {
        let count = counts.get(format).copied().unwrap_or_default();
        assert!(count >= 4, "{format}: {count} inputs");
    }
}

#[test]
fn oauth2_proxy_is_toured() {
    take_all("oauth2-proxy");
}

#[test]
fn kube_auth_proxy_is_toured() {
    take_all("kube-auth-proxy");
}

#[test]
fn oauth_proxy_is_toured() {
    take_all("oauth-proxy");
}

#[test]
fn kube_rbac_proxy_is_toured() {
    take_all("kube-rbac-proxy");
}

#[test]
fn envoy_is_toured() {
    take_all("envoy");
}

#[test]
fn istio_is_toured() {
    take_all("istio");
}

/// A step says what it says.
#[test]
fn steps_are_read() {
    let step = Step::read("ada  GET shop.example/a?b=c 200  x-user=ada  <location=-");
    assert_eq!((step.caller, step.method, step.host, step.path), ("ada", "GET", "shop.example", "/a?b=c"));
    assert_eq!(step.status, 200);
    assert_eq!(step.fields, [("x-user", "ada"), ("<location", "-")]);
}
