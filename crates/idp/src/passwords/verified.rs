//! The memory of passwords that were right a moment ago. Opt-in, short, small.
//!
//! Owns: the keyed digest of (account, stored hash, password), how long it counts, how many there are.
//! Does not own: whether the account may log in at all (ask the store first, on every attempt), the decision to
//! have this memory (the configuration; it is off by default).
//!
//! What it is for: clients that send a password with every request (HTTP Basic, the password grant) would cost a
//! full hash each time. A hit costs about a microsecond.
//!
//! What it trades: while an entry is held, whoever can read the whole memory of this process, its key included, can
//! search that password at the speed of HMAC-SHA256 instead of Argon2's. The time is bounded by the lifetime
//! (call [`Verified::sweep`] from a timer to have the bound hold without traffic) and the number by the capacity.
//! A stolen database gains nothing: the key is drawn at the start and never leaves the process.
//!
//! What it never does: keep a wrong password; outlive a change of the stored hash, which is part of the digest, so
//! that even a lost [`Verified::forget`] or one in another node leaves nothing that would match; prolong an entry by
//! using it.

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
/// Most entries.
pub const MAX_ENTRIES: usize = 1_000_000;

/// Why there can be no such memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifiedFault {
    /// Lifetime out of bounds.
    #[error("verified passwords remembered for {} s: take {} to {} s", .0.as_secs_f64(), MIN_LIFETIME.as_secs(), MAX_LIFETIME.as_secs())]
    Lifetime(Duration),
    /// Number of entries out of bounds.
    #[error("{0} verified passwords remembered: take 1 to {MAX_ENTRIES}")]
    Entries(usize),
    /// No key.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
}

struct Entry {
    proof: [u8; 32],
    until: Timestamp,
}

/// One entry per account: an account has one password. `order` holds the same entries, soonest to expire first.
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

    /// Removes what expires first, if `condition` holds for its end.
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

/// The memory of verified passwords.
pub struct Verified {
    key: hmac::Key,
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<Entries>,
}

impl Verified {
    /// An empty memory with a key of its own. `lifetime` is 1 to 60 s, `capacity` the most accounts held at once.
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

    /// Whether this very password was right for this very stored hash less than a lifetime before `now`.
    pub fn holds(&self, account: &str, stored: &str, password: &Password, now: Timestamp) -> bool {
        let proof = self.proof(account, stored, password);
        let mut entries = self.entries.lock();
        let Some(entry) = entries.by_account.get(account) else { return false };
        // one that ends later than a new one would was made before the clock went back
        if now >= entry.until || entry.until > now.plus(self.lifetime) {
            entries.remove(account);
            return false;
        }
        constant_time::verify_slices_are_equal(&proof, &entry.proof).is_ok()
    }

