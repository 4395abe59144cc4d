//! What is read at the start of a process and never again.
//!
//! Owns: the list of those keys. A configuration that is applied later is shown with them as they were at the
//! start, because that is what the process does, and those that differ are named. Does not own: reading them.

use super::check::OtlpFiles;
use super::scalar::Workers;
use super::{Loaded, Settings, raw, shown};

/// What a process read at its start and keeps to its end.
#[derive(Clone)]
pub struct AtStart {
    workers: Workers,
    admin: raw::Admin,
    access_log: raw::AccessLog,
    telemetry: raw::Telemetry,
    files: OtlpFiles,
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
        let raw::File { server, admin, access_log, telemetry, .. } = loaded.raw.clone();
        Self { workers: server.workers, admin, access_log, telemetry, files: files(&loaded.settings) }
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
