//! Configuration file: turns text into raw tables, and raw tables into checked values.
//!
//! Owns: the grammar, the keys with their defaults and descriptions ([`raw`]), their JSON schema
//! ([`schema`]), and every message about a fault. Does not own: what the values do. That belongs to
//! the gateway.
//!
//! 1. [`load`] parses the text and compares it with the schema.
//! 2. It reads the text into raw tables and checks these, alone and together.
//! 3. It returns a [`LoadedConfig`], or a [`RefusedConfig`] that names every fault with its line.
//!
//! [`load`] reads the files that the configuration names and has no other side effects. Therefore
//! `postern check` and `postern serve` always agree.

mod check;
mod fault;
mod files;
pub mod json;
mod partial;
pub mod raw;
mod renamed;
mod restart_only;
mod scalar;
pub mod schema;
mod shape;
mod text;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::policy::route::RouteMatch;
use auth::time::Timestamp;
pub use check::{
    Broker, DatabaseSettings, EventsDatabase, FollowedIssuerConfig, GatewayApiSettings, GatewayExposure,
    Otlp, OutboundSettings, ProcessSettings, ProviderSettings, RevocationSettings, RouteChecker, SecretFile,
    SecurityEvents, UpstreamNumbers, messages, plain_path,
};
use fault::Faults;
pub use fault::{Excerpt, Fault, KeyPath, Report, Severity};
use files::Digests;
pub use files::{FileSystem, Files, NoFiles, Stamp};
use http_engine::tls::{ServerCertificates, TrustAnchors};
use partial::Partial;
pub use restart_only::{EffectiveConfig, RestartOnly};
use scalar::Word as _;
pub use scalar::{Bound, ByteSize, Name, Timespan};
use text::Document;

/// A configuration file and the files that it may read.
#[derive(Clone, Copy)]
pub struct ConfigSource<'a> {
    /// Name of the configuration file in messages.
    pub name: &'a str,
    /// Content of the configuration file.
    pub text: &'a str,
    /// Folder that relative paths are resolved against.
    pub base: &'a Path,
    /// Access to the files that the configuration names.
    pub files: &'a dyn Files,
}

/// A valid configuration, ready to be applied.
pub struct LoadedConfig {
    /// Configuration of the gateway.
    pub config: gateway::config::Config,
    /// Settings of the process that do not concern requests.
    pub settings: ProcessSettings,
    /// Proxies for the requests of the process itself.
    pub outbound: OutboundSettings,
    /// Configuration of the provider. `None`: there is no `[provider]`.
    pub provider: Option<ProviderSettings>,
    /// Database of browser sessions. `None`: each browser keeps its session in a cookie.
    pub sessions: Option<DatabaseSettings>,
    /// How the process receives and publishes revocations.
    pub revocation: RevocationSettings,
    /// Security events that other issuers send. `None`: there is no `[security_events]`.
    pub events: Option<SecurityEvents>,
    /// How the process takes part in a cluster. `None`: there is no `[gateway_api]`.
    pub gateway_api: Option<GatewayApiSettings>,
    /// The tables of the file, with defaults filled in.
    pub raw: raw::File,
    /// Match criteria of each route, in the order of [`gateway::config::Config::routes`].
    pub matchers: Vec<RouteMatch>,
    /// Digest that identifies the text without revealing it.
    pub digest: String,
    /// Warnings about the file.
    pub report: Report,
    /// Checks routes from other sources than the file, against this file.
    pub route_checker: RouteChecker,
    /// Every file that was read, with its state at that time.
    pub files: BTreeMap<PathBuf, Stamp>,
    /// Certificates that verify servers, by the path of their file as written.
    pub trusted: BTreeMap<PathBuf, TrustAnchors>,
    /// Digest of the content of each file that was read.
    digests: Digests,
}

/// A configuration that has faults and cannot be applied.
#[derive(Debug)]
pub struct RefusedConfig {
    /// Every fault and warning.
    pub report: Report,
    /// Every file that was read or was missing, with its state at that time. A change of one of
    /// them may remove a fault.
    pub files: BTreeMap<PathBuf, Stamp>,
}

/// Parses and checks a configuration at the time `now`, which decides whether certificates are
/// valid.
///
/// # Errors
///
/// Returns a [`RefusedConfig`] with every fault when the text is not TOML or has any fault.
pub fn load(
    source: ConfigSource<'_>,
    now: Timestamp,
    generation: u64,
) -> Result<Box<LoadedConfig>, Box<RefusedConfig>> {
    let mut faults = Faults::default();
    let Some(document) = Document::parse(source.text, &mut faults) else {
        let report = faults.into_report(source.name, source.text, |_, _| 0..0);
        return Err(Box::new(RefusedConfig { report, files: BTreeMap::new() }));
    };
    let places = document.clone();
    let mut context = check::Context::new(source.files, source.base, now);
    let checked = Partial::read(document, &mut faults).and_then(|sound| {
        let checked = check::check(&sound, generation, &mut context)?;
        Some((checked, sound.into_file()))
    });
    faults.append(context.faults);
    let (refuse, trusted) = (faults.has_faults(), context.trusted);
    let (files, digests) = context.reader.into_parts();
    let report = faults.into_report(source.name, source.text, |path, aim| places.locate(path, aim));
    match checked {
        Some((checked, raw)) if !refuse => {
            let check::Checked {
                config,
                settings,
                outbound,
                matchers,
                provider,
                sessions,
                revocation,
                events,
                gateway_api,
                route_checker,
            } = checked;
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, source.text.as_bytes());
            let digest = hex(&digest.as_ref()[..8]);
            Ok(Box::new(LoadedConfig {
                config,
                settings,
                outbound,
                provider,
                sessions,
                revocation,
                events,
                gateway_api,
                raw,
                matchers,
                digest,
                report,
                route_checker,
                files,
                trusted,
                digests,
            }))
        }
        _ => Err(Box::new(RefusedConfig { report, files })),
    }
}

