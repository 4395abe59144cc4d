//! Handoff between workers: shared connection counts, commands, and the number of tasks per turn.

use std::net::SocketAddr;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use http_engine::config::ListenAddress;
use http_engine::listen::AcceptedConnection;
use tokio::sync::mpsc::UnboundedSender;

use super::{Generation, OpenCount, Sockets};

/// Tasks started or woken before all other tasks get a turn. Thousands of connections that arrive
/// or time out together must not delay tasks that carry requests.
pub(crate) const TASKS_PER_TURN: usize = 16;

/// A command for a worker thread.
pub(crate) enum Command {
    /// Apply a configuration, listen on the sockets of its new addresses, then confirm with the
    /// worker's index.
    Apply(Box<Generation>, Sockets, mpsc::Sender<usize>),
    /// Answer with the worker's index.
    Ping(mpsc::Sender<usize>),
    /// Serve a connection that another worker accepted.
    Adopt(Accepted),
    /// Stop accepting; end after the last connection, or after `timeout`.
    Drain { timeout: Duration },
    /// End immediately.
    Stop,
}

/// An accepted connection that is not served yet.
pub(crate) struct Accepted {
    pub(crate) socket: AcceptedConnection,
    pub(crate) peer: SocketAddr,
    /// Configured address of the listener.
    pub(crate) listener: ListenAddress,
}

/// The state of a worker that others read, and its command queue.
#[derive(Default)]
pub(crate) struct Handoff {
    /// Number of its open connections.
    pub(crate) open: OpenCount,
    commands: OnceLock<UnboundedSender<Command>>,
}

impl Handoff {
    pub(crate) fn set_commands(&self, commands: UnboundedSender<Command>) {
        // Set once, before the worker starts.
        let _ = self.commands.set(commands);
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), Command> {
        match self.commands.get() {
            Some(commands) => commands.send(command).map_err(|e| e.0),
            None => Err(command),
        }
    }
}
