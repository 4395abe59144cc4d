//! Services of Gateways: which port of the pods serves a port of a Gateway, and which addresses the
//! Gateway has.
//!
//! Owns: the Service of type `LoadBalancer` that each Gateway has, the choice of its target ports, and
//! what is read from it. Does not own: writing it (the leader), who gives it an address (the cloud).
//!
//! All Gateways are served by the same pods, so each port of a Gateway needs a port of its own there.
//! The leader chooses it and writes it into the Service, and every replica reads it from there. So
//! replicas never disagree, and a choice survives the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use aws_lc_rs::digest;
use config::raw::ExternalTrafficPolicy;
use controller::known::GatewayAddresses;
use controller::names::NamespacedName;
use controller::plan::{GatewayPlan, SocketId};
use serde_json::{Value, json};

/// Label with the name of the Gateway, by the standard (GEP-1762).
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// Label with the namespace of the Gateway.
const GATEWAY_NAMESPACE: &str = "access.postern.dev/gateway-namespace";
/// Annotation with the name of the Gateway, which may be too long for a label.
const GATEWAY_FULL_NAME: &str = "access.postern.dev/gateway-name";
/// Label with the installation whose Service it is. Another one may be in the same namespace.
const INSTALLATION: &str = "access.postern.dev/installation";
/// Annotation with a digest of what was written, so that any change of it is seen.
const WRITTEN: &str = "access.postern.dev/written";
/// Type of the Services.
const TYPE: &str = "LoadBalancer";
/// Longest value of a label.
const LONGEST_LABEL: usize = 63;
/// Longest name of a Service, less a dash and eight digits.
const LONGEST_STEM: usize = 63 - 9;

/// How Gateways get addresses.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Namespace of the pods, and so of the Services.
    pub namespace: String,
    /// Name of this installation, such as that of its Lease. Services of others are left alone.
    pub installation: String,
    /// Labels of the pods.
    pub selector: BTreeMap<String, String>,
    /// Ports of the pods that may serve Gateways.
    pub ports: RangeInclusive<u16>,
    /// Nodes at which a load balancer may deliver connections.
    pub external_traffic_policy: ExternalTrafficPolicy,
}

/// The Services of Gateways as they are.
pub(super) struct Services {
    settings: ServiceSettings,
    seen: BTreeMap<NamespacedName, Service>,
    /// The Gateway of each Service, by the name of the Service.
    of_service: BTreeMap<String, NamespacedName>,
    /// Ports that were chosen for a Service and are not seen in it yet.
    chosen: BTreeMap<NamespacedName, BTreeMap<u16, u16>>,
    /// The port of the pods that was given last. The next one is sought after it: clients still arrive
    /// at a port that was freed a moment ago, and must not reach another Gateway.
    given_last: u16,
    /// Gateways for which there were not enough ports.
    short: BTreeMap<NamespacedName, NoPortLeft>,
    /// Why the API server refuses the Service of a Gateway.
    refused: BTreeMap<NamespacedName, String>,
    /// Whether ports have become free.
    has_freed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Service {
    name: String,
    /// Target ports by port.
    targets: BTreeMap<u16, u16>,
    addresses: Vec<String>,
    requested: Option<String>,
    selector: BTreeMap<String, String>,
    /// Whether it has the type of our Services.
    is_load_balancer: bool,
    external_traffic_policy: Option<String>,
    /// Whether it says that it is of this installation. Others say nothing: an earlier version wrote
    /// them.
    is_labelled: bool,
    written: Option<String>,
}

/// A Service that is to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedService {
    pub(super) name: String,
    /// The body of a server-side apply.
    pub(super) body: Value,
}

/// No port of the pods is left for a port of a Gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no port from {} to {} is left for port {port} of Gateway {gateway}; raise `gateway_api.service.last_port`",
    ports.start(), ports.end()
)]
pub(super) struct NoPortLeft {
    gateway: NamespacedName,
    port: u16,
    ports: RangeInclusive<u16>,
}

