//! Routes: what matches, which route is chosen, what the build refuses.

mod changes;
mod faults;
mod query;

use auth::headers::Repeats;
use auth::policy::PolicyProblem;
use auth::policy::route::{AmbiguousRoute, HeaderMatch, PathMatch, RouteMatch, RouteTable, Scope};
use auth::request::Field;

use crate::fixtures::{get, request, strings};

fn exact(path: &str) -> PathMatch {
    PathMatch::Exact(path.into())
}

fn prefix(path: &str) -> PathMatch {
    PathMatch::Prefix(path.into())
}

fn template(path: &str) -> PathMatch {
    PathMatch::Template(path.into())
}

fn route(name: &str, path: PathMatch) -> RouteMatch {
    RouteMatch { name: name.into(), path, ..RouteMatch::default() }
}

fn header(name: &str, value: Option<&str>) -> HeaderMatch {
    HeaderMatch { name: name.into(), value: value.map(Into::into) }
}

/// Routes with their names, looked up by request.
struct Routes {
    names: Vec<String>,
    table: RouteTable,
}

impl Routes {
    fn new(routes: Vec<RouteMatch>) -> Self {
        let names = routes.iter().map(|r| r.name.clone()).collect();
        let table = RouteTable::build(routes).unwrap_or_else(|faults| panic!("{faults:?}"));
        Self { names, table }
    }

    fn paths(paths: Vec<PathMatch>) -> Self {
        Self::new(paths.into_iter().map(|path| route(&format!("{path:?}"), path)).collect())
    }

