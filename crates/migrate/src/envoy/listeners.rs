//! Listeners, and the HTTP connection managers in them.

use serde_json::Value as Json;
use toml::Value;

use super::{Output, is_type, list, socket_address, text};
use crate::draft::inline;

/// Adds the listeners, and returns their connection managers.
pub(super) fn translate<'j>(resources: &'j Json, output: &mut Output) -> Vec<&'j Json> {
    let mut managers = Vec::new();
    for (at, listener) in list(&resources["listeners"]).enumerate() {
        let name = match text(&listener["name"]) {
            "" => format!("listener-{}", at + 1),
            name => plain_name(name),
        };
        let chains: Vec<&Json> = list(&listener["filter_chains"]).collect();
        let filters =
            chains.iter().flat_map(|chain| list(&chain["filters"])).map(|filter| &filter["typed_config"]);
        let found: Vec<&Json> = filters.filter(|config| is_type(config, "HttpConnectionManager")).collect();
        let setting = format!("listener {name}");
        let (Some(manager), Some(address)) =
            (found.first(), socket_address(&listener["address"]["socket_address"]))
        else {
            output.no_equal(setting, "only TCP listeners with an HTTP connection manager are translated");
            continue;
        };
        if found.len() > 1 {
            let remedy =
                "only the first filter chain is translated: write `certificates` and `hosts` for the others";
            output.no_equal(format!("further filter chains of {setting}"), remedy);
        }
        let tls = chains
            .first()
            .and_then(|chain| tls(&chain["transport_socket"]["typed_config"], &setting, output));
        let table = output.draft.table("[[listener]]");
        table.set("name", &*name, "").set("address", address, &setting);
        table.set_some("tls", tls, "transport_socket");
        if manager["use_remote_address"] == true && manager["xff_num_trusted_hops"].as_u64().unwrap_or(0) > 0
        {
            let remedy = "write the networks of the proxies in front into `trusted_proxies`";
            output.no_equal(format!("xff_num_trusted_hops of {setting}"), remedy);
        }
        output.translated(setting);
        managers.push(*manager);
    }
    managers
}

/// A name as a configuration has it.
pub(super) fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    name.chars().map(plain).collect()
}

/// `tls` of a listener.
fn tls(socket: &Json, setting: &str, output: &mut Output) -> Option<Value> {
    if !is_type(socket, "DownstreamTlsContext") {
        return None;
    }
    let context = &socket["common_tls_context"];
    let mut members = Vec::new();
    let certificates: Vec<&Json> = list(&context["tls_certificates"]).collect();
    let file = |value: &Json| text(&value["filename"]).to_owned();
    match certificates.first() {
        Some(pair) if !file(&pair["certificate_chain"]).is_empty() => {
            members.push(("certificate", file(&pair["certificate_chain"]).into()));
            members.push(("key", file(&pair["private_key"]).into()));
        }
        _ => {
            let remedy = "certificates are files: write `certificate` and `key`";
            output.no_equal(format!("tls of {setting}"), remedy);
        }
    }
    let ca = file(&context["validation_context"]["trusted_ca"]);
    if !ca.is_empty() {
        members.push(("client_ca", ca.into()));
        let is_required = socket["require_client_certificate"] == true;
        members.push(("client_certificates", if is_required { "required" } else { "optional" }.into()));
    }
    if let "TLSv1_3" = text(&context["tls_params"]["tls_minimum_protocol_version"]) {
        members.push(("min_version", "1.3".into()));
    }
    (!members.is_empty()).then(|| inline(members))
}
