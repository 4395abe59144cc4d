//! kube-rbac-proxy: notebooks and models of Open Data Hub, metrics of operators, JWTs of an issuer.

use migrate::files::ContainerFiles;
use migrate::kube_rbac_proxy::{SYNTAX, translate};
use migrate::report::Translation;
use migrate::{Migration, manifest};

/// The pod of a notebook as its webhook changes it, shortened to what matters.
const NOTEBOOK: &str = include_str!("notebook.yaml");

fn arguments(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

fn translated(given: &[&str], files: &[(&str, &str)]) -> Migration {
    let mut known = ContainerFiles::default();
    for (path, text) in files {
        known.add(*path, *text);
    }
    translate(&arguments(given), &known).unwrap()
}

fn fault(given: &[&str]) -> String {
    translate(&arguments(given), &ContainerFiles::default()).unwrap_err().to_string()
}

/// The lines of a configuration without comments.
fn lines(migration: &Migration) -> Vec<&str> {
    let lines = migration.configuration.lines().map(|line| line.split("  # ").next().unwrap_or(line));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The outcome of the setting that begins with this text.
fn outcome<'m>(migration: &'m Migration, setting: &str) -> &'m Translation {
    let mut entries = migration.report.entries.iter();
    &entries.find(|entry| entry.setting.starts_with(setting)).unwrap_or_else(|| panic!("{setting}")).outcome
}

const MINIMAL: [&str; 4] = [
    "--secure-listen-address=:8443",
    "--upstream=http://127.0.0.1:8080/",
    "--tls-cert-file=cert.pem",
    "--tls-private-key-file=key.pem",
];

