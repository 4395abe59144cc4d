//! What a fact rests on beside its own lifetime, and what may end it at any moment.
//!
//! Owns: the question whether it still stands, for each of the two ways to hear of that: a watch, which tells of names
//! ([`Watched`]), and the log of an authority, which is followed ([`Held`]). Does not own: what is told.

use std::sync::Arc;

use coherence::Tag;
use coherence::time::BootTime;
use coherence::view::{EntryStamp, EntryState, View};

use crate::cache::watch_versions::WatchBasis;

/// What a fact rests on. Clones are one.
#[derive(Debug, Clone)]
pub enum EntryBasis {
    /// Names that somebody watches: it stands until one of them is told of.
    Watched(WatchBasis),
    /// An authority that is followed: it stands while that is heard of and takes nothing back.
    Followed(Arc<CacheEntryBasis>),
}

impl EntryBasis {
    /// Whether the fact may be believed now.
    #[inline]
    pub fn standing(&self) -> EntryState {
        match self {
            Self::Watched(watched) if watched.is_void() => EntryState::Void,
            Self::Watched(_) => EntryState::Good,
            Self::Followed(held) => held.standing(),
        }
    }

    /// Whether it can never be believed again.
    pub fn is_void(&self) -> bool {
        self.standing() == EntryState::Void
    }
}

/// What an authority that is followed has to say of a fact.
pub struct CacheEntryBasis {
    view: Arc<View>,
    clock: Arc<dyn BootTime>,
    tags: Arc<[Tag]>,
    /// In milliseconds since 1970.
    issued_at: i64,
    stamp: EntryStamp,
}

impl CacheEntryBasis {
    /// A fact that was true when `stamp` was made, and that each of `tags` can take back, if it takes back what was issued then (in
    /// milliseconds since 1970).
    pub fn new(
        view: Arc<View>,
        clock: Arc<dyn BootTime>,
        (tags, issued_at): (Arc<[Tag]>, i64),
        stamp: EntryStamp,
    ) -> Self {
        Self { view, clock, tags, issued_at, stamp }
    }

    /// What can take it back, and when it was issued.
    pub fn lineage(&self) -> (&[Tag], i64) {
        (&self.tags, self.issued_at)
    }

    /// Whether it rests on what is known of that authority.
    pub fn is_of(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, view)
    }

    /// Read by the clock as it is now: one that is read once for many requests would add its age to every lease.
    #[inline]
    pub fn standing(&self) -> EntryState {
        self.view.standing(&self.stamp, &self.tags, self.clock.now())
    }
}

impl std::fmt::Debug for CacheEntryBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?})", self.stamp)
    }
}
