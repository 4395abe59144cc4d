//! Backends of routes: Services, their endpoints, and the TLS that policies demand.
//!
//! Owns: resolving a reference to an upstream or to the reason why it cannot be used; the endpoints
//! and the TLS of an upstream.
//! Does not own: weights and filters of a rule ([`crate::rules`]).
//! Flow: `backendRef → Service port → UpstreamKey → endpoints of EndpointSlices`.

mod endpoints;
mod reencrypt;
mod tls_policy;

pub use self::endpoints::endpoints;
pub use self::reencrypt::{SERVICE_AUTHORITIES, tls as reencrypt_tls};
pub use self::tls_policy::{TlsVerdict, conflicts_with, evaluate, policy_for};
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::core::ServicePort;
use crate::objects::reference::BackendObjectReference;
use crate::plan::{KeyPair, UpstreamKey, UpstreamPlan, UpstreamProtocol};

/// Resolves the reference of a route in `namespace`. Faults are those of the condition
/// `ResolvedRefs` of a route.
pub fn resolve(
    known: &Known,
    kind: Kind,
    namespace: &Name,
    reference: &BackendObjectReference,
) -> Result<UpstreamKey, Fault> {
    resolve_for(known, kind, namespace, reference, None)
}

/// As [`resolve`], with TLS as the Route `reencrypt` says, if there is one.
pub fn resolve_for(
    known: &Known,
    kind: Kind,
    namespace: &Name,
    reference: &BackendObjectReference,
    reencrypt: Option<&NamespacedName>,
) -> Result<UpstreamKey, Fault> {
    let service = reference.service(namespace).ok_or_else(|| {
        let kind = reference.kind.as_deref().unwrap_or("Service");
        let group = reference.group.as_deref().filter(|group| !group.is_empty()).unwrap_or("core");
        let message = format!("backends of kind {kind} (group {group}) are not supported: name a Service");
        Fault::new("InvalidKind", message)
    })?;
    if !known.permits(kind, namespace, &service.clone().of(Kind::Service)) {
        let message = format!("no ReferenceGrant in {} permits Service {service}", service.namespace);
        return Err(Fault::new("RefNotPermitted", message));
    }
    let spec = known.services.get(&service);
    let spec = spec.ok_or_else(|| not_found(format!("Service {service} does not exist")))?;
    if spec.of_type.as_deref() == Some("ExternalName") {
        // Such a Service can name any host, also one that its namespace may not reach by itself.
        let message = format!("Service {service} is of type ExternalName, which is not supported");
        return Err(Fault::new("InvalidKind", message));
    }
    let number = reference
        .port
        .ok_or_else(|| not_found(format!("the reference to Service {service} has no port: set one")))?;
    let port = spec
        .ports
        .iter()
        .find(|port| port.port == number && port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let port = port.ok_or_else(|| not_found(format!("Service {service} has no TCP port {number}")))?;
    let protocol = protocol(kind, port).ok_or_else(|| {
        let protocol = port.app_protocol.as_deref().unwrap_or_default();
        let message =
            format!("appProtocol {protocol} of port {number} of Service {service} is not supported");
        Fault::new("UnsupportedProtocol", message)
    })?;
    if reencrypt.is_some() {
        let (reencrypt, tls_policy, client_certificate) = (reencrypt.cloned(), None, None);
        let port = number;
        return Ok(UpstreamKey { service, port, protocol, tls_policy, reencrypt, client_certificate });
    }
    let policy = policy_for(known, &service, &port.name);
    if policy.is_none() && needs_tls(port) {
        let message = format!(
            "port {number} of Service {service} speaks TLS: create a BackendTLSPolicy for the Service"
        );
        return Err(Fault::new("UnsupportedProtocol", message));
    }
    let tls_policy = policy.map(|policy| policy.meta.at.clone());
    let (port, reencrypt, client_certificate) = (number, None, None);
    Ok(UpstreamKey { service, port, protocol, tls_policy, reencrypt, client_certificate })
}

fn not_found(message: String) -> Fault {
    Fault::new("BackendNotFound", message)
}

/// The protocol of a port: what it says, else that of the route. `None` if it is not supported.
fn protocol(kind: Kind, port: &ServicePort) -> Option<UpstreamProtocol> {
    let by_kind = || match kind {
        Kind::GrpcRoute => UpstreamProtocol::Http2,
        _ => UpstreamProtocol::Http,
    };
    match app_protocol(port).as_str() {
        "" | "https" => Some(by_kind()),
        "kubernetes.io/h2c" | "grpc" => Some(UpstreamProtocol::Http2),
        // A WebSocket begins as HTTP/1.1, and a GRPCRoute cannot use such a port.
        "http" | "kubernetes.io/ws" | "kubernetes.io/wss" | "ws" | "wss" => {
            (kind != Kind::GrpcRoute).then_some(UpstreamProtocol::Http)
        }
        _ => None,
    }
}

fn needs_tls(port: &ServicePort) -> bool {
    matches!(app_protocol(port).as_str(), "https" | "kubernetes.io/wss" | "wss")
}

/// What the port says of its protocol. Service names of IANA have no case.
fn app_protocol(port: &ServicePort) -> String {
    port.app_protocol.as_deref().unwrap_or_default().to_ascii_lowercase()
}

/// The upstream of a key with its TLS. `None`: it must not be used, since the policy in the key is not
/// valid, or the Secret in it has no certificate.
pub fn upstream(known: &Known, key: &UpstreamKey) -> Option<UpstreamPlan> {
    let tls = match (&key.reencrypt, &key.tls_policy) {
        (Some(route), _) => Some(reencrypt::tls(known, route, &key.service).ok()?),
        (None, None) => None,
        (None, Some(policy)) => {
            let policy = known.backend_tls.get(policy)?;
            Some(evaluate(known, policy).tls?)
        }
    };
    let client_certificate = match &key.client_certificate {
        None => None,
        Some(secret) => {
            // Whether the pair is valid was found out for the Gateway.
            let data = known.secrets.get(secret)?;
            let (chain, key) = (data.certificate.clone()?, data.key.clone()?);
            Some(KeyPair { secret: secret.clone(), chain, key })
        }
    };
    Some(UpstreamPlan { key: key.clone(), tls, client_certificate })
}
