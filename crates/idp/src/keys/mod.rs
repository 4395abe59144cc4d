//! Signing keys: made ahead, published before they take over, kept published after they signed last.
//!
//! Owns: the life cycle of keys ([`ring`]), one key ([`key`]), their place on disk ([`directory`]), and
//! [`Keys`], the handle that signs with and changes a ring while requests run.
//! Does not own: signatures and key formats (`auth::token::jws`), when to rotate (the caller).
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
//! A change is first made durable, then visible: after a crash the directory has either the old ring or the
//! new one, and nothing was signed by a key that is not in it.

pub mod directory;
pub mod key;
pub mod ring;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use auth::time::Timestamp;
pub use auth::token::jws::SigningAlgorithm;
use axum::body::Bytes;
use serde::Serialize;

use self::{
    directory::KeyDirectory,
    key::Key,
    ring::{KeyRing, TransitionFault},
};
use crate::access_token;

/// How long caches may keep the key set: what `Cache-Control` says.
pub const JWKS_MAX_AGE: Duration = Duration::from_mins(5);
/// A key is published for at least this long before a rotation lets it sign, so that every cache of the key set
/// has been filled anew, slow ones included.
pub const LEAD: Duration = Duration::from_secs(2 * JWKS_MAX_AGE.as_secs());
/// A key stays published for at least this long after its last signature: the longest token and a minute of
/// clock skew. It goes with the first change of the ring, or start, after that.
pub const RETENTION: Duration = Duration::from_secs(access_token::MAX_LIFETIME.as_secs() + 60);

/// What can go wrong with keys.
#[derive(Debug, thiserror::Error)]
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
    /// A file or the directory could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others could read a key or change the directory.
    #[error("{}: mode {mode:04o} lets group or others in: chmod {} it", .path.display(), if *.directory { "0700" } else { "0600" })]
    Permissions {
        /// Which.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Whether it is the directory.
        directory: bool,
    },
    /// Another process holds the directory.
    #[error("{}: in use by another process", .0.display())]
    InUse(PathBuf),
    /// The manifest is not what this version writes.
    #[error("{}: {what}", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A key file is not the key that the manifest names.
    #[error("{}: {source}", .path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: key::KeyFault,
    },
}

/// The keys of a running provider.
#[derive(Debug)]
pub struct Keys {
    published: RwLock<Arc<Published>>,
    /// Held for the whole of a change, so that changes are made one after the other.
    changing: Mutex<Option<KeyDirectory>>,
}

#[derive(Debug)]
struct Published {
    ring: KeyRing,
    jwks: Bytes,
}

impl Published {
    fn new(ring: KeyRing) -> Arc<Self> {
        let jwks = ring.jwks().into();
        Arc::new(Self { ring, jwks })
    }
}

impl Keys {
    /// New keys that live as long as the process: for demos and tests.
    pub fn in_memory(algorithms: &[SigningAlgorithm], now: Timestamp) -> Result<Self, KeyError> {
        Ok(Self::with(KeyRing::default().aligned(algorithms, now, generate)?, None))
    }

    /// The keys of a directory, which is made and filled when it is not there. An algorithm new to the
    /// configuration gets keys; the keys of one that left it are retired. The directory belongs to this
    /// process until the value is dropped.
    pub fn open(path: &Path, algorithms: &[SigningAlgorithm], now: Timestamp) -> Result<Self, KeyError> {
        let directory = KeyDirectory::open(path)?;
        let (stored, found) = match directory.load()? {
            Some(ring) => (ring, true),
            None => (KeyRing::default(), false),
        };
        let ring = stored.clone().aligned(algorithms, now, generate)?;
        if !found || ring != stored {
            directory.save(&ring)?;
        }
        directory.sweep(&ring)?;
        Ok(Self::with(ring, Some(directory)))
    }

    fn with(ring: KeyRing, directory: Option<KeyDirectory>) -> Self {
        Self { published: RwLock::new(Published::new(ring)), changing: Mutex::new(directory) }
    }

    /// The algorithms, in configured order.
    pub fn algorithms(&self) -> Vec<SigningAlgorithm> {
        self.current().ring.algorithms().collect()
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

    /// The next key of `algorithm` becomes the active one, the active one retires, a new next one is made.
    /// Refused while the next key is younger than [`LEAD`]. Blocks on key generation and disk.
    pub fn rotate(&self, algorithm: SigningAlgorithm, now: Timestamp) -> Result<(), KeyError> {
        self.change(|ring| ring.rotated(algorithm, now, generate))
    }

    /// The key `kid` leaked: it is no longer published from now on, whatever it signed becomes invalid as caches
    /// run out, and its successor takes over without waiting. Blocks like [`Keys::rotate`].
    pub fn revoke(&self, kid: &str, now: Timestamp) -> Result<(), KeyError> {
        self.change(|ring| ring.revoked(kid, now, generate))
    }

    fn change(&self, transition: impl FnOnce(KeyRing) -> Result<KeyRing, KeyError>) -> Result<(), KeyError> {
        let directory = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = transition(self.ring())?;
        if let Some(directory) = directory.as_ref() {
            directory.save(&ring)?;
        }
        // durable: from here on it counts, even when tidying up fails
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Published::new(ring.clone());
        if let Some(Err(error)) = directory.as_ref().map(|d| d.sweep(&ring)) {
            tracing::warn!(%error, "old key files are left: the next change or start removes them");
        }
        Ok(())
    }

    fn current(&self) -> Arc<Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn generate(algorithm: SigningAlgorithm) -> Result<Key, KeyError> {
    Key::generate(algorithm).map_err(|source| KeyError::Generate { algorithm, source })
}
