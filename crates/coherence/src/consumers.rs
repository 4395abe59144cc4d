//! Consumer list: which consumers follow a log, and how far each has applied it.
//!
//! Owns: what a node of the authority knows of consumers, and what must be recorded of them, and
//! when. Does not own: where it is recorded, in a list that all nodes share
//! ([`Log::note`](crate::event_loops::Log::note)).
//!
//! 1. A consumer gets no answer before it is recorded. So the shared list has every consumer that
//!    may hold a lease. When every consumer in the list has applied an event, the event is applied
//!    everywhere.
//!    A failover may lose entries, so a new epoch of the log makes every record void.
//! 2. An active consumer is recorded again every few seconds. While nothing can be written,
//!    consumers that are in the list still get answers.
//! 3. An entry that has not changed for long may belong to a consumer that holds a lease, so it is
//!    removed in two steps. When it has not changed for [`MARK_AFTER`], it is marked. From then on
//!    its consumer gets no answer until it is recorded again, which removes the mark.
//! 4. A mark that has stood for [`REMOVE_AFTER`] − [`MARK_AFTER`], longer than any lease, belongs
//!    to no active consumer. The entry is removed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::log_types::{ConsumerId, Epoch, LogHead, PeerName};
use crate::time::Boot;
use crate::wire::Body;

/// Age at which the record of a consumer is renewed.
const RECORD_INTERVAL: Duration = Duration::from_secs(5);
/// Age at which an unchanged entry of the list is marked.
pub const MARK_AFTER: Duration = Duration::from_secs(45);
/// Age at which an unchanged entry is removed, if it was marked after [`MARK_AFTER`]. The longest
/// lease is one minute.
pub const REMOVE_AFTER: Duration = Duration::from_mins(2);
/// Most consumers that a node keeps track of. Only clients with the key can be among them; any more
/// get no answer.
const MAX_CONSUMERS: usize = 10_000;

/// One consumer of a log, as the list records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Random, drawn at each start of the consumer's process.
    pub id: ConsumerId,
    /// Human-readable name of the consumer.
    pub name: PeerName,
    /// Lease of the consumer, counted from when it sent the probe.
    pub lease: Duration,
    /// Last event that it has applied; `None` while it follows no epoch.
    pub applied: Option<LogHead>,
}

/// The consumers that a node knows of.
#[derive(Debug, Default)]
pub struct Consumers {
    known: Mutex<HashMap<ConsumerId, TrackedConsumer>>,
    /// The epoch of the log that was read last, and when it was first read.
    epoch: Mutex<Option<(Epoch, Boot)>>,
    /// Events that this node appended recently, and when.
    appended: Mutex<VecDeque<(LogHead, Boot)>>,
    apply_times: Mutex<ApplyTimes>,
}

/// Distribution of the time between an append by this node and a consumer's report that it has
/// applied the event. A sample: under many events, a consumer reports some of them at once, and the
/// others with its next probe, which is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ApplyTimes {
    /// Number of reports that took at most each of [`BOUNDS`].
    pub below: [u64; BOUNDS.len()],
    /// Number of all reports, each of one event.
    pub count: u64,
    /// Sum of the times of all reports, in seconds.
    pub sum: f64,
}

/// Upper bounds of [`ApplyTimes`], in seconds.
pub const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Most appended events whose reports are timed.
const MAX_TIMED_APPENDS: usize = 1000;

#[derive(Debug)]
struct TrackedConsumer {
    record: ConsumerRecord,
    last_message_at: Boot,
    /// When it was last recorded: a time before the record was composed.
    recorded_at: Option<Boot>,
    /// Progress that the record has.
    recorded_progress: Option<LogHead>,
}

impl TrackedConsumer {
    fn is_fresh(&self, now: Boot) -> bool {
        self.recorded_at.is_some_and(|written| now.since(written) < RECORD_INTERVAL)
    }
}

