//! Consumer: follows the log of one authority, on behalf of the caches of a node.
//!
//! Owns: which events are applied, the probes that renew the lease and their repetition, gaps,
//! flushes. Does not own: sockets, timers, randomness and the clock, which the caller supplies.
//! Caches see the result in the [`View`].
//!
//! The caller passes each message to [`Consumer::on_message`], and calls [`Consumer::tick`] no
//! later than [`Consumer::next_tick_at`]. Both append to a list of [actions](ConsumerAction).
//!
//! ```text
//!          echo of a probe sent since        ┌────────────┐  event: tombstone, then count it
//!  flush ───────────────────────────────────▶│ following  │  echo, all applied: lease = when it was asked for + L
//!    ▲                                       └─────┬──────┘  hole: ask for what is missing
//!    └── another history, a hole for 1 s, too much ┘
//! ```
//!
//! An echo extends the lease as soon as every event up to its head is applied: when the echo
//! arrives, or when the missing events do.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName};
use crate::mutation::{self, Mutation};
use crate::silence::Responsiveness;
use crate::time::Boot;
use crate::view::View;
use crate::wire::Body;

/// Most events held beyond a gap, and the longest range that is worth sending again.
pub const MAX_EVENTS: usize = 10_000;
/// Pause between two requests for the same range.
const RANGE_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between two reports of what is applied.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);
/// Pause between two reports while events arrive all the time: a report costs more than an event.
const BUSY_REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Most reports before that pause applies.
const REPORT_BURST: u32 = 8;
/// Pause between a failed copy of the denylist and the next request for one.
const LOAD_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of a copy of the denylist; then another one is requested.
const LOAD_TIMEOUT: Duration = Duration::from_mins(2);
/// Pause between two checks whether the denylist has room again.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Pause between two probes that have a cause other than time, and between probes to a silent
/// authority.
const URGENT_PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Least pause before a probe without an answer is repeated: a hundredth of the lease, within these
/// limits.
const RETRY_LIMITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// Timing of a consumer.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerSettings {
    /// L: how long entries are valid after the probe was sent. The revocation bound rests on it.
    pub lease: Duration,
    /// H: time between two probes.
    pub probe_period: Duration,
    /// How long a gap may stay before the consumer flushes.
    pub gap_patience: Duration,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            probe_period: Duration::from_millis(500),
            gap_patience: Duration::from_secs(1),
        }
    }
}

/// What the caller must do for the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerAction {
    /// Send this to the authority.
    Send(Body),
    /// Read the head and then everything that is denied, add it to the view's
    /// [denylist](View::denylist), and call [`Consumer::denylist_loaded`].
    LoadDenylist {
        /// To be passed to [`Consumer::denylist_loaded`].
        ticket: u64,
    },
    /// An event was applied now: exchanges that a revoked credential authorized must be checked
    /// again.
    Revoked(LogEvent),
    /// Everything was flushed: every open exchange must be checked again.
    Flushed(FlushCause),
}

/// Why a consumer flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushCause {
    /// The authority's log has another epoch: after a restore, or a failover.
    Epoch,
    /// The authority's log ends before events that were applied.
    LogRewound,
    /// A missing event did not arrive within the patience.
    Gap,
    /// The authority cannot send the missing events any more, or there are too many.
    EventsUnavailable,
    /// More events arrived beyond a gap than there is room for.
    Overflow,
}

/// A probe that has no answer yet.
#[derive(Debug, Clone, Copy)]
struct OpenProbe {
    nonce: Nonce,
    /// When it was sent, on this node's clock: the lease counts from here.
    sent_at: Boot,
    generation: u64,
    contiguous: u64,
}

/// How long answers take (RFC 6298 section 2): a repetition before that time is in vain.
#[derive(Debug, Default)]
struct RoundTrip {
    /// Smoothed time and its variation; `None` before the first sample.
    estimate: Option<(Duration, Duration)>,
}

impl RoundTrip {
    /// Patience before the first sample.
    const UNKNOWN: Duration = Duration::from_millis(100);

    fn add_sample(&mut self, time: Duration) {
        self.estimate = Some(match self.estimate {
            None => (time, time / 2),
            Some((smooth, varies)) => ((smooth * 7 + time) / 8, (varies * 3 + smooth.abs_diff(time)) / 4),
        });
    }

