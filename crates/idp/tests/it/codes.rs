//! Codes and refresh tokens: bound to client, redirect URI, PKCE and session, and valid once.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use idp::admin::Admin;
use idp::admin::clients::{AddClient, ReplaceClient};
use idp::{ClientConfig, Config, GrantType};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, query},
    wire::{Answer, basic, encode},
    world::{TestAuthorizationRequest, VERIFIER, World, app, challenge, config, redemption},
};

#[tokio::test]
async fn a_code_is_bound_to_its_client() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    world.call("/token", "other", &redemption(&code)).await.assert_error(400, "invalid_grant");
    assert_eq!(world.redeem("app", &code).await.status, 200, "the thief did not use it up");
}

#[tokio::test]
async fn a_code_is_bound_to_its_redirect_uri() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    for other in ["&redirect_uri=https%3A%2F%2Fapp.example%2Fother", ""] {
        let body = format!("grant_type=authorization_code&code={code}{other}");
        world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
    }
    assert_eq!(world.redeem("app", &code).await.status, 200);
}

#[tokio::test]
async fn a_code_is_bound_to_its_challenge() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app").pkce()).await;
    let wrong = VERIFIER.replace('a', "b");
    for verifier in [String::new(), format!("&code_verifier={wrong}"), "&code_verifier=short".into()] {
        let body = redemption(&code) + &verifier;
        world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
    }
    let body = redemption(&code) + &format!("&code_verifier={VERIFIER}");
    assert_eq!(world.call("/token", "app", &body).await.status, 200);
}

#[tokio::test]
async fn a_verifier_without_a_challenge_is_refused() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &TestAuthorizationRequest::new("app")).await;
    let body = redemption(&code) + &format!("&code_verifier={VERIFIER}");
    world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn pkce_is_enforced_for_public_clients() {
    let world = World::new().await;
    let native = |ask: TestAuthorizationRequest| ask.with("redirect_uri", "http://127.0.0.1:51004/cb");
    let mut browser = world.browser();
    let refused = browser.get(&native(TestAuthorizationRequest::new("native")).target()).await;
    assert_eq!(query(refused.location())["error"], "invalid_request");
    let plain = native(TestAuthorizationRequest::new("native")).with("code_challenge", &challenge(VERIFIER));
    assert_eq!(query(browser.get(&plain.target()).await.location())["error"], "invalid_request", "not plain");
    let code = world.code(&mut browser, &native(TestAuthorizationRequest::new("native")).pkce()).await;
    let body = format!(
        "grant_type=authorization_code&client_id=native&code={code}&redirect_uri={}&code_verifier={VERIFIER}",
        encode("http://127.0.0.1:51004/cb")
    );
    assert_eq!(world.call_with("/token", &[], &body).await.status, 200, "the port of a loopback may differ");
}

#[tokio::test]
async fn a_code_dies_with_its_session() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let page = browser.get("/account").await;
    browser.submit(&page.form("/account/logout"), &[]).await;
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn a_code_expires_and_is_remembered_longer() {
    let world = World::new().await;
    let mut browser = world.browser();
    let late = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    world.server.clock.advance(Duration::from_mins(1));
    world.redeem("app", &late).await.assert_error(400, "invalid_grant");
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    world.server.clock.advance(Duration::from_mins(4));
    world
        .server
        .provider
        .store()
        .delete_expired(world.server.clock.now(), Duration::from_hours(1))
        .await
        .unwrap();
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
    assert!(!world.is_active(tokens["access_token"].as_str().unwrap()).await, "noticed four minutes later");
}

#[tokio::test]
async fn replay_of_a_refresh_token_kills_the_family() {
    for client in ["app", "opaque"] {
        let world = World::new().await;
        let first = world.tokens(client, "openid offline_access").await;
        let refresh = |tokens: &Value| {
            format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap())
        };
        let second = world.call("/token", client, &refresh(&first)).await.json();
        let active = |tokens: &Value| tokens["access_token"].as_str().unwrap().to_owned();
        assert!(world.is_active(&active(&second)).await);
        world.call("/token", client, &refresh(&first)).await.assert_error(400, "invalid_grant");
        world.call("/token", client, &refresh(&second)).await.assert_error(400, "invalid_grant");
        for tokens in [first, second] {
            assert!(!world.is_active(&active(&tokens)).await, "{client}");
        }
    }
}