#[test]
fn a_notebook_s_sidecar() {
    let manifests = [("notebook.yaml".to_owned(), NOTEBOOK.to_owned())];
    let found = manifest::find(&manifests, None, SYNTAX.program).unwrap();
    assert_eq!(found.name, "kube-rbac-proxy");
    let migration = translate(&found.arguments, &found.files).unwrap();
    let expected = "\
[[listener]]
name = \"https\"
address = \"0.0.0.0:8443\"
tls = { certificate = \"/etc/tls/private/tls.crt\", key = \"/etc/tls/private/tls.key\" }
[[listener]]
name = \"probes\"
address = \"0.0.0.0:8444\"
tls = { certificate = \"/etc/tls/private/tls.crt\", key = \"/etc/tls/private/tls.key\" }
[[route]]
name = \"healthz\"
path = { exact = \"/healthz\" }
public = true
respond = { body = \"ok\", status = 200 }
[[token_authority]]
name = \"cluster\"
kind = \"token-review\"
url = \"https://kubernetes.default.svc\"
ca = \"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\"
token_file = \"/var/run/secrets/kubernetes.io/serviceaccount/token\"
issuers = [\"https://kubernetes.default.svc.cluster.local\"]
prefixes = [\"sha256~\"]
any_audience = true
[kubernetes]
url = \"https://kubernetes.default.svc\"
token_authorities = [\"cluster\"]
[identity_headers]
style = \"none\"
fields = { X-Auth-Request-Groups = \"groups\", X-Auth-Request-User = \"user\" }
[[upstream]]
name = \"upstream\"
endpoints = [\"http://127.0.0.1:8888\"]
[[route]]
name = \"reviewed\"
upstream = \"upstream\"
access_review = { api_group = \"kubeflow.org\", name = \"mine\", namespace = \"team-a\", resource = \"notebooks\", verb = \"get\" }
request_timeout = \"unlimited\"
response_header_timeout = \"unlimited\"
body_size = \"unlimited\"";
    assert_eq!(lines(&migration).join("\n"), expected);
    assert_eq!(*outcome(&migration, "--upstream http"), Translation::Translated);
    assert!(
        matches!(outcome(&migration, "--logtostderr"), Translation::NoEqual(why) if why.contains("nothing is lost"))
    );
    assert!(
        matches!(outcome(&migration, "resourceAttributes"), Translation::Different(why) if why.contains("`verb`"))
    );
}

#[test]
fn every_flag_ends_in_the_report() {
    let list = include_str!("kube-rbac-proxy.flags");
    let flags: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(flags.len(), SYNTAX.flags().count());
    let file = "{\"authorization\": {}}";
    for flag in flags {
        assert!(SYNTAX.flags().any(|known| known.name == flag), "{flag}");
        let value = match flag {
            "insecure-listen-address" | "secure-listen-address" => "127.0.0.1:9",
            "upstream" => "https://a:1",
            "upstream-timeout" | "tls-reload-interval" => "30s",
            "config-file" => "file",
            "allow-paths" | "ignore-paths" => "/a",
            "proxy-endpoints-port" | "http2-max-concurrent-streams" | "kube-api-qps" => "9",
            "tls-min-version" => "VersionTLS13",
            "tls-cipher-suites" => "TLS_RSA_WITH_AES_128_CBC_SHA",
            _ if SYNTAX
                .flags()
                .any(|known| known.name == flag && known.kind == migrate::flags::FlagKind::Switch) =>
            {
                "true"
            }
            _ => "x",
        };
        let own = format!("--{flag}={value}");
        let mut given: Vec<&str> =
            MINIMAL.iter().copied().filter(|other| !other.starts_with(&format!("--{flag}="))).collect();
        given.push(&own);
        match flag {
            "oidc-issuer" => given.push("--oidc-clientID=x"),
            _ if flag.starts_with("oidc-") => given.extend(["--oidc-issuer=https://x", "--oidc-clientID=x"]),
            _ => {}
        }
        let migration = translated(&given, &[("file", file)]);
        let reported =
            migration.report.entries.iter().filter(|entry| entry.setting.starts_with(&format!("--{flag}")));
        assert_eq!(reported.count(), 1, "{flag}: {}", migration.report);
        assert!(!migration.report.to_string().contains("not read here"), "{flag}");
    }
}

#[test]
fn paths_that_need_no_review_or_are_the_only_ones() {
    let ignored = translated(&[&MINIMAL[..], &["--ignore-paths=/healthz,/api/*/open,/v*"]].concat(), &[]);
    let text = lines(&ignored).join("\n");
    assert!(text.contains("name = \"ignored-1\"\npath = { exact = \"/healthz\" }\nupstream = \"upstream\"\npublic = true\nforward_authorization = true"), "{text}");
    assert!(text.contains("path = { template = \"/api/{s1}/open\" }"), "{text}");
    assert!(
        text.contains("name = \"reviewed\"\nupstream = \"upstream\"\naccess_review = { path = \"{path}\" }"),
        "{text}"
    );
    let Translation::NoEqual(why) = outcome(&ignored, "--ignore-paths /v*") else { panic!() };
    assert!(why.contains("need a credential and a review"), "{why}");
    let allowed = translated(&[&MINIMAL[..], &["--allow-paths=/metrics"]].concat(), &[]);
    let text = lines(&allowed).join("\n");
    assert!(
        text.contains("name = \"allowed-1\"\npath = { exact = \"/metrics\" }") && !text.contains("reviewed"),
        "{text}"
    );
}

#[test]
fn values_of_a_request_are_reviewed() {
    let file = "authorization:\n  rewrites:\n    byQueryParameter: {name: namespace}\n  resourceAttributes:\n    apiGroup: metrics.k8s.io\n    resource: pods\n    namespace: '{{ .Value }}'\n";
    let migration = translated(&[&MINIMAL[..], &["--config-file=/c"]].concat(), &[("/c", file)]);
    let text = lines(&migration).join("\n");
    let review = "access_review = { api_group = \"metrics.k8s.io\", namespace = \"{query.namespace}\", resource = \"pods\" }";
    assert!(text.contains(review), "{text}");
    let without = file.replace("    byQueryParameter: {name: namespace}\n", "");
    let mut files = ContainerFiles::default();
    files.add("/c", without);
    let fault = translate(&arguments(&[&MINIMAL[..], &["--config-file=/c"]].concat()), &files).unwrap_err();
    assert!(fault.to_string().contains("is a template that has no value"), "{fault}");
}

#[test]
fn static_rules() {
    let file = "authorization:\n  resourceAttributes: {resource: services, subresource: proxy, namespace: a}\n  static:\n  - {user: {name: 'system:serviceaccount:monitoring:prometheus'}, verb: get, resource: services, resourceRequest: true}\n  - {verb: get, resource: pods, resourceRequest: true}\n  - {path: /metrics, resourceRequest: false}\n";
    let migration = translated(&[&MINIMAL[..], &["--config-file=/c"]].concat(), &[("/c", file)]);
    let text = lines(&migration).join("\n");
    let rule = "policy = { allow = [{ methods = [\"GET\"], users = [\"system:serviceaccount:monitoring:prometheus\"] }] }";
    assert!(text.contains(rule), "{text}");
    for at in [1, 2] {
        let Translation::Different(why) = outcome(&migration, &format!("static[{at}]")) else { panic!() };
        assert!(why.contains("nothing is lost"), "{why}");
    }
    let by_path = "authorization:\n  static:\n  - {user: {name: p}, verb: get, path: /metrics, resourceRequest: false}\n";
    let migration = translated(&[&MINIMAL[..], &["--config-file=/c"]].concat(), &[("/c", by_path)]);
    let text = lines(&migration).join("\n");
    assert!(text.contains("name = \"static-1\"\npath = { exact = \"/metrics\" }\nupstream = \"upstream\"\npolicy = { allow = [{ methods = [\"GET\"], users = [\"p\"] }] }\naccess_review = { path = \"{path}\" }"), "{text}");
}

#[test]
fn jwts_of_an_issuer_replace_token_reviews() {
    let oidc = [
        "--oidc-issuer=https://id.example",
        "--oidc-clientID=kubernetes",
        "--oidc-username-claim=sub",
        "--oidc-username-prefix=oidc:",
        "--oidc-sign-alg=ES256",
        "--client-ca-file=clients.pem",
    ];
    let migration = translated(&[&MINIMAL[..], &oidc[..]].concat(), &[]);
    let text = lines(&migration).join("\n");
    assert!(text.contains("issuer = \"https://id.example\"\naudiences = [\"kubernetes\"]\nid_tokens = true\ntoken_types = \"untyped\"\nalgorithms = [\"ES256\"]\n[issuer.claims]\nuser = [\"sub\"]\ngroups = [\"groups\"]"), "{text}");
    assert!(text.contains("user_prefix = \"oidc:\""), "{text}");
    assert!(!text.contains("token_authority") && !text.contains("[client_certificates]"), "{text}");
    assert!(matches!(outcome(&migration, "--client-ca-file"), Translation::Different(_)));
}

#[test]
fn certificates_are_a_credential() {
    let migration = translated(&[&MINIMAL[..], &["--client-ca-file=clients.pem"]].concat(), &[]);
    let text = lines(&migration).join("\n");
    assert!(text.contains("client_ca = \"clients.pem\", client_certificates = \"optional\""), "{text}");
    assert!(
        text.contains("[client_certificates]\nsubject = \"subject_cn\"\ngroups = [\"subject_o\"]"),
        "{text}"
    );
    assert_eq!(*outcome(&migration, "--client-ca-file"), Translation::Translated);
}

#[test]
fn what_the_program_refuses_is_refused() {
    let minimal = |more: &[&str]| fault(&[&MINIMAL[..], more].concat());
    for (seen, expected) in [
        (
            minimal(&["--allow-paths=/a", "--ignore-paths=/b"]),
            "--allow-paths excludes --ignore-paths; the program does not start with these settings",
        ),
        (
            fault(&MINIMAL[1..]),
            "neither --secure-listen-address nor --insecure-listen-address is set; the program does not start with these settings",
        ),
        (
            fault(&MINIMAL[..3]),
            "--tls-cert-file and --tls-private-key-file need each other; the program does not start with these settings",
        ),
        (
            minimal(&["--config-file=/etc/c.yaml"]),
            "--config-file: the file /etc/c.yaml is not here; give it with --file /etc/c.yaml=LOCAL_PATH, or its ConfigMap with --manifest",
        ),
        (
            minimal(&["--upstreem=x"]),
            "kube-rbac-proxy has no flag --upstreem; check its spelling, and that the arguments are of kube-rbac-proxy",
        ),
        (
            minimal(&["--tls-min-version=1.2"]),
            "--tls-min-version: \"1.2\" is not a version such as VersionTLS12",
        ),
    ] {
        assert_eq!(seen, expected);
    }
}
