//! No session is kept while somebody is logged out whose it could be.
//!
//! Owns: who waits for whom. Does not own: keeping sessions and ending them, which [`Login`](super::Login) does.
//!
//! Between what a store says of a logout and what is noted of it here there is a moment; a session that is kept in it would be in
//! neither. A store may take long to answer, so only those wait who could be meant: each name has a lock by its first byte.

use credentials::session_store::{SessionKey, SessionsOf};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// As many locks as there are values of a byte, for people and for sessions of providers together.
pub(super) struct Beginnings(Box<[RwLock<()>]>);

impl Default for Beginnings {
    fn default() -> Self {
        Self((0..=u8::MAX).map(|_| RwLock::default()).collect())
    }
}

impl Beginnings {
    /// For a session that is kept, of this person and this session of the provider's.
    pub(super) async fn of(
        &self,
        subject: SessionKey,
        sid: Option<SessionKey>,
    ) -> (RwLockReadGuard<'_, ()>, Option<RwLockReadGuard<'_, ()>>) {
        let (subject, sid) = (subject[0], sid.map_or(subject[0], |sid| sid[0]));
        // In order, though whoever logs somebody out holds one alone.
        let first = self.lock(subject.min(sid)).read().await;
        let second = if subject == sid { None } else { Some(self.lock(subject.max(sid)).read().await) };
        (first, second)
    }

    /// For the logout of somebody.
    pub(super) async fn during_a_logout(&self, whose: SessionsOf) -> RwLockWriteGuard<'_, ()> {
        let (SessionsOf::Subject(digest) | SessionsOf::Sid(digest)) = whose;
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
        let beginnings = Beginnings::default();
        let [ada, bob, work, home] = [[1; 32], [2; 32], [3; 32], [4; 32]];
        let logout = beginnings.during_a_logout(SessionsOf::Subject(ada)).await;
        assert!(!is_free(beginnings.of(ada, None)) && !is_free(beginnings.of(ada, Some(work))));
        assert!(is_free(beginnings.of(bob, None)) && is_free(beginnings.of(bob, Some(home))));
        assert!(is_free(beginnings.during_a_logout(SessionsOf::Subject(bob))));
        assert!(is_free(beginnings.during_a_logout(SessionsOf::Sid(work))));
        drop(logout);
        let login = beginnings.of(ada, Some(work)).await;
        assert!(is_free(beginnings.of(ada, Some(work))), "logins do not wait for each other");
        assert!(!is_free(beginnings.during_a_logout(SessionsOf::Subject(ada))));
        assert!(!is_free(beginnings.during_a_logout(SessionsOf::Sid(work))));
        assert!(is_free(beginnings.during_a_logout(SessionsOf::Subject(bob))));
        drop(login);
        assert!(is_free(beginnings.during_a_logout(SessionsOf::Sid(work))));
        assert!(is_free(beginnings.of(ada, Some(ada))), "one lock is enough for both");
    }
}
