//! Attributes of users and claims from them: in tokens, responses and discovery, and on the account
//! page.

use idp::attributes::{Attribute, AttributeType, UserAccess};
use idp::claim_mapping::ClaimMapping;
use idp::{ClientConfig, Config, TokenFormat};
use serde_json::{Value, json};
use store::audit::AuditRecord;

use crate::server::decode_unverified;
use crate::world::{TestAuthorizationRequest, World, app, config};

fn mappings(text: Value) -> Vec<ClaimMapping> {
    serde_json::from_value(text).unwrap()
}

/// A provider with attributes, a claim for all clients, and clients with claims of their own.
fn with_attributes(issuer: &str) -> Config {
    let attribute =
        |name: &str, kind, user| Attribute { name: name.into(), kind, user, ..Attribute::default() };
    let mut scopes = app("app").scopes;
    scopes.push("hr".into());
    let own = mappings(json!([
        { "claim": ["realm_access", "roles"], "groups": [
            { "group": "staff", "value": "editor" }, { "group": "admins", "value": "admin" },
        ], "multiple": true },
        { "claim": "floor", "attribute": "floor", "scopes": ["hr"], "tokens": ["id", "userinfo"] },
    ]));
    let grafana = ClientConfig { scopes, claims: own, ..app("grafana") };
    let mut config = Config {
        attributes: vec![
            attribute("department", AttributeType::String, UserAccess::View),
            attribute("floor", AttributeType::Integer, UserAccess::Edit),
            attribute("topics", AttributeType::StringList, UserAccess::Edit),
            attribute("salary", AttributeType::Integer, UserAccess::None),
        ],
        claims: mappings(
            json!([{ "claim": "department", "attribute": "department", "scopes": ["profile", "hr"] }]),
        ),
        ..config(issuer)
    };
    let opaque =
        ClientConfig { id: "grafana-opaque".into(), access_token: TokenFormat::Opaque, ..grafana.clone() };
    config.clients.extend([grafana, opaque]);
    config
}

async fn world() -> World {
    let world = World::with(with_attributes).await;
    record(&world, json!({ "name": "Ada", "department": "R&D", "floor": 7, "salary": 1, "unknown": true }))
        .await;
    world
}

async fn record(world: &World, claims: Value) {
    let store = world.server.provider.store();
    let user = store.user(&world.ada.id).await.unwrap().unwrap();
    let now = world.server.clock.now();
    let change = store::users::ChangeUser {
        name: user.name.clone(),
        email: user.email.clone(),
        email_verified_at: user.email_verified_at,
        claims: claims.to_string(),
        revocation: store::Revocation {
            tags: Vec::new(),
            reason: "test",
            reach: store::RevocationReach::STALE_ONLY,
            until: now,
            occurrence: None,
        },
        now,
        from: user,
    };
    assert!(store.write(change).await.unwrap());
}

fn claims_of(tokens: &Value, kind: &str) -> Value {
    decode_unverified(tokens[kind].as_str().unwrap()).1
}

#[tokio::test]
async fn a_claim_is_in_the_tokens_of_its_clients_and_scopes() {
    let world = world().await;
    let tokens = world.tokens("grafana", "openid hr").await;
    let (access, id) = (claims_of(&tokens, "access_token"), claims_of(&tokens, "id_token"));
    assert_eq!(access["department"], "R&D");
    assert_eq!(access["realm_access"], json!({ "roles": ["editor"] }));
    assert_eq!(access.get("floor"), None, "not for access tokens");
    assert_eq!((&id["department"], &id["floor"]), (&json!("R&D"), &json!(7)));
    let token = tokens["access_token"].as_str().unwrap();
    let userinfo = world.userinfo(token).await.json();
    assert_eq!((&userinfo["floor"], &userinfo["realm_access"]["roles"]), (&json!(7), &json!(["editor"])));
    for hidden in ["salary", "unknown", "topics"] {
        assert!([&access, &id, &userinfo].iter().all(|claims| claims.get(hidden).is_none()), "{hidden}");
    }

    let without = world.tokens("grafana", "openid").await;
    let id = claims_of(&without, "id_token");
    assert!(id.get("department").is_none() && id.get("floor").is_none(), "{id}");
    assert_eq!(id["realm_access"], json!({ "roles": ["editor"] }), "needs no scope");
    let other = claims_of(&world.tokens("app", "openid profile").await, "access_token");
    assert_eq!((&other["department"], other.get("realm_access")), (&json!("R&D"), None));
}

