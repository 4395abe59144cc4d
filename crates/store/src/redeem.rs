//! Secrets that are redeemed once: authorization codes and refresh tokens; and what is handed out, for one of them or at the beginning.
//!
//! Whoever redeems one gets what follows from it, in one transaction with its being used up. Whoever comes a second time shows
//! that somebody else has it, and nobody can tell who is right: the family is revoked (RFC 6749 §4.1.2, RFC 9700 §4.14.2).

use sqlx::Row as _;

use crate::access_tokens::AccessToken;
use crate::announcements::{EventOrigins, Revocation};
use crate::error::StoreError;
use crate::families::{self, Family, SessionsAt};
use crate::refresh_tokens::RefreshToken;
use crate::value::{StoredDigest, millis};
use crate::write::{Change, Tx};

/// What is redeemed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    /// An authorization code.
    Code,
    /// A refresh token.
    RefreshToken,
}

impl Once {
    fn table(self) -> &'static str {
        match self {
            Self::Code => "codes",
            Self::RefreshToken => "refresh_tokens",
        }
    }

    /// Redeems it if it can be, and answers its family and the session that this ends with. One statement: whoever ends the family, the session
    /// or the account at the same moment voids what follows from it, because whoever reads a token reads its family too. A session that ends by
    /// itself is no such moment: what follows from it ends as early.
    fn redeem(self) -> String {
        let (table, goes_on) = (self.table(), families::with_its_session("$2", "$3"));
        format!(
            "UPDATE {table} SET redeemed_at = $2 WHERE digest = $1 AND redeemed_at IS NULL AND expires_at > $2 \
             AND EXISTS (SELECT 1 FROM families f LEFT JOIN users u ON u.id = f.user_id WHERE f.id = {table}.family_id \
             AND f.revoked_at IS NULL AND f.expires_at > $2 AND u.disabled_at IS NULL AND {goes_on}) \
             RETURNING family_id, (SELECT f.sid FROM families f WHERE f.id = {table}.family_id AND f.outlives_session = 0)"
        )
    }

    /// Answers its family if it was redeemed.
    fn redeemed(self) -> String {
        format!("SELECT family_id FROM {} WHERE digest = $1 AND redeemed_at IS NOT NULL", self.table())
    }
}

/// What became of an attempt to redeem a code or a refresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redeemed {
    /// It was redeemed, now and by this attempt alone.
    Now,
    /// It had been redeemed before; its family is revoked.
    Before,
    /// It has expired, is unknown, or its family is no longer alive, or the account or session it was granted in.
    Dead,
}

/// What is handed out for a code or a refresh token.
#[derive(Debug, Clone, Default)]
pub struct Successors {
    /// The next refresh token, if the client gets one.
    pub refresh: Option<RefreshToken>,
    /// The access token, if it is one that must be asked about.
    pub access: Option<AccessToken>,
}

impl Tx<'_> {
    pub(crate) async fn insert_successors(
        &mut self,
        successors: &Successors,
        family: &str,
    ) -> Result<(), StoreError> {
        if let Some(refresh) = &successors.refresh {
            self.insert_refresh_token(refresh, family).await?;
        }
        if let Some(access) = &successors.access {
            self.insert_access_token(access, Some(family)).await?;
        }
        Ok(())
    }
}

/// Redeems a secret and keeps what is handed out for it; or revokes its family when it was redeemed before. Where the family ends with its
/// session, that was used with this.
#[derive(Debug, Clone)]
pub struct Redeem {
    /// Its kind.
    pub what: Once,
    /// Of the secret.
    pub digest: StoredDigest,
    /// Kept when it succeeds.
    pub successors: Successors,
    /// Told when it was redeemed before.
    pub on_replay: Revocation,
    /// When, and which sessions go on.
    pub at: SessionsAt,
}

impl Change for Redeem {
    type Output = Redeemed;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Redeemed, StoreError> {
        let now = self.at.now;
        let redeemed = sqlx::query(sqlx::AssertSqlSafe(self.what.redeem()))
            .bind(self.digest.as_slice())
            .bind(millis(now))
            .bind(self.at.used_after())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = redeemed else {
            let before = sqlx::query(sqlx::AssertSqlSafe(self.what.redeemed()))
                .bind(self.digest.as_slice())
                .fetch_optional(&mut *tx.connection)
                .await?;
            let Some(row) = before else { return Ok(Redeemed::Dead) };
            let family: String = row.try_get(0)?;
            tx.revoke_family(&family, &self.on_replay, now).await?;
            return Ok(Redeemed::Before);
        };
        let family: String = row.try_get(0)?;
        if let Some(sid) = row.try_get::<Option<String>, _>(1)? {
            tx.use_session(sid, now);
        }
        tx.insert_successors(&self.successors, &family).await?;
        Ok(Redeemed::Now)
    }

    fn happened(output: &Self::Output) -> bool {
        *output == Redeemed::Now
    }
}

/// Keeps a family that begins with tokens, not with a code: with its first refresh token, and its access token if that is
/// one that must be asked about.
#[derive(Debug, Clone)]
pub struct BeginFamily {
    /// The family.
    pub family: Family,
    /// What else it follows from.
    pub origins: EventOrigins,
    /// Its first tokens.
    pub successors: Successors,
}

impl Change for BeginFamily {
    /// `false`: the account, the session or what it follows from ended meanwhile; nothing is kept then.
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        if !tx.insert_family(&self.family, &self.origins).await? {
            return Ok(false);
        }
        tx.insert_successors(&self.successors, &self.family.id).await?;
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}
