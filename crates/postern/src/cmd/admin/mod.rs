//! `postern admin`: what operators look at and change, on the machine that the provider's database and secret are on.
//!
//! Owns: the words of the command line, and how answers are shown. The operations are [`idp::admin`]'s, the very same that the
//! administration API calls; whoever may read the secret may call them, and the audit log tells who did.
//!
//! A provider that serves meanwhile hears of every change through the database.

mod client;
mod copies;
mod desk;
mod group;
mod input;
mod security;
mod show;
mod user;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use idp::admin::AdminFault;

use self::desk::Desk;
use crate::cli::{Failure, Outcome};
use crate::terminal::{ERROR, GOOD};

/// The share of a time by which the rate of a clock may be wrong: one in so many.
const DRIFT: u32 = 1000;

/// Arguments of `postern admin`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postern admin --config postern.toml user add ada --email ada@example.com --generate-password
  postern admin --config postern.toml client add shop --settings shop.json
  postern admin --config postern.toml user disable ada
  postern admin --config postern.toml backup postern.backup

What is shown once (a password or secret that was made) is all of standard output; what was done is told on
standard error.

Exit codes: 0 it is done, 1 it is refused or not there, 2 the command line is not understood, 3 it cannot be done here.")]
pub struct Arguments {
    /// The configuration file with the provider
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Tables for people, or JSON for programs
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    output: Output,
    /// Who does it, for the audit log; the name of this process's user when absent
    #[arg(long, value_name = "NAME", global = true)]
    operator: Option<String>,
    /// Wait until what was done is in force everywhere, which takes as long as a lease at every gateway (`coherence.lease`)
    #[arg(long, global = true)]
    wait: bool,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables.
    Text,
    /// One JSON value.
    Json,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// People's accounts
    #[command(subcommand)]
    User(user::Verb),
    /// Groups of people
    #[command(subcommand)]
    Group(group::Verb),
    /// Programs that may ask for tokens
    #[command(subcommand)]
    Client(client::Verb),
    /// Who is logged in
    #[command(subcommand)]
    Session(security::SessionVerb),
    /// Signing keys
    #[command(subcommand)]
    Key(security::KeyVerb),
    /// Tokens, and the families they belong to
    #[command(subcommand)]
    Token(security::TokenVerb),
    /// Who did what to whom
    #[command(subcommand)]
    Audit(security::AuditVerb),
    /// Print what gateways elsewhere need that follow what is revoked (`follow_secret_file`)
    FollowSecret,
    /// Write the whole database to a new file
    Backup(copies::Backup),
    /// Make an empty database from a backup
    Restore(copies::Restore),
}

/// Why a verb did not come to its end.
#[derive(Debug)]
enum Fault {
    /// The answer is no, or it cannot be done.
    Admin(AdminFault),
    /// It cannot be done here.
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
    let config = config.ok_or_else(|| Failure::usage("say which provider is meant with --config FILE"))?;
    let Some((provider, lease)) = desk::configuration(&config)? else { return Ok(Outcome::No) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let operator = operator.unwrap_or_else(desk::user_name);
    let answered = runtime.block_on(async {
        match noun {
            Noun::Backup(backup) => copies::backup(&provider, &backup).await,
            Noun::Restore(restore) => copies::restore(&provider, &restore, &operator).await,
            noun => {
                let desk = Desk::open(&provider, &operator, output).await?;
                let answered = answer(&desk, noun).await;
                desk.close().await;
                answered
            }
        }
    });
    match answered {
        Ok(outcome) => {
            if wait && outcome == Outcome::Good {
                let everywhere = lease + lease / DRIFT;
                std::thread::sleep(everywhere);
                anstream::eprintln!(
                    "{GOOD}in force{GOOD:#}: {everywhere:?} have passed since, the longest that any node believes"
                );
            }
            Ok(outcome)
        }
        Err(Fault::Failure(failure)) => Err(failure),
        Err(Fault::Admin(fault @ (AdminFault::Store(_) | AdminFault::Busy(_) | AdminFault::Failed(_)))) => {
            Err(Failure::new(fault.to_string()))
        }
        Err(Fault::Admin(fault)) => {
            anstream::eprintln!("{ERROR}refused{ERROR:#}: {fault}");
            Ok(Outcome::No)
        }
    }
}

async fn answer(desk: &Desk, noun: Noun) -> Done {
    match noun {
        Noun::User(verb) => user::run(desk, verb).await,
        Noun::Group(verb) => group::run(desk, verb).await,
        Noun::Client(verb) => client::run(desk, verb).await,
        Noun::Session(verb) => security::sessions(desk, verb).await,
        Noun::Key(verb) => security::keys(desk, verb).await,
        Noun::Token(verb) => security::tokens(desk, verb).await,
        Noun::Audit(verb) => security::audit(desk, verb).await,
        Noun::FollowSecret => Ok(desk.show(&desk.follow_secret(), |secret| format!("{secret}\n"))?),
        // taken care of before: they need no provider
        Noun::Backup(_) | Noun::Restore(_) => Ok(Outcome::No),
    }
}
