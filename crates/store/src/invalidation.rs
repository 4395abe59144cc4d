//! The log of what was revoked, which every cache follows.
//!
//! Owns: the head (epoch and dense sequence), the log, and appending to it in the transaction that changes the state.
//! Does not own: telling anybody, or what a tag is made from.
//!
//! The head is one row. Appending updates it, and the row's lock is held until the transaction is durable: so the order
//! of the sequence is the order of commits, and there are no holes. A sequence of the database would have both. Events get their
//! numbers when all else in their transaction is done, so that whoever has the lock waits for nobody, and others wait for little.
//!
//! **The time of the log.** What ends "everything so far" (a user's tokens, a client's) must be told from what was granted afterwards, by
//! whoever looks at a token, and no clock can say which came first: nodes' clocks differ, and a token is signed a while after its account
//! was read. So the head has a time of its own. It grows with each transaction that appends, under the same lock, and is at least what the
//! node's clock says. Whoever reads an account, a session or a client reads it along, in the same statement, and what is granted carries it
//! (`read_at`); an event of the kind carries the time that it was appended at (`not_before`). What was read before the event was durable
//! carries less, what was read afterwards does not, whenever either was signed and whatever clocks say.
//!
//! A standby that takes over may lack the last events that its primary had told of. PostgreSQL counts such lives of a database
//! (timelines), and the head says in which of them it was last written: in another one the epoch is drawn anew, so that no cache
//! goes on with numbers that mean something else. A file has no such count, and whoever starts on one cannot tell whether it was put back:
//! there each start is another history ([`BeginHistory`]).

use std::collections::BTreeMap;
use std::mem;

use auth::time::Timestamp;
use coherence::denylist::DenylistEntry;
use coherence::wire::MAX_TAGS;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::announcements::{EventOrigins, Unnumbered};
use crate::error::StoreError;
use crate::readers::Ask;
use crate::value::{head_at, malformed, millis, number, pieces, rows, tag_at, timestamp};
use crate::write::{Change, Tx};

/// Tags that one statement asks about.
const ASKED_TOGETHER: usize = 200;

pub use coherence::{Epoch, LogHead, Tag};

pub use crate::announcements::{AnnouncedAppend, AnnouncedEvent, Revocation, RevocationReach};

/// Asks for the head.
pub(crate) fn ask_head() -> Ask<'static> {
    sqlx::query("SELECT epoch, seq FROM invalidation_head WHERE id = 1")
}

/// The head, as a transaction sees it.
pub(crate) async fn head_within(connection: &mut AnyConnection) -> Result<LogHead, StoreError> {
    read_head(&ask_head().fetch_one(connection).await?)
}

/// From the row that [`ask_head`] asks for.
pub(crate) fn read_head(row: &AnyRow) -> Result<LogHead, StoreError> {
    head_at(row, 0)
}

