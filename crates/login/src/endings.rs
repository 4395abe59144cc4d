//! Sessions that other processes of the same store have ended.
//!
//! Owns: reading on in the store's list of them, and putting what is new into the list that is looked at here ([`credentials::revoked_sessions`]). Does not own:
//! either list.
//!
//! It is read several times a second, by one small question, as long as somebody may be let in by a session that was found here. What is
//! ended elsewhere is over with the next request here, and cuts what was begun with it. A store that does not answer tells nothing: then
//! what was read is believed for `login.ttl`, and no longer.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::RevokedPage;

use super::{Login, UNDER_WAY};

/// How often the list is read. With the time between two looks at what lasts (`gateway::stream_guard`) it is less than the second that
/// docs/login.md promises.
const EVERY: Duration = Duration::from_millis(250);

/// Reads on until the login is replaced.
pub(super) async fn follow(login: Weak<Login>) {
    let mut after = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(login) = login.upgrade() else { return };
        login.read_endings(&mut after).await;
    }
}

impl Login {
    /// A session is looked for in the store: for as long as one may last, others' endings matter.
    pub(super) fn note_search(&self, now: Timestamp) {
        self.shared.searched.fetch_max(now.as_millis(), Relaxed);
    }

    /// Takes over what others have ended since the last time.
    async fn read_endings(&self, after: &mut u64) {
        let Some(store) = &self.store else { return };
        let searched = Timestamp::from_millis(self.shared.searched.load(Relaxed));
        let now = self.surroundings.clock.now().wall;
        if now >= searched.plus(self.config.lifetime) {
            return;
        }
        // What ended before was not found any more by whatever is believed now.
        let within = self.config.ttl.saturating_add(UNDER_WAY);
        while let Ok(RevokedPage { upto, sessions, more }) = store.endings(*after, within).await {
            let until = self.believed_until(now, now);
            for session in sessions {
                self.shared.ended.end(session, now, until);
            }
            *after = upto;
            if !more {
                return;
            }
        }
    }
}
