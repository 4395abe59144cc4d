//! Whether changes are stored, as those of late have shown.
//!
//! Owns: when it is said, once, that they are not, and when that they are again. Does not own: making them ([`crate::write`]), whom it
//! is told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::StoreError;

/// So long nothing must fail before all is said to be well: a small change may find room where a large one did not, and one connection do what
/// another does not.
const CALM: Duration = Duration::from_secs(10);

/// Whether changes are stored. A database that answers questions may take none: its disk is full, or another server has become the primary.
/// Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Storing(Arc<Mutex<Option<Failing>>>);

#[derive(Debug)]
struct Failing {
    why: StoreError,
    last: Instant,
}

impl Storing {
    /// Why changes could not be stored lately. `None`: they could, as far as any were made.
    pub fn fault(&self) -> Option<StoreError> {
        self.0.lock().as_ref().map(|failing| failing.why.clone())
    }

    /// Takes note of what became of a transaction. However many fail, it is logged once.
    pub(crate) fn note(&self, made: &Result<(), StoreError>, now: Instant) {
        let mut failing = self.0.lock();
        match made {
            // What is refused for what it is is answered.
            Err(error) if error.is_of_one_change() && !error.is_of_the_database() => {}
            Err(error) => {
                if failing.is_none() {
                    tracing::warn!(%error, "changes cannot be stored");
                }
                *failing = Some(Failing { why: error.clone(), last: now });
            }
            Ok(()) if failing.as_ref().is_some_and(|failing| now.duration_since(failing.last) >= CALM) => {
                *failing = None;
                tracing::info!("changes are stored again");
            }
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loan::lost;

    #[test]
    fn what_fails_is_told_until_nothing_has_failed_for_a_while() {
        let (storing, began) = (Storing::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        storing.note(&Err(StoreError::Taken("the name")), at(0));
        assert!(storing.fault().is_none(), "the database has answered");
        storing.note(&Err(lost("away")), at(1));
        assert!(storing.fault().is_some());
        storing.note(&Ok(()), at(2));
        storing.note(&Err(lost("away again")), at(3));
        storing.note(&Ok(()), at(12));
        let told = storing.clone().fault().map(|error| error.to_string());
        assert!(told.as_ref().is_some_and(|told| told.contains("away again")), "{told:?}");
        storing.note(&Err(StoreError::GaveWay), at(13));
        assert!(storing.fault().is_some(), "nothing was stored yet");
        storing.note(&Ok(()), at(13));
        assert!(storing.fault().is_none());
    }
}
