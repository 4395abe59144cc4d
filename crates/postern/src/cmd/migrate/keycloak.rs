//! `postern migrate keycloak`: a realm becomes a configuration, and its people accounts.
//!
//! Owns: reading the export's files, the rules of this program for the translation, and the import.
//! Does not own: the translation (crate `migrate`), the import itself ([`idp::admin::import`]).
//!
//! A thread reads the people, and the import takes them one by one: so their number does not matter
//! for memory.

mod outcome;

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use auth::time::Timestamp;
use idp::admin::import::{ForeignAccount, ForeignAccounts, ImportFault, PasswordHash};
use idp::client_secret::SecretDigest;
use idp::oauth::redirect_uri::RedirectUri;
use idp::passwords::Phc;
use migrate::keycloak::{
    self, ExportFiles, MASKED, NO_PEOPLE, PeopleOptions, Person, ProviderPlace, RealmExport, RealmMigration,
    TargetRules, is_export_file,
};
use store::account_import::ImportCounts;

use self::outcome::{ImportReport, Told};
use super::{failure, write};
use crate::cmd::admin::Output;
use crate::cmd::admin::context::{self, AdminContext};
use crate::exit::{Failure, Outcome};
use crate::terminal::HINT;

/// Accounts that wait for the database.
const WAITING: usize = 256;

/// Where the export is, and what to do with it.
#[derive(Debug, clap::Args)]
pub(super) struct KeycloakSource {
    /// File or folder that `kc.sh export` has written.
    #[arg(value_name = "FILE|DIR")]
    export: PathBuf,
    /// Name of the realm, if the export has several.
    #[arg(long, value_name = "NAME")]
    realm: Option<String>,
    /// Folder for the configuration and the report; it is created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "migration", conflicts_with = "import")]
    out: PathBuf,
    /// URL of the new provider. Default: the realm's `frontendUrl`, or an example.
    #[arg(long, value_name = "URL", conflicts_with = "import")]
    issuer: Option<String>,
    /// URL of the new provider's database.
    #[arg(
        long,
        value_name = "URL",
        default_value = "sqlite:///var/lib/postern/postern.db?mode=rwc",
        conflicts_with = "import"
    )]
    database: String,
    /// Import people, groups and consents into the provider of `--config`, instead of translating
    /// the realm.
    #[arg(long, requires = "config")]
    import: bool,
    /// The configuration file with the provider.
    #[arg(long, value_name = "FILE", requires = "import")]
    config: Option<PathBuf>,
    /// Do everything but write: show what would be imported.
    #[arg(long, requires = "import")]
    dry_run: bool,
    /// Let people with a second factor log in with their password alone. Without it their accounts
    /// are imported disabled.
    #[arg(long)]
    drop_second_factors: bool,
    /// Name of the operator in the audit log; default: the name of this process's user.
    #[arg(long, value_name = "NAME", requires = "import")]
    operator: Option<String>,
    /// How the result of an import is printed.
    #[arg(long, value_enum, default_value_t = Output::Text, requires = "import")]
    output: Output,
}

/// What the configuration and the database of this program accept.
struct PosternRules;

impl TargetRules for PosternRules {
    fn max_attributes(&self) -> usize {
        idp::attributes::MAX_ATTRIBUTES
    }

    fn max_claims(&self) -> usize {
        idp::claim_mapping::MAX_MAPPINGS
    }

    fn is_reserved_claim(&self, name: &str) -> bool {
        idp::claims::is_reserved_claim(name)
    }

    fn redirect_fault(&self, uri: &str) -> Option<String> {
        RedirectUri::parse(uri).err().map(|fault| fault.to_string())
    }

    fn secret_fault(&self, secret: &str) -> Option<String> {
        SecretDigest::of_configured(secret).err().map(|fault| fault.to_string())
    }

    fn password_fault(&self, phc: &str) -> Option<String> {
        Phc::parse(phc).err().map(|fault| fault.to_string())
    }
}

