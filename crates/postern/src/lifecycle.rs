//! Lifecycle of the process: signals, and files that change.
//!
//! SIGTERM and SIGINT drain, and a second one ends the process at once. SIGHUP reads the
//! configuration again, and so does a change of it or of a file that it names.
//!
//! Files are polled once a second instead of using notifications. Polling works on every file
//! system, through symbolic links (which is how Kubernetes replaces mounted files), and for files
//! that do not exist yet. The process reacts when a second look finds a change complete.
//!
//! A faulty configuration is not retried; the process waits for the next change. A valid one that
//! cannot be applied, because a port or a database is not available, is retried. No file would
//! change when these are available again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::Stamp;
use http_engine::clock::{Clock as _, SystemClock};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Failure, Outcome};
use crate::process::Process;
use crate::service_manager;

/// State that a service manager shows.
const SERVING: &str = "serving";
/// Time between two looks at the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time until a configuration that could not be applied is retried for the first time.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Upper limit of that time, which doubles with each further failure.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// Signal handlers of the process. By default, most signals end it. Install them before any output
/// reports that something runs, because a reader of that output may send a signal at once.
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers for SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// Returns why a handler cannot be installed.
    pub fn install() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let guard = runtime.enter();
        let take = |kind| signal(kind).map_err(failed);
        let (interrupt, terminate) = (take(SignalKind::interrupt())?, take(SignalKind::terminate())?);
        let hangup = take(SignalKind::hangup())?;
        drop(guard);
        Ok(Self { runtime, interrupt, terminate, hangup })
    }

    /// Blocks the thread until SIGINT or SIGTERM.
    pub fn wait_for_stop(&mut self) {
        while self.next(None) != Event::Stop {}
    }

    /// Blocks the thread until the next signal, or until the files must be looked at.
    fn next(&mut self, look: Option<Duration>) -> Event {
        let Self { runtime, interrupt, terminate, hangup } = self;
        runtime.block_on(async {
            let look = async {
                match look {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => Event::Stop,
                _ = terminate.recv() => Event::Stop,
                _ = hangup.recv() => Event::Reload,
                () = look => Event::PollFiles,
            }
        })
    }
}

/// Runs a gateway until a signal stops it. `files` are those that its configuration was read from.
pub fn run(
    mut signals: Signals,
    mut process: Process,
    path: &Path,
    files: BTreeMap<PathBuf, Stamp>,
) -> Result<Outcome, Failure> {
    let (mut watcher, mut retry) = (Watcher::new(files), Retry::default());
    service_manager::ready(SERVING);
    loop {
        match signals.next(Some(POLL_INTERVAL)) {
            Event::Stop => break,
            Event::Reload => {
                process.reopen_logs();
                // Each SIGHUP reports its own result.
                retry.reset();
                reload(&mut process, path, &mut watcher, &mut retry);
            }
            Event::PollFiles => {
                let by_change = process.settings().reload_on_change;
                if by_change && watcher.settled_change() {
                    retry.reset();
                    reload(&mut process, path, &mut watcher, &mut retry);
                } else if retry.is_due(Instant::now(), &watcher, by_change) {
                    reload(&mut process, path, &mut watcher, &mut retry);
                }
            }
        }
    }
    service_manager::stopping(process.settings().drain_timeout);
    tracing::info!(at_most = ?process.settings().drain_timeout, "draining");
    // A second signal ends the process, even with requests in flight.
    std::thread::spawn(move || {
        signals.wait_for_stop();
        tracing::warn!("second signal, stopping at once");
        std::process::exit(3);
    });
    if process.drain() {
        tracing::info!("drained");
        return Ok(Outcome::Success);
    }
    let message = "the drain timeout expired and requests were cut off; `server.drain_timeout` sets it";
    Err(Failure::new(message))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Stop,
    Reload,
    PollFiles,
}

/// Reads the configuration again. A faulty one changes only a metric and the log.
fn reload(process: &mut Process, path: &Path, watcher: &mut Watcher, retry: &mut Retry) {
    service_manager::reloading();
    let status = match try_reload(process, path, watcher, retry) {
        Reloaded::Applied => SERVING,
        Reloaded::Refused => "serving; the last change of the configuration was refused, see the log",
        Reloaded::Postponed => {
            "serving; the last change of the configuration could not be applied and is retried, see the log"
        }
    };
    service_manager::ready(status);
}

