//! The rules of an identity provider and of browser sessions, each with the attack that it answers.

use std::time::Duration;

use auth::token::jws::Signer;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use idp::{ClientConfig, GrantType, SigningAlgorithm};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, query},
    server::open,
    wire::{self, FORM, basic, encode},
    world::{Ask, CALLBACK, PASSWORD, SECRET, VERIFIER, World, challenge, config},
};

fn redemption(code: &str) -> String {
    format!("grant_type=authorization_code&code={code}&redirect_uri={}", encode(CALLBACK))
}

// Codes and refresh tokens: bound to client, redirect, PKCE and session.

#[tokio::test]
async fn a_code_is_bound_to_its_client() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &Ask::new("app")).await;
    world.call("/token", "other", &redemption(&code)).await.assert_error(400, "invalid_grant");
    assert_eq!(world.redeem("app", &code).await.status, 200, "the thief did not use it up");
}

#[tokio::test]
async fn a_code_is_bound_to_its_redirect_uri() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &Ask::new("app")).await;
    for other in ["&redirect_uri=https%3A%2F%2Fapp.example%2Fother", ""] {
        let body = format!("grant_type=authorization_code&code={code}{other}");
        world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
    }
    assert_eq!(world.redeem("app", &code).await.status, 200);
}

#[tokio::test]
async fn a_code_is_bound_to_its_challenge() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &Ask::new("app").pkce()).await;
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
    let code = world.code(&mut world.browser(), &Ask::new("app")).await;
    let body = redemption(&code) + &format!("&code_verifier={VERIFIER}");
    world.call("/token", "app", &body).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn pkce_is_enforced_for_public_clients() {
    let world = World::new().await;
    let native = |ask: Ask| ask.with("redirect_uri", "http://127.0.0.1:51004/cb");
    let mut browser = world.browser();
    let refused = browser.get(&native(Ask::new("native")).target()).await;
    assert_eq!(query(refused.location())["error"], "invalid_request");
    let plain = native(Ask::new("native")).with("code_challenge", &challenge(VERIFIER));
    assert_eq!(query(browser.get(&plain.target()).await.location())["error"], "invalid_request", "not plain");
    let code = world.code(&mut browser, &native(Ask::new("native")).pkce()).await;
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
    let code = world.code(&mut browser, &Ask::new("app")).await;
    let page = browser.get("/account").await;
    browser.submit(&page.form("/account/logout"), &[]).await;
    world.redeem("app", &code).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn a_code_expires_and_is_remembered_longer() {
    let world = World::new().await;
    let mut browser = world.browser();
    let late = world.code(&mut browser, &Ask::new("app")).await;
    world.server.clock.advance(Duration::from_mins(1));
    world.redeem("app", &late).await.assert_error(400, "invalid_grant");
    let code = world.code(&mut browser, &Ask::new("app")).await;
    let tokens = world.redeem("app", &code).await.json();
    world.server.clock.advance(Duration::from_mins(4));
    world.server.provider.store().sweep(world.server.clock.now(), Duration::from_hours(1)).await.unwrap();
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

/// Whoever follows what is revoked takes a token with the session that it names: so it names only one that it ends with.
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

// Redirects, duplicates, request objects.

#[tokio::test]
async fn duplicate_parameters_are_refused() {
    let world = World::new().await;
    let mut browser = world.browser();
    let twice = format!("{}&state=2", Ask::new("app").target());
    let page = browser.get(&twice).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    let body = "grant_type=password&username=ada&username=bob&password=x";
    world.call("/token", "legacy", body).await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn an_unknown_client_is_sent_nowhere() {
    let world = World::new().await;
    let page = world.browser().get(&Ask::new("nobody").target()).await;
    assert_eq!((page.status, page.field("location")), (400, None));
    assert!(page.text().contains("unknown_client"));
}

#[tokio::test]
async fn request_uri_is_refused_unless_it_was_pushed() {
    let world = World::new().await;
    let mut browser = world.browser();
    let foreign = Ask::new("app").with("request_uri", "https://app.example/request.jwt");
    let answer = browser.get(&foreign.target()).await;
    assert_eq!(query(answer.location())["error"], "request_uri_not_supported");
    let made_up = Ask::new("app").with("request_uri", "urn:ietf:params:oauth:request_uri:made-up");
    assert_eq!(browser.get(&made_up.target()).await.status, 400);
}

#[tokio::test]
async fn a_pushed_request_is_its_clients_and_counts_once() {
    let world = World::new().await;
    let pushed = world.call("/par", "pushing", &Ask::new("pushing").query()).await;
    assert_eq!((pushed.status, pushed.field("cache-control")), (201, Some("no-store")), "{}", pushed.text());
    let pushed = pushed.json();
    assert_eq!(pushed["expires_in"], 300);
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    let mut browser = world.browser();
    let plain = browser.get(&Ask::new("pushing").target()).await;
    assert_eq!(query(plain.location())["error"], "invalid_request", "this client must push");
    let stolen = browser.get(&format!("/authorize?client_id=app&request_uri={uri}")).await;
    assert_eq!(stolen.status, 400);
    // what comes along with the reference does not count
    let target = format!("/authorize?client_id=pushing&request_uri={uri}&scope=admin&state=another");
    let answer = browser.get(&target).await;
    let fields = world.walk(&mut browser, answer, &Ask::new("pushing")).await;
    assert_eq!(fields["state"], "the-state");
    assert_eq!(world.redeem("pushing", &fields["code"]).await.status, 200);
    assert_eq!(browser.get(&target).await.status, 400, "answered");
    for bad in ["&request_uri=x", "&redirect_uri=https%3A%2F%2Fevil.example"] {
        let ask = Ask::new("pushing").with("redirect_uri", "").query();
        world.call("/par", "pushing", &format!("{ask}{bad}")).await.assert_error(400, bad_code(bad));
    }
}

fn bad_code(of: &str) -> &'static str {
    if of.contains("request_uri") { "request_uri_not_supported" } else { "invalid_request" }
}

#[tokio::test]
async fn a_pushed_request_expires() {
    let world = World::new().await;
    let pushed = world.call("/par", "pushing", &Ask::new("pushing").query()).await.json();
    let uri = encode(pushed["request_uri"].as_str().unwrap());
    world.server.clock.advance(Duration::from_mins(5));
    let page = world.browser().get(&format!("/authorize?client_id=pushing&request_uri={uri}")).await;
    assert_eq!(page.status, 400);
}

// Revocation and introspection.

#[tokio::test]
async fn a_revoked_token_is_inactive_at_once() {
    let world = World::new().await;
    for client in ["app", "opaque"] {
        let tokens = world.tokens(client, "openid offline_access").await;
        let [access, refresh] = ["access_token", "refresh_token"].map(|n| tokens[n].as_str().unwrap());
        assert!(world.is_active(access).await);
        // another client's token is untouched, and nothing is said of it
        let other = world.call("/revoke", "other", &format!("token={access}")).await;
        assert_eq!((other.status, other.body.len()), (200, 0));
        assert!(world.is_active(access).await);
        assert_eq!(world.call("/revoke", client, &format!("token={access}")).await.status, 200);
        assert!(!world.is_active(access).await, "{client}");
        assert_eq!(world.userinfo(access).await.status, 401);
        // the refresh token goes on, until it is revoked itself
        let refreshed =
            world.call("/token", client, &format!("grant_type=refresh_token&refresh_token={refresh}")).await;
        assert_eq!(refreshed.status, 200);
        let next = refreshed.json();
        let revoke = format!("token={}", next["refresh_token"].as_str().unwrap());
        assert_eq!(world.call("/revoke", client, &revoke).await.status, 200);
        assert!(!world.is_active(next["access_token"].as_str().unwrap()).await, "with what it gave");
    }
    for nonsense in
        ["token=nonsense", "token=ptn_at_x", "token=a.b.c", "token=x&token_type_hint=access_token"]
    {
        assert_eq!(world.call("/revoke", "app", nonsense).await.status, 200, "{nonsense}");
    }
    world.call("/revoke", "app", "").await.assert_error(400, "invalid_request");
    world.call_with("/revoke", &[], "token=x").await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn a_token_that_is_revoked_again_is_not_told_of_again() {
    let world = World::new().await;
    let token = world.tokens("app", "openid").await["access_token"].as_str().unwrap().to_owned();
    let store = world.server.provider.store();
    let before = store.head().await.unwrap().seq;
    for _ in 0..3 {
        assert_eq!(world.call("/revoke", "app", &format!("token={token}")).await.status, 200);
        assert_eq!(store.head().await.unwrap().seq, before + 1);
    }
    assert!(!world.is_active(&token).await);
}

#[tokio::test]
async fn introspection_tells_those_who_may_hear() {
    let world = World::new().await;
    for client in ["app", "opaque"] {
        let tokens = world.tokens(client, "openid read").await;
        let token = tokens["access_token"].as_str().unwrap();
        let told = world.introspect(token).await;
        assert_eq!(told["active"], true);
        assert_eq!(told["sub"], "ada-id");
        assert_eq!(told["username"], "ada");
        assert_eq!((&told["client_id"], &told["scope"]), (&json!(client), &json!("openid read")));
        assert_eq!((&told["iss"], &told["aud"]), (&json!(world.server.issuer), &json!(world.server.issuer)));
        assert!(
            told["exp"].as_u64() > told["iat"].as_u64() && told["jti"].is_string() && told["sid"].is_string()
        );
        assert_eq!(told.get("groups"), None, "nobody granted them");
        let more = world.tokens(client, "openid groups").await;
        let token_with_groups = more["access_token"].as_str().unwrap();
        let groups = world.introspect(token_with_groups).await["groups"].clone();
        assert!(groups.as_array().is_some_and(|groups| !groups.is_empty()), "{groups}");
        // its own client may ask, others hear what everybody hears of nonsense
        let own = world.call("/introspect", client, &format!("token={token}")).await.json();
        assert_eq!(own, told);
        for (asker, asked) in [("other", token), ("gateway", "nonsense"), ("gateway", "ptn_at_short")] {
            let answer = world.call("/introspect", asker, &format!("token={asked}")).await;
            assert_eq!(answer.text(), r#"{"active":false}"#, "{asker}");
        }
        // a refresh token is no access token
        let refresh = tokens["refresh_token"].as_str().unwrap();
        assert_eq!(world.introspect(refresh).await, json!({ "active": false }));
        assert_eq!(world.introspect(tokens["id_token"].as_str().unwrap()).await, json!({ "active": false }));
        world.server.clock.advance(Duration::from_mins(5));
        assert!(!world.is_active(token).await, "expired");
    }
    world.call_with("/introspect", &[], "token=x").await.assert_error(401, "invalid_client");
    let public = world.call_with("/introspect", &[], "token=x&client_id=native").await;
    public.assert_error(403, "unauthorized_client");
}

#[tokio::test]
async fn what_ends_a_person_ends_their_tokens() {
    use store::users::{EndUser, Ending};
    let world = World::new().await;
    let store = world.server.provider.store();
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(PASSWORD));
    let mut tokens = Vec::new();
    for client in ["legacy", "legacy-opaque", "once"] {
        let answer = world.call("/token", client, &body).await.json();
        tokens.push(answer["access_token"].as_str().unwrap().to_owned());
    }
    tokens.push(world.tokens("opaque", "openid").await["access_token"].as_str().unwrap().to_owned());
    for token in &tokens {
        assert!(world.is_active(token).await);
    }
    world.server.clock.advance(Duration::from_secs(1));
    let now = world.server.clock.now();
    let revocation = store::Revocation {
        tags: vec![],
        reason: "disabled",
        reach: store::Reach::SoFar,
        until: now,
        occurrence: None,
    };
    let end =
        EndUser { user_id: "ada-id".into(), ending: Ending::Disabled, revocation, deliver_until: None, now };
    store.write(end).await.unwrap();
    for token in &tokens {
        assert!(!world.is_active(token).await);
    }
    world.call("/token", "legacy", &body).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn endings_of_one_instant_end_what_was_granted_between_them() {
    use store::users::{EndUser, Ending};
    let world = World::new().await;
    let store = world.server.provider.store();
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(PASSWORD));
    let mut given: Vec<String> = Vec::new();
    for round in 0..3 {
        for token in &given {
            assert!(!world.is_active(token).await, "round {round}");
        }
        given.clear();
        for client in ["legacy", "legacy-opaque", "once"] {
            let answer = world.call("/token", client, &body).await.json();
            given.push(answer["access_token"].as_str().unwrap().to_owned());
        }
        given.push(world.tokens("opaque", "openid").await["access_token"].as_str().unwrap().to_owned());
        for token in &given {
            assert!(world.is_active(token).await, "round {round}: it was given out afterwards");
        }
        let now = world.server.clock.now();
        let revocation = store::Revocation {
            tags: vec![],
            reason: "everything ended",
            reach: store::Reach::SoFar,
            until: now,
            occurrence: None,
        };
        let user_id = "ada-id".to_owned();
        let end = EndUser { user_id, ending: Ending::Everything, revocation, deliver_until: None, now };
        store.write(end).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_of_the_second_of_a_password_change_counts() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &Ask::new("app")).await;
    world.server.clock.advance(Duration::from_millis(1_300));
    let page = browser.get("/account").await;
    let new = "a completely different sentence";
    let fields = [("current", PASSWORD), ("new", new), ("again", new)];
    browser.submit(&page.form("/account/password"), &fields).await.location();
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(new));
    let answer = world.call("/token", "once", &body).await.json();
    assert!(world.is_active(answer["access_token"].as_str().unwrap()).await);
}

// Pages: frames, sniffing, referrers, CSRF, escaping.

#[tokio::test]
async fn every_page_is_hardened() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.get(&Ask::new("app").target()).await;
    let fields = [("username", "ada"), ("password", PASSWORD)];
    let consent = browser.submit(&login.form("/login"), &fields).await;
    let account = browser.get("/account").await;
    let logout = browser.get("/logout").await;
    let device = browser.get("/device").await;
    let error = browser.get("/authorize").await;
    for (name, page) in [
        ("login", login),
        ("consent", consent),
        ("account", account),
        ("logout", logout),
        ("device", device),
        ("error", error),
    ] {
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"), "{name}");
        let policy = page.field("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{name}");
        assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{name}: {policy}");
        assert_eq!(page.field("x-frame-options"), Some("DENY"), "{name}");
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"), "{name}");
        assert_eq!(page.field("referrer-policy"), Some("no-referrer"), "{name}");
        assert_eq!(page.field("cache-control"), Some("no-store"), "{name}");
        assert_eq!(page.field("access-control-allow-origin"), None, "{name}");
    }
}

#[tokio::test]
async fn reflections_are_escaped() {
    let world = World::new().await;
    let probe = "\"><script>alert(1)</script>";
    let mut browser = world.browser();
    let page = browser.get(&Ask::new("app").with("login_hint", probe).with("state", probe).target()).await;
    assert!(!page.text().contains("<script>"), "{}", page.text());
    let page = browser.get(&Ask::new(probe).target()).await;
    assert!(!page.text().contains("<script>"));
    let page = browser.get(&format!("/device?user_code={}", encode(probe))).await;
    assert!(!page.text().contains("<script>"));
    let posted =
        Ask::new("app").with("state", probe).with("response_mode", "form_post").with("prompt", "none");
    let page = browser.get(&posted.target()).await;
    assert_eq!(page.text().matches("<script>").count(), 1, "our own: {}", page.text());
    assert_eq!(page.form("/cb").hidden.iter().find(|(n, _)| n == "state").unwrap().1, probe);
}

#[tokio::test]
async fn a_form_of_another_site_does_nothing() {
    let world = World::new().await;
    let mut ada = world.browser();
    world.code(&mut ada, &Ask::new("app")).await;
    // Eve has a page of her own, in her own browser, and makes Ada's browser send its form
    let mut eve = world.browser();
    let page = eve.get(&Ask::new("app").target()).await;
    let form = page.form("/login");
    let answer = ada.submit(&form, &[("username", "bob"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("form_rejected"));
    for path in ["/consent", "/login", "/logout/decision", "/device", "/device/decision", "/account/logout"] {
        let answer = ada.post(path, &[("decision", "allow"), ("csrf", "")]).await;
        assert_eq!(answer.status, 403, "{path}");
    }
    let bare = world.browser().post("/account/logout", &[("csrf", "x")]).await;
    assert_eq!(bare.status, 403, "a browser that was here never");
    assert!(ada.get("/account").await.text().contains("Your account"), "Ada is still logged in");
}

#[tokio::test]
async fn a_flow_is_one_browsers_and_one_pages() {
    let world = World::new().await;
    let (mut ada, mut eve) = (world.browser(), world.browser());
    let page = eve.get(&Ask::new("app").target()).await;
    let stolen = page.form("/login").hidden.iter().find(|(n, _)| n == "flow").unwrap().1.clone();
    let page = ada.get(&Ask::new("app").target()).await;
    let mut form = page.form("/login");
    form.hidden.iter_mut().find(|(n, _)| n == "flow").unwrap().1 = stolen;
    let answer = ada.submit(&form, &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 400, "a flow that another browser began");
    // an old page
    let page = ada.get(&Ask::new("app").target()).await;
    world.server.clock.advance(Duration::from_hours(1));
    let answer = ada.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("expired"));
}

#[tokio::test]
async fn who_asks_for_no_scope_is_asked_about_all_the_same() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &Ask::new("trusted")).await;
    let bare = Ask::new("app").scope("");
    let silent = bare.clone().with("prompt", "none");
    let refused = browser.get(&silent.target()).await;
    assert_eq!(query(refused.location())["error"], "consent_required");
    let page = browser.get(&bare.target()).await;
    let denied = browser.submit(&page.form("/consent"), &[("decision", "deny")]).await;
    assert_eq!(query(denied.location())["error"], "access_denied");
    let code = world.code(&mut browser, &bare).await;
    assert_eq!(world.redeem("app", &code).await.status, 200);
    assert!(browser.get(&silent.target()).await.location().contains("code="), "once is enough");
    let account = browser.get("/account").await;
    assert!(account.text().contains("The app"), "and can be withdrawn");
}

