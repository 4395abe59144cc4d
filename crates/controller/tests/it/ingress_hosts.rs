//! Hosts of Ingresses: certificates, listeners, and whose a host is.

use controller::names::Kind;
use serde_json::json;

use crate::cluster::{gateway, ingress_cluster, tls_secret};
use crate::ingresses::{APP, alone, faults, hosts, ingress, path, served};

#[test]
fn a_host_with_tls_has_its_certificate_and_is_never_served_in_clear() {
    let mut cluster = ingress_cluster();
    for name in ["own", "other"] {
        let mut secret = tls_secret(name);
        secret["metadata"]["namespace"] = json!("team-a");
        cluster.put(secret);
    }
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("[{hosts: [app.test], secretName: own}]", &["app.test"], &["443 app.test team-a/own"]),
        (
            "[{secretName: own}]",
            &["app.test", "b.test"],
            &["443 app.test team-a/own", "443 b.test team-a/own"],
        ),
        ("[{hosts: [app.test]}]", &["app.test"], &[]),
        ("[{hosts: ['*.test'], secretName: own}]", &["app.test"], &["443 app.test team-a/own"]),
        ("[{hosts: ['*.test'], secretName: own}]", &["*.test"], &["443 *.test team-a/own"]),
        (
            "[{hosts: [app.test], secretName: own}, {hosts: [b.test], secretName: other}]",
            &["app.test", "b.test"],
            &["443 app.test team-a/own", "443 b.test team-a/other"],
        ),
        (
            "[{hosts: [app.test]}, {hosts: [app.test], secretName: own}]",
            &["app.test"],
            &["443 app.test team-a/own"],
        ),
    ];
    for (tls, names, expected) in cases {
        cluster.apply(&ingress(APP, &format!("tls: {tls}, {}", hosts(names))));
        cluster.settle();
        assert_eq!(cluster.certificates(), expected, "{tls}");
        let first = served(&cluster, APP);
        assert_eq!(
            first[..3],
            [
                format!("/ -> web:8080*1 @ https({}) closed", names[0]),
                format!("/ -> 308https @ http({}) exempt", names[0]),
                format!("/ -> 404 @ http({0}) exempt, https({0}) exempt", names[0]),
            ],
            "{tls}"
        );
        assert!(faults(&cluster, APP).is_empty(), "{tls}");
    }
    // Only the named host is served with TLS alone.
    let one = "tls: [{hosts: [a.b.test, '*.b.test'], secretName: own}]";
    cluster.apply(&ingress(APP, &format!("{one}, {}", hosts(&["b.test", "a.b.test", "x.a.b.test"]))));
    cluster.settle();
    assert_eq!(cluster.certificates(), ["443 a.b.test team-a/own"]);
    cluster.remove(Kind::Ingress, APP);
    cluster.settle();
    assert!(cluster.certificates().is_empty());
}

#[test]
fn a_certificate_that_cannot_be_used_leaves_that_of_the_listener() {
    let spec = format!("tls: [{{hosts: [app.test], secretName: own}}], {}", hosts(&["app.test"]));
    let (served, faults, mut cluster) = alone(&ingress(APP, &spec));
    assert_eq!((served.len(), faults), (3, vec!["InvalidCertificateRef"]));
    assert!(cluster.certificates().is_empty());
    let mut secret = tls_secret("own");
    secret["metadata"]["namespace"] = json!("team-a");
    cluster.put(secret.clone());
    let changes = cluster.settle();
    assert_eq!(cluster.certificates(), ["443 app.test team-a/own"]);
    assert_eq!((changes.gateways.len(), changes.faults[0].faults.len()), (1, 0));
    secret["data"]["tls.crt"] = json!("AAAA");
    cluster.put(secret);
    cluster.settle();
    assert!(cluster.certificates().is_empty());
    let message = cluster.fault_messages(Kind::Ingress, APP);
    assert!(message.starts_with("Secret team-a/own is not usable"), "{message}");
    // A Secret of another namespace cannot be named: the name is one of the own namespace.
    assert!(message.ends_with("the certificate of the listener is used"), "{message}");
}

