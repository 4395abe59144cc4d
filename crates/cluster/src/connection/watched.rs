//! Watched object: an object of any kind as the API server sends it.
//!
//! Owns: reading it once into JSON, with the few fields of its metadata that a watch needs. Does not
//! own: what the object means (`controller::objects`).

use std::borrow::Cow;

use controller::names::{Kind, NamespacedName};
use kube::api::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::{Api, Client, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of any kind.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    metadata: ObjectMeta,
    pub(super) value: Value,
}

impl Watched {
    /// Its namespace and name.
    pub(super) fn at(&self) -> NamespacedName {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        NamespacedName::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |field: &str| value.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl Resource for Watched {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The resource of a kind.
pub(super) fn resource(kind: Kind) -> ApiResource {
    ApiResource {
        group: kind.group().into(),
        version: kind.version().into(),
        api_version: kind.api_version(),
        kind: kind.name().into(),
        plural: kind.plural().into(),
    }
}

/// All objects of a kind, or those of a namespace.
pub(super) fn api(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<Watched> {
    match namespace.filter(|_| kind.is_namespaced()) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(kind)),
        None => Api::all_with(client.clone(), &resource(kind)),
    }
}

/// An error with its causes, in one line.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_everything_that_it_has() {
        let text = r#"{"kind": "Service", "metadata": {"name": "app", "namespace": "team", "resourceVersion": "7"}, "spec": {"x": 1}}"#;
        let object: Watched = serde_json::from_str(text).unwrap();
        assert_eq!(object.at(), NamespacedName::new("team", "app"));
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
        assert_eq!(object.value["spec"]["x"], 1);
    }

    #[test]
    fn a_resource_has_the_group_in_its_version() {
        assert_eq!(resource(Kind::Service).api_version, "v1");
        assert_eq!(resource(Kind::HttpRoute).api_version, "gateway.networking.k8s.io/v1");
    }
}
