//! `postern admin revocation`: shows how far consumers have applied the revocations.
//!
//! For a provider it shows the consumers in its database. For a gateway it shows the state of that
//! process, from its admin listener.

use std::fmt::Write as _;
use std::net::SocketAddr;

use http::{Method, StatusCode};
use http_engine::url::Url;
use idp::admin::followers::{FollowerList, FollowerView, InForce, Proof};
use serde::Serialize;

use super::{Done, Output, show};
use crate::client::{Client, Version};
use crate::cmd::admin::context::{AdminContext, pretty};
use crate::exit::{Failure, Outcome};
use crate::revocation::FollowedIssuerStatus;
use crate::terminal::{SUCCESS, WARNING};

/// Commands for the state of revocation.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Show the consumers of a provider and how far each has applied the revocations; for a
    /// gateway, the issuers that it follows.
    Status,
    /// Wait until everything that is revoked by now is refused everywhere.
    Wait,
    /// Print the secret that other gateways need to follow revocations (`issuer.revocation`).
    Secret,
}

/// State of a provider, a gateway or both.
#[derive(Serialize)]
struct Status {
    /// Consumers of the provider. Absent: no provider is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    followers: Option<FollowerList>,
    /// Followed issuers of the process whose admin listener is configured. Absent: it does not
    /// answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    following: Option<Vec<FollowedIssuerStatus>>,
}

/// Shows the state of a provider, a gateway or both.
pub(super) async fn status(desk: Option<&AdminContext>, admin: Option<SocketAddr>, output: Output) -> Done {
    let followers = match desk {
        Some(desk) => Some(desk.admin().followers().await?),
        None => None,
    };
    let following = match admin {
        Some(address) => match ask(address).await {
            Ok(following) => Some(following),
            // The database of a provider is enough, even if no process serves.
            Err(why) if desk.is_some() => {
                anstream::eprintln!("{WARNING}note{WARNING:#}: {why}");
                None
            }
            Err(why) => return Err(why.into()),
        },
        None if desk.is_some() => None,
        None => {
            return Err(
                Failure::new("the file has neither a [provider] nor an [admin] address to query").into()
            );
        }
    };
    let status = Status { followers, following };
    match output {
        Output::Json => anstream::println!("{}", pretty(&status)?),
        Output::Text => anstream::print!("{}", text(&status)),
    }
    Ok(Outcome::Success)
}

/// Waits until all changes are applied everywhere.
pub(super) async fn wait(desk: &AdminContext) -> Done {
    let in_force = desk.admin().in_force().await?;
    if desk.is_json() {
        anstream::println!("{}", pretty(&in_force)?);
    }
    tell(&in_force);
    Ok(Outcome::Success)
}

/// Like [`wait`], for a command that already uses standard output for its result.
pub(super) async fn print_when_applied(desk: &AdminContext) -> Done {
    tell(&desk.admin().in_force().await?);
    Ok(Outcome::Success)
}

fn tell(in_force: &InForce) {
    anstream::eprintln!("{SUCCESS}applied{SUCCESS:#}: {}", proof(in_force));
}

/// Describes how it is known that every consumer refuses what was revoked.
fn proof(InForce { proof, followers, seconds }: &InForce) -> String {
    match (proof, followers) {
        (Proof::Applied, 0) => "there are no consumers of revocations".into(),
        (Proof::Applied, 1) => format!("the only consumer has applied it, after {seconds:.3} s"),
        (Proof::Applied, all) => format!("all {all} consumers have applied it, after {seconds:.3} s"),
        (Proof::Lapsed, _) => {
            format!(
                "{seconds:.3} s have passed, and the lease of every consumer that has not confirmed has ended"
            )
        }
    }
}

async fn ask(admin: SocketAddr) -> Result<Vec<FollowedIssuerStatus>, Failure> {
    let url = format!("http://{admin}/debug/revocation");
    let no =
        |why: String| Failure::new(format!("the gateway's admin listener at {admin} does not answer: {why}"));
    let parsed = Url::parse(&url).map_err(|fault| no(fault.to_string()))?;
    let reply = Client::default().send(Version::Http1, Method::GET, &parsed, &[], "").await;
    let reply = reply.map_err(no)?;
    if reply.status != StatusCode::OK {
        return Err(no(format!("it answered {}", reply.status)));
    }
    serde_json::from_slice(&reply.body).map_err(|error| no(error.to_string()))
}

fn text(status: &Status) -> String {
    let mut text = String::new();
    if let Some(list) = &status.followers {
        let row = |follower: &FollowerView| {
            let behind = match follower.behind {
                None => "everything".into(),
                Some(0) => "nothing".into(),
                Some(1) => "1 event".into(),
                Some(behind) => format!("{behind} events"),
            };
            let seconds = |seconds: f64| format!("{seconds:.1} s");
            [follower.name.clone(), behind, seconds(follower.heard), seconds(follower.lease)]
        };
        let _ = writeln!(text, "the log is at event {}; consumers:", list.head);
        text += &show::table(["consumer", "lacks", "heard ago", "lease"], list.items.iter().map(row));
    }
    if let Some(all) = &status.following {
        let row = |one: &FollowedIssuerStatus| {
            let lease = one.lease_left.map_or_else(|| "none".into(), |left| format!("{left:.1} s"));
            let numbers = [one.applied, one.lag, one.denials].map(|number| number.to_string());
            let [applied, lag, denials] = numbers;
            [one.issuer.clone(), one.mode.to_string(), lease, applied, lag, denials, one.transport.clone()]
        };
        text += "followed issuers of this gateway:\n";
        let heading = ["issuer", "mode", "lease left", "applied", "lacks", "denied", "transport"];
        text += &show::table(heading, all.iter().map(row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::documented::assert_row_has_members_of;
    use crate::revocation::Mode;

    #[test]
    fn a_status_has_the_documented_members() {
        let consumer = FollowerView { name: "gateway".into(), behind: Some(1), lease: 2.0, heard: 0.5 };
        let issuer = FollowedIssuerStatus {
            issuer: "https://id.example".into(),
            mode: Mode::Leased,
            lease_left: Some(1.5),
            applied: 7,
            lag: 0,
            denials: 2,
            transport: "up".into(),
        };
        let status = Status {
            followers: Some(FollowerList { head: 7, items: vec![consumer], next: None }),
            following: Some(vec![issuer]),
        };
        assert_row_has_members_of("admin revocation status --output json", &status);
    }
}
