//! What a fact rests on beside its own lifetime, and what may end it at any moment.
//!
//! Owns: the question whether it still stands, for each of the two ways to hear of that: a watch, which tells of names
//! ([`Watched`]), and the log of an authority, which is followed ([`Held`]). Does not own: what is told.

use std::sync::Arc;

use coherence::Tag;
use coherence::time::Clock;
use coherence::view::{Stamp, Standing, View};

use super::board::Watched;

/// What a fact rests on. Clones are one.
#[derive(Debug, Clone)]
pub enum Hold {
    /// Names that somebody watches: it stands until one of them is told of.
    Watched(Watched),
    /// An authority that is followed: it stands while that is heard of and takes nothing back.
    Followed(Arc<Held>),
}

impl Hold {
    /// Whether the fact may be believed now.
    #[inline]
    pub fn standing(&self) -> Standing {
        match self {
            Self::Watched(watched) if watched.is_void() => Standing::Void,
            Self::Watched(_) => Standing::Good,
            Self::Followed(held) => held.standing(),
        }
    }

    /// Whether it can never be believed again.
    pub fn is_void(&self) -> bool {
        self.standing() == Standing::Void
    }
}

/// What an authority that is followed has to say of a fact.
pub struct Held {
    view: Arc<View>,
    clock: Arc<dyn Clock>,
    tags: Arc<[Tag]>,
    /// In milliseconds since 1970.
    issued_at: i64,
    stamp: Stamp,
}

impl Held {
    /// A fact that was true when `stamp` was made, and that each of `tags` can take back, if it takes back what was issued then (in
    /// milliseconds since 1970).
    pub fn new(
        view: Arc<View>,
        clock: Arc<dyn Clock>,
        (tags, issued_at): (Arc<[Tag]>, i64),
        stamp: Stamp,
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
    pub fn standing(&self) -> Standing {
        self.view.standing(&self.stamp, &self.tags, self.clock.now())
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?})", self.stamp)
    }
}
