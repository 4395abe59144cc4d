//! Health: whether the database is available, and whether it lately accepted changes.
//!
//! Owns: which errors count as an outage of the database, and how long a failure to write is
//! remembered. Does not own: making changes ([`crate::write`]), the log lines of an outage
//! ([`outage`]: one at its start and one at its end, for all callers together).

use std::sync::Arc;
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::StoreError;

/// Time without failure before the database counts as healthy. A small change may succeed where a
/// large one did not, and one connection where another fails.
const CALM: Duration = Duration::from_secs(10);

/// The [`Outage`] of a database, to be shared by everything that uses the database.
pub fn outage_of(name: &str) -> Outage {
    Outage::of(name).with_effect("requests that need it are answered 503").with_calm(CALM)
}

/// Records the outcome of a database access.
pub(crate) fn note<T>(way: &Outage, outcome: &Result<T, StoreError>) {
    match outcome {
        // This process has closed the pool.
        Err(StoreError::Unavailable(error)) if matches!(**error, sqlx::Error::PoolClosed) => {}
        Err(error) if error.is_outage() => way.failed(error),
        // A refused request is an answer: the database is available.
        Ok(_) | Err(_) => way.succeeded(),
    }
}

/// Whether changes are stored. A database that answers reads may refuse changes: its disk is full,
/// or another server has become the primary. Cheap to clone; clones share the state.
#[derive(Debug, Clone)]
pub struct StorageHealth(Arc<Changes>);

#[derive(Debug)]
struct Changes {
    way: Outage,
    failing: Mutex<Option<Failing>>,
}

#[derive(Debug)]
struct Failing {
    why: StoreError,
    last: Instant,
}

impl StorageHealth {
    /// Health of the path that changes take.
    pub(crate) fn new(way: Outage) -> Self {
        Self(Arc::new(Changes { way, failing: Mutex::default() }))
    }

    /// Why changes could not be stored lately. `None`: no recent change failed.
    pub fn fault(&self) -> Option<StoreError> {
        self.0.failing.lock().as_ref().map(|failing| failing.why.clone())
    }

    /// Records the outcome of a transaction.
    pub(crate) fn note<T>(&self, made: &Result<T, StoreError>, now: Instant) {
        let Changes { way, failing } = &*self.0;
        let mut failing = failing.lock();
        match made {
            // A refused request is an answer: the database is available.
            Err(error) if !error.is_outage() => {}
            Err(error) => {
                way.failed(format_args!("changes cannot be stored: {error}"));
                *failing = Some(Failing { why: error.clone(), last: now });
            }
            Ok(_) => {
                way.succeeded();
                if failing.as_ref().is_some_and(|failing| now.duration_since(failing.last) >= CALM) {
                    *failing = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pooled::lost;

    #[test]
    fn what_fails_is_told_until_nothing_has_failed_for_a_while() {
        let (storing, began) = (StorageHealth::new(outage_of("database")), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        storing.note::<()>(&Err(StoreError::Taken("the name")), at(0));
        assert!(storing.fault().is_none(), "the database has answered");
        storing.note::<()>(&Err(lost("away")), at(1));
        assert!(storing.fault().is_some());
        storing.note(&Ok(()), at(2));
        storing.note::<()>(&Err(lost("away again")), at(3));
        storing.note(&Ok(()), at(12));
        let told = storing.clone().fault().map(|error| error.to_string());
        assert!(told.as_ref().is_some_and(|told| told.contains("away again")), "{told:?}");
        storing.note::<()>(&Err(StoreError::GaveWay), at(13));
        assert!(storing.fault().is_some(), "nothing was stored yet");
        storing.note(&Ok(()), at(13));
        assert!(storing.fault().is_none());
    }
}
