//! Security events that end sessions and streams.

use super::{TAKEN, Town, after, same, until};
use crate::support::get;
use dataplane::harness::now;
use dataplane::ports::free;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn a_stream_ends_with_what_it_was_begun_with() {
    let town = Town::new("stream");
    let open = |token: &str| {
        let mut stream = TcpStream::connect(&town.address).unwrap();
        let head = format!("GET /stream HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer), Ok(1..)) {}
            Instant::now()
        })
    };
    let hers = open(&town.provider.access_token(&json!({})));
    let his =
        open(&town.provider.access_token(&json!({"sub": "bob", "jti": "b", "sid": "b", "email": null})));
    assert!(!hers.is_finished() && !his.is_finished());
    let told = Instant::now();
    assert!(same(&town.tell("credential-change", &json!({"format": "opaque", "id": "alice-id"})), TAKEN));
    let cut = hers.join().unwrap();
    assert!(cut - told < Duration::from_secs(5), "{:?}", cut - told);
    assert!(!his.is_finished(), "it is another user's");
}

/// With sessions in cookies, and in a database.
fn with_sessions(name: &str, test: impl Fn(&Town)) {
    test(&Town::new(name));
    test(&Town::with(&format!("{name}-kept"), "database = \"sqlite://sessions.db?mode=rwc\"", ""));
}

#[test]
fn a_session_ends_with_what_it_was_begun_by() {
    with_sessions("session", |town| {
        let mut hers = town.browser();
        assert_eq!(hers.visit("/").status, 200);
        town.provider.state().subject = "bob-id".into();
        town.provider.state().sid = Some("sid-2".into());
        let mut his = town.browser();
        assert_eq!((hers.visit("/").status, his.visit("/").status), (200, 200));
        let session = json!({"format": "complex", "user": {"format": "opaque", "id": "alice-id"},
                             "session": {"format": "opaque", "id": "sid-1"}});
        assert!(same(&town.tell("session-revoked", &session), TAKEN));
        assert_eq!((hers.visit("/").status, his.visit("/").status), (302, 200));
        let user = json!({"format": "iss_sub", "iss": town.provider.url, "sub": "bob-id"});
        assert!(same(&town.tell("credential-change", &user), TAKEN));
        assert_eq!(his.visit("/").status, 302);
        // A session that began later, according to the provider, is another session.
        after(now());
        town.provider.state().claims = json!({"iat": now()});
        town.provider.state().sid = Some("sid-3".into());
        let mut again = town.browser();
        assert_eq!(again.visit("/").status, 200);
    });
}

#[test]
fn a_session_whose_claims_changed_asks_for_them_anew() {
    with_sessions("claims", |town| {
        let mut hers = town.browser();
        assert_eq!(hers.visit("/").status, 200);
        let refreshed = || town.provider.state().asked.get("refresh_token").copied().unwrap_or_default();
        assert_eq!(refreshed(), 0);
        let user = json!({"format": "iss_sub", "iss": town.provider.url, "sub": "alice-id"});
        assert!(same(&town.tell("token-claims-change", &user), TAKEN));
        assert_eq!((hers.visit("/").status, refreshed()), (200, 1), "asked once");
        assert_eq!((hers.visit("/").status, refreshed()), (200, 1), "and no more");
        // If the provider does not answer, no request is authorized with outdated facts.
        town.provider.state().ill = true;
        assert!(same(&town.tell("token-claims-change", &user), TAKEN));
        assert_eq!(hers.visit("/").status, 503);
        // If it refuses, the session has ended.
        town.provider.state().ill = false;
        town.provider.state().refreshes = false;
        until(|| hers.visit("/").status == 200, "answered");
        assert!(same(&town.tell("token-claims-change", &user), TAKEN));
        town.provider.state().metadata = json!({"userinfo_endpoint": null});
        until(|| hers.visit("/").status == 302, "over");
    });
}

#[test]
fn what_was_told_can_be_kept_with_a_provider_in_the_same_process() {
    let address = free();
    let provider = format!(
        "[provider]\nissuer = \"http://{address}\"\naddress = \"{address}\"\n\
         database = \"sqlite://provider.db?mode=rwc\"\n"
    );
    let mut town = Town::with("provider", &provider, "");
    let token = town.provider.access_token(&json!({}));
    assert_eq!(town.status(&token), 200);
    assert!(same(&town.tell("session-revoked", &json!({"format": "sid", "sid": "sid-9"})), TAKEN));
    assert_eq!(town.status(&token), 401);
    town.restart();
    assert_eq!(town.status(&token), 401);
    assert!(get(&town.admin, "/metrics").contains("postern_revocation_up{issuer=\"security-events\"} 1"));
}