    /// Time that hardly any answer exceeds.
    fn timeout(&self) -> Duration {
        self.estimate.map_or(Self::UNKNOWN, |(smooth, varies)| smooth + 4 * varies)
    }
}

/// State machine that follows one log.
#[derive(Debug)]
pub struct Consumer {
    id: ConsumerId,
    name: PeerName,
    settings: ConsumerSettings,
    view: Arc<View>,
    epoch: Option<Epoch>,
    /// Every event up to this number is applied.
    contiguous: u64,
    /// Events that are applied beyond a gap.
    applied_beyond_gap: BTreeSet<u64>,
    /// Highest number that the log is known to have.
    known_head: u64,
    flushing: bool,
    /// The view's generation. If the view has another one, a denial from another epoch has shut it.
    generation: u64,
    probes: VecDeque<OpenProbe>,
    probe_at: Boot,
    /// When a probe is due in any case, whatever was answered to those before.
    urgent_probe_at: Option<Boot>,
    last_probe_at: Option<Boot>,
    round_trip: RoundTrip,
    /// Since when an event is missing.
    gap_since: Option<Boot>,
    range_request: Option<(Nonce, Boot)>,
    /// When to check whether the denylist must be loaded.
    load_at: Boot,
    /// The copy that is awaited, and how many copies have been requested.
    loading: Option<u64>,
    loads_requested: u64,
    /// Number that a copy must include at least.
    opened_at_seq: u64,
    /// Number that was last reported as applied, and when.
    reported: (u64, Boot),
    /// When the last reports would all have been made, one each [`BUSY_REPORT_INTERVAL`].
    reports_spent_until: Boot,
    /// Leases that begin when every event up to a number is applied: the number, and the lease's
    /// end.
    pending_leases: Vec<(u64, Boot)>,
}

impl Consumer {
    /// Creates a consumer without a lease; the first tick sends a probe. `called` is its
    /// human-readable name.
    pub fn new((id, called): (ConsumerId, PeerName), settings: ConsumerSettings, view: Arc<View>) -> Self {
        let generation = view.generation();
        Self {
            id,
            name: called,
            settings,
            view,
            generation,
            epoch: None,
            contiguous: 0,
            applied_beyond_gap: BTreeSet::new(),
            known_head: 0,
            flushing: true,
            probes: VecDeque::new(),
            probe_at: Boot(0),
            urgent_probe_at: None,
            last_probe_at: None,
            round_trip: RoundTrip::default(),
            gap_since: None,
            range_request: None,
            load_at: Boot(0),
            loading: None,
            loads_requested: 0,
            opened_at_seq: 0,
            reported: (0, Boot(0)),
            reports_spent_until: Boot(0),
            pending_leases: Vec::new(),
        }
    }

    /// The view that caches see.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// How far the log is applied; `None` while nothing is known of it.
    pub fn applied(&self) -> Option<LogHead> {
        self.epoch.filter(|_| !self.flushing).map(|epoch| LogHead { epoch, seq: self.contiguous })
    }

