//! Ingresses: classes, paths, backends, annotations, policies and status.

use controller::names::Kind;
use controller::settings::Settings;
use serde_json::json;

use crate::cluster::{CONTROLLER, Cluster, gateway, ingress_cluster};

/// An Ingress in a namespace, with fields of its spec in YAML.
pub(crate) fn ingress(at: &str, spec: &str) -> String {
    let (namespace, name) = at.split_once('/').unwrap();
    format!(
        "kind: Ingress\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{ingressClassName: postern, {spec}}}"
    )
}

/// Rules for hosts, each with the path `/` to the Service `web`.
pub(crate) fn hosts(hosts: &[&str]) -> String {
    let rule = |host: &&str| {
        format!("{{host: '{host}', http: {{paths: [{{path: /, pathType: Prefix, backend: {WEB}}}]}}}}")
    };
    format!("rules: [{}]", hosts.iter().map(rule).collect::<Vec<_>>().join(", "))
}

/// Rules for the host `app.test` with one path.
pub(crate) fn path(path: &str) -> String {
    format!("rules: [{{host: app.test, http: {{paths: [{{{path}, backend: {WEB}}}]}}}}]")
}

const WEB: &str = "{service: {name: web, port: {number: 8080}}}";
pub(crate) const APP: &str = "team-a/app";

pub(crate) fn served(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.served(Kind::Ingress, name)
}

pub(crate) fn faults(cluster: &Cluster, name: &str) -> Vec<&'static str> {
    cluster.faults(Kind::Ingress, name)
}

/// What is served of one Ingress, and the reasons of its faults.
pub(crate) fn alone(manifest: &str) -> (Vec<String>, Vec<&'static str>, Cluster) {
    let mut cluster = ingress_cluster();
    cluster.apply(manifest);
    cluster.settle();
    (served(&cluster, APP), faults(&cluster, APP), cluster)
}

#[test]
fn an_ingress_is_served_on_the_listeners_of_the_gateway() {
    let (served, faults, _) = alone(&ingress(APP, &hosts(&["app.test"])));
    assert_eq!(
        served,
        [
            "/ -> web:8080*1 @ http(app.test) closed, https(app.test) closed",
            "/ -> 404 @ http(app.test) exempt, https(app.test) exempt",
        ]
    );
    assert!(faults.is_empty());
}

#[test]
fn an_ingress_is_ours_by_its_class() {
    let class = |name: &str, controller: &str, default: &str| {
        format!(
            "kind: IngressClass\nmetadata: {{name: {name}, annotations: \
             {{ingressclass.kubernetes.io/is-default-class: '{default}'}}}}\nspec: {{controller: {controller}}}"
        )
    };
    let none = String::new;
    let other = || class("other", "example.com/other", "false");
    let default = || class("second", CONTROLLER, "true");
    let field = |name: &str| (format!("ingressClassName: {name}, "), String::new());
    let annotated = |name: &str| (String::new(), format!("kubernetes.io/ingress.class: {name}"));
    let neither = || (String::new(), String::new());
    let cases = [
        (none(), field("postern"), true),
        (none(), field("gone"), false),
        (none(), neither(), false),
        (none(), annotated("postern"), true),
        (none(), annotated("nginx"), false),
        (other(), field("other"), false),
        // The deprecated annotation comes first.
        (other(), ("ingressClassName: postern, ".into(), "kubernetes.io/ingress.class: other".into()), false),
        (other(), ("ingressClassName: other, ".into(), "kubernetes.io/ingress.class: postern".into()), true),
        (default(), neither(), true),
        (default(), field("gone"), false),
        (format!("{}\n---\n{}", default(), class("third", "example.com/other", "true")), neither(), false),
        (class("third", "example.com/other", "true"), neither(), false),
        // Without an IngressClass the annotation may still name the class `postern`, and the field not.
        (class("postern", "example.com/other", "false"), annotated("postern"), false),
    ];
    for (classes, (field, annotation), expected) in cases {
        let mut cluster = ingress_cluster();
        cluster.apply(&format!(
            "kind: Ingress\nmetadata: {{name: app, namespace: team-a, annotations: {{{annotation}}}}}\nspec: {{{field} {}}}",
            hosts(&["app.test"])
        ));
        cluster.apply(&classes);
        cluster.settle();
        assert_eq!(!served(&cluster, APP).is_empty(), expected, "{classes} {field} {annotation}");
        assert!(faults(&cluster, APP).is_empty(), "{classes} {field} {annotation}");
    }
    let mut cluster = ingress_cluster();
    cluster.remove(Kind::IngressClass, "postern");
    cluster.apply(&ingress(APP, &hosts(&["app.test"])));
    cluster.apply(&format!(
        "kind: Ingress\nmetadata: {{name: old, namespace: team-a, annotations: {{kubernetes.io/ingress.class: \
         postern}}}}\nspec: {{{}}}",
        hosts(&["old.test"])
    ));
    cluster.settle();
    assert_eq!((served(&cluster, APP).len(), served(&cluster, "team-a/old").len()), (0, 2));
}

