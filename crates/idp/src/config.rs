//! Configuration of the provider: unchecked values in, checked values out, all faults in one pass.
//!
//! Owns: [`Config`] (filled from a configuration file or by a demo) and its check into [`Checked`].
//! The check has no side effects, so `check` commands run the same code as a start.
//!
//! Does not own: the syntax and key names of the file (the binary), the rules for a client
//! ([`crate::client::config`]), the signing keys ([`crate::keys`]).

use std::{collections::HashSet, sync::Arc, time::Duration};

use ::pages::{LanguageFault, Shell};
use auth::token::jws::SigningAlgorithm;

use crate::attributes::{Attribute, AttributeFault, Attributes};
use crate::audit_receivers::{AuditReceiver, AuditReceivers};
use crate::claim_mapping::{self, ClaimMapping, MappingFault};
use crate::client::config::{ClientConfig, ClientReason};
use crate::client::{ClientDefaults, Registry};
use crate::failure_log::AuditEvents;
use crate::issuer::{Issuer, IssuerFault};
use crate::lifetime::{self, LifetimeFault};
use crate::mailer::MailConfig;
use crate::oauth::target;
use crate::pages::Pages;
use crate::passwords::lockout::{LimitFault, Limits, Policy};
use crate::passwords::pool::PoolFault;
use crate::passwords::rules::{LengthFault, Rules, Strength};
use crate::passwords::{Parameters, PoolConfig, verified};
use crate::receivers::{Receiver, Receivers};

/// Longest lifetime of an authorization code and of a device code: a browser or a user handles
/// them.
const MAX_SHORT: Duration = Duration::from_hours(1);
/// Longest lifetime of a session, a refresh token and a grant, and longest signing period of a key.
const MAX_LONG: Duration = Duration::from_hours(24 * 400);
/// Shortest time between two rotations of the signing keys.
const MIN_ROTATION: Duration = Duration::from_hours(1);
/// Shortest idle timeout of a session. The last use of a session is written once a minute, so a
/// shorter timeout would end sessions in use.
const MIN_IDLE: Duration = Duration::from_mins(1);

/// Configuration of a provider, unchecked. Only parts that implement `Default` have defaults here;
/// other defaults belong to the configuration file.
#[derive(Debug, Clone)]
pub struct Config {
    /// The issuer identifier, see [`Issuer::parse`].
    pub issuer: String,
    /// The resource servers for which tokens may be issued. Every audience of a client must be one
    /// of these, which catches misspelt ones.
    pub audiences: Vec<String>,
    /// Signing algorithm of access tokens, and of everything else for which the client sets none.
    pub access_token_algorithm: SigningAlgorithm,
    /// Signing algorithm of ID tokens, unless the client sets another one.
    pub id_token_algorithm: SigningAlgorithm,
    /// Lifetime of access tokens, unless the client sets another one: whole seconds, 1 s to 24 h.
    pub access_token_lifetime: Duration,
    /// Lifetimes of everything except access tokens.
    pub lifetimes: Lifetimes,
    /// How passwords are hashed, checked and protected against guessing.
    pub passwords: PasswordConfig,
    /// Brand and languages of the pages.
    pub shell: Arc<Shell>,
    /// Attributes of users beyond the standard claims.
    pub attributes: Vec<Attribute>,
    /// Claims that the tokens of all clients contain besides those of the scopes.
    pub claims: Vec<ClaimMapping>,
    /// Clients of the configuration; the store may hold more.
    pub clients: Vec<ClientConfig>,
    /// Receivers of security events; each has a unique name.
    pub receivers: Vec<Receiver>,
    /// Which groups of entries are written to the audit log.
    pub audit: AuditEvents,
    /// How long entries of the audit log are kept; `None`: for ever.
    pub audit_keep: Option<Duration>,
    /// Receivers of the audit log; each has a unique name.
    pub audit_receivers: Vec<AuditReceiver>,
    /// Mails with account links. `None`: none are sent.
    pub mail: Option<MailConfig>,
}

/// Lifetimes of codes, tokens, sessions and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Authorization code: at most one hour; one minute is recommended (RFC 6749 §4.1.2).
    pub code: Duration,
    /// ID token, from `iat` to `exp`.
    pub id_token: Duration,
    /// Refresh token, if it is not used.
    pub refresh_token: Duration,
    /// Token family: all tokens that follow from one authorization, however often they are
    /// refreshed.
    pub grant: Duration,
    /// Idle timeout of a session.
    pub session_idle: Duration,
    /// Session, whether it is used or not.
    pub session: Duration,
    /// Device code (RFC 8628): the time a user has to enter the user code.
    pub device_code: Duration,
    /// Pushed authorization request (RFC 9126 §2.2).
    pub pushed_request: Duration,
    /// How long a key signs until the next key replaces it.
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

