//! Authorization codes (RFC 6749 §4.1.2): each is redeemed once.

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::access_tokens::AccessToken;
use crate::error::StoreError;
use crate::families::{self, Family};
use crate::invalidation::Revocation;
use crate::refresh_tokens::RefreshToken;
use crate::store::Store;
use crate::value::{Digest, millis, timestamp};
use crate::write::{Change, Tx};

/// A code as it is stored; what was decided with it stands in its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Of the code.
    pub digest: Digest,
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

/// What became of an attempt to redeem a code or a refresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redeemed {
    /// It was redeemed, now and by this attempt alone.
    Now,
    /// It had been redeemed before; its family is revoked.
    Before,
    /// It has expired, is unknown, or its family is no longer alive.
    Dead,
}

/// Keeps a new code with its family.
#[derive(Debug, Clone)]
pub struct IssueCode {
    /// What it stands for.
    pub family: Family,
    /// The code.
    pub code: Code,
}

impl Change for IssueCode {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.insert_family(&self.family).await?;
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
        Ok(())
    }
}

impl Store {
    /// The code with its family, redeemed or not. What it is bound to never changes, so it may be checked before the
    /// code is redeemed.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn code(&self, digest: &Digest) -> Result<Option<(Code, Family)>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {}, c.redirect_uri, c.challenge, c.nonce, c.issued_at, c.expires_at, c.kept_until \
             FROM codes c JOIN families f ON f.id = c.family_id WHERE c.digest = $1",
            families::COLUMNS
        )))
        .bind(digest.as_slice())
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let code = Code {
            digest: *digest,
            redirect_uri: row.try_get(11)?,
            challenge: row.try_get(12)?,
            nonce: row.try_get(13)?,
            issued_at: timestamp(row.try_get(14)?),
            expires_at: timestamp(row.try_get(15)?),
            kept_until: timestamp(row.try_get(16)?),
        };
        Ok(Some((code, Family::read(&row)?)))
    }
}

/// What is handed out for a code or a refresh token.
#[derive(Debug, Clone, Default)]
pub struct Successors {
    /// The next refresh token, if the client gets one.
    pub refresh: Option<RefreshToken>,
    /// The access token, if it is one that must be asked about.
    pub access: Option<AccessToken>,
}

/// Redeems a code, and keeps what is handed out for it; or revokes its family when it was redeemed before.
#[derive(Debug, Clone)]
pub struct RedeemCode {
    /// Of the code.
    pub digest: Digest,
    /// Kept when it succeeds.
    pub successors: Successors,
    /// Told when it was redeemed before.
    pub on_replay: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for RedeemCode {
    type Output = Redeemed;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Redeemed, StoreError> {
        let redemption = Redemption {
            redeem: "UPDATE codes SET redeemed_at = $2 WHERE digest = $1 AND redeemed_at IS NULL \
                     AND expires_at > $2 RETURNING family_id",
            redeemed: "SELECT family_id FROM codes WHERE digest = $1 AND redeemed_at IS NOT NULL",
            digest: &self.digest,
            successors: &self.successors,
            on_replay: &self.on_replay,
            now: self.now,
        };
        redemption.apply(tx).await
    }
}

/// Something that is redeemed once, whatever its table.
pub(crate) struct Redemption<'a> {
    /// Redeems it if it can be; answers its family.
    pub(crate) redeem: &'static str,
    /// Its family, if it was redeemed.
    pub(crate) redeemed: &'static str,
    pub(crate) digest: &'a Digest,
    pub(crate) successors: &'a Successors,
    pub(crate) on_replay: &'a Revocation,
    pub(crate) now: Timestamp,
}

impl Redemption<'_> {
    pub(crate) async fn apply(&self, tx: &mut Tx<'_>) -> Result<Redeemed, StoreError> {
        let redeemed = sqlx::query(self.redeem)
            .bind(self.digest.as_slice())
            .bind(millis(self.now))
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = redeemed else {
            let before = sqlx::query(self.redeemed)
                .bind(self.digest.as_slice())
                .fetch_optional(&mut *tx.connection)
                .await?;
            let Some(row) = before else { return Ok(Redeemed::Dead) };
            let family: String = row.try_get(0)?;
            tx.revoke_family(&family, self.on_replay, self.now).await?;
            return Ok(Redeemed::Before);
        };
        let family: String = row.try_get(0)?;
        if !tx.use_family(&family, self.now).await? {
            return Ok(Redeemed::Dead);
        }
        if let Some(refresh) = &self.successors.refresh {
            tx.insert_refresh_token(refresh, &family).await?;
        }
        if let Some(access) = &self.successors.access {
            tx.insert_access_token(access, Some(&family)).await?;
        }
        Ok(Redeemed::Now)
    }
}
