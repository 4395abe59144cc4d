//! `postern admin`: administration of the provider on the machine with its database and secret.
//!
//! Owns: the commands and their output. The operations are those of [`idp::admin`], which the
//! administration API calls too. Any user who may read the secret may call them, and the audit log
//! records the operator.
//!
//! A provider that serves at the same time receives every change through the database.
//!
//! IDs are base64url (RFC 4648 §5) and may begin with a hyphen. So every argument that takes one
//! allows it.

mod backup;
mod client;
pub(super) mod context;
mod group;
mod input;
mod list;
mod mail;
mod revocation;
mod security;
mod show;
mod user;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use idp::admin::AdminFault;

use crate::cmd::admin::context::AdminContext;
use crate::exit::{Failure, Outcome};
use crate::terminal::ERROR;

/// Arguments of `postern admin`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The options above belong to every command of `postern admin`, before or after it.

Examples:
  postern admin postern.toml user add ada --email ada@example.com --generate-password
  postern admin postern.toml client add shop --settings shop.json
  postern admin postern.toml user disable ada
  postern admin postern.toml backup postern.backup

A generated password or secret is printed once, alone on standard output. Reports of changes go to standard error.

Exit codes: 0 success, 1 refused or not found, 2 the command line is invalid, 3 failure.")]
pub struct Arguments {
    /// The configuration file with the provider. The same as FILE before the command.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Tables for people, or JSON for programs.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    output: Output,
    /// Name of the operator in the audit log; default: the name of this process's user.
    #[arg(long, value_name = "NAME", global = true)]
    operator: Option<String>,
    /// Wait until the change is applied everywhere: until all consumers have confirmed it, and at
    /// most for one lease (`revocation.lease`).
    #[arg(long, global = true)]
    wait: bool,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Tables for people.
    Text,
    /// One JSON value.
    Json,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Accounts of users.
    #[command(subcommand)]
    User(user::Verb),
    /// Groups of users.
    #[command(subcommand)]
    Group(group::Verb),
    /// Programs that may request tokens.
    #[command(subcommand)]
    Client(client::Verb),
    /// Sessions of logged-in users.
    #[command(subcommand)]
    Session(security::SessionVerb),
    /// Signing keys of the provider.
    #[command(subcommand)]
    Key(security::KeyVerb),
    /// Tokens, and the families that they belong to.
    #[command(subcommand)]
    Token(security::TokenVerb),
    /// The audit log: who changed what.
    #[command(subcommand)]
    Audit(security::AuditVerb),
    /// The mail server: a test of its settings.
    #[command(subcommand)]
    Mail(mail::Verb),
    /// State of revocations, and the secret for gateways that follow them.
    #[command(subcommand)]
    Revocation(revocation::Verb),
    /// Write the whole database to a new file.
    Backup(backup::Backup),
    /// Fill an empty database from a backup.
    Restore(backup::Restore),
}

/// Why a command did not succeed.
#[derive(Debug)]
enum Fault {
    /// The operation is refused or fails.
    Admin(AdminFault),
    /// The environment does not permit it.
    Failure(Failure),
}

impl From<AdminFault> for Fault {
    fn from(fault: AdminFault) -> Self {
        Self::Admin(fault)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

type Done = Result<Outcome, Fault>;

/// Runs `postern admin`.
pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let Arguments { config, output, operator, wait, noun } = arguments;
    let config = config.ok_or_else(|| {
        Failure::usage("name the configuration of the provider: `postern admin FILE …`, or `--config FILE`")
    })?;
    let Some(loaded) = context::load_configuration(&config) else { return Ok(Outcome::Negative) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let operator = operator.unwrap_or_else(context::user_name);
    let answered = runtime.block_on(async {
        let (admin, is_provider) = (loaded.settings.admin, loaded.provider.is_some());
        if matches!(noun, Noun::Revocation(revocation::Verb::Status)) && !is_provider {
            return revocation::status(None, admin, output).await;
        }
        let provider = context::provider_of(loaded, &config)?;
        match noun {
            Noun::Backup(backup) => backup::backup(&provider, &backup).await,
            Noun::Restore(restore) => backup::restore(&provider, &restore, &operator).await,
            noun => {
                let desk = Box::pin(AdminContext::open(&provider, &operator, output)).await?;
                let mut answered = match noun {
                    Noun::Revocation(revocation::Verb::Status) => {
                        revocation::status(Some(&desk), admin, output).await
                    }
                    noun => answer(&desk, noun).await,
                };
                if wait && matches!(answered, Ok(Outcome::Success)) {
                    answered = revocation::print_when_applied(&desk).await;
                }
                desk.close().await;
                answered
            }
        }
    });
    match answered {
        Ok(outcome) => Ok(outcome),
        Err(Fault::Failure(failure)) => Err(failure),
        Err(Fault::Admin(fault @ (AdminFault::Store(_) | AdminFault::Busy(_) | AdminFault::Failed(_)))) => {
            Err(Failure::new(fault.to_string()))
        }
        Err(Fault::Admin(fault)) => {
            anstream::eprintln!("{ERROR}refused{ERROR:#}: {fault}");
            Ok(Outcome::Negative)
        }
    }
}

async fn answer(desk: &AdminContext, noun: Noun) -> Done {
    match noun {
        Noun::User(verb) => user::run(desk, verb).await,
        Noun::Group(verb) => group::run(desk, verb).await,
        Noun::Client(verb) => client::run(desk, verb).await,
        Noun::Session(verb) => security::sessions(desk, verb).await,
        Noun::Key(verb) => security::keys(desk, verb).await,
        Noun::Token(verb) => security::tokens(desk, verb).await,
        Noun::Audit(verb) => security::audit(desk, verb).await,
        Noun::Mail(verb) => mail::run(desk, verb).await,
        Noun::Revocation(revocation::Verb::Secret) => {
            Ok(desk.show(&desk.follow_secret(), |secret| format!("{secret}\n"))?)
        }
        Noun::Revocation(revocation::Verb::Wait) => revocation::wait(desk).await,
        // Handled before.
        Noun::Backup(_) | Noun::Restore(_) | Noun::Revocation(revocation::Verb::Status) => {
            Ok(Outcome::Negative)
        }
    }
}
