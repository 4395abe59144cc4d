//! Receivers of security events, and the outcome of each delivery.
//!
//! Owns: which receivers there are, what each wants, how it is reached, and the counts that metrics
//! show. Does not own: delivery ([`crate::signals`]), storage of what is to be delivered
//! (`store::security_events`).

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use auth::time::Timestamp;
use auth::token::{jws::SigningAlgorithm, security_event::EventKind};
use aws_lc_rs::constant_time;
use outage::Outage;
use parking_lot::Mutex;
use store::{StoreError, security_events::RegisterReceiver};
use zeroize::Zeroizing;

/// How long an event is kept for delivery. Older events concern credentials that have expired.
pub const MAX_EVENT_AGE: Duration = Duration::from_hours(7 * 24);

/// A bearer secret. `Debug` prints nothing.
#[derive(Clone)]
pub struct Bearer(pub Zeroizing<String>);

impl Bearer {
    /// Whether a presented secret equals this one; compared in constant time.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(shown, self.0.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

/// A receiver of security events.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Name of the receiver, also its key in the store.
    pub name: String,
    /// The `aud` of its security event tokens.
    pub audience: String,
    /// Kinds of events that it receives.
    pub events: Vec<EventKind>,
    /// How events are delivered.
    pub delivery: Delivery,
}

/// Delivery method of a receiver.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Push: the provider posts tokens to the receiver (RFC 8935).
    Push {
        /// URL of the receiver's endpoint.
        endpoint: String,
        /// Secret with which the provider authenticates to the receiver.
        bearer: Bearer,
    },
    /// Poll: the receiver fetches tokens (RFC 8936).
    Poll {
        /// Secret with which the receiver authenticates to the provider.
        bearer: Bearer,
    },
}

impl Receiver {
    /// Whether it receives events of this kind.
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.events.contains(&kind)
    }
}

/// All receivers, with the outcomes of deliveries.
#[derive(Debug)]
pub(crate) struct Receivers {
    pub(crate) all: Vec<Arc<Receiver>>,
    pub(crate) algorithm: SigningAlgorithm,
    counts: Mutex<BTreeMap<(String, &'static str), u64>>,
    /// Outages of the receivers, by name.
    outages: BTreeMap<String, Outage>,
}

/// Number of deliveries to one receiver with one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySample {
    /// Name of the receiver.
    pub receiver: String,
    /// `delivered`, `refused` (the receiver rejected the token), `failed` (retried) or `given_up`.
    pub outcome: &'static str,
    /// Number of events.
    pub count: u64,
}

impl Receivers {
    pub(crate) fn new(all: Vec<Receiver>, algorithm: SigningAlgorithm) -> Self {
        let outage = |receiver: &Receiver| {
            let outage = Outage::new(format!("event receiver {}", receiver.name));
            (receiver.name.clone(), outage.with_effect("events are queued and delivered later"))
        };
        let outages = all.iter().map(outage).collect();
        Self { all: all.into_iter().map(Arc::new).collect(), algorithm, counts: Mutex::default(), outages }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Registers the receivers in the store; each receives events that occur from then on.
    pub(crate) async fn register(&self, store: &store::Store, now: Timestamp) -> Result<(), StoreError> {
        for receiver in &self.all {
            store.write(RegisterReceiver { receiver: receiver.name.clone(), now }).await?;
        }
        Ok(())
    }

    /// The polling receiver of this name, with its secret.
    pub(crate) fn poll_receiver(&self, name: &str) -> Option<(&Receiver, &Bearer)> {
        self.all.iter().find(|receiver| receiver.name == name).and_then(|receiver| match &receiver.delivery {
            Delivery::Poll { bearer } => Some((&**receiver, bearer)),
            Delivery::Push { .. } => None,
        })
    }

    pub(crate) fn methods(&self) -> Vec<&'static str> {
        let has =
            |poll: bool| self.all.iter().any(|one| matches!(one.delivery, Delivery::Poll { .. }) == poll);
        let all = [(has(false), "urn:ietf:rfc:8935"), (has(true), "urn:ietf:rfc:8936")];
        all.into_iter().filter_map(|(there, method)| there.then_some(method)).collect()
    }

    /// Records the result of a push to a receiver; `Err` holds the reason of the failure.
    pub(crate) fn record_push(&self, receiver: &str, result: Result<(), &dyn std::fmt::Display>) {
        if let Some(outage) = self.outages.get(receiver) {
            outage.record(&result);
        }
    }

    pub(crate) fn record_outcome(&self, receiver: &str, outcome: &'static str, increment: u64) {
        if increment > 0 {
            *self.counts.lock().entry((receiver.to_owned(), outcome)).or_default() += increment;
        }
    }

    /// Records events that expired before the receiver took them.
    pub(crate) fn record_dropped(&self, receiver: &str, events: u64) {
        if events > 0 {
            tracing::warn!(receiver, events, "dropped events not delivered within a week");
        }
        self.record_outcome(receiver, "given_up", events);
    }

    pub(crate) fn samples(&self) -> Vec<DeliverySample> {
        let sample = |((receiver, outcome), count): (&(String, &'static str), &u64)| DeliverySample {
            receiver: receiver.clone(),
            outcome,
            count: *count,
        };
        self.counts.lock().iter().map(sample).collect()
    }
}
