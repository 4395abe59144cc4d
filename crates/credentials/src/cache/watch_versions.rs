//! Watch versions: for each watched name, the number of the last event about it.
//!
//! Owns: numbers of events, and the last number for each name. Does not own: the events
//! ([`crate::watch`]), the cached facts.
//!
//! Events are counted. A request to an authority notes the count before it is sent
//! ([`WatchVersions::position`]); an answer proves nothing about a name that had an event since.
//! This comparison serves both caches. A fact carries its position and its names ([`WatchBasis`])
//! and is compared when it is stored and on every hit. The cache key of an access review contains
//! the number of the last event ([`WatchVersions::last_event`]). So after an event the key differs,
//! for waiters as well as for new requests.
//!
//! Names share cells, because a table of all deleted names would grow without end. Two names in one
//! cell cost an extra request, nothing else.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher13;

use super::CacheSecret;

/// Number of cells: enough that names of a big cluster seldom share one while few change at once.
const CELLS: usize = 1 << 12;

/// The cell that stores the last event of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameCell(u16);

/// The kind of a name; names of two kinds are different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A namespace of the cluster.
    Namespace,
    /// A user or service account.
    User,
    /// An access token.
    Token,
}

/// The event numbers of one watched server.
pub struct WatchVersions {
    count: AtomicU64,
    all: AtomicU64,
    cells: Box<[AtomicU64]>,
    names: SipHasher13,
}

impl WatchVersions {
    /// Starts with no event. `secret` prevents that clients choose names that share a cell.
    pub fn new(secret: &CacheSecret) -> Self {
        Self {
            count: AtomicU64::new(0),
            all: AtomicU64::new(0),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            names: secret.name_hasher(),
        }
    }

    /// The cell for events about a name.
    pub fn cell(&self, kind: NameKind, name: &str) -> NameCell {
        let mut state = self.names;
        state.write_u8(kind as u8);
        state.write(name.as_bytes());
        // There are fewer than 2^16 cells.
        NameCell(u16::try_from(state.finish() % CELLS as u64).unwrap_or(0))
    }

    /// The number of events so far: note it before a request is sent.
    pub fn position(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last event about any of these names, or about all names.
    pub fn last_event(&self, cells: impl IntoIterator<Item = NameCell>) -> u64 {
        let all = self.all.load(Ordering::Acquire);
        let of = |cell: NameCell| self.cells[usize::from(cell.0)].load(Ordering::Acquire);
        cells.into_iter().map(of).fold(all, u64::max)
    }

    /// Records an event about a name.
    pub fn record_event(&self, cell: NameCell) {
        let event = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.cells[usize::from(cell.0)].fetch_max(event, Ordering::AcqRel);
    }

    /// Records an event that may concern any name, or whose subject is unknown.
    pub fn record_event_for_all(&self) {
        let event = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.all.fetch_max(event, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for WatchVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Board at {}", self.position())
    }
}

/// The names that a fact depends on: the fact is void after an event about one of them.
#[derive(Debug, Clone)]
pub struct WatchBasis {
    /// The event numbers to compare with.
    pub versions: Arc<WatchVersions>,
    /// The cells of its names.
    pub cells: [NameCell; 2],
    /// Number of events before the answer was requested.
    pub position: u64,
}

impl WatchBasis {
    /// Whether an event has occurred since.
    pub fn is_void(&self) -> bool {
        self.versions.last_event(self.cells) > self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> Arc<WatchVersions> {
        Arc::new(WatchVersions::new(&CacheSecret::new([3; 16])))
    }

    #[test]
    fn an_event_voids_what_was_asked_for_before_it_and_nothing_else() {
        let board = versions();
        let (ada, bob) = (board.cell(NameKind::User, "ada"), board.cell(NameKind::User, "bob"));
        assert_ne!(ada, bob);
        let hold =
            |cell| WatchBasis { versions: board.clone(), cells: [cell, cell], position: board.position() };
        let (of_ada, of_bob) = (hold(ada), hold(bob));
        board.record_event(ada);
        assert!(of_ada.is_void() && !of_bob.is_void());
        assert!(!hold(ada).is_void(), "asked for afterwards");
        board.record_event_for_all();
        assert!(of_bob.is_void() && !hold(bob).is_void());
    }

    #[test]
    fn each_event_about_a_name_makes_its_last_another() {
        let board = versions();
        let (a, b) = (board.cell(NameKind::Namespace, "a"), board.cell(NameKind::Namespace, "b"));
        let mut seen = vec![board.last_event([a, b])];
        for event in [
            |board: &WatchVersions, a, _| board.record_event(a),
            |board: &WatchVersions, _, b| board.record_event(b),
            |board: &WatchVersions, _, _| {
                board.record_event_for_all();
            },
        ] {
            event(&board, a, b);
            let last = board.last_event([a, b]);
            assert!(!seen.contains(&last));
            seen.push(last);
        }
        let before = board.last_event([a]);
        board.record_event(b);
        assert_eq!(board.last_event([a]), before);
    }

    #[test]
    fn kinds_of_names_are_apart() {
        let board = versions();
        assert_ne!(board.cell(NameKind::User, "x"), board.cell(NameKind::Token, "x"));
        assert_ne!(
            board.cell(NameKind::User, "x"),
            WatchVersions::new(&CacheSecret::new([4; 16])).cell(NameKind::User, "x")
        );
    }
}
