//! Restart-only keys: the keys that the process reads at its start only.
//!
//! Owns: the list of those keys. After a reload, the effective configuration shows them with the
//! values of the start, because the process still uses these. It also names the keys whose value
//! differs, in the file or in a file that they name and that is read at the start only.
//!
//! Does not own: reading the values.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::scalar::Workers;
use super::version::version;
use super::{EventsDatabase, LoadedConfig, raw, redacted_toml};

/// Restart-only values of a process, as it read them at its start.
#[derive(Clone)]
pub struct RestartOnly {
    workers: Workers,
    admin: raw::Admin,
    access_log: raw::AccessLog,
    telemetry: raw::Telemetry,
    provider: Option<raw::Provider>,
    sessions: Sessions,
    revocation: raw::Revocation,
    events: Option<raw::SecurityEvents>,
    gateway_api: Option<raw::GatewayApi>,
    contents: Contents,
}

/// Where browser sessions are stored, as the file writes it.
#[derive(Clone, Default)]
struct Sessions {
    database: Option<String>,
    file: Option<PathBuf>,
}

/// Digest of the content of each file that is read at the start only, by the key that names the
/// file. There is no entry for a key that names no file, or a file that did not exist.
type Contents = BTreeMap<&'static str, u64>;

/// Effective configuration of a process after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveConfig {
    /// The configuration as TOML. A comment at its beginning names the keys in [`Self::postponed`].
    pub text: String,
    /// Keys whose value in the file, or whose file, has changed. They take effect at the next
    /// start.
    pub postponed: Vec<&'static str>,
}

impl RestartOnly {
    /// Takes the restart-only part of the configuration that the process starts with.
    pub fn from_loaded(loaded: &LoadedConfig) -> Self {
        let contents = contents(loaded);
        let raw::File {
            server,
            admin,
            access_log,
            telemetry,
            login,
            provider,
            revocation,
            security_events: events,
            gateway_api,
            ..
        } = loaded.raw.clone();
        let sessions = login.map(|login| Sessions { database: login.database, file: login.database_file });
        Self {
            workers: server.workers,
            admin,
            access_log,
            telemetry,
            provider,
            sessions: sessions.unwrap_or_default(),
            revocation,
            events,
            gateway_api,
            contents,
        }
    }

    /// Effective configuration after the process applies `loaded`.
    pub fn effective_config(&self, loaded: &LoadedConfig) -> EffectiveConfig {
        let mut file = loaded.raw.clone();
        let mut start_values =
            StartValues { before: &self.contents, now: contents(loaded), postponed: Vec::new() };
        start_values.keep_start_value("server.workers", &mut file.server.workers, &self.workers);
        start_values.keep_start_value("admin.enabled", &mut file.admin.enabled, &self.admin.enabled);
        start_values.keep_start_value("admin.address", &mut file.admin.address, &self.admin.address);
        let (new, old) = (&mut file.access_log, &self.access_log);
        start_values.keep_start_value("access_log.format", &mut new.format, &old.format);
        start_values.keep_start_value("access_log.output", &mut new.output, &old.output);
        let (new, old) = (&mut file.telemetry, &self.telemetry);
        start_values.keep_start_value("telemetry.log", &mut new.log, &old.log);
        start_values.keep_start_value("telemetry.log_format", &mut new.log_format, &old.log_format);
        start_values.keep_start_value("telemetry.otlp_endpoint", &mut new.otlp_endpoint, &old.otlp_endpoint);
        start_values.keep_start_value(
            "telemetry.otlp_headers_file",
            &mut new.otlp_headers_file,
            &old.otlp_headers_file,
        );
        start_values.keep_start_value("telemetry.otlp_ca", &mut new.otlp_ca, &old.otlp_ca);
        start_values.keep_start_value("telemetry.service", &mut new.service, &old.service);
        start_values.keep_start_value("telemetry.trace_ratio", &mut new.trace_ratio, &old.trace_ratio);
        start_values.keep_start_value("revocation", &mut file.revocation, &self.revocation);
        start_values.note_changed_files("revocation.");
        let events = self.events.clone().map(|old| with_new_tokens(old, file.security_events.as_ref()));
        start_values.keep_start_value("security_events", &mut file.security_events, &events);
        start_values.note_changed_files("security_events.");
        start_values.keep_start_value("gateway_api", &mut file.gateway_api, &self.gateway_api);
        if let Some(login) = &mut file.login {
            start_values.keep_start_value("login.database", &mut login.database, &self.sessions.database);
            start_values.keep_start_value(
                "login.database_file",
                &mut login.database_file,
                &self.sessions.file,
            );
        }
        self.keep_provider(&mut file.provider, &mut start_values);
        let StartValues { postponed, .. } = start_values;
        let mut text = redacted_toml(file);
        if !postponed.is_empty() {
            let note =
                format!("# changed in the file, applied after a restart: {}\n\n", postponed.join(", "));
            text.insert_str(0, &note);
        }
        EffectiveConfig { text, postponed }
    }

    /// Keeps what the provider reads at the start: whether it exists, its address, its database and
    /// its secret file. Changes of these wait for the next start. Other keys of the provider apply
    /// at once.
    fn keep_provider(&self, file: &mut Option<raw::Provider>, start_values: &mut StartValues<'_>) {
        let (Some(new), Some(old)) = (file.as_mut(), &self.provider) else {
            if file.is_some() != self.provider.is_some() {
                file.clone_from(&self.provider);
                start_values.postponed.push("provider");
            }
            return;
        };
        start_values.keep_start_value("provider.address", &mut new.address, &old.address);
        start_values.keep_start_value("provider.database", &mut new.database, &old.database);
        start_values.keep_start_value("provider.database_file", &mut new.database_file, &old.database_file);
        start_values.keep_start_value("provider.secret_file", &mut new.secret_file, &old.secret_file);
    }
}

