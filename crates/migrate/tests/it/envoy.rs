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
name = \"shop-1-4\"
hosts = [\"shop.example\"]
path = { prefix = \"/\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
upstream = \"shop\"
request_timeout = \"unlimited\"
forward_authorization = true
[[route]]
name = \"shop-1-1\"
hosts = [\"shop.example\"]
path = { exact = \"/healthz\" }
public = true
upstream = \"shop\"
request_timeout = \"15s\"
[[route]]
name = \"shop-1-3\"
hosts = [\"shop.example\"]
path = { prefix = \"/old\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
redirect = { prefix = \"/new\", status = 308 }
[[route]]
name = \"shop-1-4-part-2\"
hosts = [\"shop.example\"]
path = { exact = \"/old\" }
policy = { allow = [{ issuers = [\"example\", \"machines\"] }] }
upstream = \"shop\"
request_timeout = \"unlimited\"
forward_authorization = true
[[route]]
name = \"shop-1-2\"
hosts = [\"shop.example\"]
path = { prefix = \"/orders\" }
policy = { allow = [{ issuers = [\"example\"] }] }
upstream = \"shop\"
replace_prefix = { from = \"/orders\", to = \"/v2/orders\" }
request_timeout = \"250ms\"
forward_authorization = true
[[route]]
name = \"shop-1-4-part-3\"
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
name = \"all-1-2\"
path = { prefix = \"/\" }
public = true
authorizer = \"authorizer-1\"
upstream = \"app\"
request_timeout = \"15s\"
[[route]]
name = \"all-1-1\"
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
    assert_eq!(without_equal(&migration), ["route all-1-2"]);
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
