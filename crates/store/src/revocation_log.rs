//! Invalidation: the log of revocations, which every cache follows.
//!
//! Owns: the head (epoch and sequence number), the log, and appending to it in the transaction that
//! changes the state. Does not own: delivery to consumers, or how tags are computed.
//!
//! **Sequence.** The head is one row. Appending updates it, and its lock is held until the
//! transaction is durable. So the sequence has the order of the commits and no gaps; a database
//! sequence would guarantee neither. Events get their numbers after all other statements of their
//! transaction. So the transaction that holds the lock waits for no other, and others wait only
//! briefly.
//!
//! **Log time.** Some events revoke "everything so far" of a user or client. A reader of a token
//! must then know whether the token was granted before or after. A wall clock cannot decide this:
//! clocks of nodes differ, and a token is signed some time after its account was read. So the head
//! has a logical clock:
//!
//! 1. Each transaction that appends advances it, under the same lock, at least to the node's clock.
//! 2. A read of an account, session or client also reads it, in the same statement. A grant based
//!    on that read carries it as `read_at`.
//! 3. An event of this kind carries the log time at which it was appended, as `not_before`.
//!
//! So state read before the event was durable has a smaller `read_at`, and state read afterwards
//! does not. Clocks and the time of signing do not matter.
//!
//! **Epoch.** A standby that takes over may lack the last events that its primary announced.
//! PostgreSQL counts such incarnations as timelines, and the head records in which one it was last
//! written. When it differs, a new epoch is drawn, so that no cache continues with numbers that now
//! mean other events. A SQLite file has no such counter, and a process cannot tell whether the file
//! was restored from a backup. There, each start begins a new history ([`SetEpoch`]).

use std::collections::BTreeMap;
use std::mem;

use auth::time::Timestamp;
use coherence::denylist::DenylistEntry;
use coherence::wire::MAX_TAGS;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::announcements::{OriginTags, PendingEvent};
use crate::columns::{batches, malformed, millis, read_head, read_tag, timestamp, unsigned, value_tuples};
use crate::error::StoreError;
use crate::readers::ReadStatement;
use crate::writer::{Change, Tx};

/// Maximum number of tags in one query.
const TAGS_PER_QUERY: usize = 200;

pub use coherence::{Epoch, LogHead, Tag};

pub use crate::announcements::{AppendedEvent, Revocation, RevocationEvent, RevocationReach};

/// Statement that reads the head.
pub(crate) fn select_head() -> ReadStatement<'static> {
    sqlx::query("SELECT epoch, seq FROM invalidation_head WHERE id = 1")
}

/// The head as the transaction sees it.
pub(crate) async fn head_within(connection: &mut AnyConnection) -> Result<LogHead, StoreError> {
    read_head_row(&select_head().fetch_one(connection).await?)
}

/// Reads a row of [`select_head`].
pub(crate) fn read_head_row(row: &AnyRow) -> Result<LogHead, StoreError> {
    read_head(row, 0)
}

