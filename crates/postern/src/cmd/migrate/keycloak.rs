//! `postern migrate keycloak`: a realm becomes a configuration, and its people accounts.
//!
//! Owns: reading the export's files, the rules of this program for the translation, and the import
//! with its messages. Does not own: the translation (crate `migrate`), the import itself
//! ([`idp::admin::import`]).

use std::fs;
use std::path::{Path, PathBuf};

use auth::time::Timestamp;
use idp::admin::import::{ForeignAccount, ForeignAccounts, ImportFault, PasswordHash};
use idp::client_secret::SecretDigest;
use idp::oauth::redirect_uri::RedirectUri;
use idp::passwords::Phc;
use migrate::input_fault::InputFault;
use migrate::keycloak::{
    self, ExportFile, MASKED, NO_PEOPLE, PeopleOptions, Person, ProviderPlace, RealmExport, RealmMigration,
    TargetRules, is_export_file,
};
use store::account_import::{AccountImportError, ImportCounts};

use super::{failure, write};
use crate::cmd::admin::context::{self, AdminContext};
use crate::exit::{Failure, Outcome};
use crate::terminal::{ERROR, HINT, SUCCESS};

/// Most names that one line shows.
const MAX_SHOWN: usize = 200;

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
    let export = RealmExport::read(files(&source.export)?, source.realm.as_deref()).map_err(failure)?;
    let place = ProviderPlace { issuer: source.issuer.clone(), database: source.database.clone() };
    let options = PeopleOptions { drop_second_factors: source.drop_second_factors };
    let migrated = keycloak::translate(&export, &place, &PosternRules, options);
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
        Some(config) => import(source, config, migrated, &export),
    }
}

/// The files of an export, read one by one.
fn files(path: &Path) -> Result<Box<dyn Iterator<Item = Result<ExportFile, InputFault>>>, Failure> {
    let unreadable = |path: &Path, error: &std::io::Error| {
        Failure::new(format!("{} cannot be read: {error}", path.display()))
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let mut paths = Vec::new();
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
            let entry = entry.map_err(|error| unreadable(path, &error))?.path();
            if entry.file_name().and_then(|name| name.to_str()).is_some_and(is_export_file) {
                paths.push(entry);
            }
        }
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    Ok(Box::new(paths.into_iter().map(|path| {
        let name = path.display().to_string();
        fs::read(&path)
            .map(|text| (name.clone(), text))
            .map_err(|error| InputFault::File { name, why: format!("it cannot be read: {error}") })
    })))
}

fn import(
    source: &KeycloakSource,
    config: &Path,
    migrated: RealmMigration,
    export: &RealmExport,
) -> Result<Outcome, Failure> {
    let Some(loaded) = context::load_configuration(config) else { return Ok(Outcome::Negative) };
    let provider = context::provider_of(loaded, config)?;
    let operator = source.operator.clone().unwrap_or_else(context::user_name);
    let RealmMigration { people, .. } = migrated;
    for note in &people.notes {
        let shown: Vec<&str> = note.names.iter().take(MAX_SHOWN).map(String::as_str).collect();
        let more = if note.names.len() > shown.len() { ", and more" } else { "" };
        anstream::println!("people ({}) {}:\n  {}{more}", note.names.len(), note.text, shown.join(", "));
    }
    if export.is_masked() {
        anstream::eprintln!("{HINT}note{HINT:#}: {MASKED}");
    }
    let accounts = ForeignAccounts {
        accounts: people.people.into_iter().map(account).collect(),
        groups: people.groups,
        source: format!("keycloak, realm {}", export.name()),
        is_trial: source.dry_run,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let imported = runtime.block_on(async {
        let desk = Box::pin(AdminContext::open_for_text(&provider, &operator)).await?;
        let imported = desk.admin().import_accounts(accounts).await;
        desk.close().await;
        Ok::<_, Failure>(imported)
    })?;
    match imported {
        Ok(imported) => {
            report_import(&imported, source.dry_run);
            Ok(Outcome::Success)
        }
        Err(fault) => refuse(&fault),
    }
}

fn report_import(imported: &ImportCounts, is_trial: bool) {
    let ImportCounts { users, passwords, disabled, groups, memberships, consents, .. } = imported;
    let counts = format!(
        "{users} people ({passwords} with a password, {disabled} disabled), {groups} new groups, \
         {memberships} memberships, {consents} consents"
    );
    if is_trial {
        anstream::eprintln!(
            "{SUCCESS}done{SUCCESS:#}: nothing was written; without --dry-run this imports {counts}"
        );
    } else {
        anstream::eprintln!("{SUCCESS}done{SUCCESS:#}: imported {counts}");
    }
}

/// Says why nothing was imported.
fn refuse(fault: &ImportFault) -> Result<Outcome, Failure> {
    match fault {
        ImportFault::Refused(refused) => {
            for one in refused {
                anstream::eprintln!("{ERROR}refused{ERROR:#}: {}: {}", one.path, one.reason);
            }
        }
        ImportFault::Store(AccountImportError::Conflicts(conflicts)) => {
            for conflict in conflicts {
                anstream::eprintln!("{ERROR}conflict{ERROR:#}: {conflict}");
            }
        }
        ImportFault::Store(AccountImportError::CommitUnknown(error)) => {
            return Err(Failure::new(format!(
                "the result is unknown: {error}; run it again with --dry-run: if every name is in use, everything was imported"
            )));
        }
        fault => return Err(Failure::new(format!("nothing was imported: {fault}"))),
    }
    anstream::eprintln!(
        "{ERROR}refused{ERROR:#}: nothing was imported; change the names in Keycloak and export again, or change what is in the way here"
    );
    Ok(Outcome::Negative)
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
