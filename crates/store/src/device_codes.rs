//! Device codes (RFC 8628): a device asks again and again, until a person elsewhere has decided.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::announcements::Revocation;
use crate::error::StoreError;
use crate::families::{EventOrigins, Family};
use crate::redeem::Successors;
use crate::store::Store;
use crate::value::{StoredDigest, millis, millis_of, timestamp};
use crate::write::{Change, Tx};

/// What is added to the wait of a device that asks too soon (RFC 8628 §3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// A device code as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCode {
    /// Of the code that the device has.
    pub digest: StoredDigest,
    /// Of the code that the person types.
    pub user_code: StoredDigest,
    /// Whose device it is.
    pub client_id: String,
    /// Space-separated.
    pub scopes: String,
    /// Space-separated.
    pub audiences: String,
    /// How long the device waits between two attempts.
    pub wait: Duration,
    /// When it was made.
    pub issued_at: Timestamp,
    /// From when on it is worth nothing.
    pub expires_at: Timestamp,
    /// Until when it is remembered: as long as somebody may try it a second time.
    pub kept_until: Timestamp,
}

/// Keeps a new code.
#[derive(Debug, Clone)]
pub struct IssueDeviceCode(pub DeviceCode);

impl Change for IssueDeviceCode {
    type Output = ();

    /// # Errors
    /// [`StoreError::Taken`]: somebody has the same user code, which is short; draw another.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let code = &self.0;
        sqlx::query(
            "INSERT INTO device_codes (digest, user_code, client_id, scopes, audiences, wait_millis, issued_at, \
             expires_at, kept_until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(code.digest.as_slice())
        .bind(code.user_code.as_slice())
        .bind(&code.client_id)
        .bind(&code.scopes)
        .bind(&code.audiences)
        .bind(millis_of(code.wait))
        .bind(millis(code.issued_at))
        .bind(millis(code.expires_at))
        .bind(millis(code.kept_until))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).naming("the user code"))?;
        Ok(())
    }
}

impl Store {
    /// The code that a person typed, if nobody has decided about it yet.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn device_code(
        &self,
        user_code: &StoredDigest,
        now: Timestamp,
    ) -> Result<Option<DeviceCode>, StoreError> {
        let ask = sqlx::query(
            "SELECT digest, client_id, scopes, audiences, wait_millis, issued_at, expires_at, kept_until \
             FROM device_codes WHERE user_code = $1 AND expires_at > $2 AND approved IS NULL",
        )
        .bind(user_code.as_slice())
        .bind(millis(now));
        let row = self.readers().optional(ask).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(DeviceCode {
            digest: StoredDigest::read(&row, 0)?,
            user_code: *user_code,
            client_id: row.try_get(1)?,
            scopes: row.try_get(2)?,
            audiences: row.try_get(3)?,
            wait: Duration::from_millis(u64::try_from(row.try_get::<i64, _>(4)?).unwrap_or(0)),
            issued_at: timestamp(row.try_get(5)?),
            expires_at: timestamp(row.try_get(6)?),
            kept_until: timestamp(row.try_get(7)?),
        }))
    }
}

/// Notes a person's decision. `false` when it is too late: somebody has decided, or the code has expired.
#[derive(Debug, Clone)]
pub struct DecideDeviceCode {
    /// Of the code that the person typed.
    pub user_code: StoredDigest,
    /// Whether the device may.
    pub approved: bool,
    /// Who decided.
    pub user_id: String,
    /// In which session.
    pub sid: String,
    /// What else was decided, in the caller's form.
    pub details: String,
    /// When.
    pub now: Timestamp,
}

impl Change for DecideDeviceCode {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let decided = sqlx::query(
            "UPDATE device_codes SET approved = $2, user_id = $3, sid = $4, details = $5 \
             WHERE user_code = $1 AND approved IS NULL AND expires_at > $6",
        )
        .bind(self.user_code.as_slice())
        .bind(i64::from(self.approved))
        .bind(&self.user_id)
        .bind(&self.sid)
        .bind(&self.details)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        Ok(decided.rows_affected() == 1)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// What a device hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    /// Nobody has decided (`authorization_pending`).
    Pending,
    /// It asked too soon and waits longer from now on (`slow_down`).
    TooSoon,
    /// The person said no (`access_denied`).
    Denied,
    /// The person said yes: what was decided. Nothing is redeemed by asking; whether it was redeemed before, and is over, shows when it is.
    Approved {
        /// Who.
        user_id: String,
        /// In which session.
        sid: String,
        /// What else.
        details: String,
    },
    /// Expired (`expired_token`).
    Expired,
    /// There is none, for this client.
    Unknown,
}

