//! Routes of OpenShift: termination, ports, weights, wildcards, hosts of other teams, and status.

use std::collections::BTreeMap;

use controller::names::{Kind, Name, NamespacedName};
use controller::plan::{CaSource, NameCheck, UpstreamTls};
use controller::settings::Settings;
use serde_json::{Value, json};

use crate::cluster::{CERTIFICATE, CONTROLLER, Cluster, gateway, ingress_cluster, tls_secret};

/// A Route in a namespace, with fields of its spec in YAML.
fn route(at: &str, spec: &str) -> String {
    let (namespace, name) = at.split_once('/').unwrap();
    format!("kind: Route\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}")
}

const APP: &str = "team-a/app";
const WEB: &str = "host: app.test, to: {kind: Service, name: web, weight: 100}";

fn served(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.served(Kind::OpenShiftRoute, name)
}

/// Our entry in the status of a Route.
fn entry<'a>(cluster: &'a Cluster, name: &str) -> &'a Value {
    let list = cluster.status(Kind::OpenShiftRoute, name)["ingress"].as_array();
    let own = list.into_iter().flatten().find(|entry| entry["routerName"] == CONTROLLER);
    own.unwrap_or(&Value::Null)
}

/// `status reason` of the condition `Admitted`.
fn admitted(cluster: &Cluster, name: &str) -> String {
    let conditions = entry(cluster, name)["conditions"].as_array().map(|list| &list[..]).unwrap_or_default();
    match conditions.iter().find(|one| one["type"] == "Admitted") {
        None => "-".to_owned(),
        Some(one) => {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            format!("{} {}", text("status"), text("reason")).trim_end().to_owned()
        }
    }
}

fn message(cluster: &Cluster, name: &str) -> String {
    entry(cluster, name)["conditions"][0]["message"].as_str().unwrap_or_default().to_owned()
}

fn alone(spec: &str) -> Cluster {
    let mut cluster = ingress_cluster();
    cluster.apply(&route(APP, spec));
    cluster.settle();
    cluster
}

#[test]
fn termination_says_what_is_served_over_http_and_https() {
    let forward = |place: &str| format!("/ -> web:8080*100 @ {place}(app.test) closed");
    let both = "/ -> web:8080*100 @ http(app.test) closed, https(app.test) closed".to_owned();
    let redirect = "/ -> 302https @ http(app.test) exempt".to_owned();
    let edge = |policy: &str| format!("tls: {{termination: edge, insecureEdgeTerminationPolicy: {policy}}}");
    let cases = [
        ("tls: null".to_owned(), vec![forward("http")]),
        ("tls: {termination: edge}".to_owned(), vec![forward("https")]),
        (edge("None"), vec![forward("https")]),
        (edge("''"), vec![forward("https")]),
        (edge("Allow"), vec![both]),
        (edge("Redirect"), vec![forward("https"), redirect]),
    ];
    for (tls, mut expected) in cases {
        let cluster = alone(&format!("{WEB}, {tls}"));
        expected.push("/ -> 404 @ http(app.test) exempt, https(app.test) exempt".to_owned());
        assert_eq!(served(&cluster, APP), expected, "{tls}");
        assert_eq!(admitted(&cluster, APP), "True", "{tls}");
        assert!(cluster.faults(Kind::OpenShiftRoute, APP).is_empty(), "{tls}");
    }
}

