//! `postern init`: writes a first configuration, from flags or from answers at the terminal.
//!
//! Owns: the questions, the files. Does not own: the text of the configuration ([`template`]).

mod answers;
mod template;

use std::path::PathBuf;

use clap::ValueEnum;
use config::Severity;
use http_engine::clock::{Clock as _, SystemClock};

use self::answers::Answers;
use super::new_files::{self, NewFile, random_key};
use crate::exit::{Failure, Outcome};
use crate::shell;
use crate::terminal::{BOLD, Findings};

/// Arguments of `postern init`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
What is neither given nor has a default is asked for, if standard input is a terminal. `--for own` sets
up an OpenID provider in the same process.

Examples:
  postern init --for keycloak --issuer https://sso.example/realms/staff --client-id notebooks \\
    --client-secret-file client.secret --upstream http://127.0.0.1:8888 --out notebooks
  postern init --for okta --callers programs --issuer https://company.okta.com/oauth2/default \\
    --audience api://orders --upstream http://127.0.0.1:3000 --out api
  postern init --for own --upstream http://127.0.0.1:3000 --out own

Exit codes: 0 written, 1 the configuration has faults, 2 the command line is invalid, 3 a file exists or
cannot be written.")]
pub struct Arguments {
    /// Who identifies the callers.
    #[arg(long = "for", value_name = "PROVIDER", value_enum)]
    provider: Option<ProviderKind>,
    /// Who calls: people with browsers, programs with tokens, or both. Default: people; for
    /// `kubernetes` programs.
    #[arg(long, value_enum)]
    callers: Option<Callers>,
    /// The service to protect.
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Where clients reach Postern. Default: `http://localhost:8080`.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The provider's URL, as its metadata call it (`issuer`).
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The client that is registered at the provider for Postern.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// File with the secret of that client.
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// What tokens of programs must be meant for (`aud`). Default: the client.
    #[arg(long, value_name = "NAME")]
    audience: Option<String>,
    /// Only members of this group may pass. Default: everybody who is known.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// For `kubernetes` and `openshift`: file with the authority of the API server.
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")]
    ca: String,
    /// For `kubernetes` and `openshift`: file with the token of Postern's account.
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token")]
    token_file: String,
    /// Folder for the files. It is created if necessary; existing files are not replaced.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// Who identifies the callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProviderKind {
    Keycloak,
    Entra,
    Okta,
    Google,
    Dex,
    /// The OAuth server of the cluster.
    Openshift,
    /// Service accounts and access reviews of the cluster.
    Kubernetes,
    /// A provider in this process.
    Own,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Callers {
    /// With browsers: they sign in.
    People,
    /// With tokens.
    Programs,
    Both,
}

impl Callers {
    fn has_people(self) -> bool {
        self != Self::Programs
    }

    fn has_programs(self) -> bool {
        self != Self::People
    }
}

/// Runs `postern init`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let answers = Answers::of(arguments)?;
    let folder = &arguments.out;
    let mut files = vec![NewFile::public("postern.toml", template::configuration(&answers))];
    if answers.callers.has_people() {
        files.push(NewFile::secret("login.keys", random_key()?));
    }
    if answers.provider == ProviderKind::Own {
        files.push(NewFile::secret("client.secret", random_key()?));
    }
    new_files::write(folder, &files, "--out")?;
    let path = folder.join("postern.toml");
    let written: Vec<_> = files.iter().map(|file| folder.join(file.name).display().to_string()).collect();
    anstream::println!("{BOLD}written{BOLD:#}: {}", written.join(", "));
    let outcome = match config::load_file(&path, SystemClock.now().wall, 1) {
        Ok(loaded) => {
            anstream::print!("{}", Findings(&loaded.report));
            Outcome::Success
        }
        Err(refused) => {
            anstream::print!("{}", Findings(&refused.report));
            let faults = refused.report.count(Severity::Fault);
            let (file, program) = (shell::quote(&path.display().to_string()), shell::program());
            anstream::println!("{faults} to correct in {}, then: {program} check {file}", path.display());
            Outcome::Negative
        }
    };
    anstream::print!("{}", template::next_steps(&answers, &path, &shell::program()));
    Ok(outcome)
}
