//! Opaque access tokens, whose status a resource server learns by introspection; and revocation of
//! any access token.

use auth::time::Timestamp;
use coherence::{LogHead, Tag};
use sqlx::Row as _;

use crate::announcements::{OriginTags, Revocation};
use crate::columns::{StoredDigest, batches, millis, read_head, read_tag, timestamp, unsigned};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// An access token as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// Digest of the token.
    pub digest: StoredDigest,
    /// `jti`: a unique id that is not secret.
    pub jti: String,
    /// The client it was issued to.
    pub client_id: String,
    /// The user it speaks for; `None`: the client itself.
    pub user_id: Option<String>,
    /// Scopes, space-separated.
    pub scopes: String,
    /// Audiences, space-separated.
    pub audiences: String,
    /// Further properties, in a format that the caller defines.
    pub details: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When the state it is based on was read, in log time ([`crate::revocation_log`]).
    pub read_at: Timestamp,
    /// Tags of its client and of its consent.
    pub origins: OriginTags,
}

/// A token with everything that decides whether it is valid, as of one state of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessTokenStatus {
    /// The stored token.
    pub token: AccessToken,
    /// Name of the user it speaks for.
    pub user_name: Option<String>,
    /// The session it ends with; `None`: it outlives its session or has none.
    pub sid: Option<String>,
    /// The family it belongs to.
    pub family_id: Option<String>,
    /// Whether neither the token, nor its family, its user or its client was revoked or disabled.
    pub unrevoked: bool,
    /// Head of the log, read in the same snapshot. All revocations up to it are taken into account.
    pub as_of: LogHead,
}

impl AccessTokenStatus {
    /// Whether the token is valid at `now`.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.unrevoked && now < self.token.expires_at
    }
}

impl Store {
    /// The status of a token; `None`: unknown.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn access_token(&self, digest: &StoredDigest) -> Result<Option<AccessTokenStatus>, StoreError> {
        // One statement sees one snapshot, in both databases.
        let ask = sqlx::query(
            "SELECT a.jti, a.client_id, a.user_id, a.scopes, a.audiences, a.details, a.issued_at, a.expires_at, \
             COALESCE(a.read_at, a.issued_at), \
             u.name, CASE WHEN f.outlives_session = 0 THEN f.sid END, a.family_id, \
             CASE WHEN a.revoked_at IS NULL AND f.revoked_at IS NULL AND u.disabled_at IS NULL \
             AND c.disabled_at IS NULL AND (u.id IS NULL OR COALESCE(a.read_at, a.issued_at) >= u.tokens_not_before) \
             AND NOT EXISTS (SELECT 1 FROM denials d WHERE d.tag IN (a.client_tag, a.consent_tag) \
             AND (d.not_before IS NULL OR d.not_before > a.read_at)) \
             THEN 1 ELSE 0 END, h.epoch, h.seq, a.client_tag, a.consent_tag \
             FROM access_tokens a CROSS JOIN invalidation_head h \
             LEFT JOIN families f ON f.id = a.family_id \
             LEFT JOIN users u ON u.id = a.user_id \
             LEFT JOIN clients c ON c.id = a.client_id \
             WHERE a.digest = $1",
        )
        .bind(digest.as_slice());
        let row = self.readers().fetch_optional(ask).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(AccessTokenStatus {
            token: AccessToken {
                digest: *digest,
                jti: row.try_get(0)?,
                client_id: row.try_get(1)?,
                user_id: row.try_get(2)?,
                scopes: row.try_get(3)?,
                audiences: row.try_get(4)?,
                details: row.try_get(5)?,
                issued_at: timestamp(row.try_get(6)?),
                expires_at: timestamp(row.try_get(7)?),
                read_at: timestamp(row.try_get(8)?),
                origins: [read_tag(&row, 15)?, read_tag(&row, 16)?],
            },
            user_name: row.try_get(9)?,
            sid: row.try_get(10)?,
            family_id: row.try_get(11)?,
            unrevoked: unsigned(row.try_get(12)?) == 1,
            as_of: read_head(&row, 13)?,
        }))
    }
}

