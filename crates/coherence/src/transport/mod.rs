//! Transports: carry messages from node to node.
//!
//! Owns: what a transport must offer ([`Transport`]), and the implementations. Does not own: the
//! content of messages: a transport carries bytes.
//!
//! Little is required of a transport. It may lose, repeat, delay and reorder messages, and it may
//! be down: the protocol tolerates all of that. So nothing here is durable, acknowledged or
//! retried, and a full queue drops messages. A transport must be fast while it works, reconnect by
//! itself, never block the sender, and report its [state](TransportState) once for each change.

pub mod amqp;
pub mod memory;
pub mod multi;
pub mod nats;
pub mod postgres;

mod link;
mod socket;
mod subscribers;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

pub use self::link::Link;
pub use self::socket::Address;
use crate::log_types::PeerName;

/// Most messages that wait for a subscriber; further ones are dropped.
pub const QUEUE: usize = 16 * 1024;

/// What a message is about, and which side reads it. Every subscriber gets it, including those on
/// the sender's node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// From the nodes of an authority to every consumer.
    Events(PeerName),
    /// From the consumers to every node of an authority.
    Questions(PeerName),
}

impl fmt::Display for Topic {
    /// A name that every broker accepts: letters, digits and dots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Events(name) => ("events", name),
            Self::Questions(name) => ("questions", name),
        };
        write!(f, "postern.{kind}.")?;
        // Every other character is written as its bytes, so that no two names are equal.
        for byte in name.as_str().bytes() {
            if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "X{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Connection state of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportState {
    /// Not yet connected for the first time.
    Starting,
    /// Messages go through, as far as is known.
    Up,
    /// Messages do not go through. The text says why, and what to check.
    Down(Arc<str>),
}

/// Receives the messages of one topic.
pub type Subscription = mpsc::Receiver<Bytes>;

/// Carries messages. Ends when it is dropped.
pub trait Transport: Send + Sync + 'static {
    /// Publishes a message, now or as soon as possible, or drops it. Does not wait.
    fn send(&self, topic: &Topic, message: Bytes);

    /// Receives what is published from now on, or from when the transport is up.
    fn subscribe(&self, topic: Topic) -> Subscription;

    /// The current state, and each change of it.
    fn state(&self) -> watch::Receiver<TransportState>;
}
