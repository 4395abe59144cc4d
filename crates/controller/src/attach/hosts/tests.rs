//! Tests of the parent module.

use super::*;

fn listener() -> ListenerId {
    ListenerId { parent: ObjectKey::new(Kind::Gateway, "infra", "gw"), section: "http".into() }
}

fn key(kind: Kind, at: &str) -> ObjectKey {
    let (namespace, name) = at.split_once('/').unwrap();
    NamespacedName::new(namespace, name).of(kind)
}

fn on_listener(hosts: &[&str]) -> HostClaims {
    let hosts = hosts.iter().map(|host| Name::from(*host)).collect();
    HostClaims { hosts: vec![(HostScope::Listener(listener()), hosts)], path: None }
}

/// Whether the younger route loses its host to the older one, both HTTPRoutes.
fn loses_on_listener(exclusive: bool, older: (&str, &str), younger: (&str, &str)) -> bool {
    let mut claims = HostTable::new(exclusive);
    let (first, second) = (key(Kind::HttpRoute, older.0), key(Kind::HttpRoute, younger.0));
    let claim = |host: &str| on_listener(&[host]);
    claims.replace(&second, 2, claim(younger.1));
    let touched = claims.replace(&first, 1, claim(older.1));
    let is_lost = claims.older(&second, &listener()) == Some(first.clone());
    assert_eq!(claims.older(&first, &listener()), None);
    assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
    assert!(!is_lost || claims.replace(&first, 1, HostClaims::default()).contains(&second));
    is_lost
}

#[test]
fn an_exclusive_host_belongs_to_the_namespace_of_the_oldest() {
    for (older, younger, expected) in [
        (("a/x", "x.com"), ("b/y", "x.com"), true),
        (("a/x", "x.com"), ("a/y", "x.com"), false),
        (("a/x", "x.com"), ("b/y", "y.com"), false),
        (("a/x", "*.x.com"), ("b/y", "a.x.com"), true),
        (("a/x", "a.x.com"), ("b/y", "*.x.com"), true),
        (("a/x", "*"), ("b/y", "x.com"), false),
        (("a/x", "x.com"), ("b/y", "*"), false),
        (("a/x", "*"), ("b/y", "*"), true),
    ] {
        assert_eq!(loses_on_listener(true, older, younger), expected, "{older:?} {younger:?}");
        assert!(!loses_on_listener(false, older, younger), "{older:?} {younger:?}");
    }
}

#[test]
fn younger_routes_of_the_owner_keep_the_host() {
    let mut claims = HostTable::new(true);
    let claim = || on_listener(&["x.com"]);
    let routes = [("a/first", 1), ("b/other", 2), ("a/second", 3)];
    for (at, created) in routes {
        claims.replace(&key(Kind::HttpRoute, at), created, claim());
    }
    let older = |at: &str| claims.older(&key(Kind::HttpRoute, at), &listener());
    assert_eq!(older("b/other"), Some(key(Kind::HttpRoute, "a/first")));
    assert_eq!((older("a/first"), older("a/second")), (None, None));
}

#[test]
fn each_exclusive_host_has_its_own_owner() {
    let mut claims = HostTable::new(true);
    let routes: [(&str, &[&str]); 3] =
        [("a/first", &["x.com"]), ("b/other", &["y.com"]), ("a/second", &["x.com", "y.com"])];
    for (created, (at, hosts)) in (1..).zip(routes) {
        claims.replace(&key(Kind::HttpRoute, at), created, on_listener(hosts));
    }
    let older = claims.older(&key(Kind::HttpRoute, "a/second"), &listener());
    assert_eq!(older, Some(key(Kind::HttpRoute, "b/other")));
}

#[test]
fn a_changed_claim_touches_the_rivals_of_its_scope_alone() {
    let mut table = HostTable::new(true);
    table.replace(&key(Kind::HttpRoute, "b/route"), 1, on_listener(&["x.com"]));
    table.replace(&key(Kind::Ingress, "b/ingress"), 1, demands("x.com"));
    let both = |host: &str| HostClaims {
        hosts: on_listener(&["x.com"]).hosts.into_iter().chain(demands(host).hosts).collect(),
        path: None,
    };
    let object = key(Kind::HttpRoute, "a/one");
    assert_eq!(table.replace(&object, 2, both("x.com")).len(), 2);
    let touched = table.replace(&object, 2, both("y.com"));
    assert_eq!(touched, BTreeSet::from([key(Kind::Ingress, "b/ingress")]));
    assert_eq!(table.replace(&object, 3, both("y.com")), BTreeSet::from([key(Kind::HttpRoute, "b/route")]));
}

fn demands(host: &str) -> HostClaims {
    HostClaims::of_ingress(vec![Name::from(host)], None)
}

