//! Open session: a session that authorized a lasting exchange, such as a WebSocket, an event stream
//! or a long response.
//!
//! Owns: whether the session is over: by its end time, by the list of sessions revoked here, and by
//! the store, where other processes that share it delete sessions. Does not own: when to check, and
//! what follows (`gateway::stream_guard`).
//!
//! Checks never renew a session: the renewed cookie could not be sent to the browser.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use http_engine::clock::Clock;

use crate::revoked_sessions::{RevokedSessions, SessionKeysToRevoke};
use crate::session_store::SessionStore;

/// The sources that show whether a session is over.
pub struct SessionStatusSources {
    /// The clock to compare with the end time.
    pub clock: Arc<dyn Clock>,
    /// Sessions that were revoked before their end.
    pub ended: Arc<RevokedSessions>,
    /// The session store, if sessions are not kept in their cookies.
    pub store: Option<Arc<dyn SessionStore>>,
    /// How long a result of the store is valid.
    pub ttl: Duration,
}

/// A session that authorized an exchange.
#[derive(Clone)]
pub struct OpenSession {
    /// The keys by which the session can be revoked.
    pub marks: SessionKeysToRevoke,
    /// End time of the session, at the latest.
    pub ends: Timestamp,
    /// The sources that show whether it is over.
    pub sources: Arc<SessionStatusSources>,
}

impl OpenSession {
    /// End time of the session, at the latest.
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Whether local state shows that the session is over.
    pub fn is_over(&self) -> bool {
        self.sources.ended.is_revoked(&self.marks) || self.sources.clock.now().wall >= self.ends
    }

    /// Interval of reads from the store; `None`: the store does not keep this session.
    pub fn store_interval(&self) -> Option<Duration> {
        self.marks.store_key.and(self.sources.store.as_ref()).map(|_| self.sources.ttl)
    }

    /// Whether the store no longer has the session. A failed read does not count: it is repeated.
    pub async fn is_deleted_in_store(self) -> bool {
        let (Some(store), Some(id)) = (&self.sources.store, self.marks.store_key) else { return false };
        matches!(store.find(id, self.sources.clock.now().wall).await, Ok(None))
    }
}
