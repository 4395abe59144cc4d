//! Topology errors: why a topology cannot be used, started or kept running.

use std::path::PathBuf;

use lab_load::cgroup::CgroupError;

/// Why a topology cannot be used, started or kept running.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The name is neither a shipped text nor an existing file.
    #[error("unknown {kind} `{name}`: not a file, and not a built-in one; available: {known}")]
    Unknown {
        /// Kind of the text: `topology`, `scenario`, `part` or `template`.
        kind: &'static str,
        /// Name that was requested.
        name: String,
        /// Shipped names of this kind, as a list.
        known: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{path}`: {error}")]
    File {
        /// Failed action: `read`, `write`, `make`, `remove` or `give away`.
        action: &'static str,
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The file is not valid TOML, or has unknown or missing keys.
    #[error("cannot parse `{file}`: {error}")]
    Toml {
        /// Path of the file.
        file: String,
        /// Position, key, and expected keys.
        error: toml::de::Error,
    },
    /// A value is invalid.
    #[error("`{file}`: {place}: {message}")]
    Value {
        /// Path of the file.
        file: String,
        /// Component and key.
        place: String,
        /// What is wrong with the value, and what to write instead.
        message: String,
    },
    /// A program is not installed.
    #[error("component `{component}` needs `{program}`, which is {missing}; {get}")]
    Program {
        /// Name of the component.
        component: String,
        /// Name of the program.
        program: String,
        /// Where the program was searched.
        missing: String,
        /// How to install the program.
        get: String,
    },
    /// A CPU or memory limit cannot be set.
    #[error("cannot limit component `{component}`: {error}")]
    Limit {
        /// Name of the component.
        component: String,
        /// What is missing for a control group, and what to do.
        error: CgroupError,
    },
    /// A program cannot be started.
    #[error("cannot start component `{component}` (`{program}`): {error}")]
    Start {
        /// Name of the component.
        component: String,
        /// Path of the program.
        program: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A component ended before it was ready, or while it was needed.
    #[error("component `{component}` ended ({status}); end of its log {}:\n{tail}", log.display())]
    Ended {
        /// Name of the component.
        component: String,
        /// Exit code or signal.
        status: String,
        /// Path of the complete log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A component did not end in time after it was asked to.
    #[error("component `{component}` did not end within {seconds} s of the stop signal; end of its log {}:\n{tail}", log.display())]
    Unended {
        /// Name of the component.
        component: String,
        /// Length of the wait, in seconds.
        seconds: f64,
        /// Path of the complete log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A component did not become ready in time.
    #[error("component `{component}` was not ready within {seconds} s: {why}; end of its log {}:\n{tail}", log.display())]
    Unready {
        /// Name of the component.
        component: String,
        /// Length of the wait, in seconds.
        seconds: f64,
        /// Result of the last probe.
        why: String,
        /// Path of the complete log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A token cannot be obtained.
    #[error("no token from {url}: {why}")]
    Token {
        /// Token endpoint or other source of the token.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// The check of the whole path before the load failed.
    #[error("check before load failed: {url} {message}")]
    Check {
        /// URL where load enters.
        url: String,
        /// How it responded.
        message: String,
    },
    /// The cluster of a topology could not be filled.
    #[error("cannot fill the cluster: {0}")]
    Cluster(lab_load::cluster::FillError),
    /// An action on a component during load failed.
    #[error("{action} failed: {error}")]
    Act {
        /// Description of the action, with the component.
        action: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl TopologyError {
    pub(crate) fn invalid_value(file: &str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { file: file.to_owned(), place: place.into(), message: message.into() }
    }
}
