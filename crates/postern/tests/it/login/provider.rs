//! Simulated login provider, and a browser that stores cookies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use aws_lc_rs::digest;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_engine::clock::{Clock as _, ManualClock};
use serde_json::{Value, json};

use dataplane::harness::{Response, Seen, TestClient, Upstream};

/// State and behaviour of the provider.
#[allow(clippy::struct_excessive_bools, reason = "each is a mood of its own")]
pub(crate) struct State {
    clock: Arc<ManualClock>,
    pub(crate) url: String,
    signer: Signer,
    /// Further keys, which do not sign ID tokens.
    other_signers: Vec<Signer>,
    codes: HashMap<String, (String, String)>,
    refresh_tokens: HashSet<String>,
    made: usize,
    /// Subject of the user who logs in.
    pub(crate) subject: String,
    pub(crate) groups: Vec<String>,
    pub(crate) sid: Option<String>,
    /// Lifetime of access tokens, in seconds.
    pub(crate) lasts: u64,
    /// Whether refresh tokens are issued.
    pub(crate) refreshes: bool,
    /// Size, in bytes, of a claim that nothing uses.
    pub(crate) padding: usize,
    /// Whether every response is an error.
    pub(crate) ill: bool,
    /// Whether the user is disabled: their refresh tokens and access tokens are refused.
    pub(crate) disabled: bool,
    /// Whether the userinfo endpoint returns an error.
    pub(crate) userinfo_ill: bool,
    /// Number of requests to the userinfo endpoint.
    pub(crate) userinfo_asked: usize,
    /// Whether a refresh returns an ID token.
    pub(crate) id_tokens: bool,
    /// Delay of the token endpoint.
    pub(crate) slow: Duration,
    /// Further members of the metadata.
    pub(crate) metadata: Value,
    /// Number of requests for the metadata.
    pub(crate) discovered: usize,
    /// Number of requests for the keys.
    pub(crate) keys_asked: usize,
    /// Path below which the token endpoint and the keys are: nothing answers at another one.
    pub(crate) place: &'static str,
    /// Where its clients register their callback addresses.
    pub(crate) callback: String,
    /// Replacements of claims in the next ID tokens.
    pub(crate) claims: Value,
    /// Number of requests to the token endpoint, by grant.
    pub(crate) asked: BTreeMap<String, usize>,
    /// Tokens that were revoked.
    pub(crate) revoked: Vec<String>,
    /// Whether a refresh token was used twice.
    pub(crate) reused: bool,
    /// The key set of a client that has no secret, and what it signs.
    pub(crate) client_key: Option<(Value, ClientKeyCheck)>,
    /// Number of different proofs that the client sent.
    pub(crate) client_proofs: usize,
    last_proof: String,
}

/// What a client with a key sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKeyCheck {
    /// An assertion (`private_key_jwt`).
    Assertion,
    /// A signed secret, as Apple requires.
    Apple,
    /// Nothing: the connection has its certificate.
    Certificate,
}

/// The simulated provider.
pub(crate) struct SimulatedProvider {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    server: Upstream,
}

impl SimulatedProvider {
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        let state = Arc::new(Mutex::new(State {
            clock: clock.clone(),
            url: String::new(),
            signer: Signer::generate(SigningAlgorithm::Es256).unwrap(),
            other_signers: Vec::new(),
            codes: HashMap::new(),
            refresh_tokens: HashSet::new(),
            made: 0,
            subject: "alice-id".into(),
            groups: vec!["dev".into()],
            sid: Some("sid-1".into()),
            lasts: 600,
            refreshes: true,
            padding: 0,
            ill: false,
            disabled: false,
            userinfo_ill: false,
            userinfo_asked: 0,
            id_tokens: true,
            slow: Duration::ZERO,
            metadata: json!({}),
            discovered: 0,
            keys_asked: 0,
            place: "",
            callback: "https://app.test/oauth2/callback".into(),
            claims: json!({}),
            asked: BTreeMap::new(),
            revoked: Vec::new(),
            reused: false,
            client_key: None,
            client_proofs: 0,
            last_proof: String::new(),
        }));
        let serving = state.clone();
        let server = Upstream::answering(move |seen, socket| serve(&serving, seen, socket));
        let url = format!("http://{}", server.address);
        state.lock().unwrap().url.clone_from(&url);
        Self { url, state, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Logs the user in. Returns the code and state for the browser, for the address that it was
    /// sent to.
    pub(crate) fn approve(&self, location: &str) -> (String, String) {
        let query = parameters(location);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["code_challenge_method"], "S256");
        let mut state = self.state();
        state.made += 1;
        let code = format!("code-{}", state.made);
        state.codes.insert(code.clone(), (query["nonce"].clone(), query["code_challenge"].clone()));
        (code, query["state"].clone())
    }

