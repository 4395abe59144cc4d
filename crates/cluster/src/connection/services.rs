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
use controller::known::GatewayAddresses;
use controller::names::NamespacedName;
use controller::plan::{GatewayPlan, SocketId};
use serde_json::{Value, json};

/// Label with the name of the Gateway, by the standard (GEP-1762).
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// Label with the namespace of the Gateway.
const GATEWAY_NAMESPACE: &str = "access.postern.dev/gateway-namespace";
/// Longest name of a Service, less a dash and eight digits.
const LONGEST_STEM: usize = 63 - 9;

/// How Gateways get addresses.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Namespace of the pods, and so of the Services.
    pub namespace: String,
    /// Labels of the pods.
    pub selector: BTreeMap<String, String>,
    /// Ports of the pods that may serve Gateways.
    pub ports: RangeInclusive<u16>,
}

/// The Services of Gateways as they are.
pub(super) struct Services {
    settings: ServiceSettings,
    seen: BTreeMap<NamespacedName, Service>,
    /// The Gateway of each Service, by the name of the Service.
    of_service: BTreeMap<String, NamespacedName>,
    /// Ports that were chosen for a Service and are not seen in it yet.
    chosen: BTreeMap<NamespacedName, BTreeMap<u16, u16>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Service {
    name: String,
    /// Target ports by port.
    targets: BTreeMap<u16, u16>,
    addresses: Vec<String>,
    requested: Option<String>,
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
        let (seen, of_service, chosen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { settings, seen, of_service, chosen }
    }

    /// Namespace of the Services.
    pub(super) fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// Takes note of a Service. Answers the Gateway that it belongs to, if something of it differs.
    pub(super) fn set(&mut self, object: &Value) -> Option<NamespacedName> {
        let meta = &object["metadata"];
        let label = |name: &str| meta["labels"][name].as_str();
        if meta["namespace"].as_str() != Some(&self.settings.namespace) {
            return None;
        }
        let gateway = NamespacedName::new(label(GATEWAY_NAMESPACE)?, label(GATEWAY_NAME)?);
        let name = meta["name"].as_str()?.to_owned();
        let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
        let ports = object["spec"]["ports"].as_array().into_iter().flatten();
        let ingress = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let service = Service {
            name: name.clone(),
            targets: ports.filter_map(|one| Some((port(&one["port"])?, port(&one["targetPort"])?))).collect(),
            addresses: ingress
                .filter_map(|one| Some(one["ip"].as_str().or_else(|| one["hostname"].as_str())?.to_owned()))
                .collect(),
            requested: object["spec"]["loadBalancerIP"].as_str().map(str::to_owned),
        };
        if self.chosen.get(&gateway) == Some(&service.targets) {
            self.chosen.remove(&gateway);
        }
        self.of_service.insert(name, gateway.clone());
        let former = self.seen.insert(gateway.clone(), service.clone());
        (former.as_ref() != Some(&service)).then_some(gateway)
    }

    /// Takes note that a Service is gone. Answers the Gateway that it belonged to.
    pub(super) fn remove(&mut self, service: &NamespacedName) -> Option<NamespacedName> {
        if *service.namespace != *self.settings.namespace {
            return None;
        }
        let gateway = self.of_service.remove(&*service.name)?;
        self.seen.remove(&gateway);
        self.chosen.remove(&gateway);
        Some(gateway)
    }

    /// The port of the pods that serves a port of a Gateway.
    pub(super) fn target(&self, socket: &SocketId) -> Option<u16> {
        self.seen.get(&socket.gateway)?.targets.get(&socket.port).copied()
    }

    /// The addresses of a Gateway.
    pub(super) fn addresses(&self, gateway: &NamespacedName) -> GatewayAddresses {
        let assigned = self.seen.get(gateway).map(|service| service.addresses.clone()).unwrap_or_default();
        GatewayAddresses { assigned, unusable: Vec::new() }
    }

    /// The Service that a Gateway needs; `None`: it has the one that it needs. Its ports are chosen
    /// until the Service is seen, or until [`Self::not_written`].
    ///
    /// # Errors
    /// [`NoPortLeft`] when there are more ports of Gateways than ports of the pods.
    pub(super) fn wanted(&mut self, plan: &GatewayPlan) -> Result<Option<WantedService>, NoPortLeft> {
        let ports = self.settings.ports.clone();
        let is_other = |gateway: &NamespacedName| *gateway != plan.gateway;
        let of_seen = self.seen.iter().map(|(gateway, service)| (gateway, &service.targets));
        let others = of_seen.chain(&self.chosen).filter(|(gateway, _)| is_other(gateway));
        let mut used: BTreeSet<u16> = others.flat_map(|(_, targets)| targets.values().copied()).collect();
        let seen = self.seen.get(&plan.gateway);
        let mut targets = BTreeMap::new();
        for socket in &plan.sockets {
            let port = socket.id.port;
            let known = self.chosen.get(&plan.gateway).or(seen.map(|service| &service.targets));
            let kept = known.and_then(|targets| targets.get(&port).copied());
            let kept = kept.filter(|target| ports.contains(target) && !used.contains(target));
            let Some(target) = kept.or_else(|| ports.clone().find(|port| !used.contains(port))) else {
                return Err(NoPortLeft { gateway: plan.gateway.clone(), port, ports });
            };
            used.insert(target);
            targets.insert(port, target);
        }
        let requested = plan.requested_addresses.first().cloned();
        let name = service_name(&plan.gateway);
        let is_seen = |service: &Service| {
            service.name == name && service.targets == targets && service.requested == requested
        };
        // A Service without ports is not possible.
        if targets.is_empty() || seen.is_some_and(is_seen) {
            return Ok(None);
        }
        let body = self.body(plan, &name, &targets, requested.as_deref());
        self.chosen.insert(plan.gateway.clone(), targets);
        Ok(Some(WantedService { name, body }))
    }

    /// Takes note that the Service of a Gateway was not written.
    pub(super) fn not_written(&mut self, gateway: &NamespacedName) {
        self.chosen.remove(gateway);
    }

    fn body(
        &self,
        plan: &GatewayPlan,
        name: &str,
        targets: &BTreeMap<u16, u16>,
        requested: Option<&str>,
    ) -> Value {
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
        labels.insert(GATEWAY_NAME.into(), plan.gateway.name.to_string());
        labels.insert(GATEWAY_NAMESPACE.into(), plan.gateway.namespace.to_string());
        let mut spec = json!({
            "type": "LoadBalancer",
            // Nothing reaches the pods by a port of the nodes.
            "allocateLoadBalancerNodePorts": false,
            "selector": self.settings.selector,
            "ports": ports,
        });
        if let Some(address) = requested {
            spec["loadBalancerIP"] = json!(address);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": self.settings.namespace,
                "labels": labels,
                "annotations": texts(&plan.annotations),
            },
            "spec": spec,
        })
    }

    /// Names of the Services whose Gateway is gone.
    pub(super) fn orphans(&self, is_there: impl Fn(&NamespacedName) -> bool) -> Vec<String> {
        let gone = self.seen.iter().filter(|(gateway, _)| !is_there(gateway));
        gone.map(|(_, service)| service.name.clone()).collect()
    }
}

