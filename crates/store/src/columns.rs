//! Column values: digests, tags, heads, numbers and times; and SQL text for many rows.

use std::fmt;
use std::time::Duration;

use auth::time::Timestamp;
use coherence::{Epoch, LogHead, Tag};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;

/// Maximum number of rows in one statement.
const MAX_BATCH: usize = 128;

/// A one-way digest of a secret. A copy of the database does not reveal the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredDigest(pub [u8; 32]);

impl StoredDigest {
    /// Reads a column.
    pub(crate) fn read(row: &AnyRow, column: usize) -> Result<Self, StoreError> {
        Self::from_bytes(row.try_get(column)?, column)
    }

    /// Reads a column that may be NULL.
    pub(crate) fn read_optional(row: &AnyRow, column: usize) -> Result<Option<Self>, StoreError> {
        let bytes: Option<Vec<u8>> = row.try_get(column)?;
        bytes.map(|bytes| Self::from_bytes(bytes, column)).transpose()
    }

    fn from_bytes(bytes: Vec<u8>, column: usize) -> Result<Self, StoreError> {
        let malformed = |_| sqlx::Error::ColumnDecode {
            index: column.to_string(),
            source: "unexpected length of a digest".into(),
        };
        Ok(Self(bytes.try_into().map_err(malformed)?))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for StoredDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredDigest(..)")
    }
}

/// Reads a head from two columns: epoch at `column`, then sequence number.
pub(crate) fn read_head(row: &AnyRow, column: usize) -> Result<LogHead, StoreError> {
    let epoch: Vec<u8> = row.try_get(column)?;
    let epoch = epoch.try_into().map_err(|_| malformed("epoch"))?;
    Ok(LogHead { epoch: Epoch(epoch), seq: unsigned(row.try_get(column + 1)?) })
}

/// Reads a tag; NULL becomes the zero tag, which no credential carries.
pub(crate) fn read_tag(row: &AnyRow, column: usize) -> Result<Tag, StoreError> {
    let tag: Option<Vec<u8>> = row.try_get(column)?;
    let tag = tag.map(|tag| tag.try_into().map_err(|_| malformed("tag"))).transpose()?;
    Ok(Tag(tag.unwrap_or([0; Tag::LENGTH])))
}

/// A number that is never negative in the database.
pub(crate) fn unsigned(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}

pub(crate) fn malformed(column: &str) -> StoreError {
    sqlx::Error::ColumnDecode { index: column.into(), source: "unexpected length".into() }.into()
}

/// Milliseconds since 1970 as both databases store them. [`Timestamp::MAX`] becomes `i64::MAX`.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The inverse of [`millis`]; negative values, which are never written, become 0.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    match millis {
        i64::MAX => Timestamp::MAX,
        millis => Timestamp::from_millis(u64::try_from(millis).unwrap_or(0)),
    }
}

/// A duration in milliseconds.
pub(crate) fn duration_millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

/// The text after `VALUES`: one tuple per row with placeholders for its columns, each followed by
/// the constant text `same`.
pub(crate) fn value_tuples(count: usize, columns: usize, same: &str) -> String {
    let row = |at: usize| {
        let places: Vec<_> = (1..=columns).map(|column| format!("${}", at * columns + column)).collect();
        format!("({}{same})", places.join(", "))
    };
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

/// Placeholders for `count` values, starting with number `first`.
pub(crate) fn placeholders(first: usize, count: usize) -> String {
    (first..first + count).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ")
}

/// Splits a slice into batches for one statement each. Their lengths are powers of two, so that few
/// different statements are prepared.
pub(crate) fn batches<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let length = 1 << rest.len().min(MAX_BATCH).checked_ilog2()?;
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_number_their_places() {
        assert_eq!(value_tuples(1, 1, ""), "($1)");
        assert_eq!(value_tuples(2, 3, ", 7"), "($1, $2, $3, 7), ($4, $5, $6, 7)");
    }

    #[test]
    fn places_are_numbered_from_the_first_on() {
        assert_eq!(
            (placeholders(2, 3), placeholders(1, 1), placeholders(1, 0)),
            ("$2, $3, $4".into(), "$1".into(), String::new())
        );
    }

    #[test]
    fn pieces_are_all_of_it_in_powers_of_two() {
        let all: Vec<_> = (0..300).collect();
        let lengths: Vec<_> = batches(&all).map(<[_]>::len).collect();
        assert_eq!(lengths, [128, 128, 32, 8, 4]);
        assert_eq!(batches(&all).flatten().copied().collect::<Vec<_>>(), all);
        assert_eq!(batches::<u8>(&[]).count(), 0);
    }
}
