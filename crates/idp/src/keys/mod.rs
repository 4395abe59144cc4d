//! Signing keys: made ahead, published before they take over, kept published after they signed last.
//!
//! Owns: the life cycle of keys ([`ring`]), one key ([`key`]), how they are kept ([`stored`]), and [`Keys`], the
//! handle that signs with and changes a ring while requests run.
//! Does not own: signatures and key formats (`auth::token::jws`), the database (`store`).
//!
//! ```text
//! next ──rotate──▶ active ──rotate──▶ retired ──RETENTION, then a change or start──▶ gone
//!  published,        signs             published, private half destroyed
//!  does not sign
//! ```
//!
//! Two kinds of key may sign without having been published for [`LEAD`]: the first of an algorithm, which has no
//! predecessor that could sign meanwhile, and the successor of a revoked one. A revoked key is gone at once.
//!
//! The ring is one row of the store, sealed, replaced from the version that was read: nodes change it one after the other, and
//! each reads it again ([`Keys::refresh`]) well within [`LEAD`]. A change is first made durable, then visible: nothing was
//! signed by a key that is not in the store.

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
use axum::body::Bytes;
use serde::Serialize;
use store::audit::{AnnouncedEntry, Audited};
use store::key_ring::ReplaceKeyRing;
use store::{Revocation, RevocationReach, Store, StoreError};

use self::{
    key::Key,
    ring::{KeyRing, TransitionFault},
};
use crate::{
    Entropy, EntropyFailed, lifetime,
    secrets::{Purpose, Secrets, TagSubject},
};

/// How long caches may keep the key set: what `Cache-Control` says.
pub const JWKS_MAX_AGE: Duration = Duration::from_mins(5);
/// A key is published for at least this long before a rotation lets it sign, so that every cache of the key set
/// has been filled anew, slow ones included.
pub const LEAD: Duration = Duration::from_secs(2 * JWKS_MAX_AGE.as_secs());
/// A key stays published for at least this long after its last signature: the longest token and a minute of
/// clock skew. It goes with the first change of the ring, or start, after that.
pub const RETENTION: Duration = Duration::from_secs(lifetime::MAX_ACCESS_TOKEN.as_secs() + 60);
/// How often a change is tried that another node came before.
const TRIES: usize = 5;

/// What can go wrong with keys.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The transition is not possible now.
    #[error(transparent)]
    Transition(#[from] TransitionFault),
    /// No algorithm at all.
    #[error("a key ring needs at least one algorithm")]
    NoAlgorithm,
    /// The cryptographic library made no key.
    #[error("no {} key could be made: {source}", key::name(*.algorithm))]
    Generate {
        /// Of which kind.
        algorithm: SigningAlgorithm,
        /// Why.
        source: key::KeyFault,
    },
    /// The row in the database was sealed with another secret, or is damaged.
    #[error(
        "the signing keys in the database do not open with this secret: use the secret that the database was begun with"
    )]
    Sealed,
    /// The row opens, but is not what this version writes.
    #[error("the signing keys in the database are not what this version writes: {0}")]
    Malformed(String),
    /// No nonce.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other nodes changed the keys again and again meanwhile.
    #[error("other nodes changed the signing keys meanwhile: try again")]
    Contended,
}

/// The keys of a running provider.
#[derive(Debug)]
pub struct Keys {
    published: RwLock<Arc<Published>>,
    algorithms: Vec<SigningAlgorithm>,
}

#[derive(Debug)]
struct Published {
    /// Of the row in the store.
    version: u64,
    ring: KeyRing,
    jwks: Bytes,
    own: KeySet,
}

impl Published {
    fn new(ring: KeyRing, version: u64) -> Result<Arc<Self>, KeyError> {
        let jwks: Bytes = ring.jwks().into();
        let unreadable = |fault: &dyn std::fmt::Display| KeyError::Malformed(fault.to_string());
        let (own, _) = KeySet::from_jwks_json(&jwks).map_err(|fault| unreadable(&fault))?;
        Ok(Arc::new(Self { version, ring, jwks, own }))
    }
}

