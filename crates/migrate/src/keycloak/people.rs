//! People: the accounts to import, and what of them has no equal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::attributes::Attributes;
use super::clients::KeptScopes;
use super::export::{Credential, User};
use super::passwords;
use super::reader::RealmExport;
use super::roles::{RoleGraph, named};
use super::rules::TargetRules;
use crate::input_fault::InputFault;

/// Types of credentials that are a second factor, or that replace the password.
const SECOND_FACTORS: [&str; 4] = ["otp", "webauthn", "webauthn-passwordless", "recovery-authn-codes"];

/// The required action that sets a new password at the next login.
const UPDATE_PASSWORD: &str = "UPDATE_PASSWORD";

/// A password as it is imported.
#[derive(Clone, PartialEq, Eq)]
pub struct ImportedPassword {
    /// The hash, a PHC string.
    pub phc: String,
    /// When it was set, in milliseconds since 1970.
    pub changed_at: Option<u64>,
}

impl std::fmt::Debug for ImportedPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ImportedPassword(..)")
    }
}

/// A consent as it is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedConsent {
    /// The client that it was given to.
    pub client: String,
    /// Allowed scopes, in order.
    pub scopes: Vec<String>,
    /// When it was last given, in milliseconds since 1970.
    pub given_at: Option<u64>,
}

/// An account as it is imported.
#[derive(Debug, Clone, PartialEq)]
pub struct Person {
    /// Its id in Keycloak, the `sub` of tokens.
    pub id: String,
    /// The name with which the person signs in.
    pub name: String,
    /// The email address.
    pub email: Option<String>,
    /// Whether the address is verified.
    pub email_verified: bool,
    /// Standard claims and attributes.
    pub claims: Map<String, Value>,
    /// When the account was created, in milliseconds since 1970.
    pub created_at: Option<u64>,
    /// Whether the account is disabled.
    pub is_disabled: bool,
    /// Whether the person must choose a new password at the next login.
    pub must_change_password: bool,
    /// The password.
    pub password: Option<ImportedPassword>,
    /// Names of groups: paths of Keycloak's groups, and one for each role.
    pub groups: Vec<String>,
    /// Consents to clients of the new configuration.
    pub consents: Vec<ImportedConsent>,
}

/// Most names that a note keeps.
pub const MAX_NAMED: usize = 200;

/// What the people of a realm have in common.
#[derive(Debug, Default)]
pub struct People {
    /// Number of accounts to import.
    pub count: u64,
    /// All groups, with or without members.
    pub groups: BTreeSet<String>,
    /// What is different for whom, in the order of importance.
    pub notes: Vec<PeopleNote>,
}

/// What is different for some people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeopleNote {
    /// The difference and what to do.
    pub text: String,
    /// Number of the people.
    pub count: u64,
    /// Names of the first of them, at most [`MAX_NAMED`].
    pub names: Vec<String>,
}

/// What the notes are collected under, in the order of importance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    SecondFactor,
    DroppedSecondFactor,
    NoId,
    Password(String),
    NoPassword,
    SharedEmail,
    RequiredAction(String),
    Federated,
    Linked,
    Attribute(String),
    Group(String),
    Credential(String),
}

impl Difference {
    fn text(&self) -> String {
        match self {
            Self::SecondFactor => "have a second factor, and a password alone must not replace it: imported disabled; \
                enable an account with `postern admin user enable` once its owner knows, or import with --drop-second-factors"
                .into(),
            Self::DroppedSecondFactor => "had a second factor: their password alone is enough from now on".into(),
            Self::NoId => "have no id in the export and are not imported: export again with `kc.sh export`".into(),
            Self::Password(why) => format!(
                "cannot keep their password, {why}: set a new one with `postern admin user password`"
            ),
            Self::NoPassword => "have no password: set one with `postern admin user password`".into(),
            Self::SharedEmail => "share their address with another person, which is not possible here: imported without it".into(),
            Self::RequiredAction(action) => format!("have the required action {action}, which is dropped"),
            Self::Federated => "come from a directory (user federation): imported without its password; set one".into(),
            Self::Linked => "are linked to an account of another provider, with which nobody logs in here".into(),
            Self::Attribute(name) => format!("have a value of the attribute {name} that is left out: it does not fit its type or limits, or is not declared"),
            Self::Group(path) => format!("are in the group {path}, which the export does not have"),
            Self::Credential(kind) => format!("have a credential of type {kind}, which is dropped"),
        }
    }
}

/// Choices of the operator.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeopleOptions {
    /// Whether people with a second factor may log in with their password alone.
    pub drop_second_factors: bool,
}

/// Translates the people of a realm.
pub(super) struct Translator<'e> {
    pub export: &'e RealmExport<'e>,
    pub roles: RoleGraph,
    pub attributes: Attributes,
    /// Scopes of the clients that are translated.
    pub scopes: KeptScopes,
    pub target: &'e dyn TargetRules,
    pub options: PeopleOptions,
}

/// Takes a user, its account, and what is different.
type Visit<'v> = dyn FnMut(&User, Option<Person>, Vec<Difference>) -> ControlFlow<()> + 'v;

