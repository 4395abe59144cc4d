//! Refresh tokens (RFC 6749 §6): each is redeemed once, for the next one (RFC 9700 §4.14.2).

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::codes::{Redeemed, Redemption, Successors};
use crate::error::StoreError;
use crate::families::{self, Family};
use crate::invalidation::Revocation;
use crate::store::Store;
use crate::value::{Digest, millis, timestamp};
use crate::write::{Change, Tx};

/// A refresh token as it is stored; whose it is and what for stands in its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshToken {
    /// Of the token.
    pub digest: Digest,
    /// When it was made.
    pub issued_at: Timestamp,
    /// From when on it is worth nothing.
    pub expires_at: Timestamp,
}

impl Store {
    /// The token with its family, redeemed or not.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn refresh_token(&self, digest: &Digest) -> Result<Option<(RefreshToken, Family)>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {}, r.issued_at, r.expires_at \
             FROM refresh_tokens r JOIN families f ON f.id = r.family_id WHERE r.digest = $1",
            families::COLUMNS
        )))
        .bind(digest.as_slice())
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let token = RefreshToken {
            digest: *digest,
            issued_at: timestamp(row.try_get(11)?),
            expires_at: timestamp(row.try_get(12)?),
        };
        Ok(Some((token, Family::read(&row)?)))
    }
}

impl Tx<'_> {
    pub(crate) async fn insert_refresh_token(
        &mut self,
        token: &RefreshToken,
        family: &str,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO refresh_tokens (digest, family_id, issued_at, expires_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(token.digest.as_slice())
        .bind(family)
        .bind(millis(token.issued_at))
        .bind(millis(token.expires_at))
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }
}

/// Redeems a refresh token, and keeps what is handed out for it; or revokes its family when it was redeemed before.
#[derive(Debug, Clone)]
pub struct RedeemRefreshToken {
    /// Of the token.
    pub digest: Digest,
    /// Kept when it succeeds.
    pub successors: Successors,
    /// Told when it was redeemed before.
    pub on_replay: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for RedeemRefreshToken {
    type Output = Redeemed;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Redeemed, StoreError> {
        let redemption = Redemption {
            redeem: "UPDATE refresh_tokens SET redeemed_at = $2 WHERE digest = $1 AND redeemed_at IS NULL \
                     AND expires_at > $2 RETURNING family_id",
            redeemed: "SELECT family_id FROM refresh_tokens WHERE digest = $1 AND redeemed_at IS NOT NULL",
            digest: &self.digest,
            successors: &self.successors,
            on_replay: &self.on_replay,
            now: self.now,
        };
        redemption.apply(tx).await
    }
}
