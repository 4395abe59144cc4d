//! Matches that cannot be carried out.

use crate::{EVERYBODY, cluster, route};

/// An HTTPRoute whose first rule has this match and is for administrators, and whose second one is for
/// everybody.
fn two_rules(matched: &str) -> String {
    let rules = "
  - name: first
    matches: [MATCHED]
    backendRefs: [{name: app, port: 80}]
  - name: rest
    backendRefs: [{name: app, port: 80}]
";
    route("app", "app.test", &rules.replace("MATCHED", matched))
}

/// An AccessPolicy for a rule of that route.
fn policy_of_rule(rule: &str, body: &str) -> String {
    format!(
        "
kind: AccessPolicy
metadata: {{name: {rule}}}
spec:
  targetRefs:
  - {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app, sectionName: {rule}}}
  defaults: {body}
"
    )
}

#[test]
fn a_match_that_cannot_be_carried_out_leaves_its_requests_to_no_other_rule() {
    let (mut cluster, pod) = cluster();
    cluster.apply(&policy_of_rule("first", "{allow: [{groups: {any: [admins]}}]}"));
    cluster.apply(&policy_of_rule("rest", EVERYBODY));
    for (matched, place) in [
        ("{headers: [{name: Upgrade, value: websocket}]}", "headers[0]: "),
        ("{headers: [{name: X-A, value: a}, {name: TE, value: trailers}]}", "headers[1]: "),
        ("{headers: [{name: X-Team, value: ' admins'}]}", "headers[0]: "),
        ("{path: {value: '/a;b'}}", "path: "),
        ("{path: {value: '/%40internal'}}", "path: "),
    ] {
        cluster.apply(&two_rules(matched));
        assert_eq!(cluster.publish(), "", "{matched}");
        assert_eq!(cluster.get("app.test", "/", "Upgrade: websocket\r\n").status, 404, "{matched}");
        let found = cluster.condition("HTTPRoute", "app", "Accepted");
        let expected = format!("False UnsupportedValue: rule 0: match 0 cannot be carried out: {place}");
        assert!(found.starts_with(&expected), "{found}");
    }
    assert!(pod.seen().is_empty());
    // Nobody serves such a request, so the match refuses nothing else.
    cluster.apply(&two_rules("{method: TRACE}"));
    let faults = cluster.publish();
    assert!(faults.contains("rule 0 match 0: methods: the method TRACE is never served"), "{faults}");
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    cluster.apply(&two_rules("{headers: [{name: X-Team, value: admins}]}"));
    assert_eq!(cluster.publish(), "");
    assert_eq!(cluster.condition("HTTPRoute", "app", "Accepted"), "True Accepted: ");
    assert_eq!(cluster.get("app.test", "/", "X-Team: admins\r\n").status, 401);
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
}
