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
//! Owns: the proof, and what is asked under it: the head, what is denied, who stands in the list of followers. Does not own: changes
//! ([`crate::write`]), the log ([`crate::invalidation`]).

use std::collections::BTreeSet;
use std::time::Duration;

use coherence::{ConsumerId, Head, Tag};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Connection as _, Row as _};
use tokio::time::timeout;

use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::invalidation::{self, ConfirmDenied, Denied, ProveHead};
use crate::loan::{Loan, lost};
use crate::readers::Ask;
use crate::store::Store;
use crate::storing;

/// Transactions at once. One that waits for a standby that is gone has its place until [`PATIENCE`] is over, and must not take those of readers.
const PLACES: u32 = 2;
/// How long a commit is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often something is asked while servers take over from each other.
const TRIES: usize = 3;
/// Of the log: written by the transaction, and by nobody read.
const MESSAGE: &str = "pg_logical_emit_message(true, 'postern', '')";

/// How a database proves what it says.
#[derive(Clone)]
pub(crate) enum Proof {
    /// It is a file.
    Reading,
    /// By a message in its log; over these connections, in a life that the database tells.
    Message(AnyPool, Incarnation),
    /// By a change, where no message may be written.
    Change,
}

impl Proof {
    /// Looks which of these it is.
    pub(crate) async fn look(
        (url, dialect): (&str, Dialect),
        incarnation: Incarnation,
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
            _ => Ok(Self::Message(dialect.asking_pool(url, PLACES).await?, incarnation)),
        }
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        if let Self::Message(pool, _) = self {
            pool.close().await;
        }
    }
}

/// There is no such function, or it is not this role's to call.
fn is_missing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["42883", "42501", "0A000"].contains(&&*code))
}

impl Store {
    /// The head, of a database that is in force: everything that was durable when this was called is counted in it.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn prove_head(&self) -> Result<Head, StoreError> {
        match self.proof() {
            Proof::Change => self.write(ProveHead).await,
            Proof::Reading | Proof::Message(..) => Ok(self.prove(Vec::new).await?.0),
        }
    }

    /// Which of these are denied, in the same way, with the head that says how much of the log that is at least.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn confirm(&self, tags: Vec<Tag>) -> Result<(Head, Vec<Denied>), StoreError> {
        if matches!(self.proof(), Proof::Change) {
            return self.write(ConfirmDenied(tags)).await;
        }
        let (head, rows) = self.prove(|| invalidation::asks_denied(&tags)).await?;
        let denied = rows.iter().flatten().map(invalidation::read_denied).collect::<Result<_, _>>()?;
        Ok((head, denied))
    }

    /// Which of these stand in the list of followers and are not about to be struck off, in the same way, with the head.
    pub(crate) async fn prove_listed(
        &self,
        followers: &[ConsumerId],
    ) -> Result<(Head, Vec<ConsumerId>), StoreError> {
        // Without a change nothing is proved there, and changes are what is not made now.
        if matches!(self.proof(), Proof::Change) {
            return Err(lost("nothing can be proved while no changes are made"));
        }
        let ask = || vec![sqlx::query("SELECT id FROM followers WHERE beat > 0")];
        let (head, rows) = self.prove(ask).await?;
        let ids = rows.iter().flatten().map(|row| row.try_get::<Vec<u8>, _>(0));
        let ids: BTreeSet<_> = ids.collect::<Result<_, _>>()?;
        Ok((head, followers.iter().copied().filter(|follower| ids.contains(&follower.0[..])).collect()))
    }

    /// Asks the head and then the rest, and proves it. Takes note of a database that does not.
    async fn prove(
        &self,
        asks: impl Fn() -> Vec<Ask<'static>> + Send,
    ) -> Result<(Head, Vec<Vec<AnyRow>>), StoreError> {
        let proven = self.try_prove(asks).await;
        storing::note(self.proving(), &proven);
        proven
    }

    async fn try_prove(
        &self,
        asks: impl Fn() -> Vec<Ask<'static>> + Send,
    ) -> Result<(Head, Vec<Vec<AnyRow>>), StoreError> {
        let Proof::Message(pool, incarnation) = self.proof() else {
            let head = self.head().await?;
            let mut answers = Vec::new();
            for ask in asks() {
                answers.push(self.readers().all(ask).await?);
            }
            return Ok((head, answers));
        };
        for _ in 0..TRIES {
            let mut loan = Loan::of(pool).await?;
            let committed = committed(loan.connection(), *incarnation, asks());
            let Ok(found) = timeout(PATIENCE, committed).await else {
                return Err(loan.silent("what was read was not proved in time"));
            };
            let (row, answers) = found?;
            if row.try_get::<i64, _>(2)? == 1 {
                return Ok((invalidation::read_head(&row)?, answers));
            }
            // Another server wrote last: the history is another one from here on, and that has to be written.
            drop(loan);
            self.write(ProveHead).await?;
        }
        Err(lost("the database fails over"))
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
