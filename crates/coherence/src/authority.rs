//! Authority: answers for one log, on a node that reaches its database.
//!
//! Owns: which probes a read of the database may answer, what is sent again, and that copies of a
//! query in progress get one answer. Does not own: the database, sockets, and the list of consumers
//! ([`crate::consumers`]).
//!
//! One read of the head answers every probe that came *before the read began*, and none that came
//! later. So each echo includes everything that was durable when its probe was sent. Nothing is
//! answered from memory.

use std::collections::VecDeque;

use crate::consumer::MAX_EVENTS;
use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce};
use crate::mutation::{self, Mutation};
use crate::wire::Body;

/// Most probes that wait for a read. Further ones are dropped, and their consumers ask again.
const MAX_WAITING: usize = 10_000;
/// Most ranges that are read at the same time.
const MAX_READING: usize = 16;
/// Most queries that are answered at the same time.
const MAX_ANSWERING: usize = 64;
/// Most requests that are remembered, so that each is answered once.
const MAX_ANSWERED_REQUESTS: usize = 1024;

/// What the caller must do for the authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityAction {
    /// Send this to the consumers.
    Send(Body),
    /// Read the head linearizably from now on, for these consumers, then call
    /// [`LogAuthority::head_read`].
    ReadHead(Vec<ConsumerId>),
    /// Read at most `limit` events after `after`, then call [`LogAuthority::range_read`].
    ReadRange {
        /// Nonce of the request.
        nonce: Nonce,
        /// Position to read from.
        after: LogHead,
        /// Most events to read: one more than may be sent.
        limit: usize,
    },
    /// Answer this query by what is true from now on, then call [`LogAuthority::query_answered`].
    Answer(Vec<u8>),
}

/// State machine that answers for one log.
#[derive(Debug, Default)]
pub struct LogAuthority {
    /// Probes that wait for the next read: the consumer and the nonce of each.
    waiting: Vec<(ConsumerId, Nonce)>,
    reading: Vec<(ConsumerId, Nonce)>,
    is_reading: bool,
    ranges: usize,
    /// Nonces of the range requests that were answered recently. A consumer that asks again draws a
    /// new nonce. A second copy comes from the network or from an attacker, who must not get a long
    /// answer to each short request.
    answered_requests: VecDeque<Nonce>,
    /// Queries that are being answered: a copy that comes meanwhile gets the same answer.
    answering: Vec<Vec<u8>>,
    /// Head that was last read: only for the mutation that answers with it.
    last_head: Option<LogHead>,
}

impl LogAuthority {
    /// Creates a machine without open probes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes an event that is durable in the log.
    pub fn publish(epoch: Epoch, event: LogEvent, actions: &mut Vec<AuthorityAction>) {
        actions.push(AuthorityAction::Send(Body::Event { epoch, event }));
    }

    /// Applies a message of a consumer.
    pub fn on_message(&mut self, body: &Body, actions: &mut Vec<AuthorityAction>) {
        match body {
            Body::Probe { consumer, nonce, .. } => {
                if let Some(head) = self.last_head.filter(|_| mutation::is_active(Mutation::HeadFromMemory)) {
                    actions.push(AuthorityAction::Send(Body::Echo { nonce: *nonce, head }));
                    return;
                }
                if self.waiting.len() < MAX_WAITING {
                    self.waiting.push((*consumer, *nonce));
                }
                self.read(actions);
            }
            Body::RangeRequest { nonce, after }
                if self.ranges < MAX_READING && !self.answered_requests.contains(nonce) =>
            {
                self.ranges += 1;
                self.answered_requests.push_back(*nonce);
                if self.answered_requests.len() > MAX_ANSWERED_REQUESTS {
                    self.answered_requests.pop_front();
                }
                let limit = MAX_EVENTS + 1;
                actions.push(AuthorityAction::ReadRange { nonce: *nonce, after: *after, limit });
            }
            Body::Query(query) if self.answering.len() < MAX_ANSWERING && !self.answering.contains(query) => {
                self.answering.push(query.clone());
                actions.push(AuthorityAction::Answer(query.clone()));
            }
            // A request that is already answered, a message without effect here, or one from an
            // authority.
            Body::RangeRequest { .. }
            | Body::Query(_)
            | Body::Applied { .. }
            | Body::Event { .. }
            | Body::Echo { .. }
            | Body::RangeUnavailable { .. }
            | Body::Answer { .. } => {}
        }
    }