    /// A logout token with changed claims. `null` removes a claim.
    pub(crate) fn logout_token(&self, typ: &str, changes: &Value) -> String {
        let state = self.state();
        state.logout_token(&state.signer, typ, changes)
    }

    /// The same, signed with a new published key of this algorithm.
    pub(crate) fn logout_token_by(&self, algorithm: SigningAlgorithm) -> String {
        let mut state = self.state();
        let signer = Signer::generate(algorithm).unwrap();
        let token = state.logout_token(&signer, "logout+jwt", &json!({}));
        state.other_signers.push(signer);
        token
    }
}

impl State {
    fn logout_token(&self, signer: &Signer, typ: &str, changes: &Value) -> String {
        let now = self.clock.now().wall.as_secs();
        let mut claims = json!({
            "iss": self.url, "aud": "gateway", "iat": now, "exp": now + 120, "jti": format!("jti-{now}"), "sid": "sid-1",
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        });
        change(&mut claims, changes);
        signer.sign(&[("typ", typ)], &claims).unwrap()
    }
}

impl SimulatedProvider {
    /// A token of this type that the provider signs. `changes` replaces claims of a security event
    /// token; `null` removes a claim.
    pub(crate) fn signed(&self, typ: &str, changes: &Value) -> String {
        let state = self.state();
        let now = state.clock.now().wall.as_secs();
        let mut claims = json!({
            "iss": state.url, "aud": "https://app.test", "iat": now, "jti": format!("set-{now}"),
            "sub_id": {"format": "iss_sub", "iss": state.url, "sub": "alice-id"},
            "events": {"https://schemas.openid.net/secevent/caep/event-type/session-revoked": {"event_timestamp": now}},
        });
        change(&mut claims, changes);
        state.signer.sign(&[("typ", typ)], &claims).unwrap()
    }

    /// An access token with changed claims.
    pub(crate) fn access_token(&self, changes: &Value) -> String {
        let state = self.state();
        let now = state.clock.now().wall.as_secs();
        let mut claims = json!({
            "iss": state.url, "aud": "orders", "iat": now - 10, "exp": now + 3600, "jti": "token-1", "sub": "alice-id",
            "client_id": "app", "sid": "sid-9", "email": "Alice@example.com", "email_verified": true,
        });
        change(&mut claims, changes);
        state.signer.sign(&[("typ", "at+jwt")], &claims).unwrap()
    }
}

/// Header and claims of a JWT that this ES256 key signed.
fn verified(jwk: &Value, token: &str) -> (Value, Value) {
    let (message, signature) = token.rsplit_once('.').unwrap();
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let point =
        [&[4][..], &decoded(jwk["x"].as_str().unwrap()), &decoded(jwk["y"].as_str().unwrap())].concat();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    key.verify(message.as_bytes(), &decoded(signature)).unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let parsed = |text: &str| serde_json::from_slice(&decoded(text)).unwrap();
    (parsed(header), parsed(claims))
}

/// Replaces members of an object.
fn change(claims: &mut Value, changes: &Value) {
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
}

fn serve(state: &Mutex<State>, seen: &Seen, socket: &mut TcpStream) -> bool {
    let slow = state.lock().unwrap().slow;
    if seen.line().contains("/token") && !slow.is_zero() {
        std::thread::sleep(slow);
    }
    let mut state = state.lock().unwrap();
    let (status, body) = if state.ill { (500, json!({})) } else { state.answer(seen) };
    let body = body.to_string();
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    drop(state);
    socket.write_all(text.as_bytes()).is_ok()
}

impl State {
    /// Number of refresh tokens that are still valid.
    pub(crate) fn living(&self) -> usize {
        self.refresh_tokens.len()
    }

