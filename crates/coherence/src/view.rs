//! What caches ask before they believe an entry.
//!
//! Owns: the lease, the generation, the floor and the tombstones of one authority, and whether it answers at all, as seen by every thread of a node. Does
//! not own: when any of it changes (that is the [consumer](crate::consumer)'s), nor the entries.
//!
//! A cache uses it at three places:
//!
//! 1. **Departure.** [`View::depart`] before the authority is asked: the [`QuestionTicket`] says when, and in which generation.
//! 2. **Fill.** [`View::fill`] with the answer's `as_of`: the number of the last event that the answer knew of. It gives the
//!    [`EntryStamp`] that the entry is kept with, or says why the answer may not be kept.
//! 3. **Hit.** [`View::standing`]: whether an entry with this stamp may be believed now. While nothing was revoked since the
//!    entry was last looked at, that is five loads and no lock.
//!
//! The order of the loads is the proof's: the lease first, since whatever it promises was applied before it was written; the
//! floor after the tombstones, since one is forgotten only after the floor was raised above it; the generation last, since all of them
//! go, and the floor sinks, when another history is begun.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::denylist::{Denylist, DenylistEntry};
use crate::log_types::{Epoch, LogEvent, OwnBytes, Tag};
use crate::mutation::{self, Mutation};
use crate::silence::Silence;
use crate::time::Boot;

type Keyed = BuildHasherDefault<OwnBytes>;

/// An answer that took longer is not kept: nobody knows any more when it was true.
pub const MAX_FLIGHT: Duration = Duration::from_secs(5);
/// Few enough to be walked, more than threads that write.
const SHARDS: usize = 16;
/// Histories that are remembered to have been heard of.
const HISTORIES: usize = 8;
/// The floor while a flush is under way: above every answer.
const SHUT: u64 = u64::MAX;

/// One authority as the caches of a node see it.
#[derive(Debug)]
pub struct View {
    /// Entries may be believed before this.
    lease: AtomicU64,
    generation: AtomicU64,
    /// Answers and entries below this are too old for the tombstones that are kept.
    floor: AtomicU64,
    /// Every event up to this one is applied.
    contiguous: AtomicU64,
    /// The furthest that the log is known to have got.
    wanted: AtomicU64,
    /// Counts what was applied.
    changes: AtomicU64,
    /// Counts how often answers began to come in: at the start, and after each flush.
    openings: AtomicU64,
    epoch: RwLock<Option<Epoch>>,
    tombstones: [RwLock<HashMap<Tag, u64, Keyed>>; SHARDS],
    /// The same by number: the oldest is forgotten first.
    order: Mutex<Order>,
    limit: usize,
    /// What is denied of credentials that are verified here, if any are.
    denials: Option<Denylist>,
    silence: Arc<Silence>,
}

#[derive(Debug, Default)]
struct Order {
    by_seq: BTreeSet<(u64, Tag)>,
    /// What denials of histories that are not followed knew of, at most of the [`HISTORIES`] last ones: once one of them is,
    /// answers have to know that too.
    elsewhere: VecDeque<(Epoch, u64)>,
    /// The highest number of what was forgotten.
    forgotten: u64,
}

/// Notes when an authority was asked.
#[derive(Debug, Clone, Copy)]
pub struct QuestionTicket {
    generation: u64,
    openings: u64,
    /// No answer was new enough then: a flush was under way, or nothing was heard yet.
    shut: bool,
    began: Boot,
}

/// What an entry is kept with.
#[derive(Debug)]
pub struct EntryStamp {
    generation: u64,
    /// The last event that was known when it was true.
    version: u64,
    /// What had been applied when it was last compared with the tombstones.
    compared: AtomicU64,
}

/// Whether an entry may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// It may.
    Good,
    /// It may not, and never will again.
    Void,
    /// Nobody knows: the authority has not been heard of for too long.
    NoLease,
}

/// What is known of a credential that was verified here.
#[derive(Debug)]
pub enum CredentialCheck {
    /// Nothing speaks against it.
    Good(EntryStamp),
    /// It was taken back.
    Denied,
    /// There is more than is kept here: the authority knows.
    Ask,
}

/// Why an answer may not be kept. It may be used to deny; whoever wants more asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerVoided {
    /// The cache was flushed meanwhile.
    #[error("the cache was flushed meanwhile")]
    Flushed,
    /// It is of another history.
    #[error("the answer is of another history")]
    Epoch,
    /// It took longer than [`MAX_FLIGHT`].
    #[error("the answer took longer than {MAX_FLIGHT:?}")]
    Late,
    /// It knows less than what is remembered of revocations.
    #[error("the answer is older than what is remembered of revocations")]
    Old,
    /// It does not know of a revocation that is known here.
    #[error("what the answer speaks of was revoked meanwhile")]
    Revoked,
}

