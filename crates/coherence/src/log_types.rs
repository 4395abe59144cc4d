//! The words that authorities, consumers and messages share.

use std::fmt;
use std::hash::Hasher;

/// Names what an event concerns: a keyed hash of a token, session, grant, user, client or key. Never the thing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; Tag::LENGTH]);

impl Tag {
    /// Bytes of a tag.
    pub const LENGTH: usize = 16;
}

/// Identifies one history of a log. Another one after a restore from backup, and after a failover that may have lost
/// something: what was promised since is gone, and numbers of the two do not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(pub [u8; 16]);

/// How far a log has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// The history.
    pub epoch: Epoch,
    /// Number of its last event; 0 before the first.
    pub seq: u64,
}

/// Something no longer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// From 1, without holes.
    pub seq: u64,
    /// What it concerns: each tag stands for everything that carries it.
    pub tags: Vec<Tag>,
    /// Only what was issued before this is concerned, in milliseconds since 1970; `None`: all of it.
    pub not_before: Option<i64>,
    /// When the last credential it concerns has expired, in milliseconds since 1970.
    pub until: i64,
}

/// What an authority is called in configurations, messages and metrics: at most [`Name::MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerName(Box<str>);

impl ConsumerName {
    /// Longest name, in bytes.
    pub const MAX: usize = 64;

    /// `None` when it is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        (1..=Self::MAX).contains(&text.len()).then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Tells one consumer from another: random, drawn once per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub [u8; 16]);

/// Makes an answer belong to one question: random, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

/// Tags are keyed hashes already: their own last bytes are the hash.
#[derive(Debug, Default)]
pub(crate) struct OwnBytes(u64);

impl Hasher for OwnBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }
}
