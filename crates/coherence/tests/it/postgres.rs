//! The PostgreSQL transport, tested against a real server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coherence::transport::conformance::{self, next};
use coherence::transport::postgres::{self, PostgresConfig, PostgresUrl, Trust};
use coherence::transport::{Address, Link, Transport};
use outage::Outage;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;

use super::promises::{self, Server};
use super::servers::{self, Certified, Process, free_port, local, program};

#[expect(clippy::disallowed_methods, reason = "tests are told of servers by the environment")]
fn shared() -> String {
    let url = std::env::var("POSTERN_TEST_POSTGRES");
    url.expect("POSTERN_TEST_POSTGRES is not set: run dev/with-postgres cargo test -p coherence")
}

fn open(url: &str) -> Link {
    reach(url, None)
}

fn reach(url: &str, trust: Option<Trust>) -> Link {
    postgres::connect(
        PostgresConfig::new(&PostgresUrl::parse(url).unwrap(), trust).unwrap(),
        Outage::new("database"),
    )
}

fn url(address: &Address, password: &str) -> String {
    format!("postgres://postern:{password}@{address}/postgres")
}

fn connect(address: &Address) -> Link {
    open(&url(address, "right"))
}

/// A database cluster of the test.
struct Cluster {
    folder: TempDir,
    port: u16,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        fs::write(&password, "right").unwrap();
        own(folder.path());
        let cluster = Self { folder, port: free_port() };
        let mut initdb = as_server("initdb");
        initdb.args(["-U", "postern", "-A", "scram-sha-256", "--no-sync", "--no-instructions", "--pwfile"]);
        let made = initdb.arg(&password).arg("-D").arg(cluster.data()).stdout(Stdio::null()).status();
        assert!(made.unwrap().success(), "initdb fails");
        cluster
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a server with these settings in addition to the usual ones.
    async fn run(&self, settings: &[String]) -> Process {
        // A killed server may not have ended yet, and then blocks the start.
        for _ in 0..100 {
            let mut command = as_server("postgres");
            command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-c", "fsync=off"]);
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
            let mut process =
                Process::start(command.args(settings.iter().flat_map(|setting| ["-c", setting])));
            while process.runs() {
                if self.ready() {
                    return process;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("PostgreSQL does not start");
    }

    fn ready(&self) -> bool {
        let mut command = Command::new(program("pg_isready", "test"));
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status().unwrap().success()
    }
}

/// A program of the server. It refuses to run as root.
fn as_server(name: &str) -> Command {
    let path = program(name, "test");
    if !root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path).current_dir("/");
    command
}

/// Gives a folder to the user that the server runs as.
fn own(folder: &Path) {
    if root() {
        assert!(Command::new("chown").args(["-R", "postgres:"]).arg(folder).status().unwrap().success());
    }
}

fn root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    conformance::run(async || open(&shared())).await;
}

struct Own {
    cluster: Cluster,
    running: Option<Process>,
}

impl Server for Own {
    fn port(&self) -> u16 {
        self.cluster.port
    }

    fn kill(&mut self) {
        self.running = None;
    }

    async fn run(&mut self) {
        self.running = Some(self.cluster.run(&[]).await);
    }
}

/// Checks the promises against a server.
pub(super) async fn promises_hold() {
    let mut own = Own { cluster: Cluster::new(), running: None };
    own.run().await;
    promises::check_promises("PostgreSQL", own, |port| Arc::new(connect(&local(port)))).await;
}

#[tokio::test]
async fn equal_messages_of_one_transaction_all_arrive() {
    let way = open(&shared());
    let mut subscription = servers::carrying(&way).await;
    for _ in 0..500 {
        way.send(&servers::topic(), Bytes::from_static(b"same"));
    }
    for _ in 0..500 {
        assert_eq!(next(&mut subscription).await, "same");
    }
}

#[tokio::test]
async fn comes_back_after_a_kill() {
    let cluster = Cluster::new();
    let running = cluster.run(&[]).await;
    let way = connect(&local(cluster.port));
    servers::survives_a_kill(&way, running, async || cluster.run(&[]).await).await;
}

#[tokio::test]
async fn notices_a_cut_and_a_silent_network() {
    let cluster = Cluster::new();
    let _server = cluster.run(&[]).await;
    servers::survives_weather(|address| connect(&address), cluster.port).await;
}

#[tokio::test]
async fn notices_a_server_that_is_stopped() {
    let cluster = Cluster::new();
    let server = cluster.run(&[]).await;
    servers::survives_a_stop(&connect(&local(cluster.port)), |signal| server.signal_all(signal)).await;
}

#[tokio::test]
async fn the_next_server_is_used_when_the_first_is_not_there() {
    let cluster = Cluster::new();
    let _server = cluster.run(&[]).await;
    let (absent, port) = (free_port(), cluster.port);
    let url = format!("postgres://postern:right@127.0.0.1:{absent},127.0.0.1:{port}/postgres");
    servers::carrying(&open(&url)).await;
}

#[tokio::test]
async fn a_replica_is_told_apart_and_the_primary_used() {
    let (replica, primary) = (Cluster::new(), Cluster::new());
    fs::write(replica.data().join("standby.signal"), "").unwrap();
    let _servers = (replica.run(&[]).await, primary.run(&[]).await);
    servers::stays_down(
        &connect(&local(replica.port)),
        &["this server is a replica; use the primary's address"],
    )
    .await;
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", replica.port, primary.port);
    servers::carrying(&open(&format!("postgres://postern:right@{hosts}/postgres"))).await;
}

#[tokio::test]
async fn who_is_not_let_in_is_told_why() {
    let cluster = Cluster::new();
    let _server = cluster.run(&[]).await;
    let address = local(cluster.port);
    let named = format!("PostgreSQL at {address}: password authentication failed");
    servers::stays_down(&open(&url(&address, "wrong")), &[&named, "check user and password"]).await;
    let nowhere = format!("postgres://postern:right@{address}/nowhere");
    servers::stays_down(&open(&nowhere), &["\"nowhere\" does not exist", "check the database name"]).await;
    let absent = local(free_port());
    servers::stays_down(&connect(&absent), &[&format!("{absent}: connection refused; check that it runs")])
        .await;
}

/// Trusts the issuer of this certificate.
fn trusting(certified: &Certified) -> Trust {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certified.certificate()).unwrap()).unwrap();
    Trust { config: certified.trusted(), roots: Arc::new(roots) }
}

