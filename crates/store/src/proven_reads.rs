//! Proven reads: the head and what is read with it, from a database server that can still commit
//! ([`crate::proof`]).

use std::collections::BTreeSet;

use coherence::ConsumerId;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;
use crate::followers::{self, FollowerRow};
use crate::health;
use crate::pooled_connection::timed_out;
use crate::proof::{ByChange, Proof, ProofQuestion, Proven};
use crate::revocation_log::{self, DenylistRow, LogHead, RevocationEvent, Tag};
use crate::store::{MAX_EVENTS, Store};

impl Store {
    /// The head, by a proven read. It covers every event that was durable when this was called.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot prove the read.
    pub async fn prove_head(&self) -> Result<LogHead, StoreError> {
        match self.proof() {
            Proof::Message(proof) => {
                let result = proof.heads.read().await;
                let head = result
                    .unwrap_or_else(|| Err(timed_out("reading the head of the revocation log was aborted")));
                health::record_outcome(self.proof_outage(), &head);
                head
            }
            Proof::PlainRead | Proof::Change => Ok(self.prove(ProofQuestion::HeadOnly).await?.0),
        }
    }

    /// Those of the tags that are on the denylist, by a proven read. The denylist contains at least
    /// all events up to the returned head.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot prove the read.
    pub async fn prove_tags(&self, tags: Vec<Tag>) -> Result<(LogHead, Vec<DenylistRow>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Tags(tags)).await?;
        Ok((head, read_rows(&rows, revocation_log::read_denied)?))
    }

    /// Denylist entries in the order of their tags, starting after `after`, by a proven read.
    /// Returns at most `limit` entries, and at most 10 000. A caller that reads page after page
    /// misses no event up to the smallest of the returned heads.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot prove the read.
    pub async fn prove_denied(
        &self,
        after: Option<Tag>,
        limit: u32,
    ) -> Result<(LogHead, Vec<DenylistRow>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Page(after, limit.min(MAX_EVENTS))).await?;
        Ok((head, read_rows(&rows, revocation_log::read_denied)?))
    }

    /// At most `limit` events after `after`, the oldest first, with the head, by a proven read.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot prove the read.
    pub async fn prove_events(
        &self,
        after: u64,
        limit: u32,
    ) -> Result<(LogHead, Vec<RevocationEvent>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Range(after, limit)).await?;
        Ok((head, read_rows(&rows, revocation_log::read_event)?))
    }

    /// All entries of the list of followers, by name, with the head, by a proven read.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot prove the read.
    pub async fn prove_followers(&self) -> Result<(LogHead, Vec<FollowerRow>), StoreError> {
        let (head, rows) = self.prove(ProofQuestion::Followers(self.dialect())).await?;
        Ok((head, read_rows(&rows, followers::read)?))
    }

    /// Those of the consumers that are listed and not marked for removal, with the head, by a
    /// proven read.
    pub(crate) async fn prove_listed(
        &self,
        followers: &[ConsumerId],
    ) -> Result<(LogHead, Vec<ConsumerId>), StoreError> {
        // This kind of proof needs a change, but the caller needs the list only when changes are
        // impossible.
        if matches!(self.proof(), Proof::Change) {
            return Err(timed_out("the database cannot prove reads while it accepts no changes"));
        }
        let (head, rows) = self.prove(ProofQuestion::ActiveFollowers).await?;
        let ids = rows.iter().flatten().map(|row| row.try_get::<Vec<u8>, _>(0));
        let ids: BTreeSet<_> = ids.collect::<Result<_, _>>()?;
        Ok((head, followers.iter().copied().filter(|follower| ids.contains(&follower.0[..])).collect()))
    }

    /// Reads the head, then the rest, and proves the read. Records the outcome.
    async fn prove(&self, question: ProofQuestion) -> Result<Proven, StoreError> {
        let proven = match self.proof() {
            Proof::PlainRead => self.read(&question).await,
            Proof::Message(proof) => proof.connections.prove(&question).await,
            // A write records its outcome itself.
            Proof::Change => return self.write(ByChange(question)).await,
        };
        health::record_outcome(self.proof_outage(), &proven);
        proven
    }

    async fn read(&self, question: &ProofQuestion) -> Result<Proven, StoreError> {
        let head = self.head().await?;
        let mut answers = Vec::new();
        for ask in question.statements() {
            answers.push(self.readers().fetch_all(ask).await?);
        }
        Ok((head, answers))
    }
}

fn read_rows<T>(
    rows: &[Vec<AnyRow>],
    read: impl Fn(&AnyRow) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows.iter().flatten().map(read).collect()
}
