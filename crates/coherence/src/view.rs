//! View: what caches check before they use an entry.
//!
//! Owns: the lease, the generation, the floor and the tombstones of one authority, and whether it
//! answers at all. All threads of a node share them. Does not own: when any of it changes (the
//! [consumer](crate::consumer) decides), nor the entries.
//!
//! A cache uses it in three places:
//!
//! 1. **Departure.** [`View::start_query`], before the authority is queried. The [`QueryTicket`]
//!    records the time and the generation.
//! 2. **Fill.** [`View::fill`], with the answer's `as_of`: the number of the last event that the
//!    answer includes. It returns the [`EntryStamp`] that the cache keeps with the entry, or why
//!    the answer may not be kept.
//! 3. **Hit.** [`View::entry_state`]: whether an entry with this stamp is valid now. If nothing was
//!    revoked since the last check of the entry, this takes five loads and no lock.
//!
//! The order of the loads is that of the proof:
//!
//! - The lease comes first, since everything it promises was applied before it was written.
//! - The floor comes after the tombstones, since a tombstone is removed only after the floor was
//!   raised above it.
//! - The generation comes last, since all tombstones go and the floor sinks when another epoch
//!   begins.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::denylist::{Denylist, DenylistEntry};
use crate::log_types::{Epoch, LogEvent, LogHead, Tag, TagHasher};
use crate::mutation::{self, Mutation};
use crate::silence::Silence;
use crate::time::Boot;

type TagHashBuilder = BuildHasherDefault<TagHasher>;

/// Longest time that an answer may take to be kept. After that it is unknown when it was true.
pub const MAX_QUERY_TIME: Duration = Duration::from_secs(5);
/// Few enough to visit all of them, and more than the threads that write.
const SHARDS: usize = 16;
/// Most epochs besides the followed one that are remembered from denials.
const MAX_OTHER_EPOCHS: usize = 8;
/// Floor during a flush: above every answer.
const FLOOR_CLOSED: u64 = u64::MAX;

/// State of one authority, as the caches of a node see it.
#[derive(Debug)]
pub struct View {
    /// Entries are valid before this time of the boot clock.
    lease: AtomicU64,
    generation: AtomicU64,
    /// Answers and entries below this are too old for the tombstones that are kept.
    floor: AtomicU64,
    /// Every event up to this number is applied.
    applied_up_to: AtomicU64,
    /// Highest number that the log is known to have.
    known_head: AtomicU64,
    /// Number of changes that were applied.
    change_count: AtomicU64,
    /// How often the view began to accept answers: at the start, and after each flush.
    open_count: AtomicU64,
    epoch: RwLock<Option<Epoch>>,
    tombstones: [RwLock<HashMap<Tag, u64, TagHashBuilder>>; SHARDS],
    /// The tombstones by number: the oldest is removed first.
    tombstone_order: Mutex<TombstoneOrder>,
    limit: usize,
    /// Denylist for credentials that are verified here, if any are.
    denylist: Option<Denylist>,
    silence: Arc<Silence>,
}

#[derive(Debug, Default)]
struct TombstoneOrder {
    by_seq: BTreeSet<(u64, Tag)>,
    /// The highest `as_of` of denials from epochs that are not followed, for at most the last
    /// [`MAX_OTHER_EPOCHS`] epochs. If one of them is followed later, answers must include that
    /// event. Empty while the view accepts answers.
    other_epochs: VecDeque<(Epoch, u64)>,
    /// Highest number of a tombstone that was removed.
    highest_removed: u64,
}

/// Records when an authority was queried.
#[derive(Debug, Clone, Copy)]
pub struct QueryTicket {
    generation: u64,
    openings: u64,
    /// The view accepted no answer then: a flush was in progress, or no probe was answered yet.
    closed_at_departure: bool,
    departed_at: Boot,
}

/// Stamp that a cache keeps with an entry.
#[derive(Debug)]
pub struct EntryStamp {
    generation: u64,
    /// Last event that the entry's answer includes.
    version: u64,
    /// Count of changes when the entry was last compared with the tombstones.
    compared_at_change: AtomicU64,
}