/// Consumers of the revocation log revoke a token with the session that it names. So it names only
/// a session that it ends with.
#[tokio::test]
async fn a_token_names_the_session_that_it_ends_with() {
    let world = World::new().await;
    for client in ["app", "opaque"] {
        for (scope, ends) in [("openid", true), ("openid offline_access", false)] {
            let tokens = world.tokens(client, scope).await;
            let token = tokens["access_token"].as_str().unwrap();
            let told = world.introspect(token).await;
            assert_eq!(
                (&told["active"], told["sid"].is_string()),
                (&Value::Bool(true), ends),
                "{client} {scope}"
            );
            if let Some(claims) = token.split('.').nth(1) {
                let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
                assert_eq!(claims["sid"].is_string(), ends, "{client} {scope}");
            }
        }
    }
}

#[tokio::test]
async fn a_refresh_narrows_and_never_widens() {
    let world = World::new().await;
    let first = world.tokens("app", "openid email offline_access").await;
    let refresh = |tokens: &Value, scope: &str| {
        let token = tokens["refresh_token"].as_str().unwrap();
        format!("grant_type=refresh_token&refresh_token={token}&scope={}", encode(scope))
    };
    world.call("/token", "app", &refresh(&first, "openid profile")).await.assert_error(400, "invalid_scope");
    let second = world.call("/token", "app", &refresh(&first, "openid")).await.json();
    assert_eq!(second["scope"], "openid");
    let third = world.call("/token", "app", &refresh(&second, "openid email")).await.json();
    assert_eq!(third["scope"], "openid email", "what was granted is not lost");
}

/// A client that names targets gets tokens for exactly those; a target that was not granted is
/// refused, not ignored.
#[tokio::test]
async fn a_target_that_was_not_granted_is_refused_at_the_token_endpoint() {
    let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let targets = ["https://api.example.com", "reports", "invoices"];
    let world = World::with(|issuer| {
        let base = config(issuer);
        let wide = ClientConfig { audiences: owned(&targets), ..app("wide") };
        let grants = vec![GrantType::DeviceCode];
        let clients =
            [wide.clone(), ClientConfig { id: "wide-tv".into(), redirect_uris: vec![], grants, ..wide }];
        Config {
            audiences: owned(&targets),
            clients: base.clients.iter().cloned().chain(clients).collect(),
            ..base
        }
    })
    .await;
    let audience_of = async |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let tokens = answer.json();
        (world.introspect(tokens["access_token"].as_str().unwrap()).await["aud"].clone(), tokens)
    };
    let bad = [
        "audience=elsewhere",
        "resource=https%3A%2F%2Felsewhere.example",
        "resource=reports",
        "audience=a%20b",
    ];
    let ask =
        TestAuthorizationRequest::new("wide").with("audience", "reports").scope("openid offline_access");
    let target = format!("{}&resource={}", ask.target(), encode(targets[0]));
    let mut browser = world.browser();
    let page = browser.get(&target).await;
    let fields = world.walk(&mut browser, page, &ask).await;
    let redeem = redemption(&fields["code"]);
    for named in bad.iter().chain(&["audience=invoices"]) {
        let refused = world.call("/token", "wide", &format!("{redeem}&{named}")).await;
        refused.assert_error(400, "invalid_target");
    }
    let (aud, first) =
        audience_of(world.call("/token", "wide", &format!("{redeem}&audience=reports")).await).await;
    assert_eq!(aud, "reports");
    let refresh = |tokens: &Value| {
        format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap())
    };
    for named in bad.iter().chain(&["audience=invoices"]) {
        let refused = world.call("/token", "wide", &format!("{}&{named}", refresh(&first))).await;
        refused.assert_error(400, "invalid_target");
    }
    let narrowed = format!("{}&resource={}", refresh(&first), encode(targets[0]));
    let (aud, second) = audience_of(world.call("/token", "wide", &narrowed).await).await;
    assert_eq!(aud, targets[0]);
    let (aud, _) = audience_of(world.call("/token", "wide", &refresh(&second)).await).await;
    assert_eq!(aud, serde_json::json!([targets[0], "reports"]), "what was granted is not lost");

    let begun =
        world.call("/device_authorization", "wide-tv", "audience=reports&audience=invoices&scope=read").await;
    let begun = begun.json();
    let code = format!(
        "grant_type={}&device_code={}",
        encode("urn:ietf:params:oauth:grant-type:device_code"),
        begun["device_code"].as_str().unwrap()
    );
    let mut page = browser.get(begun["verification_uri_complete"].as_str().unwrap()).await;
    page =
        browser.submit(&page.form("/device"), &[("user_code", begun["user_code"].as_str().unwrap())]).await;
    page = browser.follow(page).await;
    browser.submit(&page.form("/device/decision"), &[("decision", "allow")]).await;
    for named in bad {
        world.server.clock.advance(Duration::from_secs(6));
        world.call("/token", "wide-tv", &format!("{code}&{named}")).await.assert_error(400, "invalid_target");
    }
    world.server.clock.advance(Duration::from_secs(6));
    let (aud, _) =
        audience_of(world.call("/token", "wide-tv", &format!("{code}&audience=invoices")).await).await;
    assert_eq!(aud, "invoices");
}

