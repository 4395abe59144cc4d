//! Adversary: an attacker on the network who has no key.
//!
//! Owns: what the attacker has recorded (messages, questions, answers), and what the attacker does
//! with it:
//!
//! - repeats it to any node at any time;
//! - uses one question's answer for another question;
//! - changes questions and answers on their way, and cuts them short;
//! - makes some up;
//! - withholds messages from a consumer.
//!
//! No loss and no partition stops the attacker. Does not own: the simulated world.
//!
//! A plain read of a token ([`Packet::Read`]) carries no MAC: the attacker repeats earlier answers
//! about the same token, and the lease has to bound the effect.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CONSUMERS, NODES, Packet, Random, World};
use crate::log_types::{Epoch, PeerName};
use crate::wire::{Body, Keys, Message};

/// Most items of one kind that the attacker remembers: a further one replaces another.
const HELD: usize = 64;
/// Offsets of the parts of an answer: see [`crate::query`].
const SEQ: usize = 3 + 16 + 16;
const MORE: usize = SEQ + 8;
const COUNT: usize = MORE + 1;

/// What an answer is about: a token, or a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Token(u64),
    Page,
}

#[derive(Default)]
pub(super) struct Adversary {
    /// How often the attacker acts, in thousandths.
    malice: u64,
    /// From nodes to consumers.
    messages: Vec<Bytes>,
    /// From consumers to nodes.
    consumer_messages: Vec<Bytes>,
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

/// One of these items, more often one about the same subject.
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

    /// Records a message to consumers.
    pub(super) fn overhears(&mut self, message: &Bytes) {
        if self.adversary.malice > 0 {
            keep(&mut self.adversary.messages, message.clone(), &mut self.random);
        }
    }

    /// Records a message of a consumer to nodes. If it is a probe, the attacker may forge an echo
    /// that says that the log got no further.
    pub(super) fn overhears_consumer(&mut self, to: usize, body: &Body, message: &Bytes) {
        if self.adversary.malice > 0 {
            keep(&mut self.adversary.consumer_messages, message.clone(), &mut self.random);
        }
        let Body::Probe { nonce, applied: Some(head), .. } = body else { return };
        if self.is_malicious() {
            let body = Body::Echo { nonce: *nonce, head: *head };
            let message = Message { authority: PeerName::new("main").expect("a name"), body };
            // The key number is right, and the key is not.
            let bytes = Keys::single(1, &[9; 32]).write(&message).expect("it fits");
            self.at(self.tick + 1, Packet::ToConsumer(to, bytes.into()));
        }
    }

    /// Now and then withholds messages from a consumer, whose queries still work.
    pub(super) fn deafens(&mut self) {
        if self.random.chance(5) && self.is_malicious() {
            let at = self.random.index(CONSUMERS);
            self.adversary.deaf[at] = self.tick + self.random.between(10, 300);
        }
    }

    pub(super) fn is_deaf(&self, at: usize) -> bool {
        !self.healed && self.adversary.deaf[at] > self.tick
    }

    /// Now and then repeats a recorded message to any receiver, sometimes cut short.
    pub(super) fn repeats(&mut self) {
        if !self.is_malicious() {
            return;
        }
        let to_nodes = self.random.chance(300);
        let held = if to_nodes { &self.adversary.consumer_messages } else { &self.adversary.messages };
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

    /// Decides what happens to a question on its way. `None`: the attacker has answered it.
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
            // Version, kind and nonce are of this question; the content is of the other one.
            let same_kind = other[..2] == question[..2];
            if same_kind {
                sent = [&question[..18], &other[18..]].concat().into();
            }
        }
        keep(&mut self.adversary.questions, (about, question.clone()), &mut self.random);
        Some(sent)
    }

    /// Decides what happens to an answer on its way, and how much later it arrives.
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
            // The answer hides that there is more.
            0 => bytes[MORE] = 0,
            // The answer says that nothing is denied.
            1 => {
                bytes.truncate(COUNT);
                bytes.extend([0; 4]);
            }
            // The answer claims to include more than it does.
            2 => bytes[SEQ..MORE].copy_from_slice(&(self.database.head + 1).to_be_bytes()),
            3 => bytes.truncate(self.random.index(bytes.len())),
            _ => {}
        }
        (bytes.into(), late)
    }

    /// Replaces the answer to a plain read by an earlier one about the same token.
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
