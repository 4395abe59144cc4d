//! `postern admin user`.

use std::time::Duration;

use idp::admin::links::{LinkView, NewLink};
use idp::admin::users::{AddUser, ListUsers, SetPassword, UserChange, UserDetails, UserView};
use idp::admin::{AdminFault, Page, Secret};

use super::input::{self, PasswordFrom};
use super::list::{ListPart, PagePart, show_part};
use super::{Done, show};
use crate::cmd::admin::context::AdminContext;
use crate::exit::Outcome;

/// Commands for accounts. A user is identified by ID, name or e-mail address.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Create an account; without a password the user cannot log in with one.
    Add {
        /// Name that the user logs in with.
        name: String,
        /// E-mail address of the user.
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// The address is verified.
        #[arg(long, requires = "email")]
        verified: bool,
        /// JSON file with further claims (`name`, `given_name`, `phone_number`, ...), or -.
        #[arg(long, value_name = "FILE")]
        claims: Option<String>,
        /// The user must choose a new password at the first login.
        #[arg(long)]
        must_change_password: bool,
        #[command(flatten)]
        password: PasswordFrom,
    },
    /// Show an account with its groups, state and claims.
    Show {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Show accounts, ordered by name; a search looks at names, e-mail addresses and IDs.
    List {
        #[command(flatten)]
        part: ListPart,
    },
    /// Show names and addresses from before normalization that are not allowed now, and what to do.
    Conflicts,
    /// Change name, address or claims; sessions and grants stay valid.
    #[command(group(clap::ArgGroup::new("changes").required(true).multiple(true)))]
    Change {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
        /// New name of the user.
        #[arg(long, value_name = "NAME", group = "changes")]
        name: Option<String>,
        /// New e-mail address.
        #[arg(long, value_name = "ADDRESS", group = "changes")]
        email: Option<String>,
        /// Remove the address.
        #[arg(long, conflicts_with_all = ["email", "verified"], group = "changes")]
        no_email: bool,
        /// Whether the address is verified.
        #[arg(long, value_name = "BOOL", group = "changes")]
        verified: Option<bool>,
        /// Whether the user must choose a new password at the next login; sessions stay valid.
        #[arg(long, value_name = "BOOL", group = "changes")]
        must_change_password: Option<bool>,
        /// JSON file with all new claims, or -.
        #[arg(long, value_name = "FILE", group = "changes")]
        claims: Option<String>,
    },
    /// Set a password, read from the terminal by default; sessions with the old one end.
    Password {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
        /// The user must choose another password at the next login.
        #[arg(long)]
        temporary: bool,
        #[command(flatten)]
        password: PasswordFrom,
    },
    /// Print or send a one-time link with which the user of a new account sets the first password.
    Invite {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
        /// Lifetime of the link, `1m` to `30d`; default: a day.
        #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
        expires_in: Option<Duration>,
        /// Send the link to the user's e-mail address instead of printing it (`[provider.mail]`).
        #[arg(long)]
        mail: bool,
    },
    /// Print or send a one-time link with which the user sets another password.
    ResetLink {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
        /// Lifetime of the link, `1m` to `30d`; default: an hour.
        #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
        expires_in: Option<Duration>,
        /// Send the link to the user's e-mail address instead of printing it (`[provider.mail]`).
        #[arg(long)]
        mail: bool,
    },
    /// Disable an account and revoke its sessions, tokens and grants.
    Disable {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Enable a disabled account again; revoked tokens stay revoked.
    Enable {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Forget wrong passwords, so that the user can log in again at once.
    Unlock {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Revoke all sessions, tokens and grants: sign the user out everywhere.
    Revoke {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Delete an account and all its data.
    Delete {
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
}

pub(super) async fn run(desk: &AdminContext, verb: Verb) -> Done {
    let admin = desk.admin();
    match verb {
        Verb::Add { name, email, verified, claims, must_change_password, password } => {
            let claims = claims.map(|file| input::json(&file, "claims")).transpose()?.unwrap_or_default();
            let add = AddUser {
                name,
                email,
                email_verified: verified,
                claims,
                password: password.read()?,
                generate_password: password.generate_password,
                must_change_password,
            };
            let without = if password.is_absent() { ", without a password" } else { "" };
            let added = admin.add_user(add).await?;
            let description = format!("user {} is {}{without}", added.user.name, added.user.id);
            Ok(desk.report_change_with_secret(
                &added,
                added.password.as_ref().map(Secret::expose),
                &description,
            )?)
        }
        Verb::Show { user } => {
            let id = id(desk, &user).await?;
            Ok(desk.show(&admin.user(&id).await?, details)?)
        }
        Verb::List { part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.users(&ListUsers { search, limit, after, name: None }).await
            };
            show_part(desk, &part.read(page).await?, |part| table(part.items.iter()))
        }
        Verb::Conflicts => {
            let lines = |all: &Page<String>| {
                if all.items.is_empty() { "none\n".to_owned() } else { all.items.join("\n") + "\n" }
            };
            let all = Page { items: admin.name_conflicts().await?, next: None };
            Ok(desk.show(&all, lines)?)
        }
        Verb::Change { user, name, email, no_email, verified, must_change_password, claims } => {
            let change = UserChange {
                name,
                email: if no_email { Some(None) } else { email.map(Some) },
                email_verified: verified,
                must_change_password,
                claims: claims.map(|file| input::json(&file, "claims")).transpose()?,
            };
            let changed = admin.change_user(&id(desk, &user).await?, change).await?;
            Ok(desk.report_change(&changed, &format!("user {} is changed", changed.name))?)
        }
        Verb::Password { user, temporary, password } => {
            let id = id(desk, &user).await?;
            let given =
                if password.is_absent() { Some(input::prompt_password()?) } else { password.read()? };
            let set = SetPassword { password: given, generate: password.generate_password, temporary };
            let set = admin.set_password(&id, set).await?;
            let description = format!("user {user} has a new password, and is logged out everywhere");
            Ok(desk.report_change_with_secret(
                &set,
                set.password.as_ref().map(Secret::expose),
                &description,
            )?)
        }
        Verb::Invite { user, expires_in, mail } => {
            let link = admin.invite_user(&id(desk, &user).await?, &new_link(expires_in, mail)).await?;
            print_link(desk, &user, &link)
        }
        Verb::ResetLink { user, expires_in, mail } => {
            let new = new_link(expires_in, mail);
            let link = admin.create_reset_link(&id(desk, &user).await?, &new).await?;
            print_link(desk, &user, &link)
        }
        Verb::Disable { .. }
        | Verb::Enable { .. }
        | Verb::Unlock { .. }
        | Verb::Revoke { .. }
        | Verb::Delete { .. } => change_state(desk, verb).await,
    }
}

/// Runs the commands that disable, enable, unlock, end or delete accounts.
async fn change_state(desk: &AdminContext, verb: Verb) -> Done {
    let admin = desk.admin();
    match verb {
        Verb::Disable { user } => {
            let view = admin.disable_user(&id(desk, &user).await?).await?;
            Ok(desk.report_change(
                &view,
                &format!("user {} is disabled, and logged out everywhere", view.name),
            )?)
        }
        Verb::Enable { user } => {
            let view = admin.enable_user(&id(desk, &user).await?).await?;
            Ok(desk.report_change(&view, &format!("user {} is enabled", view.name))?)
        }
        Verb::Unlock { user } => {
            let view = admin.unlock_user(&id(desk, &user).await?).await?;
            Ok(desk.report_change(&view, &format!("wrong passwords for {} are forgotten", view.name))?)
        }
        Verb::Revoke { user } => {
            let view = admin.end_user(&id(desk, &user).await?).await?;
            Ok(desk.report_change(&view, &format!("user {} is logged out everywhere", view.name))?)
        }
        Verb::Delete { user } => {
            admin.delete_user(&id(desk, &user).await?).await?;
            Ok(desk.report_change(&(), &format!("user {user} is deleted"))?)
        }
        // Handled before.
        Verb::Add { .. }
        | Verb::Show { .. }
        | Verb::List { .. }
        | Verb::Conflicts
        | Verb::Change { .. }
        | Verb::Password { .. }
        | Verb::Invite { .. }
        | Verb::ResetLink { .. } => Ok(Outcome::Negative),
    }
}

fn new_link(expires_in: Option<Duration>, mail: bool) -> NewLink {
    NewLink { expires_in: expires_in.map(|lifetime| lifetime.as_secs()), mail }
}

/// Prints a link for the operator to hand over, or the address that it is sent to.
fn print_link(desk: &AdminContext, user: &str, link: &LinkView) -> Done {
    let until = show::time(link.expires_at);
    let what = format!("the link lets user {user} set a password, once, until {until}");
    let description = match &link.mailed_to {
        Some(address) => format!("{what}; the running provider sends it to {address}"),
        None => format!("{what}; hand it over"),
    };
    Ok(desk.report_change_with_secret(link, link.url.as_ref().map(Secret::expose), &description)?)
}

/// Finds the ID of a user by ID, name or e-mail address.
pub(super) async fn id(desk: &AdminContext, user: &str) -> Result<String, AdminFault> {
    desk.admin().user_id(user).await
}

fn state(user: &UserView) -> String {
    user.disabled_at.map_or_else(|| "open".into(), |at| format!("disabled since {}", show::time(at)))
}

fn address(user: &UserView) -> String {
    match (&user.email, user.email_verified) {
        (Some(email), false) => format!("{email} (not verified)"),
        (email, _) => email.clone().unwrap_or_default(),
    }
}

pub(super) fn table<'u>(users: impl IntoIterator<Item = &'u UserView>) -> String {
    let row = |user: &UserView| {
        [user.name.clone(), user.id.clone(), address(user), state(user), show::time(user.created_at)]
    };
    show::table(["name", "id", "address", "state", "made"], users.into_iter().map(row))
}

fn password_state(details: &UserDetails) -> &'static str {
    match (details.has_password, details.user.must_change_password) {
        (true, true) => "set; must be changed at the next login",
        (true, false) => "set",
        (false, _) => "none",
    }
}

fn details(details: &UserDetails) -> String {
    let user = &details.user;
    let claims = if user.claims.is_empty() {
        String::new()
    } else {
        serde_json::Value::Object(user.claims.clone()).to_string()
    };
    show::list(&[
        ("name", user.name.clone()),
        ("id", user.id.clone()),
        ("address", address(user)),
        ("state", state(user)),
        ("groups", details.groups.join(", ")),
        ("password", password_state(details).into()),
        ("failed logins", details.failed_logins.to_string()),
        ("locked until", show::optional_time(details.locked_until)),
        ("claims", claims),
        ("made", show::time(user.created_at)),
        ("changed", show::time(user.updated_at)),
    ])
}
