//! Single flight: answers one miss once for all requests that wait for it.

use std::sync::Arc;

use http_engine::clock::Now;
use tokio::sync::watch;

use super::{CacheKey, CacheState, Generation, Lifetime, Weigh};

/// The result of a ticket's holder; `F` is the shared fact.
#[derive(Clone)]
pub(super) enum FlightAnswer<F, D> {
    Known(F),
    Denied(D),
}

type FlightSlot<T, D> = Option<FlightAnswer<Arc<T>, D>>;

/// A flush overtook the fill: the answer may predate the reason for the flush and proves nothing.
/// Look up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache was flushed while the credential was being verified")]
pub struct FlightVoided;

/// The flight as its shard's table stores it.
pub(super) struct FlightEntry<T, D> {
    id: u64,
    flight: Flight<T, D>,
}

/// The waiting side of a miss that another request is answering.
pub struct Flight<T, D> {
    answer: watch::Receiver<FlightSlot<T, D>>,
    generation: u64,
    current: Generation,
}

/// The result of a flight for a waiter.
pub enum FlightResult<T, D> {
    /// The fact, obtained while this flight was pending.
    Known(Arc<T>),
    /// Denied, or failed in a way that `D` describes.
    Denied(D),
    /// No answer, or a flush voided it: look up again.
    Again,
}

pub(super) fn start_flight<T, D>(
    id: u64,
    generation: u64,
    current: Generation,
) -> (FlightEntry<T, D>, watch::Sender<FlightSlot<T, D>>) {
    let (sender, answer) = watch::channel(None);
    (FlightEntry { id, flight: Flight { answer, generation, current } }, sender)
}

impl<T, D> FlightEntry<T, D> {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn generation(&self) -> u64 {
        self.flight.generation
    }

    pub(super) fn join(&self) -> Flight<T, D> {
        Flight {
            answer: self.flight.answer.clone(),
            generation: self.flight.generation,
            current: self.flight.current.clone(),
        }
    }
}

impl<T, D: Clone> Flight<T, D> {
    /// Waits for the holder of the ticket. Never longer than that holder takes: a dropped ticket
    /// ends the flight too.
    pub async fn wait(mut self) -> FlightResult<T, D> {
        let answer = match self.answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None,
        };
        match answer {
            Some(FlightAnswer::Known(fact)) if self.generation == self.current.current() => {
                FlightResult::Known(fact)
            }
            Some(FlightAnswer::Denied(why)) => FlightResult::Denied(why),
            Some(FlightAnswer::Known(_)) | None => FlightResult::Again,
        }
    }
}

/// The duty to verify. Dropped without an answer, it wakes the waiters, which retry.
#[must_use = "a dropped ticket sends everybody who waits back to the start"]
pub struct Ticket<T, D> {
    shared: Arc<CacheState<T, D>>,
    key: CacheKey,
    id: u64,
    generation: u64,
    answer: watch::Sender<FlightSlot<T, D>>,
}

impl<T, D> Ticket<T, D> {
    pub(super) fn new(
        shared: Arc<CacheState<T, D>>,
        key: CacheKey,
        id: u64,
        generation: u64,
        answer: watch::Sender<FlightSlot<T, D>>,
    ) -> Self {
        Self { shared, key, id, generation, answer }
    }

    /// Admits no more waiters: a later lookup verifies again. For a question whose answer may be
    /// older than the events that later requests must respect, and which has no basis that would
    /// report them. Current waiters still get the answer.
    pub fn close(&self) {
        self.shared.abandon(self.key, self.id);
    }

    /// Passes `why` to the current waiters and stores nothing: for errors, which prove nothing
    /// about the credential.
    pub fn fail(self, why: D) {
        self.shared.abandon(self.key, self.id);
        self.answer.send_replace(Some(FlightAnswer::Denied(why)));
    }
}

impl<T: Weigh, D: Clone> Ticket<T, D> {
    /// Stores the fact and passes it to the waiters. Returns it even when it is too heavy or too
    /// old to be stored.
    ///
    /// # Errors
    /// [`FlightVoided`] when the generation moved since the ticket was taken: nothing is stored,
    /// waiters retry.
    pub fn fill(self, fact: impl Into<Arc<T>>, life: Lifetime, now: Now) -> Result<Arc<T>, FlightVoided> {
        let fact = fact.into();
        self.shared.store((self.key, self.id, self.generation), &fact, life, now)?;
        self.answer.send_replace(Some(FlightAnswer::Known(fact.clone())));
        Ok(fact)
    }

    /// Stores the denial for the denial time to live, drops the fact stored under the key, and
    /// passes the denial to the waiters. Valid in any generation: using a denial is safe.
    pub fn deny(self, why: D, now: Now) {
        self.shared.refuse(self.key, self.id, why.clone(), now);
        self.answer.send_replace(Some(FlightAnswer::Denied(why)));
    }
}

impl<T, D> Drop for Ticket<T, D> {
    fn drop(&mut self) {
        // Removed from the table first: a waiter that the sender's end wakes must find no flight.
        // After an answer this finds no flight of ours, because ids are never reused in a shard.
        self.shared.abandon(self.key, self.id);
    }
}
