//! Mischief: faults of the network and of processes, and their end.

use crate::authority::LogAuthority;
use crate::consumers::Consumers;
use crate::simulation::{CONSUMERS, HEALED, NODES, World, consumer};

impl World {
    pub(super) fn inject_faults(&mut self) {
        self.repeats();
        self.deafens();
        if self.random.chance(50) {
            self.revoke();
        }
        if self.random.chance(20) {
            self.publish_again();
        }
        if self.random.below(10_000) < self.full {
            self.refuse_writes();
        }
        if self.has_room_again() {
            (0..3).for_each(|_| self.revoke());
        }
        if self.random.chance(3) {
            let (who, inbound) = (self.random.index(CONSUMERS), self.random.chance(500));
            let until = self.tick + self.random.between(10, 300);
            self.partitioned_until.insert((who, inbound), until);
        }
        if self.random.chance(2) {
            let node = self.random.index(NODES);
            self.nodes[node] = LogAuthority::new();
            self.rosters[node] = Consumers::default();
            self.started[node] = self.tick;
            self.down_until[node] = self.tick + self.random.between(1, 100);
        }
        if self.random.chance(1) {
            self.fail_over();
        }
        for at in 0..CONSUMERS {
            if self.random.chance(self.pause) {
                self.caches[at].paused_until = self.tick + self.random.between(5, 200);
            }
            if self.random.chance(self.crash) {
                self.next += CONSUMERS as u64;
                let started = self.next;
                self.caches[at].machine = consumer(started, self.limit);
                self.caches[at].life = started;
                self.caches[at].entries.clear();
                self.caches[at].flights.clear();
                self.caches[at].load = None;
                self.caches[at].denied.clear();
            }
            if self.random.chance(self.forget) {
                self.caches[at].machine.view().remove_one_tombstone();
            }
        }
    }

    /// Removes all faults: every consumer must admit requests again, and from the cache.
    pub(super) fn remove_faults(&mut self) {
        self.healed = true;
        self.partitioned_until.clear();
        self.down_until.fill(0);
        self.repair();
        // Nodes that wait for a read from before get its result; nodes that were restarted are new.
        self.caches.iter_mut().for_each(|cache| cache.paused_until = 0);
        let last = *self.tokens.last_key_value().expect("some").1;
        self.revoke_token(last, true);
        // Issued after all tokens of the subject were revoked, and nothing happens afterwards.
        let remote = self.issue_to(last.subject, false);
        let local = self.issue_to(last.subject, true);
        (0..HEALED).for_each(|_| self.step());
        self.all_are_admitted(&[remote, local]);
        // For two leases and more, nothing can be written; this must have no effect.
        self.fill_up_for(u64::MAX);
        (0..HEALED).for_each(|_| self.step());
        self.all_are_admitted(&[remote, local]);
    }
}
