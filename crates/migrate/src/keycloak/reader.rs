//! Reader: the files of an export, of which the people are never all in memory.
//!
//! Owns: which files belong together, the realm in them, and the passes over the people. The first
//! pass is a [`Survey`]: what the configuration needs to know of all of them. Does not own: the
//! members of the files ([`super::export`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::export::{MASK, Realm, User};
use crate::input_fault::InputFault;

/// Bytes that are read at once.
const BUFFER: usize = 256 * 1024;

/// The files of an export. Each is read several times.
pub trait ExportFiles: Sync {
    /// Names of the files, in order.
    fn names(&self) -> Vec<String>;

    /// Opens a file from its beginning.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
}

/// Whether a file of this name in a folder is part of an export: `NAME-realm.json`, `NAME-users-N.json`.
pub fn is_export_file(name: &str) -> bool {
    let stem = name.strip_suffix(".json");
    stem.is_some_and(|stem| stem.ends_with("-realm") || is_users_file(name))
}

fn is_users_file(name: &str) -> bool {
    let number = name.strip_suffix(".json").and_then(|stem| stem.rsplit_once("-users-"));
    number.is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// A realm, and where its people are.
pub struct RealmExport<'f> {
    pub(super) realm: Realm,
    pub(super) survey: Survey,
    files: &'f dyn ExportFiles,
    people: Vec<PeopleFile>,
}

impl fmt::Debug for RealmExport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealmExport").field("realm", &self.realm.realm).finish_non_exhaustive()
    }
}

/// A file with people.
#[derive(Debug)]
struct PeopleFile {
    name: String,
    /// The place of the realm, if the file is a list of realms.
    place: Option<usize>,
}

/// What is known of all people together.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Number of people.
    pub(super) people: u64,
    /// Accounts of clients.
    pub(super) service_accounts: Vec<User>,
    /// Attributes of people.
    pub(super) attributes: BTreeMap<String, AttributeUse>,
    /// Addresses that several people have, in small letters, as Keycloak's `duplicateEmailsAllowed`
    /// permits.
    pub(super) shared_addresses: BTreeSet<String>,
}

/// What values of an attribute people have.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttributeUse {
    /// Number of people who have it.
    pub(super) people: usize,
    /// Whether someone has several values.
    pub(super) is_list: bool,
    pub(super) are_integers: bool,
    pub(super) are_booleans: bool,
}

impl Default for AttributeUse {
    fn default() -> Self {
        Self { people: 0, is_list: false, are_integers: true, are_booleans: true }
    }
}

/// The head of a file with people only.
#[derive(Debug, Deserialize)]
struct UsersHead {
    realm: Option<String>,
    #[serde(rename = "users")]
    _users: IgnoredAny,
}

impl<'f> RealmExport<'f> {
    /// Reads the files of an export: those with realms, and any number with people. `wanted` is the
    /// name of the realm, if there are several.
    ///
    /// # Errors
    /// If a file cannot be read or is no JSON of this form, there is no such realm, or none is wanted
    /// of several.
    pub fn read(files: &'f dyn ExportFiles, wanted: Option<&str>) -> Result<Self, InputFault> {
        let (mut realms, mut others) = (Vec::new(), Vec::new());
        for name in files.names() {
            if is_users_file(&name) {
                let head: UsersHead = parse(files, &name)?;
                others.push((head.realm, PeopleFile { name, place: None }));
            } else {
                let found = realms_of(files, &name)?;
                let file = |(at, realm): (Option<usize>, Realm)| {
                    (realm, PeopleFile { name: name.clone(), place: at })
                };
                realms.extend(found.into_iter().map(file));
            }
        }
        let is_only = realms.len() == 1;
        let (realm, file) = chosen(realms, wanted)?;
        // A file of people without the name of its realm is of the only one.
        let is_own = |name: &Option<String>| name.as_ref().map_or(is_only, |name| *name == realm.realm);
        let others = others.into_iter().filter(|(name, _)| is_own(name)).map(|(_, file)| file);
        let people = [file].into_iter().chain(others).collect();
        let mut export = Self { realm, survey: Survey::default(), files, people };
        export.survey = Survey::of(&export)?;
        Ok(export)
    }

    /// Whether the export was made without people: none, or only those of clients.
    pub fn has_no_people(&self) -> bool {
        self.survey.people == 0
    }

    /// Whether secrets are replaced by stars, as the administration console exports them.
    pub fn is_masked(&self) -> bool {
        self.realm.clients.iter().any(|client| client.secret.as_deref() == Some(MASK))
    }

    /// Name of the realm.
    pub fn name(&self) -> &str {
        &self.realm.realm
    }

    /// Passes each account to `visit`, one by one, until that breaks.
    ///
    /// # Errors
    /// If a file cannot be read, or an account has another form.
    pub(super) fn visit_users(
        &self,
        visit: &mut dyn FnMut(User) -> ControlFlow<()>,
    ) -> Result<(), InputFault> {
        for file in &self.people {
            let mut has_ended = false;
            let mut visit = |user| {
                let next = visit(user);
                has_ended = next.is_break();
                next
            };
            let reader = opened(self.files, &file.name)?;
            let mut input = serde_json::Deserializer::from_reader(reader);
            let read = match file.place {
                None => RealmPeople(&mut visit).deserialize(&mut input),
                Some(at) => RealmAt(at, &mut visit).deserialize(&mut input),
            };
            match read {
                _ if has_ended => return Ok(()),
                Ok(()) => {}
                Err(error) => return Err(no_export(&file.name, &error)),
            }
        }
        Ok(())
    }
}

