//! Retries: when what has failed is tried again.
//!
//! Owns: the growing pauses, and what waits for the end of one. Does not own: the attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// Longest pause, unless the first one is longer.
const LONGEST: Duration = Duration::from_mins(1);

/// What has failed, by key. Each has a pause of its own, so that one that always fails holds nobody
/// else up.
pub(super) struct Retries<K, V> {
    failed: BTreeMap<K, Failed<V>>,
    /// Those that wait, by the end of their pause.
    due: BTreeSet<(Instant, K)>,
}

struct Failed<V> {
    in_a_row: u32,
    /// `None`: it is being tried.
    waiting: Option<(Instant, V)>,
}

impl<K, V> Default for Retries<K, V> {
    fn default() -> Self {
        Self { failed: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> Retries<K, V> {
    /// Takes note of a failure. It is due after `first`, and after twice the time at each further
    /// failure, up to a minute.
    pub(super) fn failed(&mut self, key: K, value: V, first: Duration, now: Instant) {
        let in_a_row = self.failed.get(&key).map_or(0, |failed| failed.in_a_row);
        self.forget(&key);
        let due = now + first.saturating_mul(1 << in_a_row.min(10)).min(LONGEST.max(first));
        self.due.insert((due, key.clone()));
        self.failed.insert(key, Failed { in_a_row: in_a_row + 1, waiting: Some((due, value)) });
    }

    /// Takes note that something was done, or need not be done any more.
    pub(super) fn forget(&mut self, key: &K) {
        let waiting = self.failed.remove(key).and_then(|failed| failed.waiting);
        if let Some((due, _)) = waiting {
            self.due.remove(&(due, key.clone()));
        }
    }

    /// Takes what is due; its failures are counted on until it is done.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(K, V)> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        let (_, value) = self.failed.get_mut(&key)?.waiting.take()?;
        Some((key, value))
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Whether it waits for the end of its pause.
    pub(super) fn is_waiting(&self, key: &K) -> bool {
        self.failed.get(key).is_some_and(|failed| failed.waiting.is_some())
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.due.len()
    }
}

/// Waits until then; `None`: for ever.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_for_each_key_until_it_is_done() {
        let second = Duration::from_secs(1);
        let mut retries = Retries::default();
        let mut now = Instant::now();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            retries.failed("a", (), second, now);
            assert!(retries.is_waiting(&"a"));
            assert_eq!(retries.next_due(), Some(now + second * pause));
            assert_eq!(retries.take_due(now), None);
            now += second * pause;
            assert_eq!(retries.take_due(now), Some(("a", ())));
            assert!(!retries.is_waiting(&"a"));
        }
        retries.failed("b", (), second * 300, now);
        retries.forget(&"a");
        retries.failed("a", (), second, now);
        assert_eq!((retries.next_due(), retries.waiting()), (Some(now + second), 2));
        assert_eq!(retries.take_due(now + second), Some(("a", ())));
        assert_eq!(retries.take_due(now + second * 299), None);
        assert_eq!(retries.take_due(now + second * 300), Some(("b", ())));
    }
}
