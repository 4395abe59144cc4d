//! Endpoints of a port of a Service.
//!
//! Owns: reading them from all EndpointSlices of the Service.
//! Does not own: which endpoint gets a request.
//! Flow: `Service port → name → ports of slices → addresses`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::known::Known;
use crate::objects::core::{EndpointSliceSpec, SliceEndpoint};
use crate::plan::{EndpointPlan, UpstreamKey};

/// The endpoints of an upstream, sorted. A Service port is found in a slice by its name, so the
/// slice says the port of the endpoint, also when the target port has a name. An address in several
/// slices counts once, as ready if one of them says so.
pub fn endpoints(known: &Known, key: &UpstreamKey) -> Arc<[EndpointPlan]> {
    let service = known.services.get(&key.service);
    let port = service.and_then(|service| service.ports.iter().find(|port| port.port == key.port));
    let Some(port) = port else { return Arc::default() };
    let slices = known.slices.get(&key.service).into_iter().flat_map(BTreeMap::values);
    let mut found: BTreeMap<(IpAddr, u16), EndpointPlan> = BTreeMap::new();
    for slice in slices {
        let named = slice.ports.iter().find(|one| one.name.as_deref().unwrap_or_default() == &*port.name);
        let Some(target) = named.and_then(|one| one.port) else { continue };
        for endpoint in usable(slice) {
            let Some(address) = endpoint.address() else { continue };
            let plan = endpoint_plan(endpoint, address, target);
            found
                .entry((address, target))
                .and_modify(|known| {
                    if !known.ready {
                        *known = plan.clone();
                    }
                })
                .or_insert(plan);
        }
    }
    found.into_values().collect()
}

/// Endpoints with an IP address. Those of type `FQDN` are not used: names are not to be trusted more
/// than ExternalName.
fn usable(slice: &EndpointSliceSpec) -> &[SliceEndpoint] {
    if matches!(slice.address_type.as_str(), "IPv4" | "IPv6") { &slice.endpoints } else { &[] }
}

fn endpoint_plan(endpoint: &SliceEndpoint, address: IpAddr, port: u16) -> EndpointPlan {
    let conditions = endpoint.conditions;
    let ready = conditions.ready.unwrap_or(true);
    let hints = endpoint.hints.as_ref().map(|hints| &hints.for_zones[..]).unwrap_or_default();
    EndpointPlan {
        address,
        port,
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
        zone: endpoint.zone.clone(),
        for_zones: hints.iter().map(|zone| zone.name.clone()).collect(),
    }
}
