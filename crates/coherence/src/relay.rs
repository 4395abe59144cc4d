//! Relay: passes the events of a node's transport to listeners that have a connection of their own.
//!
//! Owns: the listeners, and that they get only events of this authority with a valid MAC. Does not
//! own: the connections. A listener that does not keep up loses events, as on every transport, and
//! requests what it missed.

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::message_channel::MessageChannel;
use crate::transport::Topic;
use crate::wire::Body;

/// Most events that wait for a listener.
const QUEUE: usize = 16 * 1024;

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
        while let Some(bytes) = events.recv().await {
            if self.0.receiver_count() > 0 && is_event(&end, &bytes) {
                // An error means that no listener is left to miss the event.
                let _ = self.0.send(bytes);
            }
        }
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
        assert_eq!(listener.recv().await, Ok(good), "and the others are not there");
    }
}
