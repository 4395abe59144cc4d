//! Strip set: fields that are deleted from every request, whether or not the gateway sets them.

use super::{alias_class, client};
use crate::request::is_token;

/// Names and families that are always deleted, in folded form; a trailing `*` stands for any
/// ending. Names for a client's address or certificate are too many for a list: a rule finds those
/// ([`client`]).
///
/// The upstream trusts these fields because a proxy in front of it is known to set them. This
/// gateway is that proxy, so no client may set what the gateway does not.
const PROTECTED: [&str; 30] = [
    // Where a request came from, and what it was before a proxy changed it.
    "forwarded",
    "x-forwarded",
    "x-forwarded-*",
    "x-original-*",
    "x-rewrite-url",
    "x-host",
    "x-envoy-*",
    "x-real-port",
    "x-real-proto",
    // Another method than the one that was authorized.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    // The caller, as other gateways state it.
    "x-auth-request-*",
    "x-remote-*",
    "remote-user",
    "remote-name",
    "remote-email",
    "remote-groups",
    "x-amzn-oidc-*",
    "x-postern-*",
    // All such names (`$WSRU` is the user), as the WebSphere plug-in sets them.
    "$ws*",
    // A client certificate, as a TLS terminator states it (RFC 9440 and its many predecessors),
    // besides what `client` finds.
    "x-client-cert*",
    "x-client-verify*",
    "ssl-client-*",
    "ssl-cert*",
    "x-ssl-*",
    "tls-client-*",
    "x-tls-*",
    "x-amzn-mtls-*",
    "x-mtls-*",
];

/// A set of field names by alias class: the built-in families, fields about a client's address or
/// certificate, and the fields that the configuration writes identities into.
#[derive(Debug, Clone)]
pub struct StripSet {
    entries: Box<[Entry]>,
    /// Start of each bucket's entries; has one element more than there are buckets.
    starts: [u16; BUCKETS + 1],
}

const BUCKETS: usize = 128;

/// Least number of bytes before the `*` of a family: deleting all of `x-*` is never necessary.
const MIN_FAMILY_LEN: usize = 3;

/// Why a [`StripSet`] cannot contain a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StripFault {
    /// The name is not a token (RFC 9110 §5.1).
    #[error("{0:?} is not a header name: write letters, digits and -, such as X-Internal")]
    Name(String),
    /// The name has a `*` before its end.
    #[error(
        "{0:?} has a * before its end: only the beginning of a family can be named, such as X-Internal-*"
    )]
    Star(String),
    /// The family would cover most fields.
    #[error("the family {0} is too large: write at least three characters before the *")]
    Family(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: Box<[u8]>,
    family: bool,
}

impl StripSet {
    /// Whether a name, or a family that ends in `*`, can be in a set.
    ///
    /// # Errors
    /// [`StripFault`] for a name that would not be deleted although it is configured.
    pub fn check(name: &str) -> Result<(), StripFault> {
        let (beginning, family) = split(name);
        if !is_token(name) {
            Err(StripFault::Name(name.into()))
        } else if beginning.contains('*') {
            Err(StripFault::Star(name.into()))
        } else if family && beginning.len() < MIN_FAMILY_LEN {
            Err(StripFault::Family(name.into()))
        } else {
            Ok(())
        }
    }

    /// The built-in families and these names; a name may end in `*` to stand for its family. Names
    /// that [`Self::check`] refuses are left out.
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        let own: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let all = PROTECTED.iter().copied().chain(own.iter().map(String::as_str));
        let mut entries: Vec<Entry> = all.filter_map(Entry::new).collect();
        entries.sort_by_key(|entry| bucket(&entry.name));
        let mut starts = [0; BUCKETS + 1];
        for (i, start) in starts.iter_mut().enumerate() {
            let before = entries.iter().filter(|entry| bucket(&entry.name) < i).count();
            *start = u16::try_from(before).unwrap_or(u16::MAX);
        }
        Self { entries: entries.into(), starts }
    }

    /// Whether a field of this name is to be deleted. For most names this reads two bytes.
    pub fn strips(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let bucket = bucket(name);
        let (start, end) = (usize::from(self.starts[bucket]), usize::from(self.starts[bucket + 1]));
        start != end && self.entries[start..end].iter().any(|entry| entry.matches(name))
            || client::describes_client(name)
    }
}

impl Default for StripSet {
    /// Only the built-in families.
    fn default() -> Self {
        Self::new::<&str>([])
    }
}

/// A name without the `*` at its end, and whether there was one.
fn split(name: &str) -> (&str, bool) {
    name.strip_suffix('*').map_or((name, false), |name| (name, true))
}

/// Entries with similar beginnings share a bucket. The third byte is the most distinctive: names
/// begin with `x-`, `co` or `ac`.
fn bucket(name: &[u8]) -> usize {
    let byte = |at: usize| name.get(at).map_or(0, |&b| usize::from(alias_class(b)));
    (byte(0) ^ (byte(2) << 2)) % BUCKETS
}

impl Entry {
    fn new(name: &str) -> Option<Self> {
        StripSet::check(name).ok()?;
        let (name, family) = split(name);
        Some(Self { name: name.bytes().map(alias_class).collect(), family })
    }

    fn matches(&self, name: &[u8]) -> bool {
        let length = if self.family { name.len() >= self.name.len() } else { name.len() == self.name.len() };
        length && name.iter().zip(&self.name).all(|(&a, &b)| alias_class(a) == b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_in_its_bucket() {
        let set = StripSet::new(["a", "ab", "Abc_Def", "own-*"]);
        assert_eq!(set.entries.len(), PROTECTED.len() + 4);
        for name in PROTECTED.iter().copied().chain(["a", "ab", "abc-def", "own-*"]) {
            let name = name.replace('*', "");
            assert!(set.strips(&name), "{name}");
            assert!(set.strips(&name.to_ascii_uppercase().replace('-', "_")), "{name}");
        }
        assert!(set.strips("own.thing") && !set.strips("own") && !set.strips(""));
    }

    #[test]
    fn most_buckets_are_empty_for_common_fields() {
        let set = StripSet::default();
        let crowd = |name: &str| {
            let bucket = bucket(name.as_bytes());
            set.starts[bucket + 1] - set.starts[bucket]
        };
        let common =
            ["host", "user-agent", "accept", "accept-encoding", "authorization", "cookie", "content-type"];
        assert!(common.iter().all(|name| crowd(name) <= 1), "{:?}", common.map(crowd));
        assert!((0..BUCKETS).all(|b| set.starts[b + 1] - set.starts[b] <= 5));
    }
}
