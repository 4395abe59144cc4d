//! Access tokens of ours whose signature was found good a moment ago.
//!
//! Owns: what such a token says, by its keyed digest, for as long as the keys stay as they are. A resource server asks about the
//! same token again and again, and verifying a signature costs more than everything else of an answer together.
//!
//! Does not own: whether the token is still worth something. What is kept here never changes: that a key of ours signed these
//! claims. Expiry, revocation, its person and its client are looked at each time. When the keys change, whatever was found with
//! the keys before counts no longer, so that what a revoked key signed is verified again, and refused.

use std::{collections::HashMap, sync::Arc};

use auth::time::Timestamp;
use parking_lot::Mutex;
use store::StoredDigest;

/// Parts that are locked on their own.
const SHARDS: usize = 16;
/// Tokens of one part. When it is full it begins anew: what is asked about often is there again at once.
const PER_SHARD: usize = 1024;

/// The claims of an access token that we signed, expired or not.
#[derive(Debug)]
pub(crate) struct JwtClaims {
    pub(crate) jti: String,
    pub(crate) sub: String,
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
    /// Of the keys that the tokens were verified with.
    keys: u64,
    tokens: HashMap<StoredDigest, Arc<JwtClaims>>,
}

/// The tokens.
#[derive(Default)]
pub(crate) struct VerifiedCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl VerifiedCache {
    /// What a token says that was verified with these very keys.
    pub(crate) fn get(&self, token: &StoredDigest, keys: u64) -> Option<Arc<JwtClaims>> {
        let shard = self.shard(token).lock();
        (shard.keys == keys).then(|| shard.tokens.get(token).cloned())?
    }

    /// Keeps what a token says that was verified with these keys.
    pub(crate) fn keep(&self, token: StoredDigest, keys: u64, claims: Arc<JwtClaims>) {
        let mut shard = self.shard(&token).lock();
        // the number of a ring only grows: whoever is late had the keys before
        if keys < shard.keys {
            return;
        }
        if keys > shard.keys || shard.tokens.len() >= PER_SHARD {
            shard.keys = keys;
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

    fn claims(jti: &str) -> Arc<JwtClaims> {
        Arc::new(JwtClaims {
            jti: jti.into(),
            sub: String::new(),
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
        believed.keep(digest(1), 7, claims("a"));
        assert_eq!(believed.get(&digest(1), 7).map(|c| c.jti.clone()).as_deref(), Some("a"));
        assert!(believed.get(&digest(1), 8).is_none(), "the keys changed");
        assert!(believed.get(&digest(2), 7).is_none());
        believed.keep(digest(2), 8, claims("b"));
        assert!(believed.get(&digest(1), 7).is_none() && believed.get(&digest(2), 8).is_some());
        believed.keep(digest(3), 7, claims("late"));
        assert!(believed.get(&digest(3), 7).is_none() && believed.get(&digest(3), 8).is_none());
    }

    #[test]
    fn there_is_an_end_to_it() {
        let believed = VerifiedCache::default();
        for n in 0..=PER_SHARD {
            believed.keep(digest(n), 1, claims("x"));
        }
        assert!(believed.get(&digest(0), 1).is_none() && believed.get(&digest(PER_SHARD), 1).is_some());
    }
}
