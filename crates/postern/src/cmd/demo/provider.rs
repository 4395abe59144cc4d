//! Provider of the demo, with its clients and users.
//!
//! Owns: clients and users, whose secrets are new at each start; serving the provider on a
//! listener. Does not own: the folder of its database, which is removed with the demo.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http_engine::clock::{Clock as _, SystemClock};
use idp::client_secret::ClientSecret;
use idp::passwords::{Hasher, Memory, Parameters, Password};
use idp::{
    ClientConfig, ConfiguredSecret, Entropy as _, GrantType, OutboundClient, Parts, PendingResponse,
    PostRequest, Provider, Secrets,
};
use pages::{Brand, BrandConfig, Languages, Shell};
use store::groups::{AddGroup, AddMember};
use store::users::{AddUser, StoredPassword, UserRow};
use store::{Epoch, Store};

use super::ports::bind_error;
use crate::exit::Failure;

/// Client that may read orders.
pub(super) const READER: &str = "shop";
/// Client that may read and change orders.
pub(super) const MANAGER: &str = "office";
/// Client that users log in to.
pub(super) const WEB_CLIENT: &str = "desk";
/// User in the group of managers.
pub(super) const ADA: &str = "ada";
/// User without a group.
const BEN: &str = "ben";
/// Audience of the tokens.
pub(super) const AUDIENCE: &str = "orders";
/// Group whose members may read and change orders.
const MANAGERS: &str = "managers";
/// Number of random bytes in a user's password.
const PASSWORD_BYTES: usize = 9;

/// Clients and users of the provider, with their secrets.
pub(super) struct DemoAccounts {
    pub(super) reader: ClientSecret,
    pub(super) manager: ClientSecret,
    /// Name and password of each user.
    pub(super) users: [(&'static str, String); 2],
}

impl DemoAccounts {
    /// Generates the secrets.
    pub(super) fn new() -> Result<Self, Failure> {
        let none = |_| Failure::new("the system has no random numbers available");
        let random = SystemRandom::new();
        let secret = || ClientSecret::generate(&random).map_err(none);
        let password = || {
            let mut bytes = [0; PASSWORD_BYTES];
            random.fill(&mut bytes).map_err(none)?;
            Ok::<_, Failure>(BASE64_URL_SAFE_NO_PAD.encode(bytes))
        };
        let people = [(ADA, password()?), (BEN, password()?)];
        Ok(Self { reader: secret()?, manager: secret()?, users: people })
    }

    fn clients(&self, gateway: SocketAddr) -> Vec<ClientConfig> {
        let program = |id: &str, secret: &ClientSecret, groups: &[&str]| ClientConfig {
            id: id.into(),
            secrets: vec![ConfiguredSecret::Plain(secret.expose().into())],
            grants: vec![GrantType::ClientCredentials],
            scopes: vec!["orders:read".into()],
            default_scopes: vec!["orders:read".into()],
            audiences: vec![AUDIENCE.into()],
            groups: groups.iter().map(ToString::to_string).collect(),
            ..ClientConfig::default()
        };
        let desk = ClientConfig {
            id: WEB_CLIENT.into(),
            name: Some("Order desk".into()),
            public: true,
            grants: vec![GrantType::AuthorizationCode],
            redirect_uris: vec![format!("http://{gateway}/")],
            scopes: ["openid", "profile", "groups", "orders:read"].map(Into::into).into(),
            audiences: vec![AUDIENCE.into()],
            ..ClientConfig::default()
        };
        vec![program(READER, &self.reader, &[]), program(MANAGER, &self.manager, &[MANAGERS]), desk]
    }

    async fn create_users(&self, store: &Store) -> Result<(), String> {
        let message = |error: &dyn std::fmt::Display| error.to_string();
        let (random, now) = (SystemRandom::new(), SystemClock.now().wall);
        let hasher = Hasher::new(Parameters::OWASP, &random).map_err(|error| message(&error))?;
        let mut memory = Memory::new();
        for (name, password) in &self.users {
            let password = Password::new(password.clone()).map_err(|error| message(&error))?;
            let phc = hasher.hash(&password, &random, &mut memory).map_err(|error| message(&error))?;
            let user = UserRow {
                id: format!("demo-{name}"),
                name: (*name).into(),
                email: Some(format!("{name}@example.com")),
                email_verified_at: Some(now),
                claims: "{}".into(),
                created_at: now,
                updated_at: now,
                disabled_at: None,
                must_change_password_at: None,
                tokens_not_before: auth::time::Timestamp::from_millis(0),
                read_at: auth::time::Timestamp::from_millis(0),
            };
            let password = Some(StoredPassword { phc: phc.encode(), changed_at: now });
            store.write(AddUser { user, password }).await.map_err(|error| message(&error))?;
        }
        let add = AddGroup { id: MANAGERS.into(), name: MANAGERS.into(), now };
        store.write(add).await.map_err(|error| message(&error))?;
        let join = AddMember { group: MANAGERS.into(), user_id: format!("demo-{ADA}") };
        store.write(join).await.map_err(|error| message(&error))?;
        Ok(())
    }
}

/// Refuses notifications: no client of the demo needs any.
struct NoOutbound;

impl OutboundClient for NoOutbound {
    fn post(&self, post: PostRequest) -> PendingResponse {
        let refused = format!("{}: the demo sends no requests", post.url);
        Box::pin(async move { Err(refused) })
    }
}

/// Creates the users and serves the provider from now on.
pub(super) fn serve(
    listener: TcpListener,
    gateway: SocketAddr,
    residents: &DemoAccounts,
    folder: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("the provider does not start: {error}"));
    let address = listener.local_addr().map_err(|error| bind_error(&error))?;
    let mut config = idp::Config::new(format!("http://{address}"));
    config.audiences = vec![AUDIENCE.into()];
    config.access_token_lifetime = Duration::from_mins(10);
    config.clients = residents.clients(gateway);
    let brand = BrandConfig { name: "Postern demo".into(), ..BrandConfig::default() };
    let brand = Brand::check(&brand).map_err(|faults| failed(&faults[0]))?;
    config.shell = Shell::new(brand, Languages::default()).into();
    let checked = config.check().map_err(|faults| failed(&faults))?;
    let random = SystemRandom::new();
    let (mut secret, mut epoch) = ([0; 32], [0; 16]);
    random.fill(&mut secret).and_then(|()| random.fill(&mut epoch)).map_err(|error| failed(&error))?;
    listener.set_nonblocking(true).map_err(|error| bind_error(&error))?;
    let router = runtime.block_on(async {
        let store = Store::open(&store::sqlite_url(&folder.join("demo.db")), Epoch(epoch)).await;
        let store = store.map_err(|error| failed(&error))?;
        residents.create_users(&store).await.map_err(|error| failed(&error))?;
        let parts = Parts {
            store,
            secrets: Secrets::new(&secret),
            clock: Arc::new(|| SystemClock.now().wall),
            entropy: Arc::new(random),
            outbound: Arc::new(NoOutbound),
        };
        let provider = Provider::start(checked, parts).await.map_err(|fault| failed(&fault))?;
        tokio::spawn(idp::maintain(provider.clone()));
        Ok::<_, Failure>(idp::router(provider))
    })?;
    let guard = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| bind_error(&error))?;
    drop(guard);
    runtime.spawn(async move { axum::serve(listener, router).await });
    Ok(())
}
