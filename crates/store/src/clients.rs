//! Clients registered at run time, in addition to those of the configuration file.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::columns::{millis, timestamp, unsigned};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// A client as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// `client_id` (RFC 6749 §2.2).
    pub id: String,
    /// All other settings, in a format that the caller defines; secrets in it are digests.
    pub settings: String,
    /// Incremented by each change. A writer states the version it has read.
    pub version: u64,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was disabled; `None`: it is enabled.
    pub disabled_at: Option<Timestamp>,
    /// When this row was read, in log time ([`crate::revocation_log`]).
    pub read_at: Timestamp,
}

const COLUMNS: &str = "id, settings, version, created_at, updated_at, disabled_at, \
     (SELECT at FROM invalidation_head WHERE id = 1)";

impl ClientRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.try_get(0)?,
            settings: row.try_get(1)?,
            version: unsigned(row.try_get(2)?),
            created_at: timestamp(row.try_get(3)?),
            updated_at: timestamp(row.try_get(4)?),
            disabled_at: row.try_get::<Option<i64>, _>(5)?.map(timestamp),
            read_at: timestamp(row.try_get(6)?),
        })
    }
}

/// The statement of [`Store::clients`]. Its parameters: the id after which to read, and the maximum
/// number of clients.
pub fn list_statement() -> String {
    format!("SELECT {COLUMNS} FROM clients WHERE id > $1 ORDER BY id LIMIT $2")
}

impl Store {
    /// A client by its id.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn client(&self, id: &str) -> Result<Option<ClientRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM clients WHERE id = $1")));
        let ask = ask.bind(id);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(ClientRow::read).transpose()
    }

    /// At most `limit` clients in the order of their ids, starting after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn clients(&self, after: &str, limit: u32) -> Result<Vec<ClientRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(list_statement())).bind(after).bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(ClientRow::read).collect()
    }
}

/// Registers a client.
#[derive(Debug, Clone)]
pub struct AddClient {
    /// `client_id` (RFC 6749 §2.2).
    pub id: String,
    /// All other settings.
    pub settings: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for AddClient {
    type Output = ();

    /// # Errors
    /// [`StoreError::Taken`] when a client with this id exists.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO clients (id, settings, version, created_at, updated_at) VALUES ($1, $2, 1, $3, $3)",
        )
        .bind(&self.id)
        .bind(&self.settings)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).with_name("the client's id"))?;
        Ok(())
    }
}

/// Replaces the settings of a client, and disables or enables it. `false`: it was deleted, or
/// changed since it was read.
#[derive(Debug, Clone)]
pub struct ChangeClient {
    /// `client_id` (RFC 6749 §2.2).
    pub id: String,
    /// The version that was read.
    pub version: u64,
    /// The new settings, complete.
    pub settings: String,
    /// When it is disabled; `None`: it is enabled.
    pub disabled_at: Option<Timestamp>,
    /// Event to append to the revocation log: caches hold the settings, and tokens may be revoked.
    pub revocation: Revocation,
    /// Time of the change.
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
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes a client, revokes its grants and tokens, and deletes the consents given to it. A client
/// that later registers the same id is a different one. `false`: there is no such client.
#[derive(Debug, Clone)]
pub struct DeleteClient {
    /// `client_id` (RFC 6749 §2.2).
    pub id: String,
    /// Event to append to the revocation log, with the client's tag.
    pub revocation: Revocation,
    /// Time of the change.
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
        // These come first: a transaction that holds a lock on one of them inserts a family, which
        // the statements below must find.
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
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
