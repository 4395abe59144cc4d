//! Device codes (RFC 8628): a device polls until a user decides in a browser elsewhere.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::announcements::Revocation;
use crate::columns::{StoredDigest, duration_millis, millis, timestamp};
use crate::error::StoreError;
use crate::families::{Family, OriginTags};
use crate::redeem::Successors;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Added to the interval of a device that polls too soon (RFC 8628 §3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);

/// A device code as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCode {
    /// Digest of `device_code`, which the device holds.
    pub digest: StoredDigest,
    /// Digest of `user_code`, which the user types.
    pub user_code: StoredDigest,
    /// The client that the device runs.
    pub client_id: String,
    /// Scopes, space-separated.
    pub scopes: String,
    /// Audiences, space-separated.
    pub audiences: String,
    /// Minimum time between two polls.
    pub interval: Duration,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// How long the row is kept: as long as a replay must be detected.
    pub kept_until: Timestamp,
}

/// Stores a new device code.
#[derive(Debug, Clone)]
pub struct IssueDeviceCode(pub DeviceCode);

impl Change for IssueDeviceCode {
    type Output = ();

    /// # Errors
    /// [`StoreError::Taken`] when a stored code has the same `user_code`, which is short: draw
    /// another.
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
        .bind(duration_millis(code.interval))
        .bind(millis(code.issued_at))
        .bind(millis(code.expires_at))
        .bind(millis(code.kept_until))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).with_name("the user code"))?;
        Ok(())
    }
}

impl Store {
    /// The device code of a `user_code`, if it has not expired and no user has decided about it.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
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
        let row = self.readers().fetch_optional(ask).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(DeviceCode {
            digest: StoredDigest::read(&row, 0)?,
            user_code: *user_code,
            client_id: row.try_get(1)?,
            scopes: row.try_get(2)?,
            audiences: row.try_get(3)?,
            interval: Duration::from_millis(u64::try_from(row.try_get::<i64, _>(4)?).unwrap_or(0)),
            issued_at: timestamp(row.try_get(5)?),
            expires_at: timestamp(row.try_get(6)?),
            kept_until: timestamp(row.try_get(7)?),
        }))
    }
}

/// Stores a user's decision. `false`: another decision was stored before, or the code has expired.
#[derive(Debug, Clone)]
pub struct DecideDeviceCode {
    /// Digest of `user_code`, as typed by the user.
    pub user_code: StoredDigest,
    /// Whether the user approved the device.
    pub approved: bool,
    /// The user who decided.
    pub user_id: String,
    /// The session in which they decided.
    pub sid: String,
    /// Further details of the decision, in a format that the caller defines.
    pub details: String,
    /// Time of the change.
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

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Result of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PollResult {
    /// No decision yet (`authorization_pending`).
    Pending,
    /// The device polled too soon and must wait longer from now on (`slow_down`).
    TooSoon,
    /// The user refused (`access_denied`).
    Denied,
    /// The user approved. Polling does not redeem the code: [`RedeemDeviceCode`] also finds out
    /// whether it was redeemed before.
    Approved {
        /// The user who approved.
        user_id: String,
        /// The session in which they approved.
        sid: String,
        /// Further details of the decision.
        details: String,
    },
    /// The code has expired (`expired_token`).
    Expired,
    /// There is no such code for this client.
    Unknown,
}

/// Records a poll of a device.
#[derive(Debug, Clone)]
pub struct PollDeviceCode {
    /// Digest of `device_code`, which the device holds.
    pub digest: StoredDigest,
    /// The client it must belong to.
    pub client_id: String,
    /// Time of the poll.
    pub now: Timestamp,
}

impl Change for PollDeviceCode {
    type Output = PollResult;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<PollResult, StoreError> {
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
            .bind(duration_millis(SLOW_DOWN))
            .execute(&mut *tx.connection)
            .await?;
            return Ok(if slower.rows_affected() == 1 { PollResult::TooSoon } else { PollResult::Unknown });
        };
        // A code that was redeemed before counts as approved even after it has expired. The next
        // attempt to redeem it detects the replay and revokes the family.
        let redeemed = row.try_get::<Option<i64>, _>(5)?.is_some();
        if !redeemed && timestamp(row.try_get(4)?) <= self.now {
            return Ok(PollResult::Expired);
        }
        Ok(match row.try_get::<Option<i64>, _>(0)? {
            None => PollResult::Pending,
            Some(0) => PollResult::Denied,
            Some(_) => PollResult::Approved {
                user_id: row.try_get(1)?,
                sid: row.try_get(2)?,
                details: row.try_get(3)?,
            },
        })
    }
}

/// Redeems an approved code and stores the tokens issued for it. If it was redeemed before, revokes
/// its family instead.
#[derive(Debug, Clone)]
pub struct RedeemDeviceCode {
    /// Digest of `device_code`, which the device holds.
    pub digest: StoredDigest,
    /// The grant of the approval. Its client must be the code's client.
    pub family: Family,
    /// Tags of the grant's client and consent.
    pub origins: OriginTags,
    /// Tokens to store on success.
    pub successors: Successors,
    /// Event to append when the code was redeemed before.
    pub on_replay: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RedeemDeviceCode {
    type Output = crate::redeem::RedeemResult;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        use crate::redeem::RedeemResult;
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
            // The code stays marked as redeemed: it is useless without its session.
            if !tx.insert_family(&self.family, &self.origins).await? {
                return Ok(RedeemResult::Invalid);
            }
            tx.insert_successors(&self.successors, &self.family.id).await?;
            return Ok(RedeemResult::Redeemed);
        }
        let before = sqlx::query(
            "SELECT family_id FROM device_codes WHERE digest = $1 AND client_id = $2 AND redeemed_at IS NOT NULL",
        )
        .bind(self.digest.as_slice())
        .bind(&self.family.client_id)
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(row) = before else { return Ok(RedeemResult::Invalid) };
        let family: String = row.try_get(0)?;
        let revoked = tx.revoke_family(&family, &self.on_replay, self.now).await?;
        Ok(RedeemResult::Replayed { revoked })
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output == crate::redeem::RedeemResult::Redeemed
    }
}
