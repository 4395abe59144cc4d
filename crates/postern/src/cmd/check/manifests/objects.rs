//! Objects of manifests, as the API server would have them.
//!
//! Owns: which kind an object is of, its namespace, what the API server fills in, and faults of an
//! object by itself. Does not own: relations between objects ([`super::state`]).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::policy::BodyFault;
use controller::names::{ACCESS_GROUP, ACCESS_VERSION, Interner, Kind, ObjectKey};
use controller::objects::{self, Object};
use serde_json::{Value, json};

use super::files::Written;
use super::finding::{Finding, Place};
use super::node::Node;

/// The objects that are checked.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) written: BTreeMap<ObjectKey, Written>,
    pub(super) read: Vec<Object>,
    /// Objects with a fault of their own: what the cluster would be told follows from it.
    pub(super) faulty: BTreeSet<ObjectKey>,
}

impl Objects {
    pub(super) fn place(&self, key: &ObjectKey) -> Option<&Place> {
        self.written.get(key).map(|written| &written.place)
    }

    /// The place of a field of an object.
    pub(super) fn place_of(&self, key: &ObjectKey, field: &str) -> Option<Place> {
        let Written { place, node } = self.written.get(key)?;
        let line = node.line_of(field);
        Some(Place { line, ..place.clone() })
    }

    /// The place of a listener of a Gateway or ListenerSet.
    pub(super) fn place_of_listener(&self, key: &ObjectKey, name: &str) -> Option<Place> {
        let Written { place, node } = self.written.get(key)?;
        let listeners = node.get("spec")?.get("listeners")?.elements()?;
        let listener = listeners.iter().find(|listener| listener.text("name") == Some(name))?;
        Some(Place { line: listener.line, ..place.clone() })
    }
}

/// Where objects count that name no namespace, and which namespaces are served.
pub(super) struct Namespaces<'n> {
    pub(super) default: &'n str,
    /// Empty: all.
    pub(super) served: &'n [String],
}

/// Checks the body of a policy.
pub(super) type CheckBody<'c> = dyn Fn(&Value) -> Result<(), BodyFault> + 'c;

/// Reads the objects.
pub(super) fn read(
    list: Vec<Written>,
    namespaces: &Namespaces<'_>,
    check: &CheckBody<'_>,
    interner: &mut Interner,
    findings: &mut Vec<Finding>,
) -> Objects {
    let mut objects = Objects::default();
    let mut others: BTreeMap<String, (usize, Place)> = BTreeMap::new();
    for written in list {
        let place = &written.place;
        let (kind, version) = match kind(&written.node) {
            Ok(Found::Known(kind, version)) => (kind, version),
            Ok(Found::Other(name)) => {
                others.entry(name).or_insert_with(|| (0, place.clone())).0 += 1;
                continue;
            }
            Err(message) => {
                let finding = Finding::error(message).at(Some(place));
                findings.push(finding.help("begin each object with apiVersion, kind and metadata.name"));
                continue;
            }
        };
        let value = as_served(kind, written.node.value(), namespaces.default);
        let object = match objects::read(kind, &value, interner) {
            Ok(object) => object,
            Err(error) => {
                let finding = Finding::error(error.to_string()).at(Some(place)).field(error.missing);
                findings.push(finding.help("generateName is for `kubectl create`; write a name"));
                continue;
            }
        };
        let key = object.key();
        if let Some(other) = objects.place(&key) {
            let message = format!("the object is also in {other}, and only that one is checked");
            findings.push(Finding::error(message).of(&key).at(Some(place)).help("remove one of the two"));
            continue;
        }
        let namespace = &key.at.namespace;
        if kind.is_namespaced()
            && !namespaces.served.is_empty()
            && !namespaces.served.iter().any(|one| **one == **namespace)
        {
            let message = format!(
                "the namespace {namespace} is not one of `gateway_api.namespaces`, so it is not read"
            );
            findings.push(Finding::note(message).of(&key).at(Some(place)));
            continue;
        }
        if let Some(finding) = version_finding(kind, &version) {
            findings.push(finding.of(&key).at(Some(place)).field("apiVersion"));
        }
        objects.written.insert(key.clone(), written);
        own_faults(&object, &key, check, &mut objects, findings);
        objects.read.push(object);
    }
    findings.extend(others.into_iter().map(|(name, (count, place))| {
        let objects = if count == 1 { "object" } else { "objects" };
        Finding::note(format!("{count} {objects} of kind {name}, which Postern does not read"))
            .at(Some(&place))
    }));
    objects
}