const SHOP_SCOPES: &[&str] = &["openid", "offline_access", "read", "write"];
const SHOP_AUDIENCES: &[&str] = &["orders", "urn:example:invoices"];

/// A registered client, which an operator can change.
struct Shop<'w> {
    world: &'w World,
    authorization: String,
    version: u64,
}

impl<'w> Shop<'w> {
    async fn world() -> World {
        World::with(|issuer| {
            let mut config = config(issuer);
            config.audiences.extend(SHOP_AUDIENCES.iter().map(|&audience| audience.to_owned()));
            config
        })
        .await
    }

    async fn register(world: &'w World) -> Self {
        let settings = Self::settings(SHOP_SCOPES, SHOP_AUDIENCES);
        let admin = Admin::new(&world.server.provider, "operator:test");
        let added = admin.add_client(AddClient { id: Some("shop".into()), settings }).await.unwrap();
        let authorization = basic("shop", added.secret.unwrap().expose());
        Self { world, authorization, version: added.client.version.unwrap() }
    }

    fn settings(scopes: &[&str], audiences: &[&str]) -> ClientConfig {
        let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        ClientConfig {
            secrets: vec![],
            grants: vec![GrantType::AuthorizationCode, GrantType::RefreshToken, GrantType::DeviceCode],
            scopes: owned(scopes),
            audiences: owned(audiences),
            ..app("shop")
        }
    }

    /// From now on the client may have only these.
    async fn restrict(&mut self, scopes: &[&str], audiences: &[&str]) {
        let replace = ReplaceClient { version: self.version, settings: Self::settings(scopes, audiences) };
        let admin = Admin::new(&self.world.server.provider, "operator:test");
        let changed = admin.replace_client("shop", replace).await.unwrap();
        self.version = changed.client.version.unwrap();
    }

    async fn call(&self, path: &str, body: &str) -> Answer {
        self.world.call_with(path, &[("Authorization", &*self.authorization)], body).await
    }

    async fn refresh(&self, tokens: &Value, more: &str) -> Answer {
        let token = tokens["refresh_token"].as_str().unwrap();
        self.call("/token", &format!("grant_type=refresh_token&refresh_token={token}{more}")).await
    }

    /// An authorization request for all scopes and audiences.
    fn ask() -> TestAuthorizationRequest {
        let ask = TestAuthorizationRequest::new("shop").scope(&SHOP_SCOPES.join(" "));
        ask.with("audience", SHOP_AUDIENCES[0]).with("resource", SHOP_AUDIENCES[1])
    }

