//! How the gateway authenticates with a key of its own, and how browsers come and go with forms.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use auth::time::Timestamp;
use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use dataplane::certificates::Authority;
use dataplane::harness::{CONTROL, Fixture, Upstream, now};
use http_engine::clock::ManualClock;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use super::fixture::{keyed, setup, start};
use super::provider::{Browser, ClientKeyCheck, SimulatedProvider, parameters};
use dataplane::harness::Setup;

/// A form of another site, which a browser sends without our cookies.
fn foreign_form(browser: &Browser, target: &str, body: &str) -> dataplane::harness::Response {
    let mut bare = Browser::new(browser.address, browser.host);
    let lines = "Accept: text/html\r\nContent-Type: application/x-www-form-urlencoded;charset=UTF-8\r\n\
                 Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    let response = bare.send("POST", target, lines, body);
    assert!(bare.cookies.is_empty(), "it would replace the cookie of a login in another tab");
    response
}

/// A gateway whose provider's entry has these lines in place of a secret.
fn started(lines: &str, key: Option<&Signer>) -> (SimulatedProvider, Fixture) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let usual = setup(&provider, "");
    let more = match key {
        Some(_) => usual.more.replace("client_secret_file = \"secret\"", lines),
        None => format!("{}\n{lines}", usual.more),
    };
    let setup = Setup { more, ..usual };
    let Some(key) = key else {
        let fixture = start(&setup, &clock, None);
        return (provider, fixture);
    };
    let (dir, upstream) = (keyed(), Upstream::start());
    let file = dir.path().join("client.pem");
    std::fs::write(&file, key.to_pkcs8_pem().unwrap().as_ref()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = setup.file(dir.path(), upstream.address);
    let fixture = Fixture::keeping(dir, upstream, &text, clock, None);
    (provider, fixture)
}

#[test]
fn a_key_authenticates_the_client_at_every_endpoint() {
    let apple = "client_key_file = \"client.pem\"\nclient_key_id = \"KEY1\"\nclient_authentication = \"apple\"\napple_team_id = \"TEAM1\"";
    for (lines, check) in [
        ("client_key_file = \"client.pem\"\nclient_key_id = \"KEY1\"", ClientKeyCheck::Assertion),
        (apple, ClientKeyCheck::Apple),
    ] {
        let key = Signer::generate(SigningAlgorithm::Es256).unwrap();
        let (provider, fixture) = started(lines, Some(&key));
        let jwks = serde_json::from_str(&public_jwks([&key]).to_string()).unwrap();
        provider.state().client_key = Some((jwks, check));
        let mut browser = Browser::new(fixture.address, "app.test");
        browser.log_in(&provider, "/");
        assert!(browser.session().is_some(), "{check:?}");
        // The refresh token is revoked with a proof of its own.
        assert_eq!(browser.visit("/oauth2/sign_out?rd=%2F").status, 303, "{check:?}");
        assert_eq!(provider.state().revoked.len(), 1, "{check:?}");
        let proofs = provider.state().client_proofs;
        assert_eq!(proofs, 2, "{check:?}: each request has its own");
    }
}

#[test]
fn a_provider_may_return_the_browser_with_a_form() {
    let (provider, fixture) = started("response_mode = \"form_post\"", None);
    let mut browser = Browser::new(fixture.address, "app.test");
    let location = browser.go_to_provider("/a?b=c");
    assert_eq!(parameters(&location)["response_mode"], "form_post");
    let (code, state) = provider.approve(&location);
    // Apple adds a member with the user's name, at the first login.
    let body = format!("code={code}&user=%7B%7D&state={state}");
    let sent = foreign_form(&browser, "/oauth2/callback", &body);
    assert_eq!(sent.status, 303, "{}", sent.text());
    let target = sent.value("location").unwrap();
    assert!(!target.contains("user"), "{target}");
    assert_eq!(sent.value("referrer-policy"), Some("no-referrer"));
    let back = browser.follow(&sent);
    assert_eq!((back.status, back.value("location")), (303, Some("https://app.test/a?b=c")));
    assert_eq!(browser.visit("/a?b=c").status, 200);
    let odd = browser.send("POST", "/oauth2/callback", "Content-Type: application/json\r\n", "{}");
    assert_eq!(odd.status, 400, "{}", odd.text());
}

