//! Export: the files of `kc.sh export`, as far as they are translated.
//!
//! Owns: which files belong together, and their members. Members that are not known are passed over,
//! because each version of Keycloak adds some.

#![allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "members are named as in the export"
)]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::input_fault::InputFault;

/// What Keycloak writes in place of a secret where it does not show it.
const MASK: &str = "**********";

/// Texts by name.
pub(super) type Texts = BTreeMap<String, String>;
/// Names of roles by client.
pub(super) type ClientRoles = BTreeMap<String, Vec<String>>;

/// A file of an export: its name and its text.
pub type ExportFile = (String, Vec<u8>);

/// A realm with the people of all files.
#[derive(Debug, Default)]
pub struct RealmExport {
    pub(super) realm: Realm,
    pub(super) users: Vec<User>,
}

/// What a realm has; the lifetimes are in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Realm {
    pub realm: String,
    pub display_name: Option<String>,
    pub enabled: Option<bool>,
    pub keycloak_version: Option<String>,
    pub default_signature_algorithm: Option<String>,
    pub access_token_lifespan: Option<u64>,
    pub sso_session_idle_timeout: Option<u64>,
    pub sso_session_max_lifespan: Option<u64>,
    pub offline_session_idle_timeout: Option<u64>,
    pub offline_session_max_lifespan_enabled: bool,
    pub offline_session_max_lifespan: Option<u64>,
    pub access_code_lifespan: Option<u64>,
    pub oauth2_device_code_lifespan: Option<u64>,
    pub brute_force_protected: bool,
    pub permanent_lockout: bool,
    pub failure_factor: Option<u64>,
    pub wait_increment_seconds: Option<u64>,
    pub max_failure_wait_seconds: Option<u64>,
    pub password_policy: Option<String>,
    pub registration_allowed: bool,
    pub reset_password_allowed: bool,
    pub verify_email: bool,
    pub remember_me: bool,
    pub login_with_email_allowed: Option<bool>,
    pub duplicate_emails_allowed: bool,
    pub internationalization_enabled: bool,
    pub events_enabled: bool,
    pub organizations_enabled: bool,
    pub browser_flow: Option<String>,
    pub login_theme: Option<String>,
    pub smtp_server: BTreeMap<String, serde_json::Value>,
    pub identity_providers: Vec<Alias>,
    pub components: BTreeMap<String, Vec<Component>>,
    pub attributes: BTreeMap<String, serde_json::Value>,
    pub roles: Roles,
    pub groups: Vec<Group>,
    pub clients: Vec<Client>,
    pub client_scopes: Vec<ClientScope>,
    pub scope_mappings: Vec<ScopeMapping>,
    pub client_scope_mappings: BTreeMap<String, Vec<ScopeMapping>>,
    users: Vec<User>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Alias {
    pub alias: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Component {
    pub name: Option<String>,
    pub provider_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Roles {
    pub realm: Vec<Role>,
    pub client: BTreeMap<String, Vec<Role>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Role {
    pub name: String,
    pub composites: Composites,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Composites {
    pub realm: Vec<String>,
    pub client: ClientRoles,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Group {
    pub name: String,
    pub path: Option<String>,
    pub attributes: BTreeMap<String, serde_json::Value>,
    pub realm_roles: Vec<String>,
    pub client_roles: ClientRoles,
    pub sub_groups: Vec<Group>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Client {
    pub client_id: String,
    pub name: Option<String>,
    pub root_url: Option<String>,
    pub enabled: Option<bool>,
    pub protocol: Option<String>,
    pub client_authenticator_type: Option<String>,
    pub secret: Option<String>,
    pub redirect_uris: Vec<String>,
    pub bearer_only: bool,
    pub consent_required: bool,
    pub standard_flow_enabled: Option<bool>,
    pub implicit_flow_enabled: bool,
    pub direct_access_grants_enabled: bool,
    pub service_accounts_enabled: bool,
    pub authorization_services_enabled: bool,
    pub public_client: bool,
    pub frontchannel_logout: bool,
    pub full_scope_allowed: Option<bool>,
    pub attributes: Texts,
    pub protocol_mappers: Vec<Mapper>,
    pub default_client_scopes: Vec<String>,
    pub optional_client_scopes: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientScope {
    pub name: String,
    pub protocol_mappers: Vec<Mapper>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mapper {
    pub name: String,
    pub protocol_mapper: String,
    pub config: Texts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScopeMapping {
    pub client: Option<String>,
    pub client_scope: Option<String>,
    pub roles: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct User {
    pub id: Option<String>,
    pub username: String,
    pub email: Option<String>,
    pub email_verified: bool,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
    pub enabled: Option<bool>,
    pub created_timestamp: Option<u64>,
    pub attributes: BTreeMap<String, Vec<String>>,
    pub credentials: Vec<Credential>,
    pub required_actions: Vec<String>,
    pub realm_roles: Vec<String>,
    pub client_roles: ClientRoles,
    pub groups: Vec<String>,
    pub client_consents: Vec<ClientConsent>,
    pub federated_identities: Vec<serde_json::Value>,
    pub federation_link: Option<String>,
    pub service_account_client_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Credential {
    #[serde(rename = "type")]
    pub kind: String,
    pub user_label: Option<String>,
    pub created_date: Option<u64>,
    pub secret_data: Option<String>,
    pub credential_data: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientConsent {
    pub client_id: String,
    pub granted_client_scopes: Vec<String>,
    pub created_date: Option<u64>,
    pub last_updated_date: Option<u64>,
}

/// A file with people only.
#[derive(Debug, Deserialize)]
struct UsersFile {
    realm: Option<String>,
    users: Vec<User>,
}

/// Whether a file of this name in a folder is part of an export: `NAME-realm.json`, `NAME-users-N.json`.
pub fn is_export_file(name: &str) -> bool {
    let stem = name.strip_suffix(".json");
    stem.is_some_and(|stem| stem.ends_with("-realm") || is_users_file(name))
}

fn is_users_file(name: &str) -> bool {
    let number = name.strip_suffix(".json").and_then(|stem| stem.rsplit_once("-users-"));
    number.is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

impl RealmExport {
    /// Reads the files of an export: those with realms, and any number with people. `wanted` is the
    /// name of the realm, if there are several.
    ///
    /// # Errors
    /// If a file is no JSON of this form, there is no such realm, or none is wanted of several.
    pub fn read(
        files: impl IntoIterator<Item = Result<ExportFile, InputFault>>,
        wanted: Option<&str>,
    ) -> Result<Self, InputFault> {
        let (mut realms, mut people): (Vec<Realm>, Vec<UsersFile>) = (Vec::new(), Vec::new());
        for file in files {
            let (name, text) = file?;
            if is_users_file(&name) {
                people.push(parse(&name, &text)?);
            } else {
                realms.extend(realms_of(&name, &text)?);
            }
        }
        let names: Vec<String> = realms.iter().map(|realm| realm.realm.clone()).collect();
        let fault = |why: String| InputFault::File { name: "the export".into(), why };
        if let Some(wanted) = wanted {
            realms.retain(|realm| realm.realm == wanted);
        }
        let mut realms = realms.into_iter();
        let mut realm = match (realms.next(), realms.next(), wanted) {
            (Some(realm), None, _) => realm,
            (None, _, Some(wanted)) => {
                return Err(fault(format!("it has no realm {wanted:?}, but {}", names.join(", "))));
            }
            (None, _, None) => {
                let why =
                    "it has no NAME-realm.json: export the realm with `kc.sh export --dir DIR --realm NAME`";
                return Err(fault(why.into()));
            }
            (Some(_), Some(_), _) => {
                return Err(fault(format!(
                    "it has the realms {}: name one with --realm, in a folder of one export",
                    names.join(", ")
                )));
            }
        };
        let mut users = std::mem::take(&mut realm.users);
        // A file of people without the name of its realm is of the only one.
        let is_own = |file: &UsersFile| match &file.realm {
            Some(name) => *name == realm.realm,
            None => names.len() == 1,
        };
        users.extend(people.into_iter().filter(is_own).flat_map(|file| file.users));
        Ok(Self { realm, users })
    }

    /// Whether the export was made without people: none, or only those of clients.
    pub fn has_no_people(&self) -> bool {
        self.users.iter().all(|user| user.service_account_client_id.is_some())
    }

    /// Whether secrets are replaced by stars, as the administration console exports them.
    pub fn is_masked(&self) -> bool {
        self.realm.clients.iter().any(|client| client.secret.as_deref() == Some(MASK))
    }

    /// Name of the realm.
    pub fn name(&self) -> &str {
        &self.realm.realm
    }
}

/// The realms of a file. `kc.sh` writes several as a list.
fn realms_of(name: &str, text: &[u8]) -> Result<Vec<Realm>, InputFault> {
    let is_list = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let realms: Vec<Realm> = if is_list { parse(name, text)? } else { vec![parse(name, text)?] };
    if realms.iter().any(|realm| realm.realm.is_empty()) {
        let why = "it has no member `realm`: give a file of `kc.sh export`".into();
        return Err(InputFault::File { name: name.to_owned(), why });
    }
    Ok(realms)
}

fn parse<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, InputFault> {
    serde_json::from_slice(text).map_err(|error| {
        let why = format!("it is no file of `kc.sh export`: {error}");
        InputFault::File { name: name.to_owned(), why }
    })
}

/// Scopes that Keycloak creates in every realm. What they put into tokens is standard here.
const BUILT_IN_SCOPES: [&str; 14] = [
    "acr",
    "address",
    "basic",
    "email",
    "microprofile-jwt",
    "offline_access",
    "organization",
    "phone",
    "profile",
    "role_list",
    "roles",
    "saml_organization",
    "service_account",
    "web-origins",
];

impl ClientScope {
    /// Whether Keycloak has created the scope itself.
    pub(super) fn is_built_in(&self) -> bool {
        BUILT_IN_SCOPES.contains(&&*self.name)
    }
}

impl Client {
    /// The attribute of this name, if it is not empty.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether an attribute is switched on.
    pub(super) fn has_switch(&self, name: &str) -> bool {
        self.attribute(name) == Some("true")
    }

    /// The secret, unless it is masked.
    pub(super) fn shown_secret(&self) -> Option<&str> {
        self.secret.as_deref().filter(|secret| !secret.is_empty() && *secret != MASK)
    }
}

impl Mapper {
    /// A setting of the mapper.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}
