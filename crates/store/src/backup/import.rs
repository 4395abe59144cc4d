//! Import: reads a copy in one transaction. Only the outcome of its commit can remain unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read as _};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, Row as _};

use super::tables::{self, Kind, Table};
use super::{BackupContents, BackupError, FORMAT, Imported, run_step};
use crate::audit::AuditEntry;
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::migrations::{self, MigrationNotes};
use crate::name_conflicts;
use crate::pooled_connection::PooledConnection;
use crate::revocation_log::{self, Epoch, LogHead};
use crate::writer::Tx;

/// Rows in one insert.
const ROWS_PER_INSERT: usize = 100;
/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 << 20;
/// Tables whose single row a new database already has.
const HEADS: [&str; 3] = ["invalidation_head", "audit_head", AUDIT_TAIL];
/// The one of them that copies of older versions do not have, and the first schema version with it.
const AUDIT_TAIL: &str = "audit_tail";
const AUDIT_TAIL_SINCE: u64 = 15;

/// The input, and the digest over the lines read so far.
struct Lines<'f, R> {
    from: &'f mut R,
    /// Number of the last line read, from 1.
    number: u64,
    line: Vec<u8>,
    digest: digest::Context,
}

impl<R: BufRead> Lines<'_, R> {
    /// Reads the next line as JSON. The digest does not cover it until [`Lines::accept`] is called.
    fn next(&mut self) -> Result<Value, BackupError> {
        self.line.clear();
        self.number += 1;
        self.from.take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        if self.line.last() != Some(&b'\n') {
            let cut = self.line.len() as u64 != MAX_LINE;
            return Err(if cut {
                BackupError::Truncated(self.number)
            } else {
                self.malformed("line too long")
            });
        }
        serde_json::from_slice(&self.line)
            .map_err(|error| self.malformed(format!("invalid JSON at column {}", error.column())))
    }

    /// Adds the last line to the digest.
    fn accept(&mut self) {
        self.digest.update(&self.line);
    }

    fn malformed(&self, reason: impl Into<String>) -> BackupError {
        BackupError::Malformed { line: self.number, reason: reason.into() }
    }
}

/// The table that is being imported.
struct Section<'t> {
    table: &'t Table,
    /// Columns in the order of the copy.
    columns: Vec<(&'static str, Kind)>,
    rows: Vec<Vec<Value>>,
    count: u64,
}

pub(crate) async fn run(
    pool: &AnyPool,
    dialect: Dialect,
    from: &mut (impl BufRead + Send),
    epoch: Epoch,
    accept: impl FnOnce(&BackupContents) -> Result<Vec<AuditEntry>, String> + Send,
) -> Result<Imported, BackupError> {
    let mut lines =
        Lines { from, number: 0, line: Vec::new(), digest: digest::Context::new(&digest::SHA256) };
    let schema = header(&mut lines)?;
    let tables = tables::copied_tables();
    let mut loan = run_step(dialect, PooledConnection::acquire(pool)).await?;
    let mut transaction = run_step(dialect, loan.connection().begin_with(dialect.begin_write())).await?;
    lock_empty_database(&mut transaction, dialect, &tables).await?;
    let counts = read_tables(&mut lines, &tables, &mut transaction, dialect).await?;
    for head in HEADS {
        if head == AUDIT_TAIL && schema < AUDIT_TAIL_SINCE {
            continue;
        }
        // The revocation log and the audit chain cannot be continued without these rows.
        if counts.get(head).and_then(Value::as_u64) != Some(1) {
            return Err(lines.malformed(format!("the copy has no row of table {head}")));
        }
    }
    let rows = counts.values().filter_map(Value::as_u64).sum();
    let (head, migrated) = run_step(dialect, begin_history(&mut transaction, epoch, schema)).await?;
    // Copies of older versions have rows without the comparison forms of names.
    let mut filled = String::new();
    while let Some(last) = run_step(dialect, name_conflicts::fill_forms(&mut transaction, &filled)).await? {
        filled = last;
    }
    let key_ring = run_step(dialect, key_ring(&mut transaction)).await?;
    let entries = accept(&BackupContents { rows, key_ring }).map_err(BackupError::Rejected)?;
    let mut tx = Tx {
        connection: &mut transaction,
        dialect,
        incarnation: Incarnation::NotReported,
        events: Vec::new(),
        entries,
        voided: BTreeSet::new(),
        used_sessions: BTreeMap::new(),
        names_locked: false,
        ended_logins: Vec::new(),
    };
    run_step(dialect, tx.write_audit_entries()).await?;
    run_step(dialect, transaction.commit()).await.map_err(commit_error)?;
    Ok(Imported { rows, head, migrated })
}

