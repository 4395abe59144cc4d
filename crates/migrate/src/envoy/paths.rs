//! Paths of matches, and the paths here that mean the same.
//!
//! Envoy's first match wins, and its prefixes are text: `/api` is one of `/apix`. Here the most specific
//! route wins, and prefixes are segments. So each path that any match names becomes a [`Point`], for
//! which Envoy is asked what it would do there.

use serde_json::Value as Json;
use toml::Value;

use crate::draft::inline;

/// Conditions of a match beside its path.
pub(super) const CONDITIONS: [&str; 8] = [
    "case_sensitive",
    "connect_matcher",
    "dynamic_metadata",
    "grpc",
    "headers",
    "query_parameters",
    "runtime_fraction",
    "tls_context",
];

/// The path of a match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MatchedPath {
    /// Text that paths begin with.
    Prefix(String),
    /// Whole segments that paths begin with.
    Segments(String),
    Exact(String),
}

impl MatchedPath {
    /// `None`: the match is something else, such as a regular expression.
    pub(super) fn read(found: &Json) -> Option<Self> {
        let text = |field: &str| found[field].as_str().map(str::to_owned);
        let path = text("prefix").map(Self::Prefix).or_else(|| text("path").map(Self::Exact));
        path.or_else(|| text("path_separated_prefix").map(Self::Segments))
    }

    /// Whether it matches a path.
    pub(super) fn fits(&self, path: &str) -> bool {
        match self {
            Self::Prefix(prefix) => path.starts_with(&**prefix),
            Self::Segments(prefix) => {
                path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Exact(exact) => path == exact,
        }
    }

    /// The path, without the slash at the end of a prefix; empty for all paths.
    pub(super) fn plain(&self) -> &str {
        match self {
            Self::Prefix(prefix) | Self::Segments(prefix) => prefix.trim_end_matches('/'),
            Self::Exact(exact) => exact,
        }
    }

    /// The points that it names.
    pub(super) fn points(&self) -> Vec<Point> {
        let exact = |path: &str| Point { path: path.to_owned(), is_exact: true };
        match self {
            Self::Exact(path) => vec![exact(path)],
            _ if self.plain().is_empty() => vec![Point { path: String::new(), is_exact: false }],
            _ => vec![Point { path: self.plain().to_owned(), is_exact: false }, exact(self.plain())],
        }
    }

    /// A path that it matches though the same prefix here does not, such as `/apix` of `/api`.
    pub(super) fn beyond(&self) -> Option<String> {
        match self {
            Self::Prefix(prefix) if !prefix.ends_with('/') && !prefix.is_empty() => {
                Some(format!("{prefix}\0"))
            }
            _ => None,
        }
    }
}

/// A path of a route here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// Without a slash at the end if it is a prefix.
    pub(super) path: String,
    pub(super) is_exact: bool,
}

impl Point {
    /// A path that stands for all of its paths that are not those of another point.
    pub(super) fn sample(&self) -> String {
        // No match names a path with this character.
        if self.is_exact { self.path.clone() } else { format!("{}/\0", self.path) }
    }

    /// Whether it is a prefix that has this path or prefix, which is another one.
    pub(super) fn has(&self, path: &str) -> bool {
        !self.is_exact && path.strip_prefix(&*self.path).is_some_and(|rest| rest.starts_with('/'))
    }

    /// `path` of the route.
    pub(super) fn value(&self) -> Value {
        let key = if self.is_exact { "exact" } else { "prefix" };
        inline([(key, if self.path.is_empty() { "/" } else { &*self.path }.into())])
    }
}
