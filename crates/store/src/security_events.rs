//! Security events: what happened, in readable form for event receivers (`OpenID` Shared Signals
//! Framework 1.0), and events received from other issuers.
//!
//! Owns: one row per event of the log, written in its transaction, with the readable form of what
//! its tags only hash. Also the position of each receiver, and appending received events. Does not
//! own: event tokens, delivery, the meaning of an event.
//!
//! Rows have the numbers of the log, so they are in the order of the commits. Each receiver has a
//! cursor: events after it are not delivered yet.
//!
//! - Push: one node at a time delivers to a receiver. It takes the receiver for a limited time by
//!   one conditional statement; if the node dies, the time runs out soon.
//! - Poll: a receiver may acknowledge in any order. Acknowledgements beyond the first gap are
//!   stored separately until the gap is closed.

use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
pub use crate::announcements::{Occurrence, OccurrenceRow};
use crate::columns::{batches, duration_millis, millis, timestamp, unsigned, value_tuples};
use crate::error::StoreError;
use crate::revocation_log::head_within;
use crate::store::Store;
use crate::writer::{Change, Tx};

impl Tx<'_> {
    /// Stores the occurrences of events, in the transaction that appends the events.
    pub(crate) async fn write_occurrences(&mut self, rows: &[OccurrenceRow]) -> Result<(), StoreError> {
        for some in batches(rows) {
            let note = format!(
                "INSERT INTO occurrences (seq, kind, user_id, sid, jti, client_id, granted_by, at) VALUES {}",
                value_tuples(some.len(), 8, "")
            );
            let mut note = sqlx::query(sqlx::AssertSqlSafe(note));
            for OccurrenceRow { seq, occurrence, at } in some {
                note = note
                    .bind(seq_column(*seq))
                    .bind(occurrence.kind.as_str())
                    .bind(&occurrence.user_id)
                    .bind(&occurrence.sid)
                    .bind(&occurrence.jti)
                    .bind(&occurrence.client_id)
                    .bind(&occurrence.granted_by)
                    .bind(millis(*at));
            }
            note.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}

const COLUMNS: &str = "o.seq, o.kind, o.user_id, o.sid, o.jti, o.client_id, o.granted_by, o.at";

fn read_occurrence(row: &AnyRow) -> Result<OccurrenceRow, StoreError> {
    let kind: String = row.try_get(1)?;
    let occurrence = Occurrence {
        // A newer program wrote a kind that this one does not know.
        kind: EventKind::ALL.into_iter().find(|known| known.as_str() == kind).unwrap_or(EventKind::Other),
        user_id: row.try_get(2)?,
        sid: row.try_get(3)?,
        jti: row.try_get(4)?,
        client_id: row.try_get(5)?,
        granted_by: row.try_get(6)?,
    };
    Ok(OccurrenceRow { seq: unsigned(row.try_get(0)?), occurrence, at: timestamp(row.try_get(7)?) })
}

impl Store {
    /// At most `limit` occurrences after `after`, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn occurred(&self, after: u64, limit: u32) -> Result<Vec<OccurrenceRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM occurrences o WHERE o.seq > $1 ORDER BY o.seq LIMIT $2"
        )))
        .bind(seq_column(after))
        .bind(i64::from(limit));
        self.readers().fetch_all(ask).await?.iter().map(read_occurrence).collect()
    }

    /// At most `limit` occurrences that a polling receiver has not acknowledged, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn unacknowledged(&self, receiver: &str, limit: u32) -> Result<Vec<OccurrenceRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM occurrences o JOIN event_receivers r ON r.name = $1 WHERE o.seq > r.seq \
             AND NOT EXISTS (SELECT 1 FROM event_acknowledgements a WHERE a.receiver = $1 AND a.seq = o.seq) \
             ORDER BY o.seq LIMIT $2"
        )))
        .bind(receiver)
        .bind(i64::from(limit));
        self.readers().fetch_all(ask).await?.iter().map(read_occurrence).collect()
    }

    /// Whether there are undelivered occurrences for a receiver and the next delivery is due.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn is_delivery_due(&self, receiver: &str, now: Timestamp) -> Result<bool, StoreError> {
        let ask = sqlx::query(
            "SELECT 1 FROM event_receivers r WHERE r.name = $1 AND r.due_at <= $2 \
             AND EXISTS (SELECT 1 FROM occurrences o WHERE o.seq > r.seq)",
        )
        .bind(receiver)
        .bind(millis(now));
        Ok(self.readers().fetch_optional(ask).await?.is_some())
    }
}