    fn answer(&mut self, seen: &Seen) -> (u16, Value) {
        let url = self.url.clone();
        let form = form(std::str::from_utf8(&seen.body).unwrap());
        let path = seen.line().split(' ').nth(1).unwrap().to_owned();
        self.userinfo_asked += usize::from(path == "/userinfo");
        self.discovered += usize::from(path == "/.well-known/openid-configuration");
        let moves = ["/token", "/keys"].into_iter().find(|end| path.ends_with(end));
        let path = match moves {
            Some(end) if path == format!("{}{end}", self.place) => end.to_owned(),
            Some(_) => return (404, json!({})),
            None => path,
        };
        match path.as_str() {
            "/.well-known/openid-configuration" => {
                let mut metadata = json!({
                    "issuer": url, "jwks_uri": format!("{url}{}/keys", self.place),
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}{}/token", self.place),
                    "userinfo_endpoint": format!("{url}/userinfo"), "revocation_endpoint": format!("{url}/revoke"),
                    "end_session_endpoint": format!("{url}/logout"),
                });
                change(&mut metadata, &self.metadata.clone());
                (200, metadata)
            }
            "/keys" => {
                self.keys_asked += 1;
                let all = [&self.signer].into_iter().chain(&self.other_signers);
                (200, serde_json::from_str(&public_jwks(all).to_string()).unwrap())
            }
            "/token" => {
                self.check_client(seen, &form);
                self.token(&form)
            }
            "/userinfo" if self.userinfo_ill => (500, json!({})),
            "/userinfo" if self.disabled => (401, json!({})),
            "/userinfo" => {
                let token = seen.values("authorization")[0].strip_prefix("Bearer access-").map(str::to_owned);
                match token {
                    Some(_) => (200, json!({"sub": self.subject, "groups": self.groups})),
                    None => (401, json!({})),
                }
            }
            "/revoke" => {
                self.check_client(seen, &form);
                self.refresh_tokens.remove(&form["token"]);
                self.revoked.push(form["token"].clone());
                (200, json!({}))
            }
            other => panic!("nobody asks for {other}"),
        }
    }

    /// The client authenticates as the metadata say.
    fn check_client(&mut self, seen: &Seen, form: &BTreeMap<String, String>) {
        if let Some((jwks, check)) = &self.client_key {
            assert!(seen.values("authorization").is_empty());
            assert_eq!(form["client_id"], "gateway");
            let proof = match check {
                ClientKeyCheck::Certificate => {
                    assert!(!form.contains_key("client_secret") && !form.contains_key("client_assertion"));
                    return;
                }
                ClientKeyCheck::Assertion => {
                    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                    assert_eq!(form["client_assertion_type"], kind);
                    assert!(!form.contains_key("client_secret"));
                    form["client_assertion"].clone()
                }
                ClientKeyCheck::Apple => form["client_secret"].clone(),
            };
            let (header, claims) = verified(&jwks["keys"][0], &proof);
            assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &json!("KEY1")));
            let now = self.clock.now().wall.as_secs();
            assert!(claims["iat"] == now && claims["exp"].as_u64().unwrap() <= now + 60, "{claims}");
            let at_token = seen.line().contains("/token");
            let (iss, aud) = match check {
                ClientKeyCheck::Assertion if at_token => ("gateway", format!("{}/token", self.url)),
                ClientKeyCheck::Assertion => ("gateway", self.url.clone()),
                _ => ("TEAM1", self.url.clone()),
            };
            assert_eq!(
                (&claims["iss"], &claims["sub"], &claims["aud"]),
                (&json!(iss), &json!("gateway"), &json!(aud))
            );
            self.client_proofs += usize::from(proof != self.last_proof);
            self.last_proof = proof;
            return;
        }
        let methods = &self.metadata["token_endpoint_auth_methods_supported"];
        if *methods == json!(["private_key_jwt", "client_secret_post"]) {
            assert!(seen.values("authorization").is_empty());
            assert_eq!((&*form["client_id"], &*form["client_secret"]), ("gateway", "secret"));
        } else {
            // base64 of `gateway:secret`.
            assert_eq!(seen.values("authorization"), ["Basic Z2F0ZXdheTpzZWNyZXQ="]);
            assert!(!form.contains_key("client_secret"));
        }
    }

    fn token(&mut self, form: &BTreeMap<String, String>) -> (u16, Value) {
        let grant = form["grant_type"].clone();
        *self.asked.entry(grant.clone()).or_default() += 1;
        let refused = (400, json!({"error": "invalid_grant"}));
        let nonce = match grant.as_str() {
            "authorization_code" => {
                let Some((nonce, challenge)) = self.codes.remove(&form["code"]) else { return refused };
                let verified = digest::digest(&digest::SHA256, form["code_verifier"].as_bytes());
                assert_eq!(URL_SAFE_NO_PAD.encode(verified), challenge, "the verifier is the challenge's");
                assert!(form["redirect_uri"].starts_with(&self.callback), "{form:?}");
                Some(nonce)
            }
            "refresh_token" if self.disabled => return refused,
            "refresh_token" => {
                let token = &form["refresh_token"];
                if !self.refresh_tokens.remove(token) {
                    self.reused |= !self.revoked.contains(token);
                    return refused;
                }
                None
            }
            other => panic!("nobody asks for {other}"),
        };
        let now = self.clock.now().wall.as_secs();
        let mut claims = json!({
            "iss": self.url, "sub": self.subject, "aud": "gateway", "iat": now, "exp": now + 300,
            "preferred_username": self.subject.trim_end_matches("-id"), "groups": self.groups,
            "email": "alice@example.com", "email_verified": true,
        });
        change(&mut claims, &json!({"nonce": nonce, "sid": self.sid}));
        if self.padding > 0 {
            claims["padding"] = "x".repeat(self.padding).into();
        }
        change(&mut claims, &self.claims.clone());
        self.made += 1;
        let (access, refresh) = (format!("access-{}", self.made), format!("refresh-{}", self.made));
        let mut answer = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": self.lasts,
            "id_token": self.signer.sign(&[], &claims).unwrap(),
        });
        if grant == "refresh_token" && !self.id_tokens {
            answer.as_object_mut().unwrap().remove("id_token");
        }
        if self.refreshes {
            self.refresh_tokens.insert(refresh.clone());
            answer["refresh_token"] = refresh.into();
        }
        (200, answer)
    }
}