#[tokio::test]
async fn an_introspection_has_the_claims_of_access_tokens() {
    let world = world().await;
    for client in ["grafana", "grafana-opaque"] {
        let tokens = world.tokens(client, "openid hr groups").await;
        let seen = world.introspect(tokens["access_token"].as_str().unwrap()).await;
        assert_eq!(seen["department"], "R&D", "{client}: {seen}");
        assert_eq!(seen["realm_access"], json!({ "roles": ["editor"] }), "{client}");
        assert_eq!(seen["groups"], json!(["staff"]), "{client}");
        assert!(seen.get("floor").is_none() && seen.get("name").is_none(), "{client}: {seen}");
    }
    let plain = world.tokens("app", "openid").await;
    let seen = world.introspect(plain["access_token"].as_str().unwrap()).await;
    assert!(seen.get("department").is_none() && seen.get("realm_access").is_none(), "{seen}");
}

#[tokio::test]
async fn discovery_lists_what_is_for_all_clients() {
    let world = world().await;
    let document = world.server.get("/.well-known/openid-configuration").await.json();
    let lists = |member: &str, name: &str| {
        document[member].as_array().unwrap().iter().filter(|entry| *entry == name).count()
    };
    assert_eq!(lists("claims_supported", "department"), 1);
    assert_eq!(lists("claims_supported", "floor"), 0, "a client's own");
    assert_eq!((lists("scopes_supported", "hr"), lists("scopes_supported", "profile")), (1, 1));
    assert_eq!(document["subject_types_supported"], json!(["public", "pairwise"]));
}

#[tokio::test]
async fn users_see_and_change_what_they_may() {
    let world = world().await;
    let mut ada = world.browser();
    world.code(&mut ada, &TestAuthorizationRequest::new("app")).await;
    let page = ada.get("/account").await;
    assert!(page.text().contains("R&#38;D"), "{}", page.text());
    assert!(!page.text().contains("salary"));
    let form = page.form("/account/attributes");
    let fields = [("attribute.floor", "9"), ("attribute.topics", "rust, net")];
    // Not in the form: a field that the page only shows, and one that it hides.
    let forged = [("attribute.department", "Board"), ("attribute.salary", "9")];
    let sent = ada.submit(&form, &[fields, forged].concat()).await;
    assert!(sent.location().ends_with("?done=attributes"), "{}", sent.location());
    let user = world.server.provider.store().user(&world.ada.id).await.unwrap().unwrap();
    let record: Value = serde_json::from_str(&user.claims).unwrap();
    assert_eq!(
        record,
        json!({ "name": "Ada", "department": "R&D", "floor": 9, "salary": 1, "unknown": true,
            "topics": ["rust", "net"] })
    );
    let AuditRecord { entry, .. } = world.server.provider.store().audit_log(0).await.unwrap().pop().unwrap();
    assert_eq!((&*entry.actor, &*entry.action), ("user:ada-id", "user.change"));
    let detail: Value = serde_json::from_str(&entry.detail).unwrap();
    assert_eq!(detail, json!({ "changed": ["floor", "topics"], "user_name": "ada" }), "names, not values");

    let refused = ada.submit(&form, &[("attribute.floor", "ninth"), ("attribute.topics", "")]).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("This value is not possible for “<bdi>floor</bdi>”"),
        "{}",
        refused.text()
    );
    let user = world.server.provider.store().user(&world.ada.id).await.unwrap().unwrap();
    assert!(user.claims.contains("rust"), "nothing was saved");
    ada.submit(&form, &[("attribute.floor", ""), ("attribute.topics", "")]).await;
    let user = world.server.provider.store().user(&world.ada.id).await.unwrap().unwrap();
    assert!(!user.claims.contains("floor") && !user.claims.contains("topics"), "{}", user.claims);
}

#[tokio::test]
async fn a_configuration_names_every_faulty_attribute_and_claim() {
    let configured = Config {
        attributes: vec![Attribute { name: "sub".into(), ..Attribute::default() }],
        claims: mappings(json!([{ "claim": "iss", "value": "https://other.example" }])),
        clients: vec![ClientConfig {
            claims: mappings(json!([{ "claim": "team", "attribute": "team" }])),
            ..app("app")
        }],
        ..Config::new("https://login.example.com")
    };
    let faults = configured.check().unwrap_err().to_string();
    for expected in [
        "attributes[0].name: the name is that of a standard claim",
        "claims[0]: claim \"iss\" is defined by the provider",
        "clients[0].claims[0]: attribute \"team\" is not declared",
    ] {
        assert!(faults.contains(expected), "{expected}: {faults}");
    }
}
