//! The databases under test: for each test a file of its own, and a database of its own on a
//! running server.

use std::sync::atomic::{AtomicU32, Ordering};

use auth::time::Timestamp;
use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};
use store::access_tokens::AccessToken;
use store::families::{Family, FamilyFilter, OriginTags, SessionActivity};
use store::redeem::{BeginFamily, Successors};
use store::refresh_tokens::RefreshToken;
use store::users::{AddUser, StoredPassword, UserRow};
use store::{Epoch, Revocation, RevocationReach, Store, StoredDigest, Tag, sqlite_url};

/// URL of a server on which tests may create databases.
const SERVER: &str = "POSTERN_TEST_POSTGRES";
/// The current time in tests.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Tags of the client and the consent of all grants, unless a test uses others.
pub(crate) const ORIGINS: OriginTags = [Tag([0xC1; 16]), Tag([0xC2; 16])];

/// Epoch of a new database.
pub(crate) const EPOCH: Epoch = Epoch([7; 16]);

/// Reads a setting from the environment.
#[expect(clippy::disallowed_methods, reason = "a test binary has no configuration file")]
pub(crate) fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs a test on both databases.
macro_rules! on_both {
    ($($(#[$doc:meta])* async fn $name:ident($database:ident: Database) $body:block)*) => {
        $( async fn $name($database: $crate::databases::Database) $body )*

        mod on_sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::databases::Database::sqlite()).await; }
        )* }
        mod on_postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::databases::Database::postgres().await).await; }
        )* }
    };
}
pub(crate) use on_both;

/// An empty database that is deleted with its test.
pub(crate) struct Database {
    pub(crate) url: String,
    /// Number of nodes that may share it.
    pub(crate) nodes: usize,
    _folder: Option<tempfile::TempDir>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A path with characters that must be escaped in a URL.
        let url = sqlite_url(&folder.path().join("facts 100%?.db"));
        Self { url, nodes: 1, _folder: Some(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = told(SERVER).unwrap_or_else(|| {
            panic!("{SERVER} is not set: run `dev/with-postgres cargo test -p store`, which starts a server")
        });
        sqlx::any::install_default_drivers();
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut admin = AnyConnection::connect(&server).await.unwrap();
        admin.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        let (base, query) = server.split_once('?').map_or((&*server, ""), |(base, query)| (base, query));
        let (base, _) = base.rsplit_once('/').expect("the server's URL names a database");
        Self { url: format!("{base}/{name}?{query}"), nodes: 2, _folder: None }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url, EPOCH).await.unwrap()
    }

    /// Opens as many stores as nodes may share the database.
    pub(crate) async fn open_all(&self) -> Vec<Store> {
        let mut stores = Vec::new();
        for _ in 0..self.nodes {
            stores.push(self.open().await);
        }
        stores
    }
}

/// How the database would run a statement with these values, in its own words.
pub(crate) async fn plan(database: &Database, statement: &str, values: &[String]) -> String {
    let mut statement = statement.to_owned();
    for (at, value) in values.iter().enumerate().rev() {
        statement = statement.replace(&format!("${}", at + 1), value);
    }
    let (explain, column) =
        if database.url.starts_with("sqlite") { ("EXPLAIN QUERY PLAN", 3) } else { ("EXPLAIN", 0) };
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{explain} {statement}")));
    let rows = rows.fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(column)).collect::<Vec<_>>().join("\n")
}

pub(crate) fn digest(name: &str) -> StoredDigest {
    let mut bytes = [0; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    StoredDigest(bytes)
}

pub(crate) fn tag(name: &str) -> Tag {
    let mut bytes = [0; Tag::LENGTH];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Tag(bytes)
}

pub(crate) fn revocation(name: &str) -> Revocation {
    Revocation {
        tags: vec![tag(name)],
        reason: "a test says so",
        reach: RevocationReach::All,
        until: NOW.plus(std::time::Duration::from_hours(1)),
        occurrence: None,
    }
}

pub(crate) fn user(name: &str) -> UserRow {
    UserRow {
        id: format!("id-{name}"),
        name: name.to_owned(),
        email: None,
        email_verified_at: None,
        claims: "{}".to_owned(),
        created_at: NOW,
        updated_at: NOW,
        disabled_at: None,
        must_change_password_at: None,
        tokens_not_before: Timestamp::from_millis(0),
        read_at: Timestamp::from_millis(0),
    }
}

pub(crate) fn password(phc: &str) -> StoredPassword {
    StoredPassword { phc: phc.to_owned(), changed_at: NOW }
}

pub(crate) async fn add_user(store: &Store, name: &str) -> UserRow {
    let user = user(name);
    store.write(AddUser { user: user.clone(), password: Some(password("old")) }).await.unwrap();
    user
}

/// Sessions count as active if they were used within two hours.
pub(crate) fn at(now: Timestamp) -> SessionActivity {
    SessionActivity { now, idle: std::time::Duration::from_hours(2) }
}

/// A user's valid families.
pub(crate) async fn alive_families(store: &Store, user: &UserRow, now: Timestamp) -> Vec<Family> {
    let of_user = FamilyFilter { user_id: Some(&user.id), ..FamilyFilter::default() };
    store.families(of_user, "", 10, at(now)).await.unwrap()
}

/// A family with its first tokens.
pub(crate) fn begin_family(
    family: Family,
    refresh: Option<RefreshToken>,
    access: AccessToken,
) -> BeginFamily {
    BeginFamily { family, origins: ORIGINS, successors: Successors { refresh, access: Some(access) } }
}

pub(crate) fn family(id: &str, user: &UserRow) -> Family {
    Family {
        id: id.to_owned(),
        client_id: "notebook".to_owned(),
        user_id: Some(user.id.clone()),
        sid: None,
        scopes: "openid profile".to_owned(),
        audiences: "notebook".to_owned(),
        details: "{}".to_owned(),
        outlives_session: false,
        created_at: NOW,
        expires_at: NOW.plus(std::time::Duration::from_hours(24)),
        revoked_at: None,
        read_at: user.read_at,
    }
}
