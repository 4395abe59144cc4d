//! Consents: which scopes a user has permanently allowed a client.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::columns::{millis, timestamp};
use crate::error::StoreError;
use crate::families::Family;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// A consent as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    /// The user who gave it.
    pub user_id: String,
    /// The client it was given to.
    pub client_id: String,
    /// Allowed scopes, space-separated.
    pub scopes: String,
    /// When it was last given.
    pub given_at: Timestamp,
}

impl Consent {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            user_id: row.try_get(0)?,
            client_id: row.try_get(1)?,
            scopes: row.try_get(2)?,
            given_at: timestamp(row.try_get(3)?),
        })
    }
}

impl Store {
    /// The consent of a user for a client.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn consent(&self, user_id: &str, client_id: &str) -> Result<Option<Consent>, StoreError> {
        let ask = sqlx::query(
            "SELECT user_id, client_id, scopes, given_at FROM consents WHERE user_id = $1 AND client_id = $2",
        )
        .bind(user_id)
        .bind(client_id);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(Consent::read).transpose()
    }

    /// All consents of a user, in the order of the client ids.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn consents_of(&self, user_id: &str) -> Result<Vec<Consent>, StoreError> {
        let ask = sqlx::query(
            "SELECT user_id, client_id, scopes, given_at FROM consents WHERE user_id = $1 ORDER BY client_id",
        )
        .bind(user_id);
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(Consent::read).collect()
    }
}

impl Tx<'_> {
    /// Whether the user's consent to the family's client still covers these scopes. If it exists,
    /// the row stays locked until the transaction ends, so it cannot be withdrawn.
    pub(crate) async fn lock_consent(
        &mut self,
        family: &Family,
        scopes: &[String],
    ) -> Result<bool, StoreError> {
        let held = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT scopes FROM consents WHERE user_id = $1 AND client_id = $2{}",
            self.dialect.for_share()
        )))
        .bind(&family.user_id)
        .bind(&family.client_id)
        .fetch_optional(&mut *self.connection)
        .await?;
        let Some(held) = held else { return Ok(false) };
        let allowed: String = held.try_get(0)?;
        Ok(scopes.iter().all(|scope| allowed.split_ascii_whitespace().any(|one| one == scope)))
    }
}

/// Stores a consent in place of the one that was read. `false`: it has changed since.
#[derive(Debug, Clone)]
pub struct GiveConsent {
    /// The consent with all allowed scopes, those of before included.
    pub consent: Consent,
    /// The scopes of the consent that was read; `None`: there was none.
    pub previous_scopes: Option<String>,
}

impl Change for GiveConsent {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let statement = match self.previous_scopes {
            None => {
                "INSERT INTO consents (user_id, client_id, scopes, given_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (user_id, client_id) DO NOTHING"
            }
            Some(_) => {
                "UPDATE consents SET scopes = $3, given_at = $4 \
                 WHERE user_id = $1 AND client_id = $2 AND scopes = $5"
            }
        };
        let mut query = sqlx::query(statement)
            .bind(&self.consent.user_id)
            .bind(&self.consent.client_id)
            .bind(&self.consent.scopes)
            .bind(millis(self.consent.given_at));
        if let Some(before) = &self.previous_scopes {
            query = query.bind(before);
        }
        Ok(query.execute(&mut *tx.connection).await?.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes a consent and revokes the client's families. `false`: there was none.
#[derive(Debug, Clone)]
pub struct WithdrawConsent {
    /// The user who withdraws.
    pub user_id: String,
    /// The client that loses the consent.
    pub client_id: String,
    /// Event to append to the revocation log: the tags of the revoked families, or one for user and
    /// client.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for WithdrawConsent {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let withdrawn = sqlx::query("DELETE FROM consents WHERE user_id = $1 AND client_id = $2")
            .bind(&self.user_id)
            .bind(&self.client_id)
            .execute(&mut *tx.connection)
            .await?;
        if withdrawn.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query(
            "UPDATE families SET revoked_at = $3 WHERE user_id = $1 AND client_id = $2 AND revoked_at IS NULL",
        )
        .bind(&self.user_id)
        .bind(&self.client_id)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
