//! Logging in with a browser: against a provider that is played, with sessions in cookies and in a database.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use auth::time::Timestamp;
use gateway::clock::ManualClock;
use gateway::login::LoginStatus;
use gateway::login::store::SessionStore;
use postern::sessions::{self, Sessions};
use serde_json::json;

use super::harness::{CONTROL, Fixture, Setup, Upstream, now};
use super::login_provider::{Browser, Played, parameters};

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const OTHER_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
pub(super) const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A gateway that people log in at, and everything around it.
pub(super) struct Stage {
    pub(super) clock: Arc<ManualClock>,
    pub(super) provider: Played,
    pub(super) fixture: Fixture,
}

impl Stage {
    /// Another proxy asks; sessions are in cookies.
    pub(super) fn asked(listener: &str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = Played::new(&clock);
        let setup = Setup { listener: listener.into(), ..setup(&provider, "") };
        let fixture = start(&setup, &clock, None);
        Self { clock, provider, fixture }
    }

    /// Sessions are in cookies.
    pub(super) fn carried() -> Self {
        Self::new("", None)
    }

    /// Sessions are in a database.
    pub(super) fn kept() -> Self {
        Self::new("", Some(database()))
    }

    /// The cookie of a session in another database.
    fn kept_elsewhere(&self) -> String {
        let other = gateway(&self.provider, &self.clock, "", Some(database()));
        let mut browser = Browser::new(other.address, "app.test");
        browser.log_in(&self.provider, "/");
        browser.session().unwrap().clone()
    }

    fn new(more: &str, sessions: Option<Arc<dyn SessionStore>>) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = Played::new(&clock);
        let fixture = gateway(&provider, &clock, more, sessions);
        Self { clock, provider, fixture }
    }

    fn status(&self) -> LoginStatus {
        self.fixture.gateway().logins().unwrap()
    }

    pub(super) fn browser(&self) -> Browser {
        Browser::new(self.fixture.address, "app.test")
    }

    pub(super) fn logged_in(&self) -> Browser {
        let mut browser = self.browser();
        browser.log_in(&self.provider, "/");
        browser
    }
}

pub(super) fn setup(provider: &Played, more: &str) -> Setup {
    Setup {
        route: "login = true".into(),
        more: format!(
            "[[route]]\nname = \"api\"\npath = {{ prefix = \"/api\" }}\nupstream = \"backend\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n\
             [login]\norigins = [\"https://app.test\", \"https://other.test\"]\nkeys_file = \"keys\"\n{more}\n\
             [[login.provider]]\nname = \"id\"\ntitle = \"The Provider\"\nurl = \"{}\"\nclient_id = \"gateway\"\nclient_secret_file = \"secret\"",
            provider.url
        ),
        ..Setup::default()
    }
}

pub(super) fn gateway(
    provider: &Played,
    clock: &Arc<ManualClock>,
    more: &str,
    sessions: Option<Arc<dyn SessionStore>>,
) -> Fixture {
    start(&setup(provider, more), clock, sessions)
}

fn start(setup: &Setup, clock: &Arc<ManualClock>, sessions: Option<Arc<dyn SessionStore>>) -> Fixture {
    let (dir, upstream) = (keyed(), Upstream::start());
    let text = setup.file(dir.path(), upstream.address);
    Fixture::keeping(dir, upstream, &text, clock.clone(), sessions)
}

/// A folder with what a login needs.
pub(super) fn keyed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, KEY).unwrap();
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(dir.path().join("secret"), "secret\n").unwrap();
    dir
}

pub(super) fn database() -> Arc<dyn SessionStore> {
    let dir = tempfile::tempdir().unwrap().keep();
    let database = postern::config::Database::of_file(&dir.join("sessions.db"));
    let store = CONTROL.block_on(sessions::open(&database)).unwrap();
    Arc::new(Sessions::new(store, CONTROL.handle().clone()))
}

/// For what has to hold wherever sessions are kept.
fn everywhere(test: impl Fn(&Stage)) {
    test(&Stage::carried());
    test(&Stage::kept());
}

#[test]
fn whoever_has_no_session_logs_in_and_comes_to_where_they_wanted() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let sent = browser.visit("/reports/7?year=2026&q=a%20b");
        assert_eq!(sent.status, 302);
        assert_eq!(sent.value("cache-control"), Some("no-store"));
        let location = browser.go_to_provider("/reports/7?year=2026&q=a%20b");
        let asked = parameters(&location);
        assert_eq!(asked["client_id"], "gateway");
        assert_eq!(asked["scope"], "openid profile email");
        assert_eq!(asked["redirect_uri"], "https://app.test/oauth2/callback");
        let back = browser.back(&stage.provider.approve(&location));
        assert_eq!(back.value("location"), Some("https://app.test/reports/7?year=2026&q=a%20b"));
        browser.cookies.insert("theme".into(), "dark".into());
        assert_eq!(browser.follow(&back).status, 200);
        let seen = stage.fixture.upstream.only();
        assert_eq!(seen.line(), "GET /reports/7?year=2026&q=a%20b HTTP/1.1");
        assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
        assert_eq!(seen.values("x-forwarded-groups"), ["dev"]);
        assert_eq!(seen.values("cookie"), ["theme=dark"], "ours stay here");
        assert!(seen.values("x-forwarded-access-token").is_empty());
        assert_eq!(stage.status().logins, 1);
    });
}

#[test]
fn programs_are_told_and_not_led() {
    let stage = Stage::carried();
    for lines in [
        "",
        "Accept: */*\r\n",
        "Accept: application/json\r\n",
        "Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n",
        "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n",
        "Accept: text/html\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
        "Content-Type: application/grpc\r\n",
    ] {
        let told = stage.browser().send("GET", "/", lines, "");
        assert_eq!(told.status, 401, "{lines}");
        assert!(told.value("www-authenticate").unwrap().starts_with("Bearer"), "{lines}");
        assert!(told.value("location").is_none());
    }
    let bearer = stage.browser().send("GET", "/", "Accept: text/html\r\nAuthorization: Bearer x\r\n", "");
    assert_eq!(bearer.status, 401);
    assert_eq!(stage.browser().visit("/api/x").status, 401, "this route asks for no login");
    assert_eq!(Browser::new(stage.fixture.address, "else.test").visit("/").status, 401, "no origin of ours");
    assert!(stage.fixture.upstream.seen().is_empty());
}

