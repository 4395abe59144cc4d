//! Signing keys: created and published before they sign, and still published after they stop
//! signing.
//!
//! Owns: the life cycle of keys ([`ring`]), one key ([`key`]), storage ([`stored`]), and [`Keys`],
//! which signs with the current ring and changes it while requests run.
//!
//! Does not own: signatures and key formats (`auth::token::jws`), the database (`store`).
//!
//! ```text
//! next ──rotate──▶ active ──rotate──▶ retired ──RETENTION, then a change or start──▶ gone
//!  published,        signs             published, private half destroyed
//!  does not sign
//! ```
//!
//! Two kinds of key may sign without having been published for [`LEAD`]: the first key of an
//! algorithm, which has no predecessor, and the successor of a revoked key. A revoked key is
//! removed immediately.
//!
//! The ring is one sealed row of the store. A change replaces the version that was read, so nodes
//! change it one after another, and each node reads it again ([`Keys::refresh`]) well within
//! [`LEAD`]. A change is made durable before it becomes visible, so every signing key is in the
//! store.

pub mod key;
pub mod ring;
pub mod stored;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use auth::algorithm::AlgorithmSet;
use auth::keyset::KeySet;
use auth::time::Timestamp;
pub use auth::token::jws::SigningAlgorithm;
use auth::token::jwt;
use aws_lc_rs::digest;
use axum::body::Bytes;
use serde::Serialize;
use store::audit::{AuditEntry, Audited};
use store::key_ring::{KeyRingRow, ReplaceKeyRing};
use store::{Revocation, RevocationReach, Store, StoreError};

use self::{
    key::Key,
    ring::{KeyRing, TransitionFault},
};
use crate::{
    Entropy, EntropyFailed, lifetime,
    secrets::{Purpose, Secrets, TagSubject},
};

/// How long caches may store the key set; sent as `Cache-Control`.
pub const JWKS_MAX_AGE: Duration = Duration::from_mins(5);
/// Time for which a key is published, at least, before a rotation lets it sign. It covers every
/// cache of the key set, slow ones included.
pub const LEAD: Duration = Duration::from_secs(2 * JWKS_MAX_AGE.as_secs());
/// Time for which a key stays published, at least, after its last signature: the longest token
/// lifetime plus one minute of clock skew. The next change of the ring or start removes it.
pub const RETENTION: Duration = Duration::from_secs(lifetime::MAX_ACCESS_TOKEN.as_secs() + 60);
/// Attempts of a change that conflicts with changes of other nodes.
const MAX_ATTEMPTS: usize = 5;

/// Error of an operation on keys.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The transition is not possible now.
    #[error(transparent)]
    Transition(#[from] TransitionFault),
    /// The list of algorithms is empty.
    #[error("no signing algorithm: configure at least one")]
    NoAlgorithm,
    /// The cryptographic library failed to generate a key.
    #[error("generating a {} key failed: {source}", key::name(*.algorithm))]
    Generate {
        /// Algorithm of the key.
        algorithm: SigningAlgorithm,
        /// Error of the library.
        source: key::KeyFault,
    },
    /// The row in the database is sealed with another secret, or damaged.
    #[error(
        "the signing keys in the database cannot be decrypted: use the secret with which the database was created"
    )]
    Sealed,
    /// The row opens, but its content is not valid for this version; holds the reason.
    #[error("the signing keys in the database are malformed: {0}")]
    Malformed(String),
    /// The random source failed.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Changes of other nodes conflicted in each attempt.
    #[error("signing keys changed concurrently: try again")]
    Contended,
}

/// The keys of a running provider.
#[derive(Debug)]
pub struct Keys {
    published: RwLock<Arc<Published>>,
    algorithms: Vec<SigningAlgorithm>,
}

/// A state of the row in the store. The version alone does not identify it: after a failover that lost
/// a change, another change gets the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowState {
    version: u64,
    /// SHA-256 of the sealed content.
    digest: [u8; digest::SHA256_OUTPUT_LEN],
}

impl RowState {
    fn new(version: u64, content: &[u8]) -> Self {
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        out.copy_from_slice(digest::digest(&digest::SHA256, content).as_ref());
        Self { version, digest: out }
    }
}

#[derive(Debug)]
struct Published {
    row: RowState,
    ring: KeyRing,
    jwks: Bytes,
    key_set: KeySet,
}

impl Published {
    fn new(ring: KeyRing, row: RowState) -> Result<Arc<Self>, KeyError> {
        let jwks: Bytes = ring.jwks().into();
        let unreadable = |fault: &dyn std::fmt::Display| KeyError::Malformed(fault.to_string());
        let (own, _) = KeySet::from_jwks_json(&jwks).map_err(|fault| unreadable(&fault))?;
        Ok(Arc::new(Self { row, ring, jwks, key_set: own }))
    }
}

