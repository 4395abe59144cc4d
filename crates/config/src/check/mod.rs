//! Semantic checks: turn raw tables into the values that the gateway runs on.
//!
//! Each submodule checks one part of the file, alone and with the parts that it refers to. It notes
//! every fault and does not stop at the first. The result is assembled only when there is no fault.

mod actions;
mod affinity;
mod authorizers;
mod basic_auth;
mod cors;
mod database;
mod destinations;
mod events;
mod field_edits;
mod gateway_api;
mod headers;
mod issuers;
mod kubernetes;
mod listener_tls;
mod listeners;
mod login;
mod login_client;
mod login_origins;
mod outbound;
mod pages;
mod paths;
mod patterns;
mod provider;
mod revocation;
mod rewrites;
mod route_checker;
mod route_match;
mod routes;
mod rules;
mod server_keys;
mod settings;
mod tls;
mod token_authorities;
mod trust;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::policy::route::RouteMatch;
use auth::time::Timestamp;

use credentials::config::{Authentication, CacheLimits, TokenAuthority};
pub use database::DatabaseSettings;
pub use events::{EventsDatabase, SecurityEvents};
use gateway::config::{Config, FileRoutes, Routing};
pub use gateway_api::{GatewayApiSettings, GatewayExposure};
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::tls::TrustAnchors;
pub use outbound::OutboundSettings;
pub use pages::messages;
pub use paths::without_end as plain_path;
pub use provider::{ProviderSettings, SecretFile};
pub use revocation::{Broker, FollowedIssuerConfig, RevocationSettings};
pub use route_checker::RouteChecker;
pub use settings::{Otlp, ProcessSettings};

use super::fault::{Faults, KeyPath, nearest};
use super::files::{Files, Reader};
use super::raw::{self, PolicyPermission};
use super::scalar::Name;
use crate::partial::Partial;
use crate::version::version;

/// State that all checks share.
pub(super) struct Context<'f> {
    pub(super) faults: Faults,
    pub(super) reader: Reader<'f>,
    files: &'f dyn Files,
    now: Timestamp,
    /// Proxies for the requests of the process itself.
    proxies: OutboundProxies,
    /// What each CA file contains, by its path as written.
    pub(super) trusted: BTreeMap<PathBuf, TrustAnchors>,
    /// The TLS clients made so far, which other tables share.
    clients: Vec<tls::MadeClient>,
    /// The numbers of upstreams that are in no file, by name.
    other_upstreams: Option<&'f UpstreamNumbers<'f>>,
}

/// Finds the number of an upstream by its name.
pub type UpstreamNumbers<'f> = dyn Fn(&str) -> Option<usize> + 'f;

/// All checked values of a configuration.
pub(super) struct Checked {
    pub(super) config: Config,
    pub(super) settings: ProcessSettings,
    pub(super) outbound: OutboundSettings,
    pub(super) matchers: Vec<RouteMatch>,
    pub(super) provider: Option<ProviderSettings>,
    pub(super) sessions: Option<DatabaseSettings>,
    pub(super) revocation: RevocationSettings,
    pub(super) events: Option<SecurityEvents>,
    pub(super) gateway_api: Option<GatewayApiSettings>,
    pub(super) route_checker: RouteChecker,
}

impl<'f> Context<'f> {
    pub(super) fn new(files: &'f dyn Files, base: &Path, now: Timestamp) -> Self {
        let (reader, proxies) = (Reader::new(files, base), OutboundProxies::default());
        Self {
            faults: Faults::default(),
            reader,
            files,
            now,
            proxies,
            trusted: BTreeMap::new(),
            clients: Vec::new(),
            other_upstreams: None,
        }
    }