    fn at(&self, method: &str, host: &str, target: &str, fields: &[Field<'_>]) -> &str {
        let found = self.table.find(&request(method, host, target), fields);
        found.map_or("none", |i| &self.names[i])
    }

    fn path(&self, target: &str) -> &str {
        self.at("GET", "example.com", target, &[])
    }

    fn index(&self, target: &str) -> Option<usize> {
        self.table.find(&get(target), &[])
    }
}

fn faults(routes: Vec<RouteMatch>) -> Vec<(String, PolicyProblem)> {
    let faults = RouteTable::build(routes).expect_err("a fault");
    faults.into_iter().map(|fault| (fault.path, fault.problem)).collect()
}

#[test]
fn an_exact_path_is_that_path_alone() {
    let routes = Routes::paths(vec![exact("/a/b")]);
    assert_eq!(routes.index("/a/b?x"), Some(0));
    assert_eq!(routes.index("/%61/b"), Some(0));
    for path in ["/a/b/", "/a", "/a/b/c", "/a/B", "/"] {
        assert_eq!(routes.index(path), None, "{path}");
    }
}

#[test]
fn a_prefix_ends_on_a_segment_boundary() {
    for written in ["/api", "/api/", "/%61pi"] {
        let routes = Routes::paths(vec![prefix(written)]);
        for path in ["/api", "/api/", "/api/x", "/api/x/y?z"] {
            assert_eq!(routes.index(path), Some(0), "{written} {path}");
        }
        for path in ["/apix", "/ap", "/", "/x/api", "/api.x", "/API"] {
            assert_eq!(routes.index(path), None, "{written} {path}");
        }
    }
    let root = Routes::paths(vec![prefix("/")]);
    assert_eq!((root.index("/"), root.index("/a/b")), (Some(0), Some(0)));
    assert_eq!(root.at("OPTIONS", "example.com", "*", &[]), "none");
}

#[test]
fn a_template_matches_segment_by_segment() {
    let routes = Routes::paths(vec![template("/v1/{ns}/models/{id}"), template("/files/{path...}")]);
    for path in ["/v1/a/models/b", "/v1/a%20b/models/c"] {
        assert_eq!(routes.index(path), Some(0), "{path}");
    }
    for path in
        ["/v1/a/models", "/v1/a/models/", "/v1/a/models/b/", "/v1/a/models/b/c", "/v1/models/b", "/files"]
    {
        assert_eq!(routes.index(path), None, "{path}");
    }
    for path in ["/files/", "/files/a", "/files/a/b/"] {
        assert_eq!(routes.index(path), Some(1), "{path}");
    }
}

#[test]
fn captures_are_the_text_of_the_path() {
    let routes = Routes::paths(vec![template("/v1/{ns}/models/{rest...}"), exact("/x")]);
    let request = get("/v1/team%20a/models/b/c?d");
    let captures = routes.table.captures(0, &request);
    assert_eq!(captures.clone().collect::<Vec<_>>(), [("ns", "team%20a"), ("rest", "b/c")]);
    assert_eq!(
        (captures.get("ns"), captures.get("rest"), captures.get("x")),
        (Some("team%20a"), Some("b/c"), None)
    );
    assert_eq!(
        routes.table.captures(0, &get("/v1/a/models/")).collect::<Vec<_>>(),
        [("ns", "a"), ("rest", "")]
    );
    assert_eq!(routes.table.captures(0, &get("/v1/a/other/b")).count(), 0);
    assert_eq!(routes.table.captures(1, &request).count(), 0);
    assert_eq!(routes.table.captures(9, &request).count(), 0);
}

#[test]
fn an_exact_path_comes_before_a_template_before_a_prefix_before_any() {
    let routes = Routes::new(vec![
        route("any", PathMatch::Any),
        route("short", prefix("/a")),
        route("long", prefix("/a/b")),
        route("template", template("/a/{x}/c")),
        route("exact", exact("/a/b/c")),
    ]);
    for (path, name) in [
        ("/a/b/c", "exact"),
        ("/a/x/c", "template"),
        ("/a/b/d", "long"),
        ("/a/b", "long"),
        ("/a/x", "short"),
        ("/z", "any"),
    ] {
        assert_eq!(routes.path(path), name, "{path}");
    }
}

#[test]
fn a_template_with_more_literal_segments_comes_first() {
    let routes = Routes::new(vec![
        route("tail", template("/a/{rest...}")),
        route("none", template("/{x}/{y}/{z}")),
        route("one", template("/a/{y}/{z}")),
        route("two", template("/{x}/b/c")),
        route("one and tail", template("/a/{y}/{rest...}")),
    ]);
    for (path, name) in [
        ("/a/b/c", "two"),
        ("/a/b/d", "one"),
        ("/x/b/d", "none"),
        ("/a/x", "tail"),
        ("/a/x/", "one and tail"),
        ("/a/", "tail"),
        ("/a/b/c/d", "one and tail"),
    ] {
        assert_eq!(routes.path(path), name, "{path}");
    }
}

#[test]
fn an_exact_host_comes_before_the_longest_wildcard_before_any() {
    let host =
        |name: &str, hosts: &[&str]| RouteMatch { hosts: strings(hosts), ..route(name, PathMatch::Any) };
    let routes = Routes::new(vec![
        host("any", &[]),
        host("wide", &["*.example.com"]),
        host("narrow", &["*.b.example.com"]),
        host("exact", &["x.b.example.com", "Example.COM."]),
    ]);
    for (name, expected) in [
        ("x.b.example.com", "exact"),
        ("X.B.example.com.:443", "exact"),
        ("example.com", "exact"),
        ("y.b.example.com", "narrow"),
        ("z.y.b.example.com", "narrow"),
        ("b.example.com", "wide"),
        ("a.b.c.example.com", "wide"),
        ("xexample.com", "any"),
        ("example.com.evil.example", "any"),
        ("[::1]", "any"),
    ] {
        assert_eq!(routes.at("GET", name, "/", &[]), expected, "{name}");
    }
}

#[test]
fn a_host_falls_back_when_none_of_its_routes_matches() {
    let routes = Routes::new(vec![
        RouteMatch { hosts: strings(&["a.example.com"]), ..route("own", exact("/x")) },
        RouteMatch { hosts: strings(&["*.example.com"]), ..route("wild", prefix("/x")) },
        RouteMatch { hosts: strings(&["*"]), ..route("any", exact("/y")) },
    ]);
    assert_eq!(routes.at("GET", "a.example.com", "/x", &[]), "own");
    assert_eq!(routes.at("GET", "a.example.com", "/x/y", &[]), "wild");
    assert_eq!(routes.at("GET", "a.example.com", "/y", &[]), "any");
    assert_eq!(routes.at("GET", "a.example.com", "/z", &[]), "none");
}

#[test]
fn host_patterns_compare_as_a_labels() {
    let routes = Routes::new(vec![RouteMatch {
        hosts: strings(&["*.Bücher.example"]),
        ..route("wild", PathMatch::Any)
    }]);
    assert_eq!(routes.at("GET", "a.xn--bcher-kva.example", "/", &[]), "wild");
    assert_eq!(routes.at("GET", "a.BÜCHER.example", "/", &[]), "wild");
    assert_eq!(routes.at("GET", "bücher.example", "/", &[]), "none");
}

#[test]
fn head_matches_where_get_is_listed() {
    let routes = Routes::new(vec![RouteMatch { methods: strings(&["GET"]), ..route("r", PathMatch::Any) }]);
    assert_eq!(routes.at("HEAD", "example.com", "/", &[]), "r");
    let posts = Routes::new(vec![RouteMatch { methods: strings(&["POST"]), ..route("r", PathMatch::Any) }]);
    assert_eq!(posts.at("HEAD", "example.com", "/", &[]), "none");
}

#[test]
fn exact_methods_do_not_include_head() {
    let exact = |name: &str, method: &str| RouteMatch {
        methods: strings(&[method]),
        exact_methods: true,
        ..route(name, PathMatch::Any)
    };
    let routes = Routes::new(vec![exact("get", "GET"), exact("head", "HEAD")]);
    assert_eq!(routes.at("GET", "example.com", "/", &[]), "get");
    assert_eq!(routes.at("HEAD", "example.com", "/", &[]), "head");
    let only_get = Routes::new(vec![exact("get", "GET")]);
    assert_eq!(only_get.at("HEAD", "example.com", "/", &[]), "none");
    let only_head = Routes::new(vec![exact("head", "HEAD")]);
    assert_eq!(only_head.at("GET", "example.com", "/", &[]), "none");
    assert_eq!(only_head.at("POST", "example.com", "/", &[]), "none");
}

#[test]
fn an_unknown_method_does_not_match_a_list_that_lacks_it() {
    let routes = Routes::new(vec![RouteMatch {
        methods: strings(&["GET", "POST", "PURGE"]),
        ..route("r", PathMatch::Any)
    }]);
    for method in ["FOO", "PUT", "OPTIONS", "GETX", "GE"] {
        assert_eq!(routes.at(method, "example.com", "/", &[]), "none", "{method}");
    }
    for method in ["GET", "POST", "PURGE", "HEAD"] {
        assert_eq!(routes.at(method, "example.com", "/", &[]), "r", "{method}");
    }
}

#[test]
fn header_conditions_are_exact_or_presence() {
    let routes = Routes::new(vec![
        route("plain", PathMatch::Any),
        RouteMatch { headers: vec![header("X-Env", Some("canary"))], ..route("value", PathMatch::Any) },
        RouteMatch { headers: vec![header("x-debug", None)], ..route("present", exact("/p")) },
    ]);
    let fields = |fields: &[(&'static str, &'static str)]| -> Vec<Field<'static>> {
        fields.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect()
    };
    for (path, list, expected) in [
        ("/", &[("x-env", "canary")][..], "value"),
        ("/", &[("X-ENV", "canary")], "value"),
        ("/", &[("x-env", "Canary")], "plain"),
        ("/", &[("x-environment", "canary")], "plain"),
        ("/", &[], "plain"),
        ("/p", &[("X-Debug", "")], "present"),
        ("/p", &[("x-debug", "1"), ("x-env", "canary")], "present"),
        ("/p", &[("x-env", "canary")], "value"),
    ] {
        assert_eq!(routes.at("GET", "example.com", path, &fields(list)), expected, "{path} {list:?}");
    }
}

