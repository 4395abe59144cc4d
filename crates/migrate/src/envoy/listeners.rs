//! Listeners, and the HTTP connection managers in them.

use serde_json::Value as Json;
use toml::Value;

use super::{Output, is_type, list, socket_address, text};
use crate::draft::inline;

/// A connection manager whose routes are translated.
pub(super) struct Manager<'j> {
    pub(super) config: &'j Json,
    /// Whether its listener asks for something that is not translated.
    pub(super) is_closed: bool,
}

/// Adds the listeners, and returns their connection managers but those that only redirect to `https`.
pub(super) fn translate<'j>(resources: &'j Json, output: &mut Output) -> Vec<Manager<'j>> {
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
        if only_redirects(manager) {
            output.draft.last("[[listener]]").set("https_redirect", true, "https_redirect");
            output.translated(setting);
            continue;
        }
        let is_closed = chains.first().is_some_and(|chain| is_narrowed(chain));
        if is_closed {
            let remedy = "its network filters, its match of addresses, or what it asks of client certificates have no equal: \
                          every route is closed until that is written";
            output.no_equal(&*setting, remedy);
        }
        output.translated(setting);
        managers.push(Manager { config: manager, is_closed });
    }
    managers
}

/// Whether every route of a connection manager redirects to `https`.
fn only_redirects(manager: &Json) -> bool {
    let hosts = list(&manager["route_config"]["virtual_hosts"]);
    let mut routes = hosts.flat_map(|host| list(&host["routes"])).peekable();
    let redirects = |route: &Json| {
        let redirect = route["redirect"].as_object();
        redirect.is_some_and(|fields| {
            fields.get("https_redirect") == Some(&Json::Bool(true))
                && fields.keys().all(|field| field == "https_redirect" || field == "response_code")
        })
    };
    routes.peek().is_some() && routes.all(redirects)
}

/// Whether a filter chain refuses connections for a reason that is not translated.
fn is_narrowed(chain: &Json) -> bool {
    let has = |object: &Json, fields: &[&str]| fields.iter().any(|field| !object[*field].is_null());
    let others =
        list(&chain["filters"]).any(|filter| !is_type(&filter["typed_config"], "HttpConnectionManager"));
    let sources = ["source_type", "source_prefix_ranges", "direct_source_prefix_ranges", "source_ports"];
    let socket = &chain["transport_socket"]["typed_config"];
    let context = &socket["common_tls_context"];
    let validation = &context["validation_context"];
    let required = socket["require_client_certificate"] == true;
    let has_ca = !text(&validation["trusted_ca"]["filename"]).is_empty();
    let names = [
        "match_typed_subject_alt_names",
        "match_subject_alt_names",
        "verify_certificate_hash",
        "verify_certificate_spki",
        "crl",
        "max_verify_depth",
    ];
    others || has(&chain["filter_chain_match"], &sources) || (required && !has_ca) || has(validation, &names)
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