#[test]
fn a_session_is_a_credential_where_it_was_begun_and_wanted() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 200);
        assert_eq!(browser.visit("/api/x").status, 401, "the route takes no sessions");
        let mut elsewhere =
            Browser { cookies: browser.cookies.clone(), ..Browser::new(stage.fixture.address, "other.test") };
        assert_eq!(elsewhere.visit("/").status, 302, "a cookie that was carried to another host");
        let mut http = browser.clone();
        let session = http.cookies.remove("__Host-postern").unwrap();
        http.cookies.insert("postern".into(), session.clone());
        assert_eq!(http.visit("/").status, 302, "under the name that any host could set");
        let twice = format!("Cookie: __Host-postern={session}; __Host-postern={session}\r\n");
        assert_eq!(stage.browser().send("GET", "/", &twice, "").status, 401);
        let mut forged = browser.clone();
        let mut bytes = session.into_bytes();
        let last = bytes.len() - 1;
        bytes[last] = if bytes[last] == b'A' { b'B' } else { b'A' };
        forged.cookies.insert("__Host-postern".into(), String::from_utf8(bytes).unwrap());
        assert_eq!(forged.visit("/").status, 302);
        // A token sent along is the credential, and nothing else.
        let bearer = browser.send("GET", "/", "Authorization: Bearer nonsense\r\n", "");
        assert_eq!(bearer.status, 401);
        let token = stage.fixture.issuer.token(|claims| claims["preferred_username"] = "bob".into());
        assert_eq!(browser.send("GET", "/", &format!("Authorization: Bearer {token}\r\n"), "").status, 200);
        assert_eq!(stage.fixture.upstream.seen().last().unwrap().values("x-forwarded-user"), ["bob"]);
    });
}

#[test]
fn tabs_log_in_at_once_without_getting_into_each_others_way() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let tabs: Vec<_> = (0..12).map(|n| browser.go_to_provider(&format!("/tab/{n}"))).collect();
        assert_eq!(browser.cookies.len(), 1, "one cookie for all of them: {:?}", browser.cookies.keys());
        for (n, location) in tabs.iter().enumerate().rev() {
            let back = browser.back(&stage.provider.approve(location));
            assert_eq!(
                (back.status, back.value("location")),
                (303, Some(&*format!("https://app.test/tab/{n}")))
            );
            assert_eq!(browser.visit("/").status, 200);
        }
        assert_eq!(browser.cookies.len(), 2);
    });
}

#[test]
fn a_login_ends_where_it_began_and_once() {
    let stage = Stage::carried();
    let mut victim = stage.browser();
    let mut attacker = stage.browser();
    let location = attacker.go_to_provider("/");
    let approved = stage.provider.approve(&location);
    assert_eq!(victim.back(&approved).status, 400, "a browser without a login");
    victim.go_to_provider("/");
    let refused = victim.back(&approved);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("did not begin here"));
    assert!(victim.session().is_none());
    for state in ["", "nonsense", &approved.1[1..]] {
        assert_eq!(attacker.back(&(approved.0.clone(), state.to_owned())).status, 400, "{state}");
    }
    let twice = format!("/oauth2/callback?code={}&code=x&state={}", approved.0, approved.1);
    let fresh = attacker.clone();
    assert_eq!(attacker.visit(&twice).status, 400);
    let mut attacker = fresh;
    let again = attacker.go_to_provider("/page");
    let approved = stage.provider.approve(&again);
    assert_eq!(attacker.back(&approved).status, 303);
    assert!(attacker.session().is_some());
    let replayed = attacker.back(&approved);
    assert_eq!((replayed.status, replayed.value("location")), (303, Some("https://app.test/page")));
    assert!(replayed.value("set-cookie").is_none());
    assert_eq!(
        stage.provider.state().asked["authorization_code"],
        1,
        "asked once, and not for the refused ones"
    );
}

#[test]
fn a_login_page_left_open_over_night_leads_on() {
    let stage = Stage::carried();
    // The provider's keys have come: an hour that passes while they are fetched would make them too old on arrival.
    stage.browser().log_in(&stage.provider, "/");
    let mut browser = stage.browser();
    let location = browser.go_to_provider("/deep?link");
    stage.clock.advance(Duration::from_hours(1));
    let late = browser.back(&stage.provider.approve(&location));
    assert_eq!(late.status, 303);
    let started = browser.follow(&late);
    let location = started.value("location").unwrap().to_owned();
    let back = browser.back(&stage.provider.approve(&location));
    assert_eq!(back.value("location"), Some("https://app.test/deep?link"), "{} {}", back.status, back.text());
}

#[test]
fn what_a_provider_says_is_believed_only_when_it_is_right() {
    for (claims, what) in [
        (json!({"nonce": "another"}), "nonce"),
        (json!({"nonce": null}), "no nonce"),
        (json!({"aud": "else"}), "audience"),
        (json!({"aud": ["gateway", "else"]}), "audience without party"),
        (json!({"azp": "else"}), "party"),
        (json!({"iss": "https://evil.test"}), "issuer"),
        (json!({"sub": null}), "nobody"),
        (json!({"preferred_username": "a\r\nb"}), "control character"),
        (json!({"events": {}}), "logout token"),
    ] {
        let stage = Stage::carried();
        stage.provider.state().claims = claims;
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let refused = browser.back(&stage.provider.approve(&location));
        assert_eq!(refused.status, 403, "{what}: {}", refused.text());
        assert!(browser.session().is_none(), "{what}");
        assert_eq!(stage.status().login_refused, 1, "{what}");
    }
}

