//! Objects of a cluster, served by a gateway in this process.

mod backend_tls;
mod certificates;
mod external_auth;
mod ingress;
mod matches;
mod objects;

use std::path::Path;
use std::time::Duration;

use auth::time::Timestamp;
use cluster::policy::{BodyChecker, BodyFault};
use config::{ConfigSource, NoFiles};
use controller::settings::Settings;
use dataplane::harness::{Upstream, until};
use objects::{Cluster, manifest_of_service};

/// A Gateway with one HTTP listener, and a service `app` with one pod.
fn cluster() -> (Cluster, Upstream) {
    cluster_with(Settings::new("postern.dev/gateway-controller"))
}

/// The same, with these settings of the controller.
fn cluster_with(settings: Settings) -> (Cluster, Upstream) {
    let mut cluster = Cluster::with(settings);
    let pod = Upstream::start();
    cluster.apply(
        "
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: postern
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
",
    );
    cluster.apply(&manifest_of_service("app", pod.address));
    (cluster, pod)
}

/// An HTTPRoute for a host, with the rules in YAML.
fn route(name: &str, host: &str, rules: &str) -> String {
    format!(
        "
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: gw}}]
  hostnames: [{host}]
  rules:
{rules}
"
    )
}

const TO_APP: &str = "  - backendRefs: [{name: app, port: 80}]";

/// An AccessPolicy for an HTTPRoute, with the body in YAML.
fn policy(name: &str, route: &str, body: &str) -> String {
    format!(
        "
kind: AccessPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: {route}}}]
  defaults: {body}
"
    )
}

const DEVELOPERS: &str = "{allow: [{groups: {any: [dev]}}]}";
const EVERYBODY: &str = "{public: true}";

#[test]
fn a_route_without_a_policy_is_closed_and_opens_with_one() {
    let (mut cluster, pod) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.publish();
    let closed = cluster.get("app.test", "/", "");
    assert_eq!(closed.status, 403);
    assert!(closed.text().contains("no_policy"), "{}", closed.text());
    assert_eq!(cluster.get("other.test", "/", "").status, 404);
    cluster.apply(&policy("developers", "app", DEVELOPERS));
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 401);
    let bearer = cluster.bearer();
    assert_eq!(cluster.get("app.test", "/x", &bearer).status, 200);
    assert_eq!(pod.only().line(), "GET /x HTTP/1.1");
    cluster.remove("AccessPolicy", "developers");
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", &bearer).status, 403, "closed at once");
}

#[test]
fn a_closed_route_leaves_its_requests_to_no_broader_one() {
    let (mut cluster, _pod) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.apply(&policy("open", "app", EVERYBODY));
    let admin =
        "  - matches: [{path: {type: PathPrefix, value: /admin}}]\n    backendRefs: [{name: app, port: 80}]";
    cluster.apply(&route("admin", "app.test", admin));
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    assert_eq!(cluster.get("app.test", "/admin/x", "").status, 403);
}

#[test]
fn a_policy_that_is_not_valid_closes_its_route_and_no_other() {
    let (mut cluster, _pod) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.apply(&route("other", "other.test", TO_APP));
    cluster.apply(&policy("broken", "app", "{allow: [{issuers: [nobody]}]}"));
    cluster.apply(&policy("open", "other", EVERYBODY));
    let faults = cluster.publish();
    assert_eq!(
        (cluster.get("app.test", "/", "").status, cluster.get("other.test", "/", "").status),
        (403, 200)
    );
    assert!(faults.contains("there is no issuer \"nobody\""), "{faults}");
}

