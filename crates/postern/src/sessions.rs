//! Session storage: keeps the sessions of browsers in a database.
//!
//! Owns: opening the database, and translating the gateway's queries for the store. Does not own:
//! what a session is (`login`), how it is stored (`store::login_sessions`).
//!
//! The gateway queries on its workers' threads. A database connection belongs to the runtime that
//! created it. The workers' runtimes serve requests and end before the database is closed. So every
//! query runs in the runtime that [`Sessions::new`] gets, and every change runs where the database
//! was opened.

use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::rand::SystemRandom;
use config::DatabaseSettings;
use credentials::session_store::{
    OnceKey, RevokedPage, SessionKey, SessionStore, SessionsOf, StoreAnswer, StoreFault, StoredSession,
};
use idp::Entropy as _;
use store::login_sessions::{
    BeginLoginSession, ClaimLoginSession, EndLoginSession, EndLoginSessions, EndLoginSessionsOnce,
    LoginSessionRow, LoginSessionsOf, ReleaseLoginSession, ReplaceLoginSession,
};
use store::replay_guard::UseOnce;
use store::{Change, Epoch, OpenError, Store, StoreError};
use tokio::runtime::Handle;

use crate::exit::Failure;

/// Opens the database and updates its schema. Call it within a multi-threaded tokio runtime, where
/// changes then run. The database may be the provider's; whichever opens it first creates its
/// history.
///
/// # Errors
/// A message in one line, with a hint.
pub async fn open(database: &DatabaseSettings) -> Result<Store, Failure> {
    open_for("sessions", database, None).await
}

/// Like [`open`], for the named `things` of a gateway. `other` is a database that is already open.
/// If it is the same one, the log reports an outage once for both.
///
/// # Errors
/// Like [`open`].
pub async fn open_for(
    things: &str,
    database: &DatabaseSettings,
    other: Option<(&DatabaseSettings, &Store)>,
) -> Result<Store, Failure> {
    let other = other.filter(|(other, _)| other.url == database.url);
    let outage = other.map_or_else(
        || store::database_outage(&format!("database of {things}")),
        |(_, store)| store.outage().another_way(),
    );
    let mut epoch = [0; 16];
    SystemRandom::new().fill(&mut epoch).map_err(|error| Failure::new(error.to_string()))?;
    let store = Store::open_with_outage(&database.url, Epoch(epoch), &outage).await;
    store.map_err(|error| open_error(things, database, &error))
}

/// The URL may contain a password, so the message does not show it.
fn open_error(things: &str, database: &DatabaseSettings, error: &OpenError) -> Failure {
    let (place, hint) = match &database.file {
        Some(file) => (format!(" {}", file.display()), "is the folder there, and may this user write to it?"),
        None => (String::new(), "is it running, and may this user connect and create tables?"),
    };
    Failure::new(format!("the database of {things}{place} cannot be opened: {error}; {hint}"))
}

/// Sessions in a database.
#[derive(Clone)]
pub struct Sessions {
    store: Store,
    runtime: Handle,
}

impl Sessions {
    /// Creates the storage in `store`. Queries run in `runtime`, which must be the runtime that
    /// opened it.
    pub fn new(store: Store, runtime: Handle) -> Self {
        Self { store, runtime }
    }

    /// Runs a query in the runtime of the connections. A query continues when its caller gives up,
    /// so that its connection stays usable.
    fn query<T, Asked>(&self, question: impl FnOnce(Store) -> Asked + Send + 'static) -> StoreAnswer<'_, T>
    where
        T: Send + 'static,
        Asked: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        Box::pin(async move {
            match self.runtime.spawn(question(self.store.clone())).await {
                Ok(answer) => answer.map_err(fault),
                Err(ended) => Err(StoreFault(format!("the query was cancelled: {ended}"))),
            }
        })
    }

