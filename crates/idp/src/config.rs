//! The provider's configuration: plain values in, checked values out, all faults at once.
//!
//! Owns: [`Config`] (what a configuration file or a demo fills in) and its check into [`Checked`], without
//! side effects, so that `check` commands run the very same code as a start.
//! Does not own: the file's syntax and key names (the binary), what a client may be ([`crate::client::config`]), the
//! signing keys ([`crate::keys`]).

use std::{collections::HashSet, time::Duration};

use auth::token::jws::SigningAlgorithm;

use crate::{
    client::{
        ClientDefaults, Registry,
        config::{ClientConfig, ClientReason},
    },
    issuer::{Issuer, IssuerFault},
    lifetime::{self, LifetimeFault},
    oauth::target,
    pages::{Brand, BrandConfig, Languages, Pages, brand::BrandFault, language::LanguageFault},
    passwords::{
        Parameters, PoolConfig,
        lockout::{LimitFault, Limits, Policy},
        pool::PoolFault,
        rules::{LengthFault, Rules, Strength},
        verified,
    },
    signals::{Receiver, Receivers},
};

/// Longest code, pushed request, and wait of a device, in that order: what stands in a browser or is typed by a person.
const MAX_SHORT: Duration = Duration::from_hours(1);
/// Longest session and refresh token.
const MAX_LONG: Duration = Duration::from_hours(24 * 400);
/// Shortest time between two rotations of the signing keys.
const MIN_ROTATION: Duration = Duration::from_hours(1);
/// Shortest rest that ends a session: that it is used is written down once a minute, and below that it would end in use.
const MIN_IDLE: Duration = Duration::from_mins(1);

/// What a provider is told. Nothing is defaulted here but in the parts that say so; defaults belong to the
/// configuration file.
#[derive(Debug, Clone)]
pub struct Config {
    /// The issuer identifier, see [`Issuer::parse`].
    pub issuer: String,
    /// The resource servers that tokens may be meant for: every audience of a client is one of these, which
    /// catches misspelt ones.
    pub audiences: Vec<String>,
    /// The algorithm access tokens are signed with, and whatever else the client does not say.
    pub access_token_algorithm: SigningAlgorithm,
    /// The algorithm ID tokens are signed with unless the client says otherwise.
    pub id_token_algorithm: SigningAlgorithm,
    /// How long access tokens live unless the client says otherwise: whole seconds, 1 s to 24 h.
    pub access_token_lifetime: Duration,
    /// How long everything else lives.
    pub lifetimes: Lifetimes,
    /// How passwords are kept and guarded.
    pub passwords: PasswordConfig,
    /// Whose pages these are.
    pub brand: BrandConfig,
    /// Languages beside English and German: tag and the text of a file like `locales/en.toml`.
    pub languages: Vec<(String, String)>,
    /// The clients; more may be registered in the store.
    pub clients: Vec<ClientConfig>,
    /// Who elsewhere is told of what happens here; each has a name of its own.
    pub receivers: Vec<Receiver>,
}

/// How long things live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// An authorization code: at most an hour, better a minute (RFC 6749 §4.1.2).
    pub code: Duration,
    /// An ID token.
    pub id_token: Duration,
    /// A refresh token that is not used.
    pub refresh_token: Duration,
    /// All that follows from one authorization, however often it is refreshed.
    pub grant: Duration,
    /// A session that is not used.
    pub session_idle: Duration,
    /// A session, used or not.
    pub session: Duration,
    /// A device code (RFC 8628): how long a person has to type it.
    pub device_code: Duration,
    /// A pushed authorization request (RFC 9126 §2.2).
    pub pushed_request: Duration,
    /// How long a key signs until the next one takes over.
    pub signing_key: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            code: Duration::from_mins(1),
            id_token: Duration::from_hours(1),
            refresh_token: Duration::from_hours(24 * 14),
            grant: Duration::from_hours(24 * 90),
            session_idle: Duration::from_hours(2),
            session: Duration::from_hours(12),
            device_code: Duration::from_mins(10),
            pushed_request: Duration::from_mins(5),
            signing_key: Duration::from_hours(24 * 30),
        }
    }
}

