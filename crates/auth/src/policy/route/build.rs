//! Route table construction: from configured routes to the table, or to every fault in them.

use std::borrow::Cow;
use std::collections::HashMap;

use super::index::{HostIndex, HostKey, PathKey, RankedRoute};
use super::template::Template;
use super::{Conditions, HeaderCondition, HeaderMatch, PathMatch, RouteMatch, RouteTable};
use crate::headers::is_per_hop;
use crate::policy::{Faults, PolicyFault, PolicyProblem, check_methods};
use crate::request::{canonical_host, canonical_path, is_token};

/// A route that has been checked and normalised.
struct CheckedRoute {
    name: String,
    hosts: Vec<HostKey>,
    path: Path,
    conditions: Conditions,
}

/// A path pattern in normal form.
enum Path {
    Exact(Box<str>),
    Template(Template),
    Prefix(Box<str>),
    Any,
}

impl RouteTable {
    /// Checks and indexes routes. A route's position in the list is its index and its tie-breaker.
    ///
    /// # Errors
    /// Every fault, with its place (`routes[3].hosts[0]`), including every pair of routes of which
    /// one could never be chosen.
    pub fn build(routes: Vec<RouteMatch>) -> Result<Self, Vec<PolicyFault>> {
        let mut faults = Faults::default();
        let checked: Vec<CheckedRoute> =
            routes.into_iter().enumerate().map(|(i, route)| check(route, i, &mut faults)).collect();
        let order = by_specificity(&checked);
        find_unreachable(&checked, &order, &mut faults);
        let mut hosts = HostIndex::default();
        for (rank, &i) in order.iter().enumerate() {
            let route = &checked[i];
            let ranked = RankedRoute { route: to_u32(i), rank: to_u32(rank) };
            for host in &route.hosts {
                hosts.insert(host, &route.path.path_key(), ranked);
            }
        }
        let conditions = checked.into_iter().map(CheckedRoute::into_conditions).collect();
        faults.into_result(Self { routes: conditions, hosts })
    }
}

/// More than four thousand million routes do not fit into memory.
fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The order in which routes for the same host and kind of path are tried. Ranks of templates
/// depend on it too.
fn by_specificity(routes: &[CheckedRoute]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..routes.len()).collect();
    order.sort_by_cached_key(|&i| {
        let template =
            if let Path::Template(template) = &routes[i].path { Some(template.rank()) } else { None };
        (template, std::cmp::Reverse(routes[i].conditions.count()), i)
    });
    order
}

/// Reports each route for which an earlier one with the same host and path leaves nothing to match:
/// the earlier one has the same header conditions and every method of the later one.
fn find_unreachable(routes: &[CheckedRoute], order: &[usize], faults: &mut Faults) {
    let mut seen: HashMap<(&HostKey, String), Vec<usize>> = HashMap::new();
    for &i in order {
        let route = &routes[i];
        for host in &route.hosts {
            let before = seen.entry((host, route.path.shape())).or_default();
            if let Some(&earlier) = before.iter().find(|&&j| routes[j].conditions.covers(&route.conditions)) {
                // In the order of the file, regardless of which of the two would be chosen.
                let (first, second) = (i.min(earlier), i.max(earlier));
                let problem = PolicyProblem::Indistinguishable {
                    route: routes[second].name.clone(),
                    earlier: routes[first].name.clone(),
                    host: host.to_string(),
                };
                faults.add(format!("routes[{second}]"), problem);
            }
            before.push(i);
        }
    }
}

impl CheckedRoute {
    fn into_conditions(self) -> Conditions {
        let template = if let Path::Template(template) = self.path { Some(template) } else { None };
        Conditions { template, ..self.conditions }
    }
}

impl Conditions {
    /// Number of conditions; a method list counts as one.
    fn count(&self) -> usize {
        self.headers.len() + usize::from(!self.methods.is_empty())
    }

    /// Whether every request that meets `other` meets this too, as far as can be determined: equal
    /// headers, and no fewer methods.
    fn covers(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method)));
        methods
            && self.headers.len() == other.headers.len()
            && self.headers.iter().all(|header| other.headers.contains(header))
    }
}

