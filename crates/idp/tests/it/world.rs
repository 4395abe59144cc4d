//! A provider with users and clients of every kind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lc_rs::{digest, rand::SystemRandom};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use idp::{
    AccessTokenTyp, ClientConfig, Config, ConfiguredSecret, GrantType, Introspects, OutboundClient,
    PasswordConfig, PendingResponse, TokenFormat,
    passwords::{Parameters, Password},
};
use serde_json::Value;
use store::{
    groups::{AddGroup, AddMember},
    users::{AddUser, StoredPassword, UserRow},
};

use crate::{
    browser::{Browser, query},
    server::{Server, TestClock},
    wire::{self, Answer, encode},
};

pub(crate) const SECRET: &str = "pcs_app-0123456789-abcdefghij";
pub(crate) const CALLBACK: &str = "https://app.example/cb";
pub(crate) const GOODBYE: &str = "https://app.example/bye";
pub(crate) const PASSWORD: &str = "plough the winter dunes";
pub(crate) const VERIFIER: &str = "a-verifier-of-sufficient-length-0123456789-abc";

/// Requests that clients received (URL and body), and the status of the responses.
#[derive(Clone, Default)]
pub(crate) struct RecordedPosts(pub(crate) Arc<Mutex<Vec<(String, String)>>>, pub(crate) Arc<Mutex<u16>>);

impl OutboundClient for RecordedPosts {
    fn post(&self, post: idp::PostRequest) -> PendingResponse {
        self.0.lock().unwrap().push((post.url, post.body));
        let status = *self.1.lock().unwrap();
        Box::pin(async move { if status == 0 { Err("refused".into()) } else { Ok(status) } })
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) told: RecordedPosts,
    pub(crate) ada: UserRow,
}

/// A client that users log in to.
pub(crate) fn app(id: &str) -> ClientConfig {
    let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    ClientConfig {
        id: id.into(),
        name: Some(format!("The {id}")),
        secrets: vec![ConfiguredSecret::Plain(SECRET.into())],
        grants: vec![GrantType::AuthorizationCode, GrantType::RefreshToken],
        redirect_uris: owned(&[CALLBACK, "https://app.example/other"]),
        post_logout_redirect_uris: owned(&[GOODBYE]),
        backchannel_logout_uri: Some("https://app.example/logged-out".into()),
        scopes: owned(&[
            "openid",
            "profile",
            "email",
            "address",
            "phone",
            "groups",
            "offline_access",
            "read",
        ]),
        ..ClientConfig::default()
    }
}

pub(crate) fn config(issuer: &str) -> Config {
    let opaque = |client: ClientConfig| ClientConfig { access_token: TokenFormat::Opaque, ..client };
    let legacy = ClientConfig {
        grants: vec![GrantType::Password, GrantType::RefreshToken],
        redirect_uris: vec![],
        ..app("legacy")
    };
    Config {
        audiences: vec!["https://api.example.com".into()],
        passwords: PasswordConfig {
            parameters: Parameters::KEYCLOAK,
            threads: Some(2),
            ..PasswordConfig::default()
        },
        clients: vec![
            app("app"),
            opaque(app("opaque")),
            ClientConfig { backchannel_logout_uri: None, ..app("other") },
            ClientConfig { access_token_typ: AccessTokenTyp::Jwt, ..app("spring") },
            ClientConfig {
                public: true,
                secrets: vec![],
                redirect_uris: vec!["http://127.0.0.1/cb".into()],
                ..app("native")
            },
            ClientConfig { asks_consent: false, ..app("trusted") },
            ClientConfig { requires_pushed_requests: true, ..app("pushing") },
            ClientConfig {
                grants: vec![GrantType::DeviceCode, GrantType::RefreshToken],
                public: true,
                secrets: vec![],
                redirect_uris: vec![],
                ..app("tv")
            },
            legacy.clone(),
            opaque(ClientConfig { id: "legacy-opaque".into(), ..legacy.clone() }),
            ClientConfig { id: "once".into(), grants: vec![GrantType::Password], ..legacy },
            ClientConfig {
                grants: vec![GrantType::ClientCredentials],
                audiences: vec!["https://api.example.com".into()],
                introspects: Introspects::All,
                redirect_uris: vec![],
                ..app("gateway")
            },
        ],
        ..Config::new(issuer)
    }
}

