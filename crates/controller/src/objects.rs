//! Objects of the cluster as typed values.
//!
//! Owns: the types of all kinds, and reading them from JSON. Kinds of the Gateway API and of Postern,
//! Ingress and Route are read strictly: an object with a field or value that its type does not have keeps what was
//! understood, with the reason ([`NotUnderstood`]). It is then refused by a condition, never used
//! without that field. `managedFields` and most annotations are dropped.
//! Does not own: relations between objects ([`crate::world`]).
//! Flow: JSON → [`read`] → [`Object`].

pub mod core;
pub mod gateway;
pub mod ingress;
pub mod openshift;
pub mod policy;
pub mod reference;
pub mod route;
mod time_text;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::core::{ConfigMapData, EndpointSliceSpec, Labels, SecretData, ServiceSpec};
use self::gateway::{GatewayClassSpec, GatewaySpec, ListenerSetSpec};
use self::ingress::{IngressClassSpec, IngressSpec};
use self::openshift::OpenShiftRouteSpec;
use self::policy::{AccessPolicySpec, BackendTlsPolicySpec, ReferenceGrantSpec};
use self::route::RouteSpec;
pub use self::time_text::{Seconds, parse_time, time_text};
use crate::names::{Interner, Kind, Name, NamespacedName, ObjectKey};

/// The label of an EndpointSlice that names its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The part of an object's metadata that is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Namespace and name.
    pub at: NamespacedName,
    /// Incremented by the API server with each change of the spec.
    pub generation: i64,
    /// When the object was created.
    pub created: Seconds,
    /// Only of kinds whose labels are used: routes, Namespaces, EndpointSlices.
    pub labels: Option<Arc<Labels>>,
    /// The `resourceVersion`. Only of kinds whose status is a list of several controllers.
    pub version: Option<Box<str>>,
}

impl Metadata {
    /// Sorts older objects first, then by namespace and name: the precedence of the Gateway API.
    pub fn age(&self) -> (Seconds, &NamespacedName) {
        (self.created, &self.at)
    }
}

/// Why an object is not used: it has something that its type does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood {
    /// The path of the field, such as `spec.rules.0.filters.1.unknown`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for NotUnderstood {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.path, self.problem)
    }
}

/// One object: its metadata, what was read of its spec, and the status that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource<S> {
    /// The metadata.
    pub meta: Metadata,
    /// What was understood of the spec.
    pub spec: S,
    /// Why the object must not be used.
    pub not_understood: Option<Arc<NotUnderstood>>,
    /// The status of the object as JSON text, which is much smaller than a tree of values.
    pub status: Option<Box<str>>,
}

impl<S> Resource<S> {
    /// The status as it was last seen.
    pub fn seen_status(&self) -> Value {
        let text = self.status.as_deref();
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
    }
}

/// A GatewayClass.
pub type GatewayClass = Resource<GatewayClassSpec>;
/// A Gateway.
pub type Gateway = Resource<GatewaySpec>;
/// A ListenerSet.
pub type ListenerSet = Resource<ListenerSetSpec>;
/// An HTTPRoute or GRPCRoute.
pub type Route = Resource<RouteSpec>;
/// A ReferenceGrant.
pub type ReferenceGrant = Resource<ReferenceGrantSpec>;
/// A BackendTLSPolicy.
pub type BackendTlsPolicy = Resource<BackendTlsPolicySpec>;
/// An AccessPolicy.
pub type AccessPolicy = Resource<AccessPolicySpec>;
/// An Ingress.
pub type Ingress = Resource<IngressSpec>;
/// An IngressClass.
pub type IngressClass = Resource<IngressClassSpec>;
/// A Route of OpenShift.
pub type OpenShiftRoute = Resource<OpenShiftRouteSpec>;

/// An object of any kind.
#[allow(missing_docs, reason = "one variant for each kind")]
#[derive(Clone, Debug)]
pub enum Object {
    GatewayClass(Arc<GatewayClass>),
    Gateway(Arc<Gateway>),
    ListenerSet(Arc<ListenerSet>),
    Route(Kind, Arc<Route>),
    ReferenceGrant(Arc<ReferenceGrant>),
    BackendTlsPolicy(Arc<BackendTlsPolicy>),
    Service(NamespacedName, Arc<ServiceSpec>),
    /// The slice, and the Service that it belongs to.
    EndpointSlice(NamespacedName, Option<NamespacedName>, Arc<EndpointSliceSpec>),
    Secret(NamespacedName, Arc<SecretData>),
    ConfigMap(NamespacedName, Arc<ConfigMapData>),
    Namespace(Name, Arc<Labels>),
    AccessPolicy(Arc<AccessPolicy>),
    Ingress(Arc<Ingress>),
    IngressClass(Arc<IngressClass>),
    OpenShiftRoute(Arc<OpenShiftRoute>),
}