/// Whether the younger object of namespace `b` loses its host to the older one of `a`.
fn loses(older: (Kind, &str), younger: (Kind, &str)) -> bool {
    let mut owners = HostTable::default();
    let (first, second) = (key(older.0, "a/first"), key(younger.0, "b/second"));
    owners.replace(&second, 2, demands(younger.1));
    let touched = owners.replace(&first, 1, demands(older.1));
    let is_lost = owners.owner(&second, younger.1) == Some(first.clone());
    assert_eq!(owners.owner(&first, older.1), None);
    assert!(!is_lost || touched.contains(&second), "{older:?} {younger:?}");
    owners.replace(&first, 1, HostClaims::default());
    assert_eq!(owners.owner(&second, younger.1), None);
    is_lost
}

#[test]
fn a_host_belongs_to_the_namespace_of_the_oldest() {
    use Kind::{GrpcRoute, HttpRoute, Ingress, OpenShiftRoute};
    let cases = [
        ((Ingress, "x.com"), (Ingress, "x.com"), true),
        ((Ingress, "x.com"), (OpenShiftRoute, "x.com"), true),
        ((OpenShiftRoute, "x.com"), (Ingress, "x.com"), true),
        ((Ingress, "x.com"), (Ingress, "y.com"), false),
        ((Ingress, "*.x.com"), (Ingress, "a.x.com"), true),
        ((Ingress, "a.x.com"), (Ingress, "*.x.com"), true),
        ((Ingress, "*.x.com"), (Ingress, "*.a.x.com"), true),
        ((Ingress, "*.x.com"), (Ingress, "x.com"), false),
        ((Ingress, "*"), (Ingress, "x.com"), false),
        ((Ingress, "x.com"), (Ingress, "*"), false),
        ((Ingress, "*"), (Ingress, "*"), true),
        ((HttpRoute, "x.com"), (Ingress, "x.com"), true),
        ((GrpcRoute, "*.x.com"), (OpenShiftRoute, "a.x.com"), true),
        ((Ingress, "x.com"), (HttpRoute, "x.com"), true),
        ((Ingress, "*.x.com"), (HttpRoute, "a.x.com"), true),
        ((Ingress, "a.x.com"), (HttpRoute, "*.x.com"), false),
        ((HttpRoute, "x.com"), (HttpRoute, "x.com"), false),
        ((HttpRoute, "x.com"), (GrpcRoute, "x.com"), false),
    ];
    for (older, younger, expected) in cases {
        assert_eq!(loses(older, younger), expected, "{older:?} {younger:?}");
    }
}

#[test]
fn an_object_that_lost_its_host_takes_it_from_nobody() {
    for (stranger, late) in [
        (Kind::Ingress, Kind::Ingress),
        (Kind::OpenShiftRoute, Kind::Ingress),
        (Kind::Ingress, Kind::HttpRoute),
    ] {
        let mut owners = HostTable::default();
        let [first, second, third] =
            [key(Kind::HttpRoute, "a/first"), key(stranger, "b/second"), key(late, "a/third")];
        for (created, object) in (1..).zip([&first, &second, &third]) {
            owners.replace(object, created, demands("x.com"));
        }
        let lost: Vec<_> = [&first, &second, &third].map(|one| owners.owner(one, "x.com")).into();
        assert_eq!(lost, [None, Some(first.clone()), None], "{stranger:?} {late:?}");
        // Without the first the second has the host, and the third loses it.
        let touched = owners.replace(&first, 1, HostClaims::default());
        assert_eq!(touched, BTreeSet::from([second.clone(), third.clone()]));
        assert_eq!(owners.owner(&third, "x.com"), Some(second));
    }
}

#[test]
fn a_route_that_lost_its_listener_to_the_other_kind_takes_it_from_nobody() {
    let mut table = HostTable::default();
    let [first, grpc, third] =
        [key(Kind::HttpRoute, "a/h1"), key(Kind::GrpcRoute, "b/g"), key(Kind::HttpRoute, "a/h3")];
    let older = |table: &HostTable| {
        [&first, &grpc, &third].map(|route| table.older(route, &listener()).map(|one| one.to_string()))
    };
    let name = |route: &ObjectKey| Some(route.to_string());
    // The order of events has no influence.
    table.replace(&third, 3, on_listener(&["c.com"]));
    table.replace(&grpc, 2, on_listener(&[ANY_HOST]));
    assert_eq!(older(&table), [None, None, name(&grpc)]);
    let touched = table.replace(&first, 1, on_listener(&["a.com"]));
    assert_eq!(touched, BTreeSet::from([grpc.clone(), third.clone()]));
    assert_eq!(older(&table), [None, name(&first), None]);
    // While the first one holds it off, others come and go without it.
    assert_eq!(table.replace(&third, 3, HostClaims::default()), BTreeSet::from([grpc.clone()]));
    assert_eq!(table.replace(&third, 3, on_listener(&["d.com"])), BTreeSet::from([grpc.clone()]));
    assert_eq!(older(&table), [None, name(&first), None]);
    let touched = table.replace(&first, 1, HostClaims::default());
    assert_eq!(touched, BTreeSet::from([grpc.clone(), third.clone()]));
    assert_eq!(older(&table), [None, None, name(&grpc)]);
}