impl View {
    /// Nothing is known yet, and nothing believed. At most `limit` tombstones are kept.
    pub fn new(limit: usize) -> Self {
        Self {
            lease: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            floor: AtomicU64::new(SHUT),
            contiguous: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            epoch: RwLock::new(None),
            tombstones: std::array::from_fn(|_| RwLock::default()),
            order: Mutex::default(),
            limit,
            denials: None,
            silence: Arc::default(),
        }
    }

    /// For credentials that are verified without asking the authority: what it denies is kept here, up to `limit` tags.
    #[must_use]
    pub fn with_denials(mut self, limit: usize) -> Self {
        self.denials = Some(Denylist::new(limit));
        self
    }

    /// What is denied, if credentials are verified here.
    pub fn denials(&self) -> Option<&Denylist> {
        self.denials.as_ref()
    }

    /// Whether the authority answers at all.
    pub fn silence(&self) -> &Arc<Silence> {
        &self.silence
    }

    /// Until when entries may be believed.
    pub fn lease(&self) -> Boot {
        Boot(self.lease.load(Ordering::Acquire))
    }

    /// Counts flushes, from 1.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Every event up to this one is applied.
    pub fn contiguous(&self) -> u64 {
        self.contiguous.load(Ordering::Acquire)
    }

    /// Events that the log is known to have and that are not applied without a hole.
    pub fn lag(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed).saturating_sub(self.contiguous())
    }

    /// The history that is followed; `None` before anything is known of it.
    pub fn epoch(&self) -> Option<Epoch> {
        *self.epoch.read()
    }

    /// Tombstones that are kept.
    pub fn tombstones(&self) -> usize {
        self.order.lock().by_seq.len()
    }

    /// Before the authority is asked.
    pub fn depart(&self, now: Boot) -> QuestionTicket {
        // The generation first: what is shut after it is of another one.
        let generation = self.generation();
        let openings = self.openings.load(Ordering::Acquire);
        let shut = self.floor.load(Ordering::Acquire) == SHUT;
        QuestionTicket { generation, openings, shut, began: now }
    }

    /// Whether another question may join the one that this ticket was taken for: its answer could still be kept.
    pub fn may_join(&self, ticket: &QuestionTicket, now: Boot) -> bool {
        let young = now.since(ticket.began) < MAX_FLIGHT || mutation::is(Mutation::OldFlight);
        young && ticket.generation == self.generation()
    }

    /// With the answer: `as_of` is the last event of `epoch` that it knew of, and `tags` all that can revoke it.
    pub fn fill(
        &self,
        ticket: QuestionTicket,
        (epoch, as_of): (Epoch, u64),
        tags: &[Tag],
        now: Boot,
    ) -> Result<EntryStamp, AnswerVoided> {
        if now.since(ticket.began) >= MAX_FLIGHT && !mutation::is(Mutation::OldFlight) {
            return Err(AnswerVoided::Late);
        }
        if *self.epoch.read() != Some(epoch) && !mutation::is(Mutation::EpochIgnored) {
            return Err(AnswerVoided::Epoch);
        }
        // Before the tombstones: what is applied from here on is compared with at the first hit.
        let compared = self.changes.load(Ordering::Acquire);
        if tags.iter().any(|tag| self.is_revoked(tag, as_of)) {
            return Err(AnswerVoided::Revoked);
        }
        if self.is_below_floor(as_of) {
            return Err(AnswerVoided::Old);
        }
        // Last: a flush that comes now voids the stamp by its generation.
        if ticket.generation != self.generation() && !mutation::is(Mutation::NoGeneration) {
            return Err(AnswerVoided::Flushed);
        }
        Ok(EntryStamp { generation: ticket.generation, version: as_of, compared: AtomicU64::new(compared) })
    }

    /// Whether an answer that [`View::fill`] refused for this reason lets in all the same whoever it was asked for: a proven one, which says
    /// what was in force when it was asked.
    ///
    /// Not after something has become known here that it need not know: everything up to the head at which answers began to come in, or
    /// what was forgotten. Whoever revoked it may have been told that it is applied here.
    pub fn admits_once(&self, ticket: &QuestionTicket, why: AnswerVoided) -> bool {
        // After the reason was found: `open` counts before it changes what the reason rests on.
        let as_before = ticket.generation == self.generation()
            && ticket.openings == self.openings.load(Ordering::Acquire);
        match why {
            AnswerVoided::Old if mutation::is(Mutation::OnceAfterOpening) => {
                ticket.generation == self.generation()
            }
            // Who was shut and has not opened since is shut. The floor itself may have been shut after the reason was found.
            AnswerVoided::Old => as_before && ticket.shut,
            AnswerVoided::Epoch => as_before,
            AnswerVoided::Flushed | AnswerVoided::Late | AnswerVoided::Revoked => false,
        }
    }

    /// Whether an entry with this stamp, which `tags` can revoke, may be believed now.
    #[inline]
    pub fn standing(&self, stamp: &EntryStamp, tags: &[Tag], now: Boot) -> EntryState {
        if now >= self.lease() {
            return EntryState::NoLease;
        }
        let changes = self.changes.load(Ordering::Acquire);
        if stamp.compared.load(Ordering::Relaxed) != changes {
            if tags.iter().any(|tag| self.is_revoked(tag, stamp.version)) {
                return EntryState::Void;
            }
            stamp.compared.store(changes, Ordering::Relaxed);
        }
        let void = self.is_below_floor(stamp.version)
            || stamp.generation != self.generation() && !mutation::is(Mutation::NoGeneration);
        if void { EntryState::Void } else { EntryState::Good }
    }

    /// Whether a credential that was found to be valid here, is revoked by none of `tags`, and was issued then (milliseconds since
    /// 1970) is not denied either. The stamp is as good as one of [`View::fill`]; before it is believed, [`View::standing`] is asked
    /// as on every hit.
    pub fn verify(&self, tags: &[Tag], issued_at: i64) -> CredentialCheck {
        // What is counted here is in the set already; what comes later is compared with at the hit.
        let generation = self.generation();
        let compared = self.changes.load(Ordering::Acquire);
        let version = self.contiguous();
        // A set that is being loaded may deny what answers under way do not know of: then it decides nothing yet.
        let whole = |denials: &&Denylist| denials.is_whole() || mutation::is(Mutation::NotLoaded);
        match self.denials.as_ref().filter(whole) {
            Some(denials) if denials.denies(tags, issued_at) => CredentialCheck::Denied,
            // An answer that denied is a tombstone, and may know more than what was followed so far.
            Some(_) if !tags.iter().any(|tag| self.is_revoked(tag, version)) => {
                CredentialCheck::Good(EntryStamp { generation, version, compared: AtomicU64::new(compared) })
            }
            _ => CredentialCheck::Ask,
        }
    }

    /// Applies an answer that denied, as if the log had told of it. The cache drops the entry itself.
    pub fn denied(&self, (epoch, as_of): (Epoch, u64), tag: Tag) {
        if mutation::is(Mutation::DenialNotApplied) {
            return;
        }
        // Another history is opened under the same lock: a number of one is not written among those of the other.
        let mut order = self.order.lock();
        let followed = *self.epoch.read();
        if followed == Some(epoch) {
            self.bury(&mut order, &[tag], as_of);
            self.changes.fetch_add(1, Ordering::Release);
            return;
        }
        // Its number means nothing here, and what is kept rests on a history that may be over: all of it goes, since the denial
        // must not be forgotten. Once is enough: whoever shuts without end never opens.
        match order.elsewhere.iter_mut().find(|(of, _)| *of == epoch) {
            Some((_, known)) => *known = as_of.max(*known),
            None => order.elsewhere.push_back((epoch, as_of)),
        }
        if order.elsewhere.len() > HISTORIES {
            order.elsewhere.pop_front();
        }
        if self.floor.load(Ordering::Acquire) != SHUT {
            self.shut();
        }
    }

    fn is_revoked(&self, tag: &Tag, version: u64) -> bool {
        let buried = self.shard(tag).read().get(tag).copied();
        buried.is_some_and(|seq| seq > version || mutation::is(Mutation::VersionCompare) && seq == version)
    }

    fn is_below_floor(&self, version: u64) -> bool {
        version < self.floor.load(Ordering::Acquire) && !mutation::is(Mutation::NoFloor)
    }

    fn shard(&self, tag: &Tag) -> &RwLock<HashMap<Tag, u64, Keyed>> {
        // Tags are keyed hashes: any of their bits is as good as another.
        &self.tombstones[usize::from(tag.0[0]) % SHARDS]
    }

    /// Writes tombstones. The highest number wins, so that repetitions and late messages change nothing.
    fn bury(&self, order: &mut Order, tags: &[Tag], seq: u64) {
        for tag in tags {
            let mut shard = self.shard(tag).write();
            let buried = shard.entry(*tag).or_insert(0);
            if *buried >= seq {
                continue;
            }
            if order.by_seq.len() >= self.limit && mutation::is(Mutation::OverflowIgnored) {
                continue;
            }
            if *buried > 0 {
                order.by_seq.remove(&(*buried, *tag));
            }
            *buried = seq;
            order.by_seq.insert((seq, *tag));
        }
        while order.by_seq.len() > self.limit {
            self.forget_oldest(order);
        }
    }

    /// Makes room. Whoever finds no tombstone any more finds the floor raised.
    fn forget_oldest(&self, order: &mut Order) {
        let Some((seq, tag)) = order.by_seq.pop_first() else { return };
        order.forgotten = order.forgotten.max(seq);
        if !mutation::is(Mutation::ForgetFirst) {
            self.floor.fetch_max(seq, Ordering::AcqRel);
        }
        self.shard(&tag).write().remove(&tag);
    }
}