impl Tx<'_> {
    /// Advances the sequence number by `count`, and log time at least to `now`, under the lock of
    /// the head's row. After a failover or a restore of its files, the database's incarnation is
    /// not the one that wrote last. Then events may be lost, and a new epoch begins.
    async fn advance(&mut self, count: usize, now: Timestamp) -> Result<(LogHead, Timestamp), StoreError> {
        let (life, fresh) = (self.incarnation.sql_expression(self.dialect), self.dialect.random_bytes_sql());
        let advance = format!(
            "UPDATE invalidation_head SET seq = seq + $1, at = CASE WHEN $1 = 0 THEN at WHEN at < $2 THEN $2 ELSE at + 1 END, \
             epoch = CASE WHEN COALESCE(incarnation, {life}) = {life} THEN epoch ELSE {fresh} END, \
             incarnation = {life} WHERE id = 1 RETURNING epoch, seq, at"
        );
        let advance = sqlx::query(sqlx::AssertSqlSafe(advance))
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(millis(now));
        let row = advance.fetch_one(&mut *self.connection).await?;
        Ok((read_head_row(&row)?, timestamp(row.try_get(2)?)))
    }

    /// Queues an event to append when the transaction ends; several if it has more than
    /// [`MAX_TAGS`] tags. The change that it describes must be in the same transaction.
    pub(crate) fn queue_revocation(&mut self, revocation: &Revocation, now: Timestamp) {
        let piece = |tags: &[Tag], occurrence| {
            let Revocation { reason, reach, until, .. } = *revocation;
            PendingEvent {
                revocation: Revocation { tags: tags.to_vec(), reason, reach, until, occurrence },
                appended_at: now,
            }
        };
        let last = revocation.tags.len().saturating_sub(1) / MAX_TAGS * MAX_TAGS;
        let (before, rest) = revocation.tags.split_at(last);
        self.events.extend(before.chunks(MAX_TAGS).map(|tags| piece(tags, None)));
        self.events.push(piece(rest, revocation.occurrence.clone()));
    }

    /// Whether this transaction itself revokes one of these origins. Revocations of other
    /// transactions are in the `denials` table.
    pub(crate) fn revokes(&self, origins: &OriginTags) -> bool {
        let ending =
            |event: &&PendingEvent| !matches!(event.revocation.reach, RevocationReach::IssuedBefore(_));
        self.events
            .iter()
            .filter(ending)
            .any(|event| origins.iter().any(|tag| event.revocation.tags.contains(tag)))
    }

    /// Numbers the queued events and writes them. Between locking the head and the commit it runs
    /// only a few statements, however many events there are.
    pub(crate) async fn write_events(&mut self) -> Result<Vec<AppendedEvent>, StoreError> {
        let unnumbered = merge_events(mem::take(&mut self.events));
        let Some(now) = unnumbered.iter().map(|event| event.appended_at).max() else {
            debug_assert!(self.voided.is_empty(), "what ends is told");
            return Ok(Vec::new());
        };
        let (head, at) = self.advance(unnumbered.len(), now).await?;
        let before = head.seq - unnumbered.len() as u64;
        let numbered =
            unnumbered.into_iter().zip(before + 1..).map(|(event, seq)| event.with_number(seq, at));
        let (events, words): (Vec<_>, Vec<_>) = numbered.unzip();
        self.write_voided(at).await?;
        for some in batches(&events) {
            let insert = format!(
                "INSERT INTO invalidation_log (seq, tags, not_before, until, reason, at) VALUES {}",
                value_tuples(some.len(), 6, "")
            );
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for event in some {
                insert = insert
                    .bind(i64::try_from(event.seq).unwrap_or(i64::MAX))
                    .bind(event.tags.iter().flat_map(|tag| tag.0).collect::<Vec<u8>>())
                    .bind(event.not_before.map(millis))
                    .bind(millis(event.until))
                    .bind(&event.reason)
                    .bind(millis(event.at));
            }
            insert.execute(&mut *self.connection).await?;
        }
        self.write_denials(&events).await?;
        self.write_occurrences(&words.into_iter().flatten().collect::<Vec<_>>()).await?;
        Ok(events.into_iter().map(|event| (head.epoch, event.into())).collect())
    }

    async fn write_denials(&mut self, events: &[RevocationEvent]) -> Result<(), StoreError> {
        // One statement must not write the same row twice.
        let mut denied: BTreeMap<Tag, (DenylistEntry, u64)> = BTreeMap::new();
        for event in events {
            let denial =
                DenylistEntry { not_before: event.not_before.map(millis), until: millis(event.until) };
            for tag in &event.tags {
                let both = denied.get(tag).map_or(denial, |(known, _)| known.merge(denial));
                denied.insert(*tag, (both, event.seq));
            }
        }
        let denied: Vec<_> = denied.into_iter().collect();
        for some in batches(&denied) {
            // An entry that exists keeps the later expiry, and stays unlimited (`not_before`
            // absent) if it ever was.
            let insert = format!(
                "INSERT INTO denials (tag, seq, not_before, expires_at) VALUES {} \
                 ON CONFLICT (tag) DO UPDATE SET seq = excluded.seq, \
                 not_before = CASE WHEN denials.not_before IS NULL OR excluded.not_before IS NULL THEN NULL \
                 WHEN denials.not_before > excluded.not_before THEN denials.not_before \
                 ELSE excluded.not_before END, \
                 expires_at = CASE WHEN denials.expires_at > excluded.expires_at THEN denials.expires_at \
                 ELSE excluded.expires_at END",
                value_tuples(some.len(), 4, "")
            );
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for (tag, (denial, seq)) in some {
                insert = insert
                    .bind(tag.0.to_vec())
                    .bind(i64::try_from(*seq).unwrap_or(i64::MAX))
                    .bind(denial.not_before)
                    .bind(denial.until);
            }
            insert.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}

/// Merges neighbouring events that differ only in their tags, as far as one event can hold them. A
/// thousand tokens revoked together then need only a few messages. A tag may then be remembered as
/// long as the longest-lived one of its event.
fn merge_events(all: Vec<PendingEvent>) -> Vec<PendingEvent> {
    let mut events: Vec<PendingEvent> = Vec::with_capacity(all.len());
    for event in all {
        match events.last_mut().filter(|last| last.can_merge(&event)) {
            Some(last) => {
                last.revocation.tags.extend(event.revocation.tags);
                last.revocation.until = last.revocation.until.max(event.revocation.until);
                last.appended_at = last.appended_at.max(event.appended_at);
            }
            None => events.push(event),
        }
    }
    events
}

/// Reads the head by committing a change, which a former primary cannot do once another server has
/// taken over. If another server has written last, a new epoch begins.
/// [`Store::prove_head`](crate::Store::prove_head) needs this only in that case.
#[derive(Debug, Clone, Copy)]
pub struct ProveHead;

impl Change for ProveHead {
    type Output = LogHead;
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<LogHead, StoreError> {
        // Nothing is appended, so log time does not advance either.
        Ok(tx.advance(0, Timestamp::from_millis(0)).await?.0)
    }
}

/// Sets a new epoch: every consumer reads everything again.
#[derive(Debug, Clone, Copy)]
pub struct SetEpoch(pub Epoch);

impl Change for SetEpoch {
    type Output = ();
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let begin = sqlx::query("UPDATE invalidation_head SET epoch = $1 WHERE id = 1").bind(&self.0.0[..]);
        begin.execute(&mut *tx.connection).await?;
        Ok(())
    }
}