impl Services {
    pub(super) fn new(settings: ServiceSettings) -> Self {
        let given_last = *settings.ports.end();
        Self {
            settings,
            seen: BTreeMap::new(),
            of_service: BTreeMap::new(),
            chosen: BTreeMap::new(),
            given_last,
            short: BTreeMap::new(),
            refused: BTreeMap::new(),
            has_freed: false,
        }
    }

    /// Namespace of the Services.
    pub(super) fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// Takes note of a Service. Answers the Gateway that it belongs to, if something of it differs.
    pub(super) fn set(&mut self, object: &Value) -> Option<NamespacedName> {
        let meta = &object["metadata"];
        if meta["namespace"].as_str() != Some(&self.settings.namespace) {
            return None;
        }
        let name = meta["name"].as_str()?;
        let Some((gateway, service)) = self.read(name, object) else {
            // Another installation may have taken it over.
            return self.remove_named(name);
        };
        if self.chosen.get(&gateway) == Some(&service.targets) {
            self.chosen.remove(&gateway);
        }
        self.of_service.insert(name.to_owned(), gateway.clone());
        let former = self.seen.insert(gateway.clone(), service.clone());
        let targets = former.as_ref().map(|former| &former.targets);
        let is_given =
            |target: &&u16| !targets.is_some_and(|former| former.values().any(|one| one == *target));
        if let Some(given) = service.targets.values().rfind(is_given) {
            self.given_last = *given;
        }
        self.has_freed |= targets.is_some_and(|former| {
            former.values().any(|target| !service.targets.values().any(|one| one == target))
        });
        (former.as_ref() != Some(&service)).then_some(gateway)
    }

    /// The Gateway of a Service of ours, and what the Service says.
    fn read(&self, name: &str, object: &Value) -> Option<(NamespacedName, Service)> {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let label = |name: &str| meta["labels"][name].as_str();
        let full_name = meta["annotations"][GATEWAY_FULL_NAME].as_str();
        let gateway =
            NamespacedName::new(label(GATEWAY_NAMESPACE)?, full_name.or_else(|| label(GATEWAY_NAME))?);
        let is_labelled = match label(INSTALLATION) {
            Some(installation) if installation != label_value(&self.settings.installation) => return None,
            installation => installation.is_some(),
        };
        // Somebody's copy of a Service is none of a Gateway.
        if name != service_name(&gateway) {
            return None;
        }
        let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
        let ports = spec["ports"].as_array().into_iter().flatten();
        let ingress = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let selector = spec["selector"].as_object().into_iter().flatten();
        let service = Service {
            name: name.to_owned(),
            targets: ports.filter_map(|one| Some((port(&one["port"])?, port(&one["targetPort"])?))).collect(),
            addresses: ingress
                .filter_map(|one| Some(one["ip"].as_str().or_else(|| one["hostname"].as_str())?.to_owned()))
                .collect(),
            requested: spec["loadBalancerIP"].as_str().map(str::to_owned),
            selector: selector
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            is_load_balancer: spec["type"].as_str() == Some(TYPE),
            external_traffic_policy: spec["externalTrafficPolicy"].as_str().map(str::to_owned),
            is_labelled,
            written: meta["annotations"][WRITTEN].as_str().map(str::to_owned),
        };
        Some((gateway, service))
    }

    /// Takes note that a Service is gone. Answers the Gateway that it belonged to.
    pub(super) fn remove(&mut self, service: &NamespacedName) -> Option<NamespacedName> {
        if *service.namespace != *self.settings.namespace {
            return None;
        }
        self.remove_named(&service.name)
    }

    fn remove_named(&mut self, service: &str) -> Option<NamespacedName> {
        let gateway = self.of_service.remove(service)?;
        self.seen.remove(&gateway);
        self.chosen.remove(&gateway);
        self.has_freed = true;
        Some(gateway)
    }

    /// Takes note that a Gateway is gone.
    pub(super) fn forget(&mut self, gateway: &NamespacedName) {
        self.chosen.remove(gateway);
        self.short.remove(gateway);
        self.refused.remove(gateway);
    }

