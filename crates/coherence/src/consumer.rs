//! Consumer: follows the log of one authority, on behalf of the caches of a node.
//!
//! Owns: which events are applied, the probes that renew the lease and their repetition, gaps,
//! flushes. Does not own: sockets, timers, randomness and the clock, which the caller supplies.
//! Caches see the result in the [`View`].
//!
//! The caller passes each message to [`Consumer::message`], and calls [`Consumer::tick`] no later
//! than [`Consumer::wakes_at`]. Both append to a list of [actions](Action).
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

use crate::log_types::{ConsumerId, ConsumerName, Epoch, LogEvent, LogHead, Nonce};
use crate::mutation::{self, Mutation};
use crate::silence::Hearing;
use crate::time::Boot;
use crate::view::View;
use crate::wire::Body;

/// Most events held beyond a gap, and the longest range that is worth sending again.
pub const MAX_RANGE: usize = 10_000;
/// Pause between two requests for the same range.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Pause between two reports of what is applied.
const APPLIED: Duration = Duration::from_millis(20);
/// Pause between a failed copy of the denylist and the next request for one.
const LOAD_AGAIN: Duration = Duration::from_secs(1);
/// Time limit of a copy of the denylist; then another one is requested.
const LOADING: Duration = Duration::from_mins(2);
/// Pause between two checks whether the denylist has room again.
const ROOM_AGAIN: Duration = Duration::from_mins(1);
/// Pause between two probes that have a cause other than time, and between probes to a silent
/// authority.
const HURRY: Duration = Duration::from_millis(100);
/// Least pause before a probe without an answer is repeated: a hundredth of the lease, within these
/// limits.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// Timing of a consumer.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerSettings {
    /// L: how long entries are valid after the probe was sent. The revocation bound rests on it.
    pub lease: Duration,
    /// H: time between two probes.
    pub period: Duration,
    /// How long a gap may stay before the consumer flushes.
    pub patience: Duration,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            period: Duration::from_millis(500),
            patience: Duration::from_secs(1),
        }
    }
}

/// What the caller must do for the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this to the authority.
    Send(Body),
    /// Read the head and then everything that is denied, add it to the view's
    /// [denylist](View::denials), and call [`Consumer::loaded`].
    Load {
        /// To be passed to [`Consumer::loaded`].
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
    WentBack,
    /// A missing event did not arrive within the patience.
    Gap,
    /// The authority cannot send the missing events any more, or there are too many.
    Gone,
    /// More events arrived beyond a gap than there is room for.
    Overflow,
}

/// A probe that has no answer yet.
#[derive(Debug, Clone, Copy)]
struct Probe {
    nonce: Nonce,
    /// When it was sent, on this node's clock: the lease counts from here.
    at: Boot,
    generation: u64,
    contiguous: u64,
}

/// How long answers take (RFC 6298 section 2): a repetition before that time is in vain.
#[derive(Debug, Default)]
struct RoundTrip {
    /// Smoothed time and its variation; `None` before the first sample.
    known: Option<(Duration, Duration)>,
}

impl RoundTrip {
    /// Patience before the first sample.
    const UNKNOWN: Duration = Duration::from_millis(100);

    fn took(&mut self, time: Duration) {
        self.known = Some(match self.known {
            None => (time, time / 2),
            Some((smooth, varies)) => ((smooth * 7 + time) / 8, (varies * 3 + smooth.abs_diff(time)) / 4),
        });
    }

    /// Time that hardly any answer exceeds.
    fn patience(&self) -> Duration {
        self.known.map_or(Self::UNKNOWN, |(smooth, varies)| smooth + 4 * varies)
    }
}

/// State machine that follows one log.
#[derive(Debug)]
pub struct Consumer {
    id: ConsumerId,
    called: ConsumerName,
    settings: ConsumerSettings,
    view: Arc<View>,
    epoch: Option<Epoch>,
    /// Every event up to this number is applied.
    contiguous: u64,
    /// Events that are applied beyond a gap.
    beyond: BTreeSet<u64>,
    /// Highest number that the log is known to have.
    wanted: u64,
    flushing: bool,
    /// The view's generation. If the view has another one, a denial from another epoch has shut it.
    generation: u64,
    probes: VecDeque<Probe>,
    probe_at: Boot,
    /// When a probe is due in any case, whatever was answered to those before.
    hurry_at: Option<Boot>,
    probed: Option<Boot>,
    round_trip: RoundTrip,
    /// Since when an event is missing.
    gap: Option<Boot>,
    asked: Option<(Nonce, Boot)>,
    /// When to check whether the denylist must be loaded.
    load_at: Boot,
    /// The copy that is awaited, and how many copies have been requested.
    loading: Option<u64>,
    loads: u64,
    /// Number that a copy must include at least.
    opened: u64,
    /// Number that was last reported as applied, and when.
    told: (u64, Boot),
    /// Leases that begin when every event up to a number is applied: the number, and the lease's
    /// end.
    owed: Vec<(u64, Boot)>,
}

