//! Pairwise subjects (OpenID Connect Core 1.0 §8): what a client receives for a user, and that
//! everything else works as with public ones.

use idp::{ClientConfig, Config, SubjectType, TokenFormat};
use serde_json::{Value, json};

use crate::server::decode_unverified;
use crate::world::{TestAuthorizationRequest, World, app, config};

fn with_pairwise(issuer: &str) -> Config {
    let pairwise = |id: &str, sector: Option<&str>| ClientConfig {
        subject: SubjectType::Pairwise,
        sector: sector.map(str::to_owned),
        ..app(id)
    };
    let mut config = config(issuer);
    config.clients.extend([
        pairwise("shop", None),
        pairwise("shop-mobile", Some("app.example")),
        pairwise("bank", Some("bank.example")),
        ClientConfig { access_token: TokenFormat::Opaque, ..pairwise("bank-opaque", Some("bank.example")) },
    ]);
    config
}

fn claims(tokens: &Value, kind: &str) -> Value {
    decode_unverified(tokens[kind].as_str().unwrap()).1
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_else(|| panic!("{member} in {value}"))
}

#[tokio::test]
async fn a_user_is_the_same_within_a_sector_and_another_one_elsewhere() {
    let world = World::with(with_pairwise).await;
    let mut subjects = Vec::new();
    for client in ["shop", "shop-mobile", "bank", "app"] {
        let tokens = world.tokens(client, "openid").await;
        let (id, access) = (claims(&tokens, "id_token"), claims(&tokens, "access_token"));
        let userinfo = world.userinfo(text(&tokens, "access_token")).await.json();
        let seen = world.introspect(text(&tokens, "access_token")).await;
        let sub = text(&id, "sub").to_owned();
        assert_eq!((text(&access, "sub"), text(&userinfo, "sub"), text(&seen, "sub")), (&*sub, &*sub, &*sub));
        assert_eq!((text(&id, "sid"), text(&id, "sid")), (text(&access, "sid"), text(&seen, "sid")));
        let public = client == "app";
        assert_eq!(sub == world.ada.id, public, "{client}");
        assert_eq!(access.get("revocation_tags").is_none(), public, "{client}");
        assert_eq!(seen.get("username").is_some(), public, "{client}: a name shows who it is");
        for claims in [&id, &access, &userinfo, &seen] {
            assert!(public || !claims.to_string().contains(&world.ada.id), "{client}: {claims}");
        }
        subjects.push(sub);
    }
    assert_eq!(subjects[0], subjects[1], "the host of the redirect URIs is the sector");
    assert_ne!(subjects[0], subjects[2]);
}

#[tokio::test]
async fn sessions_are_not_the_same_in_two_sectors() {
    let world = World::with(with_pairwise).await;
    let mut browser = world.browser();
    let mut sids = Vec::new();
    for client in ["shop", "bank"] {
        let ask = TestAuthorizationRequest::new(client);
        let code = world.code(&mut browser, &ask).await;
        let tokens = world.redeem(client, &code).await.json();
        sids.push(text(&claims(&tokens, "id_token"), "sid").to_owned());
    }
    assert_ne!(sids[0], sids[1], "of one session");
}

#[tokio::test]
async fn an_opaque_token_has_the_subject_of_its_client() {
    let world = World::with(with_pairwise).await;
    let (jwt, opaque) = (world.tokens("bank", "openid").await, world.tokens("bank-opaque", "openid").await);
    let token = text(&opaque, "access_token");
    let seen = world.introspect(token).await;
    assert_eq!(text(&seen, "sub"), text(&claims(&jwt, "id_token"), "sub"));
    assert_eq!(text(&seen, "sid"), text(&claims(&opaque, "id_token"), "sid"));
    assert_eq!(text(&world.userinfo(token).await.json(), "sub"), text(&seen, "sub"));
}

#[tokio::test]
async fn tokens_are_refreshed_and_revoked_as_any() {
    let world = World::with(with_pairwise).await;
    let first = world.tokens("shop", "openid offline_access").await;
    let body = format!("grant_type=refresh_token&refresh_token={}", text(&first, "refresh_token"));
    let second = world.call("/token", "shop", &body).await.json();
    assert_eq!(claims(&first, "id_token")["sub"], claims(&second, "id_token")["sub"]);
    let token = text(&second, "access_token");
    assert!(world.is_active(token).await);
    let provider = &world.server.provider;
    let admin = idp::admin::Admin::new(provider, "test");
    admin.end_user(&world.ada.id).await.unwrap();
    assert!(!world.is_active(token).await, "the user was signed out everywhere");
}

#[tokio::test]
async fn a_hint_and_a_requested_subject_are_those_of_the_client() {
    let world = World::with(with_pairwise).await;
    let mut browser = world.browser();
    let code = world.code(&mut browser, &TestAuthorizationRequest::new("shop")).await;
    let tokens = world.redeem("shop", &code).await.json();
    let sub = text(&claims(&tokens, "id_token"), "sub").to_owned();
    let silent = TestAuthorizationRequest::new("shop").with("prompt", "none");
    let asks = |subject: &str| {
        silent.clone().with("claims", &json!({ "id_token": { "sub": { "value": subject } } }).to_string())
    };
    let hinted = silent.clone().with("id_token_hint", text(&tokens, "id_token"));
    for ask in [&hinted, &asks(&sub)] {
        let answer = browser.get(&ask.target()).await;
        let fields = world.walk(&mut browser, answer, ask).await;
        assert!(fields.contains_key("code"), "{fields:?}");
    }
    let other = asks(&world.ada.id);
    let answer = browser.get(&other.target()).await;
    let fields = world.walk(&mut browser, answer, &other).await;
    assert_eq!(fields.get("error").map(String::as_str), Some("login_required"), "the id of the account");

    // The ID token also signs out without a question.
    let away = format!("/logout?id_token_hint={}", text(&tokens, "id_token"));
    let page = browser.get(&away).await;
    assert!(!page.text().contains("/logout/decision"), "{}", page.text());
    assert!(!world.is_active(text(&tokens, "access_token")).await);
    // The client hears of it by its own names of user and session.
    let posts = world.posts_received(1).await;
    let body = posts[0].1.clone();
    let told = decode_unverified(body.trim_start_matches("logout_token=")).1;
    assert_eq!((text(&told, "sub"), &told["sid"]), (&*sub, &claims(&tokens, "id_token")["sid"]));
}

#[tokio::test]
async fn a_sector_is_determined_or_demanded() {
    let check = |change: fn(&mut ClientConfig)| {
        let mut client = ClientConfig { subject: SubjectType::Pairwise, ..app("shop") };
        change(&mut client);
        let config = Config { clients: vec![client], ..Config::new("https://login.example.com") };
        config.check().map(drop).map_err(|faults| faults.to_string())
    };
    assert_eq!(check(|_| {}), Ok(()));
    assert_eq!(check(|client| client.sector = Some("shop.example".into())), Ok(()));
    let several = check(|client| client.redirect_uris.push("https://other.example/cb".into()));
    assert!(several.unwrap_err().starts_with("clients[0].sector: pairwise subjects need a sector"));
    let app_scheme = check(|client| client.redirect_uris = vec!["com.example.shop:/cb".into()]);
    assert!(app_scheme.unwrap_err().contains("need a sector"));
    let malformed = check(|client| client.sector = Some("https://shop.example/".into()));
    assert!(malformed.unwrap_err().contains("malformed sector"));
    let public = check(|client| {
        client.subject = SubjectType::Public;
        client.sector = Some("shop.example".into());
    });
    assert!(public.unwrap_err().contains("applies to pairwise subjects only"));
}
