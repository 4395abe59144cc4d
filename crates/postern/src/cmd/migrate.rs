//! `postern migrate`: translates the settings of another proxy into a configuration.
//!
//! Owns: where the settings come from on this machine, and writing the result. Does not own: the
//! translation (crate `migrate`).

mod keycloak;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use migrate::files::ContainerFiles;
use migrate::input_fault::InputFault;
use migrate::oauth2_proxy::{self, Oauth2ProxyKind};
use migrate::{Migration, envoy, istio, kube_rbac_proxy, manifest, oauth_proxy};

use crate::exit::{Failure, Outcome};
use crate::shell;

/// Name of the configuration in the folder of the result.
const CONFIGURATION: &str = "postern.toml";
/// Name of the report.
const REPORT: &str = "migration.md";

/// Last part of the help of translators that take what another one takes.
const FORK_HELP: &str = "\
The options are those of `postern migrate oauth2-proxy`, whose help has examples.

Exit codes: 0 written, 2 the command line is invalid, 3 the settings cannot be read, or the result
cannot be written.";

/// Arguments of `postern migrate`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
The help of each translator has examples.

Exit codes: 0 written or imported, 1 an import is refused, or its configuration is faulty, 2 the command
line is invalid, 3 the settings cannot be read, or the result cannot be written."
)]
pub struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Translate the arguments of kube-rbac-proxy, or of the fork of Open Data Hub.
    #[command(after_long_help = "\
The folder gets postern.toml, with a comment on each line that says from what it
came, and migration.md, which lists what was translated, what differs and what
has no equal. Existing files are not overwritten.

Examples:
  postern migrate kube-rbac-proxy --manifest deployment.yaml --out new
  postern migrate kube-rbac-proxy --out here -- --secure-listen-address=:8443 \\
      --upstream=http://127.0.0.1:8080/ --tls-cert-file=cert.pem \\
      --tls-private-key-file=key.pem

Exit codes: 0 written, 2 the command line is invalid, 3 the settings cannot be read, or the result
cannot be written.")]
    KubeRbacProxy(Source),
    /// Translate the arguments, the environment and the configuration file of oauth2-proxy.
    #[command(
        name = "oauth2-proxy",
        after_long_help = "\
The folder gets postern.toml, with a comment on each line that says from what it
came, files with secrets, and migration.md, which lists what was translated,
what differs and what has no equal. Existing files are not overwritten.

Examples:
  postern migrate oauth2-proxy --manifest login.yaml --out login
  postern migrate oauth2-proxy --out flags -- --provider=oidc \\
      --oidc-issuer-url=https://id.example --client-id=app \\
      --client-secret=change-me --email-domain='*' \\
      --redirect-url=https://app.example/oauth2/callback \\
      --upstream=http://127.0.0.1:8080/

Exit codes: 0 written, 2 the command line is invalid, 3 the settings cannot be read, or the result
cannot be written."
    )]
    Oauth2Proxy(Source),
    /// Translate the same of kube-auth-proxy, the fork of Open Data Hub.
    #[command(after_long_help = FORK_HELP)]
    KubeAuthProxy(Source),
    /// Translate the arguments, the environment and the file of `OpenShift`'s oauth-proxy.
    #[command(after_long_help = FORK_HELP)]
    OauthProxy(Source),
    /// Translate Istio's `RequestAuthentication` and `AuthorizationPolicy` objects of one workload.
    #[command(after_long_help = "\
Examples:
  postern migrate istio --manifest policies.yaml \\
      --upstream http://127.0.0.1:8080 --out mesh

Exit codes: 0 written, 2 the command line is invalid, 3 the settings cannot be read, or the result
cannot be written.")]
    Istio(IstioSource),
    /// Translate the static listeners, routes and clusters of Envoy, with the filters `jwt_authn` and `ext_authz`.
    #[command(after_long_help = "\
Example:
  postern migrate envoy envoy.yaml --out edge

Exit codes: 0 written, 2 the command line is invalid, 3 the settings cannot be read, or the result
cannot be written.")]
    Envoy(EnvoySource),
    /// Translate a realm of Keycloak, and import its people with their passwords.
    #[command(after_long_help = "\
