//! What the configuration says about requests: which route takes one, and whom a route lets pass.
//!
//! Owns: [`route`], the table from canonical requests to routes; [`rule`], the rules of a route; [`review`], what Kubernetes is
//! asked where no rule decides; the faults
//! either finds in its input. Both are built once, whole or not at all, and only read afterwards.
//!
//! Does not own: the file format (the binary's `config`), the evaluation order of a decision (`decide`).

pub mod review;
pub mod route;
pub mod rule;

use crate::request::Malformed;

/// One fault in the configuration of routes or rules, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PolicyFault {
    /// The place, relative to the list that was handed in: `routes[3].hosts[0]`, `allow[0].groups`.
    pub path: String,
    /// What is wrong with it.
    pub problem: PolicyProblem,
}

/// What can be wrong with routes and rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyProblem {
    /// A host pattern that no request's host can be.
    #[error("{host:?} is no host pattern, {fault}: write example.com, *.example.com or *, without a port")]
    Host {
        /// As configured.
        host: String,
        /// Why.
        fault: Malformed,
    },
    /// A path that no request's path can be.
    #[error("no request has the path {path:?}: {fault}")]
    Path {
        /// As configured.
        path: String,
        /// Why.
        fault: Malformed,
    },
    /// A path pattern with parameters, which [`route::RouteTable::find`] does not tell apart.
    #[error("the path {0:?} holds path parameters (;), which take no part in routing")]
    PathParameters(String),
    /// A path pattern with an escape of a character that may stand raw: the same again.
    #[error("the path {0:?} escapes a character of ! $ & ' ( ) * + , = : @; write it as it is")]
    PathEscapes(String),
    /// A template segment that mixes literal text and braces.
    #[error("the template segment {0:?} is neither literal nor a whole {{name}} or {{name...}}")]
    TemplateSegment(String),
    /// A capture name used twice in one template.
    #[error("the template captures {0:?} twice")]
    TemplateName(String),
    /// `{name...}` before the end.
    #[error("the tail {0:?} must be the template's last segment")]
    TemplateTail(String),
    /// A template without captures.
    #[error("the template {0:?} captures nothing: write it as an exact path")]
    TemplateLiteral(String),
    /// A method that is no token.
    #[error("{0:?} is not a method")]
    Method(String),
    /// A method in lower case; methods are case-sensitive.
    #[error("methods are case-sensitive: {0:?} is not {upper}", upper = .0.to_ascii_uppercase())]
    MethodCase(String),
    /// `CONNECT` or `TRACE`.
    #[error("the method {0} is never served")]
    MethodRefused(String),
    /// `HEAD` without `GET`.
    #[error("HEAD needs GET's right: list GET, which includes HEAD")]
    HeadAlone,
    /// A header condition on something that is no field name.
    #[error("{0:?} is not a header name")]
    HeaderName(String),
    /// A header condition on a field that speaks of one connection, and that each hop writes anew.
    #[error(
        "the header {0} is of the connection to this gateway and is written anew behind it, so no route can rest on it{remedy}",
        remedy = if .0.eq_ignore_ascii_case("upgrade") { ": list the protocols that clients may switch to in `upgrades`" } else { "" }
    )]
    HeaderPerHop(String),
    /// A header condition on a value that no field has.
    #[error("the value for header {0} is empty, padded or holds a control character")]
    HeaderValue(String),
    /// A route that another one makes unreachable.
    #[error("route {route:?} can never be told apart from route {by:?} for host {host} and the same path")]
    Indistinguishable {
        /// The route that is never chosen.
        route: String,
        /// The route that is chosen in its place.
        by: String,
        /// The host pattern both name.
        host: String,
    },
    /// A set of rules that lets nobody pass.
    #[error("there is no allow rule, so nobody could pass: add one, or make the route public")]
    NoAllowRule,
    /// A rule without any condition.
    #[error("the rule is empty: to match every verified caller write authenticated = true")]
    EmptyRule,
    /// A condition without values.
    #[error("the list is empty: a condition without values can never hold")]
    EmptyList,
    /// The empty string as a value.
    #[error("a value is empty")]
    EmptyValue,
    /// A value that no identity holds.
    #[error("the value {0:?} holds a control character, which no identity does")]
    ControlValue(String),
    /// `all` of several values of something that has one.
    #[error("a request has one value of this, so all of several can never hold: use any, or several rules")]
    AllOfOne,
    /// `present` for something that always is.
    #[error("every verified caller has this, so the condition says nothing: list values")]
    AlwaysPresent,
    /// A scope outside of RFC 6749 §3.3.
    #[error("{0:?} is not a scope: no spaces, quotes or backslashes, ascii only")]
    Scope(String),
    /// An e-mail address without exactly one `@`.
    #[error("{0:?} is not an e-mail address: it needs exactly one @")]
    Email(String),
    /// A credential kind that does not exist.
    #[error("there is no credential kind {0:?}: write jwt or certificate")]
    CredentialKind(String),
    /// An issuer that is not configured.
    #[error("there is no issuer {issuer:?}: {}", choices(.known))]
    Issuer {
        /// As configured in the rule.
        issuer: String,
        /// The configured names.
        known: Vec<String>,
    },
    /// A claim no issuer's mapping keeps.
    #[error("no issuer keeps the claim {claim:?}: {}", choices(.known))]
    Claim {
        /// As configured in the rule.
        claim: String,
        /// The claims that are kept.
        known: Vec<String>,
    },
    /// A query condition without a parameter name, or with one outside of printable text.
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

    /// The value when nothing was found, else everything that was.
    fn or<T>(self, value: T) -> Result<T, Vec<PolicyFault>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

impl PolicyProblem {
    /// What is wrong with a path pattern that servers read in several ways.
    fn several_readings(pattern: &str, normal: &str) -> Self {
        if normal.contains(';') {
            Self::PathParameters(pattern.into())
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
    if methods.iter().any(|m| m == "HEAD") && !methods.iter().any(|m| m == "GET") {
        faults.add(path, PolicyProblem::HeadAlone);
    }
}
