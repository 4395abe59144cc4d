//! GatewayClasses, Gateways and their listeners.

use controller::names::Kind;
use controller::plan::{ClientCertificate, SocketPlan, SocketProtocol};

use crate::cluster::{Cluster, ca_bundle, gateway, key, tls_secret};

fn sockets(cluster: &Cluster, gateway: &str) -> Vec<SocketPlan> {
    let state = cluster.world.desired_state();
    state.gateways[&key(Kind::Gateway, gateway).at].sockets.clone()
}

/// A Gateway `gw` with these listeners, each in YAML.
fn with_listeners(listeners: &[&str]) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(tls_secret("cert"));
    let list: Vec<_> = listeners.iter().map(|listener| format!("  - {listener}\n")).collect();
    let text = format!(
        "kind: Gateway\nmetadata: {{name: gw}}\nspec:\n  gatewayClassName: postern\n  listeners:\n{}",
        list.concat()
    );
    cluster.apply(&text);
    cluster.settle();
    cluster
}

#[test]
fn a_class_is_ours_by_its_controller() {
    let mut cluster = Cluster::new();
    cluster.apply(
        "kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
kind: Gateway
metadata: {name: foreign}
spec: {gatewayClassName: other, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    cluster.settle();
    assert_eq!(cluster.condition(Kind::GatewayClass, "postern", "Accepted"), "True Accepted");
    assert_eq!(cluster.condition(Kind::GatewayClass, "postern", "SupportedVersion"), "True SupportedVersion");
    assert_eq!(cluster.status(Kind::GatewayClass, "other"), &serde_json::json!({}));
    assert_eq!(cluster.status(Kind::Gateway, "foreign"), &serde_json::json!({}));
    assert!(cluster.world.desired_state().gateways.is_empty());
}

#[test]
fn a_gateway_follows_its_class() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.settle();
    assert_eq!(cluster.world.desired_state().gateways.len(), 1);
    cluster.remove(Kind::GatewayClass, "postern");
    let changes = cluster.settle();
    assert_eq!(changes.gateways_removed, [key(Kind::Gateway, "gw").at]);
}

#[test]
fn the_parameters_of_a_class_must_exist() {
    let mut cluster = Cluster::new();
    let class = |parameters: &str| {
        format!(
            "kind: GatewayClass\nmetadata: {{name: postern}}\nspec: {{controllerName: \
             postern.dev/gateway-controller, parametersRef: {parameters}}}"
        )
    };
    cluster.apply(&class("{group: '', kind: ConfigMap, namespace: infra, name: postern}"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::GatewayClass, "postern", "Accepted"), "False InvalidParameters");
    cluster.apply(&gateway("gw"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "False InvalidParameters");
    cluster.put(ca_bundle("postern"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::GatewayClass, "postern", "Accepted"), "True Accepted");
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True Accepted");
    cluster.apply(&class("{group: example.com, kind: Other, name: postern}"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::GatewayClass, "postern", "Accepted"), "False InvalidParameters");
}

#[test]
fn definitions_of_another_version_are_reported() {
    for (version, expected) in [
        (Some("v1.6.9"), "True SupportedVersion"),
        (Some("v1.7.0"), "False UnsupportedVersion"),
        (None, "False UnsupportedVersion"),
    ] {
        let mut cluster = Cluster::new();
        let version = version.map(controller::names::Name::from);
        cluster.world.apply(controller::world::Event::BundleVersion(version.clone()));
        cluster.settle();
        let found = cluster.condition(Kind::GatewayClass, "postern", "SupportedVersion");
        assert_eq!(found, expected, "{version:?}");
    }
}

// GatewayInvalidListenersUnsupportedProtocol
#[test]
fn a_gateway_is_accepted_with_at_least_one_valid_listener() {
    let tcp = "{name: tcp, port: 9000, protocol: TCP}";
    let http = "{name: http, port: 80, protocol: HTTP}";
    let cluster = with_listeners(&[tcp]);
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "False ListenersNotValid");
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Programmed"), "False Invalid");
    assert_eq!(cluster.listener(Kind::Gateway, "gw", "tcp", "Accepted"), "False UnsupportedProtocol");
    let status = cluster.listener_status(Kind::Gateway, "gw", "tcp");
    assert_eq!(status["supportedKinds"], serde_json::json!([]));
    let cluster = with_listeners(&[tcp, http]);
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True ListenersNotValid");
    assert_eq!(cluster.listener(Kind::Gateway, "gw", "http", "Accepted"), "True Accepted");
    assert_eq!(sockets(&cluster, "gw").len(), 1);
    for protocol in ["UDP", "TLS", "example.com/own"] {
        let cluster = with_listeners(&[&format!("{{name: one, port: 80, protocol: {protocol}}}")]);
        let found = cluster.listener(Kind::Gateway, "gw", "one", "Accepted");
        assert_eq!(found, "False UnsupportedProtocol", "{protocol}");
    }
}

// GatewayInvalidRouteKind
#[test]
fn kinds_of_routes_that_are_not_supported_are_reported() {
    let cases = [
        ("[{kind: InvalidRoute}]", "False InvalidRouteKinds", vec![]),
        ("[{kind: InvalidRoute}, {kind: HTTPRoute}]", "False InvalidRouteKinds", vec!["HTTPRoute"]),
        ("[{kind: TLSRoute}]", "False InvalidRouteKinds", vec![]),
        ("[{kind: GRPCRoute}]", "True ResolvedRefs", vec!["GRPCRoute"]),
        ("[{group: '', kind: HTTPRoute}]", "False InvalidRouteKinds", vec![]),
        ("[]", "True ResolvedRefs", vec!["HTTPRoute", "GRPCRoute"]),
    ];
    for (kinds, expected, supported) in cases {
        let listener = format!("{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{kinds: {kinds}}}}}");
        let cluster = with_listeners(&[&listener]);
        assert_eq!(cluster.listener(Kind::Gateway, "gw", "http", "ResolvedRefs"), expected, "{kinds}");
        let status = cluster.listener_status(Kind::Gateway, "gw", "http");
        let found: Vec<_> =
            status["supportedKinds"].as_array().unwrap().iter().map(|kind| &kind["kind"]).collect();
        assert_eq!(found, supported, "{kinds}");
    }
}

// GatewayInvalidTLSConfiguration
#[test]
fn a_certificate_must_be_a_secret_with_a_pair() {
    let cases = [
        ("{name: cert}", "True ResolvedRefs", "True Programmed"),
        ("{name: nonexistent}", "False InvalidCertificateRef", "False Invalid"),
        ("{name: cert, group: wrong.example.com}", "False InvalidCertificateRef", "False Invalid"),
        ("{name: cert, kind: WrongKind}", "False InvalidCertificateRef", "False Invalid"),
        ("{name: malformed}", "False InvalidCertificateRef", "False Invalid"),
        ("{name: cert, namespace: team-a}", "False RefNotPermitted", "False Invalid"),
    ];
    for (reference, resolved, programmed) in cases {
        let listener =
            format!("{{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{reference}]}}}}");
        let mut cluster = with_listeners(&[&listener]);
        let mut malformed = tls_secret("malformed");
        malformed["data"]["tls.crt"] = "SGVsbG8gd29ybGQK".into();
        cluster.put(malformed);
        cluster.settle();
        let condition = |of_type| cluster.listener(Kind::Gateway, "gw", "https", of_type);
        assert_eq!(condition("ResolvedRefs"), resolved, "{reference}");
        assert_eq!(condition("Accepted"), "True Accepted", "{reference}");
        assert_eq!(condition("Programmed"), programmed, "{reference}");
        assert_eq!(
            sockets(&cluster, "gw").len(),
            usize::from(programmed == "True Programmed"),
            "{reference}"
        );
    }
}

#[test]
fn certificates_that_can_be_used_are_served_beside_others() {
    let cluster = with_listeners(&[
        "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: gone}, {name: cert}, {name: cert}]}}",
    ]);
    let condition = |of_type| cluster.listener(Kind::Gateway, "gw", "https", of_type);
    assert_eq!(condition("ResolvedRefs"), "False InvalidCertificateRef");
    assert_eq!(condition("Programmed"), "True Programmed");
    let sockets = sockets(&cluster, "gw");
    assert_eq!(sockets[0].protocol, SocketProtocol::Https);
    assert_eq!(sockets[0].listeners[0].tls.as_ref().unwrap().certificates.len(), 2);
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "ResolvedRefs"), "False ListenersNotResolved");
}

