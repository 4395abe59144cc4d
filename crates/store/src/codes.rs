//! Authorization codes (RFC 6749 §4.1.2): each is redeemed once ([`crate::redeem`]).

use auth::time::Timestamp;
use sqlx::Row as _;

use crate::columns::{StoredDigest, millis, timestamp};
use crate::error::StoreError;
use crate::families::{self, Family, OWNED_COLUMNS, OriginTags, OwnedFamily};
use crate::store::Store;
use crate::writer::{Change, Tx};

/// A code as it is stored. Its family holds what was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Digest of the code.
    pub digest: StoredDigest,
    /// The `redirect_uri` it was sent to.
    pub redirect_uri: String,
    /// `code_challenge` (RFC 7636), method S256.
    pub challenge: Option<String>,
    /// `nonce` of the authorization request.
    pub nonce: Option<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// How long the row is kept, redeemed or not: as long as a replay must be detected.
    pub kept_until: Timestamp,
}

/// Stores a new code with its family.
#[derive(Debug, Clone)]
pub struct IssueCode {
    /// The grant that the code represents.
    pub family: Family,
    /// Tags of the grant's client and consent.
    pub origins: OriginTags,
    /// The code to store.
    pub code: Code,
    /// Scopes that the user's consent must still cover; the consent must exist even if they are
    /// empty. `None`: this client needs no consent.
    pub required_consent: Option<Vec<String>>,
    /// The pushed authorization request that this answers (RFC 9126). The code uses it up.
    pub pushed_request: Option<StoredDigest>,
}

/// Whether a code was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issued {
    /// The code was stored.
    Stored,
    /// No code: the pushed request was used before, has expired or is unknown.
    RequestUsed,
    /// No code: the session, the account or the consent ended meanwhile. The pushed request is not
    /// used up.
    GrantEnded,
}

impl Change for IssueCode {
    type Output = Issued;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Issued, StoreError> {
        if !tx.lock_grant(&self.family, &self.origins).await? {
            return Ok(Issued::GrantEnded);
        }
        if let Some(consented) = &self.required_consent
            && !tx.lock_consent(&self.family, consented).await?
        {
            return Ok(Issued::GrantEnded);
        }
        if let Some(pushed) = &self.pushed_request
            && !tx.use_pushed_request(pushed, &self.family.client_id, self.code.issued_at).await?
        {
            return Ok(Issued::RequestUsed);
        }
        tx.insert_locked_family(&self.family).await?;
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
        Ok(Issued::Stored)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output == Issued::Stored
    }
}

impl Store {
    /// The code with its family and the family's user, redeemed or not. The values it is bound to
    /// never change, so the caller may check them before it redeems the code.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn code(&self, digest: &StoredDigest) -> Result<Option<(Code, OwnedFamily)>, StoreError> {
        let columns = "t.redirect_uri, t.challenge, t.nonce, t.issued_at, t.expires_at, t.kept_until";
        let Some(row) = families::find_secret(self, "codes", columns, digest).await? else { return Ok(None) };
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
