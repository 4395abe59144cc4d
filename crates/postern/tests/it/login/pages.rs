//! What people see: who they are signed in as where they have no access, and every page of the
//! login in their language.

use serde_json::json;

use super::fixture::{LoginFixture, everywhere};
use super::provider::{Browser, parameters};
use dataplane::harness::Response;

const BROWSER: &str = "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\nAccept-Language: de\r\n";

/// Visits a page in German.
fn visit(browser: &mut Browser, target: &str) -> Response {
    browser.send("GET", target, BROWSER, "")
}

/// The path of the link with this text, at the browser's host.
fn link(page: &str, text: &str) -> String {
    let element = page.split("<a ").find(|rest| rest.contains(&format!(">{text}</a>")));
    let element = element.unwrap_or_else(|| panic!("no link {text:?}: {page}"));
    let address = element.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    address.replace("&#38;", "&").strip_prefix("https://app.test").expect("at this host").to_owned()
}

#[test]
fn whoever_has_no_access_sees_as_whom_and_may_change_that() {
    everywhere(|stage| {
        stage.provider.state().claims = json!({"groups": ["guests"]});
        let mut browser = stage.logged_in();
        let shown = visit(&mut browser, "/reports/7?year=2026&q=a");
        let page = shown.text();
        assert_eq!(shown.status, 403, "{page}");
        assert_eq!(shown.value("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.contains("Sie sind als <bdi>alice</bdi> angemeldet."), "{page}");
        assert!(stage.fixture.upstream.seen().is_empty());

        // Another account: the provider must ask, and the browser returns to the page.
        let start = link(&page, "Anderes Konto verwenden");
        let mut other = browser.clone();
        let sent = visit(&mut other, &start);
        assert_eq!(sent.status, 302, "{}", sent.text());
        let asked = sent.value("location").unwrap().to_owned();
        assert_eq!(parameters(&asked)["prompt"], "login");
        stage.provider.state().claims = json!({"sub": "bob-id", "preferred_username": "bob"});
        stage.provider.state().subject = "bob-id".into();
        let back = other.back(&stage.provider.approve(&asked));
        assert_eq!(back.value("location"), Some("https://app.test/reports/7?year=2026&q=a"));
        assert_eq!(other.follow(&back).status, 200, "bob may");
        assert_eq!(stage.fixture.upstream.only().values("x-forwarded-user"), ["bob"]);
        // The session of the first user is over then.
        assert_eq!(browser.visit("/").status, 302);
    });
}

#[test]
fn a_provider_that_lets_people_choose_an_account_is_asked_so() {
    let metadata = json!({"prompt_values_supported": ["login", "select_account"]});
    let stage = LoginFixture::with_metadata(metadata);
    let mut browser = stage.browser();
    let prompt = |browser: &mut Browser, target: &str| {
        let sent = visit(browser, target);
        parameters(sent.value("location").unwrap()).get("prompt").cloned()
    };
    let chosen = prompt(&mut browser, "/oauth2/start?rd=%2F&prompt=select_account");
    assert_eq!(chosen.as_deref(), Some("select_account"));
    assert_eq!(prompt(&mut browser, "/oauth2/start?rd=%2F"), None);
    assert_eq!(prompt(&mut browser, "/oauth2/start?rd=%2F&prompt=none"), None, "nothing else is passed on");
}

#[test]
fn whoever_has_no_access_may_sign_out() {
    let stage = LoginFixture::with_cookie_sessions();
    stage.provider.state().claims = json!({"groups": ["guests"]});
    let mut browser = stage.logged_in();
    let page = visit(&mut browser, "/").text();
    let sign_out = link(&page, "Abmelden");
    let out = browser.send("GET", &sign_out, &format!("{BROWSER}Sec-Fetch-Site: same-origin\r\n"), "");
    assert_eq!((out.status, browser.session()), (303, None));
    let done = visit(&mut browser, "/oauth2/signed_out");
    assert!(done.text().contains("<h1>Sie sind abgemeldet</h1>"), "{}", done.text());
}

#[test]
fn programs_are_not_told_who_is_signed_in() {
    let stage = LoginFixture::with_cookie_sessions();
    stage.provider.state().claims = json!({"groups": ["guests"]});
    let told = stage.logged_in().send("GET", "/", "Accept: */*\r\nSec-Fetch-Mode: cors\r\n", "");
    assert_eq!((told.status, told.value("content-type")), (403, Some("application/problem+json")));
    assert!(!told.text().contains("alice"), "{}", told.text());
}

#[test]
fn a_page_that_was_posted_to_leads_to_the_start() {
    let stage = LoginFixture::with_cookie_sessions();
    stage.provider.state().claims = json!({"groups": ["guests"]});
    let mut browser = stage.logged_in();
    let page = browser.send("POST", "/orders", &format!("{BROWSER}Content-Type: text/plain\r\n"), "x").text();
    assert!(link(&page, "Anderes Konto verwenden").contains("rd=%2F&prompt="), "{page}");
}

#[test]
fn the_login_s_own_pages_are_in_the_language_of_the_browser() {
    let stage = LoginFixture::with_cookie_sessions();
    let mut browser = stage.browser();
    for (target, status, title) in [
        ("/oauth2/sign_in", 200, "Anmelden"),
        ("/oauth2/signed_out", 200, "Sie sind abgemeldet"),
        ("/oauth2/done", 200, "Sie sind angemeldet"),
        ("/oauth2/callback?code=x&state=y", 400, "Ihr Browser hat kein Cookie gesendet"),
        ("/oauth2/start?provider=nobody", 404, "Diesen Anbieter von Konten gibt es nicht"),
        ("/oauth2/nothing", 404, "Diese Seite gibt es nicht"),
    ] {
        let shown = visit(&mut browser, target);
        assert_eq!(shown.status, status, "{target}");
        assert!(shown.text().contains(&format!("<h1>{title}</h1>")), "{target}: {}", shown.text());
        assert_eq!(shown.value("content-language"), Some("de"), "{target}");
        assert!(shown.value("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
    }
    let told = browser.send("GET", "/oauth2/nothing", "Accept: */*\r\n", "");
    assert_eq!((told.status, told.text().as_str()), (404, "no_route\n"));
}
