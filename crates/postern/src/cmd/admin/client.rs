//! `postern admin client`.

use idp::admin::Secret;
use idp::admin::clients::{AddClient, ClientChanged, ClientView, ListClients, ProofView, ReplaceClient};
use idp::admin::tokens::RevokeAll;

use super::{Done, input, show, user};
use crate::cmd::admin::context::{AdminContext, PAGE, all_pages};

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
        /// The `client_id` of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Show all clients.
    List,
    /// Replace the settings of a client; its tokens and grants stay valid.
    Replace {
        /// The `client_id` of the client.
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
        /// The `client_id` of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Disable a client and revoke its tokens and grants.
    Disable {
        /// The `client_id` of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Enable a disabled client again; revoked tokens stay revoked.
    Enable {
        /// The `client_id` of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Revoke all tokens and grants of a client, or those on behalf of one user.
    Revoke {
        /// The `client_id` of the client.
        #[arg(allow_hyphen_values = true)]
        id: String,
        /// Only what it has on behalf of this user, by name or id.
        #[arg(long, value_name = "USER", allow_hyphen_values = true)]
        user: Option<String>,
    },
    /// Delete a client and revoke its tokens and grants.
    Delete {
        /// The `client_id` of the client.
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
        Verb::Show { id } => Ok(desk.show(&admin.client(&id).await?, details)?),
        Verb::List => {
            let page = async |after| admin.clients(&ListClients { after, limit: PAGE }).await;
            Ok(desk.show(&all_pages(page).await?, |all| table(&all.items))?)
        }
        Verb::Replace { id, settings, version } => {
            let settings = input::json(&settings, "client's settings")?;
            let replaced = admin.replace_client(&id, ReplaceClient { version, settings }).await?;
            changed(desk, &replaced, "has new settings")
        }
        Verb::Secret { id } => {
            let rotated = admin.rotate_secret(&id).await?;
            changed(desk, &rotated, "has a new secret; the previous one stays valid until the next change")
        }
        Verb::Disable { id } => {
            let view = admin.disable_client(&id).await?;
            Ok(desk.report_change(
                &view,
                &format!("client {id} is disabled, and its tokens and grants are revoked"),
            )?)
        }
        Verb::Enable { id } => {
            let view = admin.enable_client(&id).await?;
            Ok(desk.report_change(&view, &format!("client {id} is enabled"))?)
        }
        Verb::Revoke { id, user: named } => {
            let user = match named {
                Some(user) => Some(user::id(desk, &user).await?),
                None => None,
            };
            let revoked = admin.revoke_all(&RevokeAll { client: id.clone(), user }).await?;
            let description = format!(
                "{} families and opaque tokens of client {id} are revoked, JWTs with them",
                revoked.count
            );
            Ok(desk.report_change(&revoked, &description)?)
        }
        Verb::Delete { id } => {
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
