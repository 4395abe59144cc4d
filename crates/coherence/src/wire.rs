//! Wire format: messages as bytes, and their authentication.
//!
//! Owns: the format, its limits, and the message authentication code. Does not own: the reaction to
//! a message, or its transport. The message broker is not trusted: a receiver drops a message whose
//! MAC was not made with a key of the cluster, and a message of another version.
//!
//! ```text
//! version 1 | kind 1 | key 1 | MAC 16 | authority: length 1, bytes | body by kind
//! ```
//!
//! Numbers are big-endian. The MAC is HMAC-SHA-256 (RFC 2104) over everything but itself, cut to
//! its first 16 bytes (RFC 2104 section 5). The key number says which of several keys is meant, so
//! that keys can be rotated one after the other. Anyone who has seen a message can replay it: every
//! message is harmless the second time.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
use crate::mutation::{self, Mutation};

/// Version of the format, which is its first byte.
pub const VERSION: u8 = 1;
/// Length of the largest message, in bytes.
pub const MAX_MESSAGE: usize = 16 * 1024;
/// Most tags of one event. The writer of the log splits a larger revocation into several events.
pub const MAX_TAGS: usize = 64;

/// Length of a MAC, in bytes.
pub(crate) const MAC_BYTES: usize = 16;
/// Version, kind, number of the key.
const PREFIX: usize = 3;
/// Kinds that are recognized before the MAC is checked.
const PROBE: u8 = 2;
const ECHO: u8 = 3;
const ANSWER: u8 = 8;
/// Separates this use of a key from every other.
const CONTEXT: &[u8] = b"postern coherence message\0";

/// A message between authorities and consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Authority whose log the message is about.
    pub authority: PeerName,
    /// Content of the message.
    pub body: Body,
}

/// Content of a message about a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// To consumers: this was revoked.
    Event {
        /// Epoch of the event.
        epoch: Epoch,
        /// The event that was appended.
        event: LogEvent,
    },
    /// To the authority: asks for the head of the log.
    Probe {
        /// Consumer that asks.
        consumer: ConsumerId,
        /// Human-readable name of the consumer.
        name: PeerName,
        /// Lease of the consumer, in whole milliseconds.
        lease: Duration,
        /// Identifies the probe.
        nonce: Nonce,
        /// How far the consumer has applied the log; `None` while it follows no epoch.
        applied: Option<LogHead>,
    },
    /// To the consumer that sent the probe: the head, read after the probe had arrived.
    Echo {
        /// Nonce of the probe.
        nonce: Nonce,
        /// Head of the log.
        head: LogHead,
    },
    /// To the authority: send the events after this one again.
    RangeRequest {
        /// Identifies the request.
        nonce: Nonce,
        /// Last event that is applied, and its epoch.
        after: LogHead,
    },
    /// To the consumer that asked: the events cannot be sent any more, or are too many.
    RangeUnavailable {
        /// Nonce of the request.
        nonce: Nonce,
    },
    /// To the authority: everything up to this head is applied.
    Applied {
        /// Consumer that reports.
        consumer: ConsumerId,
        /// Last event that is applied.
        head: LogHead,
    },
    /// To the authority: a [query](crate::query), as its bytes.
    Query(Vec<u8>),
    /// To the consumer that sent the query: the answer, which fits this query only.
    Answer {
        /// Nonce of the query.
        nonce: Nonce,
        /// The sealed answer, as bytes.
        sealed: Vec<u8>,
    },
}

/// Whether the bytes claim to be a [`Body::Probe`]. Their MAC is not checked yet.
pub fn is_probe(bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&PROBE)
}

/// Whether the bytes claim to be a [`Body::Echo`]. Their MAC is not checked yet.
pub(crate) fn is_echo(bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&ECHO)
}

/// Whether the bytes claim to be a [`Body::Answer`]. Their MAC is not checked yet.
pub(crate) fn is_answer(bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&ANSWER)
}

/// Why bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("message longer than {MAX_MESSAGE} bytes")]
    Long,
    /// The first byte is not [`VERSION`].
    #[error("message format version {0} is not supported")]
    Version(u8),
    /// The number of the key is unknown.
    #[error("message key number {0} is not configured here")]
    Key(u8),
    /// The MAC is invalid: it was made with another key, or over other bytes.
    #[error("message authentication code is invalid")]
    Mac,
    /// The bytes end early, go on, or hold an invalid value.
    #[error("malformed message")]
    Malformed,
}

/// The keys of a cluster: the first one signs, all are accepted. Each use has a context of its own,
/// and no context begins with another one.
#[derive(Clone)]
pub struct Keys(Arc<[(u8, hmac::Key)]>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(number, _)| number)).finish()
    }
}