/// How passwords are kept and guarded.
#[derive(Debug, Clone)]
pub struct PasswordConfig {
    /// Cost of new hashes; older ones are upgraded at login.
    pub parameters: Parameters,
    /// Threads that hash: one for each core when absent.
    pub threads: Option<usize>,
    /// Passwords that may wait: 32 for each thread when absent.
    pub queue: Option<usize>,
    /// What those hear who find the queue full.
    pub retry_after: Duration,
    /// Fewest characters of a new one.
    pub min_length: usize,
    /// How hard a new one must be to guess.
    pub strength: Strength,
    /// When an account is locked.
    pub account: Limits,
    /// When a network is locked.
    pub network: Limits,
    /// For how long and for how many accounts a right password is remembered in memory; `None`: it is not.
    pub remembered: Option<(Duration, usize)>,
}

impl Default for PasswordConfig {
    fn default() -> Self {
        Self {
            parameters: Parameters::OWASP,
            threads: None,
            queue: None,
            retry_after: Duration::from_secs(2),
            min_length: crate::passwords::rules::MIN_LENGTH,
            strength: Strength::default(),
            account: Limits::ACCOUNT,
            network: Limits::NETWORK,
            remembered: None,
        }
    }
}

/// Why one value is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigReason {
    /// See [`IssuerFault`].
    #[error(transparent)]
    Issuer(IssuerFault),
    /// See [`LifetimeFault`].
    #[error(transparent)]
    Lifetime(LifetimeFault),
    /// See [`ClientReason`].
    #[error(transparent)]
    Client(ClientReason),
    /// Two clients share an id; holds it.
    #[error("client id {0:?} is used twice")]
    DuplicateClient(String),
    /// An audience out of the grammar.
    #[error("an audience has 1 to {} visible ascii characters", target::MAX_TARGET)]
    Audience,
    /// A duration out of its bounds.
    #[error("{} is out of bounds: take {} to {}", seconds(*.0), seconds(*.1), seconds(*.2))]
    Bounds(Duration, Duration, Duration),
    /// A session that rests longer than it lasts.
    #[error("a session cannot be idle for longer than it lasts")]
    IdleBeyondSession,
    /// See [`PoolFault`].
    #[error(transparent)]
    Pool(PoolFault),
    /// See [`LengthFault`].
    #[error(transparent)]
    Length(LengthFault),
    /// See [`LimitFault`].
    #[error(transparent)]
    Limit(LimitFault),
    /// Out of bounds.
    #[error(
        "right passwords are remembered for {} to {} and for 1 to {} accounts, or not at all",
        seconds(verified::MIN_LIFETIME),
        seconds(verified::MAX_LIFETIME),
        verified::MAX_ENTRIES
    )]
    Remembered,
    /// See [`BrandFault`].
    #[error(transparent)]
    Brand(BrandFault),
    /// See [`LanguageFault`].
    #[error(transparent)]
    Language(LanguageFault),
}

fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

/// One refused value and where it stands, for example `clients[2].secrets[0]`.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigFault {
    /// Path from [`Config`], fields joined by dots, list positions from 0.
    pub path: String,
    /// Why.
    pub reason: ConfigReason,
}

/// Every refused value, in the order of the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigFaults(pub Vec<ConfigFault>);

/// A configuration that passed.
#[derive(Debug)]
pub struct Checked {
    pub(crate) issuer: Issuer,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) passwords: CheckedPasswords,
    pub(crate) pages: Pages,
    pub(crate) clients: Registry,
    pub(crate) algorithms: Vec<SigningAlgorithm>,
    pub(crate) receivers: Receivers,
}

