//! What a node's way brings, for those who are told over a connection of their own.
//!
//! Owns: who listens, and that they are handed nothing but events of this authority that somebody with the key has made. Does not own:
//! the connections. Whoever does not keep up loses events, as everywhere, and asks for what it missed.

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::message_channel::MessageChannel;
use crate::transport::Topic;
use crate::wire::Body;

/// Events that wait for a listener at most.
const QUEUE: usize = 16 * 1024;

/// Events, each as it came. Clones are one.
#[derive(Debug, Clone)]
pub struct Relay(broadcast::Sender<Bytes>);

impl Default for Relay {
    fn default() -> Self {
        Self(broadcast::channel(QUEUE).0)
    }
}

impl Relay {
    /// What is told from now on.
    pub fn listen(&self) -> broadcast::Receiver<Bytes> {
        self.0.subscribe()
    }

    /// Hands on what this end hears, for ever.
    pub async fn run(self, end: MessageChannel) {
        let mut heard = end.transport.subscribe(Topic::Events(end.authority.clone()));
        while let Some(bytes) = heard.recv().await {
            if self.0.receiver_count() > 0 && is_event(&end, &bytes) {
                // Nobody listens any more: nobody misses it.
                let _ = self.0.send(bytes);
            }
        }
    }
}

/// Not counted as believed: whoever follows in this process counts the same message.
fn is_event(end: &MessageChannel, bytes: &[u8]) -> bool {
    let read = end.keys.read(bytes);
    read.is_ok_and(|message| message.authority == end.authority && matches!(message.body, Body::Event { .. }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::log_types::{ConsumerName, Epoch, LogEvent, LogHead, Nonce};
    use crate::time::BootClock;
    use crate::transport::Transport as _;
    use crate::transport::memory::Memory;
    use crate::wire::{Keys, Message};

    #[tokio::test]
    async fn listeners_are_told_of_events_and_of_nothing_else() {
        let (way, own) = (Memory::default(), Keys::one(1, &[1; 32]));
        let name = ConsumerName::new("main").expect("a name");
        let end = MessageChannel {
            authority: name.clone(),
            transport: Arc::new(way.clone()),
            keys: own.clone(),
            clock: Arc::new(BootClock),
            counts: Arc::default(),
        };
        let relay = Relay::default();
        tokio::spawn(relay.clone().run(end));
        let mut listener = relay.listen();
        tokio::task::yield_now().await;
        let topic = Topic::Events(name.clone());
        let event = |seq| Body::Event {
            epoch: Epoch([1; 16]),
            event: LogEvent { seq, tags: vec![], not_before: None, until: 0 },
        };
        let send = |keys: &Keys, authority: &str, body: Body| {
            let authority = ConsumerName::new(authority).expect("a name");
            let bytes = Bytes::from(keys.write(&Message { authority, body }).expect("it fits"));
            way.send(&topic, bytes.clone());
            bytes
        };
        send(&Keys::one(1, &[2; 32]), "main", event(1));
        send(&own, "another", event(2));
        let head = LogHead { epoch: Epoch([1; 16]), seq: 3 };
        send(&own, "main", Body::Echo { nonce: Nonce([0; 16]), head });
        let good = send(&own, "main", event(4));
        assert_eq!(listener.recv().await, Ok(good), "and the others are not there");
    }
}
