//! Nodes that are killed while they write, and a database that becomes unavailable: acknowledged
//! changes are durable, and no change is half applied.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::access_tokens::{AccessToken, RevokeAccessToken};
use store::families::Family;
use store::groups::AddGroup;
use store::refresh_tokens::RefreshToken;
use store::{Revocation, Store, StoreError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::databases::{
    Database, EPOCH, NOW, ORIGINS, add_user, begin_family, digest, family, on_both, revocation, tag, told,
};

/// Set for the process that will be killed: the database's URL, and a prefix for the names it uses.
const CHILD: &str = "POSTERN_TEST_STORE_CHILD";
/// Set for the process that will run out of disk space: the database's URL.
const CRAMPED: &str = "POSTERN_TEST_STORE_CRAMPED";
/// Number of nodes to kill.
const KILLED: &str = "POSTERN_TEST_KILLS";

fn token(name: &str) -> AccessToken {
    AccessToken {
        digest: digest(name),
        jti: name.to_owned(),
        client_id: "notebook".into(),
        user_id: None,
        scopes: "openid".into(),
        audiences: "notebook".into(),
        details: "{}".into(),
        issued_at: NOW,
        expires_at: NOW.plus(Duration::from_mins(5)),
        read_at: Timestamp::from_millis(0),
        origins: ORIGINS,
    }
}

fn bound_family(name: &str) -> Family {
    Family { user_id: Some("id-ada".into()), ..family(name, &crate::databases::user("ada")) }
}

/// The process that is killed: issues tokens, revokes every other one, and prints what was
/// acknowledged. Without the variable the test does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_will_be_killed() {
    let Some(told) = told(CHILD) else { return };
    let (prefix, url) = told.split_once(' ').unwrap();
    let store = Store::open(url, EPOCH).await.unwrap();
    let mut streams = tokio::task::JoinSet::new();
    for stream in 0..16 {
        let (store, prefix) = (store.clone(), prefix.to_owned());
        streams.spawn(async move {
            for n in 0.. {
                let name = format!("{prefix}-{stream}-{n}");
                let refresh = RefreshToken {
                    digest: digest(&format!("r{name}")),
                    issued_at: NOW,
                    expires_at: NOW.plus(Duration::from_hours(1)),
                };
                let issue = begin_family(bound_family(&name), Some(refresh), token(&name));
                store.write(issue).await.unwrap();
                say(&format!("issued {name}"));
                if n % 2 == 0 {
                    continue;
                }
                let revoke = RevokeAccessToken {
                    digest: digest(&name),
                    client_id: "notebook".into(),
                    revocation: Revocation { tags: vec![tag(&name)], ..revocation("") },
                    now: NOW,
                };
                assert!(store.write(revoke).await.unwrap());
                say(&format!("revoked {name}"));
            }
        });
    }
    streams.join_all().await;
}