impl Consumer {
    /// Creates a consumer without a lease; the first tick sends a probe. `called` is its
    /// human-readable name.
    pub fn new(
        (id, called): (ConsumerId, ConsumerName),
        settings: ConsumerSettings,
        view: Arc<View>,
    ) -> Self {
        let generation = view.generation();
        Self {
            id,
            called,
            settings,
            view,
            generation,
            epoch: None,
            contiguous: 0,
            beyond: BTreeSet::new(),
            wanted: 0,
            flushing: true,
            probes: VecDeque::new(),
            probe_at: Boot(0),
            hurry_at: None,
            probed: None,
            round_trip: RoundTrip::default(),
            gap: None,
            asked: None,
            load_at: Boot(0),
            loading: None,
            loads: 0,
            opened: 0,
            told: (0, Boot(0)),
            owed: Vec::new(),
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
    pub fn wakes_at(&self) -> Boot {
        let gap = self.gap.map(|since| since.plus(self.settings.patience));
        let ask = self.gap.and(self.asked).map(|(_, at)| at.plus(ASK_AGAIN));
        let tell = (self.told.0 != self.contiguous && !self.flushing).then(|| self.told.1.plus(APPLIED));
        let load = (self.view.denials().is_some() && !self.flushing).then_some(self.load_at);
        let silence = self.view.silence().turns_at();
        [Some(self.probe_at), self.hurry_at, gap, ask, tell, load, silence]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.probe_at)
    }

    /// Does everything that is due.
    pub fn tick(&mut self, now: Boot, nonce: &mut dyn FnMut() -> Nonce, actions: &mut Vec<Action>) {
        let ConsumerSettings { period, lease, .. } = self.settings;
        self.view.silence().look(now, period, lease, self.view.lease());
        if self.generation != self.view.generation() {
            self.flush(FlushCause::Epoch, now, actions);
        } else if self.gap.is_some_and(|since| now >= since.plus(self.settings.patience)) {
            self.flush(FlushCause::Gap, now, actions);
        }
        if self.gap.is_some() {
            self.ask(now, nonce, actions);
        }
        self.probe_when_due(now, nonce, actions);
        self.load_when_due(now, actions);
        self.tell(now, actions);
    }

    /// Ends a copy of the denylist. Everything revoked at `head`, which was read before, was added
    /// to the view's denylist. `None` when it could not be read: it is requested again.
    pub fn loaded(&mut self, now: Boot, ticket: u64, head: Option<LogHead>) {
        if self.loading != Some(ticket) {
            return;
        }
        self.load_at = self.load_at.min(now.plus(LOAD_AGAIN));
        let Some(head) = head else { return };
        let fits = Some(head.epoch) == self.epoch && head.seq >= self.opened;
        if fits || mutation::is(Mutation::OldCopy) {
            self.view.loaded(head.seq);
            (self.loading, self.load_at) = (None, now.plus(ROOM_AGAIN));
        }
    }

    /// Applies a message of the authority.
    pub fn message(
        &mut self,
        now: Boot,
        body: &Body,
        nonce: &mut dyn FnMut() -> Nonce,
        actions: &mut Vec<Action>,
    ) {
        if self.generation != self.view.generation() {
            self.flush(FlushCause::Epoch, now, actions);
        }
        match body {
            Body::Event { epoch, event } => self.event(now, *epoch, event, actions),
            Body::Echo { nonce, head } => self.echo(now, *nonce, *head, actions),
            Body::Gone { nonce } if self.asked.is_some_and(|(asked, _)| asked == *nonce) => {
                self.flush(FlushCause::Gone, now, actions);
            }
            // The rest is for authorities, for queries about credentials, or answers no open
            // request.
            Body::Gone { .. }
            | Body::Probe { .. }
            | Body::Ask { .. }
            | Body::Applied { .. }
            | Body::Query(_)
            | Body::Answer { .. } => return,
        }
        self.view.set_wanted(self.wanted);
        if self.gap.is_some() {
            self.ask(now, nonce, actions);
        }
        self.probe_when_due(now, nonce, actions);
        self.tell(now, actions);
    }

    fn event(&mut self, now: Boot, epoch: Epoch, event: &LogEvent, actions: &mut Vec<Action>) {
        if self.epoch != Some(epoch) && !mutation::is(Mutation::EpochIgnored) {
            // The event is of an older or a newer epoch. Only an echo can tell which, since an echo
            // cannot be replayed.
            return self.hurry(now);
        }
        if self.epoch.is_none() || event.seq <= self.contiguous || self.beyond.contains(&event.seq) {
            return;
        }
        self.view.apply(event);
        actions.push(Action::Revoked(event.clone()));
        self.beyond.insert(event.seq);
        self.wanted = self.wanted.max(event.seq);
        self.advance();
        if self.beyond.len() > MAX_RANGE {
            self.flush(FlushCause::Overflow, now, actions);
        } else if !self.beyond.is_empty() && !self.flushing {
            self.gap.get_or_insert(now);
        }
    }

    fn echo(&mut self, now: Boot, nonce: Nonce, head: LogHead, actions: &mut Vec<Action>) {
        let asked = |probe: &Probe| probe.nonce == nonce || mutation::is(Mutation::EchoNonce);
        let Some(at) = self.probes.iter().rposition(asked) else { return };
        let Some(probe) = self.probes.remove(at) else { return };
        if self.view.silence().hearing() == Hearing::Answers {
            self.round_trip.took(now.since(probe.at).min(self.settings.period));
        }
        self.view.silence().heard();
        if probe.generation != self.view.generation() {
            // Sent before a flush: the echo does not cover what was missed since.
            return;
        }
        if self.flushing {
            self.flushing = false;
            if self.epoch.replace(head.epoch) != Some(head.epoch) {
                // Whatever caused the flush: numbers of another epoch mean nothing in this one.
                self.beyond.clear();
            }
            self.view.open(head.epoch, head.seq);
            (self.opened, self.load_at) = (head.seq, now);
            self.loads += 1;
            self.loading = Some(self.loads);
            self.load_when_due(now, actions);
            self.contiguous = head.seq;
            self.beyond = self.beyond.split_off(&head.seq.saturating_add(1));
            self.wanted = self.beyond.last().copied().unwrap_or(head.seq).max(head.seq);
            self.advance();
            if !self.beyond.is_empty() {
                self.gap.get_or_insert(now);
            }
        } else if self.epoch != Some(head.epoch) && !mutation::is(Mutation::EpochIgnored) {
            return self.flush(FlushCause::Epoch, now, actions);
        } else if head.seq < probe.contiguous && !mutation::is(Mutation::EpochIgnored) {
            return self.flush(FlushCause::WentBack, now, actions);
        }
        self.wanted = self.wanted.max(head.seq);
        let from = if mutation::is(Mutation::LeaseAtReceive) { now } else { probe.at };
        self.owed.retain(|(_, until)| now < *until);
        self.owed.push((head.seq, from.plus(self.settings.lease)));
        self.pay();
        if self.contiguous < head.seq {
            self.gap.get_or_insert(now);
        }
        if let Some(probed) = self.probed {
            self.probe_at = probed.plus(self.settings.period);
        }
    }

    /// Extends the lease by the owed leases whose events are all applied. If every echo shows a new
    /// gap, no echo ever finds everything applied when it arrives.
    fn pay(&mut self) {
        let (contiguous, view) = (self.contiguous, &self.view);
        self.owed.retain(|(head, until)| {
            let is_due = *head <= contiguous;
            if is_due {
                view.extend(*until);
            }
            !is_due
        });
    }

    /// Counts the events that have no gap before them any more.
    fn advance(&mut self) {
        while self.beyond.first().is_some_and(|next| *next <= self.contiguous + 1) {
            if let Some(next) = self.beyond.pop_first() {
                self.contiguous = self.contiguous.max(next);
            }
        }
        self.view.set_contiguous(self.contiguous);
        self.pay();
        if self.contiguous >= self.wanted && self.beyond.is_empty() {
            (self.gap, self.asked) = (None, None);
        }
    }

    /// Requests the denylist: if it was not loaded yet, or if an entry found no room and there is
    /// room now.
    fn load_when_due(&mut self, now: Boot, actions: &mut Vec<Action>) {
        let Some(denials) = self.view.denials().filter(|_| !self.flushing && now >= self.load_at) else {
            return;
        };
        if self.loading.is_none() && (denials.is_whole() || !denials.has_room()) {
            self.load_at = now.plus(ROOM_AGAIN);
            return;
        }
        denials.begin();
        self.load_at = now.plus(LOADING);
        self.loads += 1;
        self.loading = Some(self.loads);
        actions.push(Action::Load { ticket: self.loads });
    }

    fn flush(&mut self, cause: FlushCause, now: Boot, actions: &mut Vec<Action>) {
        // Numbers that are used twice mean another epoch in all but its name: a log file that was
        // restored.
        if cause == FlushCause::WentBack {
            self.view.abandon();
        } else {
            self.view.shut();
        }
        (self.flushing, self.generation) = (true, self.view.generation());
        (self.gap, self.asked, self.loading) = (None, None, None);
        self.owed.clear();
        if matches!(cause, FlushCause::Epoch | FlushCause::WentBack) {
            (self.epoch, self.beyond, self.contiguous) = (None, BTreeSet::new(), 0);
        } else if cause == FlushCause::Overflow {
            // They remain tombstones; the echo says from which number on events count.
            self.beyond.clear();
        }
        actions.push(Action::Flushed(cause));
        self.hurry(now);
    }

    /// Schedules a probe soon, but one for many reasons.
    fn hurry(&mut self, now: Boot) {
        let earliest = self.probed.map_or(now, |probed| probed.plus(HURRY)).max(now);
        self.hurry_at = Some(self.hurry_at.map_or(earliest, |at| at.min(earliest)));
    }

    fn probe_when_due(&mut self, now: Boot, nonce: &mut dyn FnMut() -> Nonce, actions: &mut Vec<Action>) {
        if now >= self.probe_at || self.hurry_at.is_some_and(|at| now >= at) {
            self.probe(now, nonce(), actions);
        }
    }

    /// Pause before an unanswered probe is repeated: shorter when less is left of the lease. The
    /// network may lose messages, even most of them.
    fn retry(&self, now: Boot) -> Duration {
        let ConsumerSettings { lease, period, .. } = self.settings;
        if mutation::is(Mutation::NoRetry) {
            return period;
        }
        if self.view.silence().is_silent() {
            return HURRY.min(period);
        }
        let least = (lease / 100).clamp(RETRY.0, RETRY.1);
        let left = self.view.lease().since(now);
        (left / 100).max(least).max(self.round_trip.patience()).min(period)
    }

    fn probe(&mut self, now: Boot, nonce: Nonce, actions: &mut Vec<Action>) {
        // The echo of an older probe could not extend the lease any more.
        while self.probes.front().is_some_and(|probe| now.since(probe.at) >= self.settings.lease) {
            self.probes.pop_front();
        }
        let generation = self.view.generation();
        self.probes.push_back(Probe { nonce, at: now, generation, contiguous: self.contiguous });
        self.view.silence().asked(now, self.settings.period);
        (self.probe_at, self.hurry_at, self.probed) = (now.plus(self.retry(now)), None, Some(now));
        let ConsumerSettings { lease, .. } = self.settings;
        let (called, applied) = (self.called.clone(), self.applied());
        actions.push(Action::Send(Body::Probe { consumer: self.id, called, lease, nonce, applied }));
    }

    /// Requests the missing events, at most once in each pause.
    fn ask(&mut self, now: Boot, nonce: &mut dyn FnMut() -> Nonce, actions: &mut Vec<Action>) {
        let Some(epoch) = self.epoch.filter(|_| !self.flushing) else { return };
        if self.asked.is_some_and(|(_, at)| now < at.plus(ASK_AGAIN)) {
            return;
        }
        let nonce = nonce();
        self.asked = Some((nonce, now));
        actions.push(Action::Send(Body::Ask { nonce, after: LogHead { epoch, seq: self.contiguous } }));
    }

    /// Reports what is applied, for revokers that wait for it.
    fn tell(&mut self, now: Boot, actions: &mut Vec<Action>) {
        let Some(head) = self.applied() else { return };
        if self.told.0 != head.seq && now >= self.told.1.plus(APPLIED) {
            self.told = (head.seq, now);
            actions.push(Action::Send(Body::Applied { consumer: self.id, head }));
        }
    }
}

#[cfg(test)]
mod tests;
