//! What stands in the columns: digests, tags, times.

use std::fmt;

use auth::time::Timestamp;

/// A one-way image of a secret. What a database thief gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// Milliseconds as the databases keep them. The end of time stays the end of time.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The reverse of [`millis`]; what is before 1970 was never written.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    match millis {
        i64::MAX => Timestamp::MAX,
        millis => Timestamp::from_millis(u64::try_from(millis).unwrap_or(0)),
    }
}
