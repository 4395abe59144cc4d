//! Pooled connection: one connection, borrowed from a pool.
//!
//! Owns: that the connection returns to the pool or is closed, even if the database does not
//! answer. Does not own: who may borrow one ([`crate::readers`], [`crate::writer`] and others), how
//! long they wait for an answer.
//!
//! A host that loses power, or a cut network, does not close connections: a statement is never
//! answered and never fails. When a connection returns, the pool checks it and waits for the result
//! without limit. Meanwhile the connection occupies one of few slots. So a borrower waits with a
//! timeout and then marks the connection [silent](PooledConnection::silent), and the pool's check
//! has a time limit here.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool};
use tokio::runtime::Handle;

use crate::error::StoreError;

/// How long the pool's check of a returned connection may take. Answers to statements that were not
/// awaited come first.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A borrowed connection; dropping it returns it to the pool.
pub(crate) struct PooledConnection {
    connection: PoolConnection<Any>,
    silent: bool,
}

impl PooledConnection {
    /// A connection of the pool, which has checked it.
    pub(crate) async fn acquire(pool: &AnyPool) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, silent: false })
    }

    pub(crate) fn connection(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }

    /// Marks the connection as silent after a timeout: it is closed in the background. Returns the
    /// error for the caller, with this `message`.
    pub(crate) fn mark_silent(mut self, message: &str) -> StoreError {
        self.silent = true;
        timed_out(message)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self.silent {
            // The pool limits the graceful close to some seconds.
            self.connection.close_on_drop();
            return;
        }
        // The same as the drop of the pool's own guard, with a time limit.
        let looked_at = self.connection.return_to_pool();
        if let Ok(runtime) = Handle::try_current() {
            // After the timeout the connection is closed, and its slot is free.
            runtime.spawn(async move { tokio::time::timeout(CHECK_TIMEOUT, looked_at).await });
        }
    }
}

/// The error for an answer that did not arrive, with its reason.
pub(crate) fn timed_out(message: &str) -> StoreError {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, message.to_owned())).into()
}