#[test]
fn a_policy_that_does_not_fit_a_route_is_in_the_status_of_both() {
    let (mut cluster, _pod) = cluster();
    let body = "{allow: [{authenticated: true}], access_review: {verb: get, resource: notebooks, name: '{route.labels.notebook}'}}";
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.apply(&policy("review", "app", body));
    let faults = cluster.publish();
    assert!(faults.contains("AccessPolicy team/review: the route has no label"), "{faults}");
    assert_eq!(cluster.get("app.test", "/", "").status, 403);
    let of_route =
        |cluster: &Cluster| cluster.condition("HTTPRoute", "app", "access.postern.dev/PolicyApplied");
    let of_policy = |cluster: &Cluster| cluster.condition("AccessPolicy", "review", "PartiallyInvalid");
    let text = of_route(&cluster);
    assert!(
        text.starts_with(
            "False InvalidPolicy: AccessPolicy team/review does not fit: rule 0 is not carried out"
        ),
        "{text}"
    );
    let text = of_policy(&cluster);
    assert!(
        text.starts_with("True UnsupportedValue: ") && text.contains("HTTPRoute team/app rule 0"),
        "{text}"
    );
    let labels = "metadata: {name: app, labels: {notebook: one}}";
    cluster.apply(&route("app", "app.test", TO_APP).replace("metadata: {name: app}", labels));
    assert_eq!(cluster.publish(), "");
    assert_eq!((of_route(&cluster), of_policy(&cluster)), ("True Applied: ".to_owned(), String::new()));
}

#[test]
fn a_policy_that_names_a_file_of_the_gateway_closes_its_route() {
    let (mut cluster, _pod) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    let body = "{public: true, request_headers: {set: {X-Key: {file: /etc/hostname}}}}";
    cluster.apply(&policy("files", "app", body));
    let faults = cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 403);
    assert!(
        faults.contains("AccessPolicy team/files: request_headers: unknown key `request_headers`"),
        "{faults}"
    );
}

#[test]
fn endpoints_change_without_a_failed_request() {
    let (mut cluster, first) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.apply(&policy("open", "app", EVERYBODY));
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    let second = Upstream::start();
    cluster.apply(&manifest_of_service("app", second.address));
    cluster.publish();
    until("the other pod is used", || {
        assert_eq!(cluster.get("app.test", "/", "").status, 200);
        !second.seen().is_empty()
    });
    assert_eq!(first.seen().len() + second.seen().len(), cluster.answered());
}

#[test]
fn filters_and_conditions_are_carried_out() {
    let (mut cluster, pod) = cluster();
    cluster.apply(&route(
        "app",
        "app.test",
        "
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters:
    - type: URLRewrite
      urlRewrite: {hostname: inner.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: X-Team, value: 'a{b}'}], remove: [X-Secret]}
    backendRefs: [{name: app, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /moved}}]
    filters:
    - type: RequestRedirect
      requestRedirect: {hostname: new.test, statusCode: 301}
  - matches: [{path: {type: Exact, value: /broken}}]
    backendRefs: [{name: missing, port: 80}]
  - matches: [{headers: [{name: X-Version, value: two}], queryParams: [{name: v, value: '2'}]}]
    filters:
    - type: ResponseHeaderModifier
      responseHeaderModifier: {add: [{name: X-Answered, value: two}]}
    backendRefs: [{name: app, port: 80}]
",
    ));
    cluster.apply(&policy("open", "app", EVERYBODY));
    assert_eq!(cluster.publish(), "");
    assert_eq!(cluster.get("app.test", "/old/x?y", "X-Secret: 1\r\nX-Team: z\r\n").status, 200);
    let seen = pod.only();
    assert_eq!(seen.line(), "GET /new/x?y HTTP/1.1");
    assert_eq!((seen.values("host"), seen.values("x-team")), (vec!["inner.test"], vec!["a{b}"]));
    assert!(seen.values("x-secret").is_empty());
    let moved = cluster.get("app.test", "/moved/x", "");
    assert_eq!((moved.status, moved.value("location")), (301, Some("http://new.test/moved/x")));
    assert_eq!(cluster.get("app.test", "/broken", "").status, 500);
    let two = cluster.get("app.test", "/?v=2", "X-Version: two\r\n");
    assert_eq!((two.status, two.value("x-answered")), (200, Some("two")));
    assert_eq!(cluster.get("app.test", "/?v=3", "X-Version: two\r\n").status, 404);
}

/// The limit of an upstream for the head of a response must not end what the rule permits.
#[test]
fn a_time_limit_of_a_rule_holds_for_the_head_of_the_response() {
    let (mut cluster, _pod) = cluster();
    cluster.apply(&policy("open", "app", EVERYBODY));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (timeouts, expected) in [
        ("{}", (None, None)),
        ("{request: 10m}", (seconds(600), seconds(600))),
        ("{request: 10m, backendRequest: 2m}", (seconds(120), seconds(600))),
        ("{request: 0s}", (Some(Duration::MAX), None)),
        ("{request: 10m, backendRequest: 0s}", (Some(Duration::MAX), seconds(600))),
    ] {
        cluster.apply(&route("app", "app.test", &format!("{TO_APP}\n    timeouts: {timeouts}")));
        assert_eq!(cluster.publish(), "");
        assert_eq!(cluster.limits("HTTPRoute team/app rule 0 match 0"), expected, "{timeouts}");
    }
}

