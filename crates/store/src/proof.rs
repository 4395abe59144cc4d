//! What a database says that is certain to be in force.
//!
//! A server that was deposed and does not know it can be read for hours. What it cannot do is commit: its standby, which each commit waits for,
//! acknowledges nothing any more. So what was read counts once a transaction is committed that has written something to the server's log.
//!
//! That need not be a change. A message in the log of PostgreSQL (`pg_logical_emit_message`) may be written by a transaction that may change nothing; its
//! commit waits like any other; a standby refuses it. So a database proves what it says also while it takes no changes: one that is set to read only, whose
//! disk has no room for tables, or whose rows somebody holds.
//!
//! A file has no second server, and whoever reads it sees what is committed: there reading is the proof.
//!
//! So all that followers go by is asked so: of two connections one may lead to the server in force, and the other to one that was deposed. What is
//! asked beside the head goes over the same connection, in the same transaction.
//!
//! Owns: the proof, and what is asked under it: the head, what is denied, stretches of the log, who stands in the list of followers. Does not
//! own: changes ([`crate::write`]), the log ([`crate::invalidation`]), that one reading of the head serves many ([`crate::shared`]).

use std::sync::Arc;
use std::time::Duration;

use coherence::{LogHead, Tag};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Connection as _, Row as _};
use tokio::time::timeout;

use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::followers;
use crate::invalidation::{self, ProveHead};
use crate::pooled::{PooledConnection, lost};
use crate::readers::Ask;
use crate::shared::SharedRead;
use crate::write::{Change, Tx, Writer};

/// Transactions at once, beside the one that reads the head alone: leases rest on that, and it waits for no others. One that waits for a standby that is
/// gone has its place until [`PATIENCE`] is over, and must not take those of readers.
const PLACES: u32 = 2;
/// How long a commit is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often something is asked while servers take over from each other.
const TRIES: usize = 3;
/// Of the log: written by the transaction, and by nobody read.
const MESSAGE: &str = "pg_logical_emit_message(true, 'postern', '')";

/// The head, and the rows that answer whatever else was asked.
pub(crate) type Proven = (LogHead, Vec<Vec<AnyRow>>);

/// What is asked beside the head.
#[derive(Debug, Clone)]
pub(crate) enum ProofQuestion {
    Nothing,
    /// Which of these are denied.
    Tags(Vec<Tag>),
    /// What is denied, after a tag, and how many.
    Page(Option<Tag>, u32),
    /// Events after a number, and how many.
    Range(u64, u32),
    /// Everybody who follows.
    Followers(Dialect),
    /// Who of them is not about to be struck off.
    Listed,
}

impl ProofQuestion {
    pub(crate) fn asks(&self) -> Vec<Ask<'static>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Tags(tags) => invalidation::asks_denied(tags),
            Self::Page(after, limit) => vec![invalidation::ask_page(*after, *limit)],
            Self::Range(after, limit) => vec![invalidation::ask_range(*after, *limit)],
            Self::Followers(dialect) => vec![followers::ask(*dialect)],
            Self::Listed => vec![sqlx::query("SELECT id FROM followers WHERE beat > 0")],
        }
    }
}

/// How a database proves what it says.
#[derive(Clone)]
pub(crate) enum Proof {
    /// It is a file.
    Reading,
    /// By a message in its log.
    Message(Arc<ByMessage>),
    /// By a change, where no message may be written.
    Change,
}

/// Proves by messages.
pub(crate) struct ByMessage {
    /// The head alone, once for all who ask at once.
    pub(crate) heads: SharedRead<Result<LogHead, StoreError>>,
    of_heads: ProofConnections,
    pub(crate) others: ProofConnections,
}

/// Where transactions that prove something are made.
#[derive(Clone)]
pub(crate) struct ProofConnections {
    pool: AnyPool,
    /// The life that the database tells.
    incarnation: Incarnation,
    writer: Writer,
}

