//! Claims: `[[provider.claim]]` and `[[provider.client.claim]]`, from roles and protocol mappers.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::Output;
use super::attributes::Attributes;
use super::export::{Client, Mapper};
use super::reader::RealmExport;
use super::roles::{RoleGraph, RoleName, named};
use super::rules::TargetRules;
use crate::draft::inline;

/// Mappers of Keycloak's own scopes: what they do is part of every token here.
const BUILT_IN_MAPPERS: [&str; 9] = [
    "oidc-acr-mapper",
    "oidc-address-mapper",
    "oidc-allowed-origins-mapper",
    "oidc-amr-mapper",
    "oidc-audience-mapper",
    "oidc-audience-resolve-mapper",
    "oidc-full-name-mapper",
    "oidc-sub-mapper",
    "oidc-usermodel-property-mapper",
];

/// Writes the claims of roles for all clients, in the shape of Keycloak's tokens.
pub(super) fn of_roles(roles: &RoleGraph, target: &dyn TargetRules, output: &mut Output<'_>) {
    let mut claim = |path: &[&str], prefix: &str, from: &str| {
        let path: Vec<Value> = path.iter().map(|name| Value::from(*name)).collect();
        let table = output.draft.table("[[provider.claim]]");
        table.set("claim", path, from).set("group_prefix", prefix, from).set("tokens", vec!["access"], "");
    };
    claim(&["realm_access", "roles"], roles.realm_prefix(), "realm roles: the groups that begin with this");
    for (client, prefix) in roles.clients().take(target.max_claims() / 2) {
        let from = format!("roles of client {client}: the groups that begin with this");
        claim(&["resource_access", client, "roles"], prefix, &from);
    }
    for (client, _) in roles.clients().skip(target.max_claims() / 2) {
        output.no_equal(
            &format!("roles of client {client}"),
            "there are too many clients with roles for a claim each: give those clients that need it a [[provider.client.claim]]",
        );
    }
    for (client, prefix) in roles.renamed() {
        let text =
            format!("their groups begin with {prefix:?}, because another prefix begins like {client:?}");
        output.different(&format!("roles of client {client}"), &text);
    }
}

/// Writes the claims of one client: roles that it does not see, and its own mappers.
pub(super) fn of_client(
    client: &Client,
    export: &RealmExport<'_>,
    roles: &RoleGraph,
    target: &dyn TargetRules,
    output: &mut Output<'_>,
) {
    let origin = format!("client {}", client.client_id);
    if client.full_scope_allowed != Some(true) {
        limited_roles(client, export, roles, target, output);
    }
    for mapper in &client.protocol_mappers {
        of_mapper(mapper, ("[[provider.client.claim]]", &origin, &[]), output);
    }
}

/// Writes the claims of the realm's scopes.
pub(super) fn of_scopes(export: &RealmExport<'_>, output: &mut Output<'_>) {
    for scope in export.realm.client_scopes.iter().filter(|scope| !scope.is_built_in()) {
        let needed = [Value::from(scope.name.as_str())];
        let origin = format!("client scope {}", scope.name);
        for mapper in &scope.protocol_mappers {
            of_mapper(mapper, ("[[provider.claim]]", &origin, &needed), output);
        }
        output.translated(&origin);
    }
}

/// The roles that a client without `fullScopeAllowed` sees: its own, and those mapped to it or to its
/// scopes.
fn limited_roles(
    client: &Client,
    export: &RealmExport<'_>,
    roles: &RoleGraph,
    target: &dyn TargetRules,
    output: &mut Output<'_>,
) {
    let realm = &export.realm;
    let applies = |mapping: &&super::export::ScopeMapping| {
        mapping.client.as_ref() == Some(&client.client_id)
            || mapping.client_scope.as_ref().is_some_and(|scope| client.default_client_scopes.contains(scope))
    };
    let mut seen: Vec<RoleName> = Vec::new();
    for mapping in realm.scope_mappings.iter().filter(applies) {
        seen.extend(named(&mapping.roles, &BTreeMap::default()));
    }
    for (owner, mappings) in &realm.client_scope_mappings {
        for mapping in mappings.iter().filter(applies) {
            seen.extend(named(&[], &[(owner.clone(), mapping.roles.clone())].into()));
        }
    }
    let own: Vec<String> = realm
        .roles
        .client
        .get(&client.client_id)
        .into_iter()
        .flatten()
        .map(|role| role.name.clone())
        .collect();
    seen.extend(named(&[], &[(client.client_id.clone(), own)].into()));
    let seen = roles.expanded(seen);
    let from = format!("client {}, fullScopeAllowed is off: the roles of its scope", client.client_id);
    let mut claim = |path: &[&str], of: Option<&str>| {
        let visible: BTreeSet<&RoleName> = seen.iter().filter(|role| role.client.as_deref() == of).collect();
        let values: Vec<Value> = visible
            .iter()
            .filter_map(|role| {
                let group = roles.group_of(role)?;
                Some(inline([("group", group.into()), ("value", role.name.as_str().into())]))
            })
            .collect();
        let path: Vec<Value> = path.iter().map(|name| Value::from(*name)).collect();
        let table = output.draft.table("[[provider.client.claim]]").set("claim", path, &from);
        if values.is_empty() {
            table.set("value", Vec::<Value>::new(), "none");
        } else {
            table.set("groups", values, "").set("multiple", true, "");
        }
        table.set("tokens", vec!["access"], "");
    };
    claim(&["realm_access", "roles"], None);
    for (owner, _) in roles.clients().take(target.max_claims() / 2) {
        claim(&["resource_access", owner, "roles"], Some(owner));
    }
}

