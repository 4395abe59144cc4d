//! Client administration: registered clients, and read access to those of the configuration.

use std::borrow::Cow;

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::clients::{self as rows, ChangeClient, DeleteClient};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Chained, MAX_ATTEMPTS, Page, Refused, Secret, UtcTime};
use crate::client::config::{ClientConfig, ClientFaults, ConfiguredSecret};
use crate::client::{Client, ClientCredential};
use crate::client_secret::ClientSecret;
use crate::revocations;
use crate::secrets::TagSubject;
use crate::subject::SubjectType;

/// Prefixes of a page position: in the clients of the configuration, or in those of the database.
const CONFIGURATION_PREFIX: &str = "configuration/";
const DATABASE_PREFIX: &str = "database/";

/// How a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProofView {
    /// Not at all: a public client.
    Nothing,
    /// With a client secret.
    Secret,
    /// With a signed assertion.
    Keys,
}

/// A client with its settings and state.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct ClientView {
    /// The `client_id`.
    pub id: String,
    /// Whether the configuration file defines it; then it cannot be changed here.
    pub configured: bool,
    /// All other settings, without secrets.
    pub settings: ClientConfig,
    /// How it authenticates.
    pub proof: ProofView,
    /// Reasons why an enabled client is unusable: its settings refer to something that is no longer
    /// in the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Refused>,
    /// Version number, incremented by each change; absent for a client of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// When it was registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UtcTime>,
    /// When it was last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<UtcTime>,
    /// When it was disabled; absent if it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<UtcTime>,
}

impl Listed for ClientView {
    fn position(&self) -> String {
        let prefix = if self.configured { CONFIGURATION_PREFIX } else { DATABASE_PREFIX };
        format!("{prefix}{}", self.id)
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        let name = self.settings.name.as_deref().map(Cow::from);
        [Cow::from(&self.id)].into_iter().chain(name).collect()
    }
}

/// Registration of a new client.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddClient {
    /// The `client_id`; generated at random if absent.
    #[serde(default)]
    pub id: Option<String>,
    /// All other settings, without secrets: a secret is generated unless the client has keys or is
    /// public.
    pub settings: ClientConfig,
}

/// New settings of a client.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceClient {
    /// The version on which the settings are based.
    pub version: u64,
    /// The complete new settings. Existing secrets remain while the client authenticates with a
    /// secret.
    pub settings: ClientConfig,
}

/// Result of a change to a client.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct ClientChanged {
    /// The client after the change.
    pub client: ClientView,
    /// The generated secret. It is returned only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
}

/// Query parameters of the list of clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListClients {
    /// The `next` value of the previous page.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only clients with this text, in any case, in the id or name.
    /// A page of a search looks at 10 000 of them at most, so it may be short although more follow.
    pub search: Option<String>,
}

