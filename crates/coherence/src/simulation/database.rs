//! Database of the simulation: its log, its list of consumers, and what nodes read of it.
//!
//! A head, and what is answered about single tokens, has to be *proved* ([`World::prove`]): by a
//! server that is the primary. Other reads may come from a replica that lags behind, or from a
//! deposed primary that does not know it ([`DeposedServer`]). After a failover the epoch changes as
//! soon as anything is written, and until then nothing is proved. A database that accepts no writes
//! proves all the same, unless a new epoch has yet to be written.

use std::collections::BTreeMap;

use super::{CONSUMERS, NODES, Packet, Revoked, TICK, Token, World, epoch, tag};
use crate::consumers;
use crate::consumers::ConsumerRecord;
use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead};
use crate::mutation::{self, Mutation};
use crate::time::Boot;
use crate::wire::Body;

pub(super) struct Database {
    pub(super) epoch: u64,
    pub(super) head: u64,
    pub(super) log: BTreeMap<u64, LogEvent>,
    /// How many servers have been the primary, and which of them wrote last.
    servers: u64,
    written_by: u64,
    /// The disk is full until this tick: nothing can be written.
    full_until: u64,
    /// The head at each tick: what replicas know.
    heads: Vec<(u64, u64)>,
    /// Recorded consumers, by their identifiers.
    list: BTreeMap<ConsumerId, Entry>,
}

struct Entry {
    follower: ConsumerRecord,
    written: u64,
    /// When it was marked: it is about to be removed.
    marked: Option<u64>,
}

/// What a server had when it was deposed.
pub(super) struct DeposedServer {
    epoch: u64,
    pub(super) log: BTreeMap<u64, LogEvent>,
    until: u64,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            epoch: 1,
            head: 0,
            log: BTreeMap::new(),
            servers: 1,
            written_by: 1,
            full_until: 0,
            heads: Vec::new(),
            list: BTreeMap::new(),
        }
    }
}

impl Database {
    fn visible(&self) -> LogHead {
        // Numbers that were drawn early may leave gaps below.
        LogHead { epoch: epoch(self.epoch), seq: last(&self.log) }
    }
}

fn last(log: &BTreeMap<u64, LogEvent>) -> u64 {
    log.last_key_value().map_or(0, |(seq, _)| *seq)
}

fn ticks(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("minutes") / TICK
}

impl World {
    fn is_full(&self) -> bool {
        self.tick < self.database.full_until
    }

    /// Begins a period in which nothing can be written.
    pub(super) fn refuse_writes(&mut self) {
        if self.is_full() {
            return;
        }
        let spell = self.random.one_of(&[30, 200, 1250]);
        self.fill_up_for(self.tick + spell);
    }

    pub(super) fn fill_up_for(&mut self, until: u64) {
        self.database.full_until = until;
    }

    /// Whether writes were refused until just now.
    pub(super) fn has_room_again(&self) -> bool {
        self.tick > 0 && self.tick == self.database.full_until
    }

    /// Removes all faults of the database.
    pub(super) fn repair(&mut self) {
        self.database.full_until = 0;
        self.old.fill_with(|| None);
    }

    /// Whether a node can write to the database.
    pub(super) fn is_writable(&self, node: usize) -> bool {
        !self.is_full() && self.old[node].is_none()
    }

    pub(super) fn remember_head(&mut self) {
        let head = (self.database.epoch, self.database.visible().seq);
        self.database.heads.push(head);
        let tick = self.tick;
        for old in &mut self.old {
            old.take_if(|old| old.until <= tick);
        }
    }

    // Revocations.

    pub(super) fn revoke(&mut self) {
        let live: Vec<_> = self.tokens.values().filter(|t| t.revoked.is_none()).map(|t| t.number).collect();
        let Some(chosen) = live.get(self.random.index(live.len().max(1))).map(|n| self.tokens[n]) else {
            return;
        };
        let whole_subject = self.random.chance(300);
        if !self.is_full() {
            self.revoke_token(chosen, whole_subject);
        }
    }

    pub(super) fn revoke_token(&mut self, chosen: Token, whole_subject: bool) {
        self.database.head += 1;
        let named = if whole_subject { tag(2, chosen.subject) } else { tag(1, chosen.number) };
        // Tokens issued in this very tick are not revoked: they come after this.
        let not_before = whole_subject.then(|| i64::try_from(self.tick).expect("few"));
        let event = LogEvent { seq: self.database.head, tags: vec![named], not_before, until: i64::MAX };
        let concerned = |t: &&Token| {
            let spared = not_before.is_some_and(|then| t.issued >= then);
            let named = if whole_subject { t.subject == chosen.subject } else { t.number == chosen.number };
            t.revoked.is_none() && named && !spared
        };
        let concerned: Vec<_> = self.tokens.values().filter(concerned).map(|t| t.number).collect();
        let early = mutation::is_active(Mutation::ReplyBeforeCommit);
        if mutation::is_active(Mutation::Sequence) || early {
            if early {
                self.database.head -= 1;
                for token in &concerned {
                    self.reply(*token, u64::MAX);
                }
            }
            let after = self.random.between(0, 100);
            self.at(self.tick + after, Packet::Commit(event, concerned));
        } else {
            self.commit(event, &concerned);
        }
        (0..2).for_each(|_| self.issue());
    }