    /// Reads a file with a secret. Notes a fault when that fails, or when every user of the machine
    /// can read it too: `hint` says what that permits, and the remedy.
    fn read_private(
        &mut self,
        file: &Path,
        path: &KeyPath,
        hint: &'static str,
    ) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        let content = zeroize::Zeroizing::new(self.read(file, path)?);
        if self.reader.access(file).is_some_and(|access| access.mode & 0o007 != 0) {
            let shown = self.reader.resolve(file);
            let message = format!("{} can be read by every user of this machine", shown.display());
            self.faults.add(path, message, hint);
            return None;
        }
        Some(content)
    }

    /// Reads a file that the configuration names. Notes a fault when that fails.
    fn read(&mut self, file: &Path, path: &KeyPath) -> Option<Vec<u8>> {
        if file.as_os_str().is_empty() {
            self.faults.add(path, "the path is empty", "name a file, or remove the key");
            return None;
        }
        match self.reader.read(file) {
            Ok(content) => Some(content),
            Err(message) => {
                let hint = if file.is_relative() {
                    "relative paths are resolved against the folder of this file"
                } else {
                    "check the path, and that this user may read it"
                };
                self.faults.add(path, message, hint);
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

/// The proxies of the environment. Notes a fault when a variable is no proxy.
pub(super) fn outbound_of_environment(context: &mut Context<'_>) -> OutboundSettings {
    outbound::check(&raw::Outbound::default(), context)
}

/// Checks a whole file. `None` exactly when a fault was noted.
pub(super) fn check(sound: &Partial, generation: u64, context: &mut Context<'_>) -> Option<Checked> {
    let file = &sound.file;
    let outbound = outbound::check(&file.outbound, context);
    context.proxies = outbound.proxies.clone();
    let settings = settings::check(file, context);
    let listeners = listeners::check(sound, context);
    let claims = referenced_claims(sound, context);
    let issuers = issuers::check(sound, &claims, context);
    let certificates = issuers::certificates(sound, &claims, context);
    let authorities = token_authorities::check(sound, &claims, context);
    let basic = basic_auth::check(sound, context);
    let upstreams = upstreams::check(sound, context);
    let kubernetes = kubernetes::check(sound, context);
    let authorizers = authorizers::check(sound, context);
    let shell = pages::shell(&file.pages, context);
    let pages = pages::error_pages(&shell, context);
    let login = login::check(sound, &claims, &shell, context);
    let shared = routes::Shared::new(sound, &claims, login.as_ref().map(|login| &*login.login), context);
    let routes = routes::check(sound, &shared, context);
    let identity = headers::check(sound, &authorizers, context);
    let assertion = headers::assertion(sound, context);
    let server_timing = settings::server_timing(file, context);
    let provider = provider::check(sound, &shell, context);
    let revocation = revocation::check(sound, context);
    let events = events::check(sound, context);
    let gateway_api = gateway_api::check(sound, context);
    patterns::check(sound, context);
    if context.faults.has_faults() {
        return None;
    }
    let routes::Routes { table, guards, list: routes, matchers } = routes?;
    let (identity_headers, strip) = identity?;
    let version = authentication_version(file, &authorities, &claims);
    let cache = &file.cache;
    let authentication = Authentication {
        issuers,
        authorities,
        certificates,
        basic,
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
        generation,
        listeners: listeners.into_iter().map(Arc::new).collect(),
        authentication: Arc::new(authentication),
        routing: Routing::of_file(FileRoutes { table, routes, upstreams, guards }, &authorizers),
        login,
        kubernetes: kubernetes.map(Arc::new),
        authorizers: authorizers.into(),
        strip: Arc::new(strip),
        identity_headers: Arc::new(identity_headers),
        assertion: assertion.map(Arc::new),
        response_headers: field_edits::without_route(&shared.edits),
        pages: pages?,
        server_timing: server_timing.into(),
        more_routes_forward_access_token: gateway_api::permits(file, PolicyPermission::ForwardAccessToken),
    };
    Some(Checked {
        config,
        settings: settings?,
        outbound,
        matchers,
        provider,
        sessions,
        revocation: revocation?,
        events,
        gateway_api,
        route_checker: RouteChecker::new(file, shared),
    })
}

/// Changes with everything that shapes the cached facts of a credential.
fn authentication_version(file: &raw::File, authorities: &[TokenAuthority], claims: &[String]) -> u64 {
    version([
        serde_json::to_vec(&file.issuer).unwrap_or_default().as_slice(),
        serde_json::to_vec(&file.token_authority).unwrap_or_default().as_slice(),
        // A change of an authority's CA drops the cached answers of that authority.
        serde_json::to_vec(&authorities.iter().map(|a| a.server.tls_version).collect::<Vec<_>>())
            .unwrap_or_default()
            .as_slice(),
        serde_json::to_vec(&file.client_certificates).unwrap_or_default().as_slice(),
        // The entries of its file are part of the cache keys instead.
        serde_json::to_vec(&file.basic_auth).unwrap_or_default().as_slice(),
        // An issuer that starts to send security events drops its cached tokens: they depend on no
        // event.
        serde_json::to_vec(&file.security_events).unwrap_or_default().as_slice(),
        claims.join("\n").as_bytes(),
    ])
}

/// The claims that rules and header values read, each once.
fn referenced_claims(sound: &Partial, context: &mut Context<'_>) -> Vec<String> {
    let mut claims = rules::referenced_claims(sound, context);
    claims.extend(field_edits::referenced_claims(sound, context));
    claims.sort();
    claims.dedup();
    claims
}

/// Notes a fault for each name that occurs twice.
fn check_unique<'n>(names: impl Iterator<Item = (KeyPath, &'n Name)>, kind: &str, faults: &mut Faults) {
    let mut seen = Vec::<(&str, KeyPath)>::new();
    for (path, name) in names {
        match seen.iter().find(|(other, _)| *other == name.0) {
            Some((_, first)) => {
                let hint = format!("{first} has that name too; names must be unique");
                faults.add(&path.key("name"), format!("two {kind} have the name {:?}", name.0), hint);
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
        None if known.is_empty() => format!("the file has no entry in `{section}`; add one"),
        None => {
            format!("there are {}", known.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The names of the elements, as the file writes them.
fn names<'s, T>(elements: &'s [T], name: impl Fn(&'s T) -> &'s Name) -> Vec<&'s str> {
    elements.iter().map(|element| name(element).0.as_str()).collect()
}