pub(crate) fn user(id: &str, name: &str, world_clock: &TestClock) -> UserRow {
    let now = world_clock.now();
    let claims = serde_json::json!({
        "name": "Ada Lovelace",
        "given_name": "Ada",
        "family_name": "Lovelace",
        "middle_name": "Augusta",
        "nickname": "Addie",
        "profile": "https://example.com/ada",
        "picture": "https://example.com/ada.png",
        "website": "https://example.com",
        "gender": "female",
        "birthdate": "1815-12-10",
        "zoneinfo": "Europe/London",
        "locale": "en-GB",
        "address": {"locality": "London"},
        "phone_number": "+44 1",
        "phone_number_verified": true,
    });
    UserRow {
        id: id.into(),
        name: name.into(),
        email: Some(format!("{name}@example.com")),
        email_verified_at: Some(now),
        claims: claims.to_string(),
        created_at: now,
        updated_at: now,
        disabled_at: None,
        must_change_password_at: None,
        tokens_not_before: auth::time::Timestamp::from_millis(0),
        read_at: auth::time::Timestamp::from_millis(0),
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(config).await
    }

    pub(crate) async fn with(config: impl Fn(&str) -> Config) -> Self {
        let told = RecordedPosts::default();
        *told.1.lock().unwrap() = 200;
        let clock = TestClock::new();
        // Boxed, because the futures of tests would be large.
        let server = Box::pin(Server::of("", clock, config, SystemRandom::new(), told.clone())).await;
        Box::pin(Self::populate(server, told)).await
    }

    /// Creates users and groups.
    pub(crate) async fn populate(server: Server, told: RecordedPosts) -> Self {
        let ada = user("ada-id", "ada", &server.clock);
        let password = stored(&server, PASSWORD).await;
        for user in [ada.clone(), user("bob-id", "bob", &server.clock)] {
            let add = AddUser { user, password: Some(password.clone()) };
            server.provider.store().write(add).await.unwrap();
        }
        let store = server.provider.store();
        let now = server.clock.now();
        store.write(AddGroup { id: "g".into(), name: "staff".into(), now }).await.unwrap();
        store.write(AddMember { group: "staff".into(), user_id: ada.id.clone() }).await.unwrap();
        // Later events get a later time.
        server.clock.advance(Duration::from_secs(10));
        Self { server, told, ada }
    }

    pub(crate) fn browser(&self) -> Browser<'_> {
        Browser::new(&self.server)
    }

    /// Posts a form to an endpoint, as a client with its secret.
    pub(crate) async fn call(&self, path: &str, client: &str, body: &str) -> Answer {
        let authorization = wire::basic(client, SECRET);
        self.call_with(path, &[("Authorization", &authorization)], body).await
    }

    pub(crate) async fn call_with(&self, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let fields: Vec<(&str, &str)> =
            [("Content-Type", wire::FORM)].iter().chain(fields).copied().collect();
        wire::send(self.server.address, path, &fields, body.as_bytes()).await
    }

    /// Runs maintenance until clients received this many requests, and returns them.
    pub(crate) async fn posts_received(&self, count: usize) -> Vec<(String, String)> {
        let tended = tokio::spawn(idp::maintain(self.server.provider.clone()));
        for _ in 0..500 {
            if self.told.0.lock().unwrap().len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Waits to detect extra requests.
        tokio::time::sleep(Duration::from_millis(20)).await;
        tended.abort();
        self.told.0.lock().unwrap().clone()
    }

    pub(crate) async fn introspect(&self, token: &str) -> Value {
        self.call("/introspect", "gateway", &format!("token={}", encode(token))).await.json()
    }

    pub(crate) async fn is_active(&self, token: &str) -> bool {
        self.introspect(token).await["active"].as_bool().unwrap()
    }

    /// Calls the userinfo endpoint with a bearer token.
    pub(crate) async fn userinfo(&self, token: &str) -> Answer {
        let head = format!(
            "GET /userinfo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        wire::exchange(self.server.address, head.as_bytes()).await
    }

    pub(crate) async fn redeem(&self, client: &str, code: &str) -> Answer {
        self.call("/token", client, &redemption(code)).await
    }

    /// Logs Ada in at a client, and redeems the code.
    pub(crate) async fn tokens(&self, client: &str, scope: &str) -> Value {
        let mut browser = self.browser();
        let code = self.code(&mut browser, &TestAuthorizationRequest::new(client).scope(scope)).await;
        let answer = self.redeem(client, &code).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The code of a request that must succeed, through all necessary pages.
    pub(crate) async fn code(&self, browser: &mut Browser<'_>, ask: &TestAuthorizationRequest) -> String {
        let answer = browser.get(&ask.target()).await;
        let fields = Box::pin(self.walk(browser, answer, ask)).await;
        fields.get("code").unwrap_or_else(|| panic!("{fields:?}")).clone()
    }

    /// Goes through the pages as Ada, who allows everything, until the response to the client.
    pub(crate) async fn walk(
        &self,
        browser: &mut Browser<'_>,
        mut answer: Answer,
        ask: &TestAuthorizationRequest,
    ) -> BTreeMap<String, String> {
        for _ in 0..6 {
            answer = browser.follow(answer).await;
            if answer.status == 303 {
                return query(answer.location());
            }
            let text = answer.text().to_owned();
            if text.contains("action=\"/login\"") {
                let form = answer.form("/login");
                answer = browser.submit(&form, &[("username", "ada"), ("password", PASSWORD)]).await;
            } else if text.contains("action=\"/consent\"") {
                answer = browser.submit(&answer.form("/consent"), &[("decision", "allow")]).await;
            } else {
                let form = answer.form(&ask.redirect_uri());
                return form.hidden.into_iter().collect();
            }
        }
        panic!("no end of pages: {}", answer.text());
    }
}

pub(crate) async fn stored(server: &Server, password: &str) -> StoredPassword {
    let password = Password::new(password.into()).unwrap();
    server.provider.logins().hash(&password, "nobody", None, server.clock.now()).await.unwrap()
}

/// An authorization request.
#[derive(Debug, Clone)]
pub(crate) struct TestAuthorizationRequest(Vec<(String, String)>);

impl TestAuthorizationRequest {
    pub(crate) fn new(client: &str) -> Self {
        let fields = [
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", CALLBACK),
            ("scope", "openid"),
            ("state", "the-state"),
            ("nonce", "the-nonce"),
        ];
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    /// Sets a parameter; an empty value removes it.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.retain(|(n, _)| n != name);
        if !value.is_empty() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) fn scope(self, scope: &str) -> Self {
        self.with("scope", scope)
    }

    pub(crate) fn pkce(self) -> Self {
        self.with("code_challenge", &challenge(VERIFIER)).with("code_challenge_method", "S256")
    }

    pub(crate) fn fields(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect()
    }

    pub(crate) fn query(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
        pairs.join("&")
    }

    pub(crate) fn target(&self) -> String {
        format!("/authorize?{}", self.query())
    }

    fn redirect_uri(&self) -> String {
        self.0.iter().find(|(n, _)| n == "redirect_uri").map_or_else(String::new, |(_, v)| v.clone())
    }
}

/// A token request for a code without a challenge.
pub(crate) fn redemption(code: &str) -> String {
    format!("grant_type=authorization_code&code={code}&redirect_uri={}", encode(CALLBACK))
}

pub(crate) fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}
