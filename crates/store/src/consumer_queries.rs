//! Follow: answers the queries of consumers of this database's revocation log, as [`coherence`]
//! defines them.
//!
//! Owns: the answers. Does not own: the log ([`crate::revocation_log`]), the list of followers
//! ([`crate::followers`]).

use coherence::consumers::ConsumerRecord;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops::{DenylistSource, Log};
use coherence::query::{CopyProgress, DenylistCopier, LogAnswer};
use coherence::revocation_query::RevocationQuery;
use coherence::{ConsumerId, Epoch, LogHead, Tag};
use tokio::time::Instant;

use crate::error::StoreError;
use crate::followers::{self, FollowerRow};
use crate::store::{MAX_EVENTS, Store};

/// The side of the log that consumers query. If the database cannot be read, there is no answer,
/// and the consumer stops using its cache.
impl Store {
    /// All entries of the list of followers, by name. For display only: answers to consumers are
    /// based on proven reads ([`Store::prove_followers`]).
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn followers(&self) -> Result<Vec<FollowerRow>, StoreError> {
        self.readers()
            .fetch_all(followers::select_all(self.dialect()))
            .await?
            .iter()
            .map(followers::read)
            .collect()
    }

    /// Writes the followers to the list ([`followers::write`]), and records whether the database
    /// accepted it.
    async fn note_followers(&self, followers: &[ConsumerRecord]) -> Result<(), StoreError> {
        let noted = followers::write(self.writers(), self.dialect(), followers).await;
        self.storage_health().record(&noted, Instant::now());
        noted
    }
}

impl Log for Store {
    async fn head(&self) -> Option<LogHead> {
        self.prove_head().await.ok()
    }

    async fn head_and_listed(&self, followers: &[ConsumerId]) -> Option<(LogHead, Vec<ConsumerId>)> {
        self.prove_listed(followers).await.ok()
    }

    async fn record_consumers(&self, who: &[ConsumerRecord]) -> bool {
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
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let (head, denied) = self.prove_tags(tags).await.ok()?;
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
impl DenylistSource for Store {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let mut copying = DenylistCopier::default();
        loop {
            let page = self.page(copying.after(), MAX_EVENTS).await.ok()?;
            match copying.add_page(page, denials) {
                CopyProgress::More => {}
                CopyProgress::Complete(head) => return Some(head),
                CopyProgress::Invalid => return None,
            }
        }
    }
}
