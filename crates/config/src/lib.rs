//! The configuration file: text → raw → checked.
//!
//! Owns: the grammar, the keys with their defaults and descriptions ([`raw`]), their JSON schema ([`schema`]),
//! and every message about what is wrong. Does not own: what the values do; that is the gateway's.
//!
//! Flow: [`load`] parses the text, compares it with the schema, reads it into raw tables, judges those, and
//! answers a [`LoadedConfig`] or a [`RefusedConfig`] that names every fault with its line. It reads the files that the
//! configuration names and touches nothing else, so `postern check` and `postern serve` cannot differ.

mod check;
mod fault;
mod files;
mod partial;
pub mod raw;
mod restart_only;
mod scalar;
pub mod schema;
mod shape;
mod text;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use auth::policy::route::RouteMatch;
use auth::time::Timestamp;
pub use check::{
    Broker, Coherence, DatabaseSettings, EventsDatabase, FollowConfig, Otlp, ProcessSettings,
    ProviderSettings, SecretFile, SecurityEvents,
};
use fault::Faults;
pub use fault::{Fault, KeyPath, Report, Severity};
use files::Digests;
pub use files::{Disk, Files, NoFiles, Stamp};
use partial::Partial;
pub use restart_only::{InEffect, RestartOnly};
use scalar::Word as _;
use text::Document;

/// A configuration file and what it may look at.
#[derive(Clone, Copy)]
pub struct ConfigSource<'a> {
    /// What messages call the file.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
    /// The folder that relative paths count from.
    pub base: &'a Path,
    /// What can be read.
    pub files: &'a dyn Files,
}

/// A configuration that holds.
pub struct LoadedConfig {
    /// What the gateway runs on.
    pub config: gateway::config::Config,
    /// What the process is told besides.
    pub settings: ProcessSettings,
    /// What the provider runs on.
    pub provider: Option<ProviderSettings>,
    /// Where sessions of browsers are kept, if not by the browsers.
    pub sessions: Option<DatabaseSettings>,
    /// How it hears of what is revoked.
    pub coherence: Coherence,
    /// Who tells of what happens elsewhere.
    pub events: Option<SecurityEvents>,
    /// The tables as written, defaults filled in.
    pub raw: raw::File,
    /// What each route takes, in the order of [`gateway::config::Config::routes`].
    pub matchers: Vec<RouteMatch>,
    /// Names the text without revealing it.
    pub digest: String,
    /// Warnings.
    pub report: Report,
    /// Every file that was read, as it was then.
    pub files: BTreeMap<PathBuf, Stamp>,
    /// What was in them.
    digests: Digests,
}

/// A configuration that does not hold.
#[derive(Debug)]
pub struct RefusedConfig {
    /// Every fault.
    pub report: Report,
    /// Every file that was read or asked for, as it was then: one of them may change for the better.
    pub files: BTreeMap<PathBuf, Stamp>,
}

/// Reads and judges a configuration at a point in time (certificates have one).
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
    let (refuse, (files, digests)) = (faults.refuse(), context.reader.into_seen());
    let report = faults.into_report(source.name, source.text, |path, aim| places.locate(path, aim));
    match checked {
        Some((checked, raw)) if !refuse => {
            let check::Checked { config, settings, matchers, provider, sessions, coherence, events } =
                checked;
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, source.text.as_bytes());
            let digest = hex(&digest.as_ref()[..8]);
            Ok(Box::new(LoadedConfig {
                config,
                settings,
                provider,
                sessions,
                coherence,
                events,
                raw,
                matchers,
                digest,
                report,
                files,
                digests,
            }))
        }
        _ => Err(Box::new(RefusedConfig { report, files })),
    }
}

/// Reads and judges a file on disk.
pub fn load_file(
    path: &Path,
    now: Timestamp,
    generation: u64,
) -> Result<Box<LoadedConfig>, Box<RefusedConfig>> {
    let name = path.display().to_string();
    let stamp = Stamp::of(path);
    let refused = |what: String| {
        let report = Report::unreadable(&name, what);
        Box::new(RefusedConfig { report, files: BTreeMap::from([(path.to_owned(), stamp)]) })
    };
    let bytes =
        std::fs::read(path).map_err(|error| refused(format!("cannot be read: {}", files::reason(&error))))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("the file is not UTF-8".into()))?;
    // Absolute, so that what was resolved once stays what it is when it is resolved again.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new(""));
    let source = ConfigSource { name: &name, text: &text, base, files: &Disk };
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

impl LoadedConfig {
    /// What tells one content of a file from another; `None`: it is not read, or was not there.
    fn content(&self, file: &Path) -> Option<u64> {
        self.digests.get(file).copied()
    }

    /// The configuration in use as a file, defaults filled in. Left out is what some use as a password: values
    /// of headers that clients must send to take a route, and the query of the collector's address.
    pub fn effective(&self) -> String {
        shown(self.raw.clone())
    }
}

fn shown(mut file: raw::File) -> String {
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

/// Reads a duration as the configuration file writes it, for arguments of the command line.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let explain = |why: String| {
        let colon = if why.is_empty() { "" } else { ": " };
        format!("expected {}{colon}{why}", scalar::Timespan::EXPECTED)
    };
    scalar::Timespan::read(text).map(|span| span.0).map_err(explain)
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}
