//! Transports that carry revocations between processes.

use std::sync::Arc;
use std::time::Duration;

use coherence::PeerName;
use coherence::transport::Transport;
use coherence::transport::amqp::{self, Amqp};
use coherence::transport::memory::Memory;
use coherence::transport::multi::MultiTransport;
use coherence::transport::nats;
use coherence::transport::postgres;
use config::Broker;
use outage::Outage;
use tokio::runtime::Handle;

use crate::exit::Failure;
use crate::revocation::random::random;

/// What a process uses to exchange messages beyond a provider's own nodes.
#[derive(Clone)]
pub struct LogTransports {
    /// Connection to a message broker. `None`: no broker is configured.
    pub broker: Option<Arc<dyn Transport>>,
    /// Lease: how long an entry stays valid after the probe that renewed it was sent.
    pub lease: Duration,
    /// Name of this process for the issuers that it follows.
    pub called: PeerName,
}

impl LogTransports {
    /// Opens the configured transports. Connections run on this runtime.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn open(config: &config::RevocationSettings, called: PeerName, on: &Handle) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let broker: Option<Arc<dyn Transport>> = match &config.broker {
            None => None,
            Some(Broker::Nats(config)) => Some(Arc::new(nats::connect(config.clone()))),
            Some(Broker::Amqp(settings)) => {
                let seed = u64::from_le_bytes(random()?);
                Some(Arc::new(Amqp::start(amqp::AmqpSettings { seed, ..settings.clone() })))
            }
        };
        Ok(Self { broker, lease: config.lease, called })
    }
}

/// Transports between processes that share a database: within one process, and over the database if
/// it can carry messages. Call it within the runtime of the connections.
pub fn database_transports(database: &config::DatabaseSettings, outage: &Outage) -> Vec<Arc<dyn Transport>> {
    let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(Memory::default())];
    if let Some(messages) = &database.messages {
        transports.push(Arc::new(postgres::connect(messages.clone(), outage.another_way())));
    }
    transports
}

/// Combines several transports into one.
pub fn combine_transports(mut ways: Vec<Arc<dyn Transport>>) -> Arc<dyn Transport> {
    match ways.pop() {
        Some(only) if ways.is_empty() => only,
        last => {
            ways.extend(last);
            Arc::new(MultiTransport::new(ways))
        }
    }
}
