//! Translated configurations with a login, toured: who is sent to sign in, who passes, and what the
//! service gets.

use migrate::files::ContainerFiles;
use migrate::oauth2_proxy::{Oauth2ProxyKind, Source};
use migrate::{manifest, oauth_proxy, oauth2_proxy};
use serde_json::json;

use super::deployed::Deployed;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn of_oauth2_proxy(arguments: &[&str], files: &[(&str, &str)]) -> Deployed {
    of_family(Oauth2ProxyKind::Oauth2Proxy, arguments, files)
}

fn of_family(kind: Oauth2ProxyKind, arguments: &[&str], files: &[(&str, &str)]) -> Deployed {
    let arguments = strings(arguments);
    let mut source = Source { arguments: &arguments, ..Source::default() };
    for (path, text) in files {
        source.files.add(*path, *text);
    }
    Deployed::new(&oauth2_proxy::translate(kind, &source).unwrap().configuration)
}

const OIDC: [&str; 6] = [
    "--provider=oidc",
    "--oidc-issuer-url=https://id.example",
    "--client-id=app",
    "--client-secret=x",
    "--redirect-url=https://app.example/oauth2/callback",
    "--skip-provider-button",
];

impl Deployed {
    /// Requests of programs without a credential.
    fn tour(&self, what: &str, steps: &[(&str, u16)]) {
        let differ = steps.iter().filter_map(|(request, status)| {
            let seen = self.status(request, "");
            (seen != *status).then(|| format!("{request}: {seen}, not {status}"))
        });
        let differ: Vec<String> = differ.collect();
        assert!(differ.is_empty(), "{what}: {}", differ.join("; "));
    }

    /// Values of a field of the last request at the service.
    fn sent(&self, name: &str) -> Vec<String> {
        let last = self.fixture.upstream.seen().pop().expect("a request at the service");
        last.values(name).iter().map(|&value| value.to_owned()).collect()
    }
}

#[test]
fn a_file_of_oauth2_proxy() {
    let cfg = include_str!("../../../../migrate/tests/it/application.cfg");
    let place = of_oauth2_proxy(&["--config=/c"], &[("/c", cfg)]);
    let steps = [
        ("GET /ping", 200),
        ("GET /ready", 200),
        ("GET /assets/a.css", 200),
        ("POST /assets/a.css", 401),
        ("GET /healthz", 200),
        ("GET /healthz/more", 401),
        ("GET /v1/open", 401),
        ("GET /oauth2/auth", 401),
    ];
    place.tour("nobody", &steps);
    place.provider.state().groups = vec!["staff".into()];
    let mut alice = place.signed_in("/oauth2", "/page");
    assert_eq!(alice.visit("/api/orders").status, 200);
    assert_eq!(place.sent("x-forwarded-email"), ["alice@example.com"]);
    assert_eq!(place.sent("x-forwarded-user"), ["alice-id"]);
    assert!(place.sent("x-forwarded-access-token")[0].starts_with("access-"));
    let check = alice.visit("/oauth2/auth");
    assert_eq!((check.status, check.value("x-auth-request-user")), (202, None), "no --set-xauthrequest");

    place.provider.state().groups = vec!["guests".into()];
    let mut guest = place.signed_in("/oauth2", "/page");
    assert_eq!(guest.visit("/page").status, 403);
    assert_eq!(guest.visit("/oauth2/auth").status, 403, "the rules decide there too");
}