/// How a reload ended.
enum Reloaded {
    Applied,
    /// The configuration is faulty.
    Refused,
    /// It is valid, and will be applied when that is possible.
    Postponed,
}

fn try_reload(process: &mut Process, path: &Path, watcher: &mut Watcher, retry: &mut Retry) -> Reloaded {
    match config::load_file(path, SystemClock.now().wall, 0) {
        Ok(loaded) => {
            *watcher = Watcher::new(loaded.files.clone());
            for warning in loaded.report.lines() {
                tracing::warn!("{warning}");
            }
            match process.apply(*loaded) {
                Ok(postponed) => {
                    retry.reset();
                    tracing::info!(config = %path.display(), "configuration applied");
                    for key in postponed {
                        tracing::warn!(key, "key changed, takes effect at the next start");
                    }
                    Reloaded::Applied
                }
                Err(failure) => {
                    process.count_refused_reload();
                    process.renew_certificates();
                    let is_known = retry.is_pending();
                    let again = retry.failed(Instant::now());
                    if is_known {
                        tracing::debug!(again_in = ?again, "configuration still not applied: {failure}");
                    } else {
                        tracing::error!("configuration not applied, retrying: {failure}");
                    }
                    Reloaded::Postponed
                }
            }
        }
        Err(refused) => {
            process.count_refused_reload();
            retry.reset();
            // The fault may be in a file that was not read before.
            watcher.watch_also(refused.files);
            tracing::error!(config = %path.display(), "configuration refused, the last valid one stays applied");
            for fault in refused.report.lines() {
                tracing::error!("{fault}");
            }
            process.renew_certificates();
            Reloaded::Refused
        }
    }
}

/// When to retry a configuration that could not be applied.
#[derive(Debug)]
struct Retry {
    due: Option<Instant>,
    /// Length of the next pause.
    pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { due: None, pause: FIRST_RETRY }
    }
}

impl Retry {
    /// Notes a failure. Returns the time until the retry.
    fn failed(&mut self, now: Instant) -> Duration {
        let pause = self.pause;
        (self.due, self.pause) = (Some(now + pause), (pause * 2).min(LAST_RETRY));
        pause
    }

    /// Whether an earlier attempt to apply failed and a retry is scheduled.
    fn is_pending(&self) -> bool {
        self.due.is_some()
    }

    /// Cancels the retry.
    fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether the retry is due and the files are unchanged since the failure. Changed files are
    /// read once they are complete if `by_change` is set, and otherwise on SIGHUP.
    fn is_due(&mut self, now: Instant, watcher: &Watcher, by_change: bool) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        if watcher.is_unchanged() {
            return true;
        }
        if !by_change {
            self.reset();
            tracing::warn!("configuration changed after a failed apply, not retried; send SIGHUP");
        }
        false
    }
}

/// Detects files that change.
#[derive(Debug)]
struct Watcher {
    /// States of the files when the process last reacted to them.
    known: BTreeMap<PathBuf, Stamp>,
    /// States at the last look, if they differed.
    changing: Option<BTreeMap<PathBuf, Stamp>>,
}

impl Watcher {
    /// Watches files. Their states are those of the time they were read.
    fn new(files: BTreeMap<PathBuf, Stamp>) -> Self {
        Self { known: files, changing: None }
    }

    /// Watches these files too. They keep the state in which they were read; all other files get
    /// their current state.
    fn watch_also(&mut self, files: BTreeMap<PathBuf, Stamp>) {
        let before = self.known.keys().filter(|path| !files.contains_key(*path));
        let before: Vec<_> = before.map(|path| (path.clone(), Stamp::of_path(path))).collect();
        self.known = files.into_iter().chain(before).collect();
        self.changing = None;
    }

    /// Current states of the files.
    fn current(&self) -> BTreeMap<PathBuf, Stamp> {
        self.known.keys().map(|path| (path.clone(), Stamp::of_path(path))).collect()
    }