/// A device asks.
#[derive(Debug, Clone)]
pub struct PollDeviceCode {
    /// Of the code that the device has.
    pub digest: StoredDigest,
    /// Whose it must be.
    pub client_id: String,
    /// When.
    pub now: Timestamp,
}

impl Change for PollDeviceCode {
    type Output = Polled;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Polled, StoreError> {
        let polled = sqlx::query(
            "UPDATE device_codes SET polled_at = $3 WHERE digest = $1 AND client_id = $2 \
             AND (polled_at IS NULL OR polled_at + wait_millis <= $3) \
             RETURNING approved, user_id, sid, details, expires_at, redeemed_at",
        )
        .bind(self.digest.as_slice())
        .bind(&self.client_id)
        .bind(millis(self.now))
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(row) = polled else {
            let slower = sqlx::query(
                "UPDATE device_codes SET polled_at = $3, wait_millis = wait_millis + $4 \
                 WHERE digest = $1 AND client_id = $2",
            )
            .bind(self.digest.as_slice())
            .bind(&self.client_id)
            .bind(millis(self.now))
            .bind(millis_of(SLOWER))
            .execute(&mut *tx.connection)
            .await?;
            return Ok(if slower.rows_affected() == 1 { Polled::TooSoon } else { Polled::Unknown });
        };
        // One that was redeemed is tried again, however late: whoever redeems it hears that, and what came of it ends.
        let redeemed = row.try_get::<Option<i64>, _>(5)?.is_some();
        if !redeemed && timestamp(row.try_get(4)?) <= self.now {
            return Ok(Polled::Expired);
        }
        Ok(match row.try_get::<Option<i64>, _>(0)? {
            None => Polled::Pending,
            Some(0) => Polled::Denied,
            Some(_) => {
                Polled::Approved { user_id: row.try_get(1)?, sid: row.try_get(2)?, details: row.try_get(3)? }
            }
        })
    }
}

/// Redeems an approved code, and keeps what is handed out for it; or revokes its family when it was redeemed before.
#[derive(Debug, Clone)]
pub struct RedeemDeviceCode {
    /// Of the code that the device has.
    pub digest: StoredDigest,
    /// What the approval stands for; bound to the client that must be the code's own.
    pub family: Family,
    /// What else that follows from.
    pub origins: EventOrigins,
    /// Kept when it succeeds.
    pub successors: Successors,
    /// Told when it was redeemed before.
    pub on_replay: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for RedeemDeviceCode {
    type Output = crate::redeem::Redeemed;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        use crate::redeem::Redeemed;
        let redeemed = sqlx::query(
            "UPDATE device_codes SET redeemed_at = $3, family_id = $4 WHERE digest = $1 AND client_id = $2 \
             AND approved = 1 AND redeemed_at IS NULL AND expires_at > $3",
        )
        .bind(self.digest.as_slice())
        .bind(&self.family.client_id)
        .bind(millis(self.now))
        .bind(&self.family.id)
        .execute(&mut *tx.connection)
        .await?;
        if redeemed.rows_affected() == 1 {
            // What was marked as redeemed stays so: it is worth nothing without its session.
            if !tx.insert_family(&self.family, &self.origins).await? {
                return Ok(Redeemed::Dead);
            }
            tx.insert_successors(&self.successors, &self.family.id).await?;
            return Ok(Redeemed::Now);
        }
        let before = sqlx::query(
            "SELECT family_id FROM device_codes WHERE digest = $1 AND client_id = $2 AND redeemed_at IS NOT NULL",
        )
        .bind(self.digest.as_slice())
        .bind(&self.family.client_id)
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(row) = before else { return Ok(Redeemed::Dead) };
        let family: String = row.try_get(0)?;
        tx.revoke_family(&family, &self.on_replay, self.now).await?;
        Ok(Redeemed::Before)
    }

    fn happened(output: &Self::Output) -> bool {
        *output == crate::redeem::Redeemed::Now
    }
}
