//! `postern admin mail`.

use super::Done;
use crate::cmd::admin::context::AdminContext;

/// Commands for the mail server.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Send a mail at once, and print what the mail server answered.
    Test {
        /// Address that the mail is sent to.
        address: String,
    },
}

pub(super) async fn run(desk: &AdminContext, verb: Verb) -> Done {
    let Verb::Test { address } = verb;
    let sent = desk.admin().send_test_mail(&address).await?;
    let description = format!("mail server {} accepted the mail to {address}: {}", sent.server, sent.reply);
    Ok(desk.report_change(&sent, &description)?)
}
