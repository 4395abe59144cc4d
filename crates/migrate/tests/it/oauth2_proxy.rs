//! oauth2-proxy and kube-auth-proxy: a file, flags, a Deployment, and a proxy that only answers checks.

use migrate::files::ContainerFiles;
use migrate::flags::FlagKind;
use migrate::oauth2_proxy::{Oauth2ProxyKind, Source, translate};
use migrate::report::Translation;
use migrate::{Migration, SecretFile, manifest};

use Oauth2ProxyKind::{KubeAuthProxy, Oauth2Proxy};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn translated(kind: Oauth2ProxyKind, arguments: &[&str], files: &[(&str, &str)]) -> Migration {
    let arguments = strings(arguments);
    let mut source = Source { arguments: &arguments, ..Source::default() };
    for (path, text) in files {
        source.files.add(*path, *text);
    }
    translate(kind, &source).unwrap_or_else(|fault| panic!("{fault}"))
}

fn fault(arguments: &[&str]) -> String {
    let arguments = strings(arguments);
    translate(Oauth2Proxy, &Source { arguments: &arguments, ..Source::default() }).unwrap_err().to_string()
}

/// The lines of a configuration without comments.
fn text(migration: &Migration) -> String {
    let lines = migration.configuration.lines().map(|line| line.split("  # ").next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    lines.join("\n")
}

const MINIMAL: [&str; 6] = [
    "--provider=oidc",
    "--oidc-issuer-url=https://id.example/realms/main",
    "--client-id=app",
    "--client-secret=change-me",
    "--email-domain=*",
    "--redirect-url=https://app.example/oauth2/callback",
];

#[test]
fn a_file_for_an_application() {
    let file = include_str!("application.cfg");
    let migration =
        translated(Oauth2Proxy, &["--config=/etc/oauth2-proxy.cfg"], &[("/etc/oauth2-proxy.cfg", file)]);
    assert_eq!(text(&migration), include_str!("application.toml").trim_end());
    let secret = SecretFile { name: "login.secret", content: Some("change-me\n".into()) };
    assert_eq!(migration.secrets, [SecretFile { name: "login.keys", content: None }, secret]);
    assert!(
        !migration.report.to_string().contains("change-me") && !migration.configuration.contains("change-me")
    );
    assert!(!migration.report.to_string().contains("0123456789abcdef"));
    let lost: Vec<&str> = migration
        .report
        .entries
        .iter()
        .filter(|entry| matches!(entry.outcome, Translation::NoEqual(_)))
        .map(|entry| &*entry.setting)
        .collect();
    assert_eq!(lost, ["skip_auth_routes of /etc/oauth2-proxy.cfg ^/v[0-9]+/open"]);
}

#[test]
fn flags_count_before_variables_and_these_before_the_file() {
    let arguments = strings(&[
        "--config=/c",
        "--client-id=of-flag",
        "--provider=oidc",
        "--oidc-issuer-url=https://id.example",
        "--email-domain=*",
    ]);
    let environment = [
        ("OAUTH2_PROXY_CLIENT_ID".to_owned(), "of-variable".to_owned()),
        ("OAUTH2_PROXY_ALLOWED_GROUPS".to_owned(), "a,b".to_owned()),
        ("PATH".to_owned(), "/bin".to_owned()),
    ];
    let mut source =
        Source { arguments: &arguments, environment: &environment, files: ContainerFiles::default() };
    source.files.add("/c", "client_id = \"of-file\"\nallowed_groups = [\"c\"]\nscope = \"openid\"\n");
    let migration = translate(Oauth2Proxy, &source).unwrap();
    let text = text(&migration);
    assert!(text.contains("client_id = \"of-flag\"") && text.contains("scopes = [\"openid\"]"), "{text}");
    assert!(text.contains("groups = [\"a\", \"b\"]"), "{text}");
}

#[test]
fn a_structured_file_is_read_as_flags() {
    let file = include_str!("structured.yaml");
    let arguments = [
        "--alpha-config=/alpha",
        "--email-domain=*",
        "--redirect-url=https://app.example/oauth2/callback",
        "--skip-provider-button",
    ];
    let migration = translated(Oauth2Proxy, &arguments, &[("/alpha", file)]);
    let seen = text(&migration);
    for expected in [
        "address = \"0.0.0.0:8443\"\ntls = { certificate = \"/etc/tls/private/tls.crt\", key = \"/etc/tls/private/tls.key\", min_version = \"1.3\" }",
        "[admin]\naddress = \"127.0.0.1:44180\"",
        "name = \"provider\"\ntitle = \"Example\"\nurl = \"https://id.example/realms/main\"\nclient_id = \"app\"",
        "scopes = [\"openid\", \"email\", \"groups\"]\nparameters = { prompt = \"login\" }",
        "[login.provider.claims]\ngroups = [\"roles\"]",
        "[identity_headers]\nstyle = \"none\"\nfields = { X-Forwarded-User = \"subject\", X-Tenant = \"claims.tenant\" }",
        "endpoints = [\"http://127.0.0.1:8080\"]\ntimeouts = { response_header = \"45s\" }",
        "path = { prefix = \"/api\" }\nlogin = true\npolicy = { allow = [{ groups = [\"staff\"], issuers = [\"provider\"] }] }\nupstream = \"application-2\"\nforward_access_token = true\nrequest_headers = { set = { Authorization = \"Bearer {id_token}\" } }\npreserve_host = false",
    ] {
        assert!(seen.contains(expected), "{expected}\n{seen}");
    }
    assert!(!seen.contains("8082"), "{seen}");
    let report = migration.report.to_string();
    assert!(!report.contains("hidden") && !report.contains("change-me"), "{report}");
    let lost =
        migration.report.entries.iter().filter(|entry| matches!(entry.outcome, Translation::NoEqual(_)));
    let lost: Vec<&str> = lost.map(|entry| &*entry.setting).collect();
    let expected = [
        "injectRequestHeaders[4] X-Fixed",
        "providers[0].loginURLParameters[1] domain_hint",
        "upstreamConfig.upstreams[2] ^/old/(.*)$",
        "providers[0].githubConfig.token …",
    ];
    assert_eq!(lost, expected);
}

/// Who a flag lets in is asked by nobody here, so nobody passes.
#[test]
fn a_cookie_of_a_domain_is_one_session_for_its_hosts() {
    let with = |more: &[&str]| translated(Oauth2Proxy, &[&MINIMAL, more].concat(), &[]);
    let shared = with(&[
        "--cookie-domain=.example,example.com",
        "--cookie-domain=.app.example",
        "--whitelist-domain=.app.example,other.example",
        "--cookie-samesite=none",
    ]);
    let written = text(&shared);
    for line in [
        r#"origins = ["https://app.example", "https://*.app.example"]"#,
        r#"cookie_domain = "app.example""#,
        r#"callback_origin = "https://app.example""#,
    ] {
        assert!(written.lines().any(|l| l == line), "{line}: {written}");
    }
    let report = shared.report.to_string();
    for expected in
        ["trust all of them", "any of `login.origins`", "which the callback is in", "frame_ancestors"]
    {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    let one_host = with(&["--cookie-domain=app.example"]);
    assert!(text(&one_host).contains(r#"origins = ["https://app.example"]"#), "{}", text(&one_host));
    assert!(one_host.report.to_string().contains("for this host alone"), "{}", one_host.report);
    let apart = text(&with(&["--cookie-domain=other.example", "--whitelist-domain=.example"]));
    assert!(apart.contains(r#"origins = ["https://app.example"]"#), "{apart}");
    assert!(!apart.contains("cookie_domain") && !apart.contains("callback_origin"), "{apart}");
}

#[test]
fn a_narrowing_that_has_no_equal_closes() {
    for flag in
        ["--google-group=admins@x", "--github-org=x", "--gitlab-project=a/b", "--entra-id-allowed-tenant=t"]
    {
        let seen =
            text(&translated(Oauth2Proxy, &[&MINIMAL[..], &[flag, "--upstream=http://a/"]].concat(), &[]));
        let rule = "policy = { allow = [{ groups = [\"nobody\"], issuers = [\"provider\"] }] }";
        assert!(seen.contains(rule), "{flag}\n{seen}");
    }
    let seen = text(&translated(Oauth2Proxy, &[&MINIMAL[..], &["--allowed-role=admin"]].concat(), &[]));
    assert!(seen.contains("groups = [\"role:admin\"]"), "a group `admin` has no role\n{seen}");
}

#[test]
fn no_secret_is_in_the_report() {
    let secrets = [
        "--redis-password=hidden",
        "--redis-connection-url=redis://:hidden@r/",
        "--signature-key=sha1:hidden",
        "--github-token=hidden",
        "--jwt-key=hidden",
        "--basic-auth-password=hidden",
        "--cookie-secret=hidden",
    ];
    let migration = translated(Oauth2Proxy, &[&MINIMAL[..], &secrets].concat(), &[]);
    let whole = format!("{}{}{}", migration.report, migration.report.markdown("x"), migration.configuration);
    assert!(!whole.contains("hidden"), "{whole}");
}

#[test]
fn a_deployment_with_secrets() {
    let manifests = [("login.yaml".to_owned(), include_str!("oauth2-proxy.yaml").to_owned())];
    let found = manifest::find(&manifests, None, "oauth2-proxy").unwrap();
    assert_eq!(found.secrets, [("OAUTH2_PROXY_CLIENT_SECRET".to_owned(), "login/client-secret".to_owned())]);
    assert!(
        found.arguments.contains(&"--redirect-url=https://shop.example/oauth2/callback".to_owned()),
        "{:?}",
        found.arguments
    );
    let source = Source { arguments: &found.arguments, environment: &found.environment, files: found.files };
    let migration = translate(Oauth2Proxy, &source).unwrap();
    let text = text(&migration);
    assert!(text.contains("url = \"https://accounts.google.com\""), "{text}");
    assert!(text.contains("{ emails = [\"ada@shop.example\", \"grace@shop.example\"] }"), "{text}");
}

#[test]
fn the_operators_of_open_data_hub() {
    // As the operator starts it: it only answers Envoy's checks.
    let common = [
        "--https-address=0.0.0.0:8443",
        "--tls-cert-file=tls.crt",
        "--tls-key-file=tls.key",
        "--upstream=static://200",
        "--email-domain=*",
        "--skip-provider-button",
        "--pass-access-token=true",
        "--set-xauthrequest=true",
        "--redirect-url=https://rh-ai.example/oauth2/callback",
        "--client-secret=x",
    ];
    let openshift = translated(
        KubeAuthProxy,
        &[
            &common[..],
            &[
                "--provider=openshift",
                "--scope=user:full",
                "--client-id=data-science",
                "--enable-k8s-token-validation=true",
            ],
        ]
        .concat(),
        &[],
    );
    let seen = text(&openshift);
    assert!(seen.contains("kind = \"openshift\"\nurl = \"https://kubernetes.default.svc\""), "{seen}");
    assert!(
        seen.contains("kind = \"token-review\"") && seen.contains("{ issuers = [\"cluster\"] }"),
        "{seen}"
    );
    assert!(seen.contains("respond = { body = \"Authenticated\", status = 200 }"), "{seen}");
    let oidc = translated(
        KubeAuthProxy,
        &[
            &common[..],
            &[
                "--provider=oidc",
                "--oidc-issuer-url=https://id.example",
                "--client-id=x",
                "--skip-jwt-bearer-tokens",
            ],
        ]
        .concat(),
        &[],
    );
    let seen = text(&oidc);
    assert!(seen.contains("[[issuer]]\nname = \"provider\"\nissuer = \"https://id.example\"\naudiences = [\"x\"]\nid_tokens = true"), "{seen}");
}

#[test]
fn every_flag_ends_in_the_report() {
    for kind in [Oauth2Proxy, KubeAuthProxy] {
        let syntax = kind.syntax();
        for flag in syntax.flags() {
            let value = match flag.name {
                _ if flag.kind == FlagKind::Switch => "true",
                "config" | "authenticated-emails-file" => "file",
                "alpha-config" => continue,
                "http-address" | "https-address" | "metrics-address" | "metrics-secure-address" => {
                    "127.0.0.1:9"
                }
                "cookie-expire" | "cookie-refresh" | "upstream-timeout" | "flush-interval" => "30s",
                "upstream" => "http://a:1/",
                "extra-jwt-issuers" => "https://a=b",
                "redirect-url" => "https://app.example/oauth2/callback",
                "oidc-issuer-url" => "https://id.example",
                "provider" => "oidc",
                "tls-min-version" => "TLS1.3",
                "tls-cipher-suite" => "TLS_AES_128_GCM_SHA256",
                _ => "x",
            };
            let own = format!("--{}={value}", flag.name);
            let prefix = format!("--{}=", flag.name);
            let mut given: Vec<&str> =
                MINIMAL.iter().copied().filter(|other| !other.starts_with(&prefix)).collect();
            given.push(&own);
            match flag.name {
                "tls-cert-file" => given.push("--tls-key-file=k"),
                "tls-key-file" => given.push("--tls-cert-file=c"),
                "email-domain" => given.push("--email-domain=*"),
                _ => {}
            }
            let migration = translated(kind, &given, &[("file", "")]);
            let mut seen = migration.report.entries.iter().filter(|entry| {
                entry.setting == format!("--{}", flag.name)
                    || entry.setting.starts_with(&format!("--{} ", flag.name))
            });
            assert!(seen.next().is_some(), "--{}: {}", flag.name, migration.report);
            assert!(
                !migration.report.to_string().contains("not read here"),
                "--{}: {}",
                flag.name,
                migration.report
            );
        }
    }
}

#[test]
fn the_flags_of_both_are_those_of_their_lists() {
    for (kind, list) in [
        (Oauth2Proxy, include_str!("oauth2-proxy.flags")),
        (KubeAuthProxy, include_str!("kube-auth-proxy.flags")),
    ] {
        let mut listed: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
        let syntax = kind.syntax();
        let mut known: Vec<&str> =
            syntax.flags().map(|flag| flag.name).filter(|name| *name != "help").collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "{}", syntax.program);
    }
}

#[test]
fn what_cannot_be_meant_is_a_fault() {
    for (arguments, expected) in [
        (
            &["--client-id=x", "--email-domain=*", "--colour=red"][..],
            "oauth2-proxy has no flag --colour; check its spelling, and that the arguments are of oauth2-proxy",
        ),
        (&["--email-domain=*"], "--client-id is not set; the program does not start with these settings"),
        (
            &["--client-id=x"],
            "none of --email-domain, --authenticated-emails-file and --htpasswd-file admits anybody; the program does not start with these settings",
        ),
        (
            &["--alpha-config=/a.yaml"],
            "--alpha-config: the file /a.yaml is not here; give it with --file /a.yaml=LOCAL_PATH, or its ConfigMap with --manifest",
        ),
        (
            &["-provider=oidc"],
            "oauth2-proxy has no flag -provider; check its spelling, and that the arguments are of oauth2-proxy",
        ),
    ] {
        assert_eq!(fault(arguments), expected);
    }
}
