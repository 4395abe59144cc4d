//! Services that the manifests name and do not contain, with the ports by which they are named.

use std::collections::BTreeMap;

use controller::known::Known;
use controller::names::{Kind, Name, NamespacedName};
use controller::objects::core::TargetPort;
use controller::objects::ingress::{IngressBackend, IngressSpec};
use controller::objects::openshift::OpenShiftRouteSpec;
use controller::objects::reference::BackendObjectReference;
use controller::objects::route::{BackendRef, FilterSpec, RouteSpec};
use serde_json::{Value, json};

use super::{Assumptions, grant, ingresses};

/// Ports of a Service by name. Ports that are named by their number have a name that says it. A number
/// that is also the usual one of a name means the same port.
#[derive(Default)]
struct Ports(BTreeMap<String, u16>);

impl Ports {
    fn number(&mut self, port: u16) {
        if !self.0.values().any(|known| *known == port) {
            self.0.insert(format!("p{port}"), port);
        }
    }

    fn name(&mut self, name: &str) {
        if self.0.contains_key(name) {
            return;
        }
        let usual = if name.contains("https") { 443 } else { 80 };
        self.0.remove(&format!("p{usual}"));
        let is_free = |port: &u16| !self.0.values().any(|taken| taken == port);
        let port = [usual].into_iter().chain(1024..=u16::MAX).find(is_free).unwrap_or(usual);
        self.0.insert(name.to_owned(), port);
    }

    /// A Service that is named without a port must have exactly one.
    fn any(&mut self) {
        if self.0.is_empty() {
            self.number(80);
        }
    }

    fn spec(&self) -> Value {
        let ports = self.0.iter().map(|(name, port)| json!({ "name": name, "port": port }));
        json!({ "spec": { "ports": ports.collect::<Value>() } })
    }

    /// `80 and http`, as they are named.
    fn text(&self) -> String {
        let mut ports: Vec<_> = self.0.iter().collect();
        ports.sort_by_key(|(name, port)| (**port, *name));
        let text = |(name, port): &(&String, &u16)| {
            if **name == format!("p{port}") { port.to_string() } else { (*name).clone() }
        };
        ports.iter().map(text).collect::<Vec<_>>().join(" and ")
    }
}

type Wanted = BTreeMap<NamespacedName, Ports>;

/// Services that routes, Ingresses and Routes of OpenShift name, and permissions to name those of
/// another namespace. `controller` is the name of this controller.
pub(super) fn find(known: &Known, controller: &str, found: &mut Assumptions) {
    let mut wanted = Wanted::new();
    let mut routes: Vec<_> = known.routes.iter().collect();
    routes.sort_by_key(|(key, _)| *key);
    for (key, route) in routes {
        each_backend(&route.spec, &mut |reference| {
            let Some(service) = reference.service(&key.at.namespace) else { return };
            if known.services.contains_key(&service) {
                return;
            }
            grant(known, (key.kind, &key.at.namespace), &service.clone().of(Kind::Service), found);
            let ports = wanted.entry(service).or_default();
            reference.port.into_iter().for_each(|port| ports.number(port));
        });
    }
    for (at, ingress) in &known.ingresses {
        if ingresses::may_be_ours(known, controller, ingress) {
            of_ingress(&at.namespace, &ingress.spec, &mut wanted);
        }
    }
    for (at, route) in &known.openshift_routes {
        of_openshift_route(&at.namespace, &route.spec, &mut wanted);
    }
    for (service, ports) in wanted.into_iter().filter(|(at, _)| !known.services.contains_key(at)) {
        let what = if ports.0.len() == 1 { "port" } else { "the ports" };
        let note = format!(
            "Service {service} is not in the files: it is assumed to exist, with {what} {}",
            ports.text()
        );
        found.add(service.of(Kind::Service), &ports.spec(), Some(note));
    }
}

fn of_ingress(namespace: &Name, spec: &IngressSpec, wanted: &mut Wanted) {
    let paths = spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
    let backends = paths.map(|path| &path.backend).chain(&spec.default_backend);
    for service in backends.filter_map(|backend: &IngressBackend| backend.service.as_ref()) {
        let at = NamespacedName::new(namespace.clone(), service.name.clone());
        let ports = wanted.entry(at).or_default();
        match (&service.port.name, service.port.number) {
            (Some(name), _) if !name.is_empty() => ports.name(name),
            (_, Some(number)) => ports.number(number),
            _ => {}
        }
    }
}

fn of_openshift_route(namespace: &Name, spec: &OpenShiftRouteSpec, wanted: &mut Wanted) {
    for service in spec.services(namespace) {
        let ports = wanted.entry(service).or_default();
        match spec.port.as_ref().map(|port| &port.target_port) {
            Some(TargetPort::Number(number)) => ports.number(*number),
            Some(TargetPort::Name(name)) => ports.name(name),
            None => ports.any(),
        }
    }
}

fn each_backend(spec: &RouteSpec, visit: &mut dyn FnMut(&BackendObjectReference)) {
    let mut rule = |filters: &[FilterSpec], backends: &[BackendRef]| {
        for backend in backends {
            visit(&backend.reference());
        }
        let nested = backends.iter().flat_map(|backend| &backend.filters);
        filters.iter().chain(nested).filter_map(FilterSpec::backend).for_each(&mut *visit);
    };
    match spec {
        RouteSpec::Http(spec) => spec.rules.iter().for_each(|one| rule(&one.filters, &one.backend_refs)),
        RouteSpec::Grpc(spec) => spec.rules.iter().for_each(|one| rule(&one.filters, &one.backend_refs)),
    }
}