/// Registers a receiver for events from now on. A registered one stays unchanged.
#[derive(Debug, Clone)]
pub struct RegisterReceiver {
    /// Name of the receiver.
    pub receiver: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RegisterReceiver {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let head = head_within(tx.connection).await?;
        sqlx::query(
            "INSERT INTO event_receivers (name, seq, tries, due_at) VALUES ($1, $2, 0, $3) \
             ON CONFLICT (name) DO NOTHING",
        )
        .bind(&self.receiver)
        .bind(seq_column(head.seq))
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// Takes a receiver for a limited time, to deliver to it. `None`: another node has it, or the next
/// delivery is not due.
#[derive(Debug, Clone)]
pub struct TakeReceiver {
    /// Name of the receiver.
    pub receiver: String,
    /// How long no other node may take it.
    pub lease: Duration,
    /// Time of the change.
    pub now: Timestamp,
}

/// A receiver that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenReceiver {
    /// All events up to this number were delivered.
    pub seq: u64,
    /// Number of consecutive failed deliveries.
    pub failures: u32,
}

impl Change for TakeReceiver {
    type Output = Option<TakenReceiver>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Option<TakenReceiver>, StoreError> {
        tx.take_receiver("event_receivers", self).await
    }
}

/// Gives back a receiver that was taken, after delivery of all events up to `to`. `false`: another
/// node has moved its cursor.
#[derive(Debug, Clone)]
pub struct ReleaseReceiver {
    /// Name of the receiver.
    pub receiver: String,
    /// The cursor when it was taken.
    pub from: u64,
    /// The new cursor.
    pub to: u64,
    /// Number of consecutive failed deliveries; 0 after a success.
    pub failures: u32,
    /// When the next delivery is due.
    pub due_at: Timestamp,
}

impl Change for ReleaseReceiver {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.release_receiver("event_receivers", self).await
    }
}

impl Tx<'_> {
    /// Takes a receiver of this table.
    pub(crate) async fn take_receiver(
        &mut self,
        table: &'static str,
        take: &TakeReceiver,
    ) -> Result<Option<TakenReceiver>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE {table} SET due_at = $2 + $3 WHERE name = $1 AND due_at <= $2 RETURNING seq, tries"
        )))
        .bind(&take.receiver)
        .bind(millis(take.now))
        .bind(duration_millis(take.lease))
        .fetch_optional(&mut *self.connection)
        .await?;
        row.map(|row| {
            let failures = u32::try_from(row.try_get::<i64, _>(1)?).unwrap_or(u32::MAX);
            Ok(TakenReceiver { seq: unsigned(row.try_get(0)?), failures })
        })
        .transpose()
    }

    /// Ends a node's lease of a receiver: records how far the deliveries got and when the next is
    /// due. Returns false if another node has the receiver now.
    pub(crate) async fn release_receiver(
        &mut self,
        table: &'static str,
        release: &ReleaseReceiver,
    ) -> Result<bool, StoreError> {
        let result = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE {table} SET seq = $3, tries = $4, due_at = $5 WHERE name = $1 AND seq = $2"
        )))
        .bind(&release.receiver)
        .bind(seq_column(release.from))
        .bind(seq_column(release.to))
        .bind(i64::from(release.failures))
        .bind(millis(release.due_at))
        .execute(&mut *self.connection)
        .await?;
        Ok(result.rows_affected() > 0)
    }
}

