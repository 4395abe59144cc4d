//! `postern check`: checks a configuration, shows what it means, and explains its decisions.
//!
//! Owns: wording, tables and the JSON form. Does not own: the checks ([`config`]) and the decisions
//! (`auth`), which are the code that serves.

mod auth_response;
mod explain;
mod json;
mod manifests;
mod matches;
mod outline;
mod overview;
mod request;
mod token;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use auth::time::Timestamp;
use config::{LoadedConfig, Severity};
use controller::names::NamespacedName;
use http_engine::clock::{Clock as _, SystemClock};

use crate::cmd::check::json::CheckResult;
use crate::cmd::check::manifests::{GatewayLookup, Manifests};
use crate::cmd::check::outline::OutlineVerdict;
use crate::cmd::check::overview::Overview;
use crate::exit::{Failure, Outcome};
use crate::terminal::{ERROR, Findings, SUCCESS};

/// Arguments of `postern check`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  postern check postern.toml
  postern check postern.toml --request 'GET https://app.example/orders'
  postern check postern.toml --as @token.jwt --request 'GET https://app.example/7'
  postern token --issuer https://id.example --client-id me --client-secret @secret \\
    | postern check postern.toml --as - --request 'GET https://app.example/'
  postern check postern.toml --output json
  postern check gateway.toml -f manifests/
  postern check gateway.toml -f manifests/ --request 'GET https://orders.shop.example/healthz'

Exit codes: 0 the configuration and the manifests are valid (and the request would pass),
1 they are not, 3 the result is unknown.")]
pub struct Arguments {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present_any = ["config", "print_schema", "print_messages"])]
    file: Option<PathBuf>,
    /// The configuration file, as `postern serve` takes it.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the configuration file and exit.
    #[arg(long, conflicts_with_all = ["file", "config", "request"])]
    print_schema: bool,
    /// Print the English messages of the pages, as a file for `[pages.languages]`, and exit.
    #[arg(long, conflicts_with_all = ["file", "config", "request", "print_schema"])]
    print_messages: bool,
    /// Check manifests of Kubernetes too: a file, a folder with .yaml, .yml and .json files, or - for
    /// standard input; can be given several times. Needs the table `[gateway_api]`.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        conflicts_with_all = ["print_schema", "print_messages"],
        help_heading = "Manifests"
    )]
    manifests: Vec<PathBuf>,
    /// Namespace of objects that name none.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        requires = "manifests",
        help_heading = "Manifests"
    )]
    namespace: String,
    /// Gateway that receives the request, if several have its port.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "manifests",
        requires = "request",
        help_heading = "Manifests"
    )]
    gateway: Option<String>,
    /// Form of the output. JSON has findings, overview and explanation in one object, on standard
    /// output.
    #[arg(long, value_name = "FORM", default_value = "text", conflicts_with_all = ["print_schema", "print_messages"])]
    output: OutputForm,
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
    /// Address of the client, for rules that read it. Without it the address is unknown.
    #[arg(
        long = "client-address",
        value_name = "IP",
        requires = "request",
        help_heading = "Explain a decision"
    )]
    client: Option<IpAddr>,
    /// Read the keys of the token's issuer from this JWKS file instead of fetching them.
    #[arg(long, value_name = "FILE", requires = "token", help_heading = "Explain a decision")]
    jwks: Option<PathBuf>,
    /// Decide as of this time, in seconds since 1970, instead of now.
    #[arg(long, value_name = "SECONDS", help_heading = "Explain a decision")]
    at: Option<u64>,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutputForm {
    /// For people: findings on standard error, the rest on standard output.
    Text,
    /// For programs: one JSON object.
    Json,
}

