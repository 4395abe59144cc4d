//! Kubernetes watches: a change at the API server drops the cached answers it concerns, at once.
//!
//! Owns: the watched resources and the subjects of their events, the streams and their resumption,
//! the reported state. Does not own: the cached answers, and the effect of a mark on the
//! [`WatchVersions`] ([`crate::cache`]); connections and the gateway's own credential
//! ([`http_engine::http_client`]).
//!
//! Flow, for each resource on the control runtime:
//! `list (for its version alone) → watch → event → WatchVersions::mark`. After the end of a stream
//! the watch resumes from the last version. If that version is gone, events were missed: it lists
//! again, and all answers are dropped.
//!
//! A watch only shortens the life of answers. They expire by their time to live in any case, so a
//! watch that is denied, broken or stuck only delays revocation.
//!
//! The API server answers reviews from its own caches, which may lag behind its watch events, and
//! several servers lag differently. An answer requested right after an event may still be the old
//! one, so every mark is repeated after a delay ([`SETTLE`]). It even caches valid tokens for ten
//! seconds. For those the event itself is the answer, because deleted objects do not come back
//! (`deleted_objects`).

mod deleted_objects;
mod event;
mod resource;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http_engine::http_client::HttpClient;
use outage::Outage;
use parking_lot::Mutex;
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use self::resource::Resource;
use self::resource::{cells_of_review, cells_of_token, object_of};
use self::stream::WatchStream;
use crate::cache::{CacheSecret, EntryBasis, NameCell, WatchBasis, WatchVersions};
use crate::watch::deleted_objects::DeletedObjects;

/// Delays after which a mark is repeated.
pub const SETTLE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];

/// State of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    /// Not configured, or the gateway has no credential for it.
    Off,
    /// Not started yet.
    Starting,
    /// Running: changes drop answers at once.
    Watching,
    /// Failed and being retried; answers expire by their time to live.
    Broken,
    /// The gateway's account lacks the permission; answers expire by their time to live.
    Denied,
    /// The server has no such resource.
    Absent,
}

impl WatchState {
    /// All states, for metrics.
    pub const ALL: [Self; 6] =
        [Self::Off, Self::Starting, Self::Watching, Self::Broken, Self::Denied, Self::Absent];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::Watching => "watching",
            Self::Broken => "broken",
            Self::Denied => "denied",
            Self::Absent => "absent",
        }
    }
}

/// State and counters of a watch, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// Owner of the watch: `kubernetes`, or `authority:NAME`.
    pub watcher: Box<str>,
    /// The watched resource.
    pub resource: Resource,
    /// The current state.
    pub state: WatchState,
    /// Events that dropped answers.
    pub events: u64,
    /// Lists, each of which drops all answers; includes the first one.
    pub lists: u64,
}

impl Collect for WatchStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let help = "1 for the current state of the watch of a resource. Changes drop answers at once while it is `watching`; otherwise answers expire by their time to live.";
        let mut family = e.family("postern_kubernetes_watch_state", FamilyKind::Gauge, help);
        for (watch, state) in all.iter().flat_map(|watch| WatchState::ALL.map(|state| (watch, state))) {
            let [of, resource] = watch_labels(watch);
            family.sample(&[of, resource, ("state", state.as_str())], u64::from(watch.state == state));
        }
        let help = "Events of a watch that dropped answers.";
        let mut family = e.family("postern_kubernetes_watch_events", FamilyKind::Counter, help);
        for watch in all {
            family.sample(&watch_labels(watch), watch.events);
        }
        let help = "Lists of a watch, each of which drops every answer; includes the first one.";
        let mut family = e.family("postern_kubernetes_watch_lists", FamilyKind::Counter, help);
        for watch in all {
            family.sample(&watch_labels(watch), watch.lists);
        }
    }
}

fn watch_labels(watch: &WatchStatus) -> [(&str, &str); 2] {
    [("watcher", &*watch.watcher), ("resource", watch.resource.as_str())]
}

/// The state of a watch that status reports read.
#[derive(Debug)]
struct WatchCounters {
    watcher: Box<str>,
    resource: Resource,
    state: Mutex<WatchState>,
    events: AtomicU64,
    lists: AtomicU64,
}

/// The names that an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    One(NameCell),
    All,
}

/// Records marks now, and again when lagging servers have caught up.
#[derive(Clone)]
struct Marker {
    versions: Arc<WatchVersions>,
    deleted_objects: Arc<DeletedObjects>,
    repeats: [UnboundedSender<(Instant, Mark)>; SETTLE.len()],
}

impl Marker {
    fn mark(&self, mark: Mark) {
        apply(&self.versions, mark);
        for later in &self.repeats {
            // Fails when the watches end; then no answer is valid any more.
            let _ = later.send((Instant::now(), mark));
        }
    }
}