/// How passwords are hashed, checked and protected against guessing.
#[derive(Debug, Clone)]
pub struct PasswordConfig {
    /// Cost of new hashes; older hashes are upgraded at login.
    pub parameters: Parameters,
    /// Number of hashing threads; `None`: one per core.
    pub threads: Option<usize>,
    /// Most passwords in the queue; `None`: 32 per thread.
    pub queue: Option<usize>,
    /// The `Retry-After` of responses when the queue is full.
    pub retry_after: Duration,
    /// Fewest characters of a new password.
    pub min_length: usize,
    /// How hard a new password must be to guess.
    pub strength: Strength,
    /// When an account is locked.
    pub account: Limits,
    /// When a network is locked.
    pub network: Limits,
    /// How long and for how many accounts a verified password is cached in memory; `None`: it is
    /// not.
    pub verified_cache: Option<(Duration, usize)>,
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
            verified_cache: None,
        }
    }
}

/// Reason why one value is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigReason {
    /// The issuer is not valid, see [`IssuerFault`].
    #[error(transparent)]
    Issuer(IssuerFault),
    /// A token lifetime is not valid, see [`LifetimeFault`].
    #[error(transparent)]
    Lifetime(LifetimeFault),
    /// A client is not valid, see [`ClientReason`].
    #[error(transparent)]
    Client(ClientReason),
    /// An attribute is not valid, see [`AttributeFault`].
    #[error(transparent)]
    Attribute(AttributeFault),
    /// A claim is not valid, see [`MappingFault`].
    #[error(transparent)]
    Claim(MappingFault),
    /// Two clients have the same id; holds the id.
    #[error("client id {0:?} is used twice")]
    DuplicateClient(String),
    /// An audience does not match the grammar.
    #[error("an audience has 1 to {} visible ascii characters", target::MAX_TARGET)]
    Audience,
    /// A duration is out of bounds; holds the duration, its minimum and its maximum.
    #[error("{} is out of bounds: use {} to {}", seconds(*.0), seconds(*.1), seconds(*.2))]
    Bounds(Duration, Duration, Duration),
    /// The idle timeout of sessions is longer than their lifetime.
    #[error("session_idle is longer than session: lower it")]
    IdleBeyondSession,
    /// The hashing threads or their queue are out of bounds, see [`PoolFault`].
    #[error(transparent)]
    Pool(PoolFault),
    /// The minimum length of passwords is out of bounds, see [`LengthFault`].
    #[error(transparent)]
    Length(LengthFault),
    /// The limits of failed logins are not valid, see [`LimitFault`].
    #[error(transparent)]
    Limit(LimitFault),
    /// Lifetime or size of the cache of verified passwords is out of bounds.
    #[error(
        "the cache of verified passwords takes {} to {} and 1 to {} accounts: correct it or disable the cache",
        seconds(verified::MIN_LIFETIME),
        seconds(verified::MAX_LIFETIME),
        verified::MAX_ENTRIES
    )]
    VerifiedCache,
    /// The messages of a language are not valid, see [`LanguageFault`].
    #[error(transparent)]
    Language(LanguageFault),
}

fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

/// One refused value and its place, for example `clients[2].secrets[0]`.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigFault {
    /// Path from [`Config`]: fields joined by dots, list positions from 0.
    pub path: String,
    /// Why the value is refused.
    pub reason: ConfigReason,
}

/// All refused values, in the order of the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigFaults(pub Vec<ConfigFault>);

/// A configuration that passed the check.
#[derive(Debug)]
pub struct Checked {
    pub(crate) issuer: Issuer,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) passwords: CheckedPasswords,
    pub(crate) pages: Pages,
    pub(crate) clients: Registry,
    pub(crate) algorithms: Vec<SigningAlgorithm>,
    pub(crate) receivers: Receivers,
    pub(crate) audit: AuditEvents,
    pub(crate) audit_keep: Option<Duration>,
    pub(crate) audit_receivers: AuditReceivers,
    pub(crate) mail: Option<MailConfig>,
}

/// Checked configuration of passwords.
#[derive(Debug)]
pub(crate) struct CheckedPasswords {
    pub(crate) parameters: Parameters,
    pub(crate) pool: PoolConfig,
    pub(crate) rules: Rules,
    pub(crate) min_length: usize,
    pub(crate) policy: Policy,
    pub(crate) verified_cache: Option<(Duration, usize)>,
}

impl Checked {
    /// The algorithms in use; the key ring has a key of each.
    pub fn algorithms(&self) -> &[SigningAlgorithm] {
        &self.algorithms
    }

    /// The checked issuer identifier.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Warnings for the operator about valid settings: clients that may send users' passwords.
    pub fn warnings(&self) -> Vec<String> {
        let mut ids: Vec<&str> = self.clients.with_password_grant().collect();
        ids.sort_unstable();
        let warn = |id: &&str| {
            format!(
                "client {id:?} may use the password grant, so it sees users' passwords: \
                 prefer authorization_code"
            )
        };
        ids.iter().map(warn).collect()
    }
}

