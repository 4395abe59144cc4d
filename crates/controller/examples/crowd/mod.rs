//! Many objects, and the time of changes among them: what the `measure_*` examples share.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const CONTROLLER: &str = "postern.dev/gateway-controller";

/// Resident memory in MiB.
pub(crate) fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    pages * 4096 / (1 << 20)
}

/// The numbers in the arguments of the command.
pub(crate) fn arguments() -> impl Iterator<Item = usize> {
    std::env::args().skip(1).map(|text| text.parse().unwrap())
}

/// Prints quantiles of the times of `count` changes. `change` prepares one, and returns what is to be
/// measured of it.
pub(crate) fn changes<M>(
    measured: &mut M,
    name: &str,
    count: usize,
    object: impl Fn(usize) -> Value,
    change: impl Fn(&mut M, &Value),
) {
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let object = object(number);
            let begin = Instant::now();
            change(measured, &object);
            begin.elapsed()
        })
        .collect();
    times.sort();
    let quantile = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    println!(
        "{name}: {count} changes, p50 {} µs, p99 {} µs, max {} µs",
        quantile(50),
        quantile(99),
        quantile(100)
    );
}

pub(crate) fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" })
}

pub(crate) fn class() -> Value {
    json!({ "metadata": meta("", "postern"), "spec": { "controllerName": CONTROLLER } })
}

pub(crate) fn gateway(number: usize) -> Value {
    json!({
        "metadata": meta(&format!("ns-{number}"), "gw"),
        "spec": {
            "gatewayClassName": "postern",
            "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
        },
    })
}

/// Routes with their backends, in the namespaces of `gateways` Gateways or ListenerSets.
#[derive(Clone, Copy)]
pub(crate) struct Routes {
    pub(crate) gateways: usize,
    /// The kind of their parents.
    pub(crate) parent: &'static str,
}

impl Routes {
    fn meta(self, number: usize, name: &str) -> Value {
        meta(&format!("ns-{}", number % self.gateways), name)
    }

    /// A route that sets a header to `version`.
    pub(crate) fn route(self, number: usize, (host, path): (&str, &str), version: usize) -> Value {
        let backend = json!({ "group": "", "kind": "Service", "name": format!("app-{number}"), "port": 8080, "weight": 1 });
        json!({
            "metadata": self.meta(number, &format!("route-{number}")),
            "spec": {
                "parentRefs": [{ "group": "gateway.networking.k8s.io", "kind": self.parent, "name": "gw" }],
                "hostnames": [host],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                    "filters": [{
                        "type": "RequestHeaderModifier",
                        "requestHeaderModifier": { "set": [{ "name": "x-version", "value": version.to_string() }] },
                    }],
                    "backendRefs": [backend],
                }],
            },
        })
    }

    /// The Service of a route.
    pub(crate) fn service(self, number: usize) -> Value {
        json!({
            "metadata": self.meta(number, &format!("app-{number}")),
            "spec": { "ports": [{ "name": "http", "port": 8080 }] },
        })
    }

    /// The endpoint of a Service. `last` is the end of its address.
    pub(crate) fn slice(self, number: usize, last: usize) -> Value {
        let mut meta = self.meta(number, &format!("app-{number}-x"));
        meta["labels"] = json!({ "kubernetes.io/service-name": format!("app-{number}") });
        json!({
            "metadata": meta,
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 3000 }],
            "endpoints": [{ "addresses": [format!("10.0.0.{}", last % 250)], "zone": "z1" }],
        })
    }
}