/// Writes the claim of a mapper, and says what has no equal.
fn of_mapper(
    mapper: &Mapper,
    (header, origin, scopes): (&'static str, &str, &[Value]),
    output: &mut Output<'_>,
) {
    let from = format!("{origin}, mapper {}", mapper.name);
    let source = match &*mapper.protocol_mapper {
        "oidc-usermodel-attribute-mapper" => mapper.setting("user.attribute").map(ClaimSource::Attribute),
        "oidc-hardcoded-claim-mapper" => mapper.setting("claim.value").map(ClaimSource::Value),
        "oidc-group-membership-mapper" => {
            let text = "the claim `groups` has the paths of the groups and one name for each role: request the scope `groups`";
            output.different(&from, text);
            return;
        }
        "oidc-usermodel-realm-role-mapper" => {
            let prefix = mapper.setting("usermodel.realmRoleMapping.rolePrefix");
            (prefix.is_none()).then_some(ClaimSource::Prefix("role:".to_owned()))
        }
        "oidc-usermodel-client-role-mapper" => mapper
            .setting("usermodel.clientRoleMapping.clientId")
            .and_then(|client| output.role_prefixes.get(client).cloned())
            .map(ClaimSource::Prefix),
        "oidc-sha256-pairwise-sub-mapper" => {
            output.no_equal(&from, "pairwise subjects are made in another way: set `subject = \"pairwise\"`; the client then sees new ones");
            return;
        }
        kind if BUILT_IN_MAPPERS.contains(&kind) => return,
        _ => None,
    };
    let (Some(source), Some(name)) = (source, mapper.setting("claim.name")) else {
        let text = format!(
            "a mapper of type {} has no equal: use a [[provider.claim]] of an attribute, of groups or of a value",
            mapper.protocol_mapper
        );
        output.no_equal(&from, &text);
        return;
    };
    write_claim(mapper, (header, scopes), (name, source), &from, output);
}

/// Where the value of a claim comes from.
enum ClaimSource<'m> {
    Attribute(&'m str),
    Value(&'m str),
    Prefix(String),
}

fn write_claim(
    mapper: &Mapper,
    (header, scopes): (&'static str, &[Value]),
    (name, source): (&str, ClaimSource<'_>),
    from: &str,
    output: &mut Output<'_>,
) {
    let path = claim_path(name);
    let first = path.first().map(String::as_str).unwrap_or_default();
    let is_free = first != "realm_access" && first != "resource_access";
    if !is_free || output.is_reserved(first) {
        output.no_equal(from, &format!("the claim {name} is the provider's own: choose another name"));
        return;
    }
    let targets =
        [("access.token.claim", "access"), ("id.token.claim", "id"), ("userinfo.token.claim", "userinfo")];
    let tokens: Vec<&str> =
        targets.iter().filter(|(key, _)| mapper.setting(key) == Some("true")).map(|(_, t)| *t).collect();
    let source = match source {
        ClaimSource::Attribute(attribute) => match output.attribute_names.get(attribute) {
            Some(name) => ("attribute", Value::from(name.as_str())),
            None => {
                output
                    .no_equal(from, "its attribute is a standard claim of another name, or is not declared");
                return;
            }
        },
        ClaimSource::Value(value) => ("value", typed(value, mapper.setting("jsonType.label"))),
        ClaimSource::Prefix(prefix) => ("group_prefix", prefix.into()),
    };
    if tokens.is_empty() {
        output.no_equal(from, "it is in no token");
        return;
    }
    let path = if path.len() == 1 { Value::from(first) } else { Value::from(path) };
    let table = output.draft.table(header).set("claim", path, from).set(source.0, source.1, "");
    if !scopes.is_empty() {
        table.set("scopes", scopes.to_vec(), "");
    }
    table.set("tokens", tokens, "");
    output.translated(from);
}

/// The names that lead to a claim: a dot separates them, unless a backslash is before it.
fn claim_path(name: &str) -> Vec<String> {
    let mut path = vec![String::new()];
    let mut characters = name.chars().peekable();
    while let Some(c) = characters.next() {
        let last = path.len() - 1;
        match c {
            '\\' if characters.peek() == Some(&'.') => {
                path[last].push('.');
                characters.next();
            }
            '.' => path.push(String::new()),
            c => path[last].push(c),
        }
    }
    path
}

fn typed(value: &str, label: Option<&str>) -> Value {
    match label {
        Some("int" | "long") => value.parse::<i64>().map_or_else(|_| value.into(), Value::from),
        Some("boolean") => value.parse::<bool>().map_or_else(|_| value.into(), Value::from),
        _ => value.into(),
    }
}

/// Writes the declarations of the attributes.
pub(super) fn of_attributes(attributes: &Attributes, output: &mut Output<'_>) {
    for (name, declared) in attributes.iter() {
        let from = format!("attribute {name}, which {} people have", declared.people);
        let table = output.draft.table("[[provider.attribute]]").set("name", declared.name.as_str(), &from);
        if declared.kind.as_str() != "string" {
            table.set("type", declared.kind.as_str(), "");
        }
        let setting = format!("attribute {name}");
        if declared.name == name {
            output.translated(&setting);
        } else {
            output.different(&setting, &format!("its name is {}", declared.name));
        }
    }
    for name in &attributes.left_out {
        output
            .no_equal(&format!("attribute {name}"), "there are too many attributes: its values are left out");
    }
}
