//! Tests of the administration API over HTTP: authorization and strict parsing.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{ADMIN_SCOPE, PATH, table};
use crate::{
    access_token::{Granted, mint},
    admin::tests::{API, Answer, SECRET, TestProvider},
    oauth::scope::ScopeSet,
    person::{ClaimSelection, Person},
};

const JSON: &str = "content-type: application/json\r\n";

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Sends a request with an access token of a client.
async fn call(bench: &TestProvider, client: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let mut fields = bearer(&bench.token(client).await);
    fields.push_str(body.map_or("", |_| JSON));
    let body = body.map(Value::to_string).unwrap_or_default();
    bench.send(method, &format!("{PATH}{path}"), &fields, &body).await
}

/// Mints a token with the given client, audience and user.
async fn made(bench: &TestProvider, client: &str, audience: &str, person: Option<&str>) -> String {
    let provider = &bench.provider;
    let client = provider.clients().find(provider.store(), client).await.unwrap().unwrap();
    let scopes = ScopeSet::parse(ADMIN_SCOPE).unwrap();
    let person = match person {
        Some(id) => {
            Person::find(provider.store(), id, ClaimSelection { scopes: &scopes, names: &[], mappings: &[] })
                .await
                .unwrap()
        }
        None => None,
    };
    let granted = Granted {
        client: &client,
        person: person.as_ref(),
        scopes: &scopes,
        audiences: vec![audience],
        family: None,
        sid: None,
        userinfo: &[],
        read_at: provider.store().log_time().await.unwrap(),
    };
    mint(provider, &granted).unwrap().token.to_string()
}

#[tokio::test]
async fn no_token_no_answer() {
    let bench = TestProvider::start().await;
    for route in table() {
        let path = format!("{PATH}{}", route.path.replace(['{', '}'], ""));
        let answer = bench.send(route.method.as_str(), &path, "", "").await;
        assert_eq!(answer.status, 401, "{} {path}", route.method);
        assert!(answer.head.contains("www-authenticate: bearer realm=") && !answer.head.contains("error="));
        assert!(!answer.head.contains("access-control") && !answer.head.contains("set-cookie"));
        assert!(answer.head.contains("cache-control: no-store"));
    }
    for fields in ["authorization: Basic cm9ib3Q6eA==\r\n", "cookie: postern_session=x\r\n"] {
        assert_eq!(bench.send("GET", "/admin/v1/users", fields, "").await.status, 401, "{fields}");
    }
    let good = bearer(&bench.token("robot").await);
    assert_eq!(bench.send("GET", "/admin/v1/users", &format!("{good}{good}"), "").await.status, 400);
    assert_eq!(bench.send("GET", "/admin/v1/users", &good, "").await.status, 200);
    let in_url = format!("/admin/v1/users?access_token={}", bench.token("robot").await);
    assert_eq!(bench.send("GET", &in_url, "", "").await.status, 401);
    let options = bench.send("OPTIONS", "/admin/v1/users", &good, "").await;
    assert!(options.status == 405 && !options.head.contains("access-control"), "{options:?}");
}

#[tokio::test]
async fn a_token_must_be_meant_for_this() {
    let bench = TestProvider::start().await;
    let ada = bench.user("ada").await;
    let issuer = bench.provider.issuer().as_str().to_owned();
    for (client, audience, person, status) in [
        ("robot", issuer.as_str(), None, 200),
        ("safe", API, None, 401),
        ("robot", API, None, 401),
        ("desk", &issuer, Some(&*ada), 401),
    ] {
        let token = made(&bench, client, audience, person).await;
        let answer = bench.send("GET", "/admin/v1/users", &bearer(&token), "").await;
        assert_eq!(answer.status, status, "{client} {audience} {person:?}: {answer:?}");
        if status == 401 {
            assert!(answer.head.contains("error=\"invalid_token\""), "{answer:?}");
        }
    }
    // The scope in the token is not sufficient: its client must still have it.
    let token = made(&bench, "other", &issuer, None).await;
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer(&token), "").await.status, 403);
    let token = bench.token("robot").await;
    bench.advance(Duration::from_hours(1));
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer(&token), "").await.status, 401, "expired");
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer("nonsense"), "").await.status, 401);
}

