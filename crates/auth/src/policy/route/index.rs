//! Route index: hosts, then paths, each from specific to general.
//!
//! Keys are text of the configuration and probes are text of requests, so a client cannot fill a
//! table with colliding keys. The configuration bounds the number of probes, not the request. A
//! prefix is probed only at lengths that some configured prefix has, and the tree of templates is
//! as deep as the longest template.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::template::{Segment, Template, split_first};

/// Routes that share host and path, best first.
type Candidates = Vec<u32>;

/// Position of a route among the paths of one host.
#[derive(Debug)]
pub(super) enum PathKey<'a> {
    Exact(&'a str),
    Template(&'a Template),
    /// Without its trailing slash: the root is the empty string.
    Prefix(&'a str),
    Any,
}

/// Position of a route among the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum HostKey {
    Exact(Box<str>),
    /// With its leading dot: `.example.com`.
    Suffix(Box<str>),
    Any,
}

/// The index of all hosts.
#[derive(Debug, Default)]
pub(super) struct HostIndex {
    exact: HashMap<Box<str>, PathIndex>,
    suffixes: ByLength<PathIndex>,
    any: PathIndex,
}

impl HostIndex {
    /// Adds a route. Its `rank` orders templates; routes are added best first.
    pub(super) fn insert(&mut self, host: &HostKey, place: &PathKey<'_>, route: RankedRoute) {
        let paths = match host {
            HostKey::Exact(name) => self.exact.entry_ref(&**name).or_default(),
            HostKey::Suffix(suffix) => self.suffixes.entry(suffix),
            HostKey::Any => &mut self.any,
        };
        paths.insert(place, route);
    }

    /// The best route for which `holds`.
    pub(super) fn find(&self, host: &str, path: &str, holds: &impl Fn(u32) -> bool) -> Option<u32> {
        if !self.exact.is_empty()
            && let Some(paths) = self.exact.get(host)
            && let Some(route) = paths.find(path, holds)
        {
            return Some(route);
        }
        for &length in &self.suffixes.lengths {
            // At least one label before the suffix, and a dot at the boundary.
            let Some(start) = host.len().checked_sub(length).filter(|&start| start > 0) else { continue };
            if host.as_bytes()[start] == b'.'
                && let Some(paths) = self.suffixes.map.get(&host[start..])
                && let Some(route) = paths.find(path, holds)
            {
                return Some(route);
            }
        }
        self.any.find(path, holds)
    }

    /// For each host pattern that does not match `host`, the best route for which `holds`.
    pub(super) fn on_other_hosts(
        &self,
        host: &str,
        path: &str,
        holds: &impl Fn(u32) -> bool,
    ) -> BTreeSet<u32> {
        let exact = self.exact.iter().filter(|(name, _)| ***name != *host);
        let takes = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
        let suffixes = self.suffixes.map.iter().filter(|(suffix, _)| !takes(suffix));
        exact.chain(suffixes).filter_map(|(_, paths)| paths.find(path, holds)).collect()
    }
}

/// A route and its rank among all templates (0 is the most specific).
#[derive(Debug, Clone, Copy)]
pub(super) struct RankedRoute {
    pub(super) route: u32,
    pub(super) rank: u32,
}

/// The paths of one host, by kind.
#[derive(Debug, Default)]
struct PathIndex {
    exact: HashMap<Box<str>, Candidates>,
    templates: Option<Box<Node>>,
    prefixes: ByLength<Candidates>,
    any: Candidates,
}

impl PathIndex {
    fn insert(&mut self, place: &PathKey<'_>, route: RankedRoute) {
        let candidates = match place {
            PathKey::Exact(path) => self.exact.entry_ref(*path).or_default(),
            PathKey::Prefix(path) => self.prefixes.entry(path),
            PathKey::Any => &mut self.any,
            PathKey::Template(template) => {
                return self.templates.get_or_insert_default().insert(&template.segments, route);
            }
        };
        candidates.push(route.route);
    }

    fn find(&self, path: &str, holds: &impl Fn(u32) -> bool) -> Option<u32> {
        let first = |candidates: &Candidates| candidates.iter().copied().find(|&route| holds(route));
        if !self.exact.is_empty()
            && let Some(route) = self.exact.get(path).and_then(first)
        {
            return Some(route);
        }
        if let Some(root) = &self.templates
            && let Some(rest) = path.strip_prefix('/')
        {
            let mut best = None;
            root.find(Some(rest), holds, &mut best);
            if let Some(RankedRoute { route, .. }) = best {
                return Some(route);
            }
        }
        for &length in &self.prefixes.lengths {
            let boundary = match path.as_bytes().get(length) {
                Some(byte) => *byte == b'/',
                None => path.len() == length,
            };
            if boundary && let Some(route) = self.prefixes.map.get(&path[..length]).and_then(first) {
                return Some(route);
            }
        }
        first(&self.any)
    }
}

/// A map that knows the distinct lengths of its keys, longest first.
#[derive(Debug)]
struct ByLength<V> {
    map: HashMap<Box<str>, V>,
    lengths: Vec<usize>,
}

impl<V> Default for ByLength<V> {
    fn default() -> Self {
        Self { map: HashMap::new(), lengths: Vec::new() }
    }
}

impl<V: Default> ByLength<V> {
    fn entry(&mut self, key: &str) -> &mut V {
        if let Err(at) = self.lengths.binary_search_by(|length| key.len().cmp(length)) {
            self.lengths.insert(at, key.len());
        }
        self.map.entry_ref(key).or_default()
    }
}

/// A node of the tree of templates: what may follow one segment.
#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    capture: Option<Box<Node>>,
    tail: Vec<RankedRoute>,
    end: Vec<RankedRoute>,
}

impl Node {
    fn insert(&mut self, segments: &[Segment], route: RankedRoute) {
        match segments.split_first() {
            None => self.end.push(route),
            Some((Segment::Tail(_), _)) => self.tail.push(route),
            Some((Segment::Literal(text), rest)) => {
                self.literals.entry_ref(&**text).or_default().insert(rest, route);
            }
            Some((Segment::Capture(_), rest)) => self.capture.get_or_insert_default().insert(rest, route),
        }
    }

    /// Stores the best-ranked route for which `holds` in `best`. `rest` is the path after the last
    /// slash; `None` when the path has ended. Visits each node at most once.
    fn find(&self, rest: Option<&str>, holds: &impl Fn(u32) -> bool, best: &mut Option<RankedRoute>) {
        let mut offer = |candidates: &[RankedRoute]| {
            let better = |c: &&RankedRoute| best.is_none_or(|best| c.rank < best.rank);
            if let Some(&found) = candidates.iter().take_while(better).find(|c| holds(c.route)) {
                *best = Some(found);
            }
        };
        let Some(rest) = rest else { return offer(&self.end) };
        offer(&self.tail);
        let (segment, behind) = split_first(rest);
        if let Some(node) = self.literals.get(segment) {
            node.find(behind, holds, best);
        }
        if let Some(node) = self.capture.as_ref().filter(|_| !segment.is_empty()) {
            node.find(behind, holds, best);
        }
    }
}
