//! `postern check`: checks a configuration, shows what it means, and explains its decisions.
//!
//! Owns: wording and tables. Does not own: the checks ([`config`]) and the decisions (`auth`),
//! which are the code that serves.

mod auth_response;
mod explain;
mod matches;
mod outline;
mod overview;
mod request;
mod token;

use std::path::PathBuf;

use auth::time::Timestamp;
use config::Severity;
use http_engine::clock::{Clock as _, SystemClock};

use crate::cmd::check::outline::OutlineVerdict;
use crate::exit::{Failure, Outcome};
use crate::terminal::{ERROR, Findings, SUCCESS};

/// Arguments of `postern check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postern check --config postern.toml
  postern check --config postern.toml --request 'GET https://app.example/orders'
  postern check --config postern.toml --as @token.jwt --request 'GET https://app.example/7'
  postern token --issuer https://id.example --client-id me --client-secret @secret \\
    | postern check --config postern.toml --as - --request 'GET https://app.example/'

Exit codes: 0 the configuration is valid (and the request would pass), 1 it is not,
3 the result is unknown.")]
pub struct Arguments {
    /// The configuration file.
    #[arg(long, value_name = "FILE", required_unless_present = "print_schema")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the configuration file and exit.
    #[arg(long, conflicts_with_all = ["config", "request"])]
    print_schema: bool,
    /// Explain what happens to this request: method and URL.
    #[arg(long, value_name = "'GET https://HOST/PATH'", help_heading = "Explain a decision")]
    request: Option<String>,
    /// Token of the request: the token itself, @FILE, or - for standard input.
    #[arg(
        long = "as",
        value_name = "TOKEN",
        allow_hyphen_values = true,
        requires = "request",
        help_heading = "Explain a decision"
    )]
    token: Option<String>,
    /// Client certificate of the request, a PEM file; its chain counts as verified.
    #[arg(long, value_name = "FILE", requires = "request", help_heading = "Explain a decision")]
    certificate: Option<PathBuf>,
    /// Header of the request; can be given several times.
    #[arg(
        long = "header",
        value_name = "NAME: VALUE",
        requires = "request",
        help_heading = "Explain a decision"
    )]
    headers: Vec<String>,
    /// Read the keys of the token's issuer from this JWKS file instead of fetching them.
    #[arg(long, value_name = "FILE", requires = "token", help_heading = "Explain a decision")]
    jwks: Option<PathBuf>,
    /// Decide as of this time, in seconds since 1970, instead of now.
    #[arg(long, value_name = "SECONDS", help_heading = "Explain a decision")]
    at: Option<u64>,
}

/// Runs `postern check`.
pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let Some(file) = &arguments.config else {
        anstream::print!("{}", config::schema::text());
        return Ok(Outcome::Success);
    };
    let now = arguments.at.map_or_else(|| SystemClock.now().wall, Timestamp::from_secs);
    let loaded = match config::load_file(file, now, 1) {
        Ok(loaded) => loaded,
        Err(refused) => {
            let faults = refused.report.count(Severity::Fault);
            anstream::eprint!("{}", Findings(&refused.report));
            let plural = if faults == 1 { "" } else { "s" };
            anstream::eprintln!("{ERROR}{}{ERROR:#}: {faults} fault{plural}", file.display());
            return Ok(Outcome::Negative);
        }
    };
    anstream::eprint!("{}", Findings(&loaded.report));
    let Some(request) = &arguments.request else {
        anstream::print!("{}", overview::print(&loaded));
        anstream::println!("{SUCCESS}{}{SUCCESS:#} is valid", file.display());
        return Ok(Outcome::Success);
    };
    let question = request::RequestedRequest::new(request, &arguments.headers, arguments.token.as_deref())?;
    let certificate = arguments.certificate.as_deref().map(request::certificate).transpose()?;
    if let Some(file) = &arguments.jwks {
        std::fs::metadata(file)
            .map_err(|error| Failure::new(format!("--jwks {}: {error}", file.display())))?;
    }
    let story = explain::explain(*loaded, &question, certificate, arguments.jwks, now)?;
    anstream::print!("{}", story.text());
    match story.verdict() {
        OutlineVerdict::Passes => Ok(Outcome::Success),
        OutlineVerdict::Refused => Ok(Outcome::Negative),
        OutlineVerdict::NeedsAuthorizer => Err(Failure::new(
            "the rules permit it; the authorizer decides, which this command does not query",
        )),
        OutlineVerdict::Unknown => {
            Err(Failure::new("the result is unknown; check the connection to the issuer, or use --jwks"))
        }
    }
}
