//! Clients: the programs that may request tokens.
//!
//! Owns: the checked client and its rights ([`Client`]), the set of clients ([`Registry`]), client
//! settings ([`config`]).
//!
//! Does not own: client secrets ([`crate::client_secret`]), client authentication
//! ([`crate::client_authentication`]), the configuration of clients ([`crate::config`]), the use of
//! their rights by a grant ([`crate::grants`]).

pub mod config;

use std::{collections::HashMap, sync::Arc, time::Duration};

use auth::{keyset::KeySet, time::Timestamp, token::jws::SigningAlgorithm};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Store, StoreError};

use self::config::ClientConfig;
use crate::attributes::Attributes;
use crate::claim_mapping::{ClaimMapping, Mapping};
use crate::client_secret::SecretDigests;
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::oauth::redirect_uri::RedirectUri;
use crate::oauth::scope::ScopeSet;
use crate::oauth::target;
use crate::secrets::{PairwiseKind, Secrets};
use crate::subject::{self, Sector};

/// Wire names of the supported methods, for `token_endpoint_auth_methods_supported`.
pub const AUTH_METHODS: [&str; 4] = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"];

/// Stored clients that are read in one query.
const PAGE_SIZE: u32 = 200;
/// Member of the stored settings that was a boolean in older versions.
const INTROSPECTS: &str = "introspects";

/// Format of access tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenFormat {
    /// Signed JWT; resource servers can read and verify it (RFC 9068).
    #[default]
    Jwt,
    /// Random text; resource servers learn its status from the introspection endpoint.
    Opaque,
}

/// The `typ` in the header of JWT access tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub enum AccessTokenTyp {
    /// `at+jwt` (RFC 9068 §2.1), which no other kind of token has.
    #[default]
    #[serde(rename = "at+jwt")]
    AtJwt,
    /// `JWT`, for resource servers that accept nothing else.
    #[serde(rename = "JWT")]
    Jwt,
}

impl AccessTokenTyp {
    /// The `typ` as sent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtJwt => "at+jwt",
            Self::Jwt => "JWT",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which tokens a client may introspect (RFC 7662). All others are reported as inactive: a resource
/// server should learn only about tokens that are issued for it (§4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Introspects {
    /// Tokens that were issued to the client.
    #[default]
    Own,
    /// Also tokens whose audience is its id or one of its `audiences`; for a resource server.
    Audience,
    /// All tokens; for a gateway in front of many resource servers.
    All,
}