/// What a change of the keys needs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Where they are kept.
    pub store: &'a Store,
    /// What they are sealed with.
    pub secrets: &'a Secrets,
    /// For nonces.
    pub entropy: &'a dyn Entropy,
}

/// What is told of a change.
#[derive(Debug, Clone, Default)]
struct Told {
    /// To whoever keeps keys.
    revocation: Option<Revocation>,
    /// In the audit log, when somebody asked for it.
    entry: Option<AnnouncedEntry>,
}

impl Place<'_> {
    async fn read(&self) -> Result<Option<(u64, KeyRing)>, KeyError> {
        let Some(row) = self.store.key_ring().await? else { return Ok(None) };
        let text = self.secrets.open(Purpose::KeyRing, "", &row.content).ok_or(KeyError::Sealed)?;
        Ok(Some((row.version, stored::read(&text)?)))
    }

    /// `None` when another node came before.
    async fn write(
        &self,
        from: Option<u64>,
        ring: &KeyRing,
        told: Told,
        now: Timestamp,
    ) -> Result<Option<u64>, KeyError> {
        let text = stored::write(ring)?;
        let content = self.secrets.seal(Purpose::KeyRing, "", &text, now, self.entropy)?;
        let change = ReplaceKeyRing { from, content, revocation: told.revocation, now };
        let written = match told.entry {
            Some(entry) => self.store.write(Audited { change, entry }).await?,
            None => self.store.write(change).await?,
        };
        Ok(written.then(|| from.map_or(1, |version| version + 1)))
    }
}

impl Keys {
    /// The keys of the store, which are made when there are none. An algorithm new to the configuration gets keys; the
    /// keys of one that left it are retired.
    pub async fn open(
        place: Place<'_>,
        algorithms: &[SigningAlgorithm],
        now: Timestamp,
    ) -> Result<Self, KeyError> {
        let wanted = algorithms.to_vec();
        let aligned =
            change(place, now, Told::default(), move |ring| ring.aligned(&wanted, now, generate)).await?;
        Ok(Self { published: RwLock::new(aligned), algorithms: algorithms.to_vec() })
    }

    /// The algorithms, in configured order.
    pub fn algorithms(&self) -> &[SigningAlgorithm] {
        &self.algorithms
    }

    /// The ring as it is now.
    pub fn ring(&self) -> KeyRing {
        self.current().ring.clone()
    }

    /// The published key set (RFC 7517 §5): active, next and retired keys.
    pub fn jwks(&self) -> Bytes {
        self.current().jwks.clone()
    }

    /// Signs with the active key of an algorithm.
    pub fn sign(
        &self,
        algorithm: SigningAlgorithm,
        typ: &str,
        claims: &impl Serialize,
    ) -> Result<String, key::KeyFault> {
        // the ring may change meanwhile: this one's keys stay published for RETENTION
        let current = self.current();
        current.ring.active(algorithm).ok_or(key::KeyFault::Missing)?.sign(typ, claims)
    }

