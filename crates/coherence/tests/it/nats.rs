//! The NATS transport, tested against a real server.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use coherence::transport::conformance;
use coherence::transport::nats::{self, Credentials, NatsConfig, NatsLogin};
use coherence::transport::{Address, Link};
use tempfile::TempDir;

use super::promises::{self, Server};
use super::servers::{self, Certified, Process, free_port, local, program};

/// Starts a server with this configuration, on this port.
async fn server(port: u16, config: &str) -> (Process, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(program("nats-server", "brokers"));
    let process = Process::start(command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-c"]).arg(&file));
    for _ in 0..100 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return (process, folder);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nats-server does not start with {config:?}");
}

fn connect(servers: Vec<Address>, login: NatsLogin) -> Link {
    nats::connect(NatsConfig { servers, tls: None, login })
}

fn anonymous(address: Address) -> Link {
    connect(vec![address], NatsLogin::None)
}

fn password(text: &str) -> NatsLogin {
    NatsLogin::Password { user: "postern".to_owned(), password: text.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let port = free_port();
    let _server = server(port, "").await;
    conformance::run(async || anonymous(local(port))).await;
}

struct Nats {
    port: u16,
    running: Option<(Process, TempDir)>,
}

impl Server for Nats {
    fn port(&self) -> u16 {
        self.port
    }

    fn kill(&mut self) {
        self.running = None;
    }

    async fn run(&mut self) {
        self.running = Some(server(self.port, "").await);
    }
}

/// Checks the promises against a server.
pub(super) async fn promises_hold() {
    let mut nats = Nats { port: free_port(), running: None };
    nats.run().await;
    promises::check_promises("NATS", nats, |port| Arc::new(anonymous(local(port)))).await;
}

#[tokio::test]
async fn comes_back_after_a_kill() {
    let port = free_port();
    let running = server(port, "").await;
    let way = anonymous(local(port));
    servers::survives_a_kill(&way, running, async || server(port, "").await).await;
}

#[tokio::test]
async fn notices_a_cut_and_a_silent_network() {
    let port = free_port();
    let _server = server(port, "").await;
    servers::survives_weather(anonymous, port).await;
}

#[tokio::test]
async fn notices_a_server_that_is_stopped() {
    let port = free_port();
    let (process, _folder) = server(port, "").await;
    servers::survives_a_stop(&anonymous(local(port)), |signal| process.signal(signal)).await;
}

#[tokio::test]
async fn the_next_server_is_used_when_the_first_is_not_there() {
    let (absent, port) = (free_port(), free_port());
    let _server = server(port, "").await;
    let way = connect(vec![local(absent), local(port)], NatsLogin::None);
    servers::carrying(&way).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let port = free_port();
    let way = anonymous(local(port));
    servers::stays_down(
        &way,
        &[&format!("NATS at 127.0.0.1:{port}: connection refused; check that it runs")],
    )
    .await;
}

#[tokio::test]
async fn users_and_tokens_are_let_in_and_others_told_so() {
    let port = free_port();
    {
        let _server = server(port, "authorization { user: postern, password: right }").await;
        servers::carrying(&connect(vec![local(port)], password("right"))).await;
        let wrong = connect(vec![local(port)], password("wrong"));
        servers::stays_down(&wrong, &["Authorization Violation", "check user, password"]).await;
    }
    let _server = server(port, "authorization { token: right }").await;
    servers::carrying(&connect(vec![local(port)], NatsLogin::Token("right".to_owned()))).await;
    let wrong = connect(vec![local(port)], NatsLogin::Token("wrong".to_owned()));
    servers::stays_down(&wrong, &["Authorization Violation"]).await;
}

/// A key from the NATS documentation.
const KEY: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

#[tokio::test]
async fn a_key_of_a_user_is_let_in() {
    let key = Credentials::parse(KEY).unwrap();
    let port = free_port();
    let config = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", key.public());
    let _server = server(port, &config).await;
    servers::carrying(&connect(vec![local(port)], NatsLogin::Credentials(key))).await;
}

#[tokio::test]
async fn credentials_are_let_in_and_another_key_is_not() {
    let port = free_port();
    let _server = server(port, include_str!("nats/operator.conf")).await;
    let credentials = include_str!("nats/user.creds");
    let right = Credentials::parse(credentials).unwrap();
    servers::carrying(&connect(vec![local(port)], NatsLogin::Credentials(right))).await;

    let seed = credentials.lines().find(|line| line.starts_with("SU")).unwrap();
    let stolen = Credentials::parse(&credentials.replace(seed, KEY)).unwrap();
    let wrong = connect(vec![local(port)], NatsLogin::Credentials(stolen));
    servers::stays_down(&wrong, &["Authorization Violation", "credentials here"]).await;
}

#[tokio::test]
async fn who_may_not_subscribe_is_told_so() {
    let port = free_port();
    let config = "authorization { users: [ { user: postern, password: right, \
                  permissions: { subscribe: [\"elsewhere\"] } } ] }";
    let _server = server(port, config).await;
    let way = connect(vec![local(port)], password("right"));
    let _subscription = coherence::transport::Transport::subscribe(&way, servers::topic());
    servers::stays_down(&way, &["Permissions Violation", "postern.>"]).await;
}

#[tokio::test]
async fn tls_is_used_and_a_stranger_is_not_trusted() {
    let certified = Certified::new();
    let port = free_port();
    let config =
        format!("tls {{ cert_file: {:?}, key_file: {:?} }}", certified.certificate(), certified.key());
    let _server = server(port, &config).await;

    let way = |tls, host: &str| {
        let servers = vec![Address::tcp(host, port)];
        nats::connect(NatsConfig { servers, tls: Some(tls), login: NatsLogin::None })
    };
    let trusted = way(certified.trusted(), "localhost");
    servers::carrying(&trusted).await;
    servers::stays_down(
        &way(servers::trusting_none(), "localhost"),
        &["TLS", "certificate", "the trusted authorities here"],
    )
    .await;
    servers::stays_down(&way(certified.trusted(), "127.0.0.1"), &["certificate", "its names"]).await;
    servers::stays_down(&anonymous(local(port)), &["the server requires TLS"]).await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn latency() {
    let port = free_port();
    let _server = server(port, "").await;
    eprintln!("NATS, 1000 messages of 200 bytes: {}", servers::latency(&anonymous(local(port))).await);
}