#[test]
fn a_class_with_parameters_refuses_its_ingresses() {
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test"])));
    cluster.apply(
        "kind: IngressClass
metadata: {name: postern}
spec: {controller: postern.dev/gateway-controller, parameters: {kind: ConfigMap, name: x}}",
    );
    let changes = cluster.settle();
    assert!(served(&cluster, APP).is_empty());
    assert_eq!(faults(&cluster, APP), ["InvalidClass"]);
    assert_eq!(changes.faults.len(), 1);
    cluster.apply(
        "kind: IngressClass\nmetadata: {name: postern}\nspec: {controller: postern.dev/gateway-controller}",
    );
    let changes = cluster.settle();
    assert_eq!((served(&cluster, APP).len(), changes.faults[0].faults.len()), (2, 0));
}

#[test]
fn paths_match_by_their_type() {
    let cases = [
        ("path: /a, pathType: Exact", Ok("=/a")),
        ("path: /a/, pathType: Exact", Ok("=/a/")),
        ("path: /a, pathType: Prefix", Ok("/a")),
        ("path: /a/, pathType: Prefix", Ok("/a")),
        ("path: /, pathType: Prefix", Ok("/")),
        ("path: /a/b/, pathType: ImplementationSpecific", Ok("/a/b")),
        ("pathType: ImplementationSpecific", Ok("/")),
        ("path: '', pathType: ImplementationSpecific", Ok("/")),
        ("path: '/a(/|$)(.*)', pathType: ImplementationSpecific", Err("is a pattern")),
        ("path: '/*', pathType: ImplementationSpecific", Err("is a pattern")),
        ("path: a, pathType: Prefix", Err("path a does not begin with /")),
        ("path: /a, pathType: Regex", Err("pathType Regex of path /a is not known")),
        ("path: /a", Err("path /a has no pathType")),
    ];
    for (spec, expected) in cases {
        let (served, faults, cluster) = alone(&ingress(APP, &path(spec)));
        match expected {
            Ok(expected) => {
                let line =
                    format!("{expected} -> web:8080*1 @ http(app.test) closed, https(app.test) closed");
                assert_eq!((served.len(), &served[0], faults.len()), (2, &line, 0), "{spec}");
            }
            Err(expected) => {
                let message = cluster.fault_messages(Kind::Ingress, APP);
                assert!(served.is_empty() && message.contains(expected), "{spec}: {message}");
                assert_eq!(faults, ["UnsupportedValue"], "{spec}");
            }
        }
    }
}

#[test]
fn a_field_that_is_not_known_refuses_the_ingress() {
    let (served, _, cluster) = alone(&ingress(APP, &format!("{}, future: 1", hosts(&["app.test"]))));
    assert!(served.is_empty());
    let message = cluster.fault_messages(Kind::Ingress, APP);
    assert_eq!(message, "not used, because of spec.future: this field is not known");
}

#[test]
fn the_default_backend_takes_what_no_rule_matches() {
    let default = format!("defaultBackend: {WEB}");
    let (served, ..) = alone(&ingress(APP, &default));
    assert_eq!(served, ["/ -> web:8080*1 @ http(any) closed, https(any) closed"]);
    let (served, ..) = alone(&ingress(APP, &format!("{default}, {}", path("path: /a, pathType: Exact"))));
    assert_eq!(served.len(), 3);
    assert!(served[1].starts_with("/ -> web:8080*1 @ http(app.test)"), "{}", served[1]);
    let (served, ..) = alone(&ingress(APP, &format!("{default}, {}", hosts(&["app.test"]))));
    assert_eq!(served.len(), 2, "{served:?}");
    let (served, ..) = alone(&ingress(APP, &format!("{default}, rules: [{{host: app.test}}]")));
    assert_eq!(served.len(), 2, "{served:?}");
}