    fn write<C: Change>(&self, change: C) -> StoreAnswer<'_, C::Output> {
        Box::pin(async move { self.store.write(change).await.map_err(fault) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn fault(error: StoreError) -> StoreFault {
    StoreFault(error.to_string())
}

impl SessionStore for Sessions {
    fn insert(&self, session: StoredSession) -> StoreAnswer<'_, ()> {
        let StoredSession { id, subject, sid, began, ends, version, content } = session;
        self.write(BeginLoginSession(LoginSessionRow {
            id: store::StoredDigest(id),
            subject: store::StoredDigest(subject),
            sid: sid.map(store::StoredDigest),
            began_at: began,
            expires_at: ends,
            version,
            content,
        }))
    }

    fn find(&self, id: SessionKey, now: Timestamp) -> StoreAnswer<'_, Option<StoredSession>> {
        self.query(async move |store: Store| {
            let row = store.login_session(&store::StoredDigest(id), now).await?;
            Ok(row.map(
                |LoginSessionRow {
                     id,
                     subject,
                     sid,
                     began_at: began,
                     expires_at: ends,
                     version,
                     content,
                 }| {
                    StoredSession {
                        id: id.0,
                        subject: subject.0,
                        sid: sid.map(|sid| sid.0),
                        began,
                        ends,
                        version,
                        content,
                    }
                },
            ))
        })
    }

    fn claim(&self, id: SessionKey, version: u64, now: Timestamp, until: Timestamp) -> StoreAnswer<'_, bool> {
        self.write(ClaimLoginSession { id: store::StoredDigest(id), version, now, until })
    }