/// Runs `postern check`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if arguments.print_messages {
        anstream::print!("{}", config::messages());
        return Ok(Outcome::Success);
    }
    let Some(file) = arguments.file.as_ref().or(arguments.config.as_ref()) else {
        anstream::print!("{}", config::schema::text());
        return Ok(Outcome::Success);
    };
    let now = arguments.at.map_or_else(|| SystemClock.now().wall, Timestamp::from_secs);
    let is_json = arguments.output == OutputForm::Json;
    let loaded = match config::load_file(file, now, 1) {
        Ok(loaded) => loaded,
        Err(refused) if is_json => {
            CheckResult::new(file, &refused.report).print()?;
            return Ok(Outcome::Negative);
        }
        Err(refused) => {
            let faults = refused.report.count(Severity::Fault);
            anstream::eprint!("{}", Findings(&refused.report));
            let plural = if faults == 1 { "" } else { "s" };
            anstream::eprintln!("{ERROR}{}{ERROR:#}: {faults} fault{plural}", file.display());
            return Ok(Outcome::Negative);
        }
    };
    if !is_json {
        anstream::eprint!("{}", Findings(&loaded.report));
    }
    let manifests = if arguments.manifests.is_empty() {
        None
    } else {
        Some(manifests::check(&loaded, &arguments.manifests, &arguments.namespace, now)?)
    };
    if let Some(manifests) = manifests.as_ref().filter(|_| !is_json) {
        anstream::eprint!("{}", manifests.findings());
    }
    match &arguments.request {
        None => show(file, &loaded, manifests.as_ref(), is_json),
        Some(request) => explain(request, arguments, *loaded, manifests.as_ref(), now),
    }
}

/// Shows what the configuration means, or what follows from manifests.
fn show(
    file: &Path,
    loaded: &LoadedConfig,
    manifests: Option<&Manifests>,
    is_json: bool,
) -> Result<Outcome, Failure> {
    if is_json {
        let overview = Overview::new(loaded);
        CheckResult::new(file, &loaded.report).with_overview(&overview).with_manifests(manifests).print()?;
    } else if let Some(manifests) = manifests {
        anstream::print!("{}", manifests.text());
        let (style, verdict) = if manifests.is_valid() { (SUCCESS, "valid") } else { (ERROR, "not valid") };
        anstream::println!("{style}manifests{style:#} are {verdict}: {}", manifests.summary());
    } else {
        anstream::print!("{}", Overview::new(loaded).text());
        anstream::println!("{SUCCESS}{}{SUCCESS:#} is valid", file.display());
    }
    Ok(if manifests.is_none_or(Manifests::is_valid) { Outcome::Success } else { Outcome::Negative })
}

/// Explains a request.
fn explain(
    request: &str,
    arguments: &Arguments,
    mut loaded: LoadedConfig,
    manifests: Option<&Manifests>,
    now: Timestamp,
) -> Result<Outcome, Failure> {
    let question = request::RequestedRequest::new(request, &arguments.headers, arguments.token.as_deref())?;
    let certificate = arguments.certificate.as_deref().map(request::certificate).transpose()?;
    if let Some(file) = &arguments.jwks {
        std::fs::metadata(file)
            .map_err(|error| Failure::new(format!("--jwks {}: {error}", file.display())))?;
    }
    let jwks = arguments.jwks.clone();
    let caller = explain::CallerInput { certificate, address: arguments.client, jwks };
    let report = loaded.report.clone();
    let gateway = arguments.gateway.as_deref().map(gateway_name).transpose()?;
    let lookup = manifests.map(|manifests| GatewayLookup { manifests, gateway });
    if let Some(manifests) = manifests {
        loaded.config.routing = manifests.routing();
    }
    let story = explain::explain(loaded, lookup.as_ref(), &question, caller, now)?;
    if arguments.output == OutputForm::Json {
        let file = arguments.file.as_ref().or(arguments.config.as_ref());
        let file = file.map_or(Path::new(""), PathBuf::as_path);
        CheckResult::new(file, &report).with_manifests(manifests).with_request(&story).print()?;
    } else {
        anstream::print!("{}", story.text());
    }
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

/// The Gateway of `--gateway`.
fn gateway_name(text: &str) -> Result<NamespacedName, Failure> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(NamespacedName::new(namespace, name))
        }
        _ => Err(Failure::usage(format!("--gateway {text:?}: write it like namespace/name"))),
    }
}
