//! Session search: finds the session that a cookie names, in the cookie itself or in the store.
//!
//! Owns: the search, and rejecting values that cannot name a session. Does not own: whether the
//! session is still valid ([`crate::session_lookup`]).

use auth::time::Timestamp;
use credentials::session_store::{SessionKey, StoreFault};

use super::session::{BrowserSession, SealFault, store_key_of};
use super::{Login, SessionRejected};

/// Length of a session's secret in a cookie; the rest proves that the cookie is ours.
pub(super) const SECRET_LENGTH: usize = 43;

/// A session with the place where it was found.
pub(super) struct FoundSession {
    pub(super) session: BrowserSession,
    /// Key and version in the store, if it was found there.
    pub(super) store_entry: Option<(SessionKey, u64)>,
    /// Whether it is not the session in the cookie, but its renewed successor.
    pub(super) is_successor: bool,
}

impl Login {
    /// Whether a cookie can name a session in the store: a value that we never issued is not worth
    /// a query.
    pub(super) fn can_be_session_name(&self, origin: usize, cookie: &[u8]) -> bool {
        let place = self.config.session_place(origin).as_bytes();
        let Some((secret, tag)) = cookie.split_at_checked(SECRET_LENGTH) else { return false };
        self.config.keys.verify_derived("session name", &[place, secret], tag)
    }

    pub(super) async fn find(
        &self,
        origin: usize,
        cookie: &[u8],
        now: Timestamp,
    ) -> Result<FoundSession, SessionRejected> {
        let (keys, place) = (&self.config.keys, self.config.session_place(origin));
        let Some(store) = &self.store else {
            let session = BrowserSession::of_cookie(keys, place, cookie).ok_or(SessionRejected::Over)?;
            return Ok(match self.shared.renewals.successor(&session, now) {
                Some(session) => FoundSession { session, store_entry: None, is_successor: true },
                None => FoundSession { session, store_entry: None, is_successor: false },
            });
        };
        if !self.can_be_session_name(origin, cookie) {
            return Err(SessionRejected::Over);
        }
        let id = store_key_of(cookie);
        self.note_search(now);
        let stored = store.find(id, now).await.map_err(store_unavailable)?.ok_or(SessionRejected::Over)?;
        let session =
            BrowserSession::of_content(keys, place, &id, &stored.content).ok_or(SessionRejected::Over)?;
        Ok(FoundSession { session, store_entry: Some((id, stored.version)), is_successor: false })
    }
}

/// The store gives no answer; the owner of the store logs the outage.
#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
pub(super) fn store_unavailable(fault: StoreFault) -> SessionRejected {
    tracing::debug!(%fault, "session store unavailable");
    SessionRejected::Unavailable
}

/// A session became too large for its place: the user logs in again, and sees an explanation.
pub(super) fn session_too_large(fault: &SealFault) -> SessionRejected {
    tracing::error!(%fault, "session too large to store, signed out");
    SessionRejected::Over
}
