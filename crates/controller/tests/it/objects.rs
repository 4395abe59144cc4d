//! Reading objects: strictly for the Gateway API and policies, leniently for kinds of Kubernetes.

use controller::names::{Interner, Kind};
use controller::objects::{Object, read};
use serde_json::{Value, json};

/// What was not understood of an object.
fn problem(kind: Kind, object: &Value) -> Option<String> {
    let object = read(kind, object, &mut Interner::default()).unwrap();
    let problem = match object {
        Object::GatewayClass(object) => object.not_understood.clone(),
        Object::Gateway(object) => object.not_understood.clone(),
        Object::ListenerSet(object) => object.not_understood.clone(),
        Object::Route(_, object) => object.not_understood.clone(),
        Object::ReferenceGrant(object) => object.not_understood.clone(),
        Object::BackendTlsPolicy(object) => object.not_understood.clone(),
        Object::AccessPolicy(object) => object.not_understood.clone(),
        Object::Ingress(object) => object.not_understood.clone(),
        Object::IngressClass(object) => object.not_understood.clone(),
        Object::OpenShiftRoute(object) => object.not_understood.clone(),
        _ => None,
    };
    problem.map(|problem| problem.to_string())
}

#[test]
fn every_field_of_the_standard_is_known() {
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for line in include_str!("complete_objects.jsonl").lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let kind = Kind::of(controller::names::GATEWAY_GROUP, object["kind"].as_str().unwrap()).unwrap();
        assert_eq!(problem(kind, &object), None, "{line}");
        *kinds.entry(kind.name()).or_default() += 1;
    }
    let counts: Vec<_> = kinds.into_iter().collect();
    assert_eq!(counts.len(), 7, "{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
}

/// Adds `unknown: 1` to the object at each path in turn.
fn with_unknown(value: &Value) -> Vec<(String, Value)> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.push(path.to_owned());
                for (name, field) in fields {
                    walk(field, &format!("{path}/{name}"), found);
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    walk(element, &format!("{path}/{index}"), found);
                }
            }
            _ => {}
        }
    }
    let mut paths = Vec::new();
    walk(&value["spec"], "/spec", &mut paths);
    let add = |path: String| {
        let mut other = value.clone();
        other.pointer_mut(&path).unwrap()["unknown"] = json!(1);
        (path, other)
    };
    paths.into_iter().map(add).collect()
}

#[test]
fn an_unknown_field_anywhere_is_named_with_its_path() {
    let maps = ["matchLabels", "options", "labels", "annotations"];
    let mut checked = 0;
    let mut kinds = Vec::new();
    for line in include_str!("complete_objects.jsonl").lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let kind = Kind::of(controller::names::GATEWAY_GROUP, object["kind"].as_str().unwrap()).unwrap();
        if kinds.contains(&kind) {
            continue;
        }
        kinds.push(kind);
        for (path, other) in with_unknown(&object) {
            if maps.iter().any(|map| path.ends_with(map)) {
                continue;
            }
            let expected = format!("{}.unknown: this field is not known", path[1..].replace('/', "."));
            let found = problem(kind, &other).unwrap_or_default();
            assert_eq!(found, expected, "{line}");
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} places were checked");
}

/// An Ingress, an IngressClass and a Route with every field that their APIs have.
fn complete_ingresses() -> [(Kind, Value); 3] {
    let backend = json!({
        "service": { "name": "web", "port": { "name": "http", "number": 80 } },
        "resource": { "apiGroup": "example.com", "kind": "Bucket", "name": "b" },
    });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let ingress = json!({
        "ingressClassName": "postern",
        "defaultBackend": backend,
        "tls": [{ "hosts": ["a.test"], "secretName": "tls" }],
        "rules": [{ "host": "a.test", "http": { "paths": [path] } }],
    });
    let parameters = json!({
        "apiGroup": "example.com", "kind": "Parameters", "name": "p", "namespace": "infra", "scope": "Namespace",
    });
    let target = json!({ "kind": "Service", "name": "web", "weight": 1 });
    let route = json!({
        "host": "a.test",
        "subdomain": "a",
        "path": "/",
        "to": target,
        "alternateBackends": [target],
        "port": { "targetPort": "http" },
        "tls": {
            "termination": "edge",
            "certificate": "pem",
            "key": "pem",
            "caCertificate": "pem",
            "destinationCACertificate": "pem",
            "insecureEdgeTerminationPolicy": "None",
            "externalCertificate": { "name": "tls" },
        },
        "wildcardPolicy": "None",
        "httpHeaders": {},
    });
    let object = |spec: Value| json!({ "metadata": { "name": "x", "namespace": "infra" }, "spec": spec });
    [
        (Kind::Ingress, object(ingress)),
        (Kind::IngressClass, object(json!({ "controller": "example.com/c", "parameters": parameters }))),
        (Kind::OpenShiftRoute, object(route)),
    ]
}

