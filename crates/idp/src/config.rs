//! The provider's configuration: plain values in, checked values out, all faults at once.
//!
//! Owns: [`Config`] (what a configuration file or a demo fills in) and its check into [`Checked`], without
//! side effects, so that `check` commands run the very same code as a start.
//! Does not own: the file's syntax and key names (the binary), or the signing keys ([`crate::keys`]).

use std::{collections::HashSet, fmt, time::Duration};

use auth::token::jws::SigningAlgorithm;

use crate::{
    access_token::{LifetimeFault, check_lifetime},
    client::{
        Client, Registry,
        secret::{SecretDigest, SecretDigests, SecretFault},
    },
    grants::GrantType,
    issuer::{Issuer, IssuerFault},
    oauth::{
        scope::{ScopeFault, ScopeSet},
        target,
    },
};

/// Longest client id in bytes.
pub const MAX_CLIENT_ID: usize = 128;
/// Longest group name in bytes.
pub const MAX_GROUP: usize = 256;
/// Most groups of one client: they travel in every token.
pub const MAX_GROUPS: usize = 128;

/// What a provider is told. Nothing is defaulted here; defaults belong to the configuration file.
#[derive(Debug, Clone)]
pub struct Config {
    /// The issuer identifier, see [`Issuer::parse`].
    pub issuer: String,
    /// The resource servers that tokens may be meant for: every audience of a client is one of these, which
    /// catches misspelt ones.
    pub audiences: Vec<String>,
    /// The algorithm access tokens are signed with; the key ring must have it.
    pub access_token_algorithm: SigningAlgorithm,
    /// How long access tokens live unless the client says otherwise: whole seconds, 1 s to 24 h.
    pub access_token_lifetime: Duration,
    /// The clients.
    pub clients: Vec<ClientConfig>,
}

/// One client as configured.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `client_id`: 1 to [`MAX_CLIENT_ID`] visible ASCII characters, unique. It is also the `sub` of tokens
    /// the client gets for itself.
    pub id: String,
    /// One secret, or two while the client moves from one to the next.
    pub secrets: Vec<ConfiguredSecret>,
    /// The grants it may use; at least one.
    pub grants: Vec<GrantType>,
    /// The scopes it may have.
    pub scopes: Vec<String>,
    /// The scopes it gets when it asks for none: some of `scopes`, or nothing.
    pub default_scopes: Vec<String>,
    /// The audiences it may name; the first is used when it names none. At least one.
    pub audiences: Vec<String>,
    /// The groups its tokens carry (RFC 9068 §2.2.3.1).
    pub groups: Vec<String>,
    /// How long its access tokens live; the provider's lifetime when absent.
    pub access_token_lifetime: Option<Duration>,
}

/// A client secret as configured.
#[derive(Clone)]
pub enum ConfiguredSecret {
    /// In the clear, hard to guess (see [`SecretDigest::of_configured`]).
    Plain(String),
    /// Its SHA-256 as 64 hexadecimal digits.
    Sha256(String),
}

impl fmt::Debug for ConfiguredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Sha256(_) => "Sha256(..)",
        })
    }
}

/// Why one value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigReason {
    /// See [`IssuerFault`].
    #[error(transparent)]
    Issuer(IssuerFault),
    /// See [`LifetimeFault`].
    #[error(transparent)]
    Lifetime(LifetimeFault),
    /// See [`SecretFault`].
    #[error(transparent)]
    Secret(SecretFault),
    /// See [`ScopeFault`].
    #[error(transparent)]
    Scope(ScopeFault),
    /// No secret.
    #[error("a client needs a secret")]
    NoSecret,
    /// More than two secrets.
    #[error("a client has at most two secrets: the one in use and the next")]
    TooManySecrets,
    /// An id out of the grammar.
    #[error("a client id has 1 to {MAX_CLIENT_ID} visible ascii characters")]
    ClientId,
    /// Two clients share an id; holds it.
    #[error("client id {0:?} is used twice")]
    DuplicateClient(String),
    /// No grant.
    #[error("a client without a grant can do nothing: give it one or remove it")]
    NoGrant,
    /// An audience out of the grammar.
    #[error("an audience has 1 to {} visible ascii characters", target::MAX_TARGET)]
    Audience,
    /// An audience of a client that the provider does not have; holds it.
    #[error("audience {0:?} is not among the provider's audiences: add it there or correct it")]
    UnknownAudience(String),
    /// No audience.
    #[error("a client needs an audience: its tokens must be meant for somebody")]
    NoAudience,
    /// A default scope that is not among the client's scopes; holds it.
    #[error("default scope {0:?} is not among the client's scopes")]
    DefaultScope(String),
    /// A group name is empty, too long or has control characters.
    #[error("a group has 1 to {MAX_GROUP} bytes and no control characters")]
    Group,
    /// More than [`MAX_GROUPS`].
    #[error("a client has at most {MAX_GROUPS} groups: every token carries them")]
    TooManyGroups,
}

