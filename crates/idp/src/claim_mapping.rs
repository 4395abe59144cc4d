//! Claim mappings: claims of tokens that come from attributes, groups or the configuration.
//!
//! Owns: the settings of a mapping ([`ClaimMapping`]), its checked form ([`Mapping`]), the value of
//! a mapped claim, and its place in a token.
//!
//! Does not own: attributes ([`crate::attributes`]), the standard claims ([`crate::claims`]), which
//! mappings a client has ([`crate::client`]).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attributes::Attributes;
use crate::claims::is_reserved_claim;
use crate::oauth::scope::ScopeSet;

/// Most mappings of the provider, and of one client: each token of a client contains their claims.
pub const MAX_MAPPINGS: usize = 64;
/// Most bytes of one name in the path of a claim.
const MAX_NAME: usize = 256;
/// Most names in the path of a claim.
const MAX_DEPTH: usize = 4;
/// The one standard claim that a mapping may replace.
const GROUPS: &str = "groups";

/// Name of a claim, or the names that lead to it through nested objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum ClaimPath {
    /// A claim at the top of the token. A dot or slash is part of the name.
    Name(String),
    /// A member of nested objects, such as `["realm_access", "roles"]`.
    Nested(Vec<String>),
}

impl ClaimPath {
    fn names(&self) -> &[String] {
        match self {
            Self::Name(name) => std::slice::from_ref(name),
            Self::Nested(names) => names,
        }
    }
}

/// What a group of the user means for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupValue {
    /// Name of the group.
    pub group: String,
    /// The value for members of the group.
    pub value: String,
}

/// A kind of token or response that contains a mapped claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClaimTarget {
    /// JWT access tokens, and the introspection of access tokens.
    Access,
    /// ID tokens.
    Id,
    /// Responses of the userinfo endpoint.
    Userinfo,
}

/// All targets, which is the default.
pub const ALL_TARGETS: [ClaimTarget; 3] = [ClaimTarget::Access, ClaimTarget::Id, ClaimTarget::Userinfo];

fn all_targets() -> Vec<ClaimTarget> {
    ALL_TARGETS.to_vec()
}

/// Settings of one mapping. Exactly one of `attribute`, `groups`, `group_prefix` and `value` says
/// where the value comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimMapping {
    /// Name of the claim, or the names that lead to it.
    pub claim: ClaimPath,
    /// The value is that of this attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// The value depends on the user's groups: that of the first entry whose group the user is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupValue>,
    /// The values are the names of the user's groups that begin with this text, without it. Always
    /// a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_prefix: Option<String>,
    /// The value itself.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Value for users in none of `groups`; absent: they have no such claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether all entries of `groups` that apply give a list of values, not only the first one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// The claim needs one of these scopes; empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Tokens and responses that contain the claim.
    #[serde(default = "all_targets")]
    pub tokens: Vec<ClaimTarget>,
}

/// Reason why a mapping is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingFault {
    /// The path is empty, too deep, or has a name that is empty or too long.
    #[error(
        "malformed claim: use a name of 1 to {MAX_NAME} bytes, or 1 to {MAX_DEPTH} names of nested objects"
    )]
    Path,
    /// The provider itself defines the claim.
    #[error("claim {0:?} is defined by the provider or by OpenID Connect: choose another name")]
    Reserved(String),
    /// Another mapping has the same claim, or one inside it.
    #[error("another mapping has the same claim or an object around it: remove one")]
    Overlap,
    /// There is no source or more than one.
    #[error("a claim has one source: set one of attribute, groups, group_prefix and value")]
    Source,
    /// The attribute is not declared.
    #[error("attribute {0:?} is not declared: add it to the provider's attributes or correct it")]
    UnknownAttribute(String),
    /// There is `default` or `multiple` without `groups`.
    #[error("default and multiple apply to groups only: remove them or list groups")]
    WithoutGroups,
    /// A scope is malformed.
    #[error("malformed scope {0:?}: use printable ascii without space, quote and backslash")]
    Scope(String),
    /// There is no target.
    #[error("no token contains the claim: list access, id or userinfo, or remove the claim")]
    NoTarget,
    /// There are more than [`MAX_MAPPINGS`].
    #[error("too many claims: use at most {MAX_MAPPINGS}")]
    TooMany,
}

/// Where the value of a mapped claim comes from.
#[derive(Debug, Clone)]
enum Source {
    Attribute(Box<str>),
    Groups { values: Vec<GroupValue>, default: Option<Box<str>>, multiple: bool },
    GroupPrefix(Box<str>),
    Value(Value),
}