#[test]
fn what_is_not_supported_is_not_admitted() {
    let cases = [
        (
            "tls: {termination: passthrough}",
            "passthrough is not supported, since requests could not be authorized",
        ),
        ("tls: {termination: other}", "termination \"other\" is not known"),
        ("tls: {}", "termination \"\" is not known"),
        (
            "tls: {termination: edge, insecureEdgeTerminationPolicy: Maybe}",
            "insecureEdgeTerminationPolicy Maybe is not",
        ),
        ("wildcardPolicy: Other", "wildcardPolicy Other is not known"),
        ("path: app", "path app does not begin with /"),
        ("alternateBackends: [{kind: Other, name: x}]", "backend x is of kind Other: name a Service"),
        (
            "httpHeaders: {actions: {request: [{name: X, action: {type: Delete}}]}}",
            "httpHeaders.actions are not supported",
        ),
        ("future: 1", "not used, because of spec.future: this field is not known"),
        (
            "tls: {termination: edge, future: 1}",
            "not used, because of spec.tls.future: this field is not known",
        ),
    ];
    for (spec, expected) in cases {
        let cluster = alone(&format!("{WEB}, {spec}"));
        assert!(served(&cluster, APP).is_empty(), "{spec}");
        assert_eq!(admitted(&cluster, APP), "False RouteNotAdmitted", "{spec}");
        assert!(message(&cluster, APP).contains(expected), "{spec}: {}", message(&cluster, APP));
    }
    let cluster = alone("to: {kind: Service, name: web}");
    assert_eq!(admitted(&cluster, APP), "False RouteNotAdmitted");
    assert!(message(&cluster, APP).starts_with("spec.host is empty"), "{}", message(&cluster, APP));
}

#[test]
fn annotations_that_restrict_access_are_not_ignored() {
    let cases = [
        (
            "haproxy.router.openshift.io/ip_whitelist",
            Some("`addresses` in an `allow` rule of an AccessPolicy"),
        ),
        (
            "haproxy.router.openshift.io/ip_allowlist",
            Some("`addresses` in an `allow` rule of an AccessPolicy"),
        ),
        ("haproxy.router.openshift.io/hsts_header", Some("`security_headers` of an AccessPolicy")),
        ("haproxy.router.openshift.io/rewrite-target", Some("the filter URLRewrite of an HTTPRoute")),
        ("haproxy.router.openshift.io/rate-limit-connections", Some("remove it")),
        ("haproxy.router.openshift.io/timeout", None),
        ("router.openshift.io/cookie_name", None),
        ("openshift.io/host.generated", None),
    ];
    for (name, expected) in cases {
        let manifest =
            route(APP, WEB).replace("metadata: {", &format!("metadata: {{annotations: {{{name}: x}}, "));
        let mut cluster = ingress_cluster();
        cluster.apply(&manifest);
        cluster.settle();
        assert_eq!(served(&cluster, APP).is_empty(), expected.is_some(), "{name}");
        let text = message(&cluster, APP);
        assert!(text.contains(expected.unwrap_or_default()), "{name}: {text}");
        let is_refused = admitted(&cluster, APP) == "False UnsupportedAnnotation";
        assert_eq!(is_refused, expected.is_some(), "{name}");
    }
}

#[test]
fn paths_and_weights_are_those_of_the_route() {
    let cases = [
        ("path: /", "/ -> web:8080*100"),
        ("path: /app", "/app -> web:8080*100"),
        ("path: ''", "/ -> web:8080*100"),
        ("alternateBackends: [{kind: Service, name: web, weight: 20}]", "/ -> web:8080*100+web:8080*20"),
        ("alternateBackends: [{name: web}, {name: gone}]", "/ -> web:8080*100+web:8080*100+500*100"),
    ];
    for (spec, expected) in cases {
        let cluster = alone(&format!("{WEB}, {spec}"));
        assert!(
            served(&cluster, APP)[0].starts_with(&format!("{expected} @")),
            "{spec}: {:?}",
            served(&cluster, APP)
        );
        assert_eq!(admitted(&cluster, APP), "True", "{spec}");
    }
    let cluster = alone(&format!("{WEB}, alternateBackends: [{{name: gone}}]"));
    assert_eq!(cluster.faults(Kind::OpenShiftRoute, APP), ["BackendNotFound"]);
}

