//! Login where another proxy sends queries, and over HTTP/2.

use std::collections::BTreeMap;
use std::time::Duration;

use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use serde_json::json;

use super::fixture::{LoginFixture, everywhere};
use super::provider::{Browser, parameters};
use dataplane::ext_authz::{allowed, check, question};
use dataplane::http2::{connect, get, run};

const HTML: (&str, &str) = ("accept", "text/html");

/// A browser behind Envoy: its cookies, and Envoy's responses to it.
#[derive(Default)]
struct BehindEnvoy {
    cookies: BTreeMap<String, String>,
}

impl BehindEnvoy {
    fn cookie(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn keep(&mut self, set_cookie: &str) {
        let (name, rest) = set_cookie.split_once('=').unwrap();
        if rest.contains("Max-Age=0") {
            self.cookies.remove(name);
        } else {
            self.cookies.insert(name.into(), rest.split(';').next().unwrap().into());
        }
    }

    /// A refusal: status and location. Cookies are stored.
    fn refused(&mut self, stage: &LoginFixture, path: &str) -> (i32, String) {
        let response = check(&stage.fixture, &question(path, &[HTML, ("cookie", &self.cookie())]));
        let Some(HttpResponse::DeniedResponse(denied)) = response.http_response else {
            panic!("{path} passed")
        };
        let mut location = String::new();
        for option in denied.headers {
            let header = option.header.unwrap();
            match header.key.as_str() {
                "set-cookie" => {
                    assert_eq!(option.append_action, 0, "beside others");
                    self.keep(&header.value);
                }
                "location" => location = header.value,
                _ => {}
            }
        }
        (denied.status.unwrap().code, location)
    }

    fn log_in(&mut self, stage: &LoginFixture) {
        let (status, start) = self.refused(stage, "/reports?a=b");
        assert_eq!((status, start.as_str()), (302, "https://app.test/oauth2/start?rd=%2Freports%3Fa%3Db"));
        let (_, location) = self.refused(stage, start.strip_prefix("https://app.test").unwrap());
        let (code, state) = stage.provider.approve(&location);
        let back = self.refused(stage, &format!("/oauth2/callback?code={code}&state={state}"));
        assert_eq!(back, (303, "https://app.test/reports?a=b".into()));
    }
}

#[test]
fn envoy_passes_a_login_on_and_ours_stays_behind() {
    let stage = LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"] }");
    let mut browser = BehindEnvoy::default();
    browser.log_in(&stage);
    let asked =
        |cookie: &str| allowed(check(&stage.fixture, &question("/reports", &[HTML, ("cookie", cookie)])));
    let ok = asked(&browser.cookie());
    assert!(ok.headers_to_remove.iter().any(|name| name == "cookie"), "there are only ours");
    let ok = asked(&format!("theme=dark; {}", browser.cookie()));
    let set: BTreeMap<_, _> =
        ok.headers.iter().map(|o| o.header.clone().unwrap()).map(|h| (h.key, h.value)).collect();
    assert_eq!(set["cookie"], "theme=dark");
    assert_eq!(set["x-forwarded-user"], "alice");
    assert!(ok.response_headers_to_add.is_empty());
    // A renewed cookie reaches the browser, both with the service's own response and with a
    // refusal.
    stage.clock.advance(Duration::from_mins(6));
    let ok = asked(&browser.cookie());
    let added: Vec<_> = ok.response_headers_to_add.iter().map(|o| o.header.clone().unwrap()).collect();
    assert_eq!((added[0].key.as_str(), added[1].value.as_str()), ("set-cookie", "private"));
    browser.keep(&added[0].value);
    stage.provider.state().groups = vec!["sales".into()];
    stage.clock.advance(Duration::from_mins(6));
    let before = browser.cookie();
    assert_eq!(browser.refused(&stage, "/reports").0, 403);
    assert_ne!(browser.cookie(), before);
    let (status, location) = browser.refused(&stage, "/oauth2/sign_out");
    assert_eq!(status, 303);
    assert!(location.starts_with(&stage.provider.url));
    assert!(browser.cookies.is_empty(), "both are taken away");
    assert_eq!(browser.refused(&stage, "/reports").0, 302);
}