// GatewaySecretReferenceGrant…, GatewaySecretInvalidReferenceGrant
#[test]
fn a_certificate_of_another_namespace_needs_a_grant() {
    let cases = [
        ("Gateway", "infra", "{group: '', kind: Secret}", "True ResolvedRefs"),
        ("Gateway", "infra", "{group: '', kind: Secret, name: cert}", "True ResolvedRefs"),
        ("Gateway", "infra", "{group: '', kind: Secret, name: other}", "False RefNotPermitted"),
        ("Gateway", "infra", "{group: '', kind: Service, name: cert}", "False RefNotPermitted"),
        ("Gateway", "team-b", "{group: '', kind: Secret}", "False RefNotPermitted"),
        ("HTTPRoute", "infra", "{group: '', kind: Secret}", "False RefNotPermitted"),
    ];
    for (kind, from, to, expected) in cases {
        let mut cluster = with_listeners(&[
            "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: team-a}]}}",
        ]);
        let mut secret = tls_secret("cert");
        secret["metadata"]["namespace"] = "team-a".into();
        cluster.put(secret);
        cluster.apply(&format!(
            "kind: ReferenceGrant\nmetadata: {{name: grant, namespace: team-a}}\nspec:\n  from: [{{group: \
             gateway.networking.k8s.io, kind: {kind}, namespace: {from}}}]\n  to: [{to}]"
        ));
        cluster.settle();
        let found = cluster.listener(Kind::Gateway, "gw", "https", "ResolvedRefs");
        assert_eq!(found, expected, "{kind} {from} {to}");
        cluster.remove(Kind::ReferenceGrant, "team-a/grant");
        cluster.settle();
        let found = cluster.listener(Kind::Gateway, "gw", "https", "ResolvedRefs");
        assert_eq!(found, "False RefNotPermitted", "without the grant");
    }
}

