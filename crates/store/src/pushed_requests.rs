//! Pushed authorization requests (RFC 9126), stored until the user has decided.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{StoredDigest, millis};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Stores a pushed request.
#[derive(Debug, Clone)]
pub struct PushRequest {
    /// Digest of its `request_uri`.
    pub digest: StoredDigest,
    /// The client that pushed it; no other may refer to it.
    pub client_id: String,
    /// Its parameters, in a format that the caller defines.
    pub parameters: String,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Change for PushRequest {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO pushed_requests (digest, client_id, parameters, expires_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(self.digest.as_slice())
        .bind(&self.client_id)
        .bind(&self.parameters)
        .bind(millis(self.expires_at))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

impl Store {
    /// The parameters of a client's request that is neither used nor expired. Reading does not use
    /// it up: only issuing a code does.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn pushed_request(
        &self,
        digest: &StoredDigest,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let ask = sqlx::query(
            "SELECT parameters FROM pushed_requests WHERE digest = $1 AND client_id = $2 \
             AND expires_at > $3 AND used_at IS NULL",
        )
        .bind(digest.as_slice())
        .bind(client_id)
        .bind(millis(now));
        let row = self.readers().fetch_optional(ask).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }
}

impl Tx<'_> {
    /// Marks a request as used. `false`: it was used before, has expired or is unknown.
    pub(crate) async fn use_pushed_request(
        &mut self,
        digest: &StoredDigest,
        client_id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let used = sqlx::query(
            "UPDATE pushed_requests SET used_at = $3 WHERE digest = $1 AND client_id = $2 \
             AND expires_at > $3 AND used_at IS NULL",
        )
        .bind(digest.as_slice())
        .bind(client_id)
        .bind(millis(now))
        .execute(&mut *self.connection)
        .await?;
        Ok(used.rows_affected() == 1)
    }
}