/// How passwords are kept and guarded, checked.
#[derive(Debug)]
pub(crate) struct CheckedPasswords {
    pub(crate) parameters: Parameters,
    pub(crate) pool: PoolConfig,
    pub(crate) rules: Rules,
    pub(crate) min_length: usize,
    pub(crate) policy: Policy,
    pub(crate) remembered: Option<(Duration, usize)>,
}

impl Checked {
    /// The algorithms that something is signed with; the key ring has a key of each.
    pub fn algorithms(&self) -> &[SigningAlgorithm] {
        &self.algorithms
    }

    /// The issuer.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// What an operator should know although nothing is wrong: clients that may send people's passwords.
    pub fn warnings(&self) -> Vec<String> {
        let mut ids: Vec<&str> = self.clients.with_passwords().collect();
        ids.sort_unstable();
        let warn = |id: &&str| {
            format!(
                "client {id:?} may use the password grant: it sees people's passwords, and whoever takes it over does; \
                 prefer authorization_code"
            )
        };
        ids.iter().map(warn).collect()
    }
}

impl Config {
    /// Everything that is not particular to one provider, at its default.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: Vec::new(),
            access_token_algorithm: SigningAlgorithm::Es256,
            id_token_algorithm: SigningAlgorithm::Rs256,
            access_token_lifetime: Duration::from_mins(5),
            lifetimes: Lifetimes::default(),
            passwords: PasswordConfig::default(),
            brand: BrandConfig { name: "Postern".into(), logo: None, colour: "#2f5bd0".into() },
            languages: Vec::new(),
            clients: Vec::new(),
            receivers: Vec::new(),
        }
    }

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
        let lifetime = lifetime::check(self.access_token_lifetime).map_err(ConfigReason::Lifetime);
        faults.keep("access_token_lifetime", lifetime);
        self.lifetimes.check(&mut faults);
        let passwords = self.passwords.check(&mut faults);
        let pages = self.pages(&mut faults);
        let clients = self.clients(&mut faults);
        match (issuer, passwords, pages) {
            (Some(issuer), Some(passwords), Some(pages)) if faults.0.is_empty() => {
                let clients = Registry::new(clients, self.defaults());
                let algorithms = self.algorithms(&clients);
                let receivers = Receivers::new(self.receivers.clone(), self.access_token_algorithm);
                let lifetimes = self.lifetimes;
                Ok(Checked { issuer, lifetimes, passwords, pages, clients, algorithms, receivers })
            }
            _ => Err(ConfigFaults(faults.0)),
        }
    }

    fn defaults(&self) -> ClientDefaults {
        ClientDefaults {
            audiences: self.audiences.iter().map(|a| a.as_str().into()).collect(),
            access_token_algorithm: self.access_token_algorithm,
            id_token_algorithm: self.id_token_algorithm,
            access_token_lifetime: self.access_token_lifetime,
        }
    }

    /// Each once, the access tokens' first. A client that is registered later can choose from all of them, so there are
    /// always these two that every verifier knows.
    fn algorithms(&self, clients: &Registry) -> Vec<SigningAlgorithm> {
        let own = [self.access_token_algorithm, self.id_token_algorithm, SigningAlgorithm::Es256];
        let mut algorithms: Vec<SigningAlgorithm> = Vec::new();
        for algorithm in own.into_iter().chain([SigningAlgorithm::Rs256]).chain(clients.algorithms()) {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        algorithms
    }

    fn clients(&self, faults: &mut Faults) -> Vec<crate::client::Client> {
        let defaults = self.defaults();
        let mut clients = Vec::with_capacity(self.clients.len());
        let mut ids = HashSet::new();
        for (i, raw) in self.clients.iter().enumerate() {
            let at = format!("clients[{i}]");
            if !ids.insert(&raw.id) {
                faults.add(format!("{at}.id"), ConfigReason::DuplicateClient(raw.id.clone()));
            }
            match raw.check(&defaults) {
                Ok(client) => clients.push(client),
                Err(of_client) => {
                    for fault in of_client.0 {
                        faults.add(format!("{at}.{}", fault.path), ConfigReason::Client(fault.reason));
                    }
                }
            }
        }
        clients
    }

    fn pages(&self, faults: &mut Faults) -> Option<Pages> {
        let brand = match Brand::check(&self.brand) {
            Ok(brand) => Some(brand),
            Err(of_brand) => {
                for fault in of_brand {
                    faults.add("brand".into(), ConfigReason::Brand(fault));
                }
                None
            }
        };
        let mut languages = match Languages::builtin() {
            Ok(languages) => languages,
            Err(of_languages) => {
                for fault in of_languages {
                    faults.add("languages".into(), ConfigReason::Language(fault));
                }
                return None;
            }
        };
        for (tag, text) in &self.languages {
            for fault in languages.add(tag, text).err().into_iter().flatten() {
                faults.add(format!("languages.{tag}"), ConfigReason::Language(fault));
            }
        }
        brand.map(|brand| Pages::new(brand, languages))
    }
}

