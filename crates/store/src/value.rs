//! What stands in the columns: digests, tags, times.

use std::fmt;

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;

/// A one-way image of a secret. What a database thief gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// From a column.
    pub(crate) fn read(row: &AnyRow, column: usize) -> Result<Self, StoreError> {
        Self::of_bytes(row.try_get(column)?, column)
    }

    /// From a column that may be empty.
    pub(crate) fn read_optional(row: &AnyRow, column: usize) -> Result<Option<Self>, StoreError> {
        let bytes: Option<Vec<u8>> = row.try_get(column)?;
        bytes.map(|bytes| Self::of_bytes(bytes, column)).transpose()
    }

    fn of_bytes(bytes: Vec<u8>, column: usize) -> Result<Self, StoreError> {
        let malformed = |_| sqlx::Error::ColumnDecode {
            index: column.to_string(),
            source: "a digest has another length".into(),
        };
        Ok(Self(bytes.try_into().map_err(malformed)?))
    }

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

/// A length of time in milliseconds.
pub(crate) fn millis_of(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
