//! Attributes: which attributes the people have, their types, and the record of one person.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::export::{Mapper, User};
use super::reader::{AttributeUse, RealmExport};
use super::rules::TargetRules;

/// Most characters of a text, and most entries of a list.
const MAX_TEXT: usize = 1024;
const MAX_ENTRIES: usize = 128;
/// Longest name of an attribute in bytes.
const MAX_NAME: usize = 64;

/// Attributes that Keycloak's scopes `profile`, `phone` and `address` put into standard claims.
const STANDARD: [(&str, &str); 10] = [
    ("middleName", "middle_name"),
    ("nickname", "nickname"),
    ("profile", "profile"),
    ("picture", "picture"),
    ("website", "website"),
    ("gender", "gender"),
    ("birthdate", "birthdate"),
    ("zoneinfo", "zoneinfo"),
    ("locale", "locale"),
    ("phoneNumber", "phone_number"),
];
const PHONE_VERIFIED: &str = "phoneNumberVerified";
/// Members of the claim `address`, and the attributes that they come from.
const ADDRESS: [(&str, &str); 6] = [
    ("formatted", "formatted"),
    ("street", "street_address"),
    ("locality", "locality"),
    ("region", "region"),
    ("postal_code", "postal_code"),
    ("country", "country"),
];

/// Type of an attribute, as the configuration writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeKind {
    Text,
    Integer,
    Boolean,
    List,
}

impl AttributeKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "string_list",
        }
    }
}

/// An attribute of the configuration.
#[derive(Debug)]
pub(super) struct Declared {
    pub name: String,
    pub kind: AttributeKind,
    /// Number of people who have it.
    pub people: usize,
}

/// The attributes of a realm, by their name in Keycloak.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    declared: BTreeMap<String, Declared>,
    /// Names that are left out because there are too many.
    pub left_out: Vec<String>,
}

impl Attributes {
    /// Finds the attributes that people have, and those that a mapper puts into a claim.
    pub(super) fn of(export: &RealmExport<'_>, target: &dyn TargetRules) -> Self {
        let used = export.survey.attributes.iter().filter(|(name, _)| !is_standard(name));
        let mut found: BTreeMap<&str, AttributeUse> = used.map(|(name, used)| (&**name, *used)).collect();
        let mappers = attribute_mappers(export);
        for name in mappers.keys().filter(|name| !is_standard(name)) {
            found.entry(name).or_default();
        }
        let mut attributes = Self::default();
        let mut names = BTreeSet::new();
        let mut by_use: Vec<_> = found.into_iter().collect();
        by_use.sort_by_key(|(name, used)| (!mappers.contains_key(name), usize::MAX - used.people));
        for (name, used) in by_use {
            if attributes.declared.len() == target.max_attributes() {
                attributes.left_out.push(name.to_owned());
                continue;
            }
            let kind = kind_of(used, mappers.get(name).copied());
            let free = free_name(name, target, &mut names);
            let declared = Declared { name: free, kind, people: used.people };
            attributes.declared.insert(name.to_owned(), declared);
        }
        attributes
    }

    /// The declared attributes, with their names in Keycloak.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Declared)> {
        self.declared.iter().map(|(name, declared)| (&**name, declared))
    }

    /// The attribute with this name in Keycloak.
    pub(super) fn get(&self, name: &str) -> Option<&Declared> {
        self.declared.get(name)
    }

    /// The record of a person. Values that do not fit are named in the second part.
    pub(super) fn record(&self, user: &User) -> (Map<String, Value>, Vec<String>) {
        let (mut record, mut refused) = (Map::new(), Vec::new());
        let names = [user.first_name.as_deref(), user.last_name.as_deref()];
        let whole: Vec<&str> = names.iter().flatten().copied().filter(|name| !name.is_empty()).collect();
        let mut set = |claim: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                record.insert(claim.to_owned(), value.into());
            }
        };
        set("name", Some(&whole.join(" ")));
        set("given_name", names[0]);
        set("family_name", names[1]);
        let first =
            |name: &str| user.attributes.get(name).and_then(|values| values.first()).map(String::as_str);
        for (attribute, claim) in STANDARD {
            set(claim, first(attribute));
        }
        let address: Map<String, Value> = ADDRESS
            .iter()
            .filter_map(|(attribute, member)| Some(((*member).to_owned(), first(attribute)?.into())))
            .collect();
        if !address.is_empty() {
            record.insert("address".into(), address.into());
        }
        if let Some(verified) = first(PHONE_VERIFIED) {
            record.insert("phone_number_verified".into(), (verified == "true").into());
        }
        for (name, values) in user.attributes.iter().filter(|(name, _)| !is_standard(name)) {
            match self.get(name).and_then(|declared| Some((declared, value_of(declared.kind, values)?))) {
                Some((declared, value)) => {
                    record.insert(declared.name.clone(), value);
                }
                None if values.is_empty() => {}
                None => refused.push(name.clone()),
            }
        }
        (record, refused)
    }
}

fn is_standard(name: &str) -> bool {
    name == PHONE_VERIFIED || STANDARD.iter().chain(&ADDRESS).any(|(attribute, _)| *attribute == name)
}

/// Mappers that put an attribute into a claim, by the attribute.
fn attribute_mappers<'e>(export: &'e RealmExport<'_>) -> BTreeMap<&'e str, &'e Mapper> {
    let own_scopes = export.realm.client_scopes.iter().filter(|scope| !scope.is_built_in());
    let of_scopes = own_scopes.flat_map(|scope| &scope.protocol_mappers);
    let of_clients = export.realm.clients.iter().flat_map(|client| &client.protocol_mappers);
    let all = of_scopes.chain(of_clients).filter(|m| m.protocol_mapper == "oidc-usermodel-attribute-mapper");
    all.filter_map(|mapper| Some((mapper.setting("user.attribute")?, mapper))).collect()
}

fn kind_of(used: AttributeUse, mapper: Option<&Mapper>) -> AttributeKind {
    let setting = |key: &str| mapper.and_then(|mapper| mapper.setting(key)).unwrap_or_default();
    if used.is_list || setting("multivalued") == "true" {
        return AttributeKind::List;
    }
    match setting("jsonType.label") {
        "int" | "long" if used.are_integers => AttributeKind::Integer,
        "boolean" if used.are_booleans => AttributeKind::Boolean,
        _ => AttributeKind::Text,
    }
}

/// The name in the configuration: that of Keycloak, if it is allowed and free.
fn free_name(name: &str, target: &dyn TargetRules, taken: &mut BTreeSet<String>) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    let mut free: String =
        name.chars().map(|c| if allowed(c) { c } else { '_' }).take(MAX_NAME - 16).collect();
    if target.is_reserved_claim(&free) || free.is_empty() {
        free.insert_str(0, "keycloak_");
    }
    while !taken.insert(free.clone()) {
        free.push('_');
    }
    free
}

fn value_of(kind: AttributeKind, values: &[String]) -> Option<Value> {
    let fits =
        |text: &String| (1..=MAX_TEXT).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    let one = || values.first().filter(|_| values.len() == 1);
    match kind {
        AttributeKind::Integer => Some(one()?.parse::<i64>().ok()?.into()),
        AttributeKind::Boolean => Some(one()?.parse::<bool>().ok()?.into()),
        AttributeKind::Text => Some(one().filter(|text| fits(text))?.as_str().into()),
        AttributeKind::List => {
            (values.len() <= MAX_ENTRIES && values.iter().all(fits)).then(|| values.into())
        }
    }
}
