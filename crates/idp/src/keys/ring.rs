//! Key ring: which key signs, which is next, and which only verify.
//!
//! Owns: the stages of a key and the transitions between them. A transition takes the old ring and
//! returns the new one or an error. It reads neither clock, database nor random source.
//!
//! Does not own: publication to running requests ([`super::Keys`]), storage ([`super::stored`]).

use std::{sync::Arc, time::Duration};

use auth::{time::Timestamp, token::jws::SigningAlgorithm};
use serde_json::{Value, json};

use super::{
    KeyError, LEAD, RETENTION,
    key::{self, Key},
};

/// Reason why a transition is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionFault {
    /// The ring has no keys of this algorithm.
    #[error("the key ring has no {} keys", key::name(*.0))]
    NoSuchAlgorithm(SigningAlgorithm),
    /// The next key is not published for long enough.
    #[error("next key too recent: caches may lack it before {ready}, try later")]
    TooEarly {
        /// When rotation becomes possible.
        ready: Timestamp,
    },
    /// No key of the ring has this id.
    #[error("key {0:?} not found")]
    NoSuchKey(String),
}

/// A key that is published and does not sign yet.
#[derive(Debug, Clone)]
pub struct Next {
    pub(super) key: Arc<Key>,
    pub(super) since: Timestamp,
}

impl Next {
    /// When the key may begin to sign.
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

    /// Activates the key without the wait, because its predecessor must no longer sign.
    fn activate_at_once(self, now: Timestamp) -> Active {
        Active { key: self.key, since: now }
    }
}

/// A key that signs new tokens.
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

/// A key that verifies its tokens but cannot sign: the private key is destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired {
    pub(super) kid: Box<str>,
    pub(super) jwk: Value,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
}

/// Stage in the life of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The key signs new tokens.
    Active,
    /// The key is published; a rotation may activate it from `ready` on.
    Next {
        /// When it may begin to sign.
        ready: Timestamp,
    },
    /// The key only verifies its tokens.
    Retired {
        /// When it is no longer published.
        until: Timestamp,
    },
}

/// A key with its stage, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyState<'a> {
    /// Id of the key (RFC 7638).
    pub kid: &'a str,
    /// Signature algorithm (RFC 7518 §3.1).
    pub algorithm: &'a str,
    /// Start of the stage.
    pub since: Timestamp,
    /// Stage of the key.
    pub stage: Stage,
}

/// The active and the next key of one algorithm, with private keys.
#[derive(Debug, Clone)]
pub struct Slot {
    pub(super) active: Active,
    pub(super) next: Next,
}

impl Slot {
    fn new(algorithm: SigningAlgorithm, now: Timestamp, make: GenerateKey) -> Result<Self, KeyError> {
        let (active, next) = (Arc::new(make(algorithm)?), Arc::new(make(algorithm)?));
        Ok(Self { active: Active { key: active, since: now }, next: Next { key: next, since: now } })
    }

    fn algorithm(&self) -> SigningAlgorithm {
        self.active.key.algorithm()
    }
}

/// Generates a key. Called only when a transition needs one and cannot fail for another reason.
pub type GenerateKey = fn(SigningAlgorithm) -> Result<Key, KeyError>;

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

    /// The active key of an algorithm.
    pub fn active(&self, algorithm: SigningAlgorithm) -> Option<&Key> {
        self.slot(algorithm).map(|s| s.active.key.as_ref())
    }

    /// The next key of an algorithm.
    pub fn next(&self, algorithm: SigningAlgorithm) -> Option<&Key> {
        self.slot(algorithm).map(|s| s.next.key.as_ref())
    }

    /// When the algorithm can be rotated.
    pub fn ready(&self, algorithm: SigningAlgorithm) -> Option<Timestamp> {
        self.slot(algorithm).map(|s| s.next.ready())
    }

    /// Whether the active key has signed for `period` and the next key may be activated.
    pub fn is_due(&self, algorithm: SigningAlgorithm, period: Duration, now: Timestamp) -> bool {
        self.slot(algorithm).is_some_and(|s| now >= s.active.since.plus(period) && now >= s.next.ready())
    }

    /// When the active key of an algorithm began to sign.
    pub fn since(&self, algorithm: SigningAlgorithm) -> Option<Timestamp> {
        self.slot(algorithm).map(|s| s.active.since)
    }

    /// Ids of the retired keys, newest first.
    pub fn retired(&self) -> impl Iterator<Item = &str> {
        self.retired.iter().map(|r| r.kid.as_ref())
    }

    /// All keys: first active, then next, then retired ones.
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

    /// The public JWK set (RFC 7517 §5): active, next and retired keys.
    pub fn jwks(&self) -> String {
        let active = self.slots.iter().map(|s| s.active.key.jwk());
        let next = self.slots.iter().map(|s| s.next.key.jwk());
        let keys: Vec<&Value> = active.chain(next).chain(self.retired.iter().map(|r| &r.jwk)).collect();
        json!({ "keys": keys }).to_string()
    }

    /// Aligns the ring with these algorithms, in this order. Missing keys are created. For any
    /// other algorithm the active key retires and the next key, which signed nothing, is dropped.
    ///
    /// # Errors
    /// [`KeyError`] when there is no algorithm, or a key cannot be created.
    pub fn aligned(
        self,
        algorithms: &[SigningAlgorithm],
        now: Timestamp,
        make: GenerateKey,
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
            let previous = left.iter().position(|s| s.algorithm() == algorithm).map(|at| left.remove(at));
            slots.push(match previous {
                Some(slot) => slot,
                None => Slot::new(algorithm, now, make)?,
            });
        }
        retired.splice(0..0, left.into_iter().map(|slot| slot.active.retire(now)));
        Ok(Self { slots, retired }.pruned(now))
    }

    /// Activates the next key, retires the active one, and creates a new next one.
    ///
    /// # Errors
    /// [`TransitionFault`] when there is no such algorithm or the next key is too recent;
    /// [`KeyError`] when a key cannot be created.
    pub fn rotated(
        mut self,
        algorithm: SigningAlgorithm,
        now: Timestamp,
        make: GenerateKey,
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

    /// Removes the key `kid` in any stage. The next key replaces an active one immediately, even if
    /// it was not published for long enough: verifiers without it request the key set again.
    ///
    /// # Errors
    /// [`TransitionFault::NoSuchKey`] when there is no such key; [`KeyError`] when a key cannot be
    /// created.
    pub fn revoked(mut self, kid: &str, now: Timestamp, make: GenerateKey) -> Result<Self, KeyError> {
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

    /// Removes retired keys whose tokens have all expired.
    fn pruned(mut self, now: Timestamp) -> Self {
        self.retired.retain(|r| now < r.until);
        self
    }

    fn slot(&self, algorithm: SigningAlgorithm) -> Option<&Slot> {
        self.slots.iter().find(|s| s.algorithm() == algorithm)
    }
}

/// Rings are equal if the same keys have the same stages since the same times.
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
