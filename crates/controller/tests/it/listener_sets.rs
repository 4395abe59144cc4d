//! ListenerSets: which are allowed, precedence, conflicts, and routes attached to them.

use controller::names::Kind;

use crate::cluster::{Cluster, gateway, key, tls_secret};

/// A Gateway `gw` with the listener `http` (port 80, hostname `gw.com`) that allows ListenerSets so.
fn allowing(namespaces: &str) -> Cluster {
    let mut cluster = Cluster::new();
    let allowed = if namespaces.is_empty() {
        String::new()
    } else {
        format!("  allowedListeners: {{namespaces: {namespaces}}}\n")
    };
    let gateway = gateway("gw").replace("name: http,", "name: http, hostname: gw.com,");
    cluster.apply(&format!("{gateway}{allowed}"));
    cluster
}

/// A ListenerSet for `gw` with these listeners: name, port, protocol, hostname.
fn set(name: &str, namespace: &str, listeners: &[(&str, u16, &str, &str)]) -> String {
    let list: Vec<String> = listeners
        .iter()
        .map(|(name, port, protocol, hostname)| {
            format!(
                "  - {{name: {name}, port: {port}, protocol: {protocol}, hostname: {hostname}, allowedRoutes: \
                 {{namespaces: {{from: All}}}}}}\n"
            )
        })
        .collect();
    format!(
        "kind: ListenerSet\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  parentRef: {{name: gw, \
         namespace: infra}}\n  listeners:\n{}",
        list.concat()
    )
}

// ListenerSetDefaultNotAllowed, ListenerSetAllowedNamespace{None,Same,Selector}
#[test]
fn a_gateway_says_from_where_listener_sets_are_allowed() {
    let cases = [
        ("", [false, false]),
        ("{from: None}", [false, false]),
        ("{from: Same}", [true, false]),
        ("{from: All}", [true, true]),
        ("{from: Selector, selector: {matchLabels: {team: a}}}", [false, true]),
        ("{from: Selector}", [false, false]),
    ];
    for (namespaces, expected) in cases {
        let mut cluster = allowing(namespaces);
        cluster.apply(&set("ls", "infra", &[("one", 80, "HTTP", "one.com")]));
        cluster.apply(&set("ls", "team-a", &[("two", 80, "HTTP", "two.com")]));
        cluster.settle();
        for (name, expected) in ["infra/ls", "team-a/ls"].into_iter().zip(expected) {
            let expected = if expected {
                ["True Accepted", "True Programmed"]
            } else {
                ["False NotAllowed", "False NotAllowed"]
            };
            let found =
                ["Accepted", "Programmed"].map(|of_type| cluster.condition(Kind::ListenerSet, name, of_type));
            assert_eq!(found, expected, "{name} for {namespaces}");
        }
        let count = expected.iter().filter(|one| **one).count();
        assert_eq!(cluster.status(Kind::Gateway, "gw")["attachedListenerSets"], count, "{namespaces}");
        assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True Accepted");
    }
}

#[test]
fn a_label_of_a_namespace_decides_when_it_changes() {
    let mut cluster = allowing("{from: Selector, selector: {matchLabels: {team: a}}}");
    cluster.apply(&set("ls", "team-b", &[("one", 80, "HTTP", "one.com")]));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::ListenerSet, "team-b/ls", "Accepted"), "False NotAllowed");
    cluster.apply("kind: Namespace\nmetadata: {name: team-b, labels: {team: a}}");
    cluster.settle();
    assert_eq!(cluster.condition(Kind::ListenerSet, "team-b/ls", "Accepted"), "True Accepted");
}

