//! Cache of verified passwords: short-lived, small, off by default.
//!
//! Owns: a keyed digest of (account, stored hash, password), its lifetime, the capacity.
//!
//! Does not own: whether the account may log in (the store must be read at every attempt), the
//! decision to enable the cache (the configuration).
//!
//! Purpose: clients that send a password with every request (HTTP Basic, the password grant) would
//! cost a full hash each time. A hit costs about a microsecond.
//!
//! Risk: an attacker can read the whole memory of this process, including the key. While an entry
//! exists, that attacker can search its password at the speed of HMAC-SHA256 instead of Argon2. The
//! lifetime bounds the time and the capacity the number of entries. Without traffic, a timer must
//! call [`VerifiedPasswords::sweep`] to enforce the lifetime. A stolen database does not help: the
//! key is drawn at start and never leaves the process.
//!
//! Guarantees: it never stores a wrong password, and use never prolongs an entry. The stored hash
//! is part of the digest, so an entry does not match after a change of the hash. This holds even if
//! [`VerifiedPasswords::forget`] was not called, or was called on another node.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use auth::time::Timestamp;
use aws_lc_rs::{constant_time, hmac};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::{hash::Verdict, password::Password};
use crate::{Entropy, EntropyFailed};

/// Shortest lifetime of an entry.
pub const MIN_LIFETIME: Duration = Duration::from_secs(1);
/// Longest lifetime of an entry.
pub const MAX_LIFETIME: Duration = Duration::from_mins(1);
/// Largest configurable number of entries.
pub const MAX_ENTRIES: usize = 1_000_000;

/// Reason why the cache cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifiedFault {
    /// The lifetime is out of bounds.
    #[error("lifetime of {} s of cached verified passwords out of bounds: use {} to {} s", .0.as_secs_f64(), MIN_LIFETIME.as_secs(), MAX_LIFETIME.as_secs())]
    Lifetime(Duration),
    /// The number of entries is out of bounds.
    #[error("{0} cached verified passwords out of bounds: use 1 to {MAX_ENTRIES}")]
    Entries(usize),
    /// The random source failed: no key.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
}

struct Entry {
    proof: [u8; 32],
    until: Timestamp,
}

/// Entries by account, one each. `order` holds the same entries, ordered by expiry.
#[derive(Default)]
struct Entries {
    by_account: HashMap<Arc<str>, Entry>,
    order: BTreeSet<(Timestamp, Arc<str>)>,
}

impl Entries {
    fn remove(&mut self, account: &str) {
        if let Some((account, entry)) = self.by_account.remove_entry(account) {
            self.order.remove(&(entry.until, account));
        }
    }

    /// Removes the entry that expires first, if `condition` is true for its expiry.
    fn pop_if(&mut self, condition: impl FnOnce(Timestamp) -> bool) -> bool {
        let Some((until, account)) = self.order.pop_first() else { return false };
        let removed = condition(until);
        if removed {
            self.by_account.remove(&account);
        } else {
            self.order.insert((until, account));
        }
        removed
    }

    fn sweep(&mut self, now: Timestamp) {
        while self.pop_if(|until| now >= until) {}
    }
}

/// The cache of verified passwords.
pub struct VerifiedPasswords {
    key: hmac::Key,
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<Entries>,
}