/// Dependencies of a change to the keys.
#[derive(Clone, Copy)]
pub struct KeyAccess<'a> {
    /// The store of the key ring.
    pub store: &'a Store,
    /// The key that seals the key ring.
    pub secrets: &'a Secrets,
    /// Source of nonces.
    pub entropy: &'a dyn Entropy,
}

/// What is recorded with a change.
#[derive(Debug, Clone, Default)]
struct ChangeRecord {
    /// Entry of the revocation log, for consumers that cache keys.
    revocation: Option<Revocation>,
    /// Entry of the audit log, if an operator requested the change.
    entry: Option<AuditEntry>,
}

impl KeyAccess<'_> {
    async fn read(&self) -> Result<Option<(RowState, KeyRing)>, KeyError> {
        self.store.key_ring().await?.map(|row| self.open(&row)).transpose()
    }

    /// The keys of a row, with its state.
    fn open(&self, row: &KeyRingRow) -> Result<(RowState, KeyRing), KeyError> {
        let text = self.secrets.open(Purpose::KeyRing, "", &row.content).ok_or(KeyError::Sealed)?;
        Ok((RowState::new(row.version, &row.content), stored::read(&text)?))
    }

    /// Replaces the row of the version `from`. `None`: another node changed it first.
    async fn write(
        &self,
        from: Option<u64>,
        ring: &KeyRing,
        record: ChangeRecord,
        now: Timestamp,
    ) -> Result<Option<RowState>, KeyError> {
        let text = stored::write(ring)?;
        let content = self.secrets.seal(Purpose::KeyRing, "", &text, now, self.entropy)?;
        let row = RowState::new(from.map_or(1, |version| version + 1), &content);
        let change = ReplaceKeyRing { from, content, revocation: record.revocation, now };
        let written = match record.entry {
            Some(entry) => self.store.write(Audited { change, entry }).await?,
            None => self.store.write(change).await?,
        };
        Ok(written.then_some(row))
    }
}

impl Keys {
    /// Reads the keys from the store; creates them if there are none. Creates keys of an algorithm
    /// that is new in the configuration, and retires those of an algorithm that left it.
    ///
    /// # Errors
    /// [`KeyError`] when the ring cannot be read, created or written.
    pub async fn open(
        place: KeyAccess<'_>,
        algorithms: &[SigningAlgorithm],
        now: Timestamp,
    ) -> Result<Self, KeyError> {
        let wanted = algorithms.to_vec();
        let aligned =
            change(place, now, ChangeRecord::default(), move |ring| ring.aligned(&wanted, now, generate))
                .await?;
        Ok(Self { published: RwLock::new(aligned), algorithms: algorithms.to_vec() })
    }

    /// The algorithms, in configured order.
    pub fn algorithms(&self) -> &[SigningAlgorithm] {
        &self.algorithms
    }

    /// The current key ring.
    pub fn ring(&self) -> KeyRing {
        self.current().ring.clone()
    }

    /// The published key set (RFC 7517 §5): active, next and retired keys.
    pub fn jwks(&self) -> Bytes {
        self.current().jwks.clone()
    }

    /// Signs with the active key of an algorithm.
    ///
    /// # Errors
    /// [`key::KeyFault`] when there is no such key or the signature fails.
    pub fn sign(
        &self,
        algorithm: SigningAlgorithm,
        typ: &str,
        claims: &impl Serialize,
    ) -> Result<String, key::KeyFault> {
        // The ring may change meanwhile; keys of this one stay published for RETENTION.
        let current = self.current();
        current.ring.active(algorithm).ok_or(key::KeyFault::Missing)?.sign(typ, claims)
    }