/// Parses and checks a file on disk, like [`load`].
///
/// # Errors
///
/// Returns a [`RefusedConfig`] also when the file cannot be read or is not UTF-8.
pub fn load_file(
    path: &Path,
    now: Timestamp,
    generation: u64,
) -> Result<Box<LoadedConfig>, Box<RefusedConfig>> {
    let name = path.display().to_string();
    let stamp = Stamp::of_path(path);
    let refused = |message: String| {
        let report = Report::unreadable(&name, message);
        Box::new(RefusedConfig { report, files: BTreeMap::from([(path.to_owned(), stamp)]) })
    };
    let bytes = std::fs::read(path)
        .map_err(|error| refused(format!("cannot be read: {}", files::describe_io_error(&error))))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("the file is not UTF-8".into()))?;
    // An absolute base keeps resolved paths valid when they are resolved a second time.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new(""));
    let source = ConfigSource { name: &name, text: &text, base, files: &FileSystem };
    match load(source, now, generation) {
        Ok(mut loaded) => {
            loaded.files.insert(path.to_owned(), stamp);
            Ok(loaded)
        }
        Err(mut refused) => {
            refused.files.insert(path.to_owned(), stamp);
            Err(refused)
        }
    }
}

/// The admin listener of a configuration file. Nothing else in it is checked, and no other file is
/// read.
///
/// # Errors
///
/// Returns why the file cannot be read, or what is wrong with the text or the table `admin`.
pub fn admin_of_file(path: &Path) -> Result<raw::Admin, String> {
    #[derive(serde::Deserialize)]
    struct OnlyAdmin {
        #[serde(default)]
        admin: raw::Admin,
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("{} cannot be read: {}", path.display(), files::describe_io_error(&error))
    })?;
    let only: OnlyAdmin = toml::from_str(&text)
        .map_err(|error| format!("{}: {}", path.display(), error.to_string().trim_end()))?;
    Ok(only.admin)
}

/// The proxies that the environment names, for a command that reads no configuration.
///
/// # Errors
///
/// Returns a report when a variable is no proxy.
pub fn outbound_of_environment(now: Timestamp) -> Result<OutboundSettings, Report> {
    let mut context = check::Context::new(&FileSystem, Path::new(""), now);
    let outbound = check::outbound_of_environment(&mut context);
    if context.faults.has_faults() {
        return Err(context.faults.into_report("environment", "", |_, _| 0..0));
    }
    Ok(outbound)
}

impl LoadedConfig {
    /// Digest of the content of a file. `None`: the file is not read, or did not exist.
    fn content(&self, file: &Path) -> Option<u64> {
        self.digests.get(file).copied()
    }

    /// The certificates of all listeners and of the provider. They can be renewed while another
    /// configuration is refused.
    pub fn certificates(&self) -> Vec<Arc<ServerCertificates>> {
        let listeners = self.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let provider = self.provider.iter().filter_map(|provider| provider.certificates.as_ref());
        listeners.map(|tls| &tls.certificates).chain(provider).cloned().collect()
    }

    /// The effective configuration as TOML, with defaults filled in. Values that may serve as a
    /// password are redacted: the values of headers that a route matches, and the query of the
    /// collector's URL.
    pub fn effective(&self) -> String {
        redacted_toml(self.raw.clone())
    }
}

fn redacted_toml(mut file: raw::File) -> String {
    for value in file.route.iter_mut().flat_map(|route| route.headers.values_mut()) {
        if let raw::HeaderValue::Exact(value) = value {
            "[redacted]".clone_into(value);
        }
    }
    if let Some(endpoint) = &mut file.telemetry.otlp_endpoint
        && let Some(query) = endpoint.find('?')
    {
        endpoint.replace_range(query.., "?redacted");
    }
    for limits in file.listener.iter_mut().map(|listener| &mut listener.limits) {
        limits.target_size = Some(limits.target());
    }
    toml::to_string(&file).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

/// Parses a duration of the command line in the syntax of the configuration file.
///
/// # Errors
///
/// Returns what is expected, and what is wrong if that is known.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let explain = |why: String| {
        let colon = if why.is_empty() { "" } else { ": " };
        format!("expected {}{colon}{why}", scalar::Timespan::EXPECTED)
    };
    scalar::Timespan::read(text).map(|span| span.0).map_err(explain)
}

/// Encodes bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}