#[tokio::test]
async fn a_public_or_closed_client_may_nothing() {
    let bench = TestProvider::start().await;
    let settings = |more: Value| {
        let issuer = bench.provider.issuer().as_str();
        let mut all = json!({ "scopes": [ADMIN_SCOPE], "audiences": [issuer] });
        all.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        json!({ "id": "new", "settings": all })
    };
    let issuer = bench.provider.issuer().as_str().to_owned();
    let public = settings(json!({ "public": true, "grants": ["device_code"] }));
    assert_eq!(call(&bench, "robot", "POST", "/clients", Some(&public)).await.status, 201);
    let token = made(&bench, "new", &issuer, None).await;
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer(&token), "").await.status, 401);
    assert_eq!(call(&bench, "robot", "DELETE", "/clients/new", None).await.status, 204);

    let secret = settings(json!({ "grants": ["client_credentials"] }));
    bench.advance(Duration::from_secs(2));
    assert_eq!(call(&bench, "robot", "POST", "/clients", Some(&secret)).await.status, 201);
    let token = made(&bench, "new", &issuer, None).await;
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer(&token), "").await.status, 200);
    assert_eq!(call(&bench, "robot", "POST", "/clients/new/disable", None).await.status, 200);
    assert_eq!(bench.send("GET", "/admin/v1/users", &bearer(&token), "").await.status, 401);
}

#[tokio::test]
async fn who_may_look_may_not_change() {
    let bench = TestProvider::start().await;
    assert_eq!(call(&bench, "reader", "GET", "/users", None).await.status, 200);
    let look = json!({ "token": "nonsense" });
    assert_eq!(
        call(&bench, "reader", "POST", "/tokens/inspect", Some(&look)).await.body,
        json!({ "active": false })
    );
    for route in table().into_iter().filter(|route| route.right.scope() == ADMIN_SCOPE) {
        let path = route.path.replace(['{', '}'], "");
        let answer = call(&bench, "reader", route.method.as_str(), &path, None).await;
        assert_eq!(answer.status, 403, "{} {path}", route.method);
        assert!(answer.head.contains("error=\"insufficient_scope\", scope=\"postern:admin\""), "{answer:?}");
    }
    assert_eq!(call(&bench, "other", "GET", "/users", None).await.status, 403);
}

