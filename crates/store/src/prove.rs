//! Reading what is certain: the head, and what is read with it, of a database that is in force ([`crate::proof`]).

use std::collections::BTreeSet;

use coherence::ConsumerId;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;
use crate::followers::{self, Listed};
use crate::health;
use crate::invalidation::{self, AnnouncedEvent, Denied, LogHead, Tag};
use crate::pooled::lost;
use crate::proof::{ByChange, Proof, ProofQuestion, Proven};
use crate::store::{MAX_EVENTS, Store};

impl Store {
    /// The head, of a database that is in force: everything that was durable when this was called is counted in it.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn prove_head(&self) -> Result<LogHead, StoreError> {
        match self.proof() {
            Proof::Message(proof) => {
                let asked = proof.heads.ask().await;
                let head = asked.unwrap_or_else(|| Err(lost("the head's reading was abandoned")));
                health::note(self.proving(), &head);
                head
            }
            Proof::Reading | Proof::Change => Ok(self.prove(ProofQuestion::Nothing).await?.0),
        }
    }

    /// Which of these are denied, in the same way, with the head that says how much of the log that is at least.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn confirm(&self, tags: Vec<Tag>) -> Result<(LogHead, Vec<Denied>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Tags(tags)).await?;
        Ok((head, each(&rows, invalidation::read_denied)?))
    }

    /// What is denied as long as a credential it concerns could be valid, in the same way: by tag, beginning after `after`, at most
    /// `limit` of it, and at most 10 000. Whoever reads page by page misses nothing of up to the least of the heads.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn prove_denied(
        &self,
        after: Option<Tag>,
        limit: u32,
    ) -> Result<(LogHead, Vec<Denied>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Page(after, limit.min(MAX_EVENTS))).await?;
        Ok((head, each(&rows, invalidation::read_denied)?))
    }

    /// Events after `after`, the oldest first, at most `limit`, in the same way, with the head of their history.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn prove_events(
        &self,
        after: u64,
        limit: u32,
    ) -> Result<(LogHead, Vec<AnnouncedEvent>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Range(after, limit)).await?;
        Ok((head, each(&rows, invalidation::read_event)?))
    }

    /// Everybody in the list of followers, by name, in the same way, with the head.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn prove_followers(&self) -> Result<(LogHead, Vec<Listed>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Followers(self.dialect())).await?;
        Ok((head, each(&rows, followers::read)?))
    }

    /// Which of these stand in the list of followers and are not about to be struck off, in the same way, with the head.
    pub(crate) async fn prove_listed(
        &self,
        followers: &[ConsumerId],
    ) -> Result<(LogHead, Vec<ConsumerId>), StoreError> {
        // Without a change nothing is proved there, and changes are what is not made now.
        if matches!(self.proof(), Proof::Change) {
            return Err(lost("nothing can be proved while no changes are made"));
        }
        let (head, rows) = self.prove(ProofQuestion::Listed).await?;
        let ids = rows.iter().flatten().map(|row| row.try_get::<Vec<u8>, _>(0));
        let ids: BTreeSet<_> = ids.collect::<Result<_, _>>()?;
        Ok((head, followers.iter().copied().filter(|follower| ids.contains(&follower.0[..])).collect()))
    }

    /// Asks the head and then the rest, and proves it. Takes note of a database that does not.
    async fn prove(&self, asked: ProofQuestion) -> Result<Proven, StoreError> {
        let proven = match self.proof() {
            Proof::Reading => self.read(&asked).await,
            Proof::Message(proof) => proof.others.prove(&asked).await,
            // Which takes note itself.
            Proof::Change => return self.write(ByChange(asked)).await,
        };
        health::note(self.proving(), &proven);
        proven
    }

    async fn read(&self, asked: &ProofQuestion) -> Result<Proven, StoreError> {
        let head = self.head().await?;
        let mut answers = Vec::new();
        for ask in asked.asks() {
            answers.push(self.readers().all(ask).await?);
        }
        Ok((head, answers))
    }
}

fn each<T>(
    rows: &[Vec<AnyRow>],
    read: impl Fn(&AnyRow) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows.iter().flatten().map(read).collect()
}
