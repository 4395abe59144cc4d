//! Service manager: what systemd is told about this process, and the sockets that it passes
//! (`sd_notify(3)`, `sd_listen_fds(3)`).
//!
//! Owns: the messages, the watchdog, taking the sockets. Does not own: which threads must run
//! ([`crate::process::Heartbeat`]), which address a socket is for
//! ([`http_engine::inherited_sockets`]).
//!
//! ```text
//! start → READY=1 → reload: RELOADING=1 … READY=1 → drain: STOPPING=1
//!                 → each third of WATCHDOG_USEC, while all threads answer: WATCHDOG=1
//! ```
//!
//! Without a service manager nothing is sent. All of this follows from the environment that it sets:
//! `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `LISTEN_FDS`.

use std::thread;
use std::time::Duration;

use http_engine::inherited_sockets::{InheritedSocket, InheritedSockets};
use listenfd::ListenFd;
use outage::Outage;
use sd_notify::NotifyState;

use crate::exit::Failure;
use crate::process::Heartbeat;

/// Time for closing everything after the drain timeout, in addition to it.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// Shortest time between two questions to the threads.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Takes the sockets that the service manager passed. Call it once, before other threads start.
///
/// # Errors
/// A message that names the socket and the remedy in its unit.
pub fn inherited_sockets() -> Result<InheritedSockets, Failure> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(passed.len());
    for index in 0..passed.len() {
        let failed = |why: String| {
            Failure::new(format!("socket {} of the service manager cannot be used: {why}", index + 1))
        };
        let socket = if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
            InheritedSocket::tcp(socket)
        } else if let Ok(Some(socket)) = passed.take_unix_listener(index) {
            InheritedSocket::unix(socket)
        } else {
            Err("it is no stream socket: use `ListenStream` in the socket unit".into())
        };
        sockets.push(socket.map_err(failed)?);
    }
    Ok(InheritedSockets::new(sockets))
}

/// Reports that the process serves, and what.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a configuration is being read.
pub fn reloading() {
    // Newer versions of systemd demand the time with `Type=notify-reload`, older ones ignore it.
    let time = NotifyState::monotonic_usec_now().ok();
    let states: Vec<_> = [NotifyState::Reloading, NotifyState::Status("reading the configuration")]
        .into_iter()
        .chain(time)
        .collect();
    notify(&states);
}

/// Reports that the process stops, after at most `drain_timeout` of waiting for requests.
pub fn stopping(drain_timeout: Duration) {
    let limit = drain_timeout.saturating_add(CLOSE_TIME).as_micros();
    notify(&[
        NotifyState::Stopping,
        NotifyState::Status("finishing requests in flight"),
        NotifyState::ExtendTimeoutUsec(u32::try_from(limit).unwrap_or(u32::MAX)),
    ]);
}

/// Answers the watchdog from now on, if the service manager has one for this process. While a thread
/// does not run, it gets no answer, and restarts the process in the end.
///
/// # Errors
/// Returns why the thread for it cannot be started.
pub fn start_watchdog(mut heartbeat: Heartbeat) -> Result<(), Failure> {
    let Some(limit) = sd_notify::watchdog_enabled() else { return Ok(()) };
    let pause = (limit / 3).max(MIN_PAUSE);
    let answer = move || {
        let outage = Outage::new("threads").with_effect("the watchdog gets no answer until they run again");
        loop {
            let silent = heartbeat.silent_threads();
            if silent.is_empty() {
                outage.succeeded();
                notify(&[NotifyState::Watchdog]);
            } else {
                outage.failed(format_args!("{} did not answer", silent.join(", ")));
            }
            thread::sleep(pause);
        }
    };
    let started = thread::Builder::new().name("watchdog".into()).spawn(answer);
    started.map(drop).map_err(|error| Failure::new(format!("cannot start the watchdog's thread: {error}")))
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "service manager not reachable");
    }
}
