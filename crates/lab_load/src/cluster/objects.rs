//! Objects: the documents that a cluster is filled with, and those that change.
//!
//! Owns: names, host names, paths and contents. Does not own: sending them.

use std::fmt;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::ClusterSite;

const NAMESPACE: &str = "lab";
const CLASS: &str = "lab";
const GATEWAY_API: &str = "gateway.networking.k8s.io";
/// The Gateway that `ListenerSets` and notebooks are attached to.
const SHARED: &str = "shared";
/// Host name of the load.
const LOAD_HOST: &str = "load.lab.test";
/// Host name of all notebooks.
const NOTEBOOK_HOST: &str = "notebooks.lab.test";
/// Response header that contains the version of a route.
pub(super) const VERSION_HEADER: &str = "x-lab-version";

/// A call that writes an object.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
    /// Kind and name of the object.
    what: String,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.what)
    }
}

/// Kinds that are written, each with the API that it belongs to, and its plural.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Class,
    Gateway,
    ListenerSet,
    Route,
    Policy,
    Service,
    Slice,
}

impl Kind {
    /// API version, name and plural.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Class => ["gateway.networking.k8s.io/v1", "GatewayClass", "gatewayclasses"],
            Self::Gateway => ["gateway.networking.k8s.io/v1", "Gateway", "gateways"],
            Self::ListenerSet => ["gateway.networking.k8s.io/v1", "ListenerSet", "listenersets"],
            Self::Route => ["gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes"],
            Self::Policy => ["access.postern.dev/v1alpha1", "AccessPolicy", "accesspolicies"],
            Self::Service => ["v1", "Service", "services"],
            Self::Slice => ["discovery.k8s.io/v1", "EndpointSlice", "endpointslices"],
        }
    }

    fn path(self) -> String {
        let [version, _, plural] = self.names();
        let root = if version.contains('/') { "/apis" } else { "/api" };
        match self {
            Self::Class => format!("{root}/{version}/{plural}"),
            _ => format!("{root}/{version}/namespaces/{NAMESPACE}/{plural}"),
        }
    }

    fn create(self, name: &str, mut content: Value) -> Write {
        let [version, kind, _] = self.names();
        content["apiVersion"] = version.into();
        content["kind"] = kind.into();
        content["metadata"]["name"] = name.into();
        self.write(Method::POST, self.path(), name, &content)
    }

    fn delete(self, name: &str) -> Write {
        self.write(Method::DELETE, format!("{}/{name}", self.path()), name, &json!({}))
    }

    fn write(self, method: Method, path: String, name: &str, content: &Value) -> Write {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let what = format!("{} {name}", self.names()[1]);
        Write { method, path, content_type, body: content.to_string().into(), what }
    }
}

/// Paths that exist when the definitions of all kinds are in use.
pub(super) fn kind_paths() -> Vec<String> {
    [Kind::Class, Kind::Gateway, Kind::ListenerSet, Kind::Route, Kind::Policy].map(Kind::path).to_vec()
}

/// Creates a definition of a kind from its YAML.
pub(super) fn definition(name: String, yaml: String) -> Write {
    Write {
        method: Method::POST,
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        content_type: "application/yaml",
        body: yaml.into(),
        what: name,
    }
}

/// What must exist before everything else: namespace, class, the shared Gateway, the service, and
/// the route of the load.
pub(super) fn base(site: &ClusterSite) -> Vec<Write> {
    let namespace = Write {
        method: Method::POST,
        path: "/api/v1/namespaces".to_owned(),
        content_type: "application/json",
        body: json!({ "metadata": { "name": NAMESPACE } }).to_string().into(),
        what: format!("Namespace {NAMESPACE}"),
    };
    let class = json!({ "spec": { "controllerName": site.controller } });
    let listener = |name: &str, host: &str| json!({ "name": name, "port": site.port, "protocol": "HTTP", "hostname": host });
    let shared = json!({ "spec": {
        "gatewayClassName": CLASS,
        "listeners": [listener("load", LOAD_HOST), listener("notebooks", NOTEBOOK_HOST)],
        "allowedListeners": { "namespaces": { "from": "Same" } },
    } });
    let mut all = vec![namespace, Kind::Class.create(CLASS, class), Kind::Gateway.create(SHARED, shared)];
    all.extend(service(site, "echo"));
    let parent = json!({ "name": SHARED, "sectionName": "load" });
    all.push(route("load", &parent, "/", None, "echo", &json!({})));
    all.push(open_policy("load"));
    all
}

/// Gateway `index` of those with a port of their own.
pub(super) fn gateway(site: &ClusterSite, index: u32) -> Write {
    let port = u32::from(site.first_port) + index;
    let listeners = json!([{ "name": "http", "port": port, "protocol": "HTTP" }]);
    let spec = json!({ "spec": { "gatewayClassName": CLASS, "listeners": listeners } });
    Kind::Gateway.create(&format!("gateway-{index}"), spec)
}

