//! Realms of Keycloak in each form that it exports them, toured: translated, imported, served, and then
//! people and clients get tokens, or do not.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dataplane::ports::free;
use serde_json::{Value, json};

use crate::support::{Folder, Running, exchange, get, output_text, postern, repository};

/// Digest of `password` with the salt `somesaltsomesalt`, made with Python's hashlib.
const DIGEST: &str =
    "s5LQUeAEZUMuFVrnmF3OMNPXs3QWnF8SO/5BXmCj6QRRoqV45sk0paBc59MTSTbnRiqZ2rZHiLqodQ/j4M4wFA==";
const TILL_SECRET: &str = "the secret of the till";
const ROBOT_SECRET: &str = "the secret of the robot";

/// A realm on its way here.
struct Moved {
    folder: Folder,
    address: String,
}

impl Moved {
    /// Writes an export, and translates a realm of it. `export` is a file or the folder.
    fn translated(name: &str, files: &[(&str, String)], export: &str, realm: Option<&str>) -> Self {
        let (folder, address) = (Folder::new(&format!("realm-{name}")), free());
        fs::create_dir(folder.0.join("export")).unwrap();
        for (name, text) in files {
            folder.write(&format!("export/{name}"), text);
        }
        let moved = Self { folder, address };
        let (issuer, database) = (format!("http://{}", moved.address), moved.path("people.db"));
        let database = format!("sqlite://{database}?mode=rwc");
        let (export, out) = (moved.path(export), moved.path("out"));
        let mut words = vec!["migrate", "keycloak", &export, "--out", &out, "--issuer", &issuer];
        words.extend(["--database", &database]);
        words.extend(realm.into_iter().flat_map(|realm| ["--realm", realm]));
        let done = postern(&words);
        assert!(done.status.success(), "{name}: {}", output_text(&done));
        // What an export does not know: where this one listens.
        let file = moved.path("out/postern.toml");
        let text = fs::read_to_string(&file).unwrap();
        let text =
            text.replacen("[provider]\n", &format!("[provider]\naddress = \"{}\"\n", moved.address), 1);
        let text = format!("[server]\nreload_on_change = false\n{text}\n[admin]\naddress = \"{}\"\n", free());
        fs::write(&file, text).unwrap();
        let checked = postern(&["check", &file]);
        assert!(checked.status.success(), "{name}: {}", output_text(&checked));
        moved
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).to_str().unwrap().to_owned()
    }

    /// Imports people. Returns the exit code and what is printed.
    fn imported(&self, export: &str, flags: &[&str]) -> (Option<i32>, String) {
        let (export, config) = (self.path(export), self.path("out/postern.toml"));
        let words = ["migrate", "keycloak", &export, "--import", "--config", &config];
        let done = postern(&[&words[..], flags].concat());
        (done.status.code(), output_text(&done))
    }

    fn serve(&self) -> Running {
        let mut serving = Running::start(&["serve", "--config", &self.path("out/postern.toml")]);
        serving.wait_for("provider listening");
        serving
    }

    /// Asks for a token. Returns the status and the claims of the access token.
    fn token(&self, form: &str) -> (u16, Value) {
        let (address, length) = (&self.address, form.len());
        let answer = exchange(
            address,
            &format!(
                "POST /token HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
            ),
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let claims = body["access_token"].as_str().and_then(|token| token.split('.').nth(1));
        let claims =
            claims.map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap());
        (head.split(' ').nth(1).unwrap().parse().unwrap(), claims.unwrap_or_default())
    }

    /// Logs a person in by the client of the till.
    fn log_in(&self, name: &str, password: &str) -> (u16, Value) {
        let client = format!("client_id=till&client_secret={}", TILL_SECRET.replace(' ', "+"));
        self.token(&format!("grant_type=password&{client}&scope=openid&username={name}&password={password}"))
    }

    fn robot(&self, secret: &str) -> (u16, Value) {
        let secret = secret.replace(' ', "+");
        self.token(&format!("grant_type=client_credentials&client_id=robot&client_secret={secret}"))
    }

    /// The status of the page for a browser that comes from a client.
    fn page(&self, client: &str, redirect_uri: &str) -> u16 {
        let uri = redirect_uri.replace(':', "%3A").replace('/', "%2F");
        let challenge =
            "code_challenge_method=S256&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        let query =
            format!("response_type=code&client_id={client}&redirect_uri={uri}&scope=openid&{challenge}");
        let answer = get(&self.address, &format!("/authorize?{query}"));
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn realm(name: &str) -> Value {
    json!({
        "realm": name, "enabled": true, "keycloakVersion": "26.3.0", "bruteForceProtected": true,
        "roles": {
            "realm": [{"name": "seller"}, {"name": "lead", "composites": {"realm": ["seller"]}}],
            "client": {"orders": [{"name": "view"}]},
        },
        "groups": [{"name": "shop", "path": "/shop", "clientRoles": {"orders": ["view"]}}],
        "clients": [
            {
                "clientId": "till", "secret": TILL_SECRET, "standardFlowEnabled": false, "fullScopeAllowed": true,
                "directAccessGrantsEnabled": true, "defaultClientScopes": ["profile", "email"],
            },
            {
                "clientId": "robot", "secret": ROBOT_SECRET, "standardFlowEnabled": false, "fullScopeAllowed": true,
                "serviceAccountsEnabled": true,
            },
            {
                "clientId": "spa", "publicClient": true, "standardFlowEnabled": true,
                "redirectUris": ["https://spa.example/callback"], "defaultClientScopes": ["profile"],
            },
        ],
    })
}

/// A person with the password `password`.
fn person(id: &str, name: &str, more: &Value) -> Value {
    let mut person = json!({
        "id": id, "username": name, "enabled": true, "email": format!("{name}@shop.example"), "emailVerified": true,
        "credentials": [{
            "type": "password", "createdDate": 1_700_000_000_000_u64,
            "secretData": json!({"value": DIGEST, "salt": "c29tZXNhbHRzb21lc2FsdA=="}).to_string(),
            "credentialData": json!({"hashIterations": 1000, "algorithm": "pbkdf2-sha256"}).to_string(),
        }],
    });
    person.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    person
}

#[test]
fn a_realm_in_one_file() {
    let mut whole = realm("shop");
    let mut with_factor = person("c-3", "cem", &json!({}));
    with_factor["credentials"].as_array_mut().unwrap().push(json!({"type": "otp"}));
    whole["users"] = json!([
        person("a-1", "ada", &json!({"groups": ["/shop"], "realmRoles": ["lead"]})),
        person("b-2", "bob", &json!({"enabled": false})),
        with_factor,
        person("d-4", "dora", &json!({"requiredActions": ["UPDATE_PASSWORD"]})),
        person("e-5", "eve", &json!({"credentials": []})),
        {"username": "service-account-robot", "serviceAccountClientId": "robot", "realmRoles": ["seller"]},
    ]);
    let shop = Moved::translated("file", &[("shop.json", whole.to_string())], "export/shop.json", None);
    let (code, said) = shop.imported("export/shop.json", &["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("5 people (4 with a password, 2 disabled)"), "{said}");
    assert_eq!(shop.imported("export/shop.json", &[]).0, Some(0));
    let _serving = shop.serve();
    let (status, claims) = shop.log_in("ada", "password");
    assert_eq!((status, &claims["sub"]), (200, &json!("a-1")));
    assert_eq!(claims["realm_access"]["roles"], json!(["lead", "seller"]));
    assert_eq!(claims["resource_access"]["orders"]["roles"], json!(["view"]));
    for (name, password) in [
        ("ada", "passwort"),
        ("bob", "password"),
        ("cem", "password"),
        ("dora", "password"),
        ("eve", "password"),
    ] {
        assert_eq!(shop.log_in(name, password).0, 400, "{name}");
    }
    let (status, claims) = shop.robot(ROBOT_SECRET);
    assert_eq!((status, &claims["realm_access"]["roles"]), (200, &json!(["seller"])));
    assert_eq!(shop.robot("another").0, 401);
    assert_eq!(
        (shop.page("spa", "https://spa.example/callback"), shop.page("spa", "https://evil.example/")),
        (200, 400)
    );
}

#[test]
fn a_real_realm_in_a_folder() {
    let files =
        ["shop-realm.json", "shop-users-0.json", "shop-users-1.json", "shop-users-2.json"].map(|name| {
            let path = repository().join("crates/migrate/tests/it/keycloak").join(name);
            (name, fs::read_to_string(path).unwrap())
        });
    let shop = Moved::translated("folder", &files, "export", None);
    let (code, said) = shop.imported("export", &["--output", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["imported"], &said["joined_groups"]["total"]), (&json!(true), &json!(0)));
    let notes = said["notes"].as_array().unwrap();
    let second = notes.iter().find(|note| note["text"].as_str().unwrap().contains("second factor")).unwrap();
    assert_eq!(second["people"], json!({"total": 1, "first": ["dora"]}));
    let _serving = shop.serve();
    let (status, claims) = shop.robot(ROBOT_SECRET);
    assert_eq!((status, &claims["sub"]), (200, &json!("robot")));
    assert_eq!(claims["realm_access"]["roles"], json!(["order-managers"]));
    assert_eq!(shop.robot("another").0, 401);
    assert_eq!(shop.page("spa", "http://localhost:3000/callback"), 200);
    assert_eq!(shop.page("web", "https://shop.example/callback"), 200);
    assert_eq!(shop.page("web", "https://shop.example/app/anything"), 400, "patterns are not registered");
    assert_eq!(shop.page("account", "https://shop.example/callback"), 400, "Keycloak's own");
}

#[test]
fn an_export_of_the_console() {
    let path = repository().join("crates/migrate/tests/it/keycloak/partial.json");
    let files = [("partial.json", fs::read_to_string(path).unwrap())];
    let shop = Moved::translated("console", &files, "export/partial.json", None);
    let (code, said) = shop.imported("export/partial.json", &[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the export has no people"), "{said}");
    let _serving = shop.serve();
    assert_eq!(shop.page("spa", "http://localhost:3000/callback"), 200);
    assert_eq!(
        shop.page("web", "https://shop.example/callback"),
        400,
        "its secret is masked: it is left out"
    );
    assert_eq!(shop.log_in("ada", "password").0, 401);
    assert_eq!(shop.robot(ROBOT_SECRET).0, 401);
}

/// Two realms with their people in files of their own, imported into one provider.
#[test]
fn people_of_two_realms() {
    let users = |realm: &str, people: &[Value]| json!({"realm": realm, "users": people}).to_string();
    let crowd = |from: usize| -> Vec<Value> {
        (from..from + 60)
            .map(|n| person(&format!("p-{n}"), &format!("p{n}"), &json!({"realmRoles": ["seller"]})))
            .collect()
    };
    let files = [
        ("shop-realm.json", realm("shop").to_string()),
        ("shop-users-0.json", users("shop", &crowd(0))),
        ("shop-users-1.json", users("shop", &[person("a-1", "ada", &json!({"groups": ["/shop"]}))])),
        ("park-realm.json", realm("park").to_string()),
        ("park-users-0.json", users("park", &[person("g-1", "grace", &json!({"realmRoles": ["lead"]}))])),
    ];
    let both = Moved::translated("two", &files, "export", Some("shop"));
    let (code, said) = both.imported("export", &["--realm", "shop"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("exist already"), "{said}");
    // The groups of the second realm are those of the first.
    let (code, said) = both.imported("export", &["--realm", "park", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("groups (2) exist already"), "{said}");
    assert!(said.contains("role:lead, role:seller"), "{said}");
    let (code, said) = both.imported("export", &["--realm", "park", "--output", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|fault| panic!("{fault}: {said}"));
    assert_eq!(code, Some(0));
    assert_eq!(said["joined_groups"], json!({"total": 2, "first": ["role:lead", "role:seller"]}));
    // All of them again: the first conflicts are listed, and all counted.
    let (code, said) = both.imported("export", &["--realm", "shop", "--dry-run"]);
    assert_eq!((code, said.matches("conflict").count()), (Some(1), 50), "{said}");
    assert!(said.contains("and 11 more: 61 in all"), "{said}");
    let (code, said) = both.imported("export", &["--realm", "shop", "--output", "json"]);
    let json_part = &said[said.find('{').unwrap()..];
    let said: Value = serde_json::from_str(json_part).unwrap();
    assert_eq!((code, &said["conflicts"]["total"], &said["imported"]), (Some(1), &json!(61), &json!(false)));
    assert_eq!(said["conflicts"]["first"].as_array().unwrap().len(), 50);
    let _serving = both.serve();
    for (name, sub) in [("ada", "a-1"), ("grace", "g-1"), ("p59", "p-59")] {
        let (status, claims) = both.log_in(name, "password");
        assert_eq!((status, &claims["sub"]), (200, &json!(sub)), "{name}");
        assert_eq!(both.log_in(name, "passwort").0, 400, "{name}");
    }
}