impl Lifetimes {
    fn check(&self, faults: &mut Faults) {
        let second = Duration::from_secs(1);
        for (name, length, least, most) in [
            ("code", self.code, second, MAX_SHORT),
            ("id_token", self.id_token, second, lifetime::MAX_ACCESS_TOKEN),
            ("refresh_token", self.refresh_token, second, MAX_LONG),
            ("grant", self.grant, second, MAX_LONG),
            ("session_idle", self.session_idle, MIN_IDLE, MAX_LONG),
            ("session", self.session, second, MAX_LONG),
            ("device_code", self.device_code, second, MAX_SHORT),
            ("pushed_request", self.pushed_request, second, Duration::from_mins(10)),
            ("signing_key", self.signing_key, MIN_ROTATION, MAX_LONG),
        ] {
            let fits = (least..=most).contains(&length) && length.subsec_nanos() == 0;
            let path = || format!("lifetimes.{name}");
            faults.demand(fits, path, ConfigReason::Bounds(length, least, most));
        }
        let ordered = self.session_idle <= self.session;
        faults.demand(ordered, || "lifetimes.session_idle".into(), ConfigReason::IdleBeyondSession);
    }
}

impl PasswordConfig {
    fn check(&self, faults: &mut Faults) -> Option<CheckedPasswords> {
        let pool = PoolConfig::new(self.threads, self.queue, self.retry_after);
        let pool = faults.keep("passwords", pool.map_err(ConfigReason::Pool));
        let rules = Rules::new(self.min_length, self.strength).map_err(ConfigReason::Length);
        let rules = faults.keep("passwords.min_length", rules);
        let policy = Policy::new(self.account, self.network).map_err(ConfigReason::Limit);
        let policy = faults.keep("passwords.network", policy);
        let fits = |(lifetime, entries): (Duration, usize)| {
            (verified::MIN_LIFETIME..=verified::MAX_LIFETIME).contains(&lifetime)
                && (1..=verified::MAX_ENTRIES).contains(&entries)
        };
        let remembered = self.remembered.is_none_or(fits);
        faults.demand(remembered, || "passwords.remembered".into(), ConfigReason::Remembered);
        Some(CheckedPasswords {
            parameters: self.parameters,
            pool: pool?,
            rules: rules?,
            min_length: self.min_length,
            policy: policy?,
            remembered: self.remembered,
        })
    }
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
    use crate::{ConfiguredSecret, GrantType, client::config::MAX_GROUPS};

