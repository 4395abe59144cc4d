//! The audit log: who did what to whom.
//!
//! Owns: entries in a chain of digests, appended in the transaction of what they tell of ([`Audited`]), and the check of the
//! chain. Does not own: what is worth an entry.
//!
//! Each entry's digest covers the one before it, so whoever keeps a copy of the last digest elsewhere notices any later change.
//! Nothing here updates or deletes.

use std::mem;

use aws_lc_rs::digest;
use sqlx::Row as _;

pub use crate::announcements::AnnouncedEntry;
use crate::error::StoreError;
use crate::store::Store;
use crate::value::{StoredDigest, millis, number, pieces, rows, timestamp};
use crate::write::{Change, Tx};

/// Entries that are read at once, at most.
const PAGE: u32 = 1_000;
/// What the first entry follows; a new database has it as its last digest.
const NOTHING: StoredDigest = StoredDigest([0; 32]);

/// An entry in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// From 1, without holes.
    pub seq: u64,
    /// What happened.
    pub entry: AnnouncedEntry,
    /// Of the entry and all before it.
    pub digest: StoredDigest,
}

/// Where the chain is broken: the first entry that does not follow from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log is not as it was written: entry {0} was changed or is missing, or one before it is")]
pub struct Broken(pub u64);

/// A change that is told of, made and told in one transaction; told only if it happened ([`Change::happened`]).
#[derive(Debug, Clone)]
pub struct Audited<C> {
    /// What is done.
    pub change: C,
    /// What is told.
    pub entry: AnnouncedEntry,
}

impl<C: Change> Change for Audited<C> {
    type Output = C::Output;
    const LOCKS_HEAD: bool = C::LOCKS_HEAD;

    fn gives_names(&self) -> bool {
        self.change.gives_names()
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<C::Output, StoreError> {
        let output = self.change.apply(tx).await?;
        if C::happened(&output) {
            tx.record(&self.entry);
        }
        Ok(output)
    }

    fn happened(output: &Self::Output) -> bool {
        C::happened(output)
    }
}

/// Nothing but an entry.
impl Change for AnnouncedEntry {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.record(self);
        Ok(())
    }
}

impl Tx<'_> {
    /// Writes an entry when the transaction ends.
    fn record(&mut self, entry: &AnnouncedEntry) {
        self.entries.push(entry.clone());
    }

    /// Chains the entries to those before them and writes them.
    pub(crate) async fn write_entries(&mut self) -> Result<(), StoreError> {
        let entries = mem::take(&mut self.entries);
        if entries.is_empty() {
            return Ok(());
        }
        // Taking the numbers takes the row's lock: the next entry waits to learn the digest of the last.
        let head = sqlx::query("UPDATE audit_head SET seq = seq + $1 WHERE id = 1 RETURNING seq, digest")
            .bind(i64::try_from(entries.len()).unwrap_or(i64::MAX))
            .fetch_one(&mut *self.connection)
            .await?;
        let before = number(head.try_get(0)?) - entries.len() as u64;
        let mut last = StoredDigest::read(&head, 1)?;
        let chain = |(entry, seq): (AnnouncedEntry, u64)| {
            last = following(&last, seq, &entry);
            Recorded { seq, entry, digest: last }
        };
        let chained: Vec<_> = entries.into_iter().zip(before + 1..).map(chain).collect();
        sqlx::query("UPDATE audit_head SET digest = $1 WHERE id = 1")
            .bind(last.as_slice())
            .execute(&mut *self.connection)
            .await?;
        for some in pieces(&chained) {
            let insert = format!(
                "INSERT INTO audit_log (seq, at, actor, action, target, detail, digest) VALUES {}",
                rows(some.len(), 7, "")
            );
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for Recorded { seq, entry, digest } in some {
                insert = insert
                    .bind(i64::try_from(*seq).unwrap_or(i64::MAX))
                    .bind(millis(entry.at))
                    .bind(&entry.actor)
                    .bind(&entry.action)
                    .bind(&entry.target)
                    .bind(&entry.detail)
                    .bind(digest.as_slice());
            }
            insert.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}

impl Store {
    /// Entries after `after`, the oldest first; at most 1 000.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn audit_log(&self, after: u64) -> Result<Vec<Recorded>, StoreError> {
        let ask = sqlx::query(
            "SELECT seq, at, actor, action, target, detail, digest FROM audit_log \
             WHERE seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::from(PAGE));
        let rows = self.readers().all(ask).await?;
        rows.iter()
            .map(|row| {
                Ok(Recorded {
                    seq: number(row.try_get(0)?),
                    entry: AnnouncedEntry {
                        at: timestamp(row.try_get(1)?),
                        actor: row.try_get(2)?,
                        action: row.try_get(3)?,
                        target: row.try_get(4)?,
                        detail: row.try_get(5)?,
                    },
                    digest: StoredDigest::read(row, 6)?,
                })
            })
            .collect()
    }

    /// Follows the chain from its beginning, at least as far as it is known to go; answers the number of entries and the last digest.
    ///
    /// # Errors
    /// [`StoreError`]; a broken chain is an answer.
    pub async fn verify_audit_log(&self) -> Result<Result<(u64, StoredDigest), Broken>, StoreError> {
        // Before the entries: what comes meanwhile is beyond it.
        let head = self.readers().one(sqlx::query("SELECT seq, digest FROM audit_head WHERE id = 1")).await?;
        let (known, digest) = (number(head.try_get(0)?), StoredDigest::read(&head, 1)?);
        let (mut seq, mut last) = (0, NOTHING);
        loop {
            if seq == known && last != digest {
                return Ok(Err(Broken(seq)));
            }
            let page = self.audit_log(seq).await?;
            if page.is_empty() {
                // The last ones were taken out.
                return Ok(if seq < known { Err(Broken(seq + 1)) } else { Ok((seq, last)) });
            }
            for recorded in page {
                seq += 1;
                last = following(&last, seq, &recorded.entry);
                if (recorded.seq, recorded.digest) != (seq, last) {
                    return Ok(Err(Broken(seq)));
                }
            }
        }
    }
}

/// The digest of an entry that follows another. Every text is preceded by its length: no two entries write the same bytes.
fn following(before: &StoredDigest, seq: u64, entry: &AnnouncedEntry) -> StoredDigest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(before.as_slice());
    context.update(&seq.to_be_bytes());
    context.update(&millis(entry.at).to_be_bytes());
    for text in [&entry.actor, &entry.action, &entry.target, &entry.detail] {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    StoredDigest(digest)
}
