//! Backends: Services, EndpointSlices, grants and BackendTLSPolicies.

use controller::names::Kind;
use controller::plan::{
    BackendTarget, CaSource, ClientCertificate, EndpointPlan, RuleAction, SubjectAltName, UpstreamKey,
    UpstreamProtocol,
};

use crate::cluster::{Cluster, OTHER_KEY, ca_bundle, gateway, key, service, tls_secret};

fn route(name: &str, backend: &str) -> String {
    format!(
        "kind: HTTPRoute\nmetadata: {{name: {name}}}\nspec: {{parentRefs: [{{name: gw}}], rules: [{{backendRefs: \
         [{backend}]}}]}}"
    )
}

/// A Gateway `gw`, a Service `web`, and a route `route` to this backend.
fn with_backend(backend: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.apply(&gateway("gw"));
    cluster.apply(&service("web"));
    cluster.apply(&route("route", backend));
    cluster.settle();
    cluster
}

fn targets(cluster: &Cluster, route: &str) -> Vec<BackendTarget> {
    let plans = cluster.plans(route);
    let RuleAction::Forward(backends) = &plans[0].action else { panic!("{:?}", plans[0].action) };
    backends.iter().map(|backend| backend.target.clone()).collect()
}

fn upstream(cluster: &Cluster) -> UpstreamKey {
    match &targets(cluster, "route")[0] {
        BackendTarget::Upstream(key) => key.clone(),
        BackendTarget::Invalid(problem) => panic!("{problem}"),
    }
}

fn endpoints(cluster: &Cluster) -> Vec<EndpointPlan> {
    cluster.world.desired_state().endpoints[&upstream(cluster)].to_vec()
}

// HTTPRouteInvalidBackendRefUnknownKind, HTTPRouteInvalidNonExistentBackendRef,
// HTTPRouteInvalidCrossNamespaceBackendRef
#[test]
fn a_backend_that_cannot_be_used_fails_its_share_alone() {
    let cases = [
        ("{name: web, port: 8080}", "True ResolvedRefs"),
        ("{name: web, port: 8080, kind: Other}", "False InvalidKind"),
        ("{name: web, port: 8080, group: example.com}", "False InvalidKind"),
        ("{name: gone, port: 8080}", "False BackendNotFound"),
        ("{name: web, port: 80}", "False BackendNotFound"),
        ("{name: web}", "False BackendNotFound"),
        ("{name: web, namespace: team-a, port: 8080}", "False RefNotPermitted"),
    ];
    for (backend, expected) in cases {
        let cluster = with_backend(&format!("{backend}, {{name: web, port: 8080}}"));
        assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs"), expected, "{backend}");
        assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "True Accepted", "{backend}");
        let valid: Vec<_> = targets(&cluster, "route")
            .iter()
            .map(|target| matches!(target, BackendTarget::Upstream(_)))
            .collect();
        assert_eq!(valid, [expected.starts_with("True"), true], "{backend}");
    }
}

// HTTPRouteReferenceGrant, HTTPRouteInvalidReferenceGrant
#[test]
fn a_grant_permits_a_backend_of_another_namespace() {
    let mut cluster = with_backend("{name: web, namespace: team-a, port: 8080}");
    cluster.apply("kind: Service\nmetadata: {name: web, namespace: team-a}\nspec: {ports: [{port: 8080}]}");
    cluster.settle();
    let resolved = |cluster: &Cluster| cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs");
    assert_eq!(resolved(&cluster), "False RefNotPermitted");
    let grant = |namespace: &str, name: &str| {
        format!(
            "kind: ReferenceGrant\nmetadata: {{name: grant, namespace: {namespace}}}\nspec:\n  from: [{{group: \
             gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}}]\n  to: [{{group: '', kind: Service, \
             name: {name}}}]"
        )
    };
    cluster.apply(&grant("infra", "web"));
    cluster.settle();
    assert_eq!(resolved(&cluster), "False RefNotPermitted", "a grant counts in the namespace of the target");
    cluster.apply(&grant("team-a", "web"));
    assert_eq!(cluster.settle().recomputed.routes, 1);
    assert_eq!(resolved(&cluster), "True ResolvedRefs");
    cluster.apply(&grant("team-a", "other"));
    cluster.settle();
    assert_eq!(resolved(&cluster), "False RefNotPermitted");
}