/// Runs the command.
pub(super) fn run(source: &KeycloakSource) -> Result<Outcome, Failure> {
    let files = DiskFiles::find(&source.export)?;
    let export = RealmExport::read(&files, source.realm.as_deref()).map_err(failure)?;
    let place = ProviderPlace { issuer: source.issuer.clone(), database: source.database.clone() };
    let options = PeopleOptions { drop_second_factors: source.drop_second_factors };
    let migrated = keycloak::translate(&export, &place, &PosternRules, options).map_err(failure)?;
    match &source.config {
        None => {
            let outcome = write(&source.out, keycloak::PROGRAM, &migrated.migration)?;
            if !export.has_no_people() {
                anstream::println!(
                    "then: postern migrate keycloak {} --import --config {} --dry-run",
                    source.export.display(),
                    source.out.join(super::CONFIGURATION).display()
                );
            }
            Ok(outcome)
        }
        Some(_) if export.has_no_people() => Err(Failure::new(NO_PEOPLE)),
        Some(config) => {
            if export.is_masked() {
                anstream::eprintln!("{HINT}note{HINT:#}: {MASKED}");
            }
            import(source, config, &migrated, export.name())
        }
    }
}

/// The files of an export on this machine.
struct DiskFiles(Vec<PathBuf>);

impl DiskFiles {
    fn find(path: &Path) -> Result<Self, Failure> {
        let unreadable =
            |error: io::Error| Failure::new(format!("{} cannot be read: {error}", path.display()));
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Ok(Self(vec![path.to_owned()]));
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?.path();
            if entry.file_name().and_then(|name| name.to_str()).is_some_and(is_export_file) {
                paths.push(entry);
            }
        }
        paths.sort();
        Ok(Self(paths))
    }
}

impl ExportFiles for DiskFiles {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|path| path.display().to_string()).collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let found = self.0.iter().find(|path| path.display().to_string() == name);
        Ok(Box::new(File::open(found.ok_or(io::ErrorKind::NotFound)?)?))
    }
}

fn import(
    source: &KeycloakSource,
    config: &Path,
    migrated: &RealmMigration<'_>,
    realm: &str,
) -> Result<Outcome, Failure> {
    let Some(loaded) = context::load_configuration(config) else { return Ok(Outcome::Negative) };
    let provider = context::provider_of(loaded, config)?;
    let operator = source.operator.clone().unwrap_or_else(context::user_name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let (sender, receiver) = sync_channel(WAITING);
    let imported = std::thread::scope(|scope| {
        scope.spawn(move || {
            // When the import has ended, nobody takes the rest.
            let read = migrated.visit_people(&mut |person| match sender.send(Ok(account(person))) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            });
            if let Err(fault) = read {
                let _ = sender.send(Err(fault.to_string()));
            }
        });
        runtime.block_on(async move {
            let desk = Box::pin(AdminContext::open_for_text(&provider, &operator)).await?;
            let mut accounts = receiver.into_iter();
            let import = ForeignAccounts {
                accounts: &mut accounts,
                groups: migrated.people.groups.clone(),
                source: format!("keycloak, realm {realm}"),
                is_trial: source.dry_run,
            };
            let imported: Result<ImportCounts, ImportFault> = desk.admin().import_accounts(import).await;
            desk.close().await;
            Ok::<_, Failure>(imported)
        })
    })?;
    let told = Told::of(imported)?;
    ImportReport::new(&told, &migrated.people.notes, source.dry_run).print(source.output)
}

fn account(person: Person) -> ForeignAccount {
    let consents = person.consents.into_iter();
    ForeignAccount {
        id: person.id,
        name: person.name,
        email: person.email,
        email_verified: person.email_verified,
        claims: person.claims,
        created_at: person.created_at.map(Timestamp::from_millis),
        is_disabled: person.is_disabled,
        must_change_password: person.must_change_password,
        password: person.password.map(|password| PasswordHash {
            phc: password.phc,
            changed_at: password.changed_at.map(Timestamp::from_millis),
        }),
        groups: person.groups,
        consents: consents
            .map(|consent| (consent.client, consent.scopes, consent.given_at.map(Timestamp::from_millis)))
            .collect(),
    }
}