Export the realm while Keycloak is stopped:
  kc.sh export --dir export --realm shop --users different_files

Then translate it, check the result, and import the people:
  postern migrate keycloak export --out shop --issuer https://login.example.com \\
      --database 'sqlite://shop.db?mode=rwc'
  postern check shop/postern.toml
  postern migrate keycloak export --import --config shop/postern.toml --dry-run
  postern migrate keycloak export --import --config shop/postern.toml

The import is one transaction: all people or none. Ids (`sub`) and password
hashes are kept. People with a second factor are imported disabled, unless
--drop-second-factors is given.

Exit codes: 0 written or imported, 1 the import is refused, or its configuration is faulty, 2 the
command line is invalid, 3 the export cannot be read, or the result cannot be written.")]
    Keycloak(keycloak::KeycloakSource),
}

/// Where the settings are.
#[derive(Debug, clap::Args)]
struct Source {
    /// Kubernetes manifest with the container or with a `ConfigMap` that it mounts; repeatable.
    #[arg(long = "manifest", value_name = "FILE", conflicts_with = "arguments")]
    manifests: Vec<PathBuf>,
    /// Name of the container, if several fit.
    #[arg(long, value_name = "NAME", requires = "manifests")]
    container: Option<String>,
    /// A file that the settings name: its path there, and its path here; repeatable.
    #[arg(long = "file", value_name = "PATH=LOCAL_PATH")]
    files: Vec<String>,
    /// Folder for the result; it is created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "migration")]
    out: PathBuf,
    /// The arguments of the program, after `--`.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Where Istio's objects are.
#[derive(Debug, clap::Args)]
struct IstioSource {
    /// Kubernetes manifest with the objects; repeatable.
    #[arg(long = "manifest", value_name = "FILE", required = true)]
    manifests: Vec<PathBuf>,
    /// Where the requests of the workload go.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    upstream: String,
    /// Folder for the result; it is created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "migration")]
    out: PathBuf,
}

/// Where Envoy's bootstrap is.
#[derive(Debug, clap::Args)]
struct EnvoySource {
    /// Bootstrap, YAML or JSON.
    #[arg(value_name = "FILE")]
    bootstrap: PathBuf,
    /// Folder for the result; it is created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "migration")]
    out: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If the settings cannot be read, or the result cannot be written.
pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    match arguments.program {
        Program::KubeRbacProxy(source) => {
            let program = kube_rbac_proxy::SYNTAX.program;
            let input = source.read(program)?;
            let migration = kube_rbac_proxy::translate(&input.arguments, &input.files).map_err(failure)?;
            write(&source.out, program, &migration)
        }
        Program::Oauth2Proxy(source) => of_family(&source, Oauth2ProxyKind::Oauth2Proxy),
        Program::KubeAuthProxy(source) => of_family(&source, Oauth2ProxyKind::KubeAuthProxy),
        Program::OauthProxy(source) => {
            let program = oauth_proxy::SYNTAX.program;
            let (input, mut notes) = source.read_with_secrets(program)?;
            let translated = oauth_proxy::translate(&input.arguments, &input.environment, &input.files);
            let mut migration = translated.map_err(failure)?;
            migration.report.notes.append(&mut notes);
            write(&source.out, program, &migration)
        }
        Program::Istio(source) => {
            let migration =
                istio::translate(&read_all(&source.manifests)?, &source.upstream).map_err(failure)?;
            write(&source.out, "Istio", &migration)
        }
        Program::Envoy(source) => {
            let name = source.bootstrap.display().to_string();
            let migration = envoy::translate(&name, &read(&source.bootstrap)?).map_err(failure)?;
            write(&source.out, envoy::PROGRAM, &migration)
        }
        Program::Keycloak(source) => keycloak::run(&source),
    }
}

/// oauth2-proxy and its fork.
fn of_family(source: &Source, kind: Oauth2ProxyKind) -> Result<Outcome, Failure> {
    let program = kind.syntax().program;
    let (input, mut notes) = source.read_with_secrets(program)?;
    let translated = oauth2_proxy::Source {
        arguments: &input.arguments,
        environment: &input.environment,
        files: input.files,
    };
    let mut migration = oauth2_proxy::translate(kind, &translated).map_err(failure)?;
    migration.report.notes.append(&mut notes);
    write(&source.out, program, &migration)
}

#[allow(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
fn failure(fault: InputFault) -> Failure {
    Failure::new(fault.to_string())
}

/// What the program gets.
struct Input {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    secrets: Vec<(String, String)>,
    files: ContainerFiles,
}

impl Source {
    /// What the program gets, where variables with values from a `Secret` name files. Returns the
    /// report's notes about them, too.
    fn read_with_secrets(&self, program: &str) -> Result<(Input, Vec<String>), Failure> {
        let mut input = self.read(program)?;
        let mut notes = Vec::new();
        for (variable, reference) in std::mem::take(&mut input.secrets) {
            let file = format!("/etc/postern/secrets/{reference}");
            let is_secret = ["_CLIENT_SECRET", "_COOKIE_SECRET"].iter().any(|end| variable.ends_with(end));
            notes.push(if is_secret {
                format!("{variable} is the key {reference} of a Secret: mount it as {file}")
            } else {
                format!(
                    "{variable} is the key {reference} of a Secret: write its value in place of that name"
                )
            });
            let named = if is_secret { (format!("{variable}_FILE"), file) } else { (variable, reference) };
            input.environment.push(named);
        }
        Ok((input, notes))
    }

