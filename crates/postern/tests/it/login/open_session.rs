//! Exchanges that last longer than their session: a tunnel that an upstream and a client keep open
//! for hours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use credentials::session_store::SessionStore;
use http_engine::clock::ManualClock;
use serde_json::json;

use super::fixture::{FORM, LoginFixture, database, gateway, keyed, setup, shared};
use super::provider::{Browser, SimulatedProvider};
use dataplane::harness::{Fixture, PATIENCE, Setup, TestClient, now};
use dataplane::upgrade::{UPGRADE, shouting};

impl LoginFixture {
    /// A gateway with an upstream that echoes in capitals. A silent tunnel stays open for an hour.
    fn talking(more: &str, sessions: Option<Arc<dyn SessionStore>>) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let setup = Setup { listener: "timeouts = { idle = \"1h\" }".into(), ..setup(&provider, more) };
        let (dir, upstream) = (keyed(), shouting());
        let text = setup.file(dir.path(), upstream.address);
        let fixture = Fixture::keeping(dir, upstream, &text, clock.clone(), sessions);
        Self { clock, provider, fixture }
    }

    /// Whether the tunnel is cut while the gateway's clock advances by this number of seconds.
    fn is_cut_within(&self, tunnel: &mut TestClient, seconds: u32) -> bool {
        // Each second takes long enough for the gateway to check.
        tunnel.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let cut = (0..seconds).any(|_| {
            self.clock.advance(Duration::from_secs(1));
            tunnel.is_closed()
        });
        tunnel.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        cut
    }
}

/// A tunnel that a browser opens.
fn tunnel(browser: &Browser) -> TestClient {
    let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut client = TestClient::connect(browser.address);
    client.send(format!(
        "GET /chat HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{UPGRADE}\r\n",
        browser.host,
        cookies.join("; ")
    ));
    assert_eq!(client.head().status, 101);
    assert_eq!(client.bytes(5), b"hello");
    client
}

fn is_open(tunnel: &mut TestClient) -> bool {
    tunnel.send("one");
    tunnel.bytes(3) == b"ONE"
}

#[test]
fn a_tunnel_ends_when_its_session_is_ended() {
    for sessions in [None, Some(database())] {
        let stage = LoginFixture::talking("", sessions);
        let mut hers = stage.logged_in();
        stage.provider.state().sid = Some("sid-2".into());
        stage.provider.state().subject = "bob-id".into();
        let his = stage.logged_in();
        let (stolen, mut other) = (hers.clone(), tunnel(&his));
        let mut open = tunnel(&stolen);
        assert!(!stage.is_cut_within(&mut open, 3) && is_open(&mut open));
        assert_eq!(hers.visit("/oauth2/sign_out").status, 303);
        assert!(stage.is_cut_within(&mut open, 20), "by whoever had it");
        assert!(is_open(&mut other));
        let token = stage.provider.logout_token("logout+jwt", &json!({"sid": "sid-2"}));
        let said = stage.browser().send(
            "POST",
            "/oauth2/backchannel_logout",
            FORM,
            &format!("logout_token={token}"),
        );
        assert_eq!(said.status, 200);
        assert!(stage.is_cut_within(&mut other, 20), "by the provider");
    }
}

#[test]
fn a_tunnel_ends_with_its_session() {
    for sessions in [None, Some(database())] {
        let stage = LoginFixture::talking("lifetime = \"10m\"", sessions);
        let mut open = tunnel(&stage.logged_in());
        stage.clock.advance(Duration::from_mins(9));
        assert!(!stage.is_cut_within(&mut open, 3) && is_open(&mut open));
        stage.clock.advance(Duration::from_mins(1));
        assert!(stage.is_cut_within(&mut open, 20));
    }
}

#[test]
fn a_tunnel_ends_when_its_session_was_ended_elsewhere() {
    for [here, elsewhere] in shared("lasting") {
        let stage = LoginFixture::talking("", Some(here));
        let other = gateway(&stage.provider, &stage.clock, "", Some(elsewhere));
        let (mut browser, his) = (stage.logged_in(), stage.logged_in());
        let (mut open, mut kept) = (tunnel(&browser), tunnel(&his));
        assert!(!stage.is_cut_within(&mut open, 15), "the database knows it");
        assert_eq!(browser.at(other.address).visit("/oauth2/sign_out").status, 303);
        // Open exchanges query the database after 10 s and 20 s. In between, only a message can
        // report the end.
        assert!(stage.is_cut_within(&mut open, 4), "it is told");
        assert_eq!(browser.visit("/").status, 302, "and so are requests");
        assert!(is_open(&mut kept));
    }
}

#[test]
fn a_session_that_was_ended_elsewhere_is_refused_soon() {
    for [here, elsewhere] in shared("refused") {
        let stage = LoginFixture::new("", Some(here));
        let other = gateway(&stage.provider, &stage.clock, "", Some(elsewhere));
        let (mut hers, mut his) = (stage.logged_in(), stage.logged_in());
        assert_eq!((hers.visit("/").status, his.visit("/").status), (200, 200));
        // The gateway's clock does not advance, so `ttl` never ends.
        let since = Instant::now();
        assert_eq!(hers.at(other.address).visit("/oauth2/sign_out").status, 303);
        while hers.visit("/").status != 302 {
            assert!(since.elapsed() < SOON, "still believed after {:?}", since.elapsed());
        }
        assert_eq!(his.visit("/").status, 200);
    }
}

/// Longer than the promised second, because machines run other tests. Shorter than `ttl`, after
/// which the store is queried.
const SOON: Duration = Duration::from_secs(5);
