//! Follow: answers the queries of consumers of this database's revocation log, as [`coherence`]
//! defines them.
//!
//! Owns: the answers. Does not own: the log ([`crate::invalidation`]), the list of followers
//! ([`crate::followers`]).

use coherence::consumers::Follower;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops::{DenylistCopy, Log};
use coherence::query::{CopyProgress, DenylistCopying, LogAnswer};
use coherence::revocation_query::RevocationQuery;
use coherence::{ConsumerId, Epoch, LogHead, Tag};
use tokio::time::Instant;

use crate::error::StoreError;
use crate::followers::{self, Listed};
use crate::store::{MAX_EVENTS, Store};

/// The side of the log that consumers query. If the database cannot be read, there is no answer,
/// and the consumer stops using its cache.
impl Store {
    /// All entries of the list of followers, by name. For display only: answers to consumers are
    /// based on proven reads ([`Store::prove_followers`]).
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn followers(&self) -> Result<Vec<Listed>, StoreError> {
        self.readers().all(followers::ask(self.dialect())).await?.iter().map(followers::read).collect()
    }

    /// Writes the followers to the list ([`followers::write`]), and records whether the database
    /// accepted it.
    async fn note_followers(&self, followers: &[Follower]) -> Result<(), StoreError> {
        let noted = followers::write(self.writers(), self.dialect(), followers).await;
        self.storing().note(&noted, Instant::now());
        noted
    }
}

impl Log for Store {
    async fn head(&self) -> Option<LogHead> {
        self.prove_head().await.ok()
    }

    async fn listed(&self, followers: &[ConsumerId]) -> Option<(LogHead, Vec<ConsumerId>)> {
        self.prove_listed(followers).await.ok()
    }

    async fn note(&self, who: &[Follower]) -> bool {
        self.note_followers(who).await.is_ok()
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<coherence::LogEvent>)> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let (head, events) = self.prove_events(after, limit).await.ok()?;
        Some((head.epoch, events.into_iter().map(coherence::LogEvent::from).collect()))
    }
}

/// For caches that have no other source.
impl RevocationQuery for Store {
    async fn denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let (head, denied) = self.confirm(tags).await.ok()?;
        Some((head, denied.into_iter().map(|denied| (denied.tag, denied.into())).collect()))
    }
}

impl Store {
    /// A page of at most `limit` denylist entries, starting after the tag `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn page(&self, after: Option<Tag>, limit: u32) -> Result<LogAnswer, StoreError> {
        let limit = limit.min(MAX_EVENTS);
        let (head, denied) = self.prove_denied(after, limit).await?;
        let more = denied.len() >= limit as usize;
        let denied = denied.into_iter().map(|denied| (denied.tag, denied.into())).collect();
        Ok(LogAnswer { head, denied, more })
    }
}

/// For caches that verify credentials themselves and need the whole denylist.
impl DenylistCopy for Store {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let mut copying = DenylistCopying::default();
        loop {
            let page = self.page(copying.after(), MAX_EVENTS).await.ok()?;
            match copying.take(page, denials) {
                CopyProgress::More => {}
                CopyProgress::Whole(head) => return Some(head),
                CopyProgress::Void => return None,
            }
        }
    }
}
