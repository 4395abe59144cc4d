//! Hosts that objects claim on the listeners of a Gateway, and who has them.
//!
//! Owns: which of two objects gets a host that both claim and cannot share. HTTPRoutes and GRPCRoutes
//! claim hosts on listeners: the standard accepts exactly one of two routes of different kinds, the
//! older, then the first by name (`GRPCRoute.hostnames`). With exclusive hosts also which of two
//! namespaces gets a host: that of the oldest route. Ingresses and Routes of OpenShift claim hosts on
//! the Gateway that serves them, where a host belongs to the namespace of the oldest object that claims
//! it, a wildcard that includes it, or, if it is a wildcard itself, a host within it. HTTPRoutes and
//! GRPCRoutes share hosts among themselves there, and with Ingresses and Routes of their namespace
//! alone.
//! Does not own: on which listeners an object is served ([`super`], [`crate::ingress`]).
//! Flow: `replace` notes the claims of an object; `older`, `owner` and `duplicate` say to whom it loses.
//!
//! An object yields only to older ones that have their hosts: one that had to yield itself takes
//! nothing from anybody. Who has a host is decided in order of age, so the result depends on the claims
//! alone, not on the order of events. It is decided when a claim changes, and only for the objects for
//! which something may differ.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::includes;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::Seconds;
use crate::plan::ListenerId;

/// Stands for every host.
pub const ANY_HOST: &str = "*";

/// Where hosts are claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostScope {
    /// A listener.
    Listener(ListenerId),
    /// The Gateway that serves Ingresses and Routes, with all of its own listeners.
    IngressGateway,
}

/// A scope with the hosts that are claimed there: names, wildcards, or [`ANY_HOST`]. Not empty.
pub type HostClaim = (HostScope, Vec<Name>);

/// What an object claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostClaims {
    /// Each scope once.
    pub hosts: Vec<HostClaim>,
    /// The path of a Route. Two Routes of a namespace cannot have the same host and path.
    pub path: Option<Name>,
}

impl HostClaims {
    /// The claims of an Ingress or Route.
    pub fn of_ingress(hosts: Vec<Name>, path: Option<Name>) -> Self {
        let hosts = (!hosts.is_empty()).then_some((HostScope::IngressGateway, hosts));
        Self { hosts: hosts.into_iter().collect(), path }
    }

    fn on(&self, scope: &HostScope) -> Option<&[Name]> {
        self.hosts.iter().find(|(claimed, _)| claimed == scope).map(|(_, hosts)| &hosts[..])
    }
}

/// An object that claims a host. The oldest is the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    created: Seconds,
    at: NamespacedName,
    kind: Kind,
}

impl Claimant {
    fn new(object: &ObjectKey, created: Seconds) -> Self {
        Self { created, at: object.at.clone(), kind: object.kind }
    }

    fn key(&self) -> ObjectKey {
        self.at.clone().of(self.kind)
    }
}

/// Who claims a host.
#[derive(Debug, Default)]
struct Claimants {
    /// Not empty.
    all: BTreeSet<Claimant>,
    /// Those of them that have it.
    holders: BTreeSet<Claimant>,
}

/// The claims of the objects of one kind in a scope.
#[derive(Debug, Default)]
struct KindClaims {
    by_host: HashMap<Name, Claimants>,
    /// For each pattern, who has a host that it includes, other than itself, and which.
    within: HashMap<Name, BTreeSet<(Claimant, Name)>>,
}

impl KindClaims {
    fn add(&mut self, claimant: &Claimant, host: &Name) {
        self.by_host.entry(host.clone()).or_default().all.insert(claimant.clone());
    }

    /// Removes a claim. Returns whether the claimant had the host.
    fn remove(&mut self, claimant: &Claimant, host: &Name) -> bool {
        let had = self.take(claimant, host);
        if let Some(claimants) = self.by_host.get_mut(host) {
            claimants.all.remove(claimant);
            if claimants.all.is_empty() {
                self.by_host.remove(host);
            }
        }
        had
    }

    /// Gives a claimant the host. Returns whether it did not have it.
    fn give(&mut self, claimant: &Claimant, host: &Name) -> bool {
        let Some(claimants) = self.by_host.get_mut(host) else { return false };
        let is_new = claimants.holders.insert(claimant.clone());
        if is_new {
            for pattern in above(host).into_iter().skip(1) {
                let within = self.within.entry(Name::from(pattern)).or_default();
                within.insert((claimant.clone(), host.clone()));
            }
        }
        is_new
    }

