//! The decision: which requests are permitted and refused, and the responses to refusals.

use auth::decide::explain::NoTrace;
use auth::decide::{Denial, decide};
use auth::identity::Facts;
use auth::policy::rule::{Attribute::*, Policy};
use auth::request::{Canonical, Malformed};
use auth::time::Timestamp;

use crate::fixtures::{
    EXPIRES, NOT_BEFORE, NOW, all, allow, any, claim, facts, get, policy, present, query, request, rule,
};

fn outcome(
    policy: &Policy,
    request: &Canonical<'_>,
    facts: Option<&Facts>,
    now: Timestamp,
) -> Result<(), Denial> {
    decide(policy, 0, request, facts, now, &mut NoTrace).map(|_| ())
}

/// The outcome for the fixtures' caller and now.
fn ask(policy: &Policy, request: &Canonical<'_>) -> Result<(), Denial> {
    outcome(policy, request, Some(&facts()), NOW)
}

const NO_ALLOW: Denial = Denial::Forbidden { deny_rule: None };

fn needs(scopes: &str) -> Result<(), Denial> {
    Err(Denial::InsufficientScope { needed: scopes.into() })
}

#[test]
fn a_route_with_rules_needs_a_credential() {
    let policy = policy(vec![rule(vec![])], vec![]);
    assert_eq!(outcome(&policy, &get("/"), None, NOW), Err(Denial::Unauthenticated));
    assert_eq!(ask(&policy, &get("/")), Ok(()));
}

#[test]
fn a_condition_on_the_request_alone_does_not_open_a_route() {
    let policy = allow(any(Methods, &["GET"]));
    assert_eq!(outcome(&policy, &get("/"), None, NOW), Err(Denial::Unauthenticated));
}

#[test]
fn expired_means_now_is_at_or_behind_the_end() {
    let (policy, facts) = (policy(vec![rule(vec![])], vec![]), facts());
    let at = |now| outcome(&policy, &get("/"), Some(&facts), now);
    let millis = |t: Timestamp, d: i64| Timestamp::from_millis(t.as_millis().checked_add_signed(d).unwrap());
    assert_eq!(at(millis(EXPIRES, -1)), Ok(()));
    assert_eq!(at(EXPIRES), Err(Denial::Expired));
    assert_eq!(at(millis(EXPIRES, 1)), Err(Denial::Expired));
    assert_eq!(at(Timestamp::MAX), Err(Denial::Expired));
    assert_eq!(at(NOT_BEFORE), Ok(()));
    assert_eq!(at(millis(NOT_BEFORE, -1)), Err(Denial::NotYetValid));
}

#[test]
fn no_allow_rule_that_matches_is_a_denial() {
    assert_eq!(ask(&allow(any(Groups, &["other"])), &get("/")), Err(NO_ALLOW));
    let one_of_two =
        policy(vec![rule(vec![any(Groups, &["other"])]), rule(vec![any(Groups, &["ops"])])], vec![]);
    assert_eq!(ask(&one_of_two, &get("/")), Ok(()));
}

#[test]
fn deny_wins() {
    let deny = |deny| policy(vec![rule(vec![]), rule(vec![any(Groups, &["dev"])])], deny);
    assert_eq!(ask(&deny(vec![rule(vec![any(Users, &["mallory"])])]), &get("/")), Ok(()));
    let second = vec![rule(vec![any(Users, &["mallory"])]), rule(vec![any(Groups, &["ops"])])];
    assert_eq!(ask(&deny(second), &get("/")), Err(Denial::Forbidden { deny_rule: Some(1) }));
}

#[test]
fn head_needs_gets_right() {
    let head = request("HEAD", "example.com", "/");
    assert_eq!(ask(&allow(any(Methods, &["GET"])), &head), Ok(()));
    assert_eq!(ask(&allow(any(Methods, &["POST", "PUT"])), &head), Err(NO_ALLOW));
    let denied = policy(vec![rule(vec![])], vec![rule(vec![any(Methods, &["GET"])])]);
    assert_eq!(ask(&denied, &head), Err(Denial::Forbidden { deny_rule: Some(0) }));
}

#[test]
fn an_unknown_method_is_not_an_allow() {
    let policy = allow(any(Methods, &["GET", "POST"]));
    for method in ["PROPFIND", "GETS", "OPTIONS", "X"] {
        assert_eq!(ask(&policy, &request(method, "example.com", "/")), Err(NO_ALLOW), "{method}");
    }
}

#[test]
fn no_bypass_by_health_path_or_method() {
    let policy = policy(vec![rule(vec![])], vec![]);
    for path in ["/healthz", "/livez", "/ping", "/metrics", "/favicon.ico", "/robots.txt", "/.well-known/x"] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request = request(method, "example.com", path);
            assert_eq!(
                outcome(&policy, &request, None, NOW),
                Err(Denial::Unauthenticated),
                "{method} {path}"
            );
        }
    }
    assert_eq!(
        outcome(&policy, &request("OPTIONS", "example.com", "*"), None, NOW),
        Err(Denial::Unauthenticated)
    );
}

