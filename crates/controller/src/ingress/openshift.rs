//! Route of OpenShift (route.openshift.io/v1), as far as its public description goes.
//!
//! Owns: its host, path, backends and certificate as a [`Demand`], and whether its labels select it.
//! Does not own: the TLS of its backends ([`crate::backends`]).
//! Flow: `OpenShiftRouteSpec → Demand`.
//!
//! A Route is in force as it is written or not at all: what is not supported is a reason of its
//! condition `Admitted`. A backend that cannot be used fails its share of the requests alone.

use super::{Backends, Demand, HostDemand, HostTls, PathRule, PlainHttp, annotations, key_pair, secret_pair};
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::OpenShiftRoute;
use crate::objects::core::{ServicePort, TargetPort};
use crate::objects::openshift::{OpenShiftRouteSpec, RouteTarget, RouteTls};
use crate::plan::{PathMatch, RuleAction, WeightedBackend};
use crate::settings::Settings;

/// The weight of a backend that has none.
const WEIGHT: u32 = 100;

/// Whether a Route has the labels that the operator asks for.
pub fn is_selected(settings: &Settings, route: &OpenShiftRoute) -> bool {
    let labels = route.meta.labels.as_deref();
    let has = |(key, value): (&Name, &Name)| labels.and_then(|labels| labels.get(key)) == Some(value);
    settings.route_labels.iter().all(has)
}

/// What a Route asks for.
pub fn demand(known: &Known, settings: &Settings, route: &OpenShiftRoute) -> Demand {
    if let Some(problem) = &route.not_understood {
        return Demand::refuse(not_admitted(format!("not used, because of {problem}")));
    }
    if let Some(fault) = annotations::refused(&route.spec.annotations) {
        return Demand::refuse(fault);
    }
    let host = host(&route.spec).and_then(|host| Ok((host, path(&route.spec)?)));
    let tls = tls(known, settings, route);
    let ((host, path), (plain, tls)) = match (host, tls) {
        (Ok(host), Ok(tls)) => (host, tls),
        (Err(fault), _) | (_, Err(fault)) => return Demand::refuse(fault),
    };
    if let Some(problem) = unsupported(&route.spec) {
        return Demand::refuse(not_admitted(problem));
    }
    let mut backends = Backends {
        known,
        kind: Kind::OpenShiftRoute,
        namespace: &route.meta.at.namespace,
        reencrypt: route.spec.reencrypts().map(|_| &route.meta.at),
        faults: Vec::new(),
    };
    let targets = route.spec.targets().map(|target| backend(&mut backends, &route.spec, target));
    let action = RuleAction::Forward(targets.collect());
    let rules = vec![PathRule { path, action }];
    let hosts = vec![HostDemand { host: Some(host), rules, plain, tls }];
    Demand { refused: None, faults: backends.faults, hosts }
}

fn not_admitted(message: impl Into<String>) -> Fault {
    Fault::new("RouteNotAdmitted", message)
}

/// The host, or with the wildcard policy `Subdomain` all hosts beside it.
fn host(spec: &OpenShiftRouteSpec) -> Result<Name, Fault> {
    if spec.host.is_empty() {
        return Err(not_admitted("spec.host is empty: set it; hosts are not generated here"));
    }
    match spec.wildcard_policy.as_deref().unwrap_or("None") {
        "None" | "" => Ok(spec.host.clone()),
        "Subdomain" => match spec.host.split_once('.') {
            Some((_, domain)) => Ok(Name::from(format!("*.{domain}"))),
            None => {
                Err(not_admitted(format!("host {} has no domain for wildcardPolicy Subdomain", spec.host)))
            }
        },
        other => Err(not_admitted(format!("wildcardPolicy {other} is not known: use None or Subdomain"))),
    }
}

fn path(spec: &OpenShiftRouteSpec) -> Result<PathMatch, Fault> {
    if spec.path.is_empty() {
        return Ok(PathMatch::default());
    }
    if !spec.path.starts_with('/') {
        return Err(not_admitted(format!("path {} does not begin with /", spec.path)));
    }
    Ok(PathMatch::Prefix(spec.path.clone()))
}

/// What is not supported of the rest.
fn unsupported(spec: &OpenShiftRouteSpec) -> Option<String> {
    let has_actions = |list: &serde_json::Value| list.as_array().is_some_and(|list| !list.is_empty());
    let actions = spec.http_headers.as_ref().map(|headers| &headers["actions"]);
    if actions.is_some_and(|actions| has_actions(&actions["request"]) || has_actions(&actions["response"])) {
        return Some("httpHeaders.actions are not supported: use an HTTPRoute".to_owned());
    }
    let other = spec.targets().find(|target| !target.is_service())?;
    let kind = other.kind.as_deref().unwrap_or_default();
    Some(format!("backend {} is of kind {kind}: name a Service", other.name))
}