#[test]
fn the_operator_permits_what_gives_credentials_to_services() {
    const LOGIN: &str = "login: true, allow: [{authenticated: true}]";
    for (field, body) in [
        ("authorizer", "{public: true, authorizer: asked}".to_owned()),
        ("basic_auth", "{allow: [{authenticated: true}], basic_auth: accept}".to_owned()),
        ("forward_access_token", format!("{{{LOGIN}, forward_access_token: true}}")),
        ("forward_authorization", "{public: true, forward_authorization: true}".to_owned()),
        ("application_authorization", format!("{{{LOGIN}, application_authorization: true}}")),
    ] {
        let body: serde_json::Value = serde_saphyr::from_str(&body).expect("a body");
        let check = |list: &[&str]| {
            let text = format!("[gateway_api]\npolicies_may_use = {list:?}\n");
            let source = ConfigSource { name: "f", text: &text, base: Path::new("/"), files: &NoFiles };
            let loaded = config::load(source, Timestamp::from_secs(0), 1);
            let checker = loaded.unwrap_or_else(|refused| panic!("{}", refused.report)).route_checker;
            BodyChecker::new(checker).check_fields(&body, Timestamp::from_secs(0))
        };
        let others: Vec<_> = [
            "authorizer",
            "basic_auth",
            "forward_access_token",
            "forward_authorization",
            "application_authorization",
        ]
        .into_iter()
        .filter(|other| *other != field)
        .collect();
        assert_eq!(check(&others), Err(BodyFault::NotPermitted(field)), "{body}");
        assert!(!matches!(check(&[field]), Err(BodyFault::NotPermitted(_))), "{body}");
    }
    let text = BodyFault::NotPermitted("authorizer").to_string();
    assert!(text.contains("add \"authorizer\" to `gateway_api.policies_may_use`"), "{text}");
}

#[test]
fn another_configuration_file_keeps_the_routes_of_the_cluster() {
    let (mut cluster, _pod) = cluster();
    cluster.apply(&route("app", "app.test", TO_APP));
    cluster.apply(&policy("developers", "app", DEVELOPERS));
    cluster.publish();
    let bearer = cluster.bearer();
    let mut client = cluster.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: app.test\r\n{bearer}\r\n");
    client.send(&request);
    assert_eq!(client.response().status, 200);
    cluster.reload();
    client.send(&request);
    assert_eq!(client.response().status, 200, "the connection stays, and finds its listener again");
    assert_eq!(cluster.get("app.test", "/", &bearer).status, 200);
    cluster.remove("HTTPRoute", "app");
    cluster.publish();
    client.send(&request);
    assert_eq!(client.response().status, 404);
}

#[test]
fn a_gateway_that_is_gone_closes_its_port() {
    let (mut cluster, _pod) = cluster();
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 404);
    cluster.remove("Gateway", "gw");
    cluster.publish();
    until("the port is closed", || !cluster.is_open());
}

