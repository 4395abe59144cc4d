//! Sessions that a followed provider revokes: they end at once. While nothing arrives from the
//! provider, they are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use coherence::secret::SharedSecret;
use coherence::tags::TagSubject;
use coherence::transport::memory::Memory;
use postern::revocation::{FollowedLog, LogSource, new_view};
use store::access_tokens::AppendRevocation;
use store::{Epoch, Revocation, RevocationReach, Store};

use super::fixture::LoginFixture;
use dataplane::harness::{CONTROL, now};

/// Log of a provider that a gateway follows.
struct Log {
    store: Store,
    secret: SharedSecret,
    following: FollowedLog,
    _folder: tempfile::TempDir,
}

impl Log {
    fn of(stage: &LoginFixture, lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = store::sqlite_url(&folder.path().join("provider.db"));
        let store = CONTROL.block_on(Store::open(&url, Epoch([7; 16]))).unwrap();
        let secret = SharedSecret::new([1; 32].into(), vec![(1, [2; 32].into())]).unwrap();
        let source = LogSource {
            issuer: stage.provider.url.as_str().into(),
            tags: secret.tag_key(),
            keys: secret.message_keys(),
            transport: Arc::new(Memory::default()),
            lease,
            denylist_source: store.clone(),
            consumer_name: coherence::PeerName::new("gateway").unwrap(),
            view: new_view(),
            counts: Arc::default(),
            outage: store.outage().another_way(),
        };
        let mut following = FollowedLog::start(source, CONTROL.handle()).unwrap();
        following.answer(&store, CONTROL.handle());
        following.wait_until_started(Duration::from_secs(10));
        assert_eq!(following.unready(), None);
        stage.fixture.gateway().follows().replace(vec![following.followed.clone()]);
        Self { store, secret, following, _folder: folder }
    }

    fn revoke(&self, what: TagSubject<'_>) {
        self.revoke_at(what, RevocationReach::All, now());
    }

    /// Revokes at a node whose clock shows `now`.
    fn revoke_at(&self, what: TagSubject<'_>, reach: RevocationReach, now: u64) {
        let revocation = Revocation {
            tags: vec![self.secret.tag_key().tag(what)],
            reason: "test",
            reach,
            until: Timestamp::from_secs(now + 7200),
            occurrence: None,
        };
        let revoke = AppendRevocation { revocation, now: Timestamp::from_secs(now) };
        CONTROL.block_on(self.store.write(revoke)).unwrap();
    }

    /// Sets the time of the account's state in the next ID tokens of the provider.
    fn read(&self, stage: &LoginFixture) {
        let read_at = CONTROL.block_on(self.store.log_time()).unwrap().as_millis();
        stage.provider.state().claims = serde_json::json!({ "read_at": read_at });
    }
}

fn until(mut what: impl FnMut() -> bool, name: &str) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(10), "not {name} in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_session_that_its_provider_took_back_is_over() {
    for stage in [LoginFixture::with_cookie_sessions(), LoginFixture::with_database_sessions()] {
        let log = Log::of(&stage, Duration::from_secs(5));
        let mut hers = stage.logged_in();
        stage.provider.state().sid = Some("sid-2".into());
        stage.provider.state().subject = "bob-id".into();
        let mut his = stage.logged_in();
        assert_eq!((hers.visit("/").status, his.visit("/").status), (200, 200));
        log.revoke(TagSubject::Session("sid-1"));
        until(|| hers.visit("/").status == 302, "over");
        assert_eq!((hers.visit("/").status, his.visit("/").status), (302, 200));
        log.revoke(TagSubject::User("bob-id"));
        until(|| his.visit("/").status == 302, "over");
    }
}

#[test]
fn a_session_ends_with_all_of_its_user_whatever_clocks_say() {
    for stage in [LoginFixture::with_cookie_sessions(), LoginFixture::with_database_sessions()] {
        let log = Log::of(&stage, Duration::from_secs(5));
        let user = || TagSubject::User("alice-id");
        // The clock of the provider's node is an hour late or early, and the gateway's clock is
        // right. The second revocation has the same time as the first.
        for clock in [now() - 3600, now() - 3600, now() + 3600, now() + 3600] {
            log.read(&stage);
            let mut before = stage.logged_in();
            assert_eq!(before.visit("/").status, 200);
            log.revoke_at(user(), RevocationReach::UntilDurable, clock);
            until(|| before.visit("/").status == 302, "over");
            // The user logs in with state from before, as if the login had taken long.
            let mut late = stage.logged_in();
            assert_ne!(late.visit("/").status, 200);
            log.read(&stage);
            let mut after = stage.logged_in();
            assert_eq!(after.visit("/").status, 200);
        }
    }
}

#[test]
fn a_session_is_nobodys_while_its_provider_is_not_heard_of() {
    for stage in [LoginFixture::with_cookie_sessions(), LoginFixture::with_database_sessions()] {
        let log = Log::of(&stage, Duration::from_secs(1));
        let mut browser = stage.logged_in();
        assert_eq!(browser.visit("/").status, 200);
        let Log { store, following, .. } = log;
        CONTROL.block_on(store.close());
        let gone = Instant::now();
        until(|| browser.visit("/").status == 503, "refused");
        assert!(gone.elapsed() < Duration::from_secs(9), "a lease of a second, and two for an answer");
        let refused = browser.visit("/");
        assert_eq!((refused.status, refused.value("retry-after")), (503, Some("1")));
        drop(following);
    }
}
