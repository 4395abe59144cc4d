//! Random numbers: nonces of queries and messages.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use coherence::Nonce;

use crate::exit::Failure;

/// Nonce of a query without a MAC: each must be unpredictable, even to an attacker who knows
/// earlier ones ([`coherence::query`]).
pub(super) fn random_nonce() -> Option<Nonce> {
    random().ok().map(Nonce)
}

/// Unique, unpredictable nonces for messages with a MAC: half is random and fixed, half is a
/// counter.
pub(super) fn nonces() -> Result<impl FnMut() -> Nonce + Send + 'static, Failure> {
    let mut nonce = random::<16>()?;
    let mut count = 0_u64;
    Ok(move || {
        count += 1;
        nonce[8..].copy_from_slice(&count.to_be_bytes());
        Nonce(nonce)
    })
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| Failure::new("the system has no random numbers available"))?;
    Ok(bytes)
}