#[tokio::test]
async fn consent_counts_for_the_person_who_was_asked() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.get(&Ask::new("app").scope("openid email").target()).await;
    let consent = browser.submit(&login.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    let asked_ada = consent.form("/consent");
    // in another tab somebody else logs in
    world.server.clock.advance(Duration::from_secs(1));
    let again = browser.get(&Ask::new("other").with("prompt", "login").target()).await;
    browser.submit(&again.form("/login"), &[("username", "bob"), ("password", PASSWORD)]).await;
    let answer = browser.submit(&asked_ada, &[("decision", "allow")]).await;
    assert!(answer.text().contains("bob"), "Bob is asked himself");
    answer.form("/consent");
    let consents = world.server.provider.store().consents_of("bob-id").await.unwrap();
    assert!(consents.is_empty());
}

// Browser sessions.

#[tokio::test]
async fn a_session_cookie_has_its_attributes_and_is_new_at_each_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    let page = browser.get(&Ask::new("trusted").target()).await;
    let set = |answer: &wire::Answer| -> Vec<String> {
        let all = answer.fields.iter().filter(|(n, _)| n == "set-cookie");
        all.map(|(_, v)| v.clone()).collect()
    };
    assert!(set(&page)[0].starts_with("postern_browser="));
    let fields = [("username", "ada"), ("password", PASSWORD)];
    // whatever somebody put there before is not the session afterwards
    browser.cookies.insert("postern_session".into(), "ptn_ss_planted".into());
    let answer = browser.submit(&page.form("/login"), &fields).await;
    let first = set(&answer).into_iter().find(|c| c.starts_with("postern_session=")).unwrap();
    assert!(first.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{first}");
    assert!(!first.contains("planted"));
    let old = browser.cookies.clone();
    world.server.clock.advance(Duration::from_secs(1));
    let page = browser.get(&Ask::new("trusted").with("prompt", "login").target()).await;
    browser.submit(&page.form("/login"), &fields).await;
    assert_ne!(browser.cookies["postern_session"], old["postern_session"]);
    let mut thief = Browser { cookies: old, ..world.browser() };
    assert!(
        thief.get("/account").await.text().contains("name=\"password\""),
        "the old cookie is worth nothing"
    );
}

