//! Checks `[gateway_api]`: which cluster, which objects, and how its Gateways are reached.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use gateway::config::Listener;
use http_engine::tls::policy::TlsPolicy;

use super::super::fault::KeyPath;
use super::super::raw::{self, DefaultPolicy, ExternalTrafficPolicy, PolicyPermission, RouteMetrics};
use super::super::scalar::{EndpointAddress, Name};
use super::{Context, listeners};
use crate::partial::Partial;

/// Longest label of a DNS name (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
/// Longest name of most objects.
const MAX_NAME: usize = 253;

/// How the process takes part in a cluster, as an implementation of the Gateway API.
#[derive(Clone)]
pub struct GatewayApiSettings {
    /// The `spec.controllerName` of the classes that are served.
    pub controller_name: String,
    /// File that says how to reach the API server. `None`: the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Namespaces whose objects count. Empty: all.
    pub namespaces: Vec<String>,
    /// What happens to requests for a route that no policy reaches.
    pub default_policy: DefaultPolicy,
    /// Whether fields of the experimental channel count.
    pub experimental: bool,
    /// Whether routes of two namespaces cannot share a host name.
    pub exclusive_hosts: bool,
    /// Namespace and name of the Gateway that serves Ingresses and Routes of OpenShift.
    pub ingress_gateway: Option<(String, String)>,
    /// Labels that a Route of OpenShift must have.
    pub route_labels: BTreeMap<String, String>,
    /// Namespace of this process. `None`: that of the pod.
    pub namespace: Option<String>,
    /// Name of the Lease.
    pub lease: String,
    /// Address at which ports of Gateways are served.
    pub bind: IpAddr,
    /// How clients reach the Gateways.
    pub exposure: GatewayExposure,
    /// Zone of this process.
    pub zone: Option<String>,
    /// Which routes have metrics of their own.
    pub route_metrics: RouteMetrics,
    /// Settings of the listeners, whose name, address and TLS are replaced.
    pub listener: Listener,
    /// Versions, cipher suites and groups of TLS.
    pub tls: TlsPolicy,
}

/// How clients reach the Gateways.
#[derive(Clone)]
pub enum GatewayExposure {
    /// By a Service for each Gateway.
    Services {
        /// Labels of the pods of this process.
        selector: BTreeMap<String, String>,
        /// Ports of the pods that may serve a Gateway.
        ports: RangeInclusive<u16>,
        /// Nodes at which a load balancer may deliver connections.
        external_traffic_policy: ExternalTrafficPolicy,
    },
    /// At these addresses, by the ports as they are written.
    Host(Vec<IpAddr>),
}

/// Whether policies of the cluster may use a field.
pub(super) fn permits(file: &raw::File, field: PolicyPermission) -> bool {
    file.gateway_api.as_ref().is_some_and(|table| table.policies_may_use.contains(&field))
}

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Option<GatewayApiSettings> {
    let raw = sound.file.gateway_api.as_ref()?;
    let path = KeyPath::top_level("gateway_api");
    check_controller_name(&raw.controller_name, &path.key("controller_name"), context);
    for (at, namespace) in raw.namespaces.iter().enumerate() {
        check_name(namespace, MAX_LABEL, &path.key("namespaces").index(at), context);
    }
    if let Some(namespace) = &raw.namespace {
        check_name(namespace, MAX_LABEL, &path.key("namespace"), context);
    }
    check_name(&raw.lease, MAX_NAME, &path.key("lease"), context);
    if let Some(file) = &raw.kubeconfig {
        context.read(file, &path.key("kubeconfig"));
    }
    let ingress_gateway = ingress_gateway(raw, &path, context);
    let exposure = exposure(raw, &path, context);
    let zone = zone(raw, &path, context);
    if raw.default_policy == DefaultPolicy::Public {
        let message = "every route that no AccessPolicy reaches is open to everybody";
        let hint = "keep \"deny\" unless another component authorizes the requests";
        context.faults.warn(&path.key("default_policy"), message, hint);
    }
    let at = path.key("listener");
    let (listener, tls) = raw_listener(&raw.listener);
    let listener = listeners::check_listener(&listener, &at, false, sound, context);
    let tls = context.tls_policy(&tls, &at.key("tls"));
    let kubeconfig = raw.kubeconfig.as_ref().map(|file| context.reader.resolve(file));
    Some(GatewayApiSettings {
        controller_name: raw.controller_name.clone(),
        kubeconfig,
        namespaces: raw.namespaces.clone(),
        default_policy: raw.default_policy,
        experimental: raw.experimental,
        exclusive_hosts: raw.exclusive_hosts,
        ingress_gateway: ingress_gateway.ok()?,
        route_labels: raw.route_labels.clone(),
        namespace: raw.namespace.clone(),
        lease: raw.lease.clone(),
        bind: raw.bind,
        exposure,
        zone,
        route_metrics: raw.route_metrics,
        listener: listener?,
        tls: tls?,
    })
}

