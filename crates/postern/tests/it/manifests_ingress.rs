//! `postern check -f` with Ingresses and Routes of OpenShift.

use std::sync::LazyLock;

use serde_json::Value;

use crate::support::{FILES, Folder, NOW, output_text, postern, sources};

/// An operator's file with a Gateway for Ingresses.
static CONFIG: LazyLock<String> = LazyLock::new(|| {
    let text = std::fs::read_to_string(sources().join("manifests/postern.toml")).unwrap();
    let text = text.replace("[gateway_api]\n", "[gateway_api]\ningress_gateway = \"infra/gw\"\n");
    FILES.write("manifests-ingress.toml", text).display().to_string()
});

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app, namespace: team}
spec:
  ingressClassName: postern
  tls: [{hosts: [app.test], secretName: app-tls}]
  rules:
  - host: app.test
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {name: http}}}}]}
---
";

const ROUTE: &str = "
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: board, namespace: team}
spec: {host: board.test, to: {kind: Service, name: board}, port: {targetPort: 8080}, tls: {termination: edge}}
---
";

const POLICY: &str = "
apiVersion: access.postern.dev/v1alpha1
kind: AccessPolicy
metadata: {name: staff, namespace: team}
spec:
  targetRefs: [{group: networking.k8s.io, kind: Ingress, name: app}, {group: route.openshift.io, kind: Route, name: board}]
  defaults: {policy: staff}
";

fn check(arguments: &[&str]) -> std::process::Output {
    let now = NOW.to_string();
    postern(&[&["check", &CONFIG, "--at", &now], arguments].concat())
}

/// What is said of manifests, and the exit code.
fn result(folder: &Folder, manifests: &str) -> (Value, Option<i32>) {
    let file = folder.write("manifests.yaml", manifests).display().to_string();
    let output = check(&["-f", &file, "--output", "json"]);
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", output_text(&output)));
    (result["manifests"].clone(), output.status.code())
}

fn findings(manifests: &Value) -> Vec<String> {
    let line = |one: &Value| {
        let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
        format!("{}: {}: {}", text("severity"), text("object"), text("message"))
    };
    manifests["findings"].as_array().unwrap().iter().map(line).collect()
}

/// `type status reason` of the conditions of an object.
fn conditions(manifests: &Value, kind: &str) -> Vec<String> {
    let objects = manifests["objects"].as_array().unwrap();
    let object = objects.iter().find(|one| one["kind"] == kind).unwrap();
    let parts = object["parts"].as_array().unwrap().iter();
    let all = parts.flat_map(|part| part["conditions"].as_array().unwrap());
    let line = |one: &Value| {
        let text = format!(
            "{} {} {}",
            one["type"].as_str().unwrap(),
            one["status"],
            one["reason"].as_str().unwrap()
        );
        text.trim_end().to_owned()
    };
    all.map(line).collect()
}

#[test]
fn an_ingress_and_a_route_are_checked_with_what_the_cluster_has() {
    let folder = Folder::new("manifests-ingress");
    let (manifests, code) = result(&folder, &format!("{INGRESS}{ROUTE}{POLICY}"));
    let found = findings(&manifests);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(found.iter().all(|finding| finding.starts_with("note: -: ")), "{found:#?}");
    for missing in [
        "Gateway infra/gw is not in the files: it is assumed to serve Ingresses",
        "IngressClass postern is not",
        "Secret team/app-tls is not",
        "Service team/app is not in the files: it is assumed to exist, with port http",
        "Service team/board is not in the files: it is assumed to exist, with port 8080",
    ] {
        assert!(found.iter().any(|finding| finding.contains(missing)), "{missing}: {found:#?}");
    }
    let applied = "access.postern.dev/PolicyApplied true Applied";
    assert_eq!(conditions(&manifests, "Ingress"), ["Served true Served", applied]);
    assert_eq!(conditions(&manifests, "Route"), ["Admitted true", applied]);
}

#[test]
fn an_ingress_that_is_not_served_says_why() {
    let folder = Folder::new("manifests-ingress-faults");
    let (manifests, code) = result(&folder, INGRESS);
    let found = findings(&manifests);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(found[0].starts_with("note: Ingress team/app: PolicyApplied is False, NoPolicy"), "{found:#?}");
    let annotated = INGRESS.replace(
        "namespace: team}",
        "namespace: team, annotations: {nginx.ingress.kubernetes.io/auth-url: 'http://x'}}",
    );
    let (manifests, code) = result(&folder, &annotated);
    let found = findings(&manifests);
    assert_eq!(code, Some(1), "{found:#?}");
    let expected = "error: Ingress team/app: Served is False, UnsupportedAnnotation: annotation \
                    nginx.ingress.kubernetes.io/auth-url is not carried out";
    assert!(found[0].starts_with(expected), "{found:#?}");
    assert_eq!(conditions(&manifests, "Ingress"), ["Served false UnsupportedAnnotation"]);
    let (manifests, code) = result(&folder, &ROUTE.replace("edge", "passthrough"));
    let found = findings(&manifests);
    assert_eq!(code, Some(1), "{found:#?}");
    assert!(
        found[0].starts_with("error: Route team/board: host board.test: Admitted is False, "),
        "{found:#?}"
    );
    let foreign = INGRESS.replace("ingressClassName: postern", "ingressClassName: other");
    let (manifests, code) = result(&folder, &foreign);
    let found = findings(&manifests);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(found[0].starts_with("note: Ingress team/app: its class is not one of Postern"), "{found:#?}");
    assert!(!found.iter().any(|finding| finding.contains("Service")), "{found:#?}");
}

#[test]
fn a_fault_beside_what_is_served_is_an_error() {
    let folder = Folder::new("manifests-ingress-partial");
    let service = "
apiVersion: v1
kind: Service
metadata: {name: app, namespace: team}
spec: {ports: [{name: web, port: 80}]}
---
";
    let (manifests, code) = result(&folder, &format!("{INGRESS}{service}{POLICY}"));
    let found = findings(&manifests);
    assert_eq!(code, Some(1), "{found:#?}");
    assert_eq!(found[0], "error: Ingress team/app: Service team/app has no port named http");
}

#[test]
fn a_request_to_an_ingress_is_explained() {
    let folder = Folder::new("manifests-ingress-request");
    let file = folder.write("all.yaml", format!("{INGRESS}{ROUTE}{POLICY}")).display().to_string();
    for (request, parts) in [
        (
            "GET https://app.test/x",
            [
                "listener https-assumed of Gateway infra/gw",
                "Ingress team/app rule 0 match 0 matches",
                "401 unauth",
            ],
        ),
        (
            "GET http://app.test/x",
            ["listener http of Gateway infra/gw", "it leads to HTTPS", "308 to https://app.test/x"],
        ),
        (
            "GET https://board.test/",
            ["AccessPolicy team/staff for Route team/board", "Route team/board rule 0", "401 unauth"],
        ),
    ] {
        let output = check(&["-f", &file, "--request", request]);
        let text = output_text(&output);
        for part in parts {
            assert!(text.contains(part), "{request}: {part}: {text}");
        }
    }
}