// HTTPRouteBackendProtocolH2C, HTTPRouteBackendProtocolWebSocket
#[test]
fn the_protocol_is_that_of_the_port() {
    let cases = [
        ("", Ok(UpstreamProtocol::Http)),
        ("http", Ok(UpstreamProtocol::Http)),
        ("kubernetes.io/ws", Ok(UpstreamProtocol::Http)),
        ("kubernetes.io/h2c", Ok(UpstreamProtocol::Http2)),
        ("kubernetes.io/wss", Err("False UnsupportedProtocol")),
        ("https", Err("False UnsupportedProtocol")),
        ("HTTPS", Err("False UnsupportedProtocol")),
        ("HTTP", Ok(UpstreamProtocol::Http)),
        ("mysql", Err("False UnsupportedProtocol")),
    ];
    for (protocol, expected) in cases {
        let mut cluster = with_backend("{name: web, port: 8080}");
        cluster.apply(&format!(
            "kind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 8080, appProtocol: '{protocol}'}}]}}"
        ));
        cluster.settle();
        match expected {
            Ok(expected) => assert_eq!(upstream(&cluster).protocol, expected, "{protocol}"),
            Err(expected) => {
                let found = cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs");
                assert_eq!(found, expected, "{protocol}");
            }
        }
    }
}

#[test]
fn a_grpc_route_speaks_http_2_to_its_backends() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(&gateway("second"));
    cluster.apply(
        "kind: GRPCRoute
metadata: {name: grpc}
spec: {parentRefs: [{name: second}], rules: [{backendRefs: [{name: web, port: 8080}]}]}",
    );
    let changes = cluster.settle();
    let protocols: Vec<_> = changes.upstreams.keys().map(|key| key.protocol).collect();
    assert_eq!(protocols, [UpstreamProtocol::Http2]);
    assert_eq!(cluster.parent(Kind::GrpcRoute, "grpc", 0, "Accepted"), "True Accepted");
}

#[test]
fn an_external_name_is_refused() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(
        "kind: Service\nmetadata: {name: web}\nspec: {type: ExternalName, externalName: x.com, ports: [{port: 8080}]}",
    );
    cluster.settle();
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs"), "False InvalidKind");
}

// HTTPRouteServiceTypes
#[test]
fn endpoints_come_from_all_slices_of_a_service() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(
        "
kind: EndpointSlice
metadata: {name: web-2, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: web, port: 3001}, {name: other, port: 4000}]
endpoints:
- {addresses: ['fd00::1'], conditions: {ready: false, serving: true, terminating: true}, zone: z1}
- {addresses: ['fd00::2'], hints: {forZones: [{name: z2}]}}
---
kind: EndpointSlice
metadata: {name: names, labels: {kubernetes.io/service-name: web}}
addressType: FQDN
ports: [{name: web, port: 3000}]
endpoints: [{addresses: [example.com]}]
---
kind: EndpointSlice
metadata: {name: unrelated, labels: {kubernetes.io/service-name: other}}
addressType: IPv4
ports: [{name: web, port: 3000}]
endpoints: [{addresses: [10.9.9.9]}]
",
    );
    let changes = cluster.settle();
    assert_eq!(changes.recomputed.routes, 0, "endpoints are no matter of routes");
    assert_eq!(changes.endpoints.len(), 1);
    let found: Vec<_> = endpoints(&cluster)
        .iter()
        .map(|one| {
            let zones: Vec<_> = one.for_zones.iter().map(controller::names::Name::as_str).collect();
            let zone = one.zone.as_deref().unwrap_or("-").to_owned();
            let state = (one.ready, one.serving, one.terminating);
            format!("{} {} {state:?} {zone} {zones:?}", one.address, one.port)
        })
        .collect();
    assert_eq!(
        found,
        [
            "10.0.0.1 3000 (true, true, false) - []",
            "fd00::1 3001 (false, true, true) z1 []",
            "fd00::2 3001 (true, true, false) - [\"z2\"]",
        ]
    );
    cluster.remove(Kind::EndpointSlice, "web-1");
    cluster.remove(Kind::EndpointSlice, "web-2");
    cluster.settle();
    assert_eq!(endpoints(&cluster), []);
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(
        "kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: other}}
addressType: IPv4
ports: [{name: web, port: 3000}]
endpoints: [{addresses: [10.0.0.1]}]",
    );
    cluster.settle();
    assert_eq!(endpoints(&cluster), []);
}