/// A checked mapping.
#[derive(Debug, Clone)]
pub struct Mapping {
    path: Vec<String>,
    source: Source,
    /// Empty: no scope is needed.
    scopes: ScopeSet,
    targets: Vec<ClaimTarget>,
}

/// What the values of mapped claims are taken from.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Record of the user's claims and attributes; `None`: a client that acts for itself.
    pub record: Option<&'a Map<String, Value>>,
    /// Groups of the user, or of the client.
    pub groups: &'a [String],
}

impl ClaimMapping {
    fn check(&self, attributes: &Attributes) -> Result<Mapping, MappingFault> {
        let path = self.claim.names();
        let named =
            |name: &String| (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        if !(1..=MAX_DEPTH).contains(&path.len()) || !path.iter().all(named) {
            return Err(MappingFault::Path);
        }
        let of_groups = !self.groups.is_empty() || self.group_prefix.is_some();
        if is_reserved_claim(&path[0]) && !(path == [GROUPS] && of_groups) {
            return Err(MappingFault::Reserved(path[0].clone()));
        }
        if self.groups.is_empty() && (self.default.is_some() || self.multiple) {
            return Err(MappingFault::WithoutGroups);
        }
        let mut scopes = ScopeSet::default();
        for scope in &self.scopes {
            scopes.insert(scope).map_err(|_| MappingFault::Scope(scope.clone()))?;
        }
        if self.tokens.is_empty() {
            return Err(MappingFault::NoTarget);
        }
        let source = self.source(attributes)?;
        Ok(Mapping { path: path.to_vec(), source, scopes, targets: self.tokens.clone() })
    }

    fn source(&self, attributes: &Attributes) -> Result<Source, MappingFault> {
        let groups = Some(&self.groups).filter(|groups| !groups.is_empty());
        match (&self.attribute, groups, &self.group_prefix, &self.value) {
            (Some(name), None, None, None) => match attributes.get(name) {
                Some(_) => Ok(Source::Attribute(name.as_str().into())),
                None => Err(MappingFault::UnknownAttribute(name.clone())),
            },
            (None, Some(groups), None, None) => Ok(Source::Groups {
                values: groups.clone(),
                default: self.default.as_deref().map(Into::into),
                multiple: self.multiple,
            }),
            (None, None, Some(prefix), None) => Ok(Source::GroupPrefix(prefix.as_str().into())),
            (None, None, None, Some(value)) => Ok(Source::Value(value.clone())),
            _ => Err(MappingFault::Source),
        }
    }
}

/// Checks mappings that belong together, and reports each fault with the index of its mapping.
///
/// # Errors
/// All faults.
pub fn check_all(
    mappings: &[ClaimMapping],
    attributes: &Attributes,
) -> Result<Vec<Mapping>, Vec<(usize, MappingFault)>> {
    let (mut checked, mut faults): (Vec<Mapping>, _) = (Vec::new(), Vec::new());
    for (at, mapping) in mappings.iter().enumerate() {
        match mapping.check(attributes) {
            _ if at == MAX_MAPPINGS => faults.push((at, MappingFault::TooMany)),
            Ok(mapping) if checked.iter().any(|other| mapping.overlaps(other)) => {
                faults.push((at, MappingFault::Overlap));
            }
            Ok(mapping) => checked.push(mapping),
            Err(fault) => faults.push((at, fault)),
        }
    }
    if faults.is_empty() { Ok(checked) } else { Err(faults) }
}

/// The mappings of a client: its own, and those of the provider that no own one replaces.
pub fn merged(of_provider: &[Mapping], own: Vec<Mapping>) -> Vec<Mapping> {
    let kept = of_provider.iter().filter(|mapping| !own.iter().any(|own| own.overlaps(mapping)));
    let mut all: Vec<Mapping> = kept.cloned().collect();
    all.extend(own);
    all
}

impl Mapping {
    /// Whether both name the same member, or one names an object around the other.
    fn overlaps(&self, other: &Self) -> bool {
        let common = self.path.len().min(other.path.len());
        self.path[..common] == other.path[..common]
    }

    /// Whether the claim may be released with these scopes.
    fn is_released(&self, scopes: &ScopeSet) -> bool {
        self.scopes.is_empty() || self.scopes.iter().any(|scope| scopes.contains(scope))
    }

    /// Whether the groups must be read for these scopes.
    pub fn needs_groups(&self, scopes: &ScopeSet) -> bool {
        matches!(self.source, Source::Groups { .. } | Source::GroupPrefix(_)) && self.is_released(scopes)
    }

    /// Name of the claim, if it is at the top of a token.
    pub fn top_level_name(&self) -> Option<&str> {
        let [name] = &*self.path else { return None };
        Some(name)
    }

