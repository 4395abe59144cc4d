//! Policy: which route matches a request, and which callers a route permits.
//!
//! Owns: [`route`], the table from canonical requests to routes; [`rule`], the rules of a route;
//! [`review`], what Kubernetes is asked where no rule decides; the faults that these find in their
//! configuration. Routes and rules are built once, completely or not at all, and are read-only
//! afterwards.
//!
//! Does not own: the file format (the binary's `config`), the evaluation order of a decision
//! (`decide`).

pub mod review;
pub mod route;
pub mod rule;

use crate::request::Malformed;

/// One fault in the configuration of routes or rules, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PolicyFault {
    /// Its place, relative to the list that was passed in: `routes[3].hosts[0]`, `allow[0].groups`.
    pub path: String,
    /// What is wrong with it.
    pub problem: PolicyProblem,
}

/// Faults of routes and rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyProblem {
    /// A host pattern that no request's host can match.
    #[error("{host:?} is not a host pattern, {fault}: write example.com, *.example.com or *, without a port")]
    Host {
        /// The host pattern as configured.
        host: String,
        /// Why it is not valid.
        fault: Malformed,
    },
    /// A path that no request's path can match.
    #[error("no request can have the path {path:?}: {fault}")]
    Path {
        /// The path as configured.
        path: String,
        /// Why it is not valid.
        fault: Malformed,
    },
    /// A path pattern with parameters, which [`route::RouteTable::find`] does not distinguish.
    #[error("the path {0:?} has path parameters (;), which routing ignores: remove them")]
    PathParameters(String),
    /// A path pattern with an escape of a character that may stand raw, which is not distinguished
    /// either.
    #[error("the path {0:?} escapes a character of ! $ & ' ( ) * + , = : @; write it as it is")]
    PathEscapes(String),
    /// A template segment that mixes literal text and braces.
    #[error("the template segment {0:?} is neither literal nor a whole {{name}} or {{name...}}")]
    TemplateSegment(String),
    /// A capture name used twice in one template.
    #[error("the template captures {0:?} twice")]
    TemplateName(String),
    /// A tail `{name...}` that is not the last segment.
    #[error("the tail {0:?} must be the template's last segment")]
    TemplateTail(String),
    /// A template without captures.
    #[error("the template {0:?} captures nothing: write it as an exact path")]
    TemplateLiteral(String),
    /// A method that is not a token.
    #[error("{0:?} is not a method")]
    Method(String),
    /// A method in lower case; methods are case-sensitive.
    #[error("methods are case-sensitive: {0:?} is not {upper}", upper = .0.to_ascii_uppercase())]
    MethodCase(String),
    /// The method `CONNECT` or `TRACE`, which is never served.
    #[error("the method {0} is never served")]
    MethodRefused(String),
    /// A method list with `HEAD` and without `GET`.
    #[error("HEAD needs GET's right: list GET, which includes HEAD")]
    HeadAlone,
    /// A header condition whose name is not a field name.
    #[error("{0:?} is not a header name")]
    HeaderName(String),
    /// A header condition on a field that describes one connection, and that each hop replaces.
    #[error(
        "the header {0} belongs to the connection to this gateway and is not forwarded, so no route can depend on it{remedy}",
        remedy = if .0.eq_ignore_ascii_case("upgrade") { ": list the protocols that clients may switch to in `upgrades`" } else { "" }
    )]
    HeaderPerHop(String),
    /// A header condition with a value that no field can have.
    #[error("the value for header {0} is empty, has surrounding spaces or contains a control character")]
    HeaderValue(String),
    /// A query condition without a name.
    #[error("the name of the query parameter is empty")]
    EmptyParameter,
    /// A query condition with NUL, which no request that can be read has.
    #[error("the query parameter {0:?} contains NUL")]
    ParameterNul(String),
    /// A route that another one makes unreachable.
    #[error(
        "route {route:?} cannot be distinguished from route {earlier:?} for host {host} and the same path"
    )]
    Indistinguishable {
        /// The route that is never chosen.
        route: String,
        /// The route that is chosen instead.
        earlier: String,
        /// The host pattern that both have.
        host: String,
    },
    /// A set of rules that permits no request.
    #[error("there is no allow rule, so no request is permitted: add one, or make the route public")]
    NoAllowRule,
    /// A rule without any condition.
    #[error("the rule is empty: to match every verified caller write authenticated = true")]
    EmptyRule,
    /// A condition without values.
    #[error("the list is empty: a condition without values can never hold")]
    EmptyList,
    /// An empty string as a value.
    #[error("a value is empty")]
    EmptyValue,
    /// A value that no identity can have.
    #[error("the value {0:?} has a control character, which no identity has")]
    ControlValue(String),
    /// A condition `all` with several values, on an attribute that has one value.
    #[error(
        "a request has only one value of this, so all of several can never match: use any, or several rules"
    )]
    AllOfOne,
    /// A condition `present`, on an attribute that is always present.
    #[error("every verified caller has this, so the condition is always true: list values")]
    AlwaysPresent,
    /// A scope that RFC 6749 §3.3 does not allow.
    #[error("{0:?} is not a scope: no spaces, quotes or backslashes, ascii only")]
    Scope(String),
    /// An e-mail address without exactly one `@`.
    #[error("{0:?} is not an e-mail address: it needs exactly one @")]
    Email(String),
    /// A credential kind that does not exist.
    #[error("there is no credential kind {0:?}: write jwt, opaque, certificate, session or basic")]
    CredentialKind(String),
    /// An issuer that is not configured.
    #[error("there is no issuer {issuer:?}: {}", choices(.known))]
    Issuer {
        /// The issuer as configured in the rule.
        issuer: String,
        /// The configured names of issuers.
        known: Vec<String>,
    },
    /// A claim that no issuer's mapping keeps.
    #[error("no issuer keeps the claim {claim:?}: {}", choices(.known))]
    Claim {
        /// The claim as configured in the rule.
        claim: String,
        /// The claims that are kept.
        known: Vec<String>,
    },
    /// A domain of e-mail addresses that no address can have.
    #[error(
        "{domain:?} is not a domain of e-mail addresses, {fault}: write example.com, without @ and without wildcards"
    )]
    EmailDomain {
        /// The domain as configured.
        domain: String,
        /// Why it is not valid.
        fault: Malformed,
    },
    /// A test that does not belong to the attribute: text for addresses, networks for text.
    #[error("the test does not fit the attribute")]
    TestKind,
    /// A time of day or an offset beyond its range.
    #[error("a time is out of range: write 00:00 to 24:00, with an offset from UTC of at most 14:00")]
    TimeOutOfRange,
    /// A time window that contains no time.
    #[error("the window is empty: `from` and `to` are the same time")]
    TimeEmpty,
    /// A time window that contains every time.
    #[error("the window contains every time, so the condition is always true: name days or hours")]
    TimeAlways,
    /// A query condition whose parameter name is empty, or has a control character.
    #[error("{0:?} is not a query parameter name")]
    Parameter(String),
}