    /// Whether nothing changed since.
    fn is_unchanged(&self) -> bool {
        self.current() == self.known
    }

    /// Whether a file changed and then stayed the same between two looks.
    fn settled_change(&mut self) -> bool {
        let now = self.current();
        if now == self.known {
            self.changing = None;
            return false;
        }
        let settled = self.changing.as_ref() == Some(&now);
        self.changing = Some(now);
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("postern-lifecycle-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_change_is_acted_on_once_and_when_it_is_complete() {
        let folder = Folder::new("change");
        let file = folder.0.join("a.toml");
        std::fs::write(&file, "one").unwrap();
        let now = |path: &PathBuf| BTreeMap::from([(path.clone(), Stamp::of_path(path))]);
        let mut watcher = Watcher::new(now(&file));
        assert!(!watcher.settled_change());
        std::fs::write(&file, "half a").unwrap();
        assert!(!watcher.settled_change(), "still being written");
        std::fs::write(&file, "half a change").unwrap();
        assert!(!watcher.settled_change(), "changed again since");
        assert!(watcher.settled_change());
        watcher = Watcher::new(now(&file));
        assert!(!watcher.settled_change());
    }

    #[test]
    fn a_change_between_reading_and_watching_is_noticed() {
        let folder = Folder::new("between");
        let file = folder.0.join("a.toml");
        std::fs::write(&file, "as read").unwrap();
        let read = BTreeMap::from([(file.clone(), Stamp::of_path(&file))]);
        std::fs::write(&file, "changed since").unwrap();
        let mut watcher = Watcher::new(read);
        assert!(!watcher.settled_change());
        assert!(watcher.settled_change());
    }

    #[test]
    fn files_that_appear_vanish_or_are_linked_anew_are_noticed() {
        let folder = Folder::new("links");
        let (one, two, link) = (folder.0.join("1"), folder.0.join("2"), folder.0.join("link"));
        std::fs::write(&one, "same size").unwrap();
        let mut watcher = Watcher::new(BTreeMap::from([(link.clone(), Stamp::of_path(&link))]));
        let mut noticed =
            || (watcher.settled_change(), watcher.settled_change(), watcher.watch_also(BTreeMap::new())).1;
        std::os::unix::fs::symlink(&one, &link).unwrap();
        assert!(noticed(), "appeared");
        std::fs::write(&two, "same size").unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        assert!(noticed(), "linked to another file");
        std::fs::remove_file(&two).unwrap();
        assert!(noticed(), "vanished");
        assert!(!noticed());
    }

    #[test]
    fn what_could_not_be_applied_is_tried_again_ever_less_often() {
        let (watcher, mut now) = (Watcher::new(BTreeMap::new()), Instant::now());
        let mut retry = Retry::default();
        assert!(!retry.is_due(now + LAST_RETRY * 9, &watcher, true), "nothing failed");
        for pause in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            assert_eq!(retry.failed(now), pause);
            assert!(!retry.is_due(now + pause / 2, &watcher, true));
            now += pause;
            assert!(retry.is_due(now, &watcher, true) && retry.is_due(now, &watcher, false));
        }
        retry.reset();
        assert!(!retry.is_due(now + LAST_RETRY * 9, &watcher, true));
        assert_eq!(retry.failed(now), FIRST_RETRY);
    }

    #[test]
    fn what_changed_since_is_not_read_before_it_is_complete_or_asked_for() {
        let folder = Folder::new("since");
        let file = folder.0.join("a.toml");
        std::fs::write(&file, "as read").unwrap();
        let watcher = Watcher::new(BTreeMap::from([(file.clone(), Stamp::of_path(&file))]));
        let (mut retry, now) = (Retry::default(), Instant::now());
        retry.failed(now);
        std::fs::write(&file, "half a change").unwrap();
        let due = now + FIRST_RETRY;
        assert!(!retry.is_due(due, &watcher, true));
        assert!(retry.due.is_some(), "its change is noticed in a moment");
        assert!(!retry.is_due(due, &watcher, false));
        assert!(retry.due.is_none(), "its change is not for us to notice");
    }
}
