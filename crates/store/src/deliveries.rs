//! What is to be told to clients (OpenID Connect Back-Channel Logout 1.0), until they have heard it or it is too late.
//!
//! A node takes what is due and puts it off at once, so that another one tries again when this one dies, and nobody tries
//! at the same time.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::error::StoreError;
use crate::value::{millis, millis_of};
use crate::write::{Change, Tx};

/// To be told that a session has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its name.
    pub id: String,
    /// To whom.
    pub client_id: String,
    /// Whose session ended.
    pub user_id: String,
    /// Which one.
    pub sid: String,
    /// How often it was tried, this time included.
    pub tries: u32,
}

/// Puts something into the queue.
#[derive(Debug, Clone)]
pub struct Deliver {
    /// Its name.
    pub id: String,
    /// To whom.
    pub client_id: String,
    /// Whose session ended.
    pub user_id: String,
    /// Which one.
    pub sid: String,
    /// When it is tried first.
    pub due_at: Timestamp,
    /// From when on it is pointless.
    pub expires_at: Timestamp,
}

impl Change for Deliver {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO deliveries (id, client_id, user_id, sid, tries, due_at, expires_at) \
             VALUES ($1, $2, $3, $4, 0, $5, $6)",
        )
        .bind(&self.id)
        .bind(&self.client_id)
        .bind(&self.user_id)
        .bind(&self.sid)
        .bind(millis(self.due_at))
        .bind(millis(self.expires_at))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// Which sessions end.
#[derive(Clone, Copy)]
pub(crate) enum Ends<'a> {
    /// One, by its `sid`.
    One(&'a str),
    /// All of a user's.
    AllOf(&'a str),
}

impl Tx<'_> {
    /// Puts into the queue what every client hears that has or had a family in the sessions. Call it while nobody else can
    /// grant anything in them, and before those of a user are marked as ended.
    pub(crate) async fn tell_clients(
        &mut self,
        ends: Ends<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (condition, value) = match ends {
            Ends::One(sid) => ("s.sid = $1", sid),
            Ends::AllOf(user) => ("s.user_id = $1 AND s.ended_at IS NULL", user),
        };
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "INSERT INTO deliveries (id, client_id, user_id, sid, tries, due_at, expires_at) \
             SELECT DISTINCT f.sid || '/' || f.client_id, f.client_id, s.user_id, f.sid, 0, \
             CAST($2 AS BIGINT), CAST($3 AS BIGINT) \
             FROM sessions s JOIN families f ON f.sid = s.sid WHERE {condition} ON CONFLICT (id) DO NOTHING"
        )))
        .bind(value)
        .bind(millis(now))
        .bind(millis(until))
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }
}

/// Takes what is due, the longest due first, and puts it off.
#[derive(Debug, Clone)]
pub struct TakeDue {
    /// At most so many.
    pub limit: u32,
    /// How long a first try may take before somebody else tries; it doubles with each.
    pub put_off: Duration,
    /// When.
    pub now: Timestamp,
}

impl Change for TakeDue {
    type Output = Vec<Delivery>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<Delivery>, StoreError> {
        // The outer condition is looked at again when another node had the row: then it is no longer due.
        let rows = sqlx::query(
            "UPDATE deliveries SET tries = tries + 1, \
             due_at = $1 + $2 * CASE WHEN tries > 10 THEN 1024 ELSE 1 << CAST(tries AS INTEGER) END \
             WHERE due_at <= $1 AND expires_at > $1 AND id IN \
             (SELECT id FROM deliveries WHERE due_at <= $1 AND expires_at > $1 ORDER BY due_at, id LIMIT $3) \
             RETURNING id, client_id, user_id, sid, tries",
        )
        .bind(millis(self.now))
        .bind(millis_of(self.put_off))
        .bind(i64::from(self.limit))
        .fetch_all(&mut *tx.connection)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Delivery {
                    id: row.try_get(0)?,
                    client_id: row.try_get(1)?,
                    user_id: row.try_get(2)?,
                    sid: row.try_get(3)?,
                    tries: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
                })
            })
            .collect()
    }
}

/// It was heard, or never will be.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Its name.
    pub id: String,
}

impl Change for Delivered {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM deliveries WHERE id = $1")
            .bind(&self.id)
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}
