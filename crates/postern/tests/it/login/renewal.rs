//! Renewal of sessions at their provider: once for concurrent requests, from the newest state, and
//! not after the provider has ended them.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use super::fixture::{LoginFixture, database, everywhere, gateway};
use dataplane::harness::Upstream;

#[test]
fn short_tokens_are_renewed_from_the_newest() {
    let stage = LoginFixture::with_cookie_sessions();
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
        // A tab without the new cookie continues with the old one, and does not use the old refresh
        // token.
        stage.clock.advance(Duration::from_mins(1));
        let mut late = browser.clone();
        assert_eq!(late.visit("/").status, 200);
        // The new cookie continues from there.
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
    let stage = LoginFixture::new("", Some(sessions.clone()));
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
    // A sign-out takes effect at once in this process. In the other one it takes effect with a
    // message, or when the cached state must be read again.
    let mut stolen = browser.at(other.address);
    assert_eq!(stolen.visit("/").status, 200);
    browser.clone().visit("/oauth2/sign_out");
    assert_eq!(browser.visit("/").status, 302);
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(stolen.visit("/").status, 302);
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
         access_review = {{ resource = \"pods\", namespace = \"a\" }}",
        cluster.address,
        token.display()
    );
    for sessions in [None, Some(database())] {
        let stage = LoginFixture::new(&more, sessions);
        stage.provider.state().lasts = 3600;
        let mut browser = stage.logged_in();
        stage.clock.advance(Duration::from_secs(299));
        let waiting = std::thread::spawn(move || browser.visit("/reviewed").status);
        std::thread::sleep(Duration::from_millis(300));
        // It must be renewed now, and the request arrived before that.
        stage.clock.advance(Duration::from_secs(5));
        assert_eq!(waiting.join().unwrap(), 200);
    }
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
fn what_a_provider_gave_out_is_not_lost_when_it_falls_silent_over_it() {
    everywhere(|stage| {
        let mut browser = stage.logged_in();
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
fn what_a_provider_ended_does_not_come_back_when_it_falls_silent() {
    for refreshes in [true, false] {
        everywhere(|stage| {
            stage.provider.state().refreshes = refreshes;
            let browser = stage.logged_in();
            assert_eq!(browser.clone().visit("/").status, 200);
            stage.provider.state().disabled = true;
            stage.clock.advance(Duration::from_mins(6));
            assert_eq!(browser.clone().visit("/").status, 302, "the user is disabled");
            // Denials are cached for two seconds; the access token lasts ten minutes.
            stage.provider.state().ill = true;
            stage.clock.advance(Duration::from_secs(3));
            assert_eq!(browser.clone().visit("/").status, 302, "with the same cookie");
            // The refresh token is valid again, but the session is over.
            stage.provider.state().ill = false;
            stage.provider.state().disabled = false;
            stage.clock.advance(Duration::from_secs(3));
            assert_eq!(browser.clone().visit("/").status, 302, "the user is enabled again");
            assert_eq!(stage.logged_in().visit("/").status, 200, "and logs in again");
        });
    }
}

#[test]
fn what_another_process_renewed_does_not_end_with_the_cookie_before_it() {
    let stage = LoginFixture::with_cookie_sessions();
    let other = gateway(&stage.provider, &stage.clock, "", None);
    let before = stage.logged_in();
    stage.clock.advance(Duration::from_mins(6));
    let mut renewed = before.at(other.address);
    assert_eq!(renewed.visit("/").status, 200);
    assert_ne!(renewed.session(), before.session());
    assert_eq!(before.clone().visit("/").status, 302, "its refresh token was used there");
    stage.provider.state().ill = true;
    let mut renewed = renewed.at(stage.fixture.address);
    stage.clock.advance(Duration::from_secs(3));
    assert_eq!((before.clone().visit("/").status, renewed.visit("/").status), (302, 200));
    stage.clock.advance(Duration::from_mins(5));
    assert_eq!(renewed.visit("/").status, 200, "forgiven, as its access token lasts");
    assert_eq!(before.clone().visit("/").status, 302);
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