    /// Takes the host from a claimant. Returns whether it had it.
    fn take(&mut self, claimant: &Claimant, host: &Name) -> bool {
        let Some(claimants) = self.by_host.get_mut(host) else { return false };
        let had = claimants.holders.remove(claimant);
        if had {
            let held = (claimant.clone(), host.clone());
            for pattern in above(host).into_iter().skip(1) {
                if let Some(within) = self.within.get_mut(pattern.as_str()) {
                    within.remove(&held);
                    if within.is_empty() {
                        self.within.remove(pattern.as_str());
                    }
                }
            }
        }
        had
    }

    /// The host and the patterns that include it, with their claimants.
    fn around(&self, host: &str, any: AnyHost) -> Vec<(&Name, &Claimants)> {
        let counts = |other: &str| host == other || other != ANY_HOST || any == AnyHost::IncludesAll;
        let patterns = above(host).into_iter().filter(|pattern| counts(pattern));
        patterns.filter_map(|pattern| self.by_host.get_key_value(pattern.as_str())).collect()
    }

    /// The hosts that have names in common with `host`, with their claimants.
    fn overlapping(&self, host: &str, any: AnyHost) -> Vec<(&Name, &Claimants)> {
        let mut found = self.around(host, any);
        // A pattern may include any of the hosts; an exact name is only in those above it.
        if host.starts_with('*') && (host != ANY_HOST || any == AnyHost::IncludesAll) {
            found.extend(self.by_host.iter().filter(|(other, _)| covers(host, other)));
        }
        found
    }

    /// The oldest that has the host, or a pattern that includes it.
    fn oldest_around(&self, host: &str, any: AnyHost) -> Option<&Claimant> {
        let around = self.around(host, any).into_iter();
        around.filter_map(|(_, claimants)| claimants.holders.first()).min()
    }

    /// The oldest that has a host with names in common with `host`.
    fn oldest(&self, host: &str, any: AnyHost) -> Option<&Claimant> {
        let counts = host != ANY_HOST || any == AnyHost::IncludesAll;
        let within = self.within.get(host).filter(|_| counts).and_then(BTreeSet::first);
        self.oldest_around(host, any).into_iter().chain(within.map(|(claimant, _)| claimant)).min()
    }
}

/// Whether [`ANY_HOST`] takes hosts from others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnyHost {
    /// It includes each host.
    IncludesAll,
    /// Each host is more specific, so it counts for itself alone.
    Alone,
}

/// The claims of all objects.
#[derive(Debug, Default)]
pub struct HostTable {
    /// Whether routes of two namespaces cannot share a host.
    exclusive: bool,
    objects: HashMap<ObjectKey, (Seconds, HostClaims)>,
    scopes: HashMap<HostScope, BTreeMap<Kind, KindClaims>>,
}

impl HostTable {
    /// No claims. `exclusive`: see [`crate::settings::Settings::exclusive_hosts`].
    pub fn new(exclusive: bool) -> Self {
        Self { exclusive, ..Self::default() }
    }

    /// Replaces the claims of an object. Returns the objects that claim one of the same hosts and must
    /// not share it, and those that do so with one of them that wins or loses by it: what becomes of
    /// them may differ.
    pub fn replace(
        &mut self,
        object: &ObjectKey,
        created: Seconds,
        claims: HostClaims,
    ) -> BTreeSet<ObjectKey> {
        let new = (!claims.hosts.is_empty()).then_some((created, claims));
        if self.objects.get(object) == new.as_ref() {
            return BTreeSet::new();
        }
        let former = self.objects.remove(object);
        let rest = |side: &Option<(Seconds, HostClaims)>| {
            side.as_ref().map(|(created, claims)| (*created, claims.path.clone()))
        };
        let is_comparable = rest(&former) == rest(&new);
        let is_in = |claim: &HostClaim, side: &Option<(Seconds, HostClaims)>| {
            is_comparable && side.iter().any(|(_, claims)| claims.hosts.contains(claim))
        };
        let mut touched = BTreeSet::new();
        let mut pending: HashMap<HostScope, BTreeSet<Claimant>> = HashMap::new();
        if let Some((created, claims)) = &former {
            let own = Claimant::new(object, *created);
            for claim in claims.hosts.iter().filter(|claim| !is_in(claim, &new)) {
                let had = self.remove(&own, claim);
                let rivals = self.rivals(&own, claim);
                touched.extend(rivals.iter().map(Claimant::key));
                if had {
                    let younger = rivals.into_iter().filter(|rival| *rival > own);
                    pending.entry(claim.0.clone()).or_default().extend(younger);
                }
            }
        }
        if let Some((created, claims)) = &new {
            let own = Claimant::new(object, *created);
            for claim in claims.hosts.iter().filter(|claim| !is_in(claim, &former)) {
                touched.extend(self.rivals(&own, claim).iter().map(Claimant::key));
                self.add(&own, claim);
                pending.entry(claim.0.clone()).or_default().insert(own.clone());
            }
        }
        self.objects.extend(new.map(|new| (object.clone(), new)));
        for (scope, pending) in pending {
            self.settle(&scope, pending, &mut touched);
        }
        touched.remove(object);
        touched
    }