impl Admin<'_> {
    /// Lists clients: those of the configuration, then the registered ones, each ordered by id.
    ///
    /// # Errors
    /// [`AdminFault`] when a parameter is not valid or the store fails.
    pub async fn clients(&self, list: &ListClients) -> Result<Page<ClientView>, AdminFault> {
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() };
        part.read(move |after: String, count| async move { self.clients_after(&after, count).await }).await
    }

    /// At most `count` clients behind a position.
    async fn clients_after(&self, after: &str, count: u32) -> Result<Vec<ClientView>, AdminFault> {
        let after = if after.is_empty() { CONFIGURATION_PREFIX } else { after };
        let mut views = Vec::new();
        let stored_after =
            match (after.strip_prefix(CONFIGURATION_PREFIX), after.strip_prefix(DATABASE_PREFIX)) {
                (Some(after), _) => {
                    let mut configured: Vec<&Client> = self.provider.clients().configured().collect();
                    configured.sort_unstable_by(|a, b| a.id.cmp(&b.id));
                    views.extend(
                        configured.into_iter().filter(|client| *client.id > *after).map(configured_view),
                    );
                    ""
                }
                (None, Some(after)) => after,
                (None, None) => {
                    return Err(AdminFault::refused(
                        "after",
                        "malformed page position: use `next` of the previous page",
                    ));
                }
            };
        views.truncate(count as usize);
        let left = count - u32::try_from(views.len()).unwrap_or(count);
        if left > 0 {
            let stored = self.provider.store().clients(stored_after, left).await?;
            views.extend(stored.iter().map(|row| self.stored_view(row)));
        }
        Ok(views)
    }

    /// Returns one client.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] when there is no such client.
    pub async fn client(&self, id: &str) -> Result<ClientView, AdminFault> {
        if let Some(client) = self.provider.clients().configured().find(|client| client.id() == id) {
            return Ok(configured_view(client));
        }
        let row =
            self.provider.store().client(id).await?.ok_or_else(|| AdminFault::not_found("client", id))?;
        Ok(self.stored_view(&row))
    }

    /// Registers a client.
    ///
    /// # Errors
    /// [`AdminFault`] when the id is in use, a setting is refused or the store fails.
    pub async fn add_client(&self, add: AddClient) -> Result<ClientChanged, AdminFault> {
        let id = match add.id {
            Some(id) => id,
            None => self.provider.draw_id()?,
        };
        self.refuse_configured(&id)?;
        // A client that speaks for itself is its own subject, so no user may have the same id.
        if self.provider.store().user(&id).await?.is_some() {
            return Err(AdminFault::refused("id", "id in use by a user: choose another"));
        }
        let mut settings = ClientConfig { id: id.clone(), ..refuse_secrets(add.settings)? };
        let secret = self.generate_missing_secret(&mut settings)?;
        self.check(&settings)?;
        let change =
            rows::AddClient { id: id.clone(), settings: serialize_settings(&settings)?, now: self.now() };
        self.write(change, self.entry("client.add", target(&id), &audited_settings(&settings))).await?;
        Ok(ClientChanged { client: self.client(&id).await?, secret })
    }

    /// Replaces the settings of a client if it still has the given version. Its tokens stay valid.
    ///
    /// # Errors
    /// [`AdminFault::Conflict`] for another version; otherwise as for [`Admin::add_client`].
    pub async fn replace_client(
        &self,
        id: &str,
        replace: ReplaceClient,
    ) -> Result<ClientChanged, AdminFault> {
        let row = self.client_row(id).await?;
        if row.version != replace.version {
            return Err(version_conflict(id, replace.version, row.version));
        }
        let mut settings = ClientConfig { id: id.to_owned(), ..refuse_secrets(replace.settings)? };
        if !settings.public && settings.keys.is_none() {
            settings.secrets = parse_settings(&row)?.secrets;
        }
        let secret = self.generate_missing_secret(&mut settings)?;
        self.check(&settings)?;
        let change = self.change(&row, &settings, row.disabled_at, "client changed")?;
        let entry = self.entry("client.change", target(id), &audited_settings(&settings));
        if !self.write(change, entry).await? {
            let version = self.client_row(id).await?.version;
            return Err(version_conflict(id, replace.version, version));
        }
        Ok(ClientChanged { client: self.client(id).await?, secret })
    }

    /// Generates a new secret for a client. The previous secret stays valid until the next
    /// rotation.
    ///
    /// # Errors
    /// [`AdminFault`] when the client has no secret, or the change fails.
    pub async fn rotate_secret(&self, id: &str) -> Result<ClientChanged, AdminFault> {
        let secret = ClientSecret::generate(self.provider.entropy())?;
        let made = ConfiguredSecret::Plain(secret.expose().to_owned());
        self.change_with_retry(id, "client.secret", |row| {
            let mut settings = parse_settings(row)?;
            if settings.public || settings.keys.is_some() {
                let reason = "the client does not authenticate with a secret";
                return Err(AdminFault::refused("id", reason));
            }
            settings.secrets.insert(0, made.clone());
            settings.secrets.truncate(2);
            self.change(row, &settings, row.disabled_at, "client secret changed")
        })
        .await?;
        let secret = Some(Secret::new(secret.expose().to_owned()));
        Ok(ClientChanged { client: self.client(id).await?, secret })
    }

    /// Disables a client and revokes its tokens.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such client, it is configured, or the change fails.
    pub async fn disable_client(&self, id: &str) -> Result<ClientView, AdminFault> {
        self.client_row(id).await?;
        self.revoke_families_in_batches(id, "client disabled").await?;
        self.change_with_retry(id, "client.disable", |row| {
            let change = self.change(row, &parse_settings(row)?, Some(self.now()), "client disabled")?;
            Ok(Chained(change, self.grants_revocation(id, None, "client disabled")))
        })
        .await?;
        self.client(id).await
    }

    /// Enables a disabled client. Revoked tokens stay revoked.
    ///
    /// # Errors
    /// As for [`Admin::disable_client`].
    pub async fn enable_client(&self, id: &str) -> Result<ClientView, AdminFault> {
        self.change_with_retry(id, "client.enable", |row| {
            self.change(row, &parse_settings(row)?, None, "client enabled")
        })
        .await?;
        self.client(id).await
    }

    /// Deletes a client, revokes its tokens and deletes users' consents to it.
    ///
    /// # Errors
    /// As for [`Admin::disable_client`].
    pub async fn delete_client(&self, id: &str) -> Result<(), AdminFault> {
        self.client_row(id).await?;
        self.revoke_families_in_batches(id, "client deleted").await?;
        let now = self.now();
        let revocation =
            revocations::revoke_issued_so_far(vec![self.tag(TagSubject::Client(id))], "client deleted", now);
        let change = DeleteClient { id: id.to_owned(), revocation, now };
        let entry = self.entry("client.delete", target(id), &Value::Null);
        AdminFault::found_if(self.write(change, entry).await?, "client", id)
    }

    /// Applies a change to the current state of the client; retries after a concurrent change.
    async fn change_with_retry<C: store::Change<Output = bool>>(
        &self,
        id: &str,
        action: &str,
        change: impl Fn(&rows::ClientRow) -> Result<C, AdminFault>,
    ) -> Result<(), AdminFault> {
        for _ in 0..MAX_ATTEMPTS {
            let change = change(&self.client_row(id).await?)?;
            if self.write(change, self.entry(action, target(id), &Value::Null)).await? {
                return Ok(());
            }
        }
        Err(AdminFault::Conflict(format!("client {id:?} changed concurrently: try again")))
    }

    fn change(
        &self,
        row: &rows::ClientRow,
        settings: &ClientConfig,
        disabled_at: Option<Timestamp>,
        reason: &'static str,
    ) -> Result<ChangeClient, AdminFault> {
        let now = self.now();
        Ok(ChangeClient {
            id: row.id.clone(),
            version: row.version,
            settings: serialize_settings(settings)?,
            disabled_at,
            revocation: revocations::stale(self.tag(TagSubject::Client(&row.id)), reason, now),
            now,
        })
    }

    /// Reads a client that may be changed here.
    async fn client_row(&self, id: &str) -> Result<rows::ClientRow, AdminFault> {
        self.refuse_configured(id)?;
        self.provider.store().client(id).await?.ok_or_else(|| AdminFault::not_found("client", id))
    }

    fn refuse_configured(&self, id: &str) -> Result<(), AdminFault> {
        if self.provider.clients().is_configured(id) {
            return Err(AdminFault::Configured(id.to_owned()));
        }
        Ok(())
    }

    /// Generates the secret of a client that needs one and has none.
    fn generate_missing_secret(&self, settings: &mut ClientConfig) -> Result<Option<Secret>, AdminFault> {
        if settings.public || settings.keys.is_some() || !settings.secrets.is_empty() {
            return Ok(None);
        }
        let secret = ClientSecret::generate(self.provider.entropy())?;
        settings.secrets.push(ConfiguredSecret::Plain(secret.expose().to_owned()));
        Ok(Some(Secret::new(secret.expose().to_owned())))
    }

    /// Refuses settings with which the client would be unusable.
    fn check(&self, settings: &ClientConfig) -> Result<(), AdminFault> {
        AdminFault::refuse_if_any(self.faults(settings))
    }

    fn faults(&self, settings: &ClientConfig) -> Vec<Refused> {
        let Err(ClientFaults(faults)) = settings.check(self.provider.clients().defaults()) else {
            return Vec::new();
        };
        let placed = |path: String| if path == "id" { path } else { format!("settings.{path}") };
        faults.into_iter().map(|fault| Refused::new(placed(fault.path), fault.reason.to_string())).collect()
    }

    fn stored_view(&self, row: &rows::ClientRow) -> ClientView {
        let (settings, faults) = match ClientConfig::from_stored(row) {
            Ok(settings) => {
                let faults = self.faults(&settings);
                (settings, faults)
            }
            Err(error) => {
                let fault =
                    Refused::new("settings", format!("settings not readable by this version: {error}"));
                (ClientConfig::default(), vec![fault])
            }
        };
        let proof = match (settings.public, &settings.keys) {
            (true, _) => ProofView::Nothing,
            (false, Some(_)) => ProofView::Keys,
            (false, None) => ProofView::Secret,
        };
        ClientView {
            id: row.id.clone(),
            configured: false,
            settings: ClientConfig { secrets: Vec::new(), ..settings },
            proof,
            faults,
            version: Some(row.version),
            created_at: Some(UtcTime(row.created_at)),
            updated_at: Some(UtcTime(row.updated_at)),
            disabled_at: row.disabled_at.map(UtcTime),
        }
    }
}

