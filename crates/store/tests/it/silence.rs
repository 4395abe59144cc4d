//! A silent database: statements are neither answered nor refused, and no connection is closed.
//! This happens when a host loses power or a network is cut.

use std::io::{self, BufReader};
use std::time::{Duration, Instant};

use coherence::consumers::ConsumerRecord;
use coherence::event_loops::Log as _;
use coherence::{ConsumerId, PeerName};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _, Row as _};
use store::backup::BackupError;
use store::groups::AddGroup;
use store::{Change, Store, StoreError, Tx};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::databases::{Database, EPOCH, NOW};

/// Far longer than any step takes on a busy machine; only an unlimited wait takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A proxy to the database that can fall silent.
struct Way {
    url: String,
    heard: watch::Sender<Heard>,
}

#[derive(Clone, Copy)]
struct Heard {
    /// How often it fell silent. Connections from before a silence stay silent.
    silences: u32,
    silent: bool,
}

impl Way {
    async fn to(database: &Database) -> Self {
        let (_, rest) = database.url.split_once('@').unwrap();
        let (server, path) = rest.split_once('/').unwrap();
        let (server, path) = (server.to_owned(), path.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://postern@{}/{path}", listener.local_addr().unwrap());
        let (heard, hearing) = watch::channel(Heard { silences: 0, silent: false });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(&server).await.unwrap().into_split();
                tokio::spawn(pass(from_client, to_server, hearing.clone()));
                tokio::spawn(pass(from_server, to_client, hearing.clone()));
            }
        });
        Self { url, heard }
    }

    fn fall_silent(&self) {
        self.heard.send_modify(|heard| *heard = Heard { silences: heard.silences + 1, silent: true });
    }

    /// Another server answers in place of the lost one.
    fn fail_over(&self) {
        self.heard.send_modify(|heard| heard.silent = false);
    }
}

/// Forwards one direction of a connection. During a silence it holds back data, and the end of the
/// stream as well.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut heard: watch::Receiver<Heard>) {
    let born = heard.borrow().silences;
    let mut bytes = vec![0; 16 << 10];
    loop {
        let n = from.read(&mut bytes).await.unwrap_or(0);
        let now = *heard.wait_for(|heard| !heard.silent).await.expect("the test goes on");
        if now.silences != born {
            return std::future::pending().await;
        }
        if n == 0 || to.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}

fn group(name: &str) -> AddGroup {
    AddGroup { id: format!("id-{name}"), name: name.into(), now: NOW }
}

/// Runs `count` reads at once. Each result is `None` if it did not arrive within `patience`.
async fn ask(store: &Store, count: usize, patience: Duration) -> Vec<Option<Result<(), StoreError>>> {
    let asked = (0..count).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { timeout(patience, store.head()).await.ok().map(|head| head.map(|_| ())) })
    });
    let mut answers = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        answers.push(asked.await.unwrap());
    }
    answers
}