    /// The token request of a device that a user allowed all scopes and audiences; the user is
    /// logged in.
    async fn allowed_device(&self, browser: &mut Browser<'_>) -> String {
        let [scope, resource] = [&*SHOP_SCOPES.join(" "), SHOP_AUDIENCES[1]].map(encode);
        let body = format!("scope={scope}&audience={}&resource={resource}", SHOP_AUDIENCES[0]);
        let begun = self.call("/device_authorization", &body).await.json();
        let page = browser.get(begun["verification_uri_complete"].as_str().unwrap()).await;
        let typed = [("user_code", begun["user_code"].as_str().unwrap())];
        let page = browser.submit(&page.form("/device"), &typed).await;
        let page = browser.follow(page).await;
        browser.submit(&page.form("/device/decision"), &[("decision", "allow")]).await;
        self.world.server.clock.advance(Duration::from_secs(6));
        let grant = encode("urn:ietf:params:oauth:grant-type:device_code");
        format!("grant_type={grant}&device_code={}", begun["device_code"].as_str().unwrap())
    }
}

/// Users granted it before, but the operator has withdrawn it from the client.
#[tokio::test]
async fn what_a_client_may_no_longer_have_is_left_out() {
    let world = Shop::world().await;
    let mut shop = Shop::register(&world).await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &Shop::ask()).await;
    let first = shop.call("/token", &redemption(&code)).await.json();
    assert_eq!(first["scope"], SHOP_SCOPES.join(" "));
    let told = world.introspect(first["access_token"].as_str().unwrap()).await;
    assert_eq!(told["aud"], json!([SHOP_AUDIENCES[1], SHOP_AUDIENCES[0]]));
    let code = world.code(&mut browser, &Shop::ask()).await;
    let device = shop.allowed_device(&mut browser).await;

    shop.restrict(&["openid", "offline_access", "read"], &["orders"]).await;
    let named = shop.refresh(&first, &format!("&resource={}", encode(SHOP_AUDIENCES[1]))).await;
    named.assert_error(400, "invalid_target");
    let never_granted = shop.refresh(&first, "&scope=openid%20email").await;
    never_granted.assert_error(400, "invalid_scope");
    let refreshed = shop.refresh(&first, "").await.json();
    let requested = shop.refresh(&refreshed, "&scope=openid%20offline_access%20read%20write").await.json();
    let redeemed = shop.call("/token", &redemption(&code)).await.json();
    let polled = shop.call("/token", &device).await.json();
    for (name, tokens) in
        [("refreshed", &refreshed), ("requested", &requested), ("redeemed", &redeemed), ("polled", &polled)]
    {
        assert_eq!(tokens["scope"], "openid offline_access read", "{name}: {tokens}");
        let told = world.introspect(tokens["access_token"].as_str().unwrap()).await;
        assert_eq!(
            (&told["scope"], &told["aud"]),
            (&json!("openid offline_access read"), &json!("orders")),
            "{name}"
        );
    }
    // A client that may have it again has what was granted.
    shop.restrict(SHOP_SCOPES, SHOP_AUDIENCES).await;
    for tokens in [&requested, &redeemed, &polled] {
        assert_eq!(shop.refresh(tokens, "").await.json()["scope"], SHOP_SCOPES.join(" "));
    }
}

#[tokio::test]
async fn nothing_is_issued_if_no_scope_or_no_audience_is_left() {
    let world = Shop::world().await;
    let mut shop = Shop::register(&world).await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &Shop::ask()).await;
    let tokens = shop.call("/token", &redemption(&code)).await.json();
    let code = world.code(&mut browser, &Shop::ask()).await;
    let device = shop.allowed_device(&mut browser).await;
    let none: &[&str] = &[];
    for (scopes, audiences, error) in
        [(SHOP_SCOPES, none, "invalid_target"), (none, SHOP_AUDIENCES, "invalid_scope")]
    {
        shop.restrict(scopes, audiences).await;
        shop.refresh(&tokens, "").await.assert_error(400, error);
        shop.call("/token", &redemption(&code)).await.assert_error(400, error);
        shop.call("/token", &device).await.assert_error(400, error);
        world.server.clock.advance(Duration::from_secs(6));
    }
    // Nothing was redeemed.
    shop.restrict(SHOP_SCOPES, SHOP_AUDIENCES).await;
    for answer in [
        shop.refresh(&tokens, "").await,
        shop.call("/token", &redemption(&code)).await,
        shop.call("/token", &device).await,
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}
