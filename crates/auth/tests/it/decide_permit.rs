//! The permit: its content, what can be done with it, and how a decision is explained.

use auth::decide::explain::{Explanation, NoTrace};
use auth::decide::{Denial, MatchedRoute, Permit, RuleContext, decide, decide_in};
use auth::policy::rule::{Attribute::*, ConditionSpec, Policy, TestSpec};
use auth::request::{Canonical, Malformed};

use crate::fixtures::{
    EXPIRES, NOW, all, allow, any, facts, forwarded, get, policy, present, query, request, rule,
};

#[test]
fn a_permit_holds_what_was_decided_about() {
    let (request, facts) = (get("/a?b=1"), facts());
    let permit = decide(&allow(any(Groups, &["dev"])), 7, &request, Some(&facts), NOW, &mut NoTrace).unwrap();
    assert_eq!(permit.route(), 7);
    assert_eq!(permit.request(), &request);
    assert_eq!(permit.facts(), Some(&facts));
    assert_eq!(permit.identity(), Some(&facts.identity));
}

#[test]
fn a_public_route_passes_on_valid_facts_and_no_others() {
    let (request, facts) = (get("/"), facts());
    let permitted =
        |facts, now| decide(&Policy::Public, 0, &request, facts, now, &mut NoTrace).unwrap().facts();
    assert_eq!(permitted(None, NOW), None);
    assert_eq!(permitted(Some(&facts), NOW), Some(&facts));
    assert_eq!(permitted(Some(&facts), EXPIRES), None);
}

/// A permit for the request under rules that need group dev.
fn permitted<'r>(request: &'r Canonical<'r>, facts: &'r auth::identity::Facts) -> Permit<'r> {
    decide(&allow(any(Groups, &["dev"])), 3, request, Some(facts), NOW, &mut NoTrace).unwrap()
}

#[test]
fn after_a_rewrite_the_request_is_authorized_again() {
    let (request, facts) = (get("/api/v1?ns=a"), facts());
    let open = allow(any(Groups, &["dev"]));
    let permit = permitted(&request, &facts).rewrite(&open, "/v%31", NOW, &mut NoTrace).unwrap();
    assert_eq!((permit.route(), forwarded(permit.request()).as_str()), (3, "/v1?ns=a"));
    let permit = permit.rewrite(&open, "/v2", NOW, &mut NoTrace).unwrap();
    assert_eq!((forwarded(permit.request()).as_str(), permit.facts()), ("/v2?ns=a", Some(&facts)));

    let closed = allow(any(Groups, &["admins"]));
    let refused = permit.rewrite(&closed, "/v3", NOW, &mut NoTrace).unwrap_err();
    assert_eq!(refused, Denial::Forbidden { deny_rule: None });
    let late = permitted(&request, &facts).rewrite(&open, "/v1", EXPIRES, &mut NoTrace).unwrap_err();
    assert_eq!(late, Denial::Expired);
}

#[test]
fn a_rewrite_that_yields_dot_segments_is_refused() {
    let (request, facts) = (get("/api/x"), facts());
    for (path, fault) in [
        ("/../admin", Malformed::DotSegment),
        ("/%2e%2e/admin", Malformed::DotSegment),
        ("/..;/b", Malformed::DotSegment),
        ("//evil.example", Malformed::AuthorityTarget),
        ("/a?b", Malformed::TargetForm),
        ("", Malformed::TargetForm),
    ] {
        let refused = permitted(&request, &facts).rewrite(&Policy::Public, path, NOW, &mut NoTrace);
        assert_eq!(refused.unwrap_err(), Denial::Rewrite(fault), "{path}");
    }
}

#[test]
fn a_second_policy_must_agree_too() {
    let (request, facts) = (get("/"), facts());
    let agreed = permitted(&request, &facts).check_policy(
        &RuleContext::without_reviews(None),
        &allow(any(Users, &["alice"])),
        NOW,
        &mut NoTrace,
    );
    assert_eq!(agreed.unwrap().route(), 3);
    let refused = permitted(&request, &facts).check_policy(
        &RuleContext::without_reviews(None),
        &allow(any(Users, &["bob"])),
        NOW,
        &mut NoTrace,
    );
    assert_eq!(refused.unwrap_err(), Denial::Forbidden { deny_rule: None });
    let public = decide(&Policy::Public, 0, &request, None, NOW, &mut NoTrace).unwrap();
    assert_eq!(
        public
            .check_policy(
                &RuleContext::without_reviews(None),
                &allow(any(Users, &["alice"])),
                NOW,
                &mut NoTrace
            )
            .unwrap_err(),
        Denial::Unauthenticated
    );
}

