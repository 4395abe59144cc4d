//! Stored form of the key ring: one text, sealed, with the private keys.
//!
//! Owns: the format of that text. Does not own: sealing ([`crate::secrets`]), the meaning of stages
//! ([`super::ring`]).

use std::sync::Arc;

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use super::{
    KeyError,
    key::{self, Key},
    ring::{Active, KeyRing, Next, Retired, Slot},
};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    keys: Vec<Entry>,
}

/// One key. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "state", rename_all = "lowercase")]
enum Entry {
    Active { alg: String, pem: Zeroizing<String>, since: u64 },
    Next { alg: String, pem: Zeroizing<String>, since: u64 },
    Retired { kid: String, since: u64, until: u64, jwk: Value },
}

/// Serializes a ring.
///
/// # Errors
/// [`KeyError`] when a key cannot be encoded.
pub fn write(ring: &KeyRing) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let mut keys = Vec::new();
    for Slot { active, next } in &ring.slots {
        let alg = || key::name(active.key.algorithm()).to_owned();
        keys.push(Entry::Active { alg: alg(), pem: pem(&active.key)?, since: active.since.as_millis() });
        keys.push(Entry::Next { alg: alg(), pem: pem(&next.key)?, since: next.since.as_millis() });
    }
    keys.extend(ring.retired.iter().map(|r| Entry::Retired {
        kid: r.kid.to_string(),
        since: r.since.as_millis(),
        until: r.until.as_millis(),
        jwk: r.jwk.clone(),
    }));
    let text = serde_json::to_vec(&Manifest { version: VERSION, keys });
    text.map(Zeroizing::new).map_err(|_| KeyError::Malformed("serializing failed".into()))
}

fn pem(key: &Key) -> Result<Zeroizing<String>, KeyError> {
    let pem = key.to_pem().map_err(|source| KeyError::Generate { algorithm: key.algorithm(), source })?;
    let malformed = || KeyError::Malformed(format!("encoding key {:?} failed", key.kid()));
    String::from_utf8(pem.as_ref().to_vec()).map(Zeroizing::new).map_err(|_| malformed())
}

/// Parses a ring.
///
/// # Errors
/// [`KeyError::Malformed`] when the text is not a valid ring.
pub fn read(text: &[u8]) -> Result<KeyRing, KeyError> {
    let manifest: Manifest =
        serde_json::from_slice(text).map_err(|error| KeyError::Malformed(error.to_string()))?;
    if manifest.version != VERSION {
        return Err(KeyError::Malformed(format!("version {} is not {VERSION}", manifest.version)));
    }
    let (mut active, mut next, mut retired) = (Vec::new(), Vec::new(), Vec::new());
    for entry in manifest.keys {
        match entry {
            Entry::Active { alg, pem, since } => {
                active.push(Active { key: parse(&alg, &pem)?, since: Timestamp::from_millis(since) });
            }
            Entry::Next { alg, pem, since } => {
                next.push(Next { key: parse(&alg, &pem)?, since: Timestamp::from_millis(since) });
            }
            Entry::Retired { kid, since, until, jwk } => {
                if jwk.get("kid").and_then(Value::as_str) != Some(kid.as_str()) || jwk.get("d").is_some() {
                    return Err(KeyError::Malformed(format!("retired key {kid:?} is not a public key")));
                }
                let (since, until) = (Timestamp::from_millis(since), Timestamp::from_millis(until));
                retired.push(Retired { kid: kid.into(), jwk, since, until });
            }
        }
    }
    let mut slots: Vec<Slot> = Vec::with_capacity(active.len());
    for active in active {
        let algorithm = active.key.algorithm();
        let one =
            |role| KeyError::Malformed(format!("{} needs exactly one {role} key", key::name(algorithm)));
        if slots.iter().any(|s| s.active.key.algorithm() == algorithm) {
            return Err(one("active"));
        }
        let at = next.iter().position(|n| n.key.algorithm() == algorithm).ok_or_else(|| one("next"))?;
        slots.push(Slot { active, next: next.remove(at) });
    }
    match next.first() {
        Some(odd) => Err(KeyError::Malformed(format!("unexpected next key {:?}", odd.key.kid()))),
        None => Ok(KeyRing { slots, retired }),
    }
}

fn parse(alg: &str, pem: &str) -> Result<Arc<Key>, KeyError> {
    let algorithm =
        key::by_name(alg).ok_or_else(|| KeyError::Malformed(format!("unknown algorithm {alg:?}")))?;
    let key = Key::from_pem(algorithm, pem.as_bytes());
    key.map(Arc::new).map_err(|fault| KeyError::Malformed(format!("{alg} key: {fault}")))
}

#[cfg(test)]
mod tests {
    use auth::token::jws::SigningAlgorithm;

    use super::*;
    use crate::keys::generate;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn ring() -> KeyRing {
        let algorithms = [SigningAlgorithm::Es256, SigningAlgorithm::EdDsa];
        let ring = KeyRing::default().aligned(&algorithms, NOW, generate).unwrap();
        ring.rotated(SigningAlgorithm::Es256, NOW.plus(crate::keys::LEAD), generate).unwrap()
    }

    #[test]
    fn a_ring_is_read_as_it_was_written() {
        let ring = ring();
        let text = write(&ring).unwrap();
        assert_eq!(read(&text).unwrap(), ring);
    }

    #[test]
    fn what_was_not_written_so_is_refused() {
        let text = String::from_utf8(write(&ring()).unwrap().to_vec()).unwrap();
        for (from, with) in [
            ("\"version\":1", "\"version\":2"),
            ("\"ES256\"", "\"EdDSA\""),
            ("\"active\"", "\"next\""),
            ("\"state\"", "\"kind\""),
            ("\"until\"", "\"d\""),
            ("BEGIN", "BEGUN"),
        ] {
            let changed = text.replacen(from, with, 1);
            assert_ne!(changed, text, "{from}");
            assert!(matches!(read(changed.as_bytes()), Err(KeyError::Malformed(_))), "{from}");
        }
        assert!(read(b"").is_err());
    }
}
