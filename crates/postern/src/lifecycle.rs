//! From start to end of a process: signals, and files that change.
//!
//! SIGTERM and SIGINT drain; a second one ends at once. SIGHUP reads the configuration again, and so does a
//! change of it or of a file it names. Files are looked at each second rather than subscribed to: that works
//! on every file system, through symbolic links (which is how Kubernetes replaces mounted files) and for
//! files that do not exist yet. A change is acted on when a second look finds it complete.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::clock::{Clock as _, SystemClock};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Failure, Outcome};
use crate::config;
use crate::process::Process;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Blocks the thread until SIGINT or SIGTERM.
pub fn wait_for_stop() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async { Stop::new()?.asked().await }).map_err(failed)
}

/// SIGINT and SIGTERM.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Takes the signals over from the system, whose answer is to end the process.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Completes with the next one.
    pub async fn asked(&mut self) -> std::io::Result<()> {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        Ok(())
    }
}

/// Runs a gateway until it is told to stop. `files` are those the first configuration was read from.
pub fn run(mut process: Process, path: &Path, files: BTreeSet<PathBuf>) -> Result<Outcome, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
    let control = process.control().clone();
    let mut watcher = Watcher::new(files);
    let mut stop = control.block_on(async { Stop::new() }).map_err(failed)?;
    let mut hangup = control.block_on(async { signal(SignalKind::hangup()) }).map_err(failed)?;
    loop {
        let event = control.block_on(async {
            tokio::select! {
                _ = stop.asked() => Event::Stop,
                _ = hangup.recv() => Event::Reload,
                () = tokio::time::sleep(LOOK) => Event::Look,
            }
        });
        match event {
            Event::Stop => break,
            Event::Reload => {
                process.reopen_logs();
                reload(&mut process, path, &mut watcher);
            }
            Event::Look if process.settings().reload_on_change && watcher.settled_change() => {
                reload(&mut process, path, &mut watcher);
            }
            Event::Look => {}
        }
    }
    tracing::info!(at_most = ?process.settings().drain_timeout, "draining");
    // a second signal ends the process whatever is under way
    control.spawn(async move {
        let _ = stop.asked().await;
        tracing::warn!("told twice: ending at once");
        std::process::exit(3);
    });
    let clean = process.drain();
    if clean {
        tracing::info!("drained");
        return Ok(Outcome::Good);
    }
    Err(Failure::new(
        "the drain timeout is over and requests were cut off; `server.drain_timeout` is how long they have",
    ))
}

enum Event {
    Stop,
    Reload,
    Look,
}

/// Reads the configuration again. A bad one changes nothing but a metric and the log.
fn reload(process: &mut Process, path: &Path, watcher: &mut Watcher) {
    match config::load_file(path, SystemClock.now().wall, 0) {
        Ok(loaded) => {
            watcher.watch(loaded.files.clone());
            for warning in loaded.report.lines() {
                tracing::warn!("{warning}");
            }
            match process.apply(*loaded) {
                Ok(postponed) => {
                    tracing::info!(config = %path.display(), "configuration applied");
                    for key in postponed {
                        tracing::warn!(key, "changed, which takes effect with the next start");
                    }
                }
                Err(failure) => {
                    process.refused();
                    tracing::error!("configuration not applied, the last good one stays: {failure}");
                }
            }
        }
        Err(refused) => {
            process.refused();
            // the fault may lie in a file that was not read before
            watcher.also(refused.files);
            tracing::error!(config = %path.display(), "configuration refused, the last good one stays");
            for fault in refused.report.lines() {
                tracing::error!("{fault}");
            }
        }
    }
}

/// What tells one state of a file from another; `None`: there is no such file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

/// Notices files that change.
#[derive(Debug)]
struct Watcher {
    /// As they were when they were last acted on.
    known: BTreeMap<PathBuf, Stamp>,
    /// As they were at the last look, when that differed.
    changing: Option<BTreeMap<PathBuf, Stamp>>,
}

impl Watcher {
    fn new(files: BTreeSet<PathBuf>) -> Self {
        let mut watcher = Self { known: BTreeMap::new(), changing: None };
        watcher.watch(files);
        watcher
    }

    /// Watches these files from now on, and no others.
    fn watch(&mut self, files: BTreeSet<PathBuf>) {
        self.known = files.into_iter().map(|path| (stamp(&path), path)).map(|(s, path)| (path, s)).collect();
        self.changing = None;
    }

    /// Watches these files too; whatever state all are in now is known.
    fn also(&mut self, files: BTreeSet<PathBuf>) {
        let all = self.known.keys().cloned().chain(files).collect();
        self.watch(all);
    }

    /// Whether something changed and has been the same for two looks.
    fn settled_change(&mut self) -> bool {
        let now: BTreeMap<_, _> = self.known.keys().map(|path| (path.clone(), stamp(path))).collect();
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
        let mut watcher = Watcher::new(BTreeSet::from([file.clone()]));
        assert!(!watcher.settled_change());
        std::fs::write(&file, "half a").unwrap();
        assert!(!watcher.settled_change(), "still being written");
        std::fs::write(&file, "half a change").unwrap();
        assert!(!watcher.settled_change(), "changed again since");
        assert!(watcher.settled_change());
        watcher.watch(BTreeSet::from([file]));
        assert!(!watcher.settled_change());
    }

    #[test]
    fn files_that_appear_vanish_or_are_linked_anew_are_noticed() {
        let folder = Folder::new("links");
        let (one, two, link) = (folder.0.join("1"), folder.0.join("2"), folder.0.join("link"));
        std::fs::write(&one, "same size").unwrap();
        let mut watcher = Watcher::new(BTreeSet::from([link.clone()]));
        let mut noticed =
            || (watcher.settled_change(), watcher.settled_change(), watcher.also(BTreeSet::new())).1;
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
}