fn explained(policy: &Policy, request: &Canonical<'_>, facts: Option<&auth::identity::Facts>) -> String {
    let mut trace = Explanation::default();
    let told = decide(policy, 0, request, facts, NOW, &mut trace).map(|_| ());
    assert_eq!(
        told,
        decide(policy, 0, request, facts, NOW, &mut NoTrace).map(|_| ()),
        "a trace changes nothing"
    );
    trace.to_string()
}

#[test]
fn a_decision_is_explained_step_by_step() {
    let policy = policy(
        vec![
            rule(vec![any(Groups, &["admins"]), any(Methods, &["GET"])]),
            rule(vec![all(Scopes, &["read", "list"]), present(query("ns"))]),
        ],
        vec![rule(vec![any(Users, &["mallory"])])],
    );
    let allowed = r#"+ jwt of issuer "main", subject "sub-1", valid for 500 s
- deny[0] does not match: user mallory
    - user mallory: there is "alice"
- allow[0] does not match: group admins and method GET
    - group admins: there is "dev", "ops"
    + method GET: there is "HEAD"
+ allow[1] matches: all of scopes [read, list] and query parameter ns present
    + all of scopes [read, list]: there is "read", "list"
    + query parameter ns present: there is "a"
+ allowed
"#;
    assert_eq!(explained(&policy, &request("HEAD", "example.com", "/?ns=a"), Some(&facts())), allowed);
    let denied = explained(&policy, &get("/"), Some(&facts()));
    assert!(denied.contains("    - query parameter ns present: there is none\n"), "{denied}");
    assert!(denied.ends_with("- denied with 403: no allow rule matches\n"), "{denied}");
}

#[test]
fn an_explanation_also_shows_what_lies_behind_the_answer() {
    let policy = policy(
        vec![rule(vec![any(Groups, &["dev"])]), rule(vec![any(Groups, &["ops"])])],
        vec![rule(vec![any(Groups, &["dev"])]), rule(vec![any(Groups, &["x"])])],
    );
    let text = explained(&policy, &get("/"), Some(&facts()));
    assert!(text.contains("+ deny[0] matches") && text.contains("- deny[1] does not match"), "{text}");
    assert!(text.ends_with("- denied with 403: deny rule 0 matches\n"), "{text}");
}

#[test]
fn an_explanation_tells_the_state_of_the_credential() {
    let open = policy(vec![rule(vec![])], vec![]);
    assert_eq!(
        explained(&open, &get("/"), None),
        "  no credential\n- denied with 401: the route needs a credential and the request has none\n"
    );
    let mut old = facts();
    old.expires = NOW.minus(std::time::Duration::from_secs(3));
    assert!(explained(&open, &get("/"), Some(&old)).contains("expired 3 s ago"));
    let mut young = facts();
    young.not_before = NOW.plus(std::time::Duration::from_secs(4));
    assert!(explained(&open, &get("/"), Some(&young)).contains("not valid for another 4 s"));
    assert!(explained(&Policy::Public, &get("/"), None).contains("+ the route is public"));
    let mut trace = Explanation::default();
    let (request, facts) = (get("/"), facts());
    let permit = decide(&Policy::Public, 0, &request, Some(&facts), NOW, &mut trace).unwrap();
    assert!(permit.rewrite(&Policy::Public, "/b", NOW, &mut trace).is_ok());
    assert_eq!(trace.lines().iter().filter(|line| line.text == "the path is rewritten to /b").count(), 1);
}

#[test]
fn a_rewritten_request_is_decided_for_the_same_address() {
    let networks = vec!["192.0.2.0/24".parse().unwrap()];
    let near = allow(ConditionSpec { attribute: Addresses, test: TestSpec::In(networks) });
    let (request, facts) = (get("/a/b"), facts());
    let permit = |client: Option<[u8; 4]>| {
        let context = RuleContext::without_reviews(client.map(Into::into));
        let matched = MatchedRoute { index: 0, policy: &near };
        decide_in(&context, matched, &request, Some(&facts), NOW, &mut NoTrace)
    };
    let rewritten = permit(Some([192, 0, 2, 9])).unwrap().rewrite(&near, "/b", NOW, &mut NoTrace).unwrap();
    let other = RuleContext::without_reviews(None);
    assert!(rewritten.check_policy(&other, &near, NOW, &mut NoTrace).is_ok());
    for client in [None, Some([192, 0, 3, 9])] {
        assert_eq!(permit(client).unwrap_err(), Denial::Forbidden { deny_rule: None }, "{client:?}");
    }
    assert_eq!(
        decide(&near, 0, &request, Some(&facts), NOW, &mut NoTrace).unwrap_err(),
        Denial::Forbidden { deny_rule: None },
        "the address is unknown"
    );
}