/// Reads and writes the tables up to the trailer. Returns the number of rows of each table.
async fn read_tables<R: BufRead>(
    lines: &mut Lines<'_, R>,
    tables: &[Table],
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<Map<String, Value>, BackupError> {
    let mut counts = Map::new();
    let mut ahead = tables.iter();
    let mut section: Option<Section<'_>> = None;
    loop {
        let value = lines.next()?;
        if let Value::Array(row) = value {
            let Some(section) = &mut section else {
                return Err(lines.malformed("row before the first table"));
            };
            if row.len() != section.columns.len() {
                return Err(lines.malformed("number of values differs from the number of columns"));
            }
            lines.accept();
            section.rows.push(row);
            section.count += 1;
            if section.rows.len() == ROWS_PER_INSERT {
                section.write(connection, dialect, lines.number).await?;
            }
            continue;
        }
        // Any other line ends the current section.
        if let Some(mut section) = section.take() {
            section.write(connection, dialect, lines.number - 1).await?;
            counts.insert(section.table.name.to_owned(), section.count.into());
        }
        if value.get("table").is_some() {
            section = Some(begin_section(&value, &mut ahead, lines)?);
            lines.accept();
        } else if value == super::trailer(&counts, &lines.digest.clone().finish()) {
            break;
        } else if value.get("sha256").is_some() {
            return Err(BackupError::DigestMismatch(lines.number));
        } else {
            return Err(lines.malformed("expected a table, a row or the end of the copy"));
        }
    }
    if lines.from.fill_buf()?.is_empty() {
        Ok(counts)
    } else {
        Err(BackupError::TrailingData(lines.number + 1))
    }
}

/// Gives the revocation log a new epoch, from which it continues.
async fn begin_history(
    connection: &mut AnyConnection,
    epoch: Epoch,
    schema: u64,
) -> Result<(LogHead, MigrationNotes), StoreError> {
    sqlx::query("UPDATE invalidation_head SET epoch = $1, incarnation = NULL WHERE id = 1")
        .bind(&epoch.0[..])
        .execute(&mut *connection)
        .await?;
    // Nothing had expired in the audit log of an older version.
    sqlx::query("INSERT INTO audit_tail (id, seq, at) VALUES (1, 0, 0) ON CONFLICT (id) DO NOTHING")
        .execute(&mut *connection)
        .await?;
    let migrated = migrations::complete_import(connection, schema).await?;
    Ok((revocation_log::head_within(connection).await?, migrated))
}

async fn key_ring(connection: &mut AnyConnection) -> Result<Option<Vec<u8>>, StoreError> {
    let row = sqlx::query("SELECT content FROM key_ring WHERE id = 1").fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// The error of a commit: a lost answer means that the outcome is unknown, and any other error that
/// nothing was committed.
fn commit_error(error: StoreError) -> BackupError {
    match error.into_commit_error() {
        lost @ StoreError::Unavailable(_) => BackupError::CommitUnknown(lost),
        refused => BackupError::Database(refused),
    }
}

/// Reads the header. Returns the schema version of the copy.
fn header<R: BufRead>(lines: &mut Lines<'_, R>) -> Result<u64, BackupError> {
    let header = match lines.next() {
        Err(BackupError::File(error)) => return Err(error.into()),
        Err(_) => return Err(BackupError::NotACopy),
        Ok(header) => header,
    };
    if header.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(BackupError::NotACopy);
    }
    let known = migrations::LATEST;
    let copy = header.get("schema").and_then(Value::as_u64).ok_or(BackupError::NotACopy)?;
    if copy > known {
        return Err(BackupError::NewerSchema { copy, known });
    }
    lines.accept();
    Ok(copy)
}

/// Locks the tables, checks that the database is empty, and deletes the initial rows of [`HEADS`].
async fn lock_empty_database(
    connection: &mut AnyConnection,
    dialect: Dialect,
    tables: &[Table],
) -> Result<(), BackupError> {
    run_step(dialect, connection.execute(dialect.relax_timeouts())).await?;
    if let Some(lock) = dialect.lock_tables(tables.iter().map(|table| table.name)) {
        run_step(dialect, connection.execute(sqlx::AssertSqlSafe(lock))).await?;
    }
    for table in tables {
        let statement = if HEADS.contains(&table.name) {
            format!("SELECT 1 FROM {} WHERE seq > 0", table.name)
        } else {
            format!("SELECT 1 FROM {} LIMIT 1", table.name)
        };
        let found = sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_optional(&mut *connection);
        if run_step(dialect, found).await?.is_some() {
            return Err(BackupError::NotEmpty(table.name));
        }
    }
    for head in HEADS {
        let statement = format!("DELETE FROM {head}");
        run_step(dialect, sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *connection)).await?;
    }
    Ok(())
}

