//! Health: whether the database is available, and whether it lately accepted changes.
//!
//! Owns: which errors count as an outage of the database, and how long a failure to write is
//! remembered. Does not own: making changes ([`crate::writer`]), the log lines of an outage
//! ([`outage`]: one at its start and one at its end, for all callers together).

use std::sync::Arc;
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::StoreError;

/// Time without failure before the database counts as healthy. A small change may succeed where a
/// large one did not, and one connection where another fails.
const RECOVERY_PERIOD: Duration = Duration::from_secs(10);

/// The [`Outage`] of a database, to be shared by everything that uses the database.
pub fn database_outage(name: &str) -> Outage {
    Outage::new(name)
        .with_effect("answering 503 to requests that need it")
        .with_recovery_period(RECOVERY_PERIOD)
}

/// Records the outcome of a database access.
pub(crate) fn record_outcome<T>(way: &Outage, outcome: &Result<T, StoreError>) {
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
pub struct StorageHealth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    outage: Outage,
    failing: Mutex<Option<WriteFailure>>,
}

#[derive(Debug)]
struct WriteFailure {
    why: StoreError,
    last: Instant,
}

impl StorageHealth {
    /// Health of the path that changes take.
    pub(crate) fn new(way: Outage) -> Self {
        Self(Arc::new(Inner { outage: way, failing: Mutex::default() }))
    }

    /// Why changes could not be stored lately. `None`: no recent change failed.
    pub fn fault(&self) -> Option<StoreError> {
        self.0.failing.lock().as_ref().map(|failing| failing.why.clone())
    }

    /// Records the outcome of a transaction.
    pub(crate) fn record<T>(&self, made: &Result<T, StoreError>, now: Instant) {
        let Inner { outage: way, failing } = &*self.0;
        let mut failing = failing.lock();
        match made {
            // A refused request is an answer: the database is available.
            Err(error) if !error.is_outage() => {}
            Err(error) => {
                way.failed(format_args!("changes cannot be stored: {error}"));
                *failing = Some(WriteFailure { why: error.clone(), last: now });
            }
            Ok(_) => {
                way.succeeded();
                if failing.as_ref().is_some_and(|failing| now.duration_since(failing.last) >= RECOVERY_PERIOD)
                {
                    *failing = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pooled_connection::timed_out;

    #[test]
    fn what_fails_is_told_until_nothing_has_failed_for_a_while() {
        let (storing, began) = (StorageHealth::new(database_outage("database")), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        storing.record::<()>(&Err(StoreError::Taken("the name")), at(0));
        assert!(storing.fault().is_none(), "the database has answered");
        storing.record::<()>(&Err(timed_out("away")), at(1));
        assert!(storing.fault().is_some());
        storing.record(&Ok(()), at(2));
        storing.record::<()>(&Err(timed_out("away again")), at(3));
        storing.record(&Ok(()), at(12));
        let message = storing.clone().fault().map(|error| error.to_string());
        assert!(message.as_ref().is_some_and(|message| message.contains("away again")), "{message:?}");
        storing.record::<()>(&Err(StoreError::Aborted), at(13));
        assert!(storing.fault().is_some(), "nothing was stored yet");
        storing.record(&Ok(()), at(13));
        assert!(storing.fault().is_none());
    }
}
