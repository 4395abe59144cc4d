//! Deleted objects: names of recently deleted accounts and tokens, which are never reused.
//!
//! The API server caches a valid token for ten seconds, regardless of deletions, so asking again
//! does not help: the deletion event is more recent. The names are kept for longer than any server
//! caches; then the server's answers count again.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

/// Longer than an API server caches a token, and than its replicas lag behind each other.
const RETENTION: Duration = Duration::from_mins(1);
/// More than are deleted in that time; beyond this number the oldest are dropped.
const MAX_ENTRIES: usize = 1 << 16;

/// Names of deleted objects.
#[derive(Debug, Default)]
pub(super) struct DeletedObjects(RwLock<DeletedEntry>);

#[derive(Debug, Default)]
struct DeletedEntry {
    names: HashSet<Box<str>>,
    order: VecDeque<(Instant, Box<str>)>,
}

impl DeletedObjects {
    /// Records a deletion.
    pub(super) fn add(&self, name: &str) {
        let now = Instant::now();
        let mut held = self.0.write();
        while let Some((at, _)) = held.order.front()
            && (now.duration_since(*at) >= RETENTION || held.order.len() >= MAX_ENTRIES)
            && let Some((_, oldest)) = held.order.pop_front()
        {
            held.names.remove(&oldest);
        }
        if held.names.insert(name.into()) {
            held.order.push_back((now, name.into()));
        }
    }

    /// Whether the object was deleted.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.read().names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_is_known_for_a_while() {
        let graves = DeletedObjects::default();
        graves.add("a");
        graves.add("a");
        assert!(graves.contains("a") && !graves.contains("b"));
        tokio::time::advance(RETENTION).await;
        graves.add("b");
        assert!(graves.contains("b") && !graves.contains("a"));
    }

    #[tokio::test]
    async fn the_oldest_make_room() {
        let graves = DeletedObjects::default();
        for n in 0..=MAX_ENTRIES {
            graves.add(&n.to_string());
        }
        assert!(!graves.contains("0") && graves.contains("1") && graves.contains(&MAX_ENTRIES.to_string()));
    }
}