/// Whether a cache entry may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// The entry is valid.
    Valid,
    /// The entry is revoked or flushed, and never becomes valid again.
    Evicted,
    /// Unknown: the authority has not answered for too long.
    LeaseExpired,
}

/// Revocation status of a credential that was verified here.
#[derive(Debug)]
pub enum CredentialCheck {
    /// No revocation of it is known.
    NotRevoked(EntryStamp),
    /// It was revoked.
    Denied,
    /// The denylist is incomplete, or cannot decide: the authority must be queried.
    Unknown,
}

/// Why an answer may not be kept. It may still be used to deny; to admit, the caller queries again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// The cache was flushed after the departure.
    #[error("the cache was flushed meanwhile")]
    Flushed,
    /// The answer is of another epoch.
    #[error("the answer belongs to another epoch of the log")]
    OtherEpoch,
    /// The answer took longer than [`MAX_QUERY_TIME`].
    #[error("the answer took longer than {MAX_QUERY_TIME:?}")]
    TooLate,
    /// The answer is older than the tombstones that are kept.
    #[error("the answer is older than the revocations that are remembered")]
    TooOld,
    /// A revocation is known here that the answer does not include.
    #[error("the credential was revoked after the answer was read")]
    Revoked,
}

impl View {
    /// Creates a view without a lease: no entry is valid yet. At most `limit` tombstones are kept.
    pub fn new(limit: usize) -> Self {
        Self {
            lease: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            floor: AtomicU64::new(FLOOR_CLOSED),
            applied_up_to: AtomicU64::new(0),
            known_head: AtomicU64::new(0),
            change_count: AtomicU64::new(0),
            open_count: AtomicU64::new(0),
            epoch: RwLock::new(None),
            tombstones: std::array::from_fn(|_| RwLock::default()),
            tombstone_order: Mutex::default(),
            limit,
            denylist: None,
            silence: Arc::default(),
        }
    }

    /// Adds a denylist of up to `limit` tags, for credentials that are verified without a query to
    /// the authority.
    #[must_use]
    pub fn with_denylist(mut self, limit: usize) -> Self {
        self.denylist = Some(Denylist::new(limit));
        self
    }

    /// The denylist, if credentials are verified here.
    pub fn denylist(&self) -> Option<&Denylist> {
        self.denylist.as_ref()
    }

    /// Whether the authority answers at all.
    pub fn silence(&self) -> &Arc<Silence> {
        &self.silence
    }

    /// End of the lease: entries are valid until then.
    pub fn lease(&self) -> Boot {
        Boot(self.lease.load(Ordering::Acquire))
    }

    /// Number of flushes, counted from 1.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Every event up to this number is applied.
    pub fn applied_up_to(&self) -> u64 {
        self.applied_up_to.load(Ordering::Acquire)
    }

    /// Events that the log is known to have and that are not yet applied without a gap.
    pub fn lag(&self) -> u64 {
        self.known_head.load(Ordering::Relaxed).saturating_sub(self.applied_up_to())
    }

    /// Epoch that is followed; `None` while none is known.
    pub fn epoch(&self) -> Option<Epoch> {
        *self.epoch.read()
    }

    /// Number of tombstones that are kept.
    pub fn tombstones(&self) -> usize {
        self.tombstone_order.lock().by_seq.len()
    }

    /// Records a departure: called before the authority is queried.
    pub fn start_query(&self, now: Boot) -> QueryTicket {
        // The generation first: a view that is shut after this load has another generation.
        let generation = self.generation();
        let openings = self.open_count.load(Ordering::Acquire);
        let shut = self.floor.load(Ordering::Acquire) == FLOOR_CLOSED;
        QueryTicket { generation, openings, closed_at_departure: shut, departed_at: now }
    }

    /// Whether another request may wait for the query of this ticket: its answer could still be
    /// kept.
    pub fn may_join(&self, ticket: &QueryTicket, now: Boot) -> bool {
        let young =
            now.since(ticket.departed_at) < MAX_QUERY_TIME || mutation::is_active(Mutation::OldQueryJoined);
        young && ticket.generation == self.generation()
    }

