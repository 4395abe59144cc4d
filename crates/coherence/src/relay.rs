//! Relay: passes the events of a node's transport to listeners that have a connection of their own.
//!
//! Owns: the listeners, and that they get only events of this authority with a valid MAC, and one copy
//! of each: a node receives an event over every transport that it has. Does not own: the connections.
//! A listener that does not keep up loses events, as on every transport, and requests what it missed.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::message_channel::MessageChannel;
use crate::transport::Topic;
use crate::wire::Body;

/// Most events that wait for a listener.
const QUEUE: usize = 16 * 1024;

/// Most events that are remembered, so that another copy is not passed on.
const REMEMBERED: usize = 256;

/// Fan-out of events as they arrive. Clones share the same listeners.
#[derive(Debug, Clone)]
pub struct Relay(broadcast::Sender<Bytes>);

impl Default for Relay {
    fn default() -> Self {
        Self(broadcast::channel(QUEUE).0)
    }
}

impl Relay {
    /// Receives events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Bytes> {
        self.0.subscribe()
    }

    /// Passes on the events of this channel, until its subscription ends.
    pub async fn run(self, end: MessageChannel) {
        let mut events = end.transport.subscribe(Topic::Events(end.authority.clone()));
        let mut passed = RecentMessages::default();
        while let Some(bytes) = events.recv().await {
            if self.0.receiver_count() > 0 && !passed.has(&bytes) && is_event(&end, &bytes) {
                passed.add(bytes.clone());
                // An error means that no listener is left to miss the event.
                let _ = self.0.send(bytes);
            }
        }
    }
}

/// The messages that were passed on last. Copies of an event are equal to the last byte; so would be
/// one that is sent again on request, but that goes to the consumer that asked.
#[derive(Default)]
struct RecentMessages(VecDeque<Bytes>);

impl RecentMessages {
    fn has(&self, message: &Bytes) -> bool {
        // Copies follow each other closely.
        self.0.iter().rev().any(|recent| recent == message)
    }

    fn add(&mut self, message: Bytes) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(message);
    }
}

/// Whether the bytes are an event of this authority. Not counted as received: the consumer in this
/// process counts the same message.
fn is_event(end: &MessageChannel, bytes: &[u8]) -> bool {
    let read = end.keys.read(bytes);
    read.is_ok_and(|message| message.authority == end.authority && matches!(message.body, Body::Event { .. }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::log_types::{Epoch, LogEvent, LogHead, Nonce, PeerName};
    use crate::time::BootClock;
    use crate::transport::Transport as _;
    use crate::transport::memory::Memory;
    use crate::wire::{Keys, Message};

    #[tokio::test]
    async fn listeners_are_told_of_events_and_of_nothing_else() {
        let (way, own) = (Memory::default(), Keys::single(1, &[1; 32]));
        let name = PeerName::new("main").expect("a name");
        let end = MessageChannel {
            authority: name.clone(),
            transport: Arc::new(way.clone()),
            keys: own.clone(),
            clock: Arc::new(BootClock),
            counts: Arc::default(),
        };
        let relay = Relay::default();
        tokio::spawn(relay.clone().run(end));
        let mut listener = relay.subscribe();
        tokio::task::yield_now().await;
        let topic = Topic::Events(name.clone());
        let event = |seq| Body::Event {
            epoch: Epoch([1; 16]),
            event: LogEvent { seq, tags: vec![], not_before: None, until: 0 },
        };
        let send = |keys: &Keys, authority: &str, body: Body| {
            let authority = PeerName::new(authority).expect("a name");
            let bytes = Bytes::from(keys.write(&Message { authority, body }).expect("it fits"));
            way.send(&topic, bytes.clone());
            bytes
        };
        send(&Keys::single(1, &[2; 32]), "main", event(1));
        send(&own, "another", event(2));
        let head = LogHead { epoch: Epoch([1; 16]), seq: 3 };
        send(&own, "main", Body::Echo { nonce: Nonce([0; 16]), head });
        let good = send(&own, "main", event(4));
        assert_eq!(listener.recv().await, Ok(good.clone()), "and the others are not there");

        way.send(&topic, good);
        let next = send(&own, "main", event(5));
        assert_eq!(listener.recv().await, Ok(next.clone()), "and no second copy");
        let many = 6..6 + REMEMBERED as u64;
        for event in many.map(event) {
            let bytes = send(&own, "main", event);
            assert_eq!(listener.recv().await, Ok(bytes));
        }
        way.send(&topic, next.clone());
        assert_eq!(listener.recv().await, Ok(next), "which is forgotten in the end");
    }
}
