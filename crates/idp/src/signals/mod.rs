//! Telling others what happened here (`OpenID` Shared Signals Framework 1.0, CAEP 1.0): a transmitter of security events.
//!
//! Owns: who is told ([`Receivers`]), what of ([`Receiver::wants`]), telling those who are pushed to (RFC 8935, `push`), and counting it.
//! Does not own: what happened (the store keeps it beside the log, in the transaction that made it happen), the tokens ([`set`]),
//! those who fetch ([`crate::endpoint::signals`]).
//!
//! Flow: `ending → Revocation.occurrence → store: log and occurrence in one transaction → tend: push::deliver → TakeReceiver → push each →
//! GiveBack`.
//!
//! Each receiver hears everything in the order in which it happened, at least once. One node tells it at a time. What cannot be
//! delivered is tried again, and everything after it waits, so that nobody hears of a login before the logout it followed; what is
//! older than [`GIVEN_UP`] is given up. A receiver that says that a token is no good (400) will say so again, and is not told again.

pub(crate) mod push;
pub mod set;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use auth::time::Timestamp;
use auth::token::{jws::SigningAlgorithm, security_event::EventKind};
use aws_lc_rs::constant_time;
use outage::Outage;
use parking_lot::Mutex;
use store::{StoreError, security_events::Register};
use zeroize::Zeroizing;

/// What is older is not told any more: whatever it was about has expired where it matters.
pub const GIVEN_UP: Duration = Duration::from_hours(7 * 24);

/// A secret that only its holders know. `Debug` prints nothing.
#[derive(Clone)]
pub struct Bearer(pub Zeroizing<String>);

impl Bearer {
    /// Whether somebody shows it.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(shown, self.0.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

/// Somebody who is told.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// What it is called; names it in the store.
    pub name: String,
    /// The `aud` of what it is told.
    pub audience: String,
    /// What it is told of.
    pub events: Vec<EventKind>,
    /// How.
    pub delivery: Delivery,
}

/// How somebody is told.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Tokens are sent there (RFC 8935).
    Push {
        /// Where.
        endpoint: String,
        /// What shows there who we are.
        bearer: Bearer,
    },
    /// It fetches them (RFC 8936).
    Poll {
        /// What shows here who it is.
        bearer: Bearer,
    },
}

impl Receiver {
    /// Whether it is told of such events.
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.events.contains(&kind)
    }
}

/// Everybody who is told, and what came of it.
#[derive(Debug)]
pub(crate) struct Receivers {
    all: Vec<Arc<Receiver>>,
    pub(crate) algorithm: SigningAlgorithm,
    counts: Mutex<BTreeMap<(String, &'static str), u64>>,
    /// Of each that is pushed to.
    outages: BTreeMap<String, Outage>,
}

/// How often something came of telling a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldSample {
    /// Whom.
    pub receiver: String,
    /// `delivered`, `refused` (it says that the token is no good), `failed` (tried again) or `given_up`.
    pub outcome: &'static str,
    /// How often.
    pub count: u64,
}

impl Receivers {
    pub(crate) fn new(all: Vec<Receiver>, algorithm: SigningAlgorithm) -> Self {
        let outage = |receiver: &Receiver| {
            let outage = Outage::of(format!("event receiver {}", receiver.name));
            (receiver.name.clone(), outage.with_effect("events are kept and told later"))
        };
        let outages = all.iter().map(outage).collect();
        Self { all: all.into_iter().map(Arc::new).collect(), algorithm, counts: Mutex::default(), outages }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes them known to the store: they hear what happens from then on.
    pub(crate) async fn register(&self, store: &store::Store, now: Timestamp) -> Result<(), StoreError> {
        for receiver in &self.all {
            store.write(Register { receiver: receiver.name.clone(), now }).await?;
        }
        Ok(())
    }

    /// One who fetches.
    pub(crate) fn polling(&self, name: &str) -> Option<(&Receiver, &Bearer)> {
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

    /// Takes note of whether one that is pushed to could be told; `Err` holds why not.
    pub(crate) fn note(&self, receiver: &str, told: Result<(), &dyn std::fmt::Display>) {
        if let Some(outage) = self.outages.get(receiver) {
            outage.note(&told);
        }
    }

    pub(crate) fn count(&self, receiver: &str, outcome: &'static str, by: u64) {
        if by > 0 {
            *self.counts.lock().entry((receiver.to_owned(), outcome)).or_default() += by;
        }
    }

    /// So many events were not heard in time, and will not be.
    pub(crate) fn gave_up(&self, receiver: &str, events: u64) {
        if events > 0 {
            tracing::warn!(receiver, events, "events that nobody took for a week are given up");
        }
        self.count(receiver, "given_up", events);
    }

    pub(crate) fn samples(&self) -> Vec<ToldSample> {
        let sample = |((receiver, outcome), count): (&(String, &'static str), &u64)| ToldSample {
            receiver: receiver.clone(),
            outcome,
            count: *count,
        };
        self.counts.lock().iter().map(sample).collect()
    }
}
