//! Roles: which group stands for which role, and the roles that follow from others and from groups.

use std::collections::{BTreeMap, BTreeSet};

use super::export::{ClientRoles, Group, Realm};

/// Clients that Keycloak creates in every realm.
const BUILT_IN_CLIENTS: [&str; 6] =
    ["account", "account-console", "admin-cli", "broker", "realm-management", "security-admin-console"];
/// Roles that Keycloak creates in every realm, besides `default-roles-REALM`.
const BUILT_IN_ROLES: [&str; 2] = ["offline_access", "uma_authorization"];
/// Prefix of the groups of a realm's roles.
const REALM_PREFIX: &str = "role:";

/// Whether Keycloak has created a client itself.
pub(super) fn is_built_in_client(id: &str) -> bool {
    // The realm `master` has one for each realm.
    BUILT_IN_CLIENTS.contains(&id) || id.ends_with("-realm")
}

/// A role: of the realm, or of a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoleName {
    /// `None`: of the realm.
    pub client: Option<String>,
    pub name: String,
}

impl RoleName {
    fn of_realm(name: &str) -> Self {
        Self { client: None, name: name.to_owned() }
    }

    fn of_client(client: &str, name: &str) -> Self {
        Self { client: Some(client.to_owned()), name: name.to_owned() }
    }
}

/// All roles of these two lists.
pub(super) fn named(realm: &[String], clients: &ClientRoles) -> Vec<RoleName> {
    let of_clients = clients
        .iter()
        .flat_map(|(client, names)| names.iter().map(move |name| RoleName::of_client(client, name)));
    realm.iter().map(|name| RoleName::of_realm(name)).chain(of_clients).collect()
}

/// The roles and groups of a realm.
#[derive(Debug, Default)]
pub(super) struct RoleGraph {
    realm: String,
    /// The roles that a role contains itself.
    contains: BTreeMap<RoleName, Vec<RoleName>>,
    /// The roles of a group by its path, with those of the groups around it.
    of_groups: BTreeMap<String, Vec<RoleName>>,
    /// Prefix of the groups of a client's roles.
    prefixes: BTreeMap<String, String>,
}

impl RoleGraph {
    pub(super) fn new(realm: &Realm) -> Self {
        let mut graph = Self { realm: realm.realm.clone(), ..Self::default() };
        for role in &realm.roles.realm {
            let inner = named(&role.composites.realm, &role.composites.client);
            graph.contains.insert(RoleName::of_realm(&role.name), inner);
        }
        for (client, roles) in &realm.roles.client {
            for role in roles {
                let inner = named(&role.composites.realm, &role.composites.client);
                graph.contains.insert(RoleName::of_client(client, &role.name), inner);
            }
            if !roles.is_empty() && !is_built_in_client(client) {
                let prefix = free_prefix(client, &graph.prefixes.values());
                graph.prefixes.insert(client.clone(), prefix);
            }
        }
        for group in &realm.groups {
            graph.add_group(group, "", &[]);
        }
        graph
    }

    fn add_group(&mut self, group: &Group, above: &str, inherited: &[RoleName]) {
        let path = group.path.clone().unwrap_or_else(|| format!("{above}/{}", group.name));
        let mut roles = named(&group.realm_roles, &group.client_roles);
        roles.extend_from_slice(inherited);
        for inner in &group.sub_groups {
            self.add_group(inner, &path, &roles);
        }
        self.of_groups.insert(path, roles);
    }

    /// Paths of all groups.
    pub(super) fn group_paths(&self) -> impl Iterator<Item = &str> {
        self.of_groups.keys().map(String::as_str)
    }

    /// Whether there is a group with this path.
    pub(super) fn has_group(&self, path: &str) -> bool {
        self.of_groups.contains_key(path)
    }

    /// Clients with roles, and the prefix of the groups of these.
    pub(super) fn clients(&self) -> impl Iterator<Item = (&str, &str)> {
        self.prefixes.iter().map(|(client, prefix)| (&**client, &**prefix))
    }

    /// Prefix of the groups of the realm's roles.
    #[expect(clippy::unused_self, reason = "as for clients")]
    pub(super) fn realm_prefix(&self) -> &'static str {
        REALM_PREFIX
    }

    /// Clients whose groups do not begin with their id, because another prefix begins like it.
    pub(super) fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.clients().filter(|(client, prefix)| **prefix != format!("{client}:"))
    }

    /// The group that stands for a role. `None`: Keycloak has created the role itself.
    pub(super) fn group_of(&self, role: &RoleName) -> Option<String> {
        match &role.client {
            Some(client) => Some(format!("{}{}", self.prefixes.get(client)?, role.name)),
            None => (!self.is_built_in_role(&role.name)).then(|| format!("{REALM_PREFIX}{}", role.name)),
        }
    }

    fn is_built_in_role(&self, name: &str) -> bool {
        // Keycloak writes the name of the realm in lower case.
        BUILT_IN_ROLES.contains(&name)
            || name.strip_prefix("default-roles-") == Some(&*self.realm.to_lowercase())
    }

    /// The roles with all that follow from them.
    pub(super) fn expanded(&self, roles: impl IntoIterator<Item = RoleName>) -> BTreeSet<RoleName> {
        let mut found = BTreeSet::new();
        let mut waiting: Vec<RoleName> = roles.into_iter().collect();
        while let Some(role) = waiting.pop() {
            if let Some(inner) = self.contains.get(&role) {
                waiting.extend(inner.iter().filter(|inner| !found.contains(*inner)).cloned());
            }
            found.insert(role);
        }
        found
    }

    /// Groups of someone with these roles, in these groups of Keycloak: their paths, and one for each
    /// role that follows. A path that is not in the export is left out.
    pub(super) fn groups_of(&self, roles: Vec<RoleName>, paths: &[String]) -> BTreeSet<String> {
        let known: Vec<&String> = paths.iter().filter(|path| self.has_group(path)).collect();
        let through_groups = known.iter().filter_map(|path| self.of_groups.get(*path)).flatten().cloned();
        let all = self.expanded(roles.into_iter().chain(through_groups));
        let of_roles = all.iter().filter_map(|role| self.group_of(role));
        known.into_iter().cloned().chain(of_roles).collect()
    }

    /// All roles that have a group.
    pub(super) fn all_groups(&self) -> BTreeSet<String> {
        let of_roles = self.contains.keys().filter_map(|role| self.group_of(role));
        self.of_groups.keys().cloned().chain(of_roles).collect()
    }
}

/// A prefix that no other one begins with, and that begins with no other. So no role of one client
/// can be taken for one of another client or of the realm, whatever its name is.
fn free_prefix<'p>(client: &str, taken: &(impl Iterator<Item = &'p String> + Clone)) -> String {
    let mut prefix = format!("{client}:");
    let collides = |prefix: &str| {
        let taken = taken.clone().map(String::as_str).chain([REALM_PREFIX, "/"]);
        taken.into_iter().any(|other| other.starts_with(prefix) || prefix.starts_with(other))
    };
    while collides(&prefix) {
        prefix.insert(0, '~');
    }
    prefix
}