enum Found {
    /// The kind, and the version of its API that the object is written in.
    Known(Kind, String),
    Other(String),
}

fn kind(node: &Node) -> Result<Found, String> {
    if !node.is_map() {
        return Err("it is not an object".into());
    }
    let missing = |field: &str| format!("the object has no {field}");
    let api_version = node.text("apiVersion").ok_or_else(|| missing("apiVersion"))?;
    let name = node.text("kind").ok_or_else(|| missing("kind"))?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Ok(match Kind::of(group, name) {
        Some(kind) => Found::Known(kind, version.to_owned()),
        None => Found::Other(format!("{name} ({api_version})")),
    })
}

/// What the API server would make of an object.
fn as_served(kind: Kind, mut value: Value, namespace: &str) -> Value {
    let Some(members) = value.as_object_mut() else { return value };
    // What another controller or a former version said.
    members.remove("status");
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        if !kind.is_namespaced() {
            metadata.remove("namespace");
        } else if metadata.get("namespace").is_none_or(Value::is_null) {
            metadata.insert("namespace".into(), json!(namespace));
        }
        metadata.entry("generation").or_insert(json!(1));
    }
    if kind == Kind::Secret
        && let Some(Value::Object(plain)) = members.remove("stringData")
    {
        let data = members.entry("data").or_insert_with(|| json!({}));
        for (name, text) in plain {
            data[name] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
    value
}

fn version_finding(kind: Kind, version: &str) -> Option<Finding> {
    if version == kind.version() || (kind.group() != ACCESS_GROUP && version == "v1beta1") {
        return None;
    }
    let wanted = kind.api_version();
    Some(if kind.group() == ACCESS_GROUP {
        let message = format!("there is no version {version} of {}", kind.name());
        Finding::error(message).help(format!("write {ACCESS_GROUP}/{ACCESS_VERSION}"))
    } else {
        Finding::note(format!("the version {version} is read as {wanted}, whose fields may differ"))
    })
}

/// Faults that need no other object: fields that are not known, and bodies of policies.
fn own_faults(
    object: &Object,
    key: &ObjectKey,
    check: &CheckBody<'_>,
    objects: &mut Objects,
    findings: &mut Vec<Finding>,
) {
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
    let before = findings.len();
    if let Some(problem) = problem {
        let place = objects.place_of(key, &problem.path);
        let finding = Finding::error(&*problem.problem).of(key).at(place.as_ref()).field(&*problem.path);
        let (version, name) = (controller::settings::GATEWAY_API_VERSION, key.kind.name());
        findings.push(finding.help(match key.kind {
            Kind::AccessPolicy => "remove it; see `kubectl explain accesspolicy.spec`".to_owned(),
            Kind::Ingress | Kind::IngressClass | Kind::OpenShiftRoute => {
                format!("remove it, or write it as the {name} of {} has it", key.kind.api_version())
            }
            _ => format!("remove it, or write it as the {name} of Gateway API {version} has it"),
        }));
    }
    if let Object::AccessPolicy(policy) = object {
        for (side, body) in [("defaults", &policy.spec.defaults), ("overrides", &policy.spec.overrides)] {
            if let Some(body) = body
                && let Err(fault) = check(body)
            {
                body_faults(&format!("spec.{side}"), fault, key, (objects, findings));
            }
        }
    }
    if findings.len() > before {
        objects.faulty.insert(key.clone());
    }
}

fn body_faults(
    path: &str,
    fault: BodyFault,
    key: &ObjectKey,
    (objects, findings): (&Objects, &mut Vec<Finding>),
) {
    let mut add = |field: String, message: String, help: Option<String>| {
        let place = objects.place_of(key, &field);
        let finding = Finding::error(message).of(key).at(place.as_ref()).field(field);
        findings.push(Finding { help, ..finding });
    };
    match fault {
        BodyFault::Fields(faults) => {
            for fault in faults {
                let own = fault.path.to_string();
                // Rules of a raw route are below `policy`, which is a text in a body.
                let own = own.strip_prefix("policy.").unwrap_or(&own);
                let field = if own.is_empty() { path.to_owned() } else { format!("{path}.{own}") };
                add(field, fault.message, fault.hint);
            }
        }
        fault => {
            let text = fault.to_string();
            let (message, help) = match text.split_once("; ") {
                Some((message, help)) => (message.to_owned(), Some(help.to_owned())),
                None => (text, None),
            };
            add(path.to_owned(), message, help);
        }
    }
}