    fn add(&mut self, claimant: &Claimant, (scope, hosts): &HostClaim) {
        let kinds = self.scopes.entry(scope.clone()).or_default();
        let claims = kinds.entry(claimant.kind).or_default();
        for host in hosts {
            claims.add(claimant, host);
        }
    }

    /// Removes a claim. Returns whether the claimant had one of the hosts.
    fn remove(&mut self, claimant: &Claimant, (scope, hosts): &HostClaim) -> bool {
        let Some(kinds) = self.scopes.get_mut(scope) else { return false };
        let mut had = false;
        if let Some(claims) = kinds.get_mut(&claimant.kind) {
            for host in hosts {
                had |= claims.remove(claimant, host);
            }
            if claims.by_host.is_empty() {
                kinds.remove(&claimant.kind);
            }
        }
        if kinds.is_empty() {
            self.scopes.remove(scope);
        }
        had
    }

    /// Decides again who has which hosts, from the oldest of `pending` on. If that differs for one, it
    /// may differ for its younger rivals, which are noted in `touched`.
    fn settle(
        &mut self,
        scope: &HostScope,
        mut pending: BTreeSet<Claimant>,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        while let Some(claimant) = pending.pop_first() {
            let hosts = self.decide(&claimant, scope);
            if hosts.is_empty() {
                continue;
            }
            let rivals = self.rivals(&claimant, &(scope.clone(), hosts));
            for younger in rivals.into_iter().filter(|rival| *rival > claimant) {
                touched.insert(younger.key());
                pending.insert(younger);
            }
        }
    }

    /// Decides which of its hosts a claimant has: on a listener all of them or none. Who is older has
    /// been decided. Returns the hosts for which it differs from before.
    fn decide(&mut self, claimant: &Claimant, scope: &HostScope) -> Vec<Name> {
        let claims = self.objects.get(&claimant.key()).and_then(|(_, claims)| claims.on(scope));
        let hosts = claims.unwrap_or_default();
        let decided: Vec<(Name, bool)> = match scope {
            HostScope::Listener(_) => {
                let has_all = self.older_of(claimant, scope, hosts).is_none();
                hosts.iter().map(|host| (host.clone(), has_all)).collect()
            }
            HostScope::IngressGateway => {
                hosts.iter().map(|host| (host.clone(), self.owner_of(claimant, host).is_none())).collect()
            }
        };
        let claims = self.scopes.get_mut(scope).and_then(|kinds| kinds.get_mut(&claimant.kind));
        let Some(claims) = claims else { return Vec::new() };
        let mut changed = Vec::new();
        for (host, has) in decided {
            let differs = if has { claims.give(claimant, &host) } else { claims.take(claimant, &host) };
            if differs {
                changed.push(host);
            }
        }
        changed
    }