/// What happens over HTTP and over HTTPS.
fn tls(known: &Known, settings: &Settings, route: &OpenShiftRoute) -> Result<(PlainHttp, HostTls), Fault> {
    let Some(tls) = &route.spec.tls else { return Ok((PlainHttp::Serve, HostTls::Refuse)) };
    match tls.termination.as_str() {
        "edge" | "reencrypt" => {}
        "passthrough" => {
            return Err(not_admitted(
                "termination passthrough is not supported, since requests could not be authorized: use reencrypt",
            ));
        }
        other => {
            return Err(not_admitted(format!("termination {other:?} is not known: use edge or reencrypt")));
        }
    }
    let plain = match tls.insecure_edge_termination_policy.as_deref().unwrap_or("None") {
        "None" | "" => PlainHttp::Refuse,
        "Allow" => PlainHttp::Serve,
        "Redirect" => PlainHttp::Redirect(302),
        other => {
            let message =
                format!("insecureEdgeTerminationPolicy {other} is not known: use None, Allow or Redirect");
            return Err(not_admitted(message));
        }
    };
    Ok((plain, certificate(known, settings, &route.meta.at, tls)?))
}

/// The certificate of the Route: its own, or that of a Secret.
fn certificate(
    known: &Known,
    settings: &Settings,
    route: &NamespacedName,
    tls: &RouteTls,
) -> Result<HostTls, Fault> {
    let external = tls.external_certificate.as_ref().filter(|external| !external.name.is_empty());
    match (&tls.pair, external) {
        (None, None) => Ok(HostTls::OfListener),
        (Some(pair), None) => key_pair(settings, route, pair).map(HostTls::Own).map_err(|problem| {
            let problem = problem.replace("tls.crt", "tls.certificate");
            Fault::new("ExtendedValidationFailed", format!("the certificate of the Route {problem}"))
        }),
        (None, Some(external)) => {
            let at = NamespacedName::new(route.namespace.clone(), external.name.clone());
            let pair = secret_pair(known, settings, &at).map(HostTls::Own);
            pair.map_err(|problem| Fault::new("ExternalCertificateValidationFailed", problem))
        }
        (Some(_), Some(_)) => {
            let message = "tls.certificate and tls.externalCertificate exclude each other: remove one";
            Err(Fault::new("ExtendedValidationFailed", message))
        }
    }
}

fn backend(backends: &mut Backends<'_>, spec: &OpenShiftRouteSpec, target: &RouteTarget) -> WeightedBackend {
    let port = port(backends, spec, &target.name);
    backends.target(&target.name, port, target.weight.unwrap_or(WEIGHT))
}

/// The port of a Service whose pods have the target port of the Route. Without one the Service must
/// have a single port.
fn port(backends: &Backends<'_>, spec: &OpenShiftRouteSpec, service: &Name) -> Result<u16, Fault> {
    let at = NamespacedName::new(backends.namespace.clone(), service.clone());
    let not_found = |message: String| Fault::new("BackendNotFound", message);
    let object = backends.known.services.get(&at);
    let object = object.ok_or_else(|| not_found(format!("Service {at} does not exist")))?;
    let has_number = |port: &ServicePort, number: u16| match &port.target_port {
        Some(TargetPort::Number(target)) => *target == number,
        // Kubernetes sets the port itself as the target if there is none.
        None => port.port == number,
        Some(TargetPort::Name(_)) => false,
    };
    let target = spec.port.as_ref().map(|port| &port.target_port);
    let (found, what) = match target {
        Some(TargetPort::Number(number)) => {
            let found = object.ports.iter().find(|port| has_number(port, *number));
            (found, format!("no port with targetPort {number}: use the name of one of its ports"))
        }
        Some(TargetPort::Name(name)) => {
            let found = object.ports.iter().find(|port| port.name == *name);
            (found, format!("no port named {name}"))
        }
        None => {
            let only = object.ports.first().filter(|_| object.ports.len() == 1);
            (only, format!("{} ports: set port.targetPort", object.ports.len()))
        }
    };
    found.map(|port| port.port).ok_or_else(|| not_found(format!("Service {at} has {what}")))
}