    /// Reads a token signed by one of these keys, of any type and age.
    pub fn verify<T>(&self, token: &str, read: impl FnOnce(jwt::SignedClaims<'_>) -> Option<T>) -> Option<T> {
        self.verify_with_version(token, read).map(|(_, read)| read)
    }

    /// As [`Keys::verify`], with the version of the ring that verified the token.
    pub(crate) fn verify_with_version<T>(
        &self,
        token: &str,
        read: impl FnOnce(jwt::SignedClaims<'_>) -> Option<T>,
    ) -> Option<(u64, T)> {
        let current = self.current();
        let unverified = jwt::parse(token.as_bytes()).ok()?;
        let read = read(unverified.signed(AlgorithmSet::ALL, &current.key_set).ok()?)?;
        Some((current.row.version, read))
    }

    /// Version of the current ring; grows with each change.
    pub(crate) fn version(&self) -> u64 {
        self.current().row.version
    }

    /// Reads changes of other nodes.
    ///
    /// # Errors
    /// [`KeyError`] when the ring cannot be read.
    pub async fn refresh(&self, place: KeyAccess<'_>) -> Result<(), KeyError> {
        let read = async || place.store.key_ring().await?.ok_or(KeyError::Sealed);
        let mut row = read().await?;
        if row.version < self.version() {
            // A change by this node finished during the read: a second read returns it. If it does
            // not, the database was replaced.
            row = read().await?;
        }
        // Private keys are decrypted and checked only when they have changed.
        let seen = self.current();
        if RowState::new(row.version, &row.content) != seen.row {
            let (row, ring) = place.open(&row)?;
            let read = Published::new(ring, row)?;
            let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
            // A change by this node that finished meanwhile is newer than what was read.
            if Arc::ptr_eq(&published, &seen) {
                *published = read;
            }
        }
        Ok(())
    }

    /// Activates the next key of `algorithm`, retires the active one, and creates a new next one.
    /// Refused while the next key is younger than [`LEAD`].
    ///
    /// # Errors
    /// [`KeyError::Transition`] when the rotation is not possible now, otherwise as for
    /// [`Keys::open`].
    pub async fn rotate(
        &self,
        place: KeyAccess<'_>,
        algorithm: SigningAlgorithm,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        self.rotate_audited(place, algorithm, None, now).await
    }

    /// As [`Keys::rotate`], with an entry in the audit log.
    pub(crate) async fn rotate_audited(
        &self,
        place: KeyAccess<'_>,
        algorithm: SigningAlgorithm,
        entry: Option<AuditEntry>,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        let record = ChangeRecord { entry, ..ChangeRecord::default() };
        self.publish(change(place, now, record, move |ring| ring.rotated(algorithm, now, generate)).await?);
        Ok(())
    }

    /// Rotates each algorithm whose active key has signed for `period`. If nodes do this
    /// concurrently, one rotation happens.
    ///
    /// # Errors
    /// [`KeyError`] as for [`Keys::rotate`].
    pub async fn rotate_due(
        &self,
        place: KeyAccess<'_>,
        period: Duration,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        let due = move |ring: &KeyRing| -> Vec<SigningAlgorithm> {
            let due = |a: &SigningAlgorithm| ring.is_due(*a, period, now);
            ring.algorithms().filter(due).collect()
        };
        if due(&self.ring()).is_empty() {
            return Ok(());
        }
        let rotated = change(place, now, ChangeRecord::default(), move |mut ring| {
            for algorithm in due(&ring) {
                ring = ring.rotated(algorithm, now, generate)?;
            }
            Ok(ring)
        });
        self.publish(rotated.await?);
        Ok(())
    }

    /// Revokes the leaked key `kid`: it is no longer published, its tokens become invalid as caches
    /// expire, and its successor signs immediately.
    ///
    /// # Errors
    /// [`KeyError::Transition`] when there is no such key, otherwise as for [`Keys::open`].
    pub async fn revoke(&self, place: KeyAccess<'_>, kid: &str, now: Timestamp) -> Result<(), KeyError> {
        self.revoke_audited(place, kid, None, now).await
    }

    /// As [`Keys::revoke`], with an entry in the audit log.
    pub(crate) async fn revoke_audited(
        &self,
        place: KeyAccess<'_>,
        kid: &str,
        entry: Option<AuditEntry>,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        let revocation = Revocation {
            tags: vec![place.secrets.tag(TagSubject::Key(kid))],
            reason: "signing key revoked",
            reach: RevocationReach::All,
            until: now.plus(RETENTION),
            occurrence: None,
        };
        let kid = kid.to_owned();
        let record = ChangeRecord { revocation: Some(revocation), entry };
        let revoked = change(place, now, record, move |ring| ring.revoked(&kid, now, generate)).await?;
        self.publish(revoked);
        Ok(())
    }

    /// Publishes a change by this node, unless a later one is published already.
    fn publish(&self, changed: Arc<Published>) {
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        if changed.row.version >= published.row.version {
            *published = changed;
        }
    }

    fn current(&self) -> Arc<Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Applies a transition to the current ring of the store. A ring without changes is not written.
async fn change(
    place: KeyAccess<'_>,
    now: Timestamp,
    record: ChangeRecord,
    transition: impl Fn(KeyRing) -> Result<KeyRing, KeyError> + Clone + Send + 'static,
) -> Result<Arc<Published>, KeyError> {
    for _ in 0..MAX_ATTEMPTS {
        let (from, old) = match place.read().await? {
            Some((row, ring)) => (Some(row), ring),
            None => (None, KeyRing::default()),
        };
        let (transition, before) = (transition.clone(), old.clone());
        // Generating a key takes long: up to a second for RSA.
        let made = tokio::task::spawn_blocking(move || transition(before)).await;
        let ring = made.map_err(|_| KeyError::Contended)??;
        if let Some(row) = from.filter(|_| ring == old) {
            return Published::new(ring, row);
        }
        let version = from.map(|row| row.version);
        if let Some(row) = place.write(version, &ring, record.clone(), now).await? {
            return Published::new(ring, row);
        }
    }
    Err(KeyError::Contended)
}

fn generate(algorithm: SigningAlgorithm) -> Result<Key, KeyError> {
    Key::generate(algorithm).map_err(|source| KeyError::Generate { algorithm, source })
}