impl Object {
    /// Which object it is.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::GatewayClass(object) => object.meta.at.clone().of(Kind::GatewayClass),
            Self::Gateway(object) => object.meta.at.clone().of(Kind::Gateway),
            Self::ListenerSet(object) => object.meta.at.clone().of(Kind::ListenerSet),
            Self::Route(kind, object) => object.meta.at.clone().of(*kind),
            Self::ReferenceGrant(object) => object.meta.at.clone().of(Kind::ReferenceGrant),
            Self::BackendTlsPolicy(object) => object.meta.at.clone().of(Kind::BackendTlsPolicy),
            Self::Service(at, _) => at.clone().of(Kind::Service),
            Self::EndpointSlice(at, ..) => at.clone().of(Kind::EndpointSlice),
            Self::Secret(at, _) => at.clone().of(Kind::Secret),
            Self::ConfigMap(at, _) => at.clone().of(Kind::ConfigMap),
            Self::Namespace(name, _) => ObjectKey::new(Kind::Namespace, "", name.clone()),
            Self::AccessPolicy(object) => object.meta.at.clone().of(Kind::AccessPolicy),
            Self::Ingress(object) => object.meta.at.clone().of(Kind::Ingress),
            Self::IngressClass(object) => object.meta.at.clone().of(Kind::IngressClass),
            Self::OpenShiftRoute(object) => object.meta.at.clone().of(Kind::OpenShiftRoute),
        }
    }
}

/// An object that cannot even be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("object of kind {kind} without {missing}")]
pub struct ReadError {
    /// The kind that was to be read.
    pub kind: &'static str,
    /// The field that it has not.
    pub missing: &'static str,
}

/// Reads an object of `kind` from the JSON that the API server has of it.
pub fn read(kind: Kind, object: &Value, interner: &mut Interner) -> Result<Object, ReadError> {
    let meta = metadata(kind, object, interner)?;
    Ok(match kind {
        Kind::GatewayClass => Object::GatewayClass(strict(meta, object, &["controllerName"], |spec| spec)),
        Kind::Gateway => Object::Gateway(strict(meta, object, &["gatewayClassName"], |spec| spec)),
        Kind::ListenerSet => Object::ListenerSet(strict(meta, object, &["parentRef"], |spec| spec)),
        Kind::HttpRoute => {
            let route = strict(meta, object, &["parentRefs", "hostnames"], RouteSpec::Http);
            Object::Route(kind, route)
        }
        Kind::GrpcRoute => {
            let route = strict(meta, object, &["parentRefs", "hostnames"], RouteSpec::Grpc);
            Object::Route(kind, route)
        }
        Kind::ReferenceGrant => Object::ReferenceGrant(strict(meta, object, &[], |spec| spec)),
        Kind::BackendTlsPolicy => {
            Object::BackendTlsPolicy(strict(meta, object, &["targetRefs"], |spec| spec))
        }
        Kind::AccessPolicy => Object::AccessPolicy(strict(meta, object, &["targetRefs"], |spec| spec)),
        Kind::Ingress => {
            let annotations = ingress::annotations(object);
            let wrap = |spec: IngressSpec| IngressSpec { annotations: annotations.clone(), ..spec };
            Object::Ingress(strict(meta, object, &["ingressClassName"], wrap))
        }
        Kind::IngressClass => {
            let annotations = ingress::annotations(object);
            let wrap = |spec: IngressClassSpec| IngressClassSpec { annotations: annotations.clone(), ..spec };
            Object::IngressClass(strict(meta, object, &["controller"], wrap))
        }
        Kind::OpenShiftRoute => {
            let annotations = ingress::annotations(object);
            let wrap = |mut spec: OpenShiftRouteSpec| {
                spec.tls.iter_mut().for_each(|tls| tls.join());
                OpenShiftRouteSpec { annotations: annotations.clone(), ..spec }
            };
            Object::OpenShiftRoute(strict(meta, object, &["host", "wildcardPolicy"], wrap))
        }
        Kind::Service => Object::Service(meta.at, lenient(object.get("spec"))),
        Kind::EndpointSlice => {
            let service = meta.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
            let service = service
                .map(|name| NamespacedName { namespace: meta.at.namespace.clone(), name: name.clone() });
            Object::EndpointSlice(meta.at, service, lenient(Some(object)))
        }
        Kind::Secret => Object::Secret(meta.at, Arc::new(core::secret(object.get("data")))),
        Kind::ConfigMap => Object::ConfigMap(meta.at, Arc::new(core::config_map(object.get("data")))),
        Kind::Namespace => Object::Namespace(meta.at.name, meta.labels.unwrap_or_default()),
    })
}

