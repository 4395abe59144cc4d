//! Receivers of the audit log: how far each has it.
//!
//! Owns: a cursor per receiver. Entries after it are not delivered yet. Does not own: delivery, the
//! format of entries.
//!
//! One node at a time delivers to a receiver, as with push receivers of security events
//! ([`crate::security_events`]). It moves the cursor after the receiver has the entries, so a crash
//! between the two repeats them.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{millis, timestamp, unsigned};
use crate::error::StoreError;
use crate::security_events::{ReleaseReceiver, TakeReceiver, TakenReceiver};
use crate::store::Store;
use crate::writer::{Change, Tx};

const TABLE: &str = "audit_receivers";

/// State of a receiver of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditReceiver {
    /// It has all entries up to this number.
    pub seq: u64,
    /// When the next delivery is due.
    pub due_at: Timestamp,
    /// Number of the last entry of the log.
    pub head: u64,
}

impl Store {
    /// The state of a receiver; `None`: it is not registered.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn audit_receiver(&self, name: &str) -> Result<Option<AuditReceiver>, StoreError> {
        let ask = sqlx::query(
            "SELECT r.seq, r.due_at, h.seq FROM audit_receivers r JOIN audit_head h ON h.id = 1 WHERE r.name = $1",
        )
        .bind(name);
        let row = self.readers().fetch_optional(ask).await?;
        row.map(|row| {
            Ok(AuditReceiver {
                seq: unsigned(row.try_get(0)?),
                due_at: timestamp(row.try_get(1)?),
                head: unsigned(row.try_get(2)?),
            })
        })
        .transpose()
    }
}

/// Registers a receiver for entries from now on. A registered one stays unchanged.
#[derive(Debug, Clone)]
pub struct RegisterAuditReceiver {
    /// Name of the receiver.
    pub receiver: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RegisterAuditReceiver {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO audit_receivers (name, seq, tries, due_at) \
             SELECT CAST($1 AS TEXT), h.seq, 0, CAST($2 AS BIGINT) FROM audit_head h WHERE h.id = 1 \
             ON CONFLICT (name) DO NOTHING",
        )
        .bind(&self.receiver)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// As [`TakeReceiver`], for a receiver of the audit log.
#[derive(Debug, Clone)]
pub struct TakeAuditReceiver(pub TakeReceiver);

impl Change for TakeAuditReceiver {
    type Output = Option<TakenReceiver>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Option<TakenReceiver>, StoreError> {
        tx.take_receiver(TABLE, &self.0).await
    }
}

/// As [`ReleaseReceiver`], for a receiver of the audit log.
#[derive(Debug, Clone)]
pub struct ReleaseAuditReceiver(pub ReleaseReceiver);

impl Change for ReleaseAuditReceiver {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.release_receiver(TABLE, &self.0).await
    }
}
