//! Attachment of routes to Gateways.

use controller::names::Kind;
use controller::plan::Changes;
use serde_json::Value;

use crate::cluster::{Cluster, gateway, key, service};

/// A Gateway `gw` with these listeners and a route `route` in `namespace` with this spec.
fn attach(listeners: &str, namespace: &str, spec: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.apply(&format!(
        "kind: Gateway\nmetadata: {{name: gw}}\nspec: {{gatewayClassName: postern, listeners: [{listeners}]}}"
    ));
    cluster.apply(&format!(
        "kind: HTTPRoute\nmetadata: {{name: route, namespace: {namespace}}}\nspec: {{{spec}}}"
    ));
    cluster.settle();
    cluster
}

#[test]
fn each_reason_has_its_case() {
    let http = "{name: http, port: 80, protocol: HTTP}";
    let all = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}";
    let selector = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, \
                    selector: {matchLabels: {team: a}}}}}";
    let grpc = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}";
    let host = "{name: http, port: 80, protocol: HTTP, hostname: '*.example.com'}";
    let tcp = "{name: tcp, port: 80, protocol: TCP}";
    let gw = "parentRefs: [{name: gw, namespace: infra}]";
    let cases = [
        (http, "infra", gw, "True Accepted"),
        // HTTPRouteInvalidCrossNamespaceParentRef
        (http, "team-a", gw, "False NotAllowedByListeners"),
        (all, "team-a", gw, "True Accepted"),
        (selector, "team-a", gw, "True Accepted"),
        (selector, "team-b", gw, "False NotAllowedByListeners"),
        // HTTPRouteDisallowedKind
        (grpc, "infra", gw, "False NotAllowedByListeners"),
        (tcp, "infra", gw, "False NotAllowedByListeners"),
        // HTTPRouteInvalidParentRefNotMatchingSectionName, …ListenerPort, …SectionNameNotMatchingPort
        (http, "infra", "parentRefs: [{name: gw, sectionName: other}]", "False NoMatchingParent"),
        (http, "infra", "parentRefs: [{name: gw, port: 81}]", "False NoMatchingParent"),
        (http, "infra", "parentRefs: [{name: gw, sectionName: http, port: 81}]", "False NoMatchingParent"),
        (http, "infra", "parentRefs: [{name: gw, sectionName: http, port: 80}]", "True Accepted"),
        (
            host,
            "infra",
            "parentRefs: [{name: gw}], hostnames: [other.com]",
            "False NoMatchingListenerHostname",
        ),
        (host, "infra", "parentRefs: [{name: gw}], hostnames: [a.example.com]", "True Accepted"),
        (http, "infra", "parentRefs: [{name: gone}]", "-"),
        (http, "infra", "parentRefs: [{kind: Service, group: '', name: gw}]", "-"),
    ];
    for (listeners, namespace, spec, expected) in cases {
        let cluster = attach(listeners, namespace, spec);
        let route = format!("{namespace}/route");
        let found = cluster.parent(Kind::HttpRoute, &route, 0, "Accepted");
        assert_eq!(found, expected, "{listeners} {namespace} {spec}");
        let served = expected.starts_with("True");
        assert_eq!(!cluster.plans(&route).is_empty(), served, "{listeners} {namespace} {spec}");
        let listener = if listeners == tcp { "tcp" } else { "http" };
        let count = &cluster.listener_status(Kind::Gateway, "gw", listener)["attachedRoutes"];
        assert_eq!(count, i32::from(served), "{listeners} {namespace} {spec}");
    }
}

// HTTPRouteHostnameIntersection
#[test]
fn a_route_is_served_on_the_hosts_of_both() {
    let listeners = "{name: exact, port: 80, protocol: HTTP, hostname: very.specific.com}, {name: wild, port: 80, \
                     protocol: HTTP, hostname: '*.wildcard.io'}, {name: deep, port: 80, protocol: HTTP, hostname: \
                     '*.any.wildcard.io'}";
    let cases: [(&str, &[&str]); 4] = [
        ("[non.matching.com, '*.nonmatchingwildcard.io', very.specific.com]", &["exact: very.specific.com"]),
        ("['*.specific.com']", &["exact: very.specific.com"]),
        ("[foo.wildcard.io, wildcard.io]", &["wild: foo.wildcard.io"]),
        ("['*.wildcard.io']", &["wild: *.wildcard.io", "deep: *.any.wildcard.io"]),
    ];
    for (hostnames, expected) in cases {
        let cluster =
            attach(listeners, "infra", &format!("parentRefs: [{{name: gw}}], hostnames: {hostnames}"));
        assert_eq!(cluster.attached("route"), expected, "{hostnames}");
    }
}

