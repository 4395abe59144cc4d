//! Fixture: a gateway with a browser login, its provider, and its keys. Sessions are in cookies, or
//! in a database.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use auth::time::Timestamp;
use credentials::session_store::SessionStore;
use http_engine::clock::ManualClock;
use login::LoginStatus;
use postern::sessions::{self, Sessions};
use serde_json::Value;

use super::provider::{Browser, SimulatedProvider};
use crate::support::database_of_its_own;
use dataplane::harness::{CONTROL, Fixture, Setup, Upstream, now};

pub(super) const KEY: &str = "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=";
pub(super) const OTHER_KEY: &str = "gipyI5XLtt5oaj7WjZmOAnup/CViDw/rdYUXP6vES48=";
pub(super) const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Where users log in, unless a test says otherwise.
pub(super) const ORIGINS: &str = "origins = [\"https://app.test\", \"https://other.test\"]";

/// A test moves the clock by minutes, while connections stay open.
const TIMEOUTS: &str = "timeouts = { header = \"1h\", idle = \"1h\" }\n";

/// A gateway with a browser login, and everything around it.
pub(super) struct LoginFixture {
    pub(super) clock: Arc<ManualClock>,
    pub(super) provider: SimulatedProvider,
    pub(super) fixture: Fixture,
}

impl LoginFixture {
    /// Starts it for queries of another proxy, with sessions in cookies.
    pub(super) fn for_proxy(listener: &str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let setup = Setup { listener: format!("{TIMEOUTS}{listener}"), ..setup(&provider, "") };
        let fixture = start(&setup, &clock, None);
        Self { clock, provider, fixture }
    }

    /// Starts it with sessions in cookies.
    pub(super) fn with_cookie_sessions() -> Self {
        Self::new("", None)
    }

    /// Starts it with sessions in a database.
    pub(super) fn with_database_sessions() -> Self {
        Self::new("", Some(database()))
    }

    /// Starts it with sessions in cookies, and a provider that publishes these metadata too.
    pub(super) fn with_metadata(metadata: Value) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        provider.state().metadata = metadata;
        let fixture = gateway(&provider, &clock, "", None);
        Self { clock, provider, fixture }
    }

    /// Cookie of a session in another database.
    pub(super) fn kept_elsewhere(&self) -> String {
        let other = gateway(&self.provider, &self.clock, "", Some(database()));
        let mut browser = Browser::new(other.address, "app.test");
        browser.log_in(&self.provider, "/");
        browser.session().unwrap().clone()
    }

    pub(super) fn new(more: &str, sessions: Option<Arc<dyn SessionStore>>) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
        let provider = SimulatedProvider::new(&clock);
        let fixture = gateway(&provider, &clock, more, sessions);
        Self { clock, provider, fixture }
    }

    pub(super) fn status(&self) -> LoginStatus {
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

pub(super) fn setup(provider: &SimulatedProvider, more: &str) -> Setup {
    Setup {
        listener: TIMEOUTS.into(),
        route: "login = true".into(),
        more: format!(
            "[[route]]\nname = \"api\"\npath = {{ prefix = \"/api\" }}\nupstream = \"backend\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n\
             [login]\n{ORIGINS}\nkeys_file = \"keys\"\n{more}\n\
             [[login.provider]]\nname = \"id\"\ntitle = \"The Provider\"\nurl = \"{}\"\nclient_id = \"gateway\"\nclient_secret_file = \"secret\"",
            provider.url
        ),
        ..Setup::default()
    }
}

pub(super) fn gateway(
    provider: &SimulatedProvider,
    clock: &Arc<ManualClock>,
    more: &str,
    sessions: Option<Arc<dyn SessionStore>>,
) -> Fixture {
    start(&setup(provider, more), clock, sessions)
}

pub(super) fn start(
    setup: &Setup,
    clock: &Arc<ManualClock>,
    sessions: Option<Arc<dyn SessionStore>>,
) -> Fixture {
    let (dir, upstream) = (keyed(), Upstream::start());
    let text = setup.file(dir.path(), upstream.address);
    Fixture::keeping(dir, upstream, &text, clock.clone(), sessions)
}

/// A folder with the files of a login.
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
    let database = config::DatabaseSettings::from_file(&dir.join("sessions.db"));
    let store = CONTROL.block_on(sessions::open(&database)).unwrap();
    Arc::new(Sessions::new(store, CONTROL.handle().clone()))
}

/// Session stores of two processes that share a database: a file, and one on a server.
pub(super) fn shared(kind: &str) -> [[Arc<dyn SessionStore>; 2]; 2] {
    let file = config::DatabaseSettings::from_file(&tempfile::tempdir().unwrap().keep().join("sessions.db"));
    let mut server = file.clone();
    (server.url, server.file) = (database_of_its_own(kind).0, None);
    [file, server].map(|database| {
        [(); 2].map(|()| {
            let store = CONTROL.block_on(sessions::open(&database)).unwrap();
            Arc::new(Sessions::new(store, CONTROL.handle().clone())) as Arc<dyn SessionStore>
        })
    })
}

/// Runs a test for each kind of session storage.
pub(super) fn everywhere(test: impl Fn(&LoginFixture)) {
    test(&LoginFixture::with_cookie_sessions());
    test(&LoginFixture::with_database_sessions());
}
