//! Keycloak: a realm as `kc.sh export` writes it.
//!
//! Owns: reading the export (`reader`, `export`), the configuration of the provider (`realm`,
//! `clients`, `claims`), and the people with their passwords and groups (`people`). Does not own: what
//! is accepted where the result goes ([`TargetRules`]), the database.
//!
//! A realm may have more people than fit into memory. So the files are read several times, and the
//! people pass by one by one: for the survey, for the report, and for the import.
//!
//! Keycloak's roles become groups: `role:NAME` for those of the realm, `CLIENT:NAME` for those of a
//! client. Claims of the configuration give tokens the shape that Keycloak's have.

mod attributes;
mod claims;
mod clients;
mod export;
mod passwords;
mod people;
mod reader;
mod realm;
mod roles;
mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

pub use self::people::{
    ImportedConsent, ImportedPassword, MAX_NAMED, People, PeopleNote, PeopleOptions, Person,
};
pub use self::reader::{ExportFiles, RealmExport, is_export_file};
pub use self::realm::ProviderPlace;
pub use self::rules::TargetRules;

use self::attributes::Attributes;
use self::people::Translator;
use self::roles::RoleGraph;
use crate::Migration;
use crate::draft::Draft;
use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};

/// Name of the program, for messages.
pub const PROGRAM: &str = "Keycloak";

/// What a realm becomes.
pub struct RealmMigration<'e> {
    /// The configuration and its report.
    pub migration: Migration,
    /// What the people have in common.
    pub people: People,
    translator: Translator<'e>,
}

impl fmt::Debug for RealmMigration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealmMigration").field("people", &self.people).finish_non_exhaustive()
    }
}

impl RealmMigration<'_> {
    /// Reads the people once more, and passes each account to `visit`, until that breaks.
    ///
    /// # Errors
    /// If a file cannot be read, or has changed to another form.
    pub fn visit_people(&self, visit: &mut dyn FnMut(Person) -> ControlFlow<()>) -> Result<(), InputFault> {
        self.translator.visit_people(visit)
    }
}

/// Translates an export.
///
/// # Errors
/// If a file of the export cannot be read.
pub fn translate<'e>(
    export: &'e RealmExport<'e>,
    place: &ProviderPlace,
    target: &'e dyn TargetRules,
    options: PeopleOptions,
) -> Result<RealmMigration<'e>, InputFault> {
    let roles = RoleGraph::new(&export.realm);
    let attributes = Attributes::of(export, target);
    let mut output = Output {
        draft: Draft::default(),
        report: MigrationReport::default(),
        attribute_names: attributes.iter().map(|(name, d)| (name.to_owned(), d.name.clone())).collect(),
        role_prefixes: roles
            .clients()
            .map(|(client, prefix)| (client.to_owned(), prefix.to_owned()))
            .collect(),
        target,
    };
    realm::translate(export, place, &mut output);
    claims::of_attributes(&attributes, &mut output);
    claims::of_roles(&roles, target, &mut output);
    claims::of_scopes(export, &mut output);
    let scopes = clients::translate(export, &roles, target, &mut output);
    let translator = Translator { export, roles, attributes, scopes, target, options };
    let people = translator.summary()?;
    let head = [
        format!("Translated from the realm {} of Keycloak.", export.realm.realm),
        "Check it: postern check FILE".to_owned(),
    ];
    let Output { draft, mut report, .. } = output;
    report.notes = notes(export, &translator.roles, &people);
    let migration = Migration { configuration: draft.render(&head), secrets: Vec::new(), report };
    Ok(RealmMigration { migration, people, translator })
}

/// Differences that belong to no setting.
fn notes(export: &RealmExport<'_>, roles: &RoleGraph, people: &People) -> Vec<String> {
    let version = export.realm.keycloak_version.as_deref().unwrap_or("an unknown version");
    let mut notes = vec![
        format!(
            "exported by Keycloak {version}: {} people, {} groups, {} of them for roles",
            people.count,
            people.groups.len(),
            people.groups.len() - roles.group_paths().count(),
        ),
        "`default-roles-REALM`, `offline_access`, `uma_authorization` and the roles of Keycloak's own clients are left out".into(),
        "the endpoints have other paths: clients that use discovery find them, others need the new URLs".into(),
    ];
    if export.has_no_people() {
        notes.push(NO_PEOPLE.into());
    }
    if export.is_masked() {
        notes.push(MASKED.into());
    }
    notes.extend(people.notes.iter().map(|note| {
        let shown: Vec<&str> = note.names.iter().take(MAX_SHOWN).map(String::as_str).collect();
        let more = if note.count > shown.len() as u64 { ", and more" } else { "" };
        format!("people ({}) {}: {}{more}", note.count, note.text, shown.join(", "))
    }));
    notes
}

/// Most names that one line shows.
const MAX_SHOWN: usize = 50;
/// What to do about an export without people.
pub const NO_PEOPLE: &str = "the export has no people: export with `kc.sh export --dir DIR --realm NAME --users \
     different_files` while Keycloak is stopped, because the administration console exports none";
/// What to do about masked secrets.
pub const MASKED: &str = "the export has stars in place of secrets, so clients with a secret are left out: export with \
     `kc.sh export`, because the administration console never shows them";

/// What the translation builds.
struct Output<'r> {
    draft: Draft,
    report: MigrationReport,
    /// Names of declared attributes, by those in Keycloak.
    attribute_names: BTreeMap<String, String>,
    /// Prefixes of the groups of clients' roles, by the client.
    role_prefixes: BTreeMap<String, String>,
    target: &'r dyn TargetRules,
}

impl Output<'_> {
    fn translated(&mut self, setting: &str) {
        self.report.add(setting, Translation::Translated);
    }

    fn different(&mut self, setting: &str, text: &str) {
        self.report.add(setting, Translation::Different(text.to_owned()));
    }

    fn no_equal(&mut self, setting: &str, text: &str) {
        self.report.add(setting, Translation::NoEqual(text.to_owned()));
    }

    fn is_reserved(&self, claim: &str) -> bool {
        self.target.is_reserved_claim(claim)
    }
}
