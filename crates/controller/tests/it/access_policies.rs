//! AccessPolicies: inheritance, conflicts, validity and status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use controller::names::Kind;
use controller::plan::PolicyOutcome;
use controller::settings::{PolicyCheck, Settings};

use crate::cluster::{CONTROLLER, Cluster, gateway, service};

/// A Gateway `gw` with the listeners `http` and `alt`, and a ListenerSet `ls` with `extra`. The route
/// `route` has a rule named `named` and one without a name, and attaches to both.
fn cluster() -> Cluster {
    with_check(PolicyCheck::new(|body| match body.get("bad") {
        None => Ok(()),
        Some(_) => Err("bad is not known".to_owned()),
    }))
}

fn with_check(policy_check: PolicyCheck) -> Cluster {
    let settings = Settings { policy_check, ..Settings::new(CONTROLLER) };
    let mut cluster = Cluster::with(settings);
    cluster.apply(&format!(
        "{}  - {{name: alt, port: 81, protocol: HTTP}}\n  allowedListeners: {{namespaces: {{from: All}}}}\n",
        gateway("gw")
    ));
    cluster.apply(&service("web"));
    cluster.apply(
        "kind: ListenerSet
metadata: {name: ls}
spec: {parentRef: {name: gw}, listeners: [{name: extra, port: 82, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gw}, {kind: ListenerSet, name: ls}]
  rules:
  - {name: named, matches: [{path: {value: /named}}], backendRefs: [{name: web, port: 8080}]}
  - {backendRefs: [{name: web, port: 8080}]}",
    );
    cluster.settle();
    cluster
}

fn policy(name: &str, target: &str, body: &str) -> String {
    format!(
        "kind: AccessPolicy\nmetadata: {{name: {name}}}\nspec: {{targetRefs: [{{group: gateway.networking.k8s.io, \
         {target}}}], {body}}}"
    )
}

/// The policies of the two rules on the listeners `http`, `alt` and `extra`.
fn outcome(cluster: &Cluster) -> [String; 2] {
    let plans = cluster.plans("route");
    let of_plan = |index: usize| {
        let text = |policy: &PolicyOutcome| match policy {
            PolicyOutcome::None => "-".to_owned(),
            PolicyOutcome::Invalid(at) => format!("!{}", at.name),
            PolicyOutcome::Applied(plan) => plan.policy.name.as_str().to_owned(),
            PolicyOutcome::Exempt => "exempt".to_owned(),
        };
        let list: Vec<_> = plans[index].attachments.iter().map(|one| text(&one.policy)).collect();
        list.join(" ")
    };
    [of_plan(0), of_plan(1)]
}

const GATEWAY: &str = "kind: Gateway, name: gw";
const LISTENER: &str = "kind: Gateway, name: gw, sectionName: alt";
const SET: &str = "kind: ListenerSet, name: ls";
const ROUTE: &str = "kind: HTTPRoute, name: route";
const RULE: &str = "kind: HTTPRoute, name: route, sectionName: named";

#[test]
fn the_most_specific_default_applies() {
    let mut cluster = cluster();
    assert_eq!(outcome(&cluster), ["- - -", "- - -"]);
    for (name, target, expected) in [
        ("g", GATEWAY, ["g g g", "g g g"]),
        ("l", LISTENER, ["g l g", "g l g"]),
        ("s", SET, ["g l s", "g l s"]),
        ("r", ROUTE, ["r r r", "r r r"]),
        ("rule", RULE, ["rule rule rule", "r r r"]),
    ] {
        cluster.apply(&policy(name, target, "defaults: {}"));
        cluster.settle();
        assert_eq!(outcome(&cluster), expected, "with {name}");
    }
    for (name, expected) in [("r", ["rule rule rule", "g l s"]), ("g", ["rule rule rule", "- l s"])] {
        cluster.remove(Kind::AccessPolicy, name);
        cluster.settle();
        assert_eq!(outcome(&cluster), expected, "without {name}");
    }
}

#[test]
fn the_broadest_override_wins() {
    let mut cluster = cluster();
    cluster.apply(&policy("r", ROUTE, "defaults: {}"));
    for (name, target, expected) in [
        ("rule", RULE, ["rule rule rule", "r r r"]),
        ("s", SET, ["rule rule s", "r r s"]),
        ("l", LISTENER, ["rule l s", "r l s"]),
        ("g", GATEWAY, ["g g g", "g g g"]),
    ] {
        cluster.apply(&policy(name, target, "overrides: {}"));
        cluster.settle();
        assert_eq!(outcome(&cluster), expected, "with {name}");
    }
}

#[test]
fn an_invalid_policy_closes_what_it_reaches() {
    for body in ["defaults: {bad: 1}", "defaults: {}, overrides: {}", "future: 1, defaults: {}"] {
        let mut cluster = cluster();
        cluster.apply(&policy("g", GATEWAY, "defaults: {}"));
        cluster.apply(&policy("rule", RULE, body));
        cluster.settle();
        assert_eq!(outcome(&cluster), ["!rule !rule !rule", "g g g"], "{body}");
        assert_eq!(cluster.ancestor(Kind::AccessPolicy, "rule", 0, "Accepted"), "False Invalid", "{body}");
        assert_eq!(cluster.ancestor(Kind::AccessPolicy, "g", 0, "Accepted"), "True Accepted", "{body}");
        let applied = "access.postern.dev/PolicyApplied";
        assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, applied), "False InvalidPolicy", "{body}");
    }
}

