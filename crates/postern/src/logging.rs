//! Process log, written to standard error.
//!
//! Owns: its level and format, and which crates may write to it: only those of this workspace.
//! Libraries often repeat what this workspace reports once and in terms of the configuration. At
//! their finest levels they write whole requests with credentials. So only the levels `debug` and
//! `trace` include libraries, and only their warnings and errors.

use config::raw::{LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

/// Crates of this workspace. Their log lines are written.
const WORKSPACE_CRATES: [&str; 18] = [
    "argon2_hash",
    "auth",
    "cluster",
    "coherence",
    "config",
    "controller",
    "credentials",
    "gateway",
    "hash_pool",
    "http_engine",
    "idp",
    "login",
    "mail",
    "outage",
    "pages",
    "postern",
    "store",
    "telemetry",
];

/// Installs the log for the rest of the process. A second call has no effect.
pub fn start(level: LogLevel, format: LogFormat) {
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let log = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let log = match format {
        LogFormat::Text => log.with_ansi(colours).boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    // An error means that a log is already installed.
    let _ = registry().with(log.with_filter(filter(level))).try_init();
}

/// Filter of log lines by crate and level.
fn filter(level: LogLevel) -> Targets {
    let (ours, libraries) = match level {
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::OFF),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::OFF),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::OFF),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::WARN),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::WARN),
    };
    Targets::new().with_default(libraries).with_targets(WORKSPACE_CRATES.map(|name| (name, ours)))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn every_room_is_heard() {
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let mut rooms: Vec<_> = std::fs::read_dir(crates)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            // The lab and `migrate` write reports, not log lines; `dataplane` is a harness of tests.
            .filter(|name| {
                !["lab", "lab_analysis", "lab_load", "dataplane", "migrate"].contains(&name.as_str())
            })
            .collect();
        rooms.sort();
        assert_eq!(rooms, WORKSPACE_CRATES);
    }

    #[test]
    fn libraries_are_heard_by_who_debugs_alone() {
        let info = filter(LogLevel::Info);
        assert!(info.would_enable("gateway::review", &Level::INFO));
        assert!(!info.would_enable("gateway::review", &Level::DEBUG));
        for library in ["sqlx::pool", "hyper_util::client", "h2::proto", "fe2o3_amqp::connection", "log"] {
            assert!(!info.would_enable(library, &Level::ERROR), "{library}");
            assert!(filter(LogLevel::Debug).would_enable(library, &Level::WARN), "{library}");
            assert!(!filter(LogLevel::Trace).would_enable(library, &Level::INFO), "{library}");
        }
    }
}
