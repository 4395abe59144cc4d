//! Rules of routes: matches, filters, timeouts, and what happens to values that are not supported.

use std::time::Duration;

use controller::names::Kind;
use controller::plan::{
    BackendTarget, ExternalAuthProtocol, FilterPlan, MatchPlan, PathMatch, PathModifier, RoutePlan,
    RuleAction,
};
use controller::settings::Settings;

use crate::cluster::{CONTROLLER, Cluster, gateway, service};

/// A route `route` with these rules, each in YAML, on a cluster with the Services `web` and `other`.
fn with_rules(settings: Settings, rules: &[&str]) -> Cluster {
    let mut cluster = Cluster::with(settings);
    cluster.apply(&gateway("gw"));
    cluster.apply(&service("web"));
    cluster.apply(&service("other"));
    let list = rules.iter().map(|rule| format!("  - {rule}\n")).collect::<Vec<_>>().concat();
    cluster.apply(&format!(
        "kind: HTTPRoute\nmetadata: {{name: route}}\nspec:\n  parentRefs: [{{name: gw}}]\n  rules:\n{list}"
    ));
    cluster.settle();
    cluster
}

fn settings(experimental: bool) -> Settings {
    Settings { experimental, ..Settings::new(CONTROLLER) }
}

fn plans(rules: &[&str]) -> Vec<RoutePlan> {
    with_rules(settings(true), rules).plans("route")
}

/// The filters of a rule with one filter, or the condition that says why there are none.
fn filter(filter: &str) -> Result<FilterPlan, String> {
    let cluster = with_rules(settings(true), &[&format!("{{filters: [{filter}]}}")]);
    let accepted = cluster.parent(Kind::HttpRoute, "route", 0, "Accepted");
    match cluster.plans("route").first() {
        Some(plan) if plan.action != RuleAction::Fail => Ok(plan.filters[0].clone()),
        _ => Err(accepted),
    }
}

#[test]
fn each_match_of_each_rule_is_a_plan() {
    let plans = plans(&[
        "{name: first, matches: [{path: {type: Exact, value: /one}}, {path: {value: /two}, method: GET}]}",
        "{}",
    ]);
    let found: Vec<_> = plans
        .iter()
        .map(|plan| (plan.id.rule, plan.id.matched, plan.matches.path.clone(), plan.rule_name.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            (0, 0, PathMatch::Exact("/one".into()), Some("first")),
            (0, 1, PathMatch::Prefix("/two".into()), Some("first")),
            (1, 0, PathMatch::Prefix("/".into()), None),
        ]
    );
    assert_eq!(plans[1].matches.method.as_deref(), Some("GET"));
    assert!(plans[0].order() < plans[1].order() && plans[1].order() < plans[2].order());
}

// HTTPRouteHeaderMatching, HTTPRouteQueryParamMatching
#[test]
fn headers_and_parameters_are_exact_and_the_first_of_a_name_counts() {
    let plans = plans(&[
        "{matches: [{headers: [{name: Version, value: two}, {name: version, value: three}], queryParams: [{name: a, \
         value: b}, {name: A, value: c}]}]}",
    ]);
    let values = |list: &[controller::plan::ValueMatch]| -> Vec<String> {
        list.iter().map(|one| format!("{}={}", one.name, one.value)).collect()
    };
    assert_eq!(values(&plans[0].matches.headers), ["version=two"]);
    assert_eq!(values(&plans[0].matches.query), ["a=b", "A=c"]);
}

#[test]
fn a_match_that_is_not_supported_refuses_the_whole_route() {
    for matched in [
        "{path: {type: RegularExpression, value: '/.*'}}",
        "{headers: [{type: RegularExpression, name: a, value: b}]}",
        "{queryParams: [{type: RegularExpression, name: a, value: b}]}",
        "{method: BREW}",
        "{path: {value: relative}}",
    ] {
        let cluster = with_rules(settings(false), &["{}", &format!("{{matches: [{matched}]}}")]);
        let accepted = cluster.parent(Kind::HttpRoute, "route", 0, "Accepted");
        assert_eq!(accepted, "False UnsupportedValue", "{matched}");
        assert!(cluster.plans("route").is_empty(), "{matched}");
        assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 0, "{matched}");
        let conditions = &cluster.status(Kind::HttpRoute, "route")["parents"][0]["conditions"];
        let message = Cluster::message(conditions, "Accepted");
        assert!(message.starts_with("rule 1: "), "{message}");
    }
}

/// A data plane that carries out no header conditions.
fn without_headers(matches: &MatchPlan) -> Result<(), String> {
    if matches.headers.is_empty() { Ok(()) } else { Err("headers[0]: not here".to_owned()) }
}

