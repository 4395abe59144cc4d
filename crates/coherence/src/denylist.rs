//! Denylist: what is revoked, for credentials that are verified without a query to the authority.
//!
//! Owns: the tags that an authority has revoked and whose credentials may not have expired. For
//! each tag: from which issue time on its credentials are valid again, and until when the entry
//! matters. Does not own: when the set is complete (the consumer decides), or when it is checked
//! ([`View::verify`](crate::view::View::verify)).
//!
//! The set only grows, except that expired entries are dropped. So its parts may arrive in any
//! order and twice, and pages of a copy may be older than the events that arrived meanwhile.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::RwLock;

use crate::log_types::{Tag, TagHasher};

const SHARDS: usize = 16;
/// How long an entry is kept beyond its `until`. The verifier's clock may be wrong, and it may
/// allow for clock skew: a credential that has expired for one node is valid for another. Clock
/// errors of more than an hour are not supported.
pub const RETENTION: Duration = Duration::from_mins(90);

/// Entry of one tag in the denylist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenylistEntry {
    /// Only credentials issued before this are revoked, in milliseconds since 1970; `None`: all of
    /// them.
    pub not_before: Option<i64>,
    /// Until when the entry matters, in milliseconds since 1970.
    pub until: i64,
}

impl DenylistEntry {
    /// An entry that denies what either of the two denies.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let not_before = match (self.not_before, other.not_before) {
            (Some(one), Some(other)) => Some(one.max(other)),
            _ => None,
        };
        Self { not_before, until: self.until.max(other.until) }
    }
}

/// The denylist of one authority.
#[derive(Debug)]
pub struct Denylist {
    shards: [RwLock<HashMap<Tag, DenylistEntry, BuildHasherDefault<TagHasher>>>; SHARDS],
    count: AtomicUsize,
    limit: usize,
    /// The set has everything that was revoked when the consumer last began to follow an epoch.
    loaded: AtomicBool,
    /// An entry found no room: a tag that is not in the set may be revoked.
    overflowed: AtomicBool,
}

impl Denylist {
    /// Creates a denylist of at most `limit` tags, not yet loaded.
    pub fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            count: AtomicUsize::new(0),
            limit,
            loaded: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Number of tags in the set.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the set has no tag.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the set is complete; if not, the authority must be queried.
    pub fn is_complete(&self) -> bool {
        // In this order: a reload first clears `loaded`, then `overflowed`. Otherwise a reader in
        // between could take an incomplete set for complete.
        !self.overflowed.load(Ordering::Acquire) && self.loaded.load(Ordering::Acquire)
    }

    /// Whether an entry found no room since the last load.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Whether the set is less than half full: then a reload may be worthwhile.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.limit / 2
    }

    /// Adds an entry. If there is no room for it, the set is incomplete until the next load.
    pub fn add(&self, tag: Tag, denial: DenylistEntry) {
        match self.shard(&tag).write().entry(tag) {
            Entry::Occupied(mut known) => {
                let both = known.get().merge(denial);
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

    /// Whether a credential that carries these tags and was issued at `issued_at`, in milliseconds
    /// since 1970, is revoked.
    pub fn denies(&self, tags: &[Tag], issued_at: i64) -> bool {
        tags.iter().any(|tag| {
            let denial = self.shard(tag).read().get(tag).copied();
            denial.is_some_and(|denial| denial.not_before.is_none_or(|then| issued_at < then))
        })
    }

    /// Drops entries whose `until` is more than [`RETENTION`] before `now`, in milliseconds since
    /// 1970. If an entry found no room before, the set is complete only after the next load.
    pub fn expire(&self, now: i64) {
        let now = now.saturating_sub(i64::try_from(RETENTION.as_millis()).unwrap_or(i64::MAX));
        for shard in &self.shards {
            let mut shard = shard.write();
            let before = shard.len();
            shard.retain(|_, denial| denial.until > now);
            self.count.fetch_sub(before - shard.len(), Ordering::AcqRel);
        }
    }

    /// Begins a load: events may be missing until it ends. Overflows count from here on.
    pub(crate) fn begin_load(&self) {
        self.loaded.store(false, Ordering::Release);
        self.overflowed.store(false, Ordering::Release);
    }

    /// Ends a load: the set has everything.
    pub(crate) fn finish_load(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    fn shard(&self, tag: &Tag) -> &RwLock<HashMap<Tag, DenylistEntry, BuildHasherDefault<TagHasher>>> {
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
        assert!(!denials.is_complete(), "not loaded");
        denials.finish_load();
        assert!(denials.is_complete());
        denials.add(tag(3), denial);
        assert!(!denials.is_complete() && denials.len() == 2);
        denials.expire(KEPT_MILLIS + 10);
        assert!(!denials.is_complete(), "what found no room is still missing");
        denials.begin_load();
        denials.add(tag(3), denial);
        denials.finish_load();
        assert!(denials.is_complete() && denials.denies(&[tag(3)], 0));
    }
}