impl VerifiedPasswords {
    /// Creates an empty cache with its own key. `lifetime` is 1 to 60 s; `capacity` is the number
    /// of accounts.
    ///
    /// # Errors
    /// [`VerifiedFault`] when a value is out of bounds or the random source fails.
    pub fn new(lifetime: Duration, capacity: usize, entropy: &dyn Entropy) -> Result<Self, VerifiedFault> {
        if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&lifetime) {
            return Err(VerifiedFault::Lifetime(lifetime));
        }
        if !(1..=MAX_ENTRIES).contains(&capacity) {
            return Err(VerifiedFault::Entries(capacity));
        }
        let mut key = Zeroizing::new([0; 32]);
        entropy.fill(&mut *key)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*key);
        Ok(Self { key, lifetime, capacity, entries: Mutex::default() })
    }

    /// Whether this password was verified with this stored hash less than one lifetime before
    /// `now`.
    pub fn contains(&self, account: &str, stored: &str, password: &Password, now: Timestamp) -> bool {
        let proof = self.proof(account, stored, password);
        let mut entries = self.entries.lock();
        let Some(entry) = entries.by_account.get(account) else { return false };
        // An entry that expires later than a new one was made before the clock was set back.
        if now >= entry.until || entry.until > now.plus(self.lifetime) {
            entries.remove(account);
            return false;
        }
        constant_time::verify_slices_are_equal(&proof, &entry.proof).is_ok()
    }

    /// Stores the result of a full verification at `now`, if the password was right. Do not call it
    /// after a hit.
    pub fn insert(&self, account: &str, stored: &str, password: &Password, verdict: Verdict, now: Timestamp) {
        if verdict == Verdict::Wrong {
            return;
        }
        let entry = Entry { proof: self.proof(account, stored, password), until: now.plus(self.lifetime) };
        let mut entries = self.entries.lock();
        entries.sweep(now);
        entries.remove(account);
        while entries.by_account.len() >= self.capacity && entries.pop_if(|_| true) {}
        let account: Arc<str> = account.into();
        entries.order.insert((entry.until, Arc::clone(&account)));
        entries.by_account.insert(account, entry);
    }

    /// Removes the entry of an account; call it on every change of the account.
    pub fn forget(&self, account: &str) {
        self.entries.lock().remove(account);
    }

    /// Removes the entries that have expired at `now`.
    pub fn sweep(&self, now: Timestamp) {
        self.entries.lock().sweep(now);
    }

    /// Number of entries, including expired ones.
    pub fn len(&self) -> usize {
        self.entries.lock().by_account.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Digest of the three parts. Each follows its length, so that different triples are never
    /// equal.
    fn proof(&self, account: &str, stored: &str, password: &Password) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [account, stored, password.typed()] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }
}

