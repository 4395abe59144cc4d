//! Entry basis: what a cached fact depends on besides its lifetime, and what may invalidate it at
//! any time.
//!
//! Owns: the check whether it is still valid, for both sources of that knowledge: a watch, which
//! reports names ([`WatchBasis`]), and the followed log of an authority ([`CacheEntryBasis`]). Does
//! not own: the reported events.

use std::sync::Arc;

use coherence::Tag;
use coherence::time::BootTime;
use coherence::view::{EntryStamp, EntryState, View};

use crate::cache::watch_versions::WatchBasis;

/// The basis of a cached fact. Clones share state.
#[derive(Debug, Clone)]
pub enum EntryBasis {
    /// Watched names: the fact is valid until an event about one of them.
    Watched(WatchBasis),
    /// A followed authority: the fact is valid under its lease, until it is revoked.
    Followed(Arc<CacheEntryBasis>),
}

impl EntryBasis {
    /// Whether the fact may be used now.
    #[inline]
    pub fn state(&self) -> EntryState {
        match self {
            Self::Watched(watched) if watched.is_void() => EntryState::Evicted,
            Self::Watched(_) => EntryState::Valid,
            Self::Followed(held) => held.standing(),
        }
    }

    /// Whether the fact can never be used again.
    pub fn is_void(&self) -> bool {
        self.state() == EntryState::Evicted
    }
}

/// The basis of a fact of a followed authority.
pub struct CacheEntryBasis {
    view: Arc<View>,
    clock: Arc<dyn BootTime>,
    tags: Arc<[Tag]>,
    /// When the credential was issued, in milliseconds since 1970.
    issued_at: i64,
    stamp: EntryStamp,
}

impl CacheEntryBasis {
    /// A fact that was true when `stamp` was made. Each of `tags` can revoke it, if the revocation
    /// covers `issued_at` (in milliseconds since 1970).
    pub fn new(
        view: Arc<View>,
        clock: Arc<dyn BootTime>,
        (tags, issued_at): (Arc<[Tag]>, i64),
        stamp: EntryStamp,
    ) -> Self {
        Self { view, clock, tags, issued_at, stamp }
    }

    /// The tags that can revoke the fact, and when its credential was issued.
    pub fn lineage(&self) -> (&[Tag], i64) {
        (&self.tags, self.issued_at)
    }

    /// Whether the fact depends on this view.
    pub fn is_of(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, view)
    }

    /// Reads the clock now: a reading shared by many requests would add its age to every lease.
    #[inline]
    pub fn standing(&self) -> EntryState {
        self.view.entry_state(&self.stamp, &self.tags, self.clock.now())
    }
}

impl std::fmt::Debug for CacheEntryBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?})", self.stamp)
    }
}
