//! Proof: reads that only a database server that can still commit is able to answer.
//!
//! A demoted primary that has not noticed its demotion can be read for hours. It cannot commit: its
//! standby, which every commit waits for, no longer acknowledges anything. So a read counts only
//! after the commit of a transaction that wrote something to the server's write-ahead log.
//!
//! That write need not be a change. PostgreSQL can write a message to its log
//! (`pg_logical_emit_message`), even in a transaction that must not change tables. Its commit waits
//! like any other, and a standby refuses it. So a database also proves its reads while it accepts
//! no changes. It may be set to read only, its disk may be full, or another transaction may hold
//! row locks.
//!
//! A SQLite file has no second server, and every reader sees what is committed. There a plain read
//! is the proof.
//!
//! Everything that consumers rely on is read this way. Of two pooled connections one may lead to
//! the current primary, and the other to a demoted one. So the statements of one question run in
//! the same transaction, on the same connection, as the read of the head.
//!
//! Owns: the proof, and the questions answered by it: the head, denylist entries, ranges of the
//! log, listed followers. Does not own: changes ([`crate::writer`]), the log
//! ([`crate::revocation_log`]), sharing one read of the head among many callers
//! ([`crate::for_share`]).

use std::sync::Arc;
use std::time::Duration;

use coherence::{LogHead, Tag};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Connection as _, Row as _};
use tokio::time::timeout;

use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::followers;
use crate::pooled_connection::{PooledConnection, timed_out};
use crate::readers::ReadStatement;
use crate::revocation_log::{self, ProveHead};
use crate::shared_read::SharedRead;
use crate::writer::{Change, Tx, Writer};

/// Concurrent proving transactions, besides the one that reads only the head. Leases depend on that
/// one, so it has its own connection. A transaction that waits for a missing standby keeps its slot
/// for [`COMMIT_TIMEOUT`], and must not take one of the readers' connections.
const CONNECTIONS: u32 = 2;
/// How long a commit may take.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts while one server takes over from another.
const ATTEMPTS: usize = 3;
/// SQL that writes a message to the write-ahead log, as part of the transaction. No program reads
/// the message.
const EMIT_MESSAGE: &str = "pg_logical_emit_message(true, 'postern', '')";

/// The head, and the result rows of the question's statements, one list per statement.
pub(crate) type Proven = (LogHead, Vec<Vec<AnyRow>>);

/// What is read together with the head.
#[derive(Debug, Clone)]
pub(crate) enum ProofQuestion {
    HeadOnly,
    /// Those of the given tags that are on the denylist.
    Tags(Vec<Tag>),
    /// A page of the denylist: entries after this tag, and how many at most.
    Page(Option<Tag>, u32),
    /// Log events after this number, and how many at most.
    Range(u64, u32),
    /// All entries of the list of followers.
    Followers(Dialect),
    /// Ids of the followers that are listed and not marked for removal.
    ActiveFollowers,
}

impl ProofQuestion {
    pub(crate) fn statements(&self) -> Vec<ReadStatement<'static>> {
        match self {
            Self::HeadOnly => Vec::new(),
            Self::Tags(tags) => revocation_log::select_denied(tags),
            Self::Page(after, limit) => vec![revocation_log::select_denied_page(*after, *limit)],
            Self::Range(after, limit) => vec![revocation_log::select_events(*after, *limit)],
            Self::Followers(dialect) => vec![followers::select_all(*dialect)],
            Self::ActiveFollowers => vec![sqlx::query("SELECT id FROM followers WHERE beat > 0")],
        }
    }
}

/// How this database proves a read.
#[derive(Clone)]
pub(crate) enum Proof {
    /// SQLite: a plain read is the proof.
    PlainRead,
    /// PostgreSQL: by a message in the write-ahead log.
    Message(Arc<ByMessage>),
    /// PostgreSQL where messages are not allowed: by committing a change.
    Change,
}

/// Connections for proofs by message.
pub(crate) struct ByMessage {
    /// Reads of the head alone; callers at the same time share one read.
    pub(crate) heads: SharedRead<Result<LogHead, StoreError>>,
    head_connections: ProofConnections,
    pub(crate) connections: ProofConnections,
}

/// A pool for proving transactions.
#[derive(Clone)]
pub(crate) struct ProofConnections {
    pool: AnyPool,
    /// How the database reports its incarnation (timeline).
    incarnation: Incarnation,
    writer: Writer,
}