impl Path {
    fn path_key(&self) -> PathKey<'_> {
        match self {
            Self::Exact(path) => PathKey::Exact(path),
            Self::Template(template) => PathKey::Template(template),
            Self::Prefix(path) => PathKey::Prefix(path),
            Self::Any => PathKey::Any,
        }
    }

    /// Equal for patterns that match the same paths, and different for different kinds of pattern.
    fn shape(&self) -> String {
        match self {
            Self::Exact(path) => format!("exact {path}"),
            Self::Template(template) => format!("template {}", template.shape()),
            Self::Prefix(path) => format!("prefix {path}"),
            Self::Any => "any".into(),
        }
    }
}

impl std::fmt::Display for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

fn check(route: RouteMatch, index: usize, faults: &mut Faults) -> CheckedRoute {
    let at = format!("routes[{index}]");
    let mut hosts = Vec::with_capacity(route.hosts.len().max(1));
    for (i, host) in route.hosts.iter().enumerate() {
        match host_key(host) {
            // The same pattern twice in one route counts once.
            Ok(key) if hosts.contains(&key) => {}
            Ok(key) => hosts.push(key),
            Err(problem) => faults.add(format!("{at}.hosts[{i}]"), problem),
        }
    }
    if route.hosts.is_empty() {
        hosts.push(HostKey::Any);
    }
    let path = parse_path(route.path).unwrap_or_else(|problems| {
        for problem in problems {
            faults.add(format!("{at}.path"), problem);
        }
        // A placeholder until the faults are reported; it is like no other route's path.
        Path::Exact(at.as_str().into())
    });
    check_methods(&route.methods, &format!("{at}.methods"), faults);
    // GET includes HEAD, so HEAD adds nothing.
    let mut methods: Vec<Box<str>> =
        route.methods.into_iter().filter(|m| m != "HEAD").map(Into::into).collect();
    methods.sort_unstable();
    methods.dedup();
    let headers = route.headers.into_iter().enumerate();
    let mut headers: Vec<_> =
        headers.map(|(i, header)| check_header(header, &format!("{at}.headers[{i}]"), faults)).collect();
    headers.sort_unstable();
    headers.dedup();
    let conditions = Conditions { methods: methods.into(), headers: headers.into(), template: None };
    CheckedRoute { name: route.name, hosts, path, conditions }
}

fn host_key(pattern: &str) -> Result<HostKey, PolicyProblem> {
    if pattern == "*" {
        return Ok(HostKey::Any);
    }
    let fault = |fault| PolicyProblem::Host { host: pattern.into(), fault };
    if let Some(name) = pattern.strip_prefix("*.") {
        let name = canonical_host(name).map_err(fault)?;
        return Ok(HostKey::Suffix(format!(".{name}").into()));
    }
    canonical_host(pattern).map(|name| HostKey::Exact(name.into())).map_err(fault)
}

fn parse_path(pattern: PathMatch) -> Result<Path, Vec<PolicyProblem>> {
    match pattern {
        PathMatch::Any => Ok(Path::Any),
        PathMatch::Exact(path) if path == "*" => Ok(Path::Exact("*".into())),
        PathMatch::Exact(path) => Ok(Path::Exact(normalize_literal(&path)?.into())),
        PathMatch::Prefix(path) => {
            let path = normalize_literal(&path)?;
            Ok(Path::Prefix(path.strip_suffix('/').unwrap_or(&path).into()))
        }
        PathMatch::Template(template) => Template::parse(&template).map(Path::Template),
    }
}

fn normalize_literal(path: &str) -> Result<Cow<'_, str>, Vec<PolicyProblem>> {
    let (normal, several) =
        canonical_path(path).map_err(|fault| vec![PolicyProblem::Path { path: path.into(), fault }])?;
    if several { Err(vec![PolicyProblem::several_readings(path, &normal)]) } else { Ok(normal) }
}

fn check_header(header: HeaderMatch, path: &str, faults: &mut Faults) -> HeaderCondition {
    let HeaderMatch { name, value } = header;
    if !is_token(&name) {
        faults.add(path, PolicyProblem::HeaderName(name.clone()));
    } else if is_per_hop(&name) {
        faults.add(path, PolicyProblem::HeaderPerHop(name.clone()));
    }
    if let Some(value) = &value
        && (value.is_empty() || value.trim() != value || value.chars().any(char::is_control))
    {
        faults.add(path, PolicyProblem::HeaderValue(name.clone()));
    }
    (name.to_ascii_lowercase().into(), value.map(|value| value.into_bytes().into()))
}
