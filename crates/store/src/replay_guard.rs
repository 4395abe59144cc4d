//! What may be used once and is not kept otherwise, such as the identifiers of client assertions (RFC 7523 §3).

use auth::time::Timestamp;

use crate::error::StoreError;
use crate::value::{StoredDigest, millis};
use crate::write::{Change, Tx};

/// Notes that something was used. `false` when it had been.
#[derive(Debug, Clone)]
pub struct UseOnce {
    /// Of what is used, and of whose it is.
    pub digest: StoredDigest,
    /// How long it could be used again.
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

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}