impl Translator<'_> {
    /// Passes each account to `visit`, one by one, until that breaks.
    pub(super) fn visit_people(
        &self,
        visit: &mut dyn FnMut(Person) -> ControlFlow<()>,
    ) -> Result<(), InputFault> {
        self.visit(&mut |_, person, _| person.map_or(ControlFlow::Continue(()), &mut *visit))
    }

    /// What the people have in common.
    pub(super) fn summary(&self) -> Result<People, InputFault> {
        let mut people = People { groups: self.roles.all_groups(), ..People::default() };
        let mut notes: BTreeMap<Difference, (u64, Vec<String>)> = BTreeMap::new();
        self.visit(&mut |user, person, differences| {
            for difference in differences {
                let (count, names) = notes.entry(difference).or_default();
                *count += 1;
                if names.len() < MAX_NAMED {
                    names.push(user.username.clone());
                }
            }
            if let Some(person) = person {
                people.count += 1;
                // Most groups are known already.
                let new = person.groups.into_iter().filter(|group| !people.groups.contains(group));
                let new: Vec<String> = new.collect();
                people.groups.extend(new);
            }
            ControlFlow::Continue(())
        })?;
        let notes = notes.into_iter();
        people.notes = notes.map(|(d, (count, names))| PeopleNote { text: d.text(), count, names }).collect();
        Ok(people)
    }

    /// Passes each user who is no client's account to `visit`, with its account and what is different.
    fn visit(&self, visit: &mut Visit<'_>) -> Result<(), InputFault> {
        self.export.visit_users(&mut |user| {
            if user.service_account_client_id.is_some() {
                return ControlFlow::Continue(());
            }
            let mut different = Vec::new();
            let person = self.person(&user, &mut different);
            visit(&user, person, different)
        })
    }

    fn person(&self, user: &User, notes: &mut Vec<Difference>) -> Option<Person> {
        let shared = &self.export.survey.shared_addresses;
        let Some(id) = user.id.clone().filter(|id| !id.is_empty()) else {
            notes.push(Difference::NoId);
            return None;
        };
        let is_locked = self.is_locked_by_second_factor(user, notes);
        let password = self.password(user, notes);
        Self::note_actions(user, notes);
        let (claims, refused) = self.attributes.record(user);
        notes.extend(refused.into_iter().map(Difference::Attribute));
        let missing = user.groups.iter().filter(|path| !self.roles.has_group(path)).cloned();
        notes.extend(missing.map(Difference::Group));
        let mut email = user.email.clone().filter(|email| !email.is_empty());
        if email.as_ref().is_some_and(|email| shared.contains(&email.to_lowercase())) {
            notes.push(Difference::SharedEmail);
            email = None;
        }
        let groups = self.roles.groups_of(named(&user.realm_roles, &user.client_roles), &user.groups);
        Some(Person {
            id,
            name: user.username.clone(),
            email_verified: email.is_some() && user.email_verified,
            email,
            claims,
            created_at: user.created_timestamp,
            is_disabled: user.enabled == Some(false) || is_locked,
            must_change_password: user.required_actions.iter().any(|action| action == UPDATE_PASSWORD),
            password,
            groups: groups.into_iter().collect(),
            consents: self.consents(user),
        })
    }

    /// Whether the account is to be disabled because a password alone must not replace a second factor.
    fn is_locked_by_second_factor(&self, user: &User, notes: &mut Vec<Difference>) -> bool {
        // A type that is not known may be a second factor, too.
        let others = || user.credentials.iter().filter(|credential| credential.kind != "password");
        let has_factor = others().next().is_some();
        let unknown = others().filter(|credential| !SECOND_FACTORS.contains(&&*credential.kind));
        notes.extend(unknown.map(|credential| Difference::Credential(credential.kind.clone())));
        if has_factor {
            let dropped = self.options.drop_second_factors;
            notes.push(if dropped { Difference::DroppedSecondFactor } else { Difference::SecondFactor });
        }
        has_factor && !self.options.drop_second_factors
    }

    fn password(&self, user: &User, notes: &mut Vec<Difference>) -> Option<ImportedPassword> {
        let Some(credential) = user.credentials.iter().find(|credential| credential.kind == "password")
        else {
            let federated = user.federation_link.is_some();
            notes.push(if federated { Difference::Federated } else { Difference::NoPassword });
            return None;
        };
        match self.checked(credential) {
            Ok(phc) => Some(ImportedPassword { phc, changed_at: credential.created_date }),
            Err(why) => {
                notes.push(Difference::Password(why));
                None
            }
        }
    }

    fn checked(&self, credential: &Credential) -> Result<String, String> {
        let phc = passwords::phc(credential)?;
        self.target.password_fault(&phc).map_or(Ok(phc), Err)
    }

    fn note_actions(user: &User, notes: &mut Vec<Difference>) {
        for action in &user.required_actions {
            notes.push(match &**action {
                UPDATE_PASSWORD => continue,
                action => Difference::RequiredAction(action.to_owned()),
            });
        }
        if !user.federated_identities.is_empty() {
            notes.push(Difference::Linked);
        }
    }

    /// Consents to clients that are translated, with scopes that these have. Keycloak does not ask for
    /// `openid`, so every consent covers it.
    fn consents(&self, user: &User) -> Vec<ImportedConsent> {
        let consents = user.client_consents.iter().filter_map(|consent| {
            let kept = self.scopes.get(&consent.client_id)?;
            let given = consent.granted_client_scopes.iter().map(String::as_str).chain(["openid"]);
            let scopes: BTreeSet<String> =
                given.filter(|scope| kept.iter().any(|kept| kept == scope)).map(str::to_owned).collect();
            Some(ImportedConsent {
                client: consent.client_id.clone(),
                scopes: scopes.into_iter().collect(),
                given_at: consent.last_updated_date.or(consent.created_date),
            })
        });
        consents.filter(|consent| !consent.scopes.is_empty()).collect()
    }
}