#[test]
fn a_provider_whose_clock_is_wrong_is_not_the_persons_fault() {
    for claims in [json!({"exp": 1}), json!({"iat": 4_102_444_800_u64})] {
        let stage = Stage::carried();
        stage.provider.state().claims = claims;
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        assert_eq!(browser.back(&stage.provider.approve(&location)).status, 503);
        assert!(browser.session().is_none());
    }
}

#[test]
fn an_answer_is_of_the_provider_that_was_asked() {
    let stage = Stage::carried();
    stage.provider.state().metadata = json!({"authorization_response_iss_parameter_supported": true});
    let mut browser = stage.browser();
    for (iss, status) in [("", 403), ("&iss=https://evil.test", 403), ("&iss=&iss=", 403)] {
        let location = browser.go_to_provider("/");
        let (code, state) = stage.provider.approve(&location);
        let back = browser.visit(&format!("/oauth2/callback?code={code}&state={state}{iss}"));
        assert_eq!(back.status, status, "{iss}");
    }
    let location = browser.go_to_provider("/");
    let (code, state) = stage.provider.approve(&location);
    let back =
        browser.visit(&format!("/oauth2/callback?code={code}&state={state}&iss={}", stage.provider.url));
    assert_eq!(back.status, 303);
    let mut browser = stage.browser();
    let refused = browser.go_to_provider("/x");
    let (_, state) = stage.provider.approve(&refused);
    let url = &stage.provider.url;
    let back = browser.visit(&format!("/oauth2/callback?error=access_denied%3Cb%3E&state={state}&iss={url}"));
    assert_eq!(back.status, 403);
    assert!(back.text().contains("The Provider said no: access_denied&#60;b&#62;"), "{}", back.text());
}

#[test]
fn a_provider_that_is_down_is_503_and_is_asked_again() {
    let stage = Stage::carried();
    stage.provider.state().ill = true;
    let mut browser = stage.browser();
    let sent = browser.visit("/");
    let down = browser.follow(&sent);
    assert_eq!(down.status, 503);
    assert!(down.value("retry-after").is_some());
    assert!(down.text().contains("The Provider"));
    stage.provider.state().ill = false;
    std::thread::sleep(Duration::from_millis(1100));
    browser.log_in(&stage.provider, "/");
    assert_eq!(browser.visit("/").status, 200);
}

#[test]
fn every_provider_answers_at_an_address_of_its_own() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let (provider, second) = (Played::new(&clock), Played::new(&clock));
    let mut setup = setup(&provider, "");
    let further = format!(
        "\n[[login.provider]]\nname = \"second\"\nurl = \"{}\"\nclient_id = \"gateway\"\nclient_secret_file = \"secret\"",
        second.url
    );
    setup.more.push_str(&further);
    let fixture = start(&setup, &clock, None);
    let stage = Stage { clock, provider, fixture };
    let mut browser = stage.browser();
    let sent = browser.visit("/x");
    let chosen = browser.follow(&sent);
    assert_eq!(chosen.value("location"), Some("https://app.test/oauth2/sign_in?rd=%2Fx"));
    let page = browser.follow(&chosen).text();
    assert!(page.contains("The Provider") && page.contains(">second</a>"), "{page}");
    let go = |browser: &mut Browser, name: &str| {
        let started = browser.visit(&format!("/oauth2/start?rd=/x&provider={name}"));
        started.value("location").unwrap().to_owned()
    };
    let location = go(&mut browser, "second");
    assert_eq!(parameters(&location)["redirect_uri"], "https://app.test/oauth2/callback/second");
    // What one provider answers cannot be passed off as another's: the code would be shown to the wrong one.
    let (code, state) = second.approve(&location);
    assert_eq!(browser.visit(&format!("/oauth2/callback?code={code}&state={state}")).status, 400);
    let location = go(&mut browser, "id");
    let (code, state) = stage.provider.approve(&location);
    assert_eq!(browser.visit(&format!("/oauth2/callback/second?code={code}&state={state}")).status, 400);
    assert!(second.state().asked.is_empty() && stage.provider.state().asked.is_empty());
    assert_eq!(browser.visit("/oauth2/start?provider=third").status, 404);
    let location = go(&mut browser, "id");
    assert_eq!(browser.back(&stage.provider.approve(&location)).status, 303);
    assert_eq!(browser.visit("/x").status, 200);
}

#[test]
fn another_provider_under_the_name_has_no_business_with_what_was_begun() {
    let stage = Stage::carried();
    let mut browser = stage.logged_in();
    let mut waiting = stage.browser();
    let location = waiting.go_to_provider("/");
    let other = Played::new(&stage.clock);
    stage.fixture.reload(&setup(&other, ""));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(browser.visit("/").status, 302);
    assert_eq!(waiting.back(&stage.provider.approve(&location)).status, 404);
    browser.visit("/oauth2/sign_out");
    assert!(other.state().asked.is_empty() && other.state().revoked.is_empty(), "it is shown nothing");
}

#[test]
fn what_a_provider_gave_out_is_not_lost_when_it_falls_silent_over_it() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.provider.state().metadata = json!({});
        stage.provider.state().id_tokens = false;
        stage.provider.state().userinfo_ill = true;
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 200, "the refresh token was taken, userinfo failed");
        stage.provider.state().userinfo_ill = false;
        stage.clock.advance(Duration::from_secs(11));
        assert_eq!(browser.visit("/").status, 200, "the next one is good");
        assert!(!stage.provider.state().reused);
        assert!(stage.status().renewal_failed >= 1 && stage.status().renewed >= 1);
    });
}

#[test]
fn what_userinfo_says_no_more_is_gone() {
    everywhere(|stage| {
        stage.provider.state().claims = json!({"groups": null});
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 403, "the ID token says no groups");
        stage.provider.state().id_tokens = false;
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 200, "userinfo says them");
        stage.provider.state().groups.clear();
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 403);
    });
}

#[test]
fn short_tokens_are_renewed_from_the_newest() {
    let stage = Stage::carried();
    stage.provider.state().lasts = 30;
    let first = stage.logged_in();
    for _ in 0..6 {
        stage.clock.advance(Duration::from_secs(28));
        let mut late = first.clone();
        assert_eq!(late.visit("/").status, 200, "with the first cookie still");
        assert!(late.session() != first.session(), "the newest is given to it");
    }
    assert!(!stage.provider.state().reused);
}