#[test]
fn rules_of_a_host_are_joined_and_each_wildcard_keeps_its_pattern() {
    let rules = format!(
        "rules: [{{host: a.test, http: {{paths: [{{path: /x, pathType: Prefix, backend: {WEB}}}]}}}}, \
         {{host: '*.b.test', http: {{paths: [{{path: /, pathType: Prefix, backend: {WEB}}}]}}}}, \
         {{host: a.test, http: {{paths: [{{path: /y, pathType: Exact, backend: {WEB}}}]}}}}, \
         {{http: {{paths: [{{path: /z, pathType: Exact, backend: {WEB}}}]}}}}]"
    );
    let (served, ..) = alone(&ingress(APP, &rules));
    let places = |hosts: &str| format!("http({hosts}) closed, https({hosts}) closed");
    assert_eq!(served[0], format!("/x -> web:8080*1 @ {}", places("a.test")));
    assert_eq!(served[1], format!("=/y -> web:8080*1 @ {}", places("a.test")));
    assert_eq!(served[3], format!("/ -> web:8080*1 @ {}", places("*.b.test")));
    assert_eq!(served[5], format!("=/z -> web:8080*1 @ {}", places("any")));
    assert_eq!(served.len(), 6);
}

#[test]
fn backends_are_found_by_name_or_number() {
    let rule = |backend: &str| {
        format!(
            "rules: [{{host: app.test, http: {{paths: [{{path: /, pathType: Prefix, backend: {backend}}}]}}}}]"
        )
    };
    let cases = [
        ("{service: {name: web, port: {number: 8080}}}", None),
        ("{service: {name: web, port: {name: web}}}", None),
        ("{service: {name: web, port: {name: other}}}", Some("Service team-a/web has no port named other")),
        ("{service: {name: web, port: {number: 80}}}", Some("Service team-a/web has no TCP port 80")),
        ("{service: {name: gone, port: {number: 80}}}", Some("Service team-a/gone does not exist")),
        ("{service: {name: gone, port: {name: web}}}", Some("Service team-a/gone does not exist")),
        ("{service: {name: web}}", Some("the reference to Service team-a/web has no port")),
        ("{resource: {apiGroup: x.com, kind: Bucket, name: b}}", Some("a backend names Bucket b")),
    ];
    for (backend, expected) in cases {
        let (served, faults, cluster) = alone(&ingress(APP, &rule(backend)));
        let target = if expected.is_none() { "web:8080*1" } else { "500*1" };
        assert!(served[0].starts_with(&format!("/ -> {target} @")), "{backend}: {}", served[0]);
        assert_eq!(faults.len(), usize::from(expected.is_some()), "{backend}");
        let message = cluster.fault_messages(Kind::Ingress, APP);
        assert!(message.contains(expected.unwrap_or_default()), "{backend}: {message}");
    }
    let (_, _, mut cluster) = alone(&ingress(APP, &rule("{service: {name: late, port: {name: web}}}")));
    cluster.apply(
        "kind: Service\nmetadata: {name: late, namespace: team-a}\nspec: {ports: [{name: web, port: 7}]}",
    );
    let changes = cluster.settle();
    assert!(served(&cluster, APP)[0].starts_with("/ -> late:7*1"));
    assert_eq!(changes.faults[0].faults, []);
}