fn choices(names: &[String]) -> String {
    if names.is_empty() { "none is configured".into() } else { format!("write one of {}", names.join(", ")) }
}

/// Collects faults with their places.
#[derive(Default)]
struct Faults(Vec<PolicyFault>);

impl Faults {
    fn add(&mut self, path: impl Into<String>, problem: PolicyProblem) {
        self.0.push(PolicyFault { path: path.into(), problem });
    }

    /// The value when there are no faults, otherwise all faults.
    fn into_result<T>(self, value: T) -> Result<T, Vec<PolicyFault>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

impl PolicyProblem {
    /// The fault of a path pattern that servers read in several ways.
    fn several_readings(pattern: &str, normal: &str) -> Self {
        if normal.contains(';') {
            Self::PathParameters(pattern.into())
        } else if normal.contains("%25") {
            Self::Path { path: pattern.into(), fault: Malformed::NestedEscape }
        } else {
            Self::PathEscapes(pattern.into())
        }
    }
}

/// Checks a list of methods of a route or a rule.
fn check_methods(methods: &[String], path: &str, faults: &mut Faults) {
    for method in methods {
        if !crate::request::is_token(method) {
            faults.add(path, PolicyProblem::Method(method.clone()));
        } else if crate::request::is_refused_method(method) {
            faults.add(path, PolicyProblem::MethodRefused(method.clone()));
        } else if crate::request::has_lower_case(method) {
            faults.add(path, PolicyProblem::MethodCase(method.clone()));
        }
    }
}

/// Refuses `HEAD` without `GET`, where `GET` includes it: who may not GET may not HEAD.
fn check_head(methods: &[String], path: &str, faults: &mut Faults) {
    if methods.iter().any(|m| m == "HEAD") && !methods.iter().any(|m| m == "GET") {
        faults.add(path, PolicyProblem::HeadAlone);
    }
}