/// Prints a line in one write, so that it appears completely or not at all.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Starts a node, kills it some time `after` the first `count` acknowledgements, and returns all
/// acknowledged lines.
fn killed_node(url: &str, prefix: &str, count: usize, after: Duration) -> Vec<String> {
    let myself = std::env::current_exe().unwrap();
    let mut child = Command::new(myself)
        .args(["--exact", "crash::a_node_that_will_be_killed", "--nocapture"])
        .env(CHILD, format!("{prefix} {url}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.by_ref().filter(|line| line.starts_with("issued ") || line.starts_with("revoked "));
    let mut before: Vec<String> = said.by_ref().take(count).collect();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    before.extend(said);
    before
}

on_both! {
    async fn what_a_killed_node_acknowledged_is_there(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        let kills: u32 = told(KILLED).map_or(8, |n| n.parse().expect("a number of nodes to kill"));
        let (mut issued, mut revoked) = (BTreeSet::new(), BTreeSet::new());
        for kill in 0..kills {
            let url = database.url.clone();
            // Spread over the duration of a transaction, so that each of its phases is hit.
            let (count, after) = (1 + kill as usize * 37 % 200, Duration::from_micros(u64::from(kill) * 170 % 4_000));
            let said = tokio::task::spawn_blocking(move || killed_node(&url, &format!("k{kill}"), count, after));
            for line in said.await.unwrap() {
                match line.split_once(' ').unwrap() {
                    ("issued", name) => issued.insert(name.to_owned()),
                    (_, name) => revoked.insert(name.to_owned()),
                };
            }
        }
        eprintln!("{kills} nodes killed: {} issued, {} revoked were acknowledged", issued.len(), revoked.len());
        assert!(issued.len() >= kills as usize && !revoked.is_empty());
        for name in &issued {
            let standing = store.access_token(&digest(name)).await.unwrap();
            assert!(standing.is_some_and(|s| s.family_id.as_deref() == Some(name)), "{name} was acknowledged");
            let refresh = store.refresh_token(&digest(&format!("r{name}"))).await.unwrap();
            assert!(refresh.is_some(), "{name} is whole");
        }
        let (mut told, mut seen) = (BTreeSet::new(), 0);
        loop {
            let events = store.events(seen, 10_000).await.unwrap();
            let Some(last) = events.last().map(|event| event.seq) else { break };
            assert_eq!(events.len() as u64, last - seen, "no hole");
            seen = last;
            told.extend(events.into_iter().flat_map(|event| event.tags));
        }
        assert_eq!(store.head().await.unwrap().seq, seen);
        for name in &revoked {
            let standing = store.access_token(&digest(name)).await.unwrap().unwrap();
            assert!(!standing.is_active(NOW), "{name} was revoked");
            assert!(told.contains(&tag(name)), "{name} was told");
        }
        // Changes that were made without acknowledgement are complete as well: a token is in the
        // log exactly if it is revoked.
        for name in &issued {
            let standing = store.access_token(&digest(name)).await.unwrap().unwrap();
            assert_eq!(told.contains(&tag(name)), !standing.unrevoked, "{name}");
        }
    }
}

fn group(n: u32) -> AddGroup {
    AddGroup { id: format!("g{n}"), name: format!("group {n}"), now: NOW }
}

/// The process without disk space: adds groups until enough were refused, and prints the result of
/// each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_will_run_out_of_room() {
    let Some(url) = told(CRAMPED) else { return };
    let store = Store::open(&url, EPOCH).await.unwrap();
    let mut refused = 0;
    for n in 0.. {
        match store.write(group(n)).await {
            Ok(()) => say(&format!("made {n}")),
            Err(StoreError::Full(_) | StoreError::Unavailable(_)) => {
                say(&format!("refused {n}"));
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        if refused == 20 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_refuses_and_keeps_what_it_has() {
    let database = Database::sqlite();
    // Closed, not dropped: the last connection moves the migrations from the write-ahead log into
    // the database. Dropping only requests that, and a remaining log takes the space that the next
    // process needs.
    database.open().await.close().await;
    // No file may grow beyond this. The signal for it is ignored, so writes fail as on a full disk.
    let cramped = Command::new("env")
        .args(["--ignore-signal=XFSZ", "prlimit", "--fsize=500000"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_node_that_will_run_out_of_room", "--nocapture"])
        .env(CRAMPED, &database.url)
        .output()
        .unwrap();
    assert!(cramped.status.success(), "{}", String::from_utf8_lossy(&cramped.stderr));
    let said = String::from_utf8(cramped.stdout).unwrap();
    let of = |what: &str| -> Vec<u32> {
        said.lines().filter_map(|line| line.strip_prefix(what)).map(|n| n.trim().parse().unwrap()).collect()
    };
    let (made, refused) = (of("made "), of("refused "));
    assert!(made.len() > 10 && refused.len() == 20, "{} made, {} refused", made.len(), refused.len());
    let store = database.open().await;
    for n in made {
        assert!(matches!(store.write(group(n)).await, Err(StoreError::Taken(_))), "{n} was acknowledged");
    }
    for n in refused {
        store.write(group(n)).await.expect("what was refused is not there, and now there is room");
    }
}

/// A proxy to the database that can be closed.
struct Gate {
    url: String,
    open: Arc<AtomicBool>,
    connections: Arc<parking::Connections>,
}

mod parking {
    use std::sync::Mutex;

    use tokio::task::JoinHandle;

    /// Open connections through the proxy.
    #[derive(Default)]
    pub(super) struct Connections(Mutex<Vec<JoinHandle<()>>>);

    impl Connections {
        pub(super) fn add(&self, connection: JoinHandle<()>) {
            self.0.lock().unwrap().push(connection);
        }

        pub(super) fn cut(&self) {
            self.0.lock().unwrap().drain(..).for_each(|connection| connection.abort());
        }
    }
}

impl Gate {
    async fn before(database: &Database) -> Self {
        let (_, rest) = database.url.split_once('@').unwrap();
        let (server, path) = rest.split_once('/').unwrap();
        let (server, path) = (server.to_owned(), path.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://postern@{}/{path}", listener.local_addr().unwrap());
        let (open, connections) =
            (Arc::new(AtomicBool::new(true)), Arc::new(parking::Connections::default()));
        let (may_pass, passing) = (open.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if !may_pass.load(Ordering::SeqCst) {
                    continue;
                }
                let server = server.clone();
                passing.add(tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }));
                // The proxy may have been closed since this connection was accepted.
                if !may_pass.load(Ordering::SeqCst) {
                    passing.cut();
                }
            }
        });
        Self { url, open, connections }
    }

    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        self.connections.cut();
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_unavailable_until_it_is_back() {
    let database = Database::postgres().await;
    let gate = Gate::before(&database).await;
    let store = Store::open(&gate.url, EPOCH).await.unwrap();
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let mut writes = tokio::task::JoinSet::new();
        for n in round * 100..(round + 1) * 100 {
            let store = store.clone();
            writes.spawn(async move { (n, store.write(group(n)).await) });
            if n % 100 == 60 {
                gate.close();
            }
        }
        for (n, made) in writes.join_all().await {
            match made {
                Ok(()) => acknowledged.push(n),
                Err(StoreError::Unavailable(_)) => refused.push(n),
                Err(other) => panic!("{other:?}"),
            }
        }
        let read = store.head().await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
        gate.open();
        store.head().await.expect("it is back, and nobody had to restart");
        store.write(AddGroup { id: format!("back {round}"), ..group(1_000 + round) }).await.unwrap();
    }
    assert!(!refused.is_empty());
    for n in acknowledged {
        assert!(matches!(store.write(group(n)).await, Err(StoreError::Taken(_))), "{n} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_lost_is_not_lent_again() {
    let database = Database::postgres().await;
    let store = database.open().await;
    add_user(&store, "ada").await;
    let ask = async || store.user_by_name("ada").await;
    let end_all = async || {
        let mut admin = AnyConnection::connect(&database.url).await.unwrap();
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        admin.execute(others).await.unwrap();
    };
    assert!(ask().await.unwrap().is_some());
    end_all().await;
    // The connection was checked a moment ago, so one read may still fail.
    let found = ask().await;
    assert!(matches!(found, Ok(Some(_)) | Err(StoreError::Unavailable(_))), "{found:?}");
    assert!(ask().await.unwrap().is_some(), "another one is lent");
    end_all().await;
    // The pool checks a connection that was idle for some time before it is lent.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(ask().await.unwrap().is_some());
    // More reads than connections, none of which may be affected.
    let many = (0..100).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.user_by_name("ada").await.unwrap().is_some() })
    });
    for one in many.collect::<Vec<_>>() {
        assert!(one.await.unwrap());
    }
    // A cancelled read must not damage the connection for the next one.
    for micros in 0..200 {
        let soon = Duration::from_micros(10 * micros);
        let _ = tokio::time::timeout(soon, store.user_by_name("ada")).await;
        assert_eq!(store.user_by_name("nobody").await.unwrap(), None);
    }
    tokio::time::timeout(Duration::from_secs(5), store.close()).await.expect("nothing is held back");
    assert!(ask().await.is_err());
}