impl Consumers {
    /// Applies a message of a consumer. `false`: there is no room to track the consumer, so it must
    /// not get an answer.
    pub fn on_message(&self, now: Boot, body: &Body) -> bool {
        let mut all = self.known.lock();
        match body {
            Body::Probe { consumer, name: called, lease, applied, .. } => {
                if !all.contains_key(consumer) && all.len() >= MAX_CONSUMERS {
                    all.retain(|_, known| now.since(known.last_message_at) < REMOVE_AFTER);
                    if all.len() >= MAX_CONSUMERS {
                        return false;
                    }
                }
                let follower =
                    ConsumerRecord { id: *consumer, name: called.clone(), lease: *lease, applied: *applied };
                let known = all.entry(*consumer);
                let known = known
                    .and_modify(|known| known.record = ConsumerRecord { applied: None, ..follower.clone() })
                    .or_insert(TrackedConsumer {
                        record: follower,
                        last_message_at: now,
                        recorded_at: None,
                        recorded_progress: None,
                    });
                (known.record.applied, known.last_message_at) = (*applied, now);
            }
            // A consumer that has not sent a probe yet gets no answer. Its next probe carries the
            // same head.
            Body::Applied { consumer, head } => {
                if let Some(known) = all.get_mut(consumer) {
                    self.count_applied(known.record.applied, *head, now);
                    (known.record.applied, known.last_message_at) = (Some(*head), now);
                }
            }
            Body::Event { .. }
            | Body::Echo { .. }
            | Body::RangeRequest { .. }
            | Body::RangeUnavailable { .. }
            | Body::Query(_)
            | Body::Answer { .. } => {}
        }
        true
    }

    /// Consumers to record before the `querying` ones get an answer: those that are querying, or
    /// sent something recently, and have no record or an old one.
    pub fn to_record(&self, now: Boot, querying: &[ConsumerId]) -> Vec<ConsumerRecord> {
        let querying: HashSet<_> = querying.iter().collect();
        let is_due = |known: &&TrackedConsumer| {
            // A consumer that sends nothing more needs no record, unless its probe has waited.
            !known.is_fresh(now)
                && (now.since(known.last_message_at) < RECORD_INTERVAL || querying.contains(&known.record.id))
        };
        self.known.lock().values().filter(is_due).map(|known| known.record.clone()).collect()
    }

    /// Those of the `querying` consumers that were not recorded recently. Only the shared list can
    /// show whether it has them.
    pub fn not_recently_recorded(&self, now: Boot, querying: &[ConsumerId]) -> Vec<ConsumerId> {
        let all = self.known.lock();
        let is_fresh = |id: &ConsumerId| all.get(id).is_some_and(|known| known.is_fresh(now));
        querying.iter().copied().filter(|id| !is_fresh(id)).collect()
    }

    /// Consumers that have applied more than their record says.
    pub fn with_unrecorded_progress(&self) -> Vec<ConsumerRecord> {
        let all = self.known.lock();
        let ahead = |known: &&TrackedConsumer| {
            known.recorded_at.is_some() && known.recorded_progress != known.record.applied
        };
        all.values().filter(ahead).map(|known| known.record.clone()).collect()
    }

    /// Notes that this node has appended an event, which is published from now on.
    pub fn note_append(&self, head: LogHead, now: Boot) {
        let mut appended = self.appended.lock();
        if appended.len() >= MAX_TIMED_APPENDS {
            appended.pop_front();
        }
        appended.push_back((head, now));
    }

    /// How long consumers took to apply events.
    pub fn apply_times(&self) -> ApplyTimes {
        *self.apply_times.lock()
    }

    /// Counts the event that a consumer reports, unless it has reported it before. The events before
    /// it were applied earlier, when no report was due.
    fn count_applied(&self, before: Option<LogHead>, applied: LogHead, now: Boot) {
        if before.is_none_or(|before| before.epoch != applied.epoch || before.seq >= applied.seq) {
            return;
        }
        let appended = self.appended.lock();
        let Some((_, at)) = appended.iter().rev().find(|(head, _)| *head == applied) else { return };
        let took = now.since(*at).as_secs_f64();
        let mut arrivals = self.apply_times.lock();
        for (below, bound) in arrivals.below.iter_mut().zip(BOUNDS) {
            *below += u64::from(took <= bound);
        }
        arrivals.count += 1;
        arrivals.sum += took;
    }

