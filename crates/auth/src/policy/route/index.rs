//! Route index: hosts, then paths, each from specific to general.
//!
//! Keys are text of the configuration and probes are text of requests, so a client cannot fill a
//! table with colliding keys. The configuration bounds the number of probes, not the request. A
//! prefix is probed only at lengths that some configured prefix has, and the tree of templates is
//! as deep as the longest template.
//!
//! Versions of an index share what did not change ([`crate::snapshot`]): the paths of the other
//! hosts, and nearly all paths of the same host.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Rank;
use super::template::{Segment, Template, split_first};
use crate::snapshot::TextMap;

/// Routes that share host and path, best first.
#[derive(Debug, Clone, Default)]
enum Candidates {
    #[default]
    None,
    One(u32),
    Many(Arc<[u32]>),
}

/// Path of a route in normal form.
#[derive(Debug, Clone)]
pub(super) enum Path {
    Exact(Box<str>),
    Template(Template),
    /// Without its trailing slash: the root is the empty string.
    Prefix(Box<str>),
    Any,
}

/// Host pattern of a route in normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum HostKey {
    Exact(Box<str>),
    /// With its leading dot: `.example.com`.
    Suffix(Box<str>),
    Any,
}

/// The index of all hosts.
#[derive(Debug, Clone, Default)]
pub(super) struct HostIndex {
    exact: TextMap<Arc<PathIndex>>,
    suffixes: ByLength<Arc<PathIndex>>,
    any: Arc<PathIndex>,
}

impl HostIndex {
    /// Adds a route. `rank` tells which of two routes is better.
    pub(super) fn insert<'r>(
        &mut self,
        host: &HostKey,
        path: &Path,
        route: u32,
        rank: &impl Fn(u32) -> &'r Rank,
    ) {
        let paths = match host {
            HostKey::Exact(name) => self.exact.entry(name),
            HostKey::Suffix(suffix) => self.suffixes.entry(suffix),
            HostKey::Any => &mut self.any,
        };
        Arc::make_mut(paths).insert(path, route, rank);
    }

    /// Removes a route that was added with the same host and path.
    pub(super) fn remove(&mut self, host: &HostKey, path: &Path, route: u32) {
        match host {
            HostKey::Exact(name) => {
                let paths = Arc::make_mut(self.exact.entry(name));
                paths.remove(path, route);
                if paths.is_empty() {
                    self.exact.remove(name);
                }
            }
            HostKey::Suffix(suffix) => {
                let paths = Arc::make_mut(self.suffixes.entry(suffix));
                paths.remove(path, route);
                if paths.is_empty() {
                    self.suffixes.remove(suffix);
                }
            }
            HostKey::Any => Arc::make_mut(&mut self.any).remove(path, route),
        }
    }

    /// Whether there is no route.
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.suffixes.map.is_empty() && self.any.is_empty()
    }

    /// The best route for which `holds`.
    pub(super) fn find<'r>(&self, host: &str, path: &str, holds: &impl Holds<'r>) -> Option<u32> {
        if let Some(paths) = self.exact.get(host)
            && let Some(route) = paths.find(path, holds)
        {
            return Some(route);
        }
        for &(length, _) in &self.suffixes.lengths {
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
    pub(super) fn on_other_hosts<'r>(&self, host: &str, path: &str, holds: &impl Holds<'r>) -> BTreeSet<u32> {
        let exact = self.exact.iter().filter(|(name, _)| *name != host);
        let takes = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
        let suffixes = self.suffixes.map.iter().filter(|(suffix, _)| !takes(suffix));
        exact.chain(suffixes).filter_map(|(_, paths)| paths.find(path, holds)).collect()
    }
}

/// What a lookup asks about the routes of a host and path.
pub(super) trait Holds<'r> {
    /// Whether the request meets the other conditions of a route.
    fn holds(&self, route: u32) -> bool;

    /// The rank of a route among those that match.
    fn rank(&self, route: u32) -> &'r Rank;
}

impl Candidates {
    fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(route) => std::slice::from_ref(route),
            Self::Many(routes) => routes,
        }
    }

    fn insert<'r>(&mut self, route: u32, rank: &impl Fn(u32) -> &'r Rank) {
        let held = self.as_slice();
        let at = held.partition_point(|other| rank(*other) <= rank(route));
        *self = [&held[..at], &[route], &held[at..]].concat().into();
    }

    fn remove(&mut self, route: u32) {
        *self = self.as_slice().iter().copied().filter(|held| *held != route).collect::<Vec<_>>().into();
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    fn first<'r>(&self, holds: &impl Holds<'r>) -> Option<u32> {
        self.as_slice().iter().copied().find(|&route| holds.holds(route))
    }
}

impl From<Vec<u32>> for Candidates {
    fn from(routes: Vec<u32>) -> Self {
        match *routes {
            [] => Self::None,
            [one] => Self::One(one),
            _ => Self::Many(routes.into()),
        }
    }
}

