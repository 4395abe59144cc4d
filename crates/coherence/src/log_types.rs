//! Log types: the values that authorities, consumers and messages share.

use std::fmt;
use std::hash::Hasher;

/// Tag: names what an event concerns. A keyed hash of a token, session, grant, user, client or key,
/// never the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; Tag::LENGTH]);

impl Tag {
    /// Length of a tag, in bytes.
    pub const LENGTH: usize = 16;
}

/// Epoch: identifies one history of a log. It changes after a restore from a backup, and after a
/// failover that may have lost events. Promises about the lost events are void, and sequence
/// numbers of two epochs do not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(pub [u8; 16]);

/// Log head: how far a log has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// Epoch that the number belongs to.
    pub epoch: Epoch,
    /// Number of the last event; 0 before the first.
    pub seq: u64,
}

/// Event: one revocation in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// Sequence number, from 1 and without gaps.
    pub seq: u64,
    /// What is revoked: each tag stands for every credential that carries it.
    pub tags: Vec<Tag>,
    /// Only credentials issued before this are revoked, in milliseconds since 1970; `None`: all of
    /// them.
    pub not_before: Option<i64>,
    /// When the last credential that the event concerns has expired, in milliseconds since 1970.
    pub until: i64,
}

/// Name of an authority or a consumer in configurations, messages and metrics: at most
/// [`PeerName::MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerName(Box<str>);

impl PeerName {
    /// Length of the longest name, in bytes.
    pub const MAX: usize = 64;

    /// Creates a name; `None` when the text is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        (1..=Self::MAX).contains(&text.len()).then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a consumer: random, drawn once per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub [u8; 16]);

/// Nonce: binds an answer to one question. Random, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

/// Hasher for tags: they are keyed hashes already, so their own last bytes are the hash.
#[derive(Debug, Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }
}