#[tokio::test]
async fn over_tls_cookies_are_bound_to_the_host() {
    let world = World::with(|_| config("https://login.example.com")).await;
    let mut browser = world.browser();
    let page = browser.get(&Ask::new("trusted").target()).await;
    let cookie = page.field("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-postern_browser="), "{cookie}");
    assert!(cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    let answer = browser.submit(&page.form("/login"), &[("username", "ada"), ("password", PASSWORD)]).await;
    let cookie = answer.field("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-postern_session=ptn_ss_"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(answer.location().starts_with(CALLBACK));
    let page = browser.get("/account").await;
    let bye = browser.submit(&page.form("/account/logout"), &[]).await;
    let gone = bye.field("set-cookie").unwrap();
    assert_eq!(gone, "__Host-postern_session=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0");
}

#[tokio::test]
async fn a_session_that_rests_or_lasts_too_long_is_over() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &Ask::new("trusted")).await;
    for _ in 0..5 {
        world.server.clock.advance(Duration::from_mins(119));
        assert!(browser.get("/account").await.text().contains("Your account"), "used now and then");
    }
    world.server.clock.advance(Duration::from_hours(2));
    assert!(browser.get("/account").await.text().contains("name=\"password\""), "rested for too long");
    world.code(&mut browser, &Ask::new("trusted").with("prompt", "")).await;
    for _ in 0..7 {
        world.server.clock.advance(Duration::from_mins(110));
        browser.get("/account").await;
    }
    assert!(browser.get("/account").await.text().contains("name=\"password\""), "twelve hours are the end");
}