    fn reply(&mut self, token: u64, seq: u64) {
        let (epoch, tick) = (self.database.epoch, self.tick);
        if let Some(token) = self.tokens.get_mut(&token) {
            let replied = token.revoked.map_or(tick, |revoked| revoked.replied);
            token.revoked = Some(Revoked { epoch, seq, replied });
        }
    }

    pub(super) fn commit(&mut self, mut event: LogEvent, concerned: &[u64]) {
        self.begin_epoch_if_failed_over();
        if mutation::is_active(Mutation::ReplyBeforeCommit) {
            self.database.head += 1;
            event.seq = self.database.head;
        }
        for token in concerned {
            self.reply(*token, event.seq);
        }
        self.database.log.insert(event.seq, event.clone());
        let head = LogHead { epoch: epoch(self.database.epoch), seq: event.seq };
        self.awaited.push((head, concerned.to_vec()));
        self.push(&event);
    }

    fn push(&mut self, event: &LogEvent) {
        self.publish(Body::Event { epoch: epoch(self.database.epoch), event: event.clone() });
    }

    /// Publishes some event of the log once more.
    pub(super) fn publish_again(&mut self) {
        if self.database.log.is_empty() {
            return;
        }
        let seq = self.random.between(1, self.database.head);
        if let Some(event) = self.database.log.get(&seq).cloned() {
            self.push(&event);
        }
    }

    /// The end of the log is lost, and another epoch begins. Some nodes do not notice.
    pub(super) fn fail_over(&mut self) {
        for node in 0..NODES {
            if self.random.chance(500) {
                let until = self.tick + self.random.between(20, 400);
                let Database { epoch, log, .. } = &self.database;
                self.old[node] = Some(DeposedServer { epoch: *epoch, log: log.clone(), until });
            }
        }
        let kept = self.database.head - self.random.below(self.database.head.min(3) + 1);
        for (_, event) in self.database.log.split_off(&(kept + 1)) {
            for token in self.tokens.values_mut() {
                if token.revoked.is_some_and(|revoked| revoked.seq == event.seq) {
                    (token.revoked, token.lost) = (None, true);
                }
            }
        }
        self.database.head = kept;
        self.database.servers += 1;
    }

    /// Something is written: a new epoch begins if another server wrote last.
    fn begin_epoch_if_failed_over(&mut self) {
        if self.database.written_by != self.database.servers {
            self.database.written_by = self.database.servers;
            self.database.epoch += 1;
        }
    }

    // The list of consumers.

    /// Records consumers, never with less progress in the same epoch.
    pub(super) fn note(&mut self, followers: &[ConsumerRecord]) {
        for follower in followers {
            let mut follower = follower.clone();
            let before = self.database.list.get(&follower.id).and_then(|entry| entry.follower.applied);
            if let Some(before) = before {
                match &mut follower.applied {
                    Some(now) if now.epoch == before.epoch => now.seq = now.seq.max(before.seq),
                    Some(_) => {}
                    none => *none = Some(before),
                }
            }
            let entry = Entry { follower, written: self.tick, marked: None };
            self.database.list.insert(entry.follower.id, entry);
        }
    }

    /// Removes consumers that are gone, in two steps.
    fn remove_inactive(&mut self) {
        let (mark, gone) = (ticks(consumers::MARK_AFTER), ticks(consumers::REMOVE_AFTER));
        let (tick, at_once) = (self.tick, mutation::is_active(Mutation::RemovedInOneStep));
        self.database.list.retain(|_, entry| match entry.marked {
            _ if at_once => tick - entry.written < gone,
            Some(marked) => tick - marked < gone - mark,
            None => {
                entry.marked = (tick - entry.written >= mark).then_some(tick);
                true
            }
        });
    }

    /// Checks the list for revokers that wait.
    pub(super) fn confirm_applied(&mut self) {
        if !self.is_full() {
            self.remove_inactive();
        }
        let list: Vec<_> = self.database.list.values().map(|entry| entry.follower.clone()).collect();
        let (tokens, now) = (&mut self.tokens, self.tick);
        self.awaited.retain(|(head, concerned)| {
            let everywhere = consumers::all_applied(&list, *head);
            if everywhere {
                concerned
                    .iter()
                    .filter_map(|number| tokens.get_mut(number).map(|token| token.confirmed = Some(now)))
                    .count();
            }
            !everywhere
        });
    }

    // Reads of the nodes.

    /// The head, by a node whose server is the primary. While nothing can be written, an epoch that
    /// has yet to begin is not proved.
    pub(super) fn prove(&mut self, node: usize) -> Option<LogHead> {
        if let Some(old) = &self.old[node] {
            let read = LogHead { epoch: epoch(old.epoch), seq: last(&old.log) };
            return mutation::is_active(Mutation::HeadUnproven).then_some(read);
        }
        if self.is_full() && self.database.written_by != self.database.servers {
            return None;
        }
        self.begin_epoch_if_failed_over();
        Some(self.database.visible())
    }

