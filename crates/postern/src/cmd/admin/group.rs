//! `postern admin group`.

use idp::admin::groups::{AddGroup, GroupView, ListNames};

use super::list::{ListPart, PagePart, show_part};
use super::{Done, show, user};
use crate::cmd::admin::context::AdminContext;

/// Commands for groups.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Create a group.
    Add {
        /// Name of the group in rules and tokens.
        name: String,
    },
    /// Show groups, ordered by name; a search looks at names and IDs.
    List {
        #[command(flatten)]
        part: ListPart,
    },
    /// Show the members of a group; a search looks at names, e-mail addresses and IDs.
    Members {
        /// Name or ID of the group.
        #[arg(allow_hyphen_values = true)]
        group: String,
        #[command(flatten)]
        part: ListPart,
    },
    /// Add a user to a group.
    AddMember {
        /// Name or ID of the group.
        #[arg(allow_hyphen_values = true)]
        group: String,
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Remove a user from a group; the user's tokens are revoked.
    RemoveMember {
        /// Name or ID of the group.
        #[arg(allow_hyphen_values = true)]
        group: String,
        /// Name, e-mail address or ID of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Delete a group; the tokens of its members are revoked.
    Delete {
        /// Name or ID of the group.
        #[arg(allow_hyphen_values = true)]
        group: String,
    },
}

pub(super) async fn run(desk: &AdminContext, verb: Verb) -> Done {
    let admin = desk.admin();
    match verb {
        Verb::Add { name } => {
            let group = admin.add_group(AddGroup { name }).await?;
            Ok(desk.report_change(&group, &format!("group {} is created", group.name))?)
        }
        Verb::List { part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.groups(&ListNames { search, limit, after }).await
            };
            let row =
                |group: &GroupView| [group.name.clone(), group.id.clone(), show::time(group.created_at)];
            show_part(desk, &part.read(page).await?, |part| {
                show::table(["name", "id", "made"], part.items.iter().map(row))
            })
        }
        Verb::Members { group, part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.members(&group, &ListNames { search, limit, after }).await
            };
            show_part(desk, &part.read(page).await?, |part| {
                // A part has the order of the ids. A table is for people.
                let mut users: Vec<_> = part.items.iter().collect();
                users.sort_by_key(|user| user.name.to_lowercase());
                user::table(users)
            })
        }
        Verb::AddMember { group, user: named } => {
            admin.add_member(&group, &user::id(desk, &named).await?).await?;
            Ok(desk
                .report_change(&(), &format!("user {named} is in group {group}, from the next token on"))?)
        }
        Verb::RemoveMember { group, user: named } => {
            admin.remove_member(&group, &user::id(desk, &named).await?).await?;
            Ok(desk.report_change(
                &(),
                &format!("user {named} is no longer in group {group}; the user's tokens are revoked"),
            )?)
        }
        Verb::Delete { group } => {
            admin.delete_group(&group).await?;
            Ok(desk.report_change(
                &(),
                &format!("group {group} is deleted; the tokens of its members are revoked"),
            )?)
        }
    }
}
