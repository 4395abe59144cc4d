//! Istio: tokens of an issuer, paths with rules of their own, denials, and what cannot be said.

use migrate::istio::translate;
use migrate::report::Translation;
use migrate::{Migration, SecretFile};

fn translated(text: &str) -> Migration {
    let manifests = [("mesh.yaml".to_owned(), text.to_owned())];
    translate(&manifests, "http://127.0.0.1:8080").unwrap_or_else(|fault| panic!("{fault}"))
}

/// The lines of the routes, without comments.
fn routes(migration: &Migration) -> String {
    let lines = migration.configuration.lines().map(|line| line.split("  # ").next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let text = lines.join("\n");
    text[text.find("[[route]]").unwrap()..].to_owned()
}

const AUTHENTICATION: &str = include_str!("istio.yaml");

#[test]
fn only_callers_with_a_token_and_a_claim_pass() {
    let policy = "---
kind: AuthorizationPolicy
metadata: {name: orders}
spec:
  action: ALLOW
  rules:
  - from: [{source: {requestPrincipals: ['https://id.example//*']}}]
    to: [{operation: {methods: [GET], paths: [/orders/*]}}]
    when: [{key: 'request.auth.claims[realm][roles]', values: [staff]}]
  - to: [{operation: {paths: [/healthz]}}]
";
    let migration = translated(&format!("{AUTHENTICATION}{policy}"));
    let expected = "\
[[route]]
name = \"route-1\"
policy = { allow = [{ groups = [\"nobody\"] }] }
upstream = \"workload\"
forward_authorization = true
request_timeout = \"unlimited\"
[[route]]
name = \"route-2\"
path = { prefix = \"/orders\" }
policy = { allow = [{ claims = { \"realm.roles\" = [\"staff\"] }, issuers = [\"issuer-1\"], methods = [\"GET\"] }] }
upstream = \"workload\"
forward_authorization = true
request_timeout = \"unlimited\"
[[route]]
name = \"route-3\"
path = { exact = \"/healthz\" }
public = true
upstream = \"workload\"
request_timeout = \"unlimited\"
[[route]]
name = \"route-4\"
path = { exact = \"/orders\" }
policy = { allow = [{ groups = [\"nobody\"] }] }
upstream = \"workload\"
forward_authorization = true
request_timeout = \"unlimited\"";
    assert_eq!(routes(&migration), expected);
    assert!(migration.configuration.contains("fields = { x-tenant = \"claims.tenant\" }"));
    assert!(migration.configuration.contains("jwks_uri = \"https://id.example/keys\""));
}

#[test]
fn a_rule_also_applies_to_the_paths_within_its_own() {
    let policy = "
kind: AuthorizationPolicy
metadata: {name: orders}
spec:
  rules:
  - from: [{source: {requestPrincipals: ['*']}}]
    to: [{operation: {paths: [/api/*]}}]
  - from: [{source: {ipBlocks: [10.0.0.0/8], requestPrincipals: ['*']}}]
    to: [{operation: {paths: [/api/admin/*]}}]
---
kind: AuthorizationPolicy
metadata: {name: no}
spec:
  action: DENY
  rules: [{to: [{operation: {methods: [DELETE]}}]}]
";
    let seen = routes(&translated(policy));
    let admin = "path = { prefix = \"/api/admin\" }\npolicy = { allow = [{ authenticated = true }, { addresses = [\"10.0.0.0/8\"], authenticated = true }], deny = [{ methods = [\"DELETE\"] }] }";
    assert!(seen.contains(admin), "{seen}");
}

#[test]
fn what_cannot_be_said_lets_nobody_in() {
    let policy = "
kind: AuthorizationPolicy
metadata: {name: mesh}
spec:
  rules:
  - from: [{source: {principals: [cluster.local/ns/a/sa/b]}}]
  - to: [{operation: {notPaths: [/admin]}}]
  - when: [{key: 'request.headers[x-token]', values: [a]}]
---
kind: AuthorizationPolicy
metadata: {name: no}
spec:
  action: DENY
  rules: [{from: [{source: {notPrincipals: ['*']}}]}]
";
    let migration = translated(policy);
    let seen = routes(&migration);
    assert!(
        seen.contains("allow = [{ groups = [\"nobody\"] }], deny = [{ authenticated = true }]"),
        "{seen}"
    );
    let lost =
        migration.report.entries.iter().filter(|entry| matches!(entry.outcome, Translation::NoEqual(_)));
    assert_eq!(lost.count(), 4);
}

/// Where a denial is of those who do not meet a condition, whoever passes must meet it.
#[test]
fn a_denial_of_all_others_demands_what_they_do_not_have() {
    let with = |deny: &str, allow: &str| {
        let policy = format!(
            "---\nkind: AuthorizationPolicy\nmetadata: {{name: no}}\nspec:\n  action: DENY\n  rules: [{deny}]\n{allow}"
        );
        routes(&translated(&format!("{AUTHENTICATION}{policy}")))
    };
    let allow = "---\nkind: AuthorizationPolicy\nmetadata: {name: yes}\nspec:\n  rules: [{when: [{key: 'request.auth.claims[a]', values: [x]}]}, {to: [{operation: {methods: [GET]}}]}]\n";
    let token = "{from: [{source: {notRequestPrincipals: ['*']}}]}";
    let north = "{when: [{key: 'request.auth.claims[b]', notValues: [north]}]}";
    let office = "{from: [{source: {notRemoteIpBlocks: [192.0.2.0/24]}}]}";
    for (deny, allow, expected) in [
        (token, "", "policy = { allow = [{ authenticated = true }] }"),
        (north, "", "policy = { allow = [{ claims = { b = [\"north\"] } }] }"),
        (office, "", "policy = { allow = [{ addresses = [\"192.0.2.0/24\"], authenticated = true }] }"),
        (
            north,
            allow,
            "policy = { allow = [{ claims = { a = [\"x\"], b = [\"north\"] } }, { claims = { b = [\"north\"] }, methods = [\"GET\"] }] }",
        ),
        (
            token,
            allow,
            "policy = { allow = [{ claims = { a = [\"x\"] } }, { authenticated = true, methods = [\"GET\"] }] }",
        ),
        // The same claim twice is no rule: it lets nobody in.
        (
            "{when: [{key: 'request.auth.claims[a]', notValues: [north]}]}",
            "---\nkind: AuthorizationPolicy\nmetadata: {name: yes}\nspec:\n  rules: [{when: [{key: 'request.auth.claims[a]', values: [x]}]}]\n",
            "policy = { allow = [{ groups = [\"nobody\"] }] }",
        ),
    ] {
        let seen = with(deny, allow);
        assert!(seen.contains(expected), "{deny}\n{seen}");
        assert!(!seen.contains("public"), "{seen}");
    }
    // With methods it demands something of some requests only, and denies more instead.
    let some = "{from: [{source: {notRequestPrincipals: ['*']}}], to: [{operation: {methods: [POST]}}]}";
    let seen = with(some, "");
    assert!(seen.contains("deny = [{ methods = [\"POST\"] }]"), "{seen}");
}

/// What is left of a denial denies more, never less.
#[test]
fn a_denial_never_gets_narrower() {
    let denial = |rule: &str| {
        let policy = format!(
            "\nkind: AuthorizationPolicy\nmetadata: {{name: no}}\nspec:\n  action: DENY\n  rules: [{rule}]\n---\nkind: AuthorizationPolicy\nmetadata: {{name: yes}}\nspec:\n  rules: [{{to: [{{operation: {{hosts: [a.example]}}}}], from: [{{source: {{requestPrincipals: ['*']}}}}]}}]\n"
        );
        routes(&translated(&format!("{AUTHENTICATION}---{policy}")))
    };
    let all = "deny = [{ authenticated = true }]";
    for (what, rule, expected) in [
        ("a path", "{to: [{operation: {paths: ['/admin*', /x]}}]}", all),
        (
            "an unknown issuer",
            "{from: [{source: {requestPrincipals: [https://other.example/a, 'https://id.example//b']}}]}",
            all,
        ),
        (
            "hosts",
            "{to: [{operation: {hosts: ['*.example'], methods: [PUT]}}]}",
            "deny = [{ methods = [\"PUT\"] }]",
        ),
        ("a host with a wildcard in it", "{to: [{operation: {hosts: ['a.*']}}]}", all),
        (
            "a name with dots",
            "{when: [{key: 'request.auth.claims[https://x.y/roles]', values: [a]}]}",
            "deny = [{ claims = { \"/https:~1~1x.y~1roles\" = [\"a\"] } }]",
        ),
        (
            "two claims",
            "{when: [{key: 'request.auth.claims[a]', values: [x]}, {key: 'request.auth.claims[b]', values: [z]}]}",
            "deny = [{ claims = { a = [\"x\"], b = [\"z\"] } }]",
        ),
        (
            "one key twice",
            "{from: [{source: {ipBlocks: [10.0.0.0/8]}}], when: [{key: source.ip, values: [10.1.0.0/16]}]}",
            "deny = [{ addresses = [\"10.0.0.0/8\"] }]",
        ),
    ] {
        let seen = denial(rule);
        let of_host = seen.split("[[route]]").find(|route| route.contains("a.example")).unwrap();
        assert!(of_host.contains(expected), "{what}\n{seen}");
    }
}

#[test]
fn an_external_authorizer_is_a_denial_until_it_is_written() {
    let policy = "---\nkind: AuthorizationPolicy\nmetadata: {name: ask}\nspec:\n  action: CUSTOM\n  provider: {name: x}\n  rules: [{}]\n";
    let migration = translated(&format!("{AUTHENTICATION}{policy}"));
    assert!(routes(&migration).contains("deny = [{ authenticated = true }]"), "{}", routes(&migration));
}

#[test]
fn two_conditions_on_one_value_are_a_rule_to_write() {
    let policy = "---\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec:\n  rules: [{from: [{source: {ipBlocks: [10.0.0.0/8], remoteIpBlocks: [192.0.2.0/24], requestPrincipals: ['*']}}]}]\n";
    let migration = translated(&format!("{AUTHENTICATION}{policy}"));
    assert!(routes(&migration).contains("groups = [\"nobody\"]"), "{}", routes(&migration));
}

#[test]
fn without_a_policy_everybody_passes() {
    let text = AUTHENTICATION.replace("jwksUri: https://id.example/keys", "jwks: '{\"keys\": []}'");
    let migration = translated(&text);
    assert!(
        routes(&migration).starts_with("[[route]]\nname = \"route-1\"\npublic = true"),
        "{}",
        routes(&migration)
    );
    let keys = SecretFile { name: "issuer-1.jwks.json", content: Some("{\"keys\": []}".into()) };
    assert_eq!(migration.secrets, [keys]);
    let nothing = translate(&[("a".into(), "kind: Pod".into())], "x").unwrap_err();
    assert!(nothing.to_string().starts_with("the manifests have neither"), "{nothing}");
}
