//! Files of the demo: its configuration, its secrets, and the provider's database with two users.
//!
//! They are all that `postern serve` needs. The demo serves them from a temporary folder;
//! `postern demo --write` leaves them in a folder to keep.

use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use config::{LoadedConfig, ProviderSettings};
use http_engine::clock::{Clock as _, SystemClock};
use idp::admin::groups::AddGroup;
use idp::admin::users::AddUser;
use idp::admin::{AdminFault, Secret};
use idp::client_secret::ClientSecret;
use zeroize::Zeroizing;

use super::ports::Addresses;
use crate::cmd::admin::context::AdminContext;
use crate::cmd::new_files::{self, NewFile, random_key};
use crate::exit::Failure;

/// Configuration of the demo, with placeholders for addresses.
pub(super) const CONFIG: &str = include_str!("demo.toml");

/// Client that may read orders.
pub(super) const READER: &str = "shop";
/// Client that may read and change orders.
pub(super) const MANAGER: &str = "office";
/// User in both groups.
pub(super) const ADA: &str = "ada";
/// User in the group of the staff only.
pub(super) const BEN: &str = "ben";
/// The groups, each with its members.
const GROUPS: [(&str, &[&str]); 2] = [("staff", &[ADA, BEN]), ("managers", &[ADA])];

/// Files of one demo, and the secrets in them.
pub(super) struct DemoFiles {
    provider: ProviderSettings,
    /// Path of the configuration.
    pub(super) config: PathBuf,
    /// Secret of the client [`READER`].
    pub(super) reader: ClientSecret,
    /// Secret of the client [`MANAGER`].
    pub(super) manager: ClientSecret,
    /// Name and password of each user.
    pub(super) users: Vec<(&'static str, Secret)>,
}

impl DemoFiles {
    /// Writes the files to a folder, and the users to the provider's new database. Returns the
    /// loaded configuration, too.
    ///
    /// # Errors
    /// When a file exists or cannot be written.
    pub(super) fn write(folder: &Path, addresses: Addresses) -> Result<(Self, Box<LoadedConfig>), Failure> {
        let Addresses { gateway, provider, service, admin } = addresses;
        let text = CONFIG
            .replace("GATEWAY", &gateway.to_string())
            .replace("PROVIDER", &provider.to_string())
            .replace("SERVICE", &service.to_string())
            .replace("ADMIN", &admin.to_string());
        let random = SystemRandom::new();
        let secret = || {
            ClientSecret::generate(&random)
                .map_err(|_| Failure::new("the system has no random numbers available"))
        };
        let line = |secret: &ClientSecret| Zeroizing::new(format!("{}\n", secret.expose()));
        let (web, reader, manager) = (secret()?, secret()?, secret()?);
        let files = [
            NewFile::public("postern.toml", text),
            NewFile::secret("login.keys", random_key()?),
            NewFile::secret("web.secret", line(&web)),
            NewFile::secret("shop.secret", line(&reader)),
            NewFile::secret("office.secret", line(&manager)),
        ];
        new_files::write(folder, &files, "--write")?;
        let config = folder.join("postern.toml");
        let loaded = config::load_file(&config, SystemClock.now().wall, 1).map_err(|refused| {
            let faults: Vec<String> = refused.report.lines().collect();
            Failure::new(format!("the demo's own configuration is faulty: {}", faults.join("; ")))
        })?;
        let provider = loaded.provider.clone();
        let provider = provider.ok_or_else(|| Failure::new("the demo's configuration has no provider"))?;
        let users = create_users(&provider)?;
        Ok((Self { provider, config, reader, manager, users }, loaded))
    }

    /// Disables a user's account in the database, as `postern admin user disable` does.
    ///
    /// # Errors
    /// When there is no such user, or the database fails.
    pub(super) async fn disable_user(&self, user: &str) -> Result<(), Failure> {
        let context = AdminContext::open_for_text(&self.provider, "demo").await?;
        let admin = context.admin();
        let disabled: Result<_, AdminFault> =
            async { admin.disable_user(&admin.user_id(user).await?).await }.await;
        context.close().await;
        disabled
            .map(drop)
            .map_err(|fault| Failure::new(format!("the account of {user} cannot be disabled: {fault}")))
    }

    /// Password of a user; empty if there is no such user.
    pub(super) fn password(&self, user: &str) -> &str {
        self.users.iter().find(|(name, _)| *name == user).map_or("", |(_, password)| password.expose())
    }
}

/// Creates users and groups in the provider's database. Returns the passwords.
fn create_users(provider: &ProviderSettings) -> Result<Vec<(&'static str, Secret)>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(async {
        let context = AdminContext::open_for_text(provider, "demo").await?;
        let created = create_users_at(&context).await;
        context.close().await;
        created.map_err(|fault| Failure::new(format!("the users of the demo cannot be created: {fault}")))
    })
}

async fn create_users_at(context: &AdminContext) -> Result<Vec<(&'static str, Secret)>, AdminFault> {
    let admin = context.admin();
    for (name, _) in GROUPS {
        admin.add_group(AddGroup { name: name.into() }).await?;
    }
    let mut users = Vec::new();
    for name in [ADA, BEN] {
        let add = AddUser {
            name: name.into(),
            email: Some(format!("{name}@example.com")),
            email_verified: true,
            generate_password: true,
            ..AddUser::default()
        };
        let added = admin.add_user(add).await?;
        for (group, members) in GROUPS {
            if members.contains(&name) {
                admin.add_member(group, &added.user.id).await?;
            }
        }
        users.extend(added.password.map(|password| (name, password)));
    }
    Ok(users)
}
