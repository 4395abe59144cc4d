//! Sessions in a failing database: no request is authorized because of it, no response is wrong,
//! and no grant of a provider is lost.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::session_store::{
    OnceKey, RevokedPage, SessionKey, SessionStore, SessionsOf, StoreAnswer, StoreFault, StoredSession,
};
use serde_json::json;

use super::fixture::{FORM, LoginFixture, database};

/// A store whose database is unavailable.
enum Broken {
    /// It returns an error.
    Gone,
    /// It does not answer.
    Silent,
}

impl Broken {
    fn answer<'s, T: Send + 's>(&self) -> StoreAnswer<'s, T> {
        match self {
            Self::Gone => Box::pin(async { Err(StoreFault("gone".into())) }),
            Self::Silent => Box::pin(std::future::pending()),
        }
    }
}

impl SessionStore for Broken {
    fn insert(&self, _: StoredSession) -> StoreAnswer<'_, ()> {
        self.answer()
    }
    fn find(&self, _: SessionKey, _: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
        self.answer()
    }
    fn claim(&self, _: SessionKey, _: u64, _: Timestamp, _: Timestamp) -> StoreAnswer<'_, bool> {
        self.answer()
    }
    fn replace(&self, _: SessionKey, _: u64, _: Vec<u8>) -> StoreAnswer<'_, bool> {
        self.answer()
    }
    fn release(&self, _: SessionKey, _: u64) -> StoreAnswer<'_, ()> {
        self.answer()
    }
    fn remove(&self, _: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
        self.answer()
    }
    fn remove_of(&self, _: SessionsOf, _: Timestamp, _: OnceKey) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
        self.answer()
    }
    fn revoked_since(&self, _: u64, _: Duration) -> StoreAnswer<'_, RevokedPage> {
        self.answer()
    }
    fn sweep(&self, _: Timestamp) -> StoreAnswer<'_, u64> {
        self.answer()
    }
}

/// A store that loses the renewed state of a session, this many times, and counts who reads which
/// sessions have ended.
pub(super) struct Blinking {
    store: Arc<dyn SessionStore>,
    losses: AtomicUsize,
    pub(super) reads: AtomicUsize,
}

impl Blinking {
    pub(super) fn new(losses: usize) -> Self {
        Self { store: database(), losses: AtomicUsize::new(losses), reads: AtomicUsize::new(0) }
    }
}

impl SessionStore for Blinking {
    fn insert(&self, session: StoredSession) -> StoreAnswer<'_, ()> {
        self.store.insert(session)
    }
    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
        self.store.find(id, now)
    }
    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool> {
        self.store.claim(id, version, now, until)
    }
    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool> {
        if self.losses.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Box::pin(async { Err(StoreFault("gone for a moment".into())) });
        }
        self.store.replace(id, version, content)
    }
    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()> {
        self.store.release(id, version)
    }
    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
        self.store.remove(id)
    }
    fn remove_of(
        &self,
        whose: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
        self.store.remove_of(whose, began, once)
    }
    fn revoked_since(&self, after: u64, within: Duration) -> StoreAnswer<'_, RevokedPage> {
        self.reads.fetch_add(1, SeqCst);
        self.store.revoked_since(after, within)
    }
    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64> {
        self.store.sweep(now)
    }
}

#[test]
fn a_database_that_is_gone_is_503() {
    let stage = LoginFixture::new("", Some(Arc::new(Broken::Gone)));
    let mut browser = stage.browser();
    let location = browser.go_to_provider("/");
    assert_eq!(browser.back(&stage.provider.approve(&location)).status, 503);
    // Sealed with the keys of the test, but in no database.
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
    let stage = LoginFixture::new("", Some(Arc::new(Broken::Silent)));
    let head = format!(
        "GET / HTTP/1.1\r\nHost: app.test\r\nAccept: text/html\r\nCookie: __Host-postern={}\r\n\r\n",
        stage.kept_elsewhere()
    );
    // One request queries, and the other one waits for its result. So do later ones.
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

#[test]
fn a_name_that_we_never_gave_out_is_not_asked_about() {
    let stage = LoginFixture::new("", Some(Arc::new(Broken::Gone)));
    for cookie in ["A".repeat(43), "A".repeat(86), "x".into()] {
        let mut browser = stage.browser();
        browser.cookies.insert("__Host-postern".into(), cookie);
        assert_eq!(browser.visit("/").status, 302, "the database is gone, and nobody noticed");
    }
}

#[test]
fn what_a_renewal_brought_is_kept_or_revoked_when_the_database_fails() {
    let stage = LoginFixture::new("", Some(Arc::new(Blinking::new(2))));
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

    let stage = LoginFixture::new("", Some(Arc::new(Blinking::new(usize::MAX))));
    let mut browser = stage.logged_in();
    stage.clock.advance(Duration::from_mins(6));
    assert_eq!(browser.visit("/").status, 503);
    assert_eq!(stage.provider.state().living(), 0, "what nobody has must not live on");
}