/// Query parameters of a URL.
pub(crate) fn parameters(location: &str) -> BTreeMap<String, String> {
    form(location.split_once('?').map_or("", |(_, query)| query))
}

pub(crate) fn form(text: &str) -> BTreeMap<String, String> {
    auth::request::form_pairs(text).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// A browser at one host.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) address: SocketAddr,
    pub(crate) host: &'static str,
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn new(address: SocketAddr, host: &'static str) -> Self {
        Self { address, host, cookies: BTreeMap::new() }
    }

    /// The same browser at another process that serves the same origin.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Sends a request with further lines, and stores received cookies.
    pub(crate) fn send(&mut self, method: &str, target: &str, lines: &str, body: &str) -> Response {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies =
            if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let mut client = TestClient::connect(self.address);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{cookies}{length}{lines}\r\n{body}",
            self.host
        ));
        let response = client.response();
        for line in response.head.lines() {
            let Some((name, value)) = line.split_once(": ") else { continue };
            if name.eq_ignore_ascii_case("set-cookie") {
                let (name, rest) = value.split_once('=').unwrap();
                let (value, attributes) = rest.split_once(';').unwrap();
                for needed in ["Path=/", "HttpOnly", "SameSite=Lax", "Secure"] {
                    assert!(attributes.contains(needed), "{line}");
                }
                assert!(!attributes.contains("Domain"), "{line}");
                assert!(name.len() + rest.len() <= 4096, "browsers keep no cookie of {} bytes", line.len());
                if attributes.contains("Max-Age=0") {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        response
    }

    /// Navigates to a page.
    pub(crate) fn visit(&mut self, target: &str) -> Response {
        self.send("GET", target, "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\n", "")
    }

    /// Follows a redirect, which must lead to this host.
    pub(crate) fn follow(&mut self, response: &Response) -> Response {
        let location = response.value("location").expect("a redirect").to_owned();
        let target =
            location.strip_prefix(&format!("https://{}", self.host)).expect("at this host").to_owned();
        self.visit(&target)
    }

    /// Goes from a page to the provider. Returns the URL there.
    pub(crate) fn go_to_provider(&mut self, target: &str) -> String {
        let sent = self.visit(target);
        assert_eq!(sent.status, 302, "{}", sent.head);
        let started = self.follow(&sent);
        assert_eq!(started.status, 302, "{}", started.text());
        started.value("location").unwrap().to_owned()
    }

    /// Returns from the provider.
    pub(crate) fn back(&mut self, (code, state): &(String, String)) -> Response {
        self.visit(&format!("/oauth2/callback?code={code}&state={state}"))
    }

    /// Runs the whole login. Returns the last redirect.
    pub(crate) fn log_in(&mut self, provider: &SimulatedProvider, target: &str) -> Response {
        let location = self.go_to_provider(target);
        let back = self.back(&provider.approve(&location));
        assert_eq!(back.status, 303, "{}", back.text());
        back
    }

    pub(crate) fn session(&self) -> Option<&String> {
        self.cookies.get("__Host-postern")
    }
}
