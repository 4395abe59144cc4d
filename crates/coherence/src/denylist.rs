//! What is denied of credentials that are verified without asking anybody.
//!
//! Owns: the set of what an authority has taken back and whose credentials could still be valid: of each tag, from when on
//! its credentials are good again, and until when it matters. Does not own: when it is complete (the consumer's), or when it is
//! asked ([`View::verify`](crate::view::View::verify)).
//!
//! It only grows, but for what is over. So its parts may come in any order and twice, and pages of a copy may be older than the
//! events that came meanwhile.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::RwLock;

use crate::log_types::{OwnBytes, Tag};

const SHARDS: usize = 16;
/// How long a denial is kept beyond its time. Whoever verifies a credential goes by a clock that may be wrong, and may allow for
/// that: what has expired to one is valid to another. Clocks that are wrong by more than an hour are beyond help.
pub const KEPT: Duration = Duration::from_mins(90);

/// One tag's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenylistEntry {
    /// Only what was issued before this, in milliseconds since 1970; `None`: all of it.
    pub not_before: Option<i64>,
    /// Until when it matters, in milliseconds since 1970.
    pub until: i64,
}

impl DenylistEntry {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let not_before = match (self.not_before, other.not_before) {
            (Some(one), Some(other)) => Some(one.max(other)),
            _ => None,
        };
        Self { not_before, until: self.until.max(other.until) }
    }
}

/// The set of one authority.
#[derive(Debug)]
pub struct Denylist {
    shards: [RwLock<HashMap<Tag, DenylistEntry, BuildHasherDefault<OwnBytes>>>; SHARDS],
    count: AtomicUsize,
    limit: usize,
    /// Everything that was denied when the history was last begun to be followed is in here.
    loaded: AtomicBool,
    /// Something found no room: what is not in here may be denied all the same.
    overflowed: AtomicBool,
}

impl Denylist {
    /// A set of at most `limit` tags, not yet loaded.
    pub fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            count: AtomicUsize::new(0),
            limit,
            loaded: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Tags in it.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is all there is; if not, the authority has to be asked.
    pub fn is_whole(&self) -> bool {
        // In this order: loading anew first says that nothing is loaded, and then that nothing is missing. The other way round a reader
        // in between would take a set for whole that never was.
        !self.overflowed.load(Ordering::Acquire) && self.loaded.load(Ordering::Acquire)
    }

    /// Whether something found no room since it was last loaded.
    pub fn is_full(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Whether there is room for twice as much: then it may be worth loading.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.limit / 2
    }

    /// Adds one. Without room for it the set is not whole any more, until it is loaded anew.
    pub fn add(&self, tag: Tag, denial: DenylistEntry) {
        match self.shard(&tag).write().entry(tag) {
            Entry::Occupied(mut known) => {
                let both = known.get().and(denial);
                known.insert(both);
            }
            Entry::Vacant(free) => {
                if self.count.fetch_add(1, Ordering::AcqRel) < self.limit {
                    free.insert(denial);
                } else {
                    self.count.fetch_sub(1, Ordering::AcqRel);
                    self.overflowed.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Whether a credential that carries these tags and was issued then, in milliseconds since 1970, is denied.
    pub fn denies(&self, tags: &[Tag], issued_at: i64) -> bool {
        tags.iter().any(|tag| {
            let denial = self.shard(tag).read().get(tag).copied();
            denial.is_some_and(|denial| denial.not_before.is_none_or(|then| issued_at < then))
        })
    }

    /// Drops what is over since [`KEPT`] at `now`, in milliseconds since 1970. If that makes room, the set is whole only after it was loaded
    /// anew.
    pub fn expire(&self, now: i64) {
        let now = now.saturating_sub(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
        for shard in &self.shards {
            let mut shard = shard.write();
            let before = shard.len();
            shard.retain(|_, denial| denial.until > now);
            self.count.fetch_sub(before - shard.len(), Ordering::AcqRel);
        }
    }

    /// From here on events may be missing, until it is loaded. What finds no room from here on counts.
    pub(crate) fn begin(&self) {
        self.loaded.store(false, Ordering::Release);
        self.overflowed.store(false, Ordering::Release);
    }

    /// It was loaded.
    pub(crate) fn finish(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    fn shard(&self, tag: &Tag) -> &RwLock<HashMap<Tag, DenylistEntry, BuildHasherDefault<OwnBytes>>> {
        &self.shards[usize::from(tag.0[1]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT_MILLIS: i64 = 90 * 60 * 1000;

    fn tag(number: u8) -> Tag {
        Tag([number; Tag::LENGTH])
    }

    #[test]
    fn what_was_issued_before_is_denied_and_what_came_after_is_not() {
        let denials = Denylist::new(10);
        denials.add(tag(1), DenylistEntry { not_before: Some(100), until: 1000 });
        denials.add(tag(2), DenylistEntry { not_before: None, until: 1000 });
        assert!(denials.denies(&[tag(9), tag(1)], 99) && !denials.denies(&[tag(9), tag(1)], 100));
        assert!(denials.denies(&[tag(2)], i64::MAX));
        assert!(!denials.denies(&[tag(3)], 0) && !denials.denies(&[], 0));
    }

    #[test]
    fn the_stricter_of_two_holds_whatever_comes_first() {
        let (early, late) = (Some(100), Some(200));
        for (one, other, expected) in
            [(early, late, late), (late, early, late), (early, None, None), (None, late, None)]
        {
            let denials = Denylist::new(10);
            denials.add(tag(1), DenylistEntry { not_before: one, until: 1 });
            denials.add(tag(1), DenylistEntry { not_before: other, until: 1000 });
            assert_eq!(denials.denies(&[tag(1)], 150), expected.is_none_or(|then| then > 150));
            denials.expire(KEPT_MILLIS + 999);
            assert_eq!(denials.len(), 1, "the longer of two times");
            denials.expire(KEPT_MILLIS + 1000);
            assert!(denials.is_empty() && !denials.denies(&[tag(1)], 0));
        }
    }

    #[test]
    fn without_room_it_says_that_it_is_not_whole() {
        let denials = Denylist::new(2);
        let denial = DenylistEntry { not_before: None, until: 10 };
        for number in 1..=2 {
            denials.add(tag(number), denial);
        }
        denials.add(tag(1), denial);
        assert!(!denials.is_whole(), "not loaded");
        denials.finish();
        assert!(denials.is_whole());
        denials.add(tag(3), denial);
        assert!(!denials.is_whole() && denials.len() == 2);
        denials.expire(KEPT_MILLIS + 10);
        assert!(!denials.is_whole(), "what found no room is still missing");
        denials.begin();
        denials.add(tag(3), denial);
        denials.finish();
        assert!(denials.is_whole() && denials.denies(&[tag(3)], 0));
    }
}