    /// Checks an answer. `as_of` is the last event of `epoch` that it includes, `tags` are all tags
    /// that can revoke it.
    pub fn fill(
        &self,
        ticket: QueryTicket,
        (epoch, as_of): (Epoch, u64),
        tags: &[Tag],
        now: Boot,
    ) -> Result<EntryStamp, FillError> {
        if now.since(ticket.departed_at) >= MAX_QUERY_TIME && !mutation::is_active(Mutation::OldQueryJoined) {
            return Err(FillError::TooLate);
        }
        if *self.epoch.read() != Some(epoch) && !mutation::is_active(Mutation::EpochIgnored) {
            return Err(FillError::OtherEpoch);
        }
        // Before the tombstones: what is applied from here on is compared at the first hit.
        let compared = self.change_count.load(Ordering::Acquire);
        if tags.iter().any(|tag| self.is_revoked(tag, as_of)) {
            return Err(FillError::Revoked);
        }
        if self.is_below_floor(as_of) {
            return Err(FillError::TooOld);
        }
        // Last: a flush from here on voids the stamp by its generation.
        if ticket.generation != self.generation() && !mutation::is_active(Mutation::NoGeneration) {
            return Err(FillError::Flushed);
        }
        Ok(EntryStamp {
            generation: ticket.generation,
            version: as_of,
            compared_at_change: AtomicU64::new(compared),
        })
    }

    /// Whether an answer that [`View::fill`] refused for this reason still admits the request that
    /// it was queried for. Only for a proven answer, which includes everything that was applied
    /// when it was queried.
    ///
    /// It does not, once this view knows of something that the answer need not include: everything
    /// up to the head at which the view opened, or a removed tombstone. The revoker may have been
    /// told that it is applied here.
    pub fn may_admit_once(&self, ticket: &QueryTicket, why: FillError) -> bool {
        // After the reason was found: `open` counts before it changes what the reason rests on.
        let as_before = ticket.generation == self.generation()
            && ticket.openings == self.open_count.load(Ordering::Acquire);
        match why {
            FillError::TooOld if mutation::is_active(Mutation::AdmittedOnceAfterOpening) => {
                ticket.generation == self.generation()
            }
            // A view that was shut and has not opened since is still shut. The floor itself may
            // have been shut after the reason was found.
            FillError::TooOld => as_before && ticket.closed_at_departure,
            FillError::OtherEpoch => as_before,
            FillError::Flushed | FillError::TooLate | FillError::Revoked => false,
        }
    }

    /// Whether an entry with this stamp, which `tags` can revoke, is valid now.
    #[inline]
    pub fn entry_state(&self, stamp: &EntryStamp, tags: &[Tag], now: Boot) -> EntryState {
        if now >= self.lease() {
            return EntryState::LeaseExpired;
        }
        let changes = self.change_count.load(Ordering::Acquire);
        if stamp.compared_at_change.load(Ordering::Relaxed) != changes {
            if tags.iter().any(|tag| self.is_revoked(tag, stamp.version)) {
                return EntryState::Evicted;
            }
            stamp.compared_at_change.store(changes, Ordering::Relaxed);
        }
        let void = self.is_below_floor(stamp.version)
            || stamp.generation != self.generation() && !mutation::is_active(Mutation::NoGeneration);
        if void { EntryState::Evicted } else { EntryState::Valid }
    }

