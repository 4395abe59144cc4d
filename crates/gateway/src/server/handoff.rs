//! What workers see of each other, what they are told and hand over, and how much of it they do in one turn.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use http_engine::config::ListenAddress;
use http_engine::listen::Connected;
use tokio::sync::mpsc::UnboundedSender;

use super::{Generation, OpenCount, Sockets};

/// Tasks begun or woken before everything else has its turn: connections that come, or run out of time, by the
/// thousand must not hold up those that carry requests.
pub(crate) const TURN: usize = 16;

/// What a worker is told.
pub(crate) enum Command {
    /// Put a configuration into force; the sockets are those of its new addresses.
    Apply(Box<Generation>, Sockets),
    /// A connection another worker accepted.
    Adopt(Accepted),
    /// Accept no more; end when the last connection has, or after `timeout`.
    Drain { timeout: Duration },
    /// End now.
    Stop,
}

/// A connection not yet served.
pub(crate) struct Accepted {
    pub(crate) socket: Connected,
    pub(crate) peer: SocketAddr,
    /// Configured address of the listener.
    pub(crate) listener: ListenAddress,
}

/// What the other workers see of one.
#[derive(Default)]
pub(crate) struct Handoff {
    /// Its open connections.
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