#[test]
fn flags_of_oauth2_proxy() {
    let more = [
        "--email-domain=example.com",
        "--upstream=http://127.0.0.1:8080/",
        "--api-route=^/api/",
        "--set-xauthrequest",
        "--pass-access-token",
        "--skip-jwt-bearer-tokens",
        "--skip-auth-preflight",
    ];
    let place = of_oauth2_proxy(&[&OIDC[..], &more].concat(), &[]);
    place.tour("nobody", &[("GET /page", 401), ("OPTIONS /page", 200), ("GET /api/x", 401)]);
    assert_eq!(place.browser().visit("/page").status, 302);
    assert_eq!(place.browser().visit("/api/x").status, 401, "no browser is sent to sign in there");
    let mut alice = place.signed_in("/oauth2", "/page");
    let check = alice.visit("/oauth2/auth?allowed_groups=dev");
    assert_eq!((check.status, check.value("x-auth-request-email")), (202, Some("alice@example.com")));
    assert!(check.value("x-auth-request-access-token").unwrap().starts_with("access-"));
    assert_eq!(alice.visit("/oauth2/auth?allowed_groups=admins").status, 403);
    let page = alice.visit("/page");
    assert_eq!((page.status, page.value("x-auth-request-access-token")), (200, None), "browsers see it");

    let token = place.provider.access_token(&json!({"aud": "gateway"}));
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(place.status("GET /api/x", &bearer), 200);
    assert_eq!(place.status("GET /oauth2/auth", &bearer), 202);
    let other = place.provider.access_token(&json!({"aud": "other"}));
    assert_eq!(place.status("GET /api/x", &format!("Authorization: Bearer {other}\r\n")), 401);
}

#[test]
fn a_structured_file_of_oauth2_proxy() {
    let file = include_str!("../../../../migrate/tests/it/structured.yaml");
    let arguments = [
        "--alpha-config=/alpha",
        "--email-domain=*",
        "--redirect-url=https://app.example/oauth2/callback",
        "--skip-provider-button",
    ];
    let place = of_oauth2_proxy(&arguments, &[("/alpha", file)]);
    place.tour("nobody", &[("GET /", 401), ("GET /api/x", 401), ("GET /ping", 200)]);
    place.provider.state().claims = json!({"roles": ["staff"], "tenant": "north"});
    let mut alice = place.signed_in("/oauth2", "/");
    assert_eq!(alice.visit("/api/x").status, 200);
    assert_eq!(place.sent("x-tenant"), ["north"]);
    assert!(place.sent("authorization")[0].starts_with("Bearer "));
    place.provider.state().claims = json!({"roles": ["guests"]});
    assert_eq!(place.signed_in("/oauth2", "/").visit("/api/x").status, 403);
}

#[test]
fn a_deployment_of_oauth2_proxy() {
    let text = include_str!("../../../../migrate/tests/it/oauth2-proxy.yaml");
    let found = manifest::find(&[("login.yaml".to_owned(), text.to_owned())], None, "oauth2-proxy").unwrap();
    let mut environment = found.environment;
    environment.push(("OAUTH2_PROXY_CLIENT_SECRET_FILE".to_owned(), "/etc/postern/secrets/x".to_owned()));
    let source = Source { arguments: &found.arguments, environment: &environment, files: found.files };
    let configuration = oauth2_proxy::translate(Oauth2ProxyKind::Oauth2Proxy, &source).unwrap().configuration;
    let place = Deployed::new(&configuration);
    place.tour("nobody", &[("GET /", 401), ("GET /ready", 200)]);
    // Without --skip-provider-button there is a page first.
    let page = place.browser().visit("/");
    assert_eq!(page.status, 302);
    place.provider.state().claims = json!({"email": "ada@shop.example"});
    let mut ada = place.browser();
    let started = ada.visit("/oauth2/start?provider=provider&rd=/");
    let back = ada.back(&place.provider.approve(started.value("location").unwrap()));
    assert_eq!(back.status, 303, "{}", back.text());
    assert_eq!(ada.visit("/").status, 200);
    assert_eq!(place.sent("x-forwarded-email"), ["ada@shop.example"]);
    place.provider.state().claims = json!({"email": "eve@shop.example"});
    let mut eve = place.browser();
    let started = eve.visit("/oauth2/start?provider=provider&rd=/");
    assert_eq!(eve.back(&place.provider.approve(started.value("location").unwrap())).status, 303);
    assert_eq!(eve.visit("/").status, 403);
}

