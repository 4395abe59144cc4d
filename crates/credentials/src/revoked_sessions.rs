//! Revoked sessions: the list of sessions that ended before their time, kept as long as a cached
//! fact may still name them.
//!
//! Owns: the list, its bound, and what happens when it is full. Does not own: the reasons for an
//! end, and ends in other processes: where a database keeps sessions, `login::revocation_poll`
//! reads them.
//!
//! Every hit on a session's fact checks this list: an end takes effect with the next request, not
//! when the cache entry expires. The list is bounded and never drops an entry that matters. When it
//! is full, every session that began before that moment is over; the user logs in again, which is
//! quick while the provider's session lasts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use auth::time::Timestamp;
use parking_lot::RwLock;

use crate::session_store::{SessionKey, SessionsOf};

/// Maximum number of entries: about 100 bytes each.
const MAX_ENTRIES: usize = 100_000;

/// The keys by which a session can be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKeysToRevoke {
    /// Key of the session itself.
    pub id: SessionKey,
    /// Key of the session in the store, if it was found there.
    pub store_key: Option<SessionKey>,
    /// Key of the session's user.
    pub subject: SessionKey,
    /// Key of the provider's session.
    pub sid: Option<SessionKey>,
    /// When the session began.
    pub began: Timestamp,
}

/// The list of revoked sessions.
pub struct RevokedSessions {
    /// Number of entries, plus one while there is a floor: a hit reads only this when the list is
    /// empty.
    count: AtomicUsize,
    list: RwLock<RevokedList>,
    most: usize,
}

#[derive(Default)]
struct RevokedList {
    entries: HashMap<SessionKey, RevokedEntry>,
    /// Sessions that began before this time are over.
    floor: Option<Timestamp>,
}

#[derive(Clone, Copy)]
struct RevokedEntry {
    logout: LogoutScope,
    /// From this time on no cached fact can name the session.
    until: Timestamp,
}

/// Which of the sessions with a revoked key are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutScope {
    /// Sessions that began later, by our clock, are not meant.
    pub began: Timestamp,
    /// Nor are logins in progress whose ID token was issued later, by the provider's clock.
    pub issued: Timestamp,
}

impl LogoutScope {
    /// All sessions, whenever they begin.
    pub const WHOLE: Self = Self { began: Timestamp::MAX, issued: Timestamp::MAX };

    /// The union of both scopes.
    fn and(self, other: Self) -> Self {
        Self { began: self.began.max(other.began), issued: self.issued.max(other.issued) }
    }
}

impl RevokedList {
    /// Whether an entry for one of the session's keys means this session.
    fn matches(&self, marks: &SessionKeysToRevoke, means: impl Fn(LogoutScope) -> bool) -> bool {
        let names = [Some(&marks.id), marks.store_key.as_ref(), Some(&marks.subject), marks.sid.as_ref()];
        let mut names = names.into_iter().flatten();
        names.any(|name| self.entries.get(name).is_some_and(|entry| means(entry.logout)))
    }
}

impl Default for RevokedSessions {
    fn default() -> Self {
        Self::bounded(MAX_ENTRIES)
    }
}

