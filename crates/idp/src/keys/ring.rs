//! The key ring: which key signs, which comes next, which are still believed.
//!
//! Owns: the states of a key and the transitions between them. Each takes the old ring and gives the new one
//! or an error; nothing here reads a clock, a database or a random source.
//! Does not own: publication to running requests ([`super::Keys`]), how it is kept ([`super::stored`]).

use std::{sync::Arc, time::Duration};

use auth::{time::Timestamp, token::jws::SigningAlgorithm};
use serde_json::{Value, json};

use super::{
    KeyError, LEAD, RETENTION,
    key::{self, Key},
};

/// Why a transition is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionFault {
    /// The ring has no keys of this algorithm.
    #[error("the key ring has no {} keys", key::name(*.0))]
    NoSuchAlgorithm(SigningAlgorithm),
    /// The next key is not published for long enough; holds the instant from which it is.
    #[error("the next key is too young to sign: caches may not have it before {} (unix seconds)", .ready.as_secs())]
    TooEarly {
        /// From when on rotation works.
        ready: Timestamp,
    },
    /// No key of the ring has this identifier.
    #[error("no key has the identifier {0:?}")]
    NoSuchKey(String),
}

/// Published, does not sign yet.
#[derive(Debug, Clone)]
pub struct Next {
    pub(super) key: Arc<Key>,
    pub(super) since: Timestamp,
}

impl Next {
    /// From when on it may sign.
    pub fn ready(&self) -> Timestamp {
        self.since.plus(LEAD)
    }

    fn activate(self, now: Timestamp) -> Result<Active, TransitionFault> {
        if now < self.ready() {
            Err(TransitionFault::TooEarly { ready: self.ready() })
        } else {
            Ok(self.activate_at_once(now))
        }
    }

    /// Without the wait: its predecessor must not sign any longer.
    fn activate_at_once(self, now: Timestamp) -> Active {
        Active { key: self.key, since: now }
    }
}

/// Signs.
#[derive(Debug, Clone)]
pub struct Active {
    pub(super) key: Arc<Key>,
    pub(super) since: Timestamp,
}

impl Active {
    fn retire(self, now: Timestamp) -> Retired {
        let (kid, jwk) = (self.key.kid().into(), self.key.jwk().clone());
        Retired { kid, jwk, since: now, until: now.plus(RETENTION) }
    }
}

/// Verifies what it signed, cannot sign: only the public half is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired {
    pub(super) kid: Box<str>,
    pub(super) jwk: Value,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
}

/// How far a key has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Signs.
    Active,
    /// Published, signs from `ready` on if it is told to.
    Next {
        /// When it may sign.
        ready: Timestamp,
    },
    /// Verifies what it signed.
    Retired {
        /// When it goes.
        until: Timestamp,
    },
}

/// A key as operators see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyState<'a> {
    /// Its identifier.
    pub kid: &'a str,
    /// RFC 7518 §3.1.
    pub algorithm: &'a str,
    /// Since when it is in its stage.
    pub since: Timestamp,
    /// How far it has come.
    pub stage: Stage,
}

/// The keys of one algorithm that have a private half.
#[derive(Debug, Clone)]
pub struct Slot {
    pub(super) active: Active,
    pub(super) next: Next,
}

impl Slot {
    fn new(algorithm: SigningAlgorithm, now: Timestamp, make: Make) -> Result<Self, KeyError> {
        let (active, next) = (Arc::new(make(algorithm)?), Arc::new(make(algorithm)?));
        Ok(Self { active: Active { key: active, since: now }, next: Next { key: next, since: now } })
    }

    fn algorithm(&self) -> SigningAlgorithm {
        self.active.key.algorithm()
    }
}

/// Makes a key; called only when a transition needs one and nothing else can refuse it any more.
pub type Make = fn(SigningAlgorithm) -> Result<Key, KeyError>;

/// All keys of a provider.
#[derive(Debug, Clone, Default)]
pub struct KeyRing {
    pub(super) slots: Vec<Slot>,
    pub(super) retired: Vec<Retired>,
}

impl KeyRing {
    /// The algorithms, in configured order.
    pub fn algorithms(&self) -> impl Iterator<Item = SigningAlgorithm> {
        self.slots.iter().map(Slot::algorithm)
    }

    /// The key that signs.
    pub fn active(&self, algorithm: SigningAlgorithm) -> Option<&Key> {
        self.slot(algorithm).map(|s| s.active.key.as_ref())
    }

    /// The key that will sign after the next rotation.
    pub fn next(&self, algorithm: SigningAlgorithm) -> Option<&Key> {
        self.slot(algorithm).map(|s| s.next.key.as_ref())
    }

    /// From when on the algorithm can be rotated.
    pub fn ready(&self, algorithm: SigningAlgorithm) -> Option<Timestamp> {
        self.slot(algorithm).map(|s| s.next.ready())
    }

    /// Whether the active key has signed for `period` and the next one may take over.
    pub fn is_due(&self, algorithm: SigningAlgorithm, period: Duration, now: Timestamp) -> bool {
        self.slot(algorithm).is_some_and(|s| now >= s.active.since.plus(period) && now >= s.next.ready())
    }

    /// Since when each active key signs.
    pub fn since(&self, algorithm: SigningAlgorithm) -> Option<Timestamp> {
        self.slot(algorithm).map(|s| s.active.since)
    }