// Clients that prove themselves by a key.

#[tokio::test]
async fn private_key_jwt_proves_a_client_once() {
    let key = Signer::generate(SigningAlgorithm::Es256).unwrap();
    let other = Signer::generate(SigningAlgorithm::Es256).unwrap();
    let jwks = json!({ "keys": [key.public_jwk()] });
    let world = World::with(move |issuer| {
        let mut config = config(issuer);
        config.clients.push(ClientConfig {
            id: "keyed".into(),
            keys: Some(jwks.clone()),
            grants: vec![GrantType::ClientCredentials],
            audiences: vec!["https://api.example.com".into()],
            ..ClientConfig::default()
        });
        config
    })
    .await;
    let now = world.server.clock.now().as_secs();
    let issuer = world.server.issuer.clone();
    let good = json!({ "iss": "keyed", "sub": "keyed", "aud": issuer, "exp": now + 60, "jti": "1" });
    let ask = |signer: &Signer, claims: &Value| {
        let assertion = signer.sign(&[("typ", "JWT")], claims).unwrap();
        let body = format!(
            "grant_type=client_credentials&client_assertion_type={}&client_assertion={assertion}",
            encode("urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
        );
        let world = &world;
        async move { world.call_with("/token", &[], &body).await }
    };
    let answer = ask(&key, &good).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    ask(&key, &good).await.assert_error(401, "invalid_client");
    for (name, value) in [
        ("jti", Value::Null),
        ("jti", json!("")),
        ("aud", json!("https://somebody.example")),
        ("aud", json!([])),
        ("exp", json!(now - 31)),
        ("exp", json!(now + 7200)),
        ("exp", json!("soon")),
        ("nbf", json!(now + 600)),
        ("sub", json!("app")),
        ("iss", json!("app")),
    ] {
        let mut claims = good.clone();
        claims["jti"] = json!(format!("{name}{value}"));
        claims[name] = value.clone();
        let answer = ask(&key, &claims).await;
        assert_eq!(answer.status, 401, "{name} {value}");
    }
    let mut fresh = good.clone();
    fresh["jti"] = json!("fresh");
    ask(&other, &fresh).await.assert_error(401, "invalid_client");
    fresh["aud"] = json!([format!("{issuer}/token")]);
    assert_eq!(ask(&key, &fresh).await.status, 200, "the endpoint's address will do");
    // a client with a secret cannot be spoken for by a key
    let forged = json!({ "iss": "app", "sub": "app", "aud": issuer, "exp": now + 60, "jti": "f" });
    ask(&key, &forged).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn what_no_client_can_be_called_is_nobody_on_both_databases() {
    let world = World::new().await;
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let token =
        format!("{}.{}.AA", part(json!({ "alg": "ES256" })), part(json!({ "iss": "\u{0}", "sub": "\u{0}" })));
    let kind = encode("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let body = format!("grant_type=client_credentials&client_assertion_type={kind}&client_assertion={token}");
    world.call_with("/token", &[], &body).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn a_client_with_a_secret_is_nobody_without_it() {
    let world = World::new().await;
    let code = world.code(&mut world.browser(), &Ask::new("app")).await;
    let body = redemption(&code) + "&client_id=app";
    world
        .call_with("/token", &[("Content-Type", FORM)][..0], &body)
        .await
        .assert_error(401, "invalid_client");
    let wrong = basic("app", &format!("{SECRET}x"));
    world
        .call_with("/token", &[("Authorization", &wrong)], &redemption(&code))
        .await
        .assert_error(401, "invalid_client");
    let public = basic("native", "anything");
    world
        .call_with("/token", &[("Authorization", &public)], "grant_type=refresh_token")
        .await
        .assert_error(401, "invalid_client");
}

// Signed userinfo, and what a token without openid hears.

#[tokio::test]
async fn userinfo_is_for_tokens_with_openid() {
    let world = World::new().await;
    let body = format!("grant_type=password&username=ada&password={}&scope=email", encode(PASSWORD));
    let token = world.call("/token", "legacy", &body).await.json();
    let answer = world.userinfo(token["access_token"].as_str().unwrap()).await;
    assert_eq!(answer.status, 403);
    assert!(answer.field("www-authenticate").unwrap().contains("error=\"insufficient_scope\""));
    let none = world.server.get("/userinfo").await;
    assert_eq!(none.status, 401);
    assert_eq!(none.field("www-authenticate"), Some(&*format!("Bearer realm=\"{}\"", world.server.issuer)));
    let in_url = world.server.get("/userinfo?access_token=x").await;
    assert_eq!(in_url.status, 401, "never in the URL");
}

#[tokio::test]
async fn userinfo_can_be_signed() {
    let world = World::with(|issuer| {
        let mut config = config(issuer);
        config.clients[0].userinfo_algorithm = Some(SigningAlgorithm::Es256);
        config
    })
    .await;
    let tokens = world.tokens("app", "openid email").await;
    let answer = world.userinfo(tokens["access_token"].as_str().unwrap()).await;
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/jwt")));
    let (header, claims) = open(answer.text());
    assert_eq!(header["alg"], "ES256");
    assert_eq!((&claims["aud"], &claims["email"]), (&json!("app"), &json!("ada@example.com")));
    assert_eq!(claims["iss"], world.server.issuer.as_str());
}

// The database is gone.

#[tokio::test]
async fn without_the_database_everything_is_503_and_nothing_is_believed() {
    let world = World::new().await;
    let tokens = world.tokens("opaque", "openid offline_access").await;
    let [access, refresh] = ["access_token", "refresh_token"].map(|n| tokens[n].as_str().unwrap().to_owned());
    let mut browser = world.browser();
    let page = browser.get(&Ask::new("app").target()).await;
    let login = page.form("/login");
    world.server.provider.store().close().await;
    let refresh = format!("grant_type=refresh_token&refresh_token={refresh}");
    let password = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    for (path, client, body) in [
        ("/token", "opaque", refresh),
        ("/token", "legacy", password),
        ("/introspect", "gateway", format!("token={access}")),
        ("/revoke", "opaque", format!("token={access}")),
        ("/par", "app", Ask::new("app").query()),
    ] {
        let answer = world.call(path, client, &body).await;
        answer.assert_error(503, "temporarily_unavailable");
        assert_eq!(answer.field("retry-after"), Some("1"), "{path}");
    }
    world.userinfo(&access).await.assert_error(503, "temporarily_unavailable");
    let page = browser.submit(&login, &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!((page.status, page.field("retry-after")), (503, Some("1")));
    assert!(page.text().contains("Not available right now"), "{}", page.text());
    browser.cookies.insert("postern_session".into(), session_cookie());
    assert_eq!(
        browser.get("/account").await.status,
        503,
        "never a login page for somebody who may be logged in"
    );
    // what needs no facts goes on
    assert_eq!(world.server.get("/jwks").await.status, 200);
}

/// A cookie that has the form of a session's.
fn session_cookie() -> String {
    auth::token::opaque::mint(auth::token::opaque::Kind::Session, &[7; 32]).to_string()
}

// Signed introspection.

#[tokio::test]
async fn introspection_can_be_signed() {
    let world = World::new().await;
    let tokens = world.tokens("opaque", "openid read").await;
    let token = tokens["access_token"].as_str().unwrap();
    let asker = basic("gateway", SECRET);
    let fields = [("Authorization", &*asker), ("Accept", "application/token-introspection+jwt")];
    let plain = world.introspect(token).await;
    for (token, said) in [(token, &plain), ("nonsense", &json!({ "active": false }))] {
        let answer = world.call_with("/introspect", &fields, &format!("token={}", encode(token))).await;
        assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")));
        assert_eq!(answer.field("content-type"), Some("application/token-introspection+jwt"));
        let (header, claims) = open(answer.text());
        assert_eq!((&header["typ"], &header["alg"]), (&json!("token-introspection+jwt"), &json!("ES256")));
        let now = world.server.clock.now().as_secs();
        let issuer = world.server.issuer.as_str();
        let whole = json!({ "iss": issuer, "aud": "gateway", "iat": now, "token_introspection": said });
        assert_eq!(claims, whole, "and neither sub nor exp");
        assert_eq!(answer.field("postern-revocable").is_some(), said["active"] == true);
        // whoever takes it for an access token is wrong
        assert_eq!(world.introspect(answer.text()).await, json!({ "active": false }));
        assert_eq!(world.userinfo(answer.text()).await.status, 401);
    }
    let refused = world.call_with("/introspect", &fields[1..], "token=x").await;
    refused.assert_error(401, "invalid_client");
}

// Keys.

#[tokio::test]
async fn a_token_of_a_revoked_key_is_inactive_however_often_it_was_good() {
    let world = World::new().await;
    let tokens = world.tokens("app", "openid").await;
    let token = tokens["access_token"].as_str().unwrap();
    for _ in 0..3 {
        assert!(world.is_active(token).await);
    }
    let (header, _) = open(token);
    world.server.provider.revoke_key(header["kid"].as_str().unwrap()).await.unwrap();
    assert!(!world.is_active(token).await);
    assert_eq!(world.userinfo(token).await.status, 401);
    let next = world.tokens("app", "openid").await;
    assert!(world.is_active(next["access_token"].as_str().unwrap()).await);
}

/// Some libraries send the id of a public client as Basic credentials with an empty secret.
#[tokio::test]
async fn an_empty_secret_is_none() {
    let world = World::new().await;
    let refused = |client: &'static str| {
        let authorization = basic(client, "");
        let world = &world;
        async move {
            let body = "grant_type=refresh_token&refresh_token=nonsense";
            world.call_with("/token", &[("Authorization", &authorization)], body).await
        }
    };
    refused("native").await.assert_error(400, "invalid_grant");
    refused("tv").await.assert_error(400, "invalid_grant");
    refused("app").await.assert_error(401, "invalid_client");
}
