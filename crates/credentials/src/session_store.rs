//! Session store: the interface that the login needs to keep sessions in a database. The binary
//! provides the implementation.
//!
//! A store knows a session by a digest of the browser's secret, and its content is sealed. A copy
//! of the store allows neither to present a session nor to read one. All processes that serve the
//! same origins share a store. Concurrent changes are decided by one conditional statement there,
//! never by reading first.
//!
//! Every call has a time limit ([`Bounded`]): one lookup answers all requests of a session, and one
//! that never returned would block all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;

/// Interval of searches for sessions that are over, and time limit of a search.
pub const SWEEP: Duration = Duration::from_mins(1);
/// Time limit of a read on the request path.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a change: longer than a store takes to report that the outcome is unknown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Key of a session, a user or a provider's session: a SHA-256.
pub type SessionKey = [u8; 32];

/// Future of a store operation.
pub type StoreAnswer<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 's>>;

/// The store cannot be reached, so its content is unknown.
#[derive(Debug, Clone, thiserror::Error)]
#[error("session store unavailable: {0}")]
pub struct StoreFault(pub String);

/// A session as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Digest of the browser's secret.
    pub id: SessionKey,
    /// Key of the user at the provider.
    pub subject: SessionKey,
    /// Key of the provider's own session, if it sent one (`sid`, OpenID Connect Front-Channel
    /// Logout 1.0 section 3).
    pub sid: Option<SessionKey>,
    /// When the user logged in.
    pub began: Timestamp,
    /// When the session is over, at the latest. Expired means `now >= ends`.
    pub ends: Timestamp,
    /// Grows by one with each change of `content`; begins with 0.
    pub version: u64,
    /// All other data, sealed.
    pub content: Vec<u8>,
}

/// Which sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionsOf {
    /// The sessions of one session of the provider.
    Sid(SessionKey),
    /// All sessions of one user.
    Subject(SessionKey),
}

/// An operation that may be done once by all processes that share the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnceKey {
    /// Name of the operation.
    pub name: SessionKey,
    /// Until when it could be attempted again.
    pub until: Timestamp,
}

/// Sessions that any process ended before their time, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedPage {
    /// Position from which to continue.
    pub position: u64,
    /// Keys of the sessions.
    pub sessions: Vec<SessionKey>,
    /// Whether more can be read at once.
    pub more: bool,
}

/// Keeps sessions. Every change is durable when its future completes.
pub trait SessionStore: Send + Sync {
    /// Stores a new session. Its `id` is random, so it is unused.
    fn insert(&self, session: StoredSession) -> StoreAnswer<'_, ()>;

    /// Finds a session by its key; `None`: there is none that lasts at `now`.
    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>>;

    /// Claims the right to refresh a session until `until`: true for one claimant at a time, and
    /// only while the session has this version. A claimant that does not return loses the right
    /// then.
    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool>;

    /// Replaces the content of this version, increments the version, and returns the right to
    /// refresh. False: there is no session with this key and version.
    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool>;

    /// Returns the right to refresh without a change, so that another claimant can try.
    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()>;

    /// Deletes a session and returns its last content. `None`: there was none.
    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>>;

    /// Deletes all sessions of a user, or of a provider's session, that began at this time or
    /// before, and returns their keys. `None`: this was done before under the name of `once`, and
    /// is not repeated. The deletion and the record of the name are one transaction.
    fn remove_of(
        &self,
        sessions: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>>;

    /// Sessions that any process ended after position `after` (0 at first), no longer ago than
    /// `within`. The result includes every end that was durable when the call was made.
    fn revoked_since(&self, after: u64, within: Duration) -> StoreAnswer<'_, RevokedPage>;

    /// Deletes expired sessions and expired names, some at a time; returns how many.
    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64>;
}

/// A store whose operations fail when they take too long.
pub struct Bounded(Arc<dyn SessionStore>);

impl Bounded {
    /// Limits the time of operations of `store`.
    pub fn new(store: Arc<dyn SessionStore>) -> Self {
        Self(store)
    }
}

fn within<'s, T: Send + 's>(patience: Duration, answer: StoreAnswer<'s, T>) -> StoreAnswer<'s, T> {
    Box::pin(async move {
        let answer = tokio::time::timeout(patience, answer).await;
        answer.unwrap_or_else(|_| Err(StoreFault("no answer in time".to_owned())))
    })
}

impl SessionStore for Bounded {
    fn insert(&self, session: StoredSession) -> StoreAnswer<'_, ()> {
        within(WRITE_TIMEOUT, self.0.insert(session))
    }

    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
        within(READ_TIMEOUT, self.0.find(id, now))
    }

    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool> {
        within(READ_TIMEOUT, self.0.claim(id, version, now, until))
    }

    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool> {
        within(WRITE_TIMEOUT, self.0.replace(id, version, content))
    }

    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()> {
        within(WRITE_TIMEOUT, self.0.release(id, version))
    }

    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
        within(WRITE_TIMEOUT, self.0.remove(id))
    }

    fn remove_of(
        &self,
        sessions: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
        within(WRITE_TIMEOUT, self.0.remove_of(sessions, began, once))
    }

    fn revoked_since(&self, after: u64, longest: Duration) -> StoreAnswer<'_, RevokedPage> {
        within(READ_TIMEOUT, self.0.revoked_since(after, longest))
    }

    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64> {
        within(SWEEP, self.0.sweep(now))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// A store that never answers.
    struct Silent;

    fn never<'s, T: Send + 's>() -> StoreAnswer<'s, T> {
        Box::pin(std::future::pending())
    }

    impl SessionStore for Silent {
        fn insert(&self, _: StoredSession) -> StoreAnswer<'_, ()> {
            never()
        }
        fn find(&self, _: SessionKey, _: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
            never()
        }
        fn claim(&self, _: SessionKey, _: u64, _: Timestamp, _: Timestamp) -> StoreAnswer<'_, bool> {
            never()
        }
        fn replace(&self, _: SessionKey, _: u64, _: Vec<u8>) -> StoreAnswer<'_, bool> {
            never()
        }
        fn release(&self, _: SessionKey, _: u64) -> StoreAnswer<'_, ()> {
            never()
        }
        fn remove(&self, _: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
            never()
        }
        fn remove_of(
            &self,
            _: SessionsOf,
            _: Timestamp,
            _: OnceKey,
        ) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
            never()
        }
        fn revoked_since(&self, _: u64, _: Duration) -> StoreAnswer<'_, RevokedPage> {
            never()
        }
        fn sweep(&self, _: Timestamp) -> StoreAnswer<'_, u64> {
            never()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_says_nothing_is_not_waited_for_for_ever() {
        let store = Bounded(Arc::new(Silent));
        let (id, now) = ([1; 32], Timestamp::from_secs(1000));
        let kept =
            StoredSession { id, subject: id, sid: None, began: now, ends: now, version: 0, content: vec![] };
        let began = Instant::now();
        assert!(store.find(id, now).await.is_err());
        assert!(store.claim(id, 0, now, now).await.is_err());
        assert!(store.revoked_since(0, READ_TIMEOUT).await.is_err());
        assert_eq!(began.elapsed(), 3 * READ_TIMEOUT, "what requests wait for");
        assert!(store.insert(kept).await.is_err());
        assert!(store.replace(id, 0, vec![]).await.is_err());
        assert!(store.release(id, 0).await.is_err());
        assert!(store.remove(id).await.is_err());
        let once = OnceKey { name: id, until: now };
        assert!(store.remove_of(SessionsOf::Subject(id), now, once).await.is_err());
        assert!(store.sweep(now).await.is_err());
    }
}
