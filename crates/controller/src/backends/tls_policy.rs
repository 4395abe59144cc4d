//! BackendTLSPolicy: TLS to the endpoints of a Service.
//!
//! Owns: which policy applies to a port, whether it is valid, and the TLS that it asks for.
//! Does not own: the status document ([`crate::conditions`]).
//! Flow: `targetRefs → the oldest policy → certificate authorities → UpstreamTls`.

use std::sync::Arc;

use crate::fault::Fault;
use crate::known::Known;
use crate::listeners::bundle;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::BackendTlsPolicy;
use crate::objects::reference::PolicyTarget;
use crate::plan::{CaSource, NameCheck, SubjectAltName, UpstreamTls};

/// Whether a policy is valid by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsVerdict {
    /// Why it is not accepted.
    pub fault: Option<Fault>,
    /// Why a reference cannot be resolved. Others may still be used.
    pub unresolved: Option<Fault>,
    /// Present unless there is a fault.
    pub tls: Option<UpstreamTls>,
}

/// The policy that applies to the port `port_name` of a Service: one that names the port before one
/// that names the whole Service, then the oldest, then by name.
pub fn policy_for<'a>(
    known: &'a Known,
    service: &NamespacedName,
    port_name: &Name,
) -> Option<&'a Arc<BackendTlsPolicy>> {
    let policies = known.tls_targets.get(service)?;
    let policies = || policies.iter().filter_map(|at| known.backend_tls.get(at));
    let oldest = |section: Option<&Name>| {
        policies()
            .filter(|policy| has_target(policy, service, section))
            .min_by(|one, other| one.meta.age().cmp(&other.meta.age()))
    };
    let named = if port_name.is_empty() { None } else { oldest(Some(port_name)) };
    named.or_else(|| oldest(None))
}

/// The older policy that has the same target, if there is one.
pub fn conflicts_with<'a>(
    known: &'a Known,
    policy: &BackendTlsPolicy,
    target: &PolicyTarget,
) -> Option<&'a Arc<BackendTlsPolicy>> {
    let service = target.target(&policy.meta.at.namespace)?.at;
    let others = known.tls_targets.get(&service)?.iter().filter_map(|at| known.backend_tls.get(at));
    let section = target.section_name.as_ref();
    others
        .filter(|other| has_target(other, &service, section) && other.meta.age() < policy.meta.age())
        .min_by(|one, other| one.meta.age().cmp(&other.meta.age()))
}

fn has_target(policy: &BackendTlsPolicy, service: &NamespacedName, section: Option<&Name>) -> bool {
    let namespace = &policy.meta.at.namespace;
    policy.spec.target_refs.iter().any(|target| {
        target.section_name.as_ref() == section
            && target.target(namespace).is_some_and(|key| key.kind == Kind::Service && key.at == *service)
    })
}

/// Whether a policy is valid, and the TLS that it asks for.
pub fn evaluate(known: &Known, policy: &BackendTlsPolicy) -> TlsVerdict {
    let refuse = |fault| TlsVerdict { fault: Some(fault), unresolved: None, tls: None };
    if let Some(problem) = &policy.not_understood {
        return refuse(Fault::new("Invalid", format!("not used, because of {problem}")));
    }
    let validation = &policy.spec.validation;
    let mut names = Vec::with_capacity(validation.subject_alt_names.len());
    for name in &validation.subject_alt_names {
        names.push(match name.of_type.as_str() {
            "Hostname" => SubjectAltName::Hostname(name.hostname.clone()),
            "URI" => SubjectAltName::Uri(name.uri.clone()),
            other => {
                return refuse(Fault::new(
                    "Invalid",
                    format!("subjectAltNames of type {other} are not known"),
                ));
            }
        });
    }
    if !policy.spec.options.is_empty() {
        return refuse(Fault::new("Invalid", "options are not supported: remove them"));
    }
    let (authorities, unresolved) = authorities(known, policy);
    let Some(authorities) = authorities else {
        let message = "no certificate authority is valid: requests to the Service fail";
        return TlsVerdict {
            fault: Some(Fault::new("NoValidCACertificate", message)),
            unresolved,
            tls: None,
        };
    };
    let tls = UpstreamTls {
        hostname: validation.hostname.clone(),
        authorities,
        subject_alt_names: names,
        name_check: NameCheck::Required,
    };
    TlsVerdict { fault: None, unresolved, tls: Some(tls) }
}

fn authorities(known: &Known, policy: &BackendTlsPolicy) -> (Option<CaSource>, Option<Fault>) {
    let validation = &policy.spec.validation;
    match validation.well_known_ca_certificates.as_deref() {
        Some("System") if validation.ca_certificate_refs.is_empty() => {
            return (Some(CaSource::System), None);
        }
        Some(other) => {
            let message = if other == "System" {
                "caCertificateRefs and wellKnownCACertificates exclude each other: remove one".to_owned()
            } else {
                format!("wellKnownCACertificates {other} is not known: use System")
            };
            return (None, Some(Fault::new("InvalidCACertificateRef", message)));
        }
        None => {}
    }
    let mut found = Vec::new();
    let mut fault = None;
    for reference in &validation.ca_certificate_refs {
        let kind = Kind::of(&reference.group, &reference.kind);
        let kind = kind.filter(|kind| matches!(kind, Kind::ConfigMap | Kind::Secret));
        let result = match kind {
            None => {
                let message = format!(
                    "certificate authorities in a {} are not supported: use a ConfigMap",
                    reference.kind
                );
                Err(Fault::new("InvalidKind", message))
            }
            Some(kind) => {
                let namespace = policy.meta.at.namespace.clone();
                bundle(known, &ObjectKey::new(kind, namespace, reference.name.clone()))
                    .map_err(|message| Fault::new("InvalidCACertificateRef", message))
            }
        };
        match result {
            Ok(pem) => found.push(pem),
            Err(one) => {
                fault.get_or_insert(one);
            }
        }
    }
    ((!found.is_empty()).then_some(CaSource::Bundles(found)), fault)
}