/// `ListenerSet` `index`.
pub(super) fn listener_set(site: &ClusterSite, index: u32) -> Write {
    let host = set_host(index);
    let listeners = json!([{ "name": "http", "port": site.port, "protocol": "HTTP", "hostname": host }]);
    let parent = json!({ "group": GATEWAY_API, "kind": "Gateway", "name": SHARED });
    let spec = json!({ "spec": { "parentRef": parent, "listeners": listeners } });
    Kind::ListenerSet.create(&format!("set-{index}"), spec)
}

/// Whether route `index` is attached to a `ListenerSet`.
pub(super) fn is_of_a_set(site: &ClusterSite, index: u32) -> bool {
    parent_number(site, index) < site.size.listener_sets
}

/// Creates route `index` in its first version.
pub(super) fn numbered_route(site: &ClusterSite, index: u32) -> Write {
    let parent = match parent_number(site, index) {
        set if set < site.size.listener_sets => {
            json!({ "group": GATEWAY_API, "kind": "ListenerSet", "name": format!("set-{set}") })
        }
        other => json!({ "name": format!("gateway-{}", other - site.size.listener_sets) }),
    };
    route(&format!("route-{index}"), &parent, &route_path(index), Some(0), "echo", &json!({}))
}

/// Gives route `index` another version.
pub(super) fn new_version(index: u32, version: u64) -> Write {
    let name = format!("route-{index}");
    let path = format!("{}/{name}", Kind::Route.path());
    let content = json!({ "spec": { "rules": [rule(&route_path(index), Some(version), "echo")] } });
    Kind::Route.write(Method::PATCH, path, &name, &content)
}

/// Host name and path that route `index` serves.
pub(super) fn route_address(site: &ClusterSite, index: u32) -> (String, String) {
    (set_host(parent_number(site, index)), route_path(index))
}

/// Creates the objects of a notebook. Its route is the last one.
pub(super) fn notebook(site: &ClusterSite, index: u32) -> Vec<Write> {
    let name = notebook_name(index);
    let parent = json!({ "name": SHARED, "sectionName": "notebooks" });
    let labels = json!({ "notebook-name": name, "notebook-namespace": NAMESPACE });
    let mut all = service(site, &name);
    all.push(open_policy(&name));
    all.push(route(&name, &parent, &notebook_address(index).1, None, &name, &labels));
    all
}

/// Deletes the objects of a notebook. Its route is the first one.
pub(super) fn notebook_gone(index: u32) -> Vec<Write> {
    let name = notebook_name(index);
    [Kind::Route, Kind::Policy, Kind::Slice, Kind::Service].map(|kind| kind.delete(&name)).to_vec()
}

/// Host name and path of a notebook.
pub(super) fn notebook_address(index: u32) -> (String, String) {
    (NOTEBOOK_HOST.to_owned(), format!("/notebook/{index}/"))
}

fn notebook_name(index: u32) -> String {
    format!("notebook-{index}")
}

fn set_host(set: u32) -> String {
    format!("set-{set}.lab.test")
}

fn route_path(index: u32) -> String {
    format!("/route/{index}/")
}

fn parent_number(site: &ClusterSite, route: u32) -> u32 {
    route % (site.size.listener_sets + site.size.gateways).max(1)
}

fn rule(path: &str, version: Option<u64>, service: &str) -> Value {
    let mut rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
        "backendRefs": [{ "name": service, "port": 80 }],
    });
    if let Some(version) = version {
        let set = json!([{ "name": VERSION_HEADER, "value": version.to_string() }]);
        rule["filters"] =
            json!([{ "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": set } }]);
    }
    rule
}

fn route(
    name: &str,
    parent: &Value,
    path: &str,
    version: Option<u64>,
    service: &str,
    labels: &Value,
) -> Write {
    let spec = json!({ "parentRefs": [parent], "rules": [rule(path, version, service)] });
    Kind::Route.create(name, json!({ "metadata": { "labels": labels }, "spec": spec }))
}

/// A policy that lets everybody pass a route.
fn open_policy(route: &str) -> Write {
    let target = json!({ "group": GATEWAY_API, "kind": "HTTPRoute", "name": route });
    let spec = json!({ "targetRefs": [target], "defaults": { "public": true } });
    Kind::Policy.create(route, json!({ "spec": spec }))
}

/// A Service without an address of its own, which would be one of a small range, and its endpoint.
fn service(site: &ClusterSite, name: &str) -> Vec<Write> {
    let ports = json!([{ "name": "http", "port": 80, "targetPort": site.service_port }]);
    let spec = json!({ "spec": { "clusterIP": "None", "ports": ports } });
    let slice = json!({
        "metadata": { "labels": { "kubernetes.io/service-name": name } },
        "addressType": if site.address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{ "addresses": [site.address.to_string()], "conditions": { "ready": true } }],
        "ports": [{ "name": "http", "port": site.service_port, "protocol": "TCP" }],
    });
    vec![Kind::Service.create(name, spec), Kind::Slice.create(name, slice)]
}