impl Keys {
    /// One key, by its number.
    pub fn single(number: u8, secret: &[u8; 32]) -> Self {
        Self([(number, hmac::Key::new(hmac::HMAC_SHA256, secret))].into())
    }

    /// Keys from numbered secrets; the first one signs. `None` without any, or when a number occurs
    /// twice.
    pub fn new(secrets: &[(u8, [u8; 32])]) -> Option<Self> {
        let twice = |at: usize| secrets[..at].iter().any(|(number, _)| *number == secrets[at].0);
        if secrets.is_empty() || (0..secrets.len()).any(twice) {
            return None;
        }
        let key = |(number, secret): &(u8, [u8; 32])| (*number, hmac::Key::new(hmac::HMAC_SHA256, secret));
        Some(Self(secrets.iter().map(key).collect()))
    }

    /// Number of the key that signs.
    pub(crate) fn number(&self) -> u8 {
        self.0[0].0
    }

    /// MAC of these parts, one after the other, by the key that signs.
    pub(crate) fn sign(&self, context: &[u8], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        mac(&self.0[0].1, context, parts)
    }

    /// Checks in constant time that the key of this number made the MAC of these parts.
    pub(crate) fn verify(
        &self,
        number: u8,
        context: &[u8],
        parts: &[&[u8]],
        received_mac: &[u8],
    ) -> Result<(), WireError> {
        let known = self.0.iter().find(|(known, _)| *known == number);
        let (_, key) = known.ok_or(WireError::Key(number))?;
        verify_slices_are_equal(&mac(key, context, parts), received_mac).map_err(|_| WireError::Mac)
    }

    /// Writes a message as bytes. `None` for an event with more than [`MAX_TAGS`], which must not
    /// be sent in part: a consumer that misses the event notices the gap.
    pub fn write(&self, message: &Message) -> Option<Vec<u8>> {
        if matches!(&message.body, Body::Event { event, .. } if event.tags.len() > MAX_TAGS) {
            return None;
        }
        let mut to = Vec::with_capacity(192);
        to.extend([VERSION, message.body.kind(), self.number()]);
        to.extend([0; MAC_BYTES]);
        put_name(&mut to, &message.authority);
        message.body.write(&mut to);
        let mac = self.sign(CONTEXT, &[&to[..PREFIX], &to[PREFIX + MAC_BYTES..]]);
        to[PREFIX..PREFIX + MAC_BYTES].copy_from_slice(&mac);
        Some(to)
    }

    /// Reads a message from bytes, and checks its MAC.
    pub fn read(&self, bytes: &[u8]) -> Result<Message, WireError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(WireError::Long);
        }
        let [version, kind, number] = *bytes.first_chunk::<PREFIX>().ok_or(WireError::Malformed)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let (received_mac, body) = bytes[PREFIX..].split_at_checked(MAC_BYTES).ok_or(WireError::Malformed)?;
        if !mutation::is_active(Mutation::MessageMac) {
            self.verify(number, CONTEXT, &[&bytes[..PREFIX], body], received_mac)?;
        }
        let mut from = Reader(body);
        let message = from.message(kind).ok_or(WireError::Malformed)?;
        if from.0.is_empty() { Ok(message) } else { Err(WireError::Malformed) }
    }
}

fn mac(key: &hmac::Key, context: &[u8], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let mut hash = hmac::Context::with_key(key);
    hash.update(context);
    for part in parts {
        hash.update(part);
    }
    let mut mac = [0; MAC_BYTES];
    mac.copy_from_slice(&hash.sign().as_ref()[..MAC_BYTES]);
    mac
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Self::Event { .. } => 1,
            Self::Probe { .. } => PROBE,
            Self::Echo { .. } => ECHO,
            Self::RangeRequest { .. } => 4,
            Self::RangeUnavailable { .. } => 5,
            Self::Applied { .. } => 6,
            Self::Query(_) => 7,
            Self::Answer { .. } => ANSWER,
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Event { epoch, event } => {
                put_head(to, LogHead { epoch: *epoch, seq: event.seq });
                to.push(u8::from(event.not_before.is_some()));
                to.extend(event.not_before.unwrap_or_default().to_be_bytes());
                to.extend(event.until.to_be_bytes());
                to.push(u8::try_from(event.tags.len()).unwrap_or(u8::MAX));
                to.extend(event.tags.iter().flat_map(|tag| tag.0));
            }
            Self::Probe { consumer, name: called, lease, nonce, applied } => {
                to.extend(consumer.0);
                put_name(to, called);
                to.extend(u32::try_from(lease.as_millis()).unwrap_or(u32::MAX).to_be_bytes());
                to.extend(nonce.0);
                to.push(u8::from(applied.is_some()));
                put_head(to, applied.unwrap_or(LogHead { epoch: Epoch([0; 16]), seq: 0 }));
            }
            Self::Echo { nonce, head } | Self::RangeRequest { nonce, after: head } => {
                to.extend(nonce.0);
                put_head(to, *head);
            }
            Self::RangeUnavailable { nonce } => to.extend(nonce.0),
            Self::Applied { consumer, head } => {
                to.extend(consumer.0);
                put_head(to, *head);
            }
            Self::Query(bytes) => to.extend(bytes),
            Self::Answer { nonce, sealed } => {
                to.extend(nonce.0);
                to.extend(sealed);
            }
        }
    }
}