/// The name of the Service of a Gateway: that of the Gateway, and a digest of its namespace and name.
fn service_name(gateway: &NamespacedName) -> String {
    let digest = digest::digest(&digest::SHA256, gateway.to_string().as_bytes());
    let number = digest.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes);
    // Names of Gateways may have dots, those of Services may not, nor begin with a digit.
    let stem: String = format!("gw-{}", gateway.name).replace('.', "-").chars().take(LONGEST_STEM).collect();
    format!("{stem}-{number:08x}")
}

#[cfg(test)]
mod tests {
    use controller::plan::{SocketPlan, SocketProtocol};

    use super::*;

    fn services(ports: RangeInclusive<u16>) -> Services {
        let selector = [("app".to_owned(), "postern".to_owned())].into();
        Services::new(ServiceSettings { namespace: "postern".into(), selector, ports })
    }

    fn plan(name: &str, ports: &[u16]) -> GatewayPlan {
        let gateway = NamespacedName::new("team", name);
        let socket = |port: &u16| SocketPlan {
            id: SocketId { gateway: gateway.clone(), port: *port },
            protocol: SocketProtocol::Http,
            listeners: Vec::new(),
            certificates: Vec::new(),
        };
        GatewayPlan {
            sockets: ports.iter().map(socket).collect(),
            gateway: gateway.clone(),
            created: 0,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            requested_addresses: Vec::new(),
        }
    }