impl Proof {
    /// Detects which kind of proof the database supports.
    pub(crate) async fn detect(
        (url, dialect): (&str, Dialect),
        incarnation: Incarnation,
        writer: &Writer,
        connection: &mut AnyConnection,
    ) -> Result<Self, StoreError> {
        if dialect == Dialect::Sqlite {
            return Ok(Self::PlainRead);
        }
        let ask = format!("SELECT CAST({EMIT_MESSAGE} AS TEXT)");
        match sqlx::query(sqlx::AssertSqlSafe(ask)).fetch_one(connection).await {
            Err(error) if is_unsupported(&error) => {
                tracing::warn!(
                    %error,
                    "pg_logical_emit_message unavailable, revocation queries need writes"
                );
                Ok(Self::Change)
            }
            // Any other error will also show when the function is used, and is handled there.
            _ => {
                let places = async |count| {
                    let pool = dialect.read_pool(url, count).await?;
                    Ok::<_, StoreError>(ProofConnections { pool, incarnation, writer: writer.clone() })
                };
                Ok(Self::Message(Arc::new(ByMessage::new(places(1).await?, places(CONNECTIONS).await?))))
            }
        }
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        if let Self::Message(proof) = self {
            tokio::join!(proof.head_connections.pool.close(), proof.connections.pool.close());
        }
    }
}

/// Whether the function does not exist, or this role may not call it.
fn is_unsupported(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["42883", "42501", "0A000"].contains(&&*code))
}

impl ByMessage {
    fn new(of_heads: ProofConnections, others: ProofConnections) -> Self {
        let places = of_heads.clone();
        let heads = SharedRead::start(move || {
            let places = places.clone();
            async move { Ok(places.prove(&ProofQuestion::HeadOnly).await?.0) }
        });
        Self { heads, head_connections: of_heads, connections: others }
    }
}

impl ProofConnections {
    pub(crate) async fn prove(&self, question: &ProofQuestion) -> Result<Proven, StoreError> {
        for _ in 0..ATTEMPTS {
            let mut loan = PooledConnection::acquire(&self.pool).await?;
            let committed = run_and_commit(loan.connection(), self.incarnation, question.statements());
            let Ok(outcome) = timeout(COMMIT_TIMEOUT, committed).await else {
                return Err(loan.mark_silent("the proving transaction timed out"));
            };
            let (row, answers) = outcome?;
            if row.try_get::<i64, _>(2)? == 1 {
                return Ok((revocation_log::read_head_row(&row)?, answers));
            }
            // Another server wrote last. From here on this is a new history, and the head must
            // record that.
            drop(loan);
            self.writer.write(ProveHead).await?;
        }
        Err(timed_out("the database is failing over: retry"))
    }
}

/// Proof by a change. It reads the head first, so the answers are at least as new as the head says.
pub(crate) struct ByChange(pub(crate) ProofQuestion);

impl Change for ByChange {
    type Output = Proven;
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Proven, StoreError> {
        let head = ProveHead.apply(tx).await?;
        let mut answers = Vec::new();
        for ask in self.0.statements() {
            answers.push(ask.fetch_all(&mut *tx.connection).await?);
        }
        Ok((head, answers))
    }
}

/// Reads the head, compares its incarnation with the current one, and writes the message. It is one
/// statement, so a proxy that distributes statements among servers has the same server do both.
fn head_statement(incarnation: Incarnation) -> String {
    let life = incarnation.sql_expression(Dialect::Postgres);
    format!(
        "SELECT epoch, seq, CAST(CASE WHEN incarnation = {life} THEN 1 ELSE 0 END AS BIGINT), \
         CAST({EMIT_MESSAGE} AS TEXT) FROM invalidation_head WHERE id = 1"
    )
}

/// Runs the proving transaction. Its results count only after the commit.
async fn run_and_commit(
    connection: &mut AnyConnection,
    incarnation: Incarnation,
    asks: Vec<ReadStatement<'static>>,
) -> Result<(AnyRow, Vec<Vec<AnyRow>>), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let head = sqlx::query(sqlx::AssertSqlSafe(head_statement(incarnation)));
    let row = head.fetch_one(&mut *transaction).await?;
    let mut answers = Vec::with_capacity(asks.len());
    for ask in asks {
        answers.push(ask.fetch_all(&mut *transaction).await?);
    }
    transaction.commit().await?;
    Ok((row, answers))
}