pub(crate) fn put_name(to: &mut Vec<u8>, name: &PeerName) {
    to.push(u8::try_from(name.as_str().len()).unwrap_or(u8::MAX));
    to.extend(name.as_str().as_bytes());
}

pub(crate) fn put_head(to: &mut Vec<u8>, head: LogHead) {
    to.extend(head.epoch.0);
    to.extend(head.seq.to_be_bytes());
}

/// The bytes that are not read yet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk::<N>()?;
        self.0 = left;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn head(&mut self) -> Option<LogHead> {
        Some(LogHead { epoch: Epoch(self.take()?), seq: u64::from_be_bytes(self.take()?) })
    }

    pub(crate) fn millis(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    /// Reads the number of items that take `each` bytes; `None` when they would be more than what
    /// is left.
    pub(crate) fn count(&mut self, each: usize) -> Option<usize> {
        let count = usize::try_from(u32::from_be_bytes(self.take()?)).ok()?;
        (count.checked_mul(each)? <= self.0.len()).then_some(count)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn name(&mut self) -> Option<PeerName> {
        let length = usize::from(self.byte()?);
        let (name, left) = self.0.split_at_checked(length)?;
        self.0 = left;
        PeerName::new(std::str::from_utf8(name).ok()?)
    }

    fn message(&mut self, kind: u8) -> Option<Message> {
        let authority = self.name()?;
        let body = match kind {
            1 => {
                let head = self.head()?;
                let (limited, not_before) = (self.flag()?, self.millis()?);
                let (until, count) = (self.millis()?, usize::from(self.byte()?));
                if head.seq == 0 || count > MAX_TAGS || !limited && not_before != 0 {
                    return None;
                }
                let tags = (0..count).map(|_| self.take().map(Tag)).collect::<Option<_>>()?;
                let not_before = limited.then_some(not_before);
                Body::Event { epoch: head.epoch, event: LogEvent { seq: head.seq, tags, not_before, until } }
            }
            PROBE => {
                let (consumer, called) = (ConsumerId(self.take()?), self.name()?);
                let lease = Duration::from_millis(u32::from_be_bytes(self.take()?).into());
                let (nonce, known, head) = (Nonce(self.take()?), self.flag()?, self.head()?);
                Body::Probe { consumer, name: called, lease, nonce, applied: known.then_some(head) }
            }
            ECHO => Body::Echo { nonce: Nonce(self.take()?), head: self.head()? },
            4 => Body::RangeRequest { nonce: Nonce(self.take()?), after: self.head()? },
            5 => Body::RangeUnavailable { nonce: Nonce(self.take()?) },
            6 => Body::Applied { consumer: ConsumerId(self.take()?), head: self.head()? },
            7 => Body::Query(self.rest()),
            ANSWER => Body::Answer { nonce: Nonce(self.take()?), sealed: self.rest() },
            _ => return None,
        };
        Some(Message { authority, body })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(number: u8) -> Keys {
        Keys::new(&[(number, [number; 32])]).expect("a key")
    }

    fn head() -> impl Strategy<Value = LogHead> {
        (any::<[u8; 16]>(), any::<u64>()).prop_map(|(epoch, seq)| LogHead { epoch: Epoch(epoch), seq })
    }

    fn event() -> impl Strategy<Value = LogEvent> {
        let tags = prop::collection::vec(any::<[u8; 16]>().prop_map(Tag), 0..=MAX_TAGS);
        (1..u64::MAX, tags, any::<Option<i64>>(), any::<i64>())
            .prop_map(|(seq, tags, not_before, until)| LogEvent { seq, tags, not_before, until })
    }

    fn body() -> impl Strategy<Value = Body> {
        let nonce = || any::<[u8; 16]>().prop_map(Nonce);
        let consumer = || any::<[u8; 16]>().prop_map(ConsumerId);
        prop_oneof![
            (any::<[u8; 16]>(), event())
                .prop_map(|(epoch, event)| Body::Event { epoch: Epoch(epoch), event }),
            (consumer(), "[a-z]{1,64}", any::<u32>(), nonce(), prop::option::of(head())).prop_map(
                |(consumer, called, lease, nonce, applied)| Body::Probe {
                    consumer,
                    name: PeerName::new(&called).expect("1 to 64 bytes"),
                    lease: Duration::from_millis(lease.into()),
                    nonce,
                    applied
                }
            ),
            (nonce(), head()).prop_map(|(nonce, head)| Body::Echo { nonce, head }),
            (nonce(), head()).prop_map(|(nonce, after)| Body::RangeRequest { nonce, after }),
            nonce().prop_map(|nonce| Body::RangeUnavailable { nonce }),
            (consumer(), head()).prop_map(|(consumer, head)| Body::Applied { consumer, head }),
            prop::collection::vec(any::<u8>(), 0..100).prop_map(Body::Query),
            (nonce(), prop::collection::vec(any::<u8>(), 0..100))
                .prop_map(|(nonce, sealed)| Body::Answer { nonce, sealed }),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        ("[a-z]{1,64}", body()).prop_map(|(name, body)| Message {
            authority: PeerName::new(&name).expect("1 to 64 bytes"),
            body,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in message()) {
            let bytes = written(&keys(1), &message);
            prop_assert!(bytes.len() <= MAX_MESSAGE);
            prop_assert_eq!(keys(1).read(&bytes), Ok(message));
        }

        #[test]
        fn no_bit_may_differ(message in message(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = written(&keys(1), &message);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(keys(1).read(&bytes).is_err());
        }

        #[test]
        fn nothing_may_be_cut_off_or_added(message in message(), cut in any::<prop::sample::Index>()) {
            let mut bytes = written(&keys(1), &message);
            let cut = cut.index(bytes.len());
            prop_assert!(keys(1).read(&bytes[..cut]).is_err());
            bytes.push(0);
            prop_assert!(keys(1).read(&bytes).is_err());
        }

        #[test]
        fn anything_else_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(keys(1).read(&bytes).is_err());
        }
    }

    fn written(keys: &Keys, message: &Message) -> Vec<u8> {
        keys.write(message).expect("few tags")
    }

    #[test]
    fn an_event_is_told_whole_or_not_at_all() {
        let event = |tags| LogEvent { seq: 1, tags: vec![Tag([1; 16]); tags], not_before: None, until: 0 };
        let message = |tags| Message {
            authority: PeerName::new("main").expect("a name"),
            body: Body::Event { epoch: Epoch([1; 16]), event: event(tags) },
        };
        assert!(keys(1).write(&message(MAX_TAGS)).is_some());
        assert_eq!(keys(1).write(&message(MAX_TAGS + 1)), None);
    }

    fn gone() -> Message {
        Message {
            authority: PeerName::new("main").expect("a name"),
            body: Body::RangeUnavailable { nonce: Nonce([7; 16]) },
        }
    }

    #[test]
    fn keys_are_exchanged_one_after_the_other() {
        let (old, new) = ((1, [1; 32]), (2, [2; 32]));
        let stages = [vec![old], vec![old, new], vec![new, old], vec![new]];
        let stages: Vec<_> = stages.iter().map(|stage| Keys::new(stage).expect("keys")).collect();
        for neighbours in stages.windows(2) {
            assert_eq!(neighbours[1].read(&written(&neighbours[0], &gone())), Ok(gone()));
            assert_eq!(neighbours[0].read(&written(&neighbours[1], &gone())), Ok(gone()));
        }
        assert_eq!(stages[3].read(&written(&stages[0], &gone())), Err(WireError::Key(1)));
    }

    #[test]
    fn a_key_of_the_same_number_is_not_enough() {
        let other = Keys::new(&[(1, [9; 32])]).expect("a key");
        assert_eq!(other.read(&written(&keys(1), &gone())), Err(WireError::Mac));
    }

    #[test]
    fn keys_are_numbered_once() {
        assert!(Keys::new(&[]).is_none());
        assert!(Keys::new(&[(1, [1; 32]), (1, [2; 32])]).is_none());
    }

    #[test]
    fn other_versions_and_giants_say_so() {
        let mut bytes = written(&keys(1), &gone());
        bytes[0] = 2;
        assert_eq!(keys(1).read(&bytes), Err(WireError::Version(2)));
        assert_eq!(keys(1).read(&vec![VERSION; MAX_MESSAGE + 1]), Err(WireError::Long));
    }

    #[test]
    fn no_secret_is_shown() {
        assert_eq!(format!("{:?}", Keys::new(&[(3, [5; 32])]).expect("a key")), "[3]");
    }
}