#[test]
fn annotations_that_restrict_access_are_not_ignored() {
    let nginx = "nginx.ingress.kubernetes.io";
    let cases = [
        ("auth-url", "http://auth/", Some("`login` or `authorizer` of an AccessPolicy")),
        ("auth-signin", "http://auth/", Some("`login` or `authorizer` of an AccessPolicy")),
        ("auth-type", "basic", Some("`basic_auth` of an AccessPolicy")),
        ("auth-secret", "users", Some("`basic_auth` of an AccessPolicy")),
        ("auth-tls-secret", "infra/ca", Some("spec.tls.frontend of the Gateway")),
        ("whitelist-source-range", "10.0.0.0/8", Some("`addresses` in an `allow` rule of an AccessPolicy")),
        ("denylist-source-range", "10.0.0.0/8", Some("`addresses` in a `deny` rule of an AccessPolicy")),
        ("server-snippet", "deny all;", Some("is not carried out: remove it")),
        ("limit-rps", "1", Some("is not carried out: remove it")),
        ("rewrite-target", "/$2", Some("the filter URLRewrite of an HTTPRoute")),
        ("canary", "true", Some("the weights of an HTTPRoute")),
        ("force-ssl-redirect", "true", Some("spec.tls with the hosts of the Ingress")),
        ("backend-protocol", "HTTPS", Some("a BackendTLSPolicy for TLS")),
        ("some-day", "1", Some("is not carried out: remove it")),
        ("force-ssl-redirect", "false", None),
        ("backend-protocol", "HTTP", None),
        ("ssl-redirect", "false", None),
        ("proxy-read-timeout", "60", None),
    ];
    for (name, value, expected) in cases {
        let spec = hosts(&["app.test"]);
        let manifest = ingress(APP, &spec)
            .replace("metadata: {", &format!("metadata: {{annotations: {{{nginx}/{name}: '{value}'}}, "));
        let (served, faults, cluster) = alone(&manifest);
        assert_eq!(served.is_empty(), expected.is_some(), "{name}");
        let message = cluster.fault_messages(Kind::Ingress, APP);
        if let Some(expected) = expected {
            assert_eq!(faults, ["UnsupportedAnnotation"], "{name}");
            assert!(message.starts_with(&format!("annotation {nginx}/{name} is")), "{name}: {message}");
            assert!(message.contains(expected), "{name}: {message}");
        }
    }
    // A changed annotation changes no generation.
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test"])));
    cluster.apply(
        &ingress(APP, &hosts(&["app.test"])).replace(
            "metadata: {",
            &format!("metadata: {{annotations: {{{nginx}/auth-url: x, other/y: z}}, "),
        ),
    );
    cluster.settle();
    assert!(served(&cluster, APP).is_empty());
}

fn policy(name: &str, namespace: &str, target: &str, body: &str) -> String {
    format!(
        "kind: AccessPolicy\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{targetRefs: [{{{target}}}], {body}}}"
    )
}

const GATEWAY: &str = "group: gateway.networking.k8s.io, kind: Gateway, name: gw";
const INGRESS: &str = "group: networking.k8s.io, kind: Ingress, name: app";

#[test]
fn policies_reach_an_ingress_from_the_gateway_and_its_own() {
    let (_, _, mut cluster) = alone(&ingress(APP, &format!("tls: [{{}}], {}", hosts(&["app.test"]))));
    let steps = [
        ("g", "infra", GATEWAY, "defaults: {}", "g"),
        (
            "l",
            "infra",
            "group: gateway.networking.k8s.io, kind: Gateway, name: gw, sectionName: https",
            "defaults: {}",
            "l",
        ),
        ("i", "team-a", INGRESS, "defaults: {}", "i"),
        (
            "o",
            "infra",
            "group: gateway.networking.k8s.io, kind: Gateway, name: gw, sectionName: https",
            "overrides: {}",
            "i",
        ),
    ];
    for (name, namespace, target, body, expected) in steps {
        cluster.apply(&policy(name, namespace, target, body));
        cluster.settle();
        let served = served(&cluster, APP);
        assert_eq!(served[0], format!("/ -> web:8080*1 @ https(app.test) {expected}"), "{name}");
        assert!(served[1].ends_with("exempt") && served[2].ends_with("exempt"), "{served:?}");
    }
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "team-a/i", 0, "Accepted"), "True Accepted");
    cluster.apply(&policy("i", "team-a", INGRESS, "defaults: {}, overrides: {}"));
    cluster.settle();
    assert!(served(&cluster, APP)[0].ends_with("!i"), "{:?}", served(&cluster, APP));
    cluster.remove(Kind::AccessPolicy, "team-a/i");
    cluster.remove(Kind::AccessPolicy, "l");
    cluster.settle();
    assert!(served(&cluster, APP)[0].ends_with(" o"), "{:?}", served(&cluster, APP));
}

