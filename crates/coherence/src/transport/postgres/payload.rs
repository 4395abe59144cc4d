//! Notification payload: messages as PostgreSQL notifications.
//!
//! Owns: names of channels, and splitting messages into pieces that fit into a notification. Does
//! not own: their transport.
//!
//! A notification is text of less than 8000 bytes, so bytes are sent as base64, and a larger
//! message is sent in several pieces. All pieces of a message go in one transaction. The
//! notifications of a transaction arrive in order, with nothing between them. So the receiver holds
//! one message at most, and drops it when anything but its next piece arrives.
//!
//! ```text
//! sender 8 | number 4 | piece 1 | pieces 1 | bytes        as base64
//! ```
//!
//! The first two fields also make each notification different from every other: PostgreSQL keeps
//! one of equal notifications in a transaction.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use bytes::{Bytes, BytesMut};

use crate::transport::Topic;

/// Length of a piece's header, the part of it that names the message, and the bytes that fit into
/// 7999 letters behind it.
const HEAD: usize = 14;
const MESSAGE_ID_BYTES: usize = 12;
const PIECE_BYTES: usize = 7_998 / 4 * 3 - HEAD;
/// Pieces of the largest message.
const MAX_PIECES: usize = 16;
/// Number of digest bytes in the name of a channel. Each takes two hexadecimal digits, and
/// PostgreSQL limits a name to 63 bytes.
const DIGEST_BYTES: usize = 16;

/// The channel of a topic: a digest, since the topic's name is too long.
pub(super) fn channel(topic: &Topic) -> String {
    let digest = digest(&SHA256, topic.to_string().as_bytes());
    digest.as_ref()[..DIGEST_BYTES]
        .iter()
        .fold("postern_".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Splits messages into pieces.
pub(super) struct Splitter {
    sender: [u8; 8],
    number: u32,
}

impl Splitter {
    /// Creates a splitter with a random sender name.
    pub(super) fn new() -> Result<Self, &'static str> {
        let mut sender = [0; 8];
        rand::fill(&mut sender).map_err(|_| "the system provides no random numbers")?;
        Ok(Self { sender, number: 0 })
    }

    /// The pieces of a message; none when it is larger than a transport must carry.
    pub(super) fn split(&mut self, message: &[u8]) -> Vec<String> {
        let pieces = message.len().div_ceil(PIECE_BYTES).max(1);
        let Some(count) = u8::try_from(pieces).ok().filter(|_| pieces <= MAX_PIECES) else {
            return Vec::new();
        };
        self.number = self.number.wrapping_add(1);
        let named = [&self.sender[..], &self.number.to_be_bytes()].concat();
        let piece = |at: u8| {
            let from = usize::from(at) * PIECE_BYTES;
            let bytes = &message[from..message.len().min(from + PIECE_BYTES)];
            BASE64.encode([&named[..], &[at, count], bytes].concat())
        };
        (0..count).map(piece).collect()
    }
}

/// Joins pieces to messages.
#[derive(Default)]
pub(super) struct Joiner(Option<Incomplete>);

struct Incomplete {
    message_id: Vec<u8>,
    next: u8,
    bytes: BytesMut,
}

impl Joiner {
    /// Adds a piece; returns the message that it completes.
    pub(super) fn join(&mut self, piece: &str) -> Option<Bytes> {
        let before = self.0.take();
        let bytes = BASE64.decode(piece).ok()?;
        let (head, bytes) = bytes.split_at_checked(HEAD)?;
        let (named, at, count) =
            (&head[..MESSAGE_ID_BYTES], head[MESSAGE_ID_BYTES], head[MESSAGE_ID_BYTES + 1]);
        let mut message = match (at, before) {
            (0, _) if usize::from(count) <= MAX_PIECES => BytesMut::new(),
            (at, Some(before)) if before.next == at && before.message_id == named => before.bytes,
            _ => return None,
        };
        message.extend_from_slice(bytes);
        if at + 1 == count {
            return Some(message.freeze());
        }
        // This ends: no message has more pieces than its first one may announce.
        if usize::from(at) + 1 < MAX_PIECES {
            self.0 = Some(Incomplete { message_id: named.to_vec(), next: at + 1, bytes: message });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log_types::PeerName;

    #[test]
    fn channels_are_short_and_differ() {
        let longest = PeerName::new(&"#".repeat(PeerName::MAX)).unwrap();
        let (events, questions) = (Topic::Events(longest.clone()), Topic::Questions(longest));
        assert!(channel(&events).len() <= 63);
        assert_ne!(channel(&events), channel(&questions));
    }

    #[test]
    fn equal_messages_are_unequal_notifications() {
        let mut splitter = Splitter::new().unwrap();
        assert_ne!(splitter.split(b"same"), splitter.split(b"same"));
    }

    #[test]
    fn a_message_without_its_middle_is_dropped_and_the_next_is_not() {
        let (mut splitter, mut joiner) = (Splitter::new().unwrap(), Joiner::default());
        let (broken, whole) =
            (splitter.split(&vec![1; 3 * PIECE_BYTES]), splitter.split(&vec![2; 2 * PIECE_BYTES]));
        assert_eq!(joiner.join(&broken[0]), None);
        assert_eq!(joiner.join(&broken[2]), None);
        assert_eq!(joiner.join(&whole[0]), None);
        assert_eq!(joiner.join(&whole[1]).unwrap(), vec![2; 2 * PIECE_BYTES]);
        assert_eq!(joiner.join(&whole[1]), None, "it is used up");
    }

    #[test]
    fn what_is_too_large_is_not_sent() {
        assert!(Splitter::new().unwrap().split(&vec![0; MAX_PIECES * PIECE_BYTES + 1]).is_empty());
        assert_eq!(Splitter::new().unwrap().split(&vec![0; MAX_PIECES * PIECE_BYTES]).len(), MAX_PIECES);
    }

    proptest! {
        #[test]
        fn what_is_split_is_joined(length in 0..3 * PIECE_BYTES, seed in any::<u8>()) {
            let message: Vec<u8> = (0..length).map(|at| (at % 256).to_le_bytes()[0] ^ seed).collect();
            let mut joiner = Joiner::default();
            let pieces = Splitter::new().unwrap().split(&message);
            prop_assert!(pieces.iter().all(|piece| piece.len() < 8_000));
            let (last, first) = pieces.split_last().unwrap();
            prop_assert!(first.iter().all(|piece| joiner.join(piece).is_none()));
            prop_assert_eq!(joiner.join(last).unwrap(), message);
        }

        #[test]
        fn no_text_makes_it_panic(pieces in prop::collection::vec("[A-Za-z0-9+/]{0,40}", 0..8)) {
            let mut joiner = Joiner::default();
            for piece in pieces {
                let _ = joiner.join(&piece);
            }
        }
    }
}