#[tokio::test]
async fn bodies_and_parameters_are_read_strictly() {
    let bench = TestProvider::start().await;
    let token = bearer(&bench.token("robot").await);
    let json = format!("{token}{JSON}");
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(65_536));
    for (method, path, fields, body, status) in [
        ("POST", "/users", &json, r#"{"name":"ada","admin":true}"#, 422),
        ("POST", "/users", &json, r#"{"name":"ada","name":"bob"}"#, 422),
        ("POST", "/users", &json, r#"{"name":1}"#, 422),
        ("POST", "/users", &json, "[]", 422),
        ("POST", "/users", &json, "{}", 422),
        ("POST", "/users", &json, "", 400),
        ("POST", "/users", &json, r#"{"name":"ada"} x"#, 400),
        ("POST", "/users", &json, &long, 413),
        ("POST", "/users", &token, r#"{"name":"ada"}"#, 415),
        ("POST", "/users?x=1", &json, r#"{"name":"ada"}"#, 422),
        ("GET", "/users?limit=501", &token, "", 422),
        ("GET", "/users?limit=x", &token, "", 422),
        ("GET", "/users?page=2", &token, "", 422),
        ("GET", "/users?limit=1&limit=2", &token, "", 422),
        ("GET", "/users", &token, "{}", 422),
        ("GET", "/keys?x", &token, "", 422),
        ("POST", "/users/x/disable", &json, "{}", 422),
        ("GET", "/users/x%ff", &token, "", 422),
        ("GET", "/users/nobody", &token, "", 404),
        ("PUT", "/users", &token, "", 405),
        ("GET", "/nothing", &token, "", 404),
    ] {
        let answer = bench.send(method, &format!("{PATH}{path}"), fields, body).await;
        assert_eq!(answer.status, status, "{method} {path} {}: {answer:?}", &body[..body.len().min(40)]);
        assert!(answer.body["error_description"].is_string() || status == 405, "{answer:?}");
    }
    assert!(bench.provider.store().audit_log(0).await.unwrap().is_empty(), "nothing was done");
}

#[tokio::test]
async fn a_life_over_the_wire() {
    let bench = TestProvider::start().await;
    let robot = async |method, path: String, body: Option<Value>| {
        bench.advance(Duration::from_secs(1));
        call(&bench, "robot", method, &path, body.as_ref()).await
    };
    let add = json!({ "name": "ada", "email": "ada@example.com", "generate_password": true });
    let added = robot("POST", "/users".into(), Some(add.clone())).await;
    assert_eq!(added.status, 201, "{added:?}");
    let password = added.text("password");
    let id = added.body["user"]["id"].as_str().unwrap().to_owned();
    let again = robot("POST", "/users".into(), Some(add)).await;
    assert_eq!((again.status, again.text("error").as_str()), (409, "taken"));
    let token = bench.log_in("desk", "ada", &password).await.text("access_token");
    assert!(bench.is_active(&token).await);
    let followers = robot("GET", "/revocation/consumers".into(), None).await;
    assert_eq!(followers.body, json!({ "head": 0, "items": [] }));
    let in_force = robot("POST", "/revocation/wait".into(), None).await.body;
    assert_eq!(
        [&in_force["proof"], &in_force["followers"]],
        [&json!("applied"), &json!(0)],
        "nobody follows"
    );

    let bad =
        robot("PATCH", format!("/users/{id}"), Some(json!({ "email": "x", "claims": { "sub": 1 } }))).await;
    assert_eq!(bad.status, 422);
    let paths: Vec<&Value> =
        bad.body["faults"].as_array().unwrap().iter().map(|fault| &fault["path"]).collect();
    assert_eq!(paths, ["email", "claims"]);
    let changed = robot("PATCH", format!("/users/{id}"), Some(json!({ "email": null }))).await;
    assert!(changed.status == 200 && changed.body.get("email").is_none(), "{changed:?}");

    assert_eq!(robot("POST", "/groups".into(), Some(json!({ "name": "a/b c" }))).await.status, 201);
    let member = format!("/groups/a%2Fb%20c/members/{id}");
    assert_eq!(robot("PUT", member.clone(), None).await.status, 204);
    assert_eq!(robot("GET", format!("/users/{id}"), None).await.body["groups"], json!(["a/b c"]));
    assert_eq!(robot("DELETE", member, None).await.status, 204);
    assert!(!bench.is_active(&token).await);

    let replace =
        json!({ "version": 7, "settings": { "grants": ["client_credentials"], "audiences": [API] } });
    let settings =
        json!({ "id": "shop", "settings": { "grants": ["client_credentials"], "audiences": [API] } });
    let shop = robot("POST", "/clients".into(), Some(settings)).await;
    assert_eq!(
        bench.form("/token", "shop", &shop.text("secret"), "grant_type=client_credentials").await.status,
        200
    );
    let conflict = robot("PUT", "/clients/shop".into(), Some(replace.clone())).await;
    assert_eq!((conflict.status, conflict.text("error").as_str()), (409, "conflict"));
    let configured = robot("PUT", "/clients/robot".into(), Some(replace)).await;
    assert_eq!((configured.status, configured.text("error").as_str()), (409, "configured"));
    let early = robot("POST", "/keys/rotate".into(), Some(json!({ "algorithm": "ES256" }))).await;
    assert_eq!(early.status, 409, "{early:?}");

    let page = robot("GET", "/audit?limit=2".into(), None).await;
    assert_eq!(
        (page.body["items"][0]["actor"].as_str(), page.text("next").as_str()),
        (Some("client:robot"), "2")
    );
    assert_eq!(page.body["items"][0]["action"], "user.add");
    assert_eq!(robot("GET", "/audit/verdict".into(), None).await.body["intact"], true);
    assert_eq!(robot("DELETE", format!("/users/{id}"), None).await.status, 204);
    let log = serde_json::to_string(&robot("GET", "/audit".into(), None).await.body).unwrap();
    assert!(
        !log.contains(&password) && !log.contains(SECRET) && !log.contains(&shop.text("secret")),
        "{log}"
    );
}

#[tokio::test]
async fn the_document_and_the_router_tell_of_the_same() {
    let bench = TestProvider::start().await;
    let document = bench.send("GET", "/admin/v1/openapi.json", "", "").await;
    assert_eq!((document.status, document.text("openapi").as_str()), (200, "3.1.0"));
    let mut documented = BTreeSet::new();
    for (path, operations) in document.body["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            let scopes = &operation["security"][0]["token"];
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                ["401", "403", "422", "503"].iter().all(|status| responses.contains_key(*status)),
                "{name}"
            );
            assert!(responses.keys().any(|status| status.starts_with('2')), "{name}");
            assert!(operation["summary"].is_string() || operation["description"].is_string(), "{name}");
            // The router has the route and requires the scope of the document.
            let url = format!("{PATH}{}", path.replace(['{', '}'], ""));
            assert_eq!(bench.send(&method.to_uppercase(), &url, "", "").await.status, 401, "{name}");
            let lacks =
                call(&bench, "other", &method.to_uppercase(), &path.replace(['{', '}'], ""), None).await;
            let scope = format!("scope=\"{}\"", scopes[0].as_str().unwrap());
            assert!(lacks.status == 403 && lacks.head.contains(&scope), "{name} {scope} {lacks:?}");
            documented.insert(name);
        }
    }
    let routed: BTreeSet<String> =
        table().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(documented, routed);
    resolves(&document.body, &document.body);
    assert_eq!(document.body["servers"][0]["url"], format!("{}/admin/v1", bench.provider.issuer().as_str()));
    let flow = &document.body["components"]["securitySchemes"]["token"]["flows"]["clientCredentials"];
    assert!(flow["scopes"].get(ADMIN_SCOPE).is_some(), "{flow}");
}

#[tokio::test]
async fn every_list_has_items_and_every_time_is_rfc_3339() {
    let bench = TestProvider::start().await;
    let document = bench.send("GET", "/admin/v1/openapi.json", "", "").await.body;
    let (mut lists, mut times) = (0, 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let schema = resolved(&document, &response["content"]["application/json"]["schema"]);
                assert_ne!(schema["type"], "array", "{method} {path} {status}: a list without `items`");
                let has_items = schema["properties"]["items"]["type"] == "array";
                if operation["summary"].as_str().unwrap().starts_with("Lists ") && status == "200" {
                    assert!(has_items, "{method} {path}: no `items` in {schema}");
                    assert!(schema["properties"].get("next").is_some(), "{method} {path}: no `next`");
                    let parameters = operation["parameters"].as_array().unwrap();
                    for name in ["search", "limit", "after"] {
                        let is_there = parameters.iter().any(|parameter| parameter["name"] == name);
                        assert!(is_there, "{method} {path}: no `{name}`");
                    }
                    lists += 1;
                }
                if schema["properties"].get("next").is_some() {
                    assert!(has_items, "{method} {path} {status}: `next` without `items`");
                }
            }
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (member, shape) in schema["properties"].as_object().into_iter().flatten() {
            let is_time = ["_at", "_until"].iter().any(|end| member.ends_with(end))
                || ["at", "since"].contains(&&**member);
            // The number of an entry, not a time.
            if !is_time || (name, member) == (&"AuditVerdict".to_owned(), &"broken_at".to_owned()) {
                continue;
            }
            let choices = shape["oneOf"].as_array().cloned().unwrap_or_else(|| vec![shape.clone()]);
            let choice = choices.iter().find(|choice| choice["type"] != "null").unwrap();
            assert_eq!(resolved(&document, choice)["format"], "date-time", "{name}.{member}: {shape}");
            times += 1;
        }
    }
    assert!(!document.to_string().contains("since 1970"));
    assert!(lists >= 8 && times >= 20, "{lists} lists and {times} times were found");
}

#[tokio::test]
async fn answers_have_times_of_rfc_3339() {
    let bench = TestProvider::start().await;
    let ada = bench.user("ada").await;
    let answer = call(&bench, "robot", "GET", &format!("/users/{ada}"), None).await;
    let made = answer.body["user"]["created_at"].as_str().unwrap().to_owned();
    let parsed = time::OffsetDateTime::parse(&made, &time::format_description::well_known::Rfc3339).unwrap();
    let millis = u64::try_from(parsed.unix_timestamp_nanos() / 1_000_000).unwrap();
    assert!(made.ends_with('Z') && millis == bench.provider.now().as_millis(), "{made}");
}

#[tokio::test]
async fn a_user_is_named_by_id_name_or_address() {
    let bench = TestProvider::start().await;
    let robot = async |method: &'static str, path: String, body: Option<Value>| {
        call(&bench, "robot", method, &path, body.as_ref()).await
    };
    let add = async |body: Value| {
        let added = robot("POST", "/users".into(), Some(body)).await;
        assert_eq!(added.status, 201, "{added:?}");
        added.body["user"]["id"].as_str().unwrap().to_owned()
    };
    // The address is not verified: the user cannot log in with it.
    let ada = add(json!({ "name": "ada", "email": "ada@example.com" })).await;
    // A name that is the id of another account.
    let eve = add(json!({ "name": &ada })).await;
    assert_eq!(robot("POST", "/groups".into(), Some(json!({ "name": "staff" }))).await.status, 201);
    for name in [&*ada, "ada", "ADA", "Ada@example.com"] {
        let shown = robot("GET", format!("/users/{name}"), None).await;
        assert_eq!(shown.body["user"]["id"], *ada, "{name}: {shown:?}");
        for (method, path) in [
            ("PUT", format!("/groups/staff/members/{name}")),
            ("DELETE", format!("/groups/staff/members/{name}")),
            ("POST", format!("/users/{name}/disable")),
            ("POST", format!("/users/{name}/enable")),
            ("GET", format!("/sessions?user={name}")),
            ("GET", format!("/families?user={name}")),
            ("GET", format!("/audit?user={name}")),
        ] {
            let answer = robot(method, path.clone(), None).await;
            assert!(matches!(answer.status, 200 | 204), "{method} {path}: {answer:?}");
        }
    }
    let shown = robot("GET", format!("/users/{eve}"), None).await;
    assert_eq!(shown.body["user"]["name"], *ada);
    for path in ["/users/nobody", "/sessions?user=nobody", "/families?user=nobody"] {
        let answer = robot("GET", path.into(), None).await;
        assert!(answer.status == 404 && answer.text("error_description").contains("nobody"), "{answer:?}");
    }
    let log = serde_json::to_string(&robot("GET", "/audit".into(), None).await.body).unwrap();
    assert!(log.contains(&format!("user:{ada}")) && !log.contains("user:ada"), "{log}");
    assert_eq!(robot("DELETE", "/users/ada".into(), None).await.status, 204);
    assert_eq!(robot("GET", format!("/users/{ada}"), None).await.body["user"]["id"], *eve);
}

/// The schema that a reference names, or the schema itself.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

/// Checks that every reference in the document resolves.
fn resolves(document: &Value, part: &Value) {
    match part {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let place = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(place).is_some(), "{reference}");
            }
            members.values().for_each(|member| resolves(document, member));
        }
        Value::Array(items) => items.iter().for_each(|item| resolves(document, item)),
        _ => {}
    }
}