    /// The claimants of hosts that have names in common with `host`, of the kinds that count.
    fn related<'a>(
        &'a self,
        (scope, host): (&HostScope, &str),
        any: AnyHost,
        counts: impl Fn(Kind) -> bool,
    ) -> Vec<(&'a Name, &'a Claimants)> {
        let kinds = self.scopes.get(scope).into_iter().flatten().filter(|(kind, _)| counts(**kind));
        kinds.flat_map(|(_, claims)| claims.overlapping(host, any)).collect()
    }

    /// The objects for which something may differ, if `own` has these hosts or no longer does.
    fn rivals(&self, own: &Claimant, (scope, hosts): &HostClaim) -> BTreeSet<Claimant> {
        let mut found = BTreeSet::new();
        let mut add = |related: &[(&Name, &Claimants)], counts: &dyn Fn(&&Claimant) -> bool| {
            let claimants = related.iter().flat_map(|(_, claimants)| &claimants.all);
            found.extend(claimants.filter(counts).cloned());
        };
        for host in hosts {
            let at = (scope, host.as_str());
            match scope {
                HostScope::Listener(_) => {
                    add(&self.related(at, AnyHost::IncludesAll, |kind| kind != own.kind), &|_| true);
                    if self.exclusive {
                        // Younger ones of the namespace may share the host, or no longer.
                        let counts =
                            |other: &&Claimant| other.at.namespace != own.at.namespace || **other > *own;
                        add(&self.related(at, AnyHost::Alone, |_| true), &counts);
                    }
                }
                HostScope::IngressGateway => {
                    let ingresses = self.related(at, AnyHost::Alone, Kind::is_ingress);
                    // Routes of the Gateway API alone have nothing to settle here.
                    if own.kind.is_ingress() || !ingresses.is_empty() {
                        add(&self.related(at, AnyHost::Alone, |_| true), &|_| true);
                    }
                }
            }
        }
        found
    }

    /// The oldest route that has a host of `route` on a listener before it, and does not share it.
    pub fn older(&self, route: &ObjectKey, listener: &ListenerId) -> Option<ObjectKey> {
        let (created, claims) = self.objects.get(route)?;
        let (own, scope) = (Claimant::new(route, *created), HostScope::Listener(listener.clone()));
        self.older_of(&own, &scope, claims.on(&scope)?).map(Claimant::key)
    }

    fn older_of(&self, own: &Claimant, scope: &HostScope, hosts: &[Name]) -> Option<&Claimant> {
        let oldest = hosts.iter().filter_map(|host| {
            let at = (scope, host.as_str());
            let of_other_kind = self.oldest(at, AnyHost::IncludesAll, |kind| kind != own.kind);
            let owner = self.oldest(at, AnyHost::Alone, |_| self.exclusive);
            // Younger routes of the namespace that has the host share it.
            let owner = owner.filter(|owner| owner.at.namespace != own.at.namespace);
            of_other_kind.into_iter().chain(owner).min()
        });
        oldest.min().filter(|oldest| **oldest < *own)
    }

    /// The oldest that has a host with names in common with `host`, of the kinds that count.
    fn oldest(
        &self,
        (scope, host): (&HostScope, &str),
        any: AnyHost,
        counts: impl Fn(Kind) -> bool,
    ) -> Option<&Claimant> {
        let kinds = self.scopes.get(scope)?.iter().filter(|(kind, _)| counts(**kind));
        kinds.filter_map(|(_, claims)| claims.oldest(host, any)).min()
    }

    /// The oldest object of the namespace to which `object` loses a host on the Gateway that serves
    /// Ingresses.
    pub fn owner(&self, object: &ObjectKey, host: &str) -> Option<ObjectKey> {
        let (created, _) = self.objects.get(object)?;
        let own = Claimant::new(object, *created);
        self.owner_of(&own, host).map(Claimant::key)
    }

    fn owner_of(&self, own: &Claimant, host: &str) -> Option<&Claimant> {
        let kinds = self.scopes.get(&HostScope::IngressGateway)?;
        let is_ingress = own.kind.is_ingress();
        let oldest = kinds.values().filter_map(|claims| {
            if is_ingress {
                claims.oldest(host, AnyHost::Alone)
            } else {
                // A route of the Gateway API may have a wildcard around a host of others: it takes nothing.
                claims.oldest_around(host, AnyHost::Alone)
            }
        });
        let oldest = oldest.min().filter(|oldest| **oldest < *own)?;
        if oldest.at.namespace == own.at.namespace {
            return None;
        }
        if is_ingress {
            return Some(oldest);
        }
        // Two routes may share the host, but not with an older Ingress of its owner.
        let ingresses = kinds.iter().filter(|(kind, _)| kind.is_ingress());
        let around = ingresses.flat_map(|(_, claims)| claims.around(host, AnyHost::Alone));
        let of_owner = around.filter_map(|(_, claimants)| {
            claimants.holders.iter().find(|other| other.at.namespace == oldest.at.namespace)
        });
        of_owner.min().filter(|ingress| **ingress < *own)
    }

    /// The oldest Route of the same namespace with the host and path of the Route `object`, if it is
    /// older.
    pub fn duplicate(&self, object: &ObjectKey) -> Option<ObjectKey> {
        let (created, claims) = self.objects.get(object)?;
        let own = Claimant::new(object, *created);
        let is_same = |other: &&Claimant| {
            other.at.namespace == object.at.namespace
                && self.objects.get(&other.key()).is_some_and(|(_, other)| other == claims)
        };
        let host = claims.on(&HostScope::IngressGateway)?.first()?;
        let routes = self.scopes.get(&HostScope::IngressGateway)?.get(&Kind::OpenShiftRoute)?;
        let mut older = routes.by_host.get(host)?.all.iter().take_while(|other| **other < own);
        older.find(is_same).map(Claimant::key)
    }
}

/// Whether the pattern `broad` includes the host or pattern `narrow`, other than itself.
fn covers(broad: &str, narrow: &str) -> bool {
    broad != narrow && (broad == ANY_HOST || includes(broad, narrow))
}

/// The host, and every pattern that includes it.
pub(super) fn above(host: &str) -> Vec<String> {
    let mut found = vec![host.to_owned()];
    if host == ANY_HOST {
        return found;
    }
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    while let Some((_, parent)) = rest.split_once('.') {
        found.push(format!("*.{parent}"));
        rest = parent;
    }
    found.push(ANY_HOST.to_owned());
    found
}

#[cfg(test)]
mod tests;