    /// Ends a read of the head; `None` when it failed: then no probe is answered, and leases
    /// expire. Consumers that are `unlisted` get no answer either ([`crate::consumers`]).
    pub fn head_read(
        &mut self,
        read: Option<LogHead>,
        unlisted: &[ConsumerId],
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.is_reading = false;
        self.last_head = read.or(self.last_head);
        for (consumer, nonce) in self.reading.drain(..) {
            if let Some(head) = read
                && !unlisted.contains(&consumer)
            {
                actions.push(AuthorityAction::Send(Body::Echo { nonce, head }));
            }
        }
        self.read(actions);
    }

    /// Ends a read of a range, with the epoch of the range; `None` when it failed.
    pub fn range_read(
        &mut self,
        nonce: Nonce,
        after: LogHead,
        read: Option<(Epoch, Vec<LogEvent>)>,
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.ranges = self.ranges.saturating_sub(1);
        let Some((epoch, events)) = read else { return };
        // Events that were dropped from the log's beginning cannot be sent any more.
        let whole = events.first().is_none_or(|first| first.seq == after.seq + 1);
        if epoch != after.epoch || !whole || events.len() > MAX_EVENTS {
            actions.push(AuthorityAction::Send(Body::RangeUnavailable { nonce }));
        } else {
            actions
                .extend(events.into_iter().map(|event| AuthorityAction::Send(Body::Event { epoch, event })));
        }
    }

    /// Ends a query, with its nonce and the sealed answer; `None` when it failed.
    pub fn query_answered(
        &mut self,
        query: &[u8],
        answer: Option<(Nonce, Vec<u8>)>,
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.answering.retain(|one| one != query);
        let answer = answer.map(|(nonce, sealed)| AuthorityAction::Send(Body::Answer { nonce, sealed }));
        actions.extend(answer);
    }

    /// Begins to read the head for the probes that wait, unless a read is in progress: later probes
    /// wait for the next one.
    fn read(&mut self, actions: &mut Vec<AuthorityAction>) {
        if !self.is_reading && !self.waiting.is_empty() {
            self.reading = std::mem::take(&mut self.waiting);
            self.is_reading = true;
            actions.push(AuthorityAction::ReadHead(
                self.reading.iter().map(|(consumer, _)| *consumer).collect(),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_comes_again_gets_no_second_answer() {
        let (mut authority, after) = (LogAuthority::new(), LogHead { epoch: Epoch([1; 16]), seq: 7 });
        let answer_count = |authority: &mut LogAuthority, number: u16| {
            let mut nonce = [0; 16];
            nonce[..2].copy_from_slice(&number.to_be_bytes());
            let mut actions = Vec::new();
            authority.on_message(&Body::RangeRequest { nonce: Nonce(nonce), after }, &mut actions);
            // Answered at once, so that the limit of open reads is not reached.
            for action in &actions {
                let AuthorityAction::ReadRange { nonce, after, .. } = action else { panic!("{action:?}") };
                authority.range_read(*nonce, *after, None, &mut Vec::new());
            }
            actions.len()
        };
        assert_eq!(
            [
                answer_count(&mut authority, 1),
                answer_count(&mut authority, 1),
                answer_count(&mut authority, 2)
            ],
            [1, 0, 1]
        );
        let many = u16::try_from(MAX_ANSWERED_REQUESTS).unwrap();
        assert!((3..3 + many).all(|number| answer_count(&mut authority, number) == 1));
        assert_eq!(authority.answered_requests.len(), MAX_ANSWERED_REQUESTS);
        assert_eq!(answer_count(&mut authority, 2 + many), 0);
    }
}