#[test]
fn a_target_port_is_one_of_the_pods() {
    let service = "kind: Service\nmetadata: {name: two, namespace: team-a}\nspec: {ports: [{name: web, port: 80, \
                   targetPort: 8080}, {name: admin, port: 81, targetPort: admin}, {name: same, port: 9000}]}";
    let cases = [
        ("port: {targetPort: 8080}", "two:80*100"),
        ("port: {targetPort: web}", "two:80*100"),
        ("port: {targetPort: admin}", "two:81*100"),
        ("port: {targetPort: 9000}", "two:9000*100"),
        ("port: {targetPort: 80}", "500*100"),
        ("port: {targetPort: other}", "500*100"),
        ("port: null", "500*100"),
    ];
    for (port, expected) in cases {
        let mut cluster = ingress_cluster();
        cluster.apply(service);
        cluster.apply(&route(APP, &format!("host: app.test, to: {{name: two}}, {port}")));
        cluster.settle();
        let found = served(&cluster, APP);
        assert!(found[0].starts_with(&format!("/ -> {expected} @")), "{port}: {found:?}");
    }
}

#[test]
fn a_wildcard_policy_serves_the_whole_subdomain() {
    let cluster = alone(&format!("{WEB}, wildcardPolicy: Subdomain").replace("app.test", "www.app.test"));
    assert_eq!(served(&cluster, APP)[0], "/ -> web:8080*100 @ http(*.app.test) closed");
    assert_eq!(entry(&cluster, APP)["wildcardPolicy"], "Subdomain");
    assert_eq!(entry(&cluster, APP)["host"], "www.app.test");
    let cluster = alone("host: app, to: {name: web}, wildcardPolicy: Subdomain");
    assert_eq!(admitted(&cluster, APP), "False RouteNotAdmitted");
}

#[test]
fn the_oldest_route_has_a_host_and_its_namespace_shares_it() {
    let mut cluster = ingress_cluster();
    let at = |path: &str| format!("{WEB}, path: {path}");
    for (name, path) in
        [("team-a/first", "/"), ("team-b/other", "/b"), ("team-a/more", "/more"), ("team-a/same", "/")]
    {
        cluster.apply(&route(name, &at(path)));
    }
    cluster.settle();
    let expected = [
        ("team-a/first", "True"),
        ("team-b/other", "False HostAlreadyClaimed"),
        ("team-a/more", "True"),
        ("team-a/same", "False HostAlreadyClaimed"),
    ];
    for (name, expected) in expected {
        assert_eq!(admitted(&cluster, name), expected, "{name}");
        assert_eq!(served(&cluster, name).is_empty(), expected != "True", "{name}");
    }
    // One that lost the host takes it from nobody: `more` is younger than `other`.
    assert_eq!(
        message(&cluster, "team-b/other"),
        "Route team-a/first already has host app.test and is older: use another host"
    );
    cluster.remove(Kind::OpenShiftRoute, "team-a/first");
    cluster.settle();
    // The next oldest has the host now. Whose it was before does not matter.
    assert_eq!(admitted(&cluster, "team-b/other"), "True");
    assert_eq!(admitted(&cluster, "team-a/more"), "False HostAlreadyClaimed");
    assert_eq!(admitted(&cluster, "team-a/same"), "False HostAlreadyClaimed");
    cluster.remove(Kind::OpenShiftRoute, "team-b/other");
    cluster.settle();
    assert_eq!([admitted(&cluster, "team-a/more"), admitted(&cluster, "team-a/same")], ["True", "True"]);
}

#[test]
fn hosts_are_shared_with_ingresses_of_the_namespace_alone() {
    let ingress = |namespace: &str| {
        format!(
            "kind: Ingress\nmetadata: {{name: app, namespace: {namespace}}}\nspec: {{ingressClassName: postern, rules: \
             [{{host: app.test, http: {{paths: [{{path: /i, pathType: Prefix, backend: {{service: {{name: web, port: \
             {{number: 8080}}}}}}}}]}}}}]}}"
        )
    };
    let mut cluster = alone(WEB);
    cluster.apply(&ingress("team-a"));
    cluster.apply(&ingress("team-b"));
    cluster.settle();
    assert_eq!(cluster.served(Kind::Ingress, APP).len(), 2);
    assert_eq!(cluster.faults(Kind::Ingress, "team-b/app"), ["HostAlreadyClaimed"]);
}