#[test]
fn programs_behind_envoy_are_told() {
    let stage = LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"] }");
    let response = check(&stage.fixture, &question("/", &[("accept", "application/json")]));
    let Some(HttpResponse::DeniedResponse(denied)) = response.http_response else { panic!("not denied") };
    assert_eq!(denied.status.unwrap().code, 401);
}

/// Fields that nginx sends in a query.
fn about(uri: &str) -> String {
    format!("X-Original-Method: GET\r\nX-Original-URI: {uri}\r\nAccept: text/html\r\n")
}

#[test]
fn nginx_passes_the_login_on_itself() {
    let stage = LoginFixture::for_proxy(
        "authorization = { from = [\"127.0.0.1/32\"], http = \"x-original\", max_age = \"1m\" }",
    );
    let mut browser = stage.browser();
    let login = browser.send("GET", "/ask", &about("/page"), "");
    assert_eq!((login.status, login.value("location").is_some()), (401, true));
    let started = browser.visit("/oauth2/start?rd=/page");
    let location = started.value("location").unwrap().to_owned();
    let back = browser.back(&stage.provider.approve(&location));
    assert_eq!(back.value("location"), Some("https://app.test/page"));
    let told = browser.send("GET", "/ask", &about("/page"), "");
    assert_eq!((told.status, told.value("x-forwarded-user")), (200, Some("alice")));
    assert_eq!(
        told.value("cache-control"),
        Some("no-store"),
        "others are kept for a minute; a session is not"
    );
    assert_eq!(browser.send("GET", "/oauth2/auth", "", "").status, 202, "as oauth2-proxy is asked");
    // A message with a body is forwarded too.
    let token = stage.provider.logout_token("logout+jwt", &json!({}));
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let said = browser.send("POST", "/oauth2/backchannel_logout", form, &format!("logout_token={token}"));
    assert_eq!(said.status, 200);
    let login = browser.send("GET", "/ask", &about("/page"), "");
    assert_eq!((login.status, login.value("location").is_some()), (401, true));
}

#[test]
fn nothing_but_the_login_is_served_to_whoever_asks_about_nothing() {
    let stage =
        LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"x-original\" }");
    let mut browser = stage.logged_in_elsewhere();
    for path in ["/", "/page", "/open", "/oauth2x", "/oauth2/../page", "/api"] {
        assert_eq!(browser.visit(path).status, 400, "{path}");
    }
    assert_eq!(browser.visit("/oauth2/nothing").status, 404);
    let mut other = Browser { host: "else.test", ..browser.clone() };
    assert_eq!(other.visit("/oauth2/start").status, 400, "no origin of ours");
    let strangers =
        LoginFixture::for_proxy("authorization = { from = [\"192.0.2.1/32\"], http = \"x-original\" }");
    assert_eq!(strangers.browser().visit("/oauth2/start").status, 403);
}

#[test]
fn no_page_of_the_login_is_a_yes_to_whoever_asks() {
    let actions = [
        "start",
        "callback",
        "sign_in",
        "sign_out",
        "signed_out",
        "done",
        "auth",
        "userinfo",
        "backchannel_logout",
        "",
    ];
    let lines = |path: &str, more: &str| {
        format!(
            "X-Original-Method: GET\r\nX-Original-URI: {path}\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\n\
             X-Forwarded-Uri: {path}\r\nAccept: text/html\r\n{more}"
        )
    };
    for http in ["x-original", "x-forwarded", "envoy"] {
        let stage = LoginFixture::for_proxy(&format!(
            "authorization = {{ from = [\"127.0.0.1/32\"], http = \"{http}\" }}"
        ));
        for action in actions {
            for more in ["", "Sec-Fetch-Site: cross-site\r\n"] {
                let path = format!("/oauth2/{action}?rest_route=/admin");
                let own = if http == "envoy" { path.clone() } else { "/ask".into() };
                let told = stage.browser().send("GET", &own, &lines(&path, more), "");
                assert!(told.status >= 300, "{http} {action}: {}", told.head);
            }
        }
    }
}

