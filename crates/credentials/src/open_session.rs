//! Sessions that somebody was let in by for longer than a moment: with a WebSocket, an event stream, a long answer.
//!
//! Owns: whether such a session is over: at its end, by the list of those that ended here, and by the store, in which others end
//! them who share it. Does not own: when that is looked at, and what becomes of whoever may not stay (`gateway::stream_guard`).
//!
//! It is looked at and no more: nothing is renewed here, for what came of that could not be given to the browser.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use http_engine::clock::Clock;

use crate::revoked_sessions::{RevocationMarks, RevokedSessions};
use crate::session_store::SessionStore;

/// Where it shows that a session is over.
pub struct SessionSigns {
    /// Tells when a session is over.
    pub clock: Arc<dyn Clock>,
    /// What was ended before its time.
    pub ended: Arc<RevokedSessions>,
    /// Where sessions are kept, if not in their cookies.
    pub store: Option<Arc<dyn SessionStore>>,
    /// How long the store is believed.
    pub ttl: Duration,
}

/// A session while something lasts.
#[derive(Clone)]
pub struct OpenSession {
    /// By what it can be ended.
    pub marks: RevocationMarks,
    /// When it is over, whatever happens.
    pub ends: Timestamp,
    /// What tells whether it lasts.
    pub signs: Arc<SessionSigns>,
}

impl OpenSession {
    /// When it is over, whatever happens.
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Whether it is known here to be over.
    pub fn is_over(&self) -> bool {
        self.signs.ended.holds(&self.marks) || self.signs.clock.now().wall >= self.ends
    }

    /// How often the store has to be asked; `None`: it does not have it.
    pub fn ask_every(&self) -> Option<Duration> {
        self.marks.kept.and(self.signs.store.as_ref()).map(|_| self.signs.ttl)
    }

    /// Whether the store says that it is over. One that gives no answer does not say so: it is asked again.
    pub async fn gone(self) -> bool {
        let (Some(store), Some(id)) = (&self.signs.store, self.marks.kept) else { return false };
        matches!(store.find(id, self.signs.clock.now().wall).await, Ok(None))
    }
}