#[test]
fn the_certificate_of_the_oldest_ingress_counts() {
    let mut cluster = ingress_cluster();
    for name in ["first", "second"] {
        let mut secret = tls_secret(name);
        secret["metadata"]["namespace"] = json!("team-a");
        cluster.put(secret);
        let spec = format!("tls: [{{hosts: [app.test], secretName: {name}}}], {}", hosts(&["app.test"]));
        cluster.apply(&ingress(&format!("team-a/{name}"), &spec));
    }
    cluster.settle();
    assert_eq!(cluster.certificates(), ["443 app.test team-a/first"]);
    cluster.remove(Kind::Ingress, "team-a/first");
    cluster.settle();
    assert_eq!(cluster.certificates(), ["443 app.test team-a/second"]);
}

#[test]
fn listeners_say_which_hosts_and_namespaces_they_take() {
    let listeners = |listeners: &str| {
        format!(
            "kind: Gateway\nmetadata: {{name: gw}}\nspec: {{gatewayClassName: postern, listeners: [{listeners}]}}"
        )
    };
    let all = "allowedRoutes: {namespaces: {from: All}}";
    let cases = [
        (format!("{{name: http, port: 80, protocol: HTTP, {all}}}"), Ok("http(app.test)")),
        ("{name: http, port: 80, protocol: HTTP}".to_owned(), Err("NotAllowedByListeners")),
        (
            "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: \
             {matchLabels: {team: a}}}}}"
                .to_owned(),
            Ok("http(app.test)"),
        ),
        (
            "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: \
             {matchLabels: {team: b}}}}}"
                .to_owned(),
            Err("NotAllowedByListeners"),
        ),
        (
            "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: \
             HTTPRoute}]}}"
                .to_owned(),
            Err("NotAllowedByListeners"),
        ),
        (
            format!("{{name: http, port: 80, protocol: HTTP, hostname: '*.test', {all}}}"),
            Ok("http(app.test)"),
        ),
        (
            format!("{{name: http, port: 80, protocol: HTTP, hostname: other.test, {all}}}"),
            Err("NoMatchingListenerHostname"),
        ),
        // The most specific listener has the requests, and this one takes nothing of other namespaces.
        (
            format!(
                "{{name: any, port: 80, protocol: HTTP, {all}}}, {{name: app, port: 80, protocol: HTTP, hostname: \
                 app.test}}"
            ),
            Err("NoMatchingListenerHostname"),
        ),
        (
            format!(
                "{{name: any, port: 80, protocol: HTTP, {all}}}, {{name: app, port: 80, protocol: HTTP, hostname: \
                 '*.test', {all}}}"
            ),
            Ok("app(app.test)"),
        ),
    ];
    for (spec, expected) in cases {
        let mut cluster = ingress_cluster();
        cluster.apply(&ingress(APP, &hosts(&["app.test"])));
        cluster.settle();
        cluster.apply(&listeners(&spec));
        cluster.settle();
        match expected {
            Ok(place) => {
                assert_eq!(served(&cluster, APP)[0], format!("/ -> web:8080*1 @ {place} closed"), "{spec}");
            }
            Err(reason) => {
                assert!(served(&cluster, APP).is_empty(), "{spec}");
                assert_eq!(faults(&cluster, APP), [reason], "{spec}");
            }
        }
    }
}

#[test]
fn tls_without_an_https_listener_is_a_fault() {
    let (_, _, mut cluster) = alone(&ingress(APP, &format!("tls: [{{}}], {}", hosts(&["app.test"]))));
    cluster.apply(&gateway("gw"));
    cluster.settle();
    assert_eq!(
        served(&cluster, APP),
        ["/ -> 308https @ http(app.test) exempt", "/ -> 404 @ http(app.test) exempt"]
    );
    assert_eq!(faults(&cluster, APP), ["NoHttpsListener"]);
}

