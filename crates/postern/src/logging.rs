//! The process's own log, on standard error.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use crate::config::raw::{LogFormat, LogLevel};

/// Sets the log up for the rest of the process. A second call changes nothing.
pub fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let log = fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // an error means that there is a log already
    let _ = match format {
        LogFormat::Text => log.with_ansi(colours).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
