//! What is read at the start of a process and never again.
//!
//! Owns: the list of those keys. A configuration that is applied later is shown with them as they were at the
//! start, because that is what the process does, and those that differ are named. Does not own: reading them.

use std::path::PathBuf;

use super::check::OtlpFiles;
use super::scalar::Workers;
use super::{Database, Loaded, Settings, raw, shown};

/// What a process read at its start and keeps to its end.
#[derive(Clone)]
pub struct AtStart {
    workers: Workers,
    admin: raw::Admin,
    access_log: raw::AccessLog,
    telemetry: raw::Telemetry,
    files: OtlpFiles,
    provider: Option<raw::Provider>,
    provider_files: [u64; 2],
    sessions: Sessions,
    coherence: raw::Coherence,
    events: Option<raw::SecurityEvents>,
}

/// Where sessions are kept, as written, and what a file of it holds.
#[derive(Clone, Default, PartialEq, Eq)]
struct Sessions {
    database: Option<String>,
    file: Option<PathBuf>,
    version: u64,
}

/// What is in force in a process whose configuration was read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The configuration as a file; a comment at its beginning names what is [`Self::postponed`].
    pub text: String,
    /// The keys that differ in the file and take effect with the next start.
    pub postponed: Vec<&'static str>,
}

impl AtStart {
    /// The part of the configuration that a process starts with.
    pub fn of(loaded: &Loaded) -> Self {
        let raw::File {
            server,
            admin,
            access_log,
            telemetry,
            provider,
            coherence,
            security_events: events,
            ..
        } = loaded.raw.clone();
        Self {
            workers: server.workers,
            admin,
            access_log,
            telemetry,
            files: files(&loaded.settings),
            provider,
            provider_files: provider_files(loaded),
            sessions: Sessions::of(loaded),
            coherence,
            events,
        }
    }

    /// What is in force once `loaded` is applied to that process.
    pub fn under(&self, loaded: &Loaded) -> InForce {
        let mut file = loaded.raw.clone();
        let mut kept = Kept::default();
        kept.keep("server.workers", &mut file.server.workers, &self.workers);
        kept.keep("admin.enabled", &mut file.admin.enabled, &self.admin.enabled);
        kept.keep("admin.address", &mut file.admin.address, &self.admin.address);
        let (new, old) = (&mut file.access_log, &self.access_log);
        kept.keep("access_log.format", &mut new.format, &old.format);
        kept.keep("access_log.output", &mut new.output, &old.output);
        let (new, old) = (&mut file.telemetry, &self.telemetry);
        kept.keep("telemetry.log", &mut new.log, &old.log);
        kept.keep("telemetry.log_format", &mut new.log_format, &old.log_format);
        kept.keep("telemetry.otlp_endpoint", &mut new.otlp_endpoint, &old.otlp_endpoint);
        let (mut content, before) = (files(&loaded.settings), self.files);
        kept.keep("telemetry.otlp_headers_file", &mut new.otlp_headers_file, &old.otlp_headers_file);
        kept.keep("telemetry.otlp_headers_file", &mut content.headers, &before.headers);
        kept.keep("telemetry.otlp_ca", &mut new.otlp_ca, &old.otlp_ca);
        kept.keep("telemetry.otlp_ca", &mut content.ca, &before.ca);
        kept.keep("telemetry.service", &mut new.service, &old.service);
        kept.keep("telemetry.trace_ratio", &mut new.trace_ratio, &old.trace_ratio);
        kept.keep("coherence", &mut file.coherence, &self.coherence);
        kept.keep("security_events", &mut file.security_events, &self.events);
        if let Some(login) = &mut file.login {
            let mut version = Sessions::of(loaded).version;
            kept.keep("login.database", &mut login.database, &self.sessions.database);
            kept.keep("login.database_file", &mut login.database_file, &self.sessions.file);
            if login.database_file.is_some() {
                kept.keep("login.database_file", &mut version, &self.sessions.version);
            }
        }
        self.keep_provider(&mut file.provider, provider_files(loaded), &mut kept);
        let Kept { postponed } = kept;
        let mut text = shown(file);
        if !postponed.is_empty() {
            let note =
                format!("# changed in the file, in force after a restart: {}\n\n", postponed.join(", "));
            text.insert_str(0, &note);
        }
        InForce { text, postponed }
    }
}

impl Sessions {
    fn of(loaded: &Loaded) -> Self {
        let Some(login) = &loaded.raw.login else { return Self::default() };
        Self {
            database: login.database.clone(),
            file: login.database_file.clone(),
            version: loaded.sessions.as_ref().map_or(0, Database::version),
        }
    }
}

impl AtStart {
    /// A provider that appears, goes or moves waits for the next start; what it is told otherwise does not.
    fn keep_provider(&self, file: &mut Option<raw::Provider>, files: [u64; 2], kept: &mut Kept) {
        let (Some(new), Some(old)) = (file.as_mut(), &self.provider) else {
            if file.is_some() != self.provider.is_some() {
                file.clone_from(&self.provider);
                kept.postponed.push("provider");
            }
            return;
        };
        let [mut database, mut secret] = files;
        let [database_before, secret_before] = self.provider_files;
        kept.keep("provider.address", &mut new.address, &old.address);
        kept.keep("provider.database", &mut new.database, &old.database);
        kept.keep("provider.database_file", &mut new.database_file, &old.database_file);
        if new.database_file.is_some() {
            kept.keep("provider.database_file", &mut database, &database_before);
        }
        kept.keep("provider.secret_file", &mut new.secret_file, &old.secret_file);
        // 0: it was made at the start, after the configuration was read
        if secret_before != 0 {
            kept.keep("provider.secret_file", &mut secret, &secret_before);
        }
    }
}

/// Keys that stay as they were although the file says otherwise.
#[derive(Default)]
struct Kept {
    postponed: Vec<&'static str>,
}

impl Kept {
    fn keep<T: Clone + PartialEq>(&mut self, key: &'static str, new: &mut T, old: &T) {
        if new == old {
            return;
        }
        new.clone_from(old);
        if self.postponed.last() != Some(&key) {
            self.postponed.push(key);
        }
    }
}

fn files(settings: &Settings) -> OtlpFiles {
    settings.otlp.as_ref().map(|otlp| otlp.files).unwrap_or_default()
}

fn provider_files(loaded: &Loaded) -> [u64; 2] {
    loaded
        .provider
        .as_ref()
        .map_or([0; 2], |provider| [provider.database.version(), provider.secret.version()])
}
