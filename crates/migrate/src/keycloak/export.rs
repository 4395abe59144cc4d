//! Export: the files of `kc.sh export`, as far as they are translated.
//!
//! Members that are not known are passed over, because each version of Keycloak adds some. The people
//! of a realm are no member here: they are read one by one ([`super::reader`]).

#![allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "members are named as in the export"
)]

use std::collections::BTreeMap;

use serde::Deserialize;

/// What Keycloak writes in place of a secret where it does not show it.
pub(super) const MASK: &str = "**********";

/// Texts by name.
pub(super) type Texts = BTreeMap<String, String>;
/// Names of roles by client.
pub(super) type ClientRoles = BTreeMap<String, Vec<String>>;

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
