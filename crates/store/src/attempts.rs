//! Failed attempts to log in, for accounts and for networks.
//!
//! Owns: keeping the records. Does not own: what they lead to; the caller computes the next record from the present one. Two
//! nodes may do so at once, so a record is replaced only from the version that was read.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::error::StoreError;
use crate::store::Store;
use crate::value::{millis, timestamp};
use crate::write::{Change, Tx};

/// What failed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// How often.
    pub failures: u32,
    /// The first time.
    pub first_at: Timestamp,
    /// The last time.
    pub last_at: Timestamp,
    /// No attempt is let through before.
    pub locked_until: Timestamp,
    /// From when on nobody needs to remember.
    pub expires_at: Timestamp,
}

impl Store {
    /// What failed so far for an account or a network.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn attempts(&self, subject: &str) -> Result<Option<Attempts>, StoreError> {
        let ask = sqlx::query(
            "SELECT failures, first_at, last_at, locked_until, expires_at FROM attempts WHERE subject = $1",
        )
        .bind(subject);
        let row = self.readers().optional(ask).await?;
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

/// Replaces a record. `false` when it is no longer what was read: read again, and compute again.
#[derive(Debug, Clone)]
pub struct RecordAttempt {
    /// Whose.
    pub subject: String,
    /// What was read.
    pub from: Option<Attempts>,
    /// What it is to be.
    pub to: Attempts,
}

impl Change for RecordAttempt {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let (to, from) = (&self.to, self.from.as_ref());
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

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Forgets what failed, after a success.
#[derive(Debug, Clone)]
pub struct ForgetAttempts {
    /// Whose.
    pub subject: String,
}

impl Change for ForgetAttempts {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM attempts WHERE subject = $1")
            .bind(&self.subject)
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}
