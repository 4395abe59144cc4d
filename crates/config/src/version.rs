//! Digests that tell whether something has changed.

use aws_lc_rs::digest;

/// A short digest that changes when a part does.
pub(crate) fn version<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u64 {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finish();
    hash.as_ref().iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}