#[test]
fn a_certificate_is_in_the_route_or_in_a_secret() {
    let key = "-----BEGIN PRIVATE KEY-----\\nMAA=\\n-----END PRIVATE KEY-----\\n";
    let pem = CERTIFICATE.replace('\n', "\\n");
    let inline = format!("certificate: \"{pem}\", key: \"{key}\", caCertificate: \"{pem}\"");
    let mut cluster = ingress_cluster();
    let mut secret = tls_secret("external");
    secret["metadata"]["namespace"] = json!("team-a");
    cluster.put(secret);
    let cases: [(&str, &str, &[&str]); 7] = [
        ("", "True", &[]),
        (&inline, "True", &["443 app.test team-a/app"]),
        ("externalCertificate: {name: external}", "True", &["443 app.test team-a/external"]),
        ("externalCertificate: {name: gone}", "False ExternalCertificateValidationFailed", &[]),
        (&format!("certificate: \"{pem}\""), "False ExtendedValidationFailed", &[]),
        ("certificate: hello, key: hello", "False ExtendedValidationFailed", &[]),
        (
            &format!("{inline}, externalCertificate: {{name: external}}"),
            "False ExtendedValidationFailed",
            &[],
        ),
    ];
    for (tls, expected, certificates) in cases {
        cluster.apply(&route(APP, &format!("{WEB}, tls: {{termination: edge, {tls}}}")));
        cluster.settle();
        assert_eq!(admitted(&cluster, APP), expected, "{tls}: {}", message(&cluster, APP));
        assert_eq!(cluster.certificates(), certificates, "{tls}");
        assert!(!message(&cluster, APP).contains("MAA"), "{tls}");
    }
    cluster.apply(&route(APP, &format!("{WEB}, tls: {{termination: edge, {inline}}}")));
    cluster.settle();
    let state = cluster.world.desired_state();
    let plan = &state.gateways[&NamespacedName::new("infra", "gw")];
    let pair = &plan.sockets[1].certificates[0].pair;
    assert_eq!(String::from_utf8_lossy(&pair.chain), format!("{CERTIFICATE}{CERTIFICATE}"), "with the chain");
    let object = &cluster.world.known().openshift_routes[&NamespacedName::new("team-a", "app")];
    assert!(!format!("{object:?}").contains("PRIVATE KEY"), "{object:?}");
}

/// The TLS to the backend of the Route `app`, if it has one that can be used.
fn tls_to_backend(cluster: &Cluster) -> Option<UpstreamTls> {
    let state = cluster.world.desired_state();
    let upstreams = state.upstreams.into_values().filter(|upstream| upstream.key.reencrypt.is_some());
    let tls: Vec<_> = upstreams.map(|upstream| upstream.tls.clone().expect("never without TLS")).collect();
    assert!(tls.len() < 2);
    tls.into_iter().next()
}

#[test]
fn reencrypt_verifies_the_backend() {
    let pem = CERTIFICATE.replace('\n', "\\n");
    let reencrypt = |authorities: &str| format!("{WEB}, tls: {{termination: reencrypt, {authorities}}}");
    let own = format!("destinationCACertificate: \"{pem}\"");
    let mut cluster = alone(&reencrypt(""));
    assert_eq!(served(&cluster, APP)[0], "/ -> 500*100 @ https(app.test) closed");
    assert_eq!(admitted(&cluster, APP), "True");
    let problem = cluster.fault_messages(Kind::OpenShiftRoute, APP);
    assert!(problem.contains("set tls.destinationCACertificate"), "{problem}");
    assert_eq!(tls_to_backend(&cluster), None);
    cluster.put(json!({
        "kind": "ConfigMap",
        "metadata": { "name": "openshift-service-ca.crt", "namespace": "team-a" },
        "data": { "service-ca.crt": CERTIFICATE },
    }));
    cluster.settle();
    assert_eq!(served(&cluster, APP)[0], "/ -> web:8080!*100 @ https(app.test) closed");
    let bundle = || CaSource::Bundles(vec![CERTIFICATE.as_bytes().into()]);
    let expected = |name_check| UpstreamTls {
        hostname: Name::from("web.team-a.svc"),
        authorities: bundle(),
        subject_alt_names: Vec::new(),
        name_check,
    };
    assert_eq!(tls_to_backend(&cluster), Some(expected(NameCheck::Required)));
    cluster.apply(&route(APP, &reencrypt(&own)));
    let changes = cluster.settle();
    assert_eq!(tls_to_backend(&cluster), Some(expected(NameCheck::AnyName)));
    assert_eq!((changes.upstreams.len(), changes.plans.len()), (1, 0), "the same upstream, with other TLS");
    cluster.apply(&route(APP, &reencrypt("destinationCACertificate: hello")));
    cluster.settle();
    assert_eq!(tls_to_backend(&cluster), None);
    assert_eq!(served(&cluster, APP)[0], "/ -> 500*100 @ https(app.test) closed");
}