impl Introspects {
    const OWN: &str = "own";
    const ALL: &str = "all";
    const WIRE_NAMES: [(&str, Self); 3] =
        [(Self::OWN, Self::Own), ("audience", Self::Audience), (Self::ALL, Self::All)];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
    pub(crate) fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

impl<'de> Deserialize<'de> for Introspects {
    /// Refuses every other value, including the former `true` and `false`; the error lists the
    /// valid ones.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let known = value.as_str().and_then(|word| Self::WIRE_NAMES.iter().find(|(name, _)| *name == word));
        known.map(|(_, introspects)| *introspects).ok_or_else(|| {
            serde::de::Error::custom(format!(r#"introspects is "own", "audience" or "all", not {value}"#))
        })
    }
}

/// How a client authenticates.
#[derive(Debug)]
pub(crate) enum ClientCredential {
    /// Not at all: a public client.
    Nothing,
    /// With a client secret.
    Secret(SecretDigests),
    /// With a signed assertion.
    Keys(KeySet),
}

/// Defaults for client settings, and the values that clients may choose from.
#[derive(Debug, Clone)]
pub struct ClientDefaults {
    /// Audiences of the provider.
    pub audiences: Vec<Box<str>>,
    /// Signing algorithm of access tokens.
    pub access_token_algorithm: SigningAlgorithm,
    /// Default signing algorithm of ID tokens.
    pub id_token_algorithm: SigningAlgorithm,
    /// Default lifetime of access tokens.
    pub access_token_lifetime: Duration,
    /// Attributes that mappings may name.
    pub attributes: Attributes,
    /// Claims that the configuration adds for all clients.
    pub mappings: Vec<Mapping>,
}

/// A client with checked settings (see [`ClientConfig::check`]).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Client {
    pub(crate) id: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) proof: ClientCredential,
    pub(crate) grants: Vec<GrantType>,
    pub(crate) redirect_uris: Vec<RedirectUri>,
    pub(crate) post_logout_redirect_uris: Vec<RedirectUri>,
    pub(crate) backchannel_logout_uri: Option<Box<str>>,
    pub(crate) scopes: ScopeSet,
    pub(crate) default_scopes: ScopeSet,
    pub(crate) audiences: Vec<Box<str>>,
    pub(crate) groups: Vec<Box<str>>,
    pub(crate) asks_consent: bool,
    pub(crate) requires_pkce: bool,
    pub(crate) requires_pushed_requests: bool,
    pub(crate) introspects: Introspects,
    pub(crate) access_token: TokenFormat,
    pub(crate) access_token_typ: AccessTokenTyp,
    pub(crate) access_token_algorithm: SigningAlgorithm,
    pub(crate) access_token_lifetime: Duration,
    pub(crate) id_token_algorithm: SigningAlgorithm,
    pub(crate) userinfo_algorithm: Option<SigningAlgorithm>,
    pub(crate) claims_in_id_token: bool,
    /// Claims that the configuration adds: those for all clients, and its own.
    pub(crate) mappings: Vec<Mapping>,
    /// Its own mappings as configured.
    pub(crate) claims: Vec<ClaimMapping>,
    /// The sector of its pairwise subjects; `None`: its subjects are public.
    pub(crate) sector: Option<Sector>,
    /// Name of the sector as configured; `None`: it is the host of the redirect URIs.
    pub(crate) sector_name: Option<Box<str>>,
    /// When it was read from the store, in log time; `None`: it comes from the configuration.
    pub(crate) read_at: Option<Timestamp>,
}

impl Client {
    /// The `client_id` of the client.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Display name for users.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The earlier of the client's and another read time, in log time.
    pub(crate) fn earliest_read_at(&self, other: Timestamp) -> Timestamp {
        self.read_at.map_or(other, |own| own.min(other))
    }

    /// The `sub` by which the client knows a user.
    pub(crate) fn subject(&self, secrets: &Secrets, user_id: &str) -> String {
        subject::identifier(secrets, self.sector, PairwiseKind::User, user_id)
    }

    /// The `sid` by which the client knows a session.
    pub(crate) fn sid(&self, secrets: &Secrets, sid: &str) -> String {
        subject::identifier(secrets, self.sector, PairwiseKind::Session, sid)
    }

    /// Groups in the client's own access tokens.
    pub fn groups(&self) -> &[Box<str>] {
        &self.groups
    }

    /// Lifetime of the client's access tokens, in whole seconds.
    pub fn access_token_lifetime(&self) -> Duration {
        self.access_token_lifetime
    }

    /// Whether this URI is registered for redirects after logout.
    pub(crate) fn allows_post_logout_redirect(&self, uri: &str) -> bool {
        self.post_logout_redirect_uris.iter().any(|registered| registered.matches(uri))
    }

    /// Whether the client may use a grant.
    pub fn may_use(&self, grant: GrantType) -> bool {
        self.grants.contains(&grant)
    }

    /// The scopes for a request with this `scope` parameter (RFC 6749 §3.3): all requested scopes,
    /// or the default scopes without the parameter. Never returns fewer than requested: a client
    /// should learn of a missing right here, not when a later call fails.
    ///
    /// # Errors
    /// [`OAuthFault`] when a scope is malformed or not allowed for the client.
    pub fn scopes_for(&self, requested: Option<&str>) -> Result<ScopeSet, OAuthFault> {
        let Some(requested) = requested else { return Ok(self.default_scopes.clone()) };
        let scopes = ScopeSet::parse(requested)?;
        match scopes.first_outside(&self.scopes) {
            Some(scope) => Err(OAuthFault::ScopeNotAllowed(scope.into())),
            None => Ok(scopes),
        }
    }

