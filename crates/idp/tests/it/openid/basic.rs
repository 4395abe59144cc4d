//! Conformance plans "Basic OP" and "Form Post OP": the same modules with response modes query and
//! form post.

use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use aws_lc_rs::digest;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::{
    server::decode_unverified,
    verify::keys_of,
    wire::encode,
    world::{CALLBACK, SECRET, TestAuthorizationRequest, VERIFIER, World},
};

/// Response mode of the tests.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Query,
    FormPost,
}

impl Mode {
    fn ask(self, scope: &str) -> TestAuthorizationRequest {
        let ask = TestAuthorizationRequest::new("app").scope(scope);
        match self {
            Self::Query => ask,
            Self::FormPost => ask.with("response_mode", "form_post"),
        }
    }
}

macro_rules! modules {
    ($($name:ident),* $(,)?) => {
        mod query { $( #[tokio::test] async fn $name() { super::$name(super::Mode::Query).await; } )* }
        mod form_post { $( #[tokio::test] async fn $name() { super::$name(super::Mode::FormPost).await; } )* }
    };
}

modules! {
    oidcc_server, oidcc_response_type_missing, oidcc_idtoken_signature, oidcc_userinfo_get,
    oidcc_userinfo_post_header, oidcc_userinfo_post_body,
    oidcc_ensure_request_without_nonce_succeeds_for_code_flow, oidcc_scope_profile, oidcc_scope_email,
    oidcc_scope_address, oidcc_scope_phone, oidcc_scope_all, oidcc_ensure_other_scope_order_succeeds,
    oidcc_display_page, oidcc_display_popup, oidcc_prompt_login, oidcc_prompt_none_not_logged_in,
    oidcc_prompt_none_logged_in, oidcc_max_age_1, oidcc_max_age_10000,
    oidcc_ensure_request_with_unknown_parameter_succeeds, oidcc_id_token_hint, oidcc_login_hint,
    oidcc_ui_locales, oidcc_claims_locales, oidcc_ensure_request_with_acr_values_succeeds, oidcc_codereuse,
    oidcc_codereuse_30seconds, oidcc_ensure_registered_redirect_uri, oidcc_ensure_post_request_succeeds,
    oidcc_server_client_secret_post,
    oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported, oidcc_claims_essential,
    oidcc_ensure_request_object_with_redirect_uri, oidcc_refresh_token,
    oidcc_ensure_request_with_valid_pkce_succeeds,
}

/// The claims of an ID token, checked as a client must (Core §3.1.3.7).
async fn checked(world: &World, tokens: &Value, nonce: Option<&str>) -> Value {
    let token = tokens["id_token"].as_str().unwrap();
    let (header, claims) = decode_unverified(token);
    assert_eq!(header["alg"], "RS256");
    let keys = keys_of(&world.server).await;
    let unverified = auth::token::jwt::parse(token.as_bytes()).unwrap();
    assert!(unverified.signed(AlgorithmSet::ALL, &keys).is_ok(), "its signature");
    let now = world.server.clock.now().as_secs();
    assert_eq!(claims["iss"], world.server.issuer.as_str());
    assert_eq!(claims["aud"], "app");
    assert_eq!(claims["sub"], world.ada.id.as_str());
    assert!(claims["iat"].as_u64().unwrap() <= now && claims["exp"].as_u64().unwrap() > now);
    assert!(claims["auth_time"].as_u64().unwrap() <= now);
    assert_eq!(claims.get("nonce").and_then(Value::as_str), nonce);
    let access = tokens["access_token"].as_str().unwrap();
    let half = &digest::digest(&digest::SHA256, access.as_bytes()).as_ref()[..16].to_vec();
    assert_eq!(claims["at_hash"], BASE64_URL_SAFE_NO_PAD.encode(half));
    claims
}

/// Requests, logs in, allows, redeems; returns the tokens.
async fn tokens(world: &World, ask: &TestAuthorizationRequest) -> Value {
    let mut browser = world.browser();
    let code = world.code(&mut browser, ask).await;
    let answer = world.redeem("app", &code).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    answer.json()
}

async fn oidcc_server(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid profile");
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    assert_eq!(fields["state"], "the-state");
    assert_eq!(fields["iss"], world.server.issuer);
    let tokens = world.redeem("app", &fields["code"]).await.json();
    assert_eq!((&tokens["token_type"], &tokens["scope"]), (&json!("Bearer"), &json!("openid profile")));
    checked(&world, &tokens, Some("the-nonce")).await;
}

async fn oidcc_response_type_missing(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid").with("response_type", "");
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    assert_eq!((fields["error"].as_str(), fields["state"].as_str()), ("invalid_request", "the-state"));
}

async fn oidcc_idtoken_signature(mode: Mode) {
    let world = World::new().await;
    let tokens = tokens(&world, &mode.ask("openid")).await;
    checked(&world, &tokens, Some("the-nonce")).await;
    let (header, _) = decode_unverified(tokens["id_token"].as_str().unwrap());
    let kid = header["kid"].as_str().unwrap();
    let published = world.server.get("/jwks").await.json();
    let named = published["keys"].as_array().unwrap().iter().filter(|k| k["kid"] == kid).count();
    assert_eq!(named, 1, "the key it names is published once");
}

/// The userinfo response, requested in one of three ways.
async fn userinfo(world: &World, tokens: &Value, how: &str) -> Value {
    let token = tokens["access_token"].as_str().unwrap();
    let bearer = format!("Bearer {token}");
    let answer = match how {
        "get" => world.userinfo(token).await,
        "header" => world.call_with("/userinfo", &[("Authorization", &bearer)], "").await,
        _ => world.call_with("/userinfo", &[], &format!("access_token={token}")).await,
    };
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")));
    answer.json()
}

async fn oidcc_userinfo_get(mode: Mode) {
    told_by_userinfo(mode, "get").await;
}

async fn oidcc_userinfo_post_header(mode: Mode) {
    told_by_userinfo(mode, "header").await;
}

async fn oidcc_userinfo_post_body(mode: Mode) {
    told_by_userinfo(mode, "body").await;
}

async fn told_by_userinfo(mode: Mode, how: &str) {
    let world = World::new().await;
    let tokens = tokens(&world, &mode.ask("openid")).await;
    assert_eq!(userinfo(&world, &tokens, how).await, json!({ "sub": world.ada.id }));
}

async fn oidcc_ensure_request_without_nonce_succeeds_for_code_flow(mode: Mode) {
    let world = World::new().await;
    let tokens = tokens(&world, &mode.ask("openid").with("nonce", "")).await;
    checked(&world, &tokens, None).await;
}

/// A scope yields exactly the expected claims.
async fn scope_brings(mode: Mode, scope: &str, expected: &[&str]) {
    let world = World::new().await;
    let tokens = tokens(&world, &mode.ask(scope)).await;
    let told = userinfo(&world, &tokens, "get").await;
    let mut names: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut expected: Vec<&str> = expected.iter().copied().chain(["sub"]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

const PROFILE: [&str; 14] = [
    "name",
    "family_name",
    "given_name",
    "middle_name",
    "nickname",
    "preferred_username",
    "profile",
    "picture",
    "website",
    "gender",
    "birthdate",
    "zoneinfo",
    "locale",
    "updated_at",
];

async fn oidcc_scope_profile(mode: Mode) {
    scope_brings(mode, "openid profile", &PROFILE).await;
}

async fn oidcc_scope_email(mode: Mode) {
    scope_brings(mode, "openid email", &["email", "email_verified"]).await;
}

async fn oidcc_scope_address(mode: Mode) {
    scope_brings(mode, "openid address", &["address"]).await;
}

async fn oidcc_scope_phone(mode: Mode) {
    scope_brings(mode, "openid phone", &["phone_number", "phone_number_verified"]).await;
}

async fn oidcc_scope_all(mode: Mode) {
    let others = ["email", "email_verified", "address", "phone_number", "phone_number_verified"];
    let all: Vec<&str> = PROFILE.into_iter().chain(others).collect();
    scope_brings(mode, "openid profile email address phone", &all).await;
}

async fn oidcc_ensure_other_scope_order_succeeds(mode: Mode) {
    scope_brings(mode, "email openid", &["email", "email_verified"]).await;
}

async fn oidcc_display_page(mode: Mode) {
    succeeds_with(mode, "display", "page").await;
}

async fn oidcc_display_popup(mode: Mode) {
    succeeds_with(mode, "display", "popup").await;
}

async fn oidcc_ensure_request_with_unknown_parameter_succeeds(mode: Mode) {
    succeeds_with(mode, "extra", "foobar").await;
}

async fn oidcc_claims_locales(mode: Mode) {
    succeeds_with(mode, "claims_locales", "se").await;
}

async fn oidcc_ensure_request_with_acr_values_succeeds(mode: Mode) {
    let claims = succeeds_with(mode, "acr_values", "1 2").await;
    assert_eq!(claims["acr"], "1");
}

async fn succeeds_with(mode: Mode, name: &str, value: &str) -> Value {
    let world = World::new().await;
    let tokens = tokens(&world, &mode.ask("openid").with(name, value)).await;
    checked(&world, &tokens, Some("the-nonce")).await
}

async fn oidcc_prompt_login(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = world.code(&mut browser, &mode.ask("openid")).await;
    let first = world.redeem("app", &first).await.json();
    let first = checked(&world, &first, Some("the-nonce")).await;
    world.server.clock.advance(Duration::from_secs(1));
    let again = mode.ask("openid").with("prompt", "login");
    let page = browser.get(&again.target()).await;
    let form = page.form("/login");
    assert!(page.text().contains("name=\"password\""), "they must prove it again");
    world.server.clock.advance(Duration::from_secs(1));
    let answer = browser.submit(&form, &[("username", "ada"), ("password", crate::world::PASSWORD)]).await;
    let fields = world.walk(&mut browser, answer, &again).await;
    let second = world.redeem("app", &fields["code"]).await.json();
    let second = checked(&world, &second, Some("the-nonce")).await;
    assert!(second["auth_time"].as_u64() > first["auth_time"].as_u64());
    assert_eq!(second["sub"], first["sub"]);
    assert_eq!(second["sid"], first["sid"], "it is still the same session");
}

async fn oidcc_prompt_none_not_logged_in(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid").with("prompt", "none");
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    assert_eq!((fields["error"].as_str(), fields["state"].as_str()), ("login_required", "the-state"));
    assert_eq!(fields["iss"], world.server.issuer);
}

async fn oidcc_prompt_none_logged_in(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = world.code(&mut browser, &mode.ask("openid")).await;
    let first = world.redeem("app", &first).await.json();
    let first = checked(&world, &first, Some("the-nonce")).await;
    world.server.clock.advance(Duration::from_secs(1));
    let silent = mode.ask("openid").with("prompt", "none");
    let answer = browser.get(&silent.target()).await;
    assert!(answer.status == 303 || answer.forms().len() == 1, "nothing is asked");
    let fields = world.walk(&mut browser, answer, &silent).await;
    let second = world.redeem("app", &fields["code"]).await.json();
    let second = checked(&world, &second, Some("the-nonce")).await;
    assert_eq!((&second["sub"], &second["auth_time"]), (&first["sub"], &first["auth_time"]));
}

async fn oidcc_max_age_1(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = world.code(&mut browser, &mode.ask("openid")).await;
    let first = checked(&world, &world.redeem("app", &first).await.json(), Some("the-nonce")).await;
    world.server.clock.advance(Duration::from_secs(2));
    let ask = mode.ask("openid").with("max_age", "1");
    let page = browser.get(&ask.target()).await;
    assert!(page.text().contains("name=\"password\""), "too long ago");
    world.server.clock.advance(Duration::from_millis(1));
    let fields = world.walk(&mut browser, page, &ask).await;
    let second = world.redeem("app", &fields["code"]).await.json();
    let second = checked(&world, &second, Some("the-nonce")).await;
    assert!(second["auth_time"].as_u64() > first["auth_time"].as_u64());
}

async fn oidcc_max_age_10000(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = world.code(&mut browser, &mode.ask("openid")).await;
    let first = checked(&world, &world.redeem("app", &first).await.json(), Some("the-nonce")).await;
    world.server.clock.advance(Duration::from_secs(2));
    let ask = mode.ask("openid").with("max_age", "10000");
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    let second = checked(&world, &world.redeem("app", &fields["code"]).await.json(), Some("the-nonce")).await;
    assert_eq!(second["auth_time"], first["auth_time"], "recent enough");
}

async fn oidcc_id_token_hint(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = world.code(&mut browser, &mode.ask("openid")).await;
    let hint = world.redeem("app", &first).await.json()["id_token"].as_str().unwrap().to_owned();
    // The ID token has expired long before.
    world.server.clock.advance(Duration::from_mins(90));
    let ask = mode.ask("openid").with("prompt", "none").with("id_token_hint", &hint);
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    let second = checked(&world, &world.redeem("app", &fields["code"]).await.json(), Some("the-nonce")).await;
    assert_eq!(second["sub"], world.ada.id.as_str());
}

async fn oidcc_login_hint(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid").with("login_hint", "ada");
    let page = browser.get(&ask.target()).await;
    assert!(page.text().contains("name=\"username\" type=\"text\" value=\"ada\""), "{}", page.text());
    let fields = world.walk(&mut browser, page, &ask).await;
    assert!(fields.contains_key("code"));
}

async fn oidcc_ui_locales(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid").with("ui_locales", "se de");
    let page = browser.get(&ask.target()).await;
    assert_eq!(page.field("content-language"), Some("de"));
    let fields = world.walk(&mut browser, page, &ask).await;
    assert!(fields.contains_key("code"));
}

async fn oidcc_codereuse(mode: Mode) {
    reused_after(mode, Duration::ZERO).await;
}

async fn oidcc_codereuse_30seconds(mode: Mode) {
    reused_after(mode, Duration::from_secs(30)).await;
}

/// A second redemption of a code is refused, and revokes the tokens of the first.
async fn reused_after(mode: Mode, wait: Duration) {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &mode.ask("openid")).await;
    let first = world.redeem("app", &code).await.json();
    let access = first["access_token"].as_str().unwrap();
    assert_eq!(world.userinfo(access).await.status, 200);
    world.server.clock.advance(wait);
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
    let refused = world.userinfo(access).await;
    assert_eq!(refused.status, 401, "the access token too");
    assert!(refused.field("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    let refresh =
        format!("grant_type=refresh_token&refresh_token={}", first["refresh_token"].as_str().unwrap());
    world.call("/token", "app", &refresh).await.assert_error(400, "invalid_grant");
}

async fn oidcc_ensure_registered_redirect_uri(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    for other in ["https://app.example/cb/x", "https://app.example/cb?x=1", "https://evil.example/cb", ""] {
        let page = browser.get(&mode.ask("openid").with("redirect_uri", other).target()).await;
        assert_eq!(page.status, 400, "{other}");
        assert_eq!(page.field("location"), None);
        assert!(page.text().contains("redirect_mismatch"), "{}", page.text());
    }
}

async fn oidcc_ensure_post_request_succeeds(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let ask = mode.ask("openid");
    let answer = browser.post("/authorize", &ask.fields()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    checked(&world, &world.redeem("app", &fields["code"]).await.json(), Some("the-nonce")).await;
}

async fn oidcc_server_client_secret_post(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &mode.ask("openid")).await;
    let body = format!(
        "grant_type=authorization_code&code={code}&redirect_uri={}&client_id=app&client_secret={SECRET}",
        encode(CALLBACK)
    );
    let answer = world.call_with("/token", &[], &body).await;
    assert_eq!(answer.status, 200);
    checked(&world, &answer.json(), Some("the-nonce")).await;
}

async fn oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let object = format!(
        "{}.{}.",
        BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        BASE64_URL_SAFE_NO_PAD.encode(r#"{"state":"another"}"#)
    );
    let ask = mode.ask("openid").with("request", &object);
    let answer = browser.get(&ask.target()).await;
    let fields = world.walk(&mut browser, answer, &ask).await;
    assert_eq!(fields["error"], "request_not_supported");
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(document["request_parameter_supported"], false);
}

async fn oidcc_ensure_request_object_with_redirect_uri(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let claims = json!({ "redirect_uri": CALLBACK }).to_string();
    let object = format!(
        "{}.{}.",
        BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        BASE64_URL_SAFE_NO_PAD.encode(claims)
    );
    // A redirect URI in an unsupported request object is ignored.
    let ask = mode.ask("openid").with("redirect_uri", "https://evil.example/cb").with("request", &object);
    let page = browser.get(&ask.target()).await;
    assert_eq!((page.status, page.field("location")), (400, None));
}

async fn oidcc_claims_essential(mode: Mode) {
    let world = World::new().await;
    let claims = json!({ "userinfo": { "name": { "essential": true } } }).to_string();
    let mut browser = world.browser();
    let ask = mode.ask("openid").with("claims", &claims);
    let code = world.code(&mut browser, &ask).await;
    let tokens = world.redeem("app", &code).await.json();
    let told = userinfo(&world, &tokens, "get").await;
    assert_eq!(told, json!({ "sub": world.ada.id, "name": "Ada Lovelace" }), "that claim and no more");
}

async fn oidcc_refresh_token(mode: Mode) {
    let world = World::new().await;
    let first = tokens(&world, &mode.ask("openid offline_access").with("prompt", "consent")).await;
    let before = checked(&world, &first, Some("the-nonce")).await;
    world.server.clock.advance(Duration::from_secs(1));
    let refresh = |token: &str| format!("grant_type=refresh_token&refresh_token={token}");
    let token = first["refresh_token"].as_str().unwrap();
    let second = world.call("/token", "app", &refresh(token)).await;
    assert_eq!(second.status, 200, "{}", second.text());
    let second = second.json();
    assert_ne!(second["access_token"], first["access_token"]);
    assert_ne!(second["refresh_token"], first["refresh_token"]);
    let after = checked(&world, &second, None).await;
    for same in ["iss", "sub", "aud", "auth_time"] {
        assert_eq!(after[same], before[same], "{same} (Core §12.2)");
    }
    assert!(after["iat"].as_u64() > before["iat"].as_u64());
    // Another client cannot use a refresh token.
    let stolen = refresh(second["refresh_token"].as_str().unwrap());
    world.call("/token", "other", &stolen).await.assert_error(400, "invalid_grant");
    assert_eq!(world.call("/token", "app", &stolen).await.status, 200, "and trying did not use it up");
}

async fn oidcc_ensure_request_with_valid_pkce_succeeds(mode: Mode) {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &mode.ask("openid").pkce()).await;
    let body = format!(
        "grant_type=authorization_code&code={code}&redirect_uri={}&code_verifier={VERIFIER}",
        encode(CALLBACK)
    );
    let answer = world.call("/token", "app", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    checked(&world, &answer.json(), Some("the-nonce")).await;
}