impl Tx<'_> {
    /// Adds to the head's number and to the time of the log, which is at least `now`, under the lock of its row. A database that lives
    /// another life than the one that wrote last, after a failover or a restore of its files, may have lost events: there the history is
    /// another one from here on.
    async fn advance(&mut self, by: usize, now: Timestamp) -> Result<(LogHead, Timestamp), StoreError> {
        let (life, fresh) = (self.incarnation.of(self.dialect), self.dialect.drawn());
        let advance = format!(
            "UPDATE invalidation_head SET seq = seq + $1, at = CASE WHEN $1 = 0 THEN at WHEN at < $2 THEN $2 ELSE at + 1 END, \
             epoch = CASE WHEN COALESCE(incarnation, {life}) = {life} THEN epoch ELSE {fresh} END, \
             incarnation = {life} WHERE id = 1 RETURNING epoch, seq, at"
        );
        let advance = sqlx::query(sqlx::AssertSqlSafe(advance))
            .bind(i64::try_from(by).unwrap_or(i64::MAX))
            .bind(millis(now));
        let row = advance.fetch_one(&mut *self.connection).await?;
        Ok((read_head(&row)?, timestamp(row.try_get(2)?)))
    }

    /// Appends an event when the transaction ends; several, if it concerns more than an event can name. The change it tells of
    /// belongs into the same transaction.
    pub(crate) fn append(&mut self, revocation: &Revocation, now: Timestamp) {
        let piece = |tags: &[Tag], occurrence| {
            let Revocation { reason, reach, until, .. } = *revocation;
            Unnumbered { told: Revocation { tags: tags.to_vec(), reason, reach, until, occurrence }, now }
        };
        let last = revocation.tags.len().saturating_sub(1) / MAX_TAGS * MAX_TAGS;
        let (before, rest) = revocation.tags.split_at(last);
        self.events.extend(before.chunks(MAX_TAGS).map(|tags| piece(tags, None)));
        self.events.push(piece(rest, revocation.occurrence.clone()));
    }

    /// Whether this transaction ends what follows from one of these; others' endings are in the table.
    pub(crate) fn ends(&self, origins: &EventOrigins) -> bool {
        let ending = |event: &&Unnumbered| !matches!(event.told.reach, RevocationReach::Before(_));
        self.events.iter().filter(ending).any(|event| origins.iter().any(|tag| event.told.tags.contains(tag)))
    }

    /// Numbers what was appended and writes it: few statements, however much it is, between taking the head's lock and the
    /// commit that gives it back.
    pub(crate) async fn write_events(&mut self) -> Result<Vec<AnnouncedAppend>, StoreError> {
        let unnumbered = joined(mem::take(&mut self.events));
        let Some(now) = unnumbered.iter().map(|event| event.now).max() else {
            debug_assert!(self.voided.is_empty(), "what ends is told");
            return Ok(Vec::new());
        };
        let (head, at) = self.advance(unnumbered.len(), now).await?;
        let before = head.seq - unnumbered.len() as u64;
        let numbered = unnumbered.into_iter().zip(before + 1..).map(|(event, seq)| event.numbered(seq, at));
        let (events, words): (Vec<_>, Vec<_>) = numbered.unzip();
        self.write_voided(at).await?;
        for some in pieces(&events) {
            let insert = format!(
                "INSERT INTO invalidation_log (seq, tags, not_before, until, reason, at) VALUES {}",
                rows(some.len(), 6, "")
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
        self.deny(&events).await?;
        self.note(&words.into_iter().flatten().collect::<Vec<_>>()).await?;
        Ok(events.into_iter().map(|event| (head.epoch, event.into())).collect())
    }

    async fn deny(&mut self, events: &[AnnouncedEvent]) -> Result<(), StoreError> {
        // A statement may not write a row twice.
        let mut denied: BTreeMap<Tag, (DenylistEntry, u64)> = BTreeMap::new();
        for event in events {
            let denial =
                DenylistEntry { not_before: event.not_before.map(millis), until: millis(event.until) };
            for tag in &event.tags {
                let both = denied.get(tag).map_or(denial, |(known, _)| known.and(denial));
                denied.insert(*tag, (both, event.seq));
            }
        }
        let denied: Vec<_> = denied.into_iter().collect();
        for some in pieces(&denied) {
            // A tag that is denied already stays denied for the longer time, and wholly if it ever was.
            let insert = format!(
                "INSERT INTO denials (tag, seq, not_before, expires_at) VALUES {} \
                 ON CONFLICT (tag) DO UPDATE SET seq = excluded.seq, \
                 not_before = CASE WHEN denials.not_before IS NULL OR excluded.not_before IS NULL THEN NULL \
                 WHEN denials.not_before > excluded.not_before THEN denials.not_before \
                 ELSE excluded.not_before END, \
                 expires_at = CASE WHEN denials.expires_at > excluded.expires_at THEN denials.expires_at \
                 ELSE excluded.expires_at END",
                rows(some.len(), 4, "")
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

/// Joins neighbours that concern different things in the same way, as far as an event can name them: a thousand tokens that are revoked together
/// are told of in a few messages. Something may then be remembered for as long as what it is joined with.
fn joined(all: Vec<Unnumbered>) -> Vec<Unnumbered> {
    let mut events: Vec<Unnumbered> = Vec::with_capacity(all.len());
    for event in all {
        match events.last_mut().filter(|last| last.can_name(&event)) {
            Some(last) => {
                last.told.tags.extend(event.told.tags);
                last.told.until = last.told.until.max(event.told.until);
                last.now = last.now.max(event.now);
            }
            None => events.push(event),
        }
    }
    events
}

/// Reads the head in a way that only a database that may still commit can answer: by committing a change. A former primary, which has not noticed
/// that another took over, cannot. Where another server has written last, the history is another one from here on. [`Store::prove_head`](crate::Store::prove_head)
/// needs this only then.
#[derive(Debug, Clone, Copy)]
pub struct ProveHead;

impl Change for ProveHead {
    type Output = LogHead;
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<LogHead, StoreError> {
        // Nothing is appended, so that no time passes either.
        Ok(tx.advance(0, Timestamp::from_millis(0)).await?.0)
    }
}

/// Draws another epoch: whoever follows learns everything anew.
#[derive(Debug, Clone, Copy)]
pub struct BeginHistory(pub Epoch);

impl Change for BeginHistory {
    type Output = ();
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let begin = sqlx::query("UPDATE invalidation_head SET epoch = $1 WHERE id = 1").bind(&self.0.0[..]);
        begin.execute(&mut *tx.connection).await?;
        Ok(())
    }
}

/// Asks which of these are denied.
pub(crate) fn asks_denied(tags: &[Tag]) -> Vec<Ask<'static>> {
    let ask = |tags: &[Tag]| {
        let places: Vec<_> = (1..=tags.len()).map(|at| format!("${at}")).collect();
        let ask = format!(
            "SELECT tag, seq, not_before, expires_at FROM denials WHERE tag IN ({})",
            places.join(", ")
        );
        let ask = sqlx::query(sqlx::AssertSqlSafe(ask));
        tags.iter().fold(ask, |ask, tag| ask.bind(tag.0.to_vec()))
    };
    tags.chunks(ASKED_TOGETHER).map(ask).collect()
}

/// Something that is denied as long as a credential it concerns could be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// What.
    pub tag: Tag,
    /// The last event that said so.
    pub seq: u64,
    /// Only what was issued before this; `None`: all of it.
    pub not_before: Option<Timestamp>,
    /// Until when it matters.
    pub until: Timestamp,
}

impl From<Denied> for DenylistEntry {
    fn from(denied: Denied) -> Self {
        Self { not_before: denied.not_before.map(millis), until: millis(denied.until) }
    }
}

/// Asks what is denied, by tag and beginning after `after`, at most `limit`.
pub(crate) fn ask_page(after: Option<Tag>, limit: u32) -> Ask<'static> {
    sqlx::query("SELECT tag, seq, not_before, expires_at FROM denials WHERE tag > $1 ORDER BY tag LIMIT $2")
        .bind(after.map_or(Vec::new(), |tag| tag.0.to_vec()))
        .bind(i64::from(limit))
}

pub(crate) fn read_denied(row: &AnyRow) -> Result<Denied, StoreError> {
    Ok(Denied {
        tag: tag_at(row, 0)?,
        seq: number(row.try_get(1)?),
        not_before: row.try_get::<Option<i64>, _>(2)?.map(timestamp),
        until: timestamp(row.try_get(3)?),
    })
}

/// Asks for events after `after`, the oldest first, at most `limit`.
pub(crate) fn ask_range(after: u64, limit: u32) -> Ask<'static> {
    sqlx::query(
        "SELECT seq, tags, not_before, until, reason, at FROM invalidation_log \
         WHERE seq > $1 ORDER BY seq LIMIT $2",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::from(limit))
}

pub(crate) fn read_event(row: &AnyRow) -> Result<AnnouncedEvent, StoreError> {
    let tags: Vec<u8> = row.try_get(1)?;
    let (tags, rest) = tags.as_chunks::<{ Tag::LENGTH }>();
    if !rest.is_empty() {
        return Err(malformed("tags"));
    }
    Ok(AnnouncedEvent {
        seq: number(row.try_get(0)?),
        tags: tags.iter().map(|tag| Tag(*tag)).collect(),
        not_before: row.try_get::<Option<i64>, _>(2)?.map(timestamp),
        // A program of before this was told did not say.
        until: row.try_get::<Option<i64>, _>(3)?.map_or(Timestamp::MAX, timestamp),
        reason: row.try_get(4)?,
        at: timestamp(row.try_get(5)?),
    })
}
