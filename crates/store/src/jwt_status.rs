//! JWT status: whether a token that is not stored, but verified by its signature, was revoked. Used
//! for introspection.

use auth::time::Timestamp;
use coherence::{LogHead, Tag};
use sqlx::Row as _;

use crate::announcements::OriginTags;
use crate::columns::{millis, read_head, unsigned};
use crate::error::StoreError;
use crate::store::Store;

/// Claims of a JWT whose signature was verified.
#[derive(Debug, Clone, Copy)]
pub struct JwtClaims<'a> {
    /// The family it belongs to.
    pub family_id: Option<&'a str>,
    /// The user it speaks for; `None`: the client itself.
    pub user_id: Option<&'a str>,
    /// The client it was issued to.
    pub client_id: &'a str,
    /// When the state it is based on was read, in log time ([`crate::revocation_log`]).
    pub read_at: Timestamp,
    /// Tag of its `jti`.
    pub tag: Tag,
    /// Tag of the key that signed it.
    pub key: Tag,
    /// Tags of its client and of its consent.
    pub origins: OriginTags,
}

/// What decides whether a JWT is valid, as of one state of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtStatus {
    /// Whether neither the token, nor its key, family, user or client was revoked, disabled or
    /// deleted.
    pub unrevoked: bool,
    /// Name of the user it speaks for.
    pub user_name: Option<String>,
    /// The session it ends with; `None`: it outlives its session or has none.
    pub sid: Option<String>,
    /// Head of the log, read in the same snapshot. All revocations up to it are taken into account.
    pub as_of: LogHead,
}

impl Store {
    /// The status of a JWT with these claims. A family or user that does not exist counts as
    /// revoked. A client that does not exist counts as enabled: it may be defined in the
    /// configuration file.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn jwt_status(&self, claimed: JwtClaims<'_>) -> Result<JwtStatus, StoreError> {
        // One statement sees one snapshot, in both databases.
        let ask = sqlx::query(
            "SELECT CASE WHEN \
             (CAST($1 AS TEXT) IS NULL OR (f.id IS NOT NULL AND f.revoked_at IS NULL)) \
             AND (CAST($2 AS TEXT) IS NULL \
             OR (u.id IS NOT NULL AND u.disabled_at IS NULL AND u.tokens_not_before <= $4)) \
             AND c.disabled_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM denials d WHERE d.tag IN ($5, $6, $7, $8) \
             AND (d.not_before IS NULL OR d.not_before > $4)) \
             THEN 1 ELSE 0 END, u.name, CASE WHEN f.outlives_session = 0 THEN f.sid END, h.epoch, h.seq \
             FROM invalidation_head h \
             LEFT JOIN families f ON f.id = $1 \
             LEFT JOIN users u ON u.id = $2 \
             LEFT JOIN clients c ON c.id = $3",
        )
        .bind(claimed.family_id)
        .bind(claimed.user_id)
        .bind(claimed.client_id)
        .bind(millis(claimed.read_at))
        .bind(&claimed.tag.0[..])
        .bind(&claimed.origins[0].0[..])
        .bind(&claimed.origins[1].0[..])
        .bind(&claimed.key.0[..]);
        let row = self.readers().fetch_one(ask).await?;
        Ok(JwtStatus {
            unrevoked: unsigned(row.try_get(0)?) == 1,
            user_name: row.try_get(1)?,
            sid: row.try_get(2)?,
            as_of: read_head(&row, 3)?,
        })
    }
}
