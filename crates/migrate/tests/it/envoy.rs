//! Envoy: tokens by path, an authorizer, what is closed, and what cannot be read.

use migrate::Migration;
use migrate::envoy::translate;
use migrate::report::Translation;

/// A bootstrap with tokens of two issuers.
const JWT: &str = include_str!("envoy-jwt.yaml");

fn translated(text: &str) -> Migration {
    translate("envoy.yaml", text).unwrap_or_else(|fault| panic!("{fault}"))
}

/// A bootstrap with one cluster, and with these filters and routes.
fn bootstrap(filters: &str, routes: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: '::1', port_value: 8080}}}}
    filter_chains:
    - filters:
      - typed_config:
          '@type': type.googleapis.com/x.v3.HttpConnectionManager
          http_filters: [{filters}]
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes: [{routes}]
  clusters:
  - name: app
    load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 8081}}}}}}}}]}}]}}
"
    )
}

const ASKS: &str = "{name: asks, typed_config: {'@type': t/v3.ExtAuthz, http_service: {server_uri: {cluster: app, timeout: 2s}}}}";
const OPEN: &str = "typed_per_filter_config: {asks: {'@type': t/v3.ExtAuthzPerRoute, disabled: true}}";

/// The lines of the routes, without comments.
fn routes(migration: &Migration) -> String {
    let lines = migration.configuration.lines().map(|line| line.split("  # ").next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let text = lines.join("\n");
    let end = text.find("\n[admin]").unwrap_or(text.len());
    text[text.find("[[route]]").unwrap()..end].to_owned()
}

fn without_equal(migration: &Migration) -> Vec<String> {
    let entries = migration.report.entries.iter();
    entries
        .filter(|entry| matches!(entry.outcome, Translation::NoEqual(_)))
        .map(|entry| entry.setting.clone())
        .collect()
}

#[test]
fn tokens_are_needed_by_path() {
    let migration = translated(JWT);
    let expected = "\
[[route]]
name = \"shop-4\"
hosts = [\"shop.example\"]
path = { prefix = \"/\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
upstream = \"shop\"
request_timeout = \"unlimited\"
forward_authorization = true
[[route]]
name = \"shop-1\"
hosts = [\"shop.example\"]
path = { exact = \"/healthz\" }
public = true
upstream = \"shop\"
request_timeout = \"15s\"
[[route]]
name = \"shop-3\"
hosts = [\"shop.example\"]
path = { prefix = \"/old\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
redirect = { prefix = \"/new\", status = 308 }
[[route]]
name = \"shop-4-part-2\"
hosts = [\"shop.example\"]
path = { exact = \"/old\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
upstream = \"shop\"
request_timeout = \"unlimited\"
forward_authorization = true
[[route]]
name = \"shop-2\"
hosts = [\"shop.example\"]
path = { prefix = \"/orders\" }
policy = { allow = [{ issuers = [\"example\"] }] }
upstream = \"shop\"
replace_prefix = { from = \"/orders\", to = \"/v2/orders\" }
request_timeout = \"250ms\"
forward_authorization = true
[[route]]
name = \"shop-4-part-3\"
hosts = [\"shop.example\"]
path = { exact = \"/orders\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
upstream = \"shop\"
request_timeout = \"unlimited\"
forward_authorization = true";
    assert_eq!(routes(&migration), expected);
    assert_eq!(without_equal(&migration), Vec::<String>::new());
    for line in [
        "jwks_uri = \"https://id.example/keys\"",
        "jwks_file = \"provider-1.jwks.json\"",
        "clock_skew = \"30s\"",
        "timeouts = { connect = \"500ms\" }",
        "{ address = \"http://127.0.0.1:8081\", weight = 3 }",
    ] {
        assert!(migration.configuration.contains(line), "{line}\n{}", migration.configuration);
    }
    let keys: Vec<_> = migration.secrets.iter().map(|file| (file.name, file.content.as_deref())).collect();
    assert_eq!(keys, [("provider-1.jwks.json", Some("{\"keys\":[]}"))]);
}

#[test]
fn an_authorizer_is_asked_but_where_a_route_says_no() {
    let two = format!(
        "{{match: {{path: /healthz}}, route: {{cluster: app}}, {OPEN}}}, {{match: {{prefix: /}}, route: {{cluster: app}}}}"
    );
    let migration = translated(&bootstrap(ASKS, &two));
    let expected = "\
[[route]]
name = \"all-2\"
path = { prefix = \"/\" }
public = true
authorizer = \"authorizer\"
upstream = \"app\"
request_timeout = \"15s\"
[[route]]
name = \"all-1\"
path = { exact = \"/healthz\" }
public = true
upstream = \"app\"
request_timeout = \"15s\"";
    assert_eq!(routes(&migration), expected);
    assert!(migration.configuration.contains("address = \"[::1]:8080\""));
}

/// Requests that a route which is left out took must not find an open one.
#[test]
fn nothing_opens_what_is_not_translated() {
    let fallback = "{match: {prefix: /}, route: {cluster: app}}";
    let open = format!("{{match: {{prefix: /}}, route: {{cluster: app}}, {OPEN}}}");
    let closed = "public = true\nrespond = { body = \"not translated\", status = 403 }";
    for (what, filters, routes_of) in [
        (
            "a regular expression before an open route",
            ASKS,
            format!("{{match: {{safe_regex: {{regex: '/a.*'}}}}, route: {{cluster: app}}}}, {open}"),
        ),
        (
            "a header before an open route",
            ASKS,
            format!("{{match: {{prefix: /, headers: [{{name: x}}]}}, route: {{cluster: app}}}}, {open}"),
        ),
        ("a regular expression that refuses", "", format!("{{match: {{safe_regex: {{regex: '/a.*'}}}}, direct_response: {{status: 403}}}}, {fallback}")),
        ("a subject", "{name: j, typed_config: {'@type': t/v3.JwtAuthentication, rules: []}}", fallback.replace("cluster: app}", "cluster: app}, typed_per_filter_config: {j: {'@type': t/v3.FilterConfig, config: {'@type': t/v3.PerRouteConfig, requirement_name: a}}}")),
        ("RBAC", "{name: r, typed_config: {'@type': t/v3.RBAC}}", fallback.to_owned()),
        ("a script", "{name: l, typed_config: {'@type': t/v3.Lua}}", fallback.to_owned()),
        ("a filter of one's own", "{name: own, typed_config: {'@type': t/v1.Own}}", fallback.to_owned()),
        ("a filter that is discovered", "{name: e, config_discovery: {}}", fallback.to_owned()),
        (
            "an authorizer over gRPC",
            "{name: g, typed_config: {'@type': t/v3.ExtAuthz, grpc_service: {}}}",
            fallback.to_owned(),
        ),
        (
            "a named requirement",
            "{name: j, typed_config: {'@type': t/v3.JwtAuthentication, rules: [{match: {prefix: /}, requirement_name: a, requires: {requires_all: {requirements: []}}}]}}",
            fallback.to_owned(),
        ),
        (
            "a rule with a regular expression",
            "{name: j, typed_config: {'@type': t/v3.JwtAuthentication, rules: [{match: {safe_regex: {regex: '.*'}}}]}}",
            fallback.to_owned(),
        ),
    ] {
        let migration = translated(&bootstrap(filters, &routes_of));
        let text = routes(&migration);
        assert_eq!(text.matches("[[route]]").count(), 1, "{what}\n{text}");
        assert!(!text.contains("upstream"), "{what}\n{text}");
        assert!(text.contains(closed), "{what}\n{text}");
        assert!(!without_equal(&migration).is_empty(), "{what}");
    }
}

/// With an issuer there are callers, but none of them is in the group.
#[test]
fn a_closed_route_needs_a_group_that_nobody_is_in() {
    let text = JWT.replace("requires: { provider_name: example }", "requires: { requires_all: {} }");
    let text = routes(&translated(&text));
    assert_eq!(text.matches("policy = { allow = [{ groups = [\"nobody\"] }] }").count(), 6, "{text}");
    assert_eq!(text.matches("public = true").count(), 0, "{text}");
}

/// `/api` is a prefix of `/apix` in Envoy, which is another route here.
#[test]
fn a_prefix_that_begins_other_names_opens_none_of_them() {
    let jwt = |rest: &str| {
        format!(
            "{{name: j, typed_config: {{'@type': t/v3.JwtAuthentication, providers: {{}}, rules: [{{match: {{prefix: /api}}, requires: {{provider_name: a}}}}{rest}]}}}}"
        )
    };
    let all = "{match: {prefix: /}, route: {cluster: app}}";
    let open = routes(&translated(&bootstrap(&jwt(""), all)));
    let first = open.split("[[route]]").nth(1).unwrap();
    assert!(first.contains("prefix = \"/\"") && first.contains("status = 403"), "{open}");
    let same =
        routes(&translated(&bootstrap(&jwt(", {match: {prefix: /}, requires: {provider_name: a}}"), all)));
    assert_eq!(same.matches("[[route]]").count(), 1, "{same}");
    assert!(same.contains("issuers = [\"a\"]"), "{same}");
}

#[test]
fn a_route_that_gets_no_requests_is_left_out() {
    let two = format!(
        "{{match: {{prefix: /}}, route: {{cluster: app}}}}, {{match: {{path: /x}}, route: {{cluster: app}}, {OPEN}}}"
    );
    let migration = translated(&bootstrap(ASKS, &two));
    assert_eq!(routes(&migration).matches("[[route]]").count(), 1);
    assert_eq!(without_equal(&migration), ["route all-2"]);
}

/// What a listener asks of connections closes its routes, if it is not translated.
#[test]
fn a_listener_that_refuses_connections_closes() {
    let open = bootstrap("", "{match: {prefix: /}, route: {cluster: app}}");
    let chain = "    filter_chains:\n    - filters:\n";
    assert!(open.contains(chain));
    let tls = |more: &str| {
        format!(
            "    filter_chains:\n    - transport_socket: {{typed_config: {{'@type': t/v3.DownstreamTlsContext, {more}}}}}\n      filters:\n"
        )
    };
    for (what, changed) in [
        ("a network filter", format!("{chain}      - typed_config: {{'@type': t/v3.RBAC}}\n")),
        ("addresses", "    filter_chains:\n    - filter_chain_match: {source_prefix_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}\n      filters:\n".to_owned()),
        ("a secret of SDS", tls("require_client_certificate: true, common_tls_context: {combined_validation_context: {}}")),
        ("names", tls("require_client_certificate: true, common_tls_context: {validation_context: {trusted_ca: {filename: ca.pem}, match_typed_subject_alt_names: [{san_type: DNS}]}}")),
    ] {
        let seen = routes(&translated(&open.replace(chain, &changed)));
        assert!(seen.contains("status = 403") && !seen.contains("upstream"), "{what}\n{seen}");
    }
    assert!(routes(&translated(&open)).contains("upstream"));
}

#[test]
fn what_is_said_to_filters_for_a_whole_host_closes_it() {
    let text = bootstrap("", "{match: {prefix: /}, route: {cluster: app}}");
    let text = text.replace("- name: all\n", "- name: all\n              typed_per_filter_config: {j: {'@type': t/v3.PerRouteConfig, requirement_name: a}}\n");
    let seen = routes(&translated(&text));
    assert!(seen.contains("status = 403"), "{seen}");
}

/// Routes serve every listener here, so those of one could be reached at the other.
#[test]
fn one_listener_at_a_time() {
    let listener = |port: u16, route: &str| {
        format!(
            "  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}\n    filter_chains: [{{filters: [{{typed_config: {{'@type': t/v3.HttpConnectionManager, route_config: {{virtual_hosts: [{{name: a, domains: ['*'], routes: [{route}]}}]}}}}}}]}}]\n"
        )
    };
    let forwards = "{match: {prefix: /}, direct_response: {status: 200}}";
    let both = |first: &str| {
        format!("static_resources:\n  listeners:\n{}{}", listener(1, first), listener(2, forwards))
    };
    let migration = translated(&both("{match: {prefix: /}, redirect: {https_redirect: true}}"));
    assert!(
        migration
            .configuration
            .contains("address = \"127.0.0.1:1\"  # listener listener-1\nhttps_redirect = true"),
        "{}",
        migration.configuration
    );
    assert_eq!(routes(&migration).matches("[[route]]").count(), 1);
    let fault = translate("envoy.yaml", &both(forwards)).unwrap_err().to_string();
    assert!(fault.starts_with("envoy.yaml: several listeners have routes"), "{fault}");
}

#[test]
fn a_file_without_a_listener_is_a_fault() {
    for (text, expected) in [
        ("static_resources: {}", "envoy.yaml: it has no static listener with an HTTP connection manager"),
        ("a: [", "envoy.yaml"),
    ] {
        let fault = translate("envoy.yaml", text).unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn several_clusters_and_mirrors_are_kept() {
    let share = "runtime_fraction: {default_value: {numerator: 5, denominator: TEN_THOUSAND}}";
    let split = format!(
        "{{match: {{prefix: /}}, route: {{host_rewrite_literal: App.internal, timeout: 1s, \
         weighted_clusters: {{clusters: [{{name: app, weight: 9}}, {{name: next, weight: 1, request_headers_to_add: []}}]}}, \
         request_mirror_policies: [{{cluster: next, {share}}}, {{cluster: app}}, {{cluster: gone}}]}}}}"
    );
    let gone = "{match: {prefix: /gone}, route: {weighted_clusters: {clusters: [{name: app, weight: 1}, {name: gone, weight: 1}]}}}";
    let next = "  - name: next
    load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8082}}}}]}]}
";
    let migration = translated(&(bootstrap("", &split) + next));
    let expected = "\
upstreams = [{ upstream = \"app\", weight = 9 }, { upstream = \"next\", weight = 1 }]
request_timeout = \"1s\"
rewrite_host = \"app.internal\"
mirror = [{ fraction = { denominator = 10000, numerator = 5 }, upstream = \"next\" }, { upstream = \"app\" }]";
    assert!(routes(&migration).contains(expected), "{}", routes(&migration));
    let missing = without_equal(&migration);
    assert!(missing.iter().any(|setting| setting.starts_with("request_mirror_policies of")), "{missing:?}");
    assert!(missing.iter().any(|setting| setting.starts_with("request_headers_to_add of")), "{missing:?}");
    assert_eq!(missing.len(), 2, "{missing:?}");
    let migration = translated(&bootstrap("", gone));
    assert_eq!(without_equal(&migration).len(), 1, "a share without a cluster is not translated");
}
