//! Argon2 (RFC 9106) in memory of the caller, with AVX-512 where the processor has it.
//!
//! Owns: the choice between the computation with AVX-512 (`avx512`) and the library `argon2`, and
//! erasing the memory afterwards. Does not own: parameters and their bounds, the text of a stored hash,
//! threads. Decision 0084 has figures.
//!
//! A crate of its own: it is optimized in every build, and has the only `unsafe` of a provider.

#[cfg(target_arch = "x86_64")]
mod avx512;

use argon2::{Algorithm, Argon2, Block, Error, Params, Version};

/// What is hashed, and how.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Variant of Argon2.
    pub algorithm: Algorithm,
    /// Version of Argon2.
    pub version: Version,
    /// Cost of the hash.
    pub params: &'a Params,
    /// The password, of any length.
    pub password: &'a [u8],
    /// The salt: at least eight bytes.
    pub salt: &'a [u8],
}

impl Job<'_> {
    /// Computes the hash into `digest`, which has the length that the parameters say. Needs as many
    /// blocks as [`Params::block_count`] says, with any content, and erases them: with their full
    /// content an attacker could compute the first block, from which a password can be searched
    /// without the cost of Argon2.
    ///
    /// # Errors
    /// [`Error`] of the library: a salt, a password or a digest of a length out of bounds, or too few
    /// blocks.
    pub fn hash(&self, digest: &mut [u8], blocks: &mut [Block]) -> Result<(), Error> {
        let blocks = ErasedBlocks(blocks);
        if self.hash_with_avx512(digest, blocks.0) {
            return Ok(());
        }
        Argon2::new(self.algorithm, self.version, self.params.clone()).hash_password_into_with_memory(
            self.password,
            self.salt,
            digest,
            &mut *blocks.0,
        )
    }

    /// As [`Job::hash`], without erasing. `false`: the processor does not have the instructions, or the
    /// library refuses such a job. Nothing was computed.
    fn hash_with_avx512(&self, digest: &mut [u8], blocks: &mut [Block]) -> bool {
        #[cfg(target_arch = "x86_64")]
        return avx512::hash(self, digest, blocks);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (digest, blocks);
            false
        }
    }
}

/// Erases blocks when it is dropped, also when a panic unwinds.
struct ErasedBlocks<'a>(&'a mut [Block]);

impl Drop for ErasedBlocks<'_> {
    fn drop(&mut self) {
        // Whole blocks at once; `zeroize` writes word by word.
        self.0.fill(Block::new());
        // The compiler must assume that the zeros are read.
        zeroize::optimization_barrier(&*self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the library; `false` where the processor lacks the instructions.
    fn same_as_the_library(algorithm: Algorithm, version: Version, params: &Params, password: &[u8]) -> bool {
        let salt = b"a salt of some length";
        let length = params.output_len().unwrap_or(32);
        let (mut expected, mut digest) = (vec![0; length], vec![0; length]);
        let library = Argon2::new(algorithm, version, params.clone());
        library.hash_password_into(password, salt, &mut expected).unwrap();
        // What the memory had before does not matter.
        let mut blocks = vec![Block::new(); params.block_count() + 3];
        for block in &mut blocks {
            block.as_mut().fill(7);
        }
        let job = Job { algorithm, version, params, password, salt };
        let done = job.hash_with_avx512(&mut digest, &mut blocks);
        assert!(!done || digest == expected, "{algorithm:?} {version:?} {params:?}");
        done
    }

    #[test]
    fn hashes_are_those_of_the_library() {
        let mut compared = 0;
        for algorithm in [Algorithm::Argon2d, Algorithm::Argon2i, Algorithm::Argon2id] {
            for version in [Version::V0x10, Version::V0x13] {
                for lanes in 1..=4 {
                    for (memory, passes, length) in [
                        (8, 1, 4),
                        (9, 2, 32),
                        (37, 3, 63),
                        (64, 1, 64),
                        (300, 4, 65),
                        (1030, 2, 96),
                        (2200, 1, 200),
                    ] {
                        let params = Params::new(memory * lanes, passes, lanes, Some(length)).unwrap();
                        let password = &b"correct horse battery staple"[..(memory % 28) as usize];
                        compared += u32::from(same_as_the_library(algorithm, version, &params, password));
                    }
                }
            }
        }
        #[cfg(target_arch = "x86_64")]
        let has_avx512 = is_x86_feature_detected!("avx512bw");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx512 = false;
        assert_eq!(compared, if has_avx512 { 3 * 2 * 4 * 7 } else { 0 });
    }

    #[test]
    fn what_the_library_refuses_is_refused_and_the_memory_is_erased() {
        let params = Params::new(64, 1, 1, None).unwrap();
        let (algorithm, version) = (Algorithm::Argon2id, Version::V0x13);
        let job =
            Job { algorithm, version, params: &params, password: b"password", salt: b"salt and pepper" };
        let hash = |job: Job<'_>, count: usize| {
            let mut blocks = vec![Block::new(); count];
            for block in &mut blocks {
                block.as_mut().fill(7);
            }
            let done = job.hash(&mut [0; 32], &mut blocks);
            assert!(blocks.iter().all(|block| block.as_ref().iter().all(|word| *word == 0)));
            done
        };
        assert_eq!(hash(job, 64), Ok(()));
        assert_eq!(hash(job, 63), Err(Error::MemoryTooLittle));
        assert_eq!(hash(Job { salt: b"7 bytes", ..job }, 64), Err(Error::SaltTooShort));
    }
}