#[test]
fn somebody_else_in_the_same_browser_ends_the_session_before() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let before = browser.clone();
        stage.provider.state().subject = "bob-id".into();
        let location = parameters(browser.visit("/oauth2/start?rd=/").value("location").unwrap());
        assert!(location.contains_key("state"));
        let started = browser.visit("/oauth2/start?rd=/");
        let location = started.value("location").unwrap().to_owned();
        assert_eq!(browser.back(&stage.provider.approve(&location)).status, 303);
        assert_eq!(browser.visit("/").status, 200);
        assert_eq!(stage.fixture.upstream.seen().last().unwrap().values("x-forwarded-user"), ["bob"]);
        assert_eq!(before.clone().visit("/").status, 302);
    });
}

#[test]
fn a_name_that_we_never_gave_out_is_not_asked_about() {
    let stage = Stage::new("", Some(Arc::new(Broken::Gone)));
    for cookie in ["A".repeat(43), "A".repeat(86), "x".into()] {
        let mut browser = stage.browser();
        browser.cookies.insert("__Host-postern".into(), cookie);
        assert_eq!(browser.visit("/").status, 302, "the database is gone, and nobody noticed");
    }
}

#[test]
fn where_to_go_is_here_or_home() {
    let stage = Stage::carried();
    let long = format!("/deep/link?{}", "x".repeat(3000));
    let sent = stage.browser().visit(&long);
    assert_eq!(
        sent.value("location"),
        Some("https://app.test/oauth2/start?rd=%2Fdeep%2Flink"),
        "what is too long is left"
    );
    for (asked, goes) in [
        ("/a%3Fb%3Dc", "/a?b=c"),
        ("https://app.test/a", "/a"),
        ("https://evil.test/", "/"),
        ("//evil.test/", "/"),
        ("/%5Cevil.test", "/"),
        ("/%09/evil.test", "/"),
        ("/%40evil.test", "/"),
        ("https://app.test%40evil.test/", "/"),
        ("javascript:alert(1)", "/"),
    ] {
        let mut browser = stage.browser();
        let started = browser.visit(&format!("/oauth2/start?rd={asked}"));
        let location = started.value("location").unwrap().to_owned();
        let back = browser.back(&stage.provider.approve(&location));
        assert_eq!(back.value("location"), Some(&*format!("https://app.test{goes}")), "{asked}");
        let mut out = stage.browser();
        let gone = out.visit(&format!("/oauth2/sign_out?rd={asked}"));
        assert_eq!(gone.value("location"), Some(&*format!("https://app.test{goes}")), "{asked}");
    }
}

#[test]
fn what_does_not_fit_into_a_cookie_is_kept_in_a_database() {
    let carried = Stage::carried();
    carried.provider.state().padding = 6000;
    let mut browser = carried.browser();
    let location = browser.go_to_provider("/");
    let refused = browser.back(&carried.provider.approve(&location));
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("does not fit"), "{}", refused.text());
    assert!(browser.session().is_none());
    let kept = Stage::kept();
    kept.provider.state().padding = 8000;
    let mut browser = kept.logged_in();
    assert_eq!(browser.session().unwrap().len(), 86);
    assert_eq!(browser.visit("/").status, 200);
}

#[test]
fn one_renewal_however_many_requests_race() {
    everywhere(|stage| {
        let browser = stage.logged_in();
        stage.provider.state().slow = Duration::from_millis(100);
        stage.clock.advance(Duration::from_mins(6));
        let answers: Vec<_> = std::thread::scope(|scope| {
            let race = |_| {
                let mut tab = browser.clone();
                scope.spawn(move || (tab.visit("/").status, tab))
            };
            let racing: Vec<_> = (0..24).map(race).collect();
            racing.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(
            answers.iter().all(|(status, _)| *status == 200),
            "{:?}",
            answers.iter().map(|a| a.0).collect::<Vec<_>>()
        );
        assert_eq!(stage.provider.state().asked["refresh_token"], 1);
        // A tab that did not hear of the new cookie goes on with the old one, and does not use the old refresh token.
        stage.clock.advance(Duration::from_mins(1));
        let mut late = browser.clone();
        assert_eq!(late.visit("/").status, 200);
        // And the new one goes on from there.
        let (_, mut tab) = answers.into_iter().next().unwrap();
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(tab.visit("/").status, 200);
        assert_eq!(stage.provider.state().asked["refresh_token"], 2);
        assert!(!stage.provider.state().reused, "no refresh token is used twice");
    });
}

#[test]
fn processes_that_share_a_database_share_sessions_and_renew_them_once() {
    let sessions = database();
    let stage = Stage::new("", Some(sessions.clone()));
    let other = gateway(&stage.provider, &stage.clock, "", Some(sessions));
    let mut browser = stage.logged_in();
    assert_eq!(browser.at(other.address).visit("/").status, 200);
    stage.provider.state().slow = Duration::from_millis(100);
    stage.clock.advance(Duration::from_mins(6));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let racing: Vec<_> = (0..16)
            .map(|n| {
                let mut tab = if n % 2 == 0 { browser.clone() } else { browser.at(other.address) };
                scope.spawn(move || tab.visit("/").status)
            })
            .collect();
        racing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(stage.provider.state().asked["refresh_token"], 1);
    // Ended here, it is over here at once, and there as soon as what was believed has to be looked up.
    let mut stolen = browser.at(other.address);
    assert_eq!(stolen.visit("/").status, 200);
    browser.clone().visit("/oauth2/sign_out");
    assert_eq!(browser.visit("/").status, 302);
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(stolen.visit("/").status, 302);
}

#[test]
fn logging_out_leaves_nothing_alive() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let stolen = browser.clone();
        assert_eq!(browser.visit("/").status, 200);
        let out = browser.visit("/oauth2/sign_out");
        assert_eq!(out.status, 303);
        let location = out.value("location").unwrap();
        assert!(location.starts_with(&format!("{}/logout?", stage.provider.url)), "{location}");
        let asked = parameters(location);
        assert_eq!(asked["post_logout_redirect_uri"], "https://app.test/oauth2/signed_out");
        assert_eq!(asked["client_id"], "gateway");
        assert!(asked["id_token_hint"].split('.').count() == 3);
        assert!(browser.cookies.is_empty());
        assert!(stage.provider.state().revoked.iter().any(|token| token.starts_with("refresh-")));
        assert_eq!(stolen.clone().visit("/").status, 302, "the cookie from before");
        assert_eq!(stolen.clone().send("GET", "/oauth2/auth", "", "").status, 401);
        let done = browser.visit("/oauth2/signed_out");
        assert!(done.text().contains("You are signed out"));
        // A second time there is nothing to end.
        assert_eq!(
            browser.visit("/oauth2/sign_out").value("location"),
            Some("https://app.test/oauth2/signed_out")
        );
        // Another site's link asks first; so does its form, which browsers send without the cookie, and whose answer they believe.
        let mut other = stage.logged_in();
        let posted = stage.browser().send("POST", "/oauth2/sign_out", "Sec-Fetch-Site: cross-site\r\n", "");
        assert_eq!((posted.status, posted.value("set-cookie")), (200, None));
        let asked = other.send("GET", "/oauth2/sign_out", "Sec-Fetch-Site: cross-site\r\n", "");
        assert_eq!((asked.status, asked.value("set-cookie")), (200, None));
        // Browsers hold a page's `form-action` against the redirects behind a form, and these lead to the provider.
        let text = asked.text();
        assert!(
            !text.contains("<form") && text.contains("href=\"https://app.test/oauth2/sign_out\""),
            "{text}"
        );
        assert_eq!(other.visit("/").status, 200);
        let mut link = other.clone();
        assert_eq!(link.send("GET", "/oauth2/sign_out", "Sec-Fetch-Site: same-origin\r\n", "").status, 303);
        assert_eq!(other.visit("/").status, 302);
        let mut other = stage.logged_in();
        assert_eq!(other.send("POST", "/oauth2/sign_out", "Sec-Fetch-Site: same-origin\r\n", "").status, 303);
        assert_eq!(other.visit("/").status, 302);
    });
}

