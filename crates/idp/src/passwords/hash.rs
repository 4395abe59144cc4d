//! Password hashes: Argon2id (RFC 9106), version 1.3; and the older ones that imports bring.
//!
//! Owns: the computation in memory of the caller, the comparison in constant time, the decoy that
//! an unknown user is verified against, and the verdict.
//!
//! Does not own: the threads ([`super::pool`]), the text ([`super::phc`]), the cost
//! ([`super::parameters`]).
//!
//! A verification uses the algorithm and the parameters stored with the hash. So an account with an
//! outdated hash responds faster or slower than an unknown one, until a login upgrades the hash.

use argon2::Block;
use argon2_hash::Job;
use aws_lc_rs::{constant_time, pbkdf2};
use zeroize::Zeroize as _;

use super::{
    parameters::Parameters,
    password::Password,
    phc::{DIGEST, Pbkdf2Hash, Phc, PhcFault, SALT, Scheme},
};
use crate::{Entropy, EntropyFailed};

/// Reason why a password could not be hashed or verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashFault {
    /// The random source failed: no salt for a new hash.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
    /// The stored hash cannot be used.
    #[error(transparent)]
    Stored(#[from] PhcFault),
    /// There is not enough memory for the computation.
    #[error(
        "not enough memory for a password hash of {kib} KiB: lower the hash memory or the number of threads"
    )]
    OutOfMemory {
        /// Memory that was needed, in KiB.
        kib: usize,
    },
    /// The library refused parameters that passed the provider's own checks.
    #[error("argon2 library refused the parameters")]
    Refused,
}

/// Result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The password is right.
    Right {
        /// Whether the stored hash is weaker than new hashes, or made of the text as typed; it
        /// should be replaced by a new hash.
        is_outdated: bool,
    },
    /// The password is wrong, or there is no such account.
    Wrong,
}

/// Working memory, kept between hashes: allocating and clearing some MiB causes page faults each
/// time.
///
/// It is erased after every computation ([`Job::hash`]).
#[derive(Default)]
pub struct Memory(Vec<Block>);

impl Memory {
    /// Empty memory; grows with the first hash.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases memory beyond the need of `parameters`, so that one expensive stored hash does not
    /// keep it permanently.
    pub fn trim(&mut self, parameters: Parameters) {
        let keep = usize::try_from(parameters.memory_kib()).unwrap_or(usize::MAX);
        if self.0.len() > keep {
            self.0.truncate(keep);
            self.0.shrink_to(keep);
        }
    }

    /// Allocated memory in KiB.
    pub fn kib(&self) -> usize {
        self.0.len()
    }

    /// Returns `blocks` blocks, or an error where the allocation would otherwise abort the process.
    fn blocks(&mut self, blocks: usize) -> Result<&mut [Block], HashFault> {
        if let Some(more) = blocks.checked_sub(self.0.len()) {
            self.0.try_reserve_exact(more).map_err(|_| HashFault::OutOfMemory { kib: blocks })?;
            self.0.resize(blocks, Block::new());
        }
        self.0.get_mut(..blocks).ok_or(HashFault::Refused)
    }
}

/// Makes and verifies hashes with one set of parameters.
pub struct Hasher {
    parameters: Parameters,
    decoy: String,
}

impl Hasher {
    /// Creates a hasher and its decoy: a random digest without a known password, at the cost of the
    /// current parameters.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source fails.
    pub fn new(parameters: Parameters, entropy: &dyn Entropy) -> Result<Self, EntropyFailed> {
        let (mut salt, mut digest) = (vec![0; SALT], vec![0; DIGEST]);
        entropy.fill(&mut salt)?;
        entropy.fill(&mut digest)?;
        Ok(Self { parameters, decoy: Phc { scheme: Scheme::new(parameters), salt, digest }.encode() })
    }

    /// The parameters of new hashes.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Hashes `password` with a new salt.
    ///
    /// # Errors
    /// [`HashFault`] when the random source, the memory or the library fails.
    pub fn hash(
        &self,
        password: &Password,
        entropy: &dyn Entropy,
        memory: &mut Memory,
    ) -> Result<Phc, HashFault> {
        let mut salt = vec![0; SALT];
        entropy.fill(&mut salt)?;
        let mut digest = vec![0; DIGEST];
        let scheme = Scheme::new(self.parameters);
        compute(password.form(), scheme, &salt, &mut digest, memory)?;
        Ok(Phc { scheme, salt, digest })
    }