    /// Takes note of the epoch of a head that was read. `true`: it is another one than before. Then no
    /// consumer counts as recorded, and the head must not be sent before they are recorded again.
    pub fn enter_epoch(&self, epoch: Epoch, now: Boot) -> bool {
        let mut all = self.known.lock();
        let mut entered = self.epoch.lock();
        if entered.is_some_and(|(before, _)| before == epoch) {
            return false;
        }
        *entered = Some((epoch, now));
        for known in all.values_mut() {
            (known.recorded_at, known.recorded_progress) = (None, None);
        }
        true
    }

    /// Notes that these consumers are recorded, as of `then`, unless a new epoch began since.
    pub fn mark_recorded(&self, then: Boot, followers: &[ConsumerRecord]) {
        let mut all = self.known.lock();
        if self.epoch.lock().is_some_and(|(_, since)| then < since) {
            return;
        }
        for follower in followers {
            if let Some(known) = all.get_mut(&follower.id) {
                (known.recorded_at, known.recorded_progress) = (Some(then), follower.applied);
            }
        }
    }
}

/// Whether every consumer in the list has applied what was durable at `head`. A consumer that joins
/// the list later gets its answer later, and that answer includes the event.
pub fn all_applied<'f>(followers: impl IntoIterator<Item = &'f ConsumerRecord>, head: LogHead) -> bool {
    followers.into_iter().all(|follower| has_applied(follower, head))
}

