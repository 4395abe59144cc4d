//! Why a topology cannot be used, started or kept running.

use std::path::PathBuf;

use crate::cgroup::CgroupError;

/// Why a topology cannot be used, started or kept running.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// Nothing of this name ships, and there is no such file.
    #[error("there is no {kind} `{name}`: neither a file nor one of those that ship ({known})")]
    Unknown {
        /// `topology`, `scenario` or `template`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What ships.
        known: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{path}`: {error}")]
    File {
        /// `read`, `write`, `make`, `remove` or `give away`.
        action: &'static str,
        /// Which.
        path: String,
        /// The system's words.
        error: std::io::Error,
    },
    /// It is not TOML of this form.
    #[error("`{file}` is not understood: {error}")]
    Toml {
        /// Which file.
        file: String,
        /// Place, key, and what is known instead.
        error: toml::de::Error,
    },
    /// A value cannot be meant.
    #[error("`{file}`: {place}: {what}")]
    Value {
        /// Which file.
        file: String,
        /// Component and key.
        place: String,
        /// What is wrong, and what to write instead.
        what: String,
    },
    /// A program is not there.
    #[error("component `{component}` needs `{program}`, which is {missing}; {get}")]
    Program {
        /// Which component.
        component: String,
        /// Which program.
        program: String,
        /// Where it was looked for.
        missing: String,
        /// How to get it.
        get: String,
    },
    /// A limit cannot be set.
    #[error("component `{component}` is to be limited, which needs a control group: {error}")]
    Limit {
        /// Which component.
        component: String,
        /// What is missing, and what to do.
        error: CgroupError,
    },
    /// A program does not start.
    #[error("cannot start component `{component}` (`{program}`): {error}")]
    Start {
        /// Which component.
        component: String,
        /// Which program.
        program: String,
        /// The system's words.
        error: std::io::Error,
    },
    /// It ended before it was ready, or while it was needed.
    #[error("component `{component}` ended ({status}); the end of its log, {}:\n{tail}", log.display())]
    Ended {
        /// Which component.
        component: String,
        /// How.
        status: String,
        /// Where all of it is.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// It was asked to end, and has not.
    #[error("component `{component}` had not ended {seconds} s after it was asked to; the end of its log, {}:\n{tail}", log.display())]
    Unended {
        /// Which component.
        component: String,
        /// How long it was waited for.
        seconds: f64,
        /// Where all of it is.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// It does not become ready.
    #[error("component `{component}` was not ready within {seconds} s: {why}; the end of its log, {}:\n{tail}", log.display())]
    Unready {
        /// Which component.
        component: String,
        /// How long it was waited for.
        seconds: f64,
        /// The last answer.
        why: String,
        /// Where all of it is.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A token is not given.
    #[error("no token from {url}: {why}")]
    Token {
        /// Who was asked.
        url: String,
        /// What happened.
        why: String,
    },
    /// The way through does not work.
    #[error("{url} {what}; load would measure something else")]
    Check {
        /// Where load enters.
        url: String,
        /// What it did.
        what: String,
    },
    /// Something was to be done to a component while load lasted, and could not be.
    #[error("{what} failed: {error}")]
    Act {
        /// What, with the component.
        what: String,
        /// The system's words.
        error: std::io::Error,
    },
    /// The run was asked to end.
    #[error("ended by request")]
    Interrupted,
}

impl TopologyError {
    pub(crate) fn value(file: &str, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Value { file: file.to_owned(), place: place.into(), what: what.into() }
    }
}
