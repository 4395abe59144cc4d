//! The three processes of the demo, in one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use gateway::clock::{Clock as _, SystemClock};
use idp::client::secret::ClientSecret;
use idp::{
    Answered, ClientConfig, ConfiguredSecret, Entropy as _, GrantType, Outbound, Parts, Provider, Secrets,
};
use store::{Epoch, Store};
use tempfile::TempDir;

use crate::cli::Failure;
use crate::cmd::echo::{Answer, Echo, Place};
use crate::config::raw::{AccessLogFormat, LogFormat, LogLevel};
use crate::config::{self, NoFiles, Source};
use crate::logging;
use crate::process::Process;

/// The configuration of the gateway, addresses left open.
pub(super) const CONFIG: &str = include_str!("demo.toml");

/// The client that may read orders.
pub(super) const READER: &str = "shop";
/// The client that may do anything with orders.
pub(super) const MANAGER: &str = "office";

/// Ports that were free a moment ago.
pub(super) struct Ports([TcpListener; 4]);

impl Ports {
    /// Four ports in a row from `first`, or free ones where something listens already.
    pub(super) fn choose(first: u16) -> Result<Self, Failure> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let wanted = |offset: u16| if first == 0 { 0 } else { first.saturating_add(offset) };
        let free = |offset| bind(wanted(offset)).or_else(|_| bind(0));
        let ports = free(0).and_then(|a| Ok(Self([a, free(1)?, free(2)?, free(3)?])));
        ports.map_err(|error| unbound(&error))
    }
}

fn unbound(error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot listen on 127.0.0.1: {error}"))
}

/// Everything the demo runs.
pub(super) struct Town {
    process: Process,
    echo: Echo,
    provider: SocketAddr,
    service: SocketAddr,
    reader: ClientSecret,
    manager: ClientSecret,
    /// Runs the provider.
    runtime: tokio::runtime::Runtime,
    /// Holds the provider's database.
    folder: TempDir,
}

impl Town {
    /// Starts provider, service and gateway, in that order.
    pub(super) fn start(
        Ports([gateway, provider, service, admin]): Ports,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| unbound(&error));
        let (at_provider, at_service) = (address(&provider)?, address(&service)?);
        let (at_gateway, at_admin) = (address(&gateway)?, address(&admin)?);
        // these are bound again in a moment, by those who serve there
        drop((gateway, service, admin));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
        let secret = || ClientSecret::generate(&SystemRandom::new());
        let secret = || secret().map_err(|_| Failure::new("the system has no randomness to give"));
        let (reader, manager) = (secret()?, secret()?);
        let folder = tempfile::Builder::new().prefix("postern-demo-").tempdir();
        let folder = folder.map_err(|error| Failure::new(format!("no temporary folder: {error}")))?;
        serve_provider(provider, at_provider, [&reader, &manager], folder.path(), &runtime)?;
        let echo = Echo::start(&Place::Tcp(at_service), &Answer::Reflect { log: false }, Duration::ZERO, 1);
        let echo = echo.map_err(|error| unbound(&error))?;
        let text = CONFIG
            .replace("GATEWAY", &at_gateway.to_string())
            .replace("ADMIN", &at_admin.to_string())
            .replace("ISSUER", &format!("http://{at_provider}"))
            .replace("ECHO", &format!("http://{at_service}"));
        let source = Source { name: "demo.toml", text: &text, base: Path::new(""), files: &NoFiles };
        let mut loaded = config::load(source, SystemClock.now().wall, 1).map_err(|refused| {
            let faults: Vec<String> = refused.report.lines().collect();
            Failure::new(format!("the demo's own configuration is faulty: {}", faults.join("; ")))
        })?;
        if quiet {
            loaded.settings.access_log.format = AccessLogFormat::Off;
        }
        logging::start(LogLevel::Warn, LogFormat::Text);
        let process = Process::start(*loaded)?;
        let (provider, service) = (at_provider, at_service);
        Ok(Self { process, echo, provider, service, reader, manager, runtime, folder })
    }

    /// URL of the gateway.
    pub(super) fn gateway(&self) -> String {
        self.process.addresses().first().map_or_else(String::new, |(_, address)| format!("http://{address}"))
    }

    /// URL of the provider, which is its issuer identifier.
    pub(super) fn provider(&self) -> String {
        format!("http://{}", self.provider)
    }

    /// URL of the service behind the gateway.
    pub(super) fn service(&self) -> String {
        format!("http://{}", self.service)
    }

    /// URL of the admin listener.
    pub(super) fn admin(&self) -> String {
        self.process.admin().map_or_else(String::new, |address| format!("http://{address}"))
    }

    /// The secrets of reader and manager.
    pub(super) fn secrets(&self) -> [&str; 2] {
        [self.reader.expose(), self.manager.expose()]
    }

    /// What gets a token in a shell.
    pub(super) fn token_command(&self) -> String {
        let program = program();
        let (provider, secret) = (self.provider(), self.reader.expose());
        format!("{program} token --issuer {provider} --client-id {READER} --client-secret {secret}")
    }

    /// Ends everything.
    pub(super) fn stop(self) {
        self.process.drain();
        self.echo.stop();
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        // what cannot be removed now is the system's to remove: it is a temporary folder
        let _ = self.folder.close();
    }
}