#[test]
fn policies_are_checked_again_when_the_check_has_changed() {
    let permits = Arc::new(AtomicBool::new(true));
    let answer = permits.clone();
    let check = move |body: &serde_json::Value| match body.get("issuer") {
        Some(_) if !answer.load(Relaxed) => Err("there is no such issuer".to_owned()),
        _ => Ok(()),
    };
    let mut cluster = with_check(PolicyCheck::new(check));
    cluster.apply(&policy("r", ROUTE, "defaults: {issuer: corp}"));
    cluster.settle();
    assert_eq!(outcome(&cluster), ["r r r", "r r r"]);
    permits.store(false, Relaxed);
    assert!(cluster.settle().plans.is_empty(), "nothing was said");
    cluster.policy_check_changed();
    let changes = cluster.settle();
    assert_eq!((changes.plans.len(), outcome(&cluster)), (2, ["!r !r !r".to_owned(), "!r !r !r".to_owned()]));
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "r", 0, "Accepted"), "False Invalid");
    permits.store(true, Relaxed);
    cluster.policy_check_changed();
    cluster.settle();
    assert_eq!(outcome(&cluster), ["r r r", "r r r"]);
    cluster.policy_check_changed();
    assert!(cluster.settle().plans.is_empty(), "it answers the same");
}

#[test]
fn an_invalid_policy_of_the_gateway_is_not_skipped_for_one_of_the_route() {
    let mut cluster = cluster();
    cluster.apply(&policy("g", GATEWAY, "overrides: {bad: 1}"));
    cluster.apply(&policy("r", ROUTE, "defaults: {}"));
    cluster.settle();
    assert_eq!(outcome(&cluster), ["!g !g !g", "!g !g !g"]);
}

#[test]
fn the_oldest_of_a_target_wins_then_the_name() {
    let mut cluster = cluster();
    cluster.apply(&policy("b", ROUTE, "defaults: {}"));
    cluster.apply(&policy("a", ROUTE, "overrides: {}"));
    cluster.settle();
    assert_eq!(outcome(&cluster)[1], "b b b");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "a", 0, "Accepted"), "False Conflicted");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "b", 0, "Accepted"), "True Accepted");
    // Breaking the older one does not put the younger one in its place.
    cluster.apply(&policy("b", ROUTE, "defaults: {bad: 1}"));
    cluster.settle();
    assert_eq!(outcome(&cluster)[1], "!b !b !b");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "a", 0, "Accepted"), "False Conflicted");
    cluster.remove(Kind::AccessPolicy, "b");
    cluster.settle();
    assert_eq!(outcome(&cluster)[1], "a a a");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "a", 0, "Accepted"), "True Accepted");
    let same_age = |name: &str| {
        policy(name, GATEWAY, "defaults: {}")
            .replace("metadata: {", "metadata: {creationTimestamp: '2026-01-01T00:00:00Z', ")
    };
    cluster.apply(&same_age("older"));
    cluster.apply(&same_age("aged"));
    cluster.settle();
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "aged", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "older", 0, "Accepted"), "False Conflicted");
}

#[test]
fn a_policy_that_does_not_count_costs_nothing_else() {
    let mut cluster = cluster();
    for number in 0..50 {
        cluster.apply(&policy(&format!("p{number}"), GATEWAY, "defaults: {}"));
    }
    let section = policy("section", "kind: Gateway, name: gw, sectionName: http", "defaults: {}");
    cluster.apply(&section);
    cluster.settle();
    let stale = |cluster: &mut Cluster| {
        let changes = cluster.settle();
        (changes.recomputed.routes, changes.statuses.len())
    };
    // A younger one comes, changes and goes.
    cluster.apply(&policy("late", GATEWAY, "defaults: {}"));
    assert_eq!(stale(&mut cluster), (0, 1));
    cluster.apply(&policy("late", GATEWAY, "overrides: {}"));
    assert_eq!(stale(&mut cluster), (0, 1));
    cluster.remove(Kind::AccessPolicy, "late");
    assert_eq!(stale(&mut cluster), (0, 0));
    // The oldest goes: the next one counts, and the others name it. That of a section is untouched.
    cluster.remove(Kind::AccessPolicy, "p0");
    let (routes, statuses) = stale(&mut cluster);
    assert!(routes > 0 && statuses == 49, "{routes} {statuses}");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "p1", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "section", 0, "Accepted"), "True Accepted");
}

