//! Revocation poll: reads the sessions that other processes of the same store have ended.
//!
//! Owns: reading the store's list of ended sessions, and adding new entries to the local list
//! ([`credentials::revoked_sessions`]). Does not own: either list.
//!
//! One small query reads the list several times a second, for as long as a session found in the
//! store may authorize requests here. A session that ends elsewhere is over with the next request
//! here, and its open exchanges are cut. If the store does not answer, earlier results are valid
//! for `login.ttl`, and no longer.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::RevokedPage;

use super::{Login, MAX_IN_FLIGHT};

/// Interval of the reads. Together with the interval of the checks of open exchanges
/// (`gateway::stream_guard`) it is less than the second that docs/guides/logout.md promises.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// Reads until the login is replaced.
pub(super) async fn follow_store(login: Weak<Login>) {
    let mut after = 0;
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        let Some(login) = login.upgrade() else { return };
        login.read_revoked_sessions(&mut after).await;
    }
}

impl Login {
    /// Notes a search in the store: for as long as a session may last, sessions that end elsewhere
    /// matter.
    pub(super) fn note_search(&self, now: Timestamp) {
        self.shared.last_store_search.fetch_max(now.as_millis(), Relaxed);
    }

    /// Applies what other processes have ended since the last read.
    async fn read_revoked_sessions(&self, after: &mut u64) {
        let Some(store) = &self.store else { return };
        let searched = Timestamp::from_millis(self.shared.last_store_search.load(Relaxed));
        let now = self.surroundings.clock.now().wall;
        if now >= searched.plus(self.config.lifetime) {
            return;
        }
        // Sessions that ended earlier were not found any more by lookups whose results are still
        // valid.
        let within = self.config.ttl.saturating_add(MAX_IN_FLIGHT);
        while let Ok(RevokedPage { position: upto, sessions, more }) =
            store.revoked_since(*after, within).await
        {
            let until = self.facts_valid_until(now, now);
            for session in sessions {
                self.shared.ended.revoke(session, now, until);
            }
            *after = upto;
            if !more {
                return;
            }
        }
    }
}
