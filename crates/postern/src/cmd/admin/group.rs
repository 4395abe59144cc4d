//! `postern admin group`.

use idp::admin::groups::{AddGroup, GroupView, ListNames};

use super::{Done, show, user};
use crate::cmd::admin::context::{AdminContext, PAGE, all_pages};

/// Commands for groups.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Create a group.
    Add {
        /// Name of the group in rules and tokens.
        name: String,
    },
    /// Show all groups.
    List,
    /// Show the members of a group.
    Members {
        /// Name of the group.
        group: String,
    },
    /// Add a user to a group.
    AddMember {
        /// Name of the group.
        group: String,
        /// Name or id of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Remove a user from a group; the user's tokens are revoked.
    RemoveMember {
        /// Name of the group.
        group: String,
        /// Name or id of the user.
        #[arg(allow_hyphen_values = true)]
        user: String,
    },
    /// Delete a group; the tokens of its members are revoked.
    Delete {
        /// Name of the group.
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
        Verb::List => {
            let page = async |after| admin.groups(&ListNames { after, limit: PAGE }).await;
            let row = |group: &GroupView| [group.name.clone(), show::time(group.created_at)];
            Ok(desk.show(&all_pages(page).await?, |all| {
                show::table(["name", "made"], all.items.iter().map(row))
            })?)
        }
        Verb::Members { group } => {
            let page = async |after| admin.members(&group, &ListNames { after, limit: PAGE }).await;
            Ok(desk.show(&all_pages(page).await?, |all| user::table(&all.items))?)
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