#[test]
fn what_is_renewed_while_somebody_logs_out_does_not_live_on() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_mins(6));
        stage.provider.state().slow = Duration::from_millis(300);
        let mut tab = browser.clone();
        let renewing = std::thread::spawn(move || tab.visit("/").status);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(browser.visit("/oauth2/sign_out").status, 303);
        renewing.join().unwrap();
        // The renewal may come to its end after the answer.
        for _ in 0..50 {
            if stage.provider.state().living() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(stage.provider.state().living(), 0, "no refresh token is good any more");
        assert_eq!(browser.visit("/").status, 302);
    });
}

#[test]
fn an_upstream_cannot_make_somebody_somebody_else() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = Played::new(&clock);
    let dir = keyed();
    let upstream = Upstream::answering(|_, socket| {
        let cookies = "Set-Cookie: __Host-postern=other; Path=/; Secure; HttpOnly; SameSite=Lax\r\nSet-Cookie: theme=dark; Path=/; Secure; HttpOnly; SameSite=Lax\r\n";
        socket
            .write_all(format!("HTTP/1.1 200 OK\r\n{cookies}content-length: 2\r\n\r\nok").as_bytes())
            .is_ok()
    });
    let text = setup(&provider, "").file(dir.path(), upstream.address);
    let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    let stage = Stage { clock, provider, fixture };
    let mut browser = stage.logged_in();
    let session = browser.session().unwrap().clone();
    assert_eq!(browser.visit("/").status, 200);
    assert_eq!(browser.session(), Some(&session));
    assert_eq!(browser.cookies["theme"], "dark");
}

#[test]
fn a_form_is_not_lost_with_a_session() {
    let stage = Stage::carried();
    let mut browser = stage.browser();
    let lines = format!("Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n{FORM}");
    let ended = browser.send("POST", "/orders", &lines, "item=7");
    assert_eq!(ended.status, 401, "no redirect, which would forget the form");
    let text = ended.text();
    assert!(text.contains("load it again") && text.contains(r#"target="_blank""#), "{text}");
    let link = "/oauth2/start?rd=%2Foauth2%2Fdone";
    assert!(text.contains(&format!("https://app.test{link}")), "{text}");
    assert!(stage.fixture.upstream.seen().is_empty());
    // What somebody does then.
    let location = browser.visit(link).value("location").unwrap().to_owned();
    let back = browser.back(&stage.provider.approve(&location));
    assert!(browser.follow(&back).text().contains("You are signed in"));
    assert_eq!(browser.send("POST", "/orders", &lines, "item=7").status, 200);
    assert_eq!(stage.fixture.upstream.only().body, b"item=7");
}

#[test]
fn changed_groups_count_with_the_next_renewal() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 200);
        stage.provider.state().groups = vec!["sales".into()];
        stage.clock.advance(Duration::from_mins(4));
        assert_eq!(browser.visit("/").status, 200);
        stage.clock.advance(Duration::from_mins(1));
        assert_eq!(browser.visit("/").status, 403, "no longer of the group");
        stage.provider.state().groups = vec!["dev".into()];
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 200);
    });
}

#[test]
fn what_the_provider_ended_is_over() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        let token = "refresh-2".to_owned();
        {
            let mut state = stage.provider.state();
            state.revoked.push(token);
            state.lasts = 600;
        }
        stage.provider.state().subject = "mallory-id".into();
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 302, "it speaks of somebody else");
        assert_eq!(browser.visit("/").status, 302);
        assert!(stage.status().renewal_refused >= 1);
    });
}

