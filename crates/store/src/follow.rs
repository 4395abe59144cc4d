//! How caches follow this database: they ask it what [`coherence`] has them ask.
//!
//! Owns: the answers. Does not own: the log ([`crate::invalidation`]), who follows it ([`crate::followers`]).

use coherence::confirm::Confirm;
use coherence::denials::{Denial, Denials};
use coherence::drive::{Copies, Log};
use coherence::roster::Follower;
use coherence::{ConsumerId, Epoch, Head, Tag};

use crate::followers;
use crate::store::{MAX_EVENTS, Store};

/// How caches ask the log: what cannot be read is no answer, and whoever asked stops believing.
impl Log for Store {
    async fn head(&self) -> Option<Head> {
        self.prove_head().await.ok()
    }

    async fn listed(&self, followers: &[ConsumerId]) -> Option<(Head, Vec<ConsumerId>)> {
        self.prove_listed(followers).await.ok()
    }

    async fn note(&self, who: &[Follower]) -> bool {
        followers::note(self, who).await.is_ok()
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<coherence::Event>)> {
        let before = Self::head(self).await.ok()?.epoch;
        let mut events = Vec::new();
        while events.len() < limit {
            let from = events.last().map_or(after, |event: &coherence::Event| event.seq);
            let left = u32::try_from(limit - events.len()).unwrap_or(u32::MAX);
            let page = self.events(from, left).await.ok()?;
            if page.is_empty() {
                break;
            }
            events.extend(page.into_iter().map(coherence::Event::from));
        }
        // A restore in between would have mixed two histories.
        (Self::head(self).await.ok()?.epoch == before).then_some((before, events))
    }
}

/// How caches ask that have nothing else to go by.
impl Confirm for Store {
    async fn denied(&self, tags: Vec<Tag>) -> Option<(Head, Vec<(Tag, Denial)>)> {
        let (head, denied) = self.confirm(tags).await.ok()?;
        Some((head, denied.into_iter().map(|denied| (denied.tag, denied.into())).collect()))
    }
}

/// How caches that verify credentials themselves learn what is denied.
impl Copies for Store {
    async fn load(&self, denials: &Denials) -> Option<Head> {
        let head = Log::head(self).await?;
        let mut after = None;
        loop {
            let page = self.denied(after, MAX_EVENTS).await.ok()?;
            let Some(last) = page.last() else { break };
            after = Some(last.tag);
            for denied in page {
                denials.add(denied.tag, denied.into());
            }
        }
        // What a restore in between has put there is of another history.
        let now = Log::head(self).await?;
        (now.epoch == head.epoch).then_some(head)
    }
}