/// Without Services, ports of Gateways are ports of the machine.
#[test]
fn the_older_of_two_gateways_has_their_port() {
    for names in [["a", "z"], ["z", "a"]] {
        let mut cluster = Cluster::start();
        let pod = Upstream::start();
        cluster.apply(&manifest_of_service("app", pod.address));
        let [older, younger] = names;
        let gateway = |name: &str| {
            format!(
                "
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: postern
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"
            )
        };
        for name in names {
            cluster.apply(&gateway(name));
            let to = format!("parentRefs: [{{name: {name}}}]");
            let own = route(name, &format!("{name}.test"), TO_APP);
            cluster.apply(&own.replace("parentRefs: [{name: gw}]", &to));
            cluster.apply(&policy(name, name, EVERYBODY));
        }
        cluster.publish();
        let programmed = |cluster: &Cluster, name: &str| cluster.condition("Gateway", name, "Programmed");
        let served = |cluster: &Cluster| {
            [older, younger].map(|name| cluster.get(&format!("{name}.test"), "/", "").status)
        };
        assert_eq!(served(&cluster), [200, 404], "{names:?}");
        let text = cluster.listener_condition(younger, "Programmed");
        let fault = format!("False Invalid: the older Gateway team/{older} has port 80 too");
        assert!(text.starts_with(&fault), "{text}");
        assert!(programmed(&cluster, younger).starts_with("False Invalid"), "{names:?}");
        assert!(cluster.listener_condition(older, "Programmed").starts_with("True"), "{names:?}");
        // A change of the younger one changes nothing.
        cluster.apply(&gateway(younger).replace("name: http,", "name: other,"));
        cluster.publish();
        assert_eq!(served(&cluster), [200, 404], "{names:?}");
        cluster.remove("Gateway", older);
        cluster.publish();
        assert_eq!(served(&cluster), [404, 200], "{names:?}");
        assert!(cluster.listener_condition(younger, "Programmed").starts_with("True"), "{names:?}");
    }
}

#[test]
fn figures_are_those_of_gateways_and_go_with_them() {
    let (mut cluster, pod) = cluster();
    cluster.apply(
        "
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: postern
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
kind: ListenerSet
metadata: {name: set}
spec:
  parentRef: {name: gw}
  listeners:
  - {name: own, port: 80, protocol: HTTP, hostname: own.test}
",
    );
    cluster.apply(&route("app", "app.test", TO_APP));
    let labels = "metadata: {name: asked, labels: {postern.dev/route-metrics: 'true'}}";
    cluster.apply(&route("asked", "asked.test", TO_APP).replace("metadata: {name: asked}", labels));
    cluster.apply(&policy("open", "app", EVERYBODY));
    cluster.apply(&policy("open-too", "asked", EVERYBODY));
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    assert_eq!(cluster.get("asked.test", "/", "").status, 200);
    assert_eq!(cluster.get("none.test", "/", "").status, 404);
    assert_eq!(cluster.get("own.test", "/", "").status, 404);
    let of_listener =
        r#"postern_requests_total{gateway="team/gw",listener="http",outcome="allowed",class="2xx"}"#;
    until_counted(&cluster, of_listener, "2");
    let unrouted =
        r#"postern_requests_total{gateway="team/gw",listener="http",outcome="no_route",class="4xx"}"#;
    until_counted(&cluster, unrouted, "1");
    let of_set = r#"postern_requests_total{gateway="team/gw",listener_set="team/set",listener="own",outcome="no_route",class="4xx"}"#;
    until_counted(&cluster, of_set, "1");
    let of_route = r#"postern_route_requests_total{route="HTTPRoute team/asked",class="2xx"}"#;
    until_counted(&cluster, of_route, "1");
    until_counted(&cluster, r#"postern_upstream_requests_total{upstream="(cluster)"}"#, "2");
    let connections = r#"postern_connections_accepted_total{gateway="team/gw"}"#;
    until_counted(&cluster, connections, "4");
    let text = cluster.metrics();
    assert!(!text.contains("team/gw:80"), "a socket has no figures of its own: {text}");
    assert!(!text.contains("team/app") && !text.contains(&pod.address.to_string()), "{text}");
    // Another generation of a route continues its figures.
    cluster.apply(
        &route("asked", "asked.test", "  - name: changed\n    backendRefs: [{name: app, port: 80}]")
            .replace("metadata: {name: asked}", labels),
    );
    cluster.publish();
    assert_eq!(cluster.get("asked.test", "/", "").status, 200);
    until_counted(&cluster, of_route, "2");
    cluster.remove("HTTPRoute", "asked");
    cluster.publish();
    assert!(!cluster.metrics().contains("team/asked"), "gone with the route");
    assert!(cluster.metrics().contains("team/gw"));
    cluster.remove("Gateway", "gw");
    cluster.publish();
    assert!(!cluster.metrics().contains("team/gw"), "gone with the Gateway");
}

/// Waits until a series has a value: a request is counted after its response is written.
fn until_counted(cluster: &Cluster, series: &str, value: &str) {
    until(series, || cluster.value(series).as_deref() == Some(value));
}
