//! Backup: the whole database as text, from which either database can be created.
//!
//! Owns: the format of that text, writing it as of one moment, reading it back in one transaction.
//! Does not own: where the text is kept. It contains everything in the database, including digests
//! and password hashes, and must be protected like the database.
//!
//! The format is JSON, one value per line:
//!
//! 1. A header.
//! 2. For each table its name and columns, then its rows as arrays.
//! 3. A trailer: the number of rows of each table, and the SHA-256 of all bytes before.
//!
//! A truncated or damaged file is therefore detected, and neither side holds more than a few
//! hundred rows in memory. The digest is not a signature: anyone who can write the file can write a
//! different one.
//!
//! The whole operation may take any time, but one step may not: if the server does not answer it in
//! time, the operation fails. Otherwise a nightly backup could still hang when the next one starts.

mod export;
mod import;
mod tables;

use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest::Digest;
pub(crate) use export::run as export;
pub(crate) use import::run as import;
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::migrations::MigrationNotes;
use crate::revocation_log::LogHead;

/// The value of `format` in the header.
const FORMAT: &str = "postern store 1";

/// How long the server may take for one step. Longer than a live server takes to refuse it
/// ([`Dialect::relax_timeouts`]).
const STEP_TIMEOUT: Duration = Duration::from_secs(40);

/// Result of a finished export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Number of rows in the copy.
    pub rows: u64,
}

/// A copy that was read completely, before anything is committed.
#[derive(Clone, PartialEq, Eq)]
pub struct BackupContents {
    /// Number of rows in the copy.
    pub rows: u64,
    /// The key ring in the copy, as sealed by the program that wrote it.
    pub key_ring: Option<Vec<u8>>,
}

/// Omits the key ring.
impl fmt::Debug for BackupContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupContents").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Result of a finished import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Number of rows in the copy.
    pub rows: u64,
    /// Head of the revocation log: a new epoch, with the sequence number of the copy.
    pub head: LogHead,
    /// What was changed in a copy of an older version that operators need to know.
    pub migrated: MigrationNotes,
}

/// Why an export or import failed. Nothing was changed, except after
/// [`BackupError::CommitUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database refused a statement or does not answer.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The commit of the import was sent, but not answered: either all of the copy was imported or
    /// nothing was. The caller must inspect the database.
    #[error("commit of the import was not answered, it may have succeeded: {0}; inspect the database")]
    CommitUnknown(StoreError),
    /// The caller rejected the copy, with this reason.
    #[error("{0}")]
    Rejected(String),
    /// The file could not be read or written.
    #[error("reading or writing the copy failed: {0}")]
    File(#[from] std::io::Error),
    /// The database has rows in this table: a copy is never merged into existing data.
    #[error("the database is not empty: table {0} has rows; import the copy into a new database")]
    NotEmpty(&'static str),
    /// The first line is not the header of a copy.
    #[error("line 1: not a copy of Postern's store: choose a file written by the export")]
    NotACopy,
    /// A newer program wrote the copy.
    #[error(
        "line 1: the copy has schema version {copy}, this program supports versions up to {known}: use a newer program"
    )]
    NewerSchema {
        /// Schema version of the copy.
        copy: u64,
        /// Latest schema version that this program knows.
        known: u64,
    },
    /// A line is not valid at its position.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Number of the line.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The database refused a batch of rows because of their values.
    #[error("lines {first} to {last}: {error}")]
    Refused {
        /// First line of the batch.
        first: u64,
        /// Last line of the batch.
        last: u64,
        /// The reason of the refusal.
        error: StoreError,
    },
    /// The copy ends at this line, without its trailer.
    #[error("line {0}: the copy is truncated: its last line is missing")]
    Truncated(u64),
    /// The file has data after the trailer.
    #[error("line {0}: unexpected data after the end of the copy")]
    TrailingData(u64),
    /// The trailer does not match: the copy was modified or damaged.
    #[error("line {0}: digest or number of rows differ: the copy was modified or damaged")]
    DigestMismatch(u64),
}

/// Runs one step, with the time limit of [`STEP_TIMEOUT`].
async fn run_step<T, E: Into<StoreError>>(
    dialect: Dialect,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    dialect.with_timeout(STEP_TIMEOUT, step).await?.map_err(Into::into)
}

/// The trailer: the number of rows of each table, and the digest of all lines before.
fn trailer(rows: &Map<String, Value>, digest: &Digest) -> Value {
    use std::fmt::Write as _;
    let hex = digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    json!({ "rows": rows, "sha256": hex })
}
