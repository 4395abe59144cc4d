//! Faults of route tables.

use super::{Routes, exact, faults, header, prefix, route, template};
use crate::fixtures::{request, strings};
use auth::policy::PolicyProblem;
use auth::policy::route::{AmbiguousRoute, Guards, PathMatch, RouteMatch, RouteTable};

#[test]
fn a_route_that_depends_on_path_parameters_is_no_route() {
    let routes = Routes::new(vec![
        route("public", prefix("/")),
        route("admin", prefix("/admin")),
        route("item", template("/item/{id}")),
    ]);
    for (path, name) in [
        ("/admin;x/users", "none"),
        ("/admin;/users", "none"),
        ("/admin;", "none"),
        ("/item;v=1/2", "none"),
        ("/admin/users;x", "admin"),
        ("/admin/a;b/c", "admin"),
        ("/page;jsessionid=1", "public"),
        ("/item/2;v=1", "item"),
    ] {
        assert_eq!(routes.path(path), name, "{path}");
    }
}

#[test]
fn canonical_a_route_that_depends_on_how_an_escape_is_read_is_no_route() {
    let routes = Routes::new(vec![
        route("public", prefix("/")),
        route("admin", prefix("/@admin")),
        route("verb", exact("/v1/m:delete")),
        route("item", template("/item/{id}")),
    ]);
    for (path, name) in [
        ("/%40admin", "none"),
        ("/%40admin/x", "none"),
        ("/%40admin;v=1/x", "none"),
        ("/@admin;v=1/x", "none"),
        ("/v1/m%3Adelete", "none"),
        ("/v1/m%3adelete", "none"),
        ("/@admin/x", "admin"),
        ("/@admin/x%40y", "admin"),
        ("/v1/m:delete", "verb"),
        ("/item/a%2Bb", "item"),
        ("/me%40example.com", "public"),
    ] {
        assert_eq!(routes.path(path), name, "{path}");
    }
    for pattern in [exact("/%40admin"), prefix("/a/b%3Ac"), template("/%24/{id}")] {
        let found = faults(vec![route("r", pattern)]);
        assert!(matches!(&found[..], [(_, PolicyProblem::PathEscapes(_))]), "{found:?}");
    }
}

#[test]
fn a_path_matches_if_all_its_readings_lead_to_one_route() {
    let routes = Routes::new(vec![
        route("public", prefix("/")),
        route("admin", prefix("/admin")),
        route("api", prefix("/api")),
        route("user", template("/user/{name}/{rest...}")),
    ]);
    for (path, name) in [
        // What RabbitMQ, GitLab, an npm registry, Argo CD and Jupyter are sent.
        ("/api/queues/%2F/orders", "api"),
        ("/api/v4/projects/group%2Fproject/repository/files/src%2Fmain.rs/raw", "api"),
        ("/@scope%2Fname", "public"),
        ("/api/v1/repositories/https%3A%2F%2Fgit.example%2Fx.git%3Fref%3D1", "api"),
        ("/user/ada/notebooks/Report%20%233.ipynb", "user"),
        ("/docs//index.html", "public"),
        ("/docs/./a/../b", "public"),
        ("/api/a%255Cb", "api"),
        ("/admin%3Fx=1", "none"),
        ("/admin/%3Fx=1", "admin"),
        // What leads elsewhere for some servers.
        ("/docs/..%2Fadmin", "none"),
        ("/docs/../admin", "none"),
        ("/admin/../docs", "none"),
        ("/docs%5C..%5Cadmin", "none"),
        ("/docs/..;/admin", "none"),
        ("/docs/..%3Bx/admin", "none"),
        ("/docs/%252e%252e%252fadmin", "none"),
        ("/docs//../admin", "none"),
        ("/x%2F..%2Fadmin/", "none"),
        ("/api%2Fqueues", "none"),
        ("/admin%23/docs", "none"),
        ("/user//rest/x", "none"),
    ] {
        assert_eq!(routes.path(path), name, "{path}");
    }
}

#[test]
fn guards_are_whoever_serves_the_path_on_any_host() {
    let on = |hosts: &[&str], path| RouteMatch { hosts: strings(hosts), ..route("", path) };
    let routes = [
        (3, on(&["www.example.com"], prefix("/pub"))),
        (5, on(&["admin.example.com"], prefix("/admin"))),
        (7, on(&["*.example.com"], prefix("/a"))),
        (8, on(&["*.example.com"], exact("/a/open"))),
        (9, on(&["*.other.com"], prefix("/"))),
        (11, route("", prefix("/staff"))),
    ];
    let guards = Guards::build(routes).unwrap();
    let of = |host, path| guards.for_request(&request("GET", host, path), &[]);
    // Routes for other hosts count; for the request's own host the most specific one counts.
    assert_eq!(of("www.example.com", "/admin"), Ok(vec![5, 9]));
    assert_eq!(of("www.example.com", "/pub"), Ok(vec![3, 9]));
    assert_eq!(of("www.example.com", "/a/x"), Ok(vec![7, 9]));
    assert_eq!(of("www.example.com", "/a/open"), Ok(vec![8, 9]));
    assert_eq!(of("x.other.com", "/staff"), Ok(vec![9]));
    assert_eq!(of("elsewhere.net", "/staff"), Ok(vec![9, 11]));
    assert_eq!(
        of("www.example.com", "/admin;x/users"),
        Err(AmbiguousRoute::Path { received: "/admin;x/users".into(), other: "/admin/users".into() })
    );
}