/// One refused value and where it stands, for example `clients[2].secrets[0]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigFault {
    /// Path from [`Config`], fields joined by dots, list positions from 0.
    pub path: String,
    /// Why.
    pub reason: ConfigReason,
}

/// Every refused value, in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigFaults(pub Vec<ConfigFault>);

/// A configuration that passed.
#[derive(Debug)]
pub struct Checked {
    pub(crate) issuer: Issuer,
    pub(crate) access_token_algorithm: SigningAlgorithm,
    pub(crate) clients: Registry,
}

impl Config {
    /// Checks everything and reports every fault. Has no side effect.
    pub fn check(&self) -> Result<Checked, ConfigFaults> {
        let mut faults = Faults(Vec::new());
        let issuer = faults.keep("issuer", Issuer::parse(&self.issuer).map_err(ConfigReason::Issuer));
        for (i, audience) in self.audiences.iter().enumerate() {
            faults.demand(
                target::is_audience(audience),
                || format!("audiences[{i}]"),
                ConfigReason::Audience,
            );
        }
        let lifetime = check_lifetime(self.access_token_lifetime).map_err(ConfigReason::Lifetime);
        faults.keep("access_token_lifetime", lifetime);
        let mut clients = Vec::with_capacity(self.clients.len());
        let mut ids = HashSet::new();
        for (i, raw) in self.clients.iter().enumerate() {
            let at = format!("clients[{i}]");
            if !ids.insert(&raw.id) {
                faults.add(format!("{at}.id"), ConfigReason::DuplicateClient(raw.id.clone()));
            }
            clients.extend(self.check_client(raw, &at, &mut faults));
        }
        match issuer {
            Some(issuer) if faults.0.is_empty() => {
                let access_token_algorithm = self.access_token_algorithm;
                Ok(Checked { issuer, access_token_algorithm, clients: Registry::new(clients) })
            }
            _ => Err(ConfigFaults(faults.0)),
        }
    }

    /// `None` only when a fault was noted.
    fn check_client(&self, raw: &ClientConfig, at: &str, faults: &mut Faults) -> Option<Client> {
        let id_fits =
            (1..=MAX_CLIENT_ID).contains(&raw.id.len()) && raw.id.bytes().all(|b| b.is_ascii_graphic());
        faults.demand(id_fits, || format!("{at}.id"), ConfigReason::ClientId);
        faults.demand(!raw.grants.is_empty(), || format!("{at}.grants"), ConfigReason::NoGrant);
        let secrets = check_secrets(&raw.secrets, &format!("{at}.secrets"), faults);
        let scopes = check_scopes(&raw.scopes, &format!("{at}.scopes"), faults);
        let default_scopes = check_scopes(&raw.default_scopes, &format!("{at}.default_scopes"), faults);
        if let Some(outside) = default_scopes.first_outside(&scopes) {
            faults.add(format!("{at}.default_scopes"), ConfigReason::DefaultScope(outside.to_owned()));
        }
        faults.demand(!raw.audiences.is_empty(), || format!("{at}.audiences"), ConfigReason::NoAudience);
        for (i, audience) in raw.audiences.iter().enumerate() {
            let known = self.audiences.contains(audience);
            faults.demand(
                known,
                || format!("{at}.audiences[{i}]"),
                ConfigReason::UnknownAudience(audience.clone()),
            );
        }
        faults.demand(raw.groups.len() <= MAX_GROUPS, || format!("{at}.groups"), ConfigReason::TooManyGroups);
        for (i, group) in raw.groups.iter().enumerate() {
            let fits = (1..=MAX_GROUP).contains(&group.len()) && !group.chars().any(char::is_control);
            faults.demand(fits, || format!("{at}.groups[{i}]"), ConfigReason::Group);
        }
        let lifetime = raw.access_token_lifetime.unwrap_or(self.access_token_lifetime);
        if raw.access_token_lifetime.is_some() {
            let checked = check_lifetime(lifetime).map_err(ConfigReason::Lifetime);
            faults.keep(&format!("{at}.access_token_lifetime"), checked);
        }
        let boxed = |list: &[String]| list.iter().map(|s| s.as_str().into()).collect();
        Some(Client {
            id: raw.id.as_str().into(),
            secrets: secrets?,
            grants: raw.grants.clone(),
            scopes,
            default_scopes,
            audiences: boxed(&raw.audiences),
            groups: boxed(&raw.groups),
            access_token_lifetime: lifetime,
        })
    }
}

fn check_secrets(raw: &[ConfiguredSecret], at: &str, faults: &mut Faults) -> Option<SecretDigests> {
    let mut digests = Vec::with_capacity(raw.len());
    for (i, secret) in raw.iter().enumerate() {
        let digest = match secret {
            ConfiguredSecret::Plain(plain) => SecretDigest::of_configured(plain),
            ConfiguredSecret::Sha256(hex) => SecretDigest::from_hex(hex),
        };
        digests.extend(faults.keep(&format!("{at}[{i}]"), digest.map_err(ConfigReason::Secret)));
    }
    faults.demand(!raw.is_empty(), || at.to_owned(), ConfigReason::NoSecret);
    faults.demand(raw.len() <= 2, || at.to_owned(), ConfigReason::TooManySecrets);
    let mut digests = digests.into_iter();
    let first = digests.next()?;
    Some(SecretDigests::new(first, digests.next()))
}