#[test]
fn a_silent_provider_is_forgiven_while_its_own_token_lasts() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.provider.state().ill = true;
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(browser.visit("/").status, 200, "its access token lasts ten minutes");
        stage.clock.advance(Duration::from_mins(4));
        let down = browser.visit("/");
        assert_eq!((down.status, down.value("retry-after")), (503, Some("1")), "never 403, never a login");
        stage.provider.state().ill = false;
        assert_eq!(browser.visit("/").status, 200);
    });
}

#[test]
fn a_session_ends_by_itself() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_mins(64));
        assert_eq!(browser.visit("/").status, 200, "idle for almost an hour, and five minutes");
        stage.clock.advance(Duration::from_mins(65));
        assert_eq!(browser.visit("/").status, 302, "idle for longer");
        let mut busy = stage.logged_in();
        for _ in 0..23 {
            stage.clock.advance(Duration::from_mins(30));
            assert_eq!(busy.visit("/").status, 200);
        }
        stage.clock.advance(Duration::from_mins(30));
        assert_eq!(busy.visit("/").status, 302, "twelve hours");
    });
}

#[test]
fn a_provider_without_refresh_tokens_is_asked_by_its_access_token() {
    everywhere(|stage| {
        stage.provider.state().refreshes = false;
        let mut browser = stage.logged_in();
        stage.provider.state().groups = vec!["sales".into()];
        stage.clock.advance(Duration::from_mins(5));
        assert_eq!(browser.visit("/").status, 403);
        stage.clock.advance(Duration::from_mins(5));
        assert_eq!(browser.visit("/").status, 302, "the access token has ended");
    });
}

#[test]
fn a_provider_logs_people_out() {
    everywhere(|stage| {
        let (mut alice, mut phone) = (stage.logged_in(), stage.browser());
        {
            let mut state = stage.provider.state();
            state.sid = Some("sid-2".into());
        }
        phone.log_in(&stage.provider, "/");
        assert_eq!((alice.visit("/").status, phone.visit("/").status), (200, 200));
        let said = |token: &str| {
            stage.browser().send("POST", "/oauth2/backchannel_logout", FORM, &format!("logout_token={token}"))
        };
        let token = |changes| stage.provider.logout_token("logout+jwt", &changes);
        for (bad, what) in [
            (json!({"nonce": "n"}), "nonce"),
            (json!({"events": null}), "no event"),
            (json!({"events": {"x": {}}}), "another event"),
            (json!({"aud": "else"}), "for somebody else"),
            (json!({"iss": "https://evil.test"}), "of somebody else"),
            (json!({"exp": 1}), "old"),
            (json!({"jti": null}), "without a name"),
            (json!({"sid": null}), "about nobody"),
            (json!({"iat": "now"}), "without a time"),
        ] {
            let refused = said(&token(bad));
            assert_eq!((refused.status, refused.value("cache-control")), (400, Some("no-store")), "{what}");
        }
        let mut forged = token(json!({}));
        forged.truncate(forged.len() - 4);
        assert_eq!(said(&format!("{forged}AAAA")).status, 400);
        assert_eq!(said("nonsense").status, 400);
        let as_id = stage.provider.logout_token("at+jwt", &json!({}));
        assert_eq!(said(&as_id).status, 400);
        let whole = stage.browser().send("GET", "/oauth2/backchannel_logout", "", "");
        assert_eq!((whole.status, whole.value("allow")), (405, Some("POST")));
        assert_eq!((alice.visit("/").status, phone.visit("/").status), (200, 200), "nobody was logged out");
        let good = token(json!({}));
        assert_eq!(said(&good).status, 200);
        assert_eq!(alice.visit("/").status, 302, "with the next request");
        assert_eq!(phone.visit("/").status, 200, "another session of the provider's");
        assert_eq!(said(&good).status, 400, "a second time");
        stage.clock.advance(Duration::from_secs(2));
        let held_back = token(json!({"sid": null, "sub": "alice-id"}));
        stage.clock.advance(Duration::from_secs(35));
        let mut later = stage.logged_in();
        assert_eq!(said(&held_back).status, 200);
        assert_eq!(phone.visit("/").status, 302, "all of alice");
        assert_eq!(later.visit("/").status, 200, "what began after the message was made");
        assert_eq!(stage.status().provider_logouts, 2);
    });
}

#[test]
fn proxies_and_pages_ask_whose_session_it_is() {
    everywhere(|stage| {
        let ask = |browser: &Browser, query: &str| {
            browser.clone().send("GET", &format!("/oauth2/auth{query}"), "", "")
        };
        assert_eq!(ask(&stage.browser(), "").status, 401);
        let browser = stage.logged_in();
        let told = ask(&browser, "");
        assert_eq!((told.status, told.value("cache-control")), (202, Some("no-store")));
        assert_eq!(told.value("x-auth-request-user"), Some("alice"));
        assert_eq!(told.value("x-auth-request-email"), Some("alice@example.com"));
        assert_eq!(told.value("x-auth-request-groups"), Some("dev"));
        for (query, status) in [
            ("?allowed_groups=dev", 202),
            ("?allowed_groups=ops,dev", 202),
            ("?allowed_groups=ops", 403),
            ("?allowed_groups=", 403),
            ("?allowed_emails=Alice@example.com", 202),
            ("?allowed_emails=bob@example.com", 403),
            ("?allowed_email_domains=example.com", 202),
            ("?allowed_email_domains=evil.com", 403),
            ("?allowed_groups=dev&allowed_emails=bob@example.com", 403),
        ] {
            assert_eq!(ask(&browser, query).status, status, "{query}");
        }
        let user = browser.clone().send("GET", "/oauth2/userinfo", "", "");
        let user: serde_json::Value = serde_json::from_slice(&user.body).unwrap();
        assert_eq!(user["preferredUsername"], "alice");
        assert_eq!(user["email"], "alice@example.com");
        assert_eq!(stage.browser().send("GET", "/oauth2/userinfo", "", "").status, 401);
        assert_eq!(browser.clone().visit("/oauth2/nothing").status, 404);
        assert_eq!(browser.clone().visit("/oauth2").status, 404);
        assert!(stage.fixture.upstream.seen().is_empty());
    });
}

