//! Matches of rules.
//!
//! Owns: paths, methods, headers, query parameters, gRPC methods, and durations as text.
//! Does not own: filters.
//! Flow: spec of a match → [`MatchPlan`], or the reason to refuse the route.

use std::collections::BTreeSet;
use std::time::Duration;

use super::unsupported;
use crate::fault::Fault;
use crate::names::Name;
use crate::objects::route::{GrpcMatch, HttpMatch, PathSpec, ValueSpec};
use crate::plan::{GrpcMethodMatch, MatchPlan, PathMatch, ValueMatch};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

pub(super) fn http(spec: &HttpMatch) -> Result<MatchPlan, Fault> {
    if let Some(method) = spec.method.as_ref().filter(|method| !METHODS.contains(&method.as_str())) {
        return Err(unsupported(format!("method {method} is not known")));
    }
    Ok(MatchPlan {
        path: spec.path.as_ref().map(path).transpose()?.unwrap_or_default(),
        method: spec.method.clone(),
        headers: headers(&spec.headers)?,
        query: values("queryParams", &spec.query_params, Name::clone)?,
        ..MatchPlan::default()
    })
}

/// Fills in the parameters that a route distinguishes by letter case.
pub(super) fn distinguish_parameters<'m>(matches: impl Iterator<Item = &'m mut MatchPlan>) {
    let mut matches: Vec<&mut MatchPlan> = matches.filter(|one| !one.query.is_empty()).collect();
    let read = matches.iter().flat_map(|one| &one.query).map(|parameter| parameter.name.clone());
    let read: BTreeSet<Name> = read.collect();
    for one in &mut matches {
        let differs_in_case = |name: &&Name| {
            let known = |parameter: &ValueMatch| parameter.name.eq_ignore_ascii_case(name);
            one.query.iter().any(known) && !one.query.iter().any(|parameter| parameter.name == **name)
        };
        one.other_parameters = read.iter().filter(differs_in_case).cloned().collect();
    }
}

pub(super) fn grpc(spec: &GrpcMatch) -> Result<MatchPlan, Fault> {
    let mut method = GrpcMethodMatch::default();
    if let Some(spec) = &spec.method {
        is_exact("method", spec.of_type.as_ref())?;
        let part = |part: &Option<Name>| part.clone().filter(|part| !part.is_empty());
        method = GrpcMethodMatch { service: part(&spec.service), method: part(&spec.method) };
    }
    Ok(MatchPlan { headers: headers(&spec.headers)?, grpc: Some(method), ..MatchPlan::default() })
}

fn path(spec: &PathSpec) -> Result<PathMatch, Fault> {
    let value = spec.value.clone().unwrap_or_else(|| Name::from("/"));
    if !value.starts_with('/') {
        return Err(unsupported(format!("path {value} does not begin with /")));
    }
    match spec.of_type.as_deref().unwrap_or("PathPrefix") {
        "Exact" => Ok(PathMatch::Exact(value)),
        "PathPrefix" => Ok(PathMatch::Prefix(value)),
        other => Err(unsupported(format!("path of type {other} is not supported: use Exact or PathPrefix"))),
    }
}

fn headers(specs: &[ValueSpec]) -> Result<Box<[ValueMatch]>, Fault> {
    values("headers", specs, |name| Name::from(name.to_ascii_lowercase()))
}

/// Exact values. If a name occurs more than once, the first one counts (Gateway API,
/// `HTTPRouteMatch.headers` and `queryParams`).
fn values(
    field: &str,
    specs: &[ValueSpec],
    form: impl Fn(&Name) -> Name,
) -> Result<Box<[ValueMatch]>, Fault> {
    let mut found: Vec<ValueMatch> = Vec::with_capacity(specs.len());
    for spec in specs {
        is_exact(field, spec.of_type.as_ref())?;
        let name = form(&spec.name);
        if !found.iter().any(|one| one.name == name) {
            found.push(ValueMatch { name, value: spec.value.clone() });
        }
    }
    Ok(found.into_boxed_slice())
}

fn is_exact(field: &str, of_type: Option<&Name>) -> Result<(), Fault> {
    match of_type.map_or("Exact", Name::as_str) {
        "Exact" => Ok(()),
        other => Err(unsupported(format!("{field} of type {other} is not supported: use Exact"))),
    }
}

/// A duration of GEP-2257: one to four numbers of up to five digits, each with one of the units `h`,
/// `m`, `s` and `ms`.
pub fn duration(field: &str, text: &str) -> Result<Duration, Fault> {
    parse_duration(text)
        .ok_or_else(|| unsupported(format!("{field} {text} is not a duration such as 1m30s or 500ms")))
}

fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit_length = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at(unit_length);
        let number: u64 = number.parse().ok().filter(|_| digits <= 5)?;
        total += match unit {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = after;
        parts += 1;
    }
    (1..=4).contains(&parts).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_gep_2257() {
        let cases = [
            ("0s", Some(0)),
            ("10s", Some(10_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("", None),
            ("10", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("100000s", None),
            ("1d", None),
            ("1s1s1s1s1s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