fn check_scopes(raw: &[String], at: &str, faults: &mut Faults) -> ScopeSet {
    let mut set = ScopeSet::default();
    for (i, scope) in raw.iter().enumerate() {
        faults.keep(&format!("{at}[{i}]"), set.insert(scope).map_err(ConfigReason::Scope));
    }
    set
}

struct Faults(Vec<ConfigFault>);

impl Faults {
    fn add(&mut self, path: String, reason: ConfigReason) {
        self.0.push(ConfigFault { path, reason });
    }

    fn keep<T>(&mut self, path: &str, result: Result<T, ConfigReason>) -> Option<T> {
        result.map_err(|reason| self.add(path.to_owned(), reason)).ok()
    }

    fn demand(&mut self, holds: bool, path: impl FnOnce() -> String, reason: ConfigReason) {
        if !holds {
            self.add(path(), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientConfig {
        ClientConfig {
            id: "orders".into(),
            secrets: vec![ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into())],
            grants: vec![GrantType::ClientCredentials],
            scopes: vec!["read".into(), "write".into()],
            default_scopes: vec!["read".into()],
            audiences: vec!["https://api.example.com".into()],
            groups: vec!["staff".into()],
            access_token_lifetime: None,
        }
    }

    fn config() -> Config {
        Config {
            issuer: "https://login.example.com".into(),
            audiences: vec!["https://api.example.com".into()],
            access_token_algorithm: SigningAlgorithm::Es256,
            access_token_lifetime: Duration::from_mins(5),
            clients: vec![client()],
        }
    }

    #[test]
    fn a_good_configuration_passes() {
        let mut config = config();
        config.clients.push(ClientConfig {
            id: "billing".into(),
            access_token_lifetime: Some(Duration::from_mins(1)),
            secrets: vec![
                ConfiguredSecret::Sha256(
                    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
                ),
                ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into()),
            ],
            ..client()
        });
        let checked = config.check().unwrap();
        assert_eq!(checked.clients.len(), 2);
        let orders = checked.clients.verify("orders", "KzJ4bXk0cGVyc2lzdGVudA").unwrap();
        assert_eq!(orders.access_token_lifetime(), Duration::from_mins(5));
        let billing = checked.clients.verify("billing", "abc").unwrap();
        assert_eq!(billing.access_token_lifetime(), Duration::from_mins(1));
    }

    #[test]
    fn every_fault_is_reported_with_its_path() {
        let config = Config {
            issuer: "http://login.example.com".into(),
            audiences: vec!["a b".into(), "api".into()],
            access_token_lifetime: Duration::from_millis(1500),
            clients: vec![
                ClientConfig {
                    id: String::new(),
                    secrets: vec![],
                    grants: vec![],
                    scopes: vec!["a b".into(), "read".into()],
                    default_scopes: vec!["write".into()],
                    audiences: vec![],
                    groups: vec!["ok".into(), "a\nb".into()],
                    access_token_lifetime: Some(Duration::from_secs(86_401)),
                },
                ClientConfig {
                    id: "x".into(),
                    secrets: vec![
                        ConfiguredSecret::Plain("short".into()),
                        ConfiguredSecret::Sha256("12".into()),
                        ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into()),
                    ],
                    audiences: vec!["api".into(), "apj".into()],
                    groups: vec!["g".into(); MAX_GROUPS + 1],
                    ..client()
                },
                ClientConfig { id: "x".into(), audiences: vec!["api".into()], ..client() },
            ],
            ..config()
        };
        let faults = config.check().unwrap_err();
        let paths: Vec<&str> = faults.0.iter().map(|f| f.path.as_str()).collect();
        let expected = [
            "issuer",
            "audiences[0]",
            "access_token_lifetime",
            "clients[0].id",
            "clients[0].grants",
            "clients[0].secrets",
            "clients[0].scopes[0]",
            "clients[0].default_scopes",
            "clients[0].audiences",
            "clients[0].groups[1]",
            "clients[0].access_token_lifetime",
            "clients[1].secrets[0]",
            "clients[1].secrets[1]",
            "clients[1].secrets",
            "clients[1].audiences[1]",
            "clients[1].groups",
            "clients[2].id",
        ];
        assert_eq!(paths, expected);
        let text = faults.to_string();
        assert!(text.contains("clients[1].secrets[0]: a client secret is kept as a plain digest"), "{text}");
        assert!(!text.contains("short;"), "no secret in a message: {text}");
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?} {:?}", config(), config().check().unwrap());
        assert!(!text.contains("KzJ4"), "{text}");
    }
}