    /// Remembers what a full verification found at `now`, if it was right. Not to be called after a hit.
    pub fn remember(
        &self,
        account: &str,
        stored: &str,
        password: &Password,
        verdict: Verdict,
        now: Timestamp,
    ) {
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

    /// Forgets an account: on every change of it.
    pub fn forget(&self, account: &str) {
        self.entries.lock().remove(account);
    }

    /// Forgets what has expired at `now`.
    pub fn sweep(&self, now: Timestamp) {
        self.entries.lock().sweep(now);
    }

    /// Entries held, expired ones included.
    pub fn len(&self) -> usize {
        self.entries.lock().by_account.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The digest: each part after its length, so that no two triples are one.
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

impl fmt::Debug for Verified {
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
    const RIGHT: Verdict = Verdict::Right { outdated: false };

    fn verified(capacity: usize) -> Verified {
        Verified::new(Duration::from_secs(10), capacity, &SystemRandom::new()).unwrap()
    }

    fn after(millis: u64) -> Timestamp {
        START.plus(Duration::from_millis(millis))
    }

    #[test]
    fn only_the_very_triple_is_a_hit() {
        let memory = verified(8);
        memory.remember("ada", "$h1", &password("secret"), RIGHT, START);
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
                memory.holds(account, stored, &password(text), START),
                hit,
                "{account} {stored} {text}"
            );
        }
    }

    #[test]
    fn an_entry_ends_with_its_lifetime_and_use_does_not_prolong_it() {
        let memory = verified(8);
        memory.remember("ada", "$h", &password("x"), RIGHT, START);
        for (now, hit) in [(after(0), true), (after(9_999), true), (after(10_000), false), (after(0), false)]
        {
            assert_eq!(memory.holds("ada", "$h", &password("x"), now), hit, "{now:?}");
        }
        assert!(memory.is_empty(), "removed when found expired");
    }

    #[test]
    fn a_clock_that_went_back_makes_a_miss_not_a_longer_life() {
        let memory = verified(8);
        memory.remember("ada", "$h", &password("x"), RIGHT, START);
        assert!(!memory.holds("ada", "$h", &password("x"), START.minus(Duration::from_millis(1))));
        assert!(memory.is_empty());
    }

    #[test]
    fn a_wrong_password_is_never_remembered_and_takes_no_place() {
        let memory = verified(1);
        memory.remember("ada", "$h", &password("right"), RIGHT, START);
        memory.remember("ada", "$h", &password("wrong"), Verdict::Wrong, START);
        memory.remember("bob", "$h", &password("wrong"), Verdict::Wrong, START);
        assert!(memory.holds("ada", "$h", &password("right"), START));
        assert!(!memory.holds("ada", "$h", &password("wrong"), START));
        assert!(!memory.holds("bob", "$h", &password("wrong"), START));
        // a wrong one that is asked for does not push the right one out either
        assert!(memory.holds("ada", "$h", &password("right"), START));
    }

    #[test]
    fn a_forgotten_account_is_a_miss_and_others_stay() {
        let memory = verified(8);
        for account in ["ada", "bob"] {
            memory.remember(account, "$h", &password("x"), Verdict::Right { outdated: true }, START);
        }
        memory.forget("ada");
        memory.forget("nobody");
        assert!(!memory.holds("ada", "$h", &password("x"), START));
        assert!(memory.holds("bob", "$h", &password("x"), START));
    }

    #[test]
    fn the_newest_password_of_an_account_replaces_the_one_before() {
        let memory = verified(8);
        memory.remember("ada", "$old", &password("old"), RIGHT, START);
        memory.remember("ada", "$new", &password("new"), RIGHT, after(5_000));
        assert_eq!(memory.len(), 1);
        assert!(!memory.holds("ada", "$old", &password("old"), after(5_000)));
        assert!(memory.holds("ada", "$new", &password("new"), after(14_999)));
        assert!(!memory.holds("ada", "$new", &password("new"), after(15_000)));
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let memory = verified(3);
        for (n, account) in ["a", "b", "c", "d"].into_iter().enumerate() {
            memory.remember(account, "$h", &password("x"), RIGHT, after(n as u64));
        }
        let held = ["a", "b", "c", "d"].map(|account| memory.holds(account, "$h", &password("x"), after(4)));
        assert_eq!((held, memory.len()), ([false, true, true, true], 3));
    }

    #[test]
    fn expired_entries_are_swept() {
        let memory = verified(8);
        for (n, account) in ["a", "b", "c"].into_iter().enumerate() {
            memory.remember(account, "$h", &password("x"), RIGHT, after(1000 * n as u64));
        }
        memory.sweep(after(10_999));
        assert_eq!(memory.len(), 2);
        memory.remember("d", "$h", &password("x"), RIGHT, after(12_000));
        assert_eq!(memory.len(), 1, "remembering sweeps too");
        let entries = memory.entries.lock();
        assert_eq!(entries.order.len(), entries.by_account.len());
    }

    #[test]
    fn two_processes_have_different_keys() {
        let proof = |memory: &Verified| memory.proof("ada", "$h", &password("x"));
        let (a, b) = (verified(1), verified(1));
        assert_eq!(proof(&a), proof(&a));
        assert_ne!(proof(&a), proof(&b));
        assert_eq!(format!("{a:?}"), "Verified(..)");
    }

    #[test]
    fn bounds_are_checked_by_name() {
        let fault = |millis, capacity| {
            Verified::new(Duration::from_millis(millis), capacity, &SystemRandom::new())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(fault(999, 1), "verified passwords remembered for 0.999 s: take 1 to 60 s");
        assert_eq!(fault(60_001, 1), "verified passwords remembered for 60.001 s: take 1 to 60 s");
        assert_eq!(fault(1000, 0), "0 verified passwords remembered: take 1 to 1000000");
        assert_eq!(fault(1000, MAX_ENTRIES + 1), "1000001 verified passwords remembered: take 1 to 1000000");
        assert!(Verified::new(MAX_LIFETIME, MAX_ENTRIES, &SystemRandom::new()).is_ok());
    }
}