#[test]
fn a_header_that_was_read_and_can_be_read_otherwise_leads_nowhere() {
    let routes = Routes::new(vec![
        route("plain", PathMatch::Any),
        RouteMatch { headers: vec![header("X-Env", Some("canary"))], ..route("value", prefix("/v")) },
        RouteMatch {
            headers: vec![header("X-Env", None)],
            methods: strings(&["PUT"]),
            ..route("put", exact("/m"))
        },
    ]);
    let lookup = |path: &str, fields: &[(&'static str, &'static str)]| {
        let fields: Vec<_> =
            fields.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect();
        routes.table.lookup(Scope::FILE, &get(path), &fields, Repeats::Separate)
    };
    for fields in [
        &[("X-Env", "canary"), ("x-env", "canary")][..],
        &[("X-Env", "canary"), ("x-env", "prod")],
        &[("x-env", "prod"), ("x_env", "canary")],
        &[("X_Env", "canary")],
        &[("X-Env", "canary"), ("Connection", "close, x-env")],
        &[("X-Env", "prod"), ("Connection", "x.env")],
    ] {
        assert_eq!(lookup("/v/1", fields), Err(AmbiguousRoute::Header("x-env".into())), "{fields:?}");
        assert_eq!(lookup("/", fields), Ok(Some(0)), "no condition looked at it");
        assert_eq!(lookup("/m", fields), Ok(Some(0)), "the method was enough");
    }
    let read = |route| routes.table.fields_read_by(route).collect::<Vec<_>>();
    assert_eq!([read(0), read(1), read(2), read(3)], [vec![], vec!["x-env"], vec!["x-env"], vec![]]);
}

