//! decode
use serde_json::{Map, Value};

/// Header and claims of a JWT, unverified; `None` when it is not one.
pub(crate) fn decode(token: &[u8]) -> Option<(Map<String, Value>, Map<String, Value>)> {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut parts = token.split(|b| *b == b'.');
    let mut part = || serde_json::from_slice(&engine.decode(parts.next()?).ok()?).ok();
    Some((part()?, part()?))
}
