//! Who has which hosts after any sequence of claims: as if all claims had come in the order of age, and
//! whoever it changes for is touched.

use std::collections::BTreeMap;

use controller::attach::{ANY_HOST, HostClaims, HostScope, HostTable};
use controller::names::{Kind, Name, ObjectKey};
use controller::plan::ListenerId;
use proptest::prelude::*;

use crate::cluster::key;

const OBJECTS: [(Kind, &str); 9] = [
    (Kind::HttpRoute, "a/one"),
    (Kind::HttpRoute, "b/two"),
    (Kind::GrpcRoute, "a/three"),
    (Kind::GrpcRoute, "c/four"),
    (Kind::HttpRoute, "a/five"),
    (Kind::HttpRoute, "c/six"),
    (Kind::Ingress, "a/seven"),
    (Kind::Ingress, "b/eight"),
    (Kind::OpenShiftRoute, "c/nine"),
];

const HOSTS: [&str; 6] = [ANY_HOST, "*.x.com", "a.x.com", "b.x.com", "*.b.x.com", "y.com"];

/// Which object, when it was created, and a bit for each host that it claims. Without any it is gone.
type Step = (usize, i64, u8);

/// The objects with claims.
type Objects = BTreeMap<ObjectKey, (i64, u8)>;

fn listener() -> ListenerId {
    ListenerId { parent: key(Kind::Gateway, "infra/gw"), section: Name::from("http") }
}

fn claims(kind: Kind, bits: u8) -> HostClaims {
    let hosts = HOSTS.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    let hosts: Vec<Name> = hosts.map(|(_, host)| Name::from(*host)).collect();
    if kind.is_ingress() {
        return HostClaims::of_ingress(hosts, None);
    }
    let own: Vec<Name> = hosts.iter().filter(|host| host.as_str() != ANY_HOST).cloned().collect();
    let scopes = [(HostScope::Listener(listener()), hosts), (HostScope::IngressGateway, own)];
    HostClaims { hosts: scopes.into_iter().filter(|(_, hosts)| !hosts.is_empty()).collect(), path: None }
}

/// To whom each object loses the listener, and each of its hosts where Ingresses are served.
fn outcomes(table: &HostTable, objects: &Objects) -> BTreeMap<ObjectKey, Vec<Option<ObjectKey>>> {
    let of_object = |object: &ObjectKey, bits: u8| {
        let mut outcome = vec![table.older(object, &listener())];
        for (scope, hosts) in claims(object.kind, bits).hosts {
            if scope == HostScope::IngressGateway {
                outcome.extend(hosts.iter().map(|host| table.owner(object, host)));
            }
        }
        outcome
    };
    objects.iter().map(|(object, (_, bits))| (object.clone(), of_object(object, *bits))).collect()
}

/// A table that learns of the oldest claim first: nobody loses what it was given.
fn from_the_oldest_on(exclusive: bool, objects: &Objects) -> HostTable {
    let mut by_age: Vec<_> = objects.iter().collect();
    by_age.sort_by_key(|(object, (created, _))| (*created, object.at.clone(), object.kind));
    let mut table = HostTable::new(exclusive);
    for (object, (created, bits)) in by_age {
        table.replace(object, *created, claims(object.kind, *bits));
    }
    table
}

fn run(exclusive: bool, steps: &[Step]) {
    let mut table = HostTable::new(exclusive);
    let mut objects = Objects::new();
    for (index, created, bits) in steps {
        let (kind, at) = OBJECTS[*index];
        let object = key(kind, at);
        let before = outcomes(&table, &objects);
        let touched = table.replace(&object, *created, claims(kind, *bits));
        objects.insert(object.clone(), (*created, *bits));
        let after = outcomes(&table, &objects);
        assert_eq!(after, outcomes(&from_the_oldest_on(exclusive, &objects), &objects));
        for (other, outcome) in &after {
            let is_same = before.get(other) == Some(outcome);
            assert!(is_same || *other == object || touched.contains(other), "{other} is not touched");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_has_a_host_depends_on_the_claims_alone(
        exclusive in any::<bool>(),
        steps in proptest::collection::vec((0..OBJECTS.len(), 0..4_i64, 0..64_u8), 1..30),
    ) {
        run(exclusive, &steps);
    }
}