impl Tx<'_> {
    pub(crate) async fn insert_access_token(
        &mut self,
        token: &AccessToken,
        family: Option<&str>,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO access_tokens (digest, jti, family_id, client_id, user_id, scopes, audiences, details, \
             issued_at, expires_at, read_at, client_tag, consent_tag) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(token.digest.as_slice())
        .bind(&token.jti)
        .bind(family)
        .bind(&token.client_id)
        .bind(&token.user_id)
        .bind(&token.scopes)
        .bind(&token.audiences)
        .bind(&token.details)
        .bind(millis(token.issued_at))
        .bind(millis(token.expires_at))
        .bind(millis(token.read_at))
        .bind(token.origins[0].0.to_vec())
        .bind(token.origins[1].0.to_vec())
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }
}

/// Stores an access token that belongs to no family.
#[derive(Debug, Clone)]
pub struct IssueAccessToken(pub AccessToken);

impl Change for IssueAccessToken {
    /// `false`: the account was disabled or its tokens were revoked meanwhile; nothing is stored.
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        if let Some(user) = &self.0.user_id
            && !tx.lock_user(user, self.0.read_at).await?
        {
            return Ok(false);
        }
        tx.insert_access_token(&self.0, None).await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Revokes one access token of a client. `false`: it is unknown, revoked already, or belongs to
/// another client.
#[derive(Debug, Clone)]
pub struct RevokeAccessToken {
    /// Digest of the token.
    pub digest: StoredDigest,
    /// The client it must belong to.
    pub client_id: String,
    /// Event to append to the revocation log.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeAccessToken {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let revoked = sqlx::query(
            "UPDATE access_tokens SET revoked_at = $3 WHERE digest = $1 AND client_id = $2 AND revoked_at IS NULL",
        )
        .bind(self.digest.as_slice())
        .bind(&self.client_id)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        if revoked.rows_affected() == 0 {
            return Ok(false);
        }
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Revokes access tokens by their `jti`, whether they are opaque and stored here or are JWTs. The
/// tokens need not exist.
#[derive(Debug, Clone)]
pub struct RevokeByJti {
    /// The `jti` of each token.
    pub jtis: Vec<String>,
    /// Event to append to the revocation log.
    pub revocations: Vec<Revocation>,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeByJti {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for some in batches(&self.jtis) {
            let places: Vec<_> = (2..some.len() + 2).map(|at| format!("${at}")).collect();
            let revoke = format!(
                "UPDATE access_tokens SET revoked_at = $1 WHERE jti IN ({}) AND revoked_at IS NULL",
                places.join(", ")
            );
            let revoke = sqlx::query(sqlx::AssertSqlSafe(revoke)).bind(millis(self.now));
            let revoke = some.iter().fold(revoke, sqlx::query::Query::bind);
            revoke.execute(&mut *tx.connection).await?;
        }
        for revocation in &self.revocations {
            tx.queue_revocation(revocation, self.now);
        }
        Ok(())
    }
}

/// Revokes a JWT, unless its tag is on the denylist already. `false`: it was.
#[derive(Debug, Clone)]
pub struct RevokeJwt {
    /// Tag of the token, which must also be among the tags of `revocation`.
    pub tag: Tag,
    /// Event to append to the revocation log.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeJwt {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let denied = sqlx::query("SELECT 1 FROM denials WHERE tag = $1 AND not_before IS NULL")
            .bind(self.tag.0.to_vec())
            .fetch_optional(&mut *tx.connection)
            .await?;
        if denied.is_some() {
            return Ok(false);
        }
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Revokes something that is verified without a query to this store: a JWT or a key.
#[derive(Debug, Clone)]
pub struct AppendRevocation {
    /// Event to append to the revocation log.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for AppendRevocation {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.queue_revocation(&self.revocation, self.now);
        Ok(())
    }
}