// ListenerSetHostnameConflict, ListenerSetProtocolConflict
#[test]
fn the_gateway_wins_then_the_older_listener_set() {
    for (protocol, reason, own) in
        [("HTTP", "HostnameConflict", 80), ("HTTPS", "ProtocolConflict", 82), ("TCP", "ProtocolConflict", 80)]
    {
        let mut cluster = allowing("{from: Same}");
        let (port, host) = if protocol == "HTTP" { (80, "gw.com") } else { (80, "x.com") };
        let second = if protocol == "HTTP" { (81, "shared.com") } else { (81, "y.com") };
        cluster.apply(&set(
            "first",
            "infra",
            &[
                ("own", own, "HTTP", "own.com"),
                ("bad", port, protocol, host),
                ("shared", 81, "HTTP", "shared.com"),
            ],
        ));
        cluster.apply(&set("second", "infra", &[("bad", port, protocol, host)]));
        cluster.apply(&set(
            "third",
            "infra",
            &[("own", own, "HTTP", "third.com"), ("bad", second.0, protocol, second.1)],
        ));
        cluster.settle();
        let bad = [format!("False {reason}"), format!("False {reason}"), format!("True {reason}")];
        let good = ["True Accepted", "True Programmed", "False NoConflicts"].map(str::to_owned);
        for (set, listener, expected) in [
            ("first", "own", &good),
            ("first", "bad", &bad),
            ("first", "shared", &good),
            ("second", "bad", &bad),
            ("third", "own", &good),
            ("third", "bad", &bad),
        ] {
            let found = ["Accepted", "Programmed", "Conflicted"]
                .map(|of_type| cluster.listener(Kind::ListenerSet, set, listener, of_type));
            assert_eq!(&found, expected, "{set} {listener} {protocol}");
        }
        for (set, accepted, programmed) in [
            ("first", "True ListenersNotValid", "True Programmed"),
            ("second", "False ListenersNotValid", "False ListenersNotValid"),
            ("third", "True ListenersNotValid", "True Programmed"),
        ] {
            assert_eq!(cluster.condition(Kind::ListenerSet, set, "Accepted"), accepted, "{set}");
            assert_eq!(cluster.condition(Kind::ListenerSet, set, "Programmed"), programmed, "{set}");
        }
        assert_eq!(cluster.status(Kind::Gateway, "gw")["attachedListenerSets"], 2);
        assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True Accepted");
        assert_eq!(cluster.listener(Kind::Gateway, "gw", "http", "Accepted"), "True Accepted");
    }
}

#[test]
fn listeners_are_in_the_order_of_precedence() {
    let mut cluster = allowing("{from: Same}");
    let old = set("zz", "infra", &[("old", 80, "HTTP", "old.com")])
        .replace("name: zz,", "name: zz, creationTimestamp: '1970-01-01T00:00:01Z',");
    cluster.apply(&set("aa", "infra", &[("young", 80, "HTTP", "young.com")]));
    cluster.apply(&old);
    cluster.settle();
    let state = cluster.world.desired_state();
    let socket = &state.gateways[&key(Kind::Gateway, "gw").at].sockets[0];
    let names: Vec<_> = socket.listeners.iter().map(|one| one.id.section.as_str()).collect();
    assert_eq!(names, ["http", "old", "young"]);
}

// ListenerSetDualParentRefIndependence, ListenerSetGatewayParentSectionNameNotFound
#[test]
fn each_parent_of_a_route_is_judged_by_itself() {
    let mut cluster = allowing("{from: Same}");
    cluster.apply(&set("ls", "infra", &[("extra", 80, "HTTP", "ls.com")]));
    cluster.apply(
        "kind: HTTPRoute
metadata: {name: both}
spec:
  parentRefs: [{name: gw}, {kind: ListenerSet, name: ls}]
---
kind: HTTPRoute
metadata: {name: one}
spec:
  parentRefs: [{name: gw, sectionName: extra}, {kind: ListenerSet, name: ls, sectionName: extra}]",
    );
    cluster.settle();
    for (route, index, expected) in [
        ("both", 0, "True Accepted"),
        ("both", 1, "True Accepted"),
        ("one", 0, "False NoMatchingParent"),
        ("one", 1, "True Accepted"),
    ] {
        assert_eq!(cluster.parent(Kind::HttpRoute, route, index, "Accepted"), expected, "{route} {index}");
    }
    assert_eq!(cluster.attached("both"), ["http: any", "extra: any"]);
    assert_eq!(cluster.listener_status(Kind::ListenerSet, "ls", "extra")["attachedRoutes"], 2);
    assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 1);
    // ListenerSetRouteStatusScopedToParentRef
    let parents = &cluster.status(Kind::HttpRoute, "both")["parents"];
    assert_eq!(parents.as_array().unwrap().len(), 2);
    assert_eq!(parents[1]["parentRef"], serde_json::json!({ "kind": "ListenerSet", "name": "ls" }));
}