    /// Compares `password` with a stored hash, in its normalized form and, if that differs, as
    /// typed. The cost depends only on the password, so it does not disclose which of the two
    /// matched.
    ///
    /// With `None`, for an unknown user or one without a password, the cost is the same and the
    /// result is always [`Verdict::Wrong`].
    ///
    /// # Errors
    /// [`HashFault`] when the stored hash cannot be used or the computation fails; never a verdict.
    pub fn verify(
        &self,
        password: &Password,
        stored: Option<&str>,
        memory: &mut Memory,
    ) -> Result<Verdict, HashFault> {
        let phc = Phc::parse(stored.unwrap_or(&self.decoy))?;
        let stored_digest = phc.decisive_digest();
        let mut digest = vec![0; stored_digest.len()];
        let (mut by_form, mut as_typed) = (false, false);
        for (at, text) in password.candidates().enumerate() {
            compute(text, phc.scheme, &phc.salt, &mut digest, memory)?;
            let same = constant_time::verify_slices_are_equal(&digest, stored_digest).is_ok();
            *(if at == 0 { &mut by_form } else { &mut as_typed }) = same;
        }
        digest.zeroize();
        if stored.is_some() && (by_form || as_typed) {
            Ok(Verdict::Right { is_outdated: !by_form || phc.outdated(self.parameters) })
        } else {
            Ok(Verdict::Wrong)
        }
    }
}

