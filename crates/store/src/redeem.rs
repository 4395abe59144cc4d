//! Redemption: authorization codes and refresh tokens are redeemed once, for new tokens; and the
//! first tokens of a family.
//!
//! The redemption and the insertion of the new tokens are one transaction. A second attempt shows
//! that the secret was stolen, and the store does not know which of the two holders is legitimate.
//! So the family is revoked (RFC 6749 §4.1.2, RFC 9700 §4.14.2).

use sqlx::Row as _;

use crate::access_tokens::AccessToken;
use crate::announcements::{OriginTags, Revocation};
use crate::columns::{StoredDigest, millis};
use crate::error::StoreError;
use crate::families::{self, Family, SessionActivity};
use crate::refresh_tokens::RefreshToken;
use crate::writer::{Change, Tx};

/// Kind of a secret that is redeemed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// An authorization code.
    Code,
    /// A refresh token.
    RefreshToken,
}

impl SecretKind {
    fn table(self) -> &'static str {
        match self {
            Self::Code => "codes",
            Self::RefreshToken => "refresh_tokens",
        }
    }

    /// Statement that redeems the secret if possible. It returns the family, and the session if the
    /// family ends with it. A concurrent change that ends family, session or account also
    /// invalidates the new tokens, because each read of a token reads its family. A session that
    /// expires needs no such care: the new tokens expire no later.
    fn redeem_statement(self) -> String {
        let (table, goes_on) = (self.table(), families::session_condition("$2", "$3"));
        format!(
            "UPDATE {table} SET redeemed_at = $2 WHERE digest = $1 AND redeemed_at IS NULL AND expires_at > $2 \
             AND EXISTS (SELECT 1 FROM families f LEFT JOIN users u ON u.id = f.user_id WHERE f.id = {table}.family_id \
             AND f.revoked_at IS NULL AND f.expires_at > $2 AND u.disabled_at IS NULL AND {goes_on}) \
             RETURNING family_id, (SELECT f.sid FROM families f WHERE f.id = {table}.family_id AND f.outlives_session = 0)"
        )
    }

    /// Statement that returns the family of a secret that was redeemed before.
    fn redeemed_statement(self) -> String {
        format!("SELECT family_id FROM {} WHERE digest = $1 AND redeemed_at IS NOT NULL", self.table())
    }
}

/// Result of an attempt to redeem a code or a refresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedeemResult {
    /// Redeemed by this attempt.
    Redeemed,
    /// It was redeemed before; its family is revoked now.
    Replayed {
        /// Whether this attempt revoked it. `false`: it was revoked before.
        revoked: bool,
    },
    /// It has expired or is unknown, or its family, account or session has ended.
    Invalid,
}

/// Tokens issued for a code or a refresh token.
#[derive(Debug, Clone, Default)]
pub struct Successors {
    /// The next refresh token, if the client gets one.
    pub refresh: Option<RefreshToken>,
    /// The access token if it is opaque; a JWT is not stored.
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

/// Redeems a secret and stores the tokens issued for it. If it was redeemed before, revokes its
/// family instead. Counts as a use of the session if the family ends with it.
#[derive(Debug, Clone)]
pub struct Redeem {
    /// Kind of the secret.
    pub kind: SecretKind,
    /// Digest of the secret.
    pub digest: StoredDigest,
    /// Tokens to store on success.
    pub successors: Successors,
    /// Event to append when the secret was redeemed before.
    pub on_replay: Revocation,
    /// Time of the attempt, and which sessions count as active.
    pub at: SessionActivity,
}

impl Change for Redeem {
    type Output = RedeemResult;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<RedeemResult, StoreError> {
        let now = self.at.now;
        let redeemed = sqlx::query(sqlx::AssertSqlSafe(self.kind.redeem_statement()))
            .bind(self.digest.as_slice())
            .bind(millis(now))
            .bind(self.at.used_after())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = redeemed else {
            let before = sqlx::query(sqlx::AssertSqlSafe(self.kind.redeemed_statement()))
                .bind(self.digest.as_slice())
                .fetch_optional(&mut *tx.connection)
                .await?;
            let Some(row) = before else { return Ok(RedeemResult::Invalid) };
            let family: String = row.try_get(0)?;
            let revoked = tx.revoke_family(&family, &self.on_replay, now).await?;
            return Ok(RedeemResult::Replayed { revoked });
        };
        let family: String = row.try_get(0)?;
        if let Some(sid) = row.try_get::<Option<String>, _>(1)? {
            tx.record_session_use(sid, now);
        }
        tx.insert_successors(&self.successors, &family).await?;
        Ok(RedeemResult::Redeemed)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output == RedeemResult::Redeemed
    }
}

/// Stores a family that starts with tokens and not with a code: with its first refresh token, and
/// its access token if that is opaque.
#[derive(Debug, Clone)]
pub struct BeginFamily {
    /// The family to store.
    pub family: Family,
    /// Tags of the family's client and consent.
    pub origins: OriginTags,
    /// Its first tokens.
    pub successors: Successors,
}

impl Change for BeginFamily {
    /// `false`: the account, the session or one of the origins ended meanwhile; nothing is stored.
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        if !tx.insert_family(&self.family, &self.origins).await? {
            return Ok(false);
        }
        tx.insert_successors(&self.successors, &self.family.id).await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
