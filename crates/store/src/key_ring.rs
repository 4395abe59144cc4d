//! Key ring: one sealed value that all nodes share.
//!
//! Owns: replacing it if it is still the version that was read. Does not own: its content, which
//! the caller seals.

use std::fmt;

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::announcements::Revocation;
use crate::columns::unsigned;
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// The key ring as it is stored. `Debug` omits the content.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRingRow {
    /// Version, from 1; each change increments it.
    pub version: u64,
    /// The content, sealed by the caller.
    pub content: Vec<u8>,
}

impl fmt::Debug for KeyRingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRingRow").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Store {
    /// The key ring; `None`: none was stored yet.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn key_ring(&self) -> Result<Option<KeyRingRow>, StoreError> {
        let row = self
            .readers()
            .fetch_optional(sqlx::query("SELECT version, content FROM key_ring WHERE id = 1"))
            .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(KeyRingRow { version: unsigned(row.try_get(0)?), content: row.try_get(1)? }))
    }
}

/// Replaces the key ring. `false`: another node wrote meanwhile; read it again. `Debug` omits the
/// content.
#[derive(Clone)]
pub struct ReplaceKeyRing {
    /// The version that was read; `None`: there was none.
    pub from: Option<u64>,
    /// The new content, sealed.
    pub content: Vec<u8>,
    /// Event to append when a key is no longer valid.
    pub revocation: Option<Revocation>,
    /// Time of the change.
    pub now: Timestamp,
}

impl fmt::Debug for ReplaceKeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplaceKeyRing").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Change for ReplaceKeyRing {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let query = match self.from {
            None => sqlx::query(
                "INSERT INTO key_ring (id, version, content) VALUES (1, 1, $1) ON CONFLICT (id) DO NOTHING",
            )
            .bind(&self.content[..]),
            Some(version) => sqlx::query(
                "UPDATE key_ring SET version = version + 1, content = $1 WHERE id = 1 AND version = $2",
            )
            .bind(&self.content[..])
            .bind(i64::try_from(version).unwrap_or(-1)),
        };
        if query.execute(&mut *tx.connection).await?.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(revocation) = &self.revocation {
            tx.queue_revocation(revocation, self.now);
        }
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