#[test]
fn ingresses_and_routes_are_read_strictly() {
    for (kind, object) in complete_ingresses() {
        assert_eq!(problem(kind, &object), None, "{object}");
        // What the headers of a Route are is not looked into: they refuse it as a whole.
        for (path, other) in
            with_unknown(&object).into_iter().filter(|(path, _)| !path.contains("httpHeaders"))
        {
            let expected = format!("{}.unknown: this field is not known", path[1..].replace('/', "."));
            assert_eq!(problem(kind, &other).unwrap_or_default(), expected, "{other}");
        }
    }
}

#[test]
fn no_private_key_of_a_route_is_printed() {
    let [_, _, (kind, mut route)] = complete_ingresses();
    route["spec"]["tls"]["key"] = json!("very secret");
    let object = read(kind, &route, &mut Interner::default()).unwrap();
    assert!(!format!("{object:?}").contains("secret"), "{object:?}");
}

#[test]
fn an_object_that_cannot_be_read_keeps_whose_it_is() {
    let route = json!({
        "metadata": { "name": "route", "namespace": "infra" },
        "spec": { "parentRefs": [{ "name": "gw" }], "rules": "all" },
    });
    let object = read(Kind::HttpRoute, &route, &mut Interner::default()).unwrap();
    let Object::Route(_, object) = object else { panic!("{object:?}") };
    assert_eq!(object.spec.parents().len(), 1);
    let problem = object.not_understood.as_ref().unwrap().to_string();
    assert!(problem.starts_with("spec: invalid type: string \"all\""), "{problem}");
}

#[test]
fn fields_beside_the_spec_are_known_or_named() {
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": "gw", "managedFields": [{}], "annotations": { "a": "b" }, "other": 1 },
        "spec": { "gatewayClassName": "postern" },
        "status": { "anything": 1 },
    });
    assert_eq!(problem(Kind::Gateway, &gateway), None);
    gateway["extra"] = json!({});
    assert_eq!(problem(Kind::Gateway, &gateway).unwrap(), "extra: this field is not known");
}

#[test]
fn kinds_of_kubernetes_may_have_new_fields() {
    let service = json!({
        "metadata": { "name": "web", "namespace": "infra" },
        "spec": { "ports": [{ "port": 80, "future": 1 }], "trafficDistribution": "PreferClose" },
    });
    let object = read(Kind::Service, &service, &mut Interner::default()).unwrap();
    let Object::Service(_, spec) = object else { panic!("{object:?}") };
    assert_eq!(spec.ports[0].port, 80);
}

#[test]
fn an_object_without_a_name_is_an_error() {
    let error = read(Kind::Gateway, &json!({ "metadata": {} }), &mut Interner::default()).unwrap_err();
    assert_eq!(error.to_string(), "object of kind Gateway without metadata.name");
    let error = read(Kind::Gateway, &json!({}), &mut Interner::default()).unwrap_err();
    assert_eq!(error.to_string(), "object of kind Gateway without metadata");
}

#[test]
fn no_secret_is_printed() {
    let secret = json!({
        "metadata": { "name": "tls", "namespace": "infra" },
        "data": { "tls.key": "c2VjcmV0", "tls.crt": "c2VjcmV0" },
    });
    let object = read(Kind::Secret, &secret, &mut Interner::default()).unwrap();
    let text = format!("{object:?}");
    assert!(text.contains("SecretData") && !text.contains("115"), "{text}");
}
