//! Fixture of the demo: gateway, provider and service in one process.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use config::raw::{AccessLogFormat, LogFormat, LogLevel};
use config::{ConfigSource, NoFiles};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::listen::Claim;
use tempfile::TempDir;

use super::ports::{Ports, bind_error};
use super::provider::{self, ADA, DemoAccounts, READER};
use crate::cmd::echo::{Echo, EchoAddress, EchoAnswer};
use crate::exit::Failure;
use crate::logging;
use crate::process::Process;

/// Configuration of the gateway, with placeholders for addresses.
pub(super) const CONFIG: &str = include_str!("demo.toml");

/// All parts of the demo.
pub(super) struct Fixture {
    process: Process,
    echo: Echo,
    provider: SocketAddr,
    service: SocketAddr,
    /// Wanted ports that were in use.
    ports_in_use: Vec<u16>,
    accounts: DemoAccounts,
    /// Runtime of the provider.
    runtime: tokio::runtime::Runtime,
    /// Folder of the provider's database.
    folder: TempDir,
}

impl Fixture {
    /// Starts provider, service and gateway, in that order.
    pub(super) fn start(
        Ports { listeners: [gateway, provider, service, admin], in_use: moved }: Ports,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| bind_error(&error));
        let (at_provider, at_service) = (address(&provider)?, address(&service)?);
        let (at_gateway, at_admin) = (address(&gateway)?, address(&admin)?);
        // Free these ports. The services bind them again in a moment.
        drop((gateway, service, admin));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
        let residents = DemoAccounts::new()?;
        let folder = tempfile::Builder::new().prefix("postern-demo-").tempdir();
        let folder = folder.map_err(|error| Failure::new(format!("no temporary folder: {error}")))?;
        provider::serve(provider, at_gateway, &residents, folder.path(), &runtime)?;
        let echo = Echo::start(
            &EchoAddress::Tcp(at_service),
            &EchoAnswer::Reflect { log: false },
            Duration::ZERO,
            1,
        );
        let echo = echo.map_err(|error| bind_error(&error))?;
        let text = CONFIG
            .replace("GATEWAY", &at_gateway.to_string())
            .replace("ADMIN", &at_admin.to_string())
            .replace("ISSUER", &format!("http://{at_provider}"))
            .replace("ECHO", &format!("http://{at_service}"));
        let source = ConfigSource { name: "demo.toml", text: &text, base: Path::new(""), files: &NoFiles };
        let mut loaded = config::load(source, SystemClock.now().wall, 1).map_err(|refused| {
            let faults: Vec<String> = refused.report.lines().collect();
            Failure::new(format!("the demo's own configuration is faulty: {}", faults.join("; ")))
        })?;
        if quiet {
            loaded.settings.access_log.format = AccessLogFormat::Off;
        }
        logging::start(LogLevel::Warn, LogFormat::Text);
        let process = Process::start(*loaded, &Claim::Exclusive.into())?;
        let (provider, service) = (at_provider, at_service);
        Ok(Self {
            process,
            echo,
            provider,
            service,
            ports_in_use: moved,
            accounts: residents,
            runtime,
            folder,
        })
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

    /// Wanted ports that were in use, so that a part listens on another one.
    pub(super) fn ports_in_use(&self) -> &[u16] {
        &self.ports_in_use
    }

    /// Secrets of the reader and the manager client.
    pub(super) fn secrets(&self) -> [&str; 2] {
        [self.accounts.reader.expose(), self.accounts.manager.expose()]
    }

    /// Name and password of each user.
    pub(super) fn people(&self) -> &[(&'static str, String)] {
        &self.accounts.users
    }

    /// Password of the user Ada.
    pub(super) fn password(&self) -> &str {
        self.people().iter().find(|(name, _)| *name == ADA).map_or("", |(_, password)| password)
    }

    /// Shell command that gets a token.
    pub(super) fn token_command(&self) -> String {
        let program = program();
        let (provider, secret) = (self.provider(), self.accounts.reader.expose());
        format!("{program} token --issuer {provider} --client-id {READER} --client-secret {secret}")
    }

    /// Stops all parts of the demo.
    pub(super) fn stop(self) {
        self.process.drain();
        self.echo.stop();
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        // If the temporary folder cannot be removed now, the system removes it later.
        let _ = self.folder.close();
    }
}

/// How to call this program from the current folder.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "postern".into() };
    let folder = std::env::current_dir().ok();
    let path = folder.and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned)).unwrap_or(path);
    for_shell(&path.display().to_string())
}

/// Quotes a path for a shell, so that it runs exactly this program.
fn for_shell(path: &str) -> String {
    let path = if path.contains('/') { path.to_owned() } else { format!("./{path}") };
    let plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
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
