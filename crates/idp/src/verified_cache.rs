//! Cache of verified access tokens: claims of JWTs whose signature was verified recently.
//!
//! Owns: the claims of such a token, by its keyed digest, while the key ring is unchanged. Resource
//! servers introspect the same token repeatedly, and verifying a signature costs more than the rest
//! of the introspection together.
//!
//! Does not own: whether the token is still valid. The cache holds only what never changes: that a
//! key of this provider signed these claims. Expiry, revocation, user and client are checked each
//! time. When the keys change, older entries become invalid, so a token of a revoked key is
//! verified again and refused.

use std::{collections::HashMap, sync::Arc};

use auth::time::Timestamp;
use parking_lot::Mutex;
use store::StoredDigest;

/// Shards of the cache; each has its own lock.
const SHARDS: usize = 16;
/// Tokens per shard. A full shard is cleared; tokens in frequent use return immediately.
const PER_SHARD: usize = 1024;

/// Claims of an access token that this provider signed, expired or not.
#[derive(Debug)]
pub(crate) struct VerifiedJwt {
    pub(crate) jti: String,
    /// Id of the user, or of the client that acts for itself.
    pub(crate) sub: String,
    /// The `sub` of the token, if it is pairwise.
    pub(crate) pairwise: Option<String>,
    /// Whether it may have claims that the configuration adds.
    pub(crate) has_mapped_claims: bool,
    pub(crate) client_id: String,
    pub(crate) scope: String,
    pub(crate) audiences: String,
    pub(crate) family: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) issued_at: Timestamp,
    pub(crate) read_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

#[derive(Default)]
struct Shard {
    /// Version of the key ring with which the tokens were verified.
    key_version: u64,
    tokens: HashMap<StoredDigest, Arc<VerifiedJwt>>,
}

/// The cache: claims by digest, in shards.
#[derive(Default)]
pub(crate) struct VerifiedCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl VerifiedCache {
    /// Claims of a token that was verified with this version of the key ring.
    pub(crate) fn get(&self, token: &StoredDigest, keys: u64) -> Option<Arc<VerifiedJwt>> {
        let shard = self.shard(token).lock();
        (shard.key_version == keys).then(|| shard.tokens.get(token).cloned())?
    }

    /// Stores the claims of a token that was verified with this version of the key ring.
    pub(crate) fn insert(&self, token: StoredDigest, keys: u64, claims: Arc<VerifiedJwt>) {
        let mut shard = self.shard(&token).lock();
        // The version only grows, so a smaller one belongs to an older key ring.
        if keys < shard.key_version {
            return;
        }
        if keys > shard.key_version || shard.tokens.len() >= PER_SHARD {
            shard.key_version = keys;
            shard.tokens.clear();
        }
        shard.tokens.insert(token, claims);
    }

    fn shard(&self, token: &StoredDigest) -> &Mutex<Shard> {
        &self.shards[usize::from(token.0[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(jti: &str) -> Arc<VerifiedJwt> {
        Arc::new(VerifiedJwt {
            jti: jti.into(),
            sub: String::new(),
            pairwise: None,
            has_mapped_claims: false,
            client_id: String::new(),
            scope: String::new(),
            audiences: String::new(),
            family: None,
            key: None,
            issued_at: Timestamp::from_secs(0),
            read_at: Timestamp::from_secs(0),
            expires_at: Timestamp::from_secs(0),
        })
    }

    fn digest(n: usize) -> StoredDigest {
        let mut bytes = [0; 32];
        bytes[1..9].copy_from_slice(&n.to_be_bytes());
        StoredDigest(bytes)
    }

    #[test]
    fn what_was_found_with_other_keys_does_not_count() {
        let believed = VerifiedCache::default();
        believed.insert(digest(1), 7, claims("a"));
        assert_eq!(believed.get(&digest(1), 7).map(|c| c.jti.clone()).as_deref(), Some("a"));
        assert!(believed.get(&digest(1), 8).is_none(), "the keys changed");
        assert!(believed.get(&digest(2), 7).is_none());
        believed.insert(digest(2), 8, claims("b"));
        assert!(believed.get(&digest(1), 7).is_none() && believed.get(&digest(2), 8).is_some());
        believed.insert(digest(3), 7, claims("late"));
        assert!(believed.get(&digest(3), 7).is_none() && believed.get(&digest(3), 8).is_none());
    }

    #[test]
    fn there_is_an_end_to_it() {
        let believed = VerifiedCache::default();
        for n in 0..=PER_SHARD {
            believed.insert(digest(n), 1, claims("x"));
        }
        assert!(believed.get(&digest(0), 1).is_none() && believed.get(&digest(PER_SHARD), 1).is_some());
    }
}
