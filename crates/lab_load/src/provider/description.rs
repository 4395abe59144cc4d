//! Provider description: endpoints, clients, users and form field names of an OpenID provider.
//!
//! Owns: the description (JSON) and its check. Does not own: its use ([`super::user`]).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::scenario::Flow;
use super::url::escape;

/// Description of an OpenID provider, as read from a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDescription {
    /// Name of the provider in reports.
    pub name: String,
    /// Scheme, host and port, as the pages of the provider write them.
    pub origin: String,
    /// Paths of the endpoints.
    pub endpoints: Endpoints,
    /// Clients with a secret. Virtual users are assigned to them in turn.
    pub clients: Vec<Client>,
    /// Clients of the authorization code flow; if empty, those of `clients`.
    #[serde(default)]
    pub code_clients: Vec<Client>,
    /// Users who sign in.
    #[serde(default)]
    pub users: Option<Users>,
    /// Redirect URI of the clients. The browser recognizes it but never requests it.
    #[serde(default)]
    pub redirect_uri: String,
    /// Requested scopes by grant.
    #[serde(default)]
    pub scopes: Scopes,
    /// Value of `prompt` in the authorization request; empty to omit it.
    #[serde(default = "consent")]
    pub prompt: String,
    /// Names of the form fields.
    #[serde(default)]
    pub fields: Fields,
}

fn consent() -> String {
    "consent".to_owned()
}

/// Paths of the endpoints below the origin.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoints {
    /// Token endpoint (RFC 6749 §3.2).
    pub token: String,
    /// Authorization endpoint (RFC 6749 §3.1).
    #[serde(default)]
    pub authorize: String,
    /// Revocation endpoint (RFC 7009).
    #[serde(default)]
    pub revoke: String,
    /// Introspection endpoint (RFC 7662).
    #[serde(default)]
    pub introspect: String,
}

/// A client with a secret, which it sends with HTTP Basic (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Client identifier (`client_id`).
    pub id: String,
    /// Client secret.
    pub secret: String,
}

impl Client {
    /// Value of the client's `Authorization` header field.
    pub(crate) fn basic(&self) -> String {
        let mut pair = String::new();
        escape(&mut pair, &self.id);
        pair.push(':');
        escape(&mut pair, &self.secret);
        format!("Basic {}", STANDARD.encode(pair))
    }
}

/// Users whose names differ by a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// User name; `{n}` stands for a number from 1 to `count`.
    pub pattern: String,
    /// Number of users.
    pub count: u64,
    /// Password of all users.
    pub password: String,
}

impl Users {
    /// Name of user number `n`.
    pub(crate) fn name(&self, n: u64) -> String {
        self.pattern.replace("{n}", &n.to_string())
    }
}

/// Scopes by grant, separated by spaces; empty to request none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scopes {
    /// Scopes of the authorization code flow.
    pub code: String,
    /// Scopes of the password grant.
    pub password: String,
    /// Scopes of the client credentials grant.
    pub client_credentials: String,
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            code: "openid profile".to_owned(),
            password: "openid profile".to_owned(),
            client_credentials: String::new(),
        }
    }
}

/// Names of fields in the forms of the provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// Input field of the user name.
    pub username: String,
    /// Input field of the password.
    pub password: String,
    /// Button that grants the consent.
    pub consent: ConsentButton,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            username: "username".to_owned(),
            password: "password".to_owned(),
            consent: ConsentButton { name: "decision".to_owned(), value: "allow".to_owned() },
        }
    }
}

/// A button of a form.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentButton {
    /// Name of the button.
    pub name: String,
    /// Value of the button.
    pub value: String,
}

/// Why a provider description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file cannot be read.
    #[error("cannot read the description `{0}`: {1}")]
    Unreadable(String, std::io::Error),
    /// The file is not JSON of the expected shape.
    #[error("cannot parse the provider description `{0}`: {1}")]
    Shape(String, serde_json::Error),
    /// A value is missing or invalid.
    #[error("`{0}` of the description: {1}")]
    Value(&'static str, String),
}

impl ProviderDescription {
    /// Reads a description from a JSON file.
    pub fn read(file: &Path) -> Result<Self, DescriptionError> {
        let name = || file.display().to_string();
        let text = std::fs::read(file).map_err(|error| DescriptionError::Unreadable(name(), error))?;
        serde_json::from_slice(&text).map_err(|error| DescriptionError::Shape(name(), error))
    }

    /// Checks that the description has everything that `scenario` needs.
    ///
    /// # Errors
    /// The first missing or invalid field.
    pub fn check(&self, scenario: Flow) -> Result<(), DescriptionError> {
        let refuse = |field, why: &str| Err(DescriptionError::Value(field, why.to_owned()));
        if self.origin.ends_with('/') || !self.origin.contains("://") {
            return refuse(
                "origin",
                "give scheme, host and port without a path, such as http://127.0.0.1:8080",
            );
        }
        if self.clients.is_empty() {
            return refuse("clients", "at least one client is required");
        }
        let needs = [
            ("endpoints.token", &self.endpoints.token, true),
            ("endpoints.authorize", &self.endpoints.authorize, scenario == Flow::CodeConsent),
            ("endpoints.revoke", &self.endpoints.revoke, scenario == Flow::PasswordRevoke),
            ("endpoints.introspect", &self.endpoints.introspect, scenario == Flow::Introspection),
        ];
        for (field, path, needed) in needs {
            let line = path.bytes().all(|byte| byte.is_ascii_graphic());
            if !line || (needed || !path.is_empty()) && !path.starts_with('/') {
                return refuse(field, "give a path that begins with /");
            }
        }
        if scenario == Flow::CodeConsent && !self.redirect_uri.contains("://") {
            return refuse("redirect_uri", "required by the authorization code flow");
        }
        match &self.users {
            Some(users) if users.count == 0 => refuse("users.count", "must be at least 1"),
            Some(users) if users.count > 1 && !users.pattern.contains("{n}") => {
                refuse("users.pattern", "must contain {n} for the user number")
            }
            None if scenario != Flow::ClientCredentials => {
                refuse("users", "required: this scenario needs users who sign in")
            }
            _ => Ok(()),
        }
    }

    /// Clients of a scenario, at least one.
    pub(crate) fn clients_for(&self, scenario: Flow) -> &[Client] {
        let code = scenario == Flow::CodeConsent && !self.code_clients.is_empty();
        if code { &self.code_clients } else { &self.clients }
    }
}
