//! Fixture of the demo: gateway, provider and service in one process.

use std::path::Path;
use std::time::Duration;

use config::raw::{AccessLogFormat, LogFormat, LogLevel};
use http_engine::listen::Claim;
use tempfile::TempDir;

use super::files::{BEN, DemoFiles, READER};
use super::ports::{Addresses, Ports, bind_error};
use crate::cmd::echo::{Echo, EchoAddress, EchoAnswer, Hint, Way};
use crate::exit::Failure;
use crate::logging;
use crate::process::Process;
use crate::shell;

/// All parts of the demo.
pub(super) struct Fixture {
    process: Process,
    echo: Echo,
    addresses: Addresses,
    files: DemoFiles,
    /// Wanted ports that were in use.
    ports_in_use: Vec<u16>,
    /// Folder of all files.
    folder: TempDir,
}

impl Fixture {
    /// Starts the service, and what the configuration describes.
    pub(super) fn start(Ports { addresses, in_use }: Ports, quiet: bool) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("postern-demo-").tempdir();
        let folder = folder.map_err(|error| Failure::new(format!("no temporary folder: {error}")))?;
        let (files, mut loaded) = DemoFiles::write(folder.path(), addresses)?;
        let answer = EchoAnswer::Reflect { log: false, page: Some(hints(&files.config, addresses)) };
        let echo = Echo::start(&EchoAddress::Tcp(addresses.service), &answer, Duration::ZERO, 1);
        let echo = echo.map_err(|error| bind_error(&error))?;
        if quiet {
            loaded.settings.access_log.format = AccessLogFormat::Off;
        }
        logging::start(LogLevel::Warn, LogFormat::Text);
        let process = Process::start(*loaded, &Claim::Exclusive.into())?;
        Ok(Self { process, echo, addresses, files, ports_in_use: in_use, folder })
    }

    /// URL of the gateway.
    pub(super) fn gateway(&self) -> String {
        format!("http://{}", self.addresses.gateway)
    }

    /// URL of the provider, which is its issuer identifier.
    pub(super) fn provider(&self) -> String {
        format!("http://{}", self.addresses.provider)
    }

    /// URL of the service behind the gateway.
    pub(super) fn service(&self) -> String {
        format!("http://{}", self.addresses.service)
    }

    /// URL of the admin listener.
    pub(super) fn admin(&self) -> String {
        format!("http://{}", self.addresses.admin)
    }

    /// Wanted ports that were in use, so that a part listens on another one.
    pub(super) fn ports_in_use(&self) -> &[u16] {
        &self.ports_in_use
    }

    /// The files, with the secrets.
    pub(super) fn files(&self) -> &DemoFiles {
        &self.files
    }

    /// Shell command that gets a token.
    pub(super) fn token_command(&self) -> String {
        let (program, provider, secret) = (shell::program(), self.provider(), self.files.reader.expose());
        format!("{program} token --issuer {provider} --client-id {READER} --client-secret {secret}")
    }

    /// Shell command that disables Ben's account.
    pub(super) fn disable_command(&self) -> String {
        disable_command(&self.files.config)
    }

    /// Stops all parts of the demo.
    pub(super) fn stop(self) {
        self.process.drain();
        self.echo.stop();
        // If the temporary folder cannot be removed now, the system removes it later.
        let _ = self.folder.close();
    }
}

fn disable_command(config: &Path) -> String {
    format!("{} admin {} user disable {BEN}", shell::program(), shell::quote(&config.display().to_string()))
}

/// What the service's page suggests.
fn hints(config: &Path, addresses: Addresses) -> Vec<Hint> {
    let page = |text: &str, url: &str| Hint { text: text.into(), way: Way::Page(url.into()) };
    let account = format!("http://{}/account", addresses.provider);
    let text = "In a terminal, disable Ben's account (enable in place of disable undoes it):";
    vec![
        page("Orders, for the staff: log in as ben or ada", "/orders"),
        page("Reports, for managers: ada may read them, ben may not", "/reports"),
        Hint { text: text.into(), way: Way::Command(disable_command(config)) },
        page("Your account at the provider: end this session there, in another tab", &account),
        page("Sign out", "/oauth2/sign_out"),
    ]
}