/// Statements that look up these tags on the denylist.
pub(crate) fn select_denied(tags: &[Tag]) -> Vec<ReadStatement<'static>> {
    let ask = |tags: &[Tag]| {
        let places: Vec<_> = (1..=tags.len()).map(|at| format!("${at}")).collect();
        let ask = format!(
            "SELECT tag, seq, not_before, expires_at FROM denials WHERE tag IN ({})",
            places.join(", ")
        );
        let ask = sqlx::query(sqlx::AssertSqlSafe(ask));
        tags.iter().fold(ask, |ask, tag| ask.bind(tag.0.to_vec()))
    };
    tags.chunks(TAGS_PER_QUERY).map(ask).collect()
}

/// A denylist entry, kept as long as a credential that it concerns could be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenylistRow {
    /// Tag of the credentials concerned.
    pub tag: Tag,
    /// Sequence number of the last event with this tag.
    pub seq: u64,
    /// Only credentials issued before this are concerned; `None`: all of them.
    pub not_before: Option<Timestamp>,
    /// Expiry of the last credential concerned.
    pub until: Timestamp,
}

impl From<DenylistRow> for DenylistEntry {
    fn from(denied: DenylistRow) -> Self {
        Self { not_before: denied.not_before.map(millis), until: millis(denied.until) }
    }
}

/// Statement that reads at most `limit` denylist entries in the order of their tags, starting after
/// `after`.
pub(crate) fn select_denied_page(after: Option<Tag>, limit: u32) -> ReadStatement<'static> {
    sqlx::query("SELECT tag, seq, not_before, expires_at FROM denials WHERE tag > $1 ORDER BY tag LIMIT $2")
        .bind(after.map_or(Vec::new(), |tag| tag.0.to_vec()))
        .bind(i64::from(limit))
}

pub(crate) fn read_denied(row: &AnyRow) -> Result<DenylistRow, StoreError> {
    Ok(DenylistRow {
        tag: read_tag(row, 0)?,
        seq: unsigned(row.try_get(1)?),
        not_before: row.try_get::<Option<i64>, _>(2)?.map(timestamp),
        until: timestamp(row.try_get(3)?),
    })
}

/// Statement that reads at most `limit` events after number `after`, the oldest first.
pub(crate) fn select_events(after: u64, limit: u32) -> ReadStatement<'static> {
    sqlx::query(
        "SELECT seq, tags, not_before, until, reason, at FROM invalidation_log \
         WHERE seq > $1 ORDER BY seq LIMIT $2",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::from(limit))
}

pub(crate) fn read_event(row: &AnyRow) -> Result<RevocationEvent, StoreError> {
    let tags: Vec<u8> = row.try_get(1)?;
    let (tags, rest) = tags.as_chunks::<{ Tag::LENGTH }>();
    if !rest.is_empty() {
        return Err(malformed("tags"));
    }
    Ok(RevocationEvent {
        seq: unsigned(row.try_get(0)?),
        tags: tags.iter().map(|tag| Tag(*tag)).collect(),
        not_before: row.try_get::<Option<i64>, _>(2)?.map(timestamp),
        // Versions of the program before this column existed left it empty.
        until: row.try_get::<Option<i64>, _>(3)?.map_or(Timestamp::MAX, timestamp),
        reason: row.try_get(4)?,
        at: timestamp(row.try_get(5)?),
    })
}