#[test]
fn a_match_that_the_data_plane_refuses_refuses_the_whole_route() {
    let settings = Settings { match_check: without_headers, ..settings(false) };
    let matched = "{matches: [{path: {value: /ws}}, {headers: [{name: Upgrade, value: websocket}]}]}";
    let mut cluster = with_rules(settings, &["{}", matched]);
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "False UnsupportedValue");
    assert!(cluster.plans("route").is_empty(), "the other rule must not take its requests");
    let message = |cluster: &Cluster, kind: Kind, name: &str| {
        Cluster::message(&cluster.status(kind, name)["parents"][0]["conditions"], "Accepted")
    };
    let expected = "rule 1: match 1 cannot be carried out: headers[0]: not here";
    assert_eq!(message(&cluster, Kind::HttpRoute, "route"), expected);
    // The refused route claims no hosts.
    let grpc = |matches: &str| {
        format!(
            "kind: GRPCRoute\nmetadata: {{name: grpc}}\nspec: {{parentRefs: [{{name: gw}}], rules: [{{matches: \
             [{matches}]}}]}}"
        )
    };
    cluster.apply(&grpc("{headers: [{name: V, value: '2'}]}"));
    cluster.settle();
    let expected = "rule 0: match 0 cannot be carried out: headers[0]: not here";
    assert_eq!(message(&cluster, Kind::GrpcRoute, "grpc"), expected);
    cluster.apply(&grpc("{method: {service: echo.Echo}}"));
    cluster.settle();
    assert_eq!(cluster.parent(Kind::GrpcRoute, "grpc", 0, "Accepted"), "True Accepted");
}

#[test]
fn a_filter_that_is_not_supported_fails_its_rule_alone() {
    let extension = "{type: ExtensionRef, extensionRef: {group: example.com, kind: Own, name: x}}";
    let cluster = with_rules(
        settings(false),
        &["{backendRefs: [{name: web, port: 8080}]}", &format!("{{filters: [{extension}]}}")],
    );
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "True Accepted");
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "PartiallyInvalid"), "True UnsupportedValue");
    let actions: Vec<_> =
        cluster.plans("route").iter().map(|plan| matches!(plan.action, RuleAction::Fail)).collect();
    assert_eq!(actions, [false, true]);
    let cluster = with_rules(settings(false), &[&format!("{{filters: [{extension}]}}")]);
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "False UnsupportedValue");
    let plans = cluster.plans("route");
    assert_eq!(plans.len(), 1, "a broader route must not take its requests");
    assert_eq!(plans[0].action, RuleAction::Fail);
    assert!(!plans[0].attachments.is_empty());
    assert_eq!(cluster.listener_status(Kind::Gateway, "gw", "http")["attachedRoutes"], 0);
}

#[test]
fn header_modifiers_keep_the_first_of_a_name() {
    let found = filter(
        "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X, value: '1'}, {name: x, value: '2'}], \
         add: [{name: Added, value: '3'}], remove: [Z]}}",
    );
    let Ok(FilterPlan::RequestHeaders(found)) = found else { panic!("{found:?}") };
    assert_eq!(found.set.len(), 1);
    assert_eq!(
        (found.set[0].1.as_str(), found.add[0].0.as_str(), found.remove[0].as_str()),
        ("1", "Added", "Z")
    );
    let found = filter("{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [Z]}}");
    assert!(matches!(found, Ok(FilterPlan::ResponseHeaders(_))), "{found:?}");
}

// HTTPRouteRedirect…, HTTPRouteRewrite…
#[test]
fn redirects_and_rewrites_have_their_parts() {
    let found = filter(
        "{type: RequestRedirect, requestRedirect: {scheme: https, hostname: x.com, port: 8443, statusCode: 301, path: \
         {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}",
    );
    let Ok(FilterPlan::Redirect(redirect)) = found else { panic!("{found:?}") };
    assert_eq!((redirect.status, redirect.port), (301, Some(8443)));
    assert_eq!(redirect.path, Some(PathModifier::Prefix("/new".into())));
    let found =
        filter("{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /x}}}");
    let Ok(FilterPlan::Rewrite(rewrite)) = found else { panic!("{found:?}") };
    assert_eq!(rewrite.path, Some(PathModifier::Full("/x".into())));
    for (wrong, reason) in [
        ("{type: RequestRedirect, requestRedirect: {statusCode: 200}}", "False UnsupportedValue"),
        ("{type: RequestRedirect, requestRedirect: {scheme: ftp}}", "False UnsupportedValue"),
        ("{type: RequestRedirect}", "False UnsupportedValue"),
        ("{type: Unknown}", "False UnsupportedValue"),
        (
            "{type: RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: {}}",
            "False IncompatibleFilters",
        ),
        (
            "{type: URLRewrite, urlRewrite: {}}, {type: URLRewrite, urlRewrite: {}}",
            "False IncompatibleFilters",
        ),
    ] {
        assert_eq!(filter(wrong), Err(reason.to_owned()), "{wrong}");
    }
    let exact = "{matches: [{path: {type: Exact, value: /a}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: \
                 ReplacePrefixMatch, replacePrefixMatch: /b}}}]}";
    assert_eq!(plans(&[exact])[0].action, RuleAction::Fail);
}