    /// Scopes of which one is needed; empty: none.
    pub fn scopes(&self) -> &ScopeSet {
        &self.scopes
    }

    fn value(&self, subject: Subject<'_>) -> Option<Value> {
        match &self.source {
            Source::Attribute(name) => {
                let value = subject.record?.get(&**name)?;
                Some(value.clone()).filter(|value| !value.is_null())
            }
            Source::Value(value) => Some(value.clone()),
            Source::GroupPrefix(prefix) => {
                let names = subject.groups.iter().filter_map(|group| group.strip_prefix(&**prefix));
                Some(names.filter(|name| !name.is_empty()).collect())
            }
            Source::Groups { values, default, multiple } => {
                let is_member = |entry: &&GroupValue| subject.groups.contains(&entry.group);
                let mut found: Vec<&str> = Vec::new();
                for entry in values.iter().filter(is_member) {
                    if !found.contains(&&*entry.value) {
                        found.push(&entry.value);
                    }
                }
                if found.is_empty() {
                    found.extend(default.as_deref());
                }
                if *multiple { Some(found.into()) } else { found.first().map(|&value| value.into()) }
            }
        }
    }
}

/// Adds the mapped claims of a token or response.
pub fn add_claims(
    mappings: &[Mapping],
    (scopes, target): (&ScopeSet, ClaimTarget),
    subject: Subject<'_>,
    claims: &mut Map<String, Value>,
) {
    for mapping in mappings {
        if !mapping.targets.contains(&target) || !mapping.is_released(scopes) {
            continue;
        }
        if let (Some(value), Some((last, around))) = (mapping.value(subject), mapping.path.split_last()) {
            insert(claims, around, last, value);
        }
    }
}

/// Inserts a member of nested objects, which are created as needed.
fn insert(claims: &mut Map<String, Value>, around: &[String], name: &str, value: Value) {
    let mut object = claims;
    for outer in around {
        let inner = object.entry(outer).or_insert_with(|| Value::Object(Map::new()));
        // Mappings of one client do not overlap, and none is inside a standard claim.
        let Value::Object(inner) = inner else { return };
        object = inner;
    }
    object.insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attributes::Attribute;

    fn attributes() -> Attributes {
        Attributes::check(&[Attribute { name: "department".into(), ..Attribute::default() }]).unwrap()
    }

    fn read(text: &str) -> Vec<ClaimMapping> {
        serde_json::from_str(text).unwrap()
    }

    fn claims(mappings: &str, scopes: &str, target: ClaimTarget, groups: &[&str]) -> Value {
        let mappings = check_all(&read(mappings), &attributes()).unwrap();
        let scopes = if scopes.is_empty() { ScopeSet::default() } else { ScopeSet::parse(scopes).unwrap() };
        let record = Map::from_iter([("department".to_owned(), json!("R&D")), ("x".to_owned(), json!(1))]);
        let groups: Vec<String> = groups.iter().map(|&group| group.into()).collect();
        let subject = Subject { record: Some(&record), groups: &groups };
        let mut claims = Map::from_iter([("groups".to_owned(), json!(groups))]);
        add_claims(&mappings, (&scopes, target), subject, &mut claims);
        Value::Object(claims)
    }

    #[test]
    fn a_claim_has_the_value_of_its_source() {
        let source = |source: &str, groups: &[&str]| {
            let mapping = format!(r#"[{{"claim":"c",{source}}}]"#);
            claims(&mapping, "", ClaimTarget::Id, groups).get("c").cloned()
        };
        assert_eq!(source(r#""attribute":"department""#, &[]), Some(json!("R&D")));
        assert_eq!(source(r#""value":["a",1]"#, &[]), Some(json!(["a", 1])));
        let roles = r#""groups":[{"group":"admins","value":"Admin"},{"group":"staff","value":"Editor"}]"#;
        assert_eq!(source(roles, &["staff", "admins"]), Some(json!("Admin")), "the first entry");
        assert_eq!(source(roles, &["others"]), None);
        assert_eq!(source(&format!(r#"{roles},"default":"Viewer""#), &[]), Some(json!("Viewer")));
        let all = format!(r#"{roles},"multiple":true"#);
        assert_eq!(source(&all, &["staff", "admins"]), Some(json!(["Admin", "Editor"])));
        assert_eq!(source(&all, &[]), Some(json!([])));
        let prefix = r#""group_prefix":"role:""#;
        assert_eq!(source(prefix, &["role:a", "b", "role:"]), Some(json!(["a"])));
    }

    #[test]
    fn a_claim_is_where_its_path_leads() {
        let nested = r#"[{"claim":["realm_access","roles"],"group_prefix":"role:"},
            {"claim":["resource_access","shop","roles"],"group_prefix":"shop:"},
            {"claim":["resource_access","x","roles"],"value":[]},
            {"claim":"https://example.com/department","attribute":"department"},
            {"claim":"groups","group_prefix":"/"}]"#;
        assert_eq!(
            claims(nested, "", ClaimTarget::Access, &["role:a", "shop:b", "/c"]),
            json!({
                "realm_access": { "roles": ["a"] },
                "resource_access": { "shop": { "roles": ["b"] }, "x": { "roles": [] } },
                "https://example.com/department": "R&D",
                "groups": ["c"],
            })
        );
    }

    #[test]
    fn a_claim_needs_its_scope_and_its_target() {
        let one = r#"[{"claim":"c","value":1,"scopes":["hr","staff"],"tokens":["id"]}]"#;
        let has = |scopes, target| claims(one, scopes, target, &[]).get("c").is_some();
        assert!(has("openid hr", ClaimTarget::Id) && has("staff", ClaimTarget::Id));
        assert!(!has("openid", ClaimTarget::Id) && !has("", ClaimTarget::Id));
        assert!(!has("hr", ClaimTarget::Access) && !has("hr", ClaimTarget::Userinfo));
    }

    #[test]
    fn a_client_acting_for_itself_has_groups_and_no_attributes() {
        let text = r#"[{"claim":"d","attribute":"department"},{"claim":"r","group_prefix":"role:"}]"#;
        let mappings = check_all(&read(text), &attributes()).unwrap();
        let mut claims = Map::new();
        let subject = Subject { record: None, groups: &["role:sync".to_owned()] };
        add_claims(&mappings, (&ScopeSet::default(), ClaimTarget::Access), subject, &mut claims);
        assert_eq!(Value::Object(claims), json!({ "r": ["sync"] }));
    }

    #[test]
    fn faulty_mappings_are_refused_each_by_name() {
        let reserved = |name: &str| MappingFault::Reserved(name.into());
        for (mapping, fault) in [
            (r#"{"claim":"","value":1}"#, MappingFault::Path),
            (r#"{"claim":[],"value":1}"#, MappingFault::Path),
            (r#"{"claim":["a","b","c","d","e"],"value":1}"#, MappingFault::Path),
            (r#"{"claim":"sub","value":"root"}"#, reserved("sub")),
            (r#"{"claim":["address","x"],"value":1}"#, reserved("address")),
            (r#"{"claim":"revocation_tags","value":1}"#, reserved("revocation_tags")),
            (r#"{"claim":"groups","value":["admins"]}"#, reserved("groups")),
            (r#"{"claim":["groups","x"],"group_prefix":"a"}"#, reserved("groups")),
            (r#"{"claim":"a"}"#, MappingFault::Source),
            (r#"{"claim":"a","value":1,"attribute":"department"}"#, MappingFault::Source),
            (r#"{"claim":"a","attribute":"floor"}"#, MappingFault::UnknownAttribute("floor".into())),
            (r#"{"claim":"a","value":1,"default":"b"}"#, MappingFault::WithoutGroups),
            (r#"{"claim":"a","value":1,"multiple":true}"#, MappingFault::WithoutGroups),
            (r#"{"claim":"a","value":1,"scopes":["a b"]}"#, MappingFault::Scope("a b".into())),
            (r#"{"claim":"a","value":1,"tokens":[]}"#, MappingFault::NoTarget),
        ] {
            let found = check_all(&read(&format!("[{mapping}]")), &attributes()).map(drop);
            assert_eq!(found, Err(vec![(0, fault)]), "{mapping}");
        }
        let twice =
            r#"[{"claim":["a","b"],"value":1},{"claim":"a","value":1},{"claim":["a","c"],"value":1}]"#;
        let faults = check_all(&read(twice), &attributes()).map(drop);
        assert_eq!(faults, Err(vec![(1, MappingFault::Overlap)]));
    }

    #[test]
    fn a_clients_mapping_replaces_the_providers() {
        let of = |text: &str| check_all(&read(text), &attributes()).unwrap();
        let provider =
            of(r#"[{"claim":"a","value":"p"},{"claim":["b","c"],"value":"p"},{"claim":"d","value":"p"}]"#);
        let own = of(r#"[{"claim":"a","value":"own"},{"claim":"b","value":"own"}]"#);
        let mut claims = Map::new();
        let subject = Subject { record: None, groups: &[] };
        add_claims(&merged(&provider, own), (&ScopeSet::default(), ClaimTarget::Id), subject, &mut claims);
        assert_eq!(Value::Object(claims), json!({ "a": "own", "b": "own", "d": "p" }));
    }
}