fn metadata(kind: Kind, object: &Value, interner: &mut Interner) -> Result<Metadata, ReadError> {
    let missing = |missing| ReadError { kind: kind.name(), missing };
    let meta = object.get("metadata").ok_or(missing("metadata"))?;
    let name = meta.get("name").and_then(Value::as_str).ok_or(missing("metadata.name"))?;
    let namespace = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let labels = meta.get("labels").and_then(Value::as_object).filter(|labels| !labels.is_empty());
    // Only these kinds' labels are used: in selectors, in rules, and to find a Service.
    let has_labels =
        kind.is_route() || kind.is_ingress() || matches!(kind, Kind::Namespace | Kind::EndpointSlice);
    let labels = labels.filter(|_| has_labels).map(|labels| {
        let label =
            |(key, value): (&String, &Value)| Some((interner.shared(key), Name::from(value.as_str()?)));
        Arc::new(labels.iter().filter_map(label).collect())
    });
    let has_shared_status =
        kind.is_route() || matches!(kind, Kind::AccessPolicy | Kind::BackendTlsPolicy | Kind::OpenShiftRoute);
    let version = meta.get("resourceVersion").and_then(Value::as_str).filter(|_| has_shared_status);
    let created = meta.get("creationTimestamp").and_then(Value::as_str).and_then(parse_time);
    Ok(Metadata {
        at: NamespacedName { namespace: interner.shared(namespace), name: Name::from(name) },
        generation: meta.get("generation").and_then(Value::as_i64).unwrap_or_default(),
        created: created.unwrap_or_default(),
        labels,
        version: version.map(Box::from),
    })
}

/// The part of a kind that is used. What cannot be read counts as absent.
fn lenient<S: DeserializeOwned + Default>(value: Option<&Value>) -> Arc<S> {
    Arc::new(value.and_then(|value| S::deserialize(value).ok()).unwrap_or_default())
}

/// A spec, and the first thing in the object that its type does not have. If the spec as a whole
/// cannot be read, the fields in `kept` still are, since they say to whom the object belongs.
fn strict<S: DeserializeOwned + Default, T>(
    meta: Metadata,
    object: &Value,
    kept: &[&str],
    wrap: impl Fn(S) -> T,
) -> Arc<Resource<T>> {
    let mut unknown = None;
    let mut note = |path: String, problem: String| {
        unknown.get_or_insert_with(|| Arc::new(NotUnderstood { path, problem }));
    };
    if let Some(fields) = object.as_object() {
        let known = ["apiVersion", "kind", "metadata", "spec", "status"];
        for field in fields.keys().filter(|field| !known.contains(&&***field)) {
            note(field.clone(), "this field is not known".to_owned());
        }
    }
    let empty = Value::Object(Map::new());
    let value = object.get("spec").unwrap_or(&empty);
    let read: Result<S, _> = serde_ignored::deserialize(value, |path| {
        // The path marks optional values with a question mark.
        note(format!("spec.{path}").replace(".?", ""), "this field is not known".to_owned());
    });
    let spec = read.unwrap_or_else(|error| {
        note("spec".to_owned(), error.to_string());
        let part = value.as_object().into_iter().flatten();
        let part: Map<_, _> = part
            .filter(|(name, _)| kept.contains(&&***name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        S::deserialize(&Value::Object(part)).unwrap_or_default()
    });
    let status = object.get("status").filter(|status| status.as_object().is_some_and(|map| !map.is_empty()));
    Arc::new(Resource {
        meta,
        spec: wrap(spec),
        not_understood: unknown,
        status: status.map(|status| status.to_string().into_boxed_str()),
    })
}