#[test]
fn a_key_is_exchanged_without_anybody_noticing() {
    let stage = Stage::carried();
    let mut browser = stage.logged_in();
    let keys = stage.fixture.dir.path().join("keys");
    let setup = setup(&stage.provider, "");
    std::fs::write(&keys, format!("{OTHER_KEY}\n{KEY}\n")).unwrap();
    stage.fixture.reload(&setup);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(browser.visit("/").status, 200, "what the old key sealed");
    let mut new = stage.logged_in();
    std::fs::write(&keys, OTHER_KEY).unwrap();
    stage.fixture.reload(&setup);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(new.visit("/").status, 200, "the new one seals");
    assert_eq!(browser.visit("/").status, 302, "the old one is gone");
}

#[test]
fn what_ended_stays_ended_through_a_reload() {
    let stage = Stage::carried();
    let mut browser = stage.logged_in();
    let stolen = browser.clone();
    browser.visit("/oauth2/sign_out");
    stage.fixture.reload(&setup(&stage.provider, "lifetime = \"13h\""));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stolen.clone().visit("/").status, 302);
}

#[test]
fn an_upstream_is_given_the_access_token_when_it_is_said_so() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    let provider = Played::new(&clock);
    let stage = {
        let fixture = gateway(&provider, &clock, "", Some(database()));
        Stage { clock, provider, fixture }
    };
    let with_token =
        Setup { route: "login = true\nforward_access_token = true".into(), ..setup(&stage.provider, "") };
    stage.fixture.reload(&with_token);
    std::thread::sleep(Duration::from_millis(50));
    let mut browser = stage.logged_in();
    assert_eq!(browser.send("GET", "/", "X-Forwarded-Access-Token: forged\r\n", "").status, 200);
    let seen = stage.fixture.upstream.only();
    assert_eq!(seen.values("x-forwarded-access-token"), ["access-2"]);
    stage.clock.advance(Duration::from_mins(6));
    browser.visit("/");
    assert_eq!(stage.fixture.upstream.seen()[1].values("x-forwarded-access-token"), ["access-3"]);
}

#[test]
fn a_database_that_is_gone_is_503() {
    let stage = Stage::new("", Some(Arc::new(Broken::Gone)));
    let mut browser = stage.browser();
    let location = browser.go_to_provider("/");
    assert_eq!(browser.back(&stage.provider.approve(&location)).status, 503);
    // Made with the keys of the test, and in nobody's database.
    browser.cookies.insert("__Host-postern".into(), stage.kept_elsewhere());
    let down = browser.visit("/");
    assert_eq!((down.status, down.value("retry-after")), (503, Some("1")));
    assert_eq!(browser.visit("/oauth2/sign_out").status, 503, "nobody is told that it is over");
    assert_eq!(browser.send("GET", "/oauth2/auth", "", "").status, 503);
    let token = stage.provider.logout_token("logout+jwt", &json!({}));
    for _ in 0..2 {
        let said = browser.send("POST", "/oauth2/backchannel_logout", FORM, &format!("logout_token={token}"));
        assert_eq!(said.status, 503, "the provider comes again");
    }
}

#[test]
fn a_database_that_says_nothing_is_503() {
    let stage = Stage::new("", Some(Arc::new(Broken::Silent)));
    let head = format!(
        "GET / HTTP/1.1\r\nHost: app.test\r\nAccept: text/html\r\nCookie: __Host-postern={}\r\n\r\n",
        stage.kept_elsewhere()
    );
    // One asks, the other waits for what it is told; and so does whoever comes later.
    for _ in 0..2 {
        let mut clients = [stage.fixture.connect(), stage.fixture.connect()];
        for client in &mut clients {
            client.socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            client.send(&head);
        }
        for mut client in clients {
            let told = client.response();
            assert_eq!((told.status, told.value("retry-after")), (503, Some("1")));
        }
    }
}

/// A store whose database is gone.
enum Broken {
    /// It says so.
    Gone,
    /// It says nothing.
    Silent,
}

mod broken {
    use gateway::login::store::{Answer, Digest, Kept, SessionStore, StoreFault, Whose};

    use super::{Broken, Timestamp};

    impl Broken {
        fn answer<'s, T: Send + 's>(&self) -> Answer<'s, T> {
            match self {
                Self::Gone => Box::pin(async { Err(StoreFault("gone".into())) }),
                Self::Silent => Box::pin(std::future::pending()),
            }
        }
    }

    impl SessionStore for Broken {
        fn insert(&self, _: Kept) -> Answer<'_, ()> {
            self.answer()
        }
        fn find(&self, _: Digest, _: Timestamp) -> Answer<'_, Option<Kept>> {
            self.answer()
        }
        fn claim(&self, _: Digest, _: u64, _: Timestamp, _: Timestamp) -> Answer<'_, bool> {
            self.answer()
        }
        fn replace(&self, _: Digest, _: u64, _: Vec<u8>) -> Answer<'_, bool> {
            self.answer()
        }
        fn release(&self, _: Digest, _: u64) -> Answer<'_, ()> {
            self.answer()
        }
        fn remove(&self, _: Digest) -> Answer<'_, Option<Vec<u8>>> {
            self.answer()
        }
        fn remove_of(&self, _: Whose, _: Timestamp) -> Answer<'_, Vec<Digest>> {
            self.answer()
        }
        fn sweep(&self, _: Timestamp) -> Answer<'_, u64> {
            self.answer()
        }
    }
}

#[test]
fn a_session_that_becomes_due_while_a_request_waits_has_not_ended() {
    let cluster = Upstream::answering(|_, socket| {
        std::thread::sleep(Duration::from_millis(600));
        let body = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#;
        let head = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length";
        socket.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).is_ok()
    });
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "account\n").unwrap();
    let more = format!(
        "[kubernetes]\nurl = \"http://{}/\"\ntoken_file = \"{}\"\nwatch = false\n\
         [[route]]\nname = \"reviewed\"\npath = {{ prefix = \"/reviewed\" }}\nupstream = \"backend\"\nlogin = true\n\
         review = {{ resource = \"pods\", namespace = \"a\" }}",
        cluster.address,
        token.display()
    );
    for sessions in [None, Some(database())] {
        let stage = Stage::new(&more, sessions);
        stage.provider.state().lasts = 3600;
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_secs(299));
        let waiting = std::thread::spawn(move || browser.visit("/reviewed").status);
        std::thread::sleep(Duration::from_millis(300));
        // It has to be renewed now, and has come in before that.
        stage.clock.advance(Duration::from_secs(5));
        assert_eq!(waiting.join().unwrap(), 200);
    }
}

