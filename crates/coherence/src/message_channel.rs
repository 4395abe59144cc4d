//! One end of a way: messages about one log, written and read there.
//!
//! Owns: what is needed to speak, which messages are believed, and what is counted of them. Does not own: what is said and done about it
//! ([`crate::event_loops`]), the form of messages ([`crate::wire`]), the way ([`crate::transport`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::log_types::ConsumerName;
use crate::time::BootTime;
use crate::transport::{Topic, Transport};
use crate::wire::{Body, Keys, Message};

/// One end of a way, and what is needed to speak there.
#[derive(Clone)]
pub struct MessageChannel {
    /// Whose log it is about.
    pub authority: ConsumerName,
    /// The way.
    pub transport: Arc<dyn Transport>,
    /// Who may have written a message.
    pub keys: Keys,
    /// The clock of this node.
    pub clock: Arc<dyn BootTime>,
    /// What is counted.
    pub counts: Arc<ChannelCounts>,
}

/// What went through an end.
#[derive(Debug, Default)]
pub struct ChannelCounts {
    /// Messages that were made.
    pub sent: AtomicU64,
    /// Messages that were believed.
    pub received: AtomicU64,
    /// Bytes that were no message, or of nobody with the key.
    pub refused: AtomicU64,
}

impl MessageChannel {
    pub(crate) fn send(&self, topic: &Topic, body: Body) {
        if let Some(bytes) = self.write(body) {
            self.transport.send(topic, bytes);
        }
    }

    pub(crate) fn write(&self, body: Body) -> Option<Bytes> {
        let message = Message { authority: self.authority.clone(), body };
        // What cannot be told whole is a hole: whoever follows asks, in vain, and forgets everything.
        let bytes = self.keys.write(&message)?;
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        Some(Bytes::from(bytes))
    }

    /// What is said, if it may be believed and is about this authority.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Body> {
        match self.keys.read(bytes) {
            Ok(message) if message.authority == self.authority => {
                self.counts.received.fetch_add(1, Ordering::Relaxed);
                Some(message.body)
            }
            // Of another authority whose topic is this one's by a slip of the broker: nobody's harm.
            Ok(_) => None,
            Err(_) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}