    /// Latest time at which [`Consumer::tick`] must be called.
    pub fn next_tick_at(&self) -> Boot {
        let gap = self.gap_since.map(|since| since.plus(self.settings.gap_patience));
        let ask = self.gap_since.and(self.range_request).map(|(_, at)| at.plus(RANGE_RETRY_INTERVAL));
        let tell = self.report_due_at();
        let load = (self.view.denylist().is_some() && !self.flushing).then_some(self.load_at);
        let silence = self.view.silence().next_change_at();
        [Some(self.probe_at), self.urgent_probe_at, gap, ask, tell, load, silence]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.probe_at)
    }

    /// Does everything that is due.
    pub fn tick(&mut self, now: Boot, nonce: &mut dyn FnMut() -> Nonce, actions: &mut Vec<ConsumerAction>) {
        let ConsumerSettings { probe_period: period, lease, .. } = self.settings;
        self.view.silence().update(now, period, lease, self.view.lease());
        if self.generation != self.view.generation() {
            self.flush(FlushCause::Epoch, now, actions);
        } else if self.gap_since.is_some_and(|since| now >= since.plus(self.settings.gap_patience)) {
            self.flush(FlushCause::Gap, now, actions);
        }
        if self.gap_since.is_some() {
            self.request_missing(now, nonce, actions);
        }
        self.probe_when_due(now, nonce, actions);
        self.load_when_due(now, actions);
        self.report_progress(now, actions);
    }

    /// Ends a copy of the denylist. Everything revoked at `head`, which was read before, was added
    /// to the view's denylist. `None` when it could not be read: it is requested again.
    pub fn denylist_loaded(&mut self, now: Boot, ticket: u64, head: Option<LogHead>) {
        if self.loading != Some(ticket) {
            return;
        }
        self.load_at = self.load_at.min(now.plus(LOAD_RETRY_INTERVAL));
        let Some(head) = head else { return };
        let fits = Some(head.epoch) == self.epoch && head.seq >= self.opened_at_seq;
        if fits || mutation::is_active(Mutation::StaleCopy) {
            self.view.denylist_loaded(head.seq);
            (self.loading, self.load_at) = (None, now.plus(ROOM_CHECK_INTERVAL));
        }
    }

    /// Applies a message of the authority.
    pub fn on_message(
        &mut self,
        now: Boot,
        body: &Body,
        nonce: &mut dyn FnMut() -> Nonce,
        actions: &mut Vec<ConsumerAction>,
    ) {
        if self.generation != self.view.generation() {
            self.flush(FlushCause::Epoch, now, actions);
        }
        match body {
            Body::Event { epoch, event } => self.on_event(now, *epoch, event, actions),
            Body::Echo { nonce, head } => self.on_echo(now, *nonce, *head, actions),
            Body::RangeUnavailable { nonce }
                if self.range_request.is_some_and(|(expected, _)| expected == *nonce) =>
            {
                self.flush(FlushCause::EventsUnavailable, now, actions);
            }
            // The rest is for authorities, for queries about credentials, or answers no open
            // request.
            Body::RangeUnavailable { .. }
            | Body::Probe { .. }
            | Body::RangeRequest { .. }
            | Body::Applied { .. }
            | Body::Query(_)
            | Body::Answer { .. } => return,
        }
        self.view.set_known_head(self.known_head);
        if self.gap_since.is_some() {
            self.request_missing(now, nonce, actions);
        }
        self.probe_when_due(now, nonce, actions);
        self.report_progress(now, actions);
    }

    fn on_event(&mut self, now: Boot, epoch: Epoch, event: &LogEvent, actions: &mut Vec<ConsumerAction>) {
        if self.epoch != Some(epoch) && !mutation::is_active(Mutation::EpochIgnored) {
            // The event is of an older or a newer epoch. Only an echo can tell which, since an echo
            // cannot be replayed.
            return self.probe_soon(now);
        }
        if self.epoch.is_none()
            || event.seq <= self.contiguous
            || self.applied_beyond_gap.contains(&event.seq)
        {
            return;
        }
        self.view.apply(event);
        actions.push(ConsumerAction::Revoked(event.clone()));
        self.applied_beyond_gap.insert(event.seq);
        self.known_head = self.known_head.max(event.seq);
        self.advance();
        if self.applied_beyond_gap.len() > MAX_EVENTS {
            self.flush(FlushCause::Overflow, now, actions);
        } else if !self.applied_beyond_gap.is_empty() && !self.flushing {
            self.gap_since.get_or_insert(now);
        }
    }

    fn on_echo(&mut self, now: Boot, nonce: Nonce, head: LogHead, actions: &mut Vec<ConsumerAction>) {
        let matches = |probe: &OpenProbe| probe.nonce == nonce || mutation::is_active(Mutation::EchoNonce);
        let Some(at) = self.probes.iter().rposition(matches) else { return };
        let Some(probe) = self.probes.remove(at) else { return };
        if self.view.silence().current() == Responsiveness::Responsive {
            self.round_trip.add_sample(now.since(probe.sent_at).min(self.settings.probe_period));
        }
        self.view.silence().answer_received();
        if probe.generation != self.view.generation() {
            // Sent before a flush: the echo does not cover what was missed since.
            return;
        }
        if self.flushing {
            if !self.view.end_flush(probe.generation, head) {
                return;
            }
            self.flushing = false;
            if self.epoch.replace(head.epoch) != Some(head.epoch) {
                // Whatever caused the flush: numbers of another epoch mean nothing in this one.
                self.applied_beyond_gap.clear();
            }
            (self.opened_at_seq, self.load_at) = (head.seq, now);
            self.loads_requested += 1;
            self.loading = Some(self.loads_requested);
            self.load_when_due(now, actions);
            self.contiguous = head.seq;
            self.applied_beyond_gap = self.applied_beyond_gap.split_off(&head.seq.saturating_add(1));
            self.known_head = self.applied_beyond_gap.last().copied().unwrap_or(head.seq).max(head.seq);
            self.advance();
            if !self.applied_beyond_gap.is_empty() {
                self.gap_since.get_or_insert(now);
            }
        } else if self.epoch != Some(head.epoch) && !mutation::is_active(Mutation::EpochIgnored) {
            return self.flush(FlushCause::Epoch, now, actions);
        } else if head.seq < probe.contiguous && !mutation::is_active(Mutation::EpochIgnored) {
            return self.flush(FlushCause::LogRewound, now, actions);
        }
        self.known_head = self.known_head.max(head.seq);
        let from = if mutation::is_active(Mutation::LeaseAtReceive) { now } else { probe.sent_at };
        self.pending_leases.retain(|(_, until)| now < *until);
        self.pending_leases.push((head.seq, from.plus(self.settings.lease)));
        self.apply_pending_leases();
        if self.contiguous < head.seq {
            self.gap_since.get_or_insert(now);
        }
        if let Some(probed) = self.last_probe_at {
            self.probe_at = probed.plus(self.settings.probe_period);
        }
    }

    /// Extends the lease by the owed leases whose events are all applied. If every echo shows a new
    /// gap, no echo ever finds everything applied when it arrives.
    fn apply_pending_leases(&mut self) {
        let (contiguous, view) = (self.contiguous, &self.view);
        self.pending_leases.retain(|(head, until)| {
            let is_due = *head <= contiguous;
            if is_due {
                view.extend_lease(*until);
            }
            !is_due
        });
    }

    /// Counts the events that have no gap before them any more.
    fn advance(&mut self) {
        while self.applied_beyond_gap.first().is_some_and(|next| *next <= self.contiguous + 1) {
            if let Some(next) = self.applied_beyond_gap.pop_first() {
                self.contiguous = self.contiguous.max(next);
            }
        }
        self.view.set_applied_up_to(self.contiguous);
        self.apply_pending_leases();
        if self.contiguous >= self.known_head && self.applied_beyond_gap.is_empty() {
            (self.gap_since, self.range_request) = (None, None);
        }
    }

    /// Requests the denylist: if it was not loaded yet, or if an entry found no room and there is
    /// room now.
    fn load_when_due(&mut self, now: Boot, actions: &mut Vec<ConsumerAction>) {
        let Some(denials) = self.view.denylist().filter(|_| !self.flushing && now >= self.load_at) else {
            return;
        };
        if self.loading.is_none() && (denials.is_complete() || !denials.has_room()) {
            self.load_at = now.plus(ROOM_CHECK_INTERVAL);
            return;
        }
        denials.begin_load();
        self.load_at = now.plus(LOAD_TIMEOUT);
        self.loads_requested += 1;
        self.loading = Some(self.loads_requested);
        actions.push(ConsumerAction::LoadDenylist { ticket: self.loads_requested });
    }

    fn flush(&mut self, cause: FlushCause, now: Boot, actions: &mut Vec<ConsumerAction>) {
        // Numbers that are used twice mean another epoch in all but its name: a log file that was
        // restored.
        if cause == FlushCause::LogRewound {
            self.view.flush_epoch();
        } else {
            self.view.begin_flush();
        }
        (self.flushing, self.generation) = (true, self.view.generation());
        (self.gap_since, self.range_request, self.loading) = (None, None, None);
        self.pending_leases.clear();
        if matches!(cause, FlushCause::Epoch | FlushCause::LogRewound) {
            (self.epoch, self.applied_beyond_gap, self.contiguous) = (None, BTreeSet::new(), 0);
        } else if cause == FlushCause::Overflow {
            // They remain tombstones; the echo says from which number on events count.
            self.applied_beyond_gap.clear();
        }
        actions.push(ConsumerAction::Flushed(cause));
        self.probe_soon(now);
    }

    /// Schedules a probe soon, but one for many reasons.
    fn probe_soon(&mut self, now: Boot) {
        let earliest = self.last_probe_at.map_or(now, |probed| probed.plus(URGENT_PROBE_INTERVAL)).max(now);
        self.urgent_probe_at = Some(self.urgent_probe_at.map_or(earliest, |at| at.min(earliest)));
    }

    fn probe_when_due(
        &mut self,
        now: Boot,
        nonce: &mut dyn FnMut() -> Nonce,
        actions: &mut Vec<ConsumerAction>,
    ) {
        if now >= self.probe_at || self.urgent_probe_at.is_some_and(|at| now >= at) {
            self.probe(now, nonce(), actions);
        }
    }

    /// Pause before an unanswered probe is repeated: shorter when less is left of the lease. The
    /// network may lose messages, even most of them.
    fn retry_pause(&self, now: Boot) -> Duration {
        let ConsumerSettings { lease, probe_period: period, .. } = self.settings;
        if mutation::is_active(Mutation::NoRetry) {
            return period;
        }
        if self.view.silence().is_silent() {
            return URGENT_PROBE_INTERVAL.min(period);
        }
        let least = (lease / 100).clamp(RETRY_LIMITS.0, RETRY_LIMITS.1);
        let left = self.view.lease().since(now);
        (left / 100).max(least).max(self.round_trip.timeout()).min(period)
    }

    fn probe(&mut self, now: Boot, nonce: Nonce, actions: &mut Vec<ConsumerAction>) {
        // The echo of an older probe could not extend the lease any more.
        while self.probes.front().is_some_and(|probe| now.since(probe.sent_at) >= self.settings.lease) {
            self.probes.pop_front();
        }
        let generation = self.view.generation();
        self.probes.push_back(OpenProbe { nonce, sent_at: now, generation, contiguous: self.contiguous });
        self.view.silence().query_sent(now, self.settings.probe_period);
        (self.probe_at, self.urgent_probe_at, self.last_probe_at) =
            (now.plus(self.retry_pause(now)), None, Some(now));
        let ConsumerSettings { lease, .. } = self.settings;
        let (called, applied) = (self.name.clone(), self.applied());
        if let Some(head) = applied {
            self.reported.0 = head.seq;
        }
        actions.push(ConsumerAction::Send(Body::Probe {
            consumer: self.id,
            name: called,
            lease,
            nonce,
            applied,
        }));
    }

    /// Requests the missing events, at most once in each pause.
    fn request_missing(
        &mut self,
        now: Boot,
        nonce: &mut dyn FnMut() -> Nonce,
        actions: &mut Vec<ConsumerAction>,
    ) {
        let Some(epoch) = self.epoch.filter(|_| !self.flushing) else { return };
        if self.range_request.is_some_and(|(_, at)| now < at.plus(RANGE_RETRY_INTERVAL)) {
            return;
        }
        let nonce = nonce();
        self.range_request = Some((nonce, now));
        actions.push(ConsumerAction::Send(Body::RangeRequest {
            nonce,
            after: LogHead { epoch, seq: self.contiguous },
        }));
    }

    /// When to report what is applied; `None` while there is nothing new, or the next probe says it.
    fn report_due_at(&self) -> Option<Boot> {
        let is_new = !self.flushing && self.reported.0 != self.contiguous;
        let due = self.reported.1.plus(REPORT_INTERVAL);
        (is_new && self.may_report(due)).then_some(due)
    }

    /// Whether a report at this time is one of the few that are sent before the next probe.
    fn may_report(&self, at: Boot) -> bool {
        self.reports_spent_until <= at.plus(BUSY_REPORT_INTERVAL * (REPORT_BURST - 1))
    }

    /// Reports what is applied, for revokers that wait for it: soon after a few events. Under a
    /// stream of events, some are followed by a report, and each probe tells the rest.
    fn report_progress(&mut self, now: Boot, actions: &mut Vec<ConsumerAction>) {
        let Some(head) = self.applied() else { return };
        let is_due = now >= self.reported.1.plus(REPORT_INTERVAL) && self.may_report(now);
        if self.reported.0 != head.seq && is_due {
            self.reported = (head.seq, now);
            self.reports_spent_until = self.reports_spent_until.max(now).plus(BUSY_REPORT_INTERVAL);
            actions.push(ConsumerAction::Send(Body::Applied { consumer: self.id, head }));
        }
    }
}

#[cfg(test)]
mod tests;