#[test]
fn a_rule_forwards_or_redirects() {
    let redirect = "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302}}]";
    assert_eq!(plans(&[&format!("{{{redirect}}}")])[0].action, RuleAction::Redirect);
    let both = format!("{{{redirect}, backendRefs: [{{name: web, port: 8080}}]}}");
    let cluster = with_rules(settings(false), &[&both]);
    assert_eq!(cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"), "False IncompatibleFilters");
    // HTTPRouteOmittedBackendRefs
    let RuleAction::Forward(backends) = &plans(&["{}"])[0].action else { panic!() };
    assert!(backends.is_empty());
}

// HTTPRouteRequestMirror…
#[test]
fn mirrors_have_shares_and_targets_of_their_own() {
    let mirror = |settings: &str, name: &str| {
        filter(&format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 8080}}{settings}}}}}"
        ))
    };
    for (settings, expected) in [
        ("", (1, 1)),
        (", percent: 20", (20, 100)),
        (", fraction: {numerator: 1, denominator: 1000}", (1, 1000)),
        (", fraction: {numerator: 5}", (5, 100)),
    ] {
        let Ok(FilterPlan::Mirror(found)) = mirror(settings, "other") else { panic!("{settings}") };
        assert_eq!(found.fraction, expected, "{settings}");
        assert!(matches!(found.target, BackendTarget::Upstream(_)), "{settings}");
    }
    let found = mirror(", percent: 20, fraction: {numerator: 5}", "other");
    assert_eq!(found, Err("False UnsupportedValue".to_owned()));
    let Ok(FilterPlan::Mirror(found)) = mirror("", "gone") else { panic!() };
    assert!(matches!(found.target, BackendTarget::Invalid(_)));
    let two = "{type: RequestMirror, requestMirror: {backendRef: {name: other, port: 8080}}}";
    let plans = plans(&[&format!("{{filters: [{two}, {two}], backendRefs: [{{name: web, port: 8080}}]}}")]);
    assert_eq!(plans[0].filters.len(), 2);
}

#[test]
fn a_mirror_alone_keeps_its_upstream() {
    let mut cluster = with_rules(
        settings(false),
        &["{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: other, port: 8080}}}]}"],
    );
    assert_eq!(cluster.world.desired_state().upstreams.len(), 1);
    cluster.remove(Kind::HttpRoute, "route");
    assert_eq!(cluster.settle().upstreams_removed.len(), 1);
}

// HTTPRouteCORS
#[test]
fn cors_has_the_defaults_of_the_standard() {
    let Ok(FilterPlan::Cors(cors)) = filter("{type: CORS, cors: {allowOrigins: ['*']}}") else { panic!() };
    assert_eq!((cors.allow_credentials, cors.max_age), (false, Duration::from_secs(5)));
    let text = "{type: CORS, cors: {allowCredentials: true, maxAge: 3600, allowMethods: [GET]}}";
    let Ok(FilterPlan::Cors(cors)) = filter(text) else { panic!() };
    assert_eq!((cors.allow_credentials, cors.max_age), (true, Duration::from_hours(1)));
}

#[test]
fn experimental_settings_need_the_experimental_channel() {
    let auth = "{filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: other, port: 8080}, \
                http: {path: /check, allowedHeaders: [x]}, forwardBody: {maxSize: 10}}}]}";
    let retry = "{retry: {codes: [503], attempts: 2, backoff: 100ms}}";
    for rule in [auth, retry] {
        let cluster = with_rules(settings(false), &[rule]);
        assert_eq!(
            cluster.parent(Kind::HttpRoute, "route", 0, "Accepted"),
            "False UnsupportedValue",
            "{rule}"
        );
    }
    let plans = plans(&[auth, retry]);
    let FilterPlan::ExternalAuth(auth) = &plans[0].filters[0] else { panic!() };
    assert_eq!(auth.body, Some(10));
    let expected =
        ExternalAuthProtocol::Http { path: Some("/check".into()), allowed_response_headers: Box::default() };
    assert_eq!(auth.protocol, expected);
    let retry = plans[1].retry.as_ref().unwrap();
    assert_eq!((retry.attempts, retry.backoff), (Some(2), Some(Duration::from_millis(100))));
}

