//! One connection of a pool, out on loan.
//!
//! Owns: that it comes back to the pool or is closed, whatever the database does. Does not own: who is lent one
//! ([`crate::readers`], [`crate::write`], and whoever takes steps of their own), and how long they wait for an answer.
//!
//! A host that loses power, or a network that is cut, ends no connection: what was asked is never answered, and never fails. The pool
//! looks at whatever comes back, and waits for what it sees without an end to its patience; as long as it does, the connection has its
//! place, and there are few. So whoever asks waits for so long and then says that the connection is [silent](Loan::silent), and the
//! pool's look has an end here.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool};
use tokio::runtime::Handle;

use crate::error::StoreError;

/// How long the pool may look at what comes back: behind what was asked on it and not waited for.
const LOOK: Duration = Duration::from_secs(5);

/// A connection that goes back when it is let go of.
pub(crate) struct PooledConnection {
    connection: PoolConnection<Any>,
    silent: bool,
}

impl PooledConnection {
    /// One of the pool's, which has looked at it.
    pub(crate) async fn of(pool: &AnyPool) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, silent: false })
    }

    pub(crate) fn connection(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }

    /// It has not answered in time. It is closed, which nobody waits for; what whoever has waited in vain is told.
    pub(crate) fn silent(mut self, what: &str) -> StoreError {
        self.silent = true;
        lost(what)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self.silent {
            // The pool gives up saying farewell after some seconds.
            self.connection.close_on_drop();
            return;
        }
        // What the pool's own connection does when it is let go of, but for the end of it.
        let looked_at = self.connection.return_to_pool();
        if let Ok(runtime) = Handle::try_current() {
            // When the time is over the connection is closed, and its place is free.
            runtime.spawn(async move { tokio::time::timeout(LOOK, looked_at).await });
        }
    }
}

/// What somebody is told who has waited in vain.
pub(crate) fn lost(what: &str) -> StoreError {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, what.to_owned())).into()
}