#[test]
fn listeners_of_one_gateway_that_are_not_distinct_all_conflict() {
    let cluster = with_listeners(&[
        "{name: a, port: 80, protocol: HTTP, hostname: a.com}",
        "{name: b, port: 80, protocol: HTTP, hostname: a.com}",
        "{name: c, port: 80, protocol: HTTP, hostname: c.com}",
        "{name: d, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}",
        "{name: e, port: 443, protocol: HTTP}",
    ]);
    for (listener, conflicted) in [
        ("a", "True HostnameConflict"),
        ("b", "True HostnameConflict"),
        ("c", "False NoConflicts"),
        ("d", "True ProtocolConflict"),
        ("e", "True ProtocolConflict"),
    ] {
        let found = cluster.listener(Kind::Gateway, "gw", listener, "Conflicted");
        assert_eq!(found, conflicted, "{listener}");
        let accepted = cluster.listener(Kind::Gateway, "gw", listener, "Accepted");
        assert_eq!(accepted.starts_with("True"), conflicted.starts_with("False"), "{listener}: {accepted}");
    }
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True ListenersNotValid");
    let sockets = sockets(&cluster, "gw");
    let names: Vec<_> =
        sockets.iter().flat_map(|socket| &socket.listeners).map(|one| one.id.section.as_str()).collect();
    assert_eq!(names, ["c"]);
}

#[test]
fn overlapping_hostnames_of_tls_listeners_are_reported() {
    let tls = "tls: {certificateRefs: [{name: cert}]}";
    let cluster = with_listeners(&[
        &format!("{{name: a, port: 443, protocol: HTTPS, hostname: '*.example.org', {tls}}}"),
        &format!("{{name: b, port: 443, protocol: HTTPS, hostname: x.example.org, {tls}}}"),
        &format!("{{name: c, port: 443, protocol: HTTPS, hostname: example.com, {tls}}}"),
        &format!("{{name: d, port: 8443, protocol: HTTPS, hostname: x.example.org, {tls}}}"),
    ]);
    for (listener, expected) in
        [("a", "True OverlappingHostnames"), ("b", "True OverlappingHostnames"), ("c", "-"), ("d", "-")]
    {
        let found = cluster.listener(Kind::Gateway, "gw", listener, "OverlappingTLSConfig");
        assert_eq!(found, expected, "{listener}");
    }
}