/// Whether this consumer has applied everything up to `head`.
pub fn has_applied(follower: &ConsumerRecord, head: LogHead) -> bool {
    follower.applied.is_some_and(|last| last.epoch == head.epoch && last.seq >= head.seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_types::{Epoch, Nonce};

    const START: Boot = Boot(5_000_000_000_000);

    fn probe(number: u8, seq: Option<u64>) -> Body {
        Body::Probe {
            consumer: ConsumerId([number; 16]),
            name: PeerName::new("gateway").expect("a name"),
            lease: Duration::from_secs(5),
            nonce: Nonce([0; 16]),
            applied: seq.map(head),
        }
    }

    fn head(seq: u64) -> LogHead {
        LogHead { epoch: Epoch([1; 16]), seq }
    }

    fn applied(number: u8, seq: u64) -> Body {
        Body::Applied { consumer: ConsumerId([number; 16]), head: head(seq) }
    }

    fn numbers(followers: &[ConsumerRecord]) -> Vec<u8> {
        let mut numbers: Vec<_> = followers.iter().map(|follower| follower.id.0[0]).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn who_asks_is_written_down_first_and_then_now_and_then() {
        let roster = Consumers::default();
        assert!(roster.on_message(START, &probe(1, None)));
        assert_eq!(numbers(&roster.to_record(START, &[])), [1]);
        assert_eq!(numbers(&roster.to_record(START, &[])), [1], "until it is known to be written");
        roster.mark_recorded(START, &roster.to_record(START, &[]));
        assert!(roster.to_record(START, &[]).is_empty());
        assert!(roster.on_message(START.plus(Duration::from_secs(4)), &probe(1, None)));
        assert!(roster.to_record(START.plus(Duration::from_millis(4999)), &[]).is_empty());
        assert_eq!(numbers(&roster.to_record(START.plus(RECORD_INTERVAL), &[])), [1]);
    }

    #[test]
    fn how_long_followers_take_is_counted_once_for_each_report() {
        let roster = Consumers::default();
        let after = |millis| START.plus(Duration::from_millis(millis));
        roster.on_message(START, &probe(1, Some(3)));
        roster.on_message(START, &probe(2, None));
        for seq in 4..=6 {
            roster.note_append(head(seq), START);
        }
        roster.on_message(after(8), &applied(1, 5));
        roster.on_message(after(9), &applied(1, 5));
        // A probe is not sent because of an event.
        roster.on_message(after(400), &probe(1, Some(6)));
        roster.on_message(after(400), &probe(2, Some(6)));
        roster.on_message(after(401), &applied(1, 6));
        roster.on_message(after(30), &applied(2, 7));
        let ApplyTimes { below, count, sum } = roster.apply_times();
        assert_eq!((below, count), ([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], 1));
        assert!((sum - 0.008).abs() < 1e-9, "{sum}");
        // An event of another node: when it was appended is not known here.
        roster.note_append(head(9), START);
        roster.on_message(after(40), &applied(2, 8));
        roster.on_message(after(60), &applied(2, 9));
        assert_eq!(roster.apply_times().count, 2);
    }

    #[test]
    fn a_new_epoch_voids_what_was_written_before_it() {
        let (roster, epoch) = (Consumers::default(), |number| Epoch([number; 16]));
        let later = START.plus(Duration::from_millis(1));
        roster.on_message(START, &probe(1, Some(3)));
        assert!(roster.enter_epoch(epoch(1), START));
        roster.mark_recorded(START, &roster.to_record(START, &[]));
        assert!(!roster.enter_epoch(epoch(1), later) && roster.to_record(later, &[]).is_empty());
        assert!(roster.enter_epoch(epoch(2), later));
        assert_eq!(numbers(&roster.to_record(later, &[])), [1]);
        roster.mark_recorded(START, &roster.to_record(later, &[]));
        assert_eq!(
            numbers(&roster.to_record(later, &[])),
            [1],
            "a write that was under way counts for nothing"
        );
        roster.mark_recorded(later, &roster.to_record(later, &[]));
        assert!(roster.to_record(later, &[]).is_empty());
    }

    #[test]
    fn who_fell_silent_is_not_written_any_more() {
        let roster = Consumers::default();
        roster.on_message(START, &probe(1, None));
        roster.mark_recorded(START, &roster.to_record(START, &[]));
        assert!(roster.to_record(START.plus(RECORD_INTERVAL), &[]).is_empty());
    }

    #[test]
    fn progress_is_written_once() {
        let roster = Consumers::default();
        roster.on_message(START, &applied(1, 3));
        assert!(roster.with_unrecorded_progress().is_empty(), "of nobody that is known");
        roster.on_message(START, &probe(1, Some(3)));
        assert!(roster.with_unrecorded_progress().is_empty(), "that is written when it is due");
        roster.mark_recorded(START, &roster.to_record(START, &[]));
        roster.on_message(START, &applied(1, 4));
        let ahead = roster.with_unrecorded_progress();
        assert_eq!(ahead[0].applied, Some(head(4)));
        roster.on_message(START, &applied(1, 5));
        roster.mark_recorded(START, &ahead);
        assert_eq!(
            roster.with_unrecorded_progress()[0].applied,
            Some(head(5)),
            "and what came meanwhile is not lost"
        );
        roster.mark_recorded(START, &roster.with_unrecorded_progress());
        assert!(roster.with_unrecorded_progress().is_empty());
    }

    #[test]
    fn there_is_room_for_so_many() {
        let roster = Consumers::default();
        let many = |at: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&at.to_be_bytes());
            let Body::Probe { name: called, lease, nonce, applied, .. } = probe(0, None) else {
                unreachable!()
            };
            Body::Probe { consumer: ConsumerId(id), name: called, lease, nonce, applied }
        };
        assert!((0..MAX_CONSUMERS).all(|at| roster.on_message(START, &many(at))));
        assert!(!roster.on_message(START, &many(MAX_CONSUMERS)), "not answered");
        assert!(roster.on_message(START, &many(0)), "who is known is");
        assert!(
            roster.on_message(START.plus(REMOVE_AFTER), &many(MAX_CONSUMERS)),
            "and others again once somebody is gone"
        );
    }

    #[test]
    fn all_means_all_and_of_this_history() {
        let roster = Consumers::default();
        assert!(all_applied(&roster.to_record(START, &[]), head(9)), "nobody believes anything");
        roster.on_message(START, &probe(1, Some(9)));
        roster.on_message(START, &probe(2, Some(8)));
        roster.on_message(START, &probe(3, None));
        let all = roster.to_record(START, &[]);
        let has: Vec<_> = (1..=3)
            .map(|number| all.iter().find(|one| one.id.0[0] == number).expect("heard"))
            .map(|one| has_applied(one, head(9)))
            .collect();
        assert_eq!(has, [true, false, false]);
        assert!(!all_applied(&all, head(9)));
        assert!(!has_applied(&all[0], LogHead { epoch: Epoch([2; 16]), seq: 1 }));
    }
}
