//! Route table construction: from configured routes to the table, or to every fault in them.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::index::{HostKey, Path};
use super::template::Template;
use super::{
    Conditions, HeaderCondition, HeaderMatch, Order, PathMatch, PlacedRoute, QueryMatch, Rank, RouteMatch,
    RouteTable, Scope,
};
use crate::headers::is_per_hop;
use crate::policy::{Faults, PolicyFault, PolicyProblem, check_head, check_methods};
use crate::request::{canonical_host, canonical_path, is_token};

/// A route that has been checked and normalised, without its hosts.
#[derive(Debug)]
pub struct CheckedRoute {
    path: Path,
    conditions: Conditions,
    rank: Rank,
}

/// Host patterns that have been checked and normalised, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSet {
    pub(super) keys: Box<[HostKey]>,
}

impl RouteTable {
    /// Checks and indexes the routes of the file. A route's position in the list is its number and
    /// its tie-breaker.
    ///
    /// # Errors
    /// Every fault, with its place (`routes[3].hosts[0]`), including every pair of routes of which
    /// one could never be chosen.
    pub fn build(routes: Vec<RouteMatch>) -> Result<Self, Vec<PolicyFault>> {
        let mut faults = Faults::default();
        let names: Vec<String> = routes.iter().map(|route| route.name.clone()).collect();
        let routes = routes.into_iter().enumerate();
        let checked: Vec<_> = routes.map(|(i, route)| check_in_list(route, i, &mut faults)).collect();
        find_unreachable(&checked, &names, &mut faults);
        let mut table = Self::default();
        for (at, (route, hosts)) in checked.into_iter().enumerate() {
            table.insert(at, route, [(Scope::FILE, hosts)]);
        }
        faults.into_result(table)
    }
}

impl CheckedRoute {
    /// Checks and normalises everything about a route but its hosts.
    ///
    /// # Errors
    /// Every fault, with its place in the route (`headers[0]`).
    pub fn new(route: RouteMatch, order: Order) -> Result<Self, Vec<PolicyFault>> {
        let mut faults = Faults::default();
        let checked = check(route, order, "", &mut faults);
        faults.into_result(checked)
    }

    pub(super) fn placed(self, places: Box<[(Scope, HostSet)]>) -> PlacedRoute {
        let Self { path, conditions, rank } = self;
        PlacedRoute { conditions, path, rank, places }
    }
}

impl HostSet {
    /// Checks and normalises host patterns. None mean any host.
    ///
    /// # Errors
    /// Every pattern that no host can match, with its place in the list.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Self, Vec<(usize, PolicyProblem)>> {
        let mut keys = Vec::with_capacity(patterns.len().max(1));
        let mut faults = Vec::new();
        for (at, pattern) in patterns.iter().enumerate() {
            match host_key(pattern.as_ref()) {
                // The same pattern twice counts once.
                Ok(key) if keys.contains(&key) => {}
                Ok(key) => keys.push(key),
                Err(problem) => faults.push((at, problem)),
            }
        }
        if patterns.is_empty() {
            keys.push(HostKey::Any);
        }
        if faults.is_empty() { Ok(Self { keys: keys.into() }) } else { Err(faults) }
    }
}

/// Reports each route for which another one with the same host and path leaves nothing to match:
/// that one is tried first, has the same other conditions, and every method of this one.
fn find_unreachable(routes: &[(CheckedRoute, HostSet)], names: &[String], faults: &mut Faults) {
    let mut order: Vec<usize> = (0..routes.len()).collect();
    order.sort_by_key(|&i| &routes[i].0.rank);
    let mut seen: HashMap<(&HostKey, String), Vec<usize>> = HashMap::new();
    for &i in &order {
        let (route, hosts) = &routes[i];
        for host in &hosts.keys {
            let before = seen.entry((host, route.path.shape())).or_default();
            if let Some(&earlier) = before.iter().find(|&&j| routes[j].0.conditions.covers(&route.conditions))
            {
                // In the order of the file, regardless of which of the two would be chosen.
                let (first, second) = (i.min(earlier), i.max(earlier));
                let problem = PolicyProblem::Indistinguishable {
                    route: names[second].clone(),
                    earlier: names[first].clone(),
                    host: host.to_string(),
                };
                faults.add(format!("routes[{second}]"), problem);
            }
            before.push(i);
        }
    }
}

impl Conditions {
    /// Whether every request that meets `other` meets this too, as far as can be determined: equal
    /// headers and parameters, and no fewer methods.
    fn covers(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method)));
        let methods = methods && (self.methods.is_empty() || self.exact_methods == other.exact_methods);
        methods && self.headers == other.headers && self.query == other.query
    }
}

impl Path {
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

/// Checks a route of the file.
fn check_in_list(route: RouteMatch, index: usize, faults: &mut Faults) -> (CheckedRoute, HostSet) {
    let at = format!("routes[{index}].");
    let hosts = HostSet::new(&route.hosts).unwrap_or_else(|problems| {
        for (i, problem) in problems {
            faults.add(format!("{at}hosts[{i}]"), problem);
        }
        HostSet { keys: Box::default() }
    });
    (check(route, Order::in_file(index), &at, faults), hosts)
}

fn check(route: RouteMatch, order: Order, at: &str, faults: &mut Faults) -> CheckedRoute {
    let path = parse_path(route.path).unwrap_or_else(|problems| {
        for problem in problems {
            faults.add(format!("{at}path"), problem);
        }
        // A placeholder until the faults are reported; it is like no other route's path.
        Path::Exact(format!("{at}{}", order.position).into())
    });
    let exact_methods = route.exact_methods;
    check_methods(&route.methods, &format!("{at}methods"), faults);
    if !exact_methods {
        check_head(&route.methods, &format!("{at}methods"), faults);
    }
    // Otherwise GET includes HEAD, so HEAD adds nothing.
    let methods = route.methods.into_iter().filter(|method| exact_methods || method != "HEAD");
    let mut methods: Vec<Box<str>> = methods.map(Into::into).collect();
    methods.sort_unstable();
    methods.dedup();
    let headers = route.headers.into_iter().enumerate();
    let mut headers: Vec<_> =
        headers.map(|(i, header)| check_header(header, &format!("{at}headers[{i}]"), faults)).collect();
    headers.sort_unstable();
    headers.dedup();
    let mut query = route.query;
    for (i, parameter) in query.iter().enumerate() {
        check_parameter(parameter, &format!("{at}query[{i}]"), faults);
    }
    query.sort_unstable();
    query.dedup();
    let template = if let Path::Template(template) = &path { Some(template.rank()) } else { None };
    let rank = Rank {
        template,
        method: Reverse(!methods.is_empty()),
        headers: Reverse(headers.len()),
        query: Reverse(query.len()),
        order,
    };
    let conditions =
        Conditions { methods: methods.into(), exact_methods, headers: headers.into(), query: query.into() };
    CheckedRoute { path, conditions, rank }
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

fn check_parameter(parameter: &QueryMatch, path: &str, faults: &mut Faults) {
    if parameter.name.is_empty() {
        faults.add(path, PolicyProblem::EmptyParameter);
    }
    let texts = [Some(&parameter.name), parameter.value.as_ref()];
    if texts.into_iter().flatten().any(|text| text.contains('\0')) {
        faults.add(path, PolicyProblem::ParameterNul(parameter.name.clone()));
    }
}
