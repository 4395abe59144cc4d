//! Pushed authorization requests (RFC 9126): kept here until a person has answered.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::error::StoreError;
use crate::store::Store;
use crate::value::{StoredDigest, millis};
use crate::write::{Change, Tx};

/// Keeps a request.
#[derive(Debug, Clone)]
pub struct PushRequest {
    /// Of its `request_uri`.
    pub digest: StoredDigest,
    /// Who pushed it, and who alone may refer to it.
    pub client_id: String,
    /// Its parameters, in the caller's form.
    pub parameters: String,
    /// From when on it is worth nothing.
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
    /// The parameters of a client's request that nobody has answered yet. It may be looked at as often as pages need it;
    /// issuing a code uses it up.
    ///
    /// # Errors
    /// [`StoreError`]
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
        let row = self.readers().optional(ask).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }
}

impl Tx<'_> {
    /// Uses a request up. `false` when that has happened, or there is none.
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