#[test]
fn a_list_that_holds_what_is_asked_for_may_have_been_several_fields() {
    let routes = Routes::new(vec![
        RouteMatch { headers: vec![header("X-Env", Some("blue"))], ..route("value", prefix("/v")) },
        RouteMatch { headers: vec![header("x-any", None)], ..route("any", prefix("/any")) },
        RouteMatch { headers: vec![header("x-list", Some("a,b"))], ..route("list", prefix("/list")) },
        RouteMatch { hosts: strings(&["other.test"]), ..route("plain", PathMatch::Any) },
        route("rest", PathMatch::Any),
    ]);
    let lookup = |path: &str, name: &'static str, value: &'static str, repeats: Repeats| {
        let fields = [Field { name: "host", value: b"h" }, Field { name, value: value.as_bytes() }];
        routes.table.lookup(Scope::FILE, &get(path), &fields, repeats)
    };
    for (path, name, value) in [
        ("/v", "x-env", "blue,blue"),
        ("/v", "X-ENV", "red,blue"),
        ("/v", "x-env", "blue, red"),
        ("/v", "x-env", "red ,blue,green"),
        ("/list", "x-list", "a,b,c"),
        ("/list", "x-list", "c,a,b"),
    ] {
        let ambiguous = Err(AmbiguousRoute::Header(name.to_ascii_lowercase().into()));
        assert_eq!(lookup(path, name, value, Repeats::Joined), ambiguous, "{value}");
        assert_eq!(
            lookup(path, name, value, Repeats::Separate),
            Ok(Some(4)),
            "one line is one value: {value}"
        );
        assert_eq!(lookup("/", name, value, Repeats::Joined), Ok(Some(4)), "no condition looked at it");
    }
    for (path, name, value, route) in [
        ("/v", "x-env", "blue", 0),
        ("/v", "x-env", "red,green", 4),
        ("/v", "x-env", "bluer,red", 4),
        ("/any", "x-any", "1,2", 1),
        ("/list", "x-list", "a,b", 2),
        ("/list", "x-list", "a,c,b", 4),
    ] {
        assert_eq!(lookup(path, name, value, Repeats::Joined), Ok(Some(route)), "{name} {value}");
    }
}

#[test]
fn no_route_rests_on_what_each_hop_writes_anew() {
    let fault = |name: &str| {
        faults(vec![RouteMatch { headers: vec![header(name, None)], ..route("r", PathMatch::Any) }])
    };
    for name in ["Upgrade", "connection", "TE", "Keep-Alive", "Content-Length", "Content_Length"] {
        assert_eq!(
            fault(name),
            [("routes[0].headers[0]".into(), PolicyProblem::HeaderPerHop(name.into()))],
            "{name}"
        );
    }
    assert!(PolicyProblem::HeaderPerHop("Upgrade".into()).to_string().ends_with("in `upgrades`"));
    assert!(!PolicyProblem::HeaderPerHop("TE".into()).to_string().contains("upgrades"));
}

#[test]
fn a_method_list_comes_before_headers_before_parameters_before_the_order_of_the_file() {
    let headers = |names: &[&str]| names.iter().map(|name| header(name, None)).collect::<Vec<_>>();
    let parameter =
        |name: &str| auth::policy::route::QueryMatch { name: name.into(), value: None, distinct: Vec::new() };
    let routes = Routes::new(vec![
        route("plain", prefix("/x")),
        RouteMatch { query: vec![parameter("p")], ..route("parameter", prefix("/x")) },
        RouteMatch { query: vec![parameter("p"), parameter("q")], ..route("parameters", prefix("/x")) },
        RouteMatch { headers: headers(&["a"]), ..route("header", prefix("/x")) },
        RouteMatch { headers: headers(&["b"]), ..route("later", prefix("/x")) },
        RouteMatch { headers: headers(&["a", "b"]), ..route("headers", prefix("/x")) },
        RouteMatch { methods: strings(&["GET"]), ..route("method", prefix("/x")) },
        RouteMatch {
            headers: headers(&["a", "b"]),
            methods: strings(&["GET"]),
            ..route("all", prefix("/x"))
        },
    ]);
    let (a, b) = (Field { name: "a", value: b"" }, Field { name: "b", value: b"" });
    for (method, target, fields, expected) in [
        ("GET", "/x?p&q", &[a, b][..], "all"),
        ("GET", "/x?p&q", &[a], "method"),
        ("PUT", "/x?p&q", &[a, b], "headers"),
        ("PUT", "/x?p&q", &[a], "header"),
        ("PUT", "/x?p&q", &[b], "later"),
        ("PUT", "/x?p&q", &[], "parameters"),
        ("PUT", "/x?p", &[], "parameter"),
        ("PUT", "/x", &[], "plain"),
    ] {
        assert_eq!(routes.at(method, "example.com", target, fields), expected, "{method} {target}");
    }
}