#[test]
fn a_repeated_parameter_that_the_policy_reads_is_refused() {
    let repeated = Err(Denial::RepeatedParameter { name: "namespace".into() });
    for policy in [
        allow(any(query("namespace"), &["a"])),
        policy(vec![rule(vec![])], vec![rule(vec![any(query("namespace"), &["kube-system"])])]),
        policy(vec![rule(vec![]), rule(vec![present(query("namespace"))])], vec![]),
    ] {
        for target in [
            "/?namespace=a&namespace=b",
            "/?namespace=a&namespace=a",
            "/?namespace=a&x=1&%6eamespace=kube-system",
            "/?namespace&namespace=a",
        ] {
            assert_eq!(ask(&policy, &get(target)), repeated, "{target}");
        }
        assert_eq!(ask(&policy, &get("/?namespace=a&x=1&x=2")), Ok(()));
    }
    // A parameter that no condition reads may be repeated.
    assert_eq!(ask(&policy(vec![rule(vec![])], vec![]), &get("/?namespace=a&namespace=b")), Ok(()));
}

#[test]
fn a_second_reading_of_a_parameter_that_the_policy_reads_is_refused() {
    let policy = policy(vec![rule(vec![])], vec![rule(vec![any(query("ns"), &["secret"])])]);
    for target in [
        "/?ns=a&NS=secret",
        "/?Ns=secret",
        "/?ns[]=secret",
        "/?ns%5B0%5D=secret",
        "/?ns=a&ns[x]=secret",
        "/?x=1;ns=secret",
        "/?ns=a;b",
    ] {
        assert_eq!(
            ask(&policy, &get(target)),
            Err(Denial::AmbiguousParameter { name: "ns".into() }),
            "{target}"
        );
    }
    for target in ["/?ns=a", "/?nsx=secret", "/?x=ns", "/?", "/", "/?x=%3Bns"] {
        assert_eq!(ask(&policy, &get(target)), Ok(()), "{target}");
    }
    assert_eq!(ask(&policy, &get("/?ns=secret")), Err(Denial::Forbidden { deny_rule: Some(0) }));
    assert_eq!(ask(&policy, &get("/?%6e%73=%73ecret")), Err(Denial::Forbidden { deny_rule: Some(0) }));
}

#[test]
fn missing_scopes_alone_are_insufficient_scope() {
    assert_eq!(ask(&allow(any(Scopes, &["write", "admin"])), &get("/")), needs("write"));
    assert_eq!(ask(&allow(all(Scopes, &["read", "write"])), &get("/")), needs("read write"));
    let both = policy(vec![rule(vec![any(Groups, &["dev"]), any(Scopes, &["write"])])], vec![]);
    assert_eq!(ask(&both, &get("/")), needs("write"));
    let other = policy(vec![rule(vec![any(Groups, &["other"]), any(Scopes, &["write"])])], vec![]);
    assert_eq!(ask(&other, &get("/")), Err(NO_ALLOW));
    let second = policy(vec![rule(vec![any(Groups, &["x"])]), rule(vec![any(Scopes, &["write"])])], vec![]);
    assert_eq!(ask(&second, &get("/")), needs("write"));
    let mut none = facts();
    none.identity.scopes.clear();
    assert_eq!(outcome(&allow(present(Scopes)), &get("/"), Some(&none), NOW), needs(""));
    let denied = policy(vec![rule(vec![any(Scopes, &["write"])])], vec![rule(vec![any(Groups, &["dev"])])]);
    assert_eq!(ask(&denied, &get("/")), Err(Denial::Forbidden { deny_rule: Some(0) }));
}

#[test]
fn every_denial_has_its_row() {
    let row = |denial: Denial| {
        let answer = denial.answer();
        assert!(answer.text.starts_with(char::is_lowercase) && !answer.text.ends_with('.'));
        assert!(
            !answer.text.contains("group") && !answer.text.contains("rule"),
            "tells of rules: {}",
            answer.text
        );
        (answer.status, answer.error, answer.challenge)
    };
    // RFC 6750 §3.1: no error code when there were no credentials.
    assert_eq!(row(Denial::Unauthenticated), (401, None, true));
    assert_eq!(row(Denial::Expired), (401, Some("invalid_token"), true));
    assert_eq!(row(Denial::NotYetValid), (401, Some("invalid_token"), true));
    assert_eq!(row(NO_ALLOW), (403, None, false));
    assert_eq!(
        row(Denial::InsufficientScope { needed: "a".into() }),
        (403, Some("insufficient_scope"), true)
    );
    assert_eq!(row(Denial::RepeatedParameter { name: "a".into() }), (400, Some("invalid_request"), false));
    assert_eq!(row(Denial::AmbiguousParameter { name: "a".into() }), (400, Some("invalid_request"), false));
    assert_eq!(row(Denial::Rewrite(Malformed::DotSegment)), (400, Some("invalid_request"), false));
}

#[test]
fn a_claim_condition_reads_the_configured_path() {
    assert_eq!(ask(&allow(any(claim("realm.dept"), &["blue"])), &get("/")), Ok(()));
    assert_eq!(ask(&allow(any(claim("realm.dept"), &["red"])), &get("/")), Err(NO_ALLOW));
}
