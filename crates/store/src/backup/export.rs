//! Export: writes a copy of the database.

use std::io::{BufWriter, Write};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, Row as _};

use super::tables::{self, Kind, Table};
use super::{BackupError, Exported, FORMAT, run_step};
use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::migrations;
use crate::pooled_connection::PooledConnection;
use crate::revocation_log;

/// Rows in one read.
const PAGE: usize = 500;

/// The output, and the digest over the lines written so far.
struct Lines<W: Write> {
    out: BufWriter<W>,
    digest: digest::Context,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, value: &Value) -> Result<(), BackupError> {
        let line = format!("{value}\n");
        self.digest.update(line.as_bytes());
        Ok(self.out.write_all(line.as_bytes())?)
    }
}

pub(crate) async fn run(
    pool: &AnyPool,
    dialect: Dialect,
    out: &mut (impl Write + Send),
) -> Result<Exported, BackupError> {
    let mut loan = run_step(dialect, PooledConnection::acquire(pool)).await?;
    let mut snapshot = run_step(dialect, loan.connection().begin_with(dialect.begin_snapshot())).await?;
    run_step(dialect, snapshot.execute(dialect.relax_timeouts())).await?;
    let mut lines = Lines { out: BufWriter::new(out), digest: digest::Context::new(&digest::SHA256) };

    let head = run_step(dialect, revocation_log::head_within(&mut snapshot)).await?;
    lines.write(&json!({
        "format": FORMAT,
        "schema": migrations::LATEST,
        "epoch": STANDARD.encode(head.epoch.0),
        "seq": head.seq,
    }))?;
    let mut counts = Map::new();
    let mut rows = 0;
    for table in tables::copied_tables() {
        let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        lines.write(&json!({ "table": table.name, "columns": columns }))?;
        let count = write_rows(&mut snapshot, dialect, &table, &mut lines).await?;
        counts.insert(table.name.to_owned(), count.into());
        rows += count;
    }
    let digest = lines.digest.clone().finish();
    lines.write(&super::trailer(&counts, &digest))?;
    lines.out.flush()?;
    Ok(Exported { rows })
}

/// Writes a table page by page, in the order of its key. Returns the number of rows.
async fn write_rows<W: Write + Send>(
    snapshot: &mut AnyConnection,
    dialect: Dialect,
    table: &Table,
    lines: &mut Lines<W>,
) -> Result<u64, BackupError> {
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let (columns, key) = (columns.join(", "), table.key.join(", "));
    let marks: Vec<String> = (1..=table.key.len()).map(|n| format!("${n}")).collect();
    let first = format!("SELECT {columns} FROM {} ORDER BY {key} LIMIT {PAGE}", table.name);
    let next = format!(
        "SELECT {columns} FROM {} WHERE ({key}) > ({}) ORDER BY {key} LIMIT {PAGE}",
        table.name,
        marks.join(", ")
    );
    let mut count = 0;
    let mut last: Option<AnyRow> = None;
    loop {
        let mut query = sqlx::query(sqlx::AssertSqlSafe(if last.is_some() { &*next } else { &*first }));
        if let Some(row) = &last {
            for &name in &table.key {
                let kind = table.columns.iter().find(|(column, _)| *column == name).map(|(_, kind)| *kind);
                query = match kind {
                    Some(Kind::Integer) => query.bind(row.try_get::<i64, _>(name).map_err(StoreError::from)?),
                    Some(Kind::Bytes) => {
                        query.bind(row.try_get::<Vec<u8>, _>(name).map_err(StoreError::from)?)
                    }
                    _ => query.bind(row.try_get::<String, _>(name).map_err(StoreError::from)?),
                };
            }
        }
        let page = run_step(dialect, query.fetch_all(&mut *snapshot)).await?;
        for row in &page {
            lines.write(&values(table, row)?)?;
            count += 1;
        }
        if page.len() < PAGE {
            return Ok(count);
        }
        last = page.into_iter().next_back();
    }
}

/// A row in the form of the copy.
fn values(table: &Table, row: &AnyRow) -> Result<Value, StoreError> {
    let value = |(at, (_, kind)): (usize, &(&str, Kind))| {
        Ok(match kind {
            Kind::Text => row.try_get::<Option<String>, _>(at)?.into(),
            Kind::Integer => row.try_get::<Option<i64>, _>(at)?.into(),
            Kind::Bytes => row.try_get::<Option<Vec<u8>>, _>(at)?.map(|bytes| STANDARD.encode(bytes)).into(),
        })
    };
    table.columns.iter().enumerate().map(value).collect::<Result<Vec<Value>, StoreError>>().map(Value::from)
}