/// The paths of one host, by kind.
#[derive(Debug, Clone, Default)]
struct PathIndex {
    exact: TextMap<Candidates>,
    templates: Option<Box<Node>>,
    prefixes: ByLength<Candidates>,
    any: Candidates,
}

impl PathIndex {
    fn insert<'r>(&mut self, path: &Path, route: u32, rank: &impl Fn(u32) -> &'r Rank) {
        let candidates = match path {
            Path::Exact(path) => self.exact.entry(path),
            Path::Prefix(path) => self.prefixes.entry(path),
            Path::Any => &mut self.any,
            Path::Template(template) => self.templates.get_or_insert_default().at(&template.segments),
        };
        candidates.insert(route, rank);
    }

    fn remove(&mut self, path: &Path, route: u32) {
        match path {
            Path::Exact(path) => {
                let candidates = self.exact.entry(path);
                candidates.remove(route);
                if candidates.is_empty() {
                    self.exact.remove(path);
                }
            }
            Path::Prefix(path) => {
                let candidates = self.prefixes.entry(path);
                candidates.remove(route);
                if candidates.is_empty() {
                    self.prefixes.remove(path);
                }
            }
            Path::Any => self.any.remove(route),
            Path::Template(template) => {
                let Some(root) = &mut self.templates else { return };
                root.at(&template.segments).remove(route);
                if root.prune() {
                    self.templates = None;
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.templates.is_none()
            && self.prefixes.map.is_empty()
            && self.any.is_empty()
    }

    fn find<'r>(&self, path: &str, holds: &impl Holds<'r>) -> Option<u32> {
        if let Some(route) = self.exact.get(path).and_then(|candidates| candidates.first(holds)) {
            return Some(route);
        }
        if let Some(root) = &self.templates
            && let Some(rest) = path.strip_prefix('/')
        {
            let mut best = None;
            root.find(Some(rest), holds, &mut best);
            if best.is_some() {
                return best;
            }
        }
        for &(length, _) in &self.prefixes.lengths {
            let boundary = match path.as_bytes().get(length) {
                Some(byte) => *byte == b'/',
                None => path.len() == length,
            };
            if boundary
                && let Some(candidates) = self.prefixes.map.get(&path[..length])
                && let Some(route) = candidates.first(holds)
            {
                return Some(route);
            }
        }
        self.any.first(holds)
    }
}

/// A map that knows the distinct lengths of its keys, longest first, and how many keys each has.
#[derive(Debug, Clone)]
struct ByLength<V> {
    map: TextMap<V>,
    lengths: Vec<(usize, u32)>,
}

impl<V> Default for ByLength<V> {
    fn default() -> Self {
        Self { map: TextMap::default(), lengths: Vec::new() }
    }
}

impl<V: Clone + Default> ByLength<V> {
    fn entry(&mut self, key: &str) -> &mut V {
        if self.map.get(key).is_none() {
            match self.lengths.binary_search_by(|(length, _)| key.len().cmp(length)) {
                Ok(at) => self.lengths[at].1 += 1,
                Err(at) => self.lengths.insert(at, (key.len(), 1)),
            }
        }
        self.map.entry(key)
    }

    fn remove(&mut self, key: &str) {
        if self.map.remove(key).is_some()
            && let Ok(at) = self.lengths.binary_search_by(|(length, _)| key.len().cmp(length))
        {
            self.lengths[at].1 -= 1;
            if self.lengths[at].1 == 0 {
                self.lengths.remove(at);
            }
        }
    }
}

/// A node of the tree of templates: what may follow one segment.
#[derive(Debug, Clone, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    capture: Option<Box<Node>>,
    tail: Candidates,
    end: Candidates,
}

impl Node {
    /// The routes with a template.
    fn at(&mut self, segments: &[Segment]) -> &mut Candidates {
        match segments.split_first() {
            None => &mut self.end,
            Some((Segment::Tail(_), _)) => &mut self.tail,
            Some((Segment::Literal(text), rest)) => self.literals.entry_ref(&**text).or_default().at(rest),
            Some((Segment::Capture(_), rest)) => self.capture.get_or_insert_default().at(rest),
        }
    }

    /// Drops nodes without a route. True when this is one.
    fn prune(&mut self) -> bool {
        self.literals.retain(|_, node| !node.prune());
        if self.capture.as_mut().is_some_and(|node| node.prune()) {
            self.capture = None;
        }
        self.literals.is_empty() && self.capture.is_none() && self.tail.is_empty() && self.end.is_empty()
    }

    /// Stores the best-ranked route for which `holds` in `best`. `rest` is the path after the last
    /// slash; `None` when the path has ended. Visits each node at most once.
    fn find<'r>(&self, rest: Option<&str>, holds: &impl Holds<'r>, best: &mut Option<u32>) {
        let mut offer = |candidates: &Candidates| {
            let better = |route: &u32| best.is_none_or(|best| holds.rank(*route) < holds.rank(best));
            let mut better = candidates.as_slice().iter().copied().take_while(better);
            if let Some(found) = better.find(|route| holds.holds(*route)) {
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
