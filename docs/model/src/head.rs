//! How a server proves that the head it has read is that of the log, without changing anything.
//!
//! Two servers of one database: a primary that waits for its standby with each commit, and that standby, which is promoted at some moment. Nobody
//! tells the former primary. Either may take no changes. A revocation is durable when its commit is acknowledged, and somebody is answered
//! afterwards. A question comes to either server; it reads the head, writes a message to its log, commits, and answers when the commit is
//! acknowledged. Whatever is sent between the servers arrives late or never. What was read before a server was promoted is not proved by it: it tells that
//! another one wrote last, and the head is read anew.
//!
//! What has to hold: an answer counts every revocation that was answered before its question came. The lease rests on that, and so does what is said of
//! single tokens.

use stateright::{Model, Property};

use crate::Checked;

const REVOCATIONS: u8 = 3;
const QUESTIONS: usize = 2;
/// How often a server begins to take no changes, or takes them again.
const SWITCHES: u8 = 2;
const PRIMARY: usize = 0;
const STANDBY: usize = 1;

/// A line that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A server that takes no changes answers what it has read.
    ReadWhileReadOnly,
    /// The commit is not waited for.
    NotAcknowledged,
    /// A standby answers what it has read.
    StandbyAnswers,
    /// A question that comes after the head was read gets the same answer.
    JoinedLate,
    /// The head is answered that was read for the question before.
    FromMemory,
    /// Nobody looks whether another server wrote last.
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

/// What a server writes to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    Revocation,
    /// Of this question.
    Proof(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    server: usize,
    /// Revocations that had been answered when it came, or when the last came that joined it.
    answered: u8,
    read: Option<u8>,
    /// The standby had been promoted by then.
    read_promoted: bool,
    /// Its message is in the server's log.
    written: bool,
    done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// What the primary has written and its commits wait for; the standby has received the first of them.
    log: Vec<Entry>,
    received: usize,
    /// Of those, what whoever reads at the standby sees.
    applied: usize,
    /// Of what was received, what the primary knows to be received.
    acknowledged: usize,
    promoted: bool,
    /// Revocations that whoever reads at a server sees.
    visible: [u8; 2],
    revoked: u8,
    answered: u8,
    read_only: [bool; 2],
    switched: u8,
    questions: Vec<Question>,
    /// The head that each server read last.
    remembered: [Option<u8>; 2],
    /// An answer did not count what it had to.
    wrong: bool,
    /// Somebody was answered: by a server that takes no changes, and by one that was promoted.
    proved: [bool; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Revoke(usize),
    /// Whoever revoked is answered.
    Answer,
    /// The standby receives the next entry.
    Receive,
    /// It applies it.
    Apply,
    /// The primary hears of it.
    Acknowledge,
    Promote,
    Switch(usize),
    Ask(usize),
    /// A question joins one that is under way.
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

    /// Whether a server answers what it has read, and nothing else.
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
                // Whoever was promoted waits for nobody.
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
            Property::always("an answer counts what was answered before its question", |_, state: &State| {
                !state.wrong
            }),
            Property::sometimes(
                "somebody is answered by a server that takes no changes",
                |_, state: &State| state.proved[0],
            ),
            Property::sometimes("somebody is answered by a server that was promoted", |_, state: &State| {
                state.proved[1]
            }),
        ]
    }
}

/// Looks at all states, and at each fault.
pub fn check(threads: usize) -> Checked {
    crate::check("the head", threads, Heads, &FAULTS)
}