#[test]
fn routes_that_can_never_be_told_apart_are_a_fault_naming_both() {
    let twins = |first: RouteMatch, second: RouteMatch| {
        let first = RouteMatch { name: "first".into(), ..first };
        let second = RouteMatch { name: "second".into(), ..second };
        RouteTable::build(vec![first, second])
    };
    let hosts = |hosts: &[&str], path| RouteMatch { hosts: strings(hosts), ..route("", path) };
    let methods = |methods: &[&str]| RouteMatch { methods: strings(methods), ..route("", PathMatch::Any) };
    let headers = |headers| RouteMatch { headers, ..route("", PathMatch::Any) };
    for (first, second, host) in [
        (route("", PathMatch::Any), route("", PathMatch::Any), "*"),
        (route("", prefix("/a")), route("", prefix("/a/")), "*"),
        (route("", template("/{a}/b")), route("", template("/{b}/%62")), "*"),
        (hosts(&["a.com", "b.com"], exact("/")), hosts(&["B.COM"], exact("/")), "b.com"),
        (hosts(&["*.a.com"], exact("/")), hosts(&["*.a.com."], exact("/")), "*.a.com"),
        (methods(&["GET", "POST"]), methods(&["POST", "GET", "HEAD"]), "*"),
        (methods(&["GET", "POST"]), methods(&["POST"]), "*"),
        (headers(vec![header("A", Some("1"))]), headers(vec![header("a", Some("1"))]), "*"),
    ] {
        let message = format!("{first:?} {second:?}");
        let faults = twins(first, second).expect_err(&message);
        let expected = PolicyProblem::Indistinguishable {
            route: "second".into(),
            earlier: "first".into(),
            host: host.into(),
        };
        assert_eq!((faults[0].path.as_str(), &faults[0].problem), ("routes[1]", &expected));
        assert!(faults[0].to_string().contains("\"second\"") && faults[0].to_string().contains("\"first\""));
    }
    for (first, second) in [
        (methods(&["POST"]), methods(&["GET", "POST"])),
        (methods(&["GET"]), methods(&["POST"])),
        (methods(&[]), methods(&["GET"])),
        (route("", prefix("/a")), route("", exact("/a"))),
        (hosts(&["a.com"], exact("/")), hosts(&["*.a.com"], exact("/"))),
        (headers(vec![header("a", Some("1"))]), headers(vec![header("a", Some("2"))])),
        (headers(vec![header("a", Some("1"))]), headers(vec![header("a", None)])),
    ] {
        let message = format!("{first:?} {second:?}");
        assert!(twins(first, second).is_ok(), "{message}");
    }
}

#[test]
fn all_faults_are_reported_at_once_with_their_places() {
    let found = faults(vec![
        RouteMatch {
            hosts: strings(&["a.com:80", "ok.com", "a*b.com", "*.*.com", "", "http://a"]),
            methods: strings(&["get", "G T", "TRACE", "HEAD"]),
            headers: vec![header("a b", None), header("ok", Some(" x")), header("ok2", Some(""))],
            ..route("bad", exact("/a//b"))
        },
        route("more", prefix("/a/../b")),
        route("params", prefix("/a;b")),
        route("relative", exact("a")),
        route("query", exact("/a?b")),
    ]);
    let places: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let expected = [
        "routes[0].hosts[0]",
        "routes[0].hosts[2]",
        "routes[0].hosts[3]",
        "routes[0].hosts[4]",
        "routes[0].hosts[5]",
        "routes[0].path",
        "routes[0].methods",
        "routes[0].methods",
        "routes[0].methods",
        "routes[0].methods",
        "routes[0].headers[0]",
        "routes[0].headers[1]",
        "routes[0].headers[2]",
        "routes[1].path",
        "routes[2].path",
        "routes[3].path",
        "routes[4].path",
    ];
    assert_eq!(places, expected);
    assert_eq!(found[6].1, PolicyProblem::MethodCase("get".into()));
    assert_eq!(found[6].1.to_string(), r#"methods are case-sensitive: "get" is not GET"#);
    assert_eq!(found[9].1, PolicyProblem::HeadAlone);
}

#[test]
fn template_faults_are_told_apart() {
    let fault = |text: &str| faults(vec![route("r", template(text))]).remove(0).1;
    assert_eq!(fault("/a{b}"), PolicyProblem::TemplateSegment("a{b}".into()));
    assert_eq!(fault("/{}"), PolicyProblem::TemplateSegment("{}".into()));
    assert_eq!(fault("/{a b}"), PolicyProblem::TemplateSegment("{a b}".into()));
    assert_eq!(fault("/{a}/{a}"), PolicyProblem::TemplateName("a".into()));
    assert_eq!(fault("/{a}/{a...}"), PolicyProblem::TemplateName("a".into()));
    assert_eq!(fault("/{a...}/b"), PolicyProblem::TemplateTail("a".into()));
    assert_eq!(fault("/a/b"), PolicyProblem::TemplateLiteral("/a/b".into()));
    assert_eq!(fault("/a;b/{c}"), PolicyProblem::PathParameters("/a;b/{c}".into()));
    assert!(matches!(fault("{a}"), PolicyProblem::Path { .. }));
    assert!(matches!(fault("/../{a}"), PolicyProblem::Path { .. }));
    assert!(matches!(fault("//{a}"), PolicyProblem::Path { .. }));
}
