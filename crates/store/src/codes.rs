//! Authorization codes (RFC 6749 §4.1.2): each is redeemed once ([`crate::redeem`]).

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::error::StoreError;
use crate::families::{self, EventOrigins, Family, OWNED_COLUMNS, OwnedFamily};
use crate::store::Store;
use crate::value::{StoredDigest, millis, timestamp};
use crate::write::{Change, Tx};

/// A code as it is stored; what was decided with it stands in its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Of the code.
    pub digest: StoredDigest,
    /// Where it was sent.
    pub redirect_uri: String,
    /// `code_challenge` (RFC 7636), S256.
    pub challenge: Option<String>,
    /// `nonce` of the authorization request.
    pub nonce: Option<String>,
    /// When it was made.
    pub issued_at: Timestamp,
    /// From when on it is worth nothing.
    pub expires_at: Timestamp,
    /// Until when it is remembered, used or not: as long as somebody may try it a second time.
    pub kept_until: Timestamp,
}

/// Keeps a new code with its family.
#[derive(Debug, Clone)]
pub struct IssueCode {
    /// What it stands for.
    pub family: Family,
    /// What else that follows from.
    pub origins: EventOrigins,
    /// The code.
    pub code: Code,
    /// The scopes that the user must have allowed the client, still, be they none; `None`: nobody is asked about this client.
    pub consented: Option<Vec<String>>,
    /// The pushed authorization request it answers (RFC 9126), which is used up by it.
    pub answers: Option<StoredDigest>,
}

/// Whether there is a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issued {
    /// It is kept.
    Now,
    /// The pushed request was answered already, or is none (any more); there is no code.
    Answered,
    /// The session, the account or the consent ended meanwhile; there is no code, and the pushed request is not used up.
    Over,
}

impl Change for IssueCode {
    type Output = Issued;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Issued, StoreError> {
        if !tx.hold_grant(&self.family, &self.origins).await? {
            return Ok(Issued::Over);
        }
        if let Some(consented) = &self.consented
            && !tx.hold_consent(&self.family, consented).await?
        {
            return Ok(Issued::Over);
        }
        if let Some(pushed) = &self.answers
            && !tx.use_pushed_request(pushed, &self.family.client_id, self.code.issued_at).await?
        {
            return Ok(Issued::Answered);
        }
        tx.insert_held_family(&self.family).await?;
        let code = &self.code;
        sqlx::query(
            "INSERT INTO codes (digest, family_id, redirect_uri, challenge, nonce, issued_at, expires_at, kept_until) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(code.digest.as_slice())
        .bind(&self.family.id)
        .bind(&code.redirect_uri)
        .bind(&code.challenge)
        .bind(&code.nonce)
        .bind(millis(code.issued_at))
        .bind(millis(code.expires_at))
        .bind(millis(code.kept_until))
        .execute(&mut *tx.connection)
        .await?;
        Ok(Issued::Now)
    }

    fn happened(output: &Self::Output) -> bool {
        *output == Issued::Now
    }
}

impl Store {
    /// The code with its family and whose that is, redeemed or not. What it is bound to never changes, so it may be checked
    /// before the code is redeemed.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn code(&self, digest: &StoredDigest) -> Result<Option<(Code, OwnedFamily)>, StoreError> {
        let columns = "t.redirect_uri, t.challenge, t.nonce, t.issued_at, t.expires_at, t.kept_until";
        let Some(row) = families::behind(self, "codes", columns, digest).await? else { return Ok(None) };
        let code = Code {
            digest: *digest,
            redirect_uri: row.try_get(OWNED_COLUMNS)?,
            challenge: row.try_get(OWNED_COLUMNS + 1)?,
            nonce: row.try_get(OWNED_COLUMNS + 2)?,
            issued_at: timestamp(row.try_get(OWNED_COLUMNS + 3)?),
            expires_at: timestamp(row.try_get(OWNED_COLUMNS + 4)?),
            kept_until: timestamp(row.try_get(OWNED_COLUMNS + 5)?),
        };
        Ok(Some((code, OwnedFamily::read(&row)?)))
    }
}