    /// Gateways that may get the ports that they lack: others were freed since this was asked last.
    pub(super) fn may_get_ports(&mut self) -> Vec<NamespacedName> {
        if !std::mem::take(&mut self.has_freed) {
            return Vec::new();
        }
        self.short.keys().cloned().collect()
    }

    /// The port of the pods that serves a port of a Gateway.
    pub(super) fn target(&self, socket: &SocketId) -> Option<u16> {
        self.seen.get(&socket.gateway)?.targets.get(&socket.port).copied()
    }

    /// The addresses of a Gateway.
    pub(super) fn addresses(&self, gateway: &NamespacedName) -> GatewayAddresses {
        let assigned = self.seen.get(gateway).map(|service| service.addresses.clone()).unwrap_or_default();
        let refused =
            self.refused.get(gateway).map(|why| format!("the Service of the Gateway is refused: {why}"));
        let problem = refused.or_else(|| self.short.get(gateway).map(ToString::to_string));
        GatewayAddresses { assigned, unusable: Vec::new(), problem }
    }

    /// The Service that a Gateway needs; `None`: it has the one that it needs. Its ports are chosen
    /// until the Service is seen, or until [`Self::not_written`]. If there are more ports of Gateways
    /// than ports of the pods, the Service has those that there are, and the error comes with it.
    pub(super) fn wanted(&mut self, plan: &GatewayPlan) -> (Option<WantedService>, Option<NoPortLeft>) {
        let (targets, fault) = self.choose(plan);
        match &fault {
            Some(fault) => self.short.insert(plan.gateway.clone(), fault.clone()),
            None => self.short.remove(&plan.gateway),
        };
        // A Service without ports is not possible.
        if targets.is_empty() {
            return (None, fault);
        }
        let requested = plan.requested_addresses.first().cloned();
        let name = service_name(&plan.gateway);
        let (body, written) = self.body(plan, &name, &targets, requested.as_deref());
        let traffic_policy = self.settings.external_traffic_policy.name();
        let is_seen = |service: &Service| {
            service.is_labelled
                && service.is_load_balancer
                && service.external_traffic_policy.as_deref() == Some(traffic_policy)
                && service.written.as_ref() == Some(&written)
                && service.targets == targets
                && service.requested == requested
                && service.selector == self.settings.selector
        };
        if self.seen.get(&plan.gateway).is_some_and(is_seen) {
            self.refused.remove(&plan.gateway);
            return (None, fault);
        }
        self.chosen.insert(plan.gateway.clone(), targets);
        (Some(WantedService { name, body }), fault)
    }

    /// Chooses a port of the pods for each port of a Gateway, as long as there are any.
    fn choose(&mut self, plan: &GatewayPlan) -> (BTreeMap<u16, u16>, Option<NoPortLeft>) {
        let ports = self.settings.ports.clone();
        let is_other = |gateway: &NamespacedName| *gateway != plan.gateway;
        let of_seen = self.seen.iter().map(|(gateway, service)| (gateway, &service.targets));
        let others = of_seen.chain(&self.chosen).filter(|(gateway, _)| is_other(gateway));
        let mut used: BTreeSet<u16> = others.flat_map(|(_, targets)| targets.values().copied()).collect();
        let seen = self.seen.get(&plan.gateway).map(|service| &service.targets);
        let known = self.chosen.get(&plan.gateway).or(seen);
        let mut targets = BTreeMap::new();
        let mut without = Vec::new();
        for socket in &plan.sockets {
            let port = socket.id.port;
            let kept = known.and_then(|targets| targets.get(&port).copied());
            match kept.filter(|target| ports.contains(target) && used.insert(*target)) {
                Some(target) => _ = targets.insert(port, target),
                None => without.push(port),
            }
        }
        for port in without {
            let after = (self.given_last.saturating_add(1)..=*ports.end()).filter(|one| ports.contains(one));
            let Some(target) = after.chain(ports.clone()).find(|port| !used.contains(port)) else {
                return (targets, Some(NoPortLeft { gateway: plan.gateway.clone(), port, ports }));
            };
            self.given_last = target;
            used.insert(target);
            targets.insert(port, target);
        }
        (targets, None)
    }