#[test]
fn targets_are_found_in_the_policys_namespace_alone() {
    let cases = [
        ("kind: Gateway, name: gone", "False TargetNotFound"),
        ("kind: Gateway, name: gw, sectionName: gone", "False TargetNotFound"),
        ("kind: Gateway, name: gw, sectionName: extra", "False TargetNotFound"),
        ("kind: ListenerSet, name: ls, sectionName: extra", "True Accepted"),
        ("kind: HTTPRoute, name: route, sectionName: named", "True Accepted"),
        ("kind: HTTPRoute, name: route, sectionName: other", "False TargetNotFound"),
        ("kind: GRPCRoute, name: route", "False TargetNotFound"),
        ("kind: Unknown, name: route", "False Invalid"),
    ];
    for (target, expected) in cases {
        let mut cluster = cluster();
        cluster.apply(&policy("p", target, "defaults: {}"));
        cluster.settle();
        assert_eq!(cluster.ancestor(Kind::AccessPolicy, "p", 0, "Accepted"), expected, "{target}");
    }
    let mut cluster = cluster();
    let foreign = policy("p", GATEWAY, "defaults: {}").replace("name: p", "name: p, namespace: team-a");
    cluster.apply(&foreign);
    cluster.settle();
    let found = cluster.ancestor(Kind::AccessPolicy, "team-a/p", 0, "Accepted");
    assert_eq!(found, "False TargetNotFound");
    assert_eq!(outcome(&cluster)[0], "- - -");
}

#[test]
fn a_target_that_appears_or_goes_is_reported() {
    let mut cluster = cluster();
    let target = "kind: HTTPRoute, name: late, sectionName: one";
    cluster.apply(&policy("p", target, "defaults: {}"));
    cluster.settle();
    let accepted = |cluster: &Cluster| cluster.ancestor(Kind::AccessPolicy, "p", 0, "Accepted");
    assert_eq!(accepted(&cluster), "False TargetNotFound");
    let route = |rule: &str| {
        format!(
            "kind: HTTPRoute\nmetadata: {{name: late}}\nspec: {{parentRefs: [{{name: gw}}], rules: [{{name: {rule}}}]}}"
        )
    };
    cluster.apply(&route("one"));
    cluster.settle();
    assert_eq!(accepted(&cluster), "True Accepted");
    cluster.apply(&route("two"));
    cluster.settle();
    assert_eq!(accepted(&cluster), "False TargetNotFound");
    cluster.remove(Kind::HttpRoute, "late");
    cluster.settle();
    assert_eq!(accepted(&cluster), "False TargetNotFound");
}

#[test]
fn a_route_says_whether_policies_reach_all_of_its_rules() {
    let mut cluster = cluster();
    let applied = "access.postern.dev/PolicyApplied";
    let both =
        |cluster: &Cluster| [0, 1].map(|index| cluster.parent(Kind::HttpRoute, "route", index, applied));
    assert_eq!(both(&cluster), ["False NoPolicy", "False NoPolicy"]);
    cluster.apply(&policy("rule", RULE, "defaults: {}"));
    cluster.settle();
    assert_eq!(both(&cluster), ["False NoPolicy", "False NoPolicy"]);
    cluster.apply(&policy("s", SET, "defaults: {}"));
    cluster.settle();
    assert_eq!(both(&cluster), ["False NoPolicy", "True Applied"]);
    cluster.apply(&policy("g", GATEWAY, "defaults: {}"));
    cluster.settle();
    assert_eq!(both(&cluster), ["True Applied", "True Applied"]);
}

#[test]
fn a_policy_of_a_foreign_gateway_has_no_status() {
    let mut cluster = cluster();
    cluster.apply(
        "kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
kind: Gateway
metadata: {name: foreign}
spec: {gatewayClassName: other, listeners: []}",
    );
    cluster.apply(&policy("p", "kind: Gateway, name: foreign", "defaults: {}"));
    cluster.settle();
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "p", 0, "Accepted"), "-");
}
