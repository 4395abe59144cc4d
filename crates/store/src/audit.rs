//! Audit log: who did what to whom.
//!
//! Owns: entries in a chain of digests, appended in the transaction of the change they describe
//! ([`Audited`], [`AuditedBy`]), verification of the chain, and reads by filter ([`AuditFilter`]).
//! Does not own: which changes need an entry, receivers of the log ([`crate::audit_receivers`]), which
//! entries expire ([`crate::audit_retention`]).
//!
//! The digest of each entry covers the entry before it. An operator who keeps a copy of the last
//! digest elsewhere can detect any later modification. No code here updates or deletes entries.

use std::mem;

use auth::time::Timestamp;
use aws_lc_rs::digest;
use serde_json::{Map, Value};
use sqlx::Row as _;
use sqlx::any::AnyRow;

pub use crate::announcements::AuditEntry;
use crate::columns::{StoredDigest, batches, millis, timestamp, unsigned, value_tuples};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Maximum number of entries in one read.
const PAGE: u32 = 1_000;
/// The digest that the first entry follows. A new database has it as its last digest.
const GENESIS_DIGEST: StoredDigest = StoredDigest([0; 32]);

/// Columns of an entry, in the order of [`read_record`].
const COLUMNS: &str = "seq, at, actor, action, target, detail, user_id, client_id, digest";
/// Largest distance, in entries, between two entries whose times are not in the order of the log.
const OUT_OF_ORDER: u32 = 1_000;

/// Which entries to read. Fields that are `None` match all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditFilter<'a> {
    /// Id of the user whom the entries concern.
    pub user_id: Option<&'a str>,
    /// Id of the client that they concern.
    pub client_id: Option<&'a str>,
    /// Who acted, in the form of [`AuditEntry::actor`].
    pub actor: Option<&'a str>,
    /// Their action.
    pub action: Option<&'a str>,
    /// Only entries of this time or later.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
}

impl AuditFilter<'_> {
    /// Columns that are compared with a text, the most selective first.
    fn conditions(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("user_id", self.user_id),
            ("client_id", self.client_id),
            ("actor", self.actor),
            ("action", self.action),
        ]
    }

    /// The statement that reads the entries. Its parameters: the numbers after which and up to
    /// which to read, the maximum number of entries, the times of the filter, then its texts.
    ///
    /// Only the first text is compared in a form that an index serves. Otherwise the database, which
    /// may have no statistics, could choose an index that most entries match.
    pub fn statement(&self) -> String {
        let stated = self.conditions().into_iter().filter(|(_, text)| text.is_some());
        let conditions =
            stated.zip(FIRST_TEXT..).enumerate().map(|(rank, ((column, _), place))| match rank {
                0 => format!(" AND {column} = ${place}"),
                _ => format!(" AND ({column} || '') = ${place}"),
            });
        let conditions: String = conditions.collect();
        format!(
            "SELECT {COLUMNS} FROM audit_log WHERE seq > $1 AND seq <= $2 AND at >= $4 AND at < $5{conditions} \
             ORDER BY seq LIMIT $3"
        )
    }
}

/// Number of the first parameter with a text, in [`AuditFilter::statement`].
const FIRST_TEXT: usize = 6;

/// Which end of a range of times.
#[derive(Clone, Copy)]
pub(crate) enum BoundSide {
    First,
    Last,
}

fn read_record(row: &AnyRow) -> Result<AuditRecord, StoreError> {
    Ok(AuditRecord {
        seq: unsigned(row.try_get(0)?),
        entry: AuditEntry {
            at: timestamp(row.try_get(1)?),
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            target: row.try_get(4)?,
            detail: row.try_get(5)?,
            user_id: row.try_get(6)?,
            client_id: row.try_get(7)?,
        },
        digest: StoredDigest::read(row, 8)?,
    })
}

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

/// A change together with audit entries that depend on its output, in one transaction.
#[derive(Debug, Clone)]
pub struct AuditedBy<C, F> {
    /// The change to make.
    pub change: C,
    /// The entries for an output. It has no effects: it is called again after a rollback.
    pub entries: F,
}

