//! Session locks: they keep a session from being stored while a logout of its user is in progress.
//!
//! Owns: which of them waits. Does not own: storing and deleting sessions, which
//! [`Login`](super::Login) does.
//!
//! There is a moment between the store's result of a logout and the local entry for it; a session
//! stored in that moment would escape both. A store may take long to answer, so only those wait
//! that could be affected: each key has a lock, selected by its first byte.

use credentials::session_store::{SessionKey, SessionsOf};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One lock for each value of a byte, shared by the keys of users and of providers' sessions.
pub(super) struct SessionLocks(Box<[RwLock<()>]>);

impl Default for SessionLocks {
    fn default() -> Self {
        Self((0..=u8::MAX).map(|_| RwLock::default()).collect())
    }
}

impl SessionLocks {
    /// Locks for storing a session of this user and this session of the provider.
    pub(super) async fn for_login(
        &self,
        subject: SessionKey,
        sid: Option<SessionKey>,
    ) -> (RwLockReadGuard<'_, ()>, Option<RwLockReadGuard<'_, ()>>) {
        let (subject, sid) = (subject[0], sid.map_or(subject[0], |sid| sid[0]));
        // In order, although a logout holds only one of them.
        let first = self.lock(subject.min(sid)).read().await;
        let second = if subject == sid { None } else { Some(self.lock(subject.max(sid)).read().await) };
        (first, second)
    }

    /// Locks for the logout of a user or of a provider's session.
    pub(super) async fn for_logout(&self, sessions: SessionsOf) -> RwLockWriteGuard<'_, ()> {
        let (SessionsOf::Subject(digest) | SessionsOf::Sid(digest)) = sessions;
        self.lock(digest[0]).write().await
    }

    fn lock(&self, byte: u8) -> &RwLock<()> {
        &self.0[usize::from(byte)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn is_free<F: Future>(waiting: F) -> bool {
        std::pin::pin!(waiting).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_logout_holds_those_alone_whom_it_could_mean() {
        let locks = SessionLocks::default();
        let [ada, bob, work, home] = [[1; 32], [2; 32], [3; 32], [4; 32]];
        let logout = locks.for_logout(SessionsOf::Subject(ada)).await;
        assert!(!is_free(locks.for_login(ada, None)) && !is_free(locks.for_login(ada, Some(work))));
        assert!(is_free(locks.for_login(bob, None)) && is_free(locks.for_login(bob, Some(home))));
        assert!(is_free(locks.for_logout(SessionsOf::Subject(bob))));
        assert!(is_free(locks.for_logout(SessionsOf::Sid(work))));
        drop(logout);
        let login = locks.for_login(ada, Some(work)).await;
        assert!(is_free(locks.for_login(ada, Some(work))), "logins do not wait for each other");
        assert!(!is_free(locks.for_logout(SessionsOf::Subject(ada))));
        assert!(!is_free(locks.for_logout(SessionsOf::Sid(work))));
        assert!(is_free(locks.for_logout(SessionsOf::Subject(bob))));
        drop(login);
        assert!(is_free(locks.for_logout(SessionsOf::Sid(work))));
        assert!(is_free(locks.for_login(ada, Some(ada))), "one lock is enough for both");
    }
}
