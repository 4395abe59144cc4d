//! A provider on its own port, with a controllable clock.

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
use idp::{
    ClientConfig, Config, ConfiguredSecret, Entropy, OutboundClient, Parts, PendingResponse, Provider,
    Secrets, keys::SigningAlgorithm, oauth::grant_type::GrantType,
};
use serde_json::Value;
use store::{Epoch, Store};
use tokio::net::TcpListener;

use crate::wire::{self, Answer, FORM};

/// 2026-11-21T06:40:00Z, in seconds since 1970.
pub(crate) const START: u64 = 1_795_243_200;
pub(crate) const API: &str = "https://api.example.com";
pub(crate) const SECRET: &str = "pcs_orders-0123456789-abcdefghij";
pub(crate) const NEXT_SECRET: &str = "pcs_orders-next-9876543210-zyxwvu";
/// Needs encoding in Basic credentials: colon, percent, plus, space, and other characters.
pub(crate) const ODD_ID: &str = "odd:id%41+x";
pub(crate) const ODD_SECRET: &str = "p%41 ss+w:ord & = 0123456789?";

#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(START * 1000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) issuer: String,
    pub(crate) clock: TestClock,
    pub(crate) provider: Arc<Provider>,
    _folder: tempfile::TempDir,
}

pub(crate) fn client(id: &str, secrets: &[&str]) -> ClientConfig {
    let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    ClientConfig {
        id: id.into(),
        secrets: secrets.iter().map(|&s| ConfiguredSecret::Plain(s.into())).collect(),
        grants: vec![GrantType::ClientCredentials],
        scopes: owned(&["orders:read", "orders:write", "audit"]),
        default_scopes: owned(&["orders:read"]),
        audiences: owned(&[API, "urn:example:billing", "reports"]),
        groups: owned(&["robots", "orders"]),
        ..ClientConfig::default()
    }
}

pub(crate) fn config(issuer: &str) -> Config {
    Config {
        issuer: issuer.into(),
        audiences: [API, "urn:example:billing", "reports", "https://other.example.com"]
            .map(Into::into)
            .into(),
        access_token_algorithm: SigningAlgorithm::Es256,
        access_token_lifetime: Duration::from_mins(5),
        clients: vec![
            client("orders", &[SECRET, NEXT_SECRET]),
            client(ODD_ID, &[ODD_SECRET]),
            ClientConfig {
                default_scopes: vec![],
                groups: vec![],
                access_token_lifetime: Some(Duration::from_mins(1)),
                ..client("plain", &[SECRET])
            },
        ],
        ..Config::new(issuer)
    }
}

/// An outbound client without any reachable target.
pub(crate) struct UnreachableClients;

impl OutboundClient for UnreachableClients {
    fn post(&self, _: idp::PostRequest) -> PendingResponse {
        Box::pin(async { Err("nobody is there".to_owned()) })
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::at_path("").await
    }

    pub(crate) async fn at_path(path: &str) -> Self {
        let clock = TestClock::new();
        Self::with(path, clock, SigningAlgorithm::Es256, SystemRandom::new()).await
    }

    pub(crate) async fn with(
        path: &str,
        clock: TestClock,
        algorithm: SigningAlgorithm,
        entropy: impl Entropy + 'static,
    ) -> Self {
        let config = |issuer: &str| Config { access_token_algorithm: algorithm, ..config(issuer) };
        Self::of(path, clock, config, entropy, UnreachableClients).await
    }

    pub(crate) async fn of(
        path: &str,
        clock: TestClock,
        config: impl Fn(&str) -> Config,
        entropy: impl Entropy + 'static,
        outbound: impl OutboundClient + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = store::sqlite_url(&folder.path().join("provider.db"));
        let store = Store::open(&url, Epoch([1; 16])).await.unwrap();
        Self::on((store, folder), path, clock, config, entropy, outbound).await
    }

    /// A provider on an opened database. The folder of the database lives as long as the provider.
    pub(crate) async fn on(
        (store, folder): (Store, tempfile::TempDir),
        path: &str,
        clock: TestClock,
        config: impl Fn(&str) -> Config,
        entropy: impl Entropy + 'static,
        outbound: impl OutboundClient + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = format!("http://{address}{path}");
        let config = config(&issuer);
        let time = clock.clone();
        let parts = Parts {
            store,
            secrets: Secrets::new(&[9; 32]),
            clock: Arc::new(move || time.now()),
            entropy: Arc::new(entropy),
            outbound: Arc::new(outbound),
        };
        let provider = Provider::start(config.check().unwrap(), parts).await.unwrap();
        let service = idp::router(Arc::clone(&provider));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { address, issuer, clock, provider, _folder: folder }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        wire::request(self.address, "GET", path).await
    }

    /// A token request id of the client `orders` by `client_secret_basic`; `more` is appended to
    /// the body.
    pub(crate) async fn token(&self, more: &str) -> Answer {
        self.token_of("orders", SECRET, more).await
    }

    pub(crate) async fn token_of(&self, id: &str, secret: &str, more: &str) -> Answer {
        self.post(
            &[("Authorization", &wire::basic(id, secret))],
            &format!("grant_type=client_credentials{more}"),
        )
        .await
    }

    /// Posts a form to the token endpoint.
    pub(crate) async fn post(&self, fields: &[(&str, &str)], body: &str) -> Answer {
        let fields: Vec<(&str, &str)> = [("Content-Type", FORM)].iter().chain(fields).copied().collect();
        let path = self.provider.issuer().path();
        wire::send(self.address, &format!("{path}/token"), &fields, body.as_bytes()).await
    }

    /// The access token of a request that must succeed.
    pub(crate) async fn access_token(&self) -> String {
        let answer = self.token("").await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json()["access_token"].as_str().unwrap().to_owned()
    }
}

/// Header and claims of a token, unverified.
pub(crate) fn decode_unverified(token: &str) -> (Value, Value) {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut parts = token.split('.').map(|p| URL_SAFE_NO_PAD.decode(p).unwrap());
    let [header, claims] = [parts.next().unwrap(), parts.next().unwrap()];
    (serde_json::from_slice(&header).unwrap(), serde_json::from_slice(&claims).unwrap())
}
