//! The outcome of an import, for people and for programs.
//!
//! Lists of people, groups and conflicts have no limit in a realm, so only the first entries of each
//! are printed, with the number of all.

use std::fmt::{self, Display};

use idp::admin::Refused;
use idp::admin::import::ImportFault;
use migrate::keycloak::PeopleNote;
use serde::Serialize;
use store::account_import::{AccountImportError, ImportCounts};

use crate::cmd::admin::{Output, context};
use crate::exit::{Failure, Outcome};
use crate::terminal::{ERROR, HINT, SUCCESS};

/// Most groups that are listed.
const MAX_GROUPS: usize = 50;

/// How an import ended, if the database answered.
pub(super) enum Told {
    Imported(ImportCounts),
    Refused(Listed<Refused>),
    Conflicts(Listed<String>),
}

impl Told {
    /// Tells apart what is a failure of the command.
    pub(super) fn of(imported: Result<ImportCounts, ImportFault>) -> Result<Self, Failure> {
        match imported {
            Ok(counts) => Ok(Self::Imported(counts)),
            Err(ImportFault::Refused(refused)) => {
                Ok(Self::Refused(Listed { total: refused.total, first: refused.first }))
            }
            Err(ImportFault::Store(AccountImportError::Conflicts(conflicts))) => {
                let first = conflicts.first.iter().map(ToString::to_string).collect();
                Ok(Self::Conflicts(Listed { total: conflicts.total, first }))
            }
            Err(ImportFault::Store(AccountImportError::CommitUnknown(error))) => Err(Failure::new(format!(
                "the result is unknown: {error}; run it again with --dry-run: if every name is in use, everything was imported"
            ))),
            Err(fault) => Err(Failure::new(format!("nothing was imported: {fault}"))),
        }
    }
}

/// The first entries of a list.
#[derive(Debug, Serialize)]
pub(super) struct Listed<T> {
    /// Number of all.
    total: u64,
    first: Vec<T>,
}

impl<T> Listed<T> {
    /// What the list leaves out; nothing: empty.
    fn rest(&self) -> String {
        match self.total - self.first.len() as u64 {
            0 => String::new(),
            rest => format!("and {rest} more"),
        }
    }
}

/// People for whom something is different.
#[derive(Debug, Serialize)]
struct Note<'n> {
    text: &'n str,
    people: Listed<&'n str>,
}

/// Numbers of what is imported.
#[derive(Debug, Serialize)]
struct Counts {
    people: u64,
    with_password: u64,
    disabled: u64,
    new_groups: u64,
    memberships: u64,
    consents: u64,
}

/// The whole outcome.
#[derive(Debug, Serialize)]
pub(super) struct ImportReport<'n> {
    /// Whether everything was written.
    imported: bool,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    /// Groups that exist already, and that imported people join.
    #[serde(skip_serializing_if = "Option::is_none")]
    joined_groups: Option<Listed<&'n str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'n Listed<Refused>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicts: Option<&'n Listed<String>>,
    notes: Vec<Note<'n>>,
}

impl<'n> ImportReport<'n> {
    pub(super) fn new(told: &'n Told, notes: &'n [PeopleNote], dry_run: bool) -> Self {
        let names = |note: &'n PeopleNote| Listed {
            total: note.count,
            first: note.names.iter().map(String::as_str).collect(),
        };
        let notes = notes.iter().map(|note| Note { text: &note.text, people: names(note) }).collect();
        let mut report = Self {
            imported: false,
            dry_run,
            counts: None,
            joined_groups: None,
            refused: None,
            conflicts: None,
            notes,
        };
        match told {
            Told::Imported(counts) => {
                report.imported = !dry_run;
                let ImportCounts { users, passwords, disabled, groups, memberships, consents, joined } =
                    counts;
                report.counts = Some(Counts {
                    people: *users,
                    with_password: *passwords,
                    disabled: *disabled,
                    new_groups: *groups,
                    memberships: *memberships,
                    consents: *consents,
                });
                let first = joined.iter().take(MAX_GROUPS).map(String::as_str).collect();
                report.joined_groups = Some(Listed { total: joined.len() as u64, first });
            }
            Told::Refused(refused) => report.refused = Some(refused),
            Told::Conflicts(conflicts) => report.conflicts = Some(conflicts),
        }
        report
    }

    /// Prints it. What was not imported is a negative outcome.
    pub(super) fn print(&self, output: Output) -> Result<Outcome, Failure> {
        match output {
            Output::Json => anstream::println!("{}", context::pretty(self)?),
            Output::Text => self.print_text(),
        }
        Ok(if self.counts.is_some() { Outcome::Success } else { Outcome::Negative })
    }

    fn print_text(&self) {
        for Note { text, people } in &self.notes {
            anstream::println!("people ({}) {text}:\n  {}", people.total, Names(people));
        }
        if let Some(joined) = self.joined_groups.as_ref().filter(|joined| joined.total > 0) {
            anstream::println!(
                "groups ({}) exist already, and people join them, with the rights that these groups have:\n  {}",
                joined.total,
                Names(joined)
            );
        }
        if let Some(refused) = self.refused {
            for one in &refused.first {
                anstream::eprintln!("{ERROR}refused{ERROR:#}: {}: {}", one.path, one.reason);
            }
            print_rest(refused);
        }
        if let Some(conflicts) = self.conflicts {
            for conflict in &conflicts.first {
                anstream::eprintln!("{ERROR}conflict{ERROR:#}: {conflict}");
            }
            print_rest(conflicts);
        }
        match &self.counts {
            None => anstream::eprintln!(
                "{ERROR}refused{ERROR:#}: nothing was imported; change the names in Keycloak and export again, or change what is in the way here"
            ),
            Some(counts) if self.dry_run => anstream::eprintln!(
                "{SUCCESS}done{SUCCESS:#}: nothing was written; without --dry-run this imports {counts}"
            ),
            Some(counts) => anstream::eprintln!("{SUCCESS}done{SUCCESS:#}: imported {counts}"),
        }
    }
}

/// Says how many entries are not listed.
fn print_rest<T>(listed: &Listed<T>) {
    if listed.total > listed.first.len() as u64 {
        anstream::eprintln!("{HINT}note{HINT:#}: {}: {} in all", listed.rest(), listed.total);
    }
}

/// Names, separated by commas.
struct Names<'l, 'n>(&'l Listed<&'n str>);

impl Display for Names<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.first.join(", "))?;
        match &*self.0.rest() {
            "" => Ok(()),
            rest => write!(f, ", {rest}"),
        }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { people, with_password, disabled, new_groups, memberships, consents } = self;
        write!(
            f,
            "{people} people ({with_password} with a password, {disabled} disabled), {new_groups} new groups, \
             {memberships} memberships, {consents} consents"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::documented::assert_row_has_members_of;

    #[test]
    fn a_report_has_the_documented_members() {
        let notes = [PeopleNote { text: "keep their id".into(), count: 1, names: vec!["ada".into()] }];
        let refused = Refused { path: "name".into(), reason: "in use".into() };
        let outcomes = [
            Told::Imported(ImportCounts::default()),
            Told::Refused(Listed { total: 1, first: vec![refused] }),
            Told::Conflicts(Listed { total: 1, first: vec!["ada".into()] }),
        ];
        let reports = outcomes.iter().map(|told| json!(ImportReport::new(told, &notes, false)));
        let reports: Vec<_> = reports.collect();
        assert_row_has_members_of("migrate keycloak --import --output json", &reports);
    }
}