impl fmt::Debug for VerifiedPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verified(..)")
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;

    use super::*;
    use crate::passwords::password::password;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const RIGHT: Verdict = Verdict::Right { is_outdated: false };

    fn verified(capacity: usize) -> VerifiedPasswords {
        VerifiedPasswords::new(Duration::from_secs(10), capacity, &SystemRandom::new()).unwrap()
    }

    fn after(millis: u64) -> Timestamp {
        START.plus(Duration::from_millis(millis))
    }

    #[test]
    fn only_the_very_triple_is_a_hit() {
        let memory = verified(8);
        memory.insert("ada", "$h1", &password("secret"), RIGHT, START);
        for (account, stored, text, hit) in [
            ("ada", "$h1", "secret", true),
            ("ada", "$h1", "Secret", false),
            ("ada", "$h1", "", false),
            ("ada", "$h2", "secret", false),
            ("bob", "$h1", "secret", false),
            ("ada", "$h1s", "ecret", false),
            ("", "ada$h1", "secret", false),
        ] {
            assert_eq!(
                memory.contains(account, stored, &password(text), START),
                hit,
                "{account} {stored} {text}"
            );
        }
    }

    #[test]
    fn an_entry_ends_with_its_lifetime_and_use_does_not_prolong_it() {
        let memory = verified(8);
        memory.insert("ada", "$h", &password("x"), RIGHT, START);
        for (now, hit) in [(after(0), true), (after(9_999), true), (after(10_000), false), (after(0), false)]
        {
            assert_eq!(memory.contains("ada", "$h", &password("x"), now), hit, "{now:?}");
        }
        assert!(memory.is_empty(), "removed when found expired");
    }

    #[test]
    fn a_clock_that_went_back_makes_a_miss_not_a_longer_life() {
        let memory = verified(8);
        memory.insert("ada", "$h", &password("x"), RIGHT, START);
        assert!(!memory.contains("ada", "$h", &password("x"), START.minus(Duration::from_millis(1))));
        assert!(memory.is_empty());
    }

    #[test]
    fn a_wrong_password_is_never_remembered_and_takes_no_place() {
        let memory = verified(1);
        memory.insert("ada", "$h", &password("right"), RIGHT, START);
        memory.insert("ada", "$h", &password("wrong"), Verdict::Wrong, START);
        memory.insert("bob", "$h", &password("wrong"), Verdict::Wrong, START);
        assert!(memory.contains("ada", "$h", &password("right"), START));
        assert!(!memory.contains("ada", "$h", &password("wrong"), START));
        assert!(!memory.contains("bob", "$h", &password("wrong"), START));
        // A wrong password in a lookup does not evict the right one.
        assert!(memory.contains("ada", "$h", &password("right"), START));
    }

    #[test]
    fn a_forgotten_account_is_a_miss_and_others_stay() {
        let memory = verified(8);
        for account in ["ada", "bob"] {
            memory.insert(account, "$h", &password("x"), Verdict::Right { is_outdated: true }, START);
        }
        memory.forget("ada");
        memory.forget("nobody");
        assert!(!memory.contains("ada", "$h", &password("x"), START));
        assert!(memory.contains("bob", "$h", &password("x"), START));
    }

    #[test]
    fn the_newest_password_of_an_account_replaces_the_one_before() {
        let memory = verified(8);
        memory.insert("ada", "$old", &password("old"), RIGHT, START);
        memory.insert("ada", "$new", &password("new"), RIGHT, after(5_000));
        assert_eq!(memory.len(), 1);
        assert!(!memory.contains("ada", "$old", &password("old"), after(5_000)));
        assert!(memory.contains("ada", "$new", &password("new"), after(14_999)));
        assert!(!memory.contains("ada", "$new", &password("new"), after(15_000)));
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let memory = verified(3);
        for (n, account) in ["a", "b", "c", "d"].into_iter().enumerate() {
            memory.insert(account, "$h", &password("x"), RIGHT, after(n as u64));
        }
        let held =
            ["a", "b", "c", "d"].map(|account| memory.contains(account, "$h", &password("x"), after(4)));
        assert_eq!((held, memory.len()), ([false, true, true, true], 3));
    }

    #[test]
    fn expired_entries_are_swept() {
        let memory = verified(8);
        for (n, account) in ["a", "b", "c"].into_iter().enumerate() {
            memory.insert(account, "$h", &password("x"), RIGHT, after(1000 * n as u64));
        }
        memory.sweep(after(10_999));
        assert_eq!(memory.len(), 2);
        memory.insert("d", "$h", &password("x"), RIGHT, after(12_000));
        assert_eq!(memory.len(), 1, "remembering sweeps too");
        let entries = memory.entries.lock();
        assert_eq!(entries.order.len(), entries.by_account.len());
    }

    #[test]
    fn two_processes_have_different_keys() {
        let proof = |memory: &VerifiedPasswords| memory.proof("ada", "$h", &password("x"));
        let (a, b) = (verified(1), verified(1));
        assert_eq!(proof(&a), proof(&a));
        assert_ne!(proof(&a), proof(&b));
        assert_eq!(format!("{a:?}"), "Verified(..)");
    }

    #[test]
    fn bounds_are_checked_by_name() {
        let fault = |millis, capacity| {
            VerifiedPasswords::new(Duration::from_millis(millis), capacity, &SystemRandom::new())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            fault(999, 1),
            "lifetime of 0.999 s of cached verified passwords out of bounds: use 1 to 60 s"
        );
        assert_eq!(
            fault(60_001, 1),
            "lifetime of 60.001 s of cached verified passwords out of bounds: use 1 to 60 s"
        );
        assert_eq!(fault(1000, 0), "0 cached verified passwords out of bounds: use 1 to 1000000");
        assert_eq!(
            fault(1000, MAX_ENTRIES + 1),
            "1000001 cached verified passwords out of bounds: use 1 to 1000000"
        );
        assert!(VerifiedPasswords::new(MAX_LIFETIME, MAX_ENTRIES, &SystemRandom::new()).is_ok());
    }
}
