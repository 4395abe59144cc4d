//! Certificates, keys and certificate authorities that Gateways refer to.
//!
//! Owns: resolving references to Secrets and ConfigMaps, with the reason when one cannot be used.
//! Does not own: what the reason does to a listener.
//! Flow: reference → grant → Secret or ConfigMap → PEM.

use std::sync::Arc;

use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, ObjectKey};
use crate::objects::Gateway;
use crate::objects::gateway::{FrontendTlsConfig, FrontendValidation, ValidationMode};
use crate::objects::reference::SecretReference;
use crate::plan::{ClientCertificate, ClientValidation, KeyPair};
use crate::settings::{Settings, has_certificates};

/// Why a Secret cannot be used.
pub(super) enum PairFault {
    NotPermitted(String),
    Invalid(String),
}

/// The certificate chain and key of a Secret that `parent` refers to.
pub(super) fn key_pair(
    known: &Known,
    settings: &Settings,
    parent: &ObjectKey,
    reference: &SecretReference,
) -> Result<KeyPair, PairFault> {
    let secret = reference.target(&parent.at.namespace).ok_or_else(|| {
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        let group = reference.group.as_deref().filter(|group| !group.is_empty()).unwrap_or("core");
        let message = format!("references to {kind} of group {group} are not supported: name a Secret");
        PairFault::Invalid(message)
    })?;
    if !known.permits(parent.kind, &parent.at.namespace, &secret.clone().of(Kind::Secret)) {
        let message = format!("no ReferenceGrant in {} permits Secret {secret}", secret.namespace);
        return Err(PairFault::NotPermitted(message));
    }
    let data = known.secrets.get(&secret);
    let data = data.ok_or_else(|| PairFault::Invalid(format!("Secret {secret} does not exist")))?;
    let pair = data.pair(settings.certificate_check);
    let (chain, key) = pair.map_err(|problem| PairFault::Invalid(format!("Secret {secret} {problem}")))?;
    Ok(KeyPair { chain: chain.clone(), key: key.clone(), secret })
}

/// The client certificate for upstreams (`spec.tls.backend`), and why it cannot be used.
pub(super) fn client_certificate(
    known: &Known,
    settings: &Settings,
    gateway: &Gateway,
) -> (ClientCertificate, Option<Fault>) {
    let backend = gateway.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
    let Some(reference) = backend.and_then(|backend| backend.client_certificate_ref.as_ref()) else {
        return (ClientCertificate::None, None);
    };
    let parent = gateway.meta.at.clone().of(Kind::Gateway);
    match key_pair(known, settings, &parent, reference) {
        Ok(pair) => (ClientCertificate::Secret(pair.secret), None),
        Err(fault) => {
            let (reason, problem) = match fault {
                PairFault::NotPermitted(problem) => ("RefNotPermitted", problem),
                PairFault::Invalid(problem) => ("InvalidClientCertificateRef", problem),
            };
            let message =
                format!("tls.backend.clientCertificateRef: {problem}; requests to backends with TLS get 500");
            (ClientCertificate::Unusable, Some(Fault::new(reason, message)))
        }
    }
}

/// The certificate authorities in a ConfigMap or Secret, under the entry `ca.crt`. `None` if it does
/// not exist or has no valid bundle; the error says which.
pub fn bundle(known: &Known, target: &ObjectKey) -> Result<Arc<[u8]>, String> {
    let missing = || format!("{target} does not exist");
    let pem = match target.kind {
        Kind::ConfigMap => &known.config_maps.get(&target.at).ok_or_else(missing)?.authorities,
        Kind::Secret => &known.secrets.get(&target.at).ok_or_else(missing)?.authorities,
        _ => return Err(format!("{target} has no certificate authorities")),
    };
    let pem = pem.as_ref().ok_or_else(|| format!("{target} has no entry ca.crt"))?;
    has_certificates(pem).map_err(|problem| format!("ca.crt of {target} {problem}"))?;
    Ok(pem.clone())
}

/// The result of resolving one validation: what can be used, and the first fault. `None` as the
/// first part: nothing can be used.
type Resolved = (Option<ClientValidation>, Option<Fault>);

/// Validation of client certificates by port (`spec.tls.frontend`).
pub(super) struct Frontend {
    default: Option<Resolved>,
    ports: Vec<(u16, Option<Resolved>)>,
}

impl Frontend {
    pub(super) fn resolve(known: &Known, gateway: &Gateway) -> Self {
        let frontend = gateway.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
        let one = |config: &FrontendTlsConfig| {
            config.validation.as_ref().map(|validation| authorities(known, gateway, validation))
        };
        let ports = frontend.map(|frontend| &frontend.per_port[..]).unwrap_or_default();
        Self {
            default: frontend.and_then(|frontend| one(&frontend.default)),
            ports: ports.iter().map(|port| (port.port, one(&port.tls))).collect(),
        }
    }

    /// The validation on a port: its own entry, even an empty one, before the default.
    pub(super) fn of_port(&self, port: u16) -> Option<&Resolved> {
        match self.ports.iter().find(|(own, _)| *own == port) {
            Some((_, validation)) => validation.as_ref(),
            None => self.default.as_ref(),
        }
    }
}

fn authorities(known: &Known, gateway: &Gateway, validation: &FrontendValidation) -> Resolved {
    let namespace = &gateway.meta.at.namespace;
    let mut found = Vec::new();
    let mut fault = None;
    for reference in &validation.ca_certificate_refs {
        let target = reference.target(namespace);
        let target = target.filter(|target| matches!(target.kind, Kind::ConfigMap | Kind::Secret));
        let result = match target {
            None => {
                let message = format!(
                    "certificate authorities in a {} are not supported: use a ConfigMap",
                    reference.kind
                );
                Err(Fault::new("InvalidCACertificateKind", message))
            }
            Some(target) if !known.permits(Kind::Gateway, namespace, &target) => {
                let message = format!("no ReferenceGrant in {} permits {target}", target.at.namespace);
                Err(Fault::new("RefNotPermitted", message))
            }
            Some(target) => {
                bundle(known, &target).map_err(|message| Fault::new("InvalidCACertificateRef", message))
            }
        };
        match result {
            Ok(pem) => found.push(pem),
            Err(one) => {
                fault.get_or_insert(one);
            }
        }
    }
    let allows_invalid = validation.mode == Some(ValidationMode::AllowInsecureFallback);
    let usable = !found.is_empty();
    (usable.then_some(ClientValidation { authorities: found, allows_invalid }), fault)
}