    /// The identifiers of retired keys, newest first.
    pub fn retired(&self) -> impl Iterator<Item = &str> {
        self.retired.iter().map(|r| r.kid.as_ref())
    }

    /// Every key: what signs, what comes next, what retired, in that order.
    pub fn states(&self) -> Vec<KeyState<'_>> {
        let active = self.slots.iter().map(|s| KeyState {
            kid: s.active.key.kid(),
            algorithm: key::name(s.algorithm()),
            since: s.active.since,
            stage: Stage::Active,
        });
        let next = self.slots.iter().map(|s| KeyState {
            kid: s.next.key.kid(),
            algorithm: key::name(s.algorithm()),
            since: s.next.since,
            stage: Stage::Next { ready: s.next.ready() },
        });
        let retired = self.retired.iter().map(|r| KeyState {
            kid: &r.kid,
            algorithm: r.jwk.get("alg").and_then(Value::as_str).unwrap_or_default(),
            since: r.since,
            stage: Stage::Retired { until: r.until },
        });
        active.chain(next).chain(retired).collect()
    }

    /// The JWK Set (RFC 7517 §5), for everyone: active keys, next ones, retired ones.
    pub fn jwks(&self) -> String {
        let active = self.slots.iter().map(|s| s.active.key.jwk());
        let next = self.slots.iter().map(|s| s.next.key.jwk());
        let keys: Vec<&Value> = active.chain(next).chain(self.retired.iter().map(|r| &r.jwk)).collect();
        json!({ "keys": keys }).to_string()
    }

    /// A ring with exactly these algorithms, in this order: missing keys are made, the active key of an
    /// algorithm that is not wanted any longer retires, its next one is dropped (it signed nothing).
    pub fn aligned(
        self,
        algorithms: &[SigningAlgorithm],
        now: Timestamp,
        make: Make,
    ) -> Result<Self, KeyError> {
        if algorithms.is_empty() {
            return Err(KeyError::NoAlgorithm);
        }
        let Self { slots: mut left, mut retired } = self;
        let mut slots: Vec<Slot> = Vec::with_capacity(algorithms.len());
        for &algorithm in algorithms {
            if slots.iter().any(|s| s.algorithm() == algorithm) {
                continue;
            }
            let kept = left.iter().position(|s| s.algorithm() == algorithm).map(|at| left.remove(at));
            slots.push(match kept {
                Some(slot) => slot,
                None => Slot::new(algorithm, now, make)?,
            });
        }
        retired.splice(0..0, left.into_iter().map(|slot| slot.active.retire(now)));
        Ok(Self { slots, retired }.pruned(now))
    }

    /// The next key signs, the active one retires, a new next one is published.
    pub fn rotated(
        mut self,
        algorithm: SigningAlgorithm,
        now: Timestamp,
        make: Make,
    ) -> Result<Self, KeyError> {
        let at = self.slots.iter().position(|s| s.algorithm() == algorithm);
        let at = at.ok_or(TransitionFault::NoSuchAlgorithm(algorithm))?;
        let Slot { active, next } = self.slots.remove(at);
        let successor = next.activate(now)?;
        let next = Next { key: Arc::new(make(algorithm)?), since: now };
        self.slots.insert(at, Slot { active: successor, next });
        self.retired.insert(0, active.retire(now));
        Ok(self.pruned(now))
    }

    /// The ring without the key `kid`, whatever its state. An active key is succeeded by the next one at once,
    /// published for long enough or not: verifiers that do not have it yet will ask for the key set again.
    pub fn revoked(mut self, kid: &str, now: Timestamp, make: Make) -> Result<Self, KeyError> {
        let before = self.retired.len();
        self.retired.retain(|r| r.kid.as_ref() != kid);
        let was_retired = self.retired.len() < before;
        let at = self.slots.iter().position(|s| s.active.key.kid() == kid || s.next.key.kid() == kid);
        if let Some(at) = at {
            let Slot { active, next } = self.slots.remove(at);
            let fresh = Next { key: Arc::new(make(active.key.algorithm())?), since: now };
            let active = if active.key.kid() == kid { next.activate_at_once(now) } else { active };
            self.slots.insert(at, Slot { active, next: fresh });
        } else if !was_retired {
            return Err(TransitionFault::NoSuchKey(kid.to_owned()).into());
        }
        Ok(self.pruned(now))
    }

    /// Without retired keys whose tokens have all expired.
    fn pruned(mut self, now: Timestamp) -> Self {
        self.retired.retain(|r| now < r.until);
        self
    }

    fn slot(&self, algorithm: SigningAlgorithm) -> Option<&Slot> {
        self.slots.iter().find(|s| s.algorithm() == algorithm)
    }
}

/// Equal when the same keys are in the same states since the same instants.
impl PartialEq for KeyRing {
    fn eq(&self, other: &Self) -> bool {
        let slots = |ring: &Self| -> Vec<(String, Timestamp, String, Timestamp)> {
            let row =
                |s: &Slot| (s.active.key.kid().into(), s.active.since, s.next.key.kid().into(), s.next.since);
            ring.slots.iter().map(row).collect()
        };
        slots(self) == slots(other) && self.retired == other.retired
    }
}

impl Eq for KeyRing {}
