//! What a watch has told: until which event each name is up to date.
//!
//! Owns: numbers of events, and for each name the number of the last one that was about it. Does not own: the events
//! ([`crate::watch`]), what is remembered.
//!
//! Events are counted. Whoever asks somebody notes the count before ([`Board::position`]); an answer proves nothing about a name
//! that had an event since. That one comparison serves both caches: a fact carries its position and its names ([`WatchBasis`]) and is
//! compared when it is stored and on every hit; an answer to a review has the number of the last event as a part of its name
//! ([`Board::last`]), so that after an event it is another question, to whoever waits as well as to whoever asks.
//!
//! Names share cells: a table of all that were ever deleted would grow for ever. Two that meet cost an answer that is asked for
//! again, nothing else.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher13;

use super::CacheSecret;

/// Enough for names of a big cluster to seldom meet while few change at once.
const CELLS: usize = 1 << 12;

/// Where a name's events are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchVersion(u16);

/// What kind of thing a name is of; names of two kinds are different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionOf {
    /// A namespace.
    Namespace,
    /// A user.
    User,
    /// A token.
    Token,
}

/// The events of one who is watched.
pub struct WatchVersions {
    count: AtomicU64,
    all: AtomicU64,
    cells: Box<[AtomicU64]>,
    names: SipHasher13,
}

impl WatchVersions {
    /// Nothing has happened yet. `secret` keeps anybody from choosing names that meet.
    pub fn new(secret: &CacheSecret) -> Self {
        Self {
            count: AtomicU64::new(0),
            all: AtomicU64::new(0),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            names: secret.names(),
        }
    }

    /// Where events about a name are noted.
    pub fn cell(&self, kind: VersionOf, name: &str) -> WatchVersion {
        let mut state = self.names;
        state.write_u8(kind as u8);
        state.write(name.as_bytes());
        // Fewer than 2^16 cells.
        WatchVersion(u16::try_from(state.finish() % CELLS as u64).unwrap_or(0))
    }

    /// How far the events have come: to be noted before somebody is asked.
    pub fn position(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last event about any of these names, or about all.
    pub fn last(&self, cells: impl IntoIterator<Item = WatchVersion>) -> u64 {
        let all = self.all.load(Ordering::Acquire);
        let of = |cell: WatchVersion| self.cells[usize::from(cell.0)].load(Ordering::Acquire);
        cells.into_iter().map(of).fold(all, u64::max)
    }

    /// Something happened to a name.
    pub fn mark(&self, cell: WatchVersion) {
        let event = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.cells[usize::from(cell.0)].fetch_max(event, Ordering::AcqRel);
    }

    /// Something happened that may be about anybody, or it is not known what.
    pub fn mark_all(&self) {
        let event = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.all.fetch_max(event, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for WatchVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Board at {}", self.position())
    }
}

/// The names that a fact rests on: it is void once something happens to one of them.
#[derive(Debug, Clone)]
pub struct WatchBasis {
    /// Where that is noted.
    pub board: Arc<WatchVersions>,
    /// Its names.
    pub cells: [WatchVersion; 2],
    /// How far the events had come before it was asked for.
    pub position: u64,
}

impl WatchBasis {
    /// Whether something has happened.
    pub fn is_void(&self) -> bool {
        self.board.last(self.cells) > self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Arc<WatchVersions> {
        Arc::new(WatchVersions::new(&CacheSecret::new([3; 16])))
    }

    #[test]
    fn an_event_voids_what_was_asked_for_before_it_and_nothing_else() {
        let board = board();
        let (ada, bob) = (board.cell(VersionOf::User, "ada"), board.cell(VersionOf::User, "bob"));
        assert_ne!(ada, bob);
        let hold =
            |cell| WatchBasis { board: board.clone(), cells: [cell, cell], position: board.position() };
        let (of_ada, of_bob) = (hold(ada), hold(bob));
        board.mark(ada);
        assert!(of_ada.is_void() && !of_bob.is_void());
        assert!(!hold(ada).is_void(), "asked for afterwards");
        board.mark_all();
        assert!(of_bob.is_void() && !hold(bob).is_void());
    }

    #[test]
    fn each_event_about_a_name_makes_its_last_another() {
        let board = board();
        let (a, b) = (board.cell(VersionOf::Namespace, "a"), board.cell(VersionOf::Namespace, "b"));
        let mut seen = vec![board.last([a, b])];
        for event in [
            |board: &WatchVersions, a, _| board.mark(a),
            |board: &WatchVersions, _, b| board.mark(b),
            |board: &WatchVersions, _, _| {
                board.mark_all();
            },
        ] {
            event(&board, a, b);
            let last = board.last([a, b]);
            assert!(!seen.contains(&last));
            seen.push(last);
        }
        let before = board.last([a]);
        board.mark(b);
        assert_eq!(board.last([a]), before);
    }

    #[test]
    fn kinds_of_names_are_apart() {
        let board = board();
        assert_ne!(board.cell(VersionOf::User, "x"), board.cell(VersionOf::Token, "x"));
        assert_ne!(
            board.cell(VersionOf::User, "x"),
            WatchVersions::new(&CacheSecret::new([4; 16])).cell(VersionOf::User, "x")
        );
    }
}
