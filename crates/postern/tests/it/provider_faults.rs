//! Providers that are killed while they answer, or whose database is out of space. What a client
//! was told must hold afterwards, and what was refused must not be done partially. Both databases
//! are tested.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Folder, Running, database_of_its_own, environment, get, psql};
use dataplane::ports::free;

/// Secret id of the client.
const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";
const PASSWORD: &str = "plough the winter dunes";
/// Number of times the provider is killed. The default is small; two hundred were run when the test
/// was written.
const KILLED: &str = "POSTERN_TEST_KILLS";
const STREAMS: usize = 4;

struct Served {
    folder: Folder,
    address: String,
    admin: String,
}

impl Served {
    fn new(name: &str, database: &str) -> Self {
        let (address, admin) = (free(), free());
        let folder = Folder::new(&format!("crash-{name}"));
        folder.write("app.secret", SECRET);
        let secret = folder.write("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(secret, mode).unwrap();
        folder.write("database.url", database);
        let url = folder.0.join("database.url");
        std::fs::set_permissions(url, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let text = format!(
            "[admin]\naddress = \"{admin}\"\n\
             [provider]\nissuer = \"http://{address}\"\naddress = \"{address}\"\n\
             database_file = \"database.url\"\nsecret_file = \"provider.secret\"\n\
             [provider.passwords]\nmemory = \"7MiB\"\niterations = 5\n\
             [[provider.client]]\nid = \"app\"\nsecret_files = [\"app.secret\"]\naccess_token = \"opaque\"\n\
             grants = [\"password\", \"refresh_token\"]\nscopes = [\"openid\"]\naccess_token_lifetime = \"1h\"\n"
        );
        folder.write("postern.toml", text);
        Self { folder, address, admin }
    }

    fn file(&self) -> String {
        self.folder.0.join("postern.toml").display().to_string()
    }

    fn start(&self) -> Running {
        let mut process = Running::start_with_limits_as_errors(&["serve", "--config", &self.file()]);
        process.wait_for("provider listening");
        process
    }

    /// Creates the user Ada before a provider serves.
    fn settle(&self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let path = std::path::PathBuf::from(self.file());
        let now = auth::time::Timestamp::from_secs(1_700_000_000);
        let loaded = config::load_file(&path, now, 1).unwrap_or_else(|_| panic!("faulty"));
        runtime.block_on(async {
            let opened = postern::provider::open(loaded.provider.as_ref().unwrap()).await.unwrap();
            let store = opened.store.clone();
            let hasher = idp::passwords::Hasher::new(
                idp::passwords::Parameters::KEYCLOAK,
                &aws_lc_rs::rand::SystemRandom::new(),
            );
            let password = idp::passwords::Password::new(PASSWORD.into()).unwrap();
            let mut memory = idp::passwords::Memory::new();
            let phc = hasher.unwrap().hash(&password, &aws_lc_rs::rand::SystemRandom::new(), &mut memory);
            let user = store::users::UserRow {
                id: "ada-id".into(),
                name: "ada".into(),
                email: None,
                email_verified_at: None,
                claims: "{}".into(),
                created_at: now,
                updated_at: now,
                disabled_at: None,
                must_change_password_at: None,
                tokens_not_before: auth::time::Timestamp::from_millis(0),
                read_at: auth::time::Timestamp::from_millis(0),
            };
            let password = store::users::StoredPassword { phc: phc.unwrap().encode(), changed_at: now };
            store.write(store::users::AddUser { user, password: Some(password) }).await.unwrap();
            store.close().await;
        });
    }

    /// Sends a request. `None`: there was no complete response.
    fn ask(&self, path: &str, form: &str) -> Option<(u16, Value)> {
        let (address, secret) = (&self.address, SECRET.replace('=', "%3D"));
        let form = format!("client_id=app&client_secret={secret}&{form}");
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        assert!(status != 503 || head.contains("retry-after: "), "nobody says when to come back: {head}");
        if body.is_empty() && !head.contains("content-length: 0") {
            return None;
        }
        Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    fn is_active(&self, token: &str) -> bool {
        let (status, told) = self.ask("/introspect", &format!("token={token}")).unwrap();
        assert_eq!(status, 200, "{told}");
        told["active"].as_bool().unwrap()
    }

    fn refresh(&self, token: &str) -> Option<(u16, Value)> {
        self.ask("/token", &format!("grant_type=refresh_token&refresh_token={token}"))
    }
}

/// What one client learned about the tokens of one login, in the order of the responses.
#[derive(Default)]
struct Chain {
    /// Refresh tokens that were redeemed, with a received response.
    redeemed: Vec<String>,
    /// The last refresh token, if it was not used yet. Whether a request that was cut off redeemed
    /// it is unknown.
    next: Option<String>,
    revoked: Vec<String>,
    active: Vec<String>,
}

fn text(answer: &Value, name: &str) -> String {
    answer[name].as_str().unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned()
}

/// Logs in, then refreshes repeatedly and revokes every second access token, until the provider is
/// killed. Counts the access tokens that it received.
fn stream(served: &Served, stop: &AtomicBool, heard: &AtomicUsize) -> Chain {
    let mut chain = Chain::default();
    let login =
        format!("grant_type=password&username=ada&scope=openid&password={}", PASSWORD.replace(' ', "+"));
    let Some((200, tokens)) = served.ask("/token", &login) else { return chain };
    chain.active.push(text(&tokens, "access_token"));
    heard.fetch_add(1, Ordering::SeqCst);
    let mut next = text(&tokens, "refresh_token");
    chain.next = Some(next.clone());
    for turn in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        chain.next = None;
        let Some((status, tokens)) = served.refresh(&next) else { break };
        assert_eq!(status, 200, "{tokens}");
        chain.redeemed.push(std::mem::replace(&mut next, text(&tokens, "refresh_token")));
        chain.next = Some(next.clone());
        let access = text(&tokens, "access_token");
        if turn % 2 == 0 {
            chain.active.push(access);
            heard.fetch_add(1, Ordering::SeqCst);
        } else if let Some((200, _)) = served.ask("/revoke", &format!("token={access}")) {
            chain.revoked.push(access);
            heard.fetch_add(1, Ordering::SeqCst);
        }
    }
    chain
}

/// Checks that every response still holds: nothing acknowledged is lost, and no token can be
/// redeemed twice.
fn check(served: &Served, chain: &Chain) {
    for token in &chain.revoked {
        assert!(!served.is_active(token), "a revocation that was acknowledged is lost");
    }
    for token in &chain.active {
        assert!(served.is_active(token), "a token that was handed out is lost");
    }
    if let Some(next) = &chain.next {
        let (status, tokens) = served.refresh(next).unwrap();
        assert_eq!(status, 200, "the last refresh token is lost: {tokens}");
        assert!(served.is_active(&text(&tokens, "access_token")));
    }
    // A second use revokes the family.
    if let Some(used) = chain.redeemed.first() {
        let (status, answer) = served.refresh(used).unwrap();
        assert_eq!((status, answer["error"].as_str()), (400, Some("invalid_grant")));
        for token in &chain.active {
            assert!(!served.is_active(token), "it should have died with its family");
        }
    }
}

fn survives(name: &str, database: &str) {
    let served = Arc::new(Served::new(name, database));
    served.settle();
    let kills: u64 = environment(KILLED).map_or(4, |n| n.parse().expect("a number of times to kill"));
    let mut told_of = 0;
    let mut dead: Vec<String> = Vec::new();
    for kill in 0..kills {
        let process = served.start();
        // Families that the last round revoked stay revoked.
        for token in dead.drain(..) {
            assert!(!served.is_active(&token), "a dead family came back");
        }
        let (stop, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let streams: Vec<_> = (0..STREAMS)
            .map(|_| {
                let (served, stop, heard) = (served.clone(), stop.clone(), heard.clone());
                std::thread::spawn(move || stream(&served, &stop, &heard))
            })
            .collect();
        // Spread over the duration of a transaction, and of a login.
        std::thread::sleep(Duration::from_millis(350 + 7 * (kill % 61)));
        // On a busy machine no login may have finished by then.
        let until = Instant::now() + Duration::from_secs(30);
        while heard.load(Ordering::SeqCst) < 2 {
            assert!(Instant::now() < until, "nobody is told anything");
            std::thread::sleep(Duration::from_millis(1));
        }
        process.signal("-KILL");
        stop.store(true, Ordering::SeqCst);
        let chains: Vec<Chain> = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
        drop(process);
        let _again = served.start();
        for chain in &chains {
            check(&served, chain);
            told_of += chain.active.len() + chain.revoked.len();
            if !chain.redeemed.is_empty() {
                dead.extend(chain.active.iter().take(2).cloned());
            }
        }
        assert!(process_is_fresh(&served), "it serves on");
    }
    assert!(told_of as u64 > kills, "it was asked too little: {told_of}");
}

fn process_is_fresh(served: &Served) -> bool {
    served.ask("/introspect", "token=nonsense").is_some_and(|(status, _)| status == 200)
}

#[test]
fn what_a_killed_provider_acknowledged_holds_on_sqlite() {
    let folder = Folder::new("crash-database");
    let file = folder.0.join("postern.db");
    survives("sqlite", &format!("sqlite://{}?mode=rwc\n", file.display()));
}

#[test]
fn what_a_killed_provider_acknowledged_holds_on_postgresql() {
    let (url, _) = database_of_its_own("crash");
    survives("postgresql", &format!("{url}\n"));
}

/// Limits the size of a process's files, if the process still exists. Beyond the limit, writing
/// fails as on a full disk. `None`: no limit.
pub(crate) fn leave_room(process: &str, bytes: Option<u64>) {
    let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
    let Ok(owner) = std::fs::metadata(format!("/proc/{process}")) else { return };
    let mut command = Command::new("prlimit");
    if owner.uid() != std::fs::metadata("/proc/self").unwrap().uid() {
        // The owner may set the limit; root may not everywhere.
        let (user, group) = (format!("--reuid={}", owner.uid()), format!("--regid={}", owner.gid()));
        command = Command::new("setpriv");
        command.args([&*user, &group, "--clear-groups", "prlimit"]);
    }
    let done = command.args(["--pid", process, &format!("--fsize={limit}:")]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Logs in and refreshes until there is no space. Then nothing that needs space is done, not even
/// partially, until there is space again.
fn waits_for_room(served: &Served, room: impl Fn(&Running, bool)) {
    let login =
        format!("grant_type=password&username=ada&scope=openid&password={}", PASSWORD.replace(' ', "+"));
    let mut process = served.start();
    let (_, tokens) = served.ask("/token", &login).unwrap();
    let revoked = text(&tokens, "access_token");
    assert_eq!(served.ask("/revoke", &format!("token={revoked}")).unwrap().0, 200);
    let (mut active, mut next) = (Vec::new(), text(&tokens, "refresh_token"));
    let refused = loop {
        let (status, tokens) = served.refresh(&next).unwrap();
        if status != 200 {
            break (status, tokens);
        }
        if active.is_empty() {
            room(&process, false);
        }
        next = text(&tokens, "refresh_token");
        active.push(text(&tokens, "access_token"));
        assert!(active.len() < 20_000, "there is room without end");
    };
    assert_eq!(
        (refused.0, refused.1["error"].as_str()),
        (503, Some("temporarily_unavailable")),
        "{refused:?}"
    );
    // A page may have been freed meanwhile and hold a row or two more.
    let (mut refused, mut tries) = (0, 0);
    while refused < 5 {
        let (status, tokens) = served.refresh(&next).unwrap();
        tries += 1;
        assert!(tries < 500, "there is room again and again");
        if status == 200 {
            refused = 0;
            next = text(&tokens, "refresh_token");
            active.push(text(&tokens, "access_token"));
        } else {
            // Not `invalid_grant`: the token was not redeemed.
            assert_eq!(status, 503, "{tokens}");
            refused += 1;
        }
    }
    let ready = get(&served.admin, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200 "), "it answers what needs no room: {ready}");
    assert!(ready.contains("provider: recent changes could not be stored: "), "{ready}");
    process.wait_for("why=changes cannot be stored");
    // Its rows are shorter than those of a refresh, so one or two may still fit.
    let refused = (0..500).any(|_| match served.ask("/token", &login).unwrap() {
        (200, tokens) => {
            active.push(text(&tokens, "access_token"));
            false
        }
        (status, tokens) => {
            assert_eq!(status, 503, "{tokens}");
            true
        }
    });
    assert!(refused, "there is room again and again");
    let last = active.pop().expect("one while there was room");
    // A change that needs no space may succeed. What was acknowledged must hold.
    let taken_back = match served.ask("/revoke", &format!("token={last}")).unwrap().0 {
        200 => true,
        status => {
            assert_eq!(status, 503);
            false
        }
    };
    let holds = |after: &str| {
        assert!(!served.is_active(&revoked), "{after}: a revocation that was acknowledged is lost");
        assert_eq!(served.is_active(&last), !taken_back, "{after}: revoked by half");
        assert!(
            active.iter().rev().take(50).all(|token| served.is_active(token)),
            "{after}: a token is lost"
        );
    };
    holds("without room");
    room(&process, true);
    let (status, tokens) = served.refresh(&next).unwrap();
    assert_eq!(status, 200, "what was refused can be asked for again: {tokens}");
    assert!(served.is_active(&text(&tokens, "access_token")));
    holds("with room again");
    process.signal("-TERM");
    assert_eq!(process.ended(), Some(0));
    let _again = served.start();
    holds("started again");
    assert_eq!(served.ask("/token", &login).unwrap().0, 200);
}

#[test]
fn a_provider_without_room_says_so_and_does_nothing_by_half_on_sqlite() {
    let folder = Folder::new("room-database");
    let file = folder.0.join("postern.db");
    let served = Served::new("room-sqlite", &format!("sqlite://{}?mode=rwc\n", file.display()));
    served.settle();
    let size = std::fs::metadata(&file).unwrap().len();
    // The write-ahead log starts empty, so it meets the limit.
    waits_for_room(&served, |process, again| {
        leave_room(&process.id(), (!again).then_some(size + 200_000));
    });
}

#[test]
fn a_provider_without_room_says_so_and_does_nothing_by_half_on_postgresql() {
    let (url, name) = database_of_its_own("room");
    let served = Served::new("room-postgresql", &format!("{url}\n"));
    served.settle();
    // Create one table that is larger than the server's own log files, which must not meet the
    // limit. It has short rows that are inserted one by one, so that no page has free space.
    psql(
        &url,
        "DO $$ BEGIN FOR n IN 1..130000 LOOP \
         INSERT INTO access_tokens (digest, jti, client_id, scopes, audiences, details, issued_at, expires_at) \
         VALUES (decode(md5(n::text), 'hex'), 'filler' || n, 'filler', repeat('x', 60), '', '', 0, 9000000000000); \
         END LOOP; END $$",
    );
    let size: u64 = psql(&url, "SELECT pg_relation_size('access_tokens')").trim().parse().unwrap();
    assert!(size > 17 << 20, "{size}");
    // The server reports the limit as an internal error (XX000), unlike a full disk (53100).
    waits_for_room(&served, |_, again| {
        // Include the first process, which forks later ones.
        let first = psql(&url, "SELECT pg_read_file('postmaster.pid')");
        let others =
            format!("SELECT pid FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()");
        for server in first.lines().take(1).chain(psql(&url, &others).lines()) {
            leave_room(server, (!again).then_some(size));
        }
    });
}
