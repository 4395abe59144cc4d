//! Digests that detect a change of some bytes.

use aws_lc_rs::digest;

/// Digest of the parts: the first 64 bits of a SHA-256 over each part with its length.
pub(crate) fn version<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u64 {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finish();
    hash.as_ref().iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}
