//! Migrations: the translated configurations are accepted, and serve what the program served.

mod deployed;
mod operator;
mod pages;
mod played;
mod realms;
mod signed_in;
mod tour;
mod toured;

use migrate::files::ContainerFiles;
use migrate::oauth2_proxy::{Oauth2ProxyKind, Source};
use migrate::{envoy, istio, kube_rbac_proxy, oauth_proxy, oauth2_proxy};

use crate::support::load;

/// Paths in a container, and the files of the tests that stand for them.
const STAND_INS: [(&str, &str); 5] = [
    ("provider-1.jwks.json", "jwks.json"),
    ("/etc/tls/private/tls.crt", "cert.pem"),
    ("/etc/tls/private/tls.key", "key.pem"),
    ("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "cluster-ca.crt"),
    ("/var/run/secrets/kubernetes.io/serviceaccount/token", "bearer.token"),
];

fn accepted(what: &str, configuration: &str) {
    let mut text =
        STAND_INS.iter().fold(configuration.to_owned(), |text, (path, file)| text.replace(path, file));
    // The files of a pod's service account, which are the default.
    text = text
        .replace("[kubernetes]\n", "[kubernetes]\nca = \"cluster-ca.crt\"\ntoken_file = \"bearer.token\"\n");
    if let Err(refused) = load(&text) {
        panic!("{what}: {}\n{text}", refused.report.lines().collect::<Vec<_>>().join("\n"));
    }
}

/// A bootstrap of Envoy with certificates, several hosts, and a filter that closes every route.
pub(crate) const MESH: &str = "static_resources:
  listeners:
  - name: mesh/in
    address: {socket_address: {address: 0.0.0.0, port_value: 8443}}
    filter_chains:
    - transport_socket:
        typed_config:
          '@type': t/v3.DownstreamTlsContext
          require_client_certificate: true
          common_tls_context:
            tls_params: {tls_minimum_protocol_version: TLSv1_3}
            tls_certificates: [{certificate_chain: {filename: cert.pem}, private_key: {filename: key.pem}}]
            validation_context: {trusted_ca: {filename: ca.pem}}
      filters:
      - typed_config:
          '@type': t/v3.HttpConnectionManager
          http_filters:
          - {name: r, typed_config: {'@type': t/v3.RBAC, rules: {}}}
          - {name: c, typed_config: {'@type': t/v3.Cors}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*.example', 'app.example:8443']
              routes:
              - {match: {path: /robots.txt}, direct_response: {status: 404, body: {inline_string: none}}}
              - {match: {path_separated_prefix: /grpc}, route: {cluster: machines, timeout: 0s}}
              - {match: {prefix: /}, redirect: {https_redirect: true, host_redirect: www.example}}
  clusters:
  - name: machines
    http2_protocol_options: {}
    load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: /run/app.sock}}}}]}]}
    health_checks: [{timeout: 1s, http_health_check: {path: /healthz}}]
    outlier_detection: {consecutive_5xx: 5}
";

const TLS: [&str; 2] =
    ["--tls-cert-file=/etc/tls/private/tls.crt", "--tls-private-key-file=/etc/tls/private/tls.key"];

