//! Sessions that are kept here, as the login needs them. Who keeps them is the binary's to say.
//!
//! A store knows a session by a digest of what the browser holds, and its content sealed: whoever has a copy of the store can
//! neither present a session nor read one. All who serve the same origins share a store; what two of them want to change at
//! once is decided by one conditional statement there, never by looking first.
//!
//! Whatever a store does, it is waited for only so long ([`Bounded`]): one look-up answers everybody who comes with a session, and one
//! that never came back would hold all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;

/// How often sessions that are over are looked for, and how long a search may take: until the next one is due.
pub const SWEEP: Duration = Duration::from_mins(1);
/// How long requests wait for a store.
const ASKED: Duration = Duration::from_secs(5);
/// How long a change is waited for: longer than a store takes to say itself that nobody knows whether it was made.
const CHANGED: Duration = Duration::from_secs(15);

/// What a session, a person or a provider's session is found by: a SHA-256.
pub type SessionKey = [u8; 32];

/// An answer that has to be waited for.
pub type StoreAnswer<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 's>>;

/// The store cannot be asked; what is in it nobody knows.
#[derive(Debug, Clone, thiserror::Error)]
#[error("sessions cannot be looked up: {0}")]
pub struct StoreFault(pub String);

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Of what the browser holds.
    pub id: SessionKey,
    /// Of whom the session is, within their provider.
    pub subject: SessionKey,
    /// Of the provider's own session, when it told (`sid`, `OpenID` Connect Front-Channel Logout 1.0 section 3).
    pub sid: Option<SessionKey>,
    /// When somebody logged in.
    pub began: Timestamp,
    /// From when on it is over, whatever happens. Expired means `now >= ends`.
    pub ends: Timestamp,
    /// Grows by one with each change of `content`; begins with 0.
    pub version: u64,
    /// Everything else, sealed.
    pub content: Vec<u8>,
}

/// Whose sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionsOf {
    /// Those of one session of the provider's.
    Sid(SessionKey),
    /// All of one person.
    Subject(SessionKey),
}

/// What may be done once, by whoever shares the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnceKey {
    /// What that is called.
    pub name: SessionKey,
    /// Until when it could be tried again.
    pub until: Timestamp,
}

/// Sessions that were ended before their time, by whomever, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedPage {
    /// From where to read on.
    pub upto: u64,
    /// Their names.
    pub sessions: Vec<SessionKey>,
    /// Whether there are more at once.
    pub more: bool,
}

/// Keeps sessions. Every change is durable when it has been answered.
pub trait SessionStore: Send + Sync {
    /// Keeps a new one. Its `id` is random: there is none of that name yet.
    fn insert(&self, session: StoredSession) -> StoreAnswer<'_, ()>;

    /// The one of this name; `None`: there is none that has not ended at `now`.
    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>>;

    /// Takes the right to refresh it until `until`: true for one at a time, and only while its version is this one. Who was
    /// given it and does not come back loses it then.
    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool>;

    /// Puts another content in the place of the one of this version, which becomes the next, and gives back the right to
    /// refresh. False: there is no session of this name and version.
    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool>;

    /// Gives the right to refresh back without a change, so that the next one can try.
    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()>;

    /// Ends it, and gives back its content as it was last. `None`: there was none.
    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>>;

    /// Ends all of somebody that began at this time or before, and says which. `None`: that was done before under this name, and is not done
    /// again. Nothing is ended without the name being noted, nor noted without the end.
    fn remove_of(
        &self,
        whose: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>>;

    /// Which were ended, by this process or another, since `after` was read (0 at first), and not longer ago than `within`. An answer
    /// misses none whose end was durable when it was asked for.
    fn endings(&self, after: u64, within: Duration) -> StoreAnswer<'_, RevokedPage>;

    /// Forgets, some at a time, sessions that have ended by themselves, and what cannot be done again anyway; returns how many.
    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64>;
}

/// A store that has answered in time, if only that there is no answer.
pub struct Bounded(Arc<dyn SessionStore>);

impl Bounded {
    /// Bounds how long `store` may take.
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
        within(CHANGED, self.0.insert(session))
    }

    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
        within(ASKED, self.0.find(id, now))
    }

    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool> {
        within(ASKED, self.0.claim(id, version, now, until))
    }

    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool> {
        within(CHANGED, self.0.replace(id, version, content))
    }

    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()> {
        within(CHANGED, self.0.release(id, version))
    }

    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
        within(CHANGED, self.0.remove(id))
    }

    fn remove_of(
        &self,
        whose: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
        within(CHANGED, self.0.remove_of(whose, began, once))
    }

    fn endings(&self, after: u64, longest: Duration) -> StoreAnswer<'_, RevokedPage> {
        within(ASKED, self.0.endings(after, longest))
    }

    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64> {
        within(SWEEP, self.0.sweep(now))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Never answers.
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
        fn endings(&self, _: u64, _: Duration) -> StoreAnswer<'_, RevokedPage> {
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
        assert!(store.endings(0, ASKED).await.is_err());
        assert_eq!(began.elapsed(), 3 * ASKED, "what requests wait for");
        assert!(store.insert(kept).await.is_err());
        assert!(store.replace(id, 0, vec![]).await.is_err());
        assert!(store.release(id, 0).await.is_err());
        assert!(store.remove(id).await.is_err());
        let once = OnceKey { name: id, until: now };
        assert!(store.remove_of(SessionsOf::Subject(id), now, once).await.is_err());
        assert!(store.sweep(now).await.is_err());
    }
}
