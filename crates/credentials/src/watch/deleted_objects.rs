//! What was deleted a moment ago, by names that nothing else will ever have.
//!
//! The API server remembers that a token is good for ten seconds, whatever is deleted meanwhile, so asking again is no help: who
//! was told of the deletion knows better. That is kept for longer than any server remembers, and then the server's word counts again.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

/// Longer than an API server believes a token, and than its servers lag behind each other.
const KEPT: Duration = Duration::from_mins(1);
/// More than are deleted in that time; beyond, the oldest are forgotten.
const MOST: usize = 1 << 16;

/// Names of what was deleted.
#[derive(Debug, Default)]
pub(super) struct DeletedObjects(RwLock<DeletedEntry>);

#[derive(Debug, Default)]
struct DeletedEntry {
    names: HashSet<Box<str>>,
    order: VecDeque<(Instant, Box<str>)>,
}

impl DeletedObjects {
    /// Something was deleted.
    pub(super) fn add(&self, name: &str) {
        let now = Instant::now();
        let mut held = self.0.write();
        while let Some((at, _)) = held.order.front()
            && (now.duration_since(*at) >= KEPT || held.order.len() >= MOST)
            && let Some((_, oldest)) = held.order.pop_front()
        {
            held.names.remove(&oldest);
        }
        if held.names.insert(name.into()) {
            held.order.push_back((now, name.into()));
        }
    }

    /// Whether it was.
    pub(super) fn have(&self, name: &str) -> bool {
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
        assert!(graves.have("a") && !graves.have("b"));
        tokio::time::advance(KEPT).await;
        graves.add("b");
        assert!(graves.have("b") && !graves.have("a"));
    }

    #[tokio::test]
    async fn the_oldest_make_room() {
        let graves = DeletedObjects::default();
        for n in 0..=MOST {
            graves.add(&n.to_string());
        }
        assert!(!graves.have("0") && graves.have("1") && graves.have(&MOST.to_string()));
    }
}