fn configured_view(client: &Client) -> ClientView {
    let strings = |list: &[Box<str>]| list.iter().map(ToString::to_string).collect();
    let proof = match client.proof {
        ClientCredential::Nothing => ProofView::Nothing,
        ClientCredential::Secret(_) => ProofView::Secret,
        ClientCredential::Keys(_) => ProofView::Keys,
    };
    let settings = ClientConfig {
        id: client.id.to_string(),
        name: Some(client.name.to_string()),
        public: proof == ProofView::Nothing,
        secrets: Vec::new(),
        keys: None,
        grants: client.grants.clone(),
        redirect_uris: client.redirect_uris.iter().map(|uri| uri.as_str().to_owned()).collect(),
        post_logout_redirect_uris: client
            .post_logout_redirect_uris
            .iter()
            .map(|uri| uri.as_str().to_owned())
            .collect(),
        backchannel_logout_uri: client.backchannel_logout_uri.as_ref().map(ToString::to_string),
        scopes: client.scopes.iter().map(str::to_owned).collect(),
        default_scopes: client.default_scopes.iter().map(str::to_owned).collect(),
        audiences: strings(&client.audiences),
        groups: strings(&client.groups),
        asks_consent: client.asks_consent,
        requires_pkce: client.requires_pkce,
        requires_pushed_requests: client.requires_pushed_requests,
        introspects: client.introspects,
        access_token: client.access_token,
        access_token_typ: client.access_token_typ,
        access_token_lifetime: Some(client.access_token_lifetime),
        id_token_algorithm: Some(client.id_token_algorithm),
        userinfo_algorithm: client.userinfo_algorithm,
        claims_in_id_token: client.claims_in_id_token,
        claims: client.claims.clone(),
        subject: if client.sector.is_some() { SubjectType::Pairwise } else { SubjectType::Public },
        sector: client.sector_name.as_ref().map(ToString::to_string),
    };
    ClientView {
        id: client.id.to_string(),
        configured: true,
        settings,
        proof,
        faults: Vec::new(),
        version: None,
        created_at: None,
        updated_at: None,
        disabled_at: None,
    }
}