impl Proof {
    /// Looks which of these it is.
    pub(crate) async fn look(
        (url, dialect): (&str, Dialect),
        incarnation: Incarnation,
        writer: &Writer,
        connection: &mut AnyConnection,
    ) -> Result<Self, StoreError> {
        if dialect == Dialect::Sqlite {
            return Ok(Self::Reading);
        }
        let ask = format!("SELECT CAST({MESSAGE} AS TEXT)");
        match sqlx::query(sqlx::AssertSqlSafe(ask)).fetch_one(connection).await {
            Err(error) if is_missing(&error) => {
                tracing::warn!(
                    %error,
                    "the database lets no message be written to its log: while it takes no changes, nobody who follows is answered"
                );
                Ok(Self::Change)
            }
            // Whatever else was wrong shows where it matters.
            _ => {
                let places = async |count| {
                    let pool = dialect.asking_pool(url, count).await?;
                    Ok::<_, StoreError>(ProofConnections { pool, incarnation, writer: writer.clone() })
                };
                Ok(Self::Message(Arc::new(ByMessage::new(places(1).await?, places(PLACES).await?))))
            }
        }
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        if let Self::Message(proof) = self {
            tokio::join!(proof.of_heads.pool.close(), proof.others.pool.close());
        }
    }
}

/// There is no such function, or it is not this role's to call.
fn is_missing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["42883", "42501", "0A000"].contains(&&*code))
}

impl ByMessage {
    fn new(of_heads: ProofConnections, others: ProofConnections) -> Self {
        let places = of_heads.clone();
        let heads = SharedRead::start(move || {
            let places = places.clone();
            async move { Ok(places.prove(&ProofQuestion::Nothing).await?.0) }
        });
        Self { heads, of_heads, others }
    }
}

impl ProofConnections {
    pub(crate) async fn prove(&self, asked: &ProofQuestion) -> Result<Proven, StoreError> {
        for _ in 0..TRIES {
            let mut loan = PooledConnection::of(&self.pool).await?;
            let committed = committed(loan.connection(), self.incarnation, asked.asks());
            let Ok(found) = timeout(PATIENCE, committed).await else {
                return Err(loan.silent("what was read was not proved in time"));
            };
            let (row, answers) = found?;
            if row.try_get::<i64, _>(2)? == 1 {
                return Ok((invalidation::read_head(&row)?, answers));
            }
            // Another server wrote last: the history is another one from here on, and that has to be written.
            drop(loan);
            self.writer.write(ProveHead).await?;
        }
        Err(lost("the database fails over"))
    }
}

/// The same by a change: the head first, so that what is told knows at least that much.
pub(crate) struct ByChange(pub(crate) ProofQuestion);

impl Change for ByChange {
    type Output = Proven;
    const LOCKS_HEAD: bool = true;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Proven, StoreError> {
        let head = ProveHead.apply(tx).await?;
        let mut answers = Vec::new();
        for ask in self.0.asks() {
            answers.push(ask.fetch_all(&mut *tx.connection).await?);
        }
        Ok((head, answers))
    }
}

/// The head, whether this life of the database wrote it, and the message: in one statement, so that whatever hands statements to servers has both done
/// by the same one.
fn ask_and_write(incarnation: Incarnation) -> String {
    let life = incarnation.of(Dialect::Postgres);
    format!(
        "SELECT epoch, seq, CAST(CASE WHEN incarnation = {life} THEN 1 ELSE 0 END AS BIGINT), \
         CAST({MESSAGE} AS TEXT) FROM invalidation_head WHERE id = 1"
    )
}

/// Nothing of this counts unless it is committed.
async fn committed(
    connection: &mut AnyConnection,
    incarnation: Incarnation,
    asks: Vec<Ask<'static>>,
) -> Result<(AnyRow, Vec<Vec<AnyRow>>), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let head = sqlx::query(sqlx::AssertSqlSafe(ask_and_write(incarnation)));
    let row = head.fetch_one(&mut *transaction).await?;
    let mut answers = Vec::with_capacity(asks.len());
    for ask in asks {
        answers.push(ask.fetch_all(&mut *transaction).await?);
    }
    transaction.commit().await?;
    Ok((row, answers))
}