    fn replace(&self, id: SessionKey, version: u64, content: Vec<u8>) -> StoreAnswer<'_, bool> {
        self.write(ReplaceLoginSession { id: store::StoredDigest(id), version, content })
    }

    fn release(&self, id: SessionKey, version: u64) -> StoreAnswer<'_, ()> {
        let released = self.write(ReleaseLoginSession { id: store::StoredDigest(id), version });
        Box::pin(async move { released.await.map(|_| ()) })
    }

    fn remove(&self, id: SessionKey) -> StoreAnswer<'_, Option<Vec<u8>>> {
        self.write(EndLoginSession { id: store::StoredDigest(id) })
    }

    fn remove_of(
        &self,
        sessions: SessionsOf,
        began: Timestamp,
        once: OnceKey,
    ) -> StoreAnswer<'_, Option<Vec<SessionKey>>> {
        let of = match sessions {
            SessionsOf::Sid(sid) => LoginSessionsOf::Sid(store::StoredDigest(sid)),
            SessionsOf::Subject(subject) => LoginSessionsOf::Subject(store::StoredDigest(subject)),
        };
        let ended = self.write(EndLoginSessionsOnce {
            guard: UseOnce { digest: store::StoredDigest(once.name), until: once.until },
            end: EndLoginSessions { selection: of, began },
        });
        Box::pin(async move { Ok(ended.await?.map(|ended| ended.into_iter().map(|id| id.0).collect())) })
    }

    fn revoked_since(&self, after: u64, within: Duration) -> StoreAnswer<'_, RevokedPage> {
        self.query(async move |store: Store| {
            let store::ended_logins::LoginEndings { continue_after: upto, sessions, more } =
                store.login_endings(after, within).await?;
            Ok(RevokedPage { position: upto, sessions: sessions.into_iter().map(|id| id.0).collect(), more })
        })
    }

    fn sweep(&self, now: Timestamp) -> StoreAnswer<'_, u64> {
        self.query(async move |store: Store| store.delete_expired_login_sessions(now).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const MINUTE: Duration = Duration::from_mins(1);

    fn database(folder: &tempfile::TempDir) -> DatabaseSettings {
        DatabaseSettings::from_file(&folder.path().join("sessions.db"))
    }

    fn kept(name: u8) -> StoredSession {
        StoredSession {
            id: [name; 32],
            subject: [b's'; 32],
            sid: Some([b'p'; 32]),
            began: NOW,
            ends: NOW.plus(MINUTE * 60),
            version: 0,
            content: vec![0, name, 255],
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_the_gateway_asks_is_what_the_store_does() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&database(&folder)).await.unwrap();
        let sessions: &dyn SessionStore = &Sessions::new(store, Handle::current());
        let (one, id) = (kept(1), [1; 32]);
        sessions.insert(one.clone()).await.unwrap();
        sessions.insert(StoredSession { sid: None, subject: [b't'; 32], ..kept(2) }).await.unwrap();
        assert_eq!(sessions.find(id, NOW).await.unwrap(), Some(one.clone()));
        assert_eq!(sessions.find(id, one.ends).await.unwrap(), None);
        assert_eq!(sessions.find([9; 32], NOW).await.unwrap(), None);
        let again = sessions.insert(one.clone()).await.unwrap_err();
        assert_eq!(
            again.to_string(),
            "session store unavailable: the name of a login session is already in use: choose another"
        );

        let until = NOW.plus(MINUTE);
        assert!(sessions.claim(id, 0, NOW, until).await.unwrap());
        assert!(!sessions.claim(id, 0, NOW, until).await.unwrap());
        sessions.release(id, 0).await.unwrap();
        assert!(sessions.claim(id, 0, NOW, until).await.unwrap());
        assert!(!sessions.replace(id, 1, vec![]).await.unwrap());
        assert!(sessions.replace(id, 0, vec![7]).await.unwrap());
        let next = StoredSession { version: 1, content: vec![7], ..one };
        assert_eq!(sessions.find(id, NOW).await.unwrap(), Some(next));

        for n in 3..6 {
            sessions.insert(kept(n)).await.unwrap();
        }
        assert!(sessions.remove(id).await.unwrap().is_some());
        assert!(sessions.remove(id).await.unwrap().is_none());
        let before = Timestamp::from_millis(NOW.as_millis() - 1);
        let named = |name: u8| OnceKey { name: [name; 32], until: NOW.plus(MINUTE) };
        let nobody = sessions.remove_of(SessionsOf::Sid([b'p'; 32]), before, named(1)).await.unwrap();
        assert_eq!(nobody, Some(vec![]));
        let again = sessions.remove_of(SessionsOf::Sid([b'p'; 32]), NOW, named(1)).await.unwrap();
        assert_eq!(again, None, "under the same name, though it would end more");
        let ended = sessions.remove_of(SessionsOf::Sid([b'p'; 32]), NOW, named(2)).await.unwrap();
        let mut ended = ended.unwrap();
        ended.sort_unstable();
        assert_eq!(ended, [[3; 32], [4; 32], [5; 32]]);
        let ended = sessions.remove_of(SessionsOf::Subject([b't'; 32]), NOW, named(3)).await.unwrap();
        assert_eq!(ended, Some(vec![[2; 32]]));
        let RevokedPage { position: upto, sessions: listed, more } =
            sessions.revoked_since(0, MINUTE).await.unwrap();
        assert_eq!((upto, listed.len(), listed[0], listed[4], more), (5, 5, [1; 32], [2; 32], false));
        assert_eq!(sessions.revoked_since(4, MINUTE).await.unwrap().sessions, [[2; 32]]);
        sessions.insert(kept(6)).await.unwrap();
        assert_eq!(sessions.sweep(NOW).await.unwrap(), 0);
        assert_eq!(sessions.sweep(NOW.plus(MINUTE)).await.unwrap(), 3, "names that nobody can use again");
        assert_eq!(sessions.sweep(NOW.plus(MINUTE * 60)).await.unwrap(), 1);
    }

    #[test]
    fn workers_ask_from_runtimes_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let home =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store = home.block_on(open(&database(&folder))).unwrap();
        let sessions = Sessions::new(store.clone(), home.handle().clone());
        for n in 0..3 {
            let sessions = sessions.clone();
            let worker = std::thread::spawn(move || {
                let worker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                worker.block_on(async {
                    sessions.insert(kept(n)).await.unwrap();
                    assert_eq!(sessions.find([n; 32], NOW).await.unwrap(), Some(kept(n)));
                    assert_eq!(sessions.sweep(NOW).await.unwrap(), 0);
                });
            });
            worker.join().unwrap();
        }
        home.block_on(store.close());
        let worker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let closed = worker.block_on(sessions.find([0; 32], NOW)).unwrap_err();
        assert!(closed.0.starts_with("database unavailable"), "{closed}");
        assert!(worker.block_on(sessions.remove([0; 32])).is_err());
        home.shutdown_background();
        let gone = worker.block_on(sessions.find([0; 32], NOW)).unwrap_err();
        assert!(gone.0.starts_with("the query was cancelled"), "{gone}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_cannot_be_opened_is_named_without_its_password() {
        let nowhere = DatabaseSettings::from_file(std::path::Path::new("/nonexistent/sessions.db"));
        let refused = open(&nowhere).await.err().unwrap().to_string();
        assert!(
            refused.starts_with("the database of sessions /nonexistent/sessions.db cannot be opened"),
            "{refused}"
        );
        let mut server = nowhere;
        (server.url, server.file) = ("postgres://p:hunter2@127.0.0.1:1/p".into(), None);
        let refused = open(&server).await.err().unwrap().to_string();
        assert!(refused.contains("is it running") && !refused.contains("hunter2"), "{refused}");
    }
}