#[test]
fn a_label_of_a_namespace_moves_its_routes() {
    let selector = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, \
                    selector: {matchLabels: {team: a}}}}}";
    let mut cluster = attach(selector, "team-b", "parentRefs: [{name: gw, namespace: infra}]");
    assert!(cluster.plans("team-b/route").is_empty());
    cluster.apply("kind: Namespace\nmetadata: {name: team-b, labels: {team: a}}");
    let changes = cluster.settle();
    assert_eq!((changes.recomputed.routes, changes.plans.len()), (1, 1));
    cluster.apply("kind: Namespace\nmetadata: {name: team-b}");
    assert_eq!(cluster.settle().plans_removed.len(), 1);
}

// HTTPRouteMultipleGateways
#[test]
fn parents_have_results_of_their_own() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("one"));
    cluster.apply(&gateway("two").replace("name: http,", "name: http, hostname: two.com,"));
    cluster.apply(
        "kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: one}, {name: two}, {name: elsewhere}]
  hostnames: [one.com]",
    );
    cluster.settle();
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 1, "Accepted"), "False NoMatchingListenerHostname");
    assert_eq!(cluster.status(Kind::HttpRoute, "route")["parents"].as_array().unwrap().len(), 2);
    assert_eq!(cluster.attached("route"), ["http: one.com"]);
}

#[test]
fn a_listener_in_two_parent_references_serves_a_route_once() {
    let cluster = attach(
        "{name: http, port: 80, protocol: HTTP}, {name: alt, port: 81, protocol: HTTP}",
        "infra",
        "parentRefs: [{name: gw, sectionName: http}, {name: gw}]",
    );
    assert_eq!(cluster.attached("route"), ["http: any", "alt: any"]);
    assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 1);
}

#[test]
fn entries_of_other_controllers_stay() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    let other = "{parentRef: {name: foreign}, controllerName: example.com/other, conditions: [{type: Accepted, \
                 status: 'True'}]}";
    cluster.apply(&format!(
        "kind: HTTPRoute\nmetadata: {{name: route}}\nspec: {{parentRefs: [{{name: gw}}, {{name: \
         foreign}}]}}\nstatus: {{parents: [{other}]}}"
    ));
    cluster.apply("kind: HTTPRoute\nmetadata: {name: alone}\nspec: {parentRefs: [{name: gw}]}");
    // What the other controller writes meanwhile is not undone: the write is for the version that was seen.
    let version = |changes: &Changes, name: &str| {
        let mut documents = changes.statuses.iter();
        let document = documents.find(|one| one.object.at.name.as_str() == name).unwrap();
        let body: Value = serde_json::from_str(&document.body).unwrap();
        body["metadata"].get("resourceVersion").cloned()
    };
    let seen = cluster.objects[&key(Kind::HttpRoute, "route")]["metadata"]["resourceVersion"].clone();
    let changes = cluster.settle();
    assert_eq!(version(&changes, "route"), Some(seen));
    assert_eq!(version(&changes, "alone"), None, "nobody else writes this list");
    let parents = cluster.status(Kind::HttpRoute, "route")["parents"].as_array().unwrap().clone();
    assert_eq!(parents.len(), 2);
    assert_eq!(parents[0]["controllerName"], crate::cluster::CONTROLLER);
    assert_eq!(parents[1]["conditions"][0]["status"], "True");
    cluster.remove(Kind::Gateway, "gw");
    cluster.settle();
    let parents = cluster.status(Kind::HttpRoute, "route")["parents"].as_array().unwrap();
    assert_eq!(parents.len(), 1, "{parents:?}");
    assert_eq!(parents[0]["controllerName"], "example.com/other");
}

#[test]
fn a_route_with_an_unknown_field_is_refused_and_harms_no_other() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.apply(&service("web"));
    let route = |name: &str, extra: &str| {
        format!(
            "kind: HTTPRoute\nmetadata: {{name: {name}}}\nspec: {{parentRefs: [{{name: gw}}], rules: \
             [{{backendRefs: [{{name: web, port: 8080{extra}}}]}}]}}"
        )
    };
    cluster.apply(&route("bad", ", future: 1"));
    cluster.apply(&route("good", ""));
    cluster.settle();
    assert_eq!(cluster.parent(Kind::HttpRoute, "bad", 0, "Accepted"), "False UnsupportedValue");
    let conditions = &cluster.status(Kind::HttpRoute, "bad")["parents"][0]["conditions"];
    let expected = "not used, because of spec.rules.0.backendRefs.0.future: this field is not known";
    assert_eq!(Cluster::message(conditions, "Accepted"), expected);
    assert!(cluster.plans("bad").is_empty());
    assert_eq!(cluster.parent(Kind::HttpRoute, "good", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.plans("good").len(), 1);
}