    /// Reads a token that one of these keys signed, whatever its kind and however old.
    pub fn opened<T>(&self, token: &str, read: impl FnOnce(jwt::Signed<'_>) -> Option<T>) -> Option<T> {
        self.opened_with(token, read).map(|(_, read)| read)
    }

    /// The same, with the version of the ring that the key was in.
    pub(crate) fn opened_with<T>(
        &self,
        token: &str,
        read: impl FnOnce(jwt::Signed<'_>) -> Option<T>,
    ) -> Option<(u64, T)> {
        let current = self.current();
        let unverified = jwt::parse(token.as_bytes()).ok()?;
        let read = read(unverified.signed(AlgorithmSet::ALL, &current.own).ok()?)?;
        Some((current.version, read))
    }

    /// Of the ring as it is now; grows with each change.
    pub(crate) fn version(&self) -> u64 {
        self.current().version
    }

    /// Takes over what other nodes changed.
    pub async fn refresh(&self, place: Place<'_>) -> Result<(), KeyError> {
        let read = async || place.read().await?.ok_or(KeyError::Sealed);
        let (mut version, mut ring) = read().await?;
        if version < self.current().version {
            // Somebody here changed it while it was read: then it is there by now. If not, the database is another one.
            (version, ring) = read().await?;
        }
        if version != self.current().version {
            self.publish(Published::new(ring, version)?);
        }
        Ok(())
    }

    /// The next key of `algorithm` becomes the active one, the active one retires, a new next one is made.
    /// Refused while the next key is younger than [`LEAD`].
    pub async fn rotate(
        &self,
        place: Place<'_>,
        algorithm: SigningAlgorithm,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        self.rotate_told(place, algorithm, None, now).await
    }

    /// [`Keys::rotate`], told in the audit log.
    pub(crate) async fn rotate_told(
        &self,
        place: Place<'_>,
        algorithm: SigningAlgorithm,
        entry: Option<AnnouncedEntry>,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        let told = Told { entry, ..Told::default() };
        self.publish(change(place, now, told, move |ring| ring.rotated(algorithm, now, generate)).await?);
        Ok(())
    }

    /// Rotates each algorithm whose active key has signed for `period`. Nodes that find so at the same time rotate once.
    pub async fn rotate_due(
        &self,
        place: Place<'_>,
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
        let rotated = change(place, now, Told::default(), move |mut ring| {
            for algorithm in due(&ring) {
                ring = ring.rotated(algorithm, now, generate)?;
            }
            Ok(ring)
        });
        self.publish(rotated.await?);
        Ok(())
    }

    /// The key `kid` leaked: it is no longer published from now on, whatever it signed becomes invalid as caches
    /// run out, and its successor takes over without waiting.
    pub async fn revoke(&self, place: Place<'_>, kid: &str, now: Timestamp) -> Result<(), KeyError> {
        self.revoke_told(place, kid, None, now).await
    }

    /// [`Keys::revoke`], told in the audit log.
    pub(crate) async fn revoke_told(
        &self,
        place: Place<'_>,
        kid: &str,
        entry: Option<AnnouncedEntry>,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        let revocation = Revocation {
            tags: vec![place.secrets.tag(TagSubject::Key(kid))],
            reason: "signing key revoked",
            reach: RevocationReach::Whole,
            until: now.plus(RETENTION),
            occurrence: None,
        };
        let kid = kid.to_owned();
        let told = Told { revocation: Some(revocation), entry };
        let revoked = change(place, now, told, move |ring| ring.revoked(&kid, now, generate)).await?;
        self.publish(revoked);
        Ok(())
    }

    fn publish(&self, published: Arc<Published>) {
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = published;
    }

    fn current(&self) -> Arc<Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes a transition of the ring in the store, from whatever state it is in by now. What changes nothing is not written.
async fn change(
    place: Place<'_>,
    now: Timestamp,
    told: Told,
    transition: impl Fn(KeyRing) -> Result<KeyRing, KeyError> + Clone + Send + 'static,
) -> Result<Arc<Published>, KeyError> {
    for _ in 0..TRIES {
        let (from, old) = match place.read().await? {
            Some((version, ring)) => (Some(version), ring),
            None => (None, KeyRing::default()),
        };
        let (transition, before) = (transition.clone(), old.clone());
        // making a key takes long: an RSA key up to a second
        let made = tokio::task::spawn_blocking(move || transition(before)).await;
        let ring = made.map_err(|_| KeyError::Contended)??;
        if let Some(version) = from.filter(|_| ring == old) {
            return Published::new(ring, version);
        }
        if let Some(version) = place.write(from, &ring, told.clone(), now).await? {
            return Published::new(ring, version);
        }
    }
    Err(KeyError::Contended)
}

fn generate(algorithm: SigningAlgorithm) -> Result<Key, KeyError> {
    Key::generate(algorithm).map_err(|source| KeyError::Generate { algorithm, source })
}
