//! The proxies of Open Data Hub as its operator deploys them: translated from its Deployments, they
//! answer Envoy's checks at the gateway, in both of its modes.
//!
//! The operator's filter `ext_authz` has an `http_service`, no `grpc_service`: kube-auth-proxy speaks no
//! gRPC. So Envoy is played as it asks over HTTP, with the method and the path of the client's request and
//! with three of its fields: `cookie`, `authorization`, `user-agent`. 200 lets the request pass, with
//! four fields of the answer; every other answer goes to the client.

use dataplane::harness::{Response, now};
use serde_json::json;

use super::deployed::{ACCOUNT, Deployed, HOST};
use crate::login::provider::{Browser, parameters};
use crate::support::{output_text, postern, repository};

/// What the operator's Deployment becomes.
fn translated(manifest: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let sources = repository().join("crates/migrate/tests/it").join(manifest);
    let out = folder.path().join("out");
    let done = postern(&[
        "migrate",
        "kube-auth-proxy",
        "--manifest",
        sources.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(done.status.success(), "{}", output_text(&done));
    std::fs::read_to_string(out.join("postern.toml")).unwrap()
}

fn deployed(manifest: &str) -> Deployed {
    let text = translated(manifest);
    assert!(text.contains("origins = [\"https://rh-ai.apps.example\"]"), "{text}");
    Deployed::new(&text)
}

impl Deployed {
    /// A program's request, as Envoy asks about it.
    fn with_token(&self, token: &str) -> Response {
        asked(&mut self.browser(), "GET", "/api/models", &format!("Authorization: Bearer {token}\r\n"))
    }

    /// A token that the cluster's issuer could have signed.
    fn account_token(&self, subject: &str) -> String {
        let claims = json!({
            "iss": "https://kubernetes.default.svc.cluster.local", "sub": subject, "exp": now() + 600,
        });
        self.fixture.issuer.signer.sign(&[("typ", "JWT")], &claims).unwrap()
    }
}

/// Envoy's check about a request.
fn asked(browser: &mut Browser, method: &str, path: &str, fields: &str) -> Response {
    let own = "User-Agent: Mozilla/5.0\r\nContent-Length: 0\r\n";
    browser.send(method, path, &format!("{own}{fields}"), "")
}

/// Envoy's check that a redirect within the host leads to.
fn led(browser: &mut Browser, response: &Response) -> Response {
    let location = response.value("location").expect("a redirect").to_owned();
    let path = location.strip_prefix(&format!("https://{HOST}")).expect("at this host").to_owned();
    asked(browser, "GET", &path, "")
}

#[test]
fn its_deployments_are_accepted() {
    for manifest in ["operator-oauth.yaml", "operator-oidc.yaml"] {
        let text = translated(manifest);
        super::accepted(
            manifest,
            &text.replace(
                "/etc/postern/secrets/kube-auth-proxy-creds/OAUTH2_PROXY_CLIENT_SECRET",
                "client.secret",
            ),
        );
    }
}

#[test]
fn people_of_the_cluster_behind_envoy() {
    let place = deployed("operator-oauth.yaml");
    let mut ada = place.browser();
    let sent = asked(&mut ada, "GET", "/projects?x=y", "");
    assert_eq!(sent.status, 302, "{}", sent.head);
    let started = led(&mut ada, &sent);
    let location = started.value("location").unwrap().to_owned();
    assert!(
        location.starts_with(&format!("{}/oauth/authorize", place.cluster.lock().unwrap().url)),
        "{location}"
    );
    let request = parameters(&location);
    assert_eq!((&*request["client_id"], &*request["scope"]), ("data-science", "user:full"));
    assert_eq!(request["redirect_uri"], format!("https://{HOST}/oauth2/callback"));
    let back = asked(&mut ada, "GET", &format!("/oauth2/callback?code=c&state={}", request["state"]), "");
    assert_eq!((back.status, back.value("location")), (303, Some(&*format!("https://{HOST}/projects?x=y"))));

    for method in ["GET", "POST", "DELETE"] {
        let passed = asked(&mut ada, method, "/projects", "");
        assert_eq!(passed.status, 200, "{method}: {}", passed.head);
        assert_eq!(passed.value("x-auth-request-user"), Some("ada"));
        assert_eq!(passed.value("x-auth-request-access-token"), Some("sha256~of-ada-0"));
        assert_eq!(passed.value("authorization"), None, "Envoy's Lua step writes it from the token");
    }
    // As the address in the filter says, where Envoy's own rules ask for the client's path.
    let check = asked(&mut ada, "GET", "/oauth2/auth", "");
    assert_eq!((check.status, check.value("x-auth-request-user")), (202, Some("ada")));
    assert_eq!(check.value("x-auth-request-groups"), Some("dev"));

    let stranger = asked(&mut place.browser(), "GET", "/oauth2/auth", "");
    assert_eq!((stranger.status, stranger.value("x-auth-request-user")), (401, None));
    assert_eq!(asked(&mut place.browser(), "POST", "/projects", "").status, 401, "the program redirects it");
}

#[test]
fn programs_of_the_cluster_behind_envoy() {
    let place = deployed("operator-oauth.yaml");
    place.cluster.lock().unwrap().tokens.insert("sha256~of-a-shell".to_owned());
    let passed = place.with_token("sha256~of-a-shell");
    assert_eq!(passed.status, 200, "{}", passed.head);
    assert_eq!(passed.value("x-auth-request-user"), Some("ada"));
    assert_eq!(passed.value("x-auth-request-access-token"), Some("sha256~of-a-shell"));
    assert_eq!(place.with_token("sha256~of-nobody").status, 401, "the program redirects it");

    let token = place.account_token(ACCOUNT);
    place.cluster.lock().unwrap().account_token.clone_from(&token);
    let passed = place.with_token(&token);
    assert_eq!(passed.status, 200, "{}", passed.head);
    assert_eq!(passed.value("x-auth-request-user"), Some(ACCOUNT));
    assert_eq!(passed.value("x-auth-request-access-token"), Some(&*token));
    assert_eq!(place.with_token(&place.account_token("somebody")).status, 401);
    assert_eq!(place.cluster.lock().unwrap().reviewed.len(), 2);
}

#[test]
fn a_provider_behind_envoy() {
    let place = deployed("operator-oidc.yaml");
    let mut alice = place.browser();
    let sent = asked(&mut alice, "GET", "/", "");
    assert_eq!(sent.status, 302, "{}", sent.head);
    let started = led(&mut alice, &sent);
    let location = started.value("location").unwrap().to_owned();
    assert!(translated("operator-oidc.yaml").contains("client_id = \"dashboard\""), "the Secret's value");
    let (code, state) = place.provider.approve(&location);
    let back = asked(&mut alice, "GET", &format!("/oauth2/callback?code={code}&state={state}"), "");
    assert_eq!(back.status, 303, "{}", back.text());

    let passed = asked(&mut alice, "GET", "/", "");
    assert_eq!(passed.status, 200, "{}", passed.head);
    assert_eq!(passed.value("x-auth-request-user"), Some("alice-id"));
    let token = passed.value("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap();
    assert_eq!(token.split('.').count(), 3, "the ID token");
    assert_eq!(passed.value("x-auth-request-access-token"), None, "this mode has no --pass-access-token");

    // The ID token is a credential of programs. Envoy keeps the client's `authorization`.
    let program = place.with_token(token);
    assert_eq!(program.status, 200, "{}", program.head);
    assert_eq!(program.value("x-auth-request-user"), Some("alice-id"));
    assert_eq!(program.value("authorization"), None);
    let account = place.account_token(ACCOUNT);
    place.cluster.lock().unwrap().account_token.clone_from(&account);
    assert_eq!(place.with_token(&account).value("x-auth-request-user"), Some(ACCOUNT));
    assert_eq!(place.with_token("a.b.c").status, 401);
}
