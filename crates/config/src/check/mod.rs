//! Semantic checks: turn raw tables into the values that the gateway runs on.
//!
//! Each submodule checks one part of the file, alone and with the parts that it refers to. It notes
//! every fault and does not stop at the first. The result is assembled only when there is no fault.

mod authorizers;
mod database;
mod events;
mod headers;
mod issuers;
mod kubernetes;
mod listeners;
mod login;
mod paths;
mod patterns;
mod provider;
mod revocation;
mod routes;
mod rules;
mod server_keys;
mod settings;
mod tls;
mod token_authorities;
mod trust;
mod upstreams;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use auth::policy::route::RouteMatch;
use auth::time::Timestamp;

use credentials::config::{Authentication, CacheLimits};
pub use database::DatabaseSettings;
pub use events::{EventsDatabase, SecurityEvents};
use gateway::config::{Config, fields_read};
pub use provider::{ProviderSettings, SecretFile};
pub use revocation::{Broker, FollowedIssuerConfig, RevocationSettings};
pub use settings::{Otlp, ProcessSettings};

use super::fault::{Faults, KeyPath, nearest};
use super::files::{Files, Reader};
use super::scalar::Name;
use crate::partial::Partial;
use crate::version::version;

/// State that all checks share.
pub(super) struct Context<'f> {
    pub(super) faults: Faults,
    pub(super) reader: Reader<'f>,
    files: &'f dyn Files,
    now: Timestamp,
}

/// All checked values of a configuration.
pub(super) struct Checked {
    pub(super) config: Config,
    pub(super) settings: ProcessSettings,
    pub(super) matchers: Vec<RouteMatch>,
    pub(super) provider: Option<ProviderSettings>,
    pub(super) sessions: Option<DatabaseSettings>,
    pub(super) revocation: RevocationSettings,
    pub(super) events: Option<SecurityEvents>,
}

impl<'f> Context<'f> {
    pub(super) fn new(files: &'f dyn Files, base: &Path, now: Timestamp) -> Self {
        Self { faults: Faults::default(), reader: Reader::new(files, base), files, now }
    }

    /// Reads a file that the configuration names. Notes a fault when that fails.
    fn read(&mut self, file: &Path, path: &KeyPath) -> Option<Vec<u8>> {
        if file.as_os_str().is_empty() {
            self.faults.add(path, "the path is empty", "name a file, or remove the key");
            return None;
        }
        match self.reader.read(file) {
            Ok(content) => Some(content),
            Err(what) => {
                let hint = if file.is_relative() {
                    "relative paths are resolved against the folder of this file"
                } else {
                    "check the path, and that this user may read it"
                };
                self.faults.add(path, what, hint);
                None
            }
        }
    }

    /// Notes a fault for a duration of zero, which is never intended.
    fn check_positive(&mut self, value: Duration, path: &KeyPath) -> Duration {
        if value.is_zero() {
            self.faults.add(path, "the duration is zero", "write at least \"1ms\"");
        }
        value
    }
}

/// Checks a whole file. `None` exactly when a fault was noted.
pub(super) fn check(sound: &Partial, generation: u64, context: &mut Context<'_>) -> Option<Checked> {
    let file = &sound.file;
    let settings = settings::check(file, context);
    let listeners = listeners::check(sound, context);
    let wanted = rules::referenced_claims(sound, context);
    let issuers = issuers::check(sound, &wanted, context);
    let certificates = issuers::certificates(sound, &wanted, context);
    let authorities = token_authorities::check(sound, &wanted, context);
    let upstreams = upstreams::check(sound, context);
    let kubernetes = kubernetes::check(sound, context);
    let authorizers = authorizers::check(sound, context);
    let login = login::check(sound, &wanted, context);
    let policies = rules::policies(sound, &wanted, context);
    let routes = routes::check(sound, &policies, &wanted, context);
    let identity = headers::check(sound, &authorizers, context);
    let assertion = headers::assertion(sound, context);
    let server_timing = settings::server_timing(file, context);
    let provider = provider::check(sound, context);
    let revocation = revocation::check(sound, context);
    let events = events::check(sound, context);
    patterns::check(sound, context);
    if context.faults.has_faults() {
        return None;
    }
    let routes::Routes { table, guards, list: routes, matchers } = routes?;
    let (identity_headers, strip) = identity?;
    let version = version([
        serde_json::to_vec(&file.issuer).unwrap_or_default().as_slice(),
        serde_json::to_vec(&file.token_authority).unwrap_or_default().as_slice(),
        // A change of an authority's CA drops the cached answers of that authority.
        serde_json::to_vec(&authorities.iter().map(|a| a.server.tls_version).collect::<Vec<_>>())
            .unwrap_or_default()
            .as_slice(),
        serde_json::to_vec(&file.client_certificates).unwrap_or_default().as_slice(),
        // An issuer that starts to send security events drops its cached tokens: they depend on no
        // event.
        serde_json::to_vec(&file.security_events).unwrap_or_default().as_slice(),
        wanted.join("\n").as_bytes(),
    ]);
    let cache = &file.cache;
    let authentication = Authentication {
        issuers,
        authorities,
        certificates,
        cache: CacheLimits {
            bytes: usize::try_from(cache.size.0).unwrap_or(usize::MAX),
            ttl: cache.ttl.0,
            deny_ttl: cache.deny_ttl.0,
            deny_entries: cache.deny_entries,
        },
        realm: file.server.realm.as_str().into(),
        version,
    };
    let (login, sessions) = login.map_or((None, None), |login| (Some(login.login), login.database));
    let config = Config {
        decision_fields: fields_read(&table, &routes, &authorizers),
        generation,
        listeners,
        authentication,
        table,
        guards,
        login,
        kubernetes,
        authorizers,
        routes,
        upstreams,
        strip,
        identity_headers,
        assertion,
        server_timing,
    };
    Some(Checked {
        config,
        settings: settings?,
        matchers,
        provider,
        sessions,
        revocation: revocation?,
        events,
    })
}

/// Notes a fault for each name that occurs twice.
fn check_unique<'n>(names: impl Iterator<Item = (KeyPath, &'n Name)>, what: &str, faults: &mut Faults) {
    let mut seen = Vec::<(&str, KeyPath)>::new();
    for (path, name) in names {
        match seen.iter().find(|(other, _)| *other == name.0) {
            Some((_, first)) => {
                let hint = format!("{first} has that name too; names must be unique");
                faults.add(&path.key("name"), format!("two {what} have the name {:?}", name.0), hint);
            }
            None => seen.push((&name.0, path)),
        }
    }
}

/// Whether a reference names `name`, or is a misspelling of it. A misspelling is a fault of its
/// own.
fn is_referenced<'n>(name: &str, mut references: impl Iterator<Item = &'n str>, known: &[&str]) -> bool {
    let meant =
        |wanted: &str| !known.contains(&wanted) && nearest(wanted, known.iter().copied()) == Some(name);
    references.any(|wanted| wanted == name || meant(wanted))
}

/// Hint for a reference to a name that does not exist in a section.
fn name_hint(wrong: &str, known: &[&str], sound: &Partial, section: &str) -> String {
    let known: BTreeSet<&str> = known.iter().copied().chain(sound.unreadable_names(section)).collect();
    match nearest(wrong, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if known.is_empty() => format!("there is no {section} at all; add one"),
        None => {
            format!("there are {}", known.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The names of the elements, as the file writes them.
fn names<'s, T>(elements: &'s [T], name: impl Fn(&'s T) -> &'s Name) -> Vec<&'s str> {
    elements.iter().map(|element| name(element).0.as_str()).collect()
}
