//! Failed login attempts, counted per account and per network.
//!
//! Owns: the records. Does not own: throttling rules. The caller computes the next record from the
//! current one. Two nodes may do so at once, so a record is replaced only if it is still the
//! version that was read.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{millis, timestamp};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// The record of failed attempts of one account or network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Number of failures.
    pub failures: u32,
    /// Time of the first failure.
    pub first_at: Timestamp,
    /// Time of the last failure.
    pub last_at: Timestamp,
    /// Attempts are refused until then.
    pub locked_until: Timestamp,
    /// When the record expires.
    pub expires_at: Timestamp,
}

impl Store {
    /// The record of an account or a network; `None`: no failures.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn attempts(&self, subject: &str) -> Result<Option<Attempts>, StoreError> {
        let ask = sqlx::query(
            "SELECT failures, first_at, last_at, locked_until, expires_at FROM attempts WHERE subject = $1",
        )
        .bind(subject);
        let row = self.readers().fetch_optional(ask).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Attempts {
            failures: u32::try_from(row.try_get::<i64, _>(0)?).unwrap_or(u32::MAX),
            first_at: timestamp(row.try_get(1)?),
            last_at: timestamp(row.try_get(2)?),
            locked_until: timestamp(row.try_get(3)?),
            expires_at: timestamp(row.try_get(4)?),
        }))
    }
}

/// Replaces a record. `false`: it is no longer what was read; read it again and compute anew.
#[derive(Debug, Clone)]
pub struct RecordAttempt {
    /// The account or network.
    pub subject: String,
    /// The record as it was read; `None`: there was none.
    pub previous: Option<Attempts>,
    /// The new record.
    pub next: Attempts,
}

impl Change for RecordAttempt {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let (to, from) = (&self.next, self.previous.as_ref());
        let statement = match from {
            None => {
                "INSERT INTO attempts (subject, failures, first_at, last_at, locked_until, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (subject) DO NOTHING"
            }
            Some(_) => {
                "UPDATE attempts SET failures = $2, first_at = $3, last_at = $4, locked_until = $5, expires_at = $6 \
                 WHERE subject = $1 AND failures = $7 AND last_at = $8 AND locked_until = $9"
            }
        };
        let mut query = sqlx::query(statement)
            .bind(&self.subject)
            .bind(i64::from(to.failures))
            .bind(millis(to.first_at))
            .bind(millis(to.last_at))
            .bind(millis(to.locked_until))
            .bind(millis(to.expires_at));
        if let Some(from) = from {
            query = query
                .bind(i64::from(from.failures))
                .bind(millis(from.last_at))
                .bind(millis(from.locked_until));
        }
        Ok(query.execute(&mut *tx.connection).await?.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes a record after a successful login.
#[derive(Debug, Clone)]
pub struct DeleteAttempts {
    /// The account or network.
    pub subject: String,
}

impl Change for DeleteAttempts {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM attempts WHERE subject = $1")
            .bind(&self.subject)
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}