    /// The head for the consumers that asked, and those of them that must not get it.
    pub(super) fn read_head(
        &mut self,
        node: usize,
        querying: &[ConsumerId],
    ) -> (Option<LogHead>, Vec<ConsumerId>) {
        let read = self.recorded_head(node, querying);
        let now = Boot(self.tick * TICK);
        match read.0 {
            Some(head) if self.rosters[node].enter_epoch(head.epoch, now) => {
                self.recorded_head(node, querying)
            }
            _ => read,
        }
    }

    fn recorded_head(&mut self, node: usize, querying: &[ConsumerId]) -> (Option<LogHead>, Vec<ConsumerId>) {
        let now = Boot(self.tick * TICK);
        let due = self.rosters[node].to_record(now, querying);
        let mut unlisted = Vec::new();
        if self.is_writable(node) {
            if !mutation::is_active(Mutation::UnrecordedConsumer) {
                self.note(&due);
            }
            self.rosters[node].mark_recorded(now, &due);
        } else if !mutation::is_active(Mutation::UnrecordedReadOnly) {
            let stands =
                |id: &ConsumerId| self.database.list.get(id).is_some_and(|entry| entry.marked.is_none());
            unlisted = self.rosters[node].not_recently_recorded(now, querying);
            unlisted.retain(|id| !stands(id));
        }
        (self.prove(node), unlisted)
    }

    /// A range of the log, as a node reads it.
    pub(super) fn range(&self, node: usize, after: u64, limit: usize) -> (Epoch, Vec<LogEvent>) {
        let (of, log) = match &self.old[node] {
            Some(old) => (old.epoch, &old.log),
            None => (self.database.epoch, &self.database.log),
        };
        (epoch(of), log.range(after + 1..).take(limit).map(|(_, event)| event.clone()).collect())
    }

    /// What a server knows that may lag behind: the epoch, and its last event.
    pub(super) fn known(&mut self) -> (u64, u64) {
        let behind = if self.healed { 0 } else { self.random.between(0, self.lag) };
        let then = usize::try_from(self.tick.saturating_sub(behind)).expect("few");
        match self.database.heads.get(then) {
            Some((of, seq)) if behind > 0 => (*of, *seq),
            _ => (self.database.epoch, self.database.visible().seq),
        }
    }

    /// What a node reads of the log without proof: the epoch, the last event, and the events.
    pub(super) fn read_log(&mut self, node: usize) -> (u64, u64, &BTreeMap<u64, LogEvent>) {
        let (of, seq) = self.known();
        match &self.old[node] {
            Some(old) => (old.epoch, last(&old.log), &old.log),
            None => (of, seq, &self.database.log),
        }
    }

    /// The same with a proved head.
    pub(super) fn prove_log(&mut self, node: usize) -> Option<(LogHead, &BTreeMap<u64, LogEvent>)> {
        let proven = self.prove(node);
        let (of, seq, log) = self.read_log(node);
        match proven {
            // A replica that lags behind proves nothing.
            Some(head) => Some((head, log)),
            None if mutation::is_active(Mutation::TagsUnproven) => {
                Some((LogHead { epoch: epoch(of), seq }, log))
            }
            None => None,
        }
    }

    /// What a page of the denylist is read from: the log of a server, and its head. Nodes of an
    /// earlier version read both without proof, over one connection: then the head shows that the
    /// page is old.
    pub(super) fn page_of(&mut self, node: usize) -> Option<(LogHead, &BTreeMap<u64, LogEvent>)> {
        if mutation::is_active(Mutation::PageUnproven) && self.old[node].is_some() {
            let head = self.database.visible();
            return self.old[node].as_ref().map(|old| (head, &old.log));
        }
        if self.random.chance(500) {
            return self.prove_log(node);
        }
        let (of, seq, log) = self.read_log(node);
        Some((LogHead { epoch: epoch(of), seq }, log))
    }

    /// What a server answers about a token, and as of which event.
    pub(super) fn answer(&mut self, token: u64) -> (bool, (Epoch, u64)) {
        let (of, as_of) = self.known();
        let revoked = self.tokens.get(&token).and_then(|token| token.revoked);
        // With numbers drawn early, an event that is counted need not be visible.
        let visible = revoked.is_some_and(|revoked| {
            revoked.epoch <= of && revoked.seq <= as_of && self.database.log.contains_key(&revoked.seq)
        });
        (!visible, (epoch(of), as_of))
    }

    /// Sends a message to all consumers.
    pub(super) fn publish(&mut self, body: Body) {
        let bytes = self.write(body);
        self.overhears(&bytes);
        for to in 0..CONSUMERS {
            self.send(to, true, || Packet::ToConsumer(to, bytes.clone()));
        }
    }
}