impl RevokedSessions {
    fn bounded(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), list: RwLock::default(), most }
    }

    /// Whether a session is revoked.
    pub fn is_revoked(&self, marks: &SessionKeysToRevoke) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let list = self.list.read();
        list.floor.is_some_and(|floor| marks.began < floor)
            || list.matches(marks, |logout| marks.began <= logout.began)
    }

    /// Whether a session that begins now is already revoked: its user was `sent` to the provider
    /// before the logout arrived here, and the ID token was `issued` no later than the logout.
    pub fn is_revoked_at_start(
        &self,
        marks: &SessionKeysToRevoke,
        sent: Timestamp,
        issued: Timestamp,
    ) -> bool {
        let on_its_way = |logout: LogoutScope| sent <= logout.began && issued <= logout.issued;
        self.is_revoked(marks) || self.list.read().matches(marks, on_its_way)
    }

    /// Revokes one session by either of its keys. From `until` on no cached fact can name it.
    pub fn revoke(&self, id: SessionKey, now: Timestamp, until: Timestamp) {
        self.put(id, RevokedEntry { logout: LogoutScope::WHOLE, until }, now);
    }

    /// Revokes the sessions of a user, or of a provider's session, that `logout` means.
    pub fn revoke_all(&self, sessions: SessionsOf, logout: LogoutScope, now: Timestamp, until: Timestamp) {
        let (SessionsOf::Sid(digest) | SessionsOf::Subject(digest)) = sessions;
        self.put(digest, RevokedEntry { logout, until }, now);
    }

    fn put(&self, digest: SessionKey, entry: RevokedEntry, now: Timestamp) {
        let mut list = self.list.write();
        if list.entries.len() >= self.most && !list.entries.contains_key(&digest) {
            list.entries.retain(|_, entry| now < entry.until);
            if list.entries.len() >= self.most {
                tracing::warn!(
                    entries = self.most,
                    "list of revoked sessions full, ending all earlier sessions"
                );
                list.entries.clear();
                list.floor = Some(now);
            }
        }
        let held = list.entries.entry(digest).or_insert(entry);
        held.logout = held.logout.and(entry.logout);
        held.until = held.until.max(entry.until);
        self.count.store(list.entries.len() + usize::from(list.floor.is_some()), Ordering::Release);
    }

    /// Number of entries, for metrics.
    pub fn entries(&self) -> usize {
        self.list.read().entries.len()
    }

    /// Removes entries that no cached fact can name any more.
    pub fn sweep(&self, now: Timestamp) {
        let mut list = self.list.write();
        list.entries.retain(|_, entry| now < entry.until);
        self.count.store(list.entries.len() + usize::from(list.floor.is_some()), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);
    const LATER: Timestamp = Timestamp::from_secs(2000);

    fn until(time: Timestamp) -> LogoutScope {
        LogoutScope { began: time, issued: time }
    }

    fn marks(id: u8, subject: u8, sid: Option<u8>, began: u64) -> SessionKeysToRevoke {
        let digest = |n: u8| [n; 32];
        SessionKeysToRevoke {
            id: digest(id),
            store_key: None,
            subject: digest(subject),
            sid: sid.map(digest),
            began: Timestamp::from_secs(began),
        }
    }

    #[test]
    fn a_session_ends_by_its_name_its_owner_or_the_provider_s_session() {
        let ended = RevokedSessions::default();
        let session = marks(1, 2, Some(3), 900);
        assert!(!ended.is_revoked(&session));
        ended.revoke([1; 32], NOW, LATER);
        assert!(ended.is_revoked(&session));
        assert!(!ended.is_revoked(&marks(4, 2, Some(3), 900)), "another of the same person");
        ended.revoke([7; 32], NOW, LATER);
        let kept = SessionKeysToRevoke { store_key: Some([7; 32]), ..marks(4, 2, Some(3), 900) };
        assert!(ended.is_revoked(&kept), "by its name in the store");
        ended.revoke_all(SessionsOf::Sid([3; 32]), until(NOW), NOW, LATER);
        assert!(ended.is_revoked(&marks(4, 2, Some(3), 1000)));
        assert!(!ended.is_revoked(&marks(4, 2, Some(3), 1001)), "began after the logout");
        assert!(!ended.is_revoked(&marks(4, 2, None, 900)));
        ended.revoke_all(SessionsOf::Subject([2; 32]), until(NOW), NOW, LATER);
        assert!(ended.is_revoked(&marks(4, 2, None, 900)));
        assert!(!ended.is_revoked(&marks(4, 5, None, 900)));
    }

    #[test]
    fn a_later_end_counts_for_more_and_an_earlier_one_takes_nothing_back() {
        let ended = RevokedSessions::default();
        ended.revoke_all(SessionsOf::Subject([2; 32]), until(LATER), NOW, LATER);
        ended.revoke_all(SessionsOf::Subject([2; 32]), until(NOW), NOW, NOW);
        ended.sweep(NOW);
        assert!(ended.is_revoked(&marks(1, 2, None, 1500)));
    }

    #[test]
    fn a_login_that_was_under_way_is_over_unless_it_was_confirmed_later() {
        let ended = RevokedSessions::default();
        ended.revoke_all(SessionsOf::Subject([2; 32]), until(NOW), NOW, LATER);
        let session = marks(1, 2, None, 1001);
        let at = Timestamp::from_secs;
        assert!(!ended.is_revoked(&session));
        assert!(ended.is_revoked_at_start(&session, at(999), at(1000)), "sent before, and confirmed before");
        assert!(!ended.is_revoked_at_start(&session, at(999), at(1001)), "the provider has seen them since");
        assert!(!ended.is_revoked_at_start(&session, at(1001), at(1000)), "sent since");
        assert!(!ended.is_revoked_at_start(&marks(1, 5, None, 1001), at(999), at(999)), "somebody else");
        ended.revoke_all(SessionsOf::Sid([3; 32]), LogoutScope::WHOLE, NOW, LATER);
        assert!(
            ended.is_revoked_at_start(&marks(1, 5, Some(3), 1001), at(1001), at(1001)),
            "that never begins again"
        );
    }

    #[test]
    fn what_nobody_can_believe_in_is_forgotten() {
        let ended = RevokedSessions::default();
        ended.revoke([1; 32], NOW, LATER);
        ended.sweep(Timestamp::from_secs(1999));
        assert_eq!(ended.entries(), 1);
        ended.sweep(LATER);
        assert_eq!((ended.entries(), ended.count.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn a_full_list_ends_everybody_rather_than_forget_somebody() {
        let ended = RevokedSessions::bounded(3);
        for id in 0..3 {
            ended.revoke([id; 32], NOW, LATER);
        }
        assert!(!ended.is_revoked(&marks(9, 9, None, 900)));
        ended.revoke([3; 32], NOW, LATER);
        for id in [0, 1, 2, 3, 9] {
            assert!(ended.is_revoked(&marks(id, 9, None, 999)), "{id}");
        }
        assert!(!ended.is_revoked(&marks(9, 9, None, 1000)), "began since");
        // Expired entries are removed first.
        let ended = RevokedSessions::bounded(1);
        ended.revoke([1; 32], NOW, NOW);
        ended.revoke([2; 32], NOW, LATER);
        assert!(!ended.is_revoked(&marks(9, 9, None, 900)));
    }
}