/// Starts the section of a table. Tables must appear in the order of the schema.
fn begin_section<'t, R: BufRead>(
    value: &Value,
    ahead: &mut std::slice::Iter<'t, Table>,
    lines: &Lines<'_, R>,
) -> Result<Section<'t>, BackupError> {
    let name = value.get("table").and_then(Value::as_str).unwrap_or_default();
    let Some(table) = ahead.find(|table| table.name == name) else {
        return Err(lines.malformed(format!("unknown table {name:?}, or table out of order")));
    };
    let column = |value: &Value| table.columns.iter().find(|(name, _)| value == name).copied();
    let columns: Option<Vec<_>> = match value.get("columns") {
        Some(Value::Array(columns)) => columns.iter().map(column).collect(),
        _ => None,
    };
    let columns =
        columns.ok_or_else(|| lines.malformed(format!("table {name}: missing or unknown columns")))?;
    Ok(Section { table, columns, rows: Vec::new(), count: 0 })
}

impl Section<'_> {
    /// Writes the collected rows, the last of which is at line `last`.
    async fn write(
        &mut self,
        connection: &mut AnyConnection,
        dialect: Dialect,
        last: u64,
    ) -> Result<(), BackupError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let first = last + 1 - rows.len() as u64;
        let width = self.columns.len();
        let tuples: Vec<String> = (0..rows.len())
            .map(|row| {
                let marks: Vec<String> = (1..=width).map(|n| format!("${}", row * width + n)).collect();
                format!("({})", marks.join(", "))
            })
            .collect();
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let statement =
            format!("INSERT INTO {} ({}) VALUES {}", self.table.name, names.join(", "), tuples.join(", "));
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement));
        for (row, line) in rows.into_iter().zip(first..) {
            for ((name, kind), value) in self.columns.iter().zip(row) {
                let wrong_type = || BackupError::Malformed {
                    line,
                    reason: format!("column {name}: value of the wrong type"),
                };
                query = match (kind, value) {
                    (Kind::Text, Value::Null) => query.bind(None::<String>),
                    (Kind::Text, Value::String(text)) => query.bind(text),
                    (Kind::Integer, Value::Null) => query.bind(None::<i64>),
                    (Kind::Integer, Value::Number(number)) => {
                        query.bind(number.as_i64().ok_or_else(wrong_type)?)
                    }
                    (Kind::Bytes, Value::Null) => query.bind(None::<Vec<u8>>),
                    (Kind::Bytes, Value::String(text)) => {
                        query.bind(STANDARD.decode(text).map_err(|_| wrong_type())?)
                    }
                    _ => return Err(wrong_type()),
                };
            }
        }
        match run_step(dialect, query.execute(connection)).await {
            Ok(_) => Ok(()),
            Err(error @ (StoreError::Taken(_) | StoreError::MissingReference | StoreError::Mismatch(_))) => {
                Err(BackupError::Refused { first, last, error })
            }
            // The failure is not caused by the rows.
            Err(error) => Err(error.into()),
        }
    }
}