fn compute(
    text: &str,
    scheme: Scheme,
    salt: &[u8],
    digest: &mut [u8],
    memory: &mut Memory,
) -> Result<(), HashFault> {
    let (algorithm, version, parameters) = match scheme {
        Scheme::Argon2 { algorithm, version, parameters } => (algorithm, version, parameters),
        Scheme::Pbkdf2 { hash, iterations } => {
            let algorithm = match hash {
                Pbkdf2Hash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
                Pbkdf2Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
                Pbkdf2Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
            };
            pbkdf2::derive(algorithm, iterations, salt, text.as_bytes(), digest);
            return Ok(());
        }
    };
    let params = argon2::Params::new(
        parameters.memory_kib(),
        parameters.iterations(),
        parameters.parallelism(),
        Some(digest.len()),
    )
    .map_err(|_| HashFault::Refused)?;
    let blocks = memory.blocks(params.block_count())?;
    let job = Job { algorithm, version, params: &params, password: text.as_bytes(), salt };
    job.hash(digest, blocks).map_err(|_| HashFault::Refused)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use aws_lc_rs::rand::SystemRandom;

    use super::*;
    use crate::passwords::{parameters::ParameterFault, password::password};

    /// Counts up, so that salts differ and are known.
    struct Counting(AtomicU8);
    impl Entropy for Counting {
        fn fill(&self, out: &mut [u8]) -> Result<(), EntropyFailed> {
            out.fill(self.0.fetch_add(1, Ordering::Relaxed));
            Ok(())
        }
    }

    struct FailingEntropy;
    impl Entropy for FailingEntropy {
        fn fill(&self, _: &mut [u8]) -> Result<(), EntropyFailed> {
            Err(EntropyFailed)
        }
    }

    fn tiny() -> Hasher {
        Hasher::new(Parameters::TINY, &SystemRandom::new()).unwrap()
    }

    fn hashed(hasher: &Hasher, text: &str) -> String {
        hasher.hash(&password(text), &SystemRandom::new(), &mut Memory::new()).unwrap().encode()
    }

    #[test]
    fn a_password_verifies_against_its_own_hash_alone() {
        let hasher = tiny();
        let stored = hashed(&hasher, "correct horse");
        let mut memory = Memory::new();
        let mut verdict = |text: &str| hasher.verify(&password(text), Some(&stored), &mut memory).unwrap();
        assert_eq!(verdict("correct horse"), Verdict::Right { is_outdated: false });
        for wrong in ["", "correct hors", "correct horse ", "Correct horse", "correct horse\0"] {
            assert_eq!(verdict(wrong), Verdict::Wrong, "{wrong:?}");
        }
    }

    #[test]
    fn a_password_is_right_however_it_is_typed_and_a_hash_of_what_was_typed_is_outdated() {
        let (composed, apart) = ("caf\u{e9} au lait", "cafe\u{301} au lait");
        let hasher = tiny();
        let mut memory = Memory::new();
        let mut verdict =
            |stored: &str, text: &str| hasher.verify(&password(text), Some(stored), &mut memory).unwrap();
        let stored = hashed(&hasher, apart);
        for typed in [composed, apart] {
            assert_eq!(verdict(&stored, typed), Verdict::Right { is_outdated: false }, "{typed:?}");
        }
        assert_eq!(verdict(&stored, "cafe au lait"), Verdict::Wrong);
        let mut digest = vec![0; DIGEST];
        let salt = vec![7; SALT];
        let scheme = Scheme::new(Parameters::TINY);
        compute(apart, scheme, &salt, &mut digest, &mut Memory::new()).unwrap();
        let raw = Phc { scheme, salt, digest }.encode();
        assert_eq!(
            verdict(&raw, apart),
            Verdict::Right { is_outdated: true },
            "as it was when the hash was made"
        );
        assert_eq!(verdict(&raw, composed), Verdict::Wrong, "nobody knows what else it was made of");
        let odd = hashed(&hasher, "zero\u{200b}width");
        assert_eq!(
            verdict(&odd, "zero\u{200b}width"),
            Verdict::Right { is_outdated: false },
            "made anew for nothing"
        );
        assert_eq!(verdict(&odd, "zerowidth"), Verdict::Wrong);
    }

    #[test]
    fn two_hashes_of_one_password_differ() {
        let (hasher, entropy) = (tiny(), Counting(AtomicU8::new(1)));
        let [a, b] = [(); 2].map(|()| hasher.hash(&password("x"), &entropy, &mut Memory::new()).unwrap());
        assert_eq!((&a.salt[..], &b.salt[..]), (&[1; SALT][..], &[2; SALT][..]));
        assert_ne!(a.digest, b.digest);
    }

    #[test]
    fn the_reference_implementation_agrees() {
        // Vectors of the reference implementation (phc-winner-argon2, src/test.c) in PHC form.
        let mut memory = Memory::new();
        for (text, stored) in [
            (
                "password",
                "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            ),
            (
                "password",
                "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
            ),
        ] {
            let verdict = tiny().verify(&password(text), Some(stored), &mut memory).unwrap();
            assert_eq!(verdict, Verdict::Right { is_outdated: true }, "the salts have 8 bytes only");
            assert_eq!(
                tiny().verify(&password("differentpassword"), Some(stored), &mut memory),
                Ok(Verdict::Wrong)
            );
        }
    }

    #[test]
    fn imported_hashes_verify_as_they_are_and_are_outdated() {
        // Made with Python's hashlib and the reference implementation of Argon2 (argon2-cffi).
        let mut memory = Memory::new();
        for stored in [
            "$pbkdf2-sha1$i=1000,l=64$c29tZXNhbHRzb21lc2FsdA$0V7Jgtl9/HI18jg0vt86562FCc18loQfkbwdMRirhuB4l0zcgjwPmSHwk66XWOcepxwiwLwqE74yBsLywSF4ow",
            "$pbkdf2-sha256$i=1000,l=64$c29tZXNhbHRzb21lc2FsdA$s5LQUeAEZUMuFVrnmF3OMNPXs3QWnF8SO/5BXmCj6QRRoqV45sk0paBc59MTSTbnRiqZ2rZHiLqodQ/j4M4wFA",
            "$pbkdf2-sha512$i=1000,l=64$c29tZXNhbHRzb21lc2FsdA$a5wgoWFIPKuJOEszqMEKfpxJMYmocERsHXaC6CvdkdaTNCkO6JxcKuDoNYXi3iPDLnjgJCAVtWtsfscGAZC0PQ",
            "$pbkdf2-sha256$i=2,l=16$c29tZXNhbHRzb21lc2FsdA$PBOy6RsK1j8+q2tmvcJVCw",
            "$argon2d$v=16$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$BFkM0Yv9i+DY7t5kXpguWGh76AXIVXpLsoopqSJjbCg",
            "$argon2d$v=19$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$t13GzjdJLu97jhRO8GwpZFfp75TLiguKy6zStiGfxFk",
            "$argon2i$v=16$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$Hf+BdBMnWLFWFb97EWaSdTJFRxmDFvZPEptsMkh8V8E",
            "$argon2i$v=19$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$MQDO5xTPHJK3f5WKYkrSGTJt5h6/krVWUJI4FcKhq6I",
            "$argon2id$v=16$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$6s0GNrPjEv/ll7kB2DDKvOOyMrRZu028p6xMBKxMTgY",
            "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHRzb21lc2FsdA$wRLS7mudUUQT+AYkMYeVIYbo8Zysq4DyCoI9VJ8RHSw",
        ] {
            let mut verdict = |text: &str| tiny().verify(&password(text), Some(stored), &mut memory);
            // The parameters of the last one are above those of this hasher.
            let is_outdated = !stored.starts_with("$argon2id$v=19");
            assert_eq!(verdict("password"), Ok(Verdict::Right { is_outdated }), "{stored}");
            assert_eq!(verdict("passwore"), Ok(Verdict::Wrong), "{stored}");
            // The first bytes of the digest decide.
            let (scheme, digest) = stored.rsplit_once('$').unwrap();
            let other = if digest.starts_with('A') { "B" } else { "A" };
            let changed = format!("{scheme}${other}{}", &digest[1..]);
            assert_eq!(
                tiny().verify(&password("password"), Some(&changed), &mut memory),
                Ok(Verdict::Wrong),
                "{changed}"
            );
        }
    }

    #[test]
    fn a_hash_made_with_less_is_outdated_and_one_made_with_more_is_not() {
        let more = Hasher::new(Parameters::stored(16, 1, 1).unwrap(), &SystemRandom::new()).unwrap();
        let (weak, strong) = (hashed(&tiny(), "x"), hashed(&more, "x"));
        let mut memory = Memory::new();
        assert_eq!(
            more.verify(&password("x"), Some(&weak), &mut memory),
            Ok(Verdict::Right { is_outdated: true })
        );
        assert_eq!(
            tiny().verify(&password("x"), Some(&strong), &mut memory),
            Ok(Verdict::Right { is_outdated: false })
        );
    }

    #[test]
    fn a_hash_that_cannot_be_used_is_an_error_even_for_the_right_password() {
        let hasher = tiny();
        let stored = hashed(&hasher, "x");
        let mut memory = Memory::new();
        let mut fault = |text: &str| hasher.verify(&password("x"), Some(text), &mut memory).unwrap_err();
        assert_eq!(fault(""), HashFault::Stored(PhcFault::Malformed));
        assert_eq!(fault("x"), HashFault::Stored(PhcFault::Malformed));
        assert_eq!(fault(&stored.replace("argon2id", "scrypt")), HashFault::Stored(PhcFault::Algorithm));
        assert_eq!(
            fault(&stored.replace("m=8", "m=4194304")),
            HashFault::Stored(PhcFault::Parameters(ParameterFault::Memory(4_194_304)))
        );
        assert_eq!(memory.kib(), 0, "nothing was allocated for any of them");
    }

    #[test]
    fn an_unknown_user_costs_a_computation_and_is_always_wrong() {
        let hasher = Hasher::new(Parameters::TINY, &Counting(AtomicU8::new(0))).unwrap();
        let mut memory = Memory::new();
        assert_eq!(hasher.verify(&password("x"), None, &mut memory), Ok(Verdict::Wrong));
        assert_eq!(memory.kib(), 8, "computed with the current parameters");
        // Even the password of the decoy must not authenticate.
        let known = Hasher { parameters: Parameters::TINY, decoy: hashed(&hasher, "x") };
        assert_eq!(known.verify(&password("x"), None, &mut memory), Ok(Verdict::Wrong));
    }

    #[test]
    fn memory_is_kept_erased_and_given_back_beyond_the_need() {
        let (hasher, mut memory) = (tiny(), Memory::new());
        let dear = Hasher::new(Parameters::stored(64, 2, 1).unwrap(), &SystemRandom::new()).unwrap();
        let stored = hashed(&dear, "x");
        hasher.verify(&password("x"), Some(&stored), &mut memory).unwrap();
        assert_eq!(memory.kib(), 64);
        assert!(memory.0.iter().all(|b| b.as_ref().iter().all(|&word| word == 0)));
        memory.trim(hasher.parameters());
        assert_eq!((memory.kib(), memory.0.capacity()), (8, 8));
        // Reused memory, larger than necessary or not, gives the same results.
        let verdict = Verdict::Right { is_outdated: false };
        assert_eq!(hasher.verify(&password("x"), Some(&stored), &mut memory), Ok(verdict));
        let small = hashed(&hasher, "y");
        assert_eq!(hasher.verify(&password("y"), Some(&small), &mut memory), Ok(verdict));
    }

    #[test]
    fn without_randomness_there_is_no_hash_and_no_hasher() {
        assert_eq!(Hasher::new(Parameters::TINY, &FailingEntropy).map(|_| ()), Err(EntropyFailed));
        let refused = tiny().hash(&password("x"), &FailingEntropy, &mut Memory::new());
        assert_eq!(refused, Err(HashFault::Entropy(EntropyFailed)));
    }
}
