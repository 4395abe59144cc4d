//! Keycloak: exports of a real one, in each form that it writes, and what cannot be translated.

use std::io::{self, Cursor, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use migrate::Migration;
use migrate::input_fault::InputFault;
use migrate::keycloak::{
    ExportFiles, MAX_NAMED, PeopleNote, PeopleOptions, Person, ProviderPlace, RealmExport, TargetRules,
    translate,
};
use migrate::report::Translation;
use serde_json::json;

/// Files in memory.
struct Files(Vec<(String, Vec<u8>)>);

impl ExportFiles for Files {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found
            .map(|(_, text)| Box::new(Cursor::new(text)) as Box<dyn Read + '_>)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A translation with its people.
struct Migrated {
    migration: Migration,
    people: People,
}

#[derive(Debug)]
struct People {
    people: Vec<Person>,
    notes: Vec<PeopleNote>,
}

/// Rules like those of the provider, as far as the exports need them.
struct Rules;

impl TargetRules for Rules {
    fn max_attributes(&self) -> usize {
        3
    }

    fn max_claims(&self) -> usize {
        64
    }

    fn is_reserved_claim(&self, name: &str) -> bool {
        ["sub", "groups", "email"].contains(&name)
    }

    fn redirect_fault(&self, uri: &str) -> Option<String> {
        uri.starts_with("http://plain.example").then(|| "use https".to_owned())
    }

    fn secret_fault(&self, secret: &str) -> Option<String> {
        (secret.len() < 22).then(|| "the client secret is guessable".to_owned())
    }

    fn password_fault(&self, phc: &str) -> Option<String> {
        phc.contains("i=9999999").then(|| "too many iterations".to_owned())
    }
}

fn migrated(export: &RealmExport<'_>, drop_second_factors: bool) -> Migrated {
    let place = ProviderPlace {
        issuer: Some("https://login.example".into()),
        database: "sqlite:///tmp/postern.db?mode=rwc".into(),
    };
    let migrated = translate(export, &place, &Rules, PeopleOptions { drop_second_factors }).unwrap();
    let mut people = Vec::new();
    let read = migrated.visit_people(&mut |person| {
        people.push(person);
        ControlFlow::Continue(())
    });
    read.unwrap();
    assert_eq!(migrated.people.count, people.len() as u64);
    Migrated { people: People { people, notes: migrated.people.notes }, migration: migrated.migration }
}

fn read(files: &[(&str, &str)]) -> Result<RealmExport<'static>, InputFault> {
    read_realm(files, None)
}

fn read_realm(files: &[(&str, &str)], wanted: Option<&str>) -> Result<RealmExport<'static>, InputFault> {
    let file = |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_vec());
    let files: &'static Files = Box::leak(Box::new(Files(files.iter().map(file).collect())));
    RealmExport::read(files, wanted)
}

fn of_json(realm: &serde_json::Value) -> RealmExport<'static> {
    read(&[("shop-realm.json", &realm.to_string())]).unwrap()
}

/// What the report says of a setting.
fn outcome<'m>(migrated: &'m Migrated, setting: &str) -> &'m Translation {
    let entries = &migrated.migration.report.entries;
    let found = entries.iter().find(|entry| entry.setting.starts_with(setting));
    &found.unwrap_or_else(|| panic!("{setting} is not in the report: {entries:#?}")).outcome
}

/// The names of a note about people.
fn noted<'p>(people: &'p People, text: &str) -> &'p [String] {
    people.notes.iter().find(|note| note.text.contains(text)).map_or(&[], |note| &note.names)
}

const PARTIAL: &str = include_str!("keycloak/partial.json");