#[test]
fn a_form_is_no_return_from_a_provider_that_sends_none() {
    let (provider, fixture) = started("", None);
    let mut browser = Browser::new(fixture.address, "app.test");
    let location = browser.go_to_provider("/");
    assert!(!parameters(&location).contains_key("response_mode"));
    let (code, state) = provider.approve(&location);
    let sent = foreign_form(&browser, "/oauth2/callback", &format!("code={code}&state={state}"));
    assert_eq!(sent.status, 400, "{}", sent.text());
}

#[test]
fn another_site_begins_a_login() {
    let (provider, fixture) = started("", None);
    let mut browser = Browser::new(fixture.address, "app.test");
    let form = |target: &str, iss: &str| {
        format!("iss={iss}&login_hint=alice%40example.com&target_link_uri={target}&unknown=x")
    };
    let url = provider.url.clone();
    for (target, expected) in [
        ("https%3A%2F%2Fapp.test%2Fa", "https://app.test/a"),
        ("https%3A%2F%2Fevil.test%2Fa", "https://app.test/"),
    ] {
        let sent = foreign_form(&browser, "/oauth2/start", &form(target, &url));
        assert_eq!(sent.status, 303, "{}", sent.text());
        let started = browser.follow(&sent);
        let location = started.value("location").unwrap();
        assert!(location.starts_with(&format!("{url}/authorize?")), "{location}");
        assert_eq!(parameters(location)["login_hint"], "alice@example.com");
        let back = browser.back(&provider.approve(location));
        assert_eq!((back.status, back.value("location")), (303, Some(expected)));
    }
    let unknown = browser.visit(&format!("/oauth2/start?{}", form("/", "https://evil.test")));
    assert_eq!(unknown.value("location"), None, "{}", unknown.head);
    let hint = format!("/oauth2/start?iss={url}&login_hint=a%0d%0ab");
    let location = browser.visit(&hint).value("location").unwrap().to_owned();
    assert!(!parameters(&location).contains_key("login_hint"), "{location}");
}

/// Ends TLS in front of a server. `of_clients`: it asks for a certificate of this authority. Returns
/// its origin, and how many connections it had.
fn tls_front(
    plain: SocketAddr,
    own: &Authority,
    of_clients: Option<&Authority>,
) -> (String, Arc<AtomicUsize>) {
    let (certificate, key) = own.issue(&["localhost"], "provider");
    let builder = match of_clients {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der()).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
            ServerConfig::builder().with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = CONTROL.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let origin = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    CONTROL.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), count.clone());
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(socket).await else { return };
                count.fetch_add(1, Ordering::Relaxed);
                let mut onward = tokio::net::TcpStream::connect(plain).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut onward).await;
            });
        }
    });
    (origin, seen)
}

#[test]
fn a_certificate_authenticates_the_client_at_the_endpoints_for_it() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = SimulatedProvider::new(&clock);
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (open, _) = tls_front(provider.address(), &servers, None);
    let (mutual, seen) = tls_front(provider.address(), &servers, Some(&clients));
    {
        let mut state = provider.state();
        state.url.clone_from(&open);
        state.metadata = json!({ "mtls_endpoint_aliases": {
            "token_endpoint": format!("{mutual}/token"), "revocation_endpoint": format!("{mutual}/revoke"),
        } });
        state.client_key = Some((Value::Null, ClientKeyCheck::Certificate));
    }
    let usual = setup(&provider, "");
    let certificate = "certificate = \"client.crt\"\nkey = \"client.key\"\nca = \"servers.pem\"";
    let more = usual.more.replace("client_secret_file = \"secret\"", certificate);
    let setup = Setup { more: more.replace(&provider.url, &open), ..usual };
    let (dir, upstream) = (keyed(), Upstream::start());
    let (issued, key) = clients.issue(&[], "gateway");
    std::fs::write(dir.path().join("client.crt"), issued.pem()).unwrap();
    std::fs::write(dir.path().join("client.key"), key.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("servers.pem"), servers.pem()).unwrap();
    let text = setup.file(dir.path(), upstream.address);
    let fixture = Fixture::keeping(dir, upstream, &text, clock, None);
    let mut browser = Browser::new(fixture.address, "app.test");
    browser.log_in(&provider, "/");
    assert!(browser.session().is_some());
    assert!(seen.load(Ordering::Relaxed) > 0, "the endpoint for certificates was used");
    assert_eq!(browser.visit("/oauth2/sign_out?rd=%2F").status, 303);
    assert_eq!(provider.state().revoked.len(), 1);
}