#[test]
fn a_host_belongs_to_the_older_of_an_http_and_a_grpc_route() {
    let route = |kind: &str, name: &str, hostnames: &str| {
        format!(
            "kind: {kind}\nmetadata: {{name: {name}}}\nspec: {{parentRefs: [{{name: gw}}], hostnames: {hostnames}}}"
        )
    };
    let cases = [
        ("[a.com]", "[a.com]", false),
        ("[a.com]", "[b.com]", true),
        ("['*.com']", "[a.com]", false),
        ("[a.com]", "['*.com']", false),
        ("['*.a.com']", "['*.com']", false),
        ("['*.a.com']", "['*.b.com']", true),
        ("[]", "[a.com]", false),
        ("[a.com]", "[]", false),
    ];
    for (older, younger, both) in cases {
        for (first, second) in [(Kind::HttpRoute, Kind::GrpcRoute), (Kind::GrpcRoute, Kind::HttpRoute)] {
            let mut cluster = Cluster::new();
            cluster.apply(&gateway("gw"));
            cluster.apply(&route(first.name(), "older", older));
            cluster.apply(&route(second.name(), "younger", younger));
            cluster.settle();
            let case = format!("{older} of {}, then {younger}", first.name());
            assert_eq!(cluster.parent(first, "older", 0, "Accepted"), "True Accepted", "{case}");
            let found = cluster.parent(second, "younger", 0, "Accepted");
            assert_eq!(found, if both { "True Accepted" } else { "False HostnameConflict" }, "{case}");
            let count = &cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"];
            assert_eq!(count, if both { 2 } else { 1 }, "{case}");
            cluster.remove(first, "older");
            cluster.settle();
            assert_eq!(cluster.parent(second, "younger", 0, "Accepted"), "True Accepted", "{case}");
        }
    }
}

#[test]
fn an_older_route_that_appears_takes_its_hosts_back() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.apply("kind: HTTPRoute\nmetadata: {name: http}\nspec: {parentRefs: [{name: gw}]}");
    cluster.settle();
    assert_eq!(cluster.plans("http").len(), 1);
    cluster.apply(
        "kind: GRPCRoute
metadata: {name: grpc, creationTimestamp: '1970-01-01T00:00:01Z'}
spec: {parentRefs: [{name: gw}]}",
    );
    let changes = cluster.settle();
    assert_eq!((changes.plans.len(), changes.plans_removed.len()), (1, 1));
    assert_eq!(cluster.parent(Kind::HttpRoute, "http", 0, "Accepted"), "False HostnameConflict");
}

/// Of three routes the one in the middle is refused. It serves nothing, so it is in the way of nobody.
#[test]
fn a_refused_route_refuses_no_younger_one() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    let route = |kind: &str, at: &str, hostnames: &str| {
        let (namespace, name) = at.split_once('/').unwrap();
        format!(
            "kind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{parentRefs: [{{name: gw, \
             namespace: infra}}], hostnames: {hostnames}}}"
        )
    };
    cluster.apply(&route("HTTPRoute", "team-a/h1", "[a.com]"));
    cluster.apply(&route("GRPCRoute", "team-b/g", "[]"));
    cluster.settle();
    cluster.apply(&route("HTTPRoute", "team-a/h3", "[c.com]"));
    cluster.settle();
    let accepted = |cluster: &Cluster| {
        [(Kind::HttpRoute, "team-a/h1"), (Kind::GrpcRoute, "team-b/g"), (Kind::HttpRoute, "team-a/h3")]
            .map(|(kind, name)| cluster.parent(kind, name, 0, "Accepted"))
    };
    assert_eq!(accepted(&cluster), ["True Accepted", "False HostnameConflict", "True Accepted"]);
    assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 2);
    let message = |cluster: &Cluster, kind: Kind, name: &str| {
        Cluster::message(&cluster.status(kind, name)["parents"][0]["conditions"], "Accepted")
    };
    let found = message(&cluster, Kind::GrpcRoute, "team-b/g");
    assert!(found.starts_with("HTTPRoute team-a/h1 is older"), "{found}");
    // Without the oldest the next one has every host, and the youngest loses its own.
    let oldest = cluster.objects[&key(Kind::HttpRoute, "team-a/h1")].clone();
    cluster.remove(Kind::HttpRoute, "team-a/h1");
    cluster.settle();
    let left = [(Kind::GrpcRoute, "team-b/g"), (Kind::HttpRoute, "team-a/h3")];
    let left = left.map(|(kind, name)| cluster.parent(kind, name, 0, "Accepted"));
    assert_eq!(left, ["True Accepted", "False HostnameConflict"]);
    assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 1);
    let found = message(&cluster, Kind::HttpRoute, "team-a/h3");
    assert!(found.starts_with("GRPCRoute team-b/g is older"), "{found}");
    // And back, as from a backup with its time.
    cluster.put(oldest);
    cluster.settle();
    assert_eq!(accepted(&cluster), ["True Accepted", "False HostnameConflict", "True Accepted"]);
}