impl Survey {
    fn of(export: &RealmExport<'_>) -> Result<Self, InputFault> {
        let mut survey = Self::default();
        let mut addresses = BTreeSet::new();
        export.visit_users(&mut |user| {
            if user.service_account_client_id.is_some() {
                survey.service_accounts.push(user);
                return ControlFlow::Continue(());
            }
            survey.people += 1;
            for (name, values) in &user.attributes {
                let own = survey.attributes.entry(name.clone()).or_default();
                own.people += 1;
                own.is_list |= values.len() > 1;
                own.are_integers &= values.iter().all(|value| value.parse::<i64>().is_ok());
                own.are_booleans &= values.iter().all(|value| value.parse::<bool>().is_ok());
            }
            if export.realm.duplicate_emails_allowed
                && let Some(email) = user.email.as_deref().map(str::to_lowercase)
                && !addresses.insert(email.clone())
            {
                survey.shared_addresses.insert(email);
            }
            ControlFlow::Continue(())
        })?;
        Ok(survey)
    }
}

/// The realm that is wanted, or the only one.
fn chosen(realms: Vec<(Realm, PeopleFile)>, wanted: Option<&str>) -> Result<(Realm, PeopleFile), InputFault> {
    let names: Vec<String> = realms.iter().map(|(realm, _)| realm.realm.clone()).collect();
    let fault = |why: String| InputFault::File { name: "the export".into(), why };
    let is_wanted = |(realm, _): &(Realm, PeopleFile)| wanted.is_none_or(|wanted| realm.realm == wanted);
    let mut realms = realms.into_iter().filter(is_wanted);
    match (realms.next(), realms.next(), wanted) {
        (Some(realm), None, _) => Ok(realm),
        (None, _, Some(wanted)) => {
            Err(fault(format!("it has no realm {wanted:?}, but {}", names.join(", "))))
        }
        (None, _, None) => {
            let why =
                "it has no NAME-realm.json: export the realm with `kc.sh export --dir DIR --realm NAME`";
            Err(fault(why.into()))
        }
        (Some(_), Some(_), _) => Err(fault(format!(
            "it has the realms {}: name one with --realm, in a folder of one export",
            names.join(", ")
        ))),
    }
}

/// The realms of a file, with their places if it is a list: `kc.sh` writes several so.
fn realms_of(files: &dyn ExportFiles, name: &str) -> Result<Vec<(Option<usize>, Realm)>, InputFault> {
    let mut first = opened(files, name)?.bytes();
    let is_list = loop {
        match first.next() {
            Some(Ok(byte)) if byte.is_ascii_whitespace() => {}
            Some(Err(error)) => return Err(unreadable(name, &error)),
            other => break matches!(other, Some(Ok(b'['))),
        }
    };
    let realms: Vec<(Option<usize>, Realm)> = if is_list {
        let realms: Vec<Realm> = parse(files, name)?;
        realms.into_iter().enumerate().map(|(at, realm)| (Some(at), realm)).collect()
    } else {
        vec![(None, parse(files, name)?)]
    };
    if realms.iter().any(|(_, realm)| realm.realm.is_empty()) {
        let why = "it has no member `realm`: give a file of `kc.sh export`".into();
        return Err(InputFault::File { name: name.to_owned(), why });
    }
    Ok(realms)
}

/// A file without its people, which are passed over.
fn parse<T: DeserializeOwned>(files: &dyn ExportFiles, name: &str) -> Result<T, InputFault> {
    serde_json::from_reader(opened(files, name)?).map_err(|error| no_export(name, &error))
}

fn opened<'f>(files: &'f dyn ExportFiles, name: &str) -> Result<BufReader<Box<dyn Read + 'f>>, InputFault> {
    let file = files.open(name).map_err(|error| unreadable(name, &error))?;
    Ok(BufReader::with_capacity(BUFFER, file))
}

fn unreadable(name: &str, error: &io::Error) -> InputFault {
    InputFault::File { name: name.to_owned(), why: format!("it cannot be read: {error}") }
}

fn no_export(name: &str, error: &serde_json::Error) -> InputFault {
    InputFault::File { name: name.to_owned(), why: format!("it is no file of `kc.sh export`: {error}") }
}

type Visit<'v> = dyn FnMut(User) -> ControlFlow<()> + 'v;

/// The people of the realm at a place in a list.
struct RealmAt<'v, 'u>(usize, &'v mut Visit<'u>);
/// The member `users` of a realm.
struct RealmPeople<'v, 'u>(&'v mut Visit<'u>);
/// A list of people.
struct PeopleList<'v, 'u>(&'v mut Visit<'u>);

impl<'de> DeserializeSeed<'de> for RealmAt<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RealmAt<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of realms")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut realms: A) -> Result<(), A::Error> {
        for _ in 0..self.0 {
            realms.next_element::<IgnoredAny>()?;
        }
        realms.next_element_seed(RealmPeople(self.1))?;
        while realms.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for RealmPeople<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RealmPeople<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a realm, or its people")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name == "users" {
                members.next_value_seed(PeopleList(self.0))?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for PeopleList<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PeopleList<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of users")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut users: A) -> Result<(), A::Error> {
        while let Some(user) = users.next_element()? {
            if (self.0)(user).is_break() {
                // Nobody sees it: the caller knows that it has ended the pass.
                return Err(A::Error::custom("ended"));
            }
        }
        Ok(())
    }
}
