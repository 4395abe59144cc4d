//! Conditions on the query.

use auth::headers::Repeats;
use auth::policy::PolicyProblem;
use auth::policy::route::{AmbiguousRoute, PathMatch, QueryMatch, RouteMatch, Scope};

use super::{Routes, faults, route};
use crate::fixtures::get;

fn parameter(name: &str, value: Option<&str>) -> QueryMatch {
    QueryMatch { name: name.into(), value: value.map(Into::into), distinct: Vec::new() }
}

fn with_query(name: &str, query: Vec<QueryMatch>) -> RouteMatch {
    RouteMatch { query, ..route(name, PathMatch::Any) }
}

fn zoo() -> Routes {
    Routes::new(vec![
        with_query("whale", vec![parameter("animal", Some("whale"))]),
        with_query("blue", vec![parameter("animal", Some("whale")), parameter("colour", Some("dark blue"))]),
        with_query("any", vec![parameter("animal", None)]),
        route("plain", PathMatch::Any),
    ])
}

#[test]
fn parameters_are_exact_or_present_and_read_as_a_form() {
    let routes = zoo();
    for (target, expected) in [
        ("/?animal=whale", "whale"),
        ("/?x=1&animal=whale&y=2", "whale"),
        ("/?%61nimal=wh%61le", "whale"),
        ("/?animal=whale&colour=dark+blue", "blue"),
        ("/?colour=dark%20blue&animal=whale", "blue"),
        ("/?animal=whale&colour=red", "whale"),
        ("/?animal=Whale", "any"),
        ("/?animal=whales", "any"),
        ("/?animal", "any"),
        ("/?animal=", "any"),
        ("/?animals=whale", "plain"),
        ("/?colour=dark+blue", "plain"),
        ("/?", "plain"),
        ("/", "plain"),
    ] {
        assert_eq!(routes.path(target), expected, "{target}");
    }
}

#[test]
fn names_that_the_author_distinguishes_by_case_are_different_parameters() {
    let distinct = |name: &str, value: &str, other: &str| QueryMatch {
        distinct: vec![other.into()],
        ..parameter(name, Some(value))
    };
    let routes = Routes::new(vec![
        with_query("lower", vec![distinct("animal", "whale", "ANIMAL")]),
        with_query("upper", vec![distinct("ANIMAL", "Whale", "animal")]),
    ]);
    for (target, expected) in [
        ("/?animal=whale", "lower"),
        ("/?ANIMAL=Whale", "upper"),
        ("/?animal=dog", "none"),
        ("/?animal=dog&ANIMAL=Whale", "upper"),
        ("/?%41NIMAL=Whale", "upper"),
    ] {
        assert_eq!(routes.path(target), expected, "{target}");
    }
    let lookup = |target: &str| routes.table.lookup(Scope::FILE, &get(target), &[], Repeats::Separate);
    for target in ["/?Animal=whale", "/?animal=whale&Animal=dog", "/?ANIMAL=Whale&ANIMAL=Dog"] {
        assert!(matches!(lookup(target), Err(AmbiguousRoute::Parameter(_))), "{target}");
    }
}

#[test]
fn a_parameter_that_was_read_and_can_be_read_otherwise_leads_nowhere() {
    let routes = zoo();
    let lookup = |target: &str| routes.table.lookup(Scope::FILE, &get(target), &[], Repeats::Separate);
    for target in [
        "/?animal=whale&animal=whale",
        "/?animal=whale&animal=dog",
        "/?animal=whale&ANIMAL=dog",
        "/?Animal=whale",
        "/?animal[]=whale",
        "/?animal=whale&animal%5B%5D=dog",
        "/?animal=whale&x=%zz",
        "/?animal=whale%00",
        "/?x;animal=whale",
        "/%3Fanimal=whale",
    ] {
        assert_eq!(lookup(target), Err(AmbiguousRoute::Parameter("animal".into())), "{target}");
    }
    // Nothing reads these.
    for target in ["/?x=1&x=2", "/?X=1&x=1", "/?x=%20"] {
        assert_eq!(lookup(target), Ok(Some(3)), "{target}");
    }
}

#[test]
fn a_parameter_that_no_query_can_have_is_a_fault() {
    let problems = faults(vec![with_query("r", vec![parameter("", None), parameter("a", Some("b\0"))])]);
    assert_eq!(
        problems,
        [
            ("routes[0].query[0]".into(), PolicyProblem::EmptyParameter),
            ("routes[0].query[1]".into(), PolicyProblem::ParameterNul("a".into())),
        ]
    );
}

#[test]
fn routes_with_the_same_parameters_are_one_too_many() {
    let two = |first: Vec<QueryMatch>, second: Vec<QueryMatch>| {
        faults(vec![with_query("first", first), with_query("second", second)])
    };
    let (a, b) = (parameter("a", Some("1")), parameter("b", None));
    let problems = two(vec![a.clone(), b.clone()], vec![b, a]);
    let [(path, PolicyProblem::Indistinguishable { .. })] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(path, "routes[1]");
}