/// A store that does not keep what a session was renewed to, this many times.
struct Blinking(Arc<dyn SessionStore>, AtomicUsize);

mod blinking {
    use std::sync::atomic::Ordering::SeqCst;

    use gateway::login::store::{Answer, Digest, Kept, SessionStore, StoreFault, Whose};

    use super::{Blinking, Timestamp};

    impl SessionStore for Blinking {
        fn insert(&self, session: Kept) -> Answer<'_, ()> {
            self.0.insert(session)
        }
        fn find(&self, id: Digest, now: Timestamp) -> Answer<'_, Option<Kept>> {
            self.0.find(id, now)
        }
        fn claim(&self, id: Digest, version: u64, now: Timestamp, until: Timestamp) -> Answer<'_, bool> {
            self.0.claim(id, version, now, until)
        }
        fn replace(&self, id: Digest, version: u64, content: Vec<u8>) -> Answer<'_, bool> {
            if self.1.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Box::pin(async { Err(StoreFault("gone for a moment".into())) });
            }
            self.0.replace(id, version, content)
        }
        fn release(&self, id: Digest, version: u64) -> Answer<'_, ()> {
            self.0.release(id, version)
        }
        fn remove(&self, id: Digest) -> Answer<'_, Option<Vec<u8>>> {
            self.0.remove(id)
        }
        fn remove_of(&self, whose: Whose, began: Timestamp) -> Answer<'_, Vec<Digest>> {
            self.0.remove_of(whose, began)
        }
        fn sweep(&self, now: Timestamp) -> Answer<'_, u64> {
            self.0.sweep(now)
        }
    }
}

#[test]
fn what_a_renewal_brought_is_kept_or_revoked_when_the_database_fails() {
    let stage = Stage::new("", Some(Arc::new(Blinking(database(), AtomicUsize::new(2)))));
    let mut browser = stage.logged_in();
    for _ in 0..3 {
        stage.clock.advance(Duration::from_mins(6));
        assert_eq!(
            browser.visit("/").status,
            200,
            "it is back in a moment, and has the newest refresh token"
        );
    }
    assert!(!stage.provider.state().reused);

    let stage = Stage::new("", Some(Arc::new(Blinking(database(), AtomicUsize::new(usize::MAX)))));
    let mut browser = stage.logged_in();
    stage.clock.advance(Duration::from_mins(6));
    assert_eq!(browser.visit("/").status, 503);
    assert_eq!(stage.provider.state().living(), 0, "what nobody has must not live on");
}

#[test]
fn a_login_that_its_provider_ends_on_its_way_does_not_begin() {
    everywhere(|stage| {
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let back = stage.provider.approve(&location);
        let token = stage.provider.logout_token("logout+jwt", &json!({}));
        let said = browser.clone().send(
            "POST",
            "/oauth2/backchannel_logout",
            FORM,
            &format!("logout_token={token}"),
        );
        assert_eq!(said.status, 200);
        let refused = browser.back(&back);
        assert_eq!((refused.status, browser.session()), (403, None), "{}", refused.text());
        assert_eq!(stage.provider.state().living(), 0);
    });
}

#[test]
fn who_is_refused_is_told_apart_from_a_provider_that_cannot_answer() {
    let stage = Stage::carried();
    for (error, status) in [("access_denied", 403), ("server_error", 503), ("temporarily_unavailable", 503)] {
        let mut browser = stage.browser();
        let location = browser.go_to_provider("/");
        let (_, state) = stage.provider.approve(&location);
        let refused = browser.visit(&format!("/oauth2/callback?error={error}&state={state}"));
        assert_eq!(refused.status, status, "{error}: {}", refused.text());
    }
    assert_eq!((stage.status().login_refused, stage.status().login_failed), (1, 2));
}

#[test]
fn a_proxy_that_asks_over_http_takes_no_page_for_leave_to_forward() {
    const PAGES: [(&str, u16); 4] =
        [("sign_in", 403), ("signed_out", 403), ("done", 403), ("start?provider=nobody", 404)];
    let caddy = Stage::asked("authorization = { from = [\"127.0.0.1/32\"], http = \"x-forwarded\" }");
    let forwarded = |uri: &str| {
        format!(
            "Accept: text/html\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: {uri}\r\n"
        )
    };
    let nginx = Stage::asked("authorization = { from = [\"127.0.0.1/32\"], http = \"x-original\" }");
    let original =
        |uri: &str| format!("Accept: text/html\r\nX-Original-Method: GET\r\nX-Original-URI: {uri}\r\n");
    for (page, status) in PAGES {
        let uri = format!("/oauth2/{page}");
        let told = caddy.browser().send("GET", "/", &forwarded(&uri), "");
        assert_eq!(told.status, status, "{page}");
        assert!(told.text().contains("<h1>"), "{page}: {}", told.text());
        assert_eq!(nginx.browser().send("GET", "/", &original(&uri), "").status, status, "{page}");
        // What is asked of the login itself is its answer.
        let itself = if status == 403 { 200 } else { status };
        assert_eq!(nginx.browser().visit(&uri).status, itself, "{page}");
    }
    // A redirect is one where it can be passed on; nginx makes it of 401 and `Location`.
    let start = Some("https://app.test/oauth2/start?rd=%2Fpage");
    let told = caddy.browser().send("GET", "/", &forwarded("/page"), "");
    assert_eq!((told.status, told.value("location")), (302, start));
    let told = nginx.browser().send("GET", "/", &original("/page"), "");
    assert_eq!((told.status, told.value("location")), (401, start));
}