    fn read(&self, program: &str) -> Result<Input, Failure> {
        let mut files = ContainerFiles::default();
        for pair in &self.files {
            let Some((path, local)) = pair.split_once('=') else {
                return Err(Failure::usage(format!("--file {pair} is not PATH=LOCAL_PATH")));
            };
            files.add(path, read(Path::new(local))?);
        }
        if self.manifests.is_empty() {
            if self.arguments.is_empty() {
                return Err(Failure::usage(format!(
                    "there are no arguments of {program}: write them after `--`, or name a manifest with --manifest"
                )));
            }
            let arguments = self.arguments.clone();
            return Ok(Input { arguments, environment: Vec::new(), secrets: Vec::new(), files });
        }
        let manifests = read_all(&self.manifests)?;
        let found = manifest::find(&manifests, self.container.as_deref(), program).map_err(failure)?;
        files.extend(found.files);
        let (arguments, environment, secrets) = (found.arguments, found.environment, found.secrets);
        Ok(Input { arguments, environment, secrets, files })
    }
}

/// Names and texts of files.
fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, String)>, Failure> {
    paths.iter().map(|path| Ok((path.display().to_string(), read(path)?))).collect()
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
}

/// Writes the result, and prints the report.
fn write(out: &Path, program: &str, migration: &Migration) -> Result<Outcome, Failure> {
    let mut files = vec![
        (CONFIGURATION, migration.configuration.clone(), 0o644),
        (REPORT, migration.report.markdown(program), 0o644),
    ];
    for secret in &migration.secrets {
        let content = match &secret.content {
            Some(content) => content.clone(),
            None => new_key()?,
        };
        files.push((secret.name, content, 0o600));
    }
    fs::create_dir_all(out)
        .map_err(|error| Failure::new(format!("{} cannot be created: {error}", out.display())))?;
    if let Some((name, ..)) = files.iter().find(|(name, ..)| out.join(name).exists()) {
        let path = out.join(name);
        return Err(Failure::new(format!("{} exists; name another folder with --out", path.display())));
    }
    for (name, text, mode) in &files {
        let path = out.join(name);
        let opened = OpenOptions::new().write(true).create_new(true).mode(*mode).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))?;
    }
    anstream::print!("{}", migration.report);
    let names: Vec<String> = files.iter().map(|(name, ..)| out.join(name).display().to_string()).collect();
    anstream::println!("\nwritten: {}", names.join(", "));
    let written = shell::quote(&out.join(CONFIGURATION).display().to_string());
    anstream::println!("next: {} check {written}", shell::program());
    Ok(Outcome::Success)
}

/// A new key, 32 random bytes in base64.
fn new_key() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::new("the system has no random numbers"))?;
    Ok(format!("{}\n", STANDARD.encode(bytes)))
}
