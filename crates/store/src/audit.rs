//! Audit log: who did what to whom.
//!
//! Owns: entries in a chain of digests, appended in the transaction of the change they describe
//! ([`Audited`]), and verification of the chain. Does not own: which changes need an entry.
//!
//! The digest of each entry covers the entry before it. An operator who keeps a copy of the last
//! digest elsewhere can detect any later modification. No code here updates or deletes entries.

use std::mem;

use aws_lc_rs::digest;
use sqlx::Row as _;

pub use crate::announcements::AuditEntry;
use crate::columns::{StoredDigest, batches, millis, timestamp, unsigned, value_tuples};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Maximum number of entries in one read.
const PAGE: u32 = 1_000;
/// The digest that the first entry follows. A new database has it as its last digest.
const GENESIS_DIGEST: StoredDigest = StoredDigest([0; 32]);

/// An entry with its position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Sequence number, from 1, without gaps.
    pub seq: u64,
    /// The entry itself.
    pub entry: AuditEntry,
    /// Digest over this entry and all before it.
    pub digest: StoredDigest,
}

/// The chain is broken. The number is that of the first entry that does not follow from the one
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("audit log: chain broken at entry {0}: it or an earlier entry was modified or deleted")]
pub struct BrokenChain(pub u64);

/// A change together with its audit entry, in one transaction. The entry is written only if the
/// change took effect ([`Change::took_effect`]).
#[derive(Debug, Clone)]
pub struct Audited<C> {
    /// The change to make.
    pub change: C,
    /// The entry to write.
    pub entry: AuditEntry,
}

impl<C: Change> Change for Audited<C> {
    type Output = C::Output;
    const LOCKS_HEAD: bool = C::LOCKS_HEAD;

    fn assigns_names(&self) -> bool {
        self.change.assigns_names()
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<C::Output, StoreError> {
        let output = self.change.apply(tx).await?;
        if C::took_effect(&output) {
            tx.queue_audit_entry(&self.entry);
        }
        Ok(output)
    }

    fn took_effect(output: &Self::Output) -> bool {
        C::took_effect(output)
    }
}

/// An entry without a change.
impl Change for AuditEntry {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.queue_audit_entry(self);
        Ok(())
    }
}

impl Tx<'_> {
    /// Queues an entry, to be written at the end of the transaction.
    fn queue_audit_entry(&mut self, entry: &AuditEntry) {
        self.entries.push(entry.clone());
    }

    /// Chains the queued entries to the log and writes them.
    pub(crate) async fn write_audit_entries(&mut self) -> Result<(), StoreError> {
        let entries = mem::take(&mut self.entries);
        if entries.is_empty() {
            return Ok(());
        }
        // The update locks the row, so the next writer waits until this one has stored its last
        // digest.
        let head = sqlx::query("UPDATE audit_head SET seq = seq + $1 WHERE id = 1 RETURNING seq, digest")
            .bind(i64::try_from(entries.len()).unwrap_or(i64::MAX))
            .fetch_one(&mut *self.connection)
            .await?;
        let before = unsigned(head.try_get(0)?) - entries.len() as u64;
        let mut last = StoredDigest::read(&head, 1)?;
        let chain = |(entry, seq): (AuditEntry, u64)| {
            last = chained_digest(&last, seq, &entry);
            AuditRecord { seq, entry, digest: last }
        };
        let chained: Vec<_> = entries.into_iter().zip(before + 1..).map(chain).collect();
        sqlx::query("UPDATE audit_head SET digest = $1 WHERE id = 1")
            .bind(last.as_slice())
            .execute(&mut *self.connection)
            .await?;
        for some in batches(&chained) {
            let insert = format!(
                "INSERT INTO audit_log (seq, at, actor, action, target, detail, digest) VALUES {}",
                value_tuples(some.len(), 7, "")
            );
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for AuditRecord { seq, entry, digest } in some {
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
    /// Entries after `after`, the oldest first, at most 1 000.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn audit_log(&self, after: u64) -> Result<Vec<AuditRecord>, StoreError> {
        let ask = sqlx::query(
            "SELECT seq, at, actor, action, target, detail, digest FROM audit_log \
             WHERE seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::from(PAGE));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter()
            .map(|row| {
                Ok(AuditRecord {
                    seq: unsigned(row.try_get(0)?),
                    entry: AuditEntry {
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

    /// Verifies the chain from its beginning, at least up to the head. Returns the number of
    /// entries and the last digest.
    ///
    /// # Errors
    /// [`StoreError`] when a read fails. A broken chain is not an error but a result,
    /// [`BrokenChain`].
    pub async fn verify_audit_log(&self) -> Result<Result<(u64, StoredDigest), BrokenChain>, StoreError> {
        // The head is read first: entries written meanwhile come after it.
        let head =
            self.readers().fetch_one(sqlx::query("SELECT seq, digest FROM audit_head WHERE id = 1")).await?;
        let (known, digest) = (unsigned(head.try_get(0)?), StoredDigest::read(&head, 1)?);
        let (mut seq, mut last) = (0, GENESIS_DIGEST);
        loop {
            if seq == known && last != digest {
                return Ok(Err(BrokenChain(seq)));
            }
            let page = self.audit_log(seq).await?;
            if page.is_empty() {
                // If the head counts more entries, the last ones were deleted.
                return Ok(if seq < known { Err(BrokenChain(seq + 1)) } else { Ok((seq, last)) });
            }
            for recorded in page {
                seq += 1;
                last = chained_digest(&last, seq, &recorded.entry);
                if (recorded.seq, recorded.digest) != (seq, last) {
                    return Ok(Err(BrokenChain(seq)));
                }
            }
        }
    }
}

/// The digest of an entry that follows `before`. Each text is preceded by its length, so different
/// entries never produce the same bytes.
fn chained_digest(before: &StoredDigest, seq: u64, entry: &AuditEntry) -> StoredDigest {
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