/// The old table with the new token files of pushing transmitters. A reload replaces these tokens,
/// also when the path of the file changes.
fn with_new_tokens(mut old: raw::SecurityEvents, new: Option<&raw::SecurityEvents>) -> raw::SecurityEvents {
    for one in old.transmitter.iter_mut().filter(|one| one.endpoint.is_some()) {
        let mut pushing = new.iter().flat_map(|new| &new.transmitter).filter(|new| new.endpoint.is_some());
        if let Some(new) = pushing.find(|new| new.name == one.name) {
            one.endpoint_token_file.clone_from(&new.endpoint_token_file);
        }
    }
    old
}

/// Puts the values of the start back into a new configuration, and collects the keys that differ.
struct StartValues<'s> {
    before: &'s Contents,
    now: Contents,
    postponed: Vec<&'static str>,
}

impl StartValues<'_> {
    /// Keeps the old value. Notes the key when its value or the content of its file has changed.
    fn keep_start_value<T: Clone + PartialEq>(&mut self, key: &'static str, new: &mut T, old: &T) {
        if new != old {
            new.clone_from(old);
            self.postponed.push(key);
        } else if self.now.get(key).is_some_and(|now| self.differs(key, *now)) {
            self.postponed.push(key);
        }
    }

    /// Notes the keys of a table that is kept as a whole when the content of their files has
    /// changed.
    fn note_changed_files(&mut self, table: &str) {
        let of_table = self.now.iter().filter(|(key, _)| key.starts_with(table));
        let changed: Vec<_> =
            of_table.filter(|(key, now)| self.differs(key, **now)).map(|(key, _)| *key).collect();
        self.postponed.extend(changed);
    }

    fn differs(&self, key: &str, now: u64) -> bool {
        self.before.get(key).is_some_and(|before| *before != now)
    }
}

fn contents(loaded: &LoadedConfig) -> Contents {
    let mut contents: Contents = databases(loaded).collect();
    contents.extend(files(loaded));
    contents.extend(authorities(loaded));
    contents
}

/// Digests of the files that a key of the configuration names directly.
fn files(loaded: &LoadedConfig) -> impl Iterator<Item = (&'static str, u64)> {
    let raw::File { telemetry, revocation, provider, .. } = &loaded.raw;
    let secret = provider.as_ref().and_then(|provider| provider.secret_file.as_deref());
    // Without `secret_file`, the secret has a default path.
    let secret = secret.or_else(|| Some(&*loaded.provider.as_ref()?.secret.path));
    let files = [
        ("telemetry.otlp_headers_file", telemetry.otlp_headers_file.as_deref()),
        ("telemetry.otlp_ca", telemetry.otlp_ca.as_deref()),
        ("revocation.password_file", revocation.password_file.as_deref()),
        ("revocation.token_file", revocation.token_file.as_deref()),
        ("revocation.credentials_file", revocation.credentials_file.as_deref()),
        ("revocation.ca", revocation.ca.as_deref()),
        ("revocation.certificate", revocation.certificate.as_deref()),
        ("revocation.key", revocation.key.as_deref()),
        ("provider.secret_file", secret),
    ];
    files.into_iter().filter_map(|(key, file)| Some((key, loaded.content(file?)?)))
}

/// Digests of the databases, by the key that configures their location. The URL of a database may
/// be in a file, and may name further files.
fn databases(loaded: &LoadedConfig) -> impl Iterator<Item = (&'static str, u64)> {
    let raw::File { login, provider, security_events: events, .. } = &loaded.raw;
    let of_events = match loaded.events.as_ref().map(|events| &events.database) {
        Some(EventsDatabase::Own(database)) => Some(&**database),
        _ => None,
    };
    let databases = [
        (
            ["login.database", "login.database_file"],
            login.as_ref().and_then(|login| login.database_file.as_ref()),
            loaded.sessions.as_ref(),
        ),
        (
            ["provider.database", "provider.database_file"],
            provider.as_ref().and_then(|provider| provider.database_file.as_ref()),
            loaded.provider.as_ref().map(|provider| &provider.database),
        ),
        (
            ["security_events.database", "security_events.database_file"],
            events.as_ref().and_then(|events| events.database_file.as_ref()),
            of_events,
        ),
    ];
    let key = |keys: [&'static str; 2], file: Option<&PathBuf>| keys[usize::from(file.is_some())];
    databases
        .into_iter()
        .filter_map(move |(keys, file, database)| Some((key(keys, file), database?.version())))
}

/// One digest of the CA files of all transmitters.
fn authorities(loaded: &LoadedConfig) -> Option<(&'static str, u64)> {
    let transmitters = loaded.raw.security_events.iter().flat_map(|events| &events.transmitter);
    let digests = transmitters.filter_map(|one| loaded.content(one.ca.as_deref()?));
    let digests: Vec<_> = digests.map(u64::to_be_bytes).collect();
    let all = || version(digests.iter().map(<[u8; 8]>::as_slice));
    (!digests.is_empty()).then(|| ("security_events.transmitter.ca", all()))
}