    /// Takes note that the Service of a Gateway was written.
    pub(super) fn written(&mut self, gateway: &NamespacedName) {
        self.refused.remove(gateway);
    }

    /// Takes note that the Service of a Gateway was not written, and why, if it was refused.
    pub(super) fn not_written(&mut self, gateway: &NamespacedName, refusal: Option<String>) {
        if self.chosen.remove(gateway).is_some() {
            self.has_freed = true;
        }
        if let Some(why) = refusal {
            self.refused.insert(gateway.clone(), why);
        }
    }

    /// The body of the Service, and the digest of it that it has.
    fn body(
        &self,
        plan: &GatewayPlan,
        name: &str,
        targets: &BTreeMap<u16, u16>,
        requested: Option<&str>,
    ) -> (Value, String) {
        let ports: Vec<Value> = targets
            .iter()
            .map(|(port, target)| {
                json!({ "name": format!("p{port}"), "port": port, "targetPort": target, "protocol": "TCP" })
            })
            .collect();
        let texts = |map: &BTreeMap<controller::names::Name, controller::names::Name>| {
            map.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect::<BTreeMap<_, _>>()
        };
        let mut labels = texts(&plan.labels);
        labels.insert(GATEWAY_NAME.into(), label_value(&plan.gateway.name));
        labels.insert(GATEWAY_NAMESPACE.into(), plan.gateway.namespace.to_string());
        labels.insert(INSTALLATION.into(), label_value(&self.settings.installation));
        let mut annotations = texts(&plan.annotations);
        annotations.insert(GATEWAY_FULL_NAME.into(), plan.gateway.name.to_string());
        annotations.remove(WRITTEN);
        let mut spec = json!({
            "type": TYPE,
            // Nothing reaches the pods by a port of the nodes.
            "allocateLoadBalancerNodePorts": false,
            // With `Local` the API server adds `healthCheckNodePort`, at which kube-proxy says whether a
            // node has a pod. That field is not ours, so an apply leaves it.
            "externalTrafficPolicy": self.settings.external_traffic_policy.name(),
            "selector": self.settings.selector,
            "ports": ports,
        });
        if let Some(address) = requested {
            spec["loadBalancerIP"] = json!(address);
        }
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": self.settings.namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": spec,
        });
        let digest = digest::digest(&digest::SHA256, body.to_string().as_bytes());
        let number = digest.as_ref().first_chunk().copied().map_or(0, u64::from_be_bytes);
        let written = format!("{number:016x}");
        body["metadata"]["annotations"][WRITTEN] = json!(written);
        (body, written)
    }

    /// Names of the Services of this installation whose Gateway is gone. One that does not say whose it
    /// is may be another's.
    pub(super) fn orphans(&self, is_there: impl Fn(&NamespacedName) -> bool) -> Vec<String> {
        let ours = self.seen.iter().filter(|(_, service)| service.is_labelled);
        let gone = ours.filter(|(gateway, _)| !is_there(gateway));
        gone.map(|(_, service)| service.name.clone()).collect()
    }
}

/// The name of the Service of a Gateway: that of the Gateway, and a digest of its namespace and name.
fn service_name(gateway: &NamespacedName) -> String {
    // Names of Gateways may have dots, those of Services may not, nor begin with a digit.
    let stem: String = format!("gw-{}", gateway.name).replace('.', "-").chars().take(LONGEST_STEM).collect();
    format!("{stem}-{}", digits(&gateway.to_string()))
}

/// A name as the value of a label: if it is too long, its begin and a digest of it.
fn label_value(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let stem: String = name.chars().take(LONGEST_STEM).collect();
    format!("{stem}-{}", digits(name))
}

/// Eight digits of a digest.
fn digits(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    let number = digest.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes);
    format!("{number:08x}")
}

#[cfg(test)]
mod tests;
