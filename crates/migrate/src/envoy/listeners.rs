//! Listeners, and the HTTP connection managers in them.

use serde_json::Value as Json;
use toml::Value;

use super::{Output, is_type, list, socket_address, text};
use crate::draft::inline;

/// A connection manager whose routes are translated.
pub(super) struct Manager<'j> {
    pub(super) config: &'j Json,
    /// The listener that it is of.
    pub(super) listener: usize,
    /// The names that clients must ask for (SNI), if the listener has a chain for each; none: every one.
    pub(super) server_names: Vec<String>,
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
        let setting = format!("listener {name}");
        let mut found: Vec<(&Json, &Json)> =
            chains.iter().filter_map(|chain| Some((*chain, manager_of(chain)?))).collect();
        let (Some(&(_, manager)), Some(address)) =
            (found.first(), socket_address(&listener["address"]["socket_address"]))
        else {
            output.no_equal(setting, "only TCP listeners with an HTTP connection manager are translated");
            continue;
        };
        let is_by_name = found.iter().all(|(chain, _)| !server_names(chain).is_empty());
        if found.len() > 1 && !is_by_name {
            let remedy = "chains are told apart by `server_names` only, so the first one is translated: write `certificates` \
                          and `hosts` for the others";
            output.no_equal(format!("further filter chains of {setting}"), remedy);
            found.truncate(1);
        }
        let sockets: Vec<&Json> = match found.len() {
            1 => chains.iter().take(1).map(|chain| &chain["transport_socket"]["typed_config"]).collect(),
            _ => found.iter().map(|(chain, _)| &chain["transport_socket"]["typed_config"]).collect(),
        };
        let tls = tls(&sockets, &setting, output);
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
        let is_alone = found.len() == 1;
        let first = found[0].0;
        for (chain, config) in found {
            let chain = if is_alone { chains[0] } else { chain };
            let server_names = if is_alone { Vec::new() } else { server_names(chain) };
            let is_closed = is_narrowed(chain) || (!is_alone && demands(chain) != demands(first));
            if is_closed {
                let remedy = "its network filters, its match of addresses, or what it asks of client certificates have no \
                              equal: its routes are closed until that is written";
                let which = server_names.first().map(|name| format!(", {name}")).unwrap_or_default();
                output.no_equal(format!("{setting}{which}"), remedy);
            }
            managers.push(Manager { config, listener: at, server_names, is_closed });
        }
        output.translated(setting);
    }
    managers
}

/// The HTTP connection manager of a filter chain.
fn manager_of(chain: &Json) -> Option<&Json> {
    let mut filters = list(&chain["filters"]).map(|filter| &filter["typed_config"]);
    filters.find(|config| is_type(config, "HttpConnectionManager"))
}

/// The names of a filter chain.
fn server_names(chain: &Json) -> Vec<String> {
    list(&chain["filter_chain_match"]["server_names"]).map(|name| text(name).to_owned()).collect()
}

/// What a filter chain demands of clients beside a name. A listener here has it once.
fn demands(chain: &Json) -> [&Json; 3] {
    let socket = &chain["transport_socket"]["typed_config"];
    let context = &socket["common_tls_context"];
    [&socket["require_client_certificate"], &context["validation_context"], &context["tls_params"]]
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

/// `tls` of a listener with these sockets, one for each of its chains.
fn tls(sockets: &[&Json], setting: &str, output: &mut Output) -> Option<Value> {
    let socket = sockets.first().filter(|socket| is_type(socket, "DownstreamTlsContext"))?;
    let context = &socket["common_tls_context"];
    let file = |value: &Json| text(&value["filename"]).to_owned();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for socket in sockets {
        let pair = list(&socket["common_tls_context"]["tls_certificates"]).next();
        let pair = pair.map(|pair| (file(&pair["certificate_chain"]), file(&pair["private_key"])));
        match pair {
            Some(pair) if pairs.contains(&pair) => {}
            Some(pair) if !pair.0.is_empty() => pairs.push(pair),
            _ => {
                let remedy = "certificates are files: write `certificate` and `key`";
                output.no_equal(format!("tls of {setting}"), remedy);
            }
        }
    }
    let pair = |(certificate, key): (String, String)| [("certificate", certificate), ("key", key)];
    let mut pairs = pairs.into_iter().map(pair);
    let mut members: Vec<(&'static str, Value)> =
        pairs.next().into_iter().flatten().map(|(name, file)| (name, file.into())).collect();
    let more: Vec<Value> =
        pairs.map(|pair| inline(pair.map(|(name, file)| (name, Value::from(file))))).collect();
    if !more.is_empty() {
        members.push(("certificates", more.into()));
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
