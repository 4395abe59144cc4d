//! Account links: one-time links with which a user sets a password, for an invitation or a reset.
//!
//! Owns: the rows, and their use. Does not own: the text of a link, of which only a digest is here,
//! and what a new password revokes ([`crate::users::RevokeUser`]).
//!
//! A user has at most one link; a newer one replaces it. Whatever revokes the sessions of a user
//! deletes the link too: a change of the password by another way, disabling, sign-out everywhere. A
//! mail with the link that is not sent yet is deleted with it ([`crate::mail_queue`]).
//!
//! Every change locks the account first, so that changes of one account never wait for each other
//! in a circle.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{StoredDigest, millis, timestamp};
use crate::error::StoreError;
use crate::store::Store;
use crate::users::{COLUMN_COUNT, COLUMNS, RevokeUser, UserRow};
use crate::writer::{Change, Tx};

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// The first password of a new account.
    Invitation,
    /// Another password.
    Reset,
}

impl LinkKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Invitation => "invitation",
            Self::Reset => "reset",
        }
    }
}

/// A link that can still be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountLinkRow {
    /// The enabled account.
    pub user: UserRow,
    /// What the link is for.
    pub kind: LinkKind,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Store {
    /// The link with this digest, if it is unused and has not expired, and its account is enabled.
    /// Reading does not use it.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn account_link(
        &self,
        digest: &StoredDigest,
        now: Timestamp,
    ) -> Result<Option<AccountLinkRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, l.kind, l.expires_at FROM account_links l JOIN users u ON u.id = l.user_id \
             WHERE l.digest = $1 AND l.expires_at > $2 AND u.disabled_at IS NULL"
        )))
        .bind(digest.as_slice())
        .bind(millis(now));
        let Some(row) = self.readers().fetch_optional(ask).await? else { return Ok(None) };
        let kind: String = row.try_get(COLUMN_COUNT)?;
        // A kind of a newer program is not understood, so its link does not work here.
        let kind = [LinkKind::Invitation, LinkKind::Reset].into_iter().find(|known| known.name() == kind);
        let Some(kind) = kind else { return Ok(None) };
        let expires_at = timestamp(row.try_get(COLUMN_COUNT + 1)?);
        Ok(Some(AccountLinkRow { user: UserRow::read(&row)?, kind, expires_at }))
    }
}

impl Tx<'_> {
    /// Deletes the link of a user, and the mail that would bring it; the caller holds the lock of the
    /// account.
    pub(crate) async fn delete_account_link(&mut self, user_id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM account_links WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.connection)
            .await?;
        self.delete_mail_of(user_id).await
    }
}

/// Stores a link, in place of an earlier one of the user. `false`: the account was disabled or
/// revoked since it was read, or does not exist.
#[derive(Debug, Clone)]
pub struct IssueAccountLink {
    /// Id of the user.
    pub user_id: String,
    /// When the account was read, in log time.
    pub read_at: Timestamp,
    /// Digest of the link's secret.
    pub digest: StoredDigest,
    /// What it is for.
    pub kind: LinkKind,
    /// Time of the change.
    pub now: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Change for IssueAccountLink {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let alone = tx.dialect.for_update();
        if !tx.lock_user_with(alone, &self.user_id, self.read_at).await? {
            return Ok(false);
        }
        tx.delete_mail_of(&self.user_id).await?;
        sqlx::query(
            "INSERT INTO account_links (user_id, digest, kind, created_at, expires_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (user_id) DO UPDATE SET digest = excluded.digest, kind = excluded.kind, \
             created_at = excluded.created_at, expires_at = excluded.expires_at",
        )
        .bind(&self.user_id)
        .bind(self.digest.as_slice())
        .bind(self.kind.name())
        .bind(millis(self.now))
        .bind(millis(self.expires_at))
        .execute(&mut *tx.connection)
        .await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Uses a link: sets the password and ends everything of the user, the link too. `false`, and nothing
/// is changed: the link was used, replaced or has expired, or the account was disabled or revoked
/// since it was read.
#[derive(Debug, Clone)]
pub struct UseAccountLink {
    /// Digest of the link's secret.
    pub digest: StoredDigest,
    /// When the account was read, in log time.
    pub read_at: Timestamp,
    /// The change of the password.
    pub end: RevokeUser,
}

impl Change for UseAccountLink {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let alone = tx.dialect.for_update();
        if !tx.lock_user_with(alone, &self.end.user_id, self.read_at).await? {
            return Ok(false);
        }
        let used =
            sqlx::query("DELETE FROM account_links WHERE user_id = $1 AND digest = $2 AND expires_at > $3")
                .bind(&self.end.user_id)
                .bind(self.digest.as_slice())
                .bind(millis(self.end.now))
                .execute(&mut *tx.connection)
                .await?;
        Ok(used.rows_affected() == 1 && self.end.apply(tx).await?)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
