//! Clients that were registered while running, beside those of the configuration file.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::error::StoreError;
use crate::store::Store;
use crate::value::{millis, number, timestamp};
use crate::write::{Change, Tx};

/// A client as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// `client_id`.
    pub id: String,
    /// Everything else, in the caller's form; secrets in it are digests.
    pub settings: String,
    /// Grows with each change: who writes names the version they have seen.
    pub version: u64,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Since when it may do nothing.
    pub disabled_at: Option<Timestamp>,
    /// When this was read, in the time of the log ([`crate::invalidation`]).
    pub read_at: Timestamp,
}

const COLUMNS: &str = "id, settings, version, created_at, updated_at, disabled_at, \
     (SELECT at FROM invalidation_head WHERE id = 1)";

impl ClientRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.try_get(0)?,
            settings: row.try_get(1)?,
            version: number(row.try_get(2)?),
            created_at: timestamp(row.try_get(3)?),
            updated_at: timestamp(row.try_get(4)?),
            disabled_at: row.try_get::<Option<i64>, _>(5)?.map(timestamp),
            read_at: timestamp(row.try_get(6)?),
        })
    }
}

impl Store {
    /// A client by id.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn client(&self, id: &str) -> Result<Option<ClientRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM clients WHERE id = $1")));
        let ask = ask.bind(id);
        let row = self.readers().optional(ask).await?;
        row.as_ref().map(ClientRow::read).transpose()
    }

    /// Clients in the order of their ids, those after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn clients(&self, after: &str, limit: u32) -> Result<Vec<ClientRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM clients WHERE id > $1 ORDER BY id LIMIT $2"
        )))
        .bind(after)
        .bind(i64::from(limit));
        let rows = self.readers().all(ask).await?;
        rows.iter().map(ClientRow::read).collect()
    }
}

/// Registers a client.
#[derive(Debug, Clone)]
pub struct AddClient {
    /// `client_id`.
    pub id: String,
    /// Everything else.
    pub settings: String,
    /// When.
    pub now: Timestamp,
}

impl Change for AddClient {
    type Output = ();

    /// # Errors
    /// [`StoreError::Taken`]
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO clients (id, settings, version, created_at, updated_at) VALUES ($1, $2, 1, $3, $3)",
        )
        .bind(&self.id)
        .bind(&self.settings)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).naming("the client's id"))?;
        Ok(())
    }
}

/// Gives a client other settings, or closes or opens it. `false` when it is gone or another one wrote since it was read.
#[derive(Debug, Clone)]
pub struct ChangeClient {
    /// `client_id`.
    pub id: String,
    /// The version the change is made from.
    pub version: u64,
    /// All settings as they are to be.
    pub settings: String,
    /// Since when it is to be closed.
    pub disabled_at: Option<Timestamp>,
    /// What to tell: caches hold its settings, and tokens may be void.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for ChangeClient {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let changed = sqlx::query(
            "UPDATE clients SET settings = $3, version = version + 1, updated_at = $4, disabled_at = $5 \
             WHERE id = $1 AND version = $2",
        )
        .bind(&self.id)
        .bind(i64::try_from(self.version).unwrap_or(-1))
        .bind(&self.settings)
        .bind(millis(self.now))
        .bind(self.disabled_at.map(millis))
        .execute(&mut *tx.connection)
        .await?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        tx.append(&self.revocation, self.now);
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes a client, revokes what it holds and forgets what was allowed it: who is registered by the same id later is
/// another one. `false` when there is none.
#[derive(Debug, Clone)]
pub struct DeleteClient {
    /// `client_id`.
    pub id: String,
    /// What to tell: the client's tag.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for DeleteClient {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let deleted = sqlx::query("DELETE FROM clients WHERE id = $1")
            .bind(&self.id)
            .execute(&mut *tx.connection)
            .await?;
        if deleted.rows_affected() == 0 {
            return Ok(false);
        }
        // These first: whoever holds one of them keeps a family, which is found afterwards.
        for statement in [
            "DELETE FROM consents WHERE client_id = $1",
            "DELETE FROM device_codes WHERE client_id = $1",
            "DELETE FROM pushed_requests WHERE client_id = $1",
        ] {
            sqlx::query(statement).bind(&self.id).execute(&mut *tx.connection).await?;
        }
        for statement in [
            "UPDATE families SET revoked_at = $2 WHERE client_id = $1 AND revoked_at IS NULL",
            "UPDATE access_tokens SET revoked_at = $2 WHERE client_id = $1 AND family_id IS NULL \
             AND revoked_at IS NULL",
        ] {
            sqlx::query(statement).bind(&self.id).bind(millis(self.now)).execute(&mut *tx.connection).await?;
        }
        tx.append(&self.revocation, self.now);
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}