    fn client() -> ClientConfig {
        ClientConfig {
            id: "orders".into(),
            secrets: vec![ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into())],
            grants: vec![GrantType::ClientCredentials],
            scopes: vec!["read".into(), "write".into()],
            default_scopes: vec!["read".into()],
            audiences: vec!["https://api.example.com".into()],
            groups: vec!["staff".into()],
            ..ClientConfig::default()
        }
    }

    fn config() -> Config {
        Config {
            audiences: vec!["https://api.example.com".into()],
            clients: vec![client()],
            ..Config::new("https://login.example.com")
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
        let mut lifetimes: Vec<_> =
            checked.clients.configured().map(|c| (c.id().to_owned(), c.access_token_lifetime())).collect();
        lifetimes.sort();
        assert_eq!(
            lifetimes,
            [("billing".to_owned(), Duration::from_mins(1)), ("orders".to_owned(), Duration::from_mins(5))]
        );
        assert_eq!(checked.warnings(), [""; 0]);
    }

    #[test]
    fn a_password_grant_is_warned_of() {
        let mut config = config();
        config.clients[0].grants.push(GrantType::Password);
        let warnings = config.check().unwrap().warnings();
        assert!(warnings[0].contains("\"orders\"") && warnings.len() == 1, "{warnings:?}");
    }

    #[test]
    fn what_is_no_client_is_refused_with_its_reason() {
        let with = |change: fn(&mut ClientConfig)| {
            let mut config = config();
            change(&mut config.clients[0]);
            config.check().map(|_| ()).unwrap_err().to_string()
        };
        let all = GrantType::ALL.to_vec();
        for (change, expected) in [
            (
                (|c| (c.public, c.secrets) = (true, vec![])) as fn(&mut ClientConfig),
                "clients[0].grants: a public client may not use client_credentials",
            ),
            (|c| c.public = true, "clients[0].secrets: a client has secrets or keys or is public"),
            (|c| c.secrets = vec![], "clients[0].secrets: a client needs a secret or keys"),
            (|c| c.keys = Some(serde_json::json!({})), "clients[0].keys: keys are a JWK set"),
            (|c| c.grants = vec![GrantType::RefreshToken], "refresh_token follows from another grant"),
            (|c| c.grants = vec![GrantType::AuthorizationCode], "needs a redirect uri"),
            (|c| c.redirect_uris = vec!["http://app.example/cb".into()], "clients[0].redirect_uris[0]: "),
            (|c| c.backchannel_logout_uri = Some("x".into()), "clients[0].backchannel_logout_uri: "),
            (|c| c.name = Some(String::new()), "clients[0].name: "),
        ] {
            let faults = with(change);
            assert!(faults.contains(expected), "{faults}");
        }
        let mut good = config();
        good.clients[0].grants = all;
        good.clients[0].redirect_uris = vec!["https://app.example/cb".into()];
        assert!(good.check().is_ok());
    }

    #[test]
    fn lifetimes_brand_and_languages_are_checked() {
        let mut config = config();
        config.lifetimes.code = Duration::ZERO;
        config.lifetimes.session_idle = Duration::from_hours(24);
        config.passwords.min_length = 3;
        config.passwords.remembered = Some((Duration::from_hours(1), 1));
        config.brand.colour = "red".into();
        config.languages = vec![("fr".into(), "x = 1".into())];
        let text = config.check().unwrap_err().to_string();
        for path in [
            "lifetimes.code: 0 s is out of bounds",
            "lifetimes.session_idle: ",
            "passwords.min_length: ",
            "passwords.remembered: ",
            "brand: ",
            "languages.fr: ",
        ] {
            assert!(text.contains(path), "{path}: {text}");
        }
    }

    #[test]
    fn a_session_in_use_never_ends_for_having_rested() {
        let mut config = config();
        for (idle, sound) in [(59, false), (60, true)] {
            config.lifetimes.session_idle = Duration::from_secs(idle);
            assert_eq!(config.check().is_ok(), sound, "{idle} s");
        }
        config.lifetimes.session_idle = Duration::from_secs(59);
        let text = config.check().unwrap_err().to_string();
        assert!(text.contains("lifetimes.session_idle: 59 s is out of bounds: take 60 s"), "{text}");
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
                    redirect_uris: vec![],
                    groups: vec!["ok".into(), "a\nb".into()],
                    access_token_lifetime: Some(Duration::from_secs(86_401)),
                    ..ClientConfig::default()
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
            "clients[0].secrets",
            "clients[0].grants",
            "clients[0].scopes[0]",
            "clients[0].default_scopes",
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
