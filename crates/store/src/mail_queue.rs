//! Mail queue: mails with an account link that are not sent yet.
//!
//! Owns: the rows, and which node sends one. Does not own: links ([`crate::account_links`]), the text
//! of a mail, the conversation with the mail server.
//!
//! ```text
//! an operator:  IssueAccountLink + QueueMail, for a user ─────────────────────────┐
//! anybody:      QueueMail, for a typed name ─▶ TakeDueMails ─▶ AddressMail ─▶ TakeDueMails ─▶ RemoveMail
//! ```
//!
//! A typed name is stored as the caller sealed it, and is looked up later. So the change is the same
//! whether or not there is such a user. A row has no secret: the caller derives that of the link from
//! the id of the row.
//!
//! As with [`crate::deliveries`], the node that takes a mail postpones it in the same statement.
//! Whatever replaces or deletes the link of a user deletes the mail too.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::account_links::IssueAccountLink;
use crate::columns::{duration_millis, millis, timestamp};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Recipient of a mail.
#[derive(Clone, PartialEq, Eq)]
pub enum MailRecipient {
    /// A name or address that somebody typed, sealed by the caller. Whether it is that of a user is
    /// not known yet.
    Typed(Vec<u8>),
    /// A user, by id.
    User(String),
}

/// Omits a typed name: users type passwords there.
impl std::fmt::Debug for MailRecipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Typed(_) => f.write_str("Typed(..)"),
            Self::User(id) => f.debug_tuple("User").field(id).finish(),
        }
    }
}

/// Who asked for a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailOrigin {
    /// An operator.
    Operator,
    /// Somebody who claims to be the user.
    User,
}

impl MailOrigin {
    const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::User => "user",
        }
    }
}

/// A mail in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMail {
    /// Unique, unguessable id.
    pub id: String,
    /// Who gets it.
    pub recipient: MailRecipient,
    /// Who asked for it.
    pub origin: MailOrigin,
    /// Tag of the language of its text.
    pub language: String,
    /// Address of the client that asked for it, for the audit log.
    pub address: Option<String>,
    /// Number of attempts; of a mail that was taken, including this one.
    pub attempts: u32,
    /// When it expires.
    pub expires_at: Timestamp,
}

const COLUMNS: &str = "id, user_id, sealed_login, origin, language, address, tries, expires_at";

impl QueuedMail {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let (user, typed): (Option<String>, Option<Vec<u8>>) = (row.try_get(1)?, row.try_get(2)?);
        let origin: String = row.try_get(3)?;
        Ok(Self {
            id: row.try_get(0)?,
            recipient: user
                .map_or_else(|| MailRecipient::Typed(typed.unwrap_or_default()), MailRecipient::User),
            // The stricter one for the origin of a newer program.
            origin: if origin == MailOrigin::Operator.name() {
                MailOrigin::Operator
            } else {
                MailOrigin::User
            },
            language: row.try_get(4)?,
            address: row.try_get(5)?,
            attempts: u32::try_from(row.try_get::<i64, _>(6)?).unwrap_or(u32::MAX),
            expires_at: timestamp(row.try_get(7)?),
        })
    }
}

impl Store {
    /// Whether an attempt to send a mail is due.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn is_mail_due(&self, now: Timestamp) -> Result<bool, StoreError> {
        let ask = sqlx::query("SELECT 1 FROM mail_queue WHERE due_at <= $1 LIMIT 1").bind(millis(now));
        Ok(self.readers().fetch_optional(ask).await?.is_some())
    }
}

impl Tx<'_> {
    /// Deletes the mail of a user; the caller holds the lock of the account.
    pub(crate) async fn delete_mail_of(&mut self, user_id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM mail_queue WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }
}

/// Adds a mail to the queue.
#[derive(Debug, Clone)]
pub struct QueueMail {
    /// The mail. Its `attempts` are ignored.
    pub mail: QueuedMail,
    /// When the first attempt is due.
    pub due_at: Timestamp,
}

impl Change for QueueMail {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let mail = &self.mail;
        let (user, typed) = match &mail.recipient {
            MailRecipient::User(id) => (Some(id), None),
            MailRecipient::Typed(sealed) => (None, Some(sealed)),
        };
        sqlx::query(
            "INSERT INTO mail_queue (id, user_id, sealed_login, origin, language, address, tries, due_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8)",
        )
        .bind(&mail.id)
        .bind(user)
        .bind(typed.map(Vec::as_slice))
        .bind(mail.origin.name())
        .bind(&mail.language)
        .bind(&mail.address)
        .bind(millis(self.due_at))
        .bind(millis(mail.expires_at))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// Takes due mails, the longest overdue first, and postpones them. Expired ones are among them.
#[derive(Debug, Clone)]
pub struct TakeDueMails {
    /// Maximum number of mails.
    pub limit: u32,
    /// Time until the next attempt after the first one, by any node. It doubles with each attempt, up
    /// to 32 times.
    pub retry_after: Duration,
    /// Time of the attempt.
    pub now: Timestamp,
}

impl Change for TakeDueMails {
    type Output = Vec<QueuedMail>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<QueuedMail>, StoreError> {
        // PostgreSQL re-evaluates the outer condition if another node had locked the row; by then
        // it is no longer due.
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE mail_queue SET tries = tries + 1, \
             due_at = $1 + $2 * CASE WHEN tries > 5 THEN 32 ELSE 1 << CAST(tries AS INTEGER) END \
             WHERE due_at <= $1 AND id IN \
             (SELECT id FROM mail_queue WHERE due_at <= $1 ORDER BY due_at, id LIMIT $3) RETURNING {COLUMNS}"
        )))
        .bind(millis(self.now))
        .bind(duration_millis(self.retry_after))
        .bind(i64::from(self.limit))
        .fetch_all(&mut *tx.connection)
        .await?;
        rows.iter().map(QueuedMail::read).collect()
    }
}

/// Issues the link of a mail for a typed name that turned out to be that of a user, and addresses the
/// mail to the user. It replaces another mail of the user. `false`, and nothing is changed: the mail
/// is gone or has a user already, or the account was disabled or revoked since it was read.
#[derive(Debug, Clone)]
pub struct AddressMail {
    /// Id of the mail.
    pub id: String,
    /// The link of the mail.
    pub link: IssueAccountLink,
}

impl Change for AddressMail {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let IssueAccountLink { user_id, read_at, .. } = &self.link;
        let alone = tx.dialect.for_update();
        if !tx.lock_user_with(alone, user_id, *read_at).await? {
            return Ok(false);
        }
        let waiting = sqlx::query(
            "UPDATE mail_queue SET sealed_login = NULL WHERE id = $1 AND user_id IS NULL AND sealed_login IS NOT NULL",
        )
        .bind(&self.id)
        .execute(&mut *tx.connection)
        .await?;
        if waiting.rows_affected() != 1 {
            return Ok(false);
        }
        // Deletes another mail of the user.
        if !self.link.apply(tx).await? {
            return Ok(false);
        }
        sqlx::query("UPDATE mail_queue SET user_id = $2, expires_at = $3 WHERE id = $1")
            .bind(&self.id)
            .bind(user_id)
            .bind(millis(self.link.expires_at))
            .execute(&mut *tx.connection)
            .await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Removes a mail that was sent, or never will be. `false`: it is gone already.
#[derive(Debug, Clone)]
pub struct RemoveMail {
    /// Id of the mail.
    pub id: String,
}

impl Change for RemoveMail {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let removed = sqlx::query("DELETE FROM mail_queue WHERE id = $1")
            .bind(&self.id)
            .execute(&mut *tx.connection)
            .await?;
        Ok(removed.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
