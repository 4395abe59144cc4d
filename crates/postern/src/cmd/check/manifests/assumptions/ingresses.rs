//! What Ingresses and Routes of OpenShift need that the manifests do not contain: their class, their
//! certificates, and authorities of backends.

use controller::backends::SERVICE_AUTHORITIES;
use controller::ingress::class::CLASS;
use controller::known::Known;
use controller::names::{Kind, NamespacedName, ObjectKey};
use controller::objects::Ingress;
use serde_json::json;

use super::{AUTHORITY, Assumptions, holds, pair};

/// Whether an Ingress is of a class of ours, as far as the files say.
pub(super) fn may_be_ours(known: &Known, controller: &str, ingress: &Ingress) -> bool {
    match ingress.spec.class().filter(|name| !name.is_empty()) {
        Some(name) => match known.ingress_classes.get(name) {
            Some(class) => *class.spec.controller == *controller,
            None => *name == CLASS,
        },
        None => known
            .ingress_classes
            .values()
            .any(|class| class.spec.is_default() && *class.spec.controller == *controller),
    }
}

/// Whether there is something that the Gateway for Ingresses serves.
pub(super) fn are_there(known: &Known) -> bool {
    !known.ingresses.is_empty() || !known.openshift_routes.is_empty()
}

/// Finds what is missing.
pub(super) fn find(known: &Known, controller: &str, found: &mut Assumptions) {
    for (at, ingress) in &known.ingresses {
        if !may_be_ours(known, controller, ingress) {
            continue;
        }
        let class = ingress.spec.ingress_class_name.as_ref();
        if class.is_some_and(|name| *name == CLASS && !known.ingress_classes.contains_key(name)) {
            let note =
                format!("IngressClass {CLASS} is not in the files: it is assumed to be one of {controller}");
            let key = ObjectKey::new(Kind::IngressClass, "", CLASS);
            found.add(key, &json!({ "spec": { "controller": controller } }), Some(note));
        }
        for name in ingress.spec.tls.iter().filter_map(|tls| tls.secret_name.as_ref()) {
            let secret = NamespacedName::new(at.namespace.clone(), name.clone());
            pair(known, (Kind::Ingress, &at.namespace), &secret, found);
        }
    }
    for (at, route) in &known.openshift_routes {
        let Some(tls) = &route.spec.tls else { continue };
        let external = tls.external_certificate.as_ref().filter(|external| !external.name.is_empty());
        if let Some(external) = external {
            let secret = NamespacedName::new(at.namespace.clone(), external.name.clone());
            pair(known, (Kind::OpenShiftRoute, &at.namespace), &secret, found);
        }
        let authorities = ObjectKey::new(Kind::ConfigMap, at.namespace.clone(), SERVICE_AUTHORITIES);
        let is_read = route.spec.reencrypts().is_some() && tls.destination_ca_certificate.is_empty();
        if is_read && !holds(known, &authorities) {
            let note = format!("{authorities} is not in the files: OpenShift is assumed to put it there");
            found.add(authorities, &json!({ "data": { "service-ca.crt": AUTHORITY } }), Some(note));
        }
    }
}
