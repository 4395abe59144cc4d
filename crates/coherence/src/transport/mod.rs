//! Ways for messages from node to node.
//!
//! Owns: what a way must offer ([`Transport`]), and the ways there are. Does not own: what is in a message: a transport carries bytes
//! and knows nothing.
//!
//! Little is asked of a way. It may lose messages, repeat, delay and reorder them, and it may be down: the protocol stands all
//! of that. So nothing here is durable, acknowledged or tried again, and a queue that is full drops. What is asked is that
//! it is fast while it is well, comes back by itself, never blocks who sends, and says what [state](State) it is in once, when that
//! changes.

pub mod amqp;
pub mod memory;
pub mod nats;
pub mod postgres;
pub mod several;

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
use crate::log_types::ConsumerName;

/// Messages that wait for a subscriber at most; what comes then is dropped.
pub const QUEUE: usize = 16 * 1024;

/// What a message is about and whom it is for: everybody who has subscribed gets it, the sender's node too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// From the nodes of an authority to every consumer.
    Events(ConsumerName),
    /// From the consumers to every node of an authority.
    Questions(ConsumerName),
}

impl fmt::Display for Topic {
    /// A name that every broker takes: letters, digits and dots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Events(name) => ("events", name),
            Self::Questions(name) => ("questions", name),
        };
        write!(f, "postern.{kind}.")?;
        // Whatever else there may be in a name is told apart by its bytes.
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

/// How a way is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportState {
    /// Not yet connected for the first time.
    Starting,
    /// Messages go through, as far as anybody knows.
    Up,
    /// They do not. The text says why, and names what to look at.
    Down(Arc<str>),
}

/// Messages of one topic.
pub type Subscription = mpsc::Receiver<Bytes>;

/// A way for messages. Ends when it is dropped.
pub trait Transport: Send + Sync + 'static {
    /// Publishes a message, now or as soon as may be, or never. Does not wait.
    fn send(&self, topic: &Topic, message: Bytes);

    /// What is published from now on, or from when the way is up.
    fn subscribe(&self, topic: Topic) -> Subscription;

    /// How it is, and is told to be when that changes.
    fn state(&self) -> watch::Receiver<TransportState>;
}