/// Waits until reads are answered.
async fn until_it_answers(store: &Store) {
    let began = Instant::now();
    while let Err(error) = store.head().await {
        assert!(began.elapsed() < PATIENCE, "it is back: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_to_a_silent_database_fails_and_takes_no_place_with_it() {
    let way = Way::to(&Database::postgres().await).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    // As many reads as run at once, so that each connection is lent again without a check.
    assert!(ask(&store, 8, PATIENCE).await.iter().all(|answer| matches!(answer, Some(Ok(())))));
    way.fall_silent();
    for answer in ask(&store, 8, PATIENCE).await {
        let answer = answer.expect("an answer, if only that there is none");
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    }
    way.fail_over();
    store.head().await.expect("it is back, and nobody had to restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_nobody_waits_for_takes_no_place_with_it() {
    let way = Way::to(&Database::postgres().await).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    // The pool has one more connection than are lent at once, so one round would not lose all of
    // them.
    for _ in 0..3 {
        until_it_answers(&store).await;
        ask(&store, 8, PATIENCE).await;
        way.fall_silent();
        let answers = ask(&store, 20, Duration::from_millis(100)).await;
        assert!(answers.iter().all(|answer| !matches!(answer, Some(Ok(())))));
        way.fail_over();
    }
    until_it_answers(&store).await;
}

/// A change that is in progress when the test continues.
struct Slow {
    group: AddGroup,
    begun: mpsc::UnboundedSender<()>,
    go_on: watch::Receiver<bool>,
}

impl Change for Slow {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let _ = self.begun.send(());
        let _ = self.go_on.clone().wait_for(|go_on| *go_on).await;
        self.group.apply(tx).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_a_silent_database_does_not_answer_takes_no_lane_with_it() {
    let way = Way::to(&Database::postgres().await).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    let (go, go_on) = watch::channel(false);
    let (says, mut said) = mpsc::unbounded_channel();
    let mut writes = tokio::task::JoinSet::new();
    // Each in a transaction and a lane of its own, so that all lanes are occupied.
    for n in 0..4 {
        let slow = Slow { group: group(&format!("slow {n}")), begun: says.clone(), go_on: go_on.clone() };
        let store = store.clone();
        writes.spawn(async move { timeout(PATIENCE, store.write(slow)).await });
        timeout(PATIENCE, said.recv()).await.expect("a lane is free");
    }
    way.fall_silent();
    go.send_replace(true);
    assert!(store.storage_health().fault().is_none());
    for made in writes.join_all().await {
        let made = made.expect("an answer, if only that nobody knows");
        assert!(matches!(made, Err(StoreError::Unavailable(_))), "{made:?}");
    }
    // The lane gives up a moment after its callers.
    let began = Instant::now();
    while store.storage_health().fault().is_none() {
        assert!(began.elapsed() < PATIENCE, "nobody is told that nothing is stored");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    way.fail_over();
    store.write(group("after")).await.expect("it is back, and nobody had to restart");
    for n in 0..4 {
        store.write(group(&format!("slow {n}"))).await.expect("what was not answered was not made");
    }
}

/// Falls silent once `count` transactions wait for a table that is [`kept`]: their statements were
/// sent and are not answered.
async fn fall_silent_once_waited_for(count: i64, database: &Database, way: &Way) {
    let mut other = AnyConnection::connect(&database.url).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation' \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let began = Instant::now();
    while other.fetch_one(waiting).await.unwrap().get::<i64, _>(0) < count {
        assert!(began.elapsed() < PATIENCE, "nobody waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    way.fall_silent();
}

/// Locks a table against writers until the transaction commits.
async fn kept(table: &str, database: &Database) -> AnyConnection {
    let mut other = AnyConnection::connect(&database.url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    other.execute(AssertSqlSafe(format!("LOCK TABLE {table} IN EXCLUSIVE MODE"))).await.unwrap();
    other
}

fn follower(number: u8) -> ConsumerRecord {
    let (id, name) = (ConsumerId([number; 16]), PeerName::new("gateway").unwrap());
    ConsumerRecord { id, name, lease: Duration::from_secs(5), applied: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_is_not_written_down_by_a_silent_database_and_takes_no_lane_with_it() {
    let database = Database::postgres().await;
    let way = Way::to(&database).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    let mut other = kept("followers", &database).await;
    // As many as there are lanes; the callers of the first two have gone away.
    let noting = (0..4).map(|n| {
        let store = store.clone();
        let patience = if n < 2 { Duration::from_secs(3) } else { PATIENCE };
        tokio::spawn(async move { timeout(patience, store.record_consumers(&[follower(n)])).await })
    });
    let noting: Vec<_> = noting.collect();
    fall_silent_once_waited_for(4, &database, &way).await;
    other.execute("COMMIT").await.unwrap();
    for (n, noted) in noting.into_iter().enumerate() {
        match noted.await.unwrap() {
            Ok(noted) => assert!(!noted, "nobody said so"),
            Err(_) => assert!(n < 2, "an answer, if only that nobody knows"),
        }
    }
    way.fail_over();
    store.write(group("after")).await.expect("it is back, and nobody had to restart");
    assert!(store.record_consumers(&[follower(9)]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_a_silent_database_does_not_answer_ends_and_takes_no_lane_with_it() {
    let database = Database::postgres().await;
    let way = Way::to(&database).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    let mut other = kept("codes, login_sessions", &database).await;
    let sweeping = (0..4).map(|n| {
        let store = store.clone();
        let sweep = async move {
            if n < 2 {
                store.delete_expired(NOW, Duration::from_hours(1)).await.map(|_| ())
            } else {
                store.delete_expired_login_sessions(NOW).await.map(|_| ())
            }
        };
        tokio::spawn(timeout(PATIENCE, sweep))
    });
    let sweeping: Vec<_> = sweeping.collect();
    fall_silent_once_waited_for(4, &database, &way).await;
    other.execute("COMMIT").await.unwrap();
    for swept in sweeping {
        let swept = swept.await.unwrap().expect("an end, if only that nobody knows");
        assert!(matches!(swept, Err(StoreError::Unavailable(_))), "{swept:?}");
    }
    way.fail_over();
    store.write(group("after")).await.expect("it is back, and nobody had to restart");
    store.delete_expired(NOW, Duration::from_hours(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lets_go_of_a_silent_database_is_not_kept() {
    let database = Database::postgres().await;
    let way = Way::to(&database).await;
    let store = Store::open(&way.url, EPOCH).await.unwrap();
    let mut other = kept("followers", &database).await;
    let noting = tokio::spawn({
        let store = store.clone();
        async move { store.record_consumers(&[follower(0)]).await }
    });
    fall_silent_once_waited_for(1, &database, &way).await;
    other.execute("COMMIT").await.unwrap();
    timeout(PATIENCE, store.close()).await.expect("an end");
    assert!(!noting.await.unwrap());
}

/// A copy during which the database falls silent.
struct Overtaken<'w> {
    way: &'w Way,
    /// The rest of the copy, to be read.
    copy: &'w [u8],
    /// Number of bytes that are read before the silence.
    before: usize,
}

impl io::Write for Overtaken<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.way.fall_silent();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Read for Overtaken<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.before == 0 {
            self.way.fall_silent();
        }
        let n = io::Read::read(&mut self.copy, bytes)?;
        self.before = self.before.saturating_sub(n);
        Ok(n)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_given_up_when_the_database_falls_silent() {
    let (full, empty) = (Database::postgres().await, Database::postgres().await);
    let ways = (Way::to(&full).await, Way::to(&empty).await);
    let from = Store::open(&ways.0.url, EPOCH).await.unwrap();
    let into = Store::open(&ways.1.url, EPOCH).await.unwrap();
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..300 {
        let store = from.clone();
        writes.spawn(async move { store.write(group(&format!("number {n}"))).await });
    }
    assert!(writes.join_all().await.into_iter().all(|added| added.is_ok()));
    let mut copy = Vec::new();
    from.export(&mut copy).await.unwrap();

    let mut written = Overtaken { way: &ways.0, copy: &[], before: 0 };
    let read = Overtaken { way: &ways.1, copy: &copy, before: copy.len() / 2 };
    let mut read = BufReader::with_capacity(1 << 10, read);
    // The two do not depend on each other, and each needs some time to detect the silence.
    let (exported, imported) = tokio::join!(
        timeout(PATIENCE * 2, from.export(&mut written)),
        timeout(PATIENCE * 2, into.import(&mut read, EPOCH, |_| Ok(Vec::new()))),
    );
    let exported = exported.expect("an end");
    assert!(matches!(exported, Err(BackupError::Database(StoreError::Unavailable(_)))), "{exported:?}");
    let imported = imported.expect("an end");
    assert!(matches!(imported, Err(BackupError::Database(StoreError::Unavailable(_)))), "{imported:?}");
    assert!(read.get_ref().before == 0 && !read.get_ref().copy.is_empty(), "it was given up half way");

    ways.1.fail_over();
    until_it_answers(&into).await;
    assert_eq!(into.groups("", 9).await.unwrap(), [], "nothing was changed");
}
