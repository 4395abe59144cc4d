//! Copies: the whole database as a text that either database can be made from.
//!
//! Owns: the form of that text, writing it as of one moment, reading it back all or nothing. Does not own: where it is kept.
//! It holds what the database holds, digests and hashes of passwords among it, and is to be kept like it.
//!
//! The text is JSON, a value per line: a header; then for each table its name and columns, and its rows as arrays; at the end
//! the number of rows of each table and the SHA-256 of every byte before. So whatever is cut off or damaged is noticed, and
//! neither side ever holds more than a few hundred rows. The digest is no signature: who can write the file can write another.
//!
//! However long the whole takes, a server that does not answer one step is given up: a backup that is made every night must not be
//! waiting still on the next.

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
use crate::invalidation::LogHead;
use crate::migrations::Migrated;

/// What the header says first.
const FORMAT: &str = "postern store 1";

/// How long a server may take for one step: longer than one that is there takes to refuse it ([`Dialect::patient`]).
const STEP: Duration = Duration::from_secs(40);

/// A copy was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// How many rows it has.
    pub rows: u64,
}

/// What is about to become a database, all of it read, and nothing of it durable.
#[derive(Clone, PartialEq, Eq)]
pub struct BackupContents {
    /// How many rows it has.
    pub rows: u64,
    /// The key ring in it, sealed by whoever wrote it.
    pub key_ring: Option<Vec<u8>>,
}

/// Prints nothing of the ring.
impl fmt::Debug for BackupContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copied").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// A copy was read into a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// How many rows it had.
    pub rows: u64,
    /// The log as it goes on: a new history, the old number.
    pub head: LogHead,
    /// What was changed in a copy of a version before that operators are to be told of.
    pub migrated: Migrated,
}

/// Why there is no copy, or a database was not made from one. Nothing was changed then, but for [`CopyError::Unclear`].
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The database was told to make the copy durable, and did not answer: it is there whole, or nothing was changed. A look at the
    /// database tells.
    #[error("no answer when the copy was made durable: {0}")]
    Unclear(StoreError),
    /// The caller does not want it.
    #[error("{0}")]
    Unwanted(String),
    /// The file could not be read or written.
    #[error("the copy cannot be read or written: {0}")]
    File(#[from] std::io::Error),
    /// A copy becomes a database, it is not added to one.
    #[error("the database is not empty: there is something in {0}; read the copy into a new database")]
    NotEmpty(&'static str),
    /// It is something else.
    #[error("line 1: this is no copy of Postern's store")]
    Foreign,
    /// It was written by a newer program.
    #[error("line 1: the copy has version {copy} of the schema, this program knows versions up to {known}")]
    Newer {
        /// The copy's version.
        copy: u64,
        /// The program's.
        known: u64,
    },
    /// A line is not what stands there in a copy.
    #[error("line {line}: {what}")]
    Malformed {
        /// Which.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The database refused rows for what they are.
    #[error("lines {first} to {last}: {error}")]
    Refused {
        /// The first line of those that were written together.
        first: u64,
        /// The last one.
        last: u64,
        /// Why.
        error: StoreError,
    },
    /// The end is missing.
    #[error("line {0}: the copy ends here without its last line: it was cut")]
    Cut(u64),
    /// A copy has an end.
    #[error("line {0}: something follows the copy's last line")]
    Longer(u64),
    /// It is not what was written.
    #[error("line {0}: digest or number of rows differ: the copy was changed after it was written")]
    Changed(u64),
}

/// What the database answers to one step.
async fn answer<T, E: Into<StoreError>>(
    dialect: Dialect,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    dialect.within(STEP, step).await?.map_err(Into::into)
}

/// The last line: how many rows of each table, and the digest of all lines before.
fn trailer(rows: &Map<String, Value>, digest: &Digest) -> Value {
    use std::fmt::Write as _;
    let hex = digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    json!({ "rows": rows, "sha256": hex })
}