/// Operators may not set secrets: generated ones are not guessable and not known elsewhere.
fn refuse_secrets(settings: ClientConfig) -> Result<ClientConfig, AdminFault> {
    if settings.secrets.is_empty() {
        return Ok(settings);
    }
    Err(AdminFault::refused("settings.secrets", "remove it: the provider generates the secret"))
}

fn parse_settings(row: &rows::ClientRow) -> Result<ClientConfig, AdminFault> {
    ClientConfig::from_stored(row).map_err(|error| {
        AdminFault::Failed(format!("reading the settings of client {:?} failed: {error}", row.id))
    })
}

/// Serializes settings for the store: secrets become digests.
fn serialize_settings(settings: &ClientConfig) -> Result<String, AdminFault> {
    settings
        .to_stored()
        .map_err(|error| AdminFault::Failed(format!("serializing client settings failed: {error}")))
}

/// The settings that the audit log records.
fn audited_settings(settings: &ClientConfig) -> Value {
    json!({
        "grants": settings.grants,
        "scopes": settings.scopes,
        "audiences": settings.audiences,
        "groups": settings.groups,
        "redirect_uris": settings.redirect_uris,
        "public": settings.public,
        "introspects": settings.introspects,
        "claims": settings.claims,
        "subject": settings.subject,
    })
}

fn version_conflict(id: &str, named: u64, is: u64) -> AdminFault {
    AdminFault::Conflict(format!(
        "client {id:?} has version {is}, not {named}: read it again and repeat the change"
    ))
}

fn target(id: &str) -> String {
    format!("client:{id}")
}