/// What the consumer changes.
impl View {
    /// An event of the current history.
    pub(crate) fn apply(&self, event: &LogEvent) {
        for (denials, tag) in self.denials.iter().flat_map(|set| event.tags.iter().map(move |tag| (set, tag)))
        {
            denials.add(*tag, DenylistEntry { not_before: event.not_before, until: event.until });
        }
        self.bury(&mut self.order.lock(), &event.tags, event.seq);
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn set_contiguous(&self, seq: u64) {
        self.contiguous.store(seq, Ordering::Release);
    }

    pub(crate) fn set_wanted(&self, seq: u64) {
        self.wanted.store(seq, Ordering::Relaxed);
    }

    /// Entries may be believed until then, if not for longer already.
    pub(crate) fn extend(&self, until: Boot) {
        self.lease.fetch_max(until.0, Ordering::AcqRel);
    }

    /// What is denied is loaded, as of `head`: what knows less is too old from here on.
    pub(crate) fn loaded(&self, head: u64) {
        self.floor.fetch_max(head, Ordering::AcqRel);
        if let Some(denials) = &self.denials {
            denials.finish();
        }
    }

    /// Nothing of what is kept is believed any more, nor any answer that is under way; and none comes in.
    pub(crate) fn shut(&self) {
        if let Some(denials) = &self.denials {
            denials.begin();
        }
        self.floor.store(SHUT, Ordering::Release);
        // After the set and the floor: whoever sees the new generation sees what it begins with, and gets no stamp of it that rests on
        // numbers of before.
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.lease.store(0, Ordering::Release);
    }

    /// The same when the history is not what it was: its numbers mean something else from here on.
    pub(crate) fn abandon(&self) {
        self.shut();
        *self.epoch.write() = None;
    }

    /// Answers come in again that know of everything up to `head`. Tombstones of all that may go.
    pub(crate) fn open(&self, epoch: Epoch, head: u64) {
        let mut order = self.order.lock();
        self.openings.fetch_add(1, Ordering::AcqRel);
        // Before the epoch: whoever sees that sees no number of another history.
        self.set_contiguous(head);
        let another = self.epoch.write().replace(epoch) != Some(epoch);
        if another && !mutation::is(Mutation::EpochIgnored) {
            // Numbers of another history mean nothing in this one.
            order.by_seq.clear();
            order.forgotten = 0;
            self.tombstones.iter().for_each(|shard| shard.write().clear());
        }
        let elsewhere = order.elsewhere.iter().find(|(of, _)| *of == epoch).map_or(0, |(_, as_of)| *as_of);
        order.elsewhere.clear();
        let floor = head.max(order.forgotten).max(elsewhere);
        self.floor.store(floor, Ordering::Release);
        while order.by_seq.first().is_some_and(|(seq, _)| *seq <= floor) {
            if let Some((_, tag)) = order.by_seq.pop_first() {
                self.shard(&tag).write().remove(&tag);
            }
        }
    }

    /// Whether there is a tombstone.
    #[cfg(test)]
    pub(crate) fn is_buried(&self, tag: &Tag) -> bool {
        self.shard(tag).read().get(tag).is_some_and(|seq| *seq > 0)
    }

    /// Forgets the oldest tombstone, as if there were no room for it.
    #[cfg(test)]
    pub(crate) fn forget_one(&self) {
        self.forget_oldest(&mut self.order.lock());
    }
}
