//! Admin context: opens the provider of a configuration, while another process may serve it.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use coherence::secret::SharedSecret;
use config::Severity;
use http_engine::clock::{Clock as _, SystemClock};
use idp::admin::Admin;
use idp::{OutboundClient, Parts, PendingResponse, PostRequest};
use serde::Serialize;

use super::Output;
use crate::exit::{Failure, Outcome};
use crate::provider::{self, OpenedProvider};
use crate::terminal::{ERROR, Findings, HINT, SUCCESS};

/// Loads a configuration file. `None`: it is faulty, and its faults have been printed.
pub(in crate::cmd) fn load_configuration(path: &Path) -> Option<Box<config::LoadedConfig>> {
    match config::load_file(path, SystemClock.now().wall, 1) {
        Ok(loaded) => Some(loaded),
        Err(refused) => {
            anstream::eprint!("{}", Findings(&refused.report));
            let faults = refused.report.count(Severity::Fault);
            anstream::eprintln!("{ERROR}{}{ERROR:#}: faulty ({faults}), nothing was changed", path.display());
            None
        }
    }
}

/// Returns the provider of a configuration file.
///
/// # Errors
/// Returns a failure when the file has no provider.
pub(in crate::cmd) fn provider_of(
    loaded: Box<config::LoadedConfig>,
    path: &Path,
) -> Result<config::ProviderSettings, Failure> {
    loaded.provider.ok_or_else(|| {
        Failure::new(format!(
            "{} has no [provider], so there is nothing to administer; name the file that has it",
            path.display()
        ))
    })
}

/// Sends nothing. Notifications to clients wait in the database for a process that serves.
struct NoOutbound;

impl OutboundClient for NoOutbound {
    fn post(&self, _: PostRequest) -> PendingResponse {
        Box::pin(async { Err("the command line sends no notifications".into()) })
    }
}

/// A provider that does not serve, and the operator that uses it.
pub(in crate::cmd) struct AdminContext {
    provider: Arc<idp::Provider>,
    shared: SharedSecret,
    operator: String,
    output: Output,
}

impl AdminContext {
    /// Opens it for a command that prints text.
    pub(in crate::cmd) async fn open_for_text(
        config: &config::ProviderSettings,
        operator: &str,
    ) -> Result<Self, Failure> {
        Box::pin(Self::open(config, operator, Output::Text)).await
    }

    pub(super) async fn open(
        config: &config::ProviderSettings,
        operator: &str,
        output: Output,
    ) -> Result<Self, Failure> {
        let OpenedProvider { checked, store, secrets, .. } = provider::open(config).await?;
        note_migrated(store.migrated());
        let shared = provider::shared_secret(config, &secrets)?;
        let parts = Parts {
            store,
            secrets,
            clock: Arc::new(|| SystemClock.now().wall),
            entropy: Arc::new(SystemRandom::new()),
            outbound: Arc::new(NoOutbound),
        };
        let provider = idp::Provider::start(checked, parts).await;
        let provider =
            provider.map_err(|fault| Failure::new(format!("the provider cannot be opened: {fault}")))?;
        Ok(Self { provider, shared, operator: actor(operator), output })
    }

    pub(in crate::cmd) fn admin(&self) -> Admin<'_> {
        Admin::new(&self.provider, self.operator.as_str())
    }

    /// Secret for consumers that follow the provider from other processes.
    pub(super) fn follow_secret(&self) -> String {
        self.shared.to_text().to_string()
    }

    /// Whether the output is JSON for programs.
    pub(super) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Makes pending changes durable and closes the database.
    pub(in crate::cmd) async fn close(self) {
        self.provider.store().close().await;
    }

    /// Prints a value: as JSON, or as text.
    pub(super) fn show<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<Outcome, Failure> {
        match self.output {
            Output::Text => anstream::print!("{}", text(value)),
            Output::Json => anstream::println!("{}", pretty(value)?),
        }
        Ok(Outcome::Success)
    }

    /// Reports a change on standard error. With JSON output it also prints the value.
    pub(super) fn report_change<T: Serialize>(
        &self,
        value: &T,
        description: &str,
    ) -> Result<Outcome, Failure> {
        if self.output == Output::Json {
            anstream::println!("{}", pretty(value)?);
        }
        anstream::eprintln!("{SUCCESS}done{SUCCESS:#}: {description}");
        Ok(Outcome::Success)
    }

    /// Reports a change, and prints a secret that cannot be shown again.
    pub(super) fn report_change_with_secret<T: Serialize>(
        &self,
        value: &T,
        secret: Option<&str>,
        description: &str,
    ) -> Result<Outcome, Failure> {
        let outcome = self.report_change(value, description)?;
        if let (Output::Text, Some(secret)) = (self.output, secret) {
            println(secret);
        }
        Ok(outcome)
    }
}

#[expect(clippy::print_stdout, reason = "a secret is not looked through for styles")]
fn println(text: &str) {
    println!("{text}");
}

pub(in crate::cmd) fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("the answer cannot be written: {error}")))
}

/// Name of an operator in the audit log.
pub(super) fn actor(operator: &str) -> String {
    format!("operator:{operator}")
}

/// Name of this process's user, or the user ID if the machine has no name for it.
pub(in crate::cmd) fn user_name() -> String {
    let id = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid-{id}"))
}

/// Prints what the migration of a database or a copy changed, if operators must know it.
pub(super) fn note_migrated(migrated: &store::MigrationNotes) {
    if let Some(note) = migrated.note() {
        anstream::eprintln!("{HINT}note{HINT:#}: {note}");
    }
}