#[test]
fn an_upstream_is_shared_and_goes_with_its_last_route() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(&route("second", "{name: web, port: 8080, weight: 3}"));
    let changes = cluster.settle();
    assert!(changes.upstreams.is_empty() && changes.endpoints.is_empty(), "{changes:?}");
    cluster.remove(Kind::HttpRoute, "route");
    let changes = cluster.settle();
    assert_eq!((changes.plans_removed.len(), changes.upstreams_removed.len()), (1, 0));
    cluster.remove(Kind::HttpRoute, "second");
    let changes = cluster.settle();
    assert_eq!(changes.upstreams_removed.len(), 1);
    assert!(cluster.world.desired_state().upstreams.is_empty());
}

fn tls_policy(name: &str, target: &str, validation: &str) -> String {
    format!(
        "kind: BackendTLSPolicy\nmetadata: {{name: {name}}}\nspec:\n  targetRefs: [{{group: '', kind: Service, \
         {target}}}]\n  validation: {{hostname: abc.example.com, {validation}}}"
    )
}

const CA: &str = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";

// BackendTLSPolicy, BackendTLSPolicySANValidation
#[test]
fn a_policy_adds_tls_to_the_upstream() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.put(ca_bundle("ca"));
    let names = "subjectAltNames: [{type: Hostname, hostname: x.com}, {type: URI, uri: 'spiffe://x'}]";
    cluster.apply(&tls_policy("tls", "name: web", &format!("{CA}, {names}")));
    let changes = cluster.settle();
    assert_eq!((changes.upstreams.len(), changes.upstreams_removed.len()), (1, 1));
    let key = upstream(&cluster);
    let tls = cluster.world.desired_state().upstreams[&key].tls.clone().unwrap();
    assert_eq!(tls.hostname, "abc.example.com");
    assert!(matches!(&tls.authorities, CaSource::Bundles(bundles) if bundles.len() == 1));
    let expected = [SubjectAltName::Hostname("x.com".into()), SubjectAltName::Uri("spiffe://x".into())];
    assert_eq!(tls.subject_alt_names, expected);
    assert_eq!(cluster.ancestor(Kind::BackendTlsPolicy, "tls", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.ancestor(Kind::BackendTlsPolicy, "tls", 0, "ResolvedRefs"), "True ResolvedRefs");
    let reference = &cluster.status(Kind::BackendTlsPolicy, "tls")["ancestors"][0]["ancestorRef"];
    assert_eq!(reference["name"], "gw");
    cluster.apply(&tls_policy("tls", "name: web", "wellKnownCACertificates: System"));
    let changes = cluster.settle();
    assert_eq!((changes.upstreams.len(), changes.plans.len()), (1, 0), "only the TLS differs");
    let tls = cluster.world.desired_state().upstreams[&key].tls.clone().unwrap();
    assert_eq!(tls.authorities, CaSource::System);
}

// BackendTLSPolicyInvalidCACertificateRef, BackendTLSPolicyInvalidKind
#[test]
fn an_invalid_policy_closes_the_backend() {
    let cases = [
        ("caCertificateRefs: [{group: '', kind: ConfigMap, name: gone}]", "False InvalidCACertificateRef"),
        (
            "caCertificateRefs: [{group: '', kind: ConfigMap, name: malformed}]",
            "False InvalidCACertificateRef",
        ),
        ("caCertificateRefs: [{group: '', kind: Other, name: ca}]", "False InvalidKind"),
        ("wellKnownCACertificates: Other", "False InvalidCACertificateRef"),
    ];
    for (validation, resolved) in cases {
        let mut cluster = with_backend("{name: web, port: 8080}");
        let mut malformed = ca_bundle("malformed");
        malformed["data"]["ca.crt"] = "not a certificate".into();
        cluster.put(malformed);
        cluster.apply(&tls_policy("tls", "name: web", validation));
        cluster.settle();
        let condition = |of_type| cluster.ancestor(Kind::BackendTlsPolicy, "tls", 0, of_type);
        assert_eq!(condition("Accepted"), "False NoValidCACertificate", "{validation}");
        assert_eq!(condition("ResolvedRefs"), resolved, "{validation}");
        assert!(matches!(targets(&cluster, "route")[0], BackendTarget::Invalid(_)), "{validation}");
        assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs"), "True ResolvedRefs");
    }
}

