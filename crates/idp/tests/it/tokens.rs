//! Token status: revocation, introspection, userinfo, and the effect of a user's or key's end.

use std::time::Duration;

use coherence::tags::TagSubject;
use idp::{ClientConfig, Config, GrantType, Introspects, SigningAlgorithm, TokenFormat};
use serde_json::json;

use crate::{
    server::decode_unverified,
    wire::{basic, encode},
    world::{PASSWORD, SECRET, TestAuthorizationRequest, World, app, config},
};

#[tokio::test]
async fn a_revoked_token_is_inactive_at_once() {
    let world = World::new().await;
    for client in ["app", "opaque"] {
        let tokens = world.tokens(client, "openid offline_access").await;
        let [access, refresh] = ["access_token", "refresh_token"].map(|n| tokens[n].as_str().unwrap());
        assert!(world.is_active(access).await);
        // Another client cannot revoke the token, and the response does not disclose that.
        let other = world.call("/revoke", "other", &format!("token={access}")).await;
        assert_eq!((other.status, other.body.len()), (200, 0));
        assert!(world.is_active(access).await);
        assert_eq!(world.call("/revoke", client, &format!("token={access}")).await.status, 200);
        assert!(!world.is_active(access).await, "{client}");
        assert_eq!(world.userinfo(access).await.status, 401);
        // The refresh token remains valid until it is revoked itself.
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

/// Spring Security's default accepts no other `typ`.
#[tokio::test]
async fn access_tokens_of_a_client_may_have_the_typ_of_all_jwts() {
    let world = World::new().await;
    for (client, typ) in [("app", "at+jwt"), ("spring", "JWT")] {
        let tokens = world.tokens(client, "openid offline_access").await;
        let [access, id] = ["access_token", "id_token"].map(|n| tokens[n].as_str().unwrap());
        assert_eq!(decode_unverified(access).0["typ"], typ);
        assert!(world.is_active(access).await, "{client}");
        assert_eq!(world.userinfo(access).await.status, 200);
        // An ID token, whose `typ` is the same, is still no access token, nor the reverse.
        assert_eq!(decode_unverified(id).0["typ"], "JWT");
        assert!(!world.is_active(id).await);
        assert_eq!(world.userinfo(id).await.status, 401);
        assert_eq!(world.call("/revoke", client, &format!("token={access}")).await.status, 200);
        assert!(!world.is_active(access).await, "{client}");
    }
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

/// A gateway may keep an exchange open after the token expired; a revocation must end that too.
#[tokio::test]
async fn a_token_that_has_expired_is_told_of_all_the_same() {
    let world = World::new().await;
    let store = world.server.provider.store();
    for client in ["app", "opaque"] {
        let tokens = world.tokens(client, "openid").await;
        let token = tokens["access_token"].as_str().unwrap();
        let jti = world.introspect(token).await["jti"].as_str().unwrap().to_owned();
        world.server.clock.advance(Duration::from_mins(10));
        assert!(!world.is_active(token).await);
        let before = store.head().await.unwrap().seq;
        // Another client cannot revoke it; a second revocation is not announced.
        for (asker, told) in [("other", 0), (client, 1), (client, 1)] {
            let answer = world.call("/revoke", asker, &format!("token={token}")).await;
            assert_eq!(answer.status, 200);
            assert_eq!(store.head().await.unwrap().seq, before + told, "{client} by {asker}");
        }
        let event = store.events(before, 10).await.unwrap().remove(0);
        assert_eq!(event.tags, [world.server.provider.secrets().tag(TagSubject::Token(&jti))]);
        assert!(event.until >= world.server.clock.now(), "long enough for those who follow to hear of it");
    }
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
        // The token's own client may introspect it; others get the same response as for an unknown
        // token.
        let own = world.call("/introspect", client, &format!("token={token}")).await.json();
        assert_eq!(own, told);
        for (asker, asked) in [("other", token), ("gateway", "nonsense"), ("gateway", "ptn_at_short")] {
            let answer = world.call("/introspect", asker, &format!("token={asked}")).await;
            assert_eq!(answer.text(), r#"{"active":false}"#, "{asker}");
        }
        // A refresh token is not an access token.
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

/// A client that introspects by audience sees tokens for its audience and no others.
#[tokio::test]
async fn introspection_of_an_audience_tells_of_no_other() {
    let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let machine = |id: &str, audiences: &[&str], introspects| ClientConfig {
        grants: vec![GrantType::ClientCredentials],
        audiences: owned(audiences),
        introspects,
        redirect_uris: vec![],
        ..app(id)
    };
    let world = World::with(|issuer| {
        let base = config(issuer);
        let sender = machine("sender", &["reports", "invoices", "other-api", "api"], Introspects::Own);
        let clients = [
            sender.clone(),
            ClientConfig { access_token: TokenFormat::Opaque, id: "opaque-sender".into(), ..sender },
            machine("api", &["reports", "invoices"], Introspects::Audience),
            machine("own", &["reports", "invoices"], Introspects::Own),
        ];
        Config {
            audiences: owned(&["https://api.example.com", "reports", "invoices", "other-api", "api"]),
            clients: base.clients.iter().cloned().chain(clients).collect(),
            ..base
        }
    })
    .await;
    let unknown = r#"{"active":false}"#;
    let ask = async |client: &str, token: &str| {
        let answer = world.call("/introspect", client, &format!("token={token}")).await;
        answer.text().to_owned()
    };
    for sender in ["sender", "opaque-sender"] {
        for (named, told) in [
            ("audience=reports", true),
            ("audience=invoices", true),
            ("audience=api", true),
            ("audience=other-api&audience=reports", true),
            ("audience=other-api", false),
        ] {
            let body = format!("grant_type=client_credentials&{named}");
            let answer = world.call("/token", sender, &body).await.json();
            let token = answer["access_token"].as_str().unwrap();
            let heard = ask("api", token).await;
            assert_eq!(heard != unknown, told, "{sender} {named}: {heard}");
            assert_eq!(ask("own", token).await, unknown, "{named}");
            assert_ne!(ask(sender, token).await, unknown, "its own");
            assert_ne!(ask("gateway", token).await, unknown, "one that may ask about all");
        }
    }
    // Access tokens for the provider itself and refresh tokens are not visible to it.
    let tokens = world.tokens("app", "openid").await;
    for name in ["access_token", "refresh_token"] {
        assert_eq!(ask("api", tokens[name].as_str().unwrap()).await, unknown, "{name}");
    }
    let own = world.call("/token", "api", "grant_type=client_credentials").await.json();
    assert_ne!(ask("api", own["access_token"].as_str().unwrap()).await, unknown);
}

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
        let (header, claims) = decode_unverified(answer.text());
        assert_eq!((&header["typ"], &header["alg"]), (&json!("token-introspection+jwt"), &json!("ES256")));
        let now = world.server.clock.now().as_secs();
        let issuer = world.server.issuer.as_str();
        let whole = json!({ "iss": issuer, "aud": "gateway", "iat": now, "token_introspection": said });
        assert_eq!(claims, whole, "and neither sub nor exp");
        assert_eq!(answer.field("postern-revocable").is_some(), said["active"] == true);
        // A signed response is not accepted as an access token.
        assert_eq!(world.introspect(answer.text()).await, json!({ "active": false }));
        assert_eq!(world.userinfo(answer.text()).await.status, 401);
    }
    let refused = world.call_with("/introspect", &fields[1..], "token=x").await;
    refused.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn what_ends_a_person_ends_their_tokens() {
    use store::users::{RevokeUser, UserRevocation};
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
        reach: store::RevocationReach::UntilDurable,
        until: now,
        occurrence: None,
    };
    let end = RevokeUser {
        user_id: "ada-id".into(),
        account_change: UserRevocation::Disabled,
        revocation,
        deliver_until: None,
        now,
    };
    store.write(end).await.unwrap();
    for token in &tokens {
        assert!(!world.is_active(token).await);
    }
    world.call("/token", "legacy", &body).await.assert_error(400, "invalid_grant");
}

#[tokio::test]
async fn endings_of_one_instant_end_what_was_granted_between_them() {
    use store::users::{RevokeUser, UserRevocation};
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
            reach: store::RevocationReach::UntilDurable,
            until: now,
            occurrence: None,
        };
        let user_id = "ada-id".to_owned();
        let end = RevokeUser {
            user_id,
            account_change: UserRevocation::Everything,
            revocation,
            deliver_until: None,
            now,
        };
        store.write(end).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_of_the_second_of_a_password_change_counts() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.code(&mut browser, &TestAuthorizationRequest::new("app")).await;
    world.server.clock.advance(Duration::from_millis(1_300));
    let page = browser.get("/account").await;
    let new = "a completely different sentence";
    let fields = [("current", PASSWORD), ("new", new), ("again", new)];
    browser.submit(&page.form("/account/password"), &fields).await.location();
    let body = format!("grant_type=password&username=ada&password={}&scope=openid", encode(new));
    let answer = world.call("/token", "once", &body).await.json();
    assert!(world.is_active(answer["access_token"].as_str().unwrap()).await);
}

#[tokio::test]
async fn a_token_of_a_revoked_key_is_inactive_however_often_it_was_good() {
    let world = World::new().await;
    let tokens = world.tokens("app", "openid").await;
    let token = tokens["access_token"].as_str().unwrap();
    for _ in 0..3 {
        assert!(world.is_active(token).await);
    }
    let (header, _) = decode_unverified(token);
    world.server.provider.revoke_key(header["kid"].as_str().unwrap()).await.unwrap();
    assert!(!world.is_active(token).await);
    assert_eq!(world.userinfo(token).await.status, 401);
    let next = world.tokens("app", "openid").await;
    assert!(world.is_active(next["access_token"].as_str().unwrap()).await);
}

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
    let (header, claims) = decode_unverified(answer.text());
    assert_eq!(header["alg"], "ES256");
    assert_eq!((&claims["aud"], &claims["email"]), (&json!("app"), &json!("ada@example.com")));
    assert_eq!(claims["iss"], world.server.issuer.as_str());
}

/// `read_at` is only in ID tokens of clients that request it; the request covers all later tokens.
#[tokio::test]
async fn an_id_token_tells_the_time_of_the_log_to_those_who_ask() {
    let world = World::new().await;
    let metadata = world.browser().get("/.well-known/openid-configuration").await.json();
    assert!(metadata["claims_supported"].as_array().unwrap().contains(&json!("read_at")));
    let (_, plain) =
        decode_unverified(world.tokens("app", "openid profile").await["id_token"].as_str().unwrap());
    assert_eq!(plain.get("read_at"), None);
    for (claims, told) in
        [(r#"{"id_token":{"read_at":null}}"#, true), (r#"{"userinfo":{"read_at":null}}"#, false)]
    {
        let mut browser = world.browser();
        let code =
            world.code(&mut browser, &TestAuthorizationRequest::new("app").with("claims", claims)).await;
        let first = world.redeem("app", &code).await.json();
        let body =
            format!("grant_type=refresh_token&refresh_token={}", first["refresh_token"].as_str().unwrap());
        let second = world.call("/token", "app", &body).await.json();
        for tokens in [&first, &second] {
            let (_, claims) = decode_unverified(tokens["id_token"].as_str().unwrap());
            assert_eq!(claims["read_at"].is_u64(), told, "{claims}");
            let (_, access) = decode_unverified(tokens["access_token"].as_str().unwrap());
            assert!(access["read_at"].is_u64(), "as ever");
        }
        let said = world.userinfo(first["access_token"].as_str().unwrap()).await.json();
        assert_eq!(said.get("read_at"), None, "it is nothing about the person");
    }
}