// HTTPRouteTimeoutRequest, HTTPRouteTimeoutBackendRequest
#[test]
fn timeouts_are_durations_and_fit() {
    let with = |timeouts: &str| with_rules(settings(true), &["{}", &format!("{{timeouts: {{{timeouts}}}}}")]);
    let cluster = with("request: 500ms, backendRequest: 200ms");
    let plan = &cluster.plans("route")[1];
    assert_eq!(plan.request_timeout, Some(Duration::from_millis(500)));
    assert_eq!(plan.backend_timeout, Some(Duration::from_millis(200)));
    for wrong in ["request: 1s, backendRequest: 2s", "request: soon"] {
        let cluster = with(wrong);
        let found = cluster.parent(Kind::HttpRoute, "route", 0, "PartiallyInvalid");
        assert_eq!(found, "True UnsupportedValue", "{wrong}");
        assert_eq!(cluster.plans("route")[1].action, RuleAction::Fail, "{wrong}");
    }
    let cluster = with("request: 0s, backendRequest: 2s");
    assert_eq!(cluster.plans("route")[1].request_timeout, Some(Duration::ZERO));
}

#[test]
fn session_persistence_is_refused_by_name() {
    let cluster = with_rules(settings(true), &["{sessionPersistence: {type: Cookie}}"]);
    let conditions = &cluster.status(Kind::HttpRoute, "route")["parents"][0]["conditions"];
    let message = Cluster::message(conditions, "Accepted");
    assert_eq!(message, "rule 0: sessionPersistence is not supported: remove it");
}

// HTTPRouteWeight, HTTPRouteRequestHeaderModifierBackendWeights
#[test]
fn backends_have_weights_and_filters() {
    let plans = plans(&[
        "{backendRefs: [{name: web, port: 8080}, {name: other, port: 8080, weight: 0, filters: [{type: \
         RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}]}]}",
    ]);
    let RuleAction::Forward(backends) = &plans[0].action else { panic!() };
    let found: Vec<_> = backends.iter().map(|backend| (backend.weight, backend.filters.len())).collect();
    assert_eq!(found, [(1, 0), (0, 1)]);
    for filter in [
        "{type: RequestRedirect, requestRedirect: {}}",
        "{type: RequestMirror, requestMirror: {backendRef: {name: other, port: 8080}}}",
    ] {
        let rule = format!("{{backendRefs: [{{name: web, port: 8080, filters: [{filter}]}}]}}");
        let cluster = with_rules(settings(false), &["{}", &rule]);
        let partial = cluster.parent(Kind::HttpRoute, "route", 0, "PartiallyInvalid");
        assert_eq!(partial, "True UnsupportedValue", "{filter}");
        assert_eq!(cluster.plans("route")[1].action, RuleAction::Fail, "{filter}");
        assert!(cluster.world.desired_state().upstreams.is_empty(), "{filter}");
    }
}

// GRPCExactMethodMatching
#[test]
fn grpc_rules_match_services_and_methods() {
    let mut cluster = with_rules(settings(false), &["{}"]);
    cluster.apply(&gateway("second"));
    cluster.apply(
        "kind: GRPCRoute
metadata: {name: grpc}
spec:
  parentRefs: [{name: second}]
  rules:
  - matches: [{method: {service: echo.Echo, method: Say}}, {method: {type: Exact, service: echo.Echo}, headers: [{name: V, value: '2'}]}]
  - {}",
    );
    cluster.settle();
    let state = cluster.world.desired_state();
    let plans: Vec<_> =
        state.plans.values().filter(|plan| plan.id.route.kind == Kind::GrpcRoute).cloned().collect();
    let found: Vec<_> = plans
        .iter()
        .map(|plan| {
            let grpc = plan.matches.grpc.as_ref().unwrap();
            (grpc.service.as_deref(), grpc.method.as_deref(), plan.matches.headers.len())
        })
        .collect();
    assert_eq!(found, [(Some("echo.Echo"), Some("Say"), 0), (Some("echo.Echo"), None, 1), (None, None, 0)]);
    for rule in [
        "{matches: [{method: {type: RegularExpression, service: x}}]}",
        "{filters: [{type: CORS, cors: {}}]}",
        "{filters: [{type: URLRewrite, urlRewrite: {}}]}",
    ] {
        cluster.apply(&format!(
            "kind: GRPCRoute\nmetadata: {{name: grpc}}\nspec: {{parentRefs: [{{name: second}}], rules: [{rule}]}}"
        ));
        cluster.settle();
        assert_eq!(
            cluster.parent(Kind::GrpcRoute, "grpc", 0, "Accepted"),
            "False UnsupportedValue",
            "{rule}"
        );
    }
}