/// The settings as those of a listener of the file, with its TLS.
fn raw_listener(raw: &raw::GatewayListener) -> (raw::Listener, raw::ListenerTls) {
    let raw::GatewayTls { profile, min_version, cipher_suites, groups } = raw.tls.clone();
    let tls = raw::ListenerTls { profile, min_version, cipher_suites, groups, ..raw::ListenerTls::default() };
    let listener = raw::Listener {
        name: Name("gateway-api".into()),
        // It is replaced by those of the Gateways.
        address: EndpointAddress::Ip((Ipv4Addr::LOCALHOST, 0).into()),
        mode: None,
        tls: None,
        protocols: raw.protocols.clone(),
        proxy_protocol_from: raw.proxy_protocol_from.clone(),
        proxy_protocol_from_anyone: raw.proxy_protocol_from_anyone,
        // A route redirects, by a filter.
        https_redirect: false,
        trusted_proxies: raw.trusted_proxies.clone(),
        authorization: None,
        limits: raw.limits.clone(),
        timeouts: raw.timeouts.clone(),
    };
    (listener, tls)
}

/// The Gateway that serves Ingresses. `Err` when a fault was noted.
fn ingress_gateway(
    raw: &raw::GatewayApi,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<(String, String)>, ()> {
    if raw.ingress_gateway.is_none() && !raw.route_labels.is_empty() {
        let message = "the key has no effect: no Gateway serves Routes";
        context.faults.add(&path.key("route_labels"), message, "set `ingress_gateway`, or remove it");
    }
    let Some(text) = &raw.ingress_gateway else { return Ok(None) };
    let parts = text.split_once('/');
    let parts = parts.filter(|(space, name)| is_dns_name(space, MAX_LABEL) && is_dns_name(name, MAX_NAME));
    let Some((namespace, name)) = parts else {
        let message = format!("{text:?} is not the namespace and name of a Gateway");
        context.faults.add(&path.key("ingress_gateway"), message, "write them as \"infra/ingress\"");
        return Err(());
    };
    Ok(Some((namespace.to_owned(), name.to_owned())))
}

/// The zone of this process, from the file or as it is written. `None`: it is not known, or a fault was
/// noted.
fn zone(raw: &raw::GatewayApi, path: &KeyPath, context: &mut Context<'_>) -> Option<String> {
    let Some(file) = &raw.zone_file else { return raw.zone.clone() };
    let at = path.key("zone_file");
    if raw.zone.is_some() {
        context.faults.add(&at, "`zone` says the zone already", "remove one of the two");
    }
    let read = context.read(file, &at)?;
    let text = String::from_utf8_lossy(&read);
    let zone = text.trim();
    if zone.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let message = format!("{} has more than one word", file.display());
        context.faults.add(&at, message, "write the zone alone into it, such as \"zone-1\"");
        return None;
    }
    (!zone.is_empty()).then(|| zone.to_owned())
}

fn exposure(raw: &raw::GatewayApi, path: &KeyPath, context: &mut Context<'_>) -> GatewayExposure {
    let Some(service) = &raw.service else { return GatewayExposure::Host(raw.addresses.clone()) };
    let at = path.key("service");
    if !raw.addresses.is_empty() {
        let message = "the load balancer of a Service states its address itself";
        context.faults.add(&path.key("addresses"), message, "remove it, or remove `service`");
    }
    if service.last_port < service.first_port {
        let message = format!("{} is less than `first_port` ({})", service.last_port, service.first_port);
        context.faults.add(&at.key("last_port"), message, "write the larger one as `last_port`");
    }
    GatewayExposure::Services {
        selector: service.selector.clone(),
        ports: service.first_port..=service.last_port,
        external_traffic_policy: service.external_traffic_policy,
    }
}

/// The name of a controller is a domain and a path.
fn check_controller_name(name: &str, path: &KeyPath, context: &mut Context<'_>) {
    let is_part = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    let is_valid = name.len() <= MAX_NAME
        && name.split_once('/').is_some_and(|(domain, rest)| is_part(rest) && is_dns_name(domain, MAX_NAME));
    if !is_valid {
        let message = format!("{name:?} is not the name of a controller");
        let hint = "write a domain and a path, such as \"postern.dev/gateway-controller\"";
        context.faults.add(path, message, hint);
    }
}

fn check_name(name: &str, longest: usize, path: &KeyPath, context: &mut Context<'_>) {
    if !is_dns_name(name, longest) {
        let message = format!("{name:?} is not a name of an object");
        context.faults.add(path, message, "use lower-case letters, digits and dashes");
    }
}

/// Whether Kubernetes accepts the text as a name. A label has no dots.
fn is_dns_name(name: &str, longest: usize) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    name.len() <= longest && name.split('.').all(is_label) && (longest > MAX_LABEL || !name.contains('.'))
}
