//! Who follows the log of revocations, and how far each has got: one list for all nodes, kept in the database.
//!
//! Times in it are the database's own, so that no two clocks are compared. Whoever writes an entry counts its beat up; an entry whose beat
//! has not changed for long enough, by the clock of whoever looks, is struck off: first it is marked ([`MarkFollower`]), and if nobody writes it
//! meanwhile, it goes ([`ForgetFollower`]). [`coherence::consumers`] says why. The beat of an entry that is marked is negative.

use std::time::Duration;

use auth::time::Timestamp;
use coherence::consumers::Follower;
use coherence::{ConsumerId, ConsumerName, Epoch, LogHead, Tag};
use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row as _};
use tokio::time::timeout;

use crate::announcements::{Revocation, RevocationReach};
use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::pooled::PooledConnection;
use crate::readers::Ask;
use crate::value::{malformed, millis_of, number, pieces, rows, timestamp};
use crate::write::{Change, PATIENCE, Tx};

/// What is bound of each.
const COLUMNS: usize = 5;

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Who, and how far.
    pub follower: Follower,
    /// Counts how often it was written.
    pub beat: u64,
    /// It is about to be struck off.
    pub marked: bool,
    /// How long ago it was written, by the database's clock.
    pub since: Duration,
}

/// Appends an event that concerns nobody, unless something was appended lately: its way to followers is watched. Whether it was appended.
#[derive(Debug, Clone)]
pub struct Canary {
    /// Of nothing: drawn at random.
    pub tag: Tag,
    /// For how long nothing may have been appended.
    pub quiet: Duration,
    /// When.
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
        let reach = RevocationReach::Whole;
        let event = Revocation { tags, reason: "canary", reach, until: self.now, occurrence: None };
        tx.append(&event, self.now);
        Ok(true)
    }
}

/// Marks somebody who seems to be gone, unless it was heard of meanwhile.
#[derive(Debug, Clone)]
pub struct MarkFollower {
    /// Who.
    pub id: ConsumerId,
    /// The last beat that was seen.
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

/// Strikes off who was marked, unless it was heard of meanwhile.
#[derive(Debug, Clone)]
pub struct ForgetFollower {
    /// Who.
    pub id: ConsumerId,
    /// The last beat that was seen.
    pub beat: u64,
}

impl Change for ForgetFollower {
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

/// Writes down who follows. An entry is never set back to less of the same history, nor to nothing.
///
/// Not a [`Change`]: each statement is a transaction of its own, and writes in one order whoever writes it. Changes share transactions,
/// where nodes that hold this list and the log's head in different orders would wait for each other.
pub(crate) async fn write(
    writers: &AnyPool,
    dialect: Dialect,
    followers: &[Follower],
) -> Result<(), StoreError> {
    let mut followers: Vec<_> = followers.iter().collect();
    followers.sort_by_key(|follower| follower.id);
    let now = dialect.now();
    let mut loan = PooledConnection::of(writers).await?;
    for some in pieces(&followers) {
        let note = format!(
            "INSERT INTO followers (id, called, lease, epoch, seq, beat, heard_at) VALUES {} \
             ON CONFLICT (id) DO UPDATE SET called = excluded.called, lease = excluded.lease, \
             seq = CASE WHEN excluded.epoch IS NULL OR (followers.epoch = excluded.epoch \
             AND followers.seq > excluded.seq) THEN followers.seq ELSE excluded.seq END, \
             epoch = COALESCE(excluded.epoch, followers.epoch), \
             beat = ABS(followers.beat) + 1, heard_at = excluded.heard_at",
            rows(some.len(), COLUMNS, &format!(", 1, {now}"))
        );
        let mut note = sqlx::query(sqlx::AssertSqlSafe(note));
        for Follower { id, called, lease, applied } in some {
            note = note
                .bind(id.0.to_vec())
                .bind(called.as_str().to_owned())
                .bind(millis_of(*lease))
                .bind(applied.map(|head| head.epoch.0.to_vec()))
                .bind(applied.map_or(0, |head| i64::try_from(head.seq).unwrap_or(i64::MAX)));
        }
        let Ok(noted) = timeout(PATIENCE, note.execute(loan.connection())).await else {
            return Err(loan.silent("no answer in time"));
        };
        noted?;
    }
    Ok(())
}

/// Asks for everybody in the list, by name.
pub(crate) fn ask(dialect: Dialect) -> Ask<'static> {
    let now = dialect.now();
    let ask = format!(
        "SELECT id, called, lease, epoch, seq, beat, {now} - heard_at FROM followers ORDER BY called, id"
    );
    sqlx::query(sqlx::AssertSqlSafe(ask))
}

pub(crate) fn read(row: &AnyRow) -> Result<Listed, StoreError> {
    let id: Vec<u8> = row.try_get(0)?;
    let epoch: Option<Vec<u8>> = row.try_get(3)?;
    let epoch = epoch.map(|epoch| epoch.try_into().map(Epoch)).transpose().map_err(|_| malformed("epoch"))?;
    let seq = number(row.try_get(4)?);
    let beat: i64 = row.try_get(5)?;
    Ok(Listed {
        follower: Follower {
            id: ConsumerId(id.try_into().map_err(|_| malformed("id"))?),
            called: ConsumerName::new(&row.try_get::<String, _>(1)?).ok_or_else(|| malformed("called"))?,
            lease: Duration::from_millis(number(row.try_get(2)?)),
            applied: epoch.map(|epoch| LogHead { epoch, seq }),
        },
        beat: beat.unsigned_abs(),
        marked: beat < 0,
        since: Duration::from_millis(number(row.try_get(6)?)),
    })
}