    /// The audiences for a request, without duplicates: its `resource` (RFC 8707 §2) and `audience`
    /// parameters. Without parameters it is the client's first audience (RFC 9068 §3 requires a
    /// default), or none.
    ///
    /// # Errors
    /// [`OAuthFault`] when an audience is malformed or not allowed for the client.
    pub fn audiences_for(&self, form: &Form) -> Result<Vec<&str>, OAuthFault> {
        let own = |named: &str| {
            let own = self.audiences.iter().find(|own| own.as_ref() == named);
            own.map(AsRef::as_ref).ok_or_else(|| OAuthFault::TargetNotAllowed(named.into()))
        };
        let mut targets: Vec<&str> =
            target::requested_targets(form)?.into_iter().map(own).collect::<Result<_, _>>()?;
        if targets.is_empty() {
            targets.extend(self.audiences.first().map(AsRef::as_ref));
        }
        Ok(targets)
    }
}

/// All clients: those of the configuration in memory, and those of the store, read on demand.
#[derive(Debug)]
pub struct Registry {
    configured: HashMap<Box<str>, Arc<Client>>,
    defaults: ClientDefaults,
}

impl Registry {
    /// Creates a registry. Ids should be unique, as the configuration check ensures; of two clients
    /// with one id the later one is used.
    pub(crate) fn new(clients: impl IntoIterator<Item = Client>, defaults: ClientDefaults) -> Self {
        let configured = clients.into_iter().map(|client| (client.id.clone(), Arc::new(client))).collect();
        Self { configured, defaults }
    }

    /// Defaults for client settings.
    pub fn defaults(&self) -> &ClientDefaults {
        &self.defaults
    }

    /// Whether the configuration has a client with this id.
    pub fn is_configured(&self, id: &str) -> bool {
        self.configured.contains_key(id)
    }

    /// All clients of the configuration.
    pub fn configured(&self) -> impl Iterator<Item = &Client> {
        self.configured.values().map(AsRef::as_ref)
    }

    pub(crate) fn with_password_grant(&self) -> impl Iterator<Item = &str> {
        self.configured().filter(|c| c.may_use(GrantType::Password)).map(Client::id)
    }

    pub(crate) fn algorithms(&self) -> impl Iterator<Item = SigningAlgorithm> {
        self.configured().flat_map(|c| [Some(c.id_token_algorithm), c.userinfo_algorithm]).flatten()
    }

    /// Looks up an enabled client. The configuration has precedence, so the store cannot replace
    /// its clients. A stored client whose settings are no longer valid, for example after its
    /// audience left the configuration, is not returned.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn find(&self, store: &Store, id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        if let Some(client) = self.configured.get(id) {
            return Ok(Some(client.clone()));
        }
        // Only valid ids are looked up. A JWT can name any text, and PostgreSQL refuses text with
        // NUL.
        if !config::is_client_id(id) {
            return Ok(None);
        }
        let Some(row) = store.client(id).await?.filter(|row| row.disabled_at.is_none()) else {
            return Ok(None);
        };
        match self.read(&row) {
            Ok(client) => Ok(Some(Arc::new(client))),
            Err(fault) => {
                tracing::warn!(client = id, %fault, "stored client has invalid settings, ignored");
                Ok(None)
            }
        }
    }

    fn read(&self, row: &store::clients::ClientRow) -> Result<Client, String> {
        let config = ClientConfig::from_stored(row).map_err(|fault| fault.to_string())?;
        let (client, _) = config.check_stored(&self.defaults).map_err(|faults| faults.to_string())?;
        Ok(Client { read_at: Some(row.read_at), ..client })
    }

    /// Describes ignored settings of stored clients, one line each: redirect URIs registered by an
    /// older version.
    pub(crate) async fn ignored_settings(&self, store: &Store) -> Result<Vec<String>, StoreError> {
        let (mut lines, mut after) = (Vec::new(), String::new());
        loop {
            let rows = store.clients(&after, PAGE_SIZE).await?;
            let Some(last) = rows.last() else { return Ok(lines) };
            after.clone_from(&last.id);
            for row in rows.iter().filter(|row| !self.is_configured(&row.id)) {
                let read =
                    ClientConfig::from_stored(row).ok().and_then(|c| c.check_stored(&self.defaults).ok());
                let left_out = read.map(|(_, left_out)| left_out).unwrap_or_default();
                lines.extend(left_out.iter().map(|fault| format!("client {:?}: {fault}", row.id)));
            }
        }
    }
}