#[test]
fn options_asterisk_matches_itself_and_any() {
    let routes = Routes::new(vec![route("any", PathMatch::Any), route("server", exact("*"))]);
    assert_eq!(routes.at("OPTIONS", "example.com", "*", &[]), "server");
    assert_eq!(routes.path("/"), "any");
    let tail = Routes::paths(vec![template("/{all...}")]);
    assert_eq!(tail.at("OPTIONS", "example.com", "*", &[]), "none");
}

#[test]
fn an_empty_table_finds_nothing() {
    let table = RouteTable::build(vec![]).unwrap();
    assert!(table.is_empty());
    assert_eq!(table.len(), 0);
    assert_eq!(table.find(&get("/"), &[]), None);
}

/// The precedence in the module's header, applied to all routes in turn: the index must agree with
/// it.
mod model {
    use super::*;
    use proptest::prelude::*;

    fn matches(route: &RouteMatch, host: &str, path: &str) -> Option<(usize, usize, usize)> {
        let hosts = route.hosts.iter().filter_map(|pattern| match pattern.strip_prefix('*') {
            Some(suffix) => host.ends_with(suffix).then_some(1000 - suffix.len()),
            None => (pattern == host).then_some(0),
        });
        let host = if route.hosts.is_empty() { Some(2000) } else { hosts.min() }?;
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let (kind, detail) = match &route.path {
            PathMatch::Exact(p) => (p == path).then_some((0, 0)),
            PathMatch::Template(t) => {
                let parts: Vec<&str> = t.split('/').skip(1).collect();
                let fits = parts.len() == segments.len()
                    && parts
                        .iter()
                        .zip(&segments)
                        .all(|(p, s)| p == s || (p.starts_with('{') && !s.is_empty()));
                fits.then(|| (1, 100 - parts.iter().filter(|p| !p.starts_with('{')).count()))
            }
            PathMatch::Prefix(p) if p == "/" => Some((2, 100)),
            PathMatch::Prefix(p) => {
                let below = path == p || path.starts_with(&format!("{p}/"));
                below.then_some((2, 100 - p.len()))
            }
            PathMatch::Any => Some((3, 0)),
        }?;
        Some((host, kind, detail))
    }

    pub(super) fn expected(routes: &[RouteMatch], host: &str, path: &str) -> Option<usize> {
        let ranked =
            routes.iter().enumerate().filter_map(|(i, r)| matches(r, host, path).map(|rank| (rank, i)));
        ranked.min().map(|(_, i)| i)
    }

    pub(super) fn a_route() -> impl Strategy<Value = RouteMatch> {
        let segment = || prop::sample::select(vec!["a", "b", "ab"]);
        let path = |n| prop::collection::vec(segment(), n).prop_map(|s| format!("/{}", s.join("/")));
        let part = prop::sample::select(vec!["a", "b", "{x}", "{y}"]);
        let paths = prop_oneof![
            path(1..4).prop_map(PathMatch::Exact),
            path(0..4).prop_map(PathMatch::Prefix),
            prop::collection::vec(part, 1..4).prop_filter_map("distinct captures", |parts| {
                let captures = parts.iter().filter(|p| p.starts_with('{'));
                let distinct: std::collections::HashSet<_> = captures.clone().collect();
                (!distinct.is_empty() && distinct.len() == captures.count())
                    .then(|| PathMatch::Template(format!("/{}", parts.join("/"))))
            }),
            Just(PathMatch::Any),
        ];
        let host = prop::sample::select(vec!["a.x", "b.a.x", "*.x", "*.a.x", "x"]);
        let hosts = prop::collection::vec(host, 0..3).prop_map(|hosts| strings(&hosts));
        (hosts, paths).prop_map(|(hosts, path)| RouteMatch { hosts, path, ..RouteMatch::default() })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_index_agrees_with_the_precedence(routes in prop::collection::vec(a_route(), 1..12)) {
            // Random lists often contain equal routes, which the build refuses.
            if let Ok(table) = RouteTable::build(routes.clone()) {
                for host in ["a.x", "b.a.x", "c.b.a.x", "x", "ax", "y"] {
                    for path in ["/", "/a", "/b", "/a/", "/a/b", "/ab", "/ab/a", "/a/b/a", "/a/c/b", "/b/b/b/b"] {
                        let found = table.find(&request("GET", host, path), &[]);
                        prop_assert_eq!(found, expected(&routes, host, path), "{} {} in {:?}", host, path, routes);
                    }
                }
            }
        }
    }
}
