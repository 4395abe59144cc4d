//! Writes an export of a realm with many people, to measure its import:
//! `cargo run -p migrate --example keycloak_export -- 100000 TARGET`.
//!
//! `TARGET` is a folder, with 50 people in a file as `kc.sh export --users different_files` writes them;
//! or a name that ends with `.json`, for one file (`kc.sh export --file`). The password of everyone is
//! `password`. People are like those of a company: groups within groups, roles of two clients,
//! attributes, consents, some who are disabled, some with a second factor, some without a password.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};

/// People in one file, as Keycloak writes them.
const PER_FILE: usize = 50;
/// Digests of `password` with the salt `somesaltsomesalt`, made with Python's hashlib.
const SHA256: &str =
    "s5LQUeAEZUMuFVrnmF3OMNPXs3QWnF8SO/5BXmCj6QRRoqV45sk0paBc59MTSTbnRiqZ2rZHiLqodQ/j4M4wFA==";
const SALT: &str = "c29tZXNhbHRzb21lc2FsdA==";
/// Names of people.
const FIRST: [&str; 10] =
    ["Ada", "Zoë", "Jürgen", "Łukasz", "Ngọc", "Olga", "Seán", "Tomáš", "Yusuf", "Émile"];
const LAST: [&str; 8] = ["Becker", "Castañeda", "Đặng", "García", "Ivanova", "Kowalska", "O'Brien", "Öztürk"];
const YEAR_MS: u64 = 31_557_600_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [count, target] = &arguments[..] else { return Err("name a number of people and a target".into()) };
    let (count, target) = (count.parse::<usize>()?, Path::new(target));
    if target.extension().is_some_and(|extension| extension == "json") {
        return one_file(count, target);
    }
    fs::create_dir_all(target)?;
    fs::write(target.join("many-realm.json"), realm().to_string())?;
    for (number, first) in (0..count).step_by(PER_FILE).enumerate() {
        let people: Vec<Value> = (first..count.min(first + PER_FILE)).map(person).collect();
        let text = json!({"realm": "many", "users": people}).to_string();
        fs::write(target.join(format!("many-users-{number}.json")), text)?;
    }
    Ok(())
}

/// Writes realm and people into one file, one by one.
fn one_file(count: usize, target: &Path) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::new(File::create(target)?);
    let realm = realm().to_string();
    let open = realm.strip_suffix('}').ok_or("the realm is no object")?;
    write!(file, "{open},\"users\":[")?;
    for number in 0..count {
        write!(file, "{}{}", if number == 0 { "" } else { "," }, person(number))?;
    }
    write!(file, "]}}")?;
    Ok(file.flush()?)
}

fn realm() -> Value {
    let teams = |department: usize| -> Vec<Value> {
        (0..10).map(|n| json!({"name": format!("team-{n}"), "path": format!("/department-{department}/team-{n}")})).collect()
    };
    let groups: Vec<Value> = (0..20)
        .map(|n| {
            let (name, path) = (format!("department-{n}"), format!("/department-{n}"));
            json!({"name": name, "path": path, "realmRoles": ["member"], "subGroups": teams(n)})
        })
        .collect();
    json!({
        "realm": "many", "displayName": "Many", "enabled": true, "bruteForceProtected": true,
        "roles": {
            "realm": [
                {"name": "member"}, {"name": "manager", "composites": {"realm": ["member"], "client": {"orders": ["approve"]}}},
                {"name": "default-roles-many", "composites": {"realm": ["offline_access"]}}, {"name": "offline_access"},
            ],
            "client": {"orders": [{"name": "view"}, {"name": "approve"}], "stock": [{"name": "view"}, {"name": "edit"}]},
        },
        "groups": groups,
        "clients": [
            {
                "clientId": "till", "secret": "a secret of enough characters", "standardFlowEnabled": false,
                "directAccessGrantsEnabled": true, "fullScopeAllowed": true,
                "defaultClientScopes": ["profile", "email"],
            },
            {
                "clientId": "robot", "secret": "another secret of enough characters", "standardFlowEnabled": false,
                "serviceAccountsEnabled": true, "defaultClientScopes": [],
            },
        ],
    })
}

fn person(number: usize) -> Value {
    let created = 1_700_000_000_000 - (number as u64 % 7) * YEAR_MS;
    let (first, last) = (FIRST[number % FIRST.len()], LAST[number % LAST.len()]);
    let mut credentials = vec![json!({
        "id": format!("10000000-0000-4000-8000-{number:012}"), "type": "password", "createdDate": created,
        "secretData": json!({"value": SHA256, "salt": SALT, "additionalParameters": {}}).to_string(),
        "credentialData":
            json!({"hashIterations": 1000, "algorithm": "pbkdf2-sha256", "additionalParameters": {}}).to_string(),
    })];
    if number % 50 == 1 {
        credentials.push(json!({
            "type": "otp", "userLabel": "phone", "secretData": json!({"value": "NZVWG2LFMRUWC3TE"}).to_string(),
            "credentialData": json!({"subType": "totp", "digits": 6, "period": 30}).to_string(),
        }));
    }
    let is_federated = number % 100 == 2;
    if is_federated {
        credentials.clear();
    }
    let consents =
        json!([{"clientId": "till", "grantedClientScopes": ["profile", "email"], "createdDate": created}]);
    json!({
        "id": format!("00000000-0000-4000-8000-{number:012}"),
        "username": format!("person-{number}"),
        "email": format!("person-{number}@example.test"),
        "emailVerified": !number.is_multiple_of(10), "enabled": !number.is_multiple_of(100),
        "firstName": first, "lastName": format!("{last} {number}"),
        "createdTimestamp": created, "totp": number % 50 == 1,
        "attributes": {
            "department": [format!("department {}", number % 20)], "locale": ["de"],
            "phoneNumber": [format!("+44 20 7946 {:04}", number % 10_000)], "badges": ["door", "lab"],
        },
        "groups": [format!("/department-{}/team-{}", number % 20, number / 20 % 10)],
        "realmRoles": if number.is_multiple_of(25) { vec!["default-roles-many", "manager"] } else { vec!["default-roles-many"] },
        "clientRoles": {"orders": ["view"], "stock": if number.is_multiple_of(3) { vec!["view", "edit"] } else { vec!["view"] }},
        "clientConsents": if number.is_multiple_of(4) { consents } else { json!([]) },
        "requiredActions": if number % 200 == 3 { vec!["UPDATE_PASSWORD"] } else { vec![] },
        "federationLink": is_federated.then_some("directory"),
        "credentials": credentials, "disableableCredentialTypes": [], "notBefore": 0,
    })
}