fn nobody() -> Trust {
    Trust { config: servers::trusting_none(), roots: Arc::new(RootCertStore::empty()) }
}

impl Cluster {
    /// Settings of a server that speaks TLS with this certificate.
    fn certified(&self, certified: &Certified) -> Vec<String> {
        let (certificate, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        fs::copy(certified.certificate(), &certificate).unwrap();
        fs::copy(certified.key(), &key).unwrap();
        assert!(Command::new("chmod").arg("600").arg(&key).status().unwrap().success());
        own(self.folder.path());
        let files = [("ssl_cert_file", certificate), ("ssl_key_file", key)];
        let files = files.map(|(setting, file)| format!("{setting}={}", file.display()));
        [vec!["ssl=on".to_owned()], files.to_vec()].concat()
    }

    /// A transport to the server, by a TLS mode.
    fn way(&self, host: &str, mode: &str, trust: Trust) -> Link {
        let url = url(&Address::tcp(host, self.port), "right");
        reach(&format!("{url}?ssl-mode={mode}"), Some(trust))
    }

    /// Makes the server refuse TCP connections without TLS.
    fn insist(&self) {
        let rule = "hostssl all all all scram-sha-256\n";
        fs::write(self.data().join("pg_hba.conf"), rule).unwrap();
        own(self.folder.path());
    }
}

#[tokio::test]
async fn tls_is_used_and_a_stranger_is_not_trusted() {
    let (cluster, certified) = (Cluster::new(), Certified::new());
    let settings = cluster.certified(&certified);
    {
        let _server = cluster.run(&settings).await;
        for mode in ["verify-full", "VERIFY-FULL"] {
            servers::carrying(&cluster.way("localhost", mode, trusting(&certified))).await;
            let stranger = cluster.way("localhost", mode, nobody());
            servers::stays_down(&stranger, &["certificate", "the trusted authorities here"]).await;
            let renamed = cluster.way("127.0.0.1", mode, trusting(&certified));
            servers::stays_down(&renamed, &["certificate", "its names"]).await;
        }
    }
    let _server = cluster.run(&[]).await;
    for mode in ["verify-full", "verify-ca", "require"] {
        let plain = cluster.way("localhost", mode, trusting(&certified));
        servers::stays_down(&plain, &["the server offers no TLS"]).await;
    }
    servers::carrying(&cluster.way("localhost", "prefer", trusting(&certified))).await;
}

#[tokio::test]
async fn a_weaker_mode_asks_less_and_is_encrypted_all_the_same() {
    let (cluster, certified) = (Cluster::new(), Certified::new());
    let settings = cluster.certified(&certified);
    cluster.insist();
    let _server = cluster.run(&settings).await;
    servers::carrying(&cluster.way("127.0.0.1", "verify-ca", trusting(&certified))).await;
    let stranger = cluster.way("127.0.0.1", "verify-ca", nobody());
    servers::stays_down(&stranger, &["certificate", "the trusted authorities here"]).await;
    for mode in ["require", "prefer"] {
        servers::carrying(&cluster.way("127.0.0.1", mode, nobody())).await;
    }
    let plain = cluster.way("127.0.0.1", "disable", nobody());
    servers::stays_down(&plain, &["no pg_hba.conf entry"]).await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn latency() {
    eprintln!("PostgreSQL, 1000 messages of 200 bytes: {}", servers::latency(&open(&shared())).await);
}