#[tokio::test]
async fn a_nul_is_refused_by_the_name_of_what_it_stands_in() {
    let bench = TestProvider::start().await;
    let ada = bench.user("ada").await;
    for (method, path, named) in [
        ("GET", "/users/a%00".to_owned(), "id"),
        ("GET", "/users?name=a%00b".into(), "name"),
        ("GET", "/users?limit=1&after=%00".into(), "after"),
        ("GET", "/users?search=a%00".into(), "search"),
        ("DELETE", "/groups/%00".into(), "name"),
        ("GET", "/groups/%00/members".into(), "name"),
        ("PUT", format!("/groups/staff%00/members/{ada}"), "name"),
        ("GET", "/sessions/%00".into(), "sid"),
        ("GET", "/clients/%00".into(), "id"),
    ] {
        let answer = call(&bench, "robot", method, &path, None).await;
        assert_eq!(answer.status, 422, "{method} {path}: {answer:?}");
        assert_eq!(answer.body["faults"][0]["path"], named, "{method} {path}: {answer:?}");
    }
    for (body, named) in [
        (json!({ "name": "a\0b" }), "name"),
        (json!({ "name": "b", "email": "a\0@b" }), "email"),
        (json!({ "name": "b", "claims": { "name": "\0" } }), "claims"),
        (json!({ "name": "b", "password": "wolken kratzen am\0" }), "password"),
    ] {
        let answer = call(&bench, "robot", "POST", "/users", Some(&body)).await;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        assert_eq!(answer.body["faults"][0]["path"], named, "{body}: {answer:?}");
    }
}

/// Paths of the API in the pages that people read.
#[test]
fn paths_in_the_documents_exist() {
    fn pages(folder: &std::path::Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.is_dir());
        let folders = folders.into_iter().filter(|folder| !folder.ends_with("decisions"));
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        texts.chain(folders.flat_map(|folder| pages(&folder))).collect()
    }
    let known: BTreeSet<&str> = table().iter().map(|route| route.path).chain(["/openapi.json"]).collect();
    let mut count = 0;
    for page in pages(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")) {
        for (at, _) in page.match_indices("/admin/v1/") {
            let path = &page[at + "/admin/v1".len()..];
            let is_end = |letter: char| !letter.is_ascii_alphanumeric() && !"/-_{}.".contains(letter);
            let path = path.split(is_end).next().unwrap().trim_end_matches('.');
            assert!(known.contains(path), "{path}");
            count += 1;
        }
    }
    assert!(count > 2, "the paths were not found");
}