    fn wanted(services: &mut Services, name: &str, ports: &[u16]) -> WantedService {
        services.wanted(&plan(name, ports)).unwrap().unwrap()
    }

    fn target(services: &Services, name: &str, port: u16) -> Option<u16> {
        services.target(&SocketId { gateway: NamespacedName::new("team", name), port })
    }

    #[test]
    fn each_port_of_a_gateway_gets_a_port_that_stays() {
        let mut services = services(20_000..=20_002);
        let WantedService { name, body: first } = wanted(&mut services, "a", &[80, 443]);
        assert!(name.starts_with("gw-a-"), "{name}");
        assert_eq!(services.set(&first), Some(NamespacedName::new("team", "a")));
        assert_eq!(services.set(&first), None, "nothing differs");
        assert_eq!((target(&services, "a", 80), target(&services, "a", 443)), (Some(20_000), Some(20_001)));
        assert_eq!(services.wanted(&plan("a", &[80, 443])), Ok(None));
        // Two are wanted before one is seen.
        let (b, c) = (wanted(&mut services, "b", &[80]), services.wanted(&plan("c", &[80])));
        assert!(c.is_err_and(|error| error.port == 80), "one port was left");
        services.not_written(&NamespacedName::new("team", "b"));
        assert_eq!(wanted(&mut services, "b", &[80]).body, b.body);
        services.set(&b.body);
        assert_eq!(target(&services, "b", 80), Some(20_002));
        // A port is gone, another one comes.
        let fewer = wanted(&mut services, "a", &[443]);
        services.set(&fewer.body);
        assert_eq!((target(&services, "a", 80), target(&services, "a", 443)), (None, Some(20_001)));
        let c = wanted(&mut services, "c", &[80]);
        services.set(&c.body);
        assert_eq!(target(&services, "c", 80), Some(20_000));
        let full = services.wanted(&plan("d", &[80])).unwrap_err().to_string();
        assert!(
            full.starts_with("no port from 20000 to 20002 is left for port 80 of Gateway team/d"),
            "{full}"
        );
        assert_eq!(services.orphans(|gateway| &*gateway.name != "b").len(), 1);
    }

    #[test]
    fn addresses_are_those_of_the_load_balancer() {
        let mut services = services(20_000..=20_002);
        let WantedService { name, body: mut object } = wanted(&mut services, "a", &[80]);
        let gateway = NamespacedName::new("team", "a");
        services.set(&object);
        assert_eq!(services.addresses(&gateway), GatewayAddresses::default());
        object["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "10.1.2.3" }] } });
        assert_eq!(services.set(&object), Some(gateway.clone()));
        assert_eq!(services.addresses(&gateway).assigned, ["10.1.2.3"]);
        object["status"] = json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } });
        assert_eq!(services.set(&object), Some(gateway.clone()));
        assert_eq!(services.addresses(&gateway).assigned, ["lb.example.com"]);
        object["metadata"]["namespace"] = json!("elsewhere");
        assert_eq!(services.set(&object), None, "another namespace");
        assert_eq!(services.remove(&NamespacedName::new("postern", &*name)), Some(gateway.clone()));
        assert_eq!(services.addresses(&gateway), GatewayAddresses::default());
    }

    #[test]
    fn names_of_services_are_valid_and_distinct() {
        let long = "x".repeat(200);
        let name = service_name(&NamespacedName::new("team", &*long));
        assert_eq!(name.len(), 63);
        assert_ne!(name, service_name(&NamespacedName::new("other", &*long)));
        assert!(service_name(&NamespacedName::new("team", "1.b")).starts_with("gw-1-b-"));
    }
}