impl ClientConfig {
    /// Parses the settings of a stored client.
    ///
    /// # Errors
    /// `serde_json::Error` when they are not valid settings.
    pub fn from_stored(row: &store::clients::ClientRow) -> serde_json::Result<Self> {
        let mut settings: Value = serde_json::from_str(&row.settings)?;
        if let Some(introspects) = settings.get_mut(INTROSPECTS) {
            match introspects {
                Value::Bool(true) => *introspects = Introspects::ALL.into(),
                Value::Bool(false) => *introspects = Introspects::OWN.into(),
                _ => {}
            }
        }
        serde_json::from_value(settings).map(|config| Self { id: row.id.clone(), ..config })
    }

    /// Serializes the settings for the store. Secrets become digests. Members that an older version
    /// knows keep its format: that version may run during an upgrade or after a rollback.
    ///
    /// # Errors
    /// `serde_json::Error` when the settings cannot be serialized.
    pub fn to_stored(&self) -> serde_json::Result<String> {
        let mut settings = serde_json::to_value(self)?;
        if let Some(introspects) = settings.get_mut(INTROSPECTS)
            && *introspects == Introspects::ALL
        {
            *introspects = true.into();
        }
        serde_json::to_string(&settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_tokens_are_introspected_is_one_of_three_words() {
        let read = |settings: &str| serde_json::from_str::<ClientConfig>(settings).map(|c| c.introspects);
        assert_eq!(read("{}").unwrap(), Introspects::Own);
        for (word, introspects) in Introspects::WIRE_NAMES {
            let settings = format!(r#"{{"introspects":"{word}"}}"#);
            assert_eq!(read(&settings).unwrap(), introspects);
            let written = serde_json::to_value(introspects).unwrap();
            assert_eq!(written, word, "as it is read");
        }
        for other in ["true", "false", "null", r#""everything""#] {
            let fault = read(&format!(r#"{{"introspects":{other}}}"#)).unwrap_err().to_string();
            let expected = format!(r#"introspects is "own", "audience" or "all", not {other}"#);
            assert!(fault.starts_with(&expected), "{fault}");
        }
    }

    fn row(settings: &str) -> store::clients::ClientRow {
        let at = Timestamp::from_secs(1_800_000_000);
        store::clients::ClientRow {
            id: "shop".into(),
            settings: settings.into(),
            version: 1,
            created_at: at,
            updated_at: at,
            disabled_at: None,
            read_at: at,
        }
    }

    #[test]
    fn a_stored_client_is_read_by_the_former_version_too() {
        for (stored, introspects, again) in [
            ("{}", Introspects::Own, None),
            (r#"{"introspects":false}"#, Introspects::Own, None),
            (r#"{"introspects":true}"#, Introspects::All, Some(Value::Bool(true))),
            (r#"{"introspects":"all"}"#, Introspects::All, Some(Value::Bool(true))),
            (r#"{"introspects":"audience"}"#, Introspects::Audience, Some("audience".into())),
        ] {
            let config = ClientConfig::from_stored(&row(stored)).unwrap();
            assert_eq!((config.introspects, &*config.id), (introspects, "shop"), "{stored}");
            let written = config.to_stored().unwrap();
            let value: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(value.get("introspects"), again.as_ref(), "{written}");
            assert_eq!(ClientConfig::from_stored(&row(&written)).unwrap(), config);
        }
        for other in ["null", "1", r#""everything""#] {
            let fault =
                ClientConfig::from_stored(&row(&format!(r#"{{"introspects":{other}}}"#))).unwrap_err();
            assert!(fault.to_string().contains(r#"is "own", "audience" or "all""#), "{fault}");
        }
    }

    #[test]
    fn an_address_with_a_star_does_not_close_a_stored_client() {
        let defaults = ClientDefaults {
            audiences: Vec::new(),
            access_token_algorithm: SigningAlgorithm::Es256,
            id_token_algorithm: SigningAlgorithm::Es256,
            access_token_lifetime: Duration::from_secs(1),
            attributes: Attributes::default(),
            mappings: Vec::new(),
        };
        let stored =
            row(r#"{"public":true,"grants":["authorization_code"],"redirect_uris":["https://shop.example/*",
            "https://shop.example/cb?of=*"],"post_logout_redirect_uris":["https://shop.example/*"],
            "backchannel_logout_uri":"https://shop.example/*"}"#);
        let config = ClientConfig::from_stored(&stored).unwrap();
        let refused = config.check(&defaults).unwrap_err().to_string();
        assert!(refused.starts_with("redirect_uris[0]: ") && refused.contains("post_logout"), "{refused}");
        let (client, left_out) = config.check_stored(&defaults).unwrap();
        let registered: Vec<&str> = client.redirect_uris.iter().map(RedirectUri::as_str).collect();
        assert_eq!(registered, ["https://shop.example/cb?of=*"]);
        assert!(client.post_logout_redirect_uris.is_empty());
        assert_eq!(
            client.backchannel_logout_uri.as_deref(),
            Some("https://shop.example/*"),
            "nothing is compared with it"
        );
        let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        assert_eq!(
            left_out,
            [
                "redirect_uris[0]: ignored \"https://shop.example/*\": redirect URI is a pattern, which is not supported: \
             register each URI",
                "post_logout_redirect_uris[0]: ignored \"https://shop.example/*\": redirect URI is a pattern, which is not \
             supported: register each URI",
            ]
        );
        let worse =
            ClientConfig { redirect_uris: vec!["https://shop.example/*".into(), "nowhere".into()], ..config };
        assert!(worse.check_stored(&defaults).is_err(), "what was never registered closes it as ever");
    }

    #[test]
    fn one_request_names_a_few_targets() {
        use crate::oauth::target::MAX_TARGETS;

        let audiences: Vec<String> = (0..=MAX_TARGETS).map(|i| format!("urn:{i}")).collect();
        let defaults = ClientDefaults {
            audiences: audiences.iter().map(|a| a.as_str().into()).collect(),
            access_token_algorithm: SigningAlgorithm::Es256,
            id_token_algorithm: SigningAlgorithm::Es256,
            access_token_lifetime: Duration::from_secs(1),
            attributes: Attributes::default(),
            mappings: Vec::new(),
        };
        let config = ClientConfig {
            id: "orders".into(),
            secrets: vec![config::ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into())],
            grants: vec![GrantType::ClientCredentials],
            audiences,
            ..ClientConfig::default()
        };
        let client = config.check(&defaults).unwrap();
        let ask = |n: usize| {
            let body: Vec<String> = (0..n).map(|i| format!("resource=urn:{i}&audience=urn:{i}")).collect();
            client.audiences_for(&Form::parse(body.join("&").as_bytes()).unwrap()).map(|t| t.len())
        };
        assert_eq!(ask(0), Ok(1), "the default");
        assert_eq!(ask(MAX_TARGETS), Ok(MAX_TARGETS), "each once");
        assert_eq!(ask(MAX_TARGETS + 1), Err(OAuthFault::Target(target::TargetFault::TooMany)));
    }
}