impl<C: Change, F> Change for AuditedBy<C, F>
where
    F: Fn(&C::Output) -> Vec<AuditEntry> + Send + Sync + 'static,
{
    type Output = C::Output;
    const LOCKS_HEAD: bool = C::LOCKS_HEAD;

    fn assigns_names(&self) -> bool {
        self.change.assigns_names()
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<C::Output, StoreError> {
        let output = self.change.apply(tx).await?;
        for entry in (self.entries)(&output) {
            tx.queue_audit_entry(&entry);
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
            let insert =
                format!("INSERT INTO audit_log ({COLUMNS}) VALUES {}", value_tuples(some.len(), 9, ""));
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for AuditRecord { seq, entry, digest } in some {
                insert = insert
                    .bind(i64::try_from(*seq).unwrap_or(i64::MAX))
                    .bind(millis(entry.at))
                    .bind(&entry.actor)
                    .bind(&entry.action)
                    .bind(&entry.target)
                    .bind(&entry.detail)
                    .bind(&entry.user_id)
                    .bind(&entry.client_id)
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
        self.audit_entries(&AuditFilter::default(), after, PAGE).await
    }

    /// At most `limit` entries after `after` that match the filter, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when a read fails.
    pub async fn audit_entries(
        &self,
        filter: &AuditFilter<'_>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let first = match filter.since {
            Some(since) => self.audit_bound(BoundSide::First, since).await?,
            None => Some(0),
        };
        let last = match filter.until {
            Some(until) => self.audit_bound(BoundSide::Last, until).await?,
            None => Some(i64::MAX),
        };
        let (Some(first), Some(last)) = (first, last) else { return Ok(Vec::new()) };
        let after = i64::try_from(after).unwrap_or(i64::MAX).max(first.saturating_sub(1));
        let ask = sqlx::query(sqlx::AssertSqlSafe(filter.statement()))
            .bind(after)
            .bind(last)
            .bind(i64::from(limit))
            .bind(filter.since.map_or(0, millis))
            .bind(filter.until.map_or(i64::MAX, millis));
        let texts = filter.conditions().into_iter().filter_map(|(_, text)| text);
        let ask = texts.fold(ask, |ask, text| ask.bind(text.to_owned()));
        self.readers().fetch_all(ask).await?.iter().map(read_record).collect()
    }

    /// Sequence number of the first entry since a time, or of the last one before it. `None`: there
    /// is none.
    ///
    /// The clocks of nodes differ, so times are not in the order of the numbers. The number is a
    /// bound, and each entry is compared too.
    pub(crate) async fn audit_bound(
        &self,
        side: BoundSide,
        at: Timestamp,
    ) -> Result<Option<i64>, StoreError> {
        let (end, condition, order) = match side {
            BoundSide::First => ("MIN", ">=", "at, seq"),
            BoundSide::Last => ("MAX", "<", "at DESC, seq DESC"),
        };
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {end}(near.seq) FROM (SELECT seq FROM audit_log WHERE at {condition} $1 \
             ORDER BY {order} LIMIT {OUT_OF_ORDER}) near"
        )))
        .bind(millis(at));
        Ok(self.readers().fetch_one(ask).await?.try_get(0)?)
    }

    /// Where the log begins.
    pub(crate) async fn audit_tail(&self) -> Result<AuditTail, StoreError> {
        let ask = sqlx::query("SELECT seq, digest, at FROM audit_tail WHERE id = 1");
        let row = self.readers().fetch_one(ask).await?;
        Ok(AuditTail {
            seq: unsigned(row.try_get(0)?),
            digest: StoredDigest::read_optional(&row, 1)?.unwrap_or(GENESIS_DIGEST),
            moved_at: timestamp(row.try_get(2)?),
        })
    }

    /// Verifies the chain from its beginning, at least up to the head. If entries have expired, the
    /// log must have the entry that says so ([`crate::audit_retention`]).
    ///
    /// # Errors
    /// [`StoreError`] when a read fails. A broken chain is not an error but a result,
    /// [`BrokenChain`].
    pub async fn verify_audit_log(&self) -> Result<Result<VerifiedLog, BrokenChain>, StoreError> {
        loop {
            let tail = self.audit_tail().await?;
            let verified = self.verify_after(&tail).await?;
            // Entries that expired meanwhile may have been deleted before they were read. The
            // beginning moves once a day, so this ends.
            if verified.is_ok() || self.audit_tail().await? == tail {
                return Ok(verified);
            }
        }
    }

    async fn verify_after(&self, tail: &AuditTail) -> Result<Result<VerifiedLog, BrokenChain>, StoreError> {
        // The head is read first: entries written meanwhile come after it.
        let head =
            self.readers().fetch_one(sqlx::query("SELECT seq, digest FROM audit_head WHERE id = 1")).await?;
        let (known, digest) = (unsigned(head.try_get(0)?), StoredDigest::read(&head, 1)?);
        let mut chain = Chain::after(tail);
        let mut is_recorded = tail.seq == 0;
        loop {
            if chain.seq == known && chain.digest != digest {
                return Ok(Err(BrokenChain(chain.seq)));
            }
            let page = self.audit_log(chain.seq).await?;
            if page.is_empty() {
                return Ok(if chain.seq < known {
                    // The head counts more entries: the last ones were deleted.
                    Err(BrokenChain(chain.seq + 1))
                } else if is_recorded {
                    Ok(VerifiedLog { expired: tail.seq, last: chain.seq, digest: chain.digest })
                } else {
                    // Entries were deleted, but none has expired.
                    Err(BrokenChain(tail.seq + 1))
                });
            }
            for recorded in page {
                if let Err(broken) = chain.follow(&recorded) {
                    return Ok(Err(broken));
                }
                is_recorded |= tail.is_recorded_by(&recorded.entry);
            }
        }
    }

    /// Verifies the chain from its beginning up to the entry `last`. Returns the digest of that
    /// entry.
    pub(crate) async fn verify_audit_entries(
        &self,
        tail: &AuditTail,
        last: u64,
    ) -> Result<Result<StoredDigest, BrokenChain>, StoreError> {
        let mut chain = Chain::after(tail);
        loop {
            let page = self.audit_log(chain.seq).await?;
            if page.is_empty() {
                return Ok(Err(BrokenChain(chain.seq + 1)));
            }
            for recorded in page {
                if let Err(broken) = chain.follow(&recorded) {
                    return Ok(Err(broken));
                }
                if chain.seq == last {
                    return Ok(Ok(chain.digest));
                }
            }
        }
    }
}

