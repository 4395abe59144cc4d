//! Proof of a head: a server proves that the head it has read is that of the log, without changing
//! anything.
//!
//! There are two servers of one database: a primary that waits for its standby with each commit,
//! and that standby, which is promoted at some moment. The former primary is not notified. Either
//! server may refuse changes. A revocation is durable when its commit is acknowledged; its caller
//! is answered afterwards.
//!
//! A query comes to either server. The server reads the head, writes a message to its log, commits,
//! and answers when the commit is acknowledged. Messages between the servers arrive late or never.
//! A head that was read before a promotion is not proved by the promoted server: it reports that
//! another server wrote last, and the head is read again.
//!
//! The promise: an answer includes every revocation that was answered before its query came. The
//! lease depends on that, and so do the answers about single tokens.

use stateright::{Model, Property};

use crate::Checked;

const REVOCATIONS: u8 = 3;
const QUESTIONS: usize = 2;
/// How often a server starts to refuse changes, or accepts them again.
const SWITCHES: u8 = 2;
const PRIMARY: usize = 0;
const STANDBY: usize = 1;

/// A line of the protocol that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A server that refuses changes answers with what it has read.
    ReadWhileReadOnly,
    /// The server does not wait for the commit to be acknowledged.
    NotAcknowledged,
    /// A standby answers with what it has read.
    StandbyAnswers,
    /// A query that comes after the head was read gets the same answer.
    JoinedLate,
    /// The answer is the head that was read for the previous query.
    FromMemory,
    /// The server does not check whether another server wrote last.
    PromotedMeanwhile,
}

const FAULTS: [Fault; 6] = [
    Fault::ReadWhileReadOnly,
    Fault::NotAcknowledged,
    Fault::StandbyAnswers,
    Fault::JoinedLate,
    Fault::FromMemory,
    Fault::PromotedMeanwhile,
];

