//! Tests of administration on a separate provider: own database, port and controllable clock.

mod clients;
mod import;
mod lists;
mod people;
mod tokens;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use auth::time::Timestamp;
use aws_lc_rs::rand::SystemRandom;
use serde_json::{Value, json};
use store::{Epoch, Store};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{Admin, AdminFault};
use crate::{
    ClientConfig, Config, ConfiguredSecret, GrantType, Introspects, PasswordConfig, Provider, Secrets,
    TokenFormat,
    passwords::Parameters,
    provider::{OutboundClient, Parts, PendingResponse},
};

pub(crate) const API: &str = "https://api.example.com";
pub(crate) const SECRET: &str = "pcs_robots-0123456789-abcdefghij";
pub(crate) const PASSWORD: &str = "violet umbrella orbit";
/// Start of the clock in milliseconds since 1970; deliberately not a whole second.
const START: u64 = 1_800_000_000_250;

struct UnreachableClients;

impl OutboundClient for UnreachableClients {
    fn post(&self, _: crate::PostRequest) -> PendingResponse {
        Box::pin(async { Err("nobody is there".into()) })
    }
}

/// A provider for one test.
pub(crate) struct TestProvider {
    pub(crate) provider: Arc<Provider>,
    address: SocketAddr,
    clock: Arc<AtomicU64>,
    _folder: tempfile::TempDir,
}

/// A response to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Answer {
    /// A text member of the body.
    pub(crate) fn text(&self, member: &str) -> String {
        self.body[member].as_str().unwrap_or_else(|| panic!("{member} in {self:?}")).to_owned()
    }
}

fn configuration(issuer: &str) -> Config {
    let texts = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let robot = |id: &str, scopes: &[&str]| ClientConfig {
        id: id.into(),
        secrets: vec![ConfiguredSecret::Plain(SECRET.into())],
        grants: vec![GrantType::ClientCredentials],
        scopes: texts(scopes),
        default_scopes: texts(scopes),
        audiences: texts(&[issuer, API]),
        ..ClientConfig::default()
    };
    let desk = |id: &str, access_token| ClientConfig {
        grants: vec![GrantType::Password, GrantType::RefreshToken, GrantType::ClientCredentials],
        access_token,
        introspects: Introspects::All,
        ..robot(id, &["openid", "postern:admin"])
    };
    Config {
        audiences: texts(&[issuer, API]),
        passwords: PasswordConfig {
            parameters: Parameters::KEYCLOAK,
            threads: Some(1),
            ..PasswordConfig::default()
        },
        clients: vec![
            robot("robot", &["postern:admin"]),
            robot("reader", &["postern:admin.read"]),
            robot("other", &["orders"]),
            desk("desk", TokenFormat::Jwt),
            desk("safe", TokenFormat::Opaque),
            ClientConfig { grants: vec![GrantType::Password], ..desk("bare", TokenFormat::Jwt) },
        ],
        ..Config::new(issuer)
    }
}

impl TestProvider {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a provider with another configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            Store::open(&store::sqlite_url(&folder.path().join("facts.db")), Epoch([7; 16])).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = Arc::new(AtomicU64::new(START));
        let time = clock.clone();
        let parts = Parts {
            store,
            secrets: Secrets::new(&[9; 32]),
            clock: Arc::new(move || Timestamp::from_millis(time.load(Ordering::SeqCst))),
            entropy: Arc::new(SystemRandom::new()),
            outbound: Arc::new(UnreachableClients),
        };
        let mut config = configuration(&format!("http://{address}/id"));
        change(&mut config);
        let checked = config.check().unwrap();
        let provider = Provider::start(checked, parts).await.unwrap();
        let service = crate::router(provider.clone());
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { provider, address, clock, _folder: folder }
    }

    pub(crate) fn admin(&self) -> Admin<'_> {
        Admin::new(&self.provider, "operator:test")
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, duration: Duration) {
        self.clock.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} /id{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{fields}\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_ascii_lowercase(),
            body: serde_json::from_str(body).unwrap_or_default(),
        }
    }

    /// Posts a form as a client, with this secret.
    pub(crate) async fn form(&self, path: &str, client: &str, secret: &str, more: &str) -> Answer {
        let fields = "content-type: application/x-www-form-urlencoded\r\n";
        self.send("POST", path, fields, &format!("client_id={client}&client_secret={secret}&{more}")).await
    }

    /// Gets an access token for the client itself.
    pub(crate) async fn token(&self, client: &str) -> String {
        let answer = self.form("/token", client, SECRET, "grant_type=client_credentials").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text("access_token")
    }

    /// Requests a token with the password grant.
    pub(crate) async fn log_in(&self, client: &str, name: &str, password: &str) -> Answer {
        let mut more = format!("grant_type=password&username={name}&scope=openid&password=");
        crate::oauth::form::escape(password, &mut more);
        self.form("/token", client, SECRET, &more).await
    }

    /// Whether introspection reports the token as active.
    pub(crate) async fn is_active(&self, token: &str) -> bool {
        let answer = self.form("/introspect", "desk", SECRET, &format!("token={token}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["active"].as_bool().unwrap()
    }

    /// Creates an account with [`PASSWORD`]; returns its id.
    pub(crate) async fn user(&self, name: &str) -> String {
        let add = json!({ "name": name, "email": format!("{name}@example.com"), "password": PASSWORD });
        self.admin().add_user(serde_json::from_value(add).unwrap()).await.unwrap().user.id
    }

    /// Entries of the audit log about changes by operators, as `action target`.
    pub(crate) async fn audit_entries(&self) -> Vec<String> {
        let mut entries = self.provider.store().audit_log(0).await.unwrap();
        assert!(self.provider.store().verify_audit_log().await.unwrap().is_ok());
        entries.retain(|recorded| !recorded.entry.action.starts_with("grant."));
        assert!(entries.iter().all(|recorded| recorded.entry.actor == "operator:test"), "{entries:?}");
        entries
            .into_iter()
            .map(|recorded| format!("{} {}", recorded.entry.action, recorded.entry.target))
            .collect()
    }
}

/// Paths of the refused values.
fn refused_paths<T>(result: Result<T, AdminFault>) -> Vec<String> {
    match result {
        Err(AdminFault::Refused(faults)) => faults.into_iter().map(|fault| fault.path).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is not refused"),
    }
}