/// A log whose chain is unbroken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedLog {
    /// Number of the last entry that has expired; 0: none has.
    pub expired: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Digest of the last entry.
    pub digest: StoredDigest,
}

/// Where the log begins: after the last entry that has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditTail {
    /// Number of that entry; 0: none has expired.
    pub(crate) seq: u64,
    /// Its digest, which the next entry follows.
    pub(crate) digest: StoredDigest,
    /// When it expired.
    pub(crate) moved_at: Timestamp,
}

/// Member of the details of an entry about expiry: number of the last expired entry.
const LAST: &str = "last";
/// Member of these details: digest of that entry, in hexadecimal digits.
const DIGEST: &str = "digest";

impl AuditTail {
    /// Who records that entries have expired, and as what. No operator and no user can write it.
    pub(crate) const ACTOR: &str = "system";
    pub(crate) const ACTION: &str = "audit.expire";

    /// The details that record this beginning in the log.
    pub(crate) fn details(&self) -> Map<String, Value> {
        let digest: Vec<String> = self.digest.0.iter().map(|byte| format!("{byte:02x}")).collect();
        Map::from_iter([(LAST.to_owned(), self.seq.into()), (DIGEST.to_owned(), digest.concat().into())])
    }

    /// Whether an entry of the log records this beginning. The chain covers the entry, so a beginning
    /// that was moved by other means is noticed.
    fn is_recorded_by(&self, entry: &AuditEntry) -> bool {
        if entry.actor != Self::ACTOR || entry.action != Self::ACTION {
            return false;
        }
        let details: Map<String, Value> = serde_json::from_str(&entry.detail).unwrap_or_default();
        self.details().iter().all(|(name, value)| details.get(name) == Some(value))
    }
}

/// A chain that is followed from entry to entry.
struct Chain {
    seq: u64,
    digest: StoredDigest,
}

impl Chain {
    fn after(tail: &AuditTail) -> Self {
        Self { seq: tail.seq, digest: tail.digest }
    }

    fn follow(&mut self, recorded: &AuditRecord) -> Result<(), BrokenChain> {
        self.seq += 1;
        self.digest = chained_digest(&self.digest, self.seq, &recorded.entry);
        if (recorded.seq, recorded.digest) == (self.seq, self.digest) {
            Ok(())
        } else {
            Err(BrokenChain(self.seq))
        }
    }
}

/// The digest of an entry that follows `before`. Each text is preceded by its length, so different
/// entries never produce the same bytes. `docs/guides/provider-audit.md` describes it for receivers.
fn chained_digest(before: &StoredDigest, seq: u64, entry: &AuditEntry) -> StoredDigest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(before.as_slice());
    context.update(&seq.to_be_bytes());
    context.update(&millis(entry.at).to_be_bytes());
    let mut update = |text: &str| {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    };
    for text in [&entry.actor, &entry.action, &entry.target, &entry.detail] {
        update(text);
    }
    // Entries of older programs have neither.
    if entry.user_id.is_some() || entry.client_id.is_some() {
        for id in [&entry.user_id, &entry.client_id] {
            update(id.as_deref().unwrap_or_default());
        }
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    StoredDigest(digest)
}
