//! Replay guard: remembers single-use identifiers that no other table stores, such as the `jti` of
//! client assertions (RFC 7523 §3).

use auth::time::Timestamp;

use crate::columns::{StoredDigest, millis};
use crate::error::StoreError;
use crate::writer::{Change, Tx};

/// Records the use of an identifier. `false`: it was used before.
#[derive(Debug, Clone)]
pub struct UseOnce {
    /// Digest of the identifier and of its issuer.
    pub digest: StoredDigest,
    /// When the identifier expires and can no longer be replayed.
    pub until: Timestamp,
}

impl Change for UseOnce {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "INSERT INTO seen (digest, expires_at) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING",
        )
        .bind(self.digest.as_slice())
        .bind(millis(self.until))
        .execute(&mut *tx.connection)
        .await?;
        Ok(noted.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