#[test]
fn an_export_of_the_console_has_no_people_and_no_secrets_and_says_what_to_do() {
    let export = read(&[("realm-export.json", PARTIAL)]).unwrap();
    assert!(export.has_no_people() && export.is_masked());
    let migrated = migrated(&export, false);
    let report = migrated.migration.report.to_string();
    assert!(report.contains("--users different_files"), "{report}");
    assert!(report.contains("stars in place of secrets"), "{report}");
    assert!(matches!(outcome(&migrated, "client web"), Translation::NoEqual(why) if why.contains("masked")));
    let configuration = &migrated.migration.configuration;
    assert!(configuration.contains("id = \"spa\""), "{configuration}");
    assert!(!configuration.contains("id = \"web\"") && !configuration.contains("**"), "{configuration}");
}

#[test]
fn files_of_one_export_are_read_together_and_others_are_refused_by_name() {
    let realm = ("shop-realm.json", r#"{"realm":"shop"}"#);
    let people = ("shop-users-0.json", r#"{"realm":"shop","users":[{"id":"1","username":"ada"}]}"#);
    let more = ("shop-users-1.json", r#"{"realm":"shop","users":[{"id":"2","username":"bob"}]}"#);
    let all = migrated(&read(&[people, realm, more]).unwrap(), false).people;
    assert_eq!(all.people.len(), 2);
    for (files, why) in [
        (vec![people], "no NAME-realm.json"),
        (vec![realm, ("park-realm.json", r#"{"realm":"park"}"#)], "the realms shop, park"),
        (vec![("shop.json", r#"[{"realm":"a"},{"realm":"b"}]"#)], "a, b"),
        (vec![("shop.json", "{}")], "no member `realm`"),
        (vec![("shop.json", "realm: shop")], "no file of `kc.sh export`"),
        (vec![("shop.json", r#"{"realm":"shop","users":{}}"#)], "no file of `kc.sh export`"),
    ] {
        let fault = read(&files).unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }
    let two = [
        ("all.json", r#"[{"realm":"shop"},{"users":[{"id":"7","username":"eve"}],"realm":"park","x":[{}]}]"#),
        people,
    ];
    let of = |realm| read_realm(&two, Some(realm));
    assert_eq!(migrated(&of("shop").unwrap(), false).people.people.len(), 1);
    let park = migrated(&of("park").unwrap(), false).people.people;
    assert_eq!(park.iter().map(|person| &*person.name).collect::<Vec<_>>(), ["eve"], "of the list's second");
    assert!(of("pub").unwrap_err().to_string().contains("no realm \"pub\", but shop, park"));
    assert_eq!(migrated(&read(&[("all.json", r#"[{"realm":"one"}]"#)]).unwrap(), false).people.people, []);
}

/// A realm that writes its people while it is read, and says how many it has written.
struct Generated {
    people: u64,
    written: AtomicU64,
}

struct GeneratedRealm<'g> {
    of: &'g Generated,
    next: u64,
    text: Cursor<Vec<u8>>,
}

impl ExportFiles for Generated {
    fn names(&self) -> Vec<String> {
        vec!["many-realm.json".into()]
    }

    fn open(&self, _: &str) -> io::Result<Box<dyn Read + '_>> {
        let text = Cursor::new(br#"{"realm":"many","users":["#.to_vec());
        Ok(Box::new(GeneratedRealm { of: self, next: 0, text }))
    }
}

impl Read for GeneratedRealm<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.text.position() == self.text.get_ref().len() as u64 {
            let text = match self.next {
                n if n < self.of.people => {
                    self.of.written.fetch_add(1, Ordering::Relaxed);
                    let comma = if n == 0 { "" } else { "," };
                    format!(r#"{comma}{{"id":"{n}","username":"person-{n}","realmRoles":["member"]}}"#)
                }
                n if n == self.of.people => "]}".to_owned(),
                _ => String::new(),
            };
            self.next += 1;
            self.text = Cursor::new(text.into_bytes());
        }
        self.text.read(buffer)
    }
}

#[test]
fn nodes_on_one_server_are_told_to_share_a_secret() {
    let files = Generated { people: 1, written: AtomicU64::new(0) };
    let export = RealmExport::read(&files, None).unwrap();
    for (database, is_shared) in [("sqlite://a.db", false), ("postgres://db.example/postern", true)] {
        let place = ProviderPlace { issuer: None, database: database.into() };
        let translated = translate(&export, &place, &Rules, PeopleOptions::default()).unwrap();
        let text = &translated.migration.configuration;
        assert_eq!(text.contains("secret_file = \"provider.secret\""), is_shared, "{text}");
    }
}

/// People pass by one by one: who stops the pass has not read the rest, and notes keep some names.
#[test]
fn people_are_never_read_all_at_once() {
    let files = Generated { people: 100_000, written: AtomicU64::new(0) };
    let export = RealmExport::read(&files, None).unwrap();
    let place = ProviderPlace { issuer: None, database: "sqlite://a.db".into() };
    let many = translate(&export, &place, &Rules, PeopleOptions::default()).unwrap();
    assert_eq!(many.people.count, 100_000);
    let note = &many.people.notes[0];
    assert_eq!((note.count, note.names.len()), (100_000, MAX_NAMED));
    let before = files.written.load(Ordering::Relaxed);
    let mut last = String::new();
    let read = many.visit_people(&mut |person| {
        last = person.name;
        if last == "person-9" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.unwrap();
    assert_eq!(last, "person-9");
    let written = files.written.load(Ordering::Relaxed) - before;
    assert!(written < 10_000, "only what fits into the buffer: {written}");
}

#[test]
fn roles_of_roles_and_of_groups_reach_the_people_and_no_prefix_begins_another() {
    let export = of_json(&json!({
        "realm": "Shop",
        "roles": {
            "realm": [
                {"name": "lead", "composites": {"realm": ["staff"], "client": {"a": ["view"]}}},
                {"name": "staff", "composites": {"realm": ["lead"]}},
                {"name": "default-roles-shop", "composites": {"realm": ["offline_access", "newcomer"]}},
                {"name": "offline_access"}, {"name": "newcomer"}
            ],
            "client": {"a": [{"name": "view"}, {"name": "b:admin"}], "a:b": [{"name": "admin"}], "account": [{"name": "x"}]}
        },
        "groups": [{"name": "staff", "clientRoles": {"a:b": ["admin"]}, "subGroups": [{"name": "leads", "realmRoles": ["lead"]}]}],
        "clients": [],
        "users": [
            {"id": "1", "username": "ada", "groups": ["/staff/leads", "/gone"], "realmRoles": ["default-roles-shop"]},
            {"id": "2", "username": "bob", "clientRoles": {"a": ["b:admin"], "account": ["x"]}}
        ]
    }));
    let migrated = migrated(&export, false);
    let [ada, bob] = &migrated.people.people[..] else { panic!("{:?}", migrated.people) };
    assert_eq!(
        ada.groups,
        ["/staff/leads", "a:view", "role:lead", "role:newcomer", "role:staff", "~a:b:admin"]
    );
    assert_eq!(bob.groups, ["a:b:admin"], "it is not the role `admin` of the client `a:b`");
    assert_eq!(noted(&migrated.people, "/gone"), ["ada"]);
    let configuration = &migrated.migration.configuration;
    for line in ["group_prefix = \"role:\"", "group_prefix = \"a:\"", "group_prefix = \"~a:b:\""] {
        assert!(configuration.contains(line), "{configuration}");
    }
    assert!(matches!(outcome(&migrated, "roles of client a:b"), Translation::Different(_)));
}

#[test]
fn clients_keep_what_can_be_registered_and_the_rest_is_listed() {
    let export = of_json(&json!({
        "realm": "shop",
        "clients": [
            {
                "clientId": "web", "secret": "a-secret-of-many-characters", "rootUrl": "https://shop.example/", "fullScopeAllowed": true,
                "redirectUris": ["/callback", "https://shop.example/*", "http://plain.example/x"],
                "attributes": {"post.logout.redirect.uris": "+##https://shop.example/bye##-", "use.refresh.tokens": "false"},
                "defaultClientScopes": ["profile", "roles"], "optionalClientScopes": ["offline_access"]
            },
            {"clientId": "spa", "publicClient": true, "directAccessGrantsEnabled": true, "redirectUris": ["https://spa.example/*"]},
            {"clientId": "api", "bearerOnly": true},
            {"clientId": "short", "secret": "short", "standardFlowEnabled": false, "serviceAccountsEnabled": true},
            {"clientId": "signed", "clientAuthenticatorType": "client-jwt"},
            {"clientId": "old", "protocol": "saml"},
            {"clientId": "off", "enabled": false, "secret": "a-secret-of-many-characters"},
            {"clientId": "admin-cli", "publicClient": true}
        ]
    }));
    let migrated = migrated(&export, false);
    let configuration: toml::Table = migrated.migration.configuration.parse().unwrap();
    let clients = configuration["provider"]["client"].as_array().unwrap();
    let ids: Vec<&str> = clients.iter().map(|client| client["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["web", "short"]);
    let texts = |key: &str| -> Vec<&str> {
        clients[0][key].as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect()
    };
    assert_eq!(texts("redirect_uris"), ["https://shop.example/callback"]);
    assert_eq!(
        texts("post_logout_redirect_uris"),
        ["https://shop.example/callback", "https://shop.example/bye"]
    );
    assert_eq!(texts("grants"), ["authorization_code"]);
    assert_eq!(texts("scopes"), ["openid", "profile", "offline_access"]);
    // printf %s a-secret-of-many-characters | sha256sum
    assert_eq!(texts("secret_sha256")[0].len(), 64);
    assert!(!migrated.migration.configuration.contains("a-secret-of-many"));
    assert!(!migrated.migration.report.to_string().contains("a-secret-of-many"));
    for (setting, why) in [
        ("client web, redirectUris https://shop.example/*", "patterns"),
        ("client web, redirectUris http://plain.example/x", "use https"),
        ("client spa, directAccessGrantsEnabled", "public client"),
        ("client spa, standardFlowEnabled", "no redirect URI"),
        ("client api", "only receives tokens"),
        ("client signed", "keys_file"),
        ("client old", "SAML"),
        ("client off", "disabled"),
        ("client admin-cli", "Keycloak's own"),
    ] {
        let found = outcome(&migrated, setting);
        assert!(matches!(found, Translation::NoEqual(text) if text.contains(why)), "{setting}: {found:?}");
    }
    let short = outcome(&migrated, "client short, secret");
    assert!(matches!(short, Translation::Different(text) if text.contains("guessable")), "{short:?}");
}

#[test]
fn a_client_with_a_limited_scope_sees_its_roles_only() {
    let export = of_json(&json!({
        "realm": "shop",
        "roles": {"realm": [{"name": "buyer"}, {"name": "auditor"}], "client": {"orders": [{"name": "view"}]}},
        "scopeMappings": [{"client": "web", "roles": ["buyer"]}],
        "clients": [{"clientId": "web", "publicClient": true, "redirectUris": ["https://a.example/x"], "fullScopeAllowed": false}]
    }));
    let configuration: toml::Table = migrated(&export, false).migration.configuration.parse().unwrap();
    let claims = configuration["provider"]["client"][0]["claim"].as_array().unwrap();
    assert_eq!(claims[0]["groups"].to_string(), "[{ group = \"role:buyer\", value = \"buyer\" }]");
    assert_eq!(claims[1]["value"].to_string(), "[]", "none of another client's roles");
}

fn password(algorithm: &str, iterations: u32, additional: &serde_json::Value) -> serde_json::Value {
    json!({
        "type": "password", "createdDate": 1_700_000_000_000_u64,
        "secretData": json!({"value": "AAECAwQFBgcICQoLDA0ODw==", "salt": "AAECAwQFBgcICQoLDA0ODw=="}).to_string(),
        "credentialData":
            json!({"hashIterations": iterations, "algorithm": algorithm, "additionalParameters": additional}).to_string(),
    })
}

#[test]
fn passwords_keep_their_hashes_and_what_is_unknown_is_named() {
    let argon2 = |kind: &str, version: &str| json!({"hashLength": ["16"], "memory": ["7168"], "type": [kind], "version": [version], "parallelism": ["1"]});
    let bytes = "AAECAwQFBgcICQoLDA0ODw";
    for (algorithm, iterations, additional, expected) in [
        ("pbkdf2", 20_000, json!({}), Ok("pbkdf2-sha1$i=20000,l=16")),
        ("pbkdf2-sha256", 27_500, json!({}), Ok("pbkdf2-sha256$i=27500,l=16")),
        ("pbkdf2-sha512", 210_000, json!({}), Ok("pbkdf2-sha512$i=210000,l=16")),
        ("argon2", 5, argon2("id", "1.3"), Ok("argon2id$v=19$m=7168,t=5,p=1")),
        ("argon2", 5, argon2("d", "1.0"), Ok("argon2d$v=16$m=7168,t=5,p=1")),
        ("argon2", 5, argon2("i", "1.3"), Ok("argon2i$v=19$m=7168,t=5,p=1")),
        ("argon2", 5, argon2("x", "1.3"), Err("unknown type")),
        ("argon2", 5, argon2("id", "2.0"), Err("unknown version")),
        ("argon2", 5, json!({}), Err("no type")),
        ("bcrypt", 10, json!({}), Err("bcrypt")),
        ("pbkdf2-sha256", 9_999_999, json!({}), Err("too many iterations")),
    ] {
        let credentials = [password(algorithm, iterations, &additional)];
        let export = of_json(&json!({
            "realm": "shop", "users": [{"id": "1", "username": "ada", "credentials": credentials}],
        }));
        let people = migrated(&export, false).people;
        let phc = people.people[0].password.as_ref().map(|password| password.phc.clone());
        match expected {
            Ok(scheme) => assert_eq!(phc, Some(format!("${scheme}${bytes}${bytes}"))),
            Err(why) => assert!(phc.is_none() && noted(&people, why) == ["ada"], "{why}: {:?}", people.notes),
        }
    }
}

#[test]
fn second_factors_lock_and_differences_of_people_are_listed() {
    let with = |more: serde_json::Value| {
        let mut credentials = vec![password("pbkdf2-sha256", 1000, &json!({}))];
        credentials.extend(more.as_array().unwrap().iter().cloned());
        credentials
    };
    let export = of_json(&json!({
        "realm": "shop", "duplicateEmailsAllowed": true,
        "clients": [{"clientId": "spa", "publicClient": true, "redirectUris": ["https://a.example/x"], "defaultClientScopes": ["profile"]}],
        "users": [
            {"id": "1", "username": "ada", "credentials": with(json!([{"type": "otp"}])), "email": "a@b", "emailVerified": true},
            {"id": "2", "username": "bob", "enabled": false, "credentials": with(json!([])), "email": "A@B"},
            {"id": "3", "username": "cem", "credentials": with(json!([{"type": "voice"}])), "requiredActions": ["UPDATE_PASSWORD", "VERIFY_EMAIL"]},
            {"id": "4", "username": "dora", "attributes": {"x": ["1", "2"], "groups": ["g"], "y": ["a\u{0}"], "z": ["1"], "phoneNumber": ["+44"]},
             "clientConsents": [{"clientId": "spa", "grantedClientScopes": ["profile", "roles"], "createdDate": 5}, {"clientId": "gone", "grantedClientScopes": ["profile"]}]},
            {"username": "eve"},
            {"id": "6", "username": "service-account-robot", "serviceAccountClientId": "robot"}
        ]
    }));
    let people = migrated(&export, false).people;
    let disabled: Vec<(&str, bool)> = people.people.iter().map(|p| (&*p.name, p.is_disabled)).collect();
    assert_eq!(disabled, [("ada", true), ("bob", true), ("cem", true), ("dora", false)]);
    assert!(people.people.iter().all(|person| person.email.is_none()), "both have the same address");
    for (text, names) in [
        ("second factor", vec!["ada", "cem"]),
        ("share their address", vec!["ada", "bob"]),
        ("VERIFY_EMAIL", vec!["cem"]),
        ("type voice", vec!["cem"]),
        ("have no password", vec!["dora"]),
        ("no id", vec!["eve"]),
    ] {
        assert_eq!(noted(&people, text), names, "{text}");
    }
    let dora = &people.people[3];
    assert_eq!(dora.consents.len(), 1);
    assert_eq!(dora.consents[0].scopes, ["openid", "profile"]);
    assert_eq!(
        serde_json::Value::from(dora.claims.clone()),
        json!({"keycloak_groups": "g", "phone_number": "+44", "x": ["1", "2"]}),
        "a name that is taken is changed, one beyond the limit and a value with a NUL are left out"
    );
    let without = migrated(&export, true).people;
    assert_eq!(without.people.iter().filter(|person| person.is_disabled).count(), 1);
    assert_eq!(noted(&without, "alone is enough"), ["ada", "cem"]);
}

#[test]
fn a_real_export_keeps_people_with_each_algorithm_and_its_clients() {
    let export = read(&[
        ("shop-realm.json", include_str!("keycloak/shop-realm.json")),
        ("shop-users-0.json", include_str!("keycloak/shop-users-0.json")),
        ("shop-users-1.json", include_str!("keycloak/shop-users-1.json")),
        ("shop-users-2.json", include_str!("keycloak/shop-users-2.json")),
    ])
    .unwrap();
    assert!(!export.has_no_people() && !export.is_masked());
    let migrated = migrated(&export, false);
    let scheme = |name: &str| {
        let person = migrated.people.people.iter().find(|person| person.name == name).unwrap();
        person.password.as_ref().map(|password| password.phc.rsplitn(3, '$').last().unwrap().to_owned())
    };
    for (name, expected) in [
        ("argon2id", "$argon2id$v=19$m=7168,t=5,p=1"),
        ("sha1", "$pbkdf2-sha1$i=20000,l=64"),
        ("sha256", "$pbkdf2-sha256$i=27500,l=32"),
        ("sha512", "$pbkdf2-sha512$i=30000,l=64"),
    ] {
        assert_eq!(scheme(name).as_deref(), Some(expected), "{name}");
    }
    let ada = migrated.people.people.iter().find(|person| person.name == "ada").unwrap();
    assert_eq!(
        ada.groups,
        ["/staff/leads", "orders:approve", "orders:view", "role:lead", "role:order-managers"]
    );
    assert_eq!((&*ada.id, ada.email_verified), ("f340e996-a8ed-4871-b6a6-e916708428ee", true));
    assert_eq!(ada.consents[0].scopes, ["email", "openid", "profile"]);
    assert_eq!(ada.claims["department"], "orders");
    assert_eq!(noted(&migrated.people, "second factor"), ["dora"]);
    let changing = migrated.people.people.iter().filter(|person| person.must_change_password);
    assert_eq!(changing.map(|person| &*person.name).collect::<Vec<_>>(), ["carol"]);
    let configuration: toml::Table = migrated.migration.configuration.parse().unwrap();
    let clients = configuration["provider"]["client"].as_array().unwrap();
    let ids: Vec<&str> = clients.iter().map(|client| client["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["orders", "robot", "spa", "web"]);
    let attributes = configuration["provider"]["attribute"].as_array().unwrap();
    assert_eq!(attributes.len(), 1, "none of Keycloak's own scopes: {attributes:?}");
    let robot = &clients[1];
    assert_eq!(robot["groups"].to_string(), "[\"role:order-managers\"]");
    let uncommented = migrated.migration.configuration.lines().filter(|line| line.contains(" = ")).count();
    assert!(uncommented > 40, "{}", migrated.migration.configuration);
}