#[test]
fn the_redirect_names_a_port_that_is_not_the_usual_one() {
    let (_, _, mut cluster) = alone(&ingress(APP, &format!("tls: [{{}}], {}", hosts(&["app.test"]))));
    let manifest =
        serde_json::to_string(&cluster.objects[&crate::cluster::key(Kind::Gateway, "gw")]).unwrap();
    cluster.put(serde_json::from_str(&manifest.replace("\"port\":443", "\"port\":8443")).unwrap());
    cluster.settle();
    assert_eq!(served(&cluster, APP)[1], "/ -> 308https:8443 @ http(app.test) exempt");
}

#[test]
fn a_host_belongs_to_the_namespace_of_the_oldest_ingress() {
    let mut cluster = ingress_cluster();
    cluster.apply(
        &ingress("team-b/late", &hosts(&["app.test", "late.test"]))
            .replace("metadata: {", "metadata: {creationTimestamp: '2026-01-02T00:00:00Z', "),
    );
    cluster.settle();
    assert_eq!(served(&cluster, "team-b/late").len(), 4);
    // An older one appears, such as from a backup.
    cluster.apply(&ingress(APP, &hosts(&["app.test"])));
    let changes = cluster.settle();
    assert_eq!(served(&cluster, APP).len(), 2);
    assert_eq!(served(&cluster, "team-b/late").len(), 2, "the other host is still served");
    assert_eq!(faults(&cluster, "team-b/late"), ["HostAlreadyClaimed"]);
    let message = cluster.fault_messages(Kind::Ingress, "team-b/late");
    assert_eq!(message, "Ingress team-a/app already has host app.test and is older: use another host");
    assert_eq!(changes.recomputed.routes, 2);
    // Another Ingress of the namespace may share the host.
    cluster.apply(&ingress("team-a/more", &path("path: /more, pathType: Prefix")));
    cluster.settle();
    assert_eq!(served(&cluster, "team-a/more").len(), 2);
    cluster.remove(Kind::Ingress, APP);
    cluster.remove(Kind::Ingress, "team-a/more");
    cluster.settle();
    assert_eq!(served(&cluster, "team-b/late").len(), 4);
    assert!(faults(&cluster, "team-b/late").is_empty());
}

fn http_route(at: &str, hostnames: &str) -> String {
    let (namespace, name) = at.split_once('/').unwrap();
    format!(
        "kind: HTTPRoute\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{parentRefs: [{{name: gw, \
         namespace: infra}}], hostnames: {hostnames}, rules: [{{backendRefs: [{{name: web, port: 8080}}]}}]}}"
    )
}