#[test]
fn the_status_is_an_entry_beside_those_of_other_routers() {
    let mut cluster = ingress_cluster();
    let other = json!({ "host": "app.test", "routerName": "default", "conditions": [
        { "type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]});
    let object = json!({
        "kind": "Route",
        "metadata": { "name": "app", "namespace": "team-a" },
        "spec": { "host": "app.test", "to": { "kind": "Service", "name": "web" } },
        "status": { "ingress": [other] },
    });
    cluster.put(object);
    cluster.settle();
    let list = &cluster.status(Kind::OpenShiftRoute, APP)["ingress"];
    assert_eq!((list.as_array().unwrap().len(), &list[1]), (2, &other));
    let own = &list[0];
    assert_eq!(
        (&own["host"], &own["routerName"], &own["wildcardPolicy"]),
        (&json!("app.test"), &json!(CONTROLLER), &json!("None"))
    );
    let conditions = own["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("Admitted"), &json!("True")));
    assert!(conditions[0].get("reason").is_none() && conditions[0].get("observedGeneration").is_none());
    assert_eq!(
        (&conditions[1]["type"], &conditions[1]["reason"]),
        (&json!("access.postern.dev/PolicyApplied"), &json!("NoPolicy"))
    );
    cluster.apply(
        "kind: AccessPolicy\nmetadata: {name: p, namespace: team-a}\nspec: {targetRefs: [{group: route.openshift.io, \
         kind: Route, name: app}], defaults: {}}",
    );
    cluster.settle();
    assert_eq!(entry(&cluster, APP)["conditions"][1]["status"], "True");
    assert_eq!(cluster.ancestor(Kind::AccessPolicy, "team-a/p", 0, "Accepted"), "True Accepted");
    assert!(served(&cluster, APP)[0].ends_with(" p"), "{:?}", served(&cluster, APP));
    // Without the Gateway the Route is not ours, and our entry goes.
    cluster.remove(Kind::Gateway, "gw");
    cluster.settle();
    assert_eq!(cluster.status(Kind::OpenShiftRoute, APP)["ingress"], json!([other]));
}

#[test]
fn routes_are_ours_by_namespace_and_labels() {
    let cluster = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| (Name::from(*key), Name::from(*value)));
        let mut cluster = Cluster::with(Settings {
            ingress_gateway: Some(NamespacedName::new("infra", "gw")),
            route_labels: labels.collect::<BTreeMap<_, _>>(),
            ..Settings::new(CONTROLLER)
        });
        cluster
            .apply(&gateway("gw").replace("from: All", "from: Selector, selector: {matchLabels: {team: a}}"));
        cluster.apply(&route(APP, WEB).replace("metadata: {", "metadata: {labels: {router: internal}, "));
        cluster.apply(&route("team-b/app", &WEB.replace("app.test", "b.test")));
        cluster.settle();
        [admitted(&cluster, APP), admitted(&cluster, "team-b/app")]
    };
    assert_eq!(cluster(&[]), ["True", "-"]);
    assert_eq!(cluster(&[("router", "internal")]), ["True", "-"]);
    assert_eq!(cluster(&[("router", "public")]), ["-", "-"]);
}
