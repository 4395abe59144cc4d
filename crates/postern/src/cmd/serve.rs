//! `postern serve`: runs the gateway and the provider until a signal stops them.

use std::path::PathBuf;

use config::Severity;
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::listen::{Claim, ListenOptions};

use crate::exit::{Failure, Outcome};
use crate::lifecycle::Signals;
use crate::process::Process;
use crate::terminal::{ERROR, Findings};
use crate::{lifecycle, logging, service_manager};

/// Arguments of `postern serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Signals:
  SIGTERM, SIGINT  stop accepting, finish requests in flight (server.drain_timeout), end; twice: end at once
  SIGHUP           reload the configuration, reopen the file of the access log

The configuration is also reloaded when it, or a file that it names, changes. A faulty one is logged
and counted (postern_config_reloads_total), and the last valid one stays applied. A valid one that
cannot be applied, because a port is in use or the database is unavailable, is retried.

Under systemd it reports readiness, reloads and the end (Type=notify), answers the watchdog, and uses
the sockets of a socket unit for the listeners with their addresses.

Exit codes: 0 stopped by a signal, 1 the configuration is faulty, 3 failure, or requests were cut off.")]
pub struct Arguments {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The configuration file, the same.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Listen on the addresses of another `postern serve` of this user, and take over its new
    /// connections; stop the other one then. Without this option, an address in use is an error.
    #[arg(long)]
    take_over: bool,
}

/// Runs `postern serve`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Some(path) = arguments.file.as_ref().or(arguments.config.as_ref()) else {
        return Err(Failure::usage("give the configuration file"));
    };
    // While this thread is the only one.
    let inherited = service_manager::inherited_sockets();
    let loaded = match config::load_file(path, SystemClock.now().wall, 1) {
        Ok(loaded) => loaded,
        Err(refused) => {
            anstream::eprint!("{}", Findings(&refused.report));
            let faults = refused.report.count(Severity::Fault);
            let plural = if faults == 1 { "" } else { "s" };
            anstream::eprintln!("{ERROR}{}{ERROR:#}: {faults} fault{plural}, not started", path.display());
            return Ok(Outcome::Negative);
        }
    };
    logging::start(loaded.settings.log, loaded.settings.log_format);
    for warning in loaded.report.lines() {
        tracing::warn!("{warning}");
    }
    let files = loaded.files.clone();
    let signals = Signals::install()?;
    let claim = if arguments.take_over { Claim::Shared } else { Claim::Exclusive };
    let listen = ListenOptions { claim, inherited: inherited? };
    let process = Process::start(*loaded, &listen)?;
    service_manager::start_watchdog(process.heartbeat())?;
    lifecycle::run(signals, process, path, files)
}
