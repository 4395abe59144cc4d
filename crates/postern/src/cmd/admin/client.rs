//! `postern admin client`.

use idp::admin::Secret;
use idp::admin::clients::{AddClient, ClientChanged, ClientView, ListClients, ProofView, ReplaceClient};
use idp::admin::tokens::RevokeAll;

use super::list::{ListPart, PagePart, show_part};
use super::{Done, input, show};
use crate::cmd::admin::context::AdminContext;

/// Commands for clients. Clients of the configuration file are shown here and changed there.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Register a client; its secret is printed once.
    Add {
        /// Its `client_id`; random when absent.
        id: Option<String>,
        /// JSON file with its settings (`grants`, `redirect_uris`, `scopes`, `audiences`, ...), or
        /// -.
        #[arg(long, value_name = "FILE")]
        settings: String,
    },
    /// Show a client with its settings.
    Show {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Show clients: those of the configuration, then the registered ones; a search looks at IDs and
    /// names.
    List {
        #[command(flatten)]
        part: ListPart,
    },
    /// Replace the settings of a client; its tokens and grants stay valid.
    Replace {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
        /// JSON file with all new settings, or -.
        #[arg(long, value_name = "FILE")]
        settings: String,
        /// The version that the settings are based on, as `show` prints it.
        #[arg(long, value_name = "NUMBER")]
        version: u64,
    },
    /// Create another secret and print it once; the previous one stays valid until the next change.
    Secret {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Disable a client and revoke its tokens and grants.
    Disable {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Enable a disabled client again; revoked tokens stay revoked.
    Enable {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Revoke all tokens and grants of a client, or those on behalf of one user.
    Revoke {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
        /// Only what it has on behalf of this user: name, e-mail address or ID.
        #[arg(long, value_name = "USER", allow_hyphen_values = true)]
        user: Option<String>,
    },
    /// Delete a client and revoke its tokens and grants.
    Delete {
        /// ID or name of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
}

pub(super) async fn run(desk: &AdminContext, verb: Verb) -> Done {
    let admin = desk.admin();
    match verb {
        Verb::Add { id, settings } => {
            let settings = input::json(&settings, "client's settings")?;
            let added = admin.add_client(AddClient { id, settings }).await?;
            changed(desk, &added, "is registered")
        }
        Verb::Show { id } => {
            let id = admin.client_id(&id).await?;
            Ok(desk.show(&admin.client(&id).await?, details)?)
        }
        Verb::List { part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.clients(&ListClients { search, limit, after }).await
            };
            show_part(desk, &part.read(page).await?, |part| table(&part.items))
        }
        Verb::Replace { id, settings, version } => {
            let settings = input::json(&settings, "client's settings")?;
            let id = admin.client_id(&id).await?;
            let replaced = admin.replace_client(&id, ReplaceClient { version, settings }).await?;
            changed(desk, &replaced, "has new settings")
        }
        Verb::Secret { id } => {
            let id = admin.client_id(&id).await?;
            let rotated = admin.rotate_secret(&id).await?;
            changed(desk, &rotated, "has a new secret; the previous one stays valid until the next change")
        }
        Verb::Disable { id } => {
            let id = admin.client_id(&id).await?;
            let view = admin.disable_client(&id).await?;
            Ok(desk.report_change(
                &view,
                &format!("client {id} is disabled, and its tokens and grants are revoked"),
            )?)
        }
        Verb::Enable { id } => {
            let id = admin.client_id(&id).await?;
            let view = admin.enable_client(&id).await?;
            Ok(desk.report_change(&view, &format!("client {id} is enabled"))?)
        }
        Verb::Revoke { id, user } => {
            let id = admin.client_id(&id).await?;
            let revoked = admin.revoke_all(&RevokeAll { client: id.clone(), user }).await?;
            let description = format!(
                "{} families and opaque tokens of client {id} are revoked, JWTs with them",
                revoked.count
            );
            Ok(desk.report_change(&revoked, &description)?)
        }
        Verb::Delete { id } => {
            let id = admin.client_id(&id).await?;
            admin.delete_client(&id).await?;
            Ok(desk.report_change(
                &(),
                &format!("client {id} is deleted, and its tokens and grants are revoked"),
            )?)
        }
    }
}

fn changed(desk: &AdminContext, changed: &ClientChanged, description: &str) -> Done {
    let secret = changed.secret.as_ref().map(Secret::expose);
    Ok(desk.report_change_with_secret(
        changed,
        secret,
        &format!("client {} {description}", changed.client.id),
    )?)
}

fn state(client: &ClientView) -> String {
    match (client.disabled_at, client.faults.is_empty()) {
        (Some(at), _) => format!("disabled since {}", show::time(at)),
        (None, true) => "open".into(),
        (None, false) => "disabled by invalid settings".into(),
    }
}

fn config_path(client: &ClientView) -> String {
    client.version.map_or_else(|| "configuration".into(), |version| format!("version {version}"))
}

fn authentication_methods(client: &ClientView) -> &'static str {
    match client.proof {
        ProofView::Nothing => "nothing: it is public",
        ProofView::Secret => "a secret",
        ProofView::Keys => "keys",
    }
}

fn grants(client: &ClientView) -> String {
    client.settings.grants.iter().map(|grant| grant.as_str()).collect::<Vec<_>>().join(", ")
}

fn table(clients: &[ClientView]) -> String {
    let row = |client: &ClientView| {
        let name = client.settings.name.clone().unwrap_or_default();
        [
            client.id.clone(),
            name,
            authentication_methods(client).into(),
            grants(client),
            config_path(client),
            state(client),
        ]
    };
    show::table(["id", "name", "authenticates with", "grants", "stands in", "state"], clients.iter().map(row))
}

fn details(client: &ClientView) -> String {
    let faults: Vec<String> =
        client.faults.iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect();
    let mut out = show::list(&[
        ("id", client.id.clone()),
        ("stands in", config_path(client)),
        ("authenticates with", authentication_methods(client).into()),
        ("state", state(client)),
        ("faults", faults.join("; ")),
        ("registered", show::optional_time(client.created_at)),
        ("changed", show::optional_time(client.updated_at)),
    ]);
    out.push_str("settings\n");
    out.push_str(&serde_json::to_string_pretty(&client.settings).unwrap_or_default());
    out.push('\n');
    out
}