#[test]
fn a_wildcard_that_lost_takes_no_host_from_a_third_namespace() {
    let kinds = [(Kind::HttpRoute, true), (Kind::Ingress, false)];
    for (kind, on_a_listener) in kinds {
        let mut table = HostTable::new(on_a_listener);
        let routes = [("a/first", "a.x.com"), ("b/wild", "*.x.com"), ("c/third", "c.x.com")];
        let claim = |host: &str| if on_a_listener { on_listener(&[host]) } else { demands(host) };
        let lost = |table: &HostTable| {
            routes.map(|(at, host)| {
                let object = key(kind, at);
                let winner = match kind {
                    Kind::HttpRoute => table.older(&object, &listener()),
                    _ => table.owner(&object, host),
                };
                winner.map(|winner| winner.at.name.to_string())
            })
        };
        for (created, (at, host)) in (1..).zip(routes) {
            table.replace(&key(kind, at), created, claim(host));
        }
        assert_eq!(lost(&table), [None, Some("first".to_owned()), None], "{kind:?}");
        let touched = table.replace(&key(kind, "a/first"), 1, HostClaims::default());
        assert_eq!(touched, BTreeSet::from([key(kind, "b/wild"), key(kind, "c/third")]), "{kind:?}");
        assert_eq!(lost(&table)[1..], [None, Some("wild".to_owned())], "{kind:?}");
        let touched = table.replace(&key(kind, "a/first"), 1, claim("a.x.com"));
        assert!(touched.contains(&key(kind, "c/third")), "{kind:?}");
        assert_eq!(lost(&table), [None, Some("first".to_owned()), None], "{kind:?}");
    }
}

#[test]
fn a_wildcard_follows_the_oldest_host_within_it() {
    let mut table = HostTable::new(true);
    let wild = key(Kind::HttpRoute, "a/wild");
    table.replace(&key(Kind::HttpRoute, "b/other"), 2, on_listener(&["b.x.com"]));
    table.replace(&wild, 3, on_listener(&["*.x.com"]));
    assert!(table.older(&wild, &listener()).is_some());
    let first = key(Kind::HttpRoute, "a/first");
    assert!(table.replace(&first, 1, on_listener(&["a.x.com"])).contains(&wild));
    assert_eq!(table.older(&wild, &listener()), None, "the oldest host within it is of its namespace");
    assert!(table.replace(&first, 1, HostClaims::default()).contains(&wild));
    assert!(table.older(&wild, &listener()).is_some());
}

#[test]
fn routes_share_a_host_until_its_owner_has_an_older_ingress() {
    let mut owners = HostTable::default();
    let [first, second] = ["a/first", "b/second"].map(|at| key(Kind::HttpRoute, at));
    owners.replace(&first, 1, demands("x.com"));
    assert_eq!(owners.replace(&second, 3, demands("x.com")), BTreeSet::new());
    owners.replace(&key(Kind::Ingress, "a/young"), 4, demands("x.com"));
    assert_eq!(owners.owner(&second, "x.com"), None);
    let ingress = key(Kind::Ingress, "a/old");
    assert!(owners.replace(&ingress, 2, demands("x.com")).contains(&second));
    assert_eq!(owners.owner(&second, "x.com"), Some(ingress));
    assert_eq!(owners.owner(&first, "x.com"), None);
}

#[test]
fn objects_of_a_namespace_share_a_host_but_two_routes_no_path() {
    let mut owners = HostTable::default();
    let at = |path: &str| HostClaims { path: Some(Name::from(path)), ..demands("x.com") };
    let [first, second, other] =
        ["a/first", "a/second", "a/other"].map(|name| key(Kind::OpenShiftRoute, name));
    owners.replace(&first, 1, at("/"));
    owners.replace(&second, 2, at("/"));
    owners.replace(&other, 3, at("/other"));
    owners.replace(&key(Kind::Ingress, "a/ingress"), 0, demands("x.com"));
    assert_eq!(owners.duplicate(&second), Some(first.clone()));
    assert_eq!(owners.duplicate(&other), None);
    assert_eq!(owners.duplicate(&first), None);
    assert_eq!(owners.owner(&second, "x.com"), None);
}