/// A proxy decides itself which requests it forwards to the login's pages.
#[test]
fn no_client_asks_for_itself_through_the_way_to_the_login() {
    for (http, about) in [
        ("x-original", "X-Original-Method: GET\r\nX-Original-URI: /open/page\r\n"),
        (
            "x-forwarded",
            "X-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: /open/page\r\n",
        ),
    ] {
        let stage = LoginFixture::for_proxy(&format!(
            "authorization = {{ from = [\"127.0.0.1/32\"], http = \"{http}\" }}"
        ));
        let ask = |at: &str| stage.browser().send("GET", at, about, "").status;
        for at in ["/", "/ask", "/.postern", "/ask/?more=%2Foauth2%2Fx", "/oauth2x"] {
            assert_eq!(ask(at), 200, "{http} {at}");
        }
        for at in [
            "/oauth2",
            "/oauth2/x",
            "/oauth2?x",
            "/%6fauth2/x",
            "/oauth%32/x",
            "/oauth2%2Fx",
            "/oauth2;a=b/x",
            "/oauth2/%78%3B",
            "//oauth2/x",
            "/./oauth2/x",
            "/a/../oauth2/x",
            "/a/%2e%2e/oauth2/x",
            "/a%2C/x",
            "http://app.test/%6fauth2/x",
        ] {
            assert_eq!(ask(at), 400, "{http} {at}");
        }
    }
}

#[test]
fn whoever_asks_shows_the_choice_of_providers() {
    let stage =
        LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"x-forwarded\" }");
    let about =
        "X-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: /oauth2/sign_in\r\n";
    let page = stage.browser().send("GET", "/ask", about, "");
    assert_eq!(page.status, 403);
    assert!(page.text().contains("The Provider"));
}

impl LoginFixture {
    /// A browser with a session that it got through the login's own addresses.
    fn logged_in_elsewhere(&self) -> Browser {
        let mut browser = self.browser();
        let started = browser.visit("/oauth2/start?rd=/");
        let location = started.value("location").unwrap().to_owned();
        assert_eq!(browser.back(&self.provider.approve(&location)).status, 303);
        browser
    }
}

