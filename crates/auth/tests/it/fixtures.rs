//! Short forms for requests and identities.

use auth::identity::{CredentialKind, Facts, Identity};
use auth::policy::rule::{Attribute, ConditionSpec, Policy, RuleSet, RuleSpec, TestSpec, Vocabulary};
use auth::request::{Canonical, Malformed, RawRequest, Scheme};
use auth::time::Timestamp;

/// When [`facts`] begin to be valid, when they expire, and the time of the tests.
pub(crate) const NOT_BEFORE: Timestamp = Timestamp::from_secs(1000);
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1500);
pub(crate) const EXPIRES: Timestamp = Timestamp::from_secs(2000);

pub(crate) fn parse<'a>(method: &'a str, host: &'a str, target: &'a str) -> Result<Canonical<'a>, Malformed> {
    Canonical::parse(&RawRequest {
        method,
        scheme: Scheme::Https,
        authority: None,
        host: Some(host.as_bytes()),
        target: target.as_bytes(),
    })
}

/// A request that must be well-formed.
pub(crate) fn request<'a>(method: &'a str, host: &'a str, target: &'a str) -> Canonical<'a> {
    parse(method, host, target).unwrap_or_else(|e| panic!("{method} {host} {target}: {e}"))
}

pub(crate) fn get(target: &str) -> Canonical<'_> {
    request("GET", "example.com", target)
}

/// A target's fault, or its accepted form.
pub(crate) fn target(target: &[u8]) -> Result<String, Malformed> {
    let raw = RawRequest {
        method: "GET",
        scheme: Scheme::Https,
        authority: None,
        host: Some(b"example.com"),
        target,
    };
    Canonical::parse(&raw).map(|request| forwarded(&request))
}

/// The target as it is forwarded to the upstream.
pub(crate) fn forwarded(request: &Canonical<'_>) -> String {
    let mut out = Vec::new();
    request.write_target(&mut out);
    String::from_utf8(out).unwrap()
}

pub(crate) fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

pub(crate) fn boxes(values: &[&str]) -> Vec<Box<str>> {
    values.iter().map(|&v| v.into()).collect()
}

pub(crate) fn identity() -> Identity {
    Identity {
        kind: CredentialKind::Jwt,
        issuer: "main".into(),
        subject: "sub-1".into(),
        user: Some("alice".into()),
        email: Some("alice@example.com".into()),
        client: Some("web".into()),
        groups: boxes(&["dev", "ops"]),
        groups_elsewhere: false,
        scopes: boxes(&["read", "list"]),
        claims: vec![("realm.dept".into(), boxes(&["blue"])), ("tenant".into(), boxes(&["t1", "t2"]))],
    }
}

pub(crate) fn facts_of(identity: Identity) -> Facts {
    Facts { identity, expires: EXPIRES, not_before: NOT_BEFORE }
}

pub(crate) fn facts() -> Facts {
    facts_of(identity())
}

pub(crate) fn any(attribute: Attribute, values: &[&str]) -> ConditionSpec {
    ConditionSpec { attribute, test: TestSpec::Any(strings(values)) }
}

pub(crate) fn all(attribute: Attribute, values: &[&str]) -> ConditionSpec {
    ConditionSpec { attribute, test: TestSpec::All(strings(values)) }
}

pub(crate) fn present(attribute: Attribute) -> ConditionSpec {
    ConditionSpec { attribute, test: TestSpec::Present }
}

pub(crate) fn query(name: &str) -> Attribute {
    Attribute::Query(name.into())
}

pub(crate) fn claim(path: &str) -> Attribute {
    Attribute::Claim(path.into())
}

pub(crate) fn rule(conditions: Vec<ConditionSpec>) -> RuleSpec {
    RuleSpec { authenticated: conditions.is_empty(), conditions }
}

/// The names that the fixtures' rules may use.
pub(crate) const KNOWN: Vocabulary<'static> =
    Vocabulary { issuers: &["main", "other"], claims: &["realm.dept", "tenant"] };

pub(crate) fn rules(allow: Vec<RuleSpec>, deny: Vec<RuleSpec>) -> RuleSet {
    RuleSet::build(allow, deny, &KNOWN).unwrap_or_else(|faults| panic!("{faults:?}"))
}

pub(crate) fn policy(allow: Vec<RuleSpec>, deny: Vec<RuleSpec>) -> Policy {
    Policy::Rules(rules(allow, deny))
}

/// One allow rule with one condition.
pub(crate) fn allow(condition: ConditionSpec) -> Policy {
    policy(vec![rule(vec![condition])], vec![])
}
