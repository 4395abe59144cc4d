//! Routes from other sources than the file: puts a version of the routing in force.
//!
//! Owns: exchanging the routing of the generation in force, and the sockets of Gateways. Does not
//! own: where the routes come from, the configuration file ([`Gateway::reload`]).
//!
//! Everything else of the generation stays: key sets, cached facts, pools, sessions. So a worker
//! takes a version with one more route by exchanging one reference.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, mpsc};

use http_engine::config::ListenAddress;
use http_engine::listen::Claim;

use super::sockets::{Sockets, bind_listener, listen_options};
use super::{Applied, Gateway, ReloadError, StartError};
use crate::config::{Listener, Listeners, Routing, SocketId};

/// A version of the routing, with the listeners of Gateways.
pub struct RoutesUpdate {
    /// The generation of the configuration whose file the routing begins with.
    pub generation: u64,
    /// The routes of the file, and all others.
    pub routing: Routing,
    /// The listeners of Gateways.
    pub listeners: GatewayListeners,
}

/// What a version of the routing says about the listeners of Gateways.
pub enum GatewayListeners {
    /// They stay as they are.
    Same,
    /// These replace them. Each has a [`Listener::socket`].
    Replaced(Vec<Arc<Listener>>),
}

/// The routing belongs to a configuration that is not in force any more.
#[derive(Debug, thiserror::Error)]
#[error("the routes were made for configuration {made_for}, and configuration {in_force} is in force")]
pub struct StaleRoutes {
    /// The generation that they were made for.
    pub made_for: u64,
    /// The generation in force.
    pub in_force: u64,
}

/// A version of the routing that was sent to all workers.
pub struct PendingRoutes {
    /// Listeners that could not be started, each with the reason. The others are in force.
    pub refused: Vec<(SocketId, StartError)>,
    pending: BTreeSet<usize>,
    confirmations: mpsc::Receiver<usize>,
}

impl PendingRoutes {
    /// Blocks until every worker serves the version, for up to
    /// [`APPLY_TIMEOUT`](super::APPLY_TIMEOUT).
    ///
    /// # Errors
    /// [`ReloadError::Pending`] when a worker does not answer in time.
    pub fn wait(self) -> Result<(), ReloadError> {
        Gateway::wait_for_workers(self.pending, &self.confirmations)
    }
}

impl Gateway {
    /// Puts other routes in force, and other listeners of Gateways. Each request finishes under the
    /// routes that it began with.
    ///
    /// # Errors
    /// [`StaleRoutes`] when another configuration was loaded meanwhile; nothing changes then.
    pub fn update_routes(&self, update: RoutesUpdate) -> Result<PendingRoutes, StaleRoutes> {
        let RoutesUpdate { generation: made_for, routing, listeners } = update;
        let mut applied = self.applied.lock();
        let in_force = applied.generation.config.generation;
        if made_for != in_force {
            return Err(StaleRoutes { made_for, in_force });
        }
        let mut config = (*applied.generation.config).clone();
        config.routing = routing;
        let mut sockets: Vec<Sockets> = self.workers.iter().map(|_| Sockets::new()).collect();
        let mut refused = Vec::new();
        if let GatewayListeners::Replaced(listeners) = listeners {
            config.listeners =
                self.bind_gateways(&config.listeners, listeners, &mut applied, &mut sockets, &mut refused);
        }
        applied.generation.config = Arc::new(config);
        let (pending, confirmations) = self.send(&applied.generation, sockets);
        Ok(PendingRoutes { refused, pending, confirmations })
    }

    /// Binds the new listeners among those of Gateways, each by itself. Answers all listeners that
    /// are in force.
    fn bind_gateways(
        &self,
        former: &Listeners,
        listeners: Vec<Arc<Listener>>,
        applied: &mut Applied,
        sockets: &mut [Sockets],
        refused: &mut Vec<(SocketId, StartError)>,
    ) -> Listeners {
        let Applied { addresses, released, .. } = applied;
        released.retain(|(_, open)| open.strong_count() > 0);
        let closing: Vec<_> = released.iter().map(|(address, _)| address.clone()).collect();
        let claim = |address: &ListenAddress| {
            if closing.iter().any(|own| own.overlaps(address)) { Claim::Shared } else { Claim::Exclusive }
        };
        let options = listen_options(&self.inherited, claim);
        let mut kept: Vec<_> = former.iter().filter(|listener| listener.socket.is_none()).cloned().collect();
        let mut taken: HashSet<_> = kept.iter().map(|listener| listener.address.clone()).collect();
        for listener in listeners {
            let bound = if !taken.insert(listener.address.clone()) {
                Err(taken_address(&listener))
            } else if addresses.contains_key(&listener.address) {
                Ok(())
            } else {
                bind_listener(&listener, self.workers.len(), &options, addresses, sockets)
            };
            match (bound, listener.socket) {
                (Ok(()), _) => kept.push(listener),
                (Err(error), Some(socket)) => refused.push((socket, error)),
                (Err(error), None) => tracing::error!(%error, "listener cannot be started"),
            }
        }
        let listeners: Listeners = kept.into_iter().collect();
        let gone = addresses.extract_if(|address, _| listeners.at(address).is_none());
        released.extend(gone.map(|(address, bound)| (address, bound.open)));
        listeners
    }
}

/// Another listener has the address. Its connections are not this one's, although the socket is open.
fn taken_address(listener: &Listener) -> StartError {
    StartError::Bind {
        name: listener.name.to_string(),
        address: listener.address.clone(),
        source: io::ErrorKind::AddrInUse.into(),
    }
}