impl Config {
    /// A configuration of this issuer with defaults for everything else.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: Vec::new(),
            access_token_algorithm: SigningAlgorithm::Es256,
            id_token_algorithm: SigningAlgorithm::Rs256,
            access_token_lifetime: Duration::from_mins(5),
            lifetimes: Lifetimes::default(),
            passwords: PasswordConfig::default(),
            shell: Arc::default(),
            attributes: Vec::new(),
            claims: Vec::new(),
            clients: Vec::new(),
            receivers: Vec::new(),
            audit: AuditEvents::default(),
            audit_keep: None,
            audit_receivers: Vec::new(),
            mail: None,
        }
    }

    /// Checks all values and reports every fault. Has no side effects.
    ///
    /// # Errors
    /// [`ConfigFaults`] with every refused value.
    pub fn check(&self) -> Result<Checked, ConfigFaults> {
        let mut faults = Faults(Vec::new());
        let issuer = faults.keep("issuer", Issuer::parse(&self.issuer).map_err(ConfigReason::Issuer));
        for (i, audience) in self.audiences.iter().enumerate() {
            faults.require(
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
        let defaults = self.defaults(&mut faults);
        let clients = self.clients(&defaults, &mut faults);
        match (issuer, passwords, pages) {
            (Some(issuer), Some(passwords), Some(pages)) if faults.0.is_empty() => {
                let clients = Registry::new(clients, defaults);
                let algorithms = self.algorithms(&clients);
                let receivers = Receivers::new(self.receivers.clone(), self.access_token_algorithm);
                Ok(Checked {
                    issuer,
                    lifetimes: self.lifetimes,
                    passwords,
                    pages,
                    clients,
                    algorithms,
                    receivers,
                    audit: self.audit,
                    audit_keep: self.audit_keep,
                    audit_receivers: AuditReceivers::new(self.audit_receivers.clone()),
                    mail: self.mail.clone(),
                })
            }
            _ => Err(ConfigFaults(faults.0)),
        }
    }

    fn defaults(&self, faults: &mut Faults) -> ClientDefaults {
        let attributes = Attributes::check(&self.attributes).unwrap_or_else(|refused| {
            for (i, key, fault) in refused {
                faults.add(format!("attributes[{i}].{key}"), ConfigReason::Attribute(fault));
            }
            Attributes::unchecked(&self.attributes)
        });
        let mappings = claim_mapping::check_all(&self.claims, &attributes).unwrap_or_else(|refused| {
            for (i, fault) in refused {
                faults.add(format!("claims[{i}]"), ConfigReason::Claim(fault));
            }
            Vec::new()
        });
        ClientDefaults {
            attributes,
            mappings,
            audiences: self.audiences.iter().map(|a| a.as_str().into()).collect(),
            access_token_algorithm: self.access_token_algorithm,
            id_token_algorithm: self.id_token_algorithm,
            access_token_lifetime: self.access_token_lifetime,
        }
    }

    /// All algorithms in use, each once, that of access tokens first. ES256 and RS256 are always
    /// among them: clients that are registered later can choose from the list, and every verifier
    /// supports these two.
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

    fn clients(&self, defaults: &ClientDefaults, faults: &mut Faults) -> Vec<crate::client::Client> {
        let mut clients = Vec::with_capacity(self.clients.len());
        let mut ids = HashSet::new();
        for (i, raw) in self.clients.iter().enumerate() {
            let at = format!("clients[{i}]");
            if !ids.insert(&raw.id) {
                faults.add(format!("{at}.id"), ConfigReason::DuplicateClient(raw.id.clone()));
            }
            match raw.check(defaults) {
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
        match Pages::new(self.shell.clone()) {
            Ok(pages) => Some(pages),
            Err(found) => {
                for fault in found {
                    faults.add(format!("languages.{}", fault.tag()), ConfigReason::Language(fault));
                }
                None
            }
        }
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
            faults.require(fits, path, ConfigReason::Bounds(length, least, most));
        }
        let ordered = self.session_idle <= self.session;
        faults.require(ordered, || "lifetimes.session_idle".into(), ConfigReason::IdleBeyondSession);
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
        let remembered = self.verified_cache.is_none_or(fits);
        faults.require(remembered, || "passwords.remembered".into(), ConfigReason::VerifiedCache);
        Some(CheckedPasswords {
            parameters: self.parameters,
            pool: pool?,
            rules: rules?,
            min_length: self.min_length,
            policy: policy?,
            verified_cache: self.verified_cache,
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

    fn require(&mut self, holds: bool, path: impl FnOnce() -> String, reason: ConfigReason) {
        if !holds {
            self.add(path(), reason);
        }
    }
}

#[cfg(test)]
mod tests;
