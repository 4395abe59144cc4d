//! Deliveries: the queue of logout notifications to clients (OpenID Connect Back-Channel Logout
//! 1.0).
//!
//! A delivery stays in the queue until the client has acknowledged it or it expires. The node that
//! takes a due delivery postpones it in the same statement. So no two nodes try at the same time,
//! and another node tries later if this one dies.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{duration_millis, millis, placeholders};
use crate::error::StoreError;
use crate::writer::{Change, Tx};

/// A pending notification to a client that a session has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Unique id of the delivery.
    pub id: String,
    /// The client to notify.
    pub client_id: String,
    /// The user whose session ended.
    pub user_id: String,
    /// The session that ended.
    pub sid: String,
    /// Number of attempts, including this one.
    pub attempts: u32,
}

/// Adds a delivery to the queue.
#[derive(Debug, Clone)]
pub struct QueueDelivery {
    /// Unique id of the delivery.
    pub id: String,
    /// The client to notify.
    pub client_id: String,
    /// The user whose session ended.
    pub user_id: String,
    /// The session that ended.
    pub sid: String,
    /// When the first attempt is due.
    pub due_at: Timestamp,
    /// When it expires; no attempt is made afterwards.
    pub expires_at: Timestamp,
}

impl Change for QueueDelivery {
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
pub(crate) enum EndedSessions<'a> {
    /// One session, by its `sid`.
    One(&'a str),
    /// All sessions of a user.
    AllOfUser(&'a str),
}

impl Tx<'_> {
    /// Queues a notification to every client that has or had a family in the sessions. The caller
    /// must hold locks that prevent new grants in them, and must call this before it marks a user's
    /// sessions as ended.
    pub(crate) async fn queue_logout_deliveries(
        &mut self,
        ends: EndedSessions<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (condition, value) = match ends {
            EndedSessions::One(sid) => ("s.sid = $1", sid),
            EndedSessions::AllOfUser(user) => ("s.user_id = $1 AND s.ended_at IS NULL", user),
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

/// Takes due deliveries, the longest overdue first, and postpones them.
#[derive(Debug, Clone)]
pub struct TakeDueDeliveries {
    /// Maximum number of deliveries.
    pub limit: u32,
    /// Clients whose deliveries are left in the queue.
    pub except: Vec<String>,
    /// Time until another node may retry after the first attempt. It doubles with each attempt.
    pub retry_after: Duration,
    /// Time of the attempt.
    pub now: Timestamp,
}

impl Change for TakeDueDeliveries {
    type Output = Vec<Delivery>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<Delivery>, StoreError> {
        let others = match self.except.len() {
            0 => String::new(),
            count => format!(" AND client_id NOT IN ({})", placeholders(4, count)),
        };
        // PostgreSQL re-evaluates the outer condition if another node had locked the row; by then
        // it is no longer due.
        let take = format!(
            "UPDATE deliveries SET tries = tries + 1, \
             due_at = $1 + $2 * CASE WHEN tries > 10 THEN 1024 ELSE 1 << CAST(tries AS INTEGER) END \
             WHERE due_at <= $1 AND expires_at > $1 AND id IN (SELECT id FROM deliveries \
             WHERE due_at <= $1 AND expires_at > $1{others} ORDER BY due_at, id LIMIT $3) \
             RETURNING id, client_id, user_id, sid, tries"
        );
        let mut take = sqlx::query(sqlx::AssertSqlSafe(take))
            .bind(millis(self.now))
            .bind(duration_millis(self.retry_after))
            .bind(i64::from(self.limit));
        for client in &self.except {
            take = take.bind(client);
        }
        let rows = take.fetch_all(&mut *tx.connection).await?;
        rows.iter()
            .map(|row| {
                Ok(Delivery {
                    id: row.try_get(0)?,
                    client_id: row.try_get(1)?,
                    user_id: row.try_get(2)?,
                    sid: row.try_get(3)?,
                    attempts: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
                })
            })
            .collect()
    }
}

/// Removes a delivery: the client acknowledged it, or never will.
#[derive(Debug, Clone)]
pub struct RemoveDelivery {
    /// Unique id of the delivery.
    pub id: String,
}

impl Change for RemoveDelivery {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM deliveries WHERE id = $1")
            .bind(&self.id)
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}