#[test]
fn an_ingress_and_an_http_route_of_other_teams_do_not_share_a_host() {
    let mut cluster = ingress_cluster();
    cluster.apply(&http_route("team-b/route", "[app.test, '*.wild.test']"));
    cluster.apply(&ingress(APP, &hosts(&["app.test", "a.wild.test", "free.test"])));
    cluster.settle();
    assert_eq!(served(&cluster, APP).len(), 2);
    assert_eq!(faults(&cluster, APP), ["HostAlreadyClaimed", "HostAlreadyClaimed"]);
    assert_eq!(cluster.attached("team-b/route")[0], "http: *.wild.test app.test");
    // The other way round: a younger HTTPRoute loses the host, and keeps its other ones.
    cluster.apply(&http_route("team-b/young", "[free.test, young.test]"));
    cluster.apply(&http_route("team-b/all", "[free.test]"));
    cluster.apply(&http_route("team-a/same", "[free.test]"));
    cluster.settle();
    assert_eq!(cluster.attached("team-b/young"), ["http: young.test", "https: young.test"]);
    assert_eq!(cluster.parent(Kind::HttpRoute, "team-b/young", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.parent(Kind::HttpRoute, "team-b/all", 0, "Accepted"), "False HostnameConflict");
    assert_eq!(cluster.attached("team-a/same"), ["http: free.test", "https: free.test"]);
    cluster.remove(Kind::Ingress, APP);
    cluster.settle();
    assert_eq!(
        cluster.attached("team-b/young"),
        ["http: free.test young.test", "https: free.test young.test"]
    );
    assert_eq!(cluster.parent(Kind::HttpRoute, "team-b/all", 0, "Accepted"), "True Accepted");
    // One without hostnames takes what is left, and nothing from anybody.
    cluster.apply(&http_route("team-b/any", "[]"));
    cluster.apply(&ingress(APP, &hosts(&["new.test"])));
    cluster.settle();
    assert_eq!(served(&cluster, APP).len(), 2);
    assert_eq!(cluster.attached("team-b/any"), ["http: any", "https: any"]);
}

#[test]
fn a_host_of_a_listener_set_is_not_taken() {
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test", "a.sets.test"])));
    assert_eq!(served(&cluster, APP).len(), 4);
    cluster.apply(
        "kind: ListenerSet
metadata: {name: set, namespace: team-b}
spec: {parentRef: {name: gw, namespace: infra}, listeners: [{name: x, port: 80, protocol: HTTP, hostname: '*.sets.test'}]}",
    );
    cluster.settle();
    assert_eq!(served(&cluster, APP).len(), 2);
    let message = cluster.fault_messages(Kind::Ingress, APP);
    assert_eq!(message, "host a.sets.test belongs to a listener of ListenerSet team-b/set: use another host");
    cluster.remove(Kind::ListenerSet, "team-b/set");
    cluster.settle();
    assert_eq!(served(&cluster, APP).len(), 4);
}

/// As many hosts as an object of the API server has room for. Each is looked up among the others in
/// logarithmic time: comparing all of them takes ten seconds in a debug build.
#[test]
fn thousands_of_hosts_of_one_ingress_take_no_noticeable_time() {
    let names =
        |prefix: &str| -> Vec<String> { (0..4_000).map(|number| format!("{prefix}{number}.test")).collect() };
    let (own, other) = (names("own"), names("other"));
    let rules = own.iter().map(|host| json!({ "host": host })).collect::<Vec<_>>();
    let mut cluster = ingress_cluster();
    cluster.put(json!({
        "kind": "Ingress",
        "metadata": { "name": "app", "namespace": "team-a" },
        "spec": {
            "ingressClassName": "postern",
            "rules": rules,
            "tls": [{ "hosts": other, "secretName": "gone" }, { "hosts": ["own7.test"] }],
        },
    }));
    let begin = std::time::Instant::now();
    cluster.settle();
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(faults(&cluster, APP).is_empty());
}

#[test]
fn the_first_entry_with_a_secret_counts_for_a_host() {
    let secret = |tls: &str| {
        let rule = format!("{}, tls: [{tls}]", hosts(&["app.test"]));
        let (_, _, cluster) = alone(&ingress(APP, &rule));
        cluster.fault_messages(Kind::Ingress, APP)
    };
    for (tls, expected) in [
        ("{hosts: [app.test], secretName: one}, {hosts: ['*.test'], secretName: two}", "team-a/one"),
        ("{hosts: ['*.test'], secretName: two}, {hosts: [app.test], secretName: one}", "team-a/two"),
        ("{hosts: [app.test]}, {secretName: all}", "team-a/all"),
        ("{hosts: [app.test], secretName: one}, {secretName: all}", "team-a/one"),
    ] {
        assert!(secret(tls).contains(&format!("Secret {expected} ")), "{tls}: {}", secret(tls));
    }
    assert_eq!(secret("{hosts: [other.test], secretName: one}"), "");
}

#[test]
fn one_object_fills_no_log_with_its_faults() {
    let fault = |number: usize| controller::fault::Fault::new("Any", format!("fault {number}"));
    let object = controller::names::ObjectKey::new(Kind::Ingress, "team-a", "app");
    let of = |count| {
        let faults = (0..count).map(fault).collect();
        controller::plan::ObjectFaults { object: object.clone(), faults }.to_string()
    };
    assert_eq!(of(2), "fault 0; fault 1");
    assert_eq!(of(5), "fault 0; fault 1; fault 2; fault 3; fault 4");
    assert_eq!(of(3_000), "fault 0; fault 1; fault 2; fault 3; fault 4; and 2995 more");
}
