//! Somebody who sits on the network, and has no key.
//!
//! Owns: what she has recorded (messages, questions, answers), and what she does with it: repeats it to anybody at any time, hands one question's answer
//! to another, changes what is asked or answered on its way, cuts it short, makes some up, keeps messages from somebody. No loss and no partition stops
//! her. Does not own: the world that she does it in.
//!
//! What a server was asked about a token by itself ([`Packet::Read`]) carries no MAC: of that she repeats what was said of the same token, and the
//! lease has to do the rest.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CONSUMERS, NODES, Packet, Random, World};
use crate::log_types::{ConsumerName, Epoch};
use crate::wire::{Body, Keys, Message};

/// Things of one kind that she remembers: what comes then takes the place of another.
const HELD: usize = 64;
/// Where the parts of an answer begin: see [`crate::query`].
const SEQ: usize = 3 + 16 + 16;
const MORE: usize = SEQ + 8;
const COUNT: usize = MORE + 1;

/// What an answer was given to: a token, or a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Token(u64),
    Page,
}

#[derive(Default)]
pub(super) struct Adversary {
    /// How often she does something, in thousandths.
    malice: u64,
    /// From nodes to consumers.
    messages: Vec<Bytes>,
    /// From consumers to nodes.
    said: Vec<Bytes>,
    answers: Vec<(About, Bytes)>,
    questions: Vec<(About, Bytes)>,
    read: BTreeMap<u64, (bool, (Epoch, u64))>,
    /// Until when a consumer gets no messages.
    deaf: [u64; CONSUMERS],
}

impl Adversary {
    pub(super) fn new(malice: u64) -> Self {
        Self { malice, ..Self::default() }
    }
}

fn keep<T>(held: &mut Vec<T>, one: T, random: &mut Random) {
    if held.len() < HELD {
        held.push(one);
    } else {
        let at = random.index(HELD);
        held[at] = one;
    }
}

/// One of these, more often one that is about the same.
fn one_about(held: &[(About, Bytes)], about: About, random: &mut Random) -> Option<Bytes> {
    let same: Vec<_> = held.iter().filter(|(of, _)| *of == about).collect();
    let from_same = !same.is_empty() && random.chance(700);
    let chosen =
        if from_same { same[random.index(same.len())] } else { held.get(random.index(held.len().max(1)))? };
    Some(chosen.1.clone())
}

impl World {
    fn is_malicious(&mut self) -> bool {
        !self.healed && self.random.chance(self.adversary.malice)
    }

    /// A message goes to consumers.
    pub(super) fn overhears(&mut self, message: &Bytes) {
        if self.adversary.malice > 0 {
            keep(&mut self.adversary.messages, message.clone(), &mut self.random);
        }
    }

    /// A consumer says something to nodes. If it asks how far the log has got, she says that it got no further.
    pub(super) fn overhears_consumer(&mut self, to: usize, body: &Body, message: &Bytes) {
        if self.adversary.malice > 0 {
            keep(&mut self.adversary.said, message.clone(), &mut self.random);
        }
        let Body::Probe { nonce, applied: Some(head), .. } = body else { return };
        if self.is_malicious() {
            let body = Body::Echo { nonce: *nonce, head: *head };
            let message = Message { authority: ConsumerName::new("main").expect("a name"), body };
            // Of the right number, and not the right one.
            let bytes = Keys::one(1, &[9; 32]).write(&message).expect("it fits");
            self.at(self.tick + 1, Packet::ToConsumer(to, bytes.into()));
        }
    }

    /// Now and then messages are kept from a consumer, who can ask all the same.
    pub(super) fn deafens(&mut self) {
        if self.random.chance(5) && self.is_malicious() {
            let at = self.random.index(CONSUMERS);
            self.adversary.deaf[at] = self.tick + self.random.between(10, 300);
        }
    }

    pub(super) fn is_deaf(&self, at: usize) -> bool {
        !self.healed && self.adversary.deaf[at] > self.tick
    }

    /// Now and then: something of what she has overheard, to whomever, sometimes not all of it.
    pub(super) fn repeats(&mut self) {
        if !self.is_malicious() {
            return;
        }
        let to_nodes = self.random.chance(300);
        let held = if to_nodes { &self.adversary.said } else { &self.adversary.messages };
        let Some(mut bytes) = held.get(self.random.index(held.len().max(1))).cloned() else { return };
        if self.random.chance(100) {
            bytes.truncate(self.random.index(bytes.len()));
        }
        let packet = if to_nodes {
            Packet::ToNode(self.random.index(NODES), bytes)
        } else {
            Packet::ToConsumer(self.random.index(CONSUMERS), bytes)
        };
        self.at(self.tick + 1, packet);
    }

    /// A question is on its way: what becomes of it. `None`: she has answered it herself.
    pub(super) fn intercepts(
        &mut self,
        about: About,
        question: &Bytes,
        answer: impl Fn(Bytes) -> Packet,
    ) -> Option<Bytes> {
        if self.adversary.malice == 0 {
            return Some(question.clone());
        }
        if self.is_malicious()
            && let Some(held) = one_about(&self.adversary.answers, about, &mut self.random)
        {
            let after = self.random.between(1, 20);
            self.at(self.tick + after, answer(held));
            return None;
        }
        let mut sent = question.clone();
        if self.is_malicious()
            && let Some(other) = one_about(&self.adversary.questions, about, &mut self.random)
        {
            // Version, kind and nonce are this one's; what is asked is the other's.
            let same_kind = other[..2] == question[..2];
            if same_kind {
                sent = [&question[..18], &other[18..]].concat().into();
            }
        }
        keep(&mut self.adversary.questions, (about, question.clone()), &mut self.random);
        Some(sent)
    }

    /// An answer is on its way: what comes of it, and how much later.
    pub(super) fn tampers(&mut self, about: About, answer: Bytes) -> (Bytes, u64) {
        if self.adversary.malice == 0 {
            return (answer, 0);
        }
        keep(&mut self.adversary.answers, (about, answer.clone()), &mut self.random);
        if !self.is_malicious() {
            return (answer, 0);
        }
        let late = self.random.one_of(&[0, 0, 10, 40]);
        let mut bytes = answer.to_vec();
        match self.random.below(5) {
            // Nothing more is denied.
            0 => bytes[MORE] = 0,
            // Nothing is denied.
            1 => {
                bytes.truncate(COUNT);
                bytes.extend([0; 4]);
            }
            // It knows more than it does.
            2 => bytes[SEQ..MORE].copy_from_slice(&(self.database.head + 1).to_be_bytes()),
            3 => bytes.truncate(self.random.index(bytes.len())),
            _ => {}
        }
        (bytes.into(), late)
    }

    /// A server says by itself what it has read of a token: she says what it said before.
    pub(super) fn recalls(&mut self, token: u64, good: bool, as_of: (Epoch, u64)) -> (bool, (Epoch, u64)) {
        if self.adversary.malice == 0 {
            return (good, as_of);
        }
        let before = self.adversary.read.insert(token, (good, as_of));
        match before {
            Some(before) if before.0 && self.is_malicious() => {
                self.adversary.read.insert(token, before);
                before
            }
            _ => (good, as_of),
        }
    }
}