    /// Checks a credential that was verified here against its tags and the denylist. `issued_at` is
    /// in milliseconds since 1970. The stamp is as good as one of [`View::fill`]: before each use,
    /// [`View::entry_state`] is called as on every hit.
    pub fn check_credential(&self, tags: &[Tag], issued_at: i64) -> CredentialCheck {
        // What is counted here is in the denylist already; what comes later is compared at the hit.
        let generation = self.generation();
        let compared = self.change_count.load(Ordering::Acquire);
        let version = self.applied_up_to();
        // A denylist that is being loaded may deny what answers in flight do not include: it
        // decides nothing yet.
        let whole =
            |denials: &&Denylist| denials.is_complete() || mutation::is_active(Mutation::DenylistNotLoaded);
        match self.denylist.as_ref().filter(whole) {
            Some(denials) if denials.denies(tags, issued_at) => CredentialCheck::Denied,
            // An answer that denied is a tombstone, and may include more than the events applied so
            // far.
            Some(_) if !tags.iter().any(|tag| self.is_revoked(tag, version)) => {
                CredentialCheck::NotRevoked(EntryStamp {
                    generation,
                    version,
                    compared_at_change: AtomicU64::new(compared),
                })
            }
            _ => CredentialCheck::Unknown,
        }
    }

    /// Applies an answer that denied, as if the log had published it. The cache removes the entry
    /// itself.
    pub fn apply_denial(&self, (epoch, as_of): (Epoch, u64), tag: Tag) {
        if mutation::is_active(Mutation::DenialNotApplied) {
            return;
        }
        // Another epoch is opened under the same lock: numbers of two epochs are never mixed.
        let mut order = self.tombstone_order.lock();
        let followed = *self.epoch.read();
        if followed == Some(epoch) {
            self.write_tombstones(&mut order, &[tag], as_of);
            self.change_count.fetch_add(1, Ordering::Release);
            return;
        }
        // Its number means nothing here, and the kept state rests on an epoch that may be
        // superseded. Everything is flushed, since the denial must not be lost. So is a view that is
        // shut: the echo of a probe that was sent before the denial may be of an earlier epoch, in
        // which nobody denied. An echo of a later probe is of this epoch or of one after it. Once for
        // each epoch is enough: a view that is shut again and again never opens.
        let known = order.other_epochs.iter_mut().find(|(of, _)| *of == epoch);
        if let Some((_, known)) = known {
            *known = as_of.max(*known);
            return;
        }
        order.other_epochs.push_back((epoch, as_of));
        if order.other_epochs.len() > MAX_OTHER_EPOCHS {
            order.other_epochs.pop_front();
        }
        self.begin_flush();
    }

    fn is_revoked(&self, tag: &Tag, version: u64) -> bool {
        let buried = self.shard(tag).read().get(tag).copied();
        buried.is_some_and(|seq| {
            seq > version || mutation::is_active(Mutation::VersionCompare) && seq == version
        })
    }

    fn is_below_floor(&self, version: u64) -> bool {
        version < self.floor.load(Ordering::Acquire) && !mutation::is_active(Mutation::NoFloor)
    }

    fn shard(&self, tag: &Tag) -> &RwLock<HashMap<Tag, u64, TagHashBuilder>> {
        // Tags are keyed hashes: any byte of them selects a shard equally well.
        &self.tombstones[usize::from(tag.0[0]) % SHARDS]
    }

    /// Writes tombstones. The highest number wins, so repeated and late messages change nothing.
    fn write_tombstones(&self, order: &mut TombstoneOrder, tags: &[Tag], seq: u64) {
        for tag in tags {
            let mut shard = self.shard(tag).write();
            let buried = shard.entry(*tag).or_insert(0);
            if *buried >= seq {
                continue;
            }
            if order.by_seq.len() >= self.limit && mutation::is_active(Mutation::OverflowIgnored) {
                continue;
            }
            if *buried > 0 {
                order.by_seq.remove(&(*buried, *tag));
            }
            *buried = seq;
            order.by_seq.insert((seq, *tag));
        }
        while order.by_seq.len() > self.limit {
            self.remove_oldest_tombstone(order);
        }
    }

    /// Makes room. A reader that misses the removed tombstone finds the floor raised.
    fn remove_oldest_tombstone(&self, order: &mut TombstoneOrder) {
        let Some((seq, tag)) = order.by_seq.pop_first() else { return };
        order.highest_removed = order.highest_removed.max(seq);
        if !mutation::is_active(Mutation::ForgetFirst) {
            self.floor.fetch_max(seq, Ordering::AcqRel);
        }
        self.shard(&tag).write().remove(&tag);
    }
}