// GatewayStaticAddresses
#[test]
fn addresses_are_those_that_are_asked_for() {
    let with = |addresses: &str| format!("{}  addresses: [{addresses}]\n", gateway("gw"));
    let mut cluster = Cluster::new();
    cluster.apply(&with("{type: test/fake, value: x}, {type: IPAddress, value: 192.0.2.1}"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "False UnsupportedAddress");
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Programmed"), "False Invalid");
    assert!(sockets(&cluster, "gw").is_empty());
    cluster.apply(&with("{type: IPAddress, value: 192.0.2.1}, {type: IPAddress, value: 192.0.2.2}"));
    cluster.addresses("gw", &["192.0.2.2"], &["192.0.2.1"]);
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True Accepted");
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Programmed"), "False AddressNotUsable");
    cluster.apply(&with("{value: 192.0.2.2}"));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Programmed"), "True Programmed");
    let expected = serde_json::json!([{ "type": "IPAddress", "value": "192.0.2.2" }]);
    assert_eq!(cluster.status(Kind::Gateway, "gw")["addresses"], expected);
    cluster.addresses("gw", &[], &[]);
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Programmed"), "False AddressNotAssigned");
}

// GatewayInvalidTLSBackendConfiguration
#[test]
fn the_client_certificate_for_backends_is_resolved() {
    let cases = [
        ("{name: cert}", "True ResolvedRefs"),
        ("{name: nonexistent}", "False InvalidClientCertificateRef"),
        ("{name: cert, group: wrong.example.com}", "False InvalidClientCertificateRef"),
        ("{name: cert, kind: WrongKind}", "False InvalidClientCertificateRef"),
        ("{name: cert, namespace: team-a}", "False RefNotPermitted"),
    ];
    for (reference, expected) in cases {
        let mut cluster = Cluster::new();
        cluster.put(tls_secret("cert"));
        cluster
            .apply(&format!("{}  tls: {{backend: {{clientCertificateRef: {reference}}}}}\n", gateway("gw")));
        cluster
            .apply("kind: HTTPRoute\nmetadata: {name: route}\nspec: {parentRefs: [{name: gw}], rules: [{}]}");
        cluster.settle();
        assert_eq!(cluster.condition(Kind::Gateway, "gw", "ResolvedRefs"), expected, "{reference}");
        assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "True Accepted", "{reference}");
        let shown = match expected {
            "True ResolvedRefs" => ClientCertificate::Secret(key(Kind::Secret, "cert").at),
            _ => ClientCertificate::Unusable,
        };
        assert_eq!(cluster.plans("route")[0].attachments[0].client_certificate, shown, "{reference}");
    }
}

