//! Writes an export of a realm with many people, to measure its import:
//! `cargo run -p migrate --example keycloak_export -- 100000 DIR`.
//!
//! The files are like those of `kc.sh export --users different_files`: 50 people in each. The password of
//! everyone is `password`.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};

/// People in one file, as Keycloak writes them.
const PER_FILE: usize = 50;
/// Digests of `password` with the salt `somesaltsomesalt`, made with Python's hashlib.
const SHA256: &str =
    "s5LQUeAEZUMuFVrnmF3OMNPXs3QWnF8SO/5BXmCj6QRRoqV45sk0paBc59MTSTbnRiqZ2rZHiLqodQ/j4M4wFA==";
const SALT: &str = "c29tZXNhbHRzb21lc2FsdA==";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [count, folder] = &arguments[..] else { return Err("name a number of people and a folder".into()) };
    let (count, folder) = (count.parse::<usize>()?, Path::new(folder));
    fs::create_dir_all(folder)?;
    fs::write(folder.join("many-realm.json"), realm().to_string())?;
    for (number, first) in (0..count).step_by(PER_FILE).enumerate() {
        let people: Vec<Value> = (first..count.min(first + PER_FILE)).map(person).collect();
        let text = json!({"realm": "many", "users": people}).to_string();
        fs::write(folder.join(format!("many-users-{number}.json")), text)?;
    }
    Ok(())
}

fn realm() -> Value {
    let groups: Vec<Value> =
        (0..100).map(|n| json!({"name": format!("team-{n}"), "realmRoles": ["member"]})).collect();
    json!({
        "realm": "many",
        "roles": {"realm": [{"name": "member"}], "client": {"orders": [{"name": "view"}, {"name": "edit"}]}},
        "groups": groups,
        "clients": [{
            "clientId": "till", "secret": "a secret of enough characters", "standardFlowEnabled": false,
            "directAccessGrantsEnabled": true, "fullScopeAllowed": true,
            "defaultClientScopes": ["profile", "email"],
        }],
    })
}

fn person(number: usize) -> Value {
    json!({
        "id": format!("00000000-0000-4000-8000-{number:012}"),
        "username": format!("person-{number}"),
        "email": format!("person-{number}@example.test"),
        "emailVerified": true, "enabled": !number.is_multiple_of(100),
        "firstName": "Person", "lastName": number.to_string(),
        "createdTimestamp": 1_700_000_000_000_u64 + number as u64,
        "attributes": {"department": [format!("department {}", number % 20)]},
        "groups": [format!("/team-{}", number % 100)],
        "clientRoles": {"orders": ["view"]},
        "clientConsents": [{"clientId": "till", "grantedClientScopes": ["profile"], "createdDate": 1_700_000_000_000_u64}],
        "credentials": [{
            "type": "password", "createdDate": 1_700_000_000_000_u64,
            "secretData": json!({"value": SHA256, "salt": SALT}).to_string(),
            "credentialData": json!({"hashIterations": 1000, "algorithm": "pbkdf2-sha256"}).to_string(),
        }],
    })
}