/// Acknowledges events for a polling receiver, in any order, and gives up those older than
/// `before`.
#[derive(Debug, Clone)]
pub struct Acknowledge {
    /// Name of the receiver.
    pub receiver: String,
    /// Numbers of the acknowledged events.
    pub acknowledged: Vec<u64>,
    /// Events older than this need not be delivered.
    pub before: Timestamp,
}

impl Change for Acknowledge {
    /// Number of events that were given up without acknowledgement.
    type Output = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        // The row lock serializes acknowledgements of the same receiver.
        let row = sqlx::query("UPDATE event_receivers SET tries = 0 WHERE name = $1 RETURNING seq")
            .bind(&self.receiver)
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = row else { return Ok(0) };
        let cursor: i64 = row.try_get(0)?;
        for seq in &self.acknowledged {
            // Numbers without an event are ignored.
            sqlx::query(
                "INSERT INTO event_acknowledgements (receiver, seq) SELECT $1, o.seq FROM occurrences o \
                 WHERE o.seq = $2 AND o.seq > $3 ON CONFLICT (receiver, seq) DO NOTHING",
            )
            .bind(&self.receiver)
            .bind(seq_column(*seq))
            .bind(cursor)
            .execute(&mut *tx.connection)
            .await?;
        }
        let given_up = sqlx::query(
            "INSERT INTO event_acknowledgements (receiver, seq) SELECT $1, o.seq FROM occurrences o \
             WHERE o.seq > $2 AND o.at < $3 ON CONFLICT (receiver, seq) DO NOTHING",
        )
        .bind(&self.receiver)
        .bind(cursor)
        .bind(millis(self.before))
        .execute(&mut *tx.connection)
        .await?
        .rows_affected();
        let next = sqlx::query(
            "UPDATE event_receivers SET seq = COALESCE((SELECT MIN(o.seq) - 1 FROM occurrences o WHERE o.seq > $2 \
             AND NOT EXISTS (SELECT 1 FROM event_acknowledgements a WHERE a.receiver = $1 AND a.seq = o.seq)), \
             (SELECT MAX(o.seq) FROM occurrences o), $2) WHERE name = $1 RETURNING seq",
        )
        .bind(&self.receiver)
        .bind(cursor)
        .fetch_one(&mut *tx.connection)
        .await?;
        sqlx::query("DELETE FROM event_acknowledgements WHERE receiver = $1 AND seq <= $2")
            .bind(&self.receiver)
            .bind(next.try_get::<i64, _>(0)?)
            .execute(&mut *tx.connection)
            .await?;
        Ok(given_up)
    }
}

/// Appends events received from another issuer, all in one transaction.
#[derive(Debug, Clone)]
pub struct AppendRevocations {
    /// The events to append to the revocation log.
    pub revocations: Vec<Revocation>,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for AppendRevocations {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for revocation in &self.revocations {
            tx.queue_revocation(revocation, self.now);
        }
        Ok(())
    }
}

/// Stores this secret unless one is stored already. The output is the stored secret, which all
/// nodes of this database share.
#[derive(Clone)]
pub struct StoreSharedSecret(pub [u8; 64]);

impl Change for StoreSharedSecret {
    type Output = [u8; 64];

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<[u8; 64], StoreError> {
        sqlx::query("INSERT INTO event_secret (id, secret) VALUES (1, $1) ON CONFLICT (id) DO NOTHING")
            .bind(&self.0[..])
            .execute(&mut *tx.connection)
            .await?;
        let row = sqlx::query("SELECT secret FROM event_secret WHERE id = 1")
            .fetch_one(&mut *tx.connection)
            .await?;
        let secret: Vec<u8> = row.try_get(0)?;
        secret.try_into().map_err(|_| {
            sqlx::Error::ColumnDecode { index: "secret".into(), source: "unexpected length".into() }.into()
        })
    }
}

fn seq_column(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
