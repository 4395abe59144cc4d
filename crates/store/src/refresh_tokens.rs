//! Refresh tokens (RFC 6749 §6): each is redeemed once ([`crate::redeem`]), in exchange for the
//! next.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{StoredDigest, millis, timestamp};
use crate::error::StoreError;
use crate::families::{self, OWNED_COLUMNS, OwnedFamily};
use crate::store::Store;
use crate::writer::Tx;

/// A refresh token as it is stored. Its family holds the client, the user and the scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshToken {
    /// Digest of the token.
    pub digest: StoredDigest,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Store {
    /// The token with its family and the family's user, redeemed or not.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn refresh_token(
        &self,
        digest: &StoredDigest,
    ) -> Result<Option<(RefreshToken, OwnedFamily)>, StoreError> {
        let columns = "t.issued_at, t.expires_at";
        let Some(row) = families::find_secret(self, "refresh_tokens", columns, digest).await? else {
            return Ok(None);
        };
        let token = RefreshToken {
            digest: *digest,
            issued_at: timestamp(row.try_get(OWNED_COLUMNS)?),
            expires_at: timestamp(row.try_get(OWNED_COLUMNS + 1)?),
        };
        Ok(Some((token, OwnedFamily::read(&row)?)))
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
