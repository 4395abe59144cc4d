//! Scopes of a socket: which listener of a Gateway takes the requests for a host.

use std::collections::HashMap;

use super::index::HostKey;
use super::{HostSet, Scope};

/// The scopes of the listeners on one socket, by host. The most specific pattern counts: an exact
/// host, then the longest wildcard, then any host. A request that this scope has no route for is
/// not looked up in another one (listener isolation of the Gateway API).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScopeIndex {
    exact: HashMap<Box<str>, Scope>,
    /// With their leading dots.
    suffixes: HashMap<Box<str>, Scope>,
    /// The lengths of the suffixes, longest first.
    lengths: Vec<usize>,
    any: Option<Scope>,
}

impl ScopeIndex {
    /// The index of listeners. Of two with the same pattern the first counts.
    pub fn new(listeners: impl IntoIterator<Item = (HostSet, Scope)>) -> Self {
        let mut index = Self::default();
        for (hosts, scope) in listeners {
            for key in &hosts.keys {
                match key {
                    HostKey::Exact(name) => _ = index.exact.entry(name.clone()).or_insert(scope),
                    HostKey::Suffix(suffix) => _ = index.suffixes.entry(suffix.clone()).or_insert(scope),
                    HostKey::Any => _ = index.any.get_or_insert(scope),
                }
            }
        }
        index.lengths = index.suffixes.keys().map(|suffix| suffix.len()).collect();
        index.lengths.sort_unstable_by(|a, b| b.cmp(a));
        index.lengths.dedup();
        index
    }

    /// The scope of a host in canonical form.
    pub fn find(&self, host: &str) -> Option<Scope> {
        if let Some(scope) = self.exact.get(host) {
            return Some(*scope);
        }
        for &length in &self.lengths {
            // At least one label before the suffix.
            let start =
                host.len().checked_sub(length).filter(|start| *start > 0 && host.is_char_boundary(*start));
            if let Some(scope) = start.and_then(|start| self.suffixes.get(&host[start..])) {
                return Some(*scope);
            }
        }
        self.any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_listener_takes_a_host() {
        let patterns = ["*.example.com", "a.example.com", "*", "*.b.example.com", "a.example.com"];
        let listeners = patterns.iter().zip(1..).map(|(pattern, n)| {
            let hosts = HostSet::new(&[pattern]).unwrap();
            (hosts, Scope::new(n))
        });
        let index = ScopeIndex::new(listeners);
        for (host, scope) in [
            ("a.example.com", 2),
            ("x.example.com", 1),
            ("x.y.example.com", 1),
            ("x.b.example.com", 4),
            ("b.example.com", 1),
            ("example.com", 3),
            ("xexample.com", 3),
            ("10.0.0.1", 3),
            ("", 3),
        ] {
            assert_eq!(index.find(host), Some(Scope::new(scope)), "{host}");
        }
        assert_eq!(ScopeIndex::default().find("a.example.com"), None);
    }
}
