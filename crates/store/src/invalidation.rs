//! The log of what was revoked, which every cache follows.
//!
//! Owns: the head (epoch and dense sequence), the log, and appending to it in the transaction that changes the state.
//! Does not own: telling anybody, or what a tag is made from.
//!
//! The head is one row. Appending updates it, and the row's lock is held until the transaction is durable: so the order
//! of the sequence is the order of commits, and there are no holes. A sequence of the database would have both.

use auth::time::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::error::StoreError;
use crate::readers::{Ask, Readers};
use crate::value::{millis, timestamp};
use crate::write::Tx;

/// Names what changed: a keyed hash of a token, session, user, client or key, made by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; Tag::LENGTH]);

impl Tag {
    /// Bytes of a tag.
    pub const LENGTH: usize = 16;
}

/// Identifies one history of the log. Another after a restore from backup: what was promised since is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(pub [u8; 16]);

/// How far the log has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The history.
    pub epoch: Epoch,
    /// Number of its last event; 0 before the first.
    pub seq: u64,
}

/// Something no longer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// From 1, without holes.
    pub seq: u64,
    /// What it concerns.
    pub tags: Vec<Tag>,
    /// Why, for people: `token revoked`, `logout`, …
    pub reason: String,
    /// When it was appended.
    pub at: Timestamp,
}

/// What is to be told, and how long it matters.
#[derive(Debug, Clone)]
pub struct Revocation {
    /// What it concerns. A tag stands for everything that carries it.
    pub tags: Vec<Tag>,
    /// Why, for people.
    pub reason: &'static str,
    /// Everything issued before is revoked, what is issued from then on is not; `None`: everything is.
    pub not_before: Option<Timestamp>,
    /// When the last credential it concerns has expired: nobody needs to remember it then.
    pub until: Timestamp,
}

impl Head {
    /// Asks for the one there is.
    pub(crate) fn ask() -> Ask<'static> {
        sqlx::query("SELECT epoch, seq FROM invalidation_head WHERE id = 1")
    }

    /// The one there is, as a transaction sees it.
    pub(crate) async fn within(connection: &mut AnyConnection) -> Result<Self, StoreError> {
        Self::read(&Self::ask().fetch_one(connection).await?)
    }

    /// From the row that [`Head::ask`] asks for.
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let epoch: Vec<u8> = row.try_get(0)?;
        let epoch = epoch.try_into().map_err(|_| malformed("epoch"))?;
        Ok(Self { epoch: Epoch(epoch), seq: number(row.try_get(1)?) })
    }
}

impl Tx<'_> {
    /// Appends an event and returns its number. The change it tells of belongs into the same transaction.
    pub(crate) async fn append(
        &mut self,
        revocation: &Revocation,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let row = sqlx::query("UPDATE invalidation_head SET seq = seq + 1 WHERE id = 1 RETURNING seq")
            .fetch_one(&mut *self.connection)
            .await?;
        let seq: i64 = row.try_get(0)?;
        sqlx::query("INSERT INTO invalidation_log (seq, tags, reason, at) VALUES ($1, $2, $3, $4)")
            .bind(seq)
            .bind(revocation.tags.iter().flat_map(|tag| tag.0).collect::<Vec<u8>>())
            .bind(revocation.reason)
            .bind(millis(now))
            .execute(&mut *self.connection)
            .await?;
        for tag in &revocation.tags {
            // A tag that is denied already stays denied for the longer time, and wholly if it ever was.
            sqlx::query(
                "INSERT INTO denials (tag, seq, not_before, expires_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (tag) DO UPDATE SET seq = excluded.seq, \
                 not_before = CASE WHEN denials.not_before IS NULL OR excluded.not_before IS NULL THEN NULL \
                 WHEN denials.not_before > excluded.not_before THEN denials.not_before \
                 ELSE excluded.not_before END, \
                 expires_at = CASE WHEN denials.expires_at > excluded.expires_at THEN denials.expires_at \
                 ELSE excluded.expires_at END",
            )
            .bind(&tag.0[..])
            .bind(seq)
            .bind(revocation.not_before.map(millis))
            .bind(millis(revocation.until))
            .execute(&mut *self.connection)
            .await?;
        }
        Ok(number(seq))
    }
}

/// Events after `after`, the oldest first, at most `limit`.
pub(crate) async fn range(readers: &Readers, after: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
    let ask = sqlx::query(
        "SELECT seq, tags, reason, at FROM invalidation_log WHERE seq > $1 ORDER BY seq LIMIT $2",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::from(limit));
    let rows = readers.all(ask).await?;
    rows.iter()
        .map(|row| {
            let tags: Vec<u8> = row.try_get(1)?;
            let (tags, rest) = tags.as_chunks::<{ Tag::LENGTH }>();
            if !rest.is_empty() {
                return Err(malformed("tags"));
            }
            Ok(Event {
                seq: number(row.try_get(0)?),
                tags: tags.iter().map(|tag| Tag(*tag)).collect(),
                reason: row.try_get(2)?,
                at: timestamp(row.try_get(3)?),
            })
        })
        .collect()
}

/// Sequence numbers are never negative in the database.
pub(crate) fn number(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}

fn malformed(column: &str) -> StoreError {
    sqlx::Error::ColumnDecode { index: column.into(), source: "it has another length".into() }.into()
}
