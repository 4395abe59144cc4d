//! What the driver must know of a provider: addresses, clients, users, names of form fields.
//!
//! Owns: the description (JSON) and its check. Does not own: what is done with it ([`super::scenario`]).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::scenario::Scenario;
use super::url::escape;

/// A provider as described in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// How reports call it.
    pub name: String,
    /// Scheme, host and port, as the provider's pages write them.
    pub origin: String,
    /// Where its endpoints are.
    pub endpoints: Endpoints,
    /// Clients with a secret; virtual users take them in turn.
    pub clients: Vec<Client>,
    /// Clients of the authorization code flow, where they are others.
    #[serde(default)]
    pub code_clients: Vec<Client>,
    /// Who signs in.
    #[serde(default)]
    pub users: Option<Users>,
    /// Where the provider sends the browser back to; never followed.
    #[serde(default)]
    pub redirect_uri: String,
    /// Scopes asked for.
    #[serde(default)]
    pub scopes: Scopes,
    /// `prompt` of the authorization request; empty leaves it out.
    #[serde(default = "consent")]
    pub prompt: String,
    /// What the forms call their fields.
    #[serde(default)]
    pub fields: Fields,
}

fn consent() -> String {
    "consent".to_owned()
}

/// Paths below the origin.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoints {
    /// RFC 6749 §3.2.
    pub token: String,
    /// RFC 6749 §3.1.
    #[serde(default)]
    pub authorize: String,
    /// RFC 7009.
    #[serde(default)]
    pub revoke: String,
    /// RFC 7662.
    #[serde(default)]
    pub introspect: String,
}

/// A client with a secret, which it sends by HTTP Basic (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// `client_id`.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl Client {
    /// The value of its `Authorization` field.
    pub(crate) fn basic(&self) -> String {
        let mut pair = String::new();
        escape(&mut pair, &self.id);
        pair.push(':');
        escape(&mut pair, &self.secret);
        format!("Basic {}", STANDARD.encode(pair))
    }
}

/// Users that differ by a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// User name, where `{n}` stands for 1 to `count`.
    pub pattern: String,
    /// How many there are.
    pub count: u64,
    /// The password of all of them.
    pub password: String,
}

impl Users {
    /// The name of user `n`.
    pub(crate) fn name(&self, n: u64) -> String {
        self.pattern.replace("{n}", &n.to_string())
    }
}

/// Scopes by grant, separated by spaces; empty asks for none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scopes {
    /// Of the authorization code flow.
    pub code: String,
    /// Of the password grant.
    pub password: String,
    /// Of the client credentials grant.
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

/// Names in forms.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// Where the user name is typed.
    pub username: String,
    /// Where the password is typed.
    pub password: String,
    /// What is clicked on to consent.
    pub consent: Click,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            username: "username".to_owned(),
            password: "password".to_owned(),
            consent: Click { name: "decision".to_owned(), value: "allow".to_owned() },
        }
    }
}

/// A button.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Click {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// Not read.
    #[error("cannot read the description `{0}`: {1}")]
    Unreadable(String, std::io::Error),
    /// Not JSON of this shape.
    #[error("`{0}` is no description of a provider: {1}")]
    Shape(String, serde_json::Error),
    /// A value does not fit.
    #[error("`{0}` of the description: {1}")]
    Value(&'static str, String),
}

impl Description {
    /// Reads a description from a file.
    pub fn read(file: &Path) -> Result<Self, DescriptionError> {
        let name = || file.display().to_string();
        let text = std::fs::read(file).map_err(|error| DescriptionError::Unreadable(name(), error))?;
        serde_json::from_slice(&text).map_err(|error| DescriptionError::Shape(name(), error))
    }

    /// Whether everything is there that `scenario` needs.
    pub(crate) fn check(&self, scenario: Scenario) -> Result<(), DescriptionError> {
        let refuse = |field, why: &str| Err(DescriptionError::Value(field, why.to_owned()));
        if self.origin.ends_with('/') || !self.origin.contains("://") {
            return refuse(
                "origin",
                "give scheme, host and port without a path, such as http://127.0.0.1:8080",
            );
        }
        if self.clients.is_empty() {
            return refuse("clients", "at least one client is needed");
        }
        let needs = [
            ("endpoints.token", &self.endpoints.token, true),
            ("endpoints.authorize", &self.endpoints.authorize, scenario == Scenario::CodeConsent),
            ("endpoints.revoke", &self.endpoints.revoke, scenario == Scenario::PasswordRevoke),
            ("endpoints.introspect", &self.endpoints.introspect, scenario == Scenario::Introspection),
        ];
        for (field, path, needed) in needs {
            let line = path.bytes().all(|byte| byte.is_ascii_graphic());
            if !line || (needed || !path.is_empty()) && !path.starts_with('/') {
                return refuse(field, "give a path that begins with /");
            }
        }
        if scenario == Scenario::CodeConsent && !self.redirect_uri.contains("://") {
            return refuse("redirect_uri", "the authorization code flow needs one");
        }
        match &self.users {
            Some(users) if users.count == 0 => refuse("users.count", "at least one user is needed"),
            Some(users) if users.count > 1 && !users.pattern.contains("{n}") => {
                refuse("users.pattern", "write {n} where the number goes")
            }
            None if scenario != Scenario::ClientCredentials => refuse("users", "somebody must sign in"),
            _ => Ok(()),
        }
    }

    /// The clients of a scenario, at least one.
    pub(crate) fn pool(&self, scenario: Scenario) -> &[Client] {
        let code = scenario == Scenario::CodeConsent && !self.code_clients.is_empty();
        if code { &self.code_clients } else { &self.clients }
    }
}