/// Entry of a server's write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    Revocation,
    /// The message that proves the head for this query.
    Proof(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    server: usize,
    /// Number of revocations answered before it came, or before the last query came that joined it.
    answered: u8,
    read: Option<u8>,
    /// Whether the standby had been promoted when the head was read.
    read_promoted: bool,
    /// Whether its message is in the server's log.
    written: bool,
    done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// Entries that the primary has written and whose commits wait.
    log: Vec<Entry>,
    /// Number of entries that the standby has received.
    received: usize,
    /// Number of received entries that a reader at the standby sees.
    applied: usize,
    /// Number of received entries that the primary knows about.
    acknowledged: usize,
    promoted: bool,
    /// Revocations that a reader at each server sees.
    visible: [u8; 2],
    revoked: u8,
    answered: u8,
    read_only: [bool; 2],
    switched: u8,
    questions: Vec<Question>,
    /// The head that each server read last.
    remembered: [Option<u8>; 2],
    /// Whether an answer missed a revocation that it had to include.
    wrong: bool,
    /// Whether a query was answered: by a server that refuses changes, and by one that was
    /// promoted.
    proved: [bool; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Revoke(usize),
    /// The caller of a revocation is answered.
    Answer,
    /// The standby receives the next entry.
    Receive,
    /// The standby applies the next entry.
    Apply,
    /// The primary learns that the standby received the entry.
    Acknowledge,
    Promote,
    Switch(usize),
    Ask(usize),
    /// A query joins one that is in flight.
    Join(usize),
    Read(usize),
    /// Writes and commits the message.
    Write(usize),
}

struct Heads(Option<Fault>);

impl State {
    fn done(&mut self, at: usize) {
        let question = &mut self.questions[at];
        question.done = true;
        let head = question.read.unwrap_or(0);
        self.wrong |= head < question.answered;
        self.proved[0] |= self.read_only[question.server];
        self.proved[1] |= self.promoted && question.server == STANDBY;
    }

    /// A commit of the primary returns.
    fn committed(&mut self, entry: Entry) {
        match entry {
            Entry::Revocation => self.visible[PRIMARY] += 1,
            Entry::Proof(at) => self.done(at),
        }
    }

    fn apply(&mut self) {
        self.visible[STANDBY] += u8::from(self.log[self.applied] == Entry::Revocation);
        self.applied += 1;
    }

    fn is_primary(&self, server: usize) -> bool {
        server == PRIMARY || self.promoted
    }
}

impl Heads {
    fn is(&self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether a server answers with what it has read, without a proof.
    fn only_reads(&self, state: &State, server: usize) -> bool {
        self.is(Fault::ReadWhileReadOnly) && state.read_only[server]
            || self.is(Fault::StandbyAnswers) && !state.is_primary(server)
    }
}

impl Model for Heads {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            log: Vec::new(),
            received: 0,
            applied: 0,
            acknowledged: 0,
            promoted: false,
            visible: [0; 2],
            revoked: 0,
            answered: 0,
            read_only: [false; 2],
            switched: 0,
            questions: Vec::new(),
            remembered: [None; 2],
            wrong: false,
            proved: [false; 2],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for server in [PRIMARY, STANDBY] {
            if state.revoked < REVOCATIONS && state.is_primary(server) && !state.read_only[server] {
                actions.push(Action::Revoke(server));
            }
            if state.switched < SWITCHES {
                actions.push(Action::Switch(server));
            }
            if state.questions.len() < QUESTIONS {
                actions.push(Action::Ask(server));
            }
        }
        if state.answered
            < state.visible[PRIMARY].max(if state.promoted { state.visible[STANDBY] } else { 0 })
        {
            actions.push(Action::Answer);
        }
        if state.received < state.log.len() && !state.promoted {
            actions.push(Action::Receive);
        }
        if state.applied < state.received {
            actions.push(Action::Apply);
        }
        if state.acknowledged < state.received {
            actions.push(Action::Acknowledge);
        }
        if !state.promoted {
            actions.push(Action::Promote);
        }
        for (at, question) in state.questions.iter().enumerate().filter(|(_, question)| !question.done) {
            let anew = question.server == STANDBY && !question.read_promoted;
            let in_force = state.is_primary(question.server) && (!anew || self.is(Fault::PromotedMeanwhile));
            let may_write = in_force || self.only_reads(state, question.server);
            match question.read {
                None => actions.extend([Action::Read(at), Action::Join(at)]),
                Some(_) if !question.written && may_write => actions.push(Action::Write(at)),
                Some(_) => {}
            }
            if question.read.is_some() && self.is(Fault::JoinedLate) {
                actions.push(Action::Join(at));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Revoke(server) => {
                state.revoked += 1;
                // A promoted server has no standby to wait for.
                if server == PRIMARY {
                    state.log.push(Entry::Revocation);
                } else {
                    state.visible[STANDBY] += 1;
                }
            }
            Action::Answer => state.answered += 1,
            Action::Receive => state.received += 1,
            Action::Apply => state.apply(),
            Action::Acknowledge => {
                let entry = state.log[state.acknowledged];
                state.acknowledged += 1;
                state.committed(entry);
            }
            Action::Promote => {
                while state.applied < state.received {
                    state.apply();
                }
                state.promoted = true;
            }
            Action::Switch(server) => {
                state.read_only[server] = !state.read_only[server];
                state.switched += 1;
            }
            Action::Ask(server) => {
                let answered = state.answered;
                state.questions.push(Question {
                    server,
                    answered,
                    read: None,
                    read_promoted: false,
                    written: false,
                    done: false,
                });
            }
            Action::Join(at) => state.questions[at].answered = state.answered,
            Action::Read(at) => {
                let server = state.questions[at].server;
                let now = state.visible[server];
                let before = state.remembered[server].replace(now);
                let from_memory = self.is(Fault::FromMemory);
                state.questions[at].read_promoted = state.promoted;
                state.questions[at].read = before.filter(|_| from_memory).or(Some(now));
            }
            Action::Write(at) => {
                let server = state.questions[at].server;
                state.questions[at].written = true;
                if server == STANDBY || self.only_reads(&state, server) || self.is(Fault::NotAcknowledged) {
                    state.done(at);
                } else {
                    state.log.push(Entry::Proof(at));
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("an answer includes what was answered before its query", |_, state: &State| {
                !state.wrong
            }),
            Property::sometimes(
                "reachable: a query is answered by a server that refuses changes",
                |_, state: &State| state.proved[0],
            ),
            Property::sometimes("reachable: a query is answered by a promoted server", |_, state: &State| {
                state.proved[1]
            }),
        ]
    }
}

/// Checks all states, and each fault.
pub fn check(threads: usize) -> Checked {
    crate::check("the head", threads, Heads, &FAULTS)
}