#[test]
fn a_bundle_that_appears_makes_the_policy_valid() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(&tls_policy("tls", "name: web", CA));
    cluster.settle();
    assert!(matches!(targets(&cluster, "route")[0], BackendTarget::Invalid(_)));
    cluster.put(ca_bundle("ca"));
    cluster.settle();
    assert!(upstream(&cluster).tls_policy.is_some());
    assert_eq!(cluster.ancestor(Kind::BackendTlsPolicy, "tls", 0, "Accepted"), "True Accepted");
    cluster.remove(Kind::ConfigMap, "ca");
    cluster.settle();
    assert!(matches!(targets(&cluster, "route")[0], BackendTarget::Invalid(_)));
}

// BackendTLSPolicyConflictResolution
#[test]
fn the_oldest_policy_of_a_target_wins_and_a_port_is_a_target_of_its_own() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.put(ca_bundle("ca"));
    cluster.apply(&tls_policy("whole-1", "name: web", CA));
    cluster.apply(&tls_policy("whole-2", "name: web", CA));
    cluster.settle();
    let accepted = |cluster: &Cluster, name| cluster.ancestor(Kind::BackendTlsPolicy, name, 0, "Accepted");
    assert_eq!(accepted(&cluster, "whole-1"), "True Accepted");
    assert_eq!(accepted(&cluster, "whole-2"), "False Conflicted");
    assert_eq!(upstream(&cluster).tls_policy.unwrap().name, "whole-1");
    cluster.apply(&tls_policy("port", "name: web, sectionName: web", CA));
    cluster.settle();
    assert_eq!(accepted(&cluster, "port"), "True Accepted");
    assert_eq!(accepted(&cluster, "whole-1"), "True Accepted");
    assert_eq!(upstream(&cluster).tls_policy.unwrap().name, "port");
    cluster.remove(Kind::BackendTlsPolicy, "whole-1");
    cluster.settle();
    assert_eq!(accepted(&cluster, "whole-2"), "True Accepted");
}

#[test]
fn a_port_that_speaks_tls_needs_a_policy() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.put(ca_bundle("ca"));
    cluster.apply("kind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 8080, appProtocol: HTTPS}]}");
    cluster.settle();
    assert!(matches!(targets(&cluster, "route")[0], BackendTarget::Invalid(_)));
    cluster.apply(&tls_policy("tls", "name: web", CA));
    cluster.settle();
    assert_eq!(upstream(&cluster).protocol, UpstreamProtocol::Http);
}

#[test]
fn ancestors_are_the_gateways_that_use_the_service() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.put(ca_bundle("ca"));
    cluster.apply(&tls_policy("tls", "name: web", CA));
    cluster.apply(&gateway("second"));
    cluster.apply(&route("other", "{name: web, port: 8080}").replace("name: gw", "name: second"));
    cluster.settle();
    let names = |cluster: &Cluster| -> Vec<String> {
        let ancestors =
            cluster.status(Kind::BackendTlsPolicy, "tls")["ancestors"].as_array().unwrap().clone();
        ancestors.iter().map(|one| one["ancestorRef"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&cluster), ["gw", "second"]);
    cluster.remove(Kind::HttpRoute, "route");
    cluster.settle();
    assert_eq!(names(&cluster), ["second"]);
}

#[test]
fn a_headless_service_without_a_port_name_has_its_endpoints() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(
        "kind: Service
metadata: {name: web}
spec: {clusterIP: None, ports: [{port: 8080, targetPort: http}]}
---
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: '', port: 9000}]
endpoints: [{addresses: [10.0.0.7]}]",
    );
    cluster.settle();
    let found: Vec<_> = endpoints(&cluster).iter().map(|one| (one.address.to_string(), one.port)).collect();
    assert_eq!(found, [("10.0.0.7".to_owned(), 9000)]);
}

#[test]
fn an_address_in_two_slices_counts_once_and_ready_wins() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.apply(
        "kind: EndpointSlice
metadata: {name: a, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: web, port: 3000}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}]",
    );
    cluster.settle();
    let found: Vec<_> = endpoints(&cluster).iter().map(|one| one.ready).collect();
    assert_eq!(found, [true]);
}