/// How this program is called from where it was started.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "postern".into() };
    let folder = std::env::current_dir().ok();
    let path = folder.and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned)).unwrap_or(path);
    for_shell(&path.display().to_string())
}

/// A path as a shell takes it for the program meant: never looked up elsewhere, never split.
fn for_shell(path: &str) -> String {
    let path = if path.contains('/') { path.to_owned() } else { format!("./{path}") };
    let plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// No client of the demo has to be told anything.
struct Nobody;

impl Outbound for Nobody {
    fn post_form(&self, url: &str, _: String) -> Answered {
        let refused = format!("{url}: the demo calls nobody");
        Box::pin(async move { Err(refused) })
    }
}

fn serve_provider(
    listener: TcpListener,
    address: SocketAddr,
    [reader, manager]: [&ClientSecret; 2],
    folder: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::new(format!("the provider does not start: {what}"));
    let client = |id: &str, secret: &ClientSecret, groups: &[&str]| ClientConfig {
        id: id.into(),
        secrets: vec![ConfiguredSecret::Plain(secret.expose().into())],
        grants: vec![GrantType::ClientCredentials],
        scopes: vec!["orders:read".into()],
        default_scopes: vec!["orders:read".into()],
        audiences: vec!["orders".into()],
        groups: groups.iter().map(ToString::to_string).collect(),
        ..ClientConfig::default()
    };
    let mut config = idp::Config::new(format!("http://{address}"));
    config.audiences = vec!["orders".into()];
    config.access_token_lifetime = Duration::from_mins(10);
    config.clients = vec![client(READER, reader, &[]), client(MANAGER, manager, &["managers"])];
    let checked = config.check().map_err(|faults| failed(&faults))?;
    let random = SystemRandom::new();
    let (mut secret, mut epoch) = ([0; 32], [0; 16]);
    random.fill(&mut secret).and_then(|()| random.fill(&mut epoch)).map_err(|error| failed(&error))?;
    listener.set_nonblocking(true).map_err(|error| unbound(&error))?;
    let router = runtime.block_on(async {
        let store = Store::open(&store::sqlite_url(&folder.join("demo.db")), Epoch(epoch)).await;
        let parts = Parts {
            store: store.map_err(|error| failed(&error))?,
            secrets: Secrets::new(&secret),
            clock: Arc::new(|| SystemClock.now().wall),
            entropy: Arc::new(random),
            outbound: Arc::new(Nobody),
        };
        let provider = Provider::start(checked, parts).await.map_err(|fault| failed(&fault))?;
        tokio::spawn(idp::tend(provider.clone()));
        Ok::<_, Failure>(idp::router(provider))
    })?;
    let guard = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| unbound(&error))?;
    drop(guard);
    runtime.spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_as_a_shell_needs_it() {
        assert_eq!(for_shell("postern"), "./postern");
        assert_eq!(for_shell("target/release/postern"), "target/release/postern");
        assert_eq!(for_shell("/opt/my tools/postern"), "'/opt/my tools/postern'");
        assert_eq!(for_shell("it's/postern"), r"'it'\''s/postern'");
    }
}