#[test]
fn a_policy_for_an_ingress_of_another_class_says_that_it_protects_nothing() {
    let mut cluster = ingress_cluster();
    let cases = [("gone", "False TargetNotFound"), ("foreign", "False Invalid"), ("app", "True Accepted")];
    cluster.apply(&ingress("team-a/foreign", &hosts(&["a.test"])).replace("postern", "nginx"));
    cluster.apply(&ingress(APP, &hosts(&["app.test"])));
    for (name, expected) in cases {
        let target = INGRESS.replace("app", name);
        cluster.apply(&policy(name, "team-a", &target, "defaults: {}"));
        cluster.settle();
        let at = format!("team-a/{name}");
        assert_eq!(cluster.ancestor(Kind::AccessPolicy, &at, 0, "Accepted"), expected, "{name}");
    }
    cluster.apply(&policy("section", "team-a", &format!("{INGRESS}, sectionName: x"), "defaults: {}"));
    cluster.settle();
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "team-a/section", 0, "Accepted"), "False TargetNotFound");
    // The class arrives later.
    cluster.apply(
        "kind: IngressClass\nmetadata: {name: nginx}\nspec: {controller: postern.dev/gateway-controller}",
    );
    cluster.settle();
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "team-a/foreign", 0, "Accepted"), "True Accepted");
}

#[test]
fn the_status_has_the_addresses_of_the_gateway() {
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test"])));
    let addresses = |cluster: &Cluster| cluster.status(Kind::Ingress, APP)["loadBalancer"].clone();
    assert_eq!(addresses(&cluster), json!(null));
    cluster.addresses("gw", &["192.0.2.1", "2001:db8::1"], &[]);
    assert_eq!(cluster.settle().recomputed.routes, 0);
    assert_eq!(addresses(&cluster), json!({ "ingress": [{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }] }));
    cluster.addresses("gw", &["192.0.2.2"], &[]);
    cluster.settle();
    assert_eq!(addresses(&cluster), json!({ "ingress": [{ "ip": "192.0.2.2" }] }));
    cluster.apply(&ingress(APP, &format!("{}, future: 1", hosts(&["app.test"]))));
    cluster.settle();
    assert_eq!(addresses(&cluster), json!({}), "nothing of it is served");
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test"])).replace("postern", "nginx"));
    cluster.addresses("gw", &["192.0.2.1"], &[]);
    cluster.settle();
    assert_eq!(addresses(&cluster), json!(null), "the status belongs to another controller");
}

#[test]
fn without_the_gateway_nothing_is_served_and_a_fault_says_so() {
    let (_, _, mut cluster) = alone(&ingress(APP, &hosts(&["app.test"])));
    cluster.remove(Kind::Gateway, "gw");
    let changes = cluster.settle();
    assert_eq!((changes.plans_removed.len(), faults(&cluster, APP)), (2, vec!["GatewayNotFound"]));
    let mut cluster = Cluster::with(Settings::new(CONTROLLER));
    cluster.apply(
        "kind: IngressClass\nmetadata: {name: postern}\nspec: {controller: postern.dev/gateway-controller}",
    );
    cluster.apply(&gateway("gw"));
    cluster.apply(&ingress(APP, &hosts(&["app.test"])));
    cluster.settle();
    assert!(served(&cluster, APP).is_empty());
    let message = cluster.fault_messages(Kind::Ingress, APP);
    assert_eq!(message, "no Gateway serves Ingresses: set gateway_api.ingress_gateway in the configuration");
}

#[test]
fn a_change_of_one_ingress_derives_no_other() {
    let mut cluster = ingress_cluster();
    for number in 0..20 {
        cluster.apply(&ingress(&format!("team-a/app-{number}"), &hosts(&[&format!("app-{number}.test")])));
    }
    cluster.settle();
    cluster.apply(&ingress("team-a/app-7", &hosts(&["seven.test"])));
    let changes = cluster.settle();
    assert_eq!((changes.recomputed.routes, changes.recomputed.gateways, changes.plans.len()), (1, 0, 2));
    assert!(changes.gateways.is_empty());
}