fn apply(board: &WatchVersions, mark: Mark) {
    match mark {
        Mark::One(cell) => board.record_event(cell),
        Mark::All => board.record_event_for_all(),
    }
}

async fn repeat(board: Arc<WatchVersions>, mut marks: UnboundedReceiver<(Instant, Mark)>, after: Duration) {
    while let Some((at, mark)) = marks.recv().await {
        tokio::time::sleep_until(at + after).await;
        apply(&board, mark);
    }
}

/// The watches of one API server with one account. Dropping them ends them.
pub struct Watches {
    shown: Vec<Arc<WatchCounters>>,
    start_parts: Option<WatchStart>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Dependencies for starting the watches.
struct WatchStart {
    board: Arc<WatchVersions>,
    graves: Arc<DeletedObjects>,
    base: Box<str>,
    outbound: Arc<HttpClient>,
    secret: CacheSecret,
    control: Handle,
    outage: Outage,
}

impl Watches {
    /// Starts nothing yet. `base` is the API server's URL without a slash at the end; `None`
    /// disables the watches.
    pub fn new(
        watcher: &str,
        resources: &[Resource],
        base: Option<&str>,
        outbound: &Arc<HttpClient>,
        secret: &CacheSecret,
        control: &Handle,
    ) -> Self {
        let state = if base.is_some() { WatchState::Starting } else { WatchState::Off };
        let shown = |resource: &Resource| {
            Arc::new(WatchCounters {
                watcher: watcher.into(),
                resource: *resource,
                state: Mutex::new(state),
                events: AtomicU64::new(0),
                lists: AtomicU64::new(0),
            })
        };
        let begin = base.map(|base| WatchStart {
            board: Arc::new(WatchVersions::new(secret)),
            graves: Arc::default(),
            base: base.into(),
            outbound: outbound.clone(),
            secret: secret.clone(),
            control: control.clone(),
            outage: Outage::new(format!("watches of {watcher}"))
                .with_effect("answers expire only by their time to live"),
        });
        Self { shown: resources.iter().map(shown).collect(), start_parts: begin, tasks: Mutex::default() }
    }

    /// Starts the watches, unless they run.
    pub fn start(&self) {
        let Some(begin) = &self.start_parts else { return };
        let mut tasks = self.tasks.lock();
        if !tasks.is_empty() {
            return;
        }
        let later = SETTLE.map(|after| {
            let (sender, marks) = unbounded_channel();
            tasks.push(begin.control.spawn(repeat(begin.board.clone(), marks, after)).abort_handle());
            sender
        });
        let marker =
            Marker { versions: begin.board.clone(), deleted_objects: begin.graves.clone(), repeats: later };
        for shown in &self.shown {
            let stream = WatchStream::new(shown.clone(), begin, marker.clone());
            tasks.push(begin.control.spawn(stream.run()).abort_handle());
        }
    }

    fn watch_versions(&self) -> Option<&Arc<WatchVersions>> {
        self.start_parts.as_ref().map(|begin| &begin.board)
    }

    /// Number of the last event that may have changed a user's rights in a namespace, or outside of
    /// namespaces.
    pub fn last_event(&self, user: &str, namespace: Option<&str>) -> u64 {
        self.watch_versions().map_or(0, |board| board.last_event(cells_of_review(board, user, namespace)))
    }

    /// Number of events so far: note it before a request is sent.
    pub(crate) fn position(&self) -> u64 {
        self.watch_versions().map_or(0, |board| board.position())
    }

    /// The basis of an answer about a token that was requested at a position.
    pub(crate) fn entry_basis(&self, user: &str, token: &[u8], position: u64) -> Option<EntryBasis> {
        let board = self.watch_versions()?;
        let cells = cells_of_token(board, user, token);
        Some(EntryBasis::Watched(WatchBasis { versions: board.clone(), cells, position }))
    }

    /// Whether a deletion event named the token, or the account with this `uid`. This overrides all
    /// answers.
    pub(crate) fn is_deleted(&self, uid: Option<&str>, token: &[u8]) -> bool {
        let Some(begin) = &self.start_parts else { return false };
        let object = object_of(token);
        uid.into_iter().chain(object.as_deref()).any(|name| begin.graves.contains(name))
    }

    /// State of the watches.
    pub fn status(&self) -> impl Iterator<Item = WatchStatus> {
        self.shown.iter().map(|shown| WatchStatus {
            watcher: shown.watcher.clone(),
            resource: shown.resource,
            state: *shown.state.lock(),
            events: shown.events.load(Relaxed),
            lists: shown.lists.load(Relaxed),
        })
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
        // No watch reports events from now on: answers that depend on them must be requested again.
        if let Some(begin) = &self.start_parts {
            begin.board.record_event_for_all();
        }
    }
}
