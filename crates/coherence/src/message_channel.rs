//! Message channel: writes and reads the messages about one log on one transport.
//!
//! Owns: the keys, clock and counters of an endpoint, and which messages are accepted. Does not
//! own: the reaction to a message ([`crate::event_loops`]), the format of messages
//! ([`crate::wire`]), the transport ([`crate::transport`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::log_types::PeerName;
use crate::time::BootTime;
use crate::transport::{Topic, Transport};
use crate::wire::{Body, Keys, Message};

/// One endpoint of a transport, for the messages about one log.
#[derive(Clone)]
pub struct MessageChannel {
    /// Authority whose log the messages are about.
    pub authority: PeerName,
    /// Transport that carries the messages.
    pub transport: Arc<dyn Transport>,
    /// Keys of the MACs: a message made with another key is refused.
    pub keys: Keys,
    /// The boot clock of this node.
    pub clock: Arc<dyn BootTime>,
    /// Counters of this endpoint.
    pub counts: Arc<ChannelCounts>,
}

/// Counters of the messages of one endpoint.
#[derive(Debug, Default)]
pub struct ChannelCounts {
    /// Messages that were written.
    pub sent: AtomicU64,
    /// Messages that were accepted.
    pub received: AtomicU64,
    /// Bytes that are not a message, or whose MAC is invalid.
    pub refused: AtomicU64,
}

impl MessageChannel {
    pub(crate) fn publish(&self, topic: &Topic, body: Body) {
        if let Some(bytes) = self.write(body) {
            self.transport.send(topic, bytes);
        }
    }

    pub(crate) fn write(&self, body: Body) -> Option<Bytes> {
        let message = Message { authority: self.authority.clone(), body };
        // An event that does not fit into a message is a gap. The consumer requests it in vain, and
        // flushes.
        let bytes = self.keys.write(&message)?;
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        Some(Bytes::from(bytes))
    }

    /// The body of a message, if its MAC is valid and it is about this authority.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Body> {
        match self.keys.read(bytes) {
            Ok(message) if message.authority == self.authority => {
                self.counts.received.fetch_add(1, Ordering::Relaxed);
                Some(message.body)
            }
            // A message of another authority, delivered on this topic by a mistake of the broker:
            // harmless.
            Ok(_) => None,
            Err(_) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}
