//! Tables that change route by route.

use auth::headers::Repeats;
use auth::policy::route::{CheckedRoute, HostSet, Order, PathMatch, RouteMatch, RouteTable, Scope};
use proptest::prelude::*;

use super::model::{a_route, expected};
use super::{exact, header, prefix, route};
use crate::fixtures::{get, request};

/// The first scope of a listener.
const LISTENER: Scope = Scope::new(1);

fn insert(table: &mut RouteTable, at: usize, route: &RouteMatch, order: Order, scope: Scope) {
    let hosts = HostSet::new(&route.hosts).unwrap();
    table.insert(at, CheckedRoute::new(route.clone(), order).unwrap(), [(scope, hosts)]);
}

fn found(table: &RouteTable, scope: Scope, host: &str, path: &str) -> Option<usize> {
    table.lookup(scope, &request("GET", host, path), &[], Repeats::Separate).unwrap()
}

#[test]
fn each_scope_has_its_own_routes() {
    let mut table = RouteTable::build(vec![route("file", prefix("/a"))]).unwrap();
    insert(&mut table, 5, &route("first", prefix("/a")), Order::default(), LISTENER);
    insert(&mut table, 6, &route("second", prefix("/b")), Order::default(), Scope::new(9));
    for (scope, path, route) in [
        (Scope::FILE, "/a", Some(0)),
        (LISTENER, "/a", Some(5)),
        (Scope::new(9), "/a", None),
        (Scope::new(9), "/b", Some(6)),
        (Scope::new(10), "/b", None),
        (Scope::new(4_000_000), "/b", None),
    ] {
        assert_eq!(found(&table, scope, "example.com", path), route, "{scope:?} {path}");
    }
}

#[test]
fn one_route_may_be_in_several_scopes_with_different_hosts() {
    let mut table = RouteTable::default();
    let hosts = |patterns: &[&str]| HostSet::new(patterns).unwrap();
    let places = [(LISTENER, hosts(&["a.test"])), (Scope::new(2), hosts(&["*.b.test", "c.test"]))];
    table.insert(3, CheckedRoute::new(route("r", prefix("/")), Order::default()).unwrap(), places);
    let at = |table: &RouteTable, scope, host| found(table, scope, host, "/");
    assert_eq!(at(&table, LISTENER, "a.test"), Some(3));
    assert_eq!(at(&table, LISTENER, "c.test"), None);
    assert_eq!(at(&table, Scope::new(2), "x.b.test"), Some(3));
    assert_eq!(at(&table, Scope::new(2), "c.test"), Some(3));
    let before = table.clone();
    table.remove(3);
    assert!(table.is_empty());
    assert_eq!(at(&table, Scope::new(2), "c.test"), None);
    assert_eq!(at(&before, Scope::new(2), "c.test"), Some(3), "a version stays as it was");
}

#[test]
fn the_older_object_wins_then_its_name_then_the_position() {
    let order = |created, object: &str, position| Order { created, object: object.into(), position };
    let mut table = RouteTable::default();
    let orders = [order(20, "a/a", 0), order(10, "b/b", 1), order(10, "b/b", 0), order(10, "b/a", 7)];
    for (at, order) in orders.into_iter().enumerate() {
        insert(&mut table, at, &route("r", exact("/x")), order, LISTENER);
    }
    for expected in [3, 2, 1, 0] {
        assert_eq!(found(&table, LISTENER, "h", "/x"), Some(expected));
        table.remove(expected);
    }
    assert_eq!(found(&table, LISTENER, "h", "/x"), None);
}

#[test]
fn a_replaced_route_leaves_nothing_behind() {
    let mut table = RouteTable::default();
    let first = RouteMatch { headers: vec![header("X-A", None)], ..route("r", exact("/old")) };
    insert(&mut table, 0, &first, Order::default(), LISTENER);
    assert_eq!(table.fields_read_by(0).collect::<Vec<_>>(), ["x-a"]);
    insert(&mut table, 0, &route("r", PathMatch::Any), Order::default(), Scope::new(2));
    assert_eq!((table.len(), table.fields_read_by(0).count()), (1, 0));
    assert_eq!(found(&table, LISTENER, "h", "/old"), None);
    assert_eq!(found(&table, Scope::new(2), "h", "/old"), Some(0));
    table.remove(7);
    assert_eq!(table.len(), 1);
}

#[test]
fn a_large_table_changes_by_one_route() {
    let mut table = RouteTable::default();
    for n in 0..5000 {
        let at = route("r", prefix(&format!("/notebook/team-{}/nb-{n}", n % 50)));
        insert(&mut table, n, &at, Order::in_file(n), LISTENER);
    }
    let before = table.clone();
    table.remove(4321);
    insert(&mut table, 5000, &route("new", prefix("/notebook/team-1/new")), Order::in_file(5000), LISTENER);
    let path = "/notebook/team-21/nb-4321/lab";
    assert_eq!((found(&before, LISTENER, "h", path), found(&table, LISTENER, "h", path)), (Some(4321), None));
    assert_eq!(found(&table, LISTENER, "h", "/notebook/team-1/new/x"), Some(5000));
    for n in (0..5000).filter(|n| *n != 4321) {
        let path = format!("/notebook/team-{}/nb-{n}/lab?x", n % 50);
        let lookup = |table: &RouteTable| table.lookup(LISTENER, &get(&path), &[], Repeats::Separate);
        assert_eq!((lookup(&before), lookup(&table)), (Ok(Some(n)), Ok(Some(n))), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// A table that routes were added to and removed from finds what the precedence says about the
    /// routes that are left.
    #[test]
    fn changes_leave_the_precedence_intact(steps in prop::collection::vec((0..6usize, a_route(), any::<bool>()), 1..30)) {
        let mut table = RouteTable::default();
        let mut held: Vec<Option<RouteMatch>> = vec![None; 6];
        for (at, route, adds) in steps {
            if adds {
                insert(&mut table, at, &route, Order::in_file(at), LISTENER);
                held[at] = Some(route);
            } else {
                table.remove(at);
                held[at] = None;
            }
            let (numbers, routes): (Vec<_>, Vec<_>) =
                held.iter().enumerate().filter_map(|(at, route)| Some((at, route.clone()?))).unzip();
            for host in ["a.x", "b.a.x", "x", "y"] {
                for path in ["/", "/a", "/a/", "/a/b", "/ab", "/a/b/a", "/b/b/b/b"] {
                    let expected = expected(&routes, host, path).map(|at| numbers[at]);
                    prop_assert_eq!(found(&table, LISTENER, host, path), expected, "{} {} in {:?}", host, path, routes);
                }
            }
        }
        for at in 0..6 {
            table.remove(at);
        }
        prop_assert!(table.is_empty());
    }
}
