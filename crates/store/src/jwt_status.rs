//! What a token is worth that is verified without asking (a JWT), when somebody asks all the same.

use auth::time::Timestamp;
use coherence::{LogHead, Tag};
use sqlx::Row as _;

use crate::announcements::EventOrigins;
use crate::error::StoreError;
use crate::store::Store;
use crate::value::{head_at, millis, number};

/// What a verified token says of itself.
#[derive(Debug, Clone, Copy)]
pub struct ClaimedStatus<'a> {
    /// The family it belongs to.
    pub family_id: Option<&'a str>,
    /// On whose behalf; `None`: the client's own.
    pub user_id: Option<&'a str>,
    /// Who got it.
    pub client_id: &'a str,
    /// When what it rests on was read, in the time of the log ([`crate::invalidation`]).
    pub read_at: Timestamp,
    /// Of its `jti`.
    pub tag: Tag,
    /// Of the key that signed it.
    pub key: Tag,
    /// What else it follows from.
    pub origins: EventOrigins,
}

/// What decides whether it is worth something, as of one state of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimJwtStatus {
    /// Neither it, nor its key, nor its family, nor its user, nor its client was revoked, disabled or deleted.
    pub unrevoked: bool,
    /// The name of the user it speaks for.
    pub user_name: Option<String>,
    /// The session that it ends with.
    pub sid: Option<String>,
    /// The log's head when this was read, in the same snapshot: what was revoked up to there is in it.
    pub as_of: LogHead,
}

impl Store {
    /// What is known of what a token says. A family or user that is not there (any more) counts as revoked; a client that
    /// is not there as enabled: it may stand in the configuration.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn claimed(&self, claimed: ClaimedStatus<'_>) -> Result<ClaimJwtStatus, StoreError> {
        // One statement, one snapshot, in both databases.
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
        let row = self.readers().one(ask).await?;
        Ok(ClaimJwtStatus {
            unrevoked: number(row.try_get(0)?) == 1,
            user_name: row.try_get(1)?,
            sid: row.try_get(2)?,
            as_of: head_at(&row, 3)?,
        })
    }
}
