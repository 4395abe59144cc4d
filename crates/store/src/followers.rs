//! Followers: the consumers of the revocation log and how far each has applied it. One list for all
//! nodes, in the database.
//!
//! Times in the list come from the database's own clock, so clocks of nodes are never compared.
//! Each write of an entry increments its beat. A node that has not seen the beat change for long
//! enough, by its own clock, removes the entry in two steps. First it marks the entry
//! ([`MarkFollower`]); if nothing writes the entry meanwhile, the node deletes it
//! ([`DeleteFollower`]). [`coherence::consumers`] explains why. The beat of a marked entry is
//! negative.

use std::time::Duration;

use auth::time::Timestamp;
use coherence::consumers::ConsumerRecord;
use coherence::{ConsumerId, Epoch, LogHead, PeerName, Tag};
use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row as _};
use tokio::time::timeout;

use crate::announcements::{Revocation, RevocationReach};
use crate::columns::{batches, duration_millis, malformed, timestamp, unsigned, value_tuples};
use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::pooled_connection::PooledConnection;
use crate::readers::ReadStatement;
use crate::writer::{Change, Tx, WRITE_TIMEOUT};

/// Bound values per entry.
const BINDS_PER_ROW: usize = 5;

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerRow {
    /// The consumer, its lease and the position it has applied.
    pub follower: ConsumerRecord,
    /// Number of writes of this entry.
    pub beat: u64,
    /// Whether it is marked for removal.
    pub marked: bool,
    /// Time since the last write, by the database's clock.
    pub age: Duration,
}

/// Appends an event that concerns no credential, unless another was appended lately. Its
/// propagation to consumers is monitored. The output says whether it was appended.
#[derive(Debug, Clone)]
pub struct Canary {
    /// A random tag that no credential carries.
    pub tag: Tag,
    /// Minimum time since the last event.
    pub quiet: Duration,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for Canary {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let last = sqlx::query("SELECT at FROM invalidation_log ORDER BY seq DESC LIMIT 1");
        let last = last.fetch_optional(&mut *tx.connection).await?;
        let last = last.map(|row| row.try_get(0).map(timestamp)).transpose()?;
        if last.is_some_and(|last| self.now < last.plus(self.quiet)) {
            return Ok(false);
        }
        let tags = vec![self.tag];
        let reach = RevocationReach::All;
        let event = Revocation { tags, reason: "canary", reach, until: self.now, occurrence: None };
        tx.queue_revocation(&event, self.now);
        Ok(true)
    }
}

/// Marks an entry for removal, unless its beat has changed.
#[derive(Debug, Clone)]
pub struct MarkFollower {
    /// Id of the consumer.
    pub id: ConsumerId,
    /// The beat that was last read.
    pub beat: u64,
}

impl Change for MarkFollower {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("UPDATE followers SET beat = -beat WHERE id = $1 AND beat = $2")
            .bind(&self.id.0[..])
            .bind(i64::try_from(self.beat).unwrap_or(i64::MAX))
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}

/// Deletes a marked entry, unless it was written meanwhile.
#[derive(Debug, Clone)]
pub struct DeleteFollower {
    /// Id of the consumer.
    pub id: ConsumerId,
    /// The beat that was last read.
    pub beat: u64,
}

impl Change for DeleteFollower {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM followers WHERE id = $1 AND beat = $2")
            .bind(&self.id.0[..])
            .bind(-i64::try_from(self.beat).unwrap_or(i64::MAX))
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}

/// Writes entries to the list. A stored position never moves back within the same epoch, and never
/// becomes unknown.
///
/// Not a [`Change`]: each statement is a transaction of its own, and all nodes lock the rows in the
/// same order. Changes share transactions. There, nodes could lock this list and the head of the
/// log in different orders, and deadlock.
pub(crate) async fn write(
    writers: &AnyPool,
    dialect: Dialect,
    followers: &[ConsumerRecord],
) -> Result<(), StoreError> {
    let mut followers: Vec<_> = followers.iter().collect();
    followers.sort_by_key(|follower| follower.id);
    let now = dialect.now_sql();
    let mut loan = PooledConnection::acquire(writers).await?;
    for some in batches(&followers) {
        let note = format!(
            "INSERT INTO followers (id, called, lease, epoch, seq, beat, heard_at) VALUES {} \
             ON CONFLICT (id) DO UPDATE SET called = excluded.called, lease = excluded.lease, \
             seq = CASE WHEN excluded.epoch IS NULL OR (followers.epoch = excluded.epoch \
             AND followers.seq > excluded.seq) THEN followers.seq ELSE excluded.seq END, \
             epoch = COALESCE(excluded.epoch, followers.epoch), \
             beat = ABS(followers.beat) + 1, heard_at = excluded.heard_at",
            value_tuples(some.len(), BINDS_PER_ROW, &format!(", 1, {now}"))
        );
        let mut note = sqlx::query(sqlx::AssertSqlSafe(note));
        for ConsumerRecord { id, name, lease, applied } in some {
            note = note
                .bind(id.0.to_vec())
                .bind(name.as_str().to_owned())
                .bind(duration_millis(*lease))
                .bind(applied.map(|head| head.epoch.0.to_vec()))
                .bind(applied.map_or(0, |head| i64::try_from(head.seq).unwrap_or(i64::MAX)));
        }
        let Ok(noted) = timeout(WRITE_TIMEOUT, note.execute(loan.connection())).await else {
            return Err(loan.mark_silent("writing the list of followers timed out"));
        };
        noted?;
    }
    Ok(())
}

/// Statement that reads all entries, by name.
pub(crate) fn select_all(dialect: Dialect) -> ReadStatement<'static> {
    let now = dialect.now_sql();
    let ask = format!(
        "SELECT id, called, lease, epoch, seq, beat, {now} - heard_at FROM followers ORDER BY called, id"
    );
    sqlx::query(sqlx::AssertSqlSafe(ask))
}

pub(crate) fn read(row: &AnyRow) -> Result<FollowerRow, StoreError> {
    let id: Vec<u8> = row.try_get(0)?;
    let epoch: Option<Vec<u8>> = row.try_get(3)?;
    let epoch = epoch.map(|epoch| epoch.try_into().map(Epoch)).transpose().map_err(|_| malformed("epoch"))?;
    let seq = unsigned(row.try_get(4)?);
    let beat: i64 = row.try_get(5)?;
    Ok(FollowerRow {
        follower: ConsumerRecord {
            id: ConsumerId(id.try_into().map_err(|_| malformed("id"))?),
            name: PeerName::new(&row.try_get::<String, _>(1)?).ok_or_else(|| malformed("called"))?,
            lease: Duration::from_millis(unsigned(row.try_get(2)?)),
            applied: epoch.map(|epoch| LogHead { epoch, seq }),
        },
        beat: beat.unsigned_abs(),
        marked: beat < 0,
        age: Duration::from_millis(unsigned(row.try_get(6)?)),
    })
}