#[test]
fn configurations_of_kube_rbac_proxy() {
    let attributes = "authorization:\n  resourceAttributes: {namespace: a, apiGroup: kubeflow.org, resource: notebooks, name: mine, verb: get}\n";
    let rewrites = "authorization:\n  rewrites: {byQueryParameter: {name: namespace}}\n  resourceAttributes: {apiGroup: metrics.k8s.io, resource: pods, namespace: '{{ .Value }}'}\n";
    let rules = "authorization:\n  static:\n  - {user: {name: p}, verb: get, path: /metrics, resourceRequest: false}\n";
    for (what, file, more) in [
        (
            "a notebook",
            attributes,
            &[
                "--secure-listen-address=:8443",
                "--proxy-endpoints-port=8444",
                "--auth-header-fields-enabled",
                "--v=0",
            ][..],
        ),
        (
            "metrics of a tenant",
            rewrites,
            &["--insecure-listen-address=127.0.0.1:8080", "--upstream-timeout=30s"],
        ),
        (
            "metrics",
            rules,
            &[
                "--secure-listen-address=0.0.0.0:8443",
                "--allow-paths=/metrics,/federate",
                "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "--tls-min-version=VersionTLS12",
            ],
        ),
        (
            "certificates",
            attributes,
            &[
                "--secure-listen-address=:8443",
                "--client-ca-file=ca.pem",
                "--ignore-paths=/healthz",
                "--http2-disable",
                "--kube-api-qps=50",
            ],
        ),
        (
            "an issuer",
            attributes,
            &[
                "--secure-listen-address=:8443",
                "--oidc-issuer=https://id.example",
                "--oidc-clientID=kubernetes",
                "--oidc-username-prefix=oidc:",
            ],
        ),
        (
            "audiences",
            attributes,
            &["--secure-listen-address=:8443", "--auth-token-audiences=a,b", "--upstream-force-h2c"],
        ),
    ] {
        let given: Vec<String> = TLS
            .iter()
            .chain(&["--upstream=http://127.0.0.1:8888/", "--config-file=/c"])
            .chain(more)
            .map(|&text| text.to_owned())
            .collect();
        let mut files = ContainerFiles::default();
        files.add("/c", file);
        let migration =
            kube_rbac_proxy::translate(&given, &files).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        accepted(what, &migration.configuration);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn configurations_of_oauth2_proxy() {
    use Oauth2ProxyKind::{KubeAuthProxy, Oauth2Proxy};
    let redirect = "--redirect-url=https://app.example/oauth2/callback";
    for (what, kind, given) in [
        (
            "a provider",
            Oauth2Proxy,
            &[
                "--provider=oidc",
                "--oidc-issuer-url=https://id.example",
                "--client-id=app",
                "--client-secret=x",
                "--email-domain=*",
                redirect,
                "--upstream=http://127.0.0.1:8080/",
                "--pass-authorization-header",
                "--prompt=login",
                "--skip-auth-route=GET=^/assets/",
                "--skip-auth-preflight",
                "--reverse-proxy",
                "--metrics-address=127.0.0.1:9000",
            ][..],
        ),
        (
            "Google",
            Oauth2Proxy,
            &[
                "--client-id=app",
                "--client-secret=x",
                "--email-domain=example.com",
                redirect,
                "--upstream=http://127.0.0.1:8080/",
                "--upstream=http://127.0.0.1:8081/api/",
                "--upstream-timeout=60s",
                "--http-address=0.0.0.0:4180",
                "--cookie-refresh=1h",
            ],
        ),
        (
            "passwords",
            Oauth2Proxy,
            &[
                "--provider=oidc",
                "--oidc-issuer-url=https://id.example",
                "--client-id=app",
                "--client-secret=x",
                "--htpasswd-file=users.htpasswd",
                redirect,
                "--upstream=http://127.0.0.1:8080/",
            ],
        ),
        (
            "tokens",
            Oauth2Proxy,
            &[
                "--provider=keycloak-oidc",
                "--oidc-issuer-url=https://id.example",
                "--client-id=app",
                "--client-secret=x",
                "--email-domain=*",
                "--allowed-group=a",
                redirect,
                "--upstream=http://127.0.0.1:8080/",
                "--skip-jwt-bearer-tokens",
                "--extra-jwt-issuers=https://other.example=api",
                "--oidc-groups-claim=roles",
            ],
        ),
        ("a structured file", Oauth2Proxy, &["--alpha-config=/alpha", "--email-domain=*", redirect]),
        (
            "OpenShift",
            KubeAuthProxy,
            &[
                "--https-address=0.0.0.0:8443",
                "--tls-cert-file=/etc/tls/private/tls.crt",
                "--tls-key-file=/etc/tls/private/tls.key",
                "--provider=openshift",
                "--scope=user:full",
                "--client-id=data-science",
                "--client-secret=x",
                "--email-domain=*",
                "--upstream=static://200",
                "--enable-k8s-token-validation",
                "--skip-jwt-bearer-tokens",
                redirect,
            ],
        ),
    ] {
        let arguments: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        let mut source = Source { arguments: &arguments, ..Source::default() };
        source.files.add("/alpha", include_str!("../../../migrate/tests/it/structured.yaml"));
        let migration =
            oauth2_proxy::translate(kind, &source).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        accepted(what, &migration.configuration);
    }
}

#[test]
fn configurations_of_oauth_proxy() {
    let common = [
        "--https-address=:8443",
        "--http-address=",
        "--tls-cert=/etc/tls/private/tls.crt",
        "--tls-key=/etc/tls/private/tls.key",
        "--redirect-url=https://app.example",
        "--upstream=http://localhost:8888",
        "--openshift-service-account=mine",
        "--cookie-secret=x",
        "--email-domain=*",
    ];
    for (what, more) in [
        (
            "a notebook",
            &[
                "-skip-provider-button",
                "--openshift-sar={\"verb\":\"get\",\"resource\":\"notebooks\",\"resourceAPIGroup\":\"kubeflow.org\",\"resourceName\":\"mine\",\"namespace\":\"a\"}",
            ][..],
        ),
        (
            "a model",
            &[
                "--openshift-delegate-urls={\"/\": {\"namespace\": \"a\", \"resource\": \"services\", \"verb\": \"get\"}}",
            ],
        ),
        (
            "both",
            &[
                "--openshift-sar=[{\"verb\":\"get\",\"resource\":\"services/proxy\",\"namespace\":\"a\"},{\"verb\":\"get\",\"path\":\"/metrics\",\"isNonResourceURL\":true}]",
                "--openshift-delegate-urls={\"/api\": {\"namespace\": \"a\", \"resource\": \"pods\"}}",
            ],
        ),
        (
            "anybody who signs in",
            &["--skip-auth-regex=^/metrics$", "--pass-access-token", "--cookie-expire=24h0m0s"],
        ),
    ] {
        let given: Vec<String> = common.iter().chain(more).map(|&text| text.to_owned()).collect();
        let migration = oauth_proxy::translate(&given, &[], &ContainerFiles::default());
        accepted(what, &migration.unwrap_or_else(|fault| panic!("{what}: {fault}")).configuration);
    }
}

#[test]
fn configurations_of_istio() {
    let authentication = include_str!("../../../migrate/tests/it/istio.yaml");
    for (what, policy) in [
        ("no policy", ""),
        ("nothing is allowed", "---\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec: {}\n"),
        (
            "paths",
            "---\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec:\n  rules:\n  - from: [{source: {requestPrincipals: ['*']}}]\n    to: [{operation: {paths: [/api/*, /x], hosts: [a.example]}}]\n  - to: [{operation: {methods: [GET], paths: [/api/open]}}]\n",
        ),
        (
            "a denial",
            "---\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec:\n  action: DENY\n  rules:\n  - from: [{source: {remoteIpBlocks: [203.0.113.0/24]}}]\n    when: [{key: 'request.auth.claims[groups]', values: [guests]}]\n",
        ),
    ] {
        let manifests = [("mesh.yaml".to_owned(), format!("{authentication}{policy}"))];
        let migration = istio::translate(&manifests, "http://127.0.0.1:8080");
        accepted(what, &migration.unwrap_or_else(|fault| panic!("{what}: {fault}")).configuration);
    }
}

#[test]
fn configurations_of_envoy() {
    for (what, bootstrap) in [
        ("tokens", include_str!("../../../migrate/tests/it/envoy-jwt.yaml")),
        ("an authorizer over HTTP", include_str!("../../../../examples/3x-envoy/envoy-http.yaml")),
        ("an authorizer over gRPC", include_str!("../../../../examples/3x-envoy/envoy.yaml")),
        ("certificates", MESH),
    ] {
        let migration =
            envoy::translate("envoy.yaml", bootstrap).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        accepted(what, &migration.configuration);
    }
}
