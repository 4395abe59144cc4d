//! Sessions that somebody was let in by for longer than a moment: with a WebSocket, an event stream, a long answer.
//!
//! Owns: whether such a session is over: at its end, by the list of those that ended here, and by the store, in which others end
//! them who share it. Does not own: when that is looked at, and what becomes of whoever may not stay ([`crate::stay`]).
//!
//! It is looked at and no more: nothing is renewed here, for what came of that could not be given to the browser.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;

use super::ended::{Ended, Marks};
use super::store::SessionStore;
use crate::clock::Clock;

/// Where it shows that a session is over.
pub(crate) struct Signs {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ended: Arc<Ended>,
    pub(super) store: Option<Arc<dyn SessionStore>>,
    /// How long the store is believed.
    pub(super) ttl: Duration,
}

/// A session while something lasts.
#[derive(Clone)]
pub(crate) struct Lasting {
    pub(super) marks: Marks,
    /// When it is over, whatever happens.
    pub(super) ends: Timestamp,
    pub(super) signs: Arc<Signs>,
}

impl Lasting {
    /// When it is over, whatever happens.
    pub(crate) fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Whether it is known here to be over.
    pub(crate) fn is_over(&self) -> bool {
        self.signs.ended.holds(&self.marks) || self.signs.clock.now().wall >= self.ends
    }

    /// How often the store has to be asked; `None`: it does not have it.
    pub(crate) fn ask_every(&self) -> Option<Duration> {
        self.marks.kept.and(self.signs.store.as_ref()).map(|_| self.signs.ttl)
    }

    /// Whether the store says that it is over. One that gives no answer does not say so: it is asked again.
    pub(crate) async fn gone(self) -> bool {
        let (Some(store), Some(id)) = (&self.signs.store, self.marks.kept) else { return false };
        matches!(store.find(id, self.signs.clock.now().wall).await, Ok(None))
    }
}