/// Changes that the consumer makes.
impl View {
    /// Applies an event of the current epoch.
    pub(crate) fn apply(&self, event: &LogEvent) {
        for (denials, tag) in
            self.denylist.iter().flat_map(|set| event.tags.iter().map(move |tag| (set, tag)))
        {
            denials.add(*tag, DenylistEntry { not_before: event.not_before, until: event.until });
        }
        self.write_tombstones(&mut self.tombstone_order.lock(), &event.tags, event.seq);
        self.change_count.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn set_applied_up_to(&self, seq: u64) {
        self.applied_up_to.store(seq, Ordering::Release);
    }

    pub(crate) fn set_known_head(&self, seq: u64) {
        self.known_head.store(seq, Ordering::Relaxed);
    }

    /// Extends the lease to `until`, unless it lasts longer already.
    pub(crate) fn extend_lease(&self, until: Boot) {
        self.lease.fetch_max(until.0, Ordering::AcqRel);
    }

    /// Notes that the denylist is loaded, as of `head`: answers that include less are too old from
    /// here on.
    pub(crate) fn denylist_loaded(&self, head: u64) {
        self.floor.fetch_max(head, Ordering::AcqRel);
        if let Some(denials) = &self.denylist {
            denials.finish_load();
        }
    }

    /// Flushes: no kept entry and no answer in flight is valid any more, and no answer is accepted.
    pub(crate) fn begin_flush(&self) {
        if let Some(denials) = &self.denylist {
            denials.begin_load();
        }
        self.floor.store(FLOOR_CLOSED, Ordering::Release);
        // After the denylist and the floor: a thread that sees the new generation also sees its
        // initial state. It gets no stamp of this generation that rests on numbers from before.
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.lease.store(0, Ordering::Release);
    }

    /// Flushes because the epoch has changed: sequence numbers mean something else from here on.
    pub(crate) fn flush_epoch(&self) {
        self.begin_flush();
        *self.epoch.write() = None;
    }

    /// Accepts answers again that include every event up to a head, which was read since the last
    /// flush made this generation. Tombstones of those events may go. `false`: another thread has
    /// flushed meanwhile, and nothing changes.
    pub(crate) fn end_flush(&self, generation: u64, LogHead { epoch, seq: head }: LogHead) -> bool {
        // A denial flushes under the same lock.
        let mut order = self.tombstone_order.lock();
        if generation != self.generation() {
            return false;
        }
        self.open_count.fetch_add(1, Ordering::AcqRel);
        // Before the epoch: a thread that sees the epoch sees no number of another one.
        self.set_applied_up_to(head);
        let another = self.epoch.write().replace(epoch) != Some(epoch);
        if another && !mutation::is_active(Mutation::EpochIgnored) {
            // Numbers of another epoch mean nothing in this one.
            order.by_seq.clear();
            order.highest_removed = 0;
            self.tombstones.iter().for_each(|shard| shard.write().clear());
        }
        let elsewhere = order.other_epochs.iter().find(|(of, _)| *of == epoch).map_or(0, |(_, as_of)| *as_of);
        order.other_epochs.clear();
        let floor = head.max(order.highest_removed).max(elsewhere);
        self.floor.store(floor, Ordering::Release);
        while order.by_seq.first().is_some_and(|(seq, _)| *seq <= floor) {
            if let Some((_, tag)) = order.by_seq.pop_first() {
                self.shard(&tag).write().remove(&tag);
            }
        }
        true
    }

    /// Whether there is a tombstone.
    #[cfg(test)]
    pub(crate) fn has_tombstone(&self, tag: &Tag) -> bool {
        self.shard(tag).read().get(tag).is_some_and(|seq| *seq > 0)
    }

    /// Forgets the oldest tombstone, as if there were no room for it.
    #[cfg(test)]
    pub(crate) fn remove_one_tombstone(&self) {
        self.remove_oldest_tombstone(&mut self.tombstone_order.lock());
    }
}
