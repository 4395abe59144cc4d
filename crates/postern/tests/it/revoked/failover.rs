//! A database that fails over to a standby, which may lack the last durable changes.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::fixture::{MAX_ACCEPTANCE, Town, until};
use crate::support::get;
use dataplane::ports::free;

/// A PostgreSQL server of the test. It is killed with `kill -9` when it is dropped.
struct Server {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

fn port() -> u16 {
    free().rsplit(':').next().unwrap().parse().unwrap()
}

/// A PostgreSQL program. PostgreSQL refuses to run as root.
fn program(name: &str) -> Command {
    let versions =
        fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is not installed: run dev/setup test");
    let path =
        versions.flatten().map(|version| version.path().join("bin").join(name)).find(|path| path.is_file());
    let path = path.unwrap_or_else(|| PathBuf::from(name));
    let mut command = if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn own(folder: &Path) {
    if rustix::process::getuid().is_root() {
        assert!(Command::new("chown").args(["-R", "postgres:"]).arg(folder).status().unwrap().success());
    }
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        own(folder.path());
        Self { folder, port: port(), process: None }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn primary() -> Self {
        let mut server = Self::new();
        let made = program("initdb")
            .args(["-U", "postern", "-A", "trust", "--no-sync", "--no-instructions", "-D"])
            .arg(server.data())
            .status();
        assert!(made.unwrap().success(), "initdb fails");
        server.run();
        server
    }

    /// A standby that replicates another server.
    fn standby(primary: &Self) -> Self {
        let mut server = Self::new();
        let made = program("pg_basebackup")
            .args(["-h", "127.0.0.1", "-U", "postern", "-R", "--no-sync", "-c", "fast", "-p"])
            .arg(primary.port.to_string())
            .arg("-D")
            .arg(server.data())
            .status();
        assert!(made.unwrap().success(), "pg_basebackup fails");
        server.run();
        server
    }

    fn run(&mut self) {
        let process = program("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string(), "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories=", "-c", "hot_standby=on"])
            .spawn();
        self.process = Some(process.unwrap());
        let ready = || {
            let mut ready = program("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status().unwrap().success()
        };
        until(ready, "ready");
    }

    fn url(&self) -> String {
        format!("postgres://postern@127.0.0.1:{}/postgres", self.port)
    }

    fn ask(&self, statement: &str) -> String {
        crate::support::psql(&self.url(), statement).trim().to_owned()
    }

    fn promote(&self) {
        assert_eq!(self.ask("SELECT pg_promote()"), "t");
    }

    /// Stops or continues it, with all of its processes.
    fn signal(&self, signal: &str) {
        let kill = |process: &str| Command::new("kill").args([signal, process]).status().unwrap().success();
        let parent = self.process.as_ref().unwrap().id();
        assert!(kill(&parent.to_string()));
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        // A process that served a connection may have ended by now.
        for child in children.split_whitespace() {
            kill(child);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// An address that leads to one server, then to another.
struct SwitchableAddress {
    port: u16,
    to: Arc<AtomicU16>,
}

impl SwitchableAddress {
    fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = Arc::new(AtomicU16::new(server.port));
        let target = to.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", target.load(Ordering::Relaxed))) {
                    carry(&client, &server);
                    carry(&server, &client);
                }
            }
        });
        Self { port, to }
    }
}

/// Copies bytes in both directions, until either side ends.
fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
    });
}

#[test]
fn what_is_read_where_nothing_can_be_committed_lets_nobody_in() {
    let primary = Server::primary();
    let standby = Server::standby(&primary);
    for setting in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
        primary.ask(setting);
    }
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until(|| primary.ask(synchronous) == "1", "synchronous");
    let town = Town::new("deposed", 1, &primary.url());
    let (node, elsewhere) = (&town.nodes[0], town.remote_gateway(""));
    let (token, opaque) = (node.token(), node.token_of("opaque"));
    for gateway in [node, &elsewhere] {
        assert_eq!([gateway.status(&token), gateway.status(&opaque)], [200; 2]);
    }
    // From here on the standby may be promoted and revoke tokens, and this server could not know.
    standby.signal("-STOP");
    for gateway in [node, &elsewhere] {
        until(|| gateway.status(&token) == 503, "without a lease");
        assert_eq!(gateway.status(&opaque), 503);
        until(|| get(&gateway.admin, "/readyz").contains(" 503 "), "known to be of no use");
    }
    let read = node.post("opaque", "/introspect", &format!("token={opaque}"));
    assert!(
        read.starts_with("HTTP/1.1 200 ") && read.contains("\"active\":true"),
        "it can still be read: {read}"
    );
    // It may be unready for lack of a lease before its database was checked.
    until(|| get(&node.admin, "/readyz").contains("cannot prove that it is current"), "told why");
    until(|| node.metric("postern_provider_database_proven") < 0.5, "counted");
    standby.signal("-CONT");
    for gateway in [node, &elsewhere] {
        until(|| [&token, &opaque].iter().all(|token| gateway.status(token) == 200), "back");
        until(|| get(&gateway.admin, "/readyz").contains(" 200 "), "ready");
    }
}