/// A Gateway with an HTTP and two HTTPS listeners, and this frontend validation.
fn with_frontend(frontend: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(tls_secret("cert"));
    cluster.put(ca_bundle("ca"));
    let mut foreign = ca_bundle("ca");
    foreign["metadata"]["namespace"] = "team-a".into();
    cluster.put(foreign);
    cluster.apply(&format!(
        "kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: postern
  listeners:
  - {{name: http, port: 80, protocol: HTTP}}
  - {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}
  - {{name: other, port: 8443, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}
  tls: {{frontend: {frontend}}}"
    ));
    cluster.settle();
    cluster
}

// GatewayInvalidFrontendClientCertificateValidation, GatewayFrontendInvalidDefault…
#[test]
fn frontend_validation_is_by_port_and_fails_only_its_listeners() {
    let good = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";
    let cases = [
        ("name: gone, kind: ConfigMap, group: ''", "False InvalidCACertificateRef"),
        ("name: ca, kind: Other, group: ''", "False InvalidCACertificateKind"),
        ("name: ca, kind: ConfigMap, group: '', namespace: team-a", "False RefNotPermitted"),
    ];
    for (bad, resolved) in cases {
        let cluster = with_frontend(&format!(
            "{{default: {{validation: {{{good}}}}}, perPort: [{{port: 8443, tls: {{validation: \
             {{caCertificateRefs: [{{{bad}}}]}}}}}}]}}"
        ));
        let condition = |listener, of_type| cluster.listener(Kind::Gateway, "gw", listener, of_type);
        assert_eq!(condition("https", "Programmed"), "True Programmed", "{bad}");
        assert_eq!(condition("other", "ResolvedRefs"), resolved, "{bad}");
        assert_eq!(condition("other", "Accepted"), "False NoValidCACertificate", "{bad}");
        assert_eq!(condition("other", "Programmed"), "False Invalid", "{bad}");
        assert_eq!(condition("http", "Programmed"), "True Programmed", "{bad}");
        let served = |cluster: &Cluster| -> Vec<u16> {
            sockets(cluster, "gw").iter().map(|socket| socket.id.port).collect()
        };
        assert_eq!(served(&cluster), [80, 443], "{bad}");
        let cluster = with_frontend(&format!(
            "{{default: {{validation: {{caCertificateRefs: [{{{bad}}}]}}}}, perPort: [{{port: 8443, tls: {{}}}}]}}"
        ));
        let condition = |listener, of_type| cluster.listener(Kind::Gateway, "gw", listener, of_type);
        assert_eq!(condition("https", "Accepted"), "False NoValidCACertificate", "default {bad}");
        assert_eq!(condition("other", "Programmed"), "True Programmed", "an own, empty entry");
        assert_eq!(condition("http", "Programmed"), "True Programmed", "default {bad}");
        assert_eq!(served(&cluster), [80, 8443], "default {bad}");
    }
}

// GatewayFrontendClientCertificateValidationInsecureFallback
#[test]
fn an_insecure_fallback_is_reported() {
    let refs = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";
    let mut cluster =
        with_frontend(&format!("{{default: {{validation: {{mode: AllowInsecureFallback, {refs}}}}}}}"));
    let condition = "InsecureFrontendValidationMode";
    assert_eq!(cluster.condition(Kind::Gateway, "gw", condition), "True ConfigurationChanged");
    let sockets = sockets(&cluster, "gw");
    let validation = sockets[1].listeners[0].tls.as_ref().unwrap().client_validation.as_ref().unwrap();
    assert!(validation.allows_invalid);
    cluster.apply(&gateway("gw"));
    cluster.settle();
    // The API server removes it, since the next document does not have it; the test's own keeps lists
    // as they are written.
    assert_eq!(cluster.condition(Kind::Gateway, "gw", condition), "-");
}

#[test]
fn a_gateway_with_an_unknown_field_is_not_served() {
    let mut cluster = Cluster::new();
    cluster.apply(&format!("{}  future: 1\n", gateway("gw")));
    cluster.settle();
    assert_eq!(cluster.condition(Kind::Gateway, "gw", "Accepted"), "False Invalid");
    let message = Cluster::message(&cluster.status(Kind::Gateway, "gw")["conditions"], "Accepted");
    assert_eq!(message, "not used, because of spec.future: this field is not known");
    assert!(sockets(&cluster, "gw").is_empty());
}

// GatewayObservedGenerationBump
#[test]
fn conditions_have_the_generation_they_are_about() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.settle();
    let first = cluster.status(Kind::Gateway, "gw")["conditions"][0].clone();
    assert_eq!(first["observedGeneration"], 1);
    cluster.apply(&gateway("gw").replace("port: 80", "port: 8080"));
    cluster.settle();
    let second = &cluster.status(Kind::Gateway, "gw")["conditions"][0];
    assert_eq!(second["observedGeneration"], 2);
    assert_eq!(second["lastTransitionTime"], first["lastTransitionTime"]);
}

#[test]
fn a_renewed_certificate_changes_the_gateway_alone() {
    let mut cluster = with_listeners(&[
        "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}",
    ]);
    cluster.apply(
        "kind: HTTPRoute\nmetadata: {name: route}\nspec: {parentRefs: [{name: gw}], rules: [{matches: [{}]}]}",
    );
    cluster.settle();
    let mut renewed = tls_secret("cert");
    renewed["data"]["tls.crt"] =
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BRT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=".into();
    cluster.put(renewed);
    let changes = cluster.settle();
    assert_eq!((changes.gateways.len(), changes.recomputed.routes), (1, 0));
}

#[test]
fn a_gateway_without_its_class_is_told_from_one_that_is_gone_or_of_another() {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.settle();
    let at = key(Kind::Gateway, "gw").at;
    assert!(!cluster.world.lacks_class(&at));
    cluster.remove(Kind::GatewayClass, "postern");
    assert!(cluster.settle().gateways_removed.contains(&at));
    assert!(cluster.world.lacks_class(&at));
    cluster.apply("kind: GatewayClass\nmetadata: {name: postern}\nspec: {controllerName: example.com/other}");
    cluster.settle();
    assert!(!cluster.world.lacks_class(&at), "it is another's");
    cluster.remove(Kind::GatewayClass, "postern");
    cluster.remove(Kind::Gateway, "gw");
    cluster.settle();
    assert!(!cluster.world.lacks_class(&at), "it is gone");
}
