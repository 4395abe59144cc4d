//! Retention of the audit log: which entries expire, and the record of it in the log itself.
//!
//! Owns: the choice of the last entry that expires, and the change that moves the beginning of the
//! log behind it. Does not own: the chain and its verification ([`crate::audit`]), the deletion of the
//! rows ([`crate::expiry`]).
//!
//! Flow: `last entry before the time → receivers have it? → chain intact up to it? →
//! MoveAuditTail with an entry audit.expire → rows are deleted in batches`.
//!
//! The row `audit_tail` says after which entry the log begins, and which digest its first entry
//! follows. The same transaction appends an entry with that number and digest. So the chain covers
//! the beginning too: whoever deletes entries by other means must also append such an entry, which
//! the log then shows. Entries of a broken chain never expire, because they are evidence.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::audit::{AuditEntry, AuditTail, Audited, BoundSide, BrokenChain};
use crate::columns::{millis, unsigned};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Shortest time between two moves of the beginning: each appends an entry.
const INTERVAL: Duration = Duration::from_hours(24);
/// How many times as long as others an entry is kept that a receiver does not have.
const UNDELIVERED_KEPT: u32 = 2;

/// How long entries are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRetention {
    /// Older entries expire.
    pub keep: Duration,
    /// Names of the receivers without which an entry does not expire, until it is twice as old.
    pub receivers: Vec<String>,
}

/// Result of [`Store::expire_audit_entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditExpiry {
    /// Nothing has to expire now, or another node has just done it.
    NotDue,
    /// Entries have expired.
    Expired(ExpiredEntries),
    /// The entries that should expire are not the ones that were written. Nothing has expired.
    Broken(BrokenChain),
}

/// Entries that have expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredEntries {
    /// How many.
    pub count: u64,
    /// Number of the last one.
    pub last: u64,
    /// Receivers that will not get all of them, and how many each lacks.
    pub undelivered: Vec<(String, u64)>,
}

/// Moves the beginning of the log behind an entry. `false`: another node has moved it.
#[derive(Debug, Clone)]
struct MoveAuditTail {
    from: u64,
    to: AuditTail,
}

impl Change for MoveAuditTail {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let moved =
            sqlx::query("UPDATE audit_tail SET seq = $2, digest = $3, at = $4 WHERE id = 1 AND seq = $1")
                .bind(i64::try_from(self.from).unwrap_or(i64::MAX))
                .bind(i64::try_from(self.to.seq).unwrap_or(i64::MAX))
                .bind(self.to.digest.as_slice())
                .bind(millis(self.to.moved_at))
                .execute(&mut *tx.connection)
                .await?;
        Ok(moved.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

impl Store {
    /// Lets old entries of the audit log expire, at most once a day. [`Store::delete_expired`]
    /// deletes their rows.
    ///
    /// # Errors
    /// [`StoreError`] when a read or the change fails; nothing has expired then.
    pub async fn expire_audit_entries(
        &self,
        retention: &AuditRetention,
        now: Timestamp,
    ) -> Result<AuditExpiry, StoreError> {
        let tail = self.audit_tail().await?;
        if now < tail.moved_at.plus(INTERVAL) {
            return Ok(AuditExpiry::NotDue);
        }
        let lacking = self.positions(&retention.receivers).await?;
        let last = self.last_expired(retention.keep, &lacking, now).await?;
        if last <= tail.seq {
            return Ok(AuditExpiry::NotDue);
        }
        let digest = match self.verify_audit_entries(&tail, last).await? {
            Ok(digest) => digest,
            Err(broken) => return Ok(AuditExpiry::Broken(broken)),
        };
        let undelivered: Vec<_> = lacking
            .into_iter()
            .map(|(receiver, has)| (receiver, last.saturating_sub(has.max(tail.seq))))
            .filter(|(_, lacks)| *lacks > 0)
            .collect();
        let to = AuditTail { seq: last, digest, moved_at: now };
        let (from, count) = (tail.seq, last - tail.seq);
        let mut details = to.details();
        details.insert("entries".to_owned(), count.into());
        if !undelivered.is_empty() {
            let lacks = undelivered.iter().map(|(receiver, lacks)| (receiver.clone(), (*lacks).into()));
            details.insert("undelivered".to_owned(), serde_json::Value::Object(lacks.collect()));
        }
        let detail = serde_json::Value::Object(details).to_string();
        let entry =
            AuditEntry { detail, ..AuditEntry::new(AuditTail::ACTOR, AuditTail::ACTION, "audit", now) };
        let moved = self.write(Audited { change: MoveAuditTail { from, to }, entry }).await?;
        Ok(if moved {
            AuditExpiry::Expired(ExpiredEntries { count, last, undelivered })
        } else {
            AuditExpiry::NotDue
        })
    }

    /// Number of the last entry that may expire; 0: none may.
    async fn last_expired(
        &self,
        keep: Duration,
        positions: &[(String, u64)],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        // Read before the bounds: what is written meanwhile is not among what they find to be old.
        let newest = sqlx::query("SELECT seq FROM audit_log ORDER BY seq DESC LIMIT 1");
        let Some(newest) = self.readers().fetch_optional(newest).await? else { return Ok(0) };
        let newest: i64 = newest.try_get(0)?;
        let expired = self.last_before(now.minus(keep), newest).await?;
        let delivered = positions.iter().map(|(_, has)| *has).min().unwrap_or(u64::MAX);
        if expired <= delivered {
            return Ok(expired);
        }
        let too_old = self.last_before(now.minus(keep.saturating_mul(UNDELIVERED_KEPT)), newest).await?;
        Ok(delivered.max(too_old).min(expired))
    }

    /// Number of the last entry before the first one of this time or later; `newest` if there is
    /// none.
    async fn last_before(&self, time: Timestamp, newest: i64) -> Result<u64, StoreError> {
        let first_kept = self.audit_bound(BoundSide::First, time).await?;
        Ok(unsigned(first_kept.map_or(newest, |first| first - 1)))
    }

    /// How far each of these receivers has the log. A receiver that is not registered yet gets later
    /// entries only, so it is left out.
    async fn positions(&self, receivers: &[String]) -> Result<Vec<(String, u64)>, StoreError> {
        let rows = self.readers().fetch_all(sqlx::query("SELECT name, seq FROM audit_receivers")).await?;
        let mut positions = Vec::new();
        for row in rows {
            let name: String = row.try_get(0)?;
            if receivers.contains(&name) {
                positions.push((name, unsigned(row.try_get(1)?)));
            }
        }
        Ok(positions)
    }
}