#[test]
fn a_session_travels_over_http2() {
    let stage = LoginFixture::with_cookie_sessions();
    let browser = stage.logged_in();
    let session = browser.session().unwrap().clone();
    let request = |path: &str, crumbs: &[&str]| {
        let mut request =
            http::Request::builder().uri(format!("http://app.test{path}")).header("accept", "text/html");
        for crumb in crumbs {
            request = request.header("cookie", *crumb);
        }
        request.body(()).unwrap()
    };
    let ours = format!("__Host-postern={session}");
    run(async {
        let send = connect(stage.fixture.address).await;
        let (head, _) = get(&send, request("/a", &["theme=dark", &ours, "lang=en"])).await;
        assert_eq!(head.status, 200);
        let (head, _) = get(&send, request("/a", &[&ours, &ours])).await;
        assert_eq!(head.status, 302, "one that occurs twice is nobody's");
        stage.clock.advance(Duration::from_mins(6));
        let (head, _) = get(&send, request("/b", &[&ours])).await;
        assert_eq!(head.status, 200);
        assert!(head.headers["set-cookie"].to_str().unwrap().starts_with("__Host-postern="));
        assert_eq!(head.headers["cache-control"], "private");
        let (head, body) = get(&send, request("/oauth2/start", &[])).await;
        assert_eq!((head.status.as_u16(), body.len()), (302, 0));
        assert!(parameters(head.headers["location"].to_str().unwrap()).contains_key("nonce"));
        // A body is read here too.
        let mut send = send.ready().await.unwrap();
        let token = stage.provider.logout_token("logout+jwt", &json!({}));
        let post = http::Request::post("http://app.test/oauth2/backchannel_logout")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(())
            .unwrap();
        let (response, mut stream) = send.send_request(post, false).unwrap();
        stream.send_data(format!("logout_token={token}").into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        let (head, _) = get(&send, request("/a", &[&ours])).await;
        assert_eq!(head.status, 302);
    });
    let seen = stage.fixture.upstream.seen();
    assert_eq!(seen[0].values("cookie"), ["theme=dark; lang=en"]);
    assert!(seen[1].values("cookie").is_empty());
}

/// Browsers send the requests of several hosts over one connection where a certificate names them all
/// (RFC 9113 §9.1.1). The host is then all that differs between two requests with equal fields.
#[test]
fn sessions_of_two_hosts_stay_apart_on_one_connection() {
    everywhere(|stage| {
        let alice = stage.logged_in().session().unwrap().clone();
        stage.provider.state().subject = "bob-id".into();
        stage.provider.state().callback = "https://other.test/oauth2/callback".into();
        let mut browser = Browser::new(stage.fixture.address, "other.test");
        browser.log_in(&stage.provider, "/");
        let bob = browser.session().unwrap().clone();
        let before = stage.fixture.upstream.seen().len();
        let status = async |send: &_, host: &str, session: &str| {
            let request = http::Request::builder()
                .uri(format!("http://{host}/"))
                .header("accept", "text/html")
                .header("cookie", format!("__Host-postern={session}"));
            get(send, request.body(()).unwrap()).await.0.status.as_u16()
        };
        let here = [("app.test", &*alice), ("other.test", &*bob)];
        run(async {
            let send = connect(stage.fixture.address).await;
            for _ in 0..5 {
                for (host, session) in here {
                    assert_eq!(status(&send, host, session).await, 200, "{host}");
                    // Twice: the second has the fields of the one before.
                    assert_eq!(status(&send, host, session).await, 200, "{host}");
                }
            }
            // Each session at the other host, right after it was good at its own, and back.
            for ((host, session), (elsewhere, _)) in here.into_iter().zip(here.into_iter().rev()) {
                for _ in 0..3 {
                    assert_eq!(status(&send, host, session).await, 200, "{host}");
                    assert_eq!(status(&send, elsewhere, session).await, 302, "from {host} to {elsewhere}");
                }
            }
        });
        let seen = stage.fixture.upstream.seen();
        let users: Vec<String> =
            seen[before..].iter().flat_map(|one| one.values("x-forwarded-user")).map(str::to_owned).collect();
        let expected =
            [["alice", "alice", "bob", "bob"].repeat(5), vec!["alice"; 3], vec!["bob"; 3]].concat();
        assert_eq!(users, expected);
    });
}

#[test]
fn a_message_without_end_is_not_read() {
    let stage = LoginFixture::with_cookie_sessions();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let large = format!("logout_token={}", "x".repeat(40_000));
    assert_eq!(stage.browser().send("POST", "/oauth2/backchannel_logout", form, &large).status, 413);
}

#[test]
fn a_proxy_that_asks_over_http_takes_no_page_for_leave_to_forward() {
    const PAGES: [(&str, u16); 4] =
        [("sign_in", 403), ("signed_out", 403), ("done", 403), ("start?provider=nobody", 404)];
    let caddy =
        LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"x-forwarded\" }");
    let forwarded = |uri: &str| {
        format!(
            "Accept: text/html\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: {uri}\r\n"
        )
    };
    let nginx =
        LoginFixture::for_proxy("authorization = { from = [\"127.0.0.1/32\"], http = \"x-original\" }");
    let original =
        |uri: &str| format!("Accept: text/html\r\nX-Original-Method: GET\r\nX-Original-URI: {uri}\r\n");
    for (page, status) in PAGES {
        let uri = format!("/oauth2/{page}");
        let told = caddy.browser().send("GET", "/", &forwarded(&uri), "");
        assert_eq!(told.status, status, "{page}");
        assert!(told.text().contains("<h1>"), "{page}: {}", told.text());
        assert_eq!(nginx.browser().send("GET", "/", &original(&uri), "").status, status, "{page}");
        // A request to the login itself gets the login's response.
        let itself = if status == 403 { 200 } else { status };
        assert_eq!(nginx.browser().visit(&uri).status, itself, "{page}");
    }
    // A redirect is sent where the proxy can forward it. nginx builds one from 401 and `Location`.
    let start = Some("https://app.test/oauth2/start?rd=%2Fpage");
    let told = caddy.browser().send("GET", "/", &forwarded("/page"), "");
    assert_eq!((told.status, told.value("location")), (302, start));
    let told = nginx.browser().send("GET", "/", &original("/page"), "");
    assert_eq!((told.status, told.value("location")), (401, start));
}