#[test]
fn arguments_of_kube_auth_proxy() {
    let common =
        ["--client-secret=x", "--email-domain=*", "--redirect-url=https://app.example/oauth2/callback"];
    let more = [
        "--provider=openshift",
        "--client-id=console",
        "--upstream=http://127.0.0.1:8080/",
        "--allowed-group=dev",
        "--skip-provider-button",
    ];
    let people = of_family(Oauth2ProxyKind::KubeAuthProxy, &[&common[..], &more].concat(), &[]);
    people.tour("nobody", &[("GET /", 401), ("GET /ping", 200)]);
    let mut ada = people.signed_in("/oauth2", "/");
    assert_eq!(ada.visit("/").status, 200);
    assert_eq!(
        (people.sent("x-forwarded-user"), people.sent("x-forwarded-groups")),
        (vec!["ada".into()], vec!["dev".into()])
    );

    let more = [
        "--provider=oidc",
        "--oidc-issuer-url=https://id.example",
        "--client-id=app",
        "--upstream=http://127.0.0.1:8080/",
        "--enable-k8s-token-validation",
        "--kubernetes-audiences=api",
    ];
    let programs = of_family(Oauth2ProxyKind::KubeAuthProxy, &[&common[..], &more].concat(), &[]);
    assert_eq!(programs.status("GET /", "Authorization: Bearer a.b.c\r\n"), 401);
}

const OAUTH_PROXY: [&str; 6] = [
    "--http-address=127.0.0.1:1",
    "--https-address=",
    "--redirect-url=https://app.example",
    "--upstream=http://localhost:8888",
    "--openshift-service-account=mine",
    "--email-domain=*",
];

fn of_oauth_proxy(more: &[&str]) -> Deployed {
    let given = strings(&[&OAUTH_PROXY[..], &["--skip-provider-button", "--cookie-secret=x"], more].concat());
    let migration = oauth_proxy::translate(&given, &[], &ContainerFiles::default());
    Deployed::new(&migration.unwrap_or_else(|fault| panic!("{fault}")).configuration)
}

#[test]
fn people_of_oauth_proxy() {
    let anybody = of_oauth_proxy(&["--skip-auth-regex=^/metrics$", "--pass-access-token"]);
    anybody.tour("nobody", &[("GET /", 401), ("GET /metrics", 200), ("GET /metrics/more", 401)]);
    let mut ada = anybody.signed_in("/oauth", "/");
    assert_eq!(ada.visit("/").status, 200);
    assert_eq!(anybody.sent("x-forwarded-user"), ["ada"]);
    assert_eq!(anybody.sent("x-forwarded-access-token"), ["sha256~of-ada-0"]);

    let review = "--openshift-sar={\"verb\":\"get\",\"resource\":\"notebooks\",\"resourceName\":\"mine\",\"namespace\":\"a\"}";
    let reviewed = of_oauth_proxy(&[review]);
    assert_eq!(reviewed.signed_in("/oauth", "/").visit("/lab").status, 200);
    reviewed.cluster.lock().unwrap().person = "bob";
    assert_eq!(reviewed.signed_in("/oauth", "/").visit("/lab").status, 403, "on each request, not once");
}

#[test]
fn programs_of_oauth_proxy() {
    let delegated = "--openshift-delegate-urls={\"/\": {\"namespace\": \"a\", \"resource\": \"services\", \"verb\": \"get\"}}";
    let place = of_oauth_proxy(&[delegated]);
    place.cluster.lock().unwrap().tokens.insert("sha256~of-a-shell".to_owned());
    let status = |token: &str| place.status("GET /", &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!((status("sha256~of-a-shell"), status("sha256~of-nobody")), (200, 401));
    place.cluster.lock().unwrap().person = "bob";
    place.cluster.lock().unwrap().tokens.insert("sha256~of-bob".to_owned());
    assert_eq!(status("sha256~of-bob"), 403);

    let both = of_oauth_proxy(&[
        "--openshift-sar={\"verb\":\"get\",\"resource\":\"services/proxy\",\"namespace\":\"a\"}",
        "--openshift-delegate-urls={\"/api\": {\"namespace\": \"a\", \"resource\": \"pods\"}}",
    ]);
    both.tour("nobody", &[("GET /", 401), ("GET /api/x", 401)]);
    assert_eq!(both.signed_in("/oauth", "/").visit("/").status, 200);
}
