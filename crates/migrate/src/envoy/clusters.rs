//! Clusters: upstreams with their endpoints.

use serde_json::Value as Json;
use toml::Value;

use super::listeners::plain_name;
use super::{Output, duration, is_type, list, socket_address, text};
use crate::draft::inline;

/// Translates clusters to upstreams.
pub(super) fn translate(resources: &Json, output: &mut Output) {
    for cluster in list(&resources["clusters"]) {
        let name = plain_name(text(&cluster["name"]));
        let setting = format!("cluster {name}");
        let tls = &cluster["transport_socket"]["typed_config"];
        let has_tls = is_type(tls, "UpstreamTlsContext");
        let scheme = if has_tls { "https" } else { "http" };
        let mut endpoints = Vec::new();
        for endpoint in
            list(&cluster["load_assignment"]["endpoints"]).flat_map(|group| list(&group["lb_endpoints"]))
        {
            let address = &endpoint["endpoint"]["address"];
            let url = match (socket_address(&address["socket_address"]), text(&address["pipe"]["path"])) {
                (Some(address), _) => format!("{scheme}://{address}"),
                (None, "") => continue,
                (None, path) => format!("unix:{path}"),
            };
            endpoints.push(match endpoint["load_balancing_weight"].as_i64() {
                Some(weight) => inline([("address", url.into()), ("weight", weight.into())]),
                None => Value::from(url),
            });
        }
        if endpoints.is_empty() {
            output.no_equal(
                setting,
                "only clusters with a list of endpoints are translated: write `endpoints`",
            );
            continue;
        }
        let table = output.draft.table("[[upstream]]");
        table.set("name", &*name, "").set("endpoints", Value::Array(endpoints), &setting);
        if speaks_http2(cluster) {
            table.set("protocol", "h2", "http2_protocol_options");
        }
        if has_tls {
            table.set_some("tls", upstream_tls(tls), "transport_socket");
        }
        let timeout =
            duration(&cluster["connect_timeout"]).map(|timeout| inline([("connect", timeout.into())]));
        table.set_some("timeouts", timeout, "connect_timeout");
        let path =
            list(&cluster["health_checks"]).find_map(|check| check["http_health_check"]["path"].as_str());
        table.set_some("health_check", path.map(|path| inline([("path", path.into())])), "health_checks");
        output.none_equal(
            cluster,
            &setting,
            &[
                ("circuit_breakers", "`upstream.max_requests` limits requests in flight"),
                (
                    "outlier_detection",
                    "`unhealthy_after` and `unhealthy_for` do the same after consecutive failures",
                ),
            ],
        );
        output.upstreams.push(name);
    }
}

fn speaks_http2(cluster: &Json) -> bool {
    let options = cluster["typed_extension_protocol_options"].as_object().into_iter().flatten();
    !cluster["http2_protocol_options"].is_null()
        || options
            .into_iter()
            .any(|(_, options)| options["explicit_http_config"]["http2_protocol_options"].is_object())
}

fn upstream_tls(socket: &Json) -> Option<Value> {
    let context = &socket["common_tls_context"];
    let mut members = Vec::new();
    let ca = text(&context["validation_context"]["trusted_ca"]["filename"]);
    for (key, value) in [("ca", ca), ("server_name", text(&socket["sni"]))] {
        if !value.is_empty() {
            members.push((key, value.into()));
        }
    }
    if let Some(pair) = list(&context["tls_certificates"]).next() {
        members.push(("certificate", text(&pair["certificate_chain"]["filename"]).into()));
        members.push(("key", text(&pair["private_key"]["filename"]).into()));
    }
    (!members.is_empty()).then(|| inline(members))
}