#[test]
fn same_namespace_is_that_of_the_listener_set() {
    let mut cluster = allowing("{from: All}");
    let set = set("ls", "team-a", &[("one", 80, "HTTP", "one.com")])
        .replace("{namespaces: {from: All}}", "{namespaces: {from: Same}}");
    cluster.apply(&set);
    for namespace in ["infra", "team-a"] {
        cluster.apply(&format!(
            "kind: HTTPRoute\nmetadata: {{name: route, namespace: {namespace}}}\nspec: {{parentRefs: [{{kind: \
             ListenerSet, name: ls, namespace: team-a}}]}}"
        ));
    }
    cluster.settle();
    let accepted = |name| cluster.parent(Kind::HttpRoute, name, 0, "Accepted");
    assert_eq!(accepted("infra/route"), "False NotAllowedByListeners");
    assert_eq!(accepted("team-a/route"), "True Accepted");
}

#[test]
fn a_listener_set_follows_its_gateway() {
    let mut cluster = allowing("{from: Same}");
    cluster.apply(&set("ls", "infra", &[("one", 80, "HTTP", "one.com")]));
    cluster.apply(
        "kind: HTTPRoute\nmetadata: {name: route}\nspec: {parentRefs: [{kind: ListenerSet, name: ls}]}",
    );
    cluster.settle();
    assert_eq!(cluster.attached("route"), ["one: any"]);
    let gateway = gateway("gw") + "  allowedListeners: {namespaces: {from: Same}}\n  future: 1\n";
    cluster.apply(&gateway);
    cluster.settle();
    assert_eq!(cluster.condition(Kind::ListenerSet, "ls", "Accepted"), "False ParentNotAccepted");
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "False NoMatchingParent");
    assert!(cluster.attached("route").is_empty());
    cluster.remove(Kind::Gateway, "gw");
    cluster.settle();
    // Nobody knows whose the parent was: the entry is removed.
    assert_eq!(cluster.status(Kind::HttpRoute, "route")["parents"], serde_json::json!([]));
}

// ListenerSetReferenceGrant
#[test]
fn a_listener_set_without_a_listener_that_can_be_served_is_not_accepted() {
    let mut cluster = allowing("{from: All}");
    let mut secret = tls_secret("cert");
    secret["metadata"]["namespace"] = "team-b".into();
    cluster.put(secret);
    cluster.apply(
        "kind: ListenerSet
metadata: {name: ls, namespace: team-a}
spec:
  parentRef: {name: gw, namespace: infra}
  listeners:
  - {name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: team-b}]}}
---
kind: HTTPRoute
metadata: {name: route, namespace: team-a}
spec: {parentRefs: [{kind: ListenerSet, name: ls}]}",
    );
    cluster.settle();
    let set = |cluster: &Cluster, of_type| cluster.condition(Kind::ListenerSet, "team-a/ls", of_type);
    let tls = |cluster: &Cluster, of_type| cluster.listener(Kind::ListenerSet, "team-a/ls", "tls", of_type);
    assert_eq!(set(&cluster, "Accepted"), "False ListenersNotValid");
    assert_eq!(set(&cluster, "Programmed"), "False ListenersNotValid");
    assert_eq!(tls(&cluster, "ResolvedRefs"), "False RefNotPermitted");
    // As at a Gateway, the route is attached and served as soon as the listener is.
    assert_eq!(cluster.parent(Kind::HttpRoute, "team-a/route", 0, "Accepted"), "True Accepted");
    cluster.apply(
        "kind: ReferenceGrant
metadata: {name: grant, namespace: team-b}
spec:
  from: [{group: gateway.networking.k8s.io, kind: ListenerSet, namespace: team-a}]
  to: [{group: '', kind: Secret}]",
    );
    cluster.settle();
    assert_eq!(set(&cluster, "Accepted"), "True Accepted");
    assert_eq!(tls(&cluster, "Programmed"), "True Programmed");
}