#[test]
fn a_policy_has_at_most_sixteen_ancestors_with_those_of_others() {
    let mut cluster = with_backend("{name: web, port: 8080}");
    cluster.put(ca_bundle("ca"));
    for number in 0..20 {
        cluster.apply(&gateway(&format!("gw-{number}")));
        let route = route(&format!("route-{number}"), "{name: web, port: 8080}");
        cluster.apply(&route.replace("name: gw}", &format!("name: gw-{number}}}")));
    }
    let status =
        "status: {ancestors: [{ancestorRef: {name: x}, controllerName: example.com/other, conditions: []}]}";
    cluster.apply(&format!("{}\n{status}", tls_policy("tls", "name: web", CA)));
    cluster.settle();
    let ancestors = cluster.status(Kind::BackendTlsPolicy, "tls")["ancestors"].as_array().unwrap();
    assert_eq!(ancestors.len(), 16);
    assert_eq!(ancestors[15]["controllerName"], "example.com/other");
}

/// The Secrets whose certificates the upstreams of all routes are shown, sorted; `-` for none.
fn shown(cluster: &Cluster) -> Vec<String> {
    let name = |key: &UpstreamKey| key.client_certificate.as_ref().map_or("-".into(), ToString::to_string);
    cluster.world.desired_state().upstreams.keys().map(name).collect()
}

// GatewayTLSBackendClientCertificate
#[test]
fn an_upstream_is_shown_the_certificate_of_its_gateway() {
    let with = |name: &str, secret: &str| {
        let tls = format!("  tls: {{backend: {{clientCertificateRef: {{name: {secret}}}}}}}\n");
        format!("{}{}", gateway(name), tls)
    };
    let mut cluster = with_backend("{name: web, port: 8080}");
    let parents = "parentRefs: [{name: gw}, {name: second}, {name: third}]";
    cluster.apply(&route("route", "{name: web, port: 8080}").replace("parentRefs: [{name: gw}]", parents));
    for name in ["one", "two"] {
        cluster.put(tls_secret(name));
    }
    cluster.apply(&with("gw", "one"));
    cluster.apply(&with("second", "two"));
    cluster.apply(&gateway("third"));
    cluster.settle();
    assert_eq!(shown(&cluster), ["-"], "without TLS nothing is shown");
    cluster.put(ca_bundle("ca"));
    cluster.apply(&tls_policy("tls", "name: web", CA));
    cluster.settle();
    assert_eq!(shown(&cluster), ["-", "infra/one", "infra/two"]);
    let state = cluster.world.desired_state();
    let pairs: Vec<_> = state.upstreams.values().map(|plan| plan.client_certificate.is_some()).collect();
    assert_eq!(pairs, [false, true, true]);
    assert_eq!(state.endpoints.len(), 3);
    // A renewed certificate concerns its upstream alone.
    let mut renewed = tls_secret("one");
    renewed["data"]["tls.key"] = OTHER_KEY.into();
    cluster.put(renewed);
    let changes = cluster.settle();
    let secrets: Vec<_> = changes.upstreams.keys().map(|key| key.client_certificate.clone()).collect();
    assert_eq!(secrets, [Some(key(Kind::Secret, "one").at)]);
    assert_eq!((changes.plans.len(), changes.recomputed.routes, changes.gateways.len()), (0, 0, 0));
    // Without its Secret the Gateway must not reach the upstream.
    cluster.remove(Kind::Secret, "one");
    cluster.settle();
    assert_eq!(shown(&cluster), ["-", "infra/two"]);
    let attachments = cluster.plans("route")[0].attachments.clone();
    assert_eq!(attachments[0].client_certificate, ClientCertificate::Unusable);
    assert_eq!(upstream(&cluster).shown(&ClientCertificate::Unusable), None);
    cluster.apply(&with("gw", "two"));
    cluster.apply(&with("third", "two"));
    cluster.settle();
    assert_eq!(shown(&cluster), ["infra/two"], "shared by all Gateways that show it");
    cluster.remove(Kind::BackendTlsPolicy, "tls");
    cluster.settle();
    assert_eq!(shown(&cluster), ["-"]);
}