#[test]
fn a_standby_that_was_not_promoted_lets_nobody_in() {
    let primary = Server::primary();
    let standby = Server::standby(&primary);
    let name = SwitchableAddress::of(&primary);
    let mut town = Town::new("standby", 1, &format!("postgres://postern@127.0.0.1:{}/postgres", name.port));
    let elsewhere = town.remote_gateway("");
    let node = &town.nodes[0];
    let (token, revoked) = (node.token(), node.token());
    for gateway in [node, &elsewhere] {
        assert_eq!([&token, &revoked].map(|token| gateway.status(token)), [200; 2]);
    }
    node.revoke(&revoked);
    let durable = primary.ask("SELECT pg_current_wal_lsn()::text");
    let arrived = format!("SELECT pg_last_wal_replay_lsn() >= '{durable}'");
    until(|| standby.ask(&arrived) == "t", "replicated");
    name.to.store(standby.port, Ordering::Relaxed);
    drop(primary);
    // It can be read. But another server may have newer data.
    for gateway in [node, &elsewhere] {
        until(|| gateway.status(&token) == 503, "without a lease");
        until(|| get(&gateway.admin, "/readyz").contains(" 503 "), "known to be of no use");
        assert_ne!(gateway.status(&revoked), 200);
    }
    town.nodes[0].process.wait_for("dependency unavailable dependency=\"database\"");
    standby.promote();
    for gateway in [&town.nodes[0], &elsewhere] {
        until(|| gateway.status(&token) == 200, "back");
        assert_eq!(gateway.status(&revoked), 401);
        until(|| get(&gateway.admin, "/readyz").contains(" 200 "), "ready");
    }
    town.nodes[0].process.wait_for("dependency available again dependency=\"database\"");
}

#[test]
fn a_failover_that_loses_something_begins_another_history() {
    let primary = Server::primary();
    let standby = Server::standby(&primary);
    let name = SwitchableAddress::of(&primary);
    let town = Town::new("failover", 1, &format!("postgres://postern@127.0.0.1:{}/postgres", name.port));
    let (node, elsewhere) = (&town.nodes[0], town.remote_gateway(""));
    let (before, lost, other) = (node.token(), node.token(), node.token());
    for gateway in [node, &elsewhere] {
        assert_eq!([&before, &lost, &other].map(|token| gateway.status(token)), [200; 3]);
    }
    node.revoke(&before);
    let head = || "SELECT pg_current_wal_lsn()::text";
    let durable = primary.ask(head());
    let arrived = format!("SELECT pg_last_wal_replay_lsn() >= '{durable}'");
    until(|| standby.ask(&arrived) == "t", "replicated");
    // The standby receives nothing more, so only the primary has this revocation.
    standby.signal("-STOP");
    node.revoke(&lost);
    until(|| elsewhere.status(&lost) == 401, "refused");
    drop(primary);
    standby.signal("-CONT");
    standby.promote();
    name.to.store(standby.port, Ordering::Relaxed);

    // Log numbers are used a second time. A consumer that continued counting would ignore this
    // event as already known.
    let again = Instant::now();
    let revoked = loop {
        assert!(again.elapsed() < Duration::from_secs(40), "the provider does not come back");
        let answer = node.post("app", "/revoke", &format!("token={other}"));
        if answer.starts_with("HTTP/1.1 200 ") {
            break Instant::now();
        }
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for gateway in [node, &elsewhere] {
        loop {
            let asked = Instant::now();
            let status = gateway.status(&other);
            if status == 401 {
                break;
            }
            assert!([200, 503].contains(&status), "{status}");
            assert!(
                status == 503 || asked - revoked < MAX_ACCEPTANCE,
                "admitted {:?} after it was revoked",
                asked - revoked
            );
            assert!(asked - revoked < Duration::from_secs(30), "still {status}");
        }
        assert_eq!(
            [&before, &other].map(|token| gateway.status(token)),
            [401; 2],
            "what the standby had is refused"
        );
    }
    let issuer = &node.provider;
    let flushes =
        format!("postern_revocation_cache_flushes_total{{issuer=\"http://{issuer}\",cause=\"epoch\"}}");
    until(|| elsewhere.metric(&flushes) >= 1.0, "flushed");
    // The pool may lend a connection to the former primary once more before it is found broken.
    // That request gets 503, and a retry succeeds.
    let again = || node.post("app", "/token", "grant_type=client_credentials").starts_with("HTTP/1.1 200 ");
    until(again, "issuing again");
    let fresh = node.token();
    until(|| [node, &elsewhere].iter().all(|gateway| gateway.status(&fresh) == 200), "back");
}
