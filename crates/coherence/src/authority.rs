//! Answers for one log, on a node that reaches its database.
//!
//! Owns: whose questions an answer of the database may serve, what is told again, that a query that is repeated is answered once at a time. Does not own: the database, sockets, and who
//! follows ([`crate::consumers`]).
//!
//! One reading of the head serves every probe that came *before the reading began*, and none that came later: whoever asks is
//! told of everything that was durable when they asked. Nothing is answered from memory.

use std::collections::VecDeque;

use crate::consumer::MAX_RANGE;
use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce};
use crate::mutation::{self, Mutation};
use crate::wire::Body;

/// Probes that wait for a reading. Who is not among them asks again.
const MAX_WAITING: usize = 10_000;
/// Stretches that are being read at once.
const MAX_READING: usize = 16;
/// Queries that are being answered at once.
const MAX_ANSWERING: usize = 64;
/// Questions that are known again, so that they are answered once.
const MAX_TOLD: usize = 1024;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityAction {
    /// Tell the consumers.
    Send(Body),
    /// Read the head as it is from now on, linearizably, for these who ask, then call [`LogAuthority::head`].
    ReadHead(Vec<ConsumerId>),
    /// Read at most `limit` events after `after`, then call [`LogAuthority::range`].
    ReadRange {
        /// Who asked.
        nonce: Nonce,
        /// From where.
        after: LogHead,
        /// How many, one more than may be told.
        limit: usize,
    },
    /// Answer this query by what is true from now on, then call [`LogAuthority::answer`].
    Answer(Vec<u8>),
}

/// The machine.
#[derive(Debug, Default)]
pub struct LogAuthority {
    /// Who asked, and in which question.
    waiting: Vec<(ConsumerId, Nonce)>,
    reading: Vec<(ConsumerId, Nonce)>,
    is_reading: bool,
    ranges: usize,
    /// Who was told what had been missed, lately. Whoever asks again asks anew; what comes a second time was repeated by the network, or
    /// by somebody on it, whom a short question must not get a long answer each time.
    told: VecDeque<Nonce>,
    /// Queries that are being answered: a copy that comes meanwhile has the same answer.
    answering: Vec<Vec<u8>>,
    /// What was last read: only for the fault of answering with it.
    remembered: Option<LogHead>,
}

impl LogAuthority {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something is durable in the log.
    pub fn appended(epoch: Epoch, event: LogEvent, actions: &mut Vec<AuthorityAction>) {
        actions.push(AuthorityAction::Send(Body::Event { epoch, event }));
    }

    /// Takes what a consumer says.
    pub fn message(&mut self, body: &Body, actions: &mut Vec<AuthorityAction>) {
        match body {
            Body::Probe { consumer, nonce, .. } => {
                if let Some(head) = self.remembered.filter(|_| mutation::is(Mutation::HeadFromMemory)) {
                    actions.push(AuthorityAction::Send(Body::Echo { nonce: *nonce, head }));
                    return;
                }
                if self.waiting.len() < MAX_WAITING {
                    self.waiting.push((*consumer, *nonce));
                }
                self.read(actions);
            }
            Body::Ask { nonce, after } if self.ranges < MAX_READING && !self.told.contains(nonce) => {
                self.ranges += 1;
                self.told.push_back(*nonce);
                if self.told.len() > MAX_TOLD {
                    self.told.pop_front();
                }
                let limit = MAX_RANGE + 1;
                actions.push(AuthorityAction::ReadRange { nonce: *nonce, after: *after, limit });
            }
            Body::Query(query) if self.answering.len() < MAX_ANSWERING && !self.answering.contains(query) => {
                self.answering.push(query.clone());
                actions.push(AuthorityAction::Answer(query.clone()));
            }
            // Told again by whoever asks again, of no concern here, or said by an authority.
            Body::Ask { .. }
            | Body::Query(_)
            | Body::Applied { .. }
            | Body::Event { .. }
            | Body::Echo { .. }
            | Body::Gone { .. }
            | Body::Answer { .. } => {}
        }
    }

    /// The head was read, or could not be: then nobody is answered, and their leases lapse. Those who are `unlisted` are not answered either
    /// ([`crate::consumers`]).
    pub fn head(
        &mut self,
        read: Option<LogHead>,
        unlisted: &[ConsumerId],
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.is_reading = false;
        self.remembered = read.or(self.remembered);
        for (consumer, nonce) in self.reading.drain(..) {
            if let Some(head) = read
                && !unlisted.contains(&consumer)
            {
                actions.push(AuthorityAction::Send(Body::Echo { nonce, head }));
            }
        }
        self.read(actions);
    }

    /// A stretch was read, with the history it is of; `None` when it could not be.
    pub fn range(
        &mut self,
        nonce: Nonce,
        after: LogHead,
        read: Option<(Epoch, Vec<LogEvent>)>,
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.ranges = self.ranges.saturating_sub(1);
        let Some((epoch, events)) = read else { return };
        // What was dropped from the log's beginning cannot be told any more.
        let whole = events.first().is_none_or(|first| first.seq == after.seq + 1);
        if epoch != after.epoch || !whole || events.len() > MAX_RANGE {
            actions.push(AuthorityAction::Send(Body::Gone { nonce }));
        } else {
            actions
                .extend(events.into_iter().map(|event| AuthorityAction::Send(Body::Event { epoch, event })));
        }
    }

    /// A query was answered, by its nonce; `None` when it could not be.
    pub fn answer(
        &mut self,
        query: &[u8],
        answered: Option<(Nonce, Vec<u8>)>,
        actions: &mut Vec<AuthorityAction>,
    ) {
        self.answering.retain(|one| one != query);
        let answer = answered.map(|(nonce, sealed)| AuthorityAction::Send(Body::Answer { nonce, sealed }));
        actions.extend(answer);
    }

    /// Begins to read the head for whoever waits, unless that is under way: who came since waits for the next.
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
        let asked = |authority: &mut LogAuthority, number: u16| {
            let mut nonce = [0; 16];
            nonce[..2].copy_from_slice(&number.to_be_bytes());
            let mut actions = Vec::new();
            authority.message(&Body::Ask { nonce: Nonce(nonce), after }, &mut actions);
            // Answered at once, so that no more are under way than may be.
            for action in &actions {
                let AuthorityAction::ReadRange { nonce, after, .. } = action else { panic!("{action:?}") };
                authority.range(*nonce, *after, None, &mut Vec::new());
            }
            actions.len()
        };
        assert_eq!([asked(&mut authority, 1), asked(&mut authority, 1), asked(&mut authority, 2)], [1, 0, 1]);
        let many = u16::try_from(MAX_TOLD).unwrap();
        assert!((3..3 + many).all(|number| asked(&mut authority, number) == 1));
        assert_eq!(authority.told.len(), MAX_TOLD);
        assert_eq!(asked(&mut authority, 2 + many), 0);
    }
}
